/** A process of storage.test.ts: adds to one entry, as often as it is told. */

import { folder } from "../dist/file.js";

const [path = "", times = "0"] = process.argv.slice(2);
const storage = folder(path);
for (let done = 0; done < Number(times); ) {
  const entry = await storage.get("a");
  if (!entry) throw new Error("there is no entry");
  if (await storage.put({ ...entry, rev: entry.rev + 1, attempts: entry.attempts + 1 }, entry.rev)) done += 1;
}
process.disconnect();
