/** A world for tests: a clock that jumps to the next thing to happen, a server of which tests say what it answers. */

import { client, type Entry, type Options, type StepEvent, type Storage } from "../dist/node.js";
import { memory } from "../dist/memory.js";

type Timer = { at: number; wake: () => void };

/** Time passes when nothing else is left to do, so tests wait for nothing. */
export class Clock {
  time = Date.parse("Wed, 18 Nov 2026 20:00:00 GMT");
  /** What was set of it: the clock that is never set does not know of it. */
  #set = 0;
  /** Every wait that came to its end, in milliseconds. */
  readonly slept: number[] = [];
  #timers: Timer[] = [];
  #isTicking = false;

  readonly now = (): number => this.time + this.#set;

  readonly monotonic = (): number => this.time;

  /** Sets the clock on the wall, forwards or back. Nothing that waits notices. */
  set(ms: number): void {
    this.#set += ms;
  }

  readonly sleep = (ms: number, signal?: AbortSignal): Promise<void> =>
    new Promise((done) => {
      if (signal?.aborted) return done();
      const timer: Timer = {
        at: this.time + ms,
        wake: () => {
          this.slept.push(ms);
          end();
        },
      };
      const end = () => {
        this.#timers = this.#timers.filter((other) => other != timer);
        signal?.removeEventListener("abort", end);
        done();
      };
      signal?.addEventListener("abort", end);
      this.#timers.push(timer);
      this.#tick();
    });

  #tick(): void {
    if (this.#isTicking) return;
    this.#isTicking = true;
    setImmediate(() => {
      this.#isTicking = false;
      const next = this.#timers.reduce<Timer | undefined>((a, b) => (a && a.at <= b.at ? a : b), undefined);
      if (!next || next.at == Infinity) return;
      this.time = Math.max(this.time, next.at);
      next.wake();
      this.#tick();
    });
  }
}

/** Numbers that a seed decides. */
export function seeded(seed: number): () => number {
  let state = (seed * 2654435761 + 1) >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

/** A request as the server sees it. */
export interface Seen {
  url: string;
  method: string;
  headers: Headers;
  body: string;
}

export type Reply =
  | { status: number; headers?: Record<string, string>; json?: unknown; body?: BodyInit; type?: ResponseType }
  | Error
  | "hang";

/** Makes a `fetch` of a function that answers. `seen` collects what was sent. */
export function server(answer: (seen: Seen, index: number) => Reply | Promise<Reply>) {
  const seen: Seen[] = [];
  const fetch: NonNullable<Options["fetch"]> = async (url, init) => {
    const { body } = init;
    const text = body == null ? "" : typeof body == "string" ? body : Buffer.from(body as Uint8Array).toString("base64");
    const request = { url, method: init.method ?? "GET", headers: new Headers(init.headers), body: text };
    seen.push(request);
    const reply = await answer(request, seen.length - 1);
    if (reply == "hang") return new Promise(() => {});
    if (reply instanceof Error) throw reply;
    const { status, headers = {}, json, type = "default" } = reply;
    const response = new Response(json === undefined ? (reply.body ?? null) : JSON.stringify(json), { status, headers });
    return Object.defineProperty(response, "type", { value: type });
  };
  return { fetch, seen };
}

/** The failure of a connection that broke. */
export const lost = (): Error => new TypeError("fetch failed", { cause: Object.assign(new Error("reset"), { code: "ECONNRESET" }) });

/** The failure of a connection that was never made. */
export const notSent = (): Error =>
  new TypeError("fetch failed", { cause: Object.assign(new Error("refused"), { code: "ECONNREFUSED", syscall: "connect" }) });

/** A problem of ours. */
export const problem = (status: number, code: string, retryable = false, more = {}): Reply => ({
  status,
  headers: { "content-type": "application/problem+json" },
  json: { type: `/.firstwrite/problems/${code}`, status, code, retryable, safe_new_key: false, ...more },
});

export const EXPIRES = { "idempotency-expires": "Thu, 19 Nov 2026 20:00:00 GMT" };

/** Options with the clock of a test, and the events it saw. */
export function tools(clock = new Clock(), seed = 1) {
  const events: StepEvent[] = [];
  const options = {
    now: clock.now,
    monotonic: clock.monotonic,
    sleep: clock.sleep,
    random: seeded(seed),
    on: (event: StepEvent) => void events.push(event),
  };
  const steps = () => events.map(({ step }) => step);
  return { clock, events, options, steps };
}

/** A storage that notes what is written. */
export function watched(storage: Storage, note: (entry: Entry) => void): Storage {
  const put: Storage["put"] = async (entry, rev) => {
    const isWritten = await storage.put(entry, rev);
    if (isWritten) note(entry);
    return isWritten;
  };
  return Object.assign(Object.create(storage) as Storage, { put });
}

export const URL = "http://pay.test/payments";
export const ORDER = { url: URL, json: { amount: 4990, currency: "EUR", customer: "cus_1" } };
export const CREATED: Reply = { status: 201, headers: EXPIRES, json: { id: "pay_1" } };

/** A client of a server that gives these answers, the last one for ever. */
export function against(replies: (Reply | (() => Reply))[], more: Partial<Options> = {}, clock = new Clock()) {
  const { fetch, seen } = server((_, index) => {
    const reply = replies[Math.min(index, replies.length - 1)] as Reply | (() => Reply);
    return typeof reply == "function" ? reply() : reply;
  });
  const world = tools(clock);
  const storage = more.storage ?? memory();
  const fw = client({ storage, fetch, ...world.options, ...more });
  return { fw, seen, storage, ...world };
}

export const keyOf = (headers: Headers) => headers.get("idempotency-key");
