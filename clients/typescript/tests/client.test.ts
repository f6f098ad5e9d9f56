/** The life of an intent, against a server that says what it is told and a clock that does not wait. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { derivedKeys } from "../dist/derived.js";
import { client, type Intent, type Options, type Storage } from "../dist/node.js";
import { memory } from "../dist/memory.js";
import { against, Clock, CREATED, EXPIRES, keyOf, lost, notSent, ORDER, problem, server, tools, URL, watched, type Reply } from "./world.js";

test("an answer ends the intent, which is acknowledged and forgotten", async () => {
  const { fw, seen, storage, steps } = against([CREATED]);
  const pay = await fw.intent("checkout/cart_42", ORDER);
  assert.equal(pay.state, "open");
  const end = await pay.settled();
  assert.deepEqual([end.kind, end.status, end.json, end.replayed], ["done", 201, { id: "pay_1" }, false]);
  assert.equal(pay.state, "ended");
  await pay.acknowledge();
  assert.equal(await storage.get("checkout/cart_42"), undefined);
  assert.deepEqual(steps(), ["opened", "marked", "sent", "answered", "ended", "acknowledged"]);
  assert.equal(seen[0]?.body, '{"amount":4990,"currency":"EUR","customer":"cus_1"}');
  assert.match(keyOf(seen[0]!.headers) ?? "", /^"[\w-]{22}"$/);
});

test("nothing is sent before the key and the mark are durable", async () => {
  const written: string[] = [];
  const storage = watched(memory(), ({ key, attempts, doubt }) => written.push(`${key} ${attempts} ${doubt}`));
  const before: string[][] = [];
  const { fetch } = server(({ headers }) => {
    before.push([keyOf(headers) ?? "", written.at(-1) ?? ""]);
    return before.length < 3 ? lost() : CREATED;
  });
  const fw = client({ storage, fetch, ...tools().options });
  await (await fw.intent("a", ORDER)).settled();
  assert.equal(before.length, 3);
  before.forEach(([key, last], at) => assert.equal(last, `${key?.slice(1, -1)} ${at + 1} true`));
});

test("a storage that takes no write is an error, and nothing is sent", async () => {
  for (const failing of [1, 2]) {
    let writes = 0;
    const inner = memory();
    const put: Storage["put"] = async (entry, rev) => {
      if (++writes == failing) throw new Error("disk full");
      return inner.put(entry, rev);
    };
    const { fw, seen } = against([CREATED], { storage: { ...inner, put } });
    await assert.rejects(async () => (await fw.intent("a", ORDER)).settled(), /disk full/);
    assert.equal(seen.length, 0);
  }
});

test("every retry has the same key, also in another process", async () => {
  const { fw, seen, storage } = against([lost(), { status: 503 }, lost(), { status: 500 }]);
  const pay = await fw.intent("a", ORDER);
  await assert.rejects(pay.settled({ waitFor: 5000 }), { name: "Pending" });
  const before = seen.length;
  const later = against([CREATED], { storage });
  const again = await later.fw.intent("a", ORDER);
  assert.equal(again.state, "sending");
  assert.equal((await again.settled()).kind, "done");
  assert.ok(before > 1);
  assert.equal(new Set([...seen, ...later.seen].map(({ headers }) => keyOf(headers))).size, 1);
});

test("the same intent with another request is a conflict before anything is sent", async () => {
  const { fw, seen } = against([CREATED]);
  const pay = await fw.intent("a", { ...ORDER, headers: { accept: "application/json" } });
  for (const other of [
    { ...ORDER, json: { ...ORDER.json, amount: 1 } },
    { ...ORDER, url: `${URL}?x` },
    { ...ORDER, method: "PUT" },
    { ...ORDER, headers: { "content-language": "de" } },
  ]) {
    await assert.rejects(fw.intent("a", other), { name: "IntentConflict", intent: "a" });
  }
  const same = { customer: "cus_1", currency: "EUR", amount: 4990 };
  assert.equal((await fw.intent("a", { url: `${URL}#here`, json: same, headers: { traceparent: "00-1" } })).state, "open");
  await pay.settled();
  await assert.rejects(fw.intent("a", { ...ORDER, method: "PUT" }), { name: "IntentConflict" });
  assert.deepEqual([seen.length, seen[0]?.headers.get("accept"), seen[0]?.headers.get("traceparent")], [1, "application/json", null]);
});

test("an answer that was lost is asked about where the server has a status resource", async () => {
  const { fw, seen } = against([
    problem(409, "in-progress", true, { retry_after: 1 }),
    { status: 200, json: { state: "reserved", retry_after: 1 } },
    { status: 200, json: { state: "completed" } },
    { status: 201, headers: { ...EXPIRES, "idempotent-replayed": "true" } },
  ]);
  const end = await (await fw.intent("a", ORDER)).settled();
  assert.equal(end.replayed, true);
  const key = keyOf(seen[0]!.headers)?.slice(1, -1);
  const path = `http://pay.test/.firstwrite/operations/${key}?wait=20s`;
  assert.deepEqual(
    seen.map(({ method, url }) => `${method} ${url}`),
    [`POST ${URL}`, `GET ${path}`, `GET ${path}`, `POST ${URL}`],
  );
});

test("the time that the status resource says is kept over a restart", async () => {
  const storage = memory();
  const state = { status: 200, json: { state: "uncertain", retry_after: 60 } };
  const { fw, clock, seen } = against([problem(409, "outcome-unknown", true), state, CREATED], { storage });
  const pay = await fw.intent("a", ORDER);
  await assert.rejects(pay.settled({ waitFor: 10_000 }), { name: "Pending" });
  assert.equal(seen.length, 2);
  const began = clock.time;
  const later = against([CREATED], { storage });
  later.clock.time = began;
  assert.equal((await (await later.fw.find("a"))?.settled({ waitFor: Infinity }))?.kind, "done");
  assert.ok(later.clock.time >= began + 50_000);
});

test("a server without a status resource is asked once", async () => {
  const { fw, seen } = against([lost(), { status: 404 }, lost(), CREATED], { status: "always" });
  await (await fw.intent("a", ORDER)).settled();
  assert.deepEqual(seen.map(({ method }) => method), ["POST", "GET", "POST", "POST"]);
  const never = against([problem(409, "in-progress", true), CREATED], { status: "never" });
  await (await never.fw.intent("a", ORDER)).settled();
  assert.deepEqual(never.seen.map(({ method }) => method), ["POST", "POST"]);
});

test("credentials are asked for before each attempt, once for fresh ones, and are not stored", async () => {
  const asked: boolean[] = [];
  const credentials: Options["credentials"] = async ({ refresh }) => {
    asked.push(refresh);
    return { authorization: refresh ? "Bearer new-secret" : "Bearer old-secret" };
  };
  const { fw, seen, storage, events } = against([lost(), { status: 401 }, CREATED], { credentials });
  await (await fw.intent("a", ORDER)).settled();
  assert.deepEqual(asked, [false, false, true]);
  assert.equal(seen[2]?.headers.get("authorization"), "Bearer new-secret");
  assert.doesNotMatch(JSON.stringify([await storage.list(), events]), /secret/);
  const twice = against([{ status: 401 }], { credentials });
  const end = await (await twice.fw.intent("a", ORDER)).settled();
  assert.deepEqual([end.kind, end.safeNewKey, twice.seen.length], ["refused", true, 2]);
});

test("the status resource gets fresh credentials once", async () => {
  const asked: boolean[] = [];
  const credentials: Options["credentials"] = ({ refresh }) => (asked.push(refresh), {});
  const replies = [problem(409, "in-progress", true), { status: 401 }, { status: 401 }, CREATED];
  const { fw, seen } = against(replies, { credentials });
  await (await fw.intent("a", ORDER)).settled();
  assert.deepEqual(asked, [false, false, true, false]);
  assert.deepEqual(seen.map(({ method }) => method), ["POST", "GET", "GET", "POST"]);
});

test("credentials that cannot be had are an error, and no attempt is begun", async () => {
  const refused = () => Promise.reject(new Error("no token"));
  for (const credentials of [refused, () => ({ authorization: "no\ntoken" })]) {
    const { fw, seen, storage } = against([CREATED], { credentials });
    const pay = await fw.intent("a", ORDER);
    await assert.rejects(pay.settled(), /no\s+token|invalid/);
    assert.equal(seen.length, 0);
    assert.equal((await storage.get("a"))?.attempts, 0);
  }
});

test("events hold no key, no body and no credential", async () => {
  const { fw, events, storage } = against([lost(), { status: 429, headers: { "retry-after": "2" } }, CREATED]);
  const pay = await fw.intent("a", { ...ORDER, json: { card: "4242424242424242" } });
  const key = (await storage.get("a"))?.key as string;
  await pay.settled();
  await pay.acknowledge();
  const text = JSON.stringify(events);
  assert.ok(!text.includes(key) && !text.includes("4242") && !text.includes("pay_1"));
  assert.deepEqual(events.slice(1, 5), [
    { step: "marked", intent: "a", attempt: 1 },
    { step: "sent", intent: "a", attempt: 1 },
    { step: "answered", intent: "a", attempt: 1, failure: "lost" },
    { step: "recorded", intent: "a", attempt: 1, failure: "lost", decision: "ask" },
  ]);
});

test("an observer that throws ends nothing", async () => {
  const on = () => {
    throw new Error("observer");
  };
  const { fw } = against([CREATED], { on });
  assert.equal((await (await fw.intent("a", ORDER)).settled()).kind, "done");
});

test("what was not sent is no doubt", async () => {
  const { fw } = against([notSent(), { status: 400 }]);
  const end = await (await fw.intent("a", ORDER)).settled();
  assert.deepEqual([end.kind, end.safeNewKey], ["refused", true]);
  const other = against([lost(), { status: 400 }]);
  assert.equal((await (await other.fw.intent("a", ORDER)).settled()).kind, "unknown");
});

test("the client gives up an hour after the first attempt, and says what is true", async () => {
  for (const [reply, kind] of [[lost(), "unknown"], [notSent(), "refused"]] as [Reply, string][]) {
    const { fw, clock } = against([reply], { waitFor: Infinity });
    const began = clock.time;
    const end = await (await fw.intent("a", ORDER)).settled();
    assert.equal(end.kind, kind);
    assert.ok(clock.time >= began + 3_600_000 && clock.time < began + 3_700_000, `${clock.time - began}`);
  }
});

test("nothing is sent in the last minute of the key's life", async () => {
  const headers = { "idempotency-expires": "Wed, 18 Nov 2026 20:10:00 GMT", "idempotency-interim": "true" };
  const { fw, seen, clock } = against([{ status: 202, headers }, { status: 200, json: { state: "interim" } }], {
    waitFor: Infinity,
  });
  let last = 0;
  const watch = seen.push.bind(seen);
  seen.push = (...all) => ((last = clock.time), watch(...all));
  const end = await (await fw.intent("a", ORDER)).settled();
  assert.equal(end.kind, "expired");
  assert.ok(last < Date.parse("Wed, 18 Nov 2026 20:09:00 GMT"));
});

test("a retry waits as long as the server said, and the budget is bounded", async () => {
  const { fw, clock } = against([{ status: 429, headers: { "retry-after": "17" } }, CREATED]);
  const began = clock.time;
  await (await fw.intent("a", ORDER)).settled();
  assert.ok(clock.time >= began + 17_000 && clock.time <= began + 17_500);
  const retries = await storm();
  assert.ok(retries >= 49 && retries <= 51, `${retries}`);
});

/** Counts the retries of a hundred intents at one server in a minute in which it answers none well. */
async function storm(set = (_: Clock) => {}): Promise<number> {
  const clock = new Clock();
  const down = () => {
    if (seen.length == 150) set(clock);
    return { status: 500 };
  };
  const { fw, seen } = against([down], { random: () => 0, waitFor: 60_000 }, clock);
  const pending = Array.from({ length: 100 }, async (_, at) => {
    await assert.rejects((await fw.intent(`${at}`, ORDER)).settled(), { name: "Pending" });
  });
  await Promise.all(pending);
  return seen.length - 100;
}

test("the budget does not hear of a clock that is set, and takes no token for a question", async () => {
  const retries = await storm((clock) => clock.set(3_000_000));
  assert.ok(retries >= 49 && retries <= 51, `${retries}`);
  const { fetch, seen } = server(({ method }) => (method == "GET" ? { status: 200, json: { state: "reserved" } } : lost()));
  const asking = client({ storage: memory(), fetch, ...tools().options, random: () => 0, status: "always" });
  const pending = Array.from({ length: 20 }, async (_, at) => {
    await assert.rejects((await asking.intent(`${at}`, ORDER)).settled({ waitFor: 60_000 }), { name: "Pending" });
  });
  await Promise.all(pending);
  const questions = seen.filter(({ method }) => method == "GET").length;
  assert.ok(questions >= 300, `${questions}`);
});

test("a token that was taken and not used is given back", async () => {
  let isDown = true;
  const clock = new Clock();
  const { fw, seen } = against([() => (isDown ? { status: 500 } : CREATED)], { random: () => 0 }, clock);
  const all = await Promise.all(Array.from({ length: 21 }, (_, at) => fw.intent(`${at}`, ORDER)));
  const pending = async (pay: Intent) => assert.rejects(pay.settled({ waitFor: 0 }), { name: "Pending" });
  await Promise.all(all.map(pending));
  await clock.sleep(1000);
  // Twenty tokens are used, and one more is waited for and left, thirty times.
  const last = all.pop() as Intent;
  await Promise.all(all.map(pending));
  assert.equal(seen.length, 41);
  for (let at = 0; at < 30; at += 1) await pending(last);
  assert.equal(seen.length, 41);
  isDown = false;
  const began = clock.time;
  assert.equal((await last.settled()).kind, "done");
  assert.ok(clock.time - began <= 2000, `${clock.time - began}`);
});

test("a question to the status resource is over before the attempt's time is", async () => {
  for (const [attemptFor, query] of [[30_000, "?wait=20s"], [10_500, "?wait=8s"], [2500, ""], [Infinity, "?wait=20s"]] as const) {
    const { fw, seen } = against([lost(), { status: 404 }, CREATED], { status: "always", attemptFor });
    await (await fw.intent("a", ORDER)).settled();
    assert.equal(new globalThis.URL(seen[1]?.url ?? "").search, query);
  }
});

test("an attempt that is never answered is lost", async () => {
  const { fw, seen } = against(["hang", CREATED], { waitFor: 60_000 });
  assert.equal((await (await fw.intent("a", ORDER)).settled()).kind, "done");
  assert.equal(seen.length, 2);
});

test("whoever waits too long gets Pending, and the answer is written down when it comes", async () => {
  let answer: (reply: Reply) => void = () => {};
  const { fetch } = server(() => new Promise<Reply>((done) => (answer = done)));
  const { options, steps } = tools();
  const fw = client({ storage: memory(), fetch, ...options });
  const pay = await fw.intent("a", ORDER);
  await assert.rejects(pay.settled({ waitFor: 10 }), { name: "Pending", intent: "a" });
  answer(CREATED);
  assert.equal((await pay.settled()).kind, "done");
  assert.equal(steps().filter((step) => step == "sent").length, 1);
});

test("a signal ends the waiting, not the intent", async () => {
  const { fw, seen } = against([{ status: 503, headers: { "retry-after": "5" } }, CREATED]);
  const pay = await fw.intent("a", ORDER);
  await assert.rejects(pay.settled({ signal: AbortSignal.abort(new Error("left")) }), /left/);
  assert.equal(seen.length, 0);
  const leaving = new AbortController();
  const waiting = pay.settled({ signal: leaving.signal });
  leaving.abort(new Error("left"));
  await assert.rejects(waiting, /left/);
  assert.equal((await pay.settled()).kind, "done");
});

test("all who wait share one sending", async () => {
  const { fw, seen } = against([lost(), CREATED]);
  const [one, two] = [await fw.intent("a", ORDER), await fw.intent("a", ORDER)];
  const ends = await Promise.all([one.settled(), two.settled(), one.settled({ waitFor: Infinity })]);
  assert.deepEqual(ends.map(({ kind }) => kind), ["done", "done", "done"]);
  assert.equal(seen.length, 2);
  await assert.rejects((await fw.intent("b", ORDER)).acknowledge(), { name: "IntentState" });
});

test("two senders of one intent do not overwrite each other's ends", async () => {
  const storage = memory();
  const answers: ((reply: Reply) => void)[] = [];
  const { fetch } = server(() => new Promise<Reply>((done) => answers.push(done)));
  const world = tools();
  const wait = { waitFor: Infinity };
  const open = async () => (await client({ storage, fetch, ...world.options, attemptFor: Infinity, retention: Infinity }).intent("a", ORDER)).settled(wait);
  const until = async (count: number) => {
    while (answers.length < count) await new Promise(setImmediate);
  };
  const first = open();
  await until(1);
  const second = open();
  await until(2);
  // Alone, this answer would mean that nothing ran; but another attempt is under way.
  answers[0]?.({ status: 400 });
  await until(3);
  answers[1]?.(CREATED);
  assert.equal((await second).kind, "done");
  answers[2]?.({ status: 500 });
  assert.equal((await first).kind, "done");
  assert.equal((await storage.get("a"))?.end?.kind, "done");
});

test("an unknown end is resumed under the same key", async () => {
  const { fw, seen } = against([lost(), { status: 400 }, CREATED]);
  const pay = await fw.intent("a", ORDER);
  assert.equal((await pay.settled()).kind, "unknown");
  await assert.rejects(pay.supersede(ORDER), { name: "IntentState" });
  await pay.resume();
  assert.equal(pay.state, "sending");
  assert.equal((await pay.settled()).kind, "done");
  await assert.rejects(pay.resume(), { name: "IntentState" });
  assert.equal(new Set(seen.map(({ headers }) => keyOf(headers))).size, 1);
});

test("an intent that was given up goes on for another hour when it is resumed", async () => {
  let isBack = false;
  const { fetch } = server(() => (isBack ? CREATED : lost()));
  const fw = client({ storage: memory(), fetch, ...tools().options, waitFor: Infinity });
  const pay = await fw.intent("a", ORDER);
  assert.equal((await pay.settled()).kind, "unknown");
  isBack = true;
  await pay.resume();
  assert.equal((await pay.settled()).kind, "done");
});

test("a refused intent is superseded with a new key, where that is safe", async () => {
  const { fw, seen } = against([{ status: 422 }, problem(422, "key-reused"), CREATED]);
  const pay = await fw.intent("a", ORDER);
  assert.equal((await pay.settled()).safeNewKey, true);
  const other = { ...ORDER, json: { amount: 1 } };
  await pay.supersede(other);
  assert.equal(pay.state, "open");
  const end = await pay.settled();
  assert.deepEqual([end.kind, end.safeNewKey, end.code], ["refused", false, "key-reused"]);
  await assert.rejects(pay.supersede(ORDER), { name: "IntentState" });
  assert.equal(new Set(seen.map(({ headers }) => keyOf(headers))).size, 2);
  assert.equal(seen[1]?.body, '{"amount":1}');
});

test("an intent of which no attempt was begun is superseded, one under way is not", async () => {
  const { fw, seen } = against([lost(), CREATED]);
  const pay = await fw.intent("a", ORDER);
  const other = await fw.intent("a", ORDER);
  await pay.supersede({ ...ORDER, json: { amount: 1 } });
  await assert.rejects(other.settled(), { name: "IntentGone" });
  await assert.rejects(pay.settled({ waitFor: 100 }), { name: "Pending" });
  assert.ok(seen.length > 0);
  await assert.rejects(pay.supersede(ORDER), { name: "IntentState" });
  assert.equal((await pay.settled()).kind, "done");
  await assert.rejects(pay.supersede(ORDER), { name: "IntentState" });
  assert.equal(seen[0]?.body, '{"amount":1}');
});

test("an unknown end is not superseded, even if the server's problem calls a new key safe", async () => {
  const { fw } = against([problem(500, "strange", false, { safe_new_key: true })]);
  const pay = await fw.intent("a", ORDER);
  const end = await pay.settled();
  assert.deepEqual([end.kind, end.safeNewKey], ["unknown", true]);
  await assert.rejects(pay.supersede(ORDER), { name: "IntentState" });
  await pay.resume();
});

test("a handle of an intent that was acknowledged elsewhere says so", async () => {
  const { fw, storage } = against([CREATED]);
  const [one, two] = [await fw.intent("a", ORDER), await fw.intent("a", ORDER)];
  await one.settled();
  await one.acknowledge();
  await one.acknowledge();
  await assert.rejects(two.settled(), { name: "IntentGone", intent: "a" });
  // Another life of the name is none of theirs.
  await fw.intent("a", ORDER);
  await two.acknowledge();
  assert.ok(await storage.get("a"));
});

test("derived keys are the same in every life, so they are not superseded", async () => {
  const key = derivedKeys("a secret of 16 b");
  const { fw, seen } = against([{ status: 422, headers: EXPIRES }], { key, dialect: "stripe" });
  const pay = await fw.intent("checkout/cart_42", ORDER);
  await assert.rejects(pay.supersede(ORDER), { name: "IntentState" });
  assert.equal((await pay.settled()).safeNewKey, true);
  assert.equal(keyOf(seen[0]!.headers), "v__2tBiVfI-sOdQ6kf4Rqg");
  await assert.rejects(pay.supersede(ORDER), { name: "IntentState" });
  for (const short of ["", "fifteen bytes 5"]) assert.throws(() => derivedKeys(short), TypeError);
});

test("bodies of all forms are sent as they were given, and answers of all forms are kept", async () => {
  const bytes = Uint8Array.of(0, 255, 1, 254);
  const { fw, seen } = against([{ status: 200, body: bytes }]);
  const end = await (await fw.intent("bytes", { url: URL, body: bytes })).settled();
  assert.equal(seen[0]?.body, "AP8B/g==");
  assert.deepEqual([end.body, end.json], [{ text: "AP8B/g==", base64: true }, undefined]);
  const form = await fw.intent("form", { url: URL, body: new URLSearchParams({ a: "1 2" }) });
  await form.settled();
  assert.deepEqual([seen[1]?.body, seen[1]?.headers.get("content-type")], ["a=1+2", "application/x-www-form-urlencoded;charset=UTF-8"]);
  await (await fw.intent("none", { url: URL, method: "delete" })).settled();
  assert.deepEqual([seen[2]?.method, seen[2]?.body], ["DELETE", ""]);
});

test("JSON with the same value is the same body, and what is no JSON is refused", async () => {
  const { fw, seen } = against([CREATED]);
  await (await fw.intent("a", { url: URL, json: { b: [{ y: 1, x: null }], 10: 1, 2: "ü\u2028", a: undefined } })).settled();
  assert.equal(seen[0]?.body, '{"10":1,"2":"ü\u2028","b":[{"x":null,"y":1}]}');
  for (const json of [{ amount: NaN }, { amount: 1n }, () => 1]) {
    await assert.rejects(fw.intent("b", { url: URL, json }), /TypeError|SyntaxError/);
  }
});

test("what could not be sent is refused when it is opened", async () => {
  const { fw, seen, storage } = against([CREATED]);
  const bad = [
    { url: "/relative" },
    { url: "ftp://pay.test/" },
    { url: "http://user:password@pay.test/" },
    { url: URL, method: "TRACE" },
    { url: URL, method: "GET", body: "x" },
    { url: URL, json: 1, body: "1" },
    { url: URL, headers: { Authorization: "Bearer secret" } },
    { url: URL, headers: { "Idempotency-Key": "k" } },
    { url: URL, headers: { "Proxy-Authorization": "Basic secret" } },
    { url: URL, headers: { cookie: "session=1" } },
    { url: URL, headers: { "X-API-Key": "secret" } },
    { url: URL, headers: { "Api-Key": "secret" } },
  ];
  for (const request of bad) await assert.rejects(fw.intent("a", request), TypeError, JSON.stringify(request));
  for (const name of ["", "x".repeat(256), "ü".repeat(128)]) await assert.rejects(fw.intent(name, ORDER), RangeError);
  await assert.rejects(fw.intent("a", { url: URL, body: "x".repeat(8_388_609) }), RangeError);
  assert.deepEqual([seen.length, (await storage.list()).entries.length], [0, 0]);
  assert.throws(() => client({ storage: memory(), retention: NaN }), RangeError);
  assert.throws(() => client({ storage: memory(), giveUpAfter: -1 }), RangeError);
  assert.throws(() => client({ storage: memory(), dialect: "Stripe" as "stripe" }), TypeError);
  assert.equal(client({ storage: memory(), dialect: undefined as never }).settings.dialect, "draft-07");
  const blank = client({ storage: memory(), key: () => 'a"b' });
  await assert.rejects(blank.intent("a", ORDER), RangeError);
});

test("of an answer that is too large, the status counts", async () => {
  const { fw } = against([{ status: 201, headers: EXPIRES, body: "x".repeat(1001) }], { answerBytesMax: 1000 });
  const end = await (await fw.intent("a", ORDER)).settled();
  assert.deepEqual([end.kind, end.body], ["done", null]);
});

test("an answer that the server no longer has is done without a body", async () => {
  const { fw } = against([problem(409, "answer-not-kept", false, { first_status: 201 })]);
  const end = await (await fw.intent("a", ORDER)).settled();
  assert.deepEqual([end.kind, end.code, end.body], ["done", "answer-not-kept", null]);
});

test("no attempt is begun while the machine is offline", async () => {
  let isOnline = false;
  const { fw, seen, clock } = against([CREATED], { online: () => isOnline });
  const pay = await fw.intent("a", ORDER);
  await assert.rejects(pay.settled({ waitFor: 10_000 }), { name: "Pending" });
  assert.deepEqual([seen.length, pay.attempts], [0, 0]);
  isOnline = true;
  const began = clock.time;
  assert.equal((await pay.settled()).kind, "done");
  assert.equal(clock.time, began);
});

test("an intent that a crash left marked is in doubt, and is asked about first", async () => {
  const storage = memory();
  const dying = against(["hang"], { storage, sleep: () => new Promise(() => {}) });
  void (await dying.fw.intent("a", ORDER)).settled();
  while (!dying.seen.length) await new Promise(setImmediate);
  const { fw, seen } = against([{ status: 404, json: null }, { status: 400 }], { storage, status: "always" });
  const pay = await fw.find("a");
  assert.equal(pay?.state, "sending");
  assert.equal((await pay?.settled())?.kind, "unknown");
  assert.deepEqual(seen.map(({ method }) => method), ["GET", "POST"]);
  assert.equal(await fw.find("b"), undefined);
});
