/** Tokens and tickets that end, are revoked or cannot be had: what a page is told, and how often the application is asked. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { scene } from "./support.js";

const BOTH = ["stream", "poll"];

/** A world whose application signs tokens that are valid for `seconds`; `asked`: when it was asked for one, in s. */
function signed(seconds, options) {
  const w = scene(options);
  w.service.ends = new Map();
  w.asked = [];
  w.token = async () => {
    w.asked.push(w.clock.now / 1000);
    const token = `t${w.asked.length}`;
    w.service.ends.set(token, w.clock.now + seconds * 1000);
    return token;
  };
  /** Publishes 0, 1, 2 ... on `a`, one each second, and returns them. */
  w.publishFor = async (time) => {
    const numbers = [...Array(time).keys()];
    for (const number of numbers) {
      w.publish("a", number);
      await w.run(1);
    }
    return numbers;
  };
  w.refused = () => w.network.log.filter(({ status }) => status === 401);
  return w;
}

const only = (states, ...allowed) => assert.deepEqual([...new Set(states)].sort(), [...allowed].sort());

test("polls never meet the end of a token: the next one is there", async () => {
  const w = signed(100);
  const { messages, states } = w.page({ transport: "poll", token: w.token }).subscribe(["a"]);
  await w.run(1);
  assert.deepEqual(await w.publishFor(600), messages);
  await w.run(300);
  assert.deepEqual([w.refused(), states], [[], ["live"]]);
  assert.ok(w.asked.length <= 900 / 70 + 1, String(w.asked));
});

test("a held poll is answered before its token ends, and the next one has another token", async () => {
  const w = signed(10);
  const { states } = w.page({ transport: "poll", token: w.token }).subscribe(["a"]);
  await w.run(100);
  assert.deepEqual([w.refused(), states], [[], ["live"]]);
  assert.ok(w.asked.length >= 10 && w.asked.length <= 14, String(w.asked));
});

test("a stream that ends with its token is replaced at once, by one with a token that is there already", async () => {
  const w = signed(290);
  const { messages, states } = w.page({ transport: "stream", token: w.token }).subscribe(["a"]);
  await w.run(1);
  assert.deepEqual(await w.publishFor(1000), messages);
  assert.deepEqual(w.refused(), []);
  only(states, "live", "catching-up");
  const pauses = w.asked.slice(1).map((at, index) => at - w.asked[index]);
  assert.ok(Math.min(...pauses) >= 230 && Math.max(...pauses) <= 260, String(pauses));
  const [, ...later] = w.network.log.filter(({ path }) => path === "/v1/events");
  assert.ok(later.length >= 3);
});

test("a hidden page, whose timers are late, still has no pause when its token ends", async () => {
  const w = signed(290);
  w.network.faults.cutAfter = Infinity;
  const { tab, subscribe } = w.page({ transport: "stream", token: w.token });
  const seen = [];
  subscribe(["a"], { onMessage: ({ time }) => void seen.push(w.clock.now / 1000 - time) });
  await w.run(1);
  tab.show(false);
  await w.publishFor(2000);
  assert.equal(seen.length, 2000);
  assert.ok(Math.max(...seen) < 2, String(Math.max(...seen)));
});

test("after sleep the first thing is a new token, if the old one has ended, or ends soon", async () => {
  for (const [transport, sleep] of [
    ["stream", 600],
    ["poll", 600],
    ["stream", 275],
    ["poll", 110],
  ]) {
    const w = signed(transport === "stream" ? 290 : 119);
    const { tab, subscribe } = w.page({ transport, token: w.token });
    const { sub, messages, states } = subscribe(["a"]);
    await w.run(10);
    tab.freeze();
    w.network.silence();
    w.publish("a", 1);
    await w.run(sleep);
    w.browser.asleep += sleep * 1000;
    w.asked.length = w.network.log.length = 0;
    const woke = w.clock.now / 1000;
    tab.thaw();
    await w.run(0.2);
    assert.deepEqual([messages, sub.state.state], [[1], "live"], `${transport} ${sleep}`);
    assert.ok(w.asked.length === 1 && w.asked[0] - woke < 0.01, `${transport} ${sleep}: ${w.asked}`);
    assert.deepEqual(w.refused(), []);
    only(states, "live", "catching-up");
  }
});

test("an answer that was under way when the machine fell asleep is not waited for", async () => {
  const w = signed(20);
  let token = w.token;
  const { tab, subscribe } = w.page({ token: () => token() });
  const { sub, states } = subscribe(["a"]);
  await w.run(5);
  token = () => new Promise(() => {});
  await w.run(14.9);
  assert.equal(sub.state.state, "live");
  tab.freeze();
  w.network.silence();
  await w.run(100);
  w.browser.asleep += 100_000;
  token = w.token;
  tab.thaw();
  await w.run(0.2);
  assert.equal(sub.state.state, "live");
  only(states, "live", "catching-up");
});

test("a revoked token: with a later one the page goes on, as often as that happens", async () => {
  for (const transport of BOTH) {
    const w = signed(290);
    const token = async () => {
      const text = await w.token();
      if (text === "t7") w.service.ends.delete(text); // is refused for another reason
      return text;
    };
    const { sub, messages, states } = w.page({ transport, token }).subscribe(["a"]);
    for (let number = 1; number < 6; number++) {
      await w.run(10);
      w.service.revoke(`t${number}`);
      w.publish("a", number);
      await w.run(4);
      assert.equal(sub.state.state, "live");
      assert.equal(w.asked.length, number + 1);
      assert.ok(w.asked[number] >= 14 * number - 2, String(w.asked)); // not in the second of the revocation
    }
    assert.deepEqual(messages, [1, 2, 3, 4, 5]);
    w.service.revoke("t6");
    await w.run(5);
    assert.equal(w.asked.length, 8);
    assert.equal(sub.state.state, "live");
    only(states, "live", "catching-up");
  }
});

test("a token that was under way when the last one was revoked does not count as another", async () => {
  for (const transport of BOTH) {
    const w = signed(290);
    let give;
    const token = async () => {
      const text = await w.token();
      return text === "t2" ? new Promise((resolve) => (give = () => resolve(text))) : text;
    };
    const { sub, messages, states } = w.page({ transport, token }).subscribe(["a"]);
    for (let second = 0; second < 290 && !give; second++) await w.run(1);
    w.service.revoke("t1", "t2");
    w.publish("a", 1);
    await w.run(0.5);
    give();
    await w.run(5);
    assert.deepEqual([sub.state.state, messages, w.asked.length], ["live", [1], 3], transport);
    only(states, "live", "catching-up");
  }
});

test("two connections whose token is revoked stop for that no sooner than one", async () => {
  const w = signed(290);
  const page = w.page({ token: w.token });
  const first = page.subscribe(["a"]);
  await w.run(5);
  w.publish("a", 1);
  await w.run(5);
  const late = page.subscribe(["b"], { cursor: w.service.cursor(0) });
  await w.run(0.001);
  assert.equal(w.network.open.size, 2);
  w.service.revoke("t1");
  await w.run(10);
  assert.deepEqual([first.sub.state.state, late.sub.state.state, w.asked.length], ["live", "live", 2]);
});

test("a revoked user: after new tokens that are refused as well every subscription stops", async () => {
  for (const transport of BOTH) {
    const w = signed(290);
    const page = w.page({ transport, token: w.token });
    const all = ["a", "b", "c"].map((channel) => page.subscribe([channel]));
    await w.run(10);
    w.service.revoke(...Array.from({ length: 20 }, (_, number) => `t${number}`));
    await w.run(60);
    for (const { sub, states } of all) {
      assert.equal(sub.state.reason?.type, "urn:pushup:revoked");
      only(states, "live", "catching-up", "stopped");
    }
    assert.equal(w.asked.length, 2);
    const { sub } = page.subscribe(["a"], { name: "again" });
    w.service.revoked.clear();
    await w.run(5);
    assert.equal(sub.state.state, "live"); // whoever logs in again needs no new PushUp
  }
});

test("a function that fails twice is no news; the page learns of more, and why", async () => {
  for (const transport of BOTH) {
    const w = signed(30);
    let failing = 2;
    const token = () => {
      if (failing-- > 0) throw new Error("no network");
      return w.token();
    };
    const page = w.page({ transport, token });
    const { sub, states } = page.subscribe(["a"]);
    await w.run(60);
    assert.equal(page.errors.length, 2);
    assert.ok(!states.includes("offline"), String(states));
    failing = 1e9;
    await w.run(10);
    const before = 1e9 - failing;
    assert.ok(!states.includes("offline"), "the old token is still valid");
    await w.run(40);
    assert.equal(sub.state.state, "offline");
    assert.deepEqual(sub.state.reason, { status: 0, title: "no token" });
    await w.run(600);
    assert.ok(1e9 - failing < before + 90, `asked ${1e9 - failing} times`);
    failing = 0;
    await w.run(31);
    assert.equal(sub.state.state, "live");
    assert.ok(!page.push.report().some(({ event }) => event === "mute"), "no stream is blamed");
    assert.equal(w.held()[0].path, transport === "stream" ? "/v1/events" : "/v1/poll");
  }
});

test("a function that hangs is given up, and no stream is blamed for it", async () => {
  const w = signed(30);
  let asked = 0;
  let hangs = true;
  const page = w.page({ token: () => (asked++, hangs ? new Promise(() => {}) : w.token()) });
  const { sub } = page.subscribe(["a"], { cursor: w.service.cursor(0) });
  await w.run(60);
  assert.equal(sub.state.state, "offline");
  assert.deepEqual(sub.state.reason, { status: 0, title: "no token" });
  assert.ok(asked >= 3 && asked <= 7, String(asked));
  hangs = false;
  await w.run(40);
  assert.equal(sub.state.state, "live");
  assert.equal(w.held()[0].path, "/v1/events");
  assert.ok(!page.push.report().some(({ event }) => event === "mute"));
});

test("a function that fails while the old token is still valid is asked less and less, and the page stays live", async () => {
  const w = signed(290);
  let failed = 0;
  let fails = false;
  const token = () => (fails ? Promise.reject(new Error(`no network ${++failed}`)) : w.token());
  const { states } = w.page({ transport: "poll", token }).subscribe(["a"]);
  await w.run(1);
  fails = true;
  for (let number = 0; number < 2850; number++) {
    w.publish("a", number);
    await w.run(0.1);
  }
  assert.deepEqual(states, ["live"]);
  assert.ok(failed >= 3 && failed < 20, `failed ${failed} times`);
});

test("a slow function takes no time from the first byte of a stream", async () => {
  const w = signed(60);
  const token = () => new Promise((resolve) => w.clock.after(5000, () => resolve(w.token())));
  const { sub, states } = w.page({ token }).subscribe(["a"], { cursor: w.service.cursor(0) });
  await w.run(300);
  assert.equal(sub.state.state, "live");
  assert.ok(w.network.log.every(({ path }) => path === "/v1/events"));
  only(states, "live", "catching-up");
});

test("a function that has a store, and returns the same token until it has nearly ended", async () => {
  for (const transport of BOTH) {
    const w = signed(60);
    let stored;
    let asked = 0;
    const token = async () => {
      asked++;
      if (!(w.service.ends.get(stored) > w.clock.now + 500)) stored = await w.token();
      return stored;
    };
    const { states } = w.page({ transport, token }).subscribe(["a"]);
    await w.run(600);
    only(states, "live", ...(transport === "stream" ? ["catching-up"] : []));
    assert.ok(asked <= 24, `asked ${asked} times for ${w.asked.length} tokens`);
  }
});

test("a token that is a text is used as long as it is valid, and then the page stops", async () => {
  for (const transport of BOTH) {
    const w = signed(30);
    const token = await w.token();
    const { sub, states } = w.page({ transport, token }).subscribe(["a"]);
    await w.run(29);
    only(states, "live");
    await w.run(10);
    assert.equal(sub.state.reason?.type, "urn:pushup:token-expired");
    assert.ok(!states.includes("offline"), String(states));
  }
});

test("of two tabs the one that leads asks, and the other one with its own function when it leads", async () => {
  const w = signed(60);
  const asked = [0, 0];
  const pages = [0, 1].map((number) => w.page({ user: "mei", token: () => (asked[number]++, w.token()) }));
  const posted = [];
  const [one, two] = pages.map((page) => page.subscribe(["a"], { cursor: w.service.cursor(0) }));
  for (const channel of [...w.browser.channels.values()].flatMap((all) => [...all])) {
    const { postMessage } = channel;
    channel.postMessage = (data) => (posted.push(JSON.stringify(data)), postMessage.call(channel, data));
  }
  await w.run(300);
  const leader = pages.findIndex(({ push }) => push.lead.state === "leading");
  assert.equal(asked[1 - leader], 0);
  assert.ok(asked[leader] >= 5);
  assert.ok(!posted.some((text) => /"t\d+"/.test(text)), "tabs do not send each other tokens");
  pages[leader].tab.close();
  await w.run(100);
  w.publish("a", 1);
  await w.run(1);
  const other = [two, one][leader];
  assert.ok(asked[1 - leader] >= 1);
  assert.deepEqual(other.messages, [1]);
  only(other.states, "live", "catching-up");
  assert.equal(w.held().length, 1);
});

test("a tab whose tokens are refused stops, and the next one leads with its own", async () => {
  const w = signed(60);
  w.service.revoked.add("old");
  w.service.ends.set("old", Infinity);
  const first = w.page({ user: "mei", token: () => "old" }).subscribe(["a"], { cursor: w.service.cursor(0) });
  await w.run(0.5);
  const { sub } = w.page({ user: "mei", token: w.token }).subscribe(["a"]);
  await w.run(10);
  assert.equal(first.sub.state.reason?.type, "urn:pushup:revoked");
  assert.ok(!first.states.includes("offline"), String(first.states));
  assert.equal(sub.state.state, "live");
});

test("a server that refuses some requests at random is no reason to ask often", async () => {
  const w = signed(3600);
  w.network.faults.refuseSome = 0.1;
  w.page({ transport: "poll", token: w.token }).subscribe(["a"]);
  for (let number = 0; number < 3000; number++) {
    w.publish("a", number);
    await w.run(0.1);
  }
  assert.ok(w.asked.length < 200, `asked ${w.asked.length} times`);
});

test("a slow server that refuses each token is no reason to ask often", async () => {
  const w = signed(3600);
  w.network.faults.refuseSome = 1;
  w.network.delay = () => 2000;
  const { sub } = w.page({ token: w.token }).subscribe(["a"]);
  await w.run(600);
  assert.equal(sub.state.state, "stopped");
  assert.equal(w.asked.length, 6);
});

test("when there is no token any more, the page asks once without one, and stops", async () => {
  const w = signed(30);
  let isLoggedIn = true;
  const { sub, states } = w.page({ transport: "poll", token: () => (isLoggedIn ? w.token() : null) }).subscribe(["a"]);
  await w.run(10);
  isLoggedIn = false;
  await w.run(60);
  assert.equal(sub.state.reason?.type, "urn:pushup:unauthorized");
  assert.equal(w.refused().length, 1);
  assert.ok(!states.includes("offline"));
});

test("tokens are in no address, and not in the report", async () => {
  const w = signed(30);
  const urls = [];
  const { fetch } = w.network;
  w.network.fetch = function (tab, url, init) {
    urls.push(url);
    return fetch.call(this, tab, url, init);
  };
  const page = w.page({ token: w.token });
  page.subscribe(["a"]);
  await w.run(100);
  w.service.revoke(`t${w.asked.length}`);
  await w.run(10);
  assert.ok(w.network.log.every(({ headers, token }) => !headers.Authorization && token));
  assert.ok(!/\bt\d+\b/.test(JSON.stringify([urls, page.push.report()])));
});

test("tickets that are shorter than the application's tokens keep the page live", async () => {
  for (const transport of ["auto", ...BOTH]) {
    for (const [ticket, token] of [
      [4, 6],
      [3, 60],
      [60, 6],
    ]) {
      const w = scene();
      w.service.ticketTime = ticket * 1000;
      w.service.tokens = { has: (text) => Number(text) > w.clock.now };
      let asked = 0;
      const ask = async () => String((asked++, w.clock.now + token * 1000));
      const { messages, states } = w.page({ transport, token: ask }).subscribe(["a"], { cursor: w.service.cursor(0) });
      w.network.faults.outage = "refuse"; // it is over after some failures, and forgotten
      await w.run(5);
      w.network.faults = {};
      await w.run(60);
      states.length = 0;
      for (let number = 0; number < 300; number++) {
        w.publish("a", number);
        await w.run(1);
      }
      const what = `${transport}, tickets of ${ticket} s, tokens of ${token} s`;
      assert.deepEqual(messages, [...Array(300).keys()], what);
      only(states, "live", "catching-up");
      assert.ok(asked <= 300 / Math.min(token, 5) + 5, `${what}: asked ${asked} times`);
      assert.equal(w.network.log.at(-1).path, transport === "poll" ? "/v1/poll" : "/v1/events", what);
    }
  }
});

test("the functions of the documents: logged out is no token, and an error is an error", async () => {
  for (const page of ["guide/tokens.md", "start/recipes/who-is-here.md"]) {
    const text = readFileSync(new URL(`../../docs/${page}`, import.meta.url), "utf8");
    const [code] = /async function token\(\) \{.*?\n *\}\n/s.exec(text);
    const answers = { 200: { json: () => "t", text: () => "t" }, 401: {}, 500: {} };
    const token = (status) =>
      new Function("fetch", `${code}; return token()`)(async () => ({ status, ok: status === 200, ...answers[status] }));
    assert.deepEqual([await token(200), await token(401)], ["t", undefined]);
    await assert.rejects(token(500), /500/);
  }
});
