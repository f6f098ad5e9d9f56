/** A thousand clients after an outage: they come back spread out, and nobody before its time or long after it. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { client } from "../dist/node.js";
import { memory } from "../dist/memory.js";
import { keyOf, notSent, seeded, server, type Reply } from "./world.js";

const CLIENTS = 1000;
const SECOND = 1000;
/** The longest back-off, and one token of the retry budget, which nobody here uses up. */
const SLACK = 30 * SECOND + 10;

/** A clock for many sleepers: the next of them is woken once nothing else is left to do. */
class Heap {
  time = 0;
  #timers: { at: number; wake: () => void; isOff: boolean }[] = [];

  readonly now = () => Date.parse("Wed, 18 Nov 2026 20:00:00 GMT") + this.time;
  readonly monotonic = () => this.time;
  readonly sleep = (ms: number, signal?: AbortSignal): Promise<void> =>
    new Promise((done) => {
      if (signal?.aborted) return done();
      const timer = { at: this.time + ms, wake: done as () => void, isOff: false };
      signal?.addEventListener("abort", () => ((timer.isOff = true), done()));
      this.#timers.push(timer);
      for (let at = this.#timers.length - 1; at > 0; ) {
        const up = (at - 1) >> 1;
        if ((this.#timers[up]?.at ?? 0) <= timer.at) break;
        this.#swap(at, up);
        at = up;
      }
    });

  #swap(a: number, b: number): void {
    const timers = this.#timers as { at: number; wake: () => void; isOff: boolean }[];
    [timers[a], timers[b]] = [timers[b]!, timers[a]!];
  }

  #pop() {
    const first = this.#timers[0];
    const last = this.#timers.pop();
    if (!first || !last || first == last) return first;
    this.#timers[0] = last;
    for (let at = 0; ; ) {
      const next = [2 * at + 1, 2 * at + 2].filter((child) => child < this.#timers.length);
      const least = next.sort((a, b) => this.#timers[a]!.at - this.#timers[b]!.at)[0];
      if (least === undefined || this.#timers[least]!.at >= last.at) return first;
      this.#swap(at, least);
      at = least;
    }
  }

  /** Lets time pass until the work is done. */
  async run(work: Promise<unknown>): Promise<void> {
    let isDone = false;
    const over = work.finally(() => (isDone = true));
    over.catch(() => {});
    while (!isDone) {
      await new Promise(setImmediate);
      const timer = this.#pop();
      if (!timer || timer.isOff) continue;
      this.time = Math.max(this.time, timer.at);
      timer.wake();
    }
    await over;
  }
}

/** Ways of a service to be down: nobody listens, or it names a time in seconds. */
type Down = "refused" | number;

/** Runs a fleet through an outage; returns the highest rate in a window of so many seconds, and the mean. */
async function rates(down: Down, outage: number, seed: number, window: number) {
  const clock = new Heap();
  const after: number[] = [];
  const asked = new Map<string, number>();
  const { fetch } = server(({ headers }): Reply => {
    const key = keyOf(headers) as string;
    const from = asked.get(key);
    if (typeof down == "number" && from !== undefined) {
      const waited = clock.time - from;
      assert.ok(waited >= down * SECOND, `came back after ${waited} ms of ${down} s`);
      assert.ok(waited <= down * SECOND + SLACK, `came back after ${waited} ms, and was asked for ${down} s`);
    }
    if (clock.time >= outage * SECOND) {
      after.push(clock.time);
      return { status: 201 };
    }
    if (down == "refused") throw notSent();
    asked.set(key, clock.time);
    return { status: 503, headers: { "retry-after": `${down}` } };
  });
  const fleet = Array.from({ length: CLIENTS }, async (_, at) => {
    const { now, monotonic, sleep } = clock;
    const random = seeded(seed * 1_000_003 + at);
    const fw = client({ storage: memory(), fetch, now, monotonic, sleep, random, waitFor: Infinity });
    // All of them are in the middle of something when the service goes down.
    assert.equal((await (await fw.intent("cart", { url: "http://pay.test/", json: {} })).settled()).kind, "done");
  });
  await clock.run(Promise.all(fleet));
  assert.equal(after.length, CLIENTS, "one request each, once the service is back");
  const lasted = ((after.at(-1) as number) - (after[0] as number)) / SECOND;
  let most = 0;
  for (let from = 0, to = 0; from < after.length; from += 1) {
    while (to < after.length && (after[to] as number) < (after[from] as number) + window * SECOND) to += 1;
    most = Math.max(most, to - from);
  }
  return { peak: most / window, mean: CLIENTS / lasted };
}

test(`${CLIENTS} clients come back spread out, and nobody too early or too late`, async (t) => {
  // Where a time is named, the fleet comes back over that time too, so a second holds few of them.
  const cases: [down: Down, outage: number, window: number][] = [
    ["refused", 30, 1],
    ["refused", 60, 1],
    ["refused", 300, 1],
    [5, 300, 5],
    [30, 300, 5],
  ];
  for (const [at, [down, outage, window]] of cases.entries()) {
    const { peak, mean } = await rates(down, outage, at + 1, window);
    t.diagnostic(`${down} for ${outage} s: peak ${peak.toFixed(1)}/s, mean ${mean.toFixed(1)}/s, ${(peak / mean).toFixed(2)}`);
    // All at once would be a short recovery, with a mean as high as its peak.
    assert.ok(peak <= CLIENTS / 10, `${down}: ${peak}/s at a time`);
    assert.ok(peak <= 2 * mean, `${down}: ${peak}/s after a mean of ${mean}/s`);
  }
});
