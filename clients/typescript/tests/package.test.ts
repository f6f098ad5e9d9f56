/** What is published: its size, its files, its types, its lock file, and the lines that the README begins with. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { brotliCompressSync } from "node:zlib";
import { build } from "esbuild";

import { withBed } from "./bed.js";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const CORE_BYTES_MAX = 6000;
const run = promisify(execFile);
const read = (file: string) => readFile(join(ROOT, file), "utf8");

/** An empty folder into which the package was installed from its tarball. */
let installed = "";

before(async () => {
  installed = await mkdtemp(join(tmpdir(), "firstwrite-package-"));
  // The build is done; another one would take the files away from under other tests.
  await run("npm", ["pack", "--ignore-scripts", "--pack-destination", installed], { cwd: ROOT });
  await writeFile(join(installed, "package.json"), '{ "type": "module", "private": true }');
  const { version } = JSON.parse(await read("package.json")) as { version: string };
  const options = ["--offline", "--no-audit", "--no-fund", `firstwrite-${version}.tgz`];
  await run("npm", ["install", ...options], { cwd: installed });
});

after(() => rm(installed, { recursive: true }));

/** The size of a bundle, minified and compressed as servers send it to browsers. */
async function sizeOf(contents: string): Promise<number> {
  const stdin = { contents, resolveDir: ROOT };
  const options = { bundle: true, minify: true, write: false, format: "esm", target: "es2022" } as const;
  const { outputFiles } = await build({ stdin, ...options });
  return brotliCompressSync(outputFiles[0]?.contents ?? "").length;
}

test(`the core is at most ${CORE_BYTES_MAX} bytes, minified and compressed`, async () => {
  const core = await sizeOf('export * from "./dist/index.js"');
  const browser = 'export * from "./dist/index.js"; export * from "./dist/indexeddb.js";';
  console.log(`# core ${core}, with IndexedDB ${await sizeOf(browser)}, and the queue ${await sizeOf(`${browser} export * from "./dist/queue.js"`)}`);
  assert.ok(core <= CORE_BYTES_MAX, `${core} bytes`);
});

test("the package has no dependency, and the lock file names no host", async () => {
  const { dependencies, peerDependencies, optionalDependencies } = JSON.parse(await read("package.json"));
  assert.deepEqual([dependencies, peerDependencies, optionalDependencies], [undefined, undefined, undefined]);
  assert.doesNotMatch(await read("package-lock.json"), /https?:|"resolved"/);
});

test("every entry is there when the package was installed from its tarball", async () => {
  const { exports } = JSON.parse(await read("package.json")) as { exports: Record<string, unknown> };
  const names = Object.keys(exports).filter((name) => !name.endsWith(".json"));
  const script = `for (const name of ${JSON.stringify(names)}) {
    const found = Object.keys(await import(name.replace(".", "firstwrite")));
    if (!found.length) throw new Error(name + " exports nothing");
    console.log(name, found.join(" "));
  }`;
  const { stdout } = await run(process.execPath, ["--input-type=module", "-e", script], { cwd: installed });
  const readme = await read("README.md");
  for (const line of stdout.trim().split("\n")) {
    const [name = "", ...found] = line.split(" ");
    assert.ok(readme.includes(`\`${name.replace(".", "firstwrite")}\``), name);
    for (const word of found) assert.ok(readme.includes(word), `${name}: the README does not name ${word}`);
  }
});

const blocks = async (kind = "ts") => {
  const found = [...(await read("README.md")).matchAll(/^```(tsx?)\n(.*?)^```/gms)];
  return found.filter(([, as]) => as == kind).map(([, , code = ""]) => code);
};

test("the types are strict, in what is installed and in the README", async () => {
  const tests = await blocks();
  assert.ok(tests.length >= 4);
  tests.push(TYPES);
  for (const [at, code] of tests.entries()) await writeFile(join(installed, `block${at}.ts`), code);
  // The adapters against the types of the real libraries, which lie beside the package as an application's do.
  const adapters = await blocks("tsx");
  assert.equal(adapters.length, 2);
  adapters.push(ADAPTERS);
  for (const [at, code] of adapters.entries()) await writeFile(join(installed, `adapter${at}.tsx`), code);
  for (const name of ["@tanstack", "@types", "react", "csstype"]) {
    await symlink(join(ROOT, "node_modules", name), join(installed, "node_modules", name));
  }
  const options = {
    compilerOptions: {
      strict: true,
      noEmit: true,
      exactOptionalPropertyTypes: true,
      noUncheckedIndexedAccess: true,
      skipLibCheck: false,
      jsx: "react-jsx",
      target: "es2022",
      module: "nodenext",
      lib: ["es2022", "dom"],
      types: [],
    },
    include: ["*.ts", "*.tsx"],
  };
  await writeFile(join(installed, "tsconfig.json"), JSON.stringify(options));
  const compiler = join(ROOT, "node_modules/typescript/bin/tsc");
  await run(process.execPath, [compiler, "-p", installed]).catch(({ stdout }) => assert.fail(stdout as string));
});

/** Each of the marked lines must be an error, and nothing else. */
const TYPES = `
import { derivedKeys } from "firstwrite/derived";
import { client, Pending, type End, type EndKind, type Storage } from "firstwrite";
import { memory } from "firstwrite/memory";
import { intentMutation } from "firstwrite/tanstack";
const storage: Storage = memory();
const fw = client({ storage, dialect: "stripe", key: derivedKeys("a secret of 16 b"), credentials: async () => ({}) });
const pay = await fw.intent("a", { url: new URL("http://a"), body: new Uint8Array(1) });
const kind: EndKind = (await pay.settled({ signal: AbortSignal.timeout(1), waitFor: 1 })).kind;
const end: End | null = pay.end;
const { mutationFn } = intentMutation(fw, { name: (cart: { id: string }) => cart.id, request: () => ({ url: "/" }) });
const data: Promise<{ end: End }> = mutationFn({ id: "1" });
if (new Error() instanceof Pending) console.log(kind, end, data);
// @ts-expect-error there is no default storage
client({});
// @ts-expect-error no such dialect
client({ storage, dialect: "paypal" });
// @ts-expect-error a request has an address
await fw.intent("a", { json: 1 });
// @ts-expect-error the state cannot be set
pay.state = "ended";
// @ts-expect-error other variables
mutationFn("1");
`;

/** What applications do with the adapters. Each of the marked lines must be an error, and nothing else. */
const ADAPTERS = `
import * as React from "react";
import { useMutation, type UseMutationResult } from "@tanstack/react-query";
import { client, FirstwriteError } from "firstwrite";
import { memory } from "firstwrite/memory";
import { makeUseIntent, type IntentView } from "firstwrite/react";
import { intentMutation, NotDone, type MutationData } from "firstwrite/tanstack";
const fw = client({ storage: memory() });
const useIntent = makeUseIntent(React, fw);
const options = intentMutation(fw, { name: (cart: string) => cart, request: (cart) => ({ url: "/", json: { cart } }) });
export function Pay({ cart }: { cart: string }) {
  const view: IntentView = useIntent(cart);
  const pay: UseMutationResult<MutationData, Error, string> = useMutation(options);
  const again = useMutation({ ...options, onSuccess: ({ intent }) => intent.acknowledge() });
  if (pay.error instanceof NotDone) return <p>{pay.error.end.kind}</p>;
  if (view.error instanceof FirstwriteError) return <p>{view.error.intent}</p>;
  // @ts-expect-error the variables are a string
  pay.mutate({ cart });
  return <button disabled={again.isPending} onClick={() => pay.mutate(cart)}>{view.state}</button>;
}
`;

withBed("the lines that the README begins with pay once", async (bed) => {
  const [lines = ""] = await blocks();
  assert.ok(lines.trim().split("\n").filter(Boolean).length <= 10);
  await bed.tell("faults", { seed: 3, "cut-after": 0.4 });
  const pay = async (code: string) => {
    const script = code.replaceAll("http://127.0.0.1:8080", bed.proxy);
    return (await run(process.execPath, ["--input-type=module", "-e", script], { cwd: installed })).stdout;
  };
  const unfinished = lines.replace("await pay.acknowledge();", "");
  assert.notEqual(unfinished, lines);
  for (const code of [unfinished, unfinished, lines]) assert.match(await pay(code), /^done \{\s*id: 'pay_/);
  assert.deepEqual(await bed.effects(), { cus_1: 1 });
});
