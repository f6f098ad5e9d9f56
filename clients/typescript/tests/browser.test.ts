/** Real browsers: tabs that crash at every step, twins, workers; against the real demo, which dies as well. */

import assert from "node:assert/strict";

import { IS_LONG, runs } from "./bed.js";
import { attempts, call, inChromium, run, underWay, type World } from "./browser.js";
import { Chromium, type Page } from "./chromium.js";
import type { PageOrders } from "./page.js";
import type { Site } from "./site.js";
import { seeded } from "./world.js";

const STEPS = ["opened", "marked", "sent", "answered", "recorded", "ended", "acknowledged"];
const RUNS = runs(7, 210);
const BROWSER_KILLS = IS_LONG ? 10 : 1;
const LIVES_MAX = 10;
const FAULTS = { "cut-after": 0.12, "cut-before": 0.05, refuse: 0.03, "502": 0.05, delay: 0.2, delay_ms: 40 };

const ordersOf = (prefix: string, random: () => number): PageOrders => {
  const names = Array.from({ length: 1 + Math.floor(random() * 3) }, (_, at) => `${prefix}-${at}`);
  return {
    names,
    refused: names.filter(() => random() < 0.15),
    queued: random() < 0.3,
    sealed: random() < 0.3,
    step: null,
    passes: 0,
  };
};

async function check({ bed, site }: World, { names, refused }: Pick<PageOrders, "names" | "refused">): Promise<void> {
  const [effects, keys] = [await bed.effects(), await bed.keys()];
  for (const name of names) {
    const isRefused = refused.includes(name);
    assert.equal(effects[name] ?? 0, isRefused ? 0 : 1, `effects of ${name}`);
    assert.equal(keys.get(name)?.size, 1, `keys of ${name}`);
    const ends = site.told.get(name) ?? [];
    assert.ok(ends.length > 0 && ends.every((end) => end == (isRefused ? "refused" : "done")), `${name}: ${ends}`);
  }
}

/** Lets a page pay until it ends or is crashed; returns whether it was. */
async function live(page: Page, site: Site, orders: PageOrders, ms: number | null): Promise<"crashed" | "over"> {
  const stopped = page.event("Runtime.bindingCalled").then(() => "stopped" as const);
  const paid = page.evaluate(call("pay", orders, site)).then(() => "over" as const);
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<"late">((done) => (timer = ms == null ? undefined : setTimeout(() => done("late"), ms)));
  paid.catch(() => {});
  const how = await Promise.race([stopped, paid, late]);
  clearTimeout(timer);
  if (how == "over") return "over";
  await page.crash();
  return "crashed";
}

inChromium(`${RUNS} seeded runs of tabs that crash at every step`, async (world) => {
  const { chromium, bed, site } = world;
  const only = process.env.FIRSTWRITE_TEST_SEED;
  const seeds = only ? [Number(only)] : Array.from({ length: RUNS }, (_, at) => at);
  let crashes = 0;
  let outages = 0;
  await bed.tell("faults", { seed: 1, ...FAULTS });
  const page = await chromium.page(site.url);
  await page.call("Runtime.addBinding", { name: "stopped" });
  for (const seed of seeds) {
    const random = seeded(seed);
    const orders = ordersOf(`tab-${seed}`, random);
    try {
      for (let life = 0; ; life += 1) {
        const isLast = life == LIVES_MAX;
        const pick = Math.floor(random() * STEPS.length);
        const step = isLast || (life && random() < 0.4) ? null : (STEPS[life ? pick : seed % STEPS.length] as string);
        const ms = isLast || step || random() < 0.4 ? null : random() * 150;
        const passes = life ? Math.floor(random() * 3) : 0;
        // The service dies, or nobody listens, while the tab pays.
        const luck = random();
        const outage = luck < 0.1 ? bed.tell("restart", {}) : luck < 0.25 ? bed.tell("close", { ms: 100 }) : undefined;
        outages += outage ? 1 : 0;
        const how = await live(page, site, { ...orders, step, passes }, ms);
        await outage;
        if (how == "over") break;
        crashes += 1;
        await page.goto(site.url);
      }
      await check(world, orders);
    } catch (error) {
      throw new Error(`FIRSTWRITE_TEST_SEED=${seed}: ${(error as Error).stack}`);
    }
  }
  assert.ok(only || crashes >= RUNS / 2, `${crashes} crashes`);
  console.log(`# ${crashes} crashes of tabs, ${outages} outages of the service`);
});

inChromium(`${BROWSER_KILLS} browsers that are killed`, async (world) => {
  for (let seed = 0; seed < BROWSER_KILLS; seed += 1) {
    const orders = ordersOf(`browser-${seed}`, seeded(seed + 7));
    const step = STEPS[seed % STEPS.length] as string;
    const page = await world.chromium.page(world.site.url);
    await page.call("Runtime.addBinding", { name: "stopped" });
    const stopped = page.event("Runtime.bindingCalled");
    // Only an answer that ends nothing is recorded.
    if (step == "recorded") await world.bed.tell("faults", { "cut-after": 1 });
    page.evaluate(call("pay", { ...orders, step }, world.site)).catch(() => {});
    await stopped;
    await world.bed.tell("faults", {});
    world.chromium = await Chromium.start(world.program, await world.chromium.kill());
    const again = await world.chromium.page(world.site.url);
    await again.evaluate(call("pay", orders, world.site));
    await check(world, orders);
  }
});

inChromium("IndexedDB does what every storage must, in a page and in a worker", async ({ chromium, site }) => {
  const page = await chromium.page(site.url);
  assert.ok((await page.evaluate<number>("fw.cases('page')")) > 4);
  assert.ok((await page.evaluate<number>("fw.casesInWorker()")) > 4);
  const durability = `(async () => {
    const told = new Set();
    const { transaction } = IDBDatabase.prototype;
    IDBDatabase.prototype.transaction = function (...all) {
      const made = transaction.apply(this, all);
      told.add(made.mode + " " + made.durability);
      return made;
    };
    await fw.open({}).intent("strict", fw.request("strict"));
    return [...told].sort();
  })()`;
  assert.deepEqual(await page.evaluate(durability), ["readonly strict", "readwrite strict"]);
});

inChromium("a damaged entry in IndexedDB is an error that names it, and is left where it is", async ({ chromium, bed, site }) => {
  const page = await chromium.page(site.url);
  const damage = `(async () => {
    const database = "damaged";
    const storage = fw.indexedDb({ database });
    await storage.list();
    const opening = indexedDB.open(database);
    await new Promise((done) => (opening.onsuccess = done));
    const store = () => opening.result.transaction("intents", "readwrite").objectStore("intents");
    const told = [];
    for (const entry of [{ name: "bad" }, { name: "bad", v: 2, rev: 1 }, { name: "bad", v: 1, rev: 1, key: "k" }]) {
      const written = store().put(entry);
      await new Promise((done) => (written.onsuccess = done));
      const calls = [
        storage.get("bad"),
        storage.put({ ...entry, rev: 2 }, null),
        storage.put({ ...entry, rev: 2 }, 1),
        storage.delete("bad", 1),
        fw.open({}, { storage }).intent("bad", fw.request("bad")),
      ];
      for (const { reason } of await Promise.allSettled(calls)) told.push(reason?.name + " " + reason?.intent);
      const { entries, damaged } = await storage.list();
      told.push(entries.length + " " + damaged.map(({ what }) => what));
      const read = store().get("bad");
      await new Promise((done) => (read.onsuccess = done));
      told.push(JSON.stringify(read.result) == JSON.stringify(entry));
    }
    return told;
  })()`;
  const one = [...Array.from({ length: 5 }, () => "DamagedEntry bad"), "0 bad", true];
  assert.deepEqual(await page.evaluate(damage), [...one, ...one, ...one]);
  assert.equal(await attempts(bed, "bad"), 0);
});

inChromium("of two tabs with one intent, one sends, and the other goes on where that one crashed", async (world) => {
  const { chromium, bed, site } = world;
  const tabs = [await chromium.page(site.url), await chromium.page(site.url)] as const;
  const settle = (name: string) =>
    `(async () => (await (await fw.open({}).intent("${name}", fw.request("${name}"))).settled()).kind)()`;
  assert.deepEqual(await Promise.all(tabs.map((tab) => tab.evaluate(settle("twins")))), ["done", "done"]);
  assert.deepEqual(await attempts(bed, "twins"), 1);
  await bed.tell("faults", { delay: 1, delay_ms: 60_000 });
  const [first, second] = tabs;
  first.evaluate(settle("widow")).catch(() => {});
  await underWay(bed, "widow");
  const waiting = second.evaluate(settle("widow"));
  await bed.tell("faults", {});
  await first.crash();
  assert.equal(await waiting, "done");
  const effects = await bed.effects();
  assert.deepEqual([effects["twins"], effects["widow"], (await bed.keys()).get("widow")?.size], [1, 1, 1]);
});

inChromium("a worker that is stopped at a step goes on in the next one", async (world) => {
  const { chromium, bed, site } = world;
  await bed.tell("faults", { seed: 2, ...FAULTS });
  const page = await chromium.page(site.url);
  const work = async (step: string, at: number) => {
    const orders: PageOrders = { names: [`worker-${at}`], refused: [], queued: false, sealed: at % 2 == 1, step, passes: 0 };
    await page.evaluate(call("inWorker", orders, site));
    await page.evaluate(call("inWorker", { ...orders, step: null }, site));
    await check(world, orders);
  };
  await Promise.all(STEPS.map(work));
});

inChromium("a service worker that is stopped goes on when it is woken", async (world) => {
  const { chromium, bed, site } = world;
  await bed.tell("faults", { delay: 1, delay_ms: 400 });
  const page = await chromium.page(site.url);
  const orders: PageOrders = { names: ["service"], refused: [], queued: false, sealed: false, step: null, passes: 0 };
  await page.call("ServiceWorker.enable");
  page.evaluate(call("inServiceWorker", orders, site)).catch(() => {});
  await underWay(bed, "service");
  await page.call("ServiceWorker.stopAllWorkers");
  await bed.tell("faults", {});
  assert.equal(site.told.has("service"), false);
  assert.equal(await page.evaluate(call("inServiceWorker", orders, site)), "over");
  await check(world, orders);
});

run("Chromium: crashes");
