/** The client: opens intents, and gives them to whoever waits for their ends. */

import { parse } from "./attempt.js";
import { IntentConflict, IntentState, Pending } from "./entry.js";
import type { End, Entry, Place, RequestSpec, Storage } from "./entry.js";
import { settings, type Options, type Settings } from "./options.js";
import { prepare, randomKey, sameRequest } from "./request.js";
import { sender, type Tell } from "./send.js";

/** State of an intent: not yet sent, sent at least once, ended. */
export type State = "open" | "sending" | "ended";

/** An end with its body at hand. */
export interface Settled extends End {
  /** The body as JSON; undefined if it is none. */
  json: unknown;
}

export interface WaitOptions {
  signal?: AbortSignal;
  /** Milliseconds; the client's `waitFor` by default. */
  waitFor?: number;
  /** The intent's lane, by which its queue says that it is its turn. */
  lane?: string;
}

/** One action, as it stood when it was last looked at. */
export interface Intent {
  readonly name: string;
  readonly state: State;
  readonly attempts: number;
  readonly end: Settled | null;
  /** Sends until there is an end. Rejects with `Pending` after `waitFor`. */
  settled(wait?: WaitOptions): Promise<Settled>;
  /** Forgets an intent that has an end. */
  acknowledge(): Promise<void>;
  /** Lets an intent that ended `unknown` be sent again under its key. */
  resume(): Promise<void>;
  /**
   * Opens the intent anew with a new key, where it was refused so that this is safe, or where no attempt was begun.
   * One in a lane is superseded by its queue, which gives it a new place.
   */
  supersede(request: RequestSpec, at?: Place): Promise<void>;
}

export interface Client {
  /** Opens an intent, in a place of a lane if one is given, or finds it if it stands so. Returns when it is durable. */
  intent(name: string, request: RequestSpec, at?: Place): Promise<Intent>;
  /** Finds an intent that stands. */
  find(name: string): Promise<Intent | undefined>;
  /** All entries, and what cannot be read. */
  list(): ReturnType<Storage["list"]>;
  readonly settings: Readonly<Settings>;
}

/** One sending of an intent, shared by everybody who waits for its end. */
interface Run {
  waiting: number;
  stop: AbortController;
  end: Promise<End | undefined>;
}

/** Makes a client. One is enough for all servers of one dialect. */
export function client(options: Options): Client {
  const all = settings(options);
  const { storage, now, sleep } = all;
  const tell: Tell = (step, entry, more) => {
    try {
      all.on({ step, intent: entry?.name ?? "", attempt: entry?.attempts ?? 0, ...more });
    } catch {
      // An observer does not end what it observes.
    }
  };
  const { read, change, send } = sender(all, tell);
  const runs = new Map<string, Run>();
  storage.onNotice?.(tell);

  const newEntry = async (name: string, spec: RequestSpec, at?: Place): Promise<Entry> => {
    const { size } = new Blob([name]);
    const request = await prepare(spec, all.bodyBytesMax);
    const key = await all.key(name);
    // Where no entry stands, a key that is the same each time may have been sent by an earlier process.
    const isDerived = all.key != randomKey && key == (await all.key(name));
    if (!size || size > 255 || !/^[!#-[\]-~]{1,255}$/.test(key)) {
      throw new RangeError("name or key: 1 to 255 characters");
    }
    return {
      v: 1,
      name,
      rev: Math.floor(Math.random() * 1e15),
      key,
      request,
      openedAt: now(),
      attempts: 0,
      doubt: isDerived,
      notBefore: 0,
      end: null,
      ...at,
    };
  };

  const join = (entry: Entry): Run => {
    const id = `${entry.name}\n${entry.key}`;
    const before = runs.get(id);
    if (before && !before.stop.signal.aborted) return before;
    const stop = new AbortController();
    const work = () => send(entry, stop.signal);
    const begin = async () => {
      // The one before may still have to record the answer of its last attempt.
      await before?.end.catch(() => {});
      return storage.lock ? storage.lock(`intent/${entry.name}`, stop.signal, work) : work();
    };
    const run: Run = { waiting: 0, stop, end: begin() };
    const leave = () => runs.get(id) == run && runs.delete(id);
    run.end.then(leave, leave);
    runs.set(id, run);
    return run;
  };

  const settle = async (entry: Entry, { signal, waitFor = all.waitFor }: WaitOptions): Promise<End> => {
    const run = join(entry);
    const left = new AbortController();
    run.waiting += 1;
    try {
      const end = await Promise.race([run.end, sleep(waitFor, signal ? AbortSignal.any([signal, left.signal]) : left.signal)]);
      if (end) return end;
      signal?.throwIfAborted();
      throw new Pending(entry.name);
    } finally {
      left.abort();
      if (!--run.waiting) run.stop.abort();
    }
  };

  /** Writes another entry in the place of the one that stands. */
  const replace = async (entry: Entry, write: (standing: Entry) => Promise<Entry | false | undefined>): Promise<Entry> => {
    for (;;) {
      const written = await write(await read(entry));
      if (written) return written;
    }
  };

  const handle = (entry: Entry): Intent => ({
    name: entry.name,
    get attempts() {
      return entry.attempts;
    },
    get state() {
      return entry.end ? "ended" : entry.attempts ? "sending" : "open";
    },
    get end() {
      return entry.end && settled(entry.end);
    },
    async settled(wait = {}) {
      if (entry.lane != (wait.lane ?? null)) {
        entry = await read(entry);
        if (!entry.end) throw new IntentState(entry.name, "is its queue's");
      }
      const end = entry.end ?? (await settle(entry, wait));
      entry = { ...entry, end };
      return settled(end);
    },
    async acknowledge() {
      for (;;) {
        const standing = await storage.get(entry.name);
        if (standing?.key != entry.key) return;
        if (!standing.end) throw new IntentState(entry.name, "has no end");
        if (await storage.delete(entry.name, standing.rev)) return tell("acknowledged", standing);
      }
    },
    async resume() {
      entry = await replace(entry, (standing) => {
        if (standing.end?.kind != "unknown") throw new IntentState(entry.name, "is not unknown");
        return change(standing, { end: null, doubt: true, since: now(), notBefore: 0, waitFor: 0 });
      });
    },
    async supersede(spec, at) {
      if (entry.lane != (at?.lane ?? null)) throw new IntentState(entry.name, "is its queue's");
      const next = await newEntry(entry.name, spec, at);
      entry = await replace(entry, async ({ end, key, attempts, doubt, rev }) => {
        const isUnsafe = end ? end.kind != "refused" || !end.safeNewKey : attempts || doubt;
        if (isUnsafe || key == next.key) throw new IntentState(entry.name, "takes no new key");
        return (await storage.put(next, rev)) && next;
      });
      tell("opened", entry);
    },
  });

  return {
    settings: all,
    async intent(name, spec, at) {
      const entry = await newEntry(name, spec, at);
      for (;;) {
        const standing = await storage.get(name);
        if (standing) {
          const isElsewhere = at && at.lane != standing.lane;
          if (isElsewhere || !sameRequest(standing.request, entry.request)) throw new IntentConflict(name);
          return handle(standing);
        }
        if (await storage.put(entry, null)) {
          tell("opened", entry);
          return handle(entry);
        }
      }
    },
    async find(name) {
      const entry = await storage.get(name);
      return entry && handle(entry);
    },
    list: () => storage.list(),
  };
}

const settled = (end: End): Settled => ({ ...end, json: parse(end.body) });
