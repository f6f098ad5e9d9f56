/** Sends an intent under its key until it has an end. */

import { attempt } from "./attempt.js";
import { decide, decideAsk, showsStatus } from "./decide.js";
import { IntentGone } from "./entry.js";
import type { End, Entry, StepEvent } from "./entry.js";
import type { Credentials, Settings } from "./options.js";
import { unpack } from "./request.js";
import { backoff, Budget, over } from "./waiting.js";

/** Tells a step of an entry. */
export type Tell = (step: StepEvent["step"], entry?: Entry, more?: Partial<StepEvent>) => void;

/** Longest time that no clock is looked at, in which the machine may have slept. */
const SLEEP_MAX = 60_000;
/** An hour and the longest back-off: a time further ahead was written by another clock. */
const AHEAD_MAX = 3_630_000;
const OFFLINE_MS = 1000;
const NO_ANSWER = { status: null, headers: {}, body: null };

/** Makes the function that sends. It keeps what is known of the servers: budgets, and their status resources. */
export function sender(options: Settings, tell: Tell) {
  const { storage, now, sleep, random, dialect } = options;
  const budgets: Record<string, Budget> = {};
  const hasStatus: Record<string, boolean> = {};
  const limits = { ms: options.attemptFor, bytes: options.answerBytesMax };

  /** Reads the entry of one life of a name. */
  const read = async ({ name, key }: Entry): Promise<Entry> => {
    const entry = await storage.get(name);
    if (entry?.key != key) throw new IntentGone(name);
    return entry;
  };

  /** Writes changes to an entry; undefined if another writer was faster. */
  const change = async (old: Entry, changes: Partial<Entry>): Promise<Entry | undefined> => {
    const entry = { ...old, ...changes, rev: old.rev + 1 };
    return (await storage.put(entry, old.rev)) ? entry : undefined;
  };

  /** Writes an end down. */
  const conclude = async (old: Entry, end: End, expiresAt = old.expiresAt, about?: Partial<StepEvent>) => {
    const entry = await change(old, { end, expiresAt });
    if (entry) tell("ended", entry, { ...about, decision: end.kind });
    return entry;
  };

  /** What an attempt sends. */
  const messageOf = ({ key, request: { method, headers, body } }: Entry, credentials: Credentials): RequestInit => {
    const all = new Headers(headers);
    for (const name in credentials) all.set(name, credentials[name] as string);
    all.set("idempotency-key", dialect == "draft-07" ? `"${key}"` : key);
    return { method, headers: all, body: unpack(body) };
  };

  /** Returns undefined if it is told to stop before there is an end. */
  const send = async (first: Entry, stop: AbortSignal): Promise<End | undefined> => {
    const { url } = first.request;
    const { origin } = new URL(url);
    const budget = (budgets[origin] ??= new Budget());
    /** The credentials of the next attempt, or the next question, are fresh ones. */
    let refresh = false;
    let refreshAsk = false;
    /** The budget has given a token for the next request. */
    let paid = false;
    /** The status resource was asked, and said to send. */
    let asked = false;
    for (;;) {
      const entry = await read(first);
      if (entry.end) return entry.end;
      const { name, doubt, attempts } = entry;
      const isOver = () => over(entry, now(), options.giveUpAfter, options.retention);
      const last = isOver();
      if (last) {
        await conclude(entry, { ...last, ...NO_ANSWER, replayed: false, code: null });
        continue;
      }
      if (stop.aborted) return;
      let wait = entry.notBefore - now();
      if (wait > AHEAD_MAX) wait = 0;
      if (wait <= 0 && !options.online()) wait = OFFLINE_MS;
      if (wait <= 0 && attempts && !paid) {
        wait = budget.take(now());
        paid = true;
      }
      if (wait > 0) {
        await sleep(Math.min(wait, SLEEP_MAX), stop);
        continue;
      }
      const credentials = await options.credentials({ url, intent: name, refresh: refresh || refreshAsk });
      const mayAsk = { always: hasStatus[origin] !== false, auto: hasStatus[origin], never: false }[options.status];
      if (entry.ask && mayAsk && !asked) {
        const path = `${origin}/.firstwrite/operations/${encodeURIComponent(entry.key)}?wait=20s`;
        const heard = await attempt(options.fetch, sleep, path, { headers: credentials }, { ...limits, stop });
        const next = decideAsk(heard, refreshAsk, now());
        refreshAsk = next.then == "refresh";
        asked = next.then == "send";
        if (next.then == "send" && next.forget) hasStatus[origin] = false;
        if (next.then == "ask") {
          paid = false;
          await change(entry, { notBefore: now() + next.wait * 1000 + backoff(1, random()) });
        }
        continue;
      }
      // What is wrong with the credentials is an error before the attempt is marked.
      const message = messageOf(entry, credentials);
      if (isOver() || stop.aborted) continue;
      const at = now();
      const begun = { firstAt: entry.firstAt ?? at, since: entry.since ?? at };
      const marked = await change(entry, { attempts: attempts + 1, doubt: true, ask: true, ...begun });
      if (!marked) continue;
      paid = asked = false;
      tell("marked", marked);
      const heard = await attempt(options.fetch, sleep, url, message, limits, () => tell("sent", marked));
      const about = heard.failure ? { failure: heard.failure } : { status: heard.status };
      tell("answered", marked, about);
      if (dialect == "draft-07" && showsStatus(heard)) hasStatus[origin] = true;
      const answer = heard.failure ? NO_ANSWER : { status: heard.status, headers: heard.headers, body: heard.body ?? null };
      const expiresAt = Date.parse((answer.headers as Credentials)["idempotency-expires"] ?? "") || entry.expiresAt;
      const { then, ...next } = decide(dialect, heard, doubt, refresh, now());
      refresh = "refresh" in next && next.refresh;
      if ("kind" in next) {
        // With a code, the body is the server's problem and not the first answer.
        const end: End = { ...next, ...answer, body: next.kind == "done" && next.code ? null : answer.body };
        if (next.kind == "done") budget.give();
        if (await conclude(marked, end, expiresAt, about)) return end;
        // Another sender was faster, and what it sent is a doubt: only an answer that stands for the key counts.
        const again = decide(dialect, heard, true, refresh, now());
        const other = await read(first);
        if (!other.end && again.then == "end" && again.kind != "unknown") await conclude(other, end, expiresAt, about);
        continue;
      }
      const notBefore = now() + next.wait * 1000 + backoff(marked.attempts, random());
      const recorded = await change(marked, { doubt: next.doubt, ask: then == "ask", notBefore, expiresAt });
      if (recorded) tell("recorded", recorded, { ...about, decision: then as "ask" });
    }
  };

  return { read, send };
}
