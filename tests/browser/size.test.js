/** pushup.js is small: 12 KB, compressed and without its comments; what says what a page does wrong takes 1 KB of it. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

const read = (path) => readFileSync(new URL(`../../${path}`, import.meta.url), "utf8");

/** In bytes. */
const compressed = (text) => gzipSync(text, { level: 9 }).length;

/** The source without comments; it has none behind code in strings or regular expressions. */
function stripped(source) {
  return source
    .replace(/^\s*\/\*\*[^]*?\*\/\s*?\n/gm, "")
    .replace(/\/\*\*[^]*?\*\/ ?/g, "")
    .replace(/^\s*\/\/.*\n/gm, "")
    .replace(/ \/\/ .*$/gm, "")
    .replace(/^\s*\n/gm, "");
}

test("12 KB", async () => {
  const text = stripped(read("pushup/browser/pushup.js"));
  await import(`data:text/javascript;base64,${Buffer.from(text).toString("base64")}`); // it is still a program
  const size = compressed(text);
  assert.ok(size <= 12_288, `${size} bytes`);
});

test("the modules for answers have at most 200 lines each", () => {
  for (const name of ["answers", "ai-sdk", "ag-ui"]) {
    const lines = read(`pushup/browser/${name}.js`).split("\n").length - 1;
    assert.ok(lines <= 200, `${name}.js has ${lines}`);
  }
});

test("the guide says how large it is, as nodes serve it, and without comments", () => {
  const source = read("pushup/browser/pushup.js");
  const [, served, without] = /(\d+) KB gzipped, (\d+) KB without/.exec(read("docs/guide/browser.md").replace(/\s+/g, " "));
  const sizes = [source, stripped(source)].map((text) => Math.round(compressed(text) / 1024));
  assert.deepEqual([served, without].map(Number), sizes);
});
