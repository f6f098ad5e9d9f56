/** A queue of intents in lanes: each lane is sent in order, lanes independently, also after a restart. */

import type { Client, Intent, Settled, State } from "./client.js";
import { IntentGone, Pending, StorageError } from "./entry.js";
import type { Damage, Entry, RequestSpec, StoredRequest } from "./entry.js";

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
  /** Runs when an intent was enqueued, and again for each one without an end after a restart. */
  apply?: (queued: Queued) => void | Promise<void>;
  /** Runs when an intent ended refused. After it the intent is acknowledged. */
  rollback?: (queued: Queued, end: Settled) => void | Promise<void>;
  /** Runs when an intent ended done. After it the intent is acknowledged. */
  confirm?: (queued: Queued, end: Settled) => void | Promise<void>;
  /** Hears what went wrong in a lane, which tries again after `pollEvery`, and of each damaged entry once. */
  onError?: (error: unknown, lane: string) => void;
  /** How often the storage is looked at where it does not tell of changes, in milliseconds; 5 s. */
  pollEvery?: number;
  /** Most lanes that are sent at once; 16. */
  lanesMax?: number;
}

export interface Queue {
  /**
   * Opens an intent at the end of a lane. Returns when it is durable. A name that stands outside of the queue, or in
   * another lane, is an `IntentConflict`.
   */
  enqueue(lane: string, name: string, request: RequestSpec): Promise<Intent>;
  /** Sends what is enqueued until the signal is aborted. Of several tabs, one sends a lane. */
  run(signal: AbortSignal): Promise<void>;
  /** What is enqueued, in order, and what cannot be read. */
  list(): Promise<{ queued: Queued[]; damaged: Damage[] }>;
}

/** Makes a queue over a client and its storage. */
export function queue(client: Client, options: QueueOptions = {}): Queue {
  const { storage, sleep } = client.settings;
  const { apply, pollEvery = 5000, lanesMax = 16, onError = () => {} } = options;
  const applied = new Set<string>();
  /** Damaged entries that were reported. */
  const told = new Set<string>();
  const running = new Map<string, Promise<void>>();
  let wake = new AbortController();
  let enqueuing: Promise<unknown> = Promise.resolve();

  const changed = () => {
    wake.abort();
    wake = new AbortController();
  };

  const entries = async () => {
    // Of what is added while the storage is read, the list may not know.
    const before = [...applied, ...told];
    const { entries, damaged } = await storage.list();
    const queued = entries.filter((entry) => entry.lane != null);
    const stands = new Set([...queued.map(({ key }) => key), ...damaged.map(({ what }) => what)]);
    for (const one of before) {
      if (stands.has(one)) continue;
      applied.delete(one);
      told.delete(one);
    }
    return { queued: queued.sort((a, b) => a.place - b.place || (a.name < b.name ? -1 : 1)), damaged };
  };

  const applyOnce = async (entry: Entry) => {
    if (!apply || entry.end || applied.has(entry.key)) return;
    await apply(show(entry));
    applied.add(entry.key);
  };

  /** Sends the lane until nothing in it can go on, or until it is told to stop. */
  const sendLane = async (lane: string, signal: AbortSignal): Promise<void> => {
    while (!signal.aborted) {
      const { queued, damaged } = await entries();
      const entry = queued.find((entry) => entry.lane == lane && !isOver(entry, options));
      if (!entry || stops(entry) || damaged.some((damage) => damage.lane == lane)) return;
      await applyOnce(entry);
      const intent = await client.find(entry.name);
      if (!intent) continue;
      try {
        const end = await intent.settled({ signal, waitFor: Infinity, lane });
        const take = { done: options.confirm, refused: options.rollback, unknown: undefined, expired: undefined }[end.kind];
        if (take) {
          await take(show({ ...entry, end }), end);
          await intent.acknowledge();
        }
      } catch (error) {
        // It was acknowledged elsewhere, or the time of timers is over.
        if (!(error instanceof IntentGone || error instanceof Pending)) throw error;
      }
    }
  };

  const startLane = (lane: string, signal: AbortSignal): void => {
    const work = () => sendLane(lane, signal);
    const task = (async () => {
      try {
        await (storage.lock ? storage.lock(`lane/${lane}`, signal, work) : work());
      } catch (error) {
        if (signal.aborted) return;
        onError(error, lane);
        await sleep(pollEvery, signal);
      }
    })();
    running.set(lane, task.finally(() => running.delete(lane)).then(changed));
  };

  return {
    enqueue(lane, name, request) {
      // One after the other, so that the order of the calls is the order of the lane.
      const work = async () => {
        const intent = await client.intent(name, request, lane);
        const entry = await storage.get(name);
        if (entry) await applyOnce(entry);
        changed();
        return intent;
      };
      const turn = enqueuing.then(work);
      enqueuing = turn.catch(() => {});
      return turn;
    },

    async run(signal) {
      const unsubscribe = storage.subscribe?.(changed);
      signal.addEventListener("abort", changed);
      try {
        while (!signal.aborted) {
          const woken = wake.signal;
          const ready = new Set<string>();
          try {
            const { queued, damaged } = await entries();
            const seen = new Set(damaged.map(({ lane }) => lane));
            for (const { what, error, lane = "" } of damaged) {
              if (!told.has(what)) onError(error, lane);
              told.add(what);
            }
            for (const entry of queued) {
              await applyOnce(entry);
              const lane = entry.lane as string;
              if (seen.has(lane) || isOver(entry, options)) continue;
              seen.add(lane);
              if (!stops(entry)) ready.add(lane);
            }
          } catch (error) {
            if (!(error instanceof StorageError)) throw error;
            onError(error, "");
          }
          for (const lane of ready) {
            if (!running.has(lane) && running.size < lanesMax) startLane(lane, signal);
          }
          await sleep(pollEvery, woken);
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
