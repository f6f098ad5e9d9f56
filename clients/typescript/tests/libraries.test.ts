/** The adapters with the libraries that they are for: React and TanStack Query in a real Chromium, against the demo. */

import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

import { attempts, inChromium, run } from "./browser.js";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

/** Two components of an application. What they show stands in `output`s. */
const APPLICATION = `
import * as React from "react";
import { createRoot } from "react-dom/client";
import { QueryClient, QueryClientProvider, useMutation } from "@tanstack/react-query";
import { client } from "./dist/index.js";
import { indexedDb } from "./dist/indexeddb.js";
import { makeUseIntent } from "./dist/react.js";
import { intentMutation } from "./dist/tanstack.js";

const { createElement: h } = React;
const credentials = () => ({ authorization: "Bearer demo-acme" });
const fw = client({ storage: indexedDb({ database: "libraries" }), credentials, random: () => Math.random() / 10 });
const request = ({ name, amount }) => ({ url: "/payments", json: { customer: name, currency: "EUR", amount } });

const useIntent = makeUseIntent(React, fw);
function Intent({ name }) {
  const pay = useIntent(name);
  return h("div", null,
    h("output", { id: name }, pay.state, " ", pay.end?.kind, pay.error?.name),
    h("button", { id: "send " + name, onClick: () => pay.send(request({ name, amount: 4990 })) }),
    h("button", { id: "forget " + name, onClick: () => pay.acknowledge() }));
}

const options = intentMutation(fw, { name: ({ name }) => name, request });
function Mutation({ name, amount }) {
  const pay = useMutation({ ...options, onSuccess: ({ intent }) => intent.acknowledge() });
  return h("div", null,
    h("output", { id: name }, pay.status, " ", pay.data?.end.kind, pay.error?.name, " ", pay.error?.end?.kind),
    h("button", { id: "send " + name, onClick: () => pay.mutate({ name, amount }) }));
}

const element = (id) => document.getElementById(id);
export const click = (id) => element(id).click();
export async function shown(id, text) {
  while (element(id)?.textContent.trim() != text) await new Promise((done) => setTimeout(done, 10));
  return text;
}
export function mount() {
  const parts = [
    h(Intent, { key: 1, name: "react" }),
    h(Mutation, { key: 2, name: "tanstack", amount: 4990 }),
    h(Mutation, { key: 3, name: "tanstack-refused", amount: 0 }),
  ];
  const root = createRoot(document.body.appendChild(document.createElement("main")));
  root.render(h(React.StrictMode, null, h(QueryClientProvider, { client: new QueryClient() }, parts)));
  return () => root.unmount();
}
`;

const DO = (what: string) => `(async () => {
  const app = await import("/build/libraries.js");
  if (!globalThis.unmount) globalThis.unmount = app.mount();
  ${what}
})()`;

async function bundle(): Promise<void> {
  const { outputFiles } = await build({
    stdin: { contents: APPLICATION, resolveDir: ROOT },
    bundle: true,
    write: false,
    format: "esm",
    define: { "process.env.NODE_ENV": '"development"' },
  });
  await writeFile(new URL("libraries.js", import.meta.url), outputFiles[0]?.contents ?? "");
}

inChromium("React: a component sends once though the answer is lost, shows the end after a reload, and forgets it", async (world) => {
  const { chromium, bed, site } = world;
  await bundle();
  await bed.tell("faults", { seed: 3, "cut-after": 0.6 });
  const page = await chromium.page(site.url);
  const ended = await page.evaluate(DO('await app.shown("react", "none"); app.click("send react"); return app.shown("react", "ended done");'));
  assert.equal(ended, "ended done");
  await page.reload();
  assert.equal(await page.evaluate(DO('return app.shown("react", "ended done");')), "ended done");
  assert.equal(await page.evaluate(DO('app.click("forget react"); return app.shown("react", "none");')), "none");
  assert.deepEqual([(await bed.effects())["react"], (await bed.keys()).get("react")?.size], [1, 1]);
});

inChromium("TanStack Query: a mutation is one action under one key, and fails with the end that is not done", async (world) => {
  const { chromium, bed, site } = world;
  await bundle();
  await bed.tell("faults", { seed: 4, "cut-after": 0.6 });
  const page = await chromium.page(site.url);
  const pay = (id: string, text: string) => DO(`await app.shown("${id}", "idle"); app.click("send ${id}"); return app.shown("${id}", "${text}");`);
  assert.equal(await page.evaluate(pay("tanstack", "success done")), "success done");
  assert.deepEqual([(await bed.effects())["tanstack"], (await bed.keys()).get("tanstack")?.size], [1, 1]);
  assert.ok((await attempts(bed, "tanstack")) > 0);
  await bed.tell("faults", {});
  assert.equal(await page.evaluate(pay("tanstack-refused", "error NotDone refused")), "error NotDone refused");
  assert.equal((await bed.effects())["tanstack-refused"], undefined);
});

run("Chromium: libraries");
