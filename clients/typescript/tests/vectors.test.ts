/** The shared vectors of the three clients, row by row. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { decide, decideAsk, retryAfter, type Answer, type Decision, type Dialect } from "../dist/decide.js";
import { derivedKeys } from "../dist/index.js";
import { backoff, over } from "../dist/waiting.js";

function rows<Row>(file: string): (Row & { name: string })[] {
  const text = readFileSync(new URL(`../../vectors/${file}.json`, import.meta.url), "utf8");
  const { cases } = JSON.parse(text) as { cases: (Row & { name: string })[] };
  assert.ok(cases.length > 0);
  return cases;
}

/** Any time: the rows of these files hold no dates of which it matters. */
const NOW = Date.parse("Wed, 18 Nov 2026 20:00:00 GMT");

/** A decision in the words of the vectors. */
function spell(decision: Decision): unknown {
  if (decision.then != "end") return decision;
  const { then, kind, safeNewKey, replayed, code } = decision;
  return { then, end: kind, safe_new_key: safeNewKey, replayed, code };
}

test("every row of decide.json", async (t) => {
  type Row = { dialect: Dialect; answer: Answer; doubt: boolean; refreshed: boolean; expect: unknown };
  for (const { name, dialect, answer, doubt, refreshed, expect } of rows<Row>("decide")) {
    await t.test(name, () => assert.deepEqual(spell(decide(dialect, answer, doubt, refreshed, NOW)), expect));
  }
});

test("every row of ask.json", async (t) => {
  type Row = { answer: Answer; refreshed: boolean; expect: unknown };
  for (const { name, answer, refreshed, expect } of rows<Row>("ask")) {
    await t.test(name, () => assert.deepEqual(decideAsk(answer, refreshed, NOW), expect));
  }
});

test("every row of wait.json", async (t) => {
  type Row = {
    attempt: number;
    retry_after_header: string | null;
    retry_after_member: unknown;
    now: string;
    random: number;
    expect_ms: number;
  };
  for (const row of rows<Row>("wait")) {
    await t.test(row.name, () => {
      const wanted = retryAfter(row.retry_after_header ?? undefined, row.retry_after_member, Date.parse(row.now));
      assert.equal(wanted + backoff(row.attempt, row.random), row.expect_ms);
    });
  }
});

test("every row of life.json", async (t) => {
  type Row = {
    now: number;
    first_attempt_at: number | null;
    expires_at: number | null;
    doubt: boolean;
    expect: { may_send: boolean; end?: string; safe_new_key?: boolean };
  };
  for (const row of rows<Row>("life")) {
    await t.test(row.name, () => {
      const life = { firstAt: row.first_attempt_at, since: null, expiresAt: row.expires_at, doubt: row.doubt };
      const end = over(life, row.now, 3_600_000, 86_400_000);
      const told = end
        ? { may_send: false, end: end.kind, safe_new_key: end.safeNewKey }
        : { may_send: true };
      assert.deepEqual(told, row.expect);
    });
  }
});

test("every row of key.json", async (t) => {
  type Row = { secret_hex: string; intent: string; expect: string };
  for (const { name, secret_hex, intent, expect } of rows<Row>("key")) {
    await t.test(name, async () => {
      assert.equal(await derivedKeys(new Uint8Array(Buffer.from(secret_hex, "hex")))(intent), expect);
    });
  }
});
