/** The shared vectors of the three clients, row by row. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";

import { decide, decideAsk, retryAfter, type Answer, type Decision, type Dialect } from "../dist/decide.js";
import { derivedKeys } from "../dist/derived.js";
import { backoff, over } from "../dist/waiting.js";

function rows<Row>(file: string): (Row & { name: string })[] {
  const text = readFileSync(new URL(`../../vectors/${file}.json`, import.meta.url), "utf8");
  const { cases } = JSON.parse(text) as { cases: (Row & { name: string })[] };
  assert.ok(cases.length > 0);
  return cases;
}

const NOW = Date.parse("Wed, 18 Nov 2026 20:00:00 GMT");

type Told = { failure: "lost" | "not-sent" } | { status: number; headers?: Record<string, string | string[]>; json?: unknown };

/** An answer of the vectors as the client hears it: its headers go through those of fetch. */
function hear(told: Told): Answer {
  if ("failure" in told) return { ...told, status: null, headers: {} };
  const headers = new Headers();
  for (const [name, lines] of Object.entries(told.headers ?? {})) {
    for (const line of [lines].flat()) headers.append(name, line);
  }
  return { ...told, headers: Object.fromEntries(headers) };
}

/** A decision in the words of the vectors. */
function spell(decision: Decision): unknown {
  if (decision.then != "end") return decision;
  const { then, kind, safeNewKey, replayed, code } = decision;
  return { then, end: kind, safe_new_key: safeNewKey, replayed, code };
}

type DecideRow = { dialect: Dialect; answer: Told; doubt: boolean; refreshed: boolean; expect: unknown };

test("every row of decide.json", async (t) => {
  for (const { name, dialect, answer, doubt, refreshed, expect } of rows<DecideRow>("decide")) {
    await t.test(name, () => assert.deepEqual(spell(decide(dialect, hear(answer), doubt, refreshed, NOW)), expect));
  }
});

test("without any one of the table's rows, a row of decide.json fails", async () => {
  const code = readFileSync(new URL("../dist/decide.js", import.meta.url), "utf8");
  const load = async (more: string) => {
    const text = `${code}\n${more}\nexport { ROWS };`;
    return (await import(`data:text/javascript;base64,${Buffer.from(text).toString("base64")}`)) as {
      ROWS: unknown[];
      decide: typeof decide;
    };
  };
  const failures = ({ decide }: { decide: typeof import("../dist/decide.js").decide }) =>
    rows<DecideRow>("decide").filter(({ dialect, answer, doubt, refreshed, expect }) => {
      return !isDeepStrictEqual(spell(decide(dialect, hear(answer), doubt, refreshed, NOW)), expect);
    }).length;
  const whole = await load("");
  assert.equal(failures(whole), 0);
  for (const at of whole.ROWS.keys()) {
    assert.ok(failures(await load(`ROWS.splice(${at}, 1);`)) > 0, `no vector needs row ${at + 1} of ${whole.ROWS.length}`);
  }
});

test("every row of ask.json", async (t) => {
  type Row = { answer: Told; refreshed: boolean; expect: unknown };
  for (const { name, answer, refreshed, expect } of rows<Row>("ask")) {
    await t.test(name, () => assert.deepEqual(decideAsk(hear(answer), refreshed, NOW), expect));
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
    resumed_at: number | null;
    latest_at: number | null;
    expires_at: number | null;
    doubt: boolean;
    expect: { may_send: boolean; end?: string; safe_new_key?: boolean };
  };
  for (const row of rows<Row>("life")) {
    await t.test(row.name, () => {
      const life = {
        firstAt: row.first_attempt_at,
        since: row.resumed_at ?? row.first_attempt_at,
        latestAt: row.latest_at,
        expiresAt: row.expires_at,
        doubt: row.doubt,
      };
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
