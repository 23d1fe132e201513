/** The model notices when the client is broken: each change of mutations.js within as many seeds as stated there. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { run } from "./model.js";
import { MUTATIONS } from "./mutations.js";

const SOURCE = readFileSync(new URL("../../pushup/browser/pushup.js", import.meta.url), "utf8");

for (const [what, from, to, seeds = 80] of MUTATIONS) {
  test(what, async () => {
    assert.equal(SOURCE.split(from).length, 2, "the source has this text once");
    const broken = SOURCE.replace(from, () => to);
    const { PushUp } = await import(`data:text/javascript;base64,${Buffer.from(broken).toString("base64")}`);
    for (let seed = 0; seed < seeds; seed++) {
      if ((await run(seed, PushUp)).problems.length) return;
    }
    assert.fail(`not noticed with ${seeds} seeds`);
  });
}
