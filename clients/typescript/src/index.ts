/** Keeps one key for one action through retries, crashes and closed tabs, and says how the action ended. */

export { client } from "./client.js";
export type { Client, Intent, Settled, State, WaitOptions } from "./client.js";
export type { Fetch, Sleep } from "./attempt.js";
export type { Dialect } from "./decide.js";
export { FirstwriteError, IntentConflict, IntentGone, IntentState, Pending } from "./entry.js";
export type {
  Damage,
  End,
  EndKind,
  Entry,
  RequestSpec,
  Step,
  StepEvent,
  Storage,
  StoredBody,
  StoredRequest,
} from "./entry.js";
export type { Credentials, Options, Settings } from "./options.js";
export { randomKey } from "./request.js";
