/** What the system sees: a mark is on the disk before the first packet of its attempt leaves. By `strace`. */

import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
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

/** A call that has returned, as a trace tells it. */
interface Call {
  name: string;
  /** The file that it was about, or everything that was said of it. */
  about: string;
}

/** Reads a trace. A call of several threads is told in two lines; what counts is when it returned, or a connection began. */
function callsOf(trace: string): Call[] {
  const calls: Call[] = [];
  const begun = new Map<string, string>();
  for (const line of trace.split("\n")) {
    const [, pid = "", name = "", rest = ""] = /^(\d+) +(?:<\.\.\. )?(\w+)(.*)$/.exec(line) ?? [];
    const id = `${pid} ${name}`;
    const told = line.includes(" resumed>") ? (begun.get(id) ?? "") : rest;
    const isBegun = line.endsWith("<unfinished ...>");
    if (isBegun) begun.set(id, rest);
    if (isBegun == (name == "connect") || !isBegun) calls.push({ name, about: told });
  }
  return calls;
}

test(
  "each mark is on the disk before its attempt connects",
  { skip: !hasStrace() && "there is no strace" },
  async (t) => {
    const folder = await mkdtemp(join(tmpdir(), "firstwrite-durable-"));
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
      import { folder } from "${DIST}/file.js";
      import { client } from "${DIST}/node.js";
      const fw = client({ storage: folder("${folder}/intents"), random: () => 0, waitFor: Infinity });
      const { kind } = await (await fw.intent("a", { url: "http://127.0.0.1:${port}/" })).settled();
      if (kind != "done") process.exit(1);
    `;
    const trace = join(folder, "trace");
    const options = ["-f", "-y", "-e", "trace=fsync,rename,connect", "-o", trace];
    await run("strace", [...options, process.execPath, "--input-type=module", "-e", script]);
    const calls = callsOf(await readFile(trace, "utf8"));
    const connects = [...calls.keys()].filter((at) => calls[at]?.name == "connect" && calls[at]?.about.includes(`htons(${port})`));
    assert.equal(connects.length, 3);
    let from = 0;
    for (const at of connects) {
      // A revision is written, its mark moved, and the names made durable: in this order, since the attempt before.
      const before = calls.slice(from, at);
      const last = (name: string, about: RegExp) =>
        before.reduce((found, call, place) => (call.name == name && about.test(call.about) ? place : found), -1);
      const [sync, move, names] = [last("fsync", /\.json>/), last("rename", /\/at\./), last("fsync", /\/[0-9a-f]{64}>/)];
      assert.ok(0 <= sync && sync < move && move < names, `${sync} ${move} ${names} of ${before.length}`);
      from = at;
    }
  },
);
