/** What the tests in browsers call, in pages and in workers. */

import { client, type Client, type Options, type StepEvent } from "../dist/index.js";
import { indexedDb } from "../dist/indexeddb.js";
import { queue } from "../dist/queue.js";
import { browserKey, sealed } from "../dist/seal.js";
import { CASES } from "./storages.js";

export interface PageOrders {
  names: string[];
  refused: string[];
  queued: boolean;
  sealed: boolean;
  /** The step at which everything stops, and how often it is passed before. */
  step: string | null;
  passes: number;
}

type Scope = {
  /** A binding of the driver: it hears that the page has stopped, and crashes it. */
  stopped?: (step: string) => void;
  orders?: PageOrders;
};

const scope = globalThis as typeof globalThis & Scope;

function open(orders: Partial<PageOrders>, more: Partial<Options> = {}): Client {
  let left = orders.passes ?? 0;
  const storage = indexedDb();
  return client({
    storage: orders.sealed ? sealed(storage, browserKey()) : storage,
    credentials: () => ({ authorization: "Bearer demo-acme" }),
    waitFor: Infinity,
    random: () => Math.random() / 10,
    on({ step }: StepEvent) {
      if (step != orders.step || left-- > 0) return;
      if (scope.stopped) scope.stopped(step);
      else if (typeof document == "undefined") postMessage({ stopped: step });
      else tellAtOnce({ name: "stopped", kind: step });
      // Nothing of this thread goes on from here; it is ended from outside.
      for (;;);
    },
    ...more,
  });
}

const request = (name: string, refused: string[] = []) => ({
  url: "/payments",
  json: { customer: name, currency: "EUR", amount: refused.includes(name) ? 0 : 4990 },
});

/** Returns when the site has heard it, without giving way to anything else. */
function tellAtOnce(what: object): void {
  const request = new XMLHttpRequest();
  request.open("POST", "/told", false);
  request.send(JSON.stringify(what));
}

async function tell(name: string, kind: string): Promise<void> {
  await fetch("/told", { method: "POST", body: JSON.stringify({ name, kind }) });
}

/** Pays what is ordered. `told` are the intents whose ends the site has heard. */
async function pay(orders: PageOrders, told: string[]): Promise<void> {
  const fw = open(orders);
  const one = async (name: string) => {
    if (!told.includes(name)) await tell(name, (await (await fw.intent(name, request(name, orders.refused))).settled()).kind);
    await (await fw.find(name))?.acknowledge();
  };
  if (!orders.queued) return void (await Promise.all(orders.names.map(one)));
  const take = ({ name }: { name: string }, { kind }: { kind: string }) => tell(name, kind);
  const lanes = queue(fw, { confirm: take, rollback: take });
  for (const name of orders.names) {
    if (!told.includes(name)) await lanes.enqueue("lane", name, request(name, orders.refused));
  }
  const stop = new AbortController();
  const running = lanes.run(stop.signal);
  while ((await fw.list()).entries.length) await fw.settings.sleep(20);
  stop.abort();
  await running;
}

/** Runs every case of the storages on IndexedDB; returns how many there are. */
async function cases(where: string): Promise<number> {
  for (const [name, run] of Object.entries(CASES)) {
    await run(indexedDb({ database: `${where}: ${name}` }));
    await run(sealed(indexedDb({ database: `sealed, ${where}: ${name}` }), browserKey()));
  }
  return Object.keys(CASES).length;
}

type FromWorker = { ready?: true; stopped?: string; over?: true; cases?: number; error?: string };

/** Hands a message to a new worker, and ends that when it answers. */
function work(message: unknown): Promise<FromWorker> {
  const worker = new Worker("/build/page.js", { type: "module" });
  return new Promise((done, fail) => {
    worker.onmessage = ({ data }: MessageEvent<FromWorker>) => {
      if (data.ready) return worker.postMessage(message);
      worker.terminate();
      if (data.error) fail(new Error(data.error));
      else done(data);
    };
    worker.onerror = (event) => fail(new Error(event.message));
  });
}

const casesInWorker = async () => (await work({ cases: true })).cases;

/** Runs a worker until it ends, or ends it when it says that it has stopped. */
const inWorker = async (orders: PageOrders, told: string[]) => (await work({ orders, told })).stopped ?? "over";

/** Hands orders to the service worker, which pays while it is alive. */
async function inServiceWorker(orders: PageOrders, told: string[]): Promise<string> {
  await navigator.serviceWorker.register("/build/page.js", { type: "module", scope: "/" });
  const { active } = await navigator.serviceWorker.ready;
  return new Promise((done, fail) => {
    navigator.serviceWorker.onmessage = ({ data }: MessageEvent<{ over?: true; error?: string }>) => {
      if (data.error) fail(new Error(data.error));
      else done("over");
    };
    active?.postMessage({ orders, told });
  });
}

type Orderly = { data: { orders: PageOrders; told: string[]; cases?: true }; source?: { postMessage(message: unknown): void } | null };

/** A worker pays what it is ordered to, and says how that went. */
function obey(event: Orderly, answer: (message: unknown) => void): Promise<void> {
  const { orders, told, cases: isCases } = event.data;
  const done = async () => (isCases ? { cases: await cases("worker") } : (await pay(orders, told), { over: true }));
  return done().then(
    answer,
    (error: Error) => answer({ error: `${error.stack}` }),
  );
}

if (typeof document == "undefined") {
  if ("clients" in globalThis) {
    addEventListener("install", () => void (globalThis as never as { skipWaiting(): void }).skipWaiting());
    addEventListener("message", (event) => {
      const orderly = event as unknown as Orderly & { waitUntil(work: Promise<void>): void };
      orderly.waitUntil(obey(orderly, (message) => orderly.source?.postMessage(message)));
    });
  } else {
    addEventListener("message", (event) => void obey(event as unknown as Orderly, (message) => postMessage(message)));
    postMessage({ ready: true });
  }
}

/** A page without a driver does what its address says, and tells the site how that went. */
async function obeyAddress(): Promise<void> {
  const { orders, told } = JSON.parse(decodeURIComponent(location.hash.slice(1))) as Orderly["data"];
  try {
    if (orders) await pay(orders, told);
    else await Promise.all([cases("page"), casesInWorker()]);
    await tell("over", "well");
  } catch (error) {
    await tell("over", `${(error as Error).name}: ${(error as Error).message}`);
  }
}

if (typeof document != "undefined" && location.hash) void obeyAddress();

Object.assign(globalThis, { fw: { pay, cases, casesInWorker, inWorker, inServiceWorker, open, request, queue, indexedDb } });
