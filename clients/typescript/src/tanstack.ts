/** Options of a TanStack Query mutation whose retries and restarts keep one key. It imports nothing of TanStack's. */

import type { Client, Intent, Settled } from "./client.js";
import { FirstwriteError } from "./entry.js";
import type { RequestSpec } from "./entry.js";

/** A mutation that succeeded: the end, and the intent, which the application acknowledges when it no longer needs it. */
export interface MutationData {
  end: Settled;
  intent: Intent;
}

/** The intent ended otherwise than done. `end.kind` says how. */
export class NotDone extends FirstwriteError {
  readonly end: Settled;
  readonly handle: Intent;
  constructor(end: Settled, handle: Intent) {
    super("NotDone", handle.name, `ended ${end.kind}`);
    this.end = end;
    this.handle = handle;
  }
}

export interface IntentMutation<Variables> {
  /** The name of what the person means to do once, such as `checkout/${cart}`. */
  name: (variables: Variables) => string;
  request: (variables: Variables) => RequestSpec;
  /** Milliseconds until the mutation fails with `Pending`; the client's `waitFor` by default. */
  waitFor?: number;
}

export interface IntentMutationOptions<Variables> {
  mutationFn: (variables: Variables) => Promise<MutationData>;
  /** The client retries, under one key; TanStack must not. */
  retry: false;
  /** The client waits for the network. */
  networkMode: "always";
}

/** `useMutation(intentMutation(fw, { name, request }))`. It rejects with `NotDone`, `Pending` or `IntentConflict`. */
export function intentMutation<Variables>(
  client: Client,
  { name, request, waitFor }: IntentMutation<Variables>,
): IntentMutationOptions<Variables> {
  return {
    retry: false,
    networkMode: "always",
    async mutationFn(variables) {
      const intent = await client.intent(name(variables), request(variables));
      const end = await intent.settled(waitFor === undefined ? {} : { waitFor });
      if (end.kind != "done") throw new NotDone(end, intent);
      return { end, intent };
    },
  };
}
