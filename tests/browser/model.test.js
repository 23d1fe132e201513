/**
 * The model with many seeds. `node --test` takes 150; for more, or for one seed again:
 *
 *     PUSHUP_SEEDS=0-5000 node --test tests/browser/model.test.js
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { PushUp } from "../../pushup/browser/pushup.js";
import { run } from "./model.js";

const [FIRST, LAST = FIRST] = (process.env.PUSHUP_SEEDS ?? "0-149").split("-").map(Number);

test(`seeds ${FIRST} to ${LAST}`, async () => {
  let delivered = 0;
  const wrong = [];
  for (let seed = FIRST; seed <= LAST; seed++) {
    const { problems, delivered: more } = await run(seed, PushUp);
    if (problems.length) wrong.push(`seed ${seed}: ${problems.slice(0, 3).join("; ")}`);
    delivered += more;
  }
  assert.deepEqual(wrong, []);
  assert.ok(delivered > 100 * (LAST - FIRST), "the model delivers next to nothing");
});
