/** What docs/guide/browser.md promises to a page, one behaviour each. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { PushUp } from "../../pushup/browser/pushup.js";
import { scene } from "./support.js";

const TEXT = readFileSync(new URL("../../docs/guide/browser.md", import.meta.url), "utf8");
const [FIRST, SECOND] = [...TEXT.matchAll(/```js\n(.*?)```/gs)].map(([, sample]) => sample);

test("the first sample follows two channels", async () => {
  const w = scene();
  const shown = [];
  class Here extends PushUp {
    constructor() {
      super({ environment: w.tab().environment() });
    }
  }
  const code = FIRST.replace('import { PushUp } from "/v1/pushup.js";', "");
  new Function("PushUp", "cursor", "show", code)(Here, undefined, (data) => shown.push(data));
  await w.run(1);
  w.publish("author:John", 1);
  w.publish("tag:c++", 2);
  w.publish("tag:java", 3);
  await w.run(1);
  assert.deepEqual(shown, [1, 2]);
});

test("the second sample runs", async () => {
  const w = scene();
  const { push } = w.page();
  new Function("push", "cursor", SECOND)(push, "earliest");
  await w.run(1);
  assert.deepEqual(w.held(), []);
});

// Starting, and what is sent.

test("the start is a real cursor: a connection that breaks before its first answer loses nothing", async () => {
  const w = scene();
  const { messages } = w.page().subscribe(["a"]);
  await w.run(0.015);
  w.network.faults.outage = "refuse";
  w.network.reset();
  await w.run(5);
  w.publish("a", 1, 2);
  w.network.faults = {};
  await w.run(30);
  assert.equal(w.network.log[0].asked.cursor, "now");
  assert.equal(w.network.log[0].asked.timeout, 0);
  assert.deepEqual(messages, []); // published before there was a cursor
  w.network.faults.outage = "refuse";
  w.network.reset();
  w.publish("a", 3);
  await w.run(5);
  w.network.faults = {};
  await w.run(30);
  assert.deepEqual(messages, [3]);
});

test("requests go by POST to constant addresses, without headers that need a preflight", async () => {
  const w = scene();
  const page = w.page({ transport: "poll" });
  page.subscribe(["a"]);
  await w.run(60);
  w.page().subscribe(["b"], { cursor: "earliest" });
  await w.run(60);
  for (const { path, method, headers } of w.network.log) {
    assert.ok(["/v1/poll", "/v1/events"].includes(path) && method === "POST");
    assert.deepEqual(headers, {});
  }
});

test("a cursor of the page goes before the stored one, which goes before the present", async () => {
  const w = scene();
  w.publish("a", 1, 2);
  await w.run(1);
  const first = w.page();
  first.subscribe(["a"], { cursor: w.service.cursor(1) });
  await w.run(1);
  first.tab.close();
  w.publish("a", 3);
  await w.run(1);
  const again = w.page({}, w.tab(first.tab.storage));
  const stored = again.subscribe(["a"]);
  const given = again.subscribe(["a"], { cursor: "earliest", name: "other" });
  const present = again.subscribe(["a"], { cursor: "now", name: "third" });
  await w.run(3);
  assert.deepEqual([stored.messages, given.messages, present.messages], [[3], [1, 2, 3], []]);
  again.tab.close();
  const both = w.page({}, w.tab(first.tab.storage)).subscribe(["a"], { cursor: w.service.cursor(1) });
  await w.run(3);
  assert.deepEqual(both.messages, [2, 3]);
});

test("a page without storage starts at the present", async () => {
  const w = scene();
  const tab = w.tab();
  tab.storageFails = true;
  const { messages } = w.page({}, tab).subscribe(["a"]);
  await w.run(1);
  w.publish("a", 1);
  await w.run(1);
  assert.deepEqual(messages, [1]);
});

test("a stored cursor that the server refuses is forgotten, so that the next reload works", async () => {
  const w = scene();
  const tab = w.tab();
  const first = w.page({}, tab);
  first.subscribe(["a"]);
  await w.run(1);
  for (const key of tab.storage.keys()) tab.storage.set(key, "nonsense");
  tab.close();
  const second = w.page({}, w.tab(tab.storage));
  const broken = second.subscribe(["a"]);
  await w.run(5);
  assert.equal(broken.sub.state.state, "stopped");
  second.tab.close();
  const third = w.page({}, w.tab(tab.storage)).subscribe(["a"]);
  await w.run(5);
  assert.equal(third.sub.state.state, "live");
});

// One request.

test("subscriptions of a page share one request, and each gets its own messages", async () => {
  const w = scene();
  const page = w.page();
  const one = page.subscribe(["a", "b"]);
  const two = page.subscribe(["b", "c"]);
  await w.run(2);
  w.publish("a", 1);
  w.publish(["b", "d"], 2);
  w.publish("c", 3);
  await w.run(2);
  assert.deepEqual(
    [one.messages, two.messages],
    [
      [1, 2],
      [2, 3],
    ],
  );
  assert.equal(w.held().length, 1);
  assert.deepEqual(w.held()[0].asked.channels, ["a", "b", "c"]);
});

test("a late subscription with an older cursor gets its past, and the others nothing twice", async () => {
  const w = scene({ limit: 2 });
  const page = w.page();
  const one = page.subscribe(["a"], { cursor: "earliest" });
  w.publish("a", 1, 2, 3, 4, 5);
  await w.run(2);
  const two = page.subscribe(["a", "b"], { cursor: w.service.cursor(1) });
  await w.run(20);
  w.publish(["a", "b"], 6);
  await w.run(2);
  assert.deepEqual(
    [one.messages, two.messages],
    [
      [1, 2, 3, 4, 5, 6],
      [2, 3, 4, 5, 6],
    ],
  );
  assert.equal(two.sub.state.state, "live");
});

test("message.channels has only the subscription's", async () => {
  const w = scene();
  const seen = [];
  const page = w.page();
  page.subscribe(["b"]);
  page.subscribe(["a"], { onMessage: (message) => seen.push(message.channels) });
  await w.run(1);
  w.publish(["a", "b"], 1);
  await w.run(1);
  assert.deepEqual(seen, [["a"]]);
});

test("channels can be added and removed", async () => {
  const w = scene();
  const { sub, messages } = w.page().subscribe(["a"]);
  await w.run(1);
  sub.add("b");
  await w.run(1);
  w.publish("a", 1);
  w.publish("b", 2);
  await w.run(1);
  sub.remove("a");
  await w.run(1);
  w.publish("a", 3);
  w.publish("b", 4);
  await w.run(1);
  sub.close();
  await w.run(1);
  w.publish("b", 5);
  await w.run(1);
  assert.deepEqual(messages, [1, 2, 4]);
  assert.deepEqual(w.held(), []);
});

test("a channel that a handler removes brings nothing more, also of the same answer", async () => {
  const w = scene();
  w.publish("a", 1);
  w.publish("b", 2);
  w.publish(["a", "b"], 3);
  await w.run(1);
  const seen = [];
  const { sub } = w.page({ transport: "poll" }).subscribe(["a", "b"], {
    cursor: w.service.cursor(0),
    onMessage({ data, channels }) {
      seen.push([data, channels]);
      sub.remove("b");
    },
  });
  await w.run(1);
  assert.deepEqual(seen, [[1, ["a"]], [3, ["a"]]]);
});

test("a message whose handler removes the last channel does not come again when the channel is added again", async () => {
  const w = scene();
  const seen = [];
  const { sub } = w.page().subscribe(["a"], {
    onMessage({ data }) {
      seen.push(data);
      sub.remove("a");
    },
  });
  await w.run(1);
  w.publish("a", 1);
  await w.run(1);
  sub.add("a");
  await w.run(1);
  w.publish("a", 2);
  await w.run(1);
  assert.deepEqual(seen, [1, 2]);
});

test("a message that is not handled yet comes again though its channel was removed meanwhile", async (t) => {
  t.mock.method(console, "error", () => {});
  const w = scene();
  const handled = [];
  let works = false;
  const { sub } = w.page().subscribe(["a"], {
    atLeastOnce: true,
    async onMessage({ data }) {
      if (!works) throw new Error("not now");
      handled.push(data);
    },
  });
  await w.run(1);
  w.publish("a", 1);
  await w.run(1);
  sub.remove("a");
  await w.run(60);
  works = true;
  sub.add("a");
  await w.run(1);
  assert.deepEqual(handled, [1]);
});

test("a channel that a handler adds counts from there on if the shared request has it", async () => {
  const w = scene();
  w.publish("b", 1);
  w.publish("a", 2);
  w.publish("b", 3);
  await w.run(1);
  const page = w.page({ transport: "poll" });
  page.subscribe(["b"], { cursor: w.service.cursor(0) });
  const messages = [];
  const { sub } = page.subscribe(["a"], {
    cursor: w.service.cursor(0),
    onMessage({ data }) {
      messages.push(data);
      sub.add("b");
    },
  });
  await w.run(3);
  w.publish("b", 4);
  await w.run(1);
  assert.deepEqual([messages, sub.state.state], [[2, 3, 4], "live"]);
});

test("a handler that subscribes to another channel from its subscription's cursor misses nothing of it", async () => {
  const w = scene();
  w.publish("a", 1);
  w.publish("b", 2);
  await w.run(1);
  const page = w.page({ transport: "poll" });
  const messages = [];
  const { sub } = page.subscribe(["a"], {
    cursor: w.service.cursor(0),
    onMessage() {
      page.subscribe(["b"], { cursor: sub.cursor ?? "earliest", onMessage: ({ data }) => messages.push(data) });
    },
  });
  await w.run(3);
  w.publish("b", 3);
  await w.run(1);
  assert.deepEqual(messages, [2, 3]);
});

test("tabs share one request, and lose nothing when the leader is closed", async () => {
  const w = scene();
  const pages = Array.from({ length: 8 }, () => w.page());
  const got = pages.map((page, index) => page.subscribe([`c${index}`, "all"]));
  await w.run(30);
  assert.equal(w.held().length, 1);
  assert.equal(w.held()[0].asked.channels.length, 9);
  for (let round = 0; round < 8; round++) {
    w.publish("all", round);
    await w.run(0.005);
    w.held()[0]?.tab.close();
    await w.run(1);
  }
  await w.run(5);
  pages.forEach(({ tab }, index) => tab.gone || assert.deepEqual(got[index].messages, [0, 1, 2, 3, 4, 5, 6, 7]));
});

test("a frozen leader is replaced within ten seconds", async () => {
  const w = scene();
  w.page().subscribe(["a"]);
  await w.run(1);
  const { messages, sub } = w.page().subscribe(["a"]);
  await w.run(10);
  const [{ tab }] = w.held();
  tab.freeze();
  w.publish("a", 1);
  await w.run(10);
  w.publish("a", 2);
  await w.run(1);
  assert.deepEqual(messages, [1, 2]);
  assert.equal(sub.state.state, "live");
  tab.thaw();
  await w.run(1);
  assert.equal(w.held().length, 1);
  assert.notEqual(w.held()[0].tab, tab);
});

test("of many tabs that hear nothing, one greets the leader, not each", async () => {
  const w = scene();
  const pages = Array.from({ length: 8 }, () => w.page());
  for (const page of pages) page.subscribe(["a"]);
  await w.run(20);
  let greetings = 0;
  for (const channel of [...w.browser.channels.values()].flatMap((all) => [...all])) {
    const { postMessage } = channel;
    channel.postMessage = (data) => ((greetings += data.type === "hello"), postMessage.call(channel, data));
  }
  await w.run(50);
  assert.ok(greetings > 10 && greetings < 60, String(greetings)); // 7 tabs, each every 3 s, would be 117
});

test("tabs of different users, servers or credentials share nothing, nor do those with a token and no user, or only one with a token", async () => {
  for (const [one, two, requests] of [
    [{ user: "mei" }, { user: "tom" }, 2],
    [{ user: "mei" }, { user: "mei" }, 1],
    [{ url: "http://server/" }, { url: "http://server" }, 1],
    [{ url: "http://one" }, { url: "http://two" }, 2],
    [{ credentials: "include" }, {}, 2],
    [{ token: () => "t" }, { token: () => "t" }, 2],
    [{ token: () => "t", user: "mei" }, { token: () => "t", user: "mei" }, 1],
    [{ token: () => "t", user: "mei" }, { user: "mei" }, 2],
    [{ share: false }, {}, 2],
  ]) {
    const w = scene();
    w.page(one).subscribe(["a"]);
    w.page(two).subscribe(["a"]);
    await w.run(20);
    assert.equal(w.held().length, requests, JSON.stringify([one, two]));
  }
});

test("a browser that refuses the page a BroadcastChannel, as Firefox does with cookies blocked", async () => {
  const w = scene();
  const tab = w.tab();
  const environment = {
    ...tab.environment(),
    BroadcastChannel: class {
      constructor() {
        throw new DOMException("The operation is insecure.", "SecurityError");
      }
    },
  };
  const { messages, sub } = w.page({ environment }, tab).subscribe(["a"]);
  await w.run(1);
  w.publish("a", 1);
  await w.run(1);
  assert.deepEqual([messages, sub.state.state], [[1], "live"]);
});

test("more channels than one request may have: those that do not fit are asked for every 30 s", async () => {
  const w = scene();
  const one = w.page({ channelLimit: 3 }).subscribe(["a", "b"]);
  const two = w.page({ channelLimit: 3 }).subscribe(["c", "d"]);
  await w.run(20);
  for (let round = 0; round < 6; round++) {
    w.publish("a", round);
    w.publish("c", round);
    await w.run(20);
  }
  await w.run(40);
  assert.deepEqual(
    [one.messages, two.messages],
    [
      [0, 1, 2, 3, 4, 5],
      [0, 1, 2, 3, 4, 5],
    ],
  );
  assert.ok(w.network.log.every(({ asked }) => !asked || asked.channels.length <= 3));
});

test("one subscription that is refused does not stop the others, in its tab and in other tabs", async () => {
  const w = scene();
  w.service.forbidden.add("secret");
  const page = w.page();
  const fine = page.subscribe(["a"]);
  await w.run(1);
  const refused = page.subscribe(["b", "secret"]);
  const other = w.page();
  const also = other.subscribe(["c", "secret"]);
  const good = other.subscribe(["c"]);
  await w.run(30);
  w.publish("a", 1);
  w.publish("c", 2);
  await w.run(1);
  assert.deepEqual([fine.messages, good.messages], [[1], [2]]);
  for (const { sub } of [refused, also]) {
    assert.equal(sub.state.state, "stopped");
    assert.equal(sub.state.reason.status, 403);
  }
  refused.sub.remove("secret");
  await w.run(10);
  assert.equal(refused.sub.state.state, "live");
  assert.equal(w.held().length, 1);
});

test("a permission that is revoked stops the subscriptions that need it, in all tabs, and no others", async () => {
  const w = scene();
  const pages = [w.page(), w.page()];
  const fine = pages.map((page) => page.subscribe(["a"], { cursor: w.service.cursor(0) }));
  const refused = pages.map((page) => page.subscribe(["a", "b"], { cursor: w.service.cursor(0) }));
  await w.run(10);
  assert.equal(w.network.log.filter(({ asked }) => asked.timeout === 0).length, 0); // nobody had to catch up
  w.service.forbidden.add("b");
  const before = w.network.log.length;
  w.network.reset();
  await w.run(60);
  // The shared request once, and then each subscription for itself.
  assert.equal(w.network.log.slice(before).filter(({ asked }) => asked.channels.includes("b")).length, 3);
  w.publish("a", 1);
  await w.run(5);
  for (const { sub } of refused) assert.equal(sub.state.reason?.status, 403);
  for (const { sub, messages } of fine) assert.deepEqual([sub.state.state, messages], ["live", [1]]);
  assert.equal(w.held().length, 1);
});

test("channels that are refused together, and not alone, are asked for more and more rarely", async () => {
  const w = scene();
  w.network.delay = () => w.dice.between(5, 10);
  const { refusal } = w.service;
  w.service.refusal = function (body, ...given) {
    const isMixed = ["user:7", "team:3"].every((channel) => body?.channels.includes(channel));
    return isMixed ? { status: 400, type: "urn:pushup:bad-request" } : refusal.call(this, body, ...given);
  };
  const page = w.page();
  const all = ["user:7", "news", "sport", "team:3"].map((channel) => page.subscribe([channel]));
  await w.run(60);
  const { length } = w.network.log;
  w.publish("news", 1);
  await w.run(600);
  assert.ok(w.network.log.length < 3 * length, `${w.network.log.length} after ${length}`);
  assert.deepEqual(all.map(({ messages }) => messages), [[], [1], [], []]);
});

test("subscriptions that are refused, however many, do not stop the others", async () => {
  const w = scene();
  const page = w.page();
  const cursor = w.service.cursor(0);
  const fine = page.subscribe(["a"], { cursor });
  for (let number = 0; number < 10; number++) {
    w.service.forbidden.add(`secret ${number}`);
    const { sub } = page.subscribe([`secret ${number}`], { cursor });
    await w.run(2);
    assert.equal(sub.state.reason?.status, 403);
  }
  await w.run(60);
  assert.equal(fine.sub.state.state, "live");
  assert.ok(!fine.states.includes("offline"), String(fine.states));
});

test("nor do those that are refused in other tabs", async () => {
  const w = scene();
  const cursor = w.service.cursor(0);
  const fine = w.page().subscribe(["a"], { cursor });
  await w.run(10);
  for (let number = 0; number < 10; number++) {
    w.service.forbidden.add(`secret ${number}`);
    const other = w.page();
    const { sub } = other.subscribe([`secret ${number}`], { cursor });
    await w.run(2);
    assert.equal(sub.state.reason?.status, 403);
    other.tab.close();
  }
  await w.run(60);
  assert.equal(fine.sub.state.state, "live");
});

// Transports.

test("a channel that does not exist is no reason to do without streams", async () => {
  const w = scene();
  const { refusal } = w.service;
  w.service.refusal = function (body, ...given) {
    const isGone = body?.channels.includes("17");
    return isGone ? { status: 404, type: "urn:pushup:unknown-channel" } : refusal.call(this, body, ...given);
  };
  const page = w.page();
  const { sub } = page.subscribe(["17"]);
  await w.run(10);
  assert.deepEqual([sub.state.state, sub.state.reason?.status], ["stopped", 404]);
  page.subscribe(["a"]);
  await w.run(10);
  assert.equal(w.held()[0].path, "/v1/events");
});

test("no first byte of a stream in 3 s: long polls, for 30 minutes, also after a reload", async () => {
  const w = scene();
  w.network.faults.buffering = true;
  const page = w.page();
  const { messages, sub } = page.subscribe(["a"]);
  await w.run(4);
  assert.equal(sub.state.state, "live");
  w.publish("a", 1);
  await w.run(1);
  assert.deepEqual(messages, [1]);
  page.tab.close();
  const again = w.page({}, w.tab(page.tab.storage));
  again.subscribe(["a"]);
  await w.run(28 * 60);
  const streams = () => w.network.log.filter(({ path }) => path === "/v1/events").length;
  assert.equal(streams(), 1);
  w.network.faults = {};
  await w.run(3 * 60);
  assert.equal(streams(), 2);
  assert.equal(w.held()[0].path, "/v1/events");
});

test("streams to which no connection can be made are replaced by polls for a minute: it may be a restart", async () => {
  const w = scene();
  w.network.faults.refuseStreams = true;
  const { sub } = w.page().subscribe(["a"]);
  await w.run(10);
  assert.equal(sub.state.state, "live");
  assert.equal(w.held()[0].path, "/v1/poll");
  w.network.faults = {};
  await w.run(100);
  assert.equal(w.held()[0].path, "/v1/events");
});

test("a page whose polls give way to a stream is never offline", async () => {
  const w = scene();
  w.network.faults.refuseStreams = true;
  const { push, tab, subscribe } = w.page();
  const { sub, states } = subscribe(["a"]);
  await w.run(10);
  w.network.faults = {};
  await w.run((push.pollUntil - tab.wall()) / 1000 - 2);
  states.length = 0;
  sub.add("b"); // another poll begins, and a moment later streams may be used again
  await w.run(3);
  w.publish("a", 1);
  await w.run(1);
  assert.equal(w.held()[0].path, "/v1/events");
  assert.ok(!states.includes("offline"), String(states));
});

test("a connection that dies after it has been fine, or is thought to, is not blamed on streams", async () => {
  const w = scene();
  const { tab, subscribe } = w.page();
  const { sub } = subscribe(["a"]);
  await w.run(60);
  w.network.silence();
  await w.run(31);
  assert.deepEqual([sub.state.state, w.held()[0].path], ["live", "/v1/events"]);
  await w.run(60);
  tab.happen("offline");
  await w.run(10);
  assert.deepEqual([sub.state.state, w.held()[0].path], ["live", "/v1/events"]);
});

test("an outage is not blamed on streams", async () => {
  const w = scene();
  w.network.faults.outage = "hang";
  w.page().subscribe(["a"], { cursor: "earliest" });
  await w.run(60);
  w.network.faults = {};
  await w.run(60);
  assert.equal(w.held()[0].path, "/v1/events");
});

test("a stream that ends early three times in a row is replaced by polls", async () => {
  const w = scene();
  w.network.faults.cutAfter = 1000;
  const { sub } = w.page().subscribe(["a"]);
  await w.run(20);
  assert.equal(w.held()[0].path, "/v1/poll");
  assert.equal(w.network.log.filter(({ path }) => path === "/v1/events").length, 3);
  assert.equal(sub.state.state, "live");
});

test("a stream that is cut off every 20 s goes on, and the page is never offline", async () => {
  const w = scene();
  w.network.faults.cutAfter = 20_000;
  const { messages, states } = w.page().subscribe(["a"]);
  await w.run(1);
  for (let count = 0; count < 300; count++) {
    w.publish("a", count);
    await w.run(1);
  }
  assert.deepEqual(messages, [...Array(300).keys()]);
  assert.ok(!states.includes("offline"));
  assert.equal(w.held()[0].path, "/v1/events");
});

test("a server without streams is polled", async () => {
  const w = scene();
  w.network.faults.noStreams = true;
  const { sub } = w.page().subscribe(["a"]);
  await w.run(1);
  assert.equal(sub.state.state, "live");
});

// Failing.

test("Retry-After is the least pause, in seconds or as a date", async () => {
  for (const fate of ["429", "503"]) {
    const w = scene();
    w.page().subscribe(["a"], { cursor: "earliest" });
    await w.run(1);
    w.network.faults[fate] = 1;
    w.network.reset();
    await w.run(600);
    const times = w.network.log.slice(2).map(({ at }) => at);
    const gaps = times.slice(1).map((at, index) => at - times[index]);
    assert.ok(gaps.length > 5);
    assert.ok(Math.min(...gaps) >= 1000, String(gaps));
    assert.ok(Math.max(...gaps) <= 35_000);
  }
});

test("Retry-After counts also for a page that was asleep meanwhile, or had nothing to ask for", async () => {
  for (const leave of [
    ({ tab }) => (tab.happen("pagehide"), () => tab.happen("pageshow")),
    ({ subscribe, sub }) => (sub.close(), () => subscribe(["b"], { cursor: "now" })),
  ]) {
    const w = scene();
    w.network.faults["503"] = 1;
    const page = w.page({ transport: "poll" });
    page.sub = page.subscribe(["a"], { cursor: "now" }).sub;
    await w.run(0.1);
    const comeBack = leave(page);
    await w.run(0.1);
    comeBack();
    await w.run(1.5);
    assert.equal(w.network.log.length, 1, String(leave));
    w.network.faults = {};
    await w.run(3);
    assert.equal(w.held().length, 1);
  }
});

test("pauses grow to 30 s, and are random", async () => {
  const w = scene();
  w.network.faults.outage = "refuse";
  const { sub } = w.page().subscribe(["a"]);
  await w.run(900);
  const { state, failures, since, next } = sub.state;
  assert.equal(state, "offline");
  assert.ok(failures > 15 && failures < 80, String(failures));
  assert.ok(since <= w.network.log[0].at + 1_795_000_000_000);
  assert.ok(next === null || next - 1_795_000_000_000 > w.clock.now);
  w.network.faults = {};
  w.page({}, w.tab()); // not this one
  await w.run(31);
  assert.equal(sub.state.state, "live");
});

test("a connection that is silently dead is noticed: a stream within 30 s, a poll within 40 s", async () => {
  for (const [transport, limit] of [
    ["stream", 31],
    ["poll", 41],
  ]) {
    const w = scene();
    const { sub } = w.page({ transport }).subscribe(["a"]);
    await w.run(10);
    w.network.faults.outage = "hang";
    w.network.silence();
    await w.run(limit);
    assert.equal(sub.state.state, "offline", transport);
  }
});

test("offline: the connection has 5 s to show that it lives", async () => {
  const w = scene();
  const { tab, subscribe } = w.page();
  const { sub } = subscribe(["a"]);
  await w.run(1);
  w.network.faults.outage = "refuse";
  w.network.silence();
  tab.happen("offline");
  await w.run(6);
  assert.equal(sub.state.state, "offline");
  w.network.faults = {};
  await w.run(60 - 6);
  tab.happen("online");
  await w.run(0.2);
  assert.equal(sub.state.state, "live");
});

test("sleep is noticed by the clocks, and the page is current at once", async () => {
  for (const stands of [true, false]) {
    const w = scene();
    const { tab, subscribe } = w.page();
    const { sub, messages } = subscribe(["a"]);
    await w.run(10);
    tab.freeze(); // as all of the machine
    w.network.silence();
    w.publish("a", 1);
    await w.run(600);
    if (stands) w.browser.asleep += 600_000;
    tab.thaw();
    await w.run(0.2);
    assert.deepEqual(messages, [1]);
    assert.equal(sub.state.state, "live");
  }
});

test("sleep is noticed although no deadline has passed", async () => {
  const w = scene();
  const { tab, subscribe } = w.page();
  const { messages } = subscribe(["a"]);
  await w.run(10);
  tab.freeze();
  w.network.silence();
  w.publish("a", 1);
  await w.run(15);
  w.browser.asleep += 15_000;
  tab.thaw();
  await w.run(0.2);
  assert.deepEqual(messages, [1]);
});

test("time in which there was no subscription is no sleep: a request is not repeated for it", async () => {
  const w = scene();
  const { subscribe } = w.page();
  await w.run(180);
  subscribe(["a"]);
  await w.run(20);
  assert.deepEqual(w.network.log.map(({ path }) => path), ["/v1/poll", "/v1/events"]);
});

test("what is due is done although messages keep coming while the timer is late, as in a hidden page", async (t) => {
  t.mock.method(console, "warn", () => {});
  const w = scene();
  const { tab, subscribe } = w.page();
  subscribe(["a"]);
  await w.run(1);
  let failures = 3;
  w.block((url) => url.endsWith("/v1/poll") && failures-- > 0);
  tab.show(false);
  const { sub } = subscribe(["b"]);
  for (let number = 0; number < 300; number++) {
    w.publish("a", number);
    await w.run(0.05);
  }
  assert.equal(sub.state.state, "live");
});

test("what is due is done in time, wherever it falls between two readings of the clock", async () => {
  for (let number = 0; number < 40; number++) {
    const w = scene();
    const tab = w.tab();
    const environment = tab.environment();
    const { mono, setTimeout } = environment;
    let readings = 0;
    environment.mono = () => mono() + readings++ * (0.1 + number / 100);
    environment.setTimeout = (call, time) => setTimeout(call, Math.floor(time)); // as of a browser whose timers are early
    w.network.faults.buffering = true;
    w.page({ environment }, tab).subscribe(["a"], { cursor: w.service.cursor(0) });
    await w.run(10);
    const [stream, poll] = w.network.log;
    assert.deepEqual([stream.path, poll?.path], ["/v1/events", "/v1/poll"]);
    assert.ok(poll.at - stream.at < 3100, `${number}: ${poll.at - stream.at}`);
  }
});

test("a server that answers held polls at once is not asked in a loop", async () => {
  const w = scene();
  const page = w.page({ transport: "poll" });
  page.subscribe(["a"]);
  await w.run(1);
  w.network.faults.loop = true;
  await w.run(120);
  assert.ok(w.network.log.length < 90, String(w.network.log.length));
  assert.ok(page.push.report().some(({ detail }) => detail === "loop"));
});

test("after failures, a subscription that catches up is not called offline", async () => {
  const w = scene({ limit: 1 });
  w.network.faults.outage = "refuse";
  const page = w.page();
  const { sub } = page.subscribe(["a"]);
  await w.run(20);
  w.network.faults = {};
  page.tab.happen("online");
  await w.run(1);
  assert.equal(sub.state.state, "live");
  w.publish("b", 1, 2, 3, 4, 5, 6, 7, 8);
  await w.run(1);
  const late = page.subscribe(["b"], { cursor: "earliest" });
  await w.run(5);
  assert.ok(!late.states.includes("offline"), String(late.states));
  assert.deepEqual(late.messages, [1, 2, 3, 4, 5, 6, 7, 8]);
});

test("failures of a request that is no longer needed are forgotten", async (t) => {
  t.mock.method(console, "warn", () => {});
  const w = scene();
  const page = w.page();
  let done;
  const onMessage = () => new Promise((resolve) => (done = resolve));
  const { states } = page.subscribe(["a"], { atLeastOnce: true, onMessage });
  await w.run(1);
  const unblock = w.block((url) => url.endsWith("/v1/poll"));
  const { sub } = page.subscribe(["b"]);
  await w.run(5);
  assert.equal(sub.state.state, "offline");
  sub.close();
  unblock();
  await w.run(1);
  states.length = 0;
  w.publish("a", 1);
  await w.run(1);
  done();
  await w.run(1);
  assert.deepEqual(states, ["catching-up", "live"]);
});

test("an outage that was over a minute ago is no reason to say offline when channels are added", async () => {
  const w = scene();
  const { subscribe } = w.page();
  const { sub, states } = subscribe(["a"], { cursor: w.service.cursor(0) });
  await w.run(5);
  w.network.faults.outage = "refuse";
  w.network.reset();
  await w.run(5);
  w.network.faults = {};
  await w.run(60);
  assert.ok(states.includes("offline"));
  states.length = 0;
  sub.add("b");
  await w.run(5);
  assert.ok(!states.includes("offline"), String(states));
});

// The page.

test("pagehide releases the lock and the channel, and pageshow takes them again", async () => {
  const w = scene();
  const { tab, subscribe } = w.page();
  const { messages } = subscribe(["a"]);
  await w.run(1);
  const [lock] = w.browser.locks.values();
  const [channels] = w.browser.channels.values();
  assert.ok(lock.holder && channels.size === 1);
  tab.happen("pagehide");
  await w.run(0);
  assert.deepEqual([lock.holder, channels.size, w.held().length], [null, 0, 0]);
  w.publish("a", 1);
  await w.run(60);
  tab.happen("pageshow");
  await w.run(1);
  assert.deepEqual(messages, [1]);
  assert.ok(lock.holder);
});

test("freeze and resume: the same, from the same cursor", async () => {
  const w = scene();
  const { tab, subscribe } = w.page();
  const { messages, sub } = subscribe(["a"]);
  await w.run(1);
  tab.happen("freeze");
  tab.freeze();
  w.publish("a", 1);
  await w.run(60);
  assert.deepEqual([messages, w.held().length], [[], 0]);
  tab.thaw();
  tab.happen("resume");
  await w.run(1);
  assert.deepEqual([messages, sub.state.state], [[1], "live"]);
});

test("a hidden page continues or pauses, as it is told", async () => {
  for (const [hidden, seen] of [
    ["continue", [1]],
    ["pause", []],
  ]) {
    const w = scene();
    const { tab, subscribe } = w.page({ hidden });
    const { messages } = subscribe(["a"]);
    await w.run(1);
    tab.show(false);
    w.publish("a", 1);
    await w.run(60);
    assert.deepEqual(messages, seen, hidden);
    tab.show(true);
    await w.run(1);
    assert.deepEqual(messages, [1]);
  }
});

test("a paused page that is offline is told that once", async (t) => {
  t.mock.method(console, "warn", () => {});
  const w = scene();
  w.network.faults.outage = "refuse";
  const { tab, subscribe } = w.page({ hidden: "pause" });
  const { sub, states } = subscribe(["a"], { cursor: w.service.cursor(0) });
  await w.run(10);
  tab.show(false);
  await w.run(1);
  states.length = 0;
  await w.run(60);
  assert.deepEqual([sub.state.state, states], ["offline", []]);
});

test("a tab that comes back is not live before it has heard from the one that leads", async () => {
  const w = scene();
  const leader = w.page();
  leader.subscribe(["a"]);
  await w.run(1);
  const { tab, subscribe } = w.page({ hidden: "pause" });
  const { messages, states } = subscribe(["a"]);
  await w.run(3);
  tab.show(false);
  await w.run(1);
  leader.tab.freeze();
  w.publish("a", 1);
  await w.run(60);
  states.length = 0;
  tab.show(true);
  await w.run(0.5);
  assert.deepEqual(states, []); // it was called catching-up already
  await w.run(10);
  assert.deepEqual([states, messages], [["live"], [1]]);
});

test("a tab that comes back is up to date at once, however often it has come back before", async () => {
  const w = scene();
  w.page().subscribe(["a", "b"]);
  await w.run(1);
  const { tab, subscribe } = w.page({ hidden: "pause" });
  const { messages, sub } = subscribe(["a"]);
  const beAway = async (channel, data) => {
    await w.run(20);
    tab.show(false);
    w.publish(channel, data);
    await w.run(20);
    tab.show(true);
  };
  for (let number = 0; number < 6; number++) await beAway("b", number);
  await beAway("a", 1);
  await w.run(1);
  assert.deepEqual([messages, sub.state.state], [[1], "live"]);
});

test("what comes while an answer without it is under way is soon there, and the page is not live before", async () => {
  const w = scene();
  w.dice.between = (low) => low; // the node does not lag
  const page = w.page();
  page.subscribe(["a"], { cursor: w.service.cursor(0) });
  await w.run(1);
  w.publish("other", 1); // where the subscription then is, the shared request never was
  await w.run(1);
  const delays = [10, 500];
  w.network.delay = () => delays.shift() ?? 10;
  const { sub, messages } = page.subscribe(["a"], { cursor: "earliest" });
  await w.run(0.02);
  w.publish("a", 2);
  await w.run(0.6);
  assert.deepEqual([messages, sub.state.state], [[], "catching-up"]);
  await w.run(0.3);
  assert.deepEqual([messages, sub.state.state], [[2], "live"]);
});

test("so is what comes while a handler is busy with an answer", async () => {
  const w = scene();
  w.publish("a", 1);
  await w.run(1);
  const page = w.page();
  page.subscribe(["a"], { cursor: w.service.cursor(1) });
  w.publish("other", 2);
  await w.run(1);
  const handled = [];
  const { sub } = page.subscribe(["a"], {
    cursor: "earliest",
    atLeastOnce: true,
    async onMessage({ data }) {
      handled.push(data);
      if (data === 1) await new Promise((resolve) => w.clock.after(600, resolve));
    },
  });
  await w.run(0.1);
  w.publish("a", 3);
  await w.run(0.6);
  assert.deepEqual([handled, sub.state.state], [[1, 3], "live"]);
});

/** A subscription in a tab that follows, which has asked for itself so often that it does so next in a minute. */
async function quiet(options) {
  const w = scene(options);
  const leader = w.page();
  leader.subscribe(["a"]);
  const publish = () => {
    w.publish("other", 0); // so that no two answers have the same cursor
    w.clock.after(200, publish);
  };
  publish();
  await w.run(1);
  const { sub, messages, gaps } = w.page().subscribe(["q"]);
  await w.run(190);
  assert.equal(sub.state.state, "live");
  const isThere = (...expected) => assert.deepEqual([messages, sub.state.state], [expected, "live"]);
  return { w, leader, sub, gaps, isThere };
}

test("a quiet subscription asks for itself at once when the shared request was refused for another", async () => {
  const { w, leader, isThere } = await quiet();
  w.service.forbidden.add("secret");
  leader.subscribe(["secret"], { cursor: w.service.cursor(0) });
  await w.run(1);
  w.publish("q", 1);
  await w.run(1);
  isThere(1);
});

test("and when it was stopped, and is asked for with other channels", async () => {
  const { w, leader, sub, isThere } = await quiet();
  w.service.forbidden.add("q");
  leader.tab.close();
  await w.run(1);
  assert.equal(sub.state.state, "stopped");
  w.service.forbidden.delete("q");
  sub.add("b");
  await w.run(1);
  w.publish("b", 1);
  await w.run(1);
  isThere(1);
});

test("and when it gets a channel of which the shared request has left behind what counts", async () => {
  const { w, sub, isThere } = await quiet();
  w.publish("b", 1);
  await w.run(40);
  sub.add("b");
  await w.run(1);
  isThere(1);
});

test("and soon again when a message has come that the node that answers does not have yet", async () => {
  const { w, isThere } = await quiet({ nodes: 2 });
  const { nodes } = w.service;
  w.dice.between = (low) => low;
  w.dice.pick = ([...list]) => list.find((each) => each.stalledUntil) ?? list[0];
  nodes.find((node) => !node.waiting.size).stalledUntil = w.clock.now + 1000;
  w.publish("q", 1);
  await w.run(3);
  isThere(1);
});

test("and soon when there is a gap, so that the page hears of it even if no message comes", async () => {
  const { w, gaps } = await quiet();
  w.service.wipe();
  await w.run(20);
  assert.deepEqual(gaps.map(({ reason }) => reason), ["lost"]);
});

test("what came before the shared request began, while an answer was under way, is soon there", async () => {
  const w = scene();
  w.dice.between = (low) => low; // the node does not lag
  const delays = [10, 10, 500];
  w.network.delay = () => delays.shift() ?? 10;
  w.publish("other", 0);
  await w.run(1);
  const page = w.page();
  const { messages, sub } = page.subscribe(["b"]);
  page.subscribe(["a"], { cursor: w.service.cursor(0) }); // where the shared request begins, without b
  await w.run(0.1);
  w.publish("b", 1);
  w.publish("a", 2);
  await w.run(0.55);
  assert.deepEqual([messages, sub.state.state], [[], "catching-up"]);
  await w.run(0.3);
  assert.deepEqual([messages, sub.state.state], [[1], "live"]);
});

// Handlers.

test("an exception in a handler affects no other message, and is reported", async () => {
  const w = scene();
  const page = w.page();
  const seen = [];
  const fails = page.subscribe(["a"], {
    onMessage(message) {
      seen.push(message.data);
      if (message.data === 1) throw new Error("one");
      return Promise.reject(new Error("two"));
    },
    onState() {
      throw new Error("three");
    },
  });
  const fine = page.subscribe(["a"]);
  await w.run(1);
  w.publish("a", 1, 2);
  await w.run(1);
  assert.deepEqual(
    [seen, fine.messages],
    [
      [1, 2],
      [1, 2],
    ],
  );
  assert.deepEqual(new Set(page.errors.map(({ message }) => message)), new Set(["one", "two", "three"]));
  assert.equal(fails.sub.state.state, "live");
});

test("atLeastOnce: a message is tried until its promise resolves, and comes again after a reload", async () => {
  const w = scene();
  const page = w.page({ atLeastOnce: true });
  const tries = [];
  let works = false;
  const onMessage = async ({ data }) => {
    tries.push(data);
    if (!works) throw new Error("not yet");
  };
  const { sub } = page.subscribe(["a"], { onMessage });
  await w.run(1);
  const { cursor } = sub;
  w.publish("a", 1, 2);
  await w.run(3);
  assert.ok(tries.length > 2 && tries.every((data) => data === 1));
  assert.equal(sub.cursor, cursor);
  page.tab.close();
  works = true;
  tries.length = 0;
  w.page({ atLeastOnce: true }, w.tab(page.tab.storage)).subscribe(["a"], { onMessage });
  await w.run(2);
  assert.deepEqual(tries, [1, 2]);
});

test("a page that has not handled all that it caught up with is not live", async () => {
  const w = scene();
  w.publish("a", 1);
  await w.run(1);
  const page = w.page();
  page.subscribe(["a"]);
  await w.run(1);
  let done;
  const onMessage = () => new Promise((resolve) => (done = resolve));
  const { sub } = page.subscribe(["a"], { cursor: w.service.cursor(0), atLeastOnce: true, onMessage });
  await w.run(5);
  assert.equal(sub.state.state, "catching-up");
  done();
  await w.run(1);
  assert.equal(sub.state.state, "live");
});

test("a gap handler returns a cursor, and the subscription continues there; others are not held up", async () => {
  const w = scene({ keep: 2 });
  const page = w.page({ transport: "poll" });
  let load;
  const seen = [];
  const slow = page.subscribe(["a"], {
    onMessage: ({ data }) => seen.push(data),
    onGap: () => new Promise((resolve) => (load = resolve)),
  });
  const other = page.subscribe(["b"]);
  await w.run(1);
  page.tab.freeze();
  w.network.reset();
  w.publish("a", 1, 2, 3, 4);
  await w.run(1);
  page.tab.thaw();
  await w.run(3);
  w.publish("a", 5);
  w.publish("b", 6);
  await w.run(3);
  assert.deepEqual([seen, other.messages, slow.sub.state.state], [[], [6], "catching-up"]);
  load(w.service.cursor(4)); // the application has read 1 to 4
  await w.run(3);
  assert.deepEqual([seen, slow.sub.state.state], [[5], "live"]);
});

test("a gap handler that fails is called again", async () => {
  const w = scene({ keep: 1 });
  const page = w.page();
  w.publish("a", 1, 2);
  await w.run(1);
  let calls = 0;
  const { messages } = page.subscribe(["a"], {
    cursor: w.service.cursor(0),
    onGap() {
      if (++calls < 3) throw new Error("no network");
    },
  });
  await w.run(5);
  assert.deepEqual([calls, messages, page.errors.length], [3, [2], 2]);
});

test("a gap handler that returns the same cursor again leads nowhere: messages go on after the gap", async () => {
  for (const transport of ["stream", "poll"]) {
    const w = scene({ keep: 1 });
    w.publish("a", 1, 2);
    await w.run(1);
    const cursor = w.service.cursor(0); // of the page, and of no state that was loaded after the gap
    let calls = 0;
    const onGap = () => (++calls < 20 ? cursor : undefined);
    const { messages } = w.page({ transport }).subscribe(["a"], { cursor, onGap });
    await w.run(5);
    assert.deepEqual([calls, messages], [2, [2]]);
  }
});

test("what is refused while onGap runs is not shown, and comes once if it is asked for again", async () => {
  const w = scene({ keep: 1 });
  w.publish("a", 1, 2);
  await w.run(1);
  let load;
  const { sub, messages } = w.page({ transport: "poll" }).subscribe(["a", "b"], {
    cursor: w.service.cursor(0),
    onGap: () => new Promise((resolve) => (load = resolve)),
  });
  await w.run(1);
  w.service.forbidden.add("b");
  w.network.reset();
  await w.run(3);
  load();
  await w.run(1);
  assert.deepEqual([messages, sub.state.state], [[], "stopped"]);
  sub.remove("b");
  await w.run(1);
  load();
  await w.run(1);
  assert.deepEqual([messages, sub.state.state], [[2], "live"]);
});

test("a gap that the shared request told before a subscription joined it is told to that, too", async () => {
  const w = scene({ keep: 2, limit: 2 });
  w.publish("a", 1, 2);
  w.publish("b", 3, 4);
  w.publish("a", 5, 6, 7); // of a, 6 and 7 are kept
  await w.run(1);
  const page = w.page({ transport: "poll" });
  const first = page.subscribe(["a", "b"], { cursor: w.service.cursor(0) });
  await w.run(1);
  // Where the shared request was between two answers.
  const second = page.subscribe(["a"], { cursor: w.service.cursor(4) });
  await w.run(5);
  assert.deepEqual(
    [first.messages, second.messages],
    [
      [3, 4, 6, 7],
      [6, 7],
    ],
  );
  assert.deepEqual(second.gaps, [{ channel: "a", reason: "evicted", until: w.service.cursor(5) }]);
});

test("nor is a gap or a closing lost to it if the same stream told that another channel was closed", async () => {
  const w = scene({ keep: 2 });
  w.publish("a", 1);
  w.publish("b", 2);
  w.service.close("a");
  w.publish("b", 4, 5); // of b, these are kept
  await w.run(1);
  const page = w.page({ transport: "stream" });
  page.subscribe(["a", "b"], { cursor: w.service.cursor(0) });
  await w.run(1);
  const closed = [];
  const [one, other] = ["a", "b"].map((channel) =>
    page.subscribe([channel], { cursor: w.service.cursor(1), onClosed: (each) => closed.push(each) }),
  );
  await w.run(5);
  assert.deepEqual([one.gaps, one.messages, closed], [[], [], ["a"]]);
  const gap = { channel: "b", reason: "evicted", until: w.service.cursor(2) };
  assert.deepEqual([other.gaps, other.messages], [[gap], [4, 5]]);
});

for (const cursor of [0, "earliest"]) {
  test(`a tab that joins within an answer misses nothing silently, when another began at ${cursor}`, async () => {
    const w = scene({ keep: 1 });
    w.service.publish(["b", "c"], 1);
    w.publish("c", 2, 3); // of c, 3 is kept, and 1 on b only
    await w.run(1);
    const start = cursor === 0 ? w.service.cursor(0) : cursor;
    const page = w.page();
    const first = page.subscribe(["b", "c"], { cursor: start });
    await w.run(1);
    const others = [1, 2].map((at) => page.subscribe(["b", "c"], { cursor: w.service.cursor(at) }));
    await w.run(1);
    w.publish("c", 4);
    await w.run(5);
    assert.deepEqual([first, ...others].map(({ messages }) => messages), [[1, 3, 4], [3, 4], [3, 4]]);
    const gap = { channel: "c", reason: "evicted", until: w.service.cursor(2) };
    assert.deepEqual([first, ...others].map(({ gaps }) => gaps), [cursor === 0 ? [gap] : [], [gap], []]);
  });
}

for (const options of [{ transport: "poll" }, { transport: "stream" }, { transport: "poll", atLeastOnce: true }]) {
  test(`what is published after a closing comes after it, ${JSON.stringify(options)}`, async () => {
    const w = scene();
    const told = [];
    const page = w.page(options);
    const onMessage = ({ data }) => void told.push(data);
    page.subscribe(["a", "b"], { onMessage, onClosed: (channel) => told.push(channel) });
    await w.run(1);
    w.network.faults.outage = "refuse";
    w.network.reset();
    w.service.close("a");
    w.publish("a", 1, 2);
    w.network.faults = {};
    await w.run(30);
    assert.deepEqual(told, ["a", 1, 2]);
  });
}

test("a subscription that asks for itself is told of a closing once, and not again by the shared request", async () => {
  const w = scene();
  const page = w.page({ transport: "poll" });
  page.subscribe(["a", "b"]);
  await w.run(1);
  w.publish("other", 1);
  await w.run(1);
  const told = [];
  page.subscribe(["b"], { onMessage: ({ data }) => void told.push(data), onClosed: (channel) => told.push(channel) });
  await w.run(10);
  w.network.faults.outage = "refuse";
  w.network.reset();
  w.service.close("b");
  w.publish("b", 2);
  w.network.faults = {};
  for (let at = 0; at < 5000; at += 5) w.clock.after(at, () => w.publish("other", at)); // no two answers end at one cursor
  await w.run(30);
  w.publish("b", 3);
  await w.run(5);
  assert.deepEqual(told, ["b", 2, 3]);
});

test("a closing whose handler removes the last channel is not told again when the channel is added again", async () => {
  const w = scene();
  const told = [];
  const onClosed = (channel) => {
    told.push(channel);
    sub.remove(channel);
  };
  const onMessage = ({ data }) => void told.push(data);
  const { sub } = w.page().subscribe(["a"], { atLeastOnce: true, onMessage, onClosed });
  await w.run(1);
  w.service.close("a");
  await w.run(1);
  sub.add("a");
  await w.run(5);
  w.publish("a", 1);
  await w.run(5);
  assert.deepEqual(told, ["a", 1]);
});

test("a gap without a handler is an error", async () => {
  const w = scene({ keep: 1 });
  const page = w.page();
  w.publish("a", 1, 2);
  await w.run(1);
  const { messages } = page.subscribe(["a"], { cursor: w.service.cursor(0), onGap: undefined });
  await w.run(1);
  assert.deepEqual(messages, [2]);
  assert.match(String(page.errors), /messages on a were missed \(evicted\)/);
});

// Credentials.

test("a token is asked for once, sent with each request, and once more after a 401", async () => {
  const w = scene();
  w.service.tokens = new Set(["t1"]);
  let asked = 0;
  const page = w.page({ token: async () => `t${++asked}` });
  const { messages, sub, states } = page.subscribe(["a"]);
  page.subscribe(["b"]);
  await w.run(10);
  assert.equal(asked, 1);
  w.service.tokens = new Set(["t2"]);
  w.network.reset();
  await w.run(5);
  w.publish("a", 1);
  await w.run(1);
  assert.deepEqual([asked, messages, sub.state.state], [2, [1], "live"]);
  assert.deepEqual(states, ["live", "catching-up", "live"]);
  assert.ok(!JSON.stringify(page.push.report()).includes("t1"));
});

test("a token that is always refused is asked for five times", async () => {
  const w = scene();
  w.service.tokens = new Set();
  let asked = 0;
  const { sub } = w.page({ token: () => `t${++asked}` }).subscribe(["a"]);
  await w.run(120);
  assert.equal(sub.state.state, "stopped");
  assert.equal(asked, 6);
});

test("a ticket is sent along; one that has expired is no failure: the request is repeated without it", async () => {
  for (const transport of ["stream", "poll"]) {
    const w = scene();
    const refused = [];
    const { sub, messages, states } = w
      .page({ transport, onRefused: (problem) => void refused.push(problem) })
      .subscribe(["a"]);
    for (let number = 1; number <= 5; number++) {
      w.service.ticket = `ticket ${number}`;
      w.network.reset();
      await w.run(10);
      w.publish("a", number);
      await w.run(1);
      w.network.reset();
      await w.run(20);
      assert.equal(w.held()[0].headers["PushUp-Ticket"], w.service.ticket);
    }
    assert.deepEqual([sub.state.state, messages, refused], ["live", [1, 2, 3, 4, 5], []]);
    assert.ok(!states.includes("offline"), states);
    assert.equal(w.held()[0].path, transport === "stream" ? "/v1/events" : "/v1/poll");
  }
});

test("onRefused decides whether to go on, five times in a row at most", async () => {
  const w = scene();
  w.service.forbidden.add("a");
  const asked = [];
  const { sub, states } = w.page({ onRefused: async (problem) => asked.push(problem.status) > 0 }).subscribe(["a"]);
  await w.run(120);
  assert.equal(states.at(-1), "stopped");
  assert.deepEqual(asked, [403, 403, 403, 403, 403]);
  assert.equal(sub.state.state, "stopped");
});

// What was seen.

/** The polls that say what was seen: from which cursor, of which channels, and when, in seconds. */
const said = (w, from) =>
  w.network.log
    .filter(({ asked }) => asked?.limit === 1)
    .map(({ asked, at }) => [asked.cursor, asked.channels, Math.round((at - from) / 1000)]);

test("by a stream, a page says what it has seen when it is asked: once a second at most, with its token", async () => {
  const w = scene();
  const page = w.page({ token: () => "the token" });
  const { messages } = page.subscribe(["b", "a"]);
  await w.run(5);
  w.publish("a", 1);
  await w.run(1);
  assert.deepEqual(said(w, 0), []);
  const from = w.clock.now;
  for (const data of [2, 3, 4]) {
    w.service.unread.add(w.publish(["a", "c"], data)[0]);
    await w.run(0.4);
  }
  await w.run(3);
  assert.deepEqual(said(w, from), [[w.service.cursor(2), ["a", "b"], 0], [w.service.cursor(4), ["a", "b"], 1]]);
  assert.deepEqual([messages, w.service.unread.size], [[1, 2, 3, 4], 0]);
  const [poll] = w.network.log.filter(({ asked }) => asked?.limit === 1);
  assert.deepEqual([poll.asked.timeout, poll.asked.token], [0, "the token"]);
  assert.equal(page.push.own.state, "idle");
});

test("a failure is repeated, and a refusal is not: the server asks again with the next heartbeat", async () => {
  const w = scene();
  const { messages, states } = w.page().subscribe(["a"]);
  await w.run(5);
  w.network.faults["503"] = 1;
  w.service.unread.add(w.publish("a", 1)[0]);
  await w.run(1);
  w.network.faults = {};
  await w.run(4);
  assert.equal(w.service.unread.size, 0);
  const before = said(w, 0).length;
  w.service.forbidden.add("a");
  w.service.unread.add(w.publish("a", 2)[0]);
  await w.run(4);
  assert.equal(said(w, 0).length, before + 1);
  w.service.forbidden.delete("a");
  await w.run(15);
  assert.equal(w.service.unread.size, 0);
  assert.deepEqual([messages, states.at(-1)], [[1, 2], "live"]);
});

test("what a handler has not finished is not seen, with atLeastOnce; other subscriptions do not wait for it", async () => {
  const w = scene();
  const page = w.page();
  const handled = [];
  page.subscribe(["a"], { atLeastOnce: true, onMessage: () => new Promise((done) => handled.push(done)) });
  page.subscribe(["b"]);
  await w.run(5);
  const [of_a] = w.publish("a", 1);
  const [of_b] = w.publish("b", 1);
  w.service.unread.add(of_a).add(of_b);
  await w.run(3);
  assert.deepEqual([...w.service.unread], [of_a]);
  handled[0]();
  await w.run(2);
  assert.equal(w.service.unread.size, 0);
});

test("what was seen is said while another subscription's own requests fail, and before that one has a cursor", async (t) => {
  t.mock.method(console, "warn", () => {});
  const w = scene();
  w.block((url) => url.includes("/v1/presence"));
  const page = w.page();
  page.push.presence("room:1");
  const { messages } = page.subscribe(["room:1"]);
  await w.run(5);
  w.service.unread.add(w.publish("room:1", 1)[0]);
  await w.run(14);
  assert.deepEqual([messages, w.service.unread.size], [[1], 0]);
});

test("what is said does not hasten requests that fail", async (t) => {
  t.mock.method(console, "warn", () => {});
  const w = scene();
  let asked = 0;
  w.block((url) => url.includes("/v1/presence") && ++asked);
  const page = w.page();
  page.push.presence("room:1");
  page.subscribe(["room:1"]);
  await w.run(5);
  for (let number = 0; number < 30; number++) {
    w.service.unread.add(w.publish("room:1", number)[0]);
    await w.run(2);
  }
  assert.ok(asked < 15, `${asked} times in 65 s`);
  await w.run(35); // a say waits as long as the others
  assert.equal(w.service.unread.size, 0);
});

test("what a subscription catches up with after the server has asked is said, too", async () => {
  const w = scene();
  w.dice.between = (low) => low; // the node does not lag
  const page = w.page();
  const other = page.subscribe(["a"]);
  await w.run(5);
  w.publish("c", 0); // the shared request does not tell of it
  await w.run(0.1);
  const { messages } = page.subscribe(["b"]);
  await w.run(0.05);
  other.sub.close();
  await w.run(0.05);
  w.service.unread.add(w.publish("b", 1)[0]);
  await w.run(3);
  assert.deepEqual([messages, w.service.unread.size], [[1], 0]);
});

test("each tab says what it has seen: what a frozen one has not is not seen, though another leads", async () => {
  const w = scene();
  const [leader, other] = [w.page(), w.page()];
  leader.subscribe(["a"]);
  await w.run(2);
  other.subscribe(["b"]);
  await w.run(5);
  other.tab.freeze();
  w.service.unread.add(w.publish("b", 1)[0]);
  await w.run(40);
  assert.equal(w.service.unread.size, 1);
  other.tab.thaw();
  await w.run(16);
  assert.equal(w.service.unread.size, 0);
});

test('with hidden: "pause", what comes while the page is hidden is not seen before it is shown', async () => {
  for (const transport of ["stream", "poll"]) {
    const w = scene();
    const { tab, ...page } = w.page({ hidden: "pause", transport });
    const { messages } = page.subscribe(["a"]);
    await w.run(5);
    tab.show(false);
    w.service.unread.add(w.publish("a", 1)[0]);
    await w.run(60);
    assert.equal(w.service.unread.size, 1);
    tab.show(true);
    await w.run(2);
    assert.deepEqual([messages, w.service.unread.size], [[1], 0]);
  }
});

test("report returns the last 200 events", async () => {
  const w = scene();
  w.network.faults.outage = "refuse";
  const { push, subscribe } = w.page();
  subscribe(["a"]);
  await w.run(5000);
  assert.equal(push.report().length, 200);
  assert.deepEqual(
    Object.keys(push.report()[0]),
    ["at", "part", "state", "event", "detail"].slice(0, Object.keys(push.report()[0]).length),
  );
});

// Mistakes, and why a page is offline.

test("a mistake in what the page passes throws a TypeError that says what to write", () => {
  const environment = scene().tab().environment();
  const make = (options) => () => new PushUp({ environment, ...options });
  const push = make({ transport: undefined, credentials: undefined, onMessage: undefined })();
  const mistakes = [
    [() => push.subscribe("news"), /such as \["news"\]/],
    [() => push.subscribe(), /such as \["news"\]/],
    [() => push.subscribe({ channels: ["news"] }), /such as \["news"\]/],
    [() => push.subscribe(["news"], (message) => message), /\{onMessage: show\}/],
    [() => push.subscribe(["news"], null), /\{onMessage: show\}/],
    [() => push.subscribe(["news"], { onmessage() {} }), /there is no option onmessage; write onMessage$/],
    [() => push.subscribe(["news"], { onMessage: "show" }), /onMessage must be a function/],
    [() => push.subscribe(["news"], { url: "http://server" }), /no option url; write one of .*cursor, name$/],
    [make({ transport: "sse" }), /transport must be one of auto, stream, poll/],
    [make({ credentials: true }), /credentials must be one of omit, same-origin, include/],
    [make({ hidden: 100 }), /hidden must be one of continue, pause/],
    [make({ onstate() {} }), /write onState$/],
    [() => new PushUp("http://server"), /options are an object/],
    [() => new PushUp(() => 1), /options are an object/],
  ];
  for (const [call, text] of mistakes) assert.throws(call, { name: "TypeError", message: text }, String(call));
});

test("outside of a page, a client that is given a url is made, and does nothing", () => {
  assert.throws(() => new PushUp(), { name: "TypeError", message: /give the url/ });
  assert.equal(new PushUp({ url: "http://server" }).report().length, 0);
});

test("a subscription may have any name, also one that the client has for itself", async () => {
  const w = scene();
  w.network.faults.buffering = true; // that streams do not get through is stored, as "transport"
  const first = w.page();
  const before = first.subscribe(["a"], { name: "transport" });
  await w.run(10);
  first.tab.close();
  w.publish("a", 1);
  const again = w.page({}, w.tab(first.tab.storage));
  const after = again.subscribe(["a"], { name: "transport" });
  await w.run(10);
  assert.deepEqual([before.messages, after.messages, after.sub.state.state], [[], [1], "live"]);
  assert.equal(w.network.log.filter(({ path }) => path === "/v1/events").length, 1);
});

test("the console says once why the page is offline", async (t) => {
  const cases = [
    ["http://page", "http://server", "refuse", /http:\/\/server cannot be reached.*http:\/\/page in its cors_origins, .*Policy/],
    ["https://page", "http://server", "refuse", /keep https pages from http/],
    ["http://server", "http://server", "refuse", /cannot be reached; does it run\?$/],
    ["http://page", "http://server", "503", /^PushUp: http:\/\/server answers 503: too many polls are held$/],
  ];
  for (const [origin, url, outage, text] of cases) {
    const warn = t.mock.method(console, "warn", () => {});
    const w = scene();
    w.network.faults.outage = outage;
    const push = new PushUp({ environment: { ...w.tab().environment(), origin, url } });
    const sub = push.subscribe(["a"]);
    await w.run(100);
    assert.equal(sub.state.state, "offline");
    assert.equal(sub.state.reason?.status, outage === "503" ? 503 : 0);
    assert.equal(warn.mock.callCount(), 1);
    assert.match(warn.mock.calls[0].arguments[0], text);
    warn.mock.restore();
  }
});
