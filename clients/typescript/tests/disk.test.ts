/** A folder on a disk that is full, and what others may read of it. Linux alone has `prlimit`. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";

import { folder } from "../dist/file.js";
import { client } from "../dist/node.js";
import { entryOf } from "./storages.js";
import { CREATED, server, URL } from "./world.js";

const run = promisify(execFile);

async function inFolder(work: (path: string) => Promise<void>): Promise<void> {
  const path = await mkdtemp(join(tmpdir(), "firstwrite-disk-"));
  try {
    await work(path);
  } finally {
    await rm(path, { recursive: true });
  }
}

/** Lets no file of this process grow beyond this many bytes. What does not fit is an error, as on a full disk. */
const limitFiles = (bytes: string) => run("prlimit", ["--pid", `${process.pid}`, `--fsize=${bytes}:unlimited`]);

/** A client of a folder, and an order that has more bytes than a full disk takes. */
function bench(path: string) {
  const { fetch, seen } = server(() => CREATED);
  const storage = folder(path);
  const fw = client({ storage, fetch });
  return { fw, seen, storage, order: { url: URL, body: "x".repeat(10_000) } };
}

const needsLinux = { skip: process.platform != "linux" && "there is no prlimit" };

test("an intent for which the disk has no room is an error, and nothing stands or is sent", needsLinux, () =>
  inFolder(async (path) => {
    const { fw, seen, storage, order } = bench(path);
    await limitFiles("4096");
    try {
      await assert.rejects(fw.intent("a", order), (error: Error) => {
        assert.deepEqual([error.name, (error.cause as NodeJS.ErrnoException).code], ["StorageError", "EFBIG"]);
        return true;
      });
    } finally {
      await limitFiles("unlimited");
    }
    assert.deepEqual([seen.length, await storage.list(), await readdir(path)], [0, { entries: [], damaged: [] }, []]);
    assert.equal((await (await fw.intent("a", order)).settled()).kind, "done");
  }));

test("a mark for which the disk has no room is an error, nothing is sent, and the intent goes on later", needsLinux, () =>
  inFolder(async (path) => {
    const { fw, seen, storage, order } = bench(path);
    const pay = await fw.intent("a", order);
    const stood = await storage.get("a");
    await limitFiles("4096");
    try {
      await assert.rejects(pay.settled(), { name: "StorageError" });
    } finally {
      await limitFiles("unlimited");
    }
    assert.deepEqual([seen.length, await storage.get("a")], [0, stood]);
    assert.equal((await pay.settled()).kind, "done");
    assert.equal(seen.length, 1);
  }));

test("an answer for which the disk has no room is not lost: the same request gets it again", needsLinux, () =>
  inFolder(async (path) => {
    const keys: unknown[] = [];
    const fetch = async (_: string, { headers }: RequestInit) => {
      keys.push(new Headers(headers).get("idempotency-key"));
      if (keys.length == 1) await limitFiles("4096");
      return new Response("{}", { status: 201 });
    };
    const fw = client({ storage: folder(path), fetch });
    const pay = await fw.intent("a", { url: URL, body: "x".repeat(10_000) });
    try {
      await assert.rejects(pay.settled(), { name: "StorageError" });
    } finally {
      await limitFiles("unlimited");
    }
    const again = await fw.find("a");
    assert.deepEqual([again?.state, (await again?.settled())?.kind], ["sending", "done"]);
    assert.deepEqual([keys.length, new Set(keys).size], [2, 1]);
  }));

test("what the folder makes is its owner's alone", { skip: process.platform == "win32" && "it has no modes" }, () =>
  inFolder(async (path) => {
    const storage = folder(join(path, "new", "intents"));
    await storage.put(entryOf("a", 1), null);
    await storage.put(entryOf("a", 2), 1);
    const found: string[] = [];
    for (const name of await readdir(path, { recursive: true })) {
      const { mode } = await stat(join(path, name));
      found.push((mode & 0o7777).toString(8));
    }
    assert.deepEqual(found.sort(), ["600", "600", "700", "700", "700"]);
  }));

test("the lane of an entry that cannot be read is told, where one can", () =>
  inFolder(async (path) => {
    const storage = folder(path);
    await storage.put(entryOf("a", 1, { lane: 'notes "7"', place: 3 }), null);
    const [place = ""] = await readdir(path);
    const file = (await readdir(join(path, place))).find((name) => name.endsWith(".json")) as string;
    const text = await readFile(join(path, place, file), "utf8");
    const lanes: unknown[] = [];
    for (const damage of [text.replace('"v":1', '"v":2'), text.replace("POST", "PUT!"), text.slice(0, 90), ""]) {
      await writeFile(join(path, place, file), damage);
      lanes.push((await storage.list()).damaged[0]?.lane);
    }
    assert.deepEqual(lanes, ['notes "7"', 'notes "7"', undefined, undefined]);
  }));
