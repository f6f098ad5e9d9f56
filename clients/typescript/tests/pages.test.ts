/** What befalls pages of real browsers: a reload, no network, no room, an answer of another origin. */

import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

import { attempts, call, inChromium, run, underWay } from "./browser.js";
import type { PageOrders } from "./page.js";
import { startSite } from "./site.js";

inChromium("a page that is reloaded while an attempt is under way goes on", async ({ chromium, bed, site }) => {
  const page = await chromium.page(site.url);
  for (const [at, sealed] of [false, true].entries()) {
    const name = `reload-${at}`;
    const orders: PageOrders = { names: [name], refused: [], queued: at == 1, sealed, step: null, passes: 0 };
    await bed.tell("faults", { delay: 1, delay_ms: 60_000 });
    page.evaluate(call("pay", orders, site)).catch(() => {});
    await underWay(bed, name);
    await bed.tell("faults", {});
    assert.equal(site.told.has(name), false);
    await page.reload();
    await page.evaluate(call("pay", orders, site));
    assert.deepEqual([(await bed.effects())[name], (await bed.keys()).get(name)?.size], [1, 1]);
    assert.deepEqual(site.told.get(name), ["done"]);
    assert.ok((await attempts(bed, name)) > 1);
  }
});

inChromium("a page goes on when the service that was stopped comes back", async ({ chromium, bed, site }) => {
  const page = await chromium.page(site.url);
  for (const [at, queued] of [false, true].entries()) {
    // The first answer is lost with the service; then nobody listens for a while.
    const names = [`stopped-${at}`, `stopped-more-${at}`];
    const orders: PageOrders = { names, refused: [], queued, sealed: false, step: null, passes: 0 };
    await bed.tell("faults", { delay: 1, delay_ms: 60_000 });
    const paid = page.evaluate(call("pay", orders, site));
    await underWay(bed, names[0] as string);
    await bed.tell("restart", {});
    await bed.tell("faults", {});
    await bed.tell("close", { ms: 700 });
    await paid;
    const [effects, keys] = [await bed.effects(), await bed.keys()];
    for (const name of names) assert.deepEqual([effects[name], keys.get(name)?.size, site.told.get(name)], [1, 1, ["done"]]);
    assert.ok((await attempts(bed, names[0] as string)) > 1);
  }
});

inChromium("a 202 of another origin that hides its headers is not done", async ({ chromium, site }, t) => {
  const allowed = { "access-control-allow-origin": "*", "access-control-allow-headers": "*" };
  const keys: unknown[] = [];
  const server = createServer((asked, answer) => {
    asked.resume();
    if (asked.method == "OPTIONS") return void answer.writeHead(204, allowed).end();
    keys.push(asked.headers["idempotency-key"]);
    const isFirst = keys.length == 1;
    answer.writeHead(isFirst ? 202 : 201, { ...allowed, ...(isFirst ? { "idempotency-interim": "true" } : {}) }).end("{}");
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  t.after(() => (server.closeAllConnections(), server.close()));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  const page = await chromium.page(site.url);
  const settle = `(async () => {
    const end = await (await fw.open({}).intent("elsewhere", { url: "${url}", json: {} })).settled();
    return [end.kind, end.status];
  })()`;
  assert.deepEqual(await page.evaluate(settle), ["done", 201]);
  assert.deepEqual([keys.length, new Set(keys).size], [2, 1]);
});

inChromium("a mark for which there is no room is an error before anything is sent, and the intent stays", async (world, t) => {
  const { chromium, bed } = world;
  const site = await startSite(bed.proxy);
  t.after(() => site.stop());
  const page = await chromium.page(site.url);
  const settle = (wait: string) => `(async () => {
    const body = { url: "/payments", json: { customer: "mark", currency: "EUR", amount: 1, note: "x".repeat(500_000) } };
    const pay = await fw.open({}).intent("mark", body);
    ${wait}
    return pay.settled().then(({ kind }) => kind, (error) => error.name + ": " + error.cause?.name);
  })()`;
  await page.call("Runtime.addBinding", { name: "opened" });
  await page.call("Storage.overrideQuotaForOrigin", { origin: site.url, quotaSize: 3_000_000 });
  const opened = page.event("Runtime.bindingCalled");
  const settled = page.evaluate(settle('opened(""); await new Promise((done) => (globalThis.goOn = done));'));
  await opened;
  const fill = `(async () => {
    const opening = indexedDB.open("ballast");
    opening.onupgradeneeded = () => opening.result.createObjectStore("ballast");
    await new Promise((done) => (opening.onsuccess = done));
    for (let at = 0; ; at += 1) {
      const writing = opening.result.transaction("ballast", "readwrite");
      writing.objectStore("ballast").put(crypto.getRandomValues(new Uint8Array(60_000)), at);
      const error = await new Promise((done) => {
        writing.oncomplete = () => done();
        writing.onabort = () => done(writing.error.name);
      });
      if (error) return error;
    }
  })()`;
  assert.equal(await page.evaluate(fill), "QuotaExceededError");
  await page.evaluate("goOn()");
  assert.equal(await settled, "StorageError: QuotaExceededError");
  assert.equal(await attempts(bed, "mark"), 0);
  await page.call("Storage.overrideQuotaForOrigin", { origin: site.url });
  assert.equal(await page.evaluate(settle("")), "done");
  assert.deepEqual([(await bed.effects())["mark"], (await bed.keys()).get("mark")?.size], [1, 1]);
});

inChromium("what is enqueued without a network is sent when there is one again", async (world) => {
  const { chromium, bed, site } = world;
  const page = await chromium.page(site.url);
  const isOffline = (offline: boolean) =>
    page.call("Network.emulateNetworkConditions", { offline, latency: 0, downloadThroughput: -1, uploadThroughput: -1 });
  await page.call("Network.enable");
  await isOffline(true);
  const before = await page.evaluate(`(async () => {
    const fw2 = fw.open({});
    globalThis.lanes = fw.queue(fw2);
    const intent = await lanes.enqueue("lane", "offline", fw.request("offline"));
    void lanes.run(new AbortController().signal);
    const past = await intent.settled().catch(({ name }) => name);
    await fw2.settings.sleep(300);
    const { state, attempts } = await fw2.find("offline");
    return [past, state, attempts].join(" ");
  })()`);
  assert.equal(before, "IntentState open 0");
  assert.equal(await attempts(bed, "offline"), 0);
  await isOffline(false);
  const kind = `(async () => {
    for (;;) {
      const [queued] = (await lanes.list()).queued;
      if (queued.end) return queued.end.kind;
      await new Promise((done) => setTimeout(done, 20));
    }
  })()`;
  assert.equal(await page.evaluate(kind), "done");
  assert.equal((await bed.effects())["offline"], 1);
});

inChromium("without room, or without a database, an error comes before anything is sent", async (world, t) => {
  const { chromium, bed } = world;
  // Of an origin of its own, since the browser remembers for a while what another one has.
  const site = await startSite(bed.proxy);
  t.after(() => site.stop());
  const page = await chromium.page(site.url);
  const pay = (name: string) => `(async () => {
    const told = [];
    const fw2 = fw.open({}, { on: ({ step }) => told.push(step) });
    const body = { url: "/payments", json: { customer: "${name}", currency: "EUR", amount: 1, note: "x".repeat(500_000) } };
    const how = await fw2.intent("${name}", body).then(() => "opened", (error) => error.name + ": " + error.cause?.name);
    return [how, ...told.filter((step) => step != "persist-refused")];
  })()`;
  await page.call("Storage.overrideQuotaForOrigin", { origin: site.url, quotaSize: 1000 });
  assert.deepEqual(await page.evaluate(pay("full")), ["StorageError: QuotaExceededError"]);
  await page.call("Storage.overrideQuotaForOrigin", { origin: site.url });
  assert.deepEqual(await page.evaluate(pay("room")), ["opened", "opened"]);
  await page.evaluate("IDBFactory.prototype.open = () => { throw new DOMException('no', 'SecurityError'); }");
  assert.deepEqual(await page.evaluate(pay("private")), ["StorageError: SecurityError"]);
  for (const name of ["full", "room", "private"]) assert.equal(await attempts(bed, name), 0);
  const persist = (answer: string) => `(async () => {
    navigator.storage.persist = async () => ${answer};
    return new Promise((done) => {
      void fw.open({}, { on: ({ step }) => done(step) }).list().then(() => setTimeout(done, 100, "nothing"));
    });
  })()`;
  const another = await chromium.page(site.url);
  assert.equal(await another.evaluate(persist("false")), "persist-refused");
  assert.equal(await another.evaluate(persist("true")), "nothing");
});

run("Chromium: pages");
