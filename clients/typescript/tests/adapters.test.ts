/** The adapters for TanStack Query and React, without either: what they hand over, and what they do when called. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

import { client } from "../dist/node.js";
import { memory } from "../dist/memory.js";
import { makeUseIntent, type IntentView, type ReactHooks } from "../dist/react.js";
import { intentMutation, NotDone } from "../dist/tanstack.js";
import { EXPIRES, lost, server, tools, type Reply } from "./world.js";

const CREATED: Reply = { status: 201, headers: EXPIRES, json: { id: "pay_1" } };
const ORDER = { url: "http://pay.test/payments", json: { amount: 1 } };

function against(replies: Reply[], storage = memory()) {
  const { fetch, seen } = server((_, index) => replies[Math.min(index, replies.length - 1)] as Reply);
  return { fw: client({ storage, fetch, ...tools().options }), seen, storage };
}

test("a mutation that is run again is the same intent", async () => {
  const { fw, seen } = against([lost(), CREATED]);
  const options = intentMutation(fw, { name: (cart: string) => `checkout/${cart}`, request: () => ORDER });
  assert.deepEqual([options.retry, options.networkMode], [false, "always"]);
  const { end, intent } = await options.mutationFn("cart_42");
  assert.deepEqual(end.json, { id: "pay_1" });
  assert.deepEqual((await options.mutationFn("cart_42")).end, end);
  assert.equal(seen.length, 2);
  await intent.acknowledge();
  assert.equal(await fw.find("checkout/cart_42"), undefined);
});

test("a mutation that did not end done is an error that holds the end", async () => {
  const { fw } = against([{ status: 422 }]);
  const { mutationFn } = intentMutation(fw, { name: () => "a", request: () => ORDER, waitFor: 1000 });
  await assert.rejects(mutationFn(undefined), (error) => {
    assert.ok(error instanceof NotDone && error.name == "NotDone");
    assert.deepEqual([error.end.kind, error.end.safeNewKey, error.handle.name], ["refused", true, "a"]);
    return true;
  });
  const down = against([{ status: 503 }]);
  const waiting = intentMutation(down.fw, { name: () => "a", request: () => ORDER, waitFor: 1000 });
  await assert.rejects(waiting.mutationFn(undefined), { name: "Pending" });
});

/** As much of React as one component with these hooks needs. */
function mount(useIntent: (react: ReactHooks) => (name: string) => IntentView, name: string) {
  const slots: unknown[] = [];
  const cleanups: (() => void)[] = [];
  let at = 0;
  let view!: IntentView;
  let isMounted = true;
  const react: ReactHooks = {
    useState<T>(initial: T) {
      const slot = at++;
      if (!(slot in slots)) slots[slot] = initial;
      const set = (next: T) => {
        assert.ok(isMounted, "it shows something after it was unmounted");
        slots[slot] = next;
        render();
      };
      return [slots[slot] as T, set];
    },
    useMemo<T>(make: () => T) {
      const slot = at++;
      return (slots[slot] ??= make()) as T;
    },
    useEffect(effect) {
      const slot = at++;
      if (slot in slots) return;
      slots[slot] = true;
      // As in strict mode: mounted, unmounted, mounted.
      effect()?.();
      const cleanup = effect();
      if (cleanup) cleanups.push(cleanup);
    },
  };
  const component = useIntent(react);
  const render = () => {
    at = 0;
    view = component(name);
  };
  render();
  const shown = async (state: string) => {
    for (let looks = 0; view.state != state || view.error; looks += 1) {
      assert.ok(looks < 10_000, `it never showed ${state}, but ${view.state}`);
      await new Promise(setImmediate);
    }
    return view;
  };
  const unmount = () => {
    isMounted = false;
    cleanups.forEach((cleanup) => cleanup());
  };
  return { view: () => view, shown, unmount };
}

test("a component sends, shows the end, and forgets it", async () => {
  const { fw } = against([lost(), CREATED]);
  const { view, shown } = mount((react) => makeUseIntent(react, fw), "a");
  assert.equal(view().state, "loading");
  await (await shown("none")).send(ORDER);
  assert.equal((await shown("ended")).end?.kind, "done");
  await view().send({ ...ORDER, json: { amount: 2 } });
  assert.equal((view().error as Error).name, "IntentConflict");
  assert.equal(view().end?.kind, "done");
  await view().acknowledge();
  await shown("none");
});

test("a component that is mounted goes on with what a reload interrupted", async () => {
  const storage = memory();
  await against([CREATED], storage).fw.intent("a", ORDER);
  const { fw, seen } = against([{ status: 422 }, { status: 303 }, CREATED], storage);
  const { view, shown, unmount } = mount((react) => makeUseIntent(react, fw), "a");
  assert.equal((await shown("ended")).end?.kind, "refused");
  await view().supersede(ORDER);
  assert.equal(view().end?.kind, "unknown");
  await view().resume();
  assert.equal(view().end?.kind, "done");
  assert.deepEqual(seen.map(({ method }) => method), ["POST", "POST", "POST"]);
  unmount();
});

test("a component that is gone shows nothing, and its intent stays", async () => {
  const { fw } = against([{ status: 503 }]);
  const { view, shown, unmount } = mount((react) => makeUseIntent(react, fw), "a");
  await shown("none");
  const sending = view().send(ORDER);
  await shown("sending");
  unmount();
  await sending;
  assert.equal((await fw.find("a"))?.state, "sending");
});

test("an adapter is at most 100 lines, and nothing that is shipped imports what is not its own", () => {
  const source = new URL("../src/", import.meta.url);
  for (const file of readdirSync(source)) {
    const text = readFileSync(new URL(file, source), "utf8");
    if (["react.ts", "tanstack.ts"].includes(file)) assert.ok(text.split("\n").length <= 101, file);
    for (const [, from = ""] of text.matchAll(/^(?:import|export) [^;]*from "([^"]+)"/gm)) {
      assert.ok(from.startsWith("./") || (file == "file.ts" && from.startsWith("node:")), `${file} imports ${from}`);
    }
  }
});
