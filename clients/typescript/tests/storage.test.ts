/** The storages of Node: what all must do, and what a folder must do besides. */

import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { once } from "node:events";
import fs, { mkdir, mkdtemp, readdir, readFile, rename, rm, utimes, writeFile } from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { test } from "node:test";

import { folder } from "../dist/file.js";
import { client, type Storage } from "../dist/node.js";
import { memory } from "../dist/memory.js";
import { rawKey, sealed } from "../dist/seal.js";
import { CASES, entryOf } from "./storages.js";
import { server, tools } from "./world.js";

const KEY = rawKey(new Uint8Array(32).fill(7));

async function inFolder(work: (path: string) => Promise<void>): Promise<void> {
  const path = await mkdtemp(join(tmpdir(), "firstwrite-"));
  try {
    await work(path);
  } finally {
    await rm(path, { recursive: true });
  }
}

for (const [name, run] of Object.entries(CASES)) {
  test(`memory: ${name}`, () => run(memory()));
  test(`folder: ${name}`, () => inFolder((path) => run(folder(join(path, "new", "folder")))));
  test(`sealed folder: ${name}`, () => inFolder((path) => run(sealed(folder(path), KEY))));
}

test("of many processes that change one entry, one at a time does", () =>
  inFolder(async (path) => {
    const storage = folder(path);
    await storage.put(entryOf("a", 0), null);
    const children = Array.from({ length: 4 }, () => fork(new URL("increments.js", import.meta.url), [path, "15"]));
    const codes = await Promise.all(children.map(async (child) => (await once(child, "exit"))[0]));
    assert.deepEqual(codes, [0, 0, 0, 0]);
    const entry = await storage.get("a");
    assert.deepEqual([entry?.attempts, entry?.rev], [60, 60]);
  }));

test("a folder counts a write as done when the file and its names were flushed", () =>
  inFolder(async (path) => {
    const calls: string[] = [];
    const named = (at: unknown) => basename(String(at)).replace(/[0-9a-f]{64}/, "entry").replace(/[0-9a-f-]{36}/, "id");
    const handle = await fs.open(path);
    const prototype = Object.getPrototypeOf(handle) as { sync(): Promise<void> };
    await handle.close();
    const { sync } = prototype;
    const { open, rename } = fs;
    const opened = new WeakMap<object, unknown>();
    fs.open = async (...all) => {
      const handle = await open(...all);
      opened.set(handle, all[0]);
      return handle;
    };
    prototype.sync = function () {
      calls.push(`sync ${named(opened.get(this))}`);
      return sync.call(this);
    };
    fs.rename = (from, to) => {
      calls.push(`rename ${named(from)} ${named(to)}`);
      return rename(from, to);
    };
    syncBuiltinESMExports();
    try {
      const storage = folder(join(path, "new", "folder"));
      await storage.put(entryOf("a", 1), null);
      await storage.put(entryOf("a", 2), 1);
      await storage.delete("a", 2);
    } finally {
      Object.assign(fs, { open, rename });
      prototype.sync = sync;
      syncBuiltinESMExports();
    }
    assert.deepEqual(calls, [
      // Each folder that was made is durable by the one above it.
      ...["sync new", `sync ${named(path)}`],
      ...["sync id.json", "sync new.id", "rename new.id entry", "sync folder"],
      ...["sync id.json", "rename at.id at.id", "sync entry"],
      ...["rename at.id gone.id", "sync entry", "sync folder"],
    ]);
  }));

test("a damaged entry is an error that names it, and is left where it is", () =>
  inFolder(async (path) => {
    const storage = folder(path);
    await storage.put(entryOf("a", 1), null);
    await storage.put(entryOf("b", 1), null);
    const place = await placeOf(path, "a");
    const file = join(place, (await readdir(place)).find((name) => name.endsWith(".json")) as string);
    const text = await readFile(file, "utf8");
    const damages = [text.slice(0, -20), "", text.replace("POST", "PUT!"), text.replace('"v":1', '"v":2'), text.replace("\n", "")];
    for (const damage of damages) {
      await writeFile(file, damage);
      await assert.rejects(storage.get("a"), { name: "DamagedEntry", intent: "a" });
      for (const rev of [null, 1]) await assert.rejects(storage.put(entryOf("a", 2), rev), { name: "DamagedEntry" });
      await assert.rejects(storage.delete("a", 1), { name: "DamagedEntry" });
      const { entries, damaged } = await storage.list();
      assert.deepEqual([entries.map(({ name }) => name), damaged.map(({ what }) => what)], [["b"], [place]]);
      assert.equal(await readFile(file, "utf8"), damage);
      assert.equal((await readdir(path)).filter((name) => name.startsWith("new.")).length, 0);
    }
    const { fetch, seen } = server(() => ({ status: 201 }));
    const fw = client({ storage, fetch, ...tools().options });
    await assert.rejects(fw.intent("a", { url: "http://pay.test/" }), { name: "DamagedEntry" });
    assert.equal(seen.length, 0);
    await rm(file);
    await assert.rejects(storage.get("a"), { name: "DamagedEntry", intent: "a" });
  }));

test("what a crash left in the folder of an entry is no entry", () =>
  inFolder(async (path) => {
    const storage = folder(path);
    await storage.put(entryOf("a", 1), null);
    const place = await placeOf(path, "a");
    // A writer that died before it moved the mark, and one after.
    await writeFile(join(place, "left.json"), "half");
    assert.equal((await storage.get("a"))?.rev, 1);
    // A deletion that died after it had moved the mark.
    const mark = (await readdir(place)).find((name) => name.startsWith("at.")) as string;
    await rename(join(place, mark), join(place, mark.replace("at.", "gone.")));
    assert.equal(await storage.get("a"), undefined);
    assert.equal(await storage.put(entryOf("a", 9), null), true);
    assert.equal((await storage.get("a"))?.rev, 9);
    await storage.delete("a", 9);
    await mkdir(place);
    assert.equal(await storage.get("a"), undefined);
    assert.equal(await storage.put(entryOf("a", 10), null), true);
    await rename(join(place, (await readdir(place)).find((name) => name.startsWith("at.")) as string), join(place, "gone.x"));
    assert.deepEqual(await storage.list(), { entries: [], damaged: [] });
    assert.deepEqual(await readdir(path), []);
  }));

test("what creators left that died long ago is removed", () =>
  inFolder(async (path) => {
    await mkdir(join(path, "new.old"));
    await mkdir(join(path, "new.now"));
    await utimes(join(path, "new.old"), 0, 0);
    await folder(path).put(entryOf("a", 1), null);
    assert.deepEqual((await readdir(path)).filter((name) => name.startsWith("new.")), ["new.now"]);
  }));

test("a folder takes no more entries than it may, and no write where it is none", () =>
  inFolder(async (path) => {
    const storage = folder(path, { entriesMax: 2 });
    await storage.put(entryOf("a", 1), null);
    await storage.put(entryOf("b", 1), null);
    await assert.rejects(storage.put(entryOf("c", 1), null), { name: "StorageError" });
    assert.equal(await storage.put(entryOf("a", 2), 1), true);
    await writeFile(join(path, "file"), "");
    const { fetch, seen } = server(() => ({ status: 201 }));
    const fw = client({ storage: folder(join(path, "file")), fetch, ...tools().options });
    await assert.rejects(fw.intent("a", { url: "http://pay.test/" }), { name: "StorageError" });
    assert.equal(seen.length, 0);
  }));

test("a sealed storage holds no body that can be read", () =>
  inFolder(async (path) => {
    const { fetch } = server(() => ({ status: 201, body: "the secret answer" }));
    const storage = sealed(folder(path), KEY);
    const fw = client({ storage, fetch });
    const request = { url: "http://pay.test/", body: "the secret request" };
    const pay = await fw.intent("a", request);
    assert.equal((await pay.settled()).body?.text, "the secret answer");
    assert.equal((await fw.intent("a", request)).end?.body?.text, "the secret answer");
    assert.doesNotMatch(JSON.stringify((await folder(path).list()).entries), /secret|c2VjcmV0/);
    const other = sealed(folder(path), rawKey(new Uint8Array(32)));
    await assert.rejects(other.get("a"), { name: "DamagedEntry", intent: "a" });
    assert.deepEqual((await other.list()).damaged.map(({ what }) => what), ["a"]);
  }));

test("a sealed body belongs to its intent", async () => {
  const inner = memory();
  const storage: Storage = sealed(inner, KEY);
  await storage.put(entryOf("a", 1), null);
  const stolen = (await inner.get("a"))?.request.body ?? null;
  await inner.put(entryOf("b", 1, { request: { ...entryOf("b", 1).request, body: stolen } }), null);
  await assert.rejects(storage.get("b"), { name: "DamagedEntry" });
});

async function placeOf(path: string, name: string): Promise<string> {
  for (const place of await readdir(path)) {
    for (const file of await readdir(join(path, place))) {
      if (!file.endsWith(".json")) continue;
      if ((await readFile(join(path, place, file), "utf8")).includes(`"name":"${name}"`)) return join(path, place);
    }
  }
  throw new Error(`there is no ${name}`);
}
