/** Encrypts the bodies of requests and answers before a storage gets them. */

import { DamagedEntry, StorageError } from "./storage.js";
import type { Entry, Storage, StoredBody } from "./entry.js";
import { fromBase64, toBase64 } from "./request.js";

const NONCE_BYTES = 12;
const STORE = "keys";

/**
 * Wraps a storage so that it gets bodies encrypted with AES-GCM. Names, URLs, headers and keys stay readable.
 * An entry that the key does not open is a `DamagedEntry`.
 */
export function sealed(storage: Storage, key: CryptoKey | Promise<CryptoKey>): Storage {
  /** A sealed body belongs to one life of one intent, and to its place there. */
  const about = ({ name, key }: Entry, part: string) => new TextEncoder().encode(JSON.stringify([name, key, part]));

  const seal = async (entry: Entry, part: string, body: StoredBody | null): Promise<StoredBody | null> => {
    if (!body) return null;
    const iv = crypto.getRandomValues(new Uint8Array(NONCE_BYTES));
    const algorithm = { name: "AES-GCM", iv, additionalData: about(entry, part) };
    const plain = new TextEncoder().encode(JSON.stringify(body));
    const secret = new Uint8Array(await crypto.subtle.encrypt(algorithm, await key, plain));
    return { text: `${toBase64(iv)}.${toBase64(secret)}`, base64: true };
  };

  const unseal = async (entry: Entry, part: string, body: StoredBody | null): Promise<StoredBody | null> => {
    if (!body) return null;
    const [iv = "", secret = ""] = body.text.split(".");
    const algorithm = { name: "AES-GCM", iv: fromBase64(iv), additionalData: about(entry, part) };
    const plain = await crypto.subtle.decrypt(algorithm, await key, fromBase64(secret));
    return JSON.parse(new TextDecoder().decode(plain)) as StoredBody;
  };

  const through = async (entry: Entry, change: typeof seal): Promise<Entry> => {
    const { request, end } = entry;
    return {
      ...entry,
      request: { ...request, body: await change(entry, "request", request.body) },
      end: end && { ...end, body: await change(entry, "answer", end.body) },
    };
  };

  const open = async (entry: Entry): Promise<Entry> => {
    try {
      return await through(entry, unseal);
    } catch (error) {
      throw new DamagedEntry(entry.name, error);
    }
  };

  const outside: Pick<Storage, "get" | "put" | "list"> = {
    async get(name) {
      const entry = await storage.get(name);
      return entry && open(entry);
    },
    async put(entry, rev) {
      return storage.put(await through(entry, seal), rev);
    },
    async list() {
      const { entries, damaged } = await storage.list();
      const opened: Entry[] = [];
      for (const entry of entries) {
        try {
          opened.push(await open(entry));
        } catch (error) {
          damaged.push({ what: entry.name, error, lane: entry.lane ?? undefined });
        }
      }
      return { entries: opened, damaged };
    },
  };
  // Locks, deletions and notices are the storage's own.
  return Object.assign(Object.create(storage) as Storage, outside);
}

/**
 * The key of this browser profile, made when it is first asked for. Scripts can use it and cannot read it;
 * who clears the site's data clears it too.
 */
export async function browserKey(database = "firstwrite-key"): Promise<CryptoKey> {
  const made = await crypto.subtle.generateKey({ name: "AES-GCM", length: 256 }, false, ["encrypt", "decrypt"]);
  try {
    const request = indexedDB.open(database, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    const db = await result(request);
    const transaction = db.transaction(STORE, "readwrite", { durability: "strict" });
    const completed = new Promise<void>((done, fail) => {
      transaction.oncomplete = () => done();
      transaction.onabort = () => fail(transaction.error);
    });
    const store = transaction.objectStore(STORE);
    const key = store.get(0);
    // The first of several tabs puts its key there.
    key.onsuccess = () => key.result ?? store.put(made, 0);
    await completed;
    db.close();
    return (key.result as CryptoKey | undefined) ?? made;
  } catch (error) {
    throw new StorageError(`the database ${database} cannot be used`, error);
  }
}

/** A key of the application's own: 32 bytes, for Node. */
export function rawKey(bytes: Uint8Array<ArrayBuffer>): Promise<CryptoKey> {
  return crypto.subtle.importKey("raw", bytes, "AES-GCM", false, ["encrypt", "decrypt"]);
}

function result<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((done, fail) => {
    request.onsuccess = () => done(request.result);
    request.onerror = () => fail(request.error);
  });
}
