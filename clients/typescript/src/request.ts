/** Requests as they are stored, bodies, and keys. */

import type { RequestSpec, StoredBody, StoredRequest } from "./entry.js";

const CREDENTIALS = /^((proxy-)?authorization|cookie|(x-)?api-key|idempotency-key)$/;

/** Makes of what the application gave the request that is stored, compared and sent. Throws what `fetch` would. */
export async function prepare(spec: RequestSpec, bodyBytesMax: number): Promise<StoredRequest> {
  const { url, method = "POST", json, body } = spec;
  const headers = new Headers(spec.headers);
  for (const [name] of headers) {
    if (CREDENTIALS.test(name)) throw new TypeError(`${name} is a credential`);
  }
  if (json !== undefined) {
    if (body !== undefined) throw new TypeError("json and body");
    if (!headers.has("content-type")) headers.set("content-type", "application/json");
  }
  const request = new Request(url, { method, headers, body: json === undefined ? (body ?? null) : canonical(json) });
  const bytes = await request.arrayBuffer();
  if (bytes.byteLength > bodyBytesMax) throw new RangeError("longer than bodyBytesMax");
  const to = new URL(request.url);
  if (!/^http/.test(to.href)) throw new TypeError("not http");
  to.hash = "";
  return { method: request.method, url: to.href, headers: [...request.headers], body: bytes.byteLength ? pack(bytes) : null };
}

/** Method, URL, content headers and body make the request. */
export function sameRequest(a: StoredRequest, b: StoredRequest): boolean {
  const parts = ({ method, url, headers, body }: StoredRequest) =>
    JSON.stringify([method, url, headers.filter(([name]) => /^content-/.test(name)), body]);
  return parts(a) == parts(b);
}

/** Writes JSON with sorted members. */
export function canonical(value: unknown): string {
  const text = JSON.stringify(value, (_, member: unknown) => {
    if (typeof member == "number" && !Number.isFinite(member)) throw new TypeError(`${member} is not JSON`);
    return member;
  });
  return sorted(JSON.parse(text));
}

function sorted(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(sorted)}]`;
  if (Object(value) !== value) return JSON.stringify(value);
  const names = Object.keys(value as object).sort();
  return `{${names.map((name) => `${JSON.stringify(name)}:${sorted((value as never)[name])}`)}}`;
}

/** Stores bytes as text where they are text. */
export function pack(bytes: ArrayBuffer): StoredBody {
  try {
    return { text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes), base64: false };
  } catch {
    return { text: toBase64(new Uint8Array(bytes)), base64: true };
  }
}

/** The body as fetch takes it. */
export function unpack(body: StoredBody | null): string | Uint8Array<ArrayBuffer> | null {
  return body && (body.base64 ? fromBase64(body.text) : body.text);
}

export function toBase64(bytes: Uint8Array): string {
  return btoa(bytes.reduce((text, byte) => text + String.fromCharCode(byte), ""));
}

export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

/** Bytes in base64url, as keys are written. */
export const toKey = (bytes: Uint8Array) => toBase64(bytes).replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "");

/** 128 random bits in 22 characters. */
export function randomKey(): string {
  return toKey(crypto.getRandomValues(new Uint8Array(16)));
}
