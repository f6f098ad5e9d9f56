/**
 * Entries in a folder, for Node. Several processes may use one folder.
 *
 * An entry is a folder of its own, named by a digest of the intent's name, that holds
 *   `<id>.json`  a revision: a line with its SHA-256, then the entry
 *   `at.<id>`    the mark: that revision is the one that stands
 *   `gone.<id>`  in the mark's place: the entry was deleted
 * Whoever writes puts the next revision beside the one that stands, makes it durable, and renames the mark.
 * A rename of a mark that is no longer there fails, so of several writers that saw one revision one gets through,
 * without a lock that a crash would leave behind. A new entry is a folder that is renamed into its place whole,
 * which fails where one stands.
 */

import { createHash, randomUUID } from "node:crypto";
import { constants } from "node:fs";
import { mkdir, open, readdir, readFile, rename, rm, rmdir, stat, unlink } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";

import { DamagedEntry, StorageError } from "./storage.js";
import type { Entry, Storage } from "./entry.js";

export interface FolderOptions {
  /** Most entries that the folder takes; 10,000. */
  entriesMax?: number;
}

/** Looks at a folder that is being written before it counts as damaged. */
const LOOKS_MAX = 100;
const LEFT_MS = 86_400_000;
const ENTRY = /^[0-9a-f]{64}$/;

/** An entry that stands, and the id of its revision. */
type Standing = { id: string; entry: Entry };

/** Keeps entries in a folder, which is made if it does not exist. */
export function folder(at: string, { entriesMax = 10_000 }: FolderOptions = {}): Storage {
  const path = resolve(at);
  const placeOf = (name: string) => join(path, createHash("sha256").update(name).digest("hex"));
  const guard = async <T>(what: string, work: () => Promise<T>): Promise<T> => {
    try {
      return await work();
    } catch (error) {
      if (error instanceof DamagedEntry || error instanceof StorageError) throw error;
      throw new StorageError(`cannot ${what} in ${path}`, error);
    }
  };

  /** Makes the folder, looks whether there is room, and removes what creators left that crashed long ago. */
  const prepare = async (): Promise<void> => {
    const first = await mkdir(path, { recursive: true, mode: 0o700 });
    for (let at = path; first && at.length >= first.length; at = dirname(at)) await syncFolder(dirname(at));
    const names = await readdir(path);
    if (names.filter((name) => ENTRY.test(name)).length >= entriesMax) {
      throw new StorageError(`${path} holds ${entriesMax} entries: acknowledge those that have ended`);
    }
    for (const name of names.filter((name) => name.startsWith("new."))) {
      const left = await stat(join(path, name)).catch(() => null);
      if (left && Date.now() - left.mtimeMs > LEFT_MS) await rm(join(path, name), { recursive: true, force: true });
    }
  };

  const create = async (entry: Entry): Promise<boolean> => {
    await prepare();
    const place = placeOf(entry.name);
    const id = randomUUID();
    const made = join(path, `new.${id}`);
    try {
      await mkdir(made, { mode: 0o700 });
      await write(join(made, `${id}.json`), entry);
      await (await open(join(made, `at.${id}`), "wx", 0o600)).close();
      await syncFolder(made);
      for (let look = 1; ; look += 1) {
        // What a deletion left behind is in the way.
        if (!(await read(place, entry.name))) await clear(place);
        try {
          await rename(made, place);
          break;
        } catch (error) {
          if (!isCode(error, "ENOTEMPTY", "EEXIST", "EPERM", "EACCES") || look == LOOKS_MAX) throw error;
          if (!(await read(place, entry.name))) continue;
          await rm(made, { recursive: true });
          return false;
        }
      }
    } catch (error) {
      await rm(made, { recursive: true, force: true });
      throw error;
    }
    await syncFolder(path);
    return true;
  };

  const replace = async (entry: Entry, rev: number): Promise<boolean> => {
    const place = placeOf(entry.name);
    const standing = await read(place, entry.name);
    if (standing?.entry.rev !== rev) return false;
    const id = randomUUID();
    const file = join(place, `${id}.json`);
    try {
      await write(file, entry);
      await rename(join(place, `at.${standing.id}`), join(place, `at.${id}`));
    } catch (error) {
      await rm(file, { force: true });
      // Another writer was faster.
      if (isCode(error, "ENOENT")) return false;
      throw error;
    }
    await syncFolder(place);
    await unlink(join(place, `${standing.id}.json`)).catch(ignoreMissing);
    return true;
  };

  return {
    get: (name) => guard("read", async () => (await read(placeOf(name), name))?.entry),
    put: (entry, rev) => guard("write", () => (rev == null ? create(entry) : replace(entry, rev))),
    delete: (name, rev) =>
      guard("delete", async () => {
        const place = placeOf(name);
        const standing = await read(place, name);
        if (standing?.entry.rev !== rev) return false;
        try {
          await rename(join(place, `at.${standing.id}`), join(place, `gone.${standing.id}`));
        } catch (error) {
          if (isCode(error, "ENOENT")) return false;
          throw error;
        }
        await syncFolder(place);
        await clear(place);
        await syncFolder(path);
        return true;
      }),
    list: () =>
      guard("list", async () => {
        const found: Awaited<ReturnType<Storage["list"]>> = { entries: [], damaged: [] };
        for (const name of (await readdir(path).catch(noneIfMissing)).filter((name) => ENTRY.test(name))) {
          try {
            const standing = await read(join(path, name));
            if (standing) found.entries.push(standing.entry);
            // A deletion was interrupted; if this is, too, the next list goes on.
            else await clear(join(path, name)).catch(() => {});
          } catch (error) {
            found.damaged.push({ what: join(path, name), error, lane: await laneOf(join(path, name)) });
          }
        }
        return found;
      }),
  };
}

/** Reads what stands in the folder of an entry. */
async function read(place: string, name?: string): Promise<Standing | undefined> {
  let problem: unknown = new Error("no revision is marked");
  for (let look = 0; look < LOOKS_MAX; look += 1) {
    const files = await readdir(place).catch(noneIfMissing);
    if (!files.length || files.some((file) => file.startsWith("gone."))) return undefined;
    const id = files.find((file) => file.startsWith("at."))?.slice(3);
    if (!id) continue;
    try {
      const text = await readFile(join(place, `${id}.json`), "utf8");
      return { id, entry: check(text, name) };
    } catch (error) {
      // The revision was replaced in the meantime; a damaged one stays as it is.
      problem = error;
      if (!isCode(error, "ENOENT")) break;
    }
  }
  throw new DamagedEntry(name ?? place, problem);
}

/** The lane of a damaged entry, where one of its files still says it. */
async function laneOf(place: string): Promise<string | undefined> {
  for (const file of await readdir(place).catch(() => [])) {
    const text = file.endsWith(".json") ? await readFile(join(place, file), "utf8").catch(() => "") : "";
    // No body looks like this, since the quotes in it are escaped.
    const [, lane] = /,"lane":("(?:[^"\\]|\\.)*")/.exec(text) ?? [];
    try {
      if (lane) return JSON.parse(lane) as string;
    } catch {
      // Then it cannot be known.
    }
  }
  return undefined;
}

/** Removes what a deletion left. No name is used twice, so of an entry that is opened meanwhile nothing is removed. */
async function clear(place: string): Promise<void> {
  const files = await readdir(place).catch(noneIfMissing);
  if (files.length && !files.some((file) => file.startsWith("gone."))) return;
  // The mark goes last: until then everybody can tell that the entry is gone.
  const isMark = (file: string) => Number(file.startsWith("gone."));
  for (const file of files.sort((a, b) => isMark(a) - isMark(b))) {
    await unlink(join(place, file)).catch(ignoreMissing);
  }
  await rmdir(place).catch((error) => {
    if (!isCode(error, "ENOENT", "ENOTEMPTY", "EEXIST")) throw error;
  });
}

async function write(file: string, entry: Entry): Promise<void> {
  const text = JSON.stringify(entry);
  const handle = await open(file, "wx", 0o600);
  try {
    await handle.writeFile(`${digest(text)}\n${text}\n`);
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function check(text: string, name?: string): Entry {
  const [sum, body = ""] = text.split("\n");
  if (digest(body) != sum) throw new Error("the entry is not what was written");
  const entry = JSON.parse(body) as Entry;
  if (entry.v !== 1) throw new Error(`the entry is of version ${entry.v}`);
  if (name !== undefined && entry.name != name) throw new Error(`the entry is of ${entry.name}`);
  return entry;
}

const digest = (text: string) => createHash("sha256").update(text).digest("hex");

/** Makes the names in a folder durable. Windows has no such call, and keeps names without it. */
async function syncFolder(path: string): Promise<void> {
  if (process.platform == "win32") return;
  const handle = await open(path, constants.O_RDONLY);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

const isCode = (error: unknown, ...codes: string[]) => codes.includes((error as NodeJS.ErrnoException).code ?? "");

const noneIfMissing = (error: unknown): string[] => {
  if (isCode(error, "ENOENT")) return [];
  throw error;
};

const ignoreMissing = (error: unknown): void => {
  if (!isCode(error, "ENOENT")) throw error;
};
