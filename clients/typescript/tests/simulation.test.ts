/**
 * Seeded runs of clients that crash at every step, against a server that keeps keys and a network that loses
 * requests and answers. A run ends when every intent is acknowledged; then each must have taken effect exactly
 * once, under one key, and every end must have been true.
 */

import assert from "node:assert/strict";
import { test } from "node:test";

import { client, type Entry, type Settled, type Step, type Storage } from "../dist/node.js";
import { memory } from "../dist/memory.js";
import { queue } from "../dist/queue.js";
import { Clock, EXPIRES, lost, notSent, problem, seeded, type Reply } from "./world.js";

const RUNS = process.env.FIRSTWRITE_TEST_LONG ? 10_000 : 300;
const STEPS: Step[] = ["opened", "marked", "sent", "answered", "recorded", "ended", "acknowledged"];

type Answered = Exclude<Reply, Error | "hang">;

/** A server that keeps the first answer under each key, and counts what it did. */
class Bank {
  readonly effects = new Map<string, number>();
  readonly keys = new Map<string, Set<string>>();
  readonly #kept = new Map<string, Answered>();
  readonly #pending = new Map<string, number>();
  readonly #unauthorized = new Set<string>();
  readonly #random: () => number;
  constructor(random: () => number) {
    this.#random = random;
  }

  take(url: string, key: string, body: string): Reply {
    if (url.includes("/operations/")) {
      if (this.#pending.get(key)) return { status: 200, json: { state: "interim", retry_after: 1 } };
      return this.#kept.has(key) ? { status: 200, json: { state: "completed" } } : problem(404, "key-unknown");
    }
    const { customer, refuse } = JSON.parse(body) as { customer: string; refuse: boolean };
    const used = this.keys.get(customer) ?? new Set();
    this.keys.set(customer, used.add(key));
    const pending = this.#pending.get(key) ?? 0;
    if (pending > 0) {
      this.#pending.set(key, pending - 1);
      return { status: 202, headers: { ...EXPIRES, "idempotency-interim": "true" } };
    }
    const kept = this.#kept.get(key);
    if (kept) return { ...kept, headers: { ...EXPIRES, "idempotent-replayed": "true" } };
    const luck = this.#random();
    if (luck < 0.05) return problem(503, "overloaded", true, { retry_after: 1 });
    if (luck < 0.1) return problem(429, "rate-limited", true);
    // A second one in a row would mean that the caller has no right to it.
    const mayRefuse = !this.#unauthorized.delete(key);
    if (luck < 0.13 && mayRefuse) {
      this.#unauthorized.add(key);
      return { status: 401 };
    }
    if (!refuse) this.effects.set(customer, (this.effects.get(customer) ?? 0) + 1);
    const answer: Answered = refuse
      ? { status: 422, headers: EXPIRES, json: { error: "no" } }
      : { status: 201, headers: EXPIRES, json: { customer } };
    this.#kept.set(key, answer);
    if (luck > 0.9) {
      this.#pending.set(key, 2);
      return { status: 202, headers: { ...EXPIRES, "idempotency-interim": "true" } };
    }
    return answer;
  }
}

/** A process: when it dies, it reaches neither its storage nor the network any more. */
class Process {
  isDead = false;
  readonly storage: Storage;
  constructor(inner: Storage) {
    const alive = <Rest extends unknown[], T>(work: (...rest: Rest) => Promise<T>) => {
      return async (...rest: Rest): Promise<T> => {
        if (this.isDead) return new Promise(() => {});
        const value = await work(...rest);
        return this.isDead ? new Promise(() => {}) : value;
      };
    };
    this.storage = { get: alive(inner.get), put: alive(inner.put), delete: alive(inner.delete), list: alive(inner.list) };
  }
}

type Told = { name: string; kind: Settled["kind"]; json: unknown };

/** One run. Several processes share the storage; each may die at a step that the seed chooses. */
async function run(seed: number, work: "directly" | "by queue"): Promise<void> {
  const random = seeded(seed);
  const pick = (count: number) => Math.floor(random() * count);
  const clock = new Clock();
  const bank = new Bank(random);
  const disk = memory();
  const names = Array.from({ length: 1 + pick(3) }, (_, at) => `intent/${at}`);
  const refused = new Set(names.filter(() => random() < 0.2));
  const told: Told[] = [];

  const fetch = (process: Process) => async (url: string, init: RequestInit) => {
    const stood = (await disk.list()).entries;
    const luck = random();
    if (luck < 0.05) throw notSent();
    if (luck < 0.15) throw lost();
    const header = new Headers(init.headers).get("idempotency-key") ?? "";
    const key = url.includes("/operations/") ? url.split("/").at(-1)?.split("?")[0] : header.slice(1, -1);
    if (!url.includes("/operations/")) {
      const entry = stood.find((entry) => entry.key == key) as Entry;
      assert.ok(entry && entry.attempts > 0 && (entry.doubt || entry.end), "sent before the mark was durable");
    }
    const reply = bank.take(url, key as string, init.body as string);
    if (luck < 0.3 || process.isDead) throw lost();
    if (luck < 0.35) return new Response("<html>", { status: 502 });
    if (reply instanceof Error || reply == "hang") throw lost();
    return new Response(JSON.stringify(reply.json ?? null), { status: reply.status, headers: reply.headers ?? {} });
  };

  /** A life of a process. Twins do not acknowledge: a name that is opened after that is another action. */
  const live = async (deadly: boolean, salt: number, isTwin = false): Promise<void> => {
    const process = new Process(disk);
    const stepToDie = STEPS[pick(STEPS.length)];
    let left = deadly ? pick(6) : Infinity;
    const died = new AbortController();
    const dead = new Promise<void>((done) => died.signal.addEventListener("abort", () => done()));
    const on = ({ step }: { step: string }) => {
      if (process.isDead) return;
      if (step == stepToDie && left-- <= 0) {
        process.isDead = true;
        died.abort();
      }
    };
    const fw = client({
      storage: process.storage,
      fetch: fetch(process),
      now: clock.now,
      monotonic: clock.monotonic,
      sleep: clock.sleep,
      random: seeded(seed + salt),
      waitFor: Infinity,
      on,
    });
    const request = (name: string) => ({ url: "http://bank/payments", json: { customer: name, refuse: refused.has(name) } });
    const hear = (name: string, { kind, json }: Settled) => {
      if (!process.isDead) told.push({ name, kind, json });
    };
    const directly = async (name: string) => {
      // The application's own books say what it was told, and are written before the acknowledgement.
      if (!told.some((end) => end.name == name)) hear(name, await (await fw.intent(name, request(name))).settled());
      if (!isTwin) await (await fw.find(name))?.acknowledge();
    };
    const byQueue = async () => {
      const take = (queued: { name: string }, end: Settled) => hear(queued.name, end);
      const lanes = queue(fw, { confirm: take, rollback: take });
      for (const name of names) {
        if (!told.some((end) => end.name == name)) await lanes.enqueue(`lane/${name.length % 2}`, name, request(name));
      }
      const stop = new AbortController();
      died.signal.addEventListener("abort", () => stop.abort());
      const running = lanes.run(stop.signal);
      while (!process.isDead && (await disk.list()).entries.length) await clock.sleep(100);
      stop.abort();
      if (!process.isDead) await running;
    };
    const all = work == "directly" ? Promise.all(names.map(directly)) : byQueue();
    await Promise.race([all, dead]);
  };

  for (let life = 0; life < 4; life += 1) {
    const twins = random() < 0.3 && work == "directly";
    await Promise.all([live(true, life, twins), ...(twins ? [live(true, 100 + life, true)] : [])]);
  }
  await live(false, 10);

  for (const name of names) {
    const isRefused = refused.has(name);
    assert.equal(bank.effects.get(name) ?? 0, isRefused ? 0 : 1, `effects of ${name}`);
    assert.equal(bank.keys.get(name)?.size ?? 0, 1, `keys of ${name}`);
    const ends = told.filter((end) => end.name == name);
    assert.ok(ends.length > 0, `${name} was not told`);
    for (const { kind } of ends) assert.equal(kind, isRefused ? "refused" : "done", `the end of ${name}`);
  }
  assert.deepEqual((await disk.list()).entries, []);
}

for (const work of ["directly", "by queue"] as const) {
  test(`${RUNS} seeded runs with crashes, ${work}`, async () => {
    const only = process.env.FIRSTWRITE_TEST_SEED;
    const [from, to] = only ? [Number(only), Number(only) + 1] : [0, RUNS];
    for (let seed = from; seed < to; seed += 1) {
      await run(seed, work).catch((error) => {
        throw new Error(`FIRSTWRITE_TEST_SEED=${seed}: ${(error as Error).stack}`);
      });
    }
  });
}
