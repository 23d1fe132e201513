/** push.presence: a list of members that was true at some moment, whatever happens, and soon is again. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { scene } from "./support.js";

const ROOM = "room:1";
const member = (subject, data = null, since = 1) => ({ subject, since, data });
const [ANN, BOB, CEM] = ["ann", "bob", "cem"].map((subject) => member(subject));

/** A page that notes what it is told; `push` is one that there is. */
function present(w, given = {}, page = w.page(given)) {
  const told = [];
  const presence = page.push.presence(ROOM, {
    onChange: ({ joined, updated, left }) => void told.push([joined, updated, left].map((all) => all.map((m) => m.subject))),
  });
  return { page, presence, told, names: () => presence.members && [...presence.members.keys()] };
}

const paths = (w) => w.network.log.map(({ path }) => path);

test("a snapshot, and each change after it", async () => {
  const w = scene();
  w.service.change(ROOM, { joins: [ANN, BOB] });
  await w.run(1);
  const { presence, told, names } = present(w);
  assert.deepEqual([presence.members, presence.count], [null, undefined]);
  await w.run(1);
  assert.deepEqual([names(), presence.count, presence.state.state], [["ann", "bob"], 2, "live"]);
  assert.deepEqual(told, [[[], [], []]]); // nobody has joined now
  w.service.change(ROOM, { joins: [CEM] });
  w.service.change(ROOM, { updates: [member("ann", { name: "Ann" })] });
  w.service.change(ROOM, { leaves: ["bob"] });
  await w.run(1);
  assert.deepEqual([names(), presence.count, presence.members.get("ann").data], [["ann", "cem"], 2, { name: "Ann" }]);
  assert.deepEqual(told.slice(1), [[["cem"], [], []], [[], ["ann"], []], [[], [], ["bob"]]]);
  assert.deepEqual(paths(w), ["/v1/presence", "/v1/events"]);
});

test("a page that follows the channel, too, has one request, and gets the messages about members as any others", async () => {
  const w = scene();
  w.service.change(ROOM, { joins: [ANN] });
  await w.run(1);
  const page = w.page();
  const { messages } = page.subscribe([ROOM]);
  await w.run(1);
  const { names } = present(w, {}, page);
  await w.run(3);
  w.publish(ROOM, "hello");
  w.service.change(ROOM, { leaves: ["ann"] });
  await w.run(1);
  assert.deepEqual([names(), messages], [[], ["hello", { count: 0, leaves: ["ann"] }]]);
  assert.equal(w.held().length, 1);
});

test("the sample of the guide", async () => {
  const w = scene();
  const [, sample] = /```js\n(.*?)```/s.exec(readFileSync(new URL("../../docs/guide/presence.md", import.meta.url), "utf8"));
  const shown = [];
  new Function("push", "show", sample)(w.page().push, (names) => shown.push(names));
  await w.run(1);
  w.service.presenceLimit = 1;
  for (const name of ["Ann", "Bob"]) {
    w.service.change(ROOM, { joins: [member(name, { name })] });
    await w.run(1);
  }
  assert.deepEqual(shown, [[], ["Ann"], ["2 users"]]);
});

test("after a gap the members are asked for again, and the page is told what it has missed", async () => {
  const w = scene({ keep: 2 });
  w.service.change(ROOM, { joins: [ANN, BOB] });
  await w.run(1);
  const { presence, told, names } = present(w);
  await w.run(1);
  w.network.faults.outage = "refuse";
  w.network.reset();
  w.service.change(ROOM, { joins: [CEM] });
  w.service.change(ROOM, { leaves: ["bob"] });
  w.service.change(ROOM, { updates: [member("ann", 1)] });
  for (let n = 0; n < 3; n++) w.publish(ROOM, n);
  await w.run(5);
  w.network.faults = {};
  await w.run(40);
  assert.deepEqual([names(), presence.count, presence.state.state], [["ann", "cem"], 2, "live"]);
  assert.deepEqual(told.slice(1), [[["cem"], ["ann"], ["bob"]]]);
});

test("above the server's limit there is only the number, and below it the members again", async () => {
  const w = scene();
  w.service.presenceLimit = 2;
  w.service.change(ROOM, { joins: [ANN, BOB] });
  await w.run(1);
  const { presence, told, names } = present(w);
  await w.run(1);
  w.service.change(ROOM, { joins: [CEM] });
  await w.run(1);
  assert.deepEqual([names(), presence.count], [null, 3]);
  const late = present(w);
  await w.run(1);
  assert.deepEqual([late.names(), late.presence.count], [null, 3]);
  w.service.change(ROOM, { leaves: ["ann"] });
  await w.run(3);
  for (const each of [names, late.names]) assert.deepEqual(each(), ["bob", "cem"]);
  assert.equal(presence.count, 2);
  assert.deepEqual(told.slice(1), [[[], [], []], [[], [], []], [[], [], []]]);
});

test("a list that cannot be right is asked for again", async () => {
  const w = scene();
  w.service.change(ROOM, { joins: [ANN, BOB] });
  await w.run(1);
  const { presence, names } = present(w);
  await w.run(1);
  w.service.publish([ROOM], { count: 2, joins: [CEM] }, "presence");
  await w.run(1);
  assert.deepEqual([names(), presence.count], [["ann", "bob"], 2]);
});

/** A page that follows the channel already, and is ahead of its last message. */
async function following(w) {
  const page = w.page();
  page.subscribe([ROOM]);
  await w.run(1);
  w.publish("other", 1);
  await w.run(1);
  return page;
}

test("a page that has followed other channels for longer asks at once for what came after the snapshot", async () => {
  const w = scene();
  const page = await following(w);
  const before = w.network.log.length;
  present(w, {}, page);
  await w.run(0.5);
  assert.deepEqual(paths(w).slice(before), ["/v1/presence", "/v1/poll"]);
});

test("a page that has to ask for the members again is not live before it knows them", async (t) => {
  t.mock.method(console, "warn", () => {});
  const w = scene();
  const page = await following(w);
  const { presence } = present(w, {}, page);
  await w.run(1);
  assert.equal(presence.state.state, "live");
  const unblock = w.block((url) => url.includes("/v1/presence"));
  w.service.wipe();
  await w.run(10);
  assert.equal(presence.state.state, "offline");
  unblock();
  await w.run(35);
  assert.equal(presence.state.state, "live");
});

test("a channel without presence", async () => {
  const w = scene();
  const { push } = w.page();
  const presence = push.presence("other");
  await w.run(1);
  assert.deepEqual([presence.state.state, presence.state.reason.status], ["stopped", 404]);
  assert.equal(presence.state.reason.detail, "other has no presence");
});

test("while no question for members gets through, other subscriptions go on", async () => {
  const w = scene();
  w.block((url) => url.includes("/v1/presence"));
  const page = w.page();
  const { presence } = present(w, {}, page);
  w.publish("a", 1);
  await w.run(1);
  const { messages, sub } = page.subscribe(["a"], { cursor: "earliest" });
  await w.run(60);
  w.publish("a", 2);
  await w.run(1);
  assert.deepEqual([messages, sub.state.state, presence.state.state], [[1, 2], "live", "offline"]);
});

test("a token is sent with the question, and a new one if it is refused", async () => {
  const w = scene();
  w.service.tokens = new Set(["new"]);
  w.service.change(ROOM, { joins: [ANN] });
  await w.run(1);
  const tokens = ["old", "new"];
  const { names } = present(w, { token: async () => tokens.shift() });
  await w.run(3);
  assert.deepEqual(names(), ["ann"]);
  const asked = w.network.log.filter(({ path }) => path === "/v1/presence");
  assert.deepEqual(asked.map(({ method, headers }) => [method, headers.Authorization]), [["GET", "Bearer old"], ["GET", "Bearer new"]]);
});

test("a page that is hidden says so, once it is, if it shows who is there", async () => {
  const w = scene();
  const page = w.page();
  page.subscribe(["a"]);
  await w.run(1);
  page.tab.show(false);
  await w.run(1);
  page.tab.show(true);
  present(w, {}, page);
  await w.run(1);
  const before = w.network.log.length;
  assert.ok(w.network.log.every(({ asked }) => !asked?.hidden));
  page.tab.show(false);
  await w.run(1);
  assert.deepEqual(w.network.log.slice(before).map(({ path, asked }) => [path, asked.hidden]), [["/v1/events", true]]);
  page.tab.show(true);
  await w.run(1);
  assert.equal(w.network.log.length, before + 1);
  assert.equal(w.held().length, 1);
});

test("a page that is closed says so, and so does presence.close()", async () => {
  const w = scene();
  const { page, presence, told } = present(w, { token: "t" });
  page.push.presence("room:2");
  page.subscribe(["a"]);
  await w.run(1);
  page.tab.happen("pagehide");
  const said = () => w.network.beacons.splice(0).map(({ tab: _, ...beacon }) => beacon);
  assert.deepEqual(said(), [{ path: "/v1/presence", channels: [ROOM, "room:2"], token: "t" }]);
  page.tab.happen("pageshow");
  await w.run(1);
  presence.close();
  w.service.change(ROOM, { joins: [ANN] });
  await w.run(1);
  assert.deepEqual(said(), [{ path: "/v1/presence", channels: [ROOM], token: "t" }]);
  assert.deepEqual(told, [[[], [], []]]);
  page.tab.happen("pagehide");
  assert.deepEqual(said(), [{ path: "/v1/presence", channels: ["room:2"], token: "t" }]);
});

test("without presence a page that is closed says nothing", async () => {
  const w = scene();
  const page = w.page();
  page.subscribe(["a"]);
  await w.run(1);
  page.tab.happen("pagehide");
  assert.deepEqual(w.network.beacons, []);
});

test("an error of the page changes nothing", async () => {
  const w = scene();
  const page = w.page({ atLeastOnce: true });
  const presence = page.push.presence(ROOM, {
    onChange() {
      throw new Error("mine");
    },
  });
  await w.run(1);
  w.service.change(ROOM, { joins: [ANN] });
  await w.run(5);
  assert.deepEqual([presence.count, page.errors.length], [1, 2]);
});

test("a mistake throws a TypeError that says what to write", () => {
  const { push } = scene().page();
  assert.throws(() => push.presence([ROOM]), /presence is of one channel/);
  assert.throws(() => push.presence(ROOM, { onchange() {} }), /write onChange/);
  assert.throws(() => push.presence(ROOM, { onChange: 1 }), /must be a function/);
});

/** What was true: the members as text, and in which order. */
function history(w) {
  const states = w.service.messages.filter((message) => message.members).map(({ members }) => JSON.stringify(members.map(([, each]) => each)));
  return ["[]", ...states];
}

test("whatever fails: what a page shows was true, the later the later, and soon it is what is true now", async (t) => {
  t.mock.method(console, "warn", () => {});
  const faulty = ["refuse", "hang", "truncate", "502", "503"];
  for (let seed = 1; seed <= 24; seed++) {
    const w = scene({ seed, keep: 6, nodes: 3 });
    w.service.presenceLimit = 6;
    w.network.delay = () => w.dice.between(2, 200);
    const names = Array.from({ length: 8 }, (_, n) => `u${n}`);
    const there = new Set();
    let count = 0;
    const shown = [];
    const pages = [];
    const open = () => {
      const page = w.page(w.dice.chance(0.3) ? { transport: "poll" } : {});
      if (w.dice.chance(0.5)) page.subscribe([ROOM]);
      const seen = [];
      const presence = page.push.presence(ROOM, {
        onChange: () => void seen.push(presence.members && JSON.stringify([...presence.members.values()])),
      });
      shown.push(seen);
      pages.push({ page, presence });
    };
    open();
    for (let round = 0; round < 40; round++) {
      const subject = w.dice.pick(names);
      if (there.has(subject)) {
        if (w.dice.chance(0.5)) w.service.change(ROOM, { updates: [member(subject, ++count)] });
        else if (there.delete(subject)) w.service.change(ROOM, { leaves: [subject] });
      } else if (there.add(subject)) w.service.change(ROOM, { joins: [member(subject, ++count, count)] });
      if (w.dice.chance(0.1)) w.network.faults[w.dice.pick(faulty)] = 0.3;
      if (w.dice.chance(0.1)) w.network.faults = {};
      if (w.dice.chance(0.05)) w.network.reset();
      if (w.dice.chance(0.02)) w.service.wipe();
      if (pages.length < 3 && w.dice.chance(0.1)) open();
      await w.run(w.dice.chance(0.3) ? w.dice.between(0, 20) : w.dice.between(0, 0.3));
    }
    w.network.faults = {};
    await w.run(100);
    const states = history(w);
    for (const { presence } of pages) {
      const now = there.size > 6 ? null : states.at(-1);
      const { members, count } = presence;
      assert.deepEqual([members && JSON.stringify([...members.values()]), count], [now, there.size], `seed ${seed}`);
    }
    for (const seen of shown) {
      let at = 0;
      for (const state of seen) {
        if (state) at = states.indexOf(state, at);
        assert.ok(at >= 0, `seed ${seed}: ${state} was never true after that`);
      }
    }
  }
});
