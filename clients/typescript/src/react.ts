/** A hook for React. It imports nothing of React's: it is made from the hooks that it is given. */

import type { Client, Intent, Settled, State } from "./client.js";
import { Pending } from "./entry.js";
import type { RequestSpec } from "./entry.js";

/** The part of React that is used: `makeUseIntent(React, fw)`. */
export interface ReactHooks {
  useState<T>(initial: T): [T, (next: T) => void];
  useEffect(effect: () => (() => void) | undefined, dependencies: readonly unknown[]): void;
  useMemo<T>(make: () => T, dependencies: readonly unknown[]): T;
}

/** The view of a component: `loading` until the storage was read, `none` where nothing stands under the name. */
export interface IntentView {
  state: "loading" | "none" | State;
  end: Settled | null;
  /** The last error, such as `IntentConflict` or `StorageError`. */
  error: unknown;
  /** Opens the intent and sends it. */
  send(request: RequestSpec): Promise<void>;
  acknowledge(): Promise<void>;
  /** Sends an intent again that ended unknown. */
  resume(): Promise<void>;
  /** Sends another request under a new key, where the end says that this is safe. */
  supersede(request: RequestSpec): Promise<void>;
}

type Shown = Pick<IntentView, "state" | "end" | "error">;

/** Makes `useIntent(name)`. A component that is mounted goes on with an intent that has no end, as after a reload. */
export function makeUseIntent(react: ReactHooks, client: Client): (name: string) => IntentView {
  return function useIntent(name) {
    const [shown, show] = react.useState<Shown>({ state: "loading", end: null, error: null });
    const actions = react.useMemo(() => watch(client, name, show), [client, name]);
    react.useEffect(() => actions.mount(), [actions]);
    return { ...shown, ...actions };
  };
}

function watch(client: Client, name: string, show: (shown: Shown) => void) {
  let mounted = new AbortController();
  const say = (state: Shown["state"], end: Settled | null = null, error: unknown = null) => {
    if (!mounted.signal.aborted) show({ state, end, error });
  };

  /** Waits for the end for as long as the component is mounted. */
  const follow = async (intent: Intent): Promise<void> => {
    const { signal } = mounted;
    while (!intent.end) {
      say("sending");
      await intent.settled({ signal }).catch((error) => {
        if (!(error instanceof Pending)) throw error;
      });
    }
    say("ended", intent.end);
  };

  const guard = async (work: (intent: Intent | undefined) => Promise<void>): Promise<void> => {
    const { signal } = mounted;
    let intent: Intent | undefined;
    try {
      intent = await client.find(name);
      await work(intent);
    } catch (error) {
      if (!signal.aborted) say(intent?.state ?? "none", intent?.end ?? null, error);
    }
  };

  return {
    mount() {
      mounted = new AbortController();
      const here = mounted;
      void guard(async (intent) => (intent ? follow(intent) : say("none")));
      return () => here.abort();
    },
    send: (request: RequestSpec) => guard(async () => follow(await client.intent(name, request))),
    acknowledge: () => guard(async (intent) => (await intent?.acknowledge(), say("none"))),
    resume: () => guard(async (intent) => (await intent?.resume(), intent && follow(intent))),
    supersede: (request: RequestSpec) => guard(async (intent) => (await intent?.supersede(request), intent && follow(intent))),
  };
}
