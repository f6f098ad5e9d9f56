/**
 * Each row of the shared vectors is there for something: a small change of the rules turns it red.
 *
 * The rules' text is changed in one place at a time: an operator, a condition, a number, a word, an expression. A change
 * that turns most rows of a file red says nothing about any of them, and does not count; in a file with few rows, one
 * that turns all of them red.
 */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { rows, RUN, type Row, type Rules } from "./rows.js";

/** The rules that a file is about, as the text of a function that gives them. */
const SOURCES: Record<string, string[]> = {
  "ask.json": ["decide", "waiting"],
  "crash.json": ["waiting"],
  "decide.json": ["decide"],
  "expires.json": ["decide"],
  "key.json": ["request", "derived"],
  "left.json": ["waiting"],
  "life.json": ["waiting"],
  "shows.json": ["decide"],
  "wait.json": ["decide", "waiting"],
};
const MANY = 30;
const FEW = 3;

/** One text, in which names that several modules export and import are the same. */
const textOf = (modules: string[]) =>
  modules
    .map((name) => readFileSync(new URL(`../dist/${name}.js`, import.meta.url), "utf8"))
    .join("\n")
    .replace(/^import .*$/gm, "")
    .replace(/^export /gm, "");

function load(text: string): Rules {
  const names = [...text.matchAll(/^(?:async )?(?:function|const) (\w+)/gm)].map(([, name]) => name);
  return new Function(`"use strict";${text}\nreturn { ${names.join()} };`)() as Rules;
}

const TOKENS =
  /\/\*[^]*?\*\/|\/\/.*|"(?:\\.|[^"\\])*"|`(?:\\.|[^`\\])*`|(?<=[(,=:|&] ?)\/(?:\\.|\[(?:\\.|[^\]])*\]|[^/\\\n])+\/[gi]*|\b\d[\d_]*(?:\.\d+)?\b|\b(?:true|false|null|NaN|in|min|max)\b|=>|[=!]=|[<>]=?|&&|\|\||\?\?|\?\.|\*\*|[?+\-*/%|!]/g;

const SWAPS: Record<string, string[]> = {
  "==": ["!="],
  "!=": ["=="],
  "<": ["<=", ">"],
  "<=": ["<", ">"],
  ">": [">=", "<"],
  ">=": [">", "<"],
  "&&": ["||"],
  "||": ["&&"],
  "??": ["&&"],
  "+": ["-"],
  "-": ["+"],
  "*": ["/"],
  "/": ["*"],
  "!": [""],
  "?": ["&& false ?", "|| true ?"],
  true: ["false"],
  false: ["true"],
  null: ["true"],
  NaN: ["0"],
  in: ["!="],
  min: ["max"],
  max: ["min"],
};

/** Returns what may stand in the place of a token. */
function changesOf(token: string): string[] {
  if (token in SWAPS) return SWAPS[token] as string[];
  if (/^\d/.test(token)) {
    const value = Number(token.replaceAll("_", ""));
    return [`${value + 1}`, `(${value - 1})`];
  }
  if (token.startsWith('"')) {
    const words = token.slice(1, -1).split(" ");
    const without = words.map((_, at) => `"${words.filter((_, other) => other != at).join(" ")}"`);
    return words.length > 1 ? without : [`"x${token.slice(1)}`];
  }
  if (token.startsWith("`")) return ["`x" + token.slice(1)];
  // An expression that nothing fits, and one that everything does.
  if (/^\/[^/*]/.test(token)) return ["/(?!)/", "/(?:)/"];
  return [];
}

function* mutants(text: string): Generator<Rules> {
  for (const { 0: token, index } of text.matchAll(TOKENS)) {
    for (const change of changesOf(token)) {
      try {
        yield load(text.slice(0, index) + change + text.slice(index + token.length));
      } catch {
        // What is no program any more turns every row red.
      }
    }
  }
}

type Run = (typeof RUN)[string];

/** Runs a row; returns what the rules say, as text. */
async function said(run: Run, rules: Rules, row: Row): Promise<string> {
  try {
    return JSON.stringify((await run(rules, row))[0]) ?? "nothing";
  } catch (error) {
    return `failed: ${(error as Error).name}`;
  }
}

/** The rows that no change turns red. */
async function idle(file: string, run: Run): Promise<string[]> {
  const all = rows(file);
  const text = textOf(SOURCES[file] as string[]);
  const good: string[] = [];
  const whole = load(text);
  for (const row of all) good.push(await said(run, whole, row));
  const left = new Set(all.keys());
  const most = all.length >= MANY ? all.length / 2 : Math.max(FEW, all.length - 1);
  for (const rules of mutants(text)) {
    if (!left.size) break;
    const red: number[] = [];
    for (const [at, row] of all.entries()) if ((await said(run, rules, row)) != good[at]) red.push(at);
    if (red.length <= most) for (const at of red) left.delete(at);
  }
  return [...left].map((at) => all[at]?.name as string);
}

test("every file has rules to change", () => {
  assert.deepEqual(Object.keys(SOURCES).sort(), Object.keys(RUN).sort());
});

for (const [file, run] of Object.entries(RUN)) {
  test(`each row of ${file} is turned red by a small change of the rules`, async () => {
    assert.deepEqual(await idle(file, run), []);
  });
}
