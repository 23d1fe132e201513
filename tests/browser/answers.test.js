/** Answers in simulated time: answers.js and ai-sdk.js with the real client. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { PushUpTransport } from "../../pushup/browser/ai-sdk.js";
import { AnswerCutOff, AnswerFailed, readAnswer } from "../../pushup/browser/answers.js";
import { SECOND, scene } from "./support.js";

const CHANNEL = "answer:42";

/** A world with a writer; `read()` notes what a page gets: the parts, and how they end. */
function writing(options) {
  const w = scene(options);
  let number = 0;
  const say = (data) => w.service.publish([CHANNEL], data, "answer");
  w.say = say;
  w.write = (...parts) => say({ piece: number++, parts });
  w.end = (end, more = {}) => say({ piece: number++, parts: [], end, ...more });
  w.beat = () => {
    const { kept } = say({ beat: number });
    w.clock.after(5 * SECOND, () => kept.clear()); // it is ephemeral
  };
  w.read = (page = w.page(), more = {}) => {
    const got = { parts: [] };
    const answer = readAnswer(page.push, CHANNEL, more);
    const read = async () => {
      for (let next; (next = await answer.next()); got.parts.push(next.value)) if (next.done) return next.value;
    };
    read().then(
      (end) => (got.end = end),
      (error) => (got.error = error),
    );
    return got;
  };
  return w;
}

const cutOff = (got, why) => {
  assert.ok(got.error instanceof AnswerCutOff, `${got.error}`);
  assert.match(got.error.message, why);
};

test("an answer is read from its beginning, in every tab, and ends as its writer says", async () => {
  for (const end of ["done", "stopped"]) {
    const w = writing();
    w.write("Hello");
    const early = w.read();
    await w.run(2);
    w.write(" wor", "ld");
    w.write({ type: "x" });
    await w.run(2);
    const late = w.read();
    w.end(end);
    await w.run(5);
    for (const got of [early, late, w.read(w.page())]) {
      await w.run(5);
      assert.deepEqual(got, { parts: ["Hello", " wor", "ld", { type: "x" }], end });
    }
    assert.equal(w.held().length, 0); // its subscriptions are closed
  }
});

test("the writer's error is thrown after what it wrote", async () => {
  const w = writing();
  w.write("Hel");
  w.end("error", { error: "the model is busy" });
  w.write("not after the end");
  await w.run(2);
  const got = w.read();
  await w.run(5);
  assert.deepEqual(got.parts, ["Hel"]);
  assert.ok(got.error instanceof AnswerFailed);
  assert.equal(got.error.message, "the model is busy");
});

test("a piece that comes again is ignored, and so are other messages", async () => {
  const w = writing();
  const page = w.page();
  const got = w.read(page);
  w.write("a");
  w.say({ piece: 0, parts: ["a"] });
  w.service.publish([CHANNEL], { piece: 7, parts: ["not an answer"] });
  w.say({ beat: 0 });
  for (const data of [{}, null, "text", 7, ["piece"]]) w.say(data);
  w.write("b");
  w.say({ piece: 2, end: "done" }); // nothing more
  await w.run(5);
  assert.deepEqual(got, { parts: ["a", "b"], end: "done" });
  assert.deepEqual(page.errors, []);
});

test("a piece that is missing cuts the answer off: within it, at its beginning, and as a beat tells", async () => {
  const later = [{ piece: 2, parts: ["c"] }, { beat: 2 }];
  for (const data of later) {
    const w = writing();
    const got = w.read();
    w.write("a");
    w.say(data);
    await w.run(5);
    assert.deepEqual(got.parts, ["a"]);
    cutOff(got, /piece 1 is missing; the next one is 2/);
  }
  const w = writing({ keep: 2 });
  w.write("a");
  w.write("b");
  w.write("c");
  await w.run(5);
  const got = w.read();
  await w.run(5);
  cutOff(got, /piece 0 is missing; the next one is 1/);
});

test("a gap in which nothing of the answer was lost is none", async () => {
  const w = writing();
  const page = w.page();
  const got = w.read(page);
  w.write("a");
  await w.run(5);
  w.service.wipe();
  await w.run(5);
  w.write("b");
  w.end("done");
  await w.run(10);
  assert.deepEqual(got, { parts: ["a", "b"], end: "done" });
  assert.deepEqual(page.errors, []);
});

test("a writer that is silent for 15 s has died, and beats keep the answer alive", async () => {
  const w = writing();
  const got = w.read();
  w.write("a");
  for (let n = 0; n < 12; n++) {
    await w.run(5);
    w.beat();
  }
  await w.run(14);
  assert.equal(got.error, undefined);
  await w.run(2);
  cutOff(got, /silent for 15 s/);
  assert.deepEqual(got.parts, ["a"]);
  const nothing = w.read(w.page(), { silence: 3 * SECOND });
  await w.run(4);
  cutOff(nothing, /silent for 3 s/); // the beat is too old to be a sign of life
});

test("a channel on which nothing comes is cut off after 15 s, in all tabs at once: one of them had the lead", async () => {
  const w = writing();
  const tabs = [w.read(), w.read(), w.read()];
  await w.run(14);
  for (const got of tabs) assert.equal(got.error, undefined);
  await w.run(2.5);
  for (const got of tabs) cutOff(got, /silent for 15 s/);
});

test("silence counts while the page is live only, and a connection that died may look live", async () => {
  for (const [outage, ...meanwhile] of [["refuse", "b"], ["hang", "b"], ["refuse"], ["hang"]]) {
    const w = writing();
    const got = w.read();
    w.write("a");
    await w.run(5);
    w.network.faults.outage = outage;
    if (outage === "hang") w.network.silence();
    else w.network.reset();
    await w.run(120);
    assert.equal(got.error, undefined, outage);
    w.network.faults.outage = "";
    for (const part of meanwhile) w.write(part);
    for (let n = 0; n < 12; n++) {
      await w.run(5);
      w.beat();
    }
    w.end("done");
    await w.run(5);
    assert.deepEqual(got, { parts: ["a", ...meanwhile], end: "done" });
  }
});

/** What happens to a tab, at random. */
const MISHAPS = {
  reload: (w, tab) => tab.close(),
  freeze: (w, tab) => {
    tab.freeze();
    w.clock.after(w.dice.between(0, 40 * SECOND), () => tab.thaw());
  },
  hide: (w, tab) => {
    tab.show(false);
    w.clock.after(w.dice.between(0, 40 * SECOND), () => tab.show(true));
  },
  setClock: (w, tab) => {
    const [now, set] = [tab.wall, w.dice.between(-3600, 3600) * SECOND];
    tab.wall = () => now.call(tab) + set;
  },
  reset: (w) => w.network.reset(),
  silence: (w) => w.network.silence(),
};

test("whatever happens to three tabs, each ends with exactly the text, or says that it was cut off", async () => {
  const faults = { refuse: 0.1, hang: 0.03, truncate: 0.2, 502: 0.05, 429: 0.03, 503: 0.03, html: 0.02 };
  for (let seed = 1; seed <= 20; seed++) {
    const w = writing({ seed, nodes: 2 });
    const dies = seed % 3 === 0;
    w.browser.busy = 50;
    Object.assign(w.network.faults, faults);
    const tabs = [];
    const open = (index, storage) => {
      const tab = w.tab();
      if (storage) tab.storage = storage;
      tabs[index] = { tab, got: w.read(w.page({}, tab)) };
    };
    const text = Array.from({ length: 30 + w.dice.below(30) }, (_, number) => `${number} `);
    let quiet = 0;
    for (const part of text) {
      if (w.dice.chance(0.1)) open(w.dice.below(3));
      for (let index = 0; index < 3; index++) {
        if (!tabs[index] || !w.dice.chance(0.08)) continue;
        const mishap = w.dice.pick(Object.keys(MISHAPS));
        const { tab } = tabs[index];
        MISHAPS[mishap](w, tab);
        if (mishap === "reload") open(index, tab.storage);
      }
      w.write(part);
      for (quiet = w.dice.chance(0.1) ? w.dice.between(0, 20) : w.dice.between(0, 1); quiet > 4; quiet -= 4) {
        await w.run(4);
        w.beat();
      }
      await w.run(quiet);
    }
    w.network.faults = {};
    if (!dies) w.end("done");
    for (let index = 0; index < 3; index++) if (!tabs[index]) open(index); // at the very end
    await w.run(180);
    for (const [index, { got }] of tabs.entries()) {
      const where = `seed ${seed}, tab ${index}`;
      assert.equal(got.parts.join(""), text.join(""), where);
      if (dies) cutOff(got, /silent/);
      else assert.equal(got.end, "done", `${where}: ${got.error}`);
    }
  }
});

test("a page that takes its time gets all of it, unless it aborts: then nothing more", async () => {
  const w = writing();
  const controller = new AbortController();
  const [slow, aborted] = [{}, { signal: controller.signal }].map((options) => readAnswer(w.page().push, CHANNEL, options));
  const first = [slow.next(), aborted.next()];
  w.write("a", "b");
  w.write("c");
  await w.run(5);
  w.end("done");
  await w.run(60);
  controller.abort(new Error("enough"));
  assert.deepEqual((await Promise.all(first)).map(({ value }) => value), ["a", "a"]);
  const rest = [await slow.next(), await slow.next(), await slow.next()];
  assert.deepEqual(rest.map(({ value }) => value), ["b", "c", "done"]);
  await assert.rejects(aborted.next(), /enough/);
});

test("a channel that is closed cuts the answer off", async () => {
  let handlers;
  const environment = { setTimeout() {}, clearTimeout() {} };
  const push = { environment, subscribe: (_channels, given) => ((handlers = given), { state: {}, close() {} }) };
  const next = readAnswer(push, CHANNEL).next();
  handlers.onClosed(CHANNEL);
  await assert.rejects(next, /the channel was closed/);
});

test("a refusal ends it", async () => {
  const w = writing();
  w.service.forbidden.add(CHANNEL);
  const got = w.read();
  await w.run(30);
  cutOff(got, /status 403/);
});

test("three readers in one page do not disturb each other", async () => {
  const w = writing();
  const page = w.page();
  w.write("a");
  const controller = new AbortController();
  const [first, second, aborted] = [w.read(page), w.read(page), w.read(page, { signal: controller.signal })];
  await w.run(2);
  controller.abort();
  w.write("b");
  w.write(...Array.from({ length: 9000 }, (_, number) => ({ number })));
  w.end("done");
  await w.run(5);
  assert.deepEqual(aborted.parts, ["a"]);
  assert.deepEqual([first.parts.length, first.parts[1], first.end], [9002, "b", "done"]);
  assert.deepEqual(second, first);
  assert.deepEqual(page.errors, []);
});

test("whoever leaves the loop, or aborts, has no subscription left", async () => {
  const w = writing();
  const page = w.page();
  page.subscribe(["other"]);
  w.write("a", "b");
  let left = false;
  const leave = async () => {
    for await (const part of readAnswer(page.push, CHANNEL)) if (part === "a") break;
    left = true;
  };
  void leave();
  const controller = new AbortController();
  const got = w.read(page, { signal: controller.signal });
  const busy = readAnswer(page.push, CHANNEL, { signal: controller.signal });
  void busy.next(); // with the first part, and asks for no other
  await w.run(5);
  assert.ok(left);
  assert.deepEqual(got.parts, ["a", "b"]);
  assert.match(w.held()[0].asked.channels.join(), /answer:42/);
  controller.abort();
  await w.run(5);
  assert.equal(got.error.name, "AbortError");
  assert.equal(w.held()[0].asked.channels.join(), "other");
  const late = w.read(page, { signal: controller.signal });
  await w.run(1);
  assert.equal(late.error.name, "AbortError");
});

// The transport for useChat, with an application.

/** A chat whose application notes the requests; `chunks(stream)` reads one. */
function chatting(answers = {}) {
  const w = writing();
  const page = w.page();
  w.asked = [];
  const fetch = async (url, { method, body, headers }) => {
    w.asked.push([method, url, body && JSON.parse(body), Object.fromEntries(headers)]);
    const [status, text] = answers[`${method} ${url}`] ?? [200, JSON.stringify({ channel: CHANNEL })];
    return new Response(status === 204 ? null : text, { status });
  };
  w.transport = new PushUpTransport({ pushup: page.push, fetch, headers: { "X-A": "1" }, body: { model: "m" } });
  w.chunks = (stream) => {
    const got = { chunks: [] };
    const reader = stream.getReader();
    const read = async () => {
      for (let next; !(next = await reader.read()).done;) got.chunks.push(next.value);
      return true;
    };
    read().then(
      () => (got.done = true),
      (error) => (got.error = error),
    );
    return Object.assign(got, { reader });
  };
  w.send = (more) =>
    w.transport.sendMessages({ chatId: "c/1", messages: [{ id: "u" }], trigger: "submit-message", messageId: undefined, ...more });
  return w;
}

const start = { type: "start", messageId: CHANNEL };

test("useChat: strings become texts, objects are passed on, and start and finish are added", async () => {
  const w = chatting();
  w.write("He", "llo");
  w.write({ type: "data-x", data: 1 }, "again");
  w.end("done");
  const got = w.chunks(await w.send({ body: { more: 2 }, headers: { "X-B": "2" } }));
  await w.run(5);
  assert.deepEqual(got.chunks, [
    start,
    { type: "text-start", id: "pushup-0" },
    { type: "text-delta", id: "pushup-0", delta: "He" },
    { type: "text-delta", id: "pushup-0", delta: "llo" },
    { type: "text-end", id: "pushup-0" },
    { type: "data-x", data: 1 },
    { type: "text-start", id: "pushup-1" },
    { type: "text-delta", id: "pushup-1", delta: "again" },
    { type: "text-end", id: "pushup-1" },
    { type: "finish" },
  ]);
  assert.ok(got.done);
  const body = { model: "m", more: 2, id: "c/1", messages: [{ id: "u" }], trigger: "submit-message" };
  const headers = { "content-type": "application/json", "x-a": "1", "x-b": "2" };
  assert.deepEqual(w.asked, [["POST", "/api/chat", body, headers]]);
});

test("useChat: a writer's own start and finish are kept; an empty answer has both", async () => {
  const w = chatting();
  const own = [{ type: "start" }, { type: "text-start", id: "t" }, { type: "finish", finishReason: "stop" }];
  w.write(...own);
  w.end("done");
  const got = w.chunks(await w.send());
  await w.run(5);
  assert.deepEqual(got.chunks, own);
  const empty = chatting();
  empty.end("stopped");
  const nothing = empty.chunks(await empty.send());
  await empty.run(5);
  assert.deepEqual(nothing.chunks, [start, { type: "finish" }]);
});

test("useChat: it reconnects to the channel that the application names, or to none", async () => {
  const url = "GET /api/chat/c%2F1/stream";
  for (const status of [204, 404]) {
    const w = chatting({ [url]: [status, "none"] });
    assert.equal(await w.transport.reconnectToStream({ chatId: "c/1" }), null);
  }
  const broken = chatting({ [url]: [500, "broken"], "POST /api/chat": [404, ""] });
  await assert.rejects(broken.transport.reconnectToStream({ chatId: "c/1" }), /broken/);
  await assert.rejects(broken.send(), /\/api\/chat answered 404/);
  const w = chatting();
  w.write("a");
  w.end("error", { error: "busy" });
  const stream = await w.transport.reconnectToStream({ chatId: "c/1" });
  await w.run(5);
  const got = w.chunks(stream); // late: the error overtakes nothing
  await w.run(5);
  assert.deepEqual(got.chunks.at(-1), { type: "text-delta", id: "pushup-0", delta: "a" });
  assert.ok(got.error instanceof AnswerFailed);
});

test("useChat: the signal tells the application to stop; whoever goes away does not", async () => {
  for (const begin of ["send", "reconnect"]) {
    const w = chatting();
    const controller = new AbortController();
    const options = { chatId: "c/1", abortSignal: controller.signal };
    const stream = begin === "send" ? await w.send(options) : await w.transport.reconnectToStream(options);
    const got = w.chunks(stream);
    w.write("a");
    await w.run(5);
    controller.abort();
    await w.run(5);
    assert.equal(got.error.name, "AbortError");
    assert.equal(w.held().length, 0);
    assert.deepEqual(w.asked.slice(1).map(([method, url]) => `${method} ${url}`), ["POST /api/chat/c%2F1/stop"]);
  }
  for (const begin of ["sendMessages", "reconnectToStream"]) {
    const w = chatting();
    const controller = new AbortController();
    const stream = w.transport[begin]({ chatId: "c/1", messages: [], abortSignal: controller.signal });
    controller.abort(); // before the application has answered
    const got = w.chunks(await stream);
    w.write("a");
    await w.run(5);
    assert.equal(got.error.name, "AbortError");
    assert.deepEqual(got.chunks, []);
    const stops = begin === "sendMessages" ? ["POST /api/chat/c%2F1/stop"] : []; // StrictMode aborts a resume
    assert.deepEqual(w.asked.slice(1).map(([method, url]) => `${method} ${url}`), stops);
  }
  const again = chatting();
  const resumes = [new AbortController(), new AbortController()];
  for (const [number, { signal }] of resumes.entries()) {
    if (number) resumes[0].abort(); // as the SDK does
    void again.transport.reconnectToStream({ chatId: "c/1", abortSignal: signal }).then((stream) => again.chunks(stream));
    void again.transport.reconnectToStream({ chatId: "c/2" });
    await again.run(2);
  }
  assert.deepEqual(again.asked.filter(([method]) => method === "POST"), []);
  resumes[1].abort();
  await again.run(1);
  assert.equal(again.asked.filter(([method]) => method === "POST").length, 1);
  const w = chatting();
  const got = w.chunks(await w.send());
  w.write("a");
  await w.run(5);
  await got.reader.cancel();
  await w.run(5);
  assert.equal(w.held().length, 0);
  assert.equal(w.asked.length, 1);
});
