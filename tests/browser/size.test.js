/** pushup.js is small: 11 KB, compressed and without its comments; what says what a page does wrong takes 1 KB of it. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

/** The source without comments; it has none behind code in strings or regular expressions. */
export function stripped(source) {
  return source
    .replace(/^\s*\/\*\*[^]*?\*\/\s*?\n/gm, "")
    .replace(/\/\*\*[^]*?\*\/ ?/g, "")
    .replace(/^\s*\/\/.*\n/gm, "")
    .replace(/ \/\/ .*$/gm, "")
    .replace(/^\s*\n/gm, "");
}

test("11 KB", async () => {
  const text = stripped(readFileSync(new URL("../../pushup/browser/pushup.js", import.meta.url), "utf8"));
  await import(`data:text/javascript;base64,${Buffer.from(text).toString("base64")}`); // it is still a program
  const size = gzipSync(text, { level: 9 }).length;
  assert.ok(size <= 11_264, `${size} bytes`);
});
