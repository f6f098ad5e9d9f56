/** What is not known of a key: its age, its server, what another sender or an earlier process did with it. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { derivedKeys } from "../dist/derived.js";
import { client, type Entry } from "../dist/node.js";
import { memory } from "../dist/memory.js";
import { against, Clock, CREATED, EXPIRES, keyOf, lost, notSent, ORDER, problem, server, tools, watched, type Reply } from "./world.js";

const HOUR = 3_600_000;
const SECRET = "a secret of 16 b";
const interim = (headers: Record<string, string>): Reply => ({ status: 202, headers: { ...headers, "idempotency-interim": "true" } });

test("a clock that was set back by more than a minute ends what is in doubt, and nothing is sent", async () => {
  for (const [back, reply, kind, sent] of [
    [-60_000, lost(), "done", 2],
    [-61_000, lost(), "unknown", 1],
    [-24 * HOUR, lost(), "unknown", 1],
    [-24 * HOUR, { status: 429 }, "done", 2],
    [-24 * HOUR, notSent(), "done", 2],
  ] as [number, Reply, string, number][]) {
    const clock = new Clock();
    const set = () => {
      clock.set(back);
      return reply;
    };
    const { fw, seen } = against([set, CREATED], {}, clock);
    assert.deepEqual([(await (await fw.intent("a", ORDER)).settled()).kind, seen.length], [kind, sent], `${back} ${kind}`);
  }
});

test("a clock counts from the latest write, and an intent goes on when the clock is right again", async () => {
  const storage = memory();
  const { fw, clock } = against([lost()], { storage });
  const pay = await fw.intent("a", ORDER);
  await assert.rejects(pay.settled({ waitFor: HOUR / 2 }), { name: "Pending" });
  // Not before the first attempt, but before the last one.
  clock.set(-HOUR / 4);
  assert.equal((await pay.settled()).kind, "unknown");
  const later = against([CREATED], { storage }, clock);
  const again = await later.fw.find("a");
  await again?.resume();
  assert.equal((await again?.settled())?.kind, "unknown");
  assert.equal(later.seen.length, 0);
  clock.set(HOUR / 4);
  await again?.resume();
  assert.equal((await again?.settled())?.kind, "done");
});

test("a clock that was set back before the first attempt does not end what is not in doubt after one more", async () => {
  const clock = new Clock();
  const set = () => {
    clock.set(-24 * HOUR);
    return { status: 429 };
  };
  const { fw, seen } = against([set, lost(), lost(), CREATED], {}, clock);
  assert.deepEqual([(await (await fw.intent("a", ORDER)).settled()).kind, seen.length], ["done", 4]);
});

test("no attempt outlives the key", async () => {
  // The key's last minute begins 10 s after the first answer.
  const headers = { "idempotency-expires": "Wed, 18 Nov 2026 20:01:10 GMT" };
  const { fw, clock } = against([interim(headers), "hang"], { waitFor: Infinity, status: "never" });
  const began = clock.time;
  assert.equal((await (await fw.intent("a", ORDER)).settled()).kind, "expired");
  assert.ok(clock.time - began <= 10_000, `${clock.time - began}`);
});

test("an attempt whose mark was written too late for the key is not sent", async () => {
  const inner = memory();
  const clock = new Clock();
  const headers = { "idempotency-expires": "Wed, 18 Nov 2026 20:01:10 GMT" };
  const storage = {
    ...inner,
    async put(...all: Parameters<typeof inner.put>) {
      // The disk is slow at the second mark.
      if (all[0].attempts == 2) clock.set(20_000);
      return inner.put(...all);
    },
  };
  const { fw, seen } = against([interim(headers), CREATED], { storage, status: "never" }, clock);
  const end = await (await fw.intent("a", ORDER)).settled();
  assert.deepEqual([end.kind, seen.length], ["expired", 1]);
});

test("a date that is none does not lengthen the key's life", async () => {
  const headers = { "idempotency-expires": "Thu, 18 Nov 2032" };
  const { fw, storage } = against([{ status: 429, headers }]);
  await assert.rejects((await fw.intent("a", ORDER)).settled({ waitFor: 10 }), { name: "Pending" });
  assert.equal((await storage.get("a"))?.expiresAt ?? null, null);
});

test("an intent with a derived key is in doubt from its opening", async () => {
  for (const key of [derivedKeys(SECRET), (name: string) => `order-${name}`]) {
    const { fw } = against([{ status: 400 }], { key });
    const end = await (await fw.intent("a", ORDER)).settled();
    assert.deepEqual([end.kind, end.safeNewKey], ["unknown", false]);
  }
  let count = 0;
  const { fw } = against([{ status: 400 }], { key: () => `key-${(count += 1)}` });
  assert.equal((await (await fw.intent("a", ORDER)).settled()).kind, "refused");
});

test("an intent keeps the dialect of its first attempt", async () => {
  const storage = memory();
  const { fw, seen } = against([lost()], { storage, dialect: "stripe" });
  await assert.rejects((await fw.intent("a", ORDER)).settled({ waitFor: 100 }), { name: "Pending" });
  assert.ok(seen.length > 0);
  const declined = { status: 402 };
  const later = against([declined], { storage });
  assert.equal((await (await later.fw.find("a"))?.settled())?.kind, "refused");
  assert.equal(keyOf(later.seen[0]!.headers), keyOf(seen[0]!.headers));
  assert.match(keyOf(seen[0]!.headers) ?? "", /^[^"]+$/);
});

/** Two clients of one storage whose first attempts are under way; the test answers these, and later ones are replays. */
async function crossing() {
  const written: Entry[] = [];
  const storage = watched(memory(), (entry) => written.push(entry));
  const world = tools();
  const asked: ((reply: Reply) => void)[] = [];
  const replay: Reply = { status: 201, headers: { ...EXPIRES, "idempotent-replayed": "true" } };
  let answered = 0;
  const until = async (isSo: () => boolean) => {
    while (!isSo()) await new Promise(setImmediate);
  };
  const { fetch, seen } = server(() => (asked.length == 2 ? replay : new Promise<Reply>((done) => asked.push(done))));
  const sleep = async (ms: number, signal?: AbortSignal) => {
    // No time passes while answers are under way.
    await until(() => asked.length < 2 || answered == 2 || !!signal?.aborted);
    return world.clock.sleep(ms, signal);
  };
  // No timer of an attempt, to which the clock would jump.
  const options = { storage, fetch, ...world.options, sleep, attemptFor: Infinity, retention: Infinity, status: "never" } as const;
  const open = async () => {
    const pay = await client(options).intent("a", ORDER);
    return pay.settled({ waitFor: Infinity });
  };
  const first = open();
  await until(() => asked.length == 1);
  const second = open();
  await until(() => asked.length == 2);
  const answer = async (at: number, reply: Reply) => {
    const { length } = written;
    asked[at]?.(reply);
    await until(() => written.length > length);
    answered += 1;
    return written[length] as Entry;
  };
  return { answer, written, seen, first, second, ...world };
}

test("a refusal is not written over the mark of another sender", async () => {
  const { answer, written, first, second } = await crossing();
  const { end, doubt } = await answer(0, { status: 400 });
  assert.deepEqual([end, doubt], [null, true]);
  await answer(1, CREATED);
  assert.deepEqual([(await first).kind, (await second).kind], ["done", "done"]);
  assert.deepEqual(new Set(written.map(({ end }) => end?.kind)), new Set([undefined, "done"]));
});

test("of two senders' answers, the later times stand, and the doubt of either", async () => {
  const early = "Wed, 18 Nov 2026 22:00:00 GMT";
  const late = "Wed, 18 Nov 2026 23:00:00 GMT";
  for (const [one, other] of [[early, late], [late, early]] as const) {
    const { answer, seen, first, second, clock } = await crossing();
    const began = clock.time;
    const wait = { [early]: "5", [late]: "40" };
    await answer(1, interim({ "retry-after": wait[one] as string, "idempotency-expires": one }));
    const told = await answer(0, interim({ "retry-after": wait[other] as string, "idempotency-expires": other }));
    assert.ok(told.notBefore >= began + 40_000 && told.doubt);
    assert.equal(told.expiresAt, Date.parse(late));
    assert.deepEqual([(await first).kind, (await second).kind], ["done", "done"]);
    assert.ok(seen.length > 2 && clock.time >= began + 40_000);
  }
});

test("a retry that ran nothing leaves the doubt that another sender made", async () => {
  const { answer, first, second } = await crossing();
  const told = await answer(0, { status: 429, headers: { "retry-after": "40" } });
  assert.deepEqual([told.doubt, told.end], [true, null]);
  await answer(1, CREATED);
  assert.deepEqual([(await first).kind, (await second).kind], ["done", "done"]);
});

test("a 202 of another origin on which none of our headers can be read is not done", async () => {
  const { fw, seen } = against([{ status: 202, type: "cors" }, { status: 202, headers: EXPIRES, type: "cors" }]);
  const end = await (await fw.intent("a", ORDER)).settled();
  assert.deepEqual([end.kind, seen.length], ["done", 2]);
  // Where headers cannot be hidden, and in dialects without interim answers, 202 is a success.
  for (const [type, dialect] of [["basic", "draft-07"], ["default", "draft-07"], ["cors", "stripe"]] as const) {
    const { fw, seen } = against([{ status: 202, type }], { dialect });
    assert.deepEqual([(await (await fw.intent("a", ORDER)).settled()).kind, seen.length], ["done", 1]);
  }
});

test("a 4xx of another origin on which none of our headers can be read is no refusal", async () => {
  for (const [reply, kind, safeNewKey] of [
    [{ status: 422, type: "cors" }, "unknown", false],
    [{ status: 422, headers: EXPIRES, type: "cors" }, "refused", true],
    [{ status: 422, type: "basic" }, "refused", true],
    [{ ...(problem(400, "key-missing") as object), type: "cors" }, "refused", true],
  ] as [Reply, string, boolean][]) {
    const { fw } = against([reply]);
    const end = await (await fw.intent("a", ORDER)).settled();
    assert.deepEqual([end.kind, end.safeNewKey], [kind, safeNewKey]);
  }
});

test("an answer that the gateway passed on without keeping it is asked about", async () => {
  for (const dialect of ["draft-07", "stripe", "generic"] as const) {
    const headers = { "Idempotency-Outcome": "Unknown" };
    const { fw, seen } = against([{ status: 200, headers }, problem(409, "outcome-unknown", true), CREATED], { dialect, status: "never" });
    const end = await (await fw.intent("a", ORDER)).settled();
    assert.deepEqual([end.kind, end.status, seen.filter(({ method }) => method == "POST").length], ["done", 201, 3], dialect);
  }
});

test("a first answer that nobody kept is done only if its status is one", async () => {
  for (const first_status of [null, 0, "201", 600, undefined]) {
    const { fw } = against([problem(409, "answer-not-kept", false, { first_status })]);
    assert.equal((await (await fw.intent("a", ORDER)).settled()).kind, "unknown", `${first_status}`);
  }
});
