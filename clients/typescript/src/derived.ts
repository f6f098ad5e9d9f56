/** Keys that are derived from a secret and the intent's name, for servers without storage. */

import { toKey } from "./request.js";

const SECRET_BYTES_MIN = 16;

/**
 * Derives keys from the application's secret and the intent's name (HMAC-SHA-256).
 * A derived key is the same for every life of a name, so a name must be used once.
 * An intent with such a key is in doubt from its opening, since an earlier process may have sent it.
 */
export function derivedKeys(secret: string | Uint8Array<ArrayBuffer>): (name: string) => Promise<string> {
  const encode = (text: string) => new TextEncoder().encode(text);
  const bytes = typeof secret == "string" ? encode(secret) : secret;
  if (bytes.length < SECRET_BYTES_MIN) throw new TypeError(`a secret has at least ${SECRET_BYTES_MIN} bytes`);
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const imported = crypto.subtle.importKey("raw", bytes, algorithm, false, ["sign"]);
  return async (name) => toKey(new Uint8Array(await crypto.subtle.sign("HMAC", await imported, encode(name)), 0, 16));
}
