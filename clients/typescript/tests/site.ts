/** A small site for the tests in browsers: the package's files, and the bed behind the same origin. */

import { readFile } from "node:fs/promises";
import { createServer, request, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

const ROOT = new URL("..", import.meta.url);
const TYPES: Record<string, string> = { js: "text/javascript", html: "text/html" };
const PAGE = '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><script type="module" src="/build/page.js"></script>';

export interface Site {
  url: string;
  /** What pages said that they were told, by intent. */
  told: Map<string, string[]>;
  stop(): Promise<void>;
}

/** Serves pages, and passes everything else on to `upstream`, failures too. */
export async function startSite(upstream: string): Promise<Site> {
  const told = new Map<string, string[]>();
  const server = createServer((asked, answer) => {
    void serve(asked, answer, upstream, told).catch(() => answer.destroy());
  });
  // On a connection that was used before, Chromium sends a request again by itself, and hides that an answer was lost.
  server.maxRequestsPerSocket = 1;
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    told,
    async stop() {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };
}

async function serve(
  asked: IncomingMessage,
  answer: ServerResponse,
  upstream: string,
  told: Map<string, string[]>,
): Promise<void> {
  const path = (asked.url ?? "/").split("?")[0] as string;
  if (path == "/") return void answer.setHeader("content-type", "text/html").end(PAGE);
  if (/^\/(dist|build)\/[a-z.-]+\.js$/.test(path)) {
    const file = await readFile(new URL(`.${path}`, ROOT));
    answer.setHeader("service-worker-allowed", "/").setHeader("content-type", TYPES.js as string);
    return void answer.end(file);
  }
  if (path == "/told") {
    const parts: Buffer[] = [];
    for await (const part of asked) parts.push(part as Buffer);
    const { name, kind } = JSON.parse(Buffer.concat(parts).toString()) as { name: string; kind: string };
    told.set(name, [...(told.get(name) ?? []), kind]);
    return void answer.end();
  }
  const { host: _, connection: __, ...headers } = asked.headers;
  const passed = request(`${upstream}${asked.url}`, { method: asked.method ?? "GET", headers, agent: false }, (heard) => {
    answer.writeHead(heard.statusCode ?? 500, heard.headers);
    heard.on("error", () => answer.destroy());
    heard.on("aborted", () => answer.destroy());
    heard.pipe(answer);
  });
  passed.on("error", () => asked.socket.destroy());
  asked.pipe(passed);
}
