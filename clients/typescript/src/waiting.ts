/** How long to wait between attempts, and how long to go on at all. */

import type { EndKind } from "./entry.js";

/** The random part of the wait before attempt `attempt` + 1, in milliseconds. `random` is in [0, 1). */
export function backoff(attempt: number, random: number): number {
  return Math.floor(random * Math.min(30_000, 500 * 2 ** (attempt - 1)));
}

/** What of an entry decides whether anything may still be sent. */
export interface Life {
  firstAt: number | null;
  /** When the time after which the client gives up began; the first attempt where it is null. */
  since: number | null;
  expiresAt: number | null;
  doubt: boolean;
}

/** Nothing is sent in the last minute of a key's life. */
const MARGIN = 60_000;

/** Says how an intent ends for which nothing may be sent any more; null while something may. */
export function over(life: Life, now: number, giveUpAfter: number, retention: number) {
  const { firstAt, since, expiresAt, doubt } = life;
  if (firstAt == null) return null;
  // A clock that went back to before the first attempt counts as that attempt's time.
  const at = Math.max(now, firstAt);
  const keyIsOver = at >= (expiresAt ?? firstAt + retention) - MARGIN;
  if (!keyIsOver && at < (since ?? firstAt) + giveUpAfter) return null;
  const kind: EndKind = !doubt ? "refused" : keyIsOver ? "expired" : "unknown";
  return { kind, safeNewKey: !doubt };
}

const TOKENS = 20;
const TOKEN_MS = 2000;

/** The retry budget of an origin: a bucket of 20 tokens that gains one in 2 s. */
export class Budget {
  #tokens = TOKENS;
  #at = 0;

  /** Takes a token and returns how many milliseconds to wait until it is there. */
  take(now: number): number {
    // A clock that went back gains nothing.
    this.give(Math.max(now - this.#at, 0) / TOKEN_MS);
    this.#at = now;
    this.#tokens -= 1;
    return Math.max(-this.#tokens, 0) * TOKEN_MS;
  }

  /** A success gives one token back. */
  give(tokens = 1): void {
    this.#tokens = Math.min(this.#tokens + tokens, TOKENS);
  }
}
