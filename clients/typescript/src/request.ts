/** Requests as they are stored, bodies, and keys. */

import type { RequestSpec, StoredBody, StoredRequest } from "./entry.js";

const CREDENTIALS = /^((proxy-)?authorization|cookie|(x-)?api-key|idempotency-key)$/;

/** Makes of what the application gave the request that is stored, compared and sent. Throws what `fetch` would. */
export async function prepare(spec: RequestSpec, bodyBytesMax: number): Promise<StoredRequest> {
  const { url, method = "POST", json, body } = spec;
  const headers = new Headers(spec.headers);
  for (const [name] of headers) {
    if (CREDENTIALS.test(name)) throw new TypeError(`the header ${name} is not stored: give it by \`credentials\``);
  }
  if (json !== undefined) {
    if (body !== undefined) throw new TypeError("a request has json or a body, not both");
    if (!headers.has("content-type")) headers.set("content-type", "application/json");
  }
  const request = new Request(url, { method, headers, body: json === undefined ? (body ?? null) : canonical(json) });
  const bytes = new Uint8Array(await request.arrayBuffer());
  if (bytes.length > bodyBytesMax) throw new RangeError(`the body is longer than ${bodyBytesMax} bytes`);
  const to = new URL(request.url);
  if (!/^http/.test(to.protocol)) throw new TypeError("only http and https");
  to.hash = "";
  return { method: request.method, url: to.href, headers: [...request.headers], body: bytes.length ? pack(bytes) : null };
}

/** Method, URL, content headers and body make the request. */
export function sameRequest(a: StoredRequest, b: StoredRequest): boolean {
  const parts = ({ method, url, headers, body }: StoredRequest) =>
    JSON.stringify([method, url, headers.filter(([name]) => name.startsWith("content-")), body?.text, body?.base64]);
  return parts(a) == parts(b);
}

/** Writes JSON with sorted members. */
export function canonical(value: unknown): string {
  const text = JSON.stringify(value, (_, member: unknown) => {
    if (typeof member == "number" && !Number.isFinite(member)) throw new TypeError(`JSON has no number ${member}`);
    return member;
  });
  if (text === undefined) throw new TypeError("json is no value of JSON");
  return sorted(JSON.parse(text));
}

function sorted(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(sorted)}]`;
  if (typeof value != "object" || !value) return JSON.stringify(value);
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${sorted(member)}`)}}`;
}

/** Stores bytes as text where they are text. */
export function pack(bytes: Uint8Array): StoredBody {
  try {
    return { text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes), base64: false };
  } catch {
    return { text: toBase64(bytes), base64: true };
  }
}

/** The body as fetch takes it. */
export function unpack(body: StoredBody | null): string | Uint8Array<ArrayBuffer> | null {
  return body && (body.base64 ? fromBase64(body.text) : body.text);
}

export function toBase64(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}

export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

const toKey = (bytes: Uint8Array) => toBase64(bytes).replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "");

/** 128 random bits in 22 characters. */
export function randomKey(): string {
  return toKey(crypto.getRandomValues(new Uint8Array(16)));
}

/**
 * Derives keys from the application's secret and the intent's name, for servers without storage.
 * A derived key is the same for every life of a name, so a name must be used once.
 * An intent with such a key is in doubt from its opening, since an earlier process may have sent it.
 */
export function derivedKeys(secret: string | Uint8Array<ArrayBuffer>): (name: string) => Promise<string> {
  const encode = (text: string) => new TextEncoder().encode(text);
  const bytes = typeof secret == "string" ? encode(secret) : secret;
  if (bytes.length < 16) throw new TypeError("a secret has at least 16 bytes");
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const imported = crypto.subtle.importKey("raw", bytes, algorithm, false, ["sign"]);
  return async (name) => toKey(new Uint8Array(await crypto.subtle.sign("HMAC", await imported, encode(name)), 0, 16));
}
