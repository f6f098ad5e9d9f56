/** Sends an intent under its key until it has an end. */

import { attempt, failed } from "./attempt.js";
import { decide, decideAsk, httpDate, showsStatus } from "./decide.js";
import { IntentGone } from "./entry.js";
import type { End, Entry, StepEvent } from "./entry.js";
import type { Settings } from "./options.js";
import { unpack } from "./request.js";
import { backoff, Budget, clock, lastMinute, over } from "./waiting.js";

/** Tells a step of an entry. */
export type Tell = (step: StepEvent["step"], entry?: Entry, more?: Partial<StepEvent>) => void;

/** Longest time that no clock is looked at, in which the machine may have slept. */
const SLEEP_MAX = 60_000;
/** An hour and the longest back-off: a time further ahead was written by another clock. */
const AHEAD_MAX = 3_630_000;
const OFFLINE_MS = 1000;
const ORIGINS_MAX = 1000;

/** Makes the function that sends. It keeps what is known of the servers: budgets, and their status resources. */
export function sender(options: Settings, tell: Tell) {
  const { storage, now, monotonic, sleep, random } = options;
  const origins = new Map<string, { budget: Budget; hasStatus?: boolean }>();
  const limits = { ms: options.attemptFor, bytes: options.answerBytesMax };
  const seconds = Math.floor(Math.min(20, options.attemptFor / 1000 - 2));

  const serverOf = (origin: string) => {
    let server = origins.get(origin);
    if (!server) {
      if (origins.size >= ORIGINS_MAX) origins.clear();
      origins.set(origin, (server = { budget: new Budget() }));
    }
    return server;
  };

  /** Reads the entry of one life of a name. */
  const read = async ({ name, key }: Entry): Promise<Entry> => {
    const entry = await storage.get(name);
    if (entry?.key != key) throw new IntentGone(name);
    return entry;
  };

  /** Writes changes to an entry; undefined if another writer was faster. */
  const change = async (old: Entry, changes: Partial<Entry>): Promise<Entry | undefined> => {
    const entry = { ...old, ...changes, rev: old.rev + 1 };
    // Not in doubt, the age of the key is of no matter, and a clock that went back is believed.
    if (entry.firstAt != null) entry.latestAt = Math.max(now(), (old.doubt && old.latestAt) || 0);
    return (await storage.put(entry, old.rev)) ? entry : undefined;
  };

  /** Returns undefined if it is told to stop before there is an end. */
  const send = async (first: Entry, stop: AbortSignal): Promise<End | undefined> => {
    const { name, key, request } = first;
    const { url } = request;
    const { origin } = new URL(url);
    const server = serverOf(origin);
    /** The credentials of the next attempt, or the next question, are fresh ones. */
    let refresh = false;
    let refreshAsk = false;
    /** When the token is there that the budget has given for the next retry. */
    let turn: number | undefined;
    /** The status resource was asked, and said to send. */
    let asked = false;
    try {
      for (;;) {
        const entry = await read(first);
        if (entry.end) return entry.end;
        const { doubt, attempts, dialect = options.dialect } = entry;
        const isOver = () => over(entry, now(), options.giveUpAfter, options.retention);
        const last = isOver();
        if (last) {
          const end = { ...last, status: null, headers: {}, body: null, replayed: false, code: null };
          const ended = await change(entry, { end });
          if (ended) tell("ended", ended, { decision: last.kind });
          continue;
        }
        if (stop.aborted) return;
        const mayAsk = { always: server.hasStatus !== false, auto: server.hasStatus, never: false }[options.status];
        const asks = entry.ask && mayAsk && !asked;
        let wait = entry.notBefore - now();
        if (wait > AHEAD_MAX) wait = 0;
        if (wait <= 0 && !options.online()) wait = OFFLINE_MS;
        if (wait <= 0 && attempts && !asks) {
          const tick = monotonic();
          turn ??= tick + server.budget.take(tick);
          wait = turn - tick;
        }
        if (wait > 0) {
          await sleep(Math.min(wait, SLEEP_MAX), stop);
          continue;
        }
        const credentials = await options.credentials({ url, intent: name, refresh: refresh || refreshAsk });
        if (asks) {
          const query = seconds > 0 ? `?wait=${seconds}s` : "";
          const path = `${origin}/.firstwrite/operations/${encodeURIComponent(key)}${query}`;
          const heard = await attempt(options.fetch, sleep, path, { headers: credentials }, { ...limits, stop });
          const next = decideAsk(heard, refreshAsk, now());
          refreshAsk = next.then == "refresh";
          asked = next.then == "send";
          if (next.then == "send" && next.forget) server.hasStatus = false;
          if (next.then == "ask") await change(entry, { notBefore: now() + next.wait * 1000 + backoff(1, random()) });
          continue;
        }
        // What is wrong with the credentials is an error before the attempt is marked.
        const all = new Headers(request.headers);
        for (const name in credentials) all.set(name, credentials[name] as string);
        all.set("idempotency-key", dialect == "draft-07" ? `"${key}"` : key);
        const message = { method: request.method, headers: all, body: unpack(request.body) };
        if (isOver() || stop.aborted) continue;
        const at = now();
        const begun = { firstAt: Math.min(entry.firstAt ?? at, at), since: Math.min(entry.since ?? at, at) };
        const marked = await change(entry, { attempts: attempts + 1, doubt: true, ask: true, dialect, ...begun });
        if (!marked) continue;
        asked = false;
        tell("marked", marked);
        // No attempt outlives the key.
        const ms = Math.min(limits.ms, lastMinute(marked, options.retention) - clock(marked, now()).at);
        const sent = () => {
          turn = undefined;
          tell("sent", marked);
        };
        const heard =
          ms > 0 ? await attempt(options.fetch, sleep, url, message, { ...limits, ms }, sent) : failed("not-sent");
        const { failure, status, headers, body } = heard;
        const about = status ? { status } : { failure: failure as "lost" };
        tell("answered", marked, about);
        if (dialect == "draft-07" && showsStatus(heard)) server.hasStatus = true;
        const told = httpDate(headers["idempotency-expires"]);
        const wasFresh = refresh;
        for (let standing = marked; !standing.end; standing = await read(first)) {
          // Where another sender was faster, what it sent is a doubt: only an answer that stands for the key ends it.
          const isMine = standing == marked;
          const { then, ...next } = decide(dialect, heard, doubt || !isMine, wasFresh, now());
          refresh = "refresh" in next && next.refresh;
          const stood = standing.expiresAt;
          const expiresAt = isMine ? told || stood : Math.max(told || 0, stood ?? 0) || null;
          const changes: Partial<Entry> = { expiresAt };
          if ("kind" in next && (isMine || next.kind != "unknown")) {
            // With a code, the body is the server's problem and not the first answer.
            changes.end = { ...next, status, headers, body: next.kind == "done" && next.code ? null : body };
          } else {
            const { wait, doubt } = "wait" in next ? next : { wait: 0, doubt: true };
            const notBefore = now() + wait * 1000 + backoff(marked.attempts, random());
            Object.assign(changes, {
              doubt,
              ask: then != "retry",
              notBefore: isMine ? notBefore : Math.max(notBefore, standing.notBefore),
              // Offline, a queue waits for as long as it takes.
              ...(failure == "not-sent" && !doubt && entry.lane != null && { since: null, firstAt: entry.firstAt, latestAt: null }),
            });
          }
          const written = await change(standing, changes);
          if (!written) continue;
          const kind = changes.end?.kind;
          if (kind == "done") server.budget.give();
          tell(kind ? "ended" : "recorded", written, { ...about, decision: kind ?? (then == "retry" ? then : "ask") });
          break;
        }
      }
    } finally {
      if (turn !== undefined) server.budget.give();
    }
  };

  return { read, change, send };
}
