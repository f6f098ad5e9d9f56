/** The queue: order in lanes, what stops a lane, and what the application's callbacks see. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { memory } from "../dist/memory.js";
import { client, type Damage, type Options, type Storage } from "../dist/node.js";
import { queue } from "../dist/queue.js";
import { bench, CREATED, REFUSED, request, runUntil } from "./bench.js";
import { entryOf } from "./storages.js";
import { lost, notSent, type Reply } from "./world.js";

test("a lane is sent in the order of enqueue, and lanes do not wait for each other", async () => {
  let isOpen = false;
  const { order, lanes, clock } = bench((body) => (body == "a9" && !isOpen ? { status: 503 } : CREATED));
  await Promise.all(["a9", "a1", "a5"].map((name) => lanes.enqueue("a", name, request(name))));
  await lanes.enqueue("b", "b1", request("b1"));
  await runUntil(lanes, clock, () => order.includes("b1"));
  assert.deepEqual([...new Set(order)], ["a9", "b1"]);
  isOpen = true;
  await runUntil(lanes, clock, () => order.includes("a5"));
  assert.deepEqual([...new Set(order)], ["a9", "b1", "a1", "a5"]);
});

test("what is enqueued while it runs is sent, also by another client of the storage", async () => {
  const storage = memory();
  const { order, lanes, clock, options } = bench(() => CREATED, {}, { storage });
  const other = queue(client({ storage, ...options }));
  let isThere = false;
  await runUntil(lanes, clock, async () => {
    if (!isThere) await other.enqueue("a", "late", request("late"));
    isThere = true;
    return order.includes("late");
  });
});

test("a storage that tells of nothing is looked at now and then", async () => {
  const { subscribe: _, ...silent } = memory();
  const { order, lanes, clock, options } = bench(() => CREATED, {}, { storage: silent as Storage });
  const other = queue(client({ storage: silent as Storage, ...options }));
  let isThere = false;
  await runUntil(lanes, clock, async () => {
    if (!isThere) await other.enqueue("a", "late", request("late"));
    isThere = true;
    return order.includes("late");
  });
});

test("a lane goes on after a refusal, and stops at an unknown end until it is acknowledged or resumed", async () => {
  let isBad = true;
  const answer = (body: string): Reply => {
    if (body == "refused") return REFUSED;
    return body == "unknown" && isBad ? { status: 303 } : CREATED;
  };
  for (const way of ["acknowledge", "resume"] as const) {
    isBad = true;
    const { order, fw, lanes, clock } = bench(answer);
    for (const name of ["refused", "unknown", "last"]) await lanes.enqueue("a", name, request(name));
    await runUntil(lanes, clock, async () => (await fw.find("unknown"))?.state == "ended");
    await runUntil(lanes, clock, () => clock.slept.length > 100);
    const states = (await lanes.list()).queued.map(({ name, state, end }) => `${name} ${state} ${end?.kind}`);
    assert.deepEqual(states, ["refused ended refused", "unknown ended unknown", "last open undefined"]);
    isBad = false;
    const stopped = await fw.find("unknown");
    await stopped?.[way]();
    await runUntil(lanes, clock, () => order.includes("last"));
    const expected = way == "resume" ? ["refused", "unknown", "unknown", "last"] : ["refused", "unknown", "last"];
    assert.deepEqual(order, expected);
  }
});

test("apply, confirm and rollback see each entry, and an end that was taken is acknowledged", async () => {
  const told: string[] = [];
  const { lanes, clock, events } = bench((body) => (body == "bad" ? REFUSED : CREATED), {
    apply: ({ name, state }) => void told.push(`apply ${name} ${state}`),
    confirm: ({ name }, { status }) => void told.push(`confirm ${name} ${status}`),
    rollback: ({ name }, { status }) => void told.push(`rollback ${name} ${status}`),
  });
  await lanes.enqueue("a", "good", request("good"));
  await lanes.enqueue("a", "bad", request("bad"));
  await runUntil(lanes, clock, async () => !(await lanes.list()).queued.length);
  assert.deepEqual(told, ["apply good open", "apply bad open", "confirm good 201", "rollback bad 422"]);
  assert.equal(events.filter(({ step }) => step == "acknowledged").length, 2);
});

test("apply runs once, also where an intent is enqueued while the storage is read", async () => {
  const inner = memory();
  let meanwhile: (() => Promise<unknown>) | undefined;
  const list = async () => {
    const found = await inner.list();
    const work = meanwhile;
    meanwhile = undefined;
    await work?.();
    return found;
  };
  const applied: string[] = [];
  const apply = ({ name }: { name: string }) => void applied.push(name);
  const { order, lanes, clock } = bench(() => CREATED, { apply }, { storage: { ...inner, list } });
  meanwhile = () => lanes.enqueue("a", "one", request("one"));
  await runUntil(lanes, clock, () => order.length > 0);
  assert.deepEqual(applied, ["one"]);
});

test("a callback that fails is reported and tried again, and its intent is not acknowledged before", async () => {
  let failures = 3;
  const errors: unknown[] = [];
  const confirm = () => {
    if (failures-- > 0) throw new Error("the books are closed");
  };
  const { order, fw, lanes, clock } = bench(() => CREATED, { confirm, onError: (error, lane) => errors.push(lane, error) });
  await lanes.enqueue("a", "one", request("one"));
  await runUntil(lanes, clock, () => errors.length > 0);
  assert.ok(await fw.find("one"));
  await runUntil(lanes, clock, async () => !(await fw.find("one")));
  assert.deepEqual([order, errors[0], errors.length], [["one"], "a", 6]);
});

test("a damaged entry is reported once, and the others are sent", async () => {
  const inner = memory();
  const damage = { what: "bad", error: new Error("damaged") };
  const list = async () => ({ ...(await inner.list()), damaged: [damage] });
  const errors: unknown[] = [];
  const { order, lanes, clock } = bench(() => CREATED, { onError: (error) => errors.push(error) }, { storage: { ...inner, list } });
  await lanes.enqueue("a", "one", request("one"));
  await runUntil(lanes, clock, () => order.length > 0);
  assert.deepEqual(errors, [damage.error]);
  assert.deepEqual((await lanes.list()).damaged, [damage]);
});

test("no more lanes are sent at once than may be", async () => {
  let most = 0;
  let under = 0;
  const fetch: Options["fetch"] = async () => {
    most = Math.max(most, ++under);
    await new Promise(setImmediate);
    under -= 1;
    return new Response("", { status: 201 });
  };
  const { fw, clock } = bench(() => CREATED, {}, { fetch });
  const lanes = queue(fw, { lanesMax: 3, confirm: () => {} });
  for (let at = 0; at < 10; at += 1) await lanes.enqueue(`lane ${at}`, `${at}`, request(`${at}`));
  await runUntil(lanes, clock, async () => !(await lanes.list()).queued.length);
  assert.equal(most, 3);
});

test("of several tabs one sends a lane, and an intent may be called what a lane is called", async () => {
  const holders = new Map<string, Promise<unknown>>();
  const held: string[] = [];
  const lock: Storage["lock"] = async (name, signal, work) => {
    const before = holders.get(name);
    let free = () => {};
    holders.set(name, new Promise<void>((done) => (free = done)));
    await Promise.race([before, new Promise((done) => signal.addEventListener("abort", done))]);
    try {
      if (before && signal.aborted) return undefined;
      held.push(name);
      return await work();
    } finally {
      free();
    }
  };
  const storage: Storage = { ...memory(), lock };
  const { order, lanes, clock, fw } = bench(() => CREATED, { confirm: () => {} }, { storage });
  const other = queue(fw, { confirm: () => {} });
  for (const name of ["a", "lane/a"]) await lanes.enqueue("a", name, request(name));
  const stop = new AbortController();
  const running = other.run(stop.signal);
  await runUntil(lanes, clock, async () => !(await lanes.list()).queued.length);
  stop.abort();
  await running;
  assert.deepEqual(order, ["a", "lane/a"]);
  assert.ok(held.includes("intent/lane/a"));
});

test("a name that stands outside of the queue or in another lane is a conflict", async () => {
  const { fw, lanes } = bench(() => CREATED);
  await fw.intent("direct", request("x"));
  await assert.rejects(lanes.enqueue("a", "direct", request("x")), { name: "IntentConflict" });
  await lanes.enqueue("a", "one", request("x"));
  await assert.rejects(lanes.enqueue("b", "one", request("x")), { name: "IntentConflict" });
  await assert.rejects(lanes.enqueue("a", "one", request("y")), { name: "IntentConflict" });
  assert.equal((await lanes.enqueue("a", "one", request("x"))).name, "one");
  assert.equal((await lanes.list()).queued.length, 1);
});

test("an intent of a lane is not sent past its queue", async () => {
  const { order, fw, lanes, clock } = bench(() => CREATED);
  await lanes.enqueue("a", "one", request("one"));
  await lanes.enqueue("a", "two", request("two"));
  const two = await fw.intent("two", request("two"));
  await assert.rejects(two.settled(), { name: "IntentState", intent: "two" });
  await assert.rejects(two.settled({ lane: "b" }), { name: "IntentState" });
  assert.equal(order.length, 0);
  await runUntil(lanes, clock, () => order.includes("two"));
  await runUntil(lanes, clock, async () => (await fw.find("two"))?.state == "ended");
  assert.equal((await two.settled()).kind, "done");
});

test("an intent that is superseded goes to the end of its lane, and is applied", async () => {
  const applied: string[] = [];
  const apply = ({ name, request }: { name: string; request: { body: unknown } }) =>
    void applied.push(`${name} ${(request.body as { text: string }).text}`);
  const { order, fw, lanes, clock } = bench((body) => (body == "old" ? REFUSED : CREATED), { apply });
  for (const name of ["one", "two", "three"]) await lanes.enqueue("a", name, request(name == "one" ? "old" : name));
  const two = await fw.find("two");
  await assert.rejects(two?.supersede(request("new two")) ?? assert.fail(), { name: "IntentState" });
  await lanes.supersede("two", request("new two"));
  await runUntil(lanes, clock, () => order.includes("new two"));
  await lanes.supersede("one", request("new one"));
  const { lane } = (await lanes.list()).queued.at(-1) ?? {};
  assert.equal(lane, "a");
  await runUntil(lanes, clock, () => order.includes("new one"));
  assert.deepEqual(order, ["old", "three", "new two", "new one"]);
  assert.deepEqual(applied, ["one old", "two two", "three three", "two new two", "one new one"]);
});

test("a damaged entry stops its lane, where that is known", async () => {
  const inner = memory();
  const damage = { what: "bad", error: new Error("damaged"), lane: "a" };
  let damaged: Damage[] = [damage];
  const list = async () => ({ ...(await inner.list()), damaged });
  const errors: unknown[] = [];
  const onError = (_: unknown, lane: string) => errors.push(lane);
  const { order, lanes, clock } = bench(() => CREATED, { onError }, { storage: { ...inner, list } });
  for (const lane of ["a", "b"]) await lanes.enqueue(lane, `${lane}1`, request(`${lane}1`));
  await runUntil(lanes, clock, () => order.includes("b1") && clock.slept.length > 100);
  assert.deepEqual([order, errors], [["b1"], ["a"]]);
  damaged = [];
  await runUntil(lanes, clock, () => order.includes("a1"));
});

test("an offline queue waits for as long as it takes, and a doubt does not", async () => {
  let reply: () => Reply = notSent;
  const { order, fw, lanes, clock } = bench(() => reply());
  const began = clock.time;
  await lanes.enqueue("a", "one", request("one"));
  await runUntil(lanes, clock, () => clock.time > began + 48 * 3_600_000, 60_000);
  assert.deepEqual([(await fw.find("one"))?.end, order.length > 1000], [null, true]);
  reply = () => CREATED;
  await runUntil(lanes, clock, async () => (await fw.find("one"))?.state == "ended");
  assert.equal((await fw.find("one"))?.end?.kind, "done");
  // Once an attempt may have arrived, its time counts, also while nothing can be sent.
  let count = 0;
  reply = () => (count++ ? notSent() : lost());
  await lanes.enqueue("a", "two", request("two"));
  await runUntil(lanes, clock, async () => (await fw.find("two"))?.state == "ended", 60_000);
  assert.equal((await fw.find("two"))?.end?.kind, "unknown");
});

test("an intent outside the queue is none of its business", async () => {
  const { order, fw, lanes, clock } = bench(() => lost());
  await fw.settings.storage.put(entryOf("direct", 1), null);
  await runUntil(lanes, clock, () => clock.slept.length > 10);
  assert.deepEqual([order, (await lanes.list()).queued], [[], []]);
});
