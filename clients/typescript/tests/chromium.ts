/** Drives a headless Chromium over its debugging pipe: JSON messages that end with a zero byte, on descriptors 3 and 4. */

import { spawn, type ChildProcess } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable, Writable } from "node:stream";

type Message = { id?: number; sessionId?: string; method?: string; params?: never; result?: never; error?: { message: string } };

const FLAGS = [
  "--headless=new",
  "--no-sandbox",
  "--no-first-run",
  "--disable-gpu",
  "--disable-dev-shm-usage",
  "--disable-background-networking",
  "--disable-breakpad",
  "--remote-debugging-pipe",
];

export class Chromium {
  readonly #child: ChildProcess;
  readonly #folder: string;
  readonly #calls = new Map<number, (message: Message) => void>();
  /** Events, by session and method. */
  readonly events = new EventEmitter();
  #last = 0;

  private constructor(child: ChildProcess, folder: string) {
    this.#child = child;
    this.#folder = folder;
    this.events.setMaxListeners(0);
    let rest: Buffer[] = [];
    (child.stdio[4] as Readable).on("data", (data: Buffer) => {
      for (let at = data.indexOf(0); at >= 0; at = data.indexOf(0)) {
        this.#receive(JSON.parse(Buffer.concat([...rest, data.subarray(0, at)]).toString()) as Message);
        rest = [];
        data = data.subarray(at + 1);
      }
      rest.push(data);
    });
    (child.stdio[3] as Writable).on("error", () => {});
  }

  /** Starts a browser with a profile of its own, or with the one of a browser that was killed. */
  static async start(program: string, profile?: string): Promise<Chromium> {
    const folder = profile ?? (await mkdtemp(join(tmpdir(), "firstwrite-chromium-")));
    const child = spawn(program, [...FLAGS, `--user-data-dir=${folder}`], {
      stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
      detached: true,
    });
    const chromium = new Chromium(child, folder);
    await chromium.call("Browser.getVersion");
    return chromium;
  }

  call<Result = Record<string, never>>(method: string, params: object = {}, sessionId?: string): Promise<Result> {
    const id = ++this.#last;
    return new Promise((done, fail) => {
      this.#calls.set(id, ({ error, result }) => {
        if (error) fail(new Error(`${method}: ${error.message}`));
        else done(result as Result);
      });
      (this.#child.stdio[3] as Writable).write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    });
  }

  #receive({ id, sessionId, method, params, error, result }: Message): void {
    if (id) {
      this.#calls.get(id)?.(error ? { error } : { result: result as never });
      this.#calls.delete(id);
    } else {
      this.events.emit(`${sessionId ?? ""} ${method}`, params);
    }
  }

  async page(url: string): Promise<Page> {
    const { targetId } = await this.call<{ targetId: string }>("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await this.call<{ sessionId: string }>("Target.attachToTarget", { targetId, flatten: true });
    const page = new Page(this, targetId, sessionId);
    await page.call("Page.enable");
    await page.call("Runtime.enable");
    await page.call("Inspector.enable");
    await page.goto(url);
    return page;
  }

  /** Ends the browser and all its processes at once, as a power cut does, and returns its profile. */
  async kill(): Promise<string> {
    const exit = once(this.#child, "exit");
    process.kill(-(this.#child.pid as number), "SIGKILL");
    await exit;
    return this.#folder;
  }

  async stop(): Promise<void> {
    await this.kill();
    await rm(this.#folder, { recursive: true, force: true, maxRetries: 20 });
  }
}

export class Page {
  readonly #chromium: Chromium;
  readonly #targetId: string;
  readonly #sessionId: string;
  constructor(chromium: Chromium, targetId: string, sessionId: string) {
    this.#chromium = chromium;
    this.#targetId = targetId;
    this.#sessionId = sessionId;
  }

  call<Result = Record<string, never>>(method: string, params: object = {}): Promise<Result> {
    return this.#chromium.call<Result>(method, params, this.#sessionId);
  }

  event(method: string): Promise<unknown> {
    return once(this.#chromium.events, `${this.#sessionId} ${method}`).then(([params]) => params as unknown);
  }

  /** Goes to an address, also after the page has crashed, and waits until its scripts have run. */
  async goto(url: string): Promise<void> {
    const loaded = this.event("Page.loadEventFired");
    await this.call("Page.navigate", { url });
    await loaded;
  }

  /** Loads the page again, as a person does while it is busy. */
  async reload(): Promise<void> {
    const loaded = this.event("Page.loadEventFired");
    await this.call("Page.reload");
    await loaded;
  }

  /** Evaluates an expression in the page and waits for what it promises. */
  async evaluate<Value>(expression: string): Promise<Value> {
    type Answer = { result: { value: Value }; exceptionDetails?: { text: string; exception?: { description?: string } } };
    const params = { expression, awaitPromise: true, returnByValue: true };
    const { result, exceptionDetails } = await this.call<Answer>("Runtime.evaluate", params);
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  /** Ends the page's process, whatever it is busy with. */
  async crash(): Promise<void> {
    const crashed = this.event("Inspector.targetCrashed");
    this.call("Page.crash").catch(() => {});
    await crashed;
  }

  async close(): Promise<void> {
    await this.#chromium.call("Target.closeTarget", { targetId: this.#targetId });
  }
}
