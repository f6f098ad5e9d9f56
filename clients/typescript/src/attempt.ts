/** One request over the wire, and what came of it. */

import type { Answer } from "./decide.js";
import type { StoredBody } from "./entry.js";
import { pack } from "./request.js";

/** An answer with its body. */
export type Heard = Answer & { body: StoredBody | null };

/** What is heard where there is no answer. */
export const failed = (failure: "lost" | "not-sent"): Heard => ({ failure, status: null, headers: {}, body: null });

export type Fetch = (url: string, init: RequestInit) => Promise<Response>;
export type Sleep = (ms: number, signal?: AbortSignal) => Promise<void>;

/** Sends a request once. It never rejects: what goes wrong is a failure, *lost* wherever that is possible. */
export async function attempt(
  fetch: Fetch,
  sleep: Sleep,
  url: string,
  init: RequestInit,
  limits: { ms: number; bytes: number; stop?: AbortSignal },
  onSent?: () => void,
): Promise<Heard> {
  const answered = new AbortController();
  const end = new AbortController();
  const work = async (): Promise<Heard> => {
    try {
      const response = fetch(url, { ...init, redirect: "manual", cache: "no-store", signal: end.signal });
      onSent?.();
      const { status, headers, body, type } = await response;
      const { "set-cookie": _, ...kept } = Object.fromEntries(headers);
      const stored = await read(body, limits.bytes);
      const isHidden = type == "cors" && !/idempoten|prefer/.test(Object.keys(kept).join());
      return { status, headers: kept, json: parse(stored), body: stored, isHidden };
    } catch (error) {
      return failed(wasNotSent((error as Error).cause as Cause) ? "not-sent" : "lost");
    }
  };
  const late = async (): Promise<Heard> => {
    await sleep(limits.ms, limits.stop ? AbortSignal.any([answered.signal, limits.stop]) : answered.signal);
    end.abort();
    return failed("lost");
  };
  const heard = await Promise.race([work(), late()]);
  answered.abort();
  return heard;
}

/** Reads a body, or nothing of one that is too large. */
async function read(stream: ReadableStream<Uint8Array<ArrayBuffer>> | null, bytesMax: number): Promise<StoredBody | null> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  const reader = stream?.getReader();
  for (;;) {
    const part = await reader?.read();
    if (!part || part.done) break;
    size += part.value.length;
    if (size > bytesMax) {
      reader?.cancel().catch(() => {});
      return null;
    }
    parts.push(part.value);
  }
  return size ? pack(new Uint8Array(await new Blob(parts).arrayBuffer())) : null;
}

/** The body as JSON; undefined if it is none. */
export function parse(body: StoredBody | null): unknown {
  try {
    return JSON.parse((body && !body.base64 && body.text) || "");
  } catch {
    return undefined;
  }
}

/** The cause that Node's fetch gives its errors; browsers give none. */
type Cause = { code?: string; syscall?: string; errors?: Cause[] } | undefined;

/** Nothing was sent where the name was not resolved or no connection was made. */
function wasNotSent(cause: Cause): boolean {
  return (
    /^(ENOTFOUND|EAI_AGAIN|UND_ERR_CONNECT_TIMEOUT)$/.test(cause?.code ?? "") ||
    cause?.syscall == "connect" ||
    (!!cause?.errors?.length && cause.errors.every(wasNotSent))
  );
}
