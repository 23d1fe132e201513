/** Electric #3773: a page returns to its last position, and the server keeps sending it the same position. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { scene } from "../browser/support.js";

/** A page that has read one message, and is opened again with what it has stored. */
async function reopened(transport, faults) {
  const w = scene();
  const first = w.page({ transport });
  first.subscribe(["a"]);
  await w.run(1);
  w.publish("a", 1);
  await w.run(1);
  first.tab.close();
  w.network.faults = faults;
  w.before = w.network.log.length;
  return { w, page: w.page({ transport }, w.tab(first.tab.storage)).subscribe(["a"]) };
}

for (const transport of ["poll", "stream"])
  test(`${transport}: a page that returns to its last position is told that it is up to date`, async () => {
    const { w, page } = await reopened(transport, {});
    await w.run(2);
    assert.equal(page.sub.state.state, "live");
    await w.run(60);
    assert.equal(page.sub.state.state, "live");
    assert.ok(w.network.log.length - w.before <= 5, "it asks in a loop");
    w.publish("a", 2);
    await w.run(1);
    assert.deepEqual(page.messages, [2]);
  });

test("a page whose held polls are answered at once with its own position does not ask in a loop", async () => {
  const { w, page } = await reopened("poll", { loop: true });
  await w.run(2);
  assert.ok(page.states.includes("live"));
  await w.run(60);
  assert.ok(w.network.log.length - w.before < 60, "it asks in a loop");
  w.network.faults = {};
  w.publish("a", 2);
  await w.run(40);
  assert.deepEqual(page.messages, [2]);
  assert.equal(page.sub.state.state, "live");
});
