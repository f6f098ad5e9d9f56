/** One request over the wire, and what came of it. */

import type { Answer } from "./decide.js";
import type { StoredBody } from "./entry.js";
import type { Settings } from "./options.js";
import { pack } from "./request.js";

/** An answer with its body. */
export type Heard = Answer & { body: StoredBody | null };

/** The result where there is no answer. */
export const failed = (failure: "lost" | "not-sent"): Heard => ({ failure, status: null, headers: {}, body: null });

export type Fetch = (url: string, init: RequestInit) => Promise<Response>;
export type Sleep = (ms: number, signal?: AbortSignal) => Promise<void>;

/** The settings that an attempt needs. */
type Means = Pick<Settings, "fetch" | "notSent" | "sleep" | "answerBytesMax">;

/** Sends a request once. It never rejects: what goes wrong is a failure, *lost* wherever that is possible. */
export async function attempt(
  { fetch, notSent, sleep, answerBytesMax }: Means,
  url: string,
  init: RequestInit,
  ms: number,
  stop?: AbortSignal,
  onSent?: () => void,
): Promise<Heard> {
  const over = new AbortController();
  const { signal } = over;
  const work = async (): Promise<Heard> => {
    try {
      const response = fetch(url, { ...init, redirect: "manual", cache: "no-store", signal });
      onSent?.();
      const { status, headers, body, type } = await response;
      const { "set-cookie": _, ...kept } = Object.fromEntries(headers);
      const stored = await read(body, answerBytesMax);
      const isHidden = type == "cors" && !/idempoten|prefer/.test(`${Object.keys(kept)}`);
      return { status, headers: kept, json: parse(stored), body: stored, isHidden };
    } catch (error) {
      return failed(notSent(error) ? "not-sent" : "lost");
    }
  };
  const late = async (): Promise<Heard> => {
    await sleep(ms, stop ? AbortSignal.any([signal, stop]) : signal);
    return failed("lost");
  };
  const heard = await Promise.race([work(), late()]);
  // What is still under way, the rest of an answer too, is given up.
  over.abort();
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
    if (size > bytesMax) return null;
    parts.push(part.value);
  }
  return size ? pack(await new Blob(parts).arrayBuffer()) : null;
}

/** The body as JSON; undefined if it is none. */
export function parse(body: StoredBody | null): unknown {
  try {
    return JSON.parse((body && !body.base64 && body.text) || "");
  } catch {
    return undefined;
  }
}
