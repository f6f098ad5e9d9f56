/** The order of the system calls, by `strace`: a mark is on the disk before the first packet of its attempt leaves. */

import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, realpath, rm } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
const DIST = fileURLToPath(new URL("../dist", import.meta.url));

function hasStrace(): boolean {
  try {
    execFileSync("strace", ["-V"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

/** A call, as a trace tells it: one of several threads in two lines, of which the first has no result. */
interface Call {
  name: string;
  /** Everything that was said of it when it began. */
  about: string;
  /** `begun` where it has no result yet. */
  result: "begun" | "well" | "failed";
  /** True of the second line of two. */
  isRest: boolean;
}

function callsOf(trace: string): Call[] {
  const calls: Call[] = [];
  const begun = new Map<string, string>();
  for (const line of trace.split("\n")) {
    const [, pid = "", resumed, name = "", rest = ""] = /^(\d+) +(<\.\.\. )?(\w+)(.*)$/.exec(line) ?? [];
    if (!name) continue;
    const id = `${pid} ${name}`;
    const about = resumed ? (begun.get(id) ?? "") : rest;
    const isBegun = line.endsWith("<unfinished ...>");
    if (isBegun) begun.set(id, rest);
    const result = isBegun ? "begun" : /\) += -1 /.test(rest) ? "failed" : "well";
    calls.push({ name, about, result, isRest: !!resumed });
  }
  return calls;
}

/** Everything that is written or made below a folder, and not yet on the disk. */
class Disk {
  readonly dirty = new Set<string>();
  syncs = 0;
  readonly #folder: string;
  constructor(folder: string) {
    this.#folder = folder;
  }

  /** Takes a call that succeeded. */
  take({ name, about }: Call): void {
    const [, file = ""] = /^\(\d+<([^>]*)>/.exec(about) ?? [];
    const named = [...about.matchAll(/"([^"]*)"/g)].map(([, path]) => path as string).filter((path) => path.startsWith(this.#folder));
    const [first, last] = [named[0], named.at(-1)];
    if (/^(p?write(64|v)?|ftruncate)$/.test(name) && file.startsWith(this.#folder)) this.dirty.add(file);
    else if (/^f(data)?sync$/.test(name) && file.startsWith(this.#folder)) {
      this.dirty.delete(file);
      this.syncs += 1;
    } else if (first && last && (/^mkdir/.test(name) || (name == "openat" && about.includes("O_CREAT")))) {
      this.dirty.add(dirname(last));
    } else if (first && last && /^rename/.test(name)) {
      this.dirty.add(dirname(last));
      // What was not synced under its first name is not under its second.
      for (const path of [...this.dirty]) {
        if (path != first && !path.startsWith(`${first}/`)) continue;
        this.dirty.delete(path);
        this.dirty.add(last + path.slice(first.length));
      }
    }
  }
}

/** Follows a trace; what leaves the process, or tells an end, must find everything on the disk. Returns what did. */
function follow(trace: string, folder: string, port: number): string[] {
  const disk = new Disk(folder);
  const told: string[] = [];
  let synced = 0;
  for (const call of callsOf(trace)) {
    const { name, about, result, isRest } = call;
    const word =
      name == "connect" && about.includes(`htons(${port})`) ? "connect" : name == "write" && about.includes("told ") ? "told" : "";
    // What leaves the process counts from its beginning, what is written from its end.
    if (word && !isRest) {
      assert.deepEqual([...disk.dirty], [], `not synced before: ${name}${about}`);
      assert.ok(disk.syncs > synced, `nothing was synced before: ${name}${about}`);
      synced = disk.syncs;
      told.push(word);
    }
    if (result == "well") disk.take(call);
  }
  return told;
}

test(
  "an intent is on the disk before it is told, each mark before its attempt connects, and the end before it is told",
  { skip: !hasStrace() && "there is no strace" },
  async (t) => {
    const folder = await realpath(await mkdtemp(join(tmpdir(), "firstwrite-durable-")));
    let answered = 0;
    const server = createServer((asked, answer) => {
      asked.resume();
      answered += 1;
      answer.writeHead(answered < 3 ? 503 : 201, { connection: "close" }).end();
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    t.after(async () => {
      server.closeAllConnections();
      server.close();
      await rm(folder, { recursive: true });
    });
    const { port } = server.address() as AddressInfo;
    const script = `
      import { writeSync } from "node:fs";
      import { folder } from "${DIST}/file.js";
      import { client } from "${DIST}/node.js";
      const fw = client({ storage: folder("${folder}/deep/er/intents"), random: () => 0, waitFor: Infinity });
      const pay = await fw.intent("a", { url: "http://127.0.0.1:${port}/" });
      writeSync(1, "told opened, ");
      writeSync(1, "told " + (await pay.settled()).kind);
    `;
    const trace = join(folder, "trace");
    const calls = "openat,mkdir,mkdirat,write,pwrite64,writev,fsync,fdatasync,rename,renameat,renameat2,ftruncate,connect";
    const options = ["-f", "-y", "-s", "128", "-e", `trace=${calls}`, "-o", trace];
    const { stdout } = await run("strace", [...options, process.execPath, "--input-type=module", "-e", script]);
    assert.equal(stdout, "told opened, told done");
    assert.deepEqual(follow(await readFile(trace, "utf8"), folder, port), ["told", "connect", "connect", "connect", "told"]);
  },
);

test("the trace of a program that does not sync is refused", () => {
  const connect = "7 connect(9<socket:[1]>, {sa_family=AF_INET, sin_port=htons(80)}, 16) = 0";
  const sync = "7 fsync(3</i>) = 0";
  const refused: string[][] = [
    [sync, '7 write(3</i/a.json>, "x", 1) = 1'],
    [sync, '7 openat(AT_FDCWD, "/i/a.json", O_WRONLY|O_CREAT, 0600) = 3</i/a.json>'],
    ['7 mkdir("/i/a/b", 0700) = 0', sync],
    [sync, '7 rename("/i/new", "/i/a") = 0'],
    ['7 write(3</i/new/x>, "x", 1) = 1', '7 rename("/i/new", "/i/a") = 0', sync],
    ["7 fsync(3</i/a> <unfinished ...>", '8 write(3</i/a>, "x", 1) = 1'],
    ['7 write(3</i/a>, "x", 1) = 1', "7 fsync(3</i/a>) = -1 EIO (Input)"],
    [],
  ];
  for (const lines of refused) {
    assert.throws(() => follow([...lines, connect].join("\n"), "/i", 80), /synced before/, lines.join("\n"));
  }
  const taken = ['7 write(3</i/new/x>, "x", 1) = 1', "7 fsync(3</i/new/x>) = 0", '7 rename("/i/new", "/i/a") = 0', sync, connect];
  assert.deepEqual(follow(taken.join("\n"), "/i", 80), ["connect"]);
});
