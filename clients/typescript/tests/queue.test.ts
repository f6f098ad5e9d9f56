/** The queue: order in lanes, what stops a lane, and what the application's callbacks see. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { client, type Damage, type Options, type Storage } from "../dist/node.js";
import { memory } from "../dist/memory.js";
import { queue, type QueueOptions } from "../dist/queue.js";
import { entryOf } from "./storages.js";
import { EXPIRES, lost, notSent, server, tools, type Clock, type Reply } from "./world.js";

const CREATED: Reply = { status: 201, headers: EXPIRES, json: {} };
const REFUSED: Reply = { status: 422, headers: EXPIRES };
const request = (what: string) => ({ url: "http://notes.test/", body: what });

function bench(answer: (body: string) => Reply, options: QueueOptions = {}, more: Partial<Options> = {}) {
  const order: string[] = [];
  const { fetch } = server(({ method, body }) => {
    if (method == "GET") return { status: 404 };
    order.push(body);
    return answer(body);
  });
  const world = tools();
  const fw = client({ storage: memory(), fetch, ...world.options, ...more });
  return { order, fw, lanes: queue(fw, options), ...world };
}

/** Runs a queue until something is the case. */
async function runUntil(lanes: ReturnType<typeof queue>, clock: Clock, isEnough: () => boolean | Promise<boolean>, step = 100) {
  const stop = new AbortController();
  const running = lanes.run(stop.signal);
  for (let looks = 0; !(await isEnough()); looks += 1) {
    assert.ok(looks < 10_000, "it never came to that");
    await clock.sleep(step);
  }
  stop.abort();
  await running;
}

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

test("apply is remembered: it runs once over restarts and tabs, and again only where a crash cut it off", async () => {
  const storage = memory();
  const told: string[] = [];
  const take = (what: string) => (queued: { name: string }) => void told.push(`${what} ${queued.name}`);
  const callbacks = { apply: take("apply"), confirm: take("confirm") };
  const first = bench(() => CREATED, callbacks, { storage });
  await first.lanes.enqueue("a", "applied", request("applied"));
  assert.equal((await storage.get("applied"))?.applied, true);
  // Another process enqueued and died before it applied.
  await bench(() => CREATED, {}, { storage }).lanes.enqueue("a", "cut", request("cut"));
  const { lanes, clock } = bench(() => CREATED, callbacks, { storage });
  await runUntil(lanes, clock, async () => !(await lanes.list()).queued.length);
  assert.deepEqual(told, ["apply applied", "apply cut", "confirm applied", "confirm cut"]);
});

test("after a restart, callbacks run for what was not acknowledged", async () => {
  const storage = memory();
  const first = bench(() => CREATED, {}, { storage });
  await first.lanes.enqueue("a", "ended", request("ended"));
  await (await first.fw.find("ended"))?.settled({ lane: "a" });
  const told: string[] = [];
  const confirm = ({ name }: { name: string }) => void told.push(name);
  const { lanes, clock } = bench(() => CREATED, { confirm }, { storage });
  await runUntil(lanes, clock, async () => !(await lanes.list()).queued.length);
  assert.deepEqual(told, ["ended"]);
});

test("an apply that fails is reported, nothing of its lane is sent before it has run, and other lanes go on", async () => {
  const storage = memory();
  for (const lane of ["a", "b"]) await bench(() => CREATED, {}, { storage }).lanes.enqueue(lane, `${lane}1`, request(`${lane}1`));
  let isBroken = true;
  const errors: string[] = [];
  const apply = ({ lane }: { lane: string }) => {
    if (isBroken && lane == "a") throw new Error("the books are closed");
  };
  const { order, lanes, clock } = bench(() => CREATED, { apply, onError: (_, lane) => errors.push(lane) }, { storage });
  const began = clock.time;
  await runUntil(lanes, clock, () => clock.time > began + 20_000);
  assert.deepEqual([order, new Set(errors), errors.length <= 5], [["b1"], new Set(["a"]), true]);
  isBroken = false;
  await runUntil(lanes, clock, () => order.includes("a1"));
});

test("lanes that only wait take no place from a healthy one", async () => {
  const replies: [string, Reply | (() => Reply), Partial<Options>?][] = [
    ["a named time", { status: 429, headers: { "retry-after": "600" } }],
    ["back-off and budget", { status: 503 }],
    ["nothing sent", notSent],
    ["lost", lost],
  ];
  for (const [what, reply] of replies) {
    // Twice as many as there are places. Without luck they use up the budget of retries, and wait for it.
    const sick = Array.from({ length: 32 }, (_, at) => `sick ${at}`);
    let isDown = true;
    const answer = (body: string) => (isDown && body.startsWith("sick") ? (typeof reply == "function" ? reply() : reply) : CREATED);
    const { order, fw, lanes, clock } = bench(answer, {}, { random: () => 0 });
    for (const name of sick) await lanes.enqueue(name, name, request(name));
    const began = clock.time;
    // They are in their waits when a healthy lane comes, which is sent at once.
    await runUntil(lanes, clock, () => sick.every((name) => order.includes(name)) && clock.time > began + 60_000);
    const stop = new AbortController();
    const running = lanes.run(stop.signal);
    await clock.sleep(1000);
    const before = clock.time;
    for (const name of ["well 1", "well 2", "well 3"]) await lanes.enqueue("well", name, request(name));
    while (!order.includes("well 3")) await clock.sleep(1);
    assert.ok(clock.time - before < 100, `${what}: ${clock.time - before}`);
    isDown = false;
    while ((await lanes.list()).queued.some(({ end }) => !end)) await clock.sleep(1000);
    stop.abort();
    await running;
    for (const name of sick) assert.equal((await fw.find(name))?.end?.kind, "done", `${what}: ${name}`);
  }
});

test("an offline queue begins no attempt, and goes on within a second", async () => {
  let isOnline = false;
  const { order, lanes, clock } = bench(() => CREATED, {}, { online: () => isOnline });
  for (let at = 0; at < 20; at += 1) await lanes.enqueue(`lane ${at}`, `${at}`, request(`${at}`));
  const began = clock.time;
  await runUntil(lanes, clock, () => clock.time > began + 10_000);
  assert.equal(order.length, 0);
  const stop = new AbortController();
  const running = lanes.run(stop.signal);
  await clock.sleep(100);
  isOnline = true;
  const back = clock.time;
  while (order.length < 20) await clock.sleep(10);
  assert.ok(clock.time - back <= 1100, `${clock.time - back}`);
  stop.abort();
  await running;
});

test("a refused intent is rolled back before another request is applied, and while that fails nothing is superseded", async () => {
  const told: string[] = [];
  let isBroken = true;
  const text = (queued: { request: { body: unknown } }) => (queued.request.body as { text: string }).text;
  const { order, fw, lanes, clock } = bench((body) => (body == "old" ? REFUSED : CREATED), {
    apply: (queued) => void told.push(`apply ${text(queued)}`),
    rollback(queued) {
      told.push(`rollback ${text(queued)}`);
      if (isBroken) throw new Error("the books are closed");
    },
    confirm: (queued) => void told.push(`confirm ${text(queued)}`),
  });
  await lanes.enqueue("a", "one", request("old"));
  await runUntil(lanes, clock, () => told.includes("rollback old"));
  const before = await fw.settings.storage.get("one");
  await assert.rejects(lanes.supersede("one", request("new")), { message: "the books are closed" });
  assert.deepEqual(await fw.settings.storage.get("one"), before);
  isBroken = false;
  told.length = 0;
  await lanes.supersede("one", request("new"));
  await runUntil(lanes, clock, async () => !(await lanes.list()).queued.length);
  assert.deepEqual([told, order], [["rollback old", "apply new", "confirm new"], ["old", "new"]]);
});

test("a rollback that the runner has begun is waited for, and not run beside itself", async () => {
  const told: string[] = [];
  let goOn = () => {};
  const held = new Promise<void>((done) => (goOn = done));
  const { lanes, clock, fw } = bench((body) => (body == "old" ? REFUSED : CREATED), {
    apply: ({ request }) => void told.push(`apply ${request.body?.text}`),
    async rollback() {
      told.push("rollback");
      await held;
      told.push("rolled back");
    },
  });
  await lanes.enqueue("a", "one", request("old"));
  const stop = new AbortController();
  const running = lanes.run(stop.signal);
  while (!told.includes("rollback")) await clock.sleep(10);
  const superseding = lanes.supersede("one", request("new"));
  await clock.sleep(10);
  goOn();
  await superseding;
  while (!(await fw.find("one"))?.end) await clock.sleep(10);
  stop.abort();
  await running;
  assert.deepEqual(told, ["apply old", "rollback", "rolled back", "apply new"]);
});

test("what may have happened is not superseded, nor what is in no lane", async () => {
  for (const reply of [CREATED, { status: 303 }, { status: 503 }] as Reply[]) {
    const { fw, lanes, clock, order } = bench(() => reply);
    await lanes.enqueue("a", "one", request("old"));
    await runUntil(lanes, clock, () => order.length > 0);
    await assert.rejects(lanes.supersede("one", request("new")), { name: "IntentState" });
    assert.equal((await fw.settings.storage.get("one"))?.request.body?.text, "old");
  }
  const { fw, lanes } = bench(() => CREATED);
  await fw.intent("direct", request("x"));
  for (const name of ["direct", "nothing"]) {
    await assert.rejects(lanes.supersede(name, request("new")), { name: "IntentState" });
  }
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
