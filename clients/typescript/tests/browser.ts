/** A Chromium, a bed and a site, for the tests in browsers. */

import type { TestContext } from "node:test";

import { needs, startBed, type Bed } from "./bed.js";
import { Chromium } from "./chromium.js";
import type { PageOrders } from "./page.js";
import { startSite, type Site } from "./site.js";

export interface World {
  chromium: Chromium;
  program: string;
  bed: Bed;
  site: Site;
}

export type Work = (world: World, t: TestContext) => Promise<void>;
const WORKS = new Map<string, Work>();
export const inChromium = (name: string, work: Work) => WORKS.set(name, work);

/** The expression that calls one of a page's functions. */
export const call = (name: string, orders: PageOrders, { told }: Site) =>
  `fw.${name}(${JSON.stringify(orders)}, ${JSON.stringify([...told.keys()])})`;

/** How many attempts have reached the bed's proxy. */
export async function attempts(bed: Bed, name: string): Promise<number> {
  const { entries } = (await bed.tell("log")) as { entries: { customer: string | null }[] };
  return entries.filter(({ customer }) => customer == name).length;
}

/** Waits until an attempt has reached the bed's proxy. */
export async function underWay(bed: Bed, name: string): Promise<void> {
  while (!(await attempts(bed, name))) await new Promise((done) => setTimeout(done, 10));
}

/** Runs what was registered. */
export function run(name: string): void {
  needs("FIRSTWRITE_TEST_BED", name, async (command, t) => {
    const program = process.env.FIRSTWRITE_TEST_CHROMIUM ?? "/usr/bin/chromium";
    const bed = await startBed(command);
    const site = await startSite(bed.proxy);
    const world: World = { chromium: await Chromium.start(program), program, bed, site };
    try {
      for (const [name, work] of WORKS) {
        await bed.tell("faults", {});
        await t.test(name, (t) => work(world, t));
      }
    } finally {
      await world.chromium.stop();
      await site.stop();
      await bed.stop();
    }
  });
}
