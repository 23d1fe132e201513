/**
 * PushUpAgent in simulated time, with the real client of AG-UI: `node agent.js SUPPORT`, in a folder that has the packages.
 * SUPPORT is the path of support.js.
 */
import { PushUpAgent } from "@pushup-project/client/ag-ui";
import assert from "node:assert/strict";

const { scene } = await import(process.argv[2]);

const CHANNEL = "answer:42";
const question = { id: "q", role: "user", content: "?" };

/** A world with a writer and an agent; `events` are the types of those that a page gets. */
function world(initialMessages = [question]) {
  const w = scene();
  let number = 0;
  w.write = (...parts) => w.service.publish([CHANNEL], { piece: number++, parts }, "answer");
  w.end = (end, more = {}) => w.service.publish([CHANNEL], { piece: number++, parts: [], end, ...more }, "answer");
  w.asked = [];
  const fetch = async (url, { method }) => {
    w.asked.push(`${method} ${url}`);
    await new Promise((resolve) => w.clock.after(200, resolve));
    return new Response(JSON.stringify({ channel: CHANNEL }));
  };
  w.agent = new PushUpAgent({ pushup: w.page().push, url: "/agent", threadId: "c/1", fetch, initialMessages });
  w.events = [];
  w.agent.subscribe({ onEvent: ({ event }) => void w.events.push(event.type) });
  w.texts = () => w.agent.messages.filter(({ role }) => role === "assistant").map(({ content }) => content);
  return w;
}

const connections = {
  "once": [],
  "twice at once": [0],
  "while it is written": [3],
  "again and again": [0.1, 0.5, 2, 4, 6, 9],
  "after its end": [9],
};
for (const [when, times] of Object.entries(connections)) {
  for (const initial of [[question], [question, { id: CHANNEL, role: "assistant", content: "Hel" }]]) {
    const w = world(initial);
    for (const time of [0, ...times]) w.clock.at(time * 1000, () => void w.agent.connectAgent());
    w.write("Hel");
    await w.run(5);
    w.write("lo");
    w.write({ type: "CUSTOM", name: "x", value: 1 }, "again");
    w.end("done");
    await w.run(30);
    assert.deepEqual(w.texts(), ["Hello", "again"], when);
    const ends = w.events.filter((type) => type === "RUN_FINISHED").length;
    assert.equal(ends, 1 + times.filter((time) => time > 5).length, when); // whoever connects again takes over
    assert.equal(w.agent.messages[0].id, "q");
    assert.equal(w.held().length, 0);
  }
}

for (const [when, time] of Object.entries({ "before the application answers": 0.1, "before text": 1, "in text": 3 })) {
  const w = world();
  void w.agent.runAgent();
  await w.run(time < 2 ? time : 2);
  w.write("Hel");
  await w.run(time < 2 ? 0 : 1);
  w.agent.abortRun();
  await w.run(30);
  assert.deepEqual(w.texts(), time < 2 ? [] : ["Hel"], when);
  assert.deepEqual(w.asked, ["POST /agent", "POST /agent/c%2F1/stop"], when);
  assert.ok(!w.events.includes("RUN_ERROR"), when);
  assert.equal(w.held().length, 0);
}

{
  const w = world();
  const clone = w.agent.clone(); // as a framework makes one for each thread
  clone.threadId = "c/2";
  void clone.runAgent();
  w.write("Hello");
  w.end("done");
  await w.run(10);
  assert.deepEqual(clone.messages.map(({ content }) => content), ["?", "Hello"]);
  void clone.connectAgent();
  await w.run(1);
  clone.abortRun();
  await w.run(5);
  assert.deepEqual(w.asked, ["POST /agent", "GET /agent/c%2F2/stream", "POST /agent/c%2F2/stop"]);
}

for (const [end, last] of [["done", "RUN_FINISHED"], ["stopped", "RUN_FINISHED"], ["error", "RUN_ERROR"], ["", "RUN_ERROR"]]) {
  const w = world();
  void w.agent.runAgent();
  await w.run(2);
  if (end) w.end(end, { error: "busy" });
  await w.run(30);
  assert.deepEqual(w.events, ["RUN_STARTED", last], end);
  assert.deepEqual(w.texts(), []);
}
