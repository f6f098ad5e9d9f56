/** The errors of storages. */

import { FirstwriteError } from "./entry.js";

/** The entry cannot be read; it is left where it is. */
export class DamagedEntry extends FirstwriteError {
  constructor(intent: string, cause: unknown) {
    super("DamagedEntry", intent, "cannot be read", cause);
  }
}

/** The storage cannot be opened, or does not take a write. */
export class StorageError extends FirstwriteError {
  constructor(message: string, cause?: unknown) {
    super("StorageError", "", message, cause);
  }
}
