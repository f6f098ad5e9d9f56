/** Waits are lengths: what a clock that is set, or a restart, does to them. And what an entry says of its server. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { client } from "../dist/node.js";
import { memory } from "../dist/memory.js";
import { queue } from "../dist/queue.js";
import { against, Clock, CREATED, EXPIRES, lost, ORDER, problem, server, tools, type Reply } from "./world.js";

const HOUR = 3_600_000;
const interim = (headers: Record<string, string>): Reply => ({ status: 202, headers: { ...headers, "idempotency-interim": "true" } });
const LATER: Reply = { status: 429, headers: { "retry-after": "600" } };

test("a clock that is set during a wait does not change it", async () => {
  for (const set of [HOUR, -HOUR, 12 * HOUR, -24 * HOUR]) {
    for (const isQueued of [false, true]) {
      const { fw, clock, seen } = against([LATER, CREATED], { waitFor: Infinity, giveUpAfter: Infinity });
      const began = clock.time;
      void clock.sleep(300_000).then(() => clock.set(set));
      if (isQueued) {
        const lanes = queue(fw);
        await lanes.enqueue("lane", "a", ORDER);
        const stop = new AbortController();
        const running = lanes.run(stop.signal);
        while (!(await fw.find("a"))?.end) await clock.sleep(100);
        stop.abort();
        await running;
      } else {
        await (await fw.intent("a", ORDER)).settled();
      }
      const waited = clock.time - began;
      assert.ok(waited >= 600_062 && waited <= 600_700, `${set}, ${isQueued}: ${waited}`);
      assert.equal(seen.length, 2);
    }
  }
});

test("after a restart the rest is waited, and never more than the length", async () => {
  for (const [set, least] of [[0, 300_000], [-HOUR, 600_000], [-24 * HOUR, 600_000], [HOUR, 0]] as const) {
    const storage = memory();
    const clock = new Clock();
    const first = against([LATER], { storage }, clock);
    await assert.rejects((await first.fw.intent("a", ORDER)).settled({ waitFor: 300_000 }), { name: "Pending" });
    clock.set(set);
    const { fw, seen } = against([CREATED], { storage, waitFor: Infinity, giveUpAfter: Infinity }, clock);
    const began = clock.time;
    assert.equal((await (await fw.intent("a", ORDER)).settled()).kind, "done");
    const waited = clock.time - began;
    assert.ok(waited >= least && waited <= least + 600, `${set}: ${waited}`);
    assert.equal(seen.length, 1);
  }
});

test("a wait of an entry of an earlier version, which has no length, is over", async () => {
  const { fw, storage, clock } = against([CREATED]);
  const pay = await fw.intent("a", ORDER);
  const { waitFor: _, ...entry } = (await storage.get("a")) ?? assert.fail();
  await storage.put({ ...entry, notBefore: clock.now() + HOUR, rev: entry.rev + 1 }, entry.rev);
  const began = clock.time;
  assert.equal((await pay.settled()).kind, "done");
  assert.equal(clock.time, began);
});

test("what is recorded replaces the back-off of the mark", async () => {
  const { fw, storage, clock } = against([{ status: 429, headers: { "retry-after": "5" } }], { random: () => 0 });
  const began = clock.now();
  await assert.rejects((await fw.intent("a", ORDER)).settled({ waitFor: 1 }), { name: "Pending" });
  const { notBefore, waitFor } = (await storage.get("a")) ?? assert.fail();
  assert.deepEqual([notBefore - began, waitFor], [5062, 5062]);
});

test("an end that could not be written is sent for again after the back-off of the mark", async () => {
  const inner = memory();
  let isFull = false;
  const put: typeof inner.put = async (entry, rev) => {
    if (isFull && entry.end) throw new Error("full");
    return inner.put(entry, rev);
  };
  const { fw, seen, clock } = against([CREATED], { storage: { ...inner, put }, random: () => 0.5 });
  const pay = await fw.intent("a", ORDER);
  isFull = true;
  await assert.rejects(pay.settled(), { message: "full" });
  isFull = false;
  const began = clock.time;
  assert.equal((await pay.settled()).kind, "done");
  assert.deepEqual([clock.time - began, seen.length], [281, 3]);
});

test("dates of the server are distances from the answer's Date, whatever this clock says", async () => {
  for (const wrong of [-2 * HOUR, 0, 2 * HOUR, 48 * HOUR]) {
    const clock = new Clock();
    const date = (ms: number) => new Date(clock.time + ms).toUTCString();
    const headers = { date: date(0), "retry-after": date(30_000), "idempotency-expires": date(HOUR) };
    clock.set(wrong);
    const { fw, storage } = against([interim(headers), CREATED], { random: () => 0, status: "never" }, clock);
    const began = clock.time;
    await assert.rejects((await fw.intent("a", ORDER)).settled({ waitFor: 10_000 }), { name: "Pending" });
    assert.equal((await storage.get("a"))?.expiresAt, clock.now() - 10_000 + HOUR, `${wrong}`);
    await (await fw.intent("a", ORDER)).settled();
    assert.equal(clock.time - began, 30_062);
  }
});

test("the back-off between questions grows, and what the resource asks for holds over a restart", async () => {
  const storage = memory();
  const clock = new Clock();
  const at: number[] = [];
  const { fetch } = server(({ method }) => {
    if (method == "POST") return lost();
    at.push(clock.time);
    return { status: 200, headers: { "retry-after": "1" }, json: { state: "reserved" } };
  });
  const { options } = tools(clock);
  const asking = () => client({ storage, fetch: (url, init) => fetch(url, init), ...options, random: () => 0, status: "always" });
  await assert.rejects((await asking().intent("a", ORDER)).settled({ waitFor: 30_000 }), { name: "Pending" });
  const gaps = at.slice(1).map((time, index) => time - (at[index] as number));
  assert.deepEqual(gaps.slice(0, 6), [1062, 1125, 1250, 1500, 2000, 3000]);
  // In a lane, which leaves its place between questions, too.
  at.length = 0;
  const lanes = queue(asking());
  await lanes.enqueue("lane", "b", ORDER);
  const stop = new AbortController();
  const running = lanes.run(stop.signal);
  await clock.sleep(12_000);
  stop.abort();
  await running;
  assert.deepEqual(at.slice(1, 6).map((time, index) => time - (at[index] as number)), [1062, 1125, 1250, 1500, 2000]);
  // The next process waits what the resource asked for.
  const restart = clock.time;
  at.length = 0;
  const { notBefore } = (await storage.get("a")) ?? assert.fail();
  await assert.rejects((await asking().intent("a", ORDER)).settled({ waitFor: 30_000 }), { name: "Pending" });
  assert.ok(at[0] == Math.max(notBefore, restart), `${at[0]} ${notBefore}`);
});

test("fresh credentials are asked for once, also in a lane that waits in between", async () => {
  const asked: boolean[] = [];
  const credentials = ({ refresh }: { refresh: boolean }) => (asked.push(refresh), {});
  const { fw, clock } = against([{ status: 401 }], { credentials });
  const lanes = queue(fw);
  await lanes.enqueue("lane", "a", ORDER);
  const stop = new AbortController();
  const running = lanes.run(stop.signal);
  while (!(await fw.find("a"))?.end) await clock.sleep(100);
  stop.abort();
  await running;
  assert.deepEqual([asked, (await fw.find("a"))?.end?.kind], [[false, true], "refused"]);
});

test("after a crash, a server that showed its status resource is asked first", async () => {
  for (const shown of [interim(EXPIRES), { status: 503, headers: { "idempotency-outcome": "unknown" } }]) {
    const storage = memory();
    const clock = new Clock();
    const first = against([shown, "hang"], { storage }, clock);
    const sleep = (ms: number, signal?: AbortSignal) => (first.seen.length > 1 ? new Promise<void>(() => {}) : clock.sleep(ms, signal));
    const dying = client({ ...first.fw.settings, sleep, waitFor: Infinity });
    void (await dying.intent("a", ORDER)).settled();
    while (first.seen.length < 2) await new Promise(setImmediate);
    assert.equal((await storage.get("a"))?.hasStatus, true);
    const { fw, seen } = against([{ status: 200, json: { state: "completed" } }, CREATED], { storage }, clock);
    assert.equal((await (await fw.intent("a", ORDER)).settled()).kind, "done");
    assert.deepEqual(seen.map(({ method }) => method), ["GET", "POST"]);
  }
});

test("a server that denied its status resource is not asked again, and the next write says so", async () => {
  const storage = memory();
  const clock = new Clock();
  const replies = [interim(EXPIRES), lost(), lost(), { status: 404 }, interim(EXPIRES), lost(), lost(), CREATED];
  const { fw, seen } = against(replies, { storage, waitFor: Infinity }, clock);
  assert.equal((await (await fw.intent("a", ORDER)).settled()).kind, "done");
  assert.deepEqual(seen.filter(({ method }) => method == "GET").length, 2);
  assert.equal((await storage.get("a"))?.hasStatus, false);
});

test("in every dialect a known problem shows the resource, and one of a later version does not", async () => {
  const cases = [["stripe", "overloaded", true], ["generic", "rate-limited", true], ["draft-07", "strange", false]] as const;
  for (const [dialect, code, isShown] of cases) {
    const { fw, storage } = against([problem(503, code, true)], { dialect });
    await assert.rejects((await fw.intent("a", ORDER)).settled({ waitFor: 10 }), { name: "Pending" });
    assert.equal((await storage.get("a"))?.hasStatus, isShown, code);
  }
});

test("an interim answer gives no token back", async () => {
  const clock = new Clock();
  const interim: Reply = { status: 202, headers: { "idempotency-interim": "true" } };
  const { fw, seen } = against([interim], { random: () => 0, status: "never" }, clock);
  const pending = Array.from({ length: 100 }, async (_, at) => {
    await assert.rejects((await fw.intent(`${at}`, ORDER)).settled({ waitFor: 60_000 }), { name: "Pending" });
  });
  await Promise.all(pending);
  assert.ok(seen.length <= 100 + 51, `${seen.length}`);
});

test("a key whose time passes in doubt ends expired", async () => {
  const { time } = new Clock();
  const headers = { date: new Date(time).toUTCString(), "idempotency-expires": new Date(time + 600_000).toUTCString() };
  const { fw, clock } = against([interim(headers), lost()], { waitFor: Infinity });
  const began = clock.time;
  assert.equal((await (await fw.intent("a", ORDER)).settled()).kind, "expired");
  assert.ok(clock.time - began >= 540_000 && clock.time - began < 602_000);
});
