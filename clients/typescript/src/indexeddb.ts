/** Entries in IndexedDB, for pages and workers of browsers. */

import { DamagedEntry, StorageError } from "./storage.js";
import type { Entry, Storage } from "./entry.js";

export interface IndexedDbOptions {
  /** Name of the database, of its locks and of its channel; `firstwrite`. */
  database?: string;
  /** Ask the browser not to clear the database when space is short; true. Firefox asks the person. */
  persist?: boolean;
  /** Most entries that the database takes; 10,000. */
  entriesMax?: number;
}

const STORE = "intents";

/** Keeps entries in IndexedDB. A write is there when a transaction with `durability: "strict"` has completed. */
export function indexedDb(options: IndexedDbOptions = {}): Storage {
  const { database = "firstwrite", persist = true, entriesMax = 10_000 } = options;
  let opened: Promise<IDBDatabase> | undefined;
  let notice: Parameters<NonNullable<Storage["onNotice"]>>[0] = () => {};
  const channel = globalThis.BroadcastChannel && new BroadcastChannel(database);
  const listeners = new Set<() => void>();
  const changed = () => listeners.forEach((listener) => listener());
  if (channel) channel.onmessage = changed;

  const connect = () => {
    opened ??= (async () => {
      if (persist) void askToPersist(() => notice("persist-refused"));
      const request = indexedDB.open(database, 1);
      request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "name" });
      const db = await result(request);
      const forget = () => (opened = undefined);
      db.onclose = forget;
      db.onversionchange = () => {
        db.close();
        forget();
      };
      return db;
    })();
    opened.catch(() => (opened = undefined));
    return opened;
  };

  /** Runs one transaction, and returns when it has completed. */
  const run = async <T>(mode: IDBTransactionMode, work: (store: IDBObjectStore) => Promise<T>): Promise<T> => {
    let transaction: IDBTransaction | undefined;
    try {
      const begun = (await connect()).transaction(STORE, mode, { durability: "strict" });
      transaction = begun;
      const completed = new Promise<void>((done, fail) => {
        begun.oncomplete = () => done();
        begun.onabort = () => fail(begun.error ?? new Error("aborted"));
      });
      const [value] = await Promise.all([work(begun.objectStore(STORE)), completed]);
      return value;
    } catch (error) {
      // It has completed, or was aborted, where this throws.
      try {
        transaction?.abort();
      } catch {
        // Then nothing is left to undo.
      }
      if (error instanceof DamagedEntry || error instanceof StorageError) throw error;
      throw new StorageError(`the database ${database} cannot be used`, error);
    }
  };

  const write = async (name: string, rev: number | null, work: (store: IDBObjectStore) => Promise<unknown>) => {
    const isDone = await run("readwrite", async (store) => {
      const standing: unknown = await result(store.get(name));
      if ((standing === undefined ? null : check(standing, name).rev) !== rev) return false;
      await work(store);
      return true;
    });
    if (isDone) {
      changed();
      channel?.postMessage(0);
    }
    return isDone;
  };

  const storage: Storage = {
    get: (name) =>
      run("readonly", async (store) => {
        const entry: unknown = await result(store.get(name));
        return entry === undefined ? undefined : check(entry, name);
      }),
    put: (entry, rev) =>
      write(entry.name, rev, async (store) => {
        if (rev == null && (await result(store.count())) >= entriesMax) {
          throw new StorageError(`${database} holds ${entriesMax} entries: acknowledge those that have ended`);
        }
        await result(store.put(entry));
      }),
    delete: (name, rev) => write(name, rev, (store) => result(store.delete(name))),
    list: () =>
      run("readonly", async (store) => {
        const found: Awaited<ReturnType<Storage["list"]>> = { entries: [], damaged: [] };
        for (const entry of (await result(store.getAll())) as { name: string; lane?: unknown }[]) {
          try {
            found.entries.push(check(entry, entry.name));
          } catch (error) {
            const lane = typeof entry.lane == "string" ? entry.lane : undefined;
            found.damaged.push({ what: entry.name, error, lane });
          }
        }
        return found;
      }),
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    onNotice(listener) {
      notice = listener;
    },
  };
  const { locks } = globalThis.navigator ?? {};
  if (locks) {
    storage.lock = async (name, signal, work) => {
      try {
        // The signal ends the waiting, and does not take the lock away again.
        return await locks.request(`${database}/${name}`, { signal }, work);
      } catch (error) {
        if (signal.aborted && (error as Error).name == "AbortError") return undefined;
        throw error;
      }
    };
  }
  return storage;
}

/** Workers cannot ask, only look. */
async function askToPersist(refused: () => void): Promise<void> {
  const manager = globalThis.navigator?.storage;
  const isKept = await (manager?.persist?.() ?? manager?.persisted?.())?.catch(() => false);
  if (!isKept) refused();
}

function result<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((done, fail) => {
    request.onsuccess = () => done(request.result);
    request.onerror = () => fail(request.error);
  });
}

function check(value: unknown, name: string): Entry {
  const entry = value as Entry;
  if (entry.v !== 1) throw new DamagedEntry(name, new Error(`the entry is of version ${entry.v}`));
  if (typeof entry.rev != "number" || typeof entry.key != "string" || typeof entry.request?.url != "string") {
    throw new DamagedEntry(name, new Error("members are missing"));
  }
  return entry;
}
