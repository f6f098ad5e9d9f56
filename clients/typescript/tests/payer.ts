/** A process of kill.test.ts: pays what it is told, and dies at the step that it is told. */

import { appendFileSync, readFileSync } from "node:fs";

import { folder } from "../dist/file.js";
import { client, type StepEvent } from "../dist/node.js";
import { queue } from "../dist/queue.js";
import { TOKEN } from "./bed.js";
import { seeded } from "./world.js";

export interface Orders {
  url: string;
  path: string;
  names: string[];
  refused: string[];
  /** Sent in one lane, instead of all at once. */
  queued: boolean;
  seed: number;
  /** What the bed is to do with the first request of each intent. */
  fault: string | null;
  /** The step at which the process kills itself, and how often it passes it before; null if it lives, or is killed. */
  step: string | null;
  passes: number;
}

/** What the application was told, in its own books, which it writes before it acknowledges. */
export interface Told {
  name: string;
  kind: string;
  customer: unknown;
}

const orders = JSON.parse(process.argv[2] ?? "") as Orders;
const books = `${orders.path}.told`;

function told(): Told[] {
  const lines = readFileSync(books, { encoding: "utf8", flag: "a+" }).split("\n");
  // A kill may leave half of the last line.
  return lines.slice(0, -1).filter((line) => line.endsWith("}")).map((line) => JSON.parse(line) as Told);
}

function tell(name: string, kind: string, json: unknown): void {
  appendFileSync(books, `\n${JSON.stringify({ name, kind, customer: (json as { customer?: unknown })?.customer })}\n`);
}

let left = orders.passes;
const random = seeded(orders.seed);
const fw = client({
  storage: folder(orders.path),
  credentials: () => ({ authorization: TOKEN }),
  waitFor: Infinity,
  // A tenth of the random part: the test is of kills, not of patience.
  random: () => random() / 10,
  on: ({ step }: StepEvent) => {
    if (step == orders.step && left-- <= 0) process.kill(process.pid, "SIGKILL");
  },
});

const request = (customer: string) => ({
  url: orders.url,
  headers: orders.fault ? { "x-bed-fault": orders.fault } : {},
  json: { customer, currency: "EUR", amount: orders.refused.includes(customer) ? 0 : 4990 },
});

const isTold = (name: string) => told().some((end) => end.name == name);

async function pay(name: string): Promise<void> {
  if (!isTold(name)) {
    const end = await (await fw.intent(name, request(name))).settled();
    tell(name, end.kind, end.json);
  }
  await (await fw.find(name))?.acknowledge();
}

if (orders.queued) {
  const take = ({ name }: { name: string }, end: { kind: string; json: unknown }) => tell(name, end.kind, end.json);
  const lanes = queue(fw, { confirm: take, rollback: take, pollEvery: 100 });
  for (const name of orders.names) if (!isTold(name)) await lanes.enqueue("lane", name, request(name));
  const stop = new AbortController();
  const running = lanes.run(stop.signal);
  while ((await fw.list()).entries.length) await fw.settings.sleep(20);
  stop.abort();
  await running;
} else {
  await Promise.all(orders.names.map(pay));
}
