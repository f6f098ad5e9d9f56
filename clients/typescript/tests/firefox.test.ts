/** Firefox, where `FIRSTWRITE_TEST_FIREFOX` names one. It has no driver here: a page does what its address says. */

import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";

import { startBed } from "./bed.js";
import type { PageOrders } from "./page.js";
import { startSite, type Site } from "./site.js";

const program = process.env.FIRSTWRITE_TEST_FIREFOX;
const command = process.env.FIRSTWRITE_TEST_BED;
const FAULTS = { seed: 5, "cut-after": 0.2, "502": 0.1 };
const STEPS = ["opened", "marked", "sent", "answered", "recorded", "ended", "acknowledged"];

async function kill(child: ChildProcess): Promise<void> {
  const exit = once(child, "exit");
  process.kill(-(child.pid as number), "SIGKILL");
  await exit;
}

/** Opens an address in a browser of its own, until the site hears `word`; then the browser is killed. */
async function visit(profile: string, site: Site, what: object, word: string): Promise<string> {
  const url = `${site.url}/#${encodeURIComponent(JSON.stringify(what))}`;
  site.told.delete(word);
  const child = spawn(program as string, ["--headless", "--no-remote", "--profile", profile, url], {
    detached: true,
    stdio: "ignore",
  });
  try {
    for (;;) {
      const [heard] = site.told.get(word) ?? [];
      if (heard) return heard;
      await new Promise((done) => setTimeout(done, 20));
    }
  } finally {
    await kill(child);
  }
}

/** The variables that are not set. */
const missing = ["FIRSTWRITE_TEST_FIREFOX", "FIRSTWRITE_TEST_BED"].filter((name) => !process.env[name]);

test(
  "Firefox keeps what every storage must, and intents through its own death at each step",
  { skip: missing.length > 0 && `${missing.join(" and ")} is not set` },
  async (t: TestContext) => {
    const profile = await mkdtemp(join(tmpdir(), "firstwrite-firefox-"));
    // Nobody answers the question whether the site may keep its data.
    await writeFile(join(profile, "user.js"), 'user_pref("dom.storageManager.prompt.testing", true);');
    const bed = await startBed(command as string);
    const site = await startSite(bed.proxy);
    t.after(async () => {
      await site.stop();
      await bed.stop();
      await rm(profile, { recursive: true, force: true, maxRetries: 20 });
    });
    assert.equal(await visit(profile, site, {}, "over"), "well");
    for (const [at, step] of STEPS.entries()) {
      const name = `firefox-${at}`;
      const orders: PageOrders = { names: [name], refused: [], queued: at % 2 == 1, sealed: at % 3 == 1, step, passes: 0 };
      // Without an answer that does not end it, nothing is recorded.
      await bed.tell("faults", step == "recorded" ? { "cut-after": 1 } : FAULTS);
      assert.equal(await visit(profile, site, { orders, told: [] }, "stopped"), step);
      await bed.tell("faults", FAULTS);
      const told = [...site.told.keys()];
      assert.equal(await visit(profile, site, { orders: { ...orders, step: null }, told }, "over"), "well");
      assert.deepEqual([(await bed.effects())[name], (await bed.keys()).get(name)?.size], [1, 1], step);
      assert.deepEqual(new Set(site.told.get(name)), new Set(["done"]), step);
    }
  },
);
