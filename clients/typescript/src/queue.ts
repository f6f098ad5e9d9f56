/** A queue of intents in lanes: each lane is sent in order, lanes independently, also after a restart. */

import type { Client, Intent, Settled, State } from "./client.js";
import { IntentGone, IntentState, Pending } from "./entry.js";
import type { Damage, Entry, Place, RequestSpec, StoredRequest } from "./entry.js";
import { StorageError } from "./storage.js";

/** An entry of the queue, as the application sees it. */
export interface Queued {
  name: string;
  lane: string;
  state: State;
  attempts: number;
  request: StoredRequest;
  end: Entry["end"];
}

/** Settings of a queue. What the callbacks change must be idempotent, since a crash may repeat them. */
export interface QueueOptions {
  /** Runs when an intent was enqueued or superseded, once: the entry says that it has run. */
  apply?: (queued: Queued) => void | Promise<void>;
  /** Runs when an intent ended refused. After it the intent is acknowledged. */
  rollback?: (queued: Queued, end: Settled) => void | Promise<void>;
  /** Runs when an intent ended done. After it the intent is acknowledged. */
  confirm?: (queued: Queued, end: Settled) => void | Promise<void>;
  /** Hears what went wrong in a lane, which tries again after `pollEvery`, and of each damaged entry once. */
  onError?: (error: unknown, lane: string) => void;
  /** Time between two looks at the storage where it does not tell of changes, in milliseconds; 5 s. */
  pollEvery?: number;
  /** Most lanes that are sent at once; 16. One that waits is not among them. */
  lanesMax?: number;
}

export interface Queue {
  /**
   * Opens an intent at the end of a lane. Returns when it is durable. A name that stands outside of the queue, or in
   * another lane, is an `IntentConflict`.
   */
  enqueue(lane: string, name: string, request: RequestSpec): Promise<Intent>;
  /**
   * Opens an intent of a lane anew, as `Intent.supersede`, at the end of its lane. Where it was refused, `rollback` runs
   * before `apply`; while that fails, nothing is superseded.
   */
  supersede(name: string, request: RequestSpec): Promise<Intent>;
  /** Sends what is enqueued until the signal is aborted. Of several tabs, one sends a lane. */
  run(signal: AbortSignal): Promise<void>;
  /** The entries that are enqueued, in order, and those that cannot be read. */
  list(): Promise<{ queued: Queued[]; damaged: Damage[] }>;
}

/** Longest time that a place is held for a lane that another tab may be sending. */
const LOCK_MS = 1000;
const OFFLINE_MS = 1000;

/** Makes a queue over a client and its storage. */
export function queue(client: Client, options: QueueOptions = {}): Queue {
  const { storage, sleep, now, monotonic, online } = client.settings;
  const { apply, pollEvery = 5000, lanesMax = 16, onError = () => {} } = options;
  /** Damaged entries that were reported. */
  const told = new Set<string>();
  /** Lanes that are sent, and those that are not until a time, by the clock that is never set. */
  const running = new Map<string, Promise<void>>();
  const resting = new Map<string, number>();
  /** Callbacks under way, each of which is not run beside itself. */
  const underWay = new Map<string, Promise<void>>();
  let wake = new AbortController();
  let enqueuing: Promise<unknown> = Promise.resolve();

  const changed = () => {
    wake.abort();
    wake = new AbortController();
  };

  const entries = async () => {
    // Of what is added while the storage is read, the list may not know.
    const before = [...told];
    const { entries, damaged } = await storage.list();
    const queued = entries.filter((entry) => entry.lane != null);
    for (const one of before) if (!damaged.some(({ what }) => what == one)) told.delete(one);
    return { queued: queued.sort((a, b) => (a.place ?? 0) - (b.place ?? 0) || (a.name < b.name ? -1 : 1)), damaged };
  };

  const once = (what: string, { key }: Entry, work: () => Promise<void>): Promise<void> => {
    const id = `${what} ${key}`;
    const before = underWay.get(id);
    if (before) return before;
    const run = work();
    underWay.set(id, run);
    const leave = () => underWay.delete(id);
    run.then(leave, leave);
    return run;
  };

  const applyOnce = async (entry: Entry): Promise<void> => {
    if (!apply || entry.end || entry.applied) return;
    await once("apply", entry, async () => {
      const read = async () => {
        const standing = await storage.get(entry.name);
        return standing?.key == entry.key && !standing.end && !standing.applied ? standing : undefined;
      };
      let standing = await read();
      if (standing) await apply(show(standing));
      while (standing && !(await storage.put({ ...standing, applied: true, rev: standing.rev + 1 }, standing.rev))) {
        standing = await read();
      }
    });
  };

  const rollBack = (entry: Entry, end: Settled) => once("rollback", entry, async () => options.rollback?.(show(entry), end));

  /** The last place of a lane. */
  const lastPlace = async (lane: string): Promise<Place> => {
    const places = (await storage.list()).entries.filter((entry) => entry.lane == lane).map(({ place = 0 }) => place + 1);
    return { lane, place: Math.max(now(), ...places) };
  };

  /** Applies what was opened; returns it. */
  const begin = async (intent: Intent): Promise<Intent> => {
    const entry = await storage.get(intent.name);
    if (entry) await applyOnce(entry);
    changed();
    return intent;
  };

  /** One after the other, so that the order of the calls is the order of the lane. */
  const inTurn = (work: () => Promise<Intent>): Promise<Intent> => {
    const turn = enqueuing.then(work);
    enqueuing = turn.catch(() => {});
    return turn;
  };

  /** Sends the lane, from its head on, until nothing in it can go on, until it has to wait, or until it is told to stop. */
  const sendLane = async (head: Entry, signal: AbortSignal): Promise<void> => {
    const lane = head.lane as string;
    const isStill = (await storage.get(head.name))?.rev == head.rev;
    let look = isStill ? { queued: [head], damaged: [] } : await entries();
    for (; !signal.aborted; look = await entries()) {
      const { queued, damaged } = look;
      const entry = queued.find((entry) => entry.lane == lane && !isOver(entry, options));
      if (!entry || stops(entry) || damaged.some((damage) => damage.lane == lane)) return;
      await applyOnce(entry);
      const intent = await client.find(entry.name);
      if (!intent) continue;
      try {
        const end = await intent.settled({ signal, waitFor: Infinity, lane });
        const ended = { ...entry, end };
        if (end.kind == "refused" && options.rollback) await rollBack(ended, end);
        else if (end.kind == "done" && options.confirm) await options.confirm(show(ended), end);
        else continue;
        await intent.acknowledge();
      } catch (error) {
        if (error instanceof Pending) return void resting.set(lane, monotonic() + error.retryIn);
        // It was acknowledged elsewhere.
        if (!(error instanceof IntentGone)) throw error;
      }
    }
  };

  const fail = (lane: string, error: unknown) => {
    onError(error, lane);
    resting.set(lane, monotonic() + pollEvery);
  };

  const startLane = (head: Entry, signal: AbortSignal): void => {
    const lane = head.lane as string;
    const work = () => sendLane(head, signal);
    const task = (async () => {
      const given = new AbortController();
      try {
        if (!storage.lock) return await work();
        // Another tab may have the lane for long; this one's place is for lanes that it can send.
        const patience = AbortSignal.any([signal, given.signal]);
        void sleep(LOCK_MS, patience).then(() => given.abort());
        resting.set(lane, monotonic() + pollEvery);
        await storage.lock(`lane/${lane}`, patience, () => {
          given.abort();
          resting.delete(lane);
          return work();
        });
      } catch (error) {
        if (signal.aborted) return;
        fail(lane, error);
      }
    })();
    running.set(lane, task.finally(() => running.delete(lane)).then(changed));
  };

  return {
    enqueue: (lane, name, request) =>
      inTurn(async () => begin(await client.intent(name, request, await lastPlace(lane)))),

    supersede: (name, request) =>
      inTurn(async () => {
        const intent = await client.find(name);
        const entry = await storage.get(name);
        if (!intent || entry?.lane == null) throw new IntentState(name, "is in no lane");
        const { end } = intent;
        const place = await lastPlace(entry.lane);
        if (end?.kind == "refused" && end.safeNewKey) await rollBack(entry, end);
        try {
          await intent.supersede(request, place);
        } catch (error) {
          // After the same rollback, the runner has acknowledged it.
          if (!end || !(error instanceof IntentGone)) throw error;
          return begin(await client.intent(name, request, place));
        }
        return begin(intent);
      }),

    async run(signal) {
      const unsubscribe = storage.subscribe?.(changed);
      signal.addEventListener("abort", changed);
      try {
        while (!signal.aborted) {
          const woken = wake.signal;
          for (const [lane, at] of resting) if (at <= monotonic()) resting.delete(lane);
          let sleepFor = pollEvery;
          try {
            const { queued, damaged } = await entries();
            const seen = new Set(damaged.map(({ lane }) => lane));
            for (const { what, error, lane = "" } of damaged) {
              if (!told.has(what)) onError(error, lane);
              told.add(what);
            }
            for (const entry of queued) {
              const lane = entry.lane as string;
              if (isOver(entry, options)) continue;
              if (!resting.has(lane)) await applyOnce(entry).catch((error) => fail(lane, error));
              if (seen.has(lane)) continue;
              seen.add(lane);
              if (stops(entry) || resting.has(lane) || running.has(lane) || running.size >= lanesMax) continue;
              if (entry.end || online()) startLane(entry, signal);
              else sleepFor = Math.min(pollEvery, OFFLINE_MS);
            }
          } catch (error) {
            if (!(error instanceof StorageError)) throw error;
            onError(error, "");
          }
          for (const at of resting.values()) sleepFor = Math.min(sleepFor, at - monotonic());
          await sleep(Math.max(sleepFor, 1), woken);
        }
      } finally {
        unsubscribe?.();
        signal.removeEventListener("abort", changed);
        await Promise.all(running.values());
      }
    },

    async list() {
      const { queued, damaged } = await entries();
      return { queued: queued.map(show), damaged };
    },
  };
}

const show = ({ name, lane, attempts, request, end }: Entry): Queued => ({
  name,
  lane: lane as string,
  state: end ? "ended" : attempts ? "sending" : "open",
  attempts,
  request,
  end,
});

/** The lane goes on after an end that is known, once its callback has run. */
const isOver = ({ end }: Entry, { confirm, rollback }: QueueOptions) =>
  (end?.kind == "done" && !confirm) || (end?.kind == "refused" && !rollback);

/** The lane stops at an end that is not known, until the application acknowledges or resumes it. */
const stops = ({ end }: Entry) => end?.kind == "unknown" || end?.kind == "expired";
