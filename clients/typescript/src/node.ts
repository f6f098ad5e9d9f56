/** The package in Node, whose `fetch` says by an error's cause that no byte was sent. */

import { client as core, type Client } from "./client.js";
import type { Options } from "./options.js";

export * from "./index.js";

/** Makes a client. One is enough for all servers of one dialect. */
export const client = (options: Options): Client => core({ ...options, notSent: options.notSent ?? wasNotSent });

/** The cause that Node's fetch gives its errors; browsers give none. */
interface Cause {
  code?: string;
  syscall?: string;
  errors?: Cause[];
}

function wasNotSent(error: unknown): boolean {
  return wasCause((error as Error).cause as Cause | undefined);
}

/** Nothing was sent where the name was not resolved or no connection was made. */
function wasCause(cause: Cause | undefined): boolean {
  return (
    /^(ENOTFOUND|EAI_AGAIN|UND_ERR_CONNECT_TIMEOUT)$/.test(cause?.code ?? "") ||
    cause?.syscall == "connect" ||
    (!!cause?.errors?.length && cause.errors.every(wasCause))
  );
}
