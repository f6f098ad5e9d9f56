/** Sends an intent under its key until it has an end. */

import { attempt, failed } from "./attempt.js";
import { decide, decideAsk, expiresAt, showsStatus } from "./decide.js";
import { IntentGone, Pending } from "./entry.js";
import type { End, Entry, StepEvent } from "./entry.js";
import type { Settings } from "./options.js";
import { unpack } from "./request.js";
import { backoff, give, keyTime, over, take, waitLeft, type Budget } from "./waiting.js";

/** Tells a step of an entry. */
export type Tell = (step: StepEvent["step"], entry?: Entry, more?: Partial<StepEvent>) => void;

/** Knowledge of a server. */
interface Server extends Budget {
  /** False where it denied the resource, whatever else it says; undefined until an answer shows it. */
  hasStatus: boolean | undefined;
}


/** Knowledge of an intent that this process sends, beyond the entry. */
interface Known {
  /** The revision that was read or written last. */
  rev?: number | undefined;
  /** The wait that it began or found, and its end by a clock that is never set. */
  notBefore?: number;
  until: number;
  /** The status resource is asked before the next attempt, and was so often since the last one. */
  asks: boolean;
  asked: number;
  /** The credentials of the next request, be it a question or an attempt, are fresh ones. */
  refresh: boolean;
}

const NEW = { asks: false, asked: 0, refresh: false };

/** Makes the function that sends. It keeps what is known of the servers (budgets, status resources) and of intents. */
export function sender(options: Settings, tell: Tell) {
  /** Longest time that no clock is looked at, in which the machine may have slept. */
  const SLEEP_MAX = 60_000;
  const OFFLINE_MS = 1000;
  const KNOWN_MAX = 10_000;
  const { storage, now, monotonic, sleep, random } = options;
  /** The setting of the application, for all servers. */
  const hasStatus = ({ always: true, never: false } as Record<string, boolean | undefined>)[options.status];
  const origins = new Map<string, Server>();
  const intents = new Map<string, Known>();
  const seconds = Math.floor(Math.min(20, options.attemptFor / 1000 - 2));

  /** Finds what is known under a name. Beyond the limit all is forgotten: waits go on by the time of day. */
  const of = <T>(map: Map<string, T>, name: string, fresh: T): T => {
    const known = map.get(name) ?? fresh;
    if (map.size >= KNOWN_MAX) map.clear();
    map.set(name, known);
    return known;
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
    const { name, key, request, lane } = first;
    const { url } = request;
    const { origin } = new URL(url);
    const server = of<Server>(origins, origin, { tokens: 20, at: 0, hasStatus });
    const known = of<Known>(intents, key, { ...NEW, until: 0 });
    /** When the token is there that the budget has given for the next retry. */
    let turn: number | undefined;
    /** Begins a wait; returns what is written of it. */
    const waiting = (seconds: number, count: number) => {
      const waitFor = backoff(seconds * 1000, count, random());
      const notBefore = now() + waitFor;
      Object.assign(known, { notBefore, until: monotonic() + waitFor });
      return { notBefore, waitFor, hasStatus: !!server.hasStatus };
    };
    try {
      for (;;) {
        const entry = await read(first);
        if (entry.end) {
          intents.delete(key);
          return entry.end;
        }
        const { doubt, attempts, notBefore, rev, dialect = options.dialect } = entry;
        // At the start, and where another sender was faster, all follows from the entry.
        if (rev != known.rev) Object.assign(known, NEW, { rev, asks: doubt });
        // What it says by the time of day counts once: when its wait is first seen.
        if (notBefore != known.notBefore) {
          Object.assign(known, { notBefore, until: monotonic() + waitLeft(entry, now()) });
        }
        if (entry.hasStatus) server.hasStatus ??= true;
        const isOver = () => over(entry, now(), options);
        const last = isOver();
        if (last) {
          const end = { ...last, status: null, headers: {}, body: null, replayed: false, code: null };
          const ended = await change(entry, { end });
          if (ended) tell("ended", ended, { decision: last.kind });
          continue;
        }
        if (stop.aborted) return;
        const isQuestion = known.asks && server.hasStatus;
        let wait = known.until - monotonic();
        if (wait <= 0 && !options.online()) wait = OFFLINE_MS;
        if (wait <= 0 && attempts && !isQuestion) {
          const tick = monotonic();
          turn ??= tick + take(server, tick);
          wait = turn - tick;
        }
        if (wait > 0) {
          wait = Math.min(wait, SLEEP_MAX);
          // A lane that waits leaves its place to others.
          if (lane != null) throw Object.assign(new Pending(name), { retryIn: wait });
          await sleep(wait, stop);
          continue;
        }
        const credentials = await options.credentials({ url, intent: name, refresh: known.refresh });
        if (isQuestion) {
          const query = seconds > 0 ? `?wait=${seconds}s` : "";
          const path = `${origin}/.firstwrite/operations/${encodeURIComponent(key)}${query}`;
          const heard = await attempt(options, path, { headers: credentials }, options.attemptFor, stop);
          const next = decideAsk(heard, known.refresh, now());
          known.refresh = next.then == "refresh";
          known.asks = next.then != "send";
          if (next.then == "send" && next.forget) server.hasStatus = false;
          if (next.then == "ask") known.rev = (await change(entry, waiting(next.wait, ++known.asked)))?.rev;
          continue;
        }
        // What is wrong with the credentials is an error before the attempt is marked.
        const all = new Headers(request.headers);
        for (const name in credentials) all.set(name, credentials[name] as string);
        all.set("idempotency-key", dialect == "draft-07" ? `"${key}"` : key);
        const message = { method: request.method, headers: all, body: unpack(request.body) };
        if (isOver() || stop.aborted) continue;
        const at = now();
        const since = (time?: number | null) => Math.min(time ?? at, at);
        const mark = { attempts: attempts + 1, doubt: true, dialect, firstAt: since(entry.firstAt), since: since(entry.since) };
        const marked = await change(entry, { ...mark, ...waiting(0, mark.attempts) });
        if (!marked) continue;
        tell("marked", marked);
        // No attempt outlives the key.
        const ms = Math.min(options.attemptFor, keyTime(marked, now(), options.retention).ms);
        const sent = () => {
          turn = undefined;
          tell("sent", marked);
        };
        const heard = ms > 0 ? await attempt(options, url, message, ms, undefined, sent) : failed("not-sent");
        const { failure, status, headers, body } = heard;
        const about = status ? { status } : { failure: failure as "lost" };
        tell("answered", marked, about);
        const came = now();
        if (showsStatus(heard)) server.hasStatus ??= true;
        const told = expiresAt(headers, came);
        // A question's fresh credentials are none of the attempt's.
        const wasFresh = known.refresh && !known.asks;
        for (let standing = marked; !standing.end; standing = await read(first)) {
          // Where another sender marked an attempt, that is a doubt: only an answer that stands for the key ends it.
          const isCrossed = standing.attempts != mark.attempts;
          let next = decide(dialect, heard, doubt || isCrossed, wasFresh, came);
          if (isCrossed && next.then == "end" && next.kind == "unknown") next = { then: "ask", wait: 0, doubt: true };
          const stood = standing.expiresAt;
          const changes: Partial<Entry> = { expiresAt: isCrossed && told && stood ? Math.max(told, stood) : ((told ?? stood) as number) };
          if (next.then == "end") {
            const { then: _, ...end } = next;
            // With a code, the body is the server's problem and not the first answer.
            changes.end = { ...end, status, headers, body: end.kind == "done" && end.code ? null : body };
          } else {
            const { wait, doubt } = next;
            const { notBefore, waitFor } = standing;
            Object.assign(changes, waiting(wait, mark.attempts), { doubt });
            // Of what two answers ask for, the later stands.
            if (isCrossed && notBefore > (changes.notBefore as number)) Object.assign(changes, { notBefore, waitFor });
            // Offline, a queue waits for as long as it takes.
            if (failure == "not-sent" && !doubt && lane != null) {
              Object.assign(changes, { since: null, firstAt: entry.firstAt, latestAt: null });
            }
          }
          const written = await change(standing, changes);
          if (!written) continue;
          const refresh = next.then == "retry" && next.refresh;
          Object.assign(known, NEW, { rev: written.rev, asks: next.then == "ask", refresh });
          const decision = next.then == "end" ? next.kind : next.then;
          if (decision == "done") give(server);
          tell(written.end ? "ended" : "recorded", written, { ...about, decision });
          break;
        }
      }
    } finally {
      if (turn != null) give(server);
    }
  };

  return { read, change, send };
}
