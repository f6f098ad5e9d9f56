/** The time between attempts, and the time for which to go on at all. */

import type { EndKind } from "./entry.js";

/**
 * The wait before attempt `attempt` + 1, in milliseconds, where the server named `asked`. `random` is in [0, 1).
 *
 * Its random part is drawn from almost the whole range, which spreads a fleet that began at one moment. Once a wait at
 * the cap lies behind, it is drawn from the last eighth, which keeps a spread fleet spread. A time that the server
 * names gathers a fleet again, so beside one it stays wide.
 */
export function backoff(asked: number, attempt: number, random: number): number {
  const most = Math.min(30_000, 500 * 2 ** (attempt - 1));
  const part = attempt > 7 && !asked ? 7 + random : 1 + 7 * random;
  return asked + Math.floor((most * part) / 8);
}

/** The end of a wait by the time of day, and its length. */
export interface Wait {
  /** Zero where nothing is waited for. */
  notBefore: number;
  /** Entries of an earlier version have none: their waits are over. */
  waitFor?: number;
}

/** The milliseconds that are left of a wait for a process that did not see it begin; never more than its length. */
export const waitLeft = ({ notBefore, waitFor = 0 }: Wait, now: number) =>
  Math.max(Math.min(notBefore - now, waitFor), 0);

/** The part of an entry that decides whether anything may still be sent. */
export interface Life {
  firstAt?: number | null;
  /** When the time after which the client gives up began; null where none passes. */
  since?: number | null;
  /** The latest time at which the entry was written, since the first attempt. */
  latestAt?: number | null;
  expiresAt?: number | null;
  doubt: boolean;
}

/** Nothing is sent in the last minute of a key's life, and a clock may go back by as much. */
const MINUTE = 60_000;

/** The time that counts for an entry, and how long its key may still be used. */
export function keyTime({ firstAt, latestAt, expiresAt, doubt }: Life, now: number, retention: number) {
  const first = firstAt ?? now;
  // What is not in doubt has no age at the server; a clock that was ahead once must not end it.
  const at = Math.max(now, (doubt && latestAt) || first);
  return { at, ms: (expiresAt ?? first + retention) - MINUTE - at };
}

/** Says how an intent ends for which nothing may be sent any more; null while something may. */
export function over(life: Life, now: number, { giveUpAfter, retention }: { giveUpAfter: number; retention: number }) {
  const { firstAt, since, doubt } = life;
  if (firstAt == null) return null;
  const { at, ms } = keyTime(life, now, retention);
  // In doubt, a clock that went back by more than a minute says nothing of the key's age.
  const isLost = doubt && at > now + MINUTE;
  const keyIsOver = !isLost && ms <= 0;
  if (!isLost && !keyIsOver && (since == null || at < since + giveUpAfter)) return null;
  const kind: EndKind = !doubt ? "refused" : keyIsOver ? "expired" : "unknown";
  return { kind, safeNewKey: !doubt };
}

/** The retry budget of an origin: a bucket of 20 tokens that gains one in 2 s, by a clock that is never set. */
export interface Budget {
  tokens: number;
  at: number;
}

/** A success gives one token back, and so does a retry that was not sent. */
export const give = (budget: Budget, tokens = 1): number => (budget.tokens = Math.min(budget.tokens + tokens, 20));

/** Takes a token and returns how many milliseconds to wait until it is there. */
export function take(budget: Budget, now: number): number {
  give(budget, (now - budget.at) / 2000);
  budget.at = now;
  // Whole ones: a rest that is smaller than a tick of the clock would never pass.
  return Math.ceil(Math.max(-(budget.tokens -= 1), 0) * 2000);
}
