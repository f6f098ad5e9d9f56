/** The test bed: the real demo behind a proxy that loses answers. `FIRSTWRITE_TEST_BED` is the command that starts it. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { request, type IncomingMessage } from "node:http";
import { createInterface } from "node:readline";
import { test, type TestContext } from "node:test";

const LONG = process.env.FIRSTWRITE_TEST_LONG;
export const IS_LONG = !!LONG;

/** How many runs there are: some, or in the long form many, or as many as `FIRSTWRITE_TEST_LONG` says. */
export const runs = (short: number, long: number) => (!IS_LONG ? short : Number(LONG) > 1 ? Number(LONG) : long);
export const TOKEN = "Bearer demo-acme";

interface Logged {
  method: string;
  path: string;
  key: string | null;
  customer: string | null;
}

interface Log {
  entries: Logged[];
  next: number;
  full: boolean;
}

export interface Bed {
  proxy: string;
  refused: string;
  /** Calls one of the proxy's own paths. */
  tell(path: string, body?: unknown): Promise<unknown>;
  /** How many payments each customer has. */
  effects(): Promise<Record<string, number>>;
  /** The keys that were sent for each customer. */
  keys(): Promise<Map<string, Set<string>>>;
  /** Returns what waits until a request for one of the customers has arrived that was not there yet. */
  arrival(customers: string[]): Promise<(isOver: () => boolean) => Promise<boolean>>;
  stop(): Promise<void>;
}

/** A request on a connection of its own: the bed closes those that stand when it is told to close its port. */
async function call(url: string, body?: string): Promise<{ status: number; text: string }> {
  const asked = request(url, { method: body === undefined ? "GET" : "POST", agent: false });
  asked.end(body);
  const [answer] = (await once(asked, "response")) as [IncomingMessage];
  let text = "";
  for await (const part of answer.setEncoding("utf8")) text += part as string;
  return { status: answer.statusCode ?? 0, text };
}

export async function startBed(command: string, more = ""): Promise<Bed> {
  const child = spawn(`exec ${command} ${more}`, { shell: true, stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface({ input: child.stdout });
  const failed = once(child, "exit").then(([code]) => assert.fail(`the bed ended with ${code}`));
  failed.catch(() => {});
  const [line] = (await Promise.race([once(lines, "line"), failed])) as [string];
  const { proxy, refused } = JSON.parse(line) as { proxy: string; refused: string };
  let turns: Promise<unknown> = Promise.resolve();
  // One after the other: the bed is not asked for its books while it is restarted or closed.
  const tell: Bed["tell"] = (path, body) => {
    const turn = turns.then(() => ask(path, body));
    turns = turn.catch(() => {});
    return turn;
  };
  const ask = async (path: string, body?: unknown): Promise<unknown> => {
    const { status, text } = await call(`${proxy}/_bed/${path}`, body === undefined ? undefined : JSON.stringify(body));
    assert.ok(status < 300, `${path}: ${status} ${text}`);
    if (path == "close") await untilOpen();
    return text && JSON.parse(text);
  };
  const untilOpen = async (): Promise<void> => {
    while ((await call(`${proxy}/_bed/log`).catch(() => null))?.status != 200) await new Promise((done) => setTimeout(done, 5));
  };
  const seen = new Map<string, Set<string>>();
  let next = 0;
  return {
    proxy,
    refused,
    tell,
    effects: async () => ((await tell("effects")) as { counts: Record<string, number> }).counts,
    async keys() {
      const log = (await tell(`log?since=${next}`)) as Log;
      assert.equal(log.full, false, "the bed's log is full");
      next = log.next;
      for (const { customer, key } of log.entries) {
        if (!customer || !key) continue;
        seen.set(customer, (seen.get(customer) ?? new Set()).add(key));
      }
      return seen;
    },
    async arrival(customers) {
      let since = ((await tell("log")) as Log).next;
      return async (isOver) => {
        while (!isOver()) {
          const log = (await tell(`log?since=${since}`)) as Log;
          since = log.next;
          if (log.entries.some(({ customer }) => customer && customers.includes(customer))) return true;
          await new Promise((done) => setTimeout(done, 5));
        }
        return false;
      };
    },
    async stop() {
      child.stdin.end();
      if (child.exitCode == null) await once(child, "exit");
    },
  };
}

/** A test that needs something of the machine: skipped by name without it, and failed under CI. */
export function needs(variable: string, name: string, work: (value: string, t: TestContext) => Promise<void>): void {
  const value = process.env[variable];
  if (value) test(name, (t) => work(value, t));
  else if (process.env.CI) test(name, () => assert.fail(`${variable} is not set`));
  else test(name, { skip: `${variable} is not set` }, () => {});
}

/** A test with a bed of its own. */
export function withBed(name: string, work: (bed: Bed) => Promise<void>, more?: string): void {
  needs("FIRSTWRITE_TEST_BED", name, async (command) => {
    const bed = await startBed(command, more);
    try {
      await work(bed);
    } finally {
      await bed.stop();
    }
  });
}
