/** Servers that others wrote, each started from a copy of its folder, and a proxy that loses answers of theirs. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { cp, mkdtemp, rm } from "node:fs/promises";
import { createServer, request } from "node:http";
import { createServer as createListener, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";

import { seeded } from "./world.js";

const STARTED_MS = 180_000;

/** Listens on a port, and returns which; null if it is taken. */
async function listens(port: number): Promise<number | null> {
  const listener = createListener().listen(port, "127.0.0.1");
  const isOpen = await once(listener, "listening").catch(() => null);
  if (!isOpen) return null;
  const found = (listener.address() as AddressInfo).port;
  await new Promise((done) => listener.close(done));
  return found;
}

/** A port that is free, with the two after it, which a peer takes for its own stores. */
async function closedPort(): Promise<number> {
  for (;;) {
    const port = (await listens(0)) as number;
    if (port < 65_534 && (await listens(port + 1)) && (await listens(port + 2))) return port;
  }
}

/** Runs a server until the test is over, and returns its address when it answers. */
async function serve(t: TestContext, command: (port: number) => [string, ...string[]], folder: string, probe: string) {
  const port = await closedPort();
  const url = `http://127.0.0.1:${port}`;
  const [program, ...rest] = command(port);
  const child = spawn(program, rest, { cwd: folder, stdio: "ignore" });
  t.after(async () => {
    child.kill("SIGTERM");
    if (child.exitCode == null && child.signalCode == null) await once(child, "exit");
    await rm(folder, { recursive: true, force: true, maxRetries: 20 });
  });
  const late = Date.now() + STARTED_MS;
  while (!(await fetch(url + probe).catch(() => null))) {
    if (child.exitCode != null || Date.now() > late) throw new Error(`${program} did not start`);
    await new Promise((done) => setTimeout(done, 100));
  }
  return url;
}

/** Starts a peer of the folder `FIRSTWRITE_PEERS`. */
export async function startPeer(t: TestContext, peers: string, name: string, probe: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), `firstwrite-${name}-`));
  await cp(join(peers, name), join(folder, name), { recursive: true });
  await cp(join(peers, "lib.sh"), join(folder, "lib.sh"));
  return serve(t, (port) => ["bash", join(name, "run.sh"), `${port}`], folder, probe);
}

/** Starts our gateway in front of a server. */
export async function startGateway(t: TestContext, program: string, upstream: string, probe: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "firstwrite-gateway-"));
  const store = `sqlite:${join(folder, "keys.db")}`;
  const settings = ["--upstream", upstream, "--tenants", "authorization", "--store", store, "--create"];
  return serve(t, (port) => [program, "gateway", "--listen", `127.0.0.1:${port}`, ...settings], folder, probe);
}

/** Passes requests on, and cuts connections before they are, after they were, or in the middle of the answer. */
export async function startCutter(t: TestContext, upstream: string, seed: number) {
  const random = seeded(seed);
  const faults: Record<string, number> = {};
  const server = createServer((asked, answer) => {
    const luck = random();
    const fault = luck < 0.1 ? "cut-before" : luck < 0.35 ? "cut-after" : luck < 0.5 ? "cut-half" : "ok";
    faults[fault] = (faults[fault] ?? 0) + 1;
    if (fault == "cut-before") return void asked.socket.destroy();
    const { connection: _, ...headers } = asked.headers;
    const passed = request(upstream + asked.url, { method: asked.method ?? "GET", headers, agent: false }, (heard) => {
      const parts: Buffer[] = [];
      heard.on("data", (part: Buffer) => parts.push(part));
      heard.on("error", () => answer.destroy());
      heard.on("end", () => {
        if (fault == "cut-after") return void asked.socket.destroy();
        const body = Buffer.concat(parts);
        const { "transfer-encoding": _, ...kept } = heard.headers;
        answer.writeHead(heard.statusCode ?? 500, { ...kept, "content-length": body.length });
        if (fault == "ok") answer.end(body);
        else answer.write(body.subarray(0, body.length / 2), () => asked.socket.destroy());
      });
    });
    passed.on("error", () => asked.socket.destroy());
    asked.pipe(passed);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, faults };
}
