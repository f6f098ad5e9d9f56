/** A client with a queue, and a server that notes the order in which it was sent what. */

import assert from "node:assert/strict";

import { memory } from "../dist/memory.js";
import { client, type Options } from "../dist/node.js";
import { queue, type QueueOptions } from "../dist/queue.js";
import { EXPIRES, server, tools, type Clock, type Reply } from "./world.js";

export const CREATED: Reply = { status: 201, headers: EXPIRES, json: {} };
export const REFUSED: Reply = { status: 422, headers: EXPIRES };
export const request = (what: string) => ({ url: "http://notes.test/", body: what });

export function bench(answer: (body: string) => Reply, options: QueueOptions = {}, more: Partial<Options> = {}) {
  const order: string[] = [];
  const { fetch } = server(({ method, body }) => {
    if (method == "GET") return { status: 404 };
    order.push(body);
    return answer(body);
  });
  const world = tools();
  const fw = client({ storage: memory(), fetch, ...world.options, ...more });
  return { order, fw, lanes: queue(fw, options), ...world };
}

/** Runs a queue until something is the case. */
export async function runUntil(lanes: ReturnType<typeof queue>, clock: Clock, isEnough: () => boolean | Promise<boolean>, step = 100) {
  const stop = new AbortController();
  const running = lanes.run(stop.signal);
  for (let looks = 0; !(await isEnough()); looks += 1) {
    assert.ok(looks < 10_000, "it never came to that");
    await clock.sleep(step);
  }
  stop.abort();
  await running;
}
