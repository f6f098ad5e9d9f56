/** Entries in memory: for tests, and for actions that need not survive the process. */

import type { Entry, Storage } from "./entry.js";

export function memory(): Storage {
  const entries = new Map<string, Entry>();
  const listeners = new Set<() => void>();
  const changed = () => listeners.forEach((listener) => listener());
  const stands = (name: string, rev: number | null) => (entries.get(name)?.rev ?? null) === rev;
  return {
    get: async (name) => structuredClone(entries.get(name)),
    async put(entry, rev) {
      if (!stands(entry.name, rev)) return false;
      entries.set(entry.name, structuredClone(entry));
      changed();
      return true;
    },
    async delete(name, rev) {
      if (!stands(name, rev)) return false;
      entries.delete(name);
      changed();
      return true;
    },
    list: async () => ({ entries: structuredClone([...entries.values()]), damaged: [] }),
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}
