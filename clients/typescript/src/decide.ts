/** The decision after each answer: one table, first match wins. */

import type { EndKind } from "./entry.js";

export type Dialect = "draft-07" | "stripe" | "generic";

/** What came of an attempt. Header names are in lower case; `json` is the body, if it is JSON. */
export type Answer =
  | { failure: "lost" | "not-sent" }
  | { failure?: never; status: number; headers: Record<string, string>; json?: unknown };

export type Decision =
  | { then: "retry"; wait: number; doubt: boolean; refresh: boolean }
  | { then: "ask"; wait: number; doubt: true }
  | { then: "end"; kind: EndKind; safeNewKey: boolean; replayed: boolean; code: string | null };

/** What a client does after an answer of the status resource. */
export type AskDecision = { then: "send"; forget: boolean } | { then: "ask"; wait: number } | { then: "refresh" };

interface Problem {
  code: string;
  retryable: boolean;
  safe_new_key: boolean;
  retry_after?: unknown;
  first_status?: unknown;
}

/** One answer, as the rows of the table look at it. `s` is 0 after a failure. */
interface Case {
  failure: string | undefined;
  s: number;
  h: Record<string, string>;
  json: Record<string, unknown>;
  kept: boolean;
  problem: Problem | undefined;
  doubt: boolean;
  refreshed: boolean;
  wait: number;
}

/** The dialects of a row, the case it is for, and the decision. */
type Row = [dialects: string, applies: (c: Case) => unknown, decision: (c: Case) => Decision];

const words = (text: string) => (word: unknown) => text.split(" ").includes(String(word));
const retry = (c: Case, doubt = c.doubt, refresh = false): Decision => ({ then: "retry", wait: c.wait, doubt, refresh });
const ask = (c: Case): Decision => ({ then: "ask", wait: c.wait, doubt: true });
const end = (c: Case, kind: EndKind, safeNewKey = false): Decision => ({
  then: "end",
  kind,
  safeNewKey,
  replayed: c.h["idempotent-replayed"] == "true",
  code: c.problem?.code ?? null,
});
const done = (c: Case) => end(c, "done");
const unknown = (c: Case) => end(c, "unknown");
const refused = (c: Case) => end(c, "refused", true);
const nothingRan = (c: Case) => (c.doubt ? unknown(c) : refused(c));
const keyReused = (c: Case) => (c.doubt ? unknown(c) : end(c, "refused"));

const firstAnswer = (c: Case) => {
  const first = Number(c.problem?.first_status);
  return end(c, first < 400 ? "done" : first >= 400 ? "refused" : "unknown");
};

const ALL = "draft-07 stripe generic";
const DRAFT = "draft-07";
const STRIPE = "stripe";
const hundred = (c: Case) => Math.floor(c.s / 100);
const code = (text: string) => (c: Case) => c.problem && words(text)(c.problem.code);
const status = (text: string) => (c: Case) => words(text)(c.s);

const RAN_NOTHING =
  "key-missing key-invalid request-too-old body-too-large request-malformed target-too-long head-too-large " +
  "method-not-allowed upgrade-refused grpc-unsupported misconfigured key-unknown not-found";

const ROWS: Row[] = [
  [ALL, (c) => c.failure == "not-sent", (c) => retry(c)],
  [ALL, (c) => c.failure, ask],
  [DRAFT, (c) => hundred(c) == 2 && isInterim(c), ask],
  [ALL, (c) => hundred(c) == 2, (c) => ({ ...done(c), code: null }) as Decision],
  [DRAFT, code("in-progress outcome-unknown"), ask],
  [DRAFT, code("key-reused"), keyReused],
  [DRAFT, code("key-expired"), (c) => end(c, "expired")],
  [DRAFT, code("answer-not-kept"), firstAnswer],
  [DRAFT, code("answer-lost"), (c) => (c.problem?.retryable ? ask(c) : unknown(c))],
  [
    DRAFT,
    code("rate-limited store-unavailable overloaded upstream-unreachable request-timeout attempt-failed"),
    (c) => retry(c),
  ],
  [
    ALL,
    (c) => status("401 407")(c) || code("tenant-unknown")(c),
    (c) => (c.refreshed ? nothingRan(c) : retry(c, c.doubt, true)),
  ],
  [DRAFT, (c) => !c.problem?.retryable && code(RAN_NOTHING)(c), nothingRan],
  [DRAFT, (c) => c.problem?.retryable, (c) => retry(c, c.doubt || !c.problem?.safe_new_key)],
  [
    DRAFT,
    (c) => c.problem,
    (c) => (c.doubt || c.s >= 500 ? unknown(c) : end(c, "refused", c.problem?.safe_new_key)),
  ],
  [
    STRIPE,
    (c) => status("400 422")(c) && (c.json.error as { type?: unknown } | null)?.type == "idempotency_error",
    keyReused,
  ],
  ["draft-07 generic", (c) => c.kept && hundred(c) == 3, done],
  [ALL, (c) => c.kept && hundred(c) == 4, refused],
  [ALL, (c) => c.kept && hundred(c) == 5, unknown],
  [STRIPE, (c) => c.h["stripe-should-retry"] == "true", (c) => retry(c, c.doubt || c.s >= 500 || c.s == 409)],
  [STRIPE, (c) => c.h["stripe-should-retry"] == "false" && hundred(c) == 5, unknown],
  [STRIPE, status("402"), refused],
  [ALL, status("408 409 502 504"), ask],
  [ALL, status("425 429"), (c) => retry(c)],
  [ALL, status("301 302 303"), unknown],
  [ALL, (c) => status("501 505")(c) || hundred(c) == 3 || hundred(c) == 4, nothingRan],
  [ALL, (c) => hundred(c) == 5, (c) => retry(c, true)],
];

/** Decides what follows from an answer. `doubt` and `refreshed` stood before the attempt. */
export function decide(dialect: Dialect, answer: Answer, doubt: boolean, refreshed: boolean, now: number): Decision {
  const c = look(dialect, answer, doubt, refreshed, now);
  const row = ROWS.find(([dialects, applies]) => words(dialects)(dialect) && applies(c));
  return row ? row[2](c) : unknown(c);
}

/** Decides what follows from an answer of the status resource. */
export function decideAsk(answer: Answer, refreshed: boolean, now: number): AskDecision {
  const { s, json, problem, wait } = look(DRAFT, answer, true, refreshed, now, true);
  if (s == 200 && words("reserved interim uncertain")(json.state)) return { then: "ask", wait: wait || 1 };
  if (status401(s) && !refreshed) return { then: "refresh" };
  if (s == 429 || s == 503 || problem?.code == "outcome-unknown") return { then: "ask", wait: wait || 1 };
  return { then: "send", forget: (s == 404 || s == 405) && !problem };
}

/** Tells from an answer that its server speaks our profile, and so has a status resource. */
export function showsStatus(answer: Answer): boolean {
  const c = look(DRAFT, answer, true, true, 0);
  return !!(c.problem || c.h["idempotency-expires"] || c.h["idempotency-interim"]);
}

/** Milliseconds until a retry is wanted: the header, else the member of the problem; an hour at most. */
export function retryAfter(header: string | undefined, member: unknown, now: number): number {
  const text = (header ?? "").trim();
  const ms = /^\d+$/.test(text)
    ? Number(text) * 1000
    : /^\D.* GMT$/.test(text)
      ? Date.parse(text) - now
      : typeof member == "number" ? member * 1000 : 0;
  return Math.min(Math.max(ms || 0, 0), 3_600_000);
}

const status401 = words("401 407");

const isInterim = (c: Case) =>
  c.h["idempotency-interim"] == "true" || (c.s == 202 && /(^|[ ,;])respond-async/i.test(c.h["preference-applied"] ?? ""));

function look(
  dialect: Dialect,
  answer: Answer,
  doubt: boolean,
  refreshed: boolean,
  now: number,
  isStatus = false,
): Case {
  const { failure } = answer;
  const s = answer.failure ? 0 : answer.status;
  const h = answer.failure ? {} : answer.headers;
  const value = answer.failure ? null : answer.json;
  const json = (typeof value == "object" && value ? value : {}) as Record<string, unknown>;
  const kept = !!h["idempotency-expires"] || h["idempotent-replayed"] == "true";
  const isProblem =
    dialect == DRAFT &&
    (!kept || json.code == "answer-not-kept") &&
    typeof json.code == "string" &&
    typeof json.retryable == "boolean" &&
    typeof json.safe_new_key == "boolean";
  const problem = isProblem ? (json as unknown as Problem) : undefined;
  const member = problem || isStatus ? json.retry_after : undefined;
  const wait = retryAfter(h["retry-after"], member, now) / 1000;
  return { failure, s, h, json, kept, problem, doubt, refreshed, wait };
}
