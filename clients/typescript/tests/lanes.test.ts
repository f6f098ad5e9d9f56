/** The queue under strain: callbacks over restarts, lanes that wait, and intents that are superseded. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { memory } from "../dist/memory.js";
import type { Options } from "../dist/node.js";
import { bench, CREATED, REFUSED, request, runUntil } from "./bench.js";
import { lost, notSent, type Reply } from "./world.js";

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
