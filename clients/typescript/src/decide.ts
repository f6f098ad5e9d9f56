/** The decision after each answer: one table, first match wins. */

import type { EndKind } from "./entry.js";

export type Dialect = "draft-07" | "stripe" | "generic";

type Headers = Record<string, string>;

/**
 * The result of an attempt. Header names are in lower case, the lines of one header in one value with commas between
 * them; `json` is the body, if it is JSON; `isHidden` says that this page may read none of our headers.
 */
export interface Answer {
  failure?: "lost" | "not-sent";
  /** Null after a failure. */
  status: number | null;
  headers: Headers;
  json?: unknown;
  isHidden?: boolean;
}

export type Decision =
  | { then: "retry"; wait: number; doubt: boolean; refresh: boolean }
  | { then: "ask"; wait: number; doubt: true }
  | { then: "end"; kind: EndKind; safeNewKey: boolean; replayed: boolean; code: string | null };

/** The next thing to do after an answer of the status resource. */
export type AskDecision = { then: "send"; forget: boolean } | { then: "ask"; wait: number } | { then: "refresh" };

interface Problem {
  type?: unknown;
  code: string;
  retryable: boolean;
  safe_new_key: boolean;
  retry_after?: unknown;
  first_status?: unknown;
}

/** One answer, as the rows of the table look at it. `s` is 0 after a failure. */
interface Case {
  s: number;
  /** Words for what is true of the answer. */
  facts: unknown[];
  json: Record<string, unknown>;
  problem: Problem | undefined;
  replayed: boolean;
  doubt: boolean;
  refreshed: boolean;
  /** Seconds; undefined where none are named. */
  wait: number | undefined;
}

type Decide = (c: Case) => Decision;

const includes = (words: string, word: unknown) => words.split(" ").includes(String(word));

/** Says whether a header has this member, whose parameters do not count. */
const says = (h: Headers, name: string, word = "true") =>
  new RegExp(`(^|,) *${word} *(,|;|$)`, "i").test(h[name] ?? "");

const retryIn = ({ wait = 0 }: Case, doubt: boolean, refresh = false): Decision => ({ then: "retry", wait, doubt, refresh });
const retry: Decide = (c) => retryIn(c, c.doubt);
const ask: Decide = ({ wait = 0 }) => ({ then: "ask", wait, doubt: true });
const end = ({ replayed, problem }: Case, kind: EndKind, safeNewKey = false): Decision => ({
  then: "end",
  kind,
  safeNewKey,
  replayed,
  code: problem?.code ?? null,
});
const is = (kind: EndKind, safeNewKey = false): Decide => (c) => end(c, kind, safeNewKey);
const done = is("done");
const unknown = is("unknown");
const refused = is("refused", true);
const unlessDoubt = (otherwise: Decide): Decide => (c) => (c.doubt ? unknown : otherwise)(c);
const nothingRan = unlessDoubt(refused);
const keyReused = unlessDoubt(is("refused"));
const again: Decide = (c) => retryIn(c, c.doubt || !c.problem?.safe_new_key);

const firstAnswer: Decide = (c) => {
  const first = c.problem?.first_status as number;
  const counts = Number.isInteger(first) && first >= 100 && first < 600;
  return end(c, !counts ? "unknown" : first < 400 ? "done" : "refused");
};

/** The problems that are read in every dialect, since a firstwrite gateway may stand in front. */
const COMMON = "outcome-unknown key-reused key-expired answer-not-kept";

/** The table: a row applies where one of its words is a fact. A colon stands before the code of a problem. */
const ROWS: [words: string, decision: Decide][] = [
  ["not-sent", retry],
  ["lost interim", ask],
  ["2xx", (c) => done({ ...c, problem: undefined })],
  [":outcome-unknown :in-progress", ask],
  [":key-reused", keyReused],
  [":key-expired", is("expired")],
  [":answer-not-kept", firstAnswer],
  [":answer-lost", (c) => (c.problem?.retryable ? ask : unknown)(c)],
  [":rate-limited :store-unavailable :overloaded :upstream-unreachable :request-timeout :attempt-failed", retry],
  ["uncertain", ask],
  ["401 407 :tenant-unknown", (c) => (c.refreshed ? nothingRan(c) : retryIn(c, c.doubt, true))],
  ["retryable", again],
  [
    ":key-missing :key-invalid :request-too-old :body-too-large :request-malformed :target-too-long :head-too-large " +
      ":method-not-allowed :upgrade-refused :grpc-unsupported :misconfigured :key-unknown :not-found",
    nothingRan,
  ],
  ["problem", unlessDoubt((c) => end(c, c.s < 500 ? "refused" : "unknown", c.problem?.safe_new_key))],
  ["other-parameters", keyReused],
  ["kept-3", done],
  ["kept-4", refused],
  ["kept-5", unknown],
  ["should", (c) => retryIn(c, c.doubt || c.s >= 500 || c.s == 409)],
  ["stripe-402", refused],
  ["408 409 502 504", ask],
  ["425 429", retry],
  ["301 302 303", unknown],
  ["3xx 4xx", nothingRan],
  ["5xx", (c) => retryIn(c, true)],
];

/** Decides what follows from an answer. `doubt` and `refreshed` stood before the attempt. */
export function decide(dialect: Dialect, answer: Answer, doubt: boolean, refreshed: boolean, now: number): Decision {
  const c = look(dialect, answer, doubt, refreshed, now);
  const row = ROWS.find(([words]) => c.facts.some((fact) => includes(words, fact)));
  return (row ? row[1] : unknown)(c);
}

/** Decides what follows from an answer of the status resource. */
export function decideAsk(answer: Answer, refreshed: boolean, now: number): AskDecision {
  const { s, json, problem, wait = 1 } = look("draft-07", answer, true, refreshed, now, true);
  const isOpen = s == 200 && includes("reserved interim uncertain", json.state);
  if (isOpen || includes("429 503", s) || problem?.code == "outcome-unknown") return { then: "ask", wait };
  if (includes("401 407", s) && !refreshed) return { then: "refresh" };
  return { then: "send", forget: includes("404 405", s) && !problem };
}

/** Tells from an answer that its server speaks our profile, and so has a status resource. */
export const showsStatus = ({ headers, json }: Answer): boolean =>
  ["expires", "interim", "outcome"].some((name) => `idempotency-${name}` in headers) ||
  (isProblem(json) && ROWS.some(([words]) => includes(words, `:${json.code}`)));

/** Seconds until a retry is wanted: the header, else the member of the problem; an hour at most. */
export function retryAfter(headers: Headers, member: unknown, now: number): number | undefined {
  const header = headers["retry-after"] as string;
  const ahead = until(header, headers, now) / 1000;
  const named = Number.isFinite(member) && (member as number) >= 0 ? Math.ceil(member as number) : undefined;
  const wait = /^\d+$/.test(header) ? +header : ahead == ahead ? ahead : named;
  return wait && Math.min(Math.max(wait, 0), 3600);
}

/** The time by this clock until which the server keeps the key, if the answer says so. */
export const expiresAt = (headers: Headers, now: number): number | null =>
  now + until(headers["idempotency-expires"], headers, now) || null;

/** The distance to a date when the answer came, by the server's clock where that is told. */
const until = (date: string | undefined, headers: Headers, now: number) => httpDate(date) - (httpDate(headers.date) || now);

/** The time of an HTTP date in one of its three forms, in milliseconds; NaN for anything else. */
export function httpDate(text = ""): number {
  const normal = text
    // A leap second is told as the second before it.
    .replace(":60 ", ":59 ")
    // RFC 850: a year of two digits is one from 1970 to 2069, as the day of the week must say.
    .replace(
      /^(...)\w*, (..)-(...)-(..) /,
      (_, day, date, month, year) => `${day}, ${date} ${month} ${year < "70" ? 20 : 19}${year} `,
    )
    // asctime
    .replace(/^(... ...)  /, "$1 0")
    .replace(/^(...) (...) (..) (.{8}) (....)$/, "$1, $3 $2 $5 $4 GMT");
  // What was no date makes none of this form.
  const at = Date.parse(normal);
  return new Date(at).toUTCString() == normal ? at : NaN;
}

/** Tells a problem of ours. */
function isProblem(json: unknown): json is Problem {
  const { code, retryable, safe_new_key } = (json ?? {}) as Record<string, unknown>;
  return `${[typeof code, typeof retryable, typeof safe_new_key]}` == "string,boolean,boolean";
}

function look(dialect: Dialect, answer: Answer, doubt: boolean, refreshed: boolean, now: number, isStatus = false): Case {
  const { failure, headers: h, isHidden } = answer;
  const s = answer.status ?? 0;
  // A value that is no object has none of these members.
  const json = (answer.json ?? {}) as Record<string, unknown>;
  const { code, retryable } = json;
  const isDraft = dialect == "draft-07";
  const isStripe = dialect == "stripe";
  const hundred = (s / 100) | 0;
  const replayed = says(h, "idempotent-replayed");
  const kept = replayed || !isNaN(httpDate(h["idempotency-expires"]));
  const isRead = (isDraft || includes(COMMON, code)) && (!kept || code == "answer-not-kept");
  const problem = isProblem(json) && isRead ? json : undefined;
  const isLater = s == 202 && (isHidden || says(h, "preference-applied", "respond-async"));
  const isUncertain = says(h, "idempotency-outcome", "unknown");
  const should = (word: string) => isStripe && says(h, "stripe-should-retry", word);
  const facts = [
    failure,
    hundred == 2 && (isUncertain || (isDraft && (isLater || says(h, "idempotency-interim")))) && "interim",
    isUncertain && "uncertain",
    s,
    `${hundred}xx`,
    problem && `:${problem.code}`,
    isDraft && problem && (retryable ? "retryable" : "problem"),
    isStripe && includes("400 422", s) && (json.error as Problem | null)?.type == "idempotency_error" && "other-parameters",
    kept && !(isStripe && hundred == 3) && `kept-${hundred}`,
    should("true") && "should",
    hundred == 5 && should("false") && "kept-5",
    isStripe && `stripe-${s}`,
  ];
  const wait = retryAfter(h, (problem || isStatus) && json.retry_after, now);
  // A header that cannot be read may say that the key stays uncertain.
  const mayBeUncertain = isDraft && hundred == 4 && !problem && !!isHidden;
  return { s, facts, json, problem, replayed, doubt: doubt || mayBeUncertain, refreshed, wait };
}
