/** The shared vectors of the three clients, row by row. */

import assert from "node:assert/strict";
import { test } from "node:test";

import * as decide from "../dist/decide.js";
import { derivedKeys } from "../dist/derived.js";
import { client } from "../dist/node.js";
import { memory } from "../dist/memory.js";
import * as waiting from "../dist/waiting.js";
import { FILES, rows, RUN } from "./rows.js";
import { Clock, ORDER } from "./world.js";

test("every file of the vectors is run", () => {
  assert.deepEqual(Object.keys(RUN).sort(), FILES.sort());
});

for (const [file, run] of Object.entries(RUN)) {
  test(`every row of ${file}`, async (t) => {
    for (const row of rows(file)) {
      await t.test(row.name, async () => {
        const [said, expected] = await run({ ...decide, ...waiting, derivedKeys }, row);
        assert.deepEqual(said, expected);
      });
    }
  });
}

/** Milliseconds at which marks are written by processes that die as soon as their mark is durable. */
async function marks(random: number, count: number): Promise<number[]> {
  const storage = memory();
  const clock = new Clock();
  const began = clock.time;
  const marks: number[] = [];
  for (let life = 0; life < count; life += 1) {
    await new Promise<void>((died) => {
      const fw = client({
        storage,
        now: clock.now,
        monotonic: clock.monotonic,
        // No timer of an attempt, to which the clock would jump while it hangs.
        sleep: (ms, signal) => (marks.length > life ? new Promise(() => {}) : clock.sleep(ms, signal)),
        random: () => random,
        fetch: () => new Promise(() => {}),
        waitFor: Infinity,
        on({ step }) {
          if (step != "marked") return;
          marks.push(clock.time - began);
          died();
        },
      });
      void fw.intent("a", ORDER).then((pay) => pay.settled());
    });
  }
  return marks;
}

test("a process that dies after each mark does not send at each start", async () => {
  for (const { name, random, expect_ms } of rows("crash.json")) {
    const expected = expect_ms as number[];
    assert.deepEqual(await marks(random, expected.length), expected, name);
  }
});
