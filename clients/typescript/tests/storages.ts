/** What every storage must do, as cases that run in Node and in browsers alike. */

import type { Entry, Storage } from "../dist/index.js";

export function entryOf(name: string, rev: number, more: Partial<Entry> = {}): Entry {
  return {
    v: 1,
    name,
    rev,
    key: `key-of-${name}`,
    request: { method: "POST", url: "http://pay.test/", headers: [["a", "b"]], body: { text: "ü\u0000\"\ud83d\ude00", base64: false } },
    openedAt: 1,
    attempts: 0,
    doubt: false,
    firstAt: null,
    since: null,
    notBefore: 0,
    expiresAt: null,
    end: null,
    lane: null,
    place: 0,
    ...more,
  };
}

function equal(actual: unknown, expected: unknown, what: string): void {
  const [a, b] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (a !== b) throw new Error(`${what}: ${a} is not ${b}`);
}

/** The cases by name. Each gets a storage that is empty. */
export const CASES: Record<string, (storage: Storage) => Promise<void>> = {
  async "an entry is read as it was written"(storage) {
    equal(await storage.get("a"), undefined, "before");
    equal((await storage.list()).entries.length, 0, "the list before");
    for (const name of ["a", "../b", "C", "c", "ü/\u0000 %", "x".repeat(255)]) {
      const entry = entryOf(name, 5);
      equal(await storage.put(entry, null), true, name);
      equal(await storage.get(name), entry, name);
    }
    equal((await storage.list()).entries.length, 6, "the list");
  },

  async "a write compares the revision"(storage) {
    equal(await storage.put(entryOf("a", 2), 1), false, "a change of nothing");
    equal(await storage.put(entryOf("a", 2), null), true, "the first");
    equal(await storage.put(entryOf("a", 7), null), false, "another first");
    equal(await storage.put(entryOf("a", 3), 1), false, "an older revision");
    equal(await storage.put(entryOf("a", 3, { attempts: 1 }), 2), true, "the next");
    equal(await storage.put(entryOf("a", 3, { attempts: 9 }), 2), false, "the next once more");
    equal((await storage.get("a"))?.attempts, 1, "what stands");
    equal(await storage.delete("a", 2), false, "a deletion of an older revision");
    equal(await storage.delete("a", 3), true, "a deletion");
    equal(await storage.delete("a", 3), false, "a deletion of nothing");
    equal(await storage.get("a"), undefined, "after");
    equal(await storage.put(entryOf("a", 4), 3), false, "a write after the deletion");
    equal(await storage.put(entryOf("a", 50), null), true, "another life");
    equal(await storage.put(entryOf("a", 4), 3), false, "a write of the life before");
    equal((await storage.get("a"))?.rev, 50, "the other life");
  },

  async "of many that open one name, one does"(storage) {
    const done = await Promise.all(Array.from({ length: 20 }, (_, at) => storage.put(entryOf("a", at * 100), null)));
    equal(done.filter(Boolean).length, 1, "writers that got through");
    equal((await storage.get("a"))?.rev, done.indexOf(true) * 100, "what stands");
  },

  async "of many that change one revision, one does"(storage) {
    await storage.put(entryOf("a", 0), null);
    for (let rev = 0; rev < 5; rev += 1) {
      const write = (_: unknown, at: number) => storage.put(entryOf("a", rev + 1, { attempts: at }), rev);
      const done = await Promise.all([...Array.from({ length: 10 }, write), storage.delete("a", rev + 1000)]);
      equal(done.filter(Boolean).length, 1, "writers that got through");
      equal((await storage.get("a"))?.attempts, done.indexOf(true), "what stands");
    }
    const done = await Promise.all(Array.from({ length: 10 }, () => storage.delete("a", 5)));
    equal(done.filter(Boolean).length, 1, "deletions that got through");
  },

  async "what is handed over stays as it was"(storage) {
    const entry = entryOf("a", 1);
    await storage.put(entry, null);
    entry.key = "changed";
    equal((await storage.get("a"))?.key, "key-of-a", "what stands");
    ((await storage.get("a")) as Entry).key = "changed";
    equal((await storage.get("a"))?.key, "key-of-a", "what still stands");
  },

  async "entries are deleted and opened again while others read them"(storage) {
    let isOver = false;
    const read = async () => {
      while (!isOver) {
        const entry = await storage.get("a");
        if (entry) equal(entry.key, "key-of-a", "what is read");
        equal((await storage.list()).damaged.length, 0, "damaged ones");
      }
    };
    const write = async () => {
      for (let rev = 0; rev < 120; rev += 3) {
        equal(await storage.put(entryOf("a", rev), null), true, "open");
        equal(await storage.put(entryOf("a", rev + 1), rev), true, "change");
        equal(await storage.delete("a", rev + 1), true, "delete");
      }
      isOver = true;
    };
    await Promise.all([read(), read(), write()]);
  },
};
