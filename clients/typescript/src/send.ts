/** Sends an intent under its key until it has an end. */

import { attempt, failed } from "./attempt.js";
import { decide, decideAsk, expiresAt, showsStatus } from "./decide.js";
import { IntentGone, Pending } from "./entry.js";
import type { End, Entry, StepEvent } from "./entry.js";
import type { Settings } from "./options.js";
import { unpack } from "./request.js";
import { backoff, Budget, clock, lastMinute, over, waitLeft } from "./waiting.js";

/** Tells a step of an entry. */
export type Tell = (step: StepEvent["step"], entry?: Entry, more?: Partial<StepEvent>) => void;

/** Longest time that no clock is looked at, in which the machine may have slept. */
const SLEEP_MAX = 60_000;
const OFFLINE_MS = 1000;
const ORIGINS_MAX = 1000;
const INTENTS_MAX = 10_000;

/** What is known of a server. `hasStatus` is false where it denied the resource, whatever else it says. */
interface Server {
  budget: Budget;
  hasStatus?: boolean;
}

/** What this process knows of an intent that it sends, beyond the entry. */
interface Known {
  /** The revision that was read or written last. */
  rev?: number | undefined;
  /** The wait that it began or found, and its end by a clock that is never set. */
  notBefore?: number;
  until: number;
  /** The status resource is asked before the next attempt, and was so often since the last one. */
  asks: boolean;
  asked: number;
  /** The credentials of the next attempt, or of the next question, are fresh ones. */
  refresh: boolean;
  refreshAsk: boolean;
}

const NEW = { asks: false, asked: 0, refresh: false, refreshAsk: false };

/** Makes the function that sends. It keeps what is known of the servers (budgets, status resources) and of intents. */
export function sender(options: Settings, tell: Tell) {
  const { storage, now, monotonic, sleep, random } = options;
  const origins = new Map<string, Server>();
  const intents = new Map<string, Known>();
  const limits = { ms: options.attemptFor, bytes: options.answerBytesMax };
  const seconds = Math.floor(Math.min(20, options.attemptFor / 1000 - 2));

  /** What is known under a name. Beyond the limit all is forgotten: waits go on by the time of day. */
  const of = <T>(map: Map<string, T>, name: string, max: number, make: () => T): T => {
    let known = map.get(name);
    if (!known) {
      if (map.size >= max) map.clear();
      map.set(name, (known = make()));
    }
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
    const server = of<Server>(origins, origin, ORIGINS_MAX, () => ({ budget: new Budget() }));
    const known = of<Known>(intents, key, INTENTS_MAX, () => ({ ...NEW, until: 0 }));
    /** When the token is there that the budget has given for the next retry. */
    let turn: number | undefined;
    /** What is written of a wait that begins now. */
    const waiting = (seconds: number, count: number) => {
      const waitsFor = backoff(seconds * 1000, count, random());
      const notBefore = now() + waitsFor;
      Object.assign(known, { notBefore, until: monotonic() + waitsFor });
      return { notBefore, waitsFor, showsStatus: !!server.hasStatus };
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
        if (entry.showsStatus) server.hasStatus ??= true;
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
        const isQuestion = known.asks && mayAsk;
        let wait = known.until - monotonic();
        if (wait <= 0 && !options.online()) wait = OFFLINE_MS;
        if (wait <= 0 && attempts && !isQuestion) {
          const tick = monotonic();
          turn ??= tick + server.budget.take(tick);
          wait = turn - tick;
        }
        if (wait > 0) {
          wait = Math.min(wait, SLEEP_MAX);
          // A lane that waits leaves its place to others.
          if (lane != null) throw new Pending(name, wait);
          await sleep(wait, stop);
          continue;
        }
        const credentials = await options.credentials({ url, intent: name, refresh: isQuestion ? known.refreshAsk : known.refresh });
        if (isQuestion) {
          const query = seconds > 0 ? `?wait=${seconds}s` : "";
          const path = `${origin}/.firstwrite/operations/${encodeURIComponent(key)}${query}`;
          const heard = await attempt(options.fetch, sleep, path, { headers: credentials }, { ...limits, stop });
          const next = decideAsk(heard, known.refreshAsk, now());
          known.refreshAsk = next.then == "refresh";
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
        const begun = { firstAt: Math.min(entry.firstAt ?? at, at), since: Math.min(entry.since ?? at, at) };
        const mark = { attempts: attempts + 1, doubt: true, dialect, ...begun };
        const marked = await change(entry, { ...mark, ...waiting(0, mark.attempts) });
        if (!marked) continue;
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
        const came = now();
        if (showsStatus(heard)) server.hasStatus ??= true;
        const told = expiresAt(headers, came);
        const wasFresh = known.refresh;
        for (let standing = marked; !standing.end; standing = await read(first)) {
          // Where another sender marked an attempt, that is a doubt: only an answer that stands for the key ends it.
          const isCrossed = standing.attempts != mark.attempts;
          const { then, ...next } = decide(dialect, heard, doubt || isCrossed, wasFresh, came);
          const stood = standing.expiresAt;
          const changes: Partial<Entry> = { expiresAt: isCrossed && told && stood ? Math.max(told, stood) : (told ?? stood) };
          if ("kind" in next && !(isCrossed && next.kind == "unknown")) {
            // With a code, the body is the server's problem and not the first answer.
            changes.end = { ...next, status, headers, body: next.kind == "done" && next.code ? null : body };
          } else {
            const { wait, doubt } = "wait" in next ? next : { wait: 0, doubt: true };
            const { notBefore, waitsFor } = standing;
            Object.assign(changes, waiting(wait, mark.attempts), { doubt });
            // Of what two answers ask for, the later stands.
            if (isCrossed && notBefore > (changes.notBefore as number)) Object.assign(changes, { notBefore, waitsFor });
            // Offline, a queue waits for as long as it takes.
            if (failure == "not-sent" && !doubt && lane != null) {
              Object.assign(changes, { since: null, firstAt: entry.firstAt, latestAt: null });
            }
          }
          const written = await change(standing, changes);
          if (!written) continue;
          const refresh = "refresh" in next && next.refresh;
          Object.assign(known, { rev: written.rev, asks: then == "ask", asked: 0, refresh });
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
