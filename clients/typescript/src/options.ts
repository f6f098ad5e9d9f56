/** Settings of a client, and their defaults. */

import type { Fetch, Sleep } from "./attempt.js";
import type { Dialect } from "./decide.js";
import type { StepEvent, Storage } from "./entry.js";
import { randomKey } from "./request.js";

/** Headers with the caller's credentials. */
export type Credentials = Record<string, string>;

/** Settings of a client. Times are in milliseconds. */
export interface Options {
  /** The place of the entries: `indexedDb()`, `folder(path)`, `memory()`. */
  storage: Storage;
  /** The words of the server; `draft-07` by default, which firstwrite's servers do. */
  dialect?: Dialect;
  /** Called before each attempt; `refresh` asks for others than the last ones. */
  credentials?: (about: { url: string; intent: string; refresh: boolean }) => Credentials | Promise<Credentials>;
  /** Makes the key of an intent: `randomKey` by default, or `derivedKeys(secret)`. Called twice, it tells which of the two it is. */
  key?: (intent: string) => string | Promise<string>;
  /** The time that `settled` waits; 30 s. */
  waitFor?: number;
  /** The time for which an intent is sent again, from its first attempt on; 1 h. */
  giveUpAfter?: number;
  /** The time for which the server keeps keys where its answers do not say so; 24 h. */
  retention?: number;
  /** The time that one attempt may take; 30 s. */
  attemptFor?: number;
  /** Use of the status resource: asked where the server is known to have one (`auto`), `always` or `never`. */
  status?: "auto" | "always" | "never";
  /** Longest body of a request; 8 MiB. */
  bodyBytesMax?: number;
  /** Longest body of an answer that is kept; 1 MiB. Of a longer one, the body is not kept. */
  answerBytesMax?: number;
  /** Hears every step. What it throws is ignored. */
  on?: (event: StepEvent) => void;
  fetch?: Fetch;
  /** Tells from an error of `fetch` that no byte was sent: in Node by its cause, elsewhere never. */
  notSent?: (error: unknown) => boolean;
  now?: () => number;
  /** Milliseconds of a clock that is never set, for the retry budget; `performance.now`. */
  monotonic?: () => number;
  /** Ends after the time, or when the signal is aborted; it never rejects. */
  sleep?: Sleep;
  /** A number in [0, 1), for the back-off alone. */
  random?: () => number;
  /** Says that something can be sent; where it says no, no attempt is begun. */
  online?: () => boolean;
}

/** Options with their defaults. */
export type Settings = Required<Options>;

const DEFAULTS: Omit<Settings, "storage"> = {
  dialect: "draft-07",
  credentials: () => ({}),
  key: randomKey,
  waitFor: 30_000,
  giveUpAfter: 3_600_000,
  retention: 86_400_000,
  attemptFor: 30_000,
  status: "auto",
  bodyBytesMax: 8_388_608,
  answerBytesMax: 1_048_576,
  on: () => {},
  fetch: (url, init) => fetch(url, init),
  notSent: () => false,
  now: Date.now,
  monotonic: () => performance.now(),
  sleep: (ms, signal) =>
    new Promise((done) => {
      const end = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", end);
        done();
      };
      // Longer ones overflow.
      const timer = setTimeout(end, Math.min(ms, 2 ** 31 - 1));
      signal?.addEventListener("abort", end);
      if (signal?.aborted) end();
    }),
  random: Math.random,
  online: () => globalThis.navigator?.onLine !== false,
};

export function settings(given: Options): Settings {
  const all: Record<string, unknown> = { ...DEFAULTS };
  for (const [name, value] of Object.entries(given)) {
    if (value != null) all[name] = value;
    // Not a number would make a limit that nothing reaches.
    if (Number.isNaN(value) || (value as number) < 0) throw new RangeError(`${name} is no size`);
  }
  if (!/^(draft-07|stripe|generic)$/.test(all.dialect as string)) throw new TypeError("unknown dialect");
  return all as unknown as Settings;
}
