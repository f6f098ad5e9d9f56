/** The words of the package: requests, entries, ends, events, what a storage does, and the errors. */

import type { Dialect } from "./decide.js";

/** A request as the application gives it. `json` or `body`, not both. */
export interface RequestSpec {
  /** In Node it is absolute; in browsers it may be relative to the page. */
  url: string | URL;
  /** The default is POST. */
  method?: string;
  /** Written with sorted members, so that the same value is the same body. */
  json?: unknown;
  body?: string | URLSearchParams | Blob | ArrayBuffer | ArrayBufferView<ArrayBuffer>;
  /** Stored with the entry, so no credentials: those come from `credentials`. */
  headers?: Record<string, string>;
}

/** A body as it is stored: text, or base64 of other bytes. */
export interface StoredBody {
  text: string;
  base64: boolean;
}

/** A request as it is stored and sent. */
export interface StoredRequest {
  method: string;
  url: string;
  headers: [name: string, value: string][];
  body: StoredBody | null;
}

export type EndKind = "done" | "refused" | "unknown" | "expired";

/** The end of an intent. */
export interface End {
  kind: EndKind;
  /** The action may be tried again under a new key, by `supersede`. */
  safeNewKey: boolean;
  /** The answer is the first one, told again. */
  replayed: boolean;
  /** The code of the server's problem, if one decided. */
  code: string | null;
  /** The answer's status; null if no answer decided. */
  status: number | null;
  headers: Record<string, string>;
  /** The answer's body; null if there is none, if it is too large, or if the server no longer has it. */
  body: StoredBody | null;
}

/** An intent as it is written down. Plain JSON. */
export interface Entry {
  v: 1;
  name: string;
  /** Compared by every write. It starts at a random number, so that it also tells two lives of a name apart. */
  rev: number;
  key: string;
  request: StoredRequest;
  openedAt: number;
  /** The words of the first attempt, and of all later ones. */
  dialect?: Dialect;
  attempts: number;
  /** An attempt may have reached the server, and no answer has settled what became of it. */
  doubt: boolean;
  /** When the first attempt began; the key lives from then on. */
  firstAt?: number | null;
  /** When the time after which the client gives up began: the first attempt, or `resume`; null while none passes. */
  since?: number | null;
  /** When the entry was last written since the first attempt, by which a clock that was set back is noticed. */
  latestAt?: number | null;
  /** Nothing is sent before, */
  notBefore: number;
  /** and a wait is no longer than this, whatever the clock says. */
  waitFor?: number;
  /** An answer showed that the server has a status resource, and none denied it. */
  hasStatus?: boolean;
  /** When the server forgets the key, if it said so. */
  expiresAt?: number | null;
  end: End | null;
  lane?: string | null;
  /** The order in the lane. */
  place?: number;
  /** The queue's `apply` has run. */
  applied?: boolean;
}

/** A place in a lane. */
export type Place = { lane: string; place: number };

/** An entry that cannot be read. It is left where it is. */
export interface Damage {
  /** The intent's name where it is known, else the place. */
  what: string;
  error: unknown;
  /** Its lane, where that is known. */
  lane?: string | undefined;
}

/** Keeps entries. Each call returns when its effect is durable. */
export interface Storage {
  /** Throws `DamagedEntry` if something stands there that cannot be read. */
  get(name: string): Promise<Entry | undefined>;
  /** Writes the entry if the revision that stands is `rev` (null: if nothing stands), and returns false if not. */
  put(entry: Entry, rev: number | null): Promise<boolean>;
  /** Deletes the entry if the revision that stands is `rev`, and returns false if not. */
  delete(name: string, rev: number): Promise<boolean>;
  list(): Promise<{ entries: Entry[]; damaged: Damage[] }>;
  /** Runs `work` while no other tab runs anything under `name`. If the signal is aborted before, it does not run it. */
  lock?<T>(name: string, signal: AbortSignal, work: () => Promise<T>): Promise<T | undefined>;
  /** Calls back when another tab or this one has written; returns what ends that. */
  subscribe?(changed: () => void): () => void;
  /** Takes who hears what the storage has to tell, such as that persistence was refused. */
  onNotice?(notice: (step: "persist-refused") => void): void;
}

export type Step = "opened" | "marked" | "sent" | "answered" | "recorded" | "ended" | "acknowledged";

/** One step of an intent. It holds no key, no body and no credential. */
export interface StepEvent {
  step: Step | "persist-refused";
  /** The intent's name; empty for `persist-refused`. */
  intent: string;
  /** Number of attempts that were begun. */
  attempt: number;
  status?: number;
  failure?: "lost" | "not-sent";
  decision?: "retry" | "ask" | EndKind;
}

/** The base of the package's errors. `name` tells them apart, also where a bundle holds the package twice. */
export class FirstwriteError extends Error {
  readonly intent: string;
  constructor(name: string, intent: string, message: string, cause?: unknown) {
    super(`${intent} ${message}`.trim(), { cause });
    this.name = name;
    this.intent = intent;
  }
}

/** Makes the class of one of them. */
const kind = (name: string, why: string): new (intent: string, message?: string) => FirstwriteError =>
  class extends FirstwriteError {
    constructor(intent: string, message = why) {
      super(name, intent, message);
    }
  };

/** The intent stands with another request. Nothing was sent. */
export class IntentConflict extends kind("IntentConflict", "has another request") {}

/** The time of `waitFor` is over and the intent has no end yet. Call `settled` again. */
export class Pending extends kind("Pending", "has no end") {
  /** Milliseconds after which a queue goes on with it. */
  retryIn = 0;
}

/** The intent was acknowledged or superseded elsewhere, and its end is no longer known. */
export class IntentGone extends kind("IntentGone", "gone") {}

/** The intent's state does not allow the call. */
export class IntentState extends kind("IntentState", "does not allow this") {}
