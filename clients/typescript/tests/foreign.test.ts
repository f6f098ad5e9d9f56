/**
 * The client against servers that others wrote, with connections that are cut. `FIRSTWRITE_PEERS` is a folder of
 * peers, each with a `run.sh PORT`; `FIRSTWRITE_BINARY` is the built program, for a gateway in front of one of them.
 */

import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";

import { folder } from "../dist/file.js";
import { client, type Client, type Options, type RequestSpec, type Settled } from "../dist/node.js";
import { startCutter, startGateway, startPeer } from "./peers.js";

const INTENTS = 20;
const AT_ONCE = 10;
const SEED = Number(process.env.FIRSTWRITE_TEST_SEED ?? 1);
const RESUMES_MAX = 100;

/** Runs a test where the environment names what it needs; else it is skipped by its name. */
function withPeers(name: string, variables: string[], work: (t: TestContext, values: string[]) => Promise<void>): void {
  const missing = variables.find((variable) => !process.env[variable]);
  const skip = missing ? `${missing} is not set` : false;
  test(name, { skip, timeout: 600_000 }, (t) => work(t, variables.map((variable) => process.env[variable] as string)));
}

/** Clients that share a folder, as processes do. */
async function clients(t: TestContext, count: number, more: Partial<Options> = {}): Promise<Client[]> {
  const path = await mkdtemp(join(tmpdir(), "firstwrite-foreign-"));
  t.after(() => rm(path, { recursive: true }));
  // A tenth of the random part: the test is of servers, not of patience.
  const random = () => Math.random() / 10;
  return Array.from({ length: count }, () => client({ storage: folder(path), waitFor: Infinity, random, ...more }));
}

/** Sends an intent until its end is known; counts how often it ended unknown. */
async function settle(fw: Client, name: string, request: RequestSpec, resumed: string[]): Promise<Settled> {
  const intent = await fw.intent(name, request);
  let end = await intent.settled();
  while (end.kind == "unknown" && resumed.length < RESUMES_MAX) {
    resumed.push(name);
    await intent.resume();
    end = await intent.settled();
  }
  return end;
}

/** Runs work for each of many, some at once. */
async function each<One, Result>(all: One[], work: (one: One) => Promise<Result>): Promise<Result[]> {
  const results: Result[] = [];
  const left = [...all];
  const loop = async () => {
    for (let one = left.shift(); one !== undefined; one = left.shift()) results.push(await work(one));
  };
  await Promise.all(Array.from({ length: AT_ONCE }, loop));
  return results;
}

const idOf = ({ json }: Settled) => (json as { id: string }).id;
const tell = (what: string, figures: object) => console.log(`# ${what}: ${JSON.stringify(figures)}`);

for (const peer of ["py-idemkit", "express-idempotency"]) {
  withPeers(`${peer}: each intent has one effect, whatever is cut`, ["FIRSTWRITE_PEERS"], async (t, [peers = ""]) => {
    const url = await startPeer(t, peers, peer, "/count");
    const count = async () => ((await (await fetch(`${url}/count`)).json()) as { n: number }).n;
    const cutter = await startCutter(t, url, SEED);
    const [fw] = (await clients(t, 1)) as [Client];
    const resumed: string[] = [];
    const pay = (name: string) =>
      settle(fw, name, { url: `${cutter.url}/charge?sleep=20`, json: { customer: name } }, resumed);
    const names = Array.from({ length: INTENTS }, (_, at) => `${peer}/${at}`);
    const ends = await each(names, pay);
    const effects = await count();
    tell(peer, { intents: INTENTS, effects, faults: cutter.faults, resumed: resumed.length });
    assert.deepEqual([new Set(ends.map(({ kind }) => kind)), effects], [new Set(["done"]), INTENTS]);
    assert.equal(new Set(ends.map(idOf)).size, INTENTS, "two intents got one answer");
    // One intent, from ten clients of one storage at once, slow enough that they meet.
    const request = { url: `${cutter.url}/charge?sleep=300`, json: { customer: "one" } };
    const together = await each(await clients(t, AT_ONCE), (one) => settle(one, "one", request, resumed));
    tell(`${peer}, one intent`, { clients: AT_ONCE, effects: (await count()) - effects, resumed: resumed.length });
    assert.equal((await count()) - effects, 1);
    assert.deepEqual(new Set(together.map((end) => `${end.kind} ${idOf(end)}`)).size, 1);
  });
}

const TOKEN = { authorization: "Basic c2tfdGVzdF8xMjM0NTo=" };

withPeers(
  "localstripe behind the gateway: each intent has one effect, in two dialects",
  ["FIRSTWRITE_PEERS", "FIRSTWRITE_BINARY"],
  async (t, [peers = "", program = ""]) => {
    const stripe = await startPeer(t, peers, "localstripe", "/v1/customers");
    const gateway = await startGateway(t, program, stripe, "/v1/customers");
    for (const dialect of ["draft-07", "stripe"] as const) {
      const cutter = await startCutter(t, gateway, SEED);
      const all = await clients(t, AT_ONCE, { dialect, credentials: () => TOKEN });
      const create = (fw: Client, name: string) => {
        const body = new URLSearchParams({ description: name });
        return settle(fw, name, { url: `${cutter.url}/v1/customers`, body }, []);
      };
      const names = Array.from({ length: INTENTS }, (_, at) => `${dialect}-${at}`);
      const ends = await each(names, (name) => create(all[0] as Client, name));
      const together = await each(all, (fw) => create(fw, `${dialect}-one`));
      const counts = await customers(stripe, dialect);
      tell(`localstripe behind the gateway, ${dialect}`, { intents: INTENTS + 1, effects: sum(counts), faults: cutter.faults });
      assert.deepEqual([counts.size, new Set(counts.values())], [INTENTS + 1, new Set([1])]);
      assert.deepEqual(new Set([...ends, ...together].map(({ kind }) => kind)), new Set(["done"]));
      assert.equal(new Set(together.map(idOf)).size, 1);
    }
  },
);

const sum = (counts: Map<string, number>) => [...counts.values()].reduce((a, b) => a + b, 0);

/** How many customers localstripe has of each description that begins so. */
async function customers(url: string, prefix: string): Promise<Map<string, number>> {
  type Page = { data: { id: string; description: string }[]; has_more: boolean };
  const counts = new Map<string, number>();
  for (let after = ""; ; ) {
    const answer = await fetch(`${url}/v1/customers?limit=100${after}`, { headers: TOKEN });
    const { data, has_more } = (await answer.json()) as Page;
    for (const { description } of data) {
      if (description.startsWith(prefix)) counts.set(description, (counts.get(description) ?? 0) + 1);
    }
    if (!has_more) return counts;
    after = `&starting_after=${data.at(-1)?.id}`;
  }
}
