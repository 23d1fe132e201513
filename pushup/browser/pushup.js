// @ts-check
/**
 * pushup.js: keeps a web page up to date with a PushUp server. Documented in docs/client.md, whose tables this file follows.
 *
 * In this order: the tables, the two transports, one connection, the feed, the lead among tabs, subscriptions, the browser.
 *
 * @typedef {import("./pushup.d.ts").Environment} Environment
 * @typedef {import("./pushup.d.ts").Message} Message
 * @typedef {import("./pushup.d.ts").Gap} Gap
 * @typedef {import("./pushup.d.ts").Problem} Problem
 * @typedef {import("./pushup.d.ts").State} State
 * @typedef {import("./pushup.d.ts").Options} Options
 * @typedef {import("./pushup.d.ts").SubscriptionOptions} SubscriptionOptions
 * @typedef {{cursor: string, messages: Message[], gaps: Gap[], closed: string[]}} Entry
 *   what happened from one cursor to the next
 * @typedef {Entry & {channels: Set<string>, open: Set<string>}} Node
 *   an entry, what was asked for, and the channels with a gap that may reach beyond it: they have had no message since
 * @typedef {{cursor?: string, last?: string, node?: Node, channels: Set<string>}} Position
 * @typedef {{kind: "base" | "own" | "cursor", channels: string[], cursor: string, sub?: Subscription}} Request
 */

// The tables. Each cell: the next state ("" for the same), then the actions.

/** @type {Record<string, Record<string, string[]>>} */
export const CONNECTION = {
  idle: { want: ["opening", "open"], sleep: ["asleep"] },
  opening: {
    want: ["opening", "close", "open"],
    done: ["idle", "close"],
    begin: ["live"],
    end: ["waiting", "wait"],
    mute: ["opening", "close", "fall back", "open"],
    fail: ["waiting", "close", "count", "wait"],
    refuse: ["asking", "close", "count", "ask"],
    sleep: ["asleep", "close"],
    nudge: ["opening", "close", "open"],
    offline: ["", "hurry"],
  },
  waiting: {
    due: ["opening", "open"],
    done: ["idle", "close"],
    nudge: ["waiting", "hasten"],
    sleep: ["asleep", "close"],
  },
  asking: {
    allow: ["waiting", "wait"],
    deny: ["stopped", "tell"],
    fail: ["waiting", "count", "wait"],
    done: ["idle", "close"],
    sleep: ["asleep", "close"],
  },
  asleep: { wake: ["opening", "open"] },
  stopped: { want: ["opening", "open"], done: ["idle"] },
};
CONNECTION.live = CONNECTION.opening;

/** @type {Record<string, Record<string, string[]>>} */
export const LEAD = {
  out: { join: ["following", "queue", "greet"], granted: ["out", "release"] },
  following: {
    join: ["following", "greet"],
    leave: ["out", "part", "release"],
    granted: ["leading", "announce"],
    lost: ["following", "queue"],
    leader: ["following", "adopt"],
    silent: ["following", "steal"],
  },
  leading: {
    join: ["leading", "announce"],
    leave: ["out", "part", "release"],
    lost: ["following", "queue", "greet"],
  },
};

/**
 * The next state and the actions; an event that the table does not have changes nothing.
 * @param {typeof CONNECTION} table @param {string} state @param {string} event
 */
export function step(table, state, event) {
  const [next, ...actions] = table[state][event] ?? [""];
  return { state: next || state, actions };
}

// The transports. Times are in milliseconds.

const FIRST_BYTE = 3_000;
const SILENCE = 30_000; // twice the server's heartbeat
const HOLD = 25_000; // a poll is held for so long
const PATIENCE = 15_000; // beyond what the server was asked to take
const LASTING = 5_000; // a connection that broke after so long was a good one
const POLL_FOR = 30 * 60_000; // after streams did not get through
const BACKOFF = [300, 30_000];
const FEED_LIMIT = 1_000; // messages, and entries
const REPORT_LIMIT = 200; // events
const REFUSALS = 5; // in a row, after which the application is not asked again
const GREET = 4_000; // a leader that has not been heard of for so long
const GREET_ALWAYS = 60_000;
const SETTLE = 50; // a new leader waits for the channels of the others
const JUMP = 5_000; // the clocks differ by more: the machine slept
const LONGEST_PAUSE = 120_000; // no timer is throttled to more
const LOOK = 5_000; // at the clocks
const AWAKE = 10_000; // a hidden page that looks after each `hidden` seconds
const SELDOM = 300_000; // asking again for what can hardly be
const CHANNEL_LIMIT = 100;
const FORGET = 180_000; // a tab that has not been heard of for so long

/** Why a request ended without what was asked for; `status` is 0 if there was no answer that could be understood. */
class Trouble extends Error {
  /** @param {string} text @param {Problem} [problem] @param {number} [pause] milliseconds that the server asks to wait */
  constructor(text, problem = { status: 0 }, pause = 0) {
    super(text);
    this.problem = problem;
    this.status = problem.status;
    this.pause = pause;
  }
}

/** Parses server-sent events, in whatever pieces they come. */
export class EventParser {
  #decoder = new TextDecoder();
  #rest = "";
  /** @type {{id?: string, event?: string, data?: string}} */
  #block = {};

  /** @param {Uint8Array} bytes the next piece @returns the blocks that it completes */
  push(bytes) {
    const lines = (this.#rest + this.#decoder.decode(bytes, { stream: true })).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop() ?? "";
    const blocks = [];
    for (const line of lines) {
      const [, name, value] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
      if (line === "") {
        if (Object.keys(this.#block).length) blocks.push(this.#block);
        this.#block = {};
      } else if (name === "data" && this.#block.data !== undefined) this.#block.data += "\n" + value;
      else if (name === "id" || name === "event" || name === "data") this.#block[name] = value;
    }
    return blocks;
  }
}

/** The pause that `Retry-After` asks for: seconds, or a date. @param {string | null} value @param {number} wall */
export function retryAfter(value, wall) {
  if (!value) return 0;
  const pause = /^\d+$/.test(value.trim()) ? Number(value) * 1000 : Date.parse(value) - wall;
  return Math.min(Math.max(pause || 0, 0), 3_600_000);
}

/**
 * Follows `POST /v1/events` until it ends. Gaps and closings wait for the next cursor: nothing is told twice if it breaks
 * between them.
 * @param {Request} request @param {Attempt} attempt
 */
async function stream(request, attempt) {
  attempt.within(FIRST_BYTE, "mute");
  const response = await attempt.fetch("/v1/events", { channels: request.channels, cursor: request.cursor });
  if (!/^text\/event-stream/i.test(response.headers.get("Content-Type") ?? "") || !response.body) {
    throw new Trouble("not an event stream");
  }
  const reader = response.body.getReader();
  const parser = new EventParser();
  /** @type {Entry} */
  let entry = { cursor: "", messages: [], gaps: [], closed: [] };
  for (;;) {
    const { done, value } = await reader.read();
    attempt.check();
    if (done) return;
    attempt.within(SILENCE, "mute");
    for (const { id, event, data } of parser.push(value)) {
      const content = data ? JSON.parse(data) : undefined;
      if (event === "error") throw new Trouble("error", content);
      if (event === "ticket") attempt.ticket(content.ticket);
      if (event === "gap") entry.gaps.push(content);
      if (event === "closed") entry.closed.push(content.channel);
      if (event || !id) continue;
      if (content) entry.messages.push(content);
      attempt.entry({ ...entry, cursor: id });
      entry = { cursor: "", messages: [], gaps: [], closed: [] };
    }
    attempt.begin();
  }
}

/**
 * Polls again and again with `POST /v1/poll`; the first polls do not wait. One that is only to catch up ends after one answer.
 * @param {Request} request @param {Attempt} attempt
 */
async function poll(request, attempt) {
  let { cursor } = request;
  let hold = 0;
  let useless = 0; // answers in a row that came at once and brought nothing
  for (;;) {
    attempt.within(hold + PATIENCE, "fail");
    const asked = attempt.now();
    const response = await attempt.fetch("/v1/poll", { channels: request.channels, cursor, timeout: hold / 1000 });
    const answer = await response.json();
    attempt.check();
    if (typeof answer?.cursor !== "string" || !Array.isArray(answer.messages)) throw new Trouble("not an answer");
    if (answer.ticket) attempt.ticket(answer.ticket);
    const empty = !answer.messages.length && !answer.gaps.length && !answer.closed.length;
    useless = empty && hold && attempt.now() - asked < 1000 ? useless + 1 : 0;
    if (useless === 3 || (answer.cursor === cursor && (!empty || answer.more))) throw new Trouble("loop");
    attempt.entry(answer);
    cursor = answer.cursor;
    if (request.kind === "own") return answer.more;
    if (!answer.more) attempt.begin();
    hold = answer.more ? 0 : HOLD;
  }
}

/** @param {Attempt} attempt */
async function present(attempt) {
  attempt.within(PATIENCE, "fail");
  const answer = await (await attempt.fetch("/v1/cursor")).json();
  attempt.check();
  if (typeof answer?.cursor !== "string") throw new Trouble("not a cursor");
  attempt.entry({ cursor: answer.cursor, messages: [], gaps: [], closed: [] });
}

/** One attempt of a connection to get its request answered. What comes after it was given up is ignored. */
class Attempt {
  #controller = new AbortController();
  began = 0;

  /** @param {Connection} connection @param {Request} request @param {boolean} streams */
  constructor(connection, request, streams) {
    this.connection = connection;
    this.client = connection.client;
    this.request = request;
    this.streams = streams;
  }

  async run() {
    const { connection, request } = this;
    try {
      await null; // whoever opened this has to finish first
      if (request.kind === "cursor") await present(this);
      else await (this.streams ? stream : poll)(request, this);
      connection.ended(this, new Trouble("ended"));
    } catch (error) {
      connection.ended(this, error instanceof Trouble ? error : new Trouble(String(error)));
    }
  }

  cancel() {
    this.#controller.abort();
  }

  now() {
    return this.client.now();
  }

  /** Ends this attempt with an exception if it has been given up. */
  check() {
    if (this.connection.attempt !== this) throw new Trouble("given up");
  }

  /** A sign of life must come in this time, or the event follows. @param {number} time @param {string} event */
  within(time, event) {
    this.connection.deadline = { at: this.now() + time, event };
    this.client.touch();
  }

  begin() {
    if (this.began) return;
    this.began = this.now();
    this.connection.begun(this);
  }

  /** @param {Entry} entry */
  entry(entry) {
    const { request } = this;
    this.request = { ...request, cursor: entry.cursor };
    this.connection.take(request, entry);
    this.check();
  }

  /** @param {string} text */
  ticket(text) {
    this.connection.ticket = { text, of: String(this.request.channels) };
  }

  /** @param {string} path @param {object} [body] @returns {Promise<Response>} */
  async fetch(path, body) {
    const { client, connection, request } = this;
    /** @type {Record<string, string>} */
    const headers = {};
    const token = await client.token();
    this.check();
    if (token) headers.Authorization = `Bearer ${token}`;
    if (connection.ticket?.of === String(request.channels)) headers["PushUp-Ticket"] = connection.ticket.text;
    const response = await client.environment.fetch(client.url + path, {
      method: body ? "POST" : "GET",
      body: body && JSON.stringify(body),
      headers,
      credentials: client.options.credentials ?? "same-origin",
      cache: "no-store",
      signal: this.#controller.signal,
    });
    this.check();
    if (response.status === 200) return response;
    const pause = retryAfter(response.headers.get("Retry-After"), client.environment.wall());
    const problem = await response.json().catch(() => ({}));
    throw new Trouble(`status ${response.status}`, { ...problem, status: response.status }, pause);
  }
}

// A connection: one request after the other, by the table.

class Connection {
  state = "idle";
  failures = 0;
  refusals = 0; // in a row
  short = 0; // streams in a row that broke early
  since = 0; // wall clock: when it was last up
  dueAt = 0; // the end of the pause; 0 if there is none
  notBefore = 0; // what the server said in Retry-After
  trial = false; // polling, to see whether only streams have trouble
  key = ""; // of the request that is under way
  /** @type {Request | null} */
  request = null;
  /** @type {Attempt | null} */
  attempt = null;
  /** @type {{at: number, event: string} | null} */
  deadline = null;
  /** @type {{text: string, of: string} | null} */
  ticket = null;

  /**
   * @param {PushUp} client @param {string} name
   * @param {{plan(): Request | null, take(request: Request, entry: Entry): void, refused(request: Request, problem: Problem): void}} purpose
   */
  constructor(client, name, { plan, take, refused }) {
    this.client = client;
    this.name = name;
    this.plan = plan;
    this.take = take;
    this.refused = refused;
  }

  /** @param {string} event @param {Trouble} [trouble] */
  send(event, trouble) {
    const { state, actions } = step(CONNECTION, this.state, event);
    if (state === this.state && !actions.length) return;
    this.client.log(this.name, state, event, trouble?.message);
    if (!["opening", "waiting", "asking"].includes(this.state)) this.since = this.client.environment.wall();
    this.state = state;
    for (const action of actions) {
      if (action === "open") this.#open();
      else if (action === "close") this.#close();
      else if (action === "wait") this.#wait();
      else if (action === "hasten") this.dueAt = Math.max(this.client.now(), this.notBefore);
      else if (action === "count") this.failures++;
      else if (action === "fall back") this.trial = true;
      else if (action === "hurry") this.#hurry();
      else if (action === "ask" && trouble) this.#ask(trouble);
      else if (action === "tell" && trouble && this.request) this.refused(this.request, trouble.problem);
    }
    this.client.touch();
  }

  /** Looks whether something else is wanted than before. */
  refresh() {
    const request = this.plan();
    if (!request && this.state !== "idle") this.send("done");
    if (request && (this.state === "idle" || keyOf(request) !== this.key)) this.send("want");
  }

  #open() {
    const { client } = this;
    const request = (this.request = this.plan());
    if (!request) return this.send("done");
    this.key = keyOf(request);
    const { transport } = client;
    const streams = transport ? transport === "stream" : !this.trial && client.environment.wall() >= client.pollUntil;
    this.attempt = new Attempt(this, request, streams && request.kind === "base");
    this.attempt.within(PATIENCE, "fail");
    client.opened(request);
    void this.attempt.run();
  }

  #close() {
    this.attempt?.cancel();
    this.attempt = this.deadline = null;
    this.dueAt = 0;
  }

  #wait() {
    this.#close();
    const [first, longest] = BACKOFF;
    const pause = this.client.environment.random() * Math.min(longest, first * 2 ** this.failures);
    this.dueAt = Math.max(this.client.now(), this.notBefore) + pause;
  }

  #hurry() {
    if (this.deadline) this.deadline.at = Math.min(this.deadline.at, this.client.now() + LASTING);
  }

  /** @param {Trouble} trouble */
  async #ask(trouble) {
    const { client } = this;
    const request = /** @type {Request} */ (this.request);
    const question = (this.attempt = new Attempt(this, request, false));
    let event = "deny";
    try {
      if (++this.refusals <= REFUSALS && (await client.mayRetry(request, trouble.problem))) event = "allow";
      else await null;
    } catch (error) {
      event = "fail";
      client.error(error);
    }
    if (this.attempt === question) this.send(event, trouble);
  }

  /** @param {Attempt} attempt */
  begun(attempt) {
    if (this.trial && !attempt.streams) this.client.rememberToPoll();
    this.trial = false;
    this.refusals = 0;
    this.send("begin");
  }

  /** @param {Attempt} attempt @param {Trouble} trouble */
  ended(attempt, trouble) {
    if (attempt !== this.attempt) return;
    if (trouble.message === "ended" && attempt.request.kind !== "base") {
      this.failures = this.refusals = 0;
      if (this.plan()) this.#open();
      else this.send("done");
    } else this.#failed(attempt, trouble, "fail");
  }

  /** Sends the events that are due. @param {number} now */
  check(now) {
    if (this.dueAt && now >= this.dueAt) {
      this.dueAt = 0;
      this.send("due");
    } else if (this.attempt && this.deadline && now >= this.deadline.at) {
      this.#failed(this.attempt, new Trouble("overdue"), this.deadline.event);
    }
  }

  /** Which event it is when an attempt fails. @param {Attempt} attempt @param {Trouble} trouble @param {string} event */
  #failed(attempt, trouble, event) {
    const now = this.client.now();
    const lasted = attempt.began > 0 && now - attempt.began >= LASTING;
    let { status } = trouble;
    if (status === 401 && this.ticket) {
      this.ticket = null; // it has expired; without it the application is asked
      status = 0;
    }
    if (lasted) this.failures = 0;
    if (trouble.pause) this.notBefore = now + trouble.pause;
    if (attempt.streams && [404, 405, 406, 501].includes(status)) event = "mute"; // a server without streams
    else if (status >= 400 && status < 500 && ![408, 429].includes(status)) event = "refuse";
    else if (event === "fail" && lasted && !status && trouble.message !== "loop") event = "end";
    if (attempt.streams && !status) this.short = lasted ? 0 : this.short + 1;
    if (event === "fail" && this.short >= 3) event = "mute";
    if (event === "mute" && this.client.transport) event = "fail";
    if (event === "mute") this.short = 0;
    if (event === "fail") this.trial = false;
    this.send(event, trouble);
  }

  /** @returns {State} */
  shown() {
    const { state, failures, since } = this;
    if (state === "live") return { state };
    if (failures === 0 && state !== "asleep") return { state: "catching-up" };
    return { state: "offline", failures, since, next: state === "waiting" ? this.client.toWall(this.dueAt) : null };
  }
}

/** Two requests with the same key ask for the same. @param {Request} request */
function keyOf({ kind, channels, cursor }) {
  return JSON.stringify([kind, channels, kind === "base" || cursor]);
}

// The feed: what came over the shared request, as a chain from cursor to cursor.

class Feed {
  /** @type {Node[]} */
  #chain = [];
  #messages = 0;

  /** Where the chain ends; undefined before it begins. */
  get cursor() {
    return this.#chain.at(-1)?.cursor;
  }

  /** Begins a new chain, or none. @param {string} [cursor] */
  start(cursor) {
    const none = new Set();
    this.#chain = cursor === undefined ? [] : [{ cursor, messages: [], gaps: [], closed: [], channels: none, open: none }];
    this.#messages = 0;
  }

  /** @param {string} from @param {Entry} entry @param {string[]} channels what was asked for */
  add(from, entry, channels) {
    if (from !== this.cursor) this.start(from);
    if (entry.cursor === from) return;
    const chain = this.#chain;
    const open = new Set([...chain[chain.length - 1].open, ...entry.gaps.map((gap) => gap.channel)]);
    for (const message of entry.messages) for (const channel of message.channels) open.delete(channel);
    chain.push({ ...entry, channels: new Set(channels), open });
    this.#messages += entry.messages.length;
    while (chain.length > FEED_LIMIT || (this.#messages > FEED_LIMIT && chain.length > 2)) {
      this.#messages -= /** @type {Node} */ (chain.shift()).messages.length;
    }
  }

  /**
   * What comes after a position: undefined if nothing does, null if that cannot be told.
   * @param {Position} position @returns {{entry: Entry, node: Node} | null | undefined}
   */
  after({ cursor, last, channels, node: taken }) {
    const chain = this.#chain;
    for (let index = chain.length - 1; index >= 0; index--) {
      let node = chain[index];
      const here = node.cursor === cursor;
      const seen = here || last === undefined ? -1 : node.messages.findIndex(({ id }) => id === last);
      if (!here && seen < 0) continue;
      const before = here ? node : chain[index - 1];
      if (!before || (before !== taken && [...channels].some((channel) => before.open.has(channel)))) return null;
      if (here) node = chain[index + 1];
      if (!node) return undefined;
      if (![...channels].every((channel) => node.channels.has(channel))) return null;
      return { node, entry: here ? node : { ...node, messages: node.messages.slice(seen + 1) } };
    }
    return null;
  }
}

// The lead: which tab asks for all. By its table.

class Lead {
  state = "out";
  term = ""; // of the leader that we follow, or our own
  heard = 0; // when the leader was last heard of
  greeted = 0;
  unanswered = 0; // greetings in a row
  settled = 0; // when a new leader may ask
  /** @type {{channels: string[], state: State}} of the leader that we follow */
  base = { channels: [], state: { state: "catching-up" } };
  /** @type {Map<string, {lists: string[][], heard: number}>} the followers, by their ids */
  tabs = new Map();
  #offered = "";
  /** @type {AbortController | null} our place in the queue for the lock, or the lock */
  #turn = null;
  /** @type {BroadcastChannel | undefined} */
  #channel;

  /** @param {PushUp} client @param {string} name of the lock and of the channel; empty for a tab on its own */
  constructor(client, name) {
    const { locks, BroadcastChannel } = client.environment;
    this.client = client;
    this.id = client.unique();
    this.name = locks && BroadcastChannel ? name : "";
  }

  /** @param {string} event @param {any} [message] */
  send(event, message) {
    const { state, actions } = step(LEAD, this.state, event);
    if (state === this.state && !actions.length) return;
    if (state !== this.state) this.client.log("tabs", state, event);
    this.state = state;
    for (const action of actions) {
      if (action === "queue") this.#queue(false);
      else if (action === "steal") this.#queue(true);
      else if (action === "release") this.#release();
      else if (action === "greet") this.#greet();
      else if (action === "part") this.#part();
      else if (action === "announce") this.announce(event === "granted");
      else if (action === "adopt") this.#adopt(message);
    }
    this.client.touch();
  }

  /** Takes part with these channels, a list for each subscription; or does not. @param {string[][] | null} lists */
  offer(lists) {
    const offered = JSON.stringify(lists);
    if (offered === this.#offered) return;
    this.#offered = offered;
    this.send(lists ? "join" : "leave");
  }

  /** @param {boolean} steal */
  #queue(steal) {
    this.#release();
    const turn = (this.#turn = new AbortController());
    const granted = () => {
      if (this.#turn !== turn) return undefined;
      this.send("granted");
      return new Promise((resolve) => turn.signal.addEventListener("abort", resolve));
    };
    if (!this.name) return void Promise.resolve().then(granted);
    this.#channel ??= this.#listen();
    const { locks } = this.client.environment;
    const options = steal ? { steal } : { signal: turn.signal };
    locks.request(this.name, options, granted).catch((/** @type {Error} */ error) => {
      if (this.#turn !== turn) return;
      if (error.name === "AbortError") return this.send("lost");
      this.name = ""; // the browser has locks, but not for this page
      granted();
    });
  }

  #release() {
    const turn = this.#turn;
    this.#turn = null;
    turn?.abort();
  }

  #listen() {
    const channel = new this.client.environment.BroadcastChannel(this.name);
    channel.onmessage = ({ data }) => {
      this.client.check();
      this.#receive(data);
    };
    return channel;
  }

  /** @param {object} message */
  #post(message) {
    this.#channel?.postMessage(message);
  }

  #greet() {
    this.greeted = this.client.now();
    this.#post({ type: "hello", tab: this.id, lists: JSON.parse(this.#offered) });
  }

  #part() {
    this.#post({ type: "bye", tab: this.id });
    this.#channel?.close();
    this.#channel = undefined;
    this.tabs.clear();
    this.unanswered = 0;
  }

  /** Says who leads, and where the shared request is. @param {boolean} [anew] */
  announce(anew) {
    const { client } = this;
    if (anew) {
      this.settled = this.term && this.name ? client.now() + SETTLE : 0; // those that followed another have to answer
      this.term = client.unique();
      this.tabs.clear();
    }
    const { base, feed } = client;
    this.base = { channels: base.request?.channels ?? [], state: base.shown() };
    this.#post({ type: "lead", term: this.term, cursor: feed.cursor, pollUntil: client.pollUntil, ...this.base });
  }

  /** @param {{term: string, cursor?: string, pollUntil: number, channels: string[], state: State}} message */
  #adopt({ term, cursor, pollUntil, channels, state }) {
    const { client } = this;
    this.heard = client.now();
    this.unanswered = 0;
    this.base = { channels, state };
    client.pollUntil = pollUntil;
    if (cursor !== client.feed.cursor) client.feed.start(cursor);
    if (term !== this.term) this.#greet();
    this.term = term;
  }

  /** Passes an entry on to the other tabs. @param {Request} request @param {Entry} entry */
  pass({ cursor, channels }, entry) {
    this.#post({ type: "entry", term: this.term, from: cursor, channels, entry });
  }

  /** Every tab has to find out which of its subscriptions are refused. */
  split() {
    this.tabs.clear();
    this.#post({ type: "split" });
  }

  /** @param {any} message */
  #receive(message) {
    const { client } = this;
    if (message.type === "lead") this.send("leader", message);
    if (message.type === "split") client.split();
    if (message.type === "entry" && this.state === "following" && message.term === this.term) {
      this.heard = client.now();
      client.follow(message.from, message.entry, message.channels);
    }
    if (this.state !== "leading") return;
    if (message.type === "hello") this.tabs.set(message.tab, { lists: message.lists, heard: client.now() });
    if (message.type === "bye") this.tabs.delete(message.tab);
    if (message.type === "hello") this.announce();
    client.touch();
  }

  /** Greets a leader that is silent, and forgets tabs that are. @param {number} now */
  check(now) {
    if (this.state === "leading") {
      for (const [tab, { heard }] of this.tabs) if (now - heard > FORGET) this.tabs.delete(tab);
    } else if (this.state === "following" && this.name && now >= this.nextGreeting()) {
      if (this.heard >= this.greeted) this.unanswered = 0;
      else if (++this.unanswered >= 2) {
        this.unanswered = 0;
        this.send("silent");
      }
      this.#greet();
    }
  }

  /** @returns {State} */
  shown() {
    return this.unanswered ? { state: "catching-up" } : this.base.state;
  }

  nextGreeting() {
    const { heard, greeted } = this;
    return Math.min(greeted + GREET_ALWAYS, heard >= greeted ? heard + GREET : greeted + GREET / 2);
  }
}

// Subscriptions: each has a position, and takes what comes after it.

class Subscription {
  /** @type {Set<string>} */
  channels;
  /** @type {string | undefined} up to here everything was handled; undefined until the server has said where it is */
  cursor;
  /** @type {string | undefined} the id of the last message, if it is known */
  last;
  /** @type {Node | undefined} of the feed, if that is where the position comes from */
  node;
  /** @type {State} */
  state = { state: "catching-up" };
  /** @type {Problem | undefined} */
  reason;
  closed = false;
  suspect = false; // the shared request was refused, perhaps for this one
  busy = false; // a handler has not finished
  // Of its own requests, with which it catches up.
  /** @type {Entry | undefined} */
  answer;
  askedAt = 0;
  askAt = 0;
  asked = 0;
  askedCovered = false; // the shared request had these channels when this asked
  complete = false; // its last answer, asked for when covered, left nothing behind
  #client;
  #options;
  #key;

  /** @param {PushUp} client @param {Iterable<string>} channels @param {SubscriptionOptions} options */
  constructor(client, channels, options) {
    this.channels = new Set(channels);
    this.#client = client;
    this.#options = { ...client.options, ...options };
    this.#key = client.storageKey(options.name ?? JSON.stringify([...this.channels].sort()));
    const { cursor } = options;
    if (cursor && cursor !== "now") this.start(cursor);
    else if (!cursor) this.cursor = client.stored(this.#key);
  }

  /** @param {string} channel */
  add(channel) {
    if (this.channels.has(channel)) return;
    this.channels = new Set(this.channels).add(channel);
    this.last = undefined; // says nothing about the new channel
    this.complete = this.askedCovered = false;
    if (this.reason) this.retry();
    this.#client.touch();
  }

  /** @param {string} channel */
  remove(channel) {
    this.channels = new Set([...this.channels].filter((other) => other !== channel));
    if (this.reason) this.retry();
    this.#client.touch();
  }

  close() {
    this.closed = true;
    this.#client.closed(this);
  }

  /** The present cursor instead of none. @param {string} cursor */
  start(cursor) {
    this.cursor = cursor;
    this.#client.store(this.#key, cursor);
  }

  /** @param {Problem} reason */
  stop(reason) {
    this.reason = reason;
    if (reason.status === 400) this.#client.store(this.#key, ""); // or it would be refused after each reload
  }

  retry() {
    this.reason = undefined;
    this.suspect = true;
  }

  get active() {
    return !this.closed && !this.reason && this.channels.size > 0;
  }

  /** What it has to handle next: undefined if there is nothing, null if the feed does not contain its position. */
  next() {
    return this.answer ? { entry: this.answer, node: undefined } : this.#client.feed.after(this);
  }

  /** Handles everything there is, at once unless a handler makes it wait. */
  async pump() {
    if (this.busy) return;
    this.busy = true;
    for (let next = this.next(); next && this.active; next = this.next()) {
      const { channels } = this;
      const { entry, node } = next;
      this.answer = this.node = undefined;
      const handled = this.#handle(entry);
      if (handled instanceof Promise ? await handled : handled) continue;
      if (!this.active) break;
      this.last = channels === this.channels ? (this.#mine(entry).at(-1)?.id ?? this.last) : undefined;
      this.node = node;
      this.start(entry.cursor);
    }
    this.busy = false;
    this.#client.touch();
  }

  /** @param {Entry} entry */
  #mine({ messages }) {
    return messages.filter((message) => message.channels.some((channel) => this.channels.has(channel)));
  }

  /** Gives an entry to the handlers. The result is true if they chose another cursor, perhaps later. @param {Entry} entry */
  #handle(entry) {
    const gaps = entry.gaps.filter(({ channel }) => this.channels.has(channel));
    return gaps.length || this.#options.atLeastOnce ? this.#handleInTurn(gaps, entry) : this.#handleAll(entry);
  }

  /** @param {Entry} entry */
  #handleAll(entry) {
    for (const message of this.#mine(entry)) this.#attempt(() => this.#options.onMessage?.(this.#shown(message)));
    for (const channel of entry.closed) this.#attempt(() => this.#options.onClosed?.(channel));
    return false;
  }

  /** @param {Gap[]} gaps @param {Entry} entry */
  async #handleInTurn(gaps, entry) {
    const { onGap, onMessage, atLeastOnce } = this.#options;
    for (const gap of gaps) {
      if (!onGap) this.#client.error(new Error(`PushUp: messages on ${gap.channel} were missed (${gap.reason})`));
      const cursor = await this.#untilItWorks(() => onGap?.(gap));
      if (!this.active) return false;
      if (typeof cursor !== "string") continue;
      this.last = undefined;
      this.asked = this.askAt = 0;
      this.start(cursor);
      return true;
    }
    if (!atLeastOnce) return this.#handleAll(entry);
    for (const message of this.#mine(entry)) await this.#untilItWorks(() => onMessage?.(this.#shown(message)));
    return this.#handleAll({ ...entry, messages: [] });
  }

  /** The message with only those of its channels that are ours. @param {Message} message */
  #shown(message) {
    return { ...message, channels: message.channels.filter((channel) => this.channels.has(channel)) };
  }

  /** @param {() => unknown} call */
  #attempt(call) {
    if (!this.active) return;
    try {
      Promise.resolve(call()).catch((error) => this.#client.error(error));
    } catch (error) {
      this.#client.error(error);
    }
  }

  /** @param {() => unknown} call @returns {Promise<unknown>} */
  async #untilItWorks(call) {
    const [first, longest] = BACKOFF;
    for (let failures = 0; this.active; failures++) {
      try {
        return await call();
      } catch (error) {
        this.#client.error(error);
        await this.#client.sleep(Math.min(longest, first * 2 ** failures));
      }
    }
    return undefined;
  }

  /** @param {State} state */
  show(state) {
    if (JSON.stringify(state) === JSON.stringify(this.state)) return;
    this.state = state;
    this.#attempt(() => this.#options.onState?.(state));
  }
}

// The client: what the page sees, and where the parts meet.

export class PushUp {
  /** @type {Set<Subscription>} */
  #subscriptions = new Set();
  /** @type {object[]} */
  #events = [];
  /** @type {Promise<string | null | undefined> | undefined} */
  #token;
  #touched = false;
  #shown = "";
  // Time, in milliseconds.
  #time = 0;
  #wall;
  #mono;
  #jumped = false;
  #wakeAt = 0;
  /** @type {unknown} */
  #timer;
  // The page.
  #frozen = false;
  #hiddenSince = 0;
  #asleep = false;

  /** @param {Options} [options] */
  constructor(options = {}) {
    this.options = options;
    this.environment = { ...browser(), ...options.environment };
    const { environment } = this;
    const { url, credentials, user, token, share, transport } = options;
    this.url = (url ?? environment.url).replace(/\/+$/, "");
    this.transport = transport === "auto" ? undefined : transport;
    this.#wall = environment.wall();
    this.#mono = environment.mono();
    this.pollUntil = Number(this.stored(this.storageKey("poll"))) || 0;
    this.feed = new Feed();
    const alone = share === false || (token && user === undefined);
    this.lead = new Lead(this, alone ? "" : JSON.stringify(["pushup", this.url, credentials ?? "", user ?? ""]));
    this.base = new Connection(this, "base", {
      plan: () => this.#planBase(),
      take: (request, entry) => {
        this.lead.pass(request, entry);
        this.follow(request.cursor, entry, request.channels);
      },
      refused: (_request, problem) => this.#baseRefused(problem),
    });
    this.own = new Connection(this, "own", {
      plan: () => this.#planOwn(),
      take: (request, entry) => this.#takeOwn(request, entry),
      refused: ({ sub }, problem) => sub?.stop(problem),
    });
    environment.listen((event) => this.#happened(event));
  }

  /** @param {Iterable<string>} channels @param {SubscriptionOptions} [options] */
  subscribe(channels, options = {}) {
    const sub = new Subscription(this, channels, options);
    this.#subscriptions.add(sub);
    this.touch();
    return sub;
  }

  /** The last events, oldest first. */
  report() {
    return [...this.#events];
  }

  /** Looks at everything once, when the code that runs now has finished. */
  touch() {
    if (this.#touched) return;
    this.#touched = true;
    void Promise.resolve().then(() => {
      this.#touched = false;
      this.#refresh(this.now());
    });
  }

  /** @param {number} now */
  #refresh(now) {
    const { lead, base, own } = this;
    this.#sleepOrWake(now);
    if (!this.#active().length) this.feed.start();
    const lists = this.#asleep ? [] : this.#lists();
    lead.offer(lists.length ? lists : null);
    base.refresh();
    own.refresh();
    for (const sub of this.#subscriptions) sub.show(this.#stateOf(sub));
    const shown = JSON.stringify([base.shown(), base.request?.channels]);
    if (lead.state === "leading" && shown !== this.#shown) lead.announce();
    this.#shown = shown;
    this.#schedule(now);
  }

  // Time. One timer serves all deadlines.

  /** Milliseconds on a clock that goes as fast as the faster of the two. */
  now() {
    const [wall, mono] = [this.environment.wall(), this.environment.mono()];
    const [byWall, byMono] = [wall - this.#wall, mono - this.#mono];
    [this.#wall, this.#mono] = [wall, mono];
    const passed = Math.max(byWall, byMono, 0);
    if (byWall - byMono > JUMP || passed > LONGEST_PAUSE) this.#jumped = true;
    return (this.#time += passed);
  }

  /** @param {number} time of `now` @returns milliseconds since the epoch */
  toWall(time) {
    return Math.round(this.environment.wall() + time - this.now());
  }

  /** @param {number} time @returns {Promise<void>} */
  sleep(time) {
    return new Promise((resolve) => this.environment.setTimeout(resolve, time));
  }

  /** Sends the events that are due. */
  check() {
    const now = this.now();
    if (this.#jumped) {
      this.#jumped = false;
      this.#happened("jump");
    }
    this.base.check(now);
    this.own.check(now);
    this.lead.check(now);
    this.touch();
  }

  /** @param {number} now */
  #schedule(now) {
    const { base, own, lead, environment } = this;
    const times = [now + LOOK];
    for (const { dueAt, deadline } of [base, own]) times.push(dueAt || Infinity, deadline?.at ?? Infinity);
    if (lead.state === "following") times.push(lead.nextGreeting());
    if (lead.settled > now) times.push(lead.settled);
    for (const sub of this.#active()) if (this.#isLost(sub)) times.push(sub.askAt);
    const wakeAt = Math.max(now + 1, Math.min(...times.filter((time) => time > now)));
    if (this.#timer !== undefined && wakeAt === this.#wakeAt) return;
    environment.clearTimeout(this.#timer);
    this.#timer = undefined;
    if (!this.#subscriptions.size) return;
    this.#wakeAt = wakeAt;
    this.#timer = environment.setTimeout(() => {
      this.#timer = undefined;
      this.check();
    }, wakeAt - now);
  }

  // The page.

  /** @param {string} event */
  #happened(event) {
    const seen = event === "visibilitychange" && !this.environment.hidden();
    this.log("page", this.#asleep ? "asleep" : "awake", event);
    if (event === "freeze" || event === "pagehide") this.#frozen = true;
    if (event === "resume" || event === "pageshow" || seen) this.#frozen = false;
    if (event === "visibilitychange") this.#hiddenSince = this.now();
    for (const connection of [this.base, this.own]) {
      if (event === "offline") connection.send("offline");
      if (event === "online" || event === "jump" || (seen && connection.state === "waiting")) connection.send("nudge");
    }
    if (event === "jump") return;
    this.#refresh(this.now()); // now: a page that is being frozen runs nothing afterwards
    this.check();
  }

  /** @param {number} now */
  #sleepOrWake(now) {
    const { hidden } = this.options;
    // With a number of seconds a hidden page is awake for a while after each.
    const naps = typeof hidden === "number" && (now - this.#hiddenSince) % (hidden * 1000 + AWAKE) < hidden * 1000;
    const asleep = this.#frozen || (this.environment.hidden() && (naps || hidden === "pause"));
    if (asleep === this.#asleep) return;
    this.#asleep = asleep;
    this.base.send(asleep ? "sleep" : "wake");
    this.own.send(asleep ? "sleep" : "wake");
  }

  // What to ask for.

  #active() {
    return [...this.#subscriptions].filter((sub) => sub.active);
  }

  /** The channels of each subscription that the shared request may be asked for. */
  #lists() {
    return this.#active().flatMap((sub) => (sub.cursor !== undefined && !sub.suspect ? [[...sub.channels]] : []));
  }

  /** The channels of all tabs: those of a subscription together, or none of them if they are too many. */
  #union() {
    /** @type {Set<string>} */
    let union = new Set();
    for (const list of [this.#lists(), ...[...this.lead.tabs.values()].map((tab) => tab.lists)].flat()) {
      const larger = new Set([...union, ...list]);
      if (larger.size <= (this.options.channelLimit ?? CHANNEL_LIMIT) || !union.size) union = larger;
    }
    return [...union].sort();
  }

  /** @returns {Request | null} */
  #planBase() {
    if (this.lead.state !== "leading" || this.#asleep || this.now() < this.lead.settled) return null;
    const channels = this.#union();
    if (!channels.length) return null;
    if (this.feed.cursor === undefined) this.feed.start(this.#active().find((sub) => sub.cursor && !sub.suspect)?.cursor);
    return this.feed.cursor === undefined ? null : { kind: "base", channels, cursor: this.feed.cursor };
  }

  /** @returns {Request | null} */
  #planOwn() {
    const now = this.now();
    const sub = this.#active().find((each) => {
      return this.#isLost(each) && (now >= each.askAt || (!each.askedCovered && this.#isCovered(each)));
    });
    if (!sub || this.#asleep) return null;
    const { cursor = "" } = sub;
    return { kind: cursor ? "own" : "cursor", channels: [...sub.channels].sort(), cursor, sub };
  }

  /** Whether a subscription has to ask for itself, sooner or later. @param {Subscription} sub */
  #isLost(sub) {
    if (sub.busy) return false;
    return sub.cursor === undefined || sub.suspect || (this.feed.cursor !== undefined && sub.next() === null);
  }

  /** Whether the shared request asks for all its channels. @param {Subscription} sub */
  #isCovered(sub) {
    const channels = this.lead.state === "leading" ? this.base.request?.channels : this.lead.base.channels;
    return [...sub.channels].every((channel) => channels?.includes(channel));
  }

  // What comes.

  /** The shared request has yielded an entry, here or in the tab that leads. @param {string} from @param {Entry} entry @param {string[]} channels */
  follow(from, entry, channels) {
    this.feed.add(from, entry, channels);
    for (const sub of this.#active()) {
      void sub.pump();
      if (!this.#isLost(sub) || !entry.messages.some((message) => message.channels.some((c) => sub.channels.has(c)))) continue;
      sub.complete = false;
      sub.askAt = Math.min(sub.askAt, sub.askedAt + BACKOFF[0]);
    }
    this.touch();
  }

  /** @param {Request} request */
  opened({ sub }) {
    if (!sub) return;
    sub.askedAt = this.now();
    sub.askedCovered = this.#isCovered(sub);
  }

  /** @param {Request} request @param {Entry & {more?: boolean}} entry */
  #takeOwn({ kind, sub, cursor, channels }, entry) {
    if (!sub || (sub.cursor ?? "") !== cursor || sub.busy || String([...sub.channels].sort()) !== String(channels)) return;
    sub.suspect = false;
    if (kind === "cursor") return sub.start(entry.cursor);
    const longest = sub.askedCovered ? SELDOM : BACKOFF[1];
    sub.complete = sub.askedCovered && !entry.more;
    sub.askAt = entry.more ? 0 : this.now() + Math.min(longest, 1000 * 2 ** sub.asked++);
    sub.answer = entry;
    void sub.pump();
  }

  /** The shared request was refused: whose fault it is shows when each asks for itself. @param {Problem} problem */
  #baseRefused(problem) {
    const active = this.#active();
    if (this.base.refusals > REFUSALS || (active.length === 1 && !this.lead.tabs.size)) {
      for (const sub of active) sub.stop(problem);
    } else {
      this.lead.split();
      this.split();
    }
  }

  split() {
    this.feed.start();
    for (const sub of this.#active()) sub.suspect = true;
    this.touch();
  }

  /** What the page is shown. @param {Subscription} sub @returns {State} */
  #stateOf(sub) {
    if (sub.reason) return { state: "stopped", reason: sub.reason };
    const base = this.lead.state === "leading" ? this.base.shown() : this.lead.shown();
    const next = sub.suspect || sub.cursor === undefined ? null : sub.next();
    if (this.#asleep) return this.base.shown();
    if (this.#isCovered(sub) && (next === undefined || (next === null && sub.complete))) return base;
    const own = this.own.shown();
    return own.state === "offline" ? own : base.state === "offline" ? base : { state: "catching-up" };
  }

  /** @param {Subscription} sub */
  closed(sub) {
    this.#subscriptions.delete(sub);
    this.touch();
  }

  // The application.

  /** The token; the application is asked once for all that wait for it. @returns {Promise<string | null | undefined>} */
  token() {
    const { token } = this.options;
    if (token && !this.#token) {
      const asked = (this.#token = Promise.resolve().then(token));
      asked.catch(() => (this.#token = undefined));
    }
    return this.#token ?? Promise.resolve(undefined);
  }

  /** Whether the application wants a refused request to be tried again. @param {Request} request @param {Problem} problem */
  async mayRetry({ kind }, problem) {
    if (problem.status === 401 && this.options.token) {
      this.#token = undefined;
      return Boolean(await this.token());
    }
    if (kind === "base" && (this.#active().length > 1 || this.lead.tabs.size)) return false; // first: whose fault is it?
    return Boolean(await this.options.onRefused?.(problem));
  }

  /** @param {unknown} error */
  error(error) {
    this.log("page", "", "error", String(error));
    (this.options.onError ?? console.error)(error);
  }

  /** @param {string} part @param {string} state @param {string} event @param {string} [detail] */
  log(part, state, event, detail) {
    this.#events.push({ at: this.environment.wall(), part, state, event, ...(detail && { detail }) });
    if (this.#events.length > REPORT_LIMIT) this.#events.shift();
  }

  // The storage of the page, which may refuse.

  /** @param {string} what */
  storageKey(what) {
    return `pushup ${this.url} ${this.options.user ?? ""} ${what}`;
  }

  /** @param {string} key */
  stored(key) {
    try {
      return this.environment.storage().getItem(key) || undefined;
    } catch {
      return undefined;
    }
  }

  /** @param {string} key @param {string} value */
  store(key, value) {
    try {
      this.environment.storage().setItem(key, value);
    } catch {
      // A reload then begins at the present, or at the page's cursor.
    }
  }

  /** Streams did not get through, and polls did. */
  rememberToPoll() {
    this.pollUntil = this.environment.wall() + POLL_FOR;
    this.store(this.storageKey("poll"), String(this.pollUntil));
  }

  /** An id that no other tab has. */
  unique() {
    return this.environment.random().toString(36).slice(2);
  }
}

// The browser.

/** @returns {Environment} */
function browser() {
  /** @type {any} */
  const { location, navigator, document, addEventListener } = globalThis;
  const served = /^(.*)\/v1\/pushup\.js$/.exec(import.meta.url.replace(/[?#].*/, ""));
  return {
    url: served?.[1] ?? location?.origin ?? "",
    fetch: (...call) => globalThis.fetch(...call),
    wall: () => Date.now(),
    mono: () => performance.now(),
    setTimeout: (call, time) => setTimeout(call, time),
    clearTimeout: (timer) => clearTimeout(/** @type {any} */ (timer)),
    random: () => Math.random(),
    storage: () => sessionStorage, // may throw
    locks: navigator?.locks,
    BroadcastChannel: globalThis.BroadcastChannel,
    hidden: () => document?.visibilityState === "hidden",
    listen(heard) {
      for (const event of ["pagehide", "pageshow", "online", "offline"]) addEventListener?.(event, () => heard(event));
      for (const event of ["visibilitychange", "freeze", "resume"]) document?.addEventListener(event, () => heard(event));
    },
  };
}
