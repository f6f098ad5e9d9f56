/** The rows of the shared vectors, and what the rules of one load of the package say of each. */

import { readdirSync, readFileSync } from "node:fs";

import type * as Decide from "../dist/decide.js";
import type * as Derived from "../dist/derived.js";
import type * as Waiting from "../dist/waiting.js";

/** The rules, as the package has them or with a change. */
export type Rules = typeof Decide & typeof Waiting & Pick<typeof Derived, "derivedKeys">;

type Told = {
  failure?: "lost" | "not-sent";
  status?: number;
  headers?: Record<string, string | string[]>;
  json?: unknown;
  hidden?: boolean;
};

/** A row of any file. Which members it has is the file's affair. */
export interface Row {
  name: string;
  expect: unknown;
  expect_ms: unknown;
  dialect: Decide.Dialect;
  answer: Told;
  doubt: boolean;
  refreshed: boolean;
  attempt: number;
  /** Questions since the last attempt. */
  asked?: number;
  random: number;
  now: string | number;
  retry_after_header: string | null;
  retry_after_member: unknown;
  date_header?: string | null;
  expires_header: string | null;
  not_before: number | null;
  waits_for_ms: number;
  first_attempt_at: number | null;
  resumed_at: number | null;
  latest_at: number | null;
  expires_at: number | null;
  secret_hex: string;
  intent: string;
}

const FOLDER = new URL("../../vectors/", import.meta.url);
const NOW = Date.parse("Wed, 18 Nov 2026 20:00:00 GMT");

export const FILES = readdirSync(FOLDER);

export function rows(file: string): Row[] {
  const { cases } = JSON.parse(readFileSync(new URL(file, FOLDER), "utf8")) as { cases: Row[] };
  if (!cases.length) throw new Error(`${file} has no rows`);
  return cases;
}

const heard = new Map<Told, Decide.Answer>();

/** An answer of the vectors as the client hears it: its headers go through those of fetch. */
function hear(told: Told): Decide.Answer {
  const answer = heard.get(told) ?? read(told);
  heard.set(told, answer);
  return answer;
}

function read({ failure, status = 0, json, hidden = false, ...told }: Told): Decide.Answer {
  if (failure) return { failure, status: null, headers: {} };
  const headers = new Headers();
  for (const [name, lines] of Object.entries(told.headers ?? {})) {
    for (const line of [lines].flat()) headers.append(name, line);
  }
  return { status, headers: Object.fromEntries(headers), json, isHidden: hidden };
}

/** A decision in the words of the vectors. */
function spell(decision: Decide.Decision): unknown {
  if (decision.then != "end") return decision;
  const { then, kind, safeNewKey, replayed, code } = decision;
  return { then, end: kind, safe_new_key: safeNewKey, replayed, code };
}

/** Headers without those that a row does not have, through those of fetch. */
const present = (headers: Record<string, string | null | undefined>) =>
  Object.fromEntries(new Headers(Object.entries(headers).filter(([, value]) => value != null) as [string, string][]));

const time = (date: unknown) => (typeof date == "string" ? Date.parse(date) : null);

/** Runs a row of each file; returns what the rules say, and what the row expects. `crash.json` is run by whole clients. */
export const RUN: Record<string, (rules: Rules, row: Row) => [said: unknown, expected: unknown] | Promise<[unknown, unknown]>> = {
  "decide.json": ({ decide }, { dialect, answer, doubt, refreshed, expect }) => [
    spell(decide(dialect, hear(answer), doubt, refreshed, NOW)),
    expect,
  ],
  "ask.json": ({ decideAsk, backoff }, { answer, refreshed, expect, asked, random, expect_ms }) => {
    const next = decideAsk(hear(answer), refreshed, NOW);
    if (!asked || next.then != "ask") return [next, expect];
    return [[next, backoff(next.wait * 1000, asked, random)], [expect, expect_ms]];
  },
  "shows.json": ({ showsStatus }, { answer, expect }) => [showsStatus(hear(answer)), expect],
  "wait.json": ({ retryAfter, backoff }, row) => {
    const headers = present({ "retry-after": row.retry_after_header, date: row.date_header });
    const asked = retryAfter(headers, row.retry_after_member, time(row.now) as number) ?? 0;
    return [backoff(asked * 1000, row.attempt, row.random), row.expect_ms];
  },
  "crash.json": ({ backoff }, { random, expect_ms }) => {
    // The marks of a process that dies: each waits for the back-off of the one before it.
    const marks = [0];
    while (marks.length < (expect_ms as number[]).length) marks.push((marks.at(-1) as number) + backoff(0, marks.length, random));
    return [marks, expect_ms];
  },
  "left.json": ({ waitLeft }, { now, not_before, waits_for_ms, expect_ms }) => [
    // An entry that waits for nothing has a zero.
    waitLeft({ notBefore: not_before ?? 0, waitFor: waits_for_ms }, now as number),
    expect_ms,
  ],
  "expires.json": ({ expiresAt }, { now, expires_header, date_header, expect }) => {
    const headers = present({ "idempotency-expires": expires_header, date: date_header });
    return [expiresAt(headers, time(now) as number), time(expect)];
  },
  "life.json": ({ over }, row) => {
    const life = {
      firstAt: row.first_attempt_at,
      since: row.resumed_at ?? row.first_attempt_at,
      latestAt: row.latest_at,
      expiresAt: row.expires_at,
      doubt: row.doubt,
    };
    const end = over(life, row.now as number, { giveUpAfter: 3_600_000, retention: 86_400_000 });
    return [end ? { may_send: false, end: end.kind, safe_new_key: end.safeNewKey } : { may_send: true }, row.expect];
  },
  "key.json": async ({ derivedKeys }, { secret_hex, intent, expect }) => [
    await derivedKeys(new Uint8Array(Buffer.from(secret_hex, "hex")))(intent),
    expect,
  ],
};
