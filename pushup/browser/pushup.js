// @ts-check
/**
 * pushup.js: keeps a web page up to date with a PushUp server. How to use it: docs/guide/browser.md. Its tables, and why
 * nothing is lost: docs/internals/browser-client.md.
 *
 * In this order: the tables, the two transports, a connection, the token, the feed, the lead among tabs, subscriptions,
 * presence, the client.
 *
 * @typedef {import("./pushup.d.ts").PushUp} DeclaredPushUp
 * @typedef {import("./pushup.d.ts").Subscription} DeclaredSubscription
 * @typedef {import("./pushup.d.ts").Presence} DeclaredPresence
 * @typedef {import("./pushup.d.ts").PresenceOptions} PresenceOptions
 * @typedef {import("./pushup.d.ts").Member} Member
 * @typedef {import("./pushup.d.ts").Environment} Environment
 * @typedef {import("./pushup.d.ts").Message} Message
 * @typedef {import("./pushup.d.ts").Gap} Gap
 * @typedef {import("./pushup.d.ts").Problem} Problem
 * @typedef {import("./pushup.d.ts").State} State
 * @typedef {import("./pushup.d.ts").Options} Options
 * @typedef {import("./pushup.d.ts").SubscriptionOptions} SubscriptionOptions
 * @typedef {import("./pushup.d.ts").Channels} Channels
 * @typedef {{count: number, members?: Member[]}} Snapshot
 * @typedef {{cursor: string, messages: Message[], gaps: Gap[], closed: string[], open?: string[], snapshot?: Snapshot}} Entry
 *   what happened from one cursor to the next; open: channels of which something was told before that is about this, too
 * @typedef {Entry & {channels: Set<string>}} Node
 *   an entry, and what was asked for
 * @typedef {object} Purpose
 * @property {() => Request | null} plan
 * @property {(request: Request, entry: Entry) => void} take
 * @property {(request: Request, problem: Problem) => void} refused
 * @typedef {{cursor?: string, last?: string, node?: Node, channels: Set<string>}} Position
 * @typedef {{channels: string[], cursor: string, limit?: number, sub?: Subscription, missed?: boolean}} Request
 *   missed: since it was sent, something has come that its answer may not have
 */

// The tables. Each cell: the next state ("same" for no other), then the actions.

/** @type {Record<string, Record<string, string>>} */
export const CONNECTION = {
  idle: { want: "opening open", sleep: "asleep" },
  opening: {
    want: "opening close open",
    done: "idle close",
    begin: "live",
    end: "waiting wait",
    mute: "opening close poll open",
    fail: "waiting close count wait",
    refuse: "asking close count ask",
    sleep: "asleep close",
    nudge: "opening close open",
    offline: "same hurry",
  },
  waiting: { due: "opening open", done: "idle close", nudge: "waiting hasten", sleep: "asleep close" },
  asking: {
    allow: "waiting wait",
    deny: "stopped tell",
    fail: "waiting count wait",
    done: "idle close",
    sleep: "asleep close",
  },
  asleep: { wake: "opening open" },
  stopped: { want: "opening open", done: "idle" },
};
CONNECTION.live = CONNECTION.opening;

/** @type {Record<string, Record<string, string>>} */
export const LEAD = {
  out: { join: "following queue greet", granted: "out release" },
  following: {
    join: "following greet",
    leave: "out part release",
    granted: "leading lead",
    lost: "following queue",
    leader: "following adopt",
    silent: "following steal",
  },
  leading: { join: "leading announce", leave: "out part release", lost: "following queue greet" },
};

/**
 * The next state and the actions; an event that the table does not have changes nothing.
 * @param {typeof CONNECTION} table @param {string} state @param {string} event
 */
export function step(table, state, event) {
  const [next, ...actions] = (table[state][event] ?? "same").split(" ");
  return { state: next === "same" ? state : next, actions };
}

/**
 * Lets a machine follow its table: the next state, then the actions, which are its methods.
 * @param {any} machine @param {typeof CONNECTION} table @param {string} event @param {any} [detail]
 */
function drive(machine, table, event, detail) {
  const { state, actions } = step(table, machine.state, event);
  if (state === machine.state && !actions.length) return;
  if (event !== "leader") machine.client.log(machine.name, state, event, detail?.message);
  machine.state = state;
  for (const action of actions) machine[action](detail);
  machine.client.touch();
}

// The transports. Times are in milliseconds.

const FIRST_BYTE = 3_000;
const SILENCE = 30_000; // twice the server's heartbeat
const HOLD = 25_000; // a poll is held for so long
const PATIENCE = 15_000; // beyond what the server was asked to take
const LASTING = 5_000; // a connection that broke after so long was a good one
const POLL_FOR = 30 * 60_000; // after streams did not get through
const POLL_SHORTLY = 60_000; // after no connection was made: that says little about streams
const BACKOFF = [300, 30_000];
const FEED_LIMIT = 2_000; // messages and entries
const REPORT_LIMIT = 200; // events
const REFUSALS = 5; // in a row, after which the application is not asked again
const TOKEN_PATIENCE = 10_000; // for the application's function
const TOKEN_FAILURES = 2; // of this function in a row, of which the page is not told
const TOKEN_EARLY = 60_000; // a new token is fetched so long before the old one ends, or in the last quarter of its time
const BRIEF = 1_000; // a token that was good for so long has served its time
const REVOKED = 2; // tokens in a row, after which no other is asked for
const REVOKED_PAUSE = 2_000; // tokens from the second of a revocation are refused, and clocks differ
const GREET = 3_000; // a leader that has not been heard of for so long, or less
const GREET_ALWAYS = 60_000;
const JUMP = 5_000; // the clocks differ by more: the machine slept
const LONGEST_PAUSE = 120_000; // no timer is throttled to more
const LOOK = 5_000; // at the clocks
const SELDOM = 300_000; // asking again for what can hardly be
const CHANNEL_LIMIT = 100;
const FORGET = 180_000; // a tab that has not been heard of for so long
const SNAPSHOT = "snapshot"; // where presence begins, in the place of a cursor
const SAY_AGAIN = 1_000; // pause between two polls that say what was handled
const NEVER = { at: Infinity, event: "" }; // a deadline

/** Why a request ended without what was asked for; `status` is 0 if there was no answer that could be understood. */
class Trouble extends Error {
  /**
   * @param {string} text @param {Problem} [problem] @param {number} [pause] milliseconds that the server asks to wait
   */
  constructor(text, problem = { status: 0 }, pause = 0) {
    super(text);
    this.problem = problem;
    this.pause = pause;
  }
}

/** @param {Problem} problem */
const isRevoked = ({ type }) => type === "urn:pushup:revoked";

/** Parses server-sent events, in whatever pieces they come. */
export class EventParser {
  #decoder = new TextDecoder();
  #rest = "";

  /**
   * @param {Uint8Array} bytes the next piece
   * @returns {{id?: string, event?: string, data?: string}[]} the blocks that it completes
   */
  push(bytes) {
    const blocks = (this.#rest + this.#decoder.decode(bytes, { stream: true })).split(/\r?\n\r?\n/);
    this.#rest = blocks.pop() ?? "";
    return blocks.map((block) => {
      /** @type {Record<string, string>} */
      const fields = {};
      for (const line of block.split(/\r?\n/)) {
        const [, name, value] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
        fields[name] = name in fields ? `${fields[name]}\n${value}` : value;
      }
      return fields;
    });
  }
}

/** The pause that `Retry-After` asks for: seconds, or a date. @param {string | null} value @param {number} wall */
export function retryAfter(value, wall) {
  if (!value) return 0;
  const pause = /^\d+$/.test(value.trim()) ? Number(value) * 1000 : Date.parse(value) - wall;
  return Math.min(Math.max(pause || 0, 0), 3_600_000);
}

/**
 * Follows `POST /v1/events` until it ends. Gaps and closings wait for the next cursor: nothing is told twice if the
 * stream breaks between them.
 * @param {Connection} connection @param {AbortSignal} signal
 */
async function stream(connection, signal) {
  connection.within(FIRST_BYTE, "mute");
  const { channels, cursor } = connection.request;
  const response = await connection.fetch(signal, "/v1/events", { channels, cursor });
  const reader = response.body?.getReader();
  if (!reader || !/^text\/event-stream/i.test(response.headers.get("Content-Type") ?? ""))
    throw new Trouble("not a stream");
  const parser = new EventParser();
  /** @type {{channel: string, until?: string}[]} gaps and closings that may reach beyond the last cursor */
  let open = [];
  /** @returns {Entry} */
  const none = () => ({ cursor: "", messages: [], gaps: [], closed: [], open: open.map(({ channel }) => channel) });
  for (let entry = none(); ;) {
    const { done, value } = await reader.read();
    signal.throwIfAborted();
    if (done) return;
    connection.within(SILENCE, connection.lasted ? "fail" : "mute"); // if it gets through, it is not held back
    for (const { id, event, data } of parser.push(value)) {
      const content = data && JSON.parse(data);
      if (event === "error") throw new Trouble("error", content);
      if (event === "ticket") connection.ticket = content.ticket;
      if (event === "expiry") connection.client.token.accepted(connection.token, content.expires_in);
      if (event === "unread") connection.client.lead.unread();
      if (event === "gap") entry.gaps.push(content);
      if (event === "closed") entry.closed.push(content.channel);
      if (event === "gap" || event === "closed") open.push(content);
      if (event || !id) continue;
      if (content) entry.messages.push(content);
      connection.taken(signal, { ...entry, cursor: id });
      const isOver = !content && !open.some(({ until }) => until === id); // everything that was told of has been sent
      open = open.filter(({ until }) => !isOver && until !== id);
      entry = none();
    }
    connection.begin();
  }
}

/**
 * Polls again and again with `POST /v1/poll`; the first polls do not wait. To catch up, one answer is enough.
 * @param {Connection} connection @param {AbortSignal} signal
 */
async function poll(connection, signal) {
  let hold = 0;
  for (let useless = 0; useless < 3;) {
    const { channels, cursor, limit } = connection.request;
    const asked = connection.client.now();
    connection.within(hold + PATIENCE, "fail");
    const response = await connection.fetch(signal, "/v1/poll", { channels, cursor, limit, timeout: hold / 1000 });
    const answer = await response.json();
    signal.throwIfAborted();
    const { messages, gaps, closed, more } = answer;
    const empty = !messages.length && !gaps.length && !closed.length; // throws if it is no answer
    if (typeof answer.cursor !== "string" || (answer.cursor === cursor && (more || !empty))) break;
    if (answer.ticket) connection.ticket = answer.ticket;
    connection.client.token.accepted(connection.token, answer.expires_in);
    connection.taken(signal, answer);
    if (connection.name !== "base") return;
    if (!more) connection.begin();
    if (connection.mayStream) return connection.send("want");
    useless = empty && hold && connection.client.now() - asked < 1000 ? useless + 1 : 0;
    hold = more ? 0 : HOLD;
  }
  throw new Trouble("loop");
}

/** Asks who is there. @param {Connection} connection @param {AbortSignal} signal */
async function snapshot(connection, signal) {
  const [channel] = connection.request.channels;
  const response = await connection.fetch(signal, `/v1/presence?channel=${encodeURIComponent(channel)}`);
  const { cursor, ...snapshot } = await response.json();
  signal.throwIfAborted();
  if (typeof cursor !== "string") throw new Trouble("no snapshot");
  // There may be more: where the shared request is, nobody knows.
  connection.taken(signal, /** @type {Entry} */ ({ cursor, messages: [], gaps: [], closed: [], more: true, snapshot }));
}

// A connection: one request after the other, by the table.

class Connection {
  state = "idle";
  failures = 0;
  refusals = 0; // in a row
  short = 0; // streams in a row that broke early
  since = 0; // wall clock: when it was last up
  next = 0; // wall clock: the end of the pause
  notBefore = 0; // what the server said in Retry-After
  trial = false; // polling, to see whether only streams have trouble
  trialFor = 0; // for so long if so
  ticket = "";
  /** @type {Problem | undefined} of the last failure */
  problem;
  // Of the attempt that is under way.
  /** @type {string | null | undefined} */
  token;
  /** @type {AbortController | null} */
  attempt = null;
  deadline = NEVER; // when the server must have been heard from, or the pause ends
  /** @type {Request} with the cursor that it has come to */
  request = { channels: [], cursor: "" };
  key = "";
  streams = false;
  began = 0;

  /**
   * `plan` gives the next request, `take` gets what comes, `refused` hears of a refusal that the application accepts.
   * @param {PushUp} client @param {string} name
   * @param {Purpose} purpose
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
    if (!["opening", "waiting", "asking", "asleep"].includes(this.state)) this.since = this.client.environment.wall();
    drive(this, CONNECTION, event, trouble);
  }

  /** Looks whether something else is wanted than before. */
  refresh() {
    const request = this.plan();
    if (this.state === "idle") this.failures = 0; // they were of another request
    if (!request) this.send("done");
    else if (this.state === "idle" || this.#keyOf(request) !== this.key) this.send("want");
  }

  async open() {
    const request = this.plan();
    if (!request) return this.send("done");
    if (this.client.now() < this.notBefore) return this.send("end");
    const { signal } = (this.attempt = new AbortController());
    this.request = request;
    this.streams = false;
    this.key = this.#keyOf(request);
    this.within(PATIENCE, "fail");
    let trouble = new Trouble("ended");
    try {
      await this.client.token.get(); // if it is slow, no transport is to blame; and whoever sent the event has finished
      signal.throwIfAborted();
      this.streams = this.mayStream;
      await (this.streams ? stream : request.cursor === SNAPSHOT ? snapshot : poll)(this, signal);
    } catch (error) {
      trouble = error instanceof Trouble ? error : new Trouble(String(error));
    }
    if (signal.aborted) return;
    if (trouble.message !== "ended" || this.name === "base") return this.#failed(trouble, "fail");
    this.close();
    this.open();
  }

  /** Two requests with the same key ask for the same. @param {Request} request */
  #keyOf({ channels, cursor }) {
    return JSON.stringify([channels, this.name === "base" || cursor]);
  }

  get lasted() {
    return this.began > 0 && this.client.now() - this.began >= LASTING;
  }

  get mayStream() {
    const { only, pollUntil, environment } = this.client;
    return this.name === "base" && (only ? only === "stream" : !this.trial && environment.wall() >= pollUntil);
  }

  /** By POST if there is a body. @param {AbortSignal} signal @param {string} path @param {object} [body] */
  async fetch(signal, path, body) {
    const { client, ticket } = this;
    const token = (this.token = await client.token.get());
    signal.throwIfAborted();
    /** @type {Record<string, string>} */
    const headers = ticket ? { "PushUp-Ticket": ticket } : {};
    if (token && !body) headers.Authorization = `Bearer ${token}`;
    const hidden = client.isAway || undefined;
    const response = await client.environment.fetch(client.url + path, {
      method: body ? "POST" : "GET",
      body: body && JSON.stringify({ ...body, hidden, token: token || undefined }), // needs no preflight
      headers,
      credentials: client.options.credentials ?? "same-origin",
      cache: "no-store",
      signal,
    });
    if (response.status === 200) {
      client.token.accepted(token);
      return response;
    }
    const pause = retryAfter(response.headers.get("Retry-After"), client.environment.wall());
    const problem = await response.json().catch(() => ({}));
    throw new Trouble(`status ${response.status}`, { ...problem, status: response.status }, pause);
  }

  /** A sign of life must come in this time, or the event follows. @param {number} time @param {string} event */
  within(time, event) {
    this.deadline = { at: this.client.now() + time, event };
    this.client.touch();
  }

  /** @param {AbortSignal} signal @param {Entry} entry */
  taken(signal, entry) {
    const { request } = this;
    this.request = { ...request, cursor: entry.cursor };
    if (request.sub) this.failures = this.refusals = 0;
    this.take(request, entry);
    signal.throwIfAborted();
  }

  begin() {
    if (this.began) return;
    this.began = this.client.now();
    this.refusals = 0;
    if (this.trial && !this.streams) this.client.pollFor(this.trialFor);
    this.trial = false;
    this.send("begin");
  }

  close() {
    if (this.lasted) this.failures = 0;
    this.attempt?.abort();
    this.attempt = null;
    this.began = 0;
    this.deadline = NEVER;
  }

  wait() {
    const { client } = this;
    this.close();
    this.hasten(client.environment.random() * backoff(this.failures));
    this.next = Math.round(client.environment.wall() + this.deadline.at - client.now());
  }

  /** The pause ends when the server allows, or so much later. @param {number} [pause] */
  hasten(pause = 0) {
    this.within(Math.max(this.notBefore - this.client.now(), 0) + pause, "due");
  }

  /** @param {Trouble} trouble */
  count({ problem }) {
    this.failures++;
    this.problem = problem;
  }

  poll() {
    this.trial = true;
  }

  hurry() {
    this.within(Math.min(this.deadline.at - this.client.now(), LASTING), "fail");
  }

  /** @param {Trouble} trouble */
  async ask(trouble) {
    const { client } = this;
    const { problem } = trouble;
    const question = (this.attempt = new AbortController());
    let event = "deny";
    try {
      const allowed = ++this.refusals <= REFUSALS && client.mayRetry(this, problem);
      if (await allowed) event = "allow";
    } catch (error) {
      event = "fail";
      client.error(error);
    }
    if (this.attempt === question) this.send(event, trouble);
  }

  /** @param {Trouble} trouble */
  tell({ problem }) {
    this.refused(this.request, problem);
  }

  /** Sends the events that are due. @param {number} now */
  check(now) {
    const { at, event } = this.deadline;
    if (now < at) return;
    this.deadline = NEVER;
    if (event === "due") this.send(event);
    else this.#failed(new Trouble("overdue"), event);
  }

  /**
   * Which event it is when an attempt fails. First what is no failure (token, ticket); then what the status says; then
   * whether only streams are to blame; the option `transport` and a failing token() have the last word.
   * @param {Trouble} trouble @param {string} event
   */
  #failed(trouble, event) {
    const now = this.client.now();
    const { client, lasted } = this;
    if (this.request.sub) this.request.sub.askedAt = now; // others come first
    else client.sayAt = now + SAY_AGAIN;
    const { problem } = trouble;
    const { status } = problem;
    const pause = isRevoked(problem) ? REVOKED_PAUSE : trouble.pause;
    if (pause) this.notBefore = now + pause;
    const ticketEnded = this.ticket && problem.type === "urn:pushup:ticket-expired";
    if (ticketEnded || (status === 401 && client.token.ended(this.token, problem))) {
      this.ticket = ""; // without it the application is asked
      this.failures = 0;
      return this.send(ticketEnded || pause ? "end" : "want", trouble);
    }
    if (this.streams && [404, 405, 406, 501].includes(status) && problem.type !== "urn:pushup:unknown-channel")
      event = "mute"; // a server without streams
    else if (status >= 400 && status < 500 && ![408, 429].includes(status)) event = "refuse";
    else if (event === "fail" && lasted && !status && !["loop", "overdue"].includes(trouble.message)) event = "end";
    if (this.streams && !status) this.short = lasted ? 0 : this.short + 1;
    if (event === "fail" && this.short >= 3) event = "mute";
    if (event === "mute") {
      this.short = 0;
      this.trialFor = this.began || status || trouble.message === "overdue" ? POLL_FOR : POLL_SHORTLY;
    }
    if (event === "mute" && this.client.only) event = "fail";
    if (trouble.message === "no token" && client.token.failures <= TOKEN_FAILURES) event = "end";
    if (event === "fail") this.trial = false;
    this.send(event, trouble);
  }

  /** @returns {State} */
  shown() {
    const { state, failures, refusals, since, next, problem } = this;
    if (state === "live") return { state };
    if (failures <= Number(refusals === 1)) return { state: "catching-up" }; // a token expires: no reason for a banner
    return { state: "offline", failures, since, next: state === "waiting" ? next : null, reason: problem };
  }
}

/** The longest pause after so many failures. @param {number} failures */
function backoff(failures) {
  return Math.min(BACKOFF[1], BACKOFF[0] * 2 ** failures);
}

// The token: the application is asked once for all that wait for it, and again before it ends.

class Token {
  renewAt = Infinity;
  failures = 0; // of the application's function, in a row
  revoked = 0; // tokens in a row
  /** @type {Promise<string | null | undefined> | undefined} */
  coming;
  /** @type {string | null | undefined} the last one */
  text;
  #client;
  #since = 0; // when it was fetched
  #endsAt = 0; // as far as is known
  #isGood = false; // the server has accepted it
  #revokedAt = -Infinity; // what was asked for before that is as good as revoked

  /** @param {PushUp} client */
  constructor(client) {
    this.#client = client;
  }

  /** One that has not ended, as far as is known. */
  async get() {
    const now = this.#client.now();
    this.check(now);
    return now < this.#endsAt ? this.text : this.#fetch();
  }

  /** Fetches the next one if it is time. @param {number} now */
  check(now) {
    if (now >= this.renewAt) this.#fetch().catch(() => {});
  }

  #fetch() {
    this.renewAt = Infinity;
    if (this.coming) return this.coming;
    const coming = this.#ask().finally(() => {
      if (this.coming === coming) this.coming = undefined;
    });
    return (this.coming = coming);
  }

  async #ask() {
    const client = this.#client;
    const { token } = client.options;
    const askedAt = client.now();
    const late = async () => {
      await client.sleep(TOKEN_PATIENCE);
      throw new Error("PushUp: token() takes too long");
    };
    try {
      const text = await Promise.race([typeof token === "function" ? token() : token, late()]);
      const now = client.now();
      if (askedAt > this.#revokedAt && (text !== this.text || now >= this.#endsAt)) {
        this.text = text;
        this.#since = now;
        this.#endsAt = Infinity;
        this.#isGood = false;
      }
      this.failures = 0;
      return text;
    } catch (error) {
      this.renewAt = client.now() + client.environment.random() * backoff(++this.failures);
      client.error(error);
      throw new Trouble("no token", { status: 0, title: "no token" });
    }
  }

  /**
   * The server has accepted a token, and may have said for how many seconds it is still valid.
   * @param {string | null | undefined} text @param {number} [seconds]
   */
  accepted(text, seconds) {
    if (text !== this.text) return;
    this.#isGood = true;
    this.revoked = 0;
    if (seconds === undefined) return;
    const left = seconds * 1000;
    this.#endsAt = this.#client.now() + left;
    const early = Math.min(TOKEN_EARLY, left / 4) * (1 - this.#client.environment.random() / 2);
    this.renewAt = Math.min(this.renewAt, this.#endsAt - early);
  }

  /**
   * The server does not accept a token any more; whether that is normal, and another is to be had.
   * @param {string | null | undefined} text @param {Problem} problem
   */
  ended(text, problem) {
    const now = this.#client.now();
    if (text !== this.text || now >= this.#endsAt) return true;
    if (isRevoked(problem)) {
      this.revoked++;
      this.#revokedAt = now;
      this.coming = undefined; // the application may have issued it before
    }
    this.#endsAt = 0;
    return this.#isGood && now - this.#since >= BRIEF;
  }
}

// The feed: what came over the shared request, as a chain from cursor to cursor.

class Feed {
  /** @type {Node[]} */
  #chain = [];
  #size = 0; // entries and their messages

  /** Where the chain ends; undefined before it begins. */
  get cursor() {
    return this.#chain.at(-1)?.cursor;
  }

  /** Begins a new chain, or none. @param {string} [cursor] */
  start(cursor) {
    this.#chain = cursor === undefined ? [] : [{ cursor, messages: [], gaps: [], closed: [], channels: new Set() }];
    this.#size = 1;
  }

  /** @param {Entry} entry @param {string[]} channels what was asked for */
  add(entry, channels) {
    if (entry.cursor === this.cursor) return;
    const chain = this.#chain;
    chain.push({ ...entry, channels: new Set(channels) });
    this.#size += 1 + entry.messages.length;
    while (this.#size > FEED_LIMIT && chain.length > 2) {
      this.#size -= 1 + /** @type {Node} */ (chain.shift()).messages.length;
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
      if (!here && (seen < 0 || node.closed.length)) continue; // it may have been told of these before that message
      const before = here ? node : chain[index - 1];
      if (!before) return null;
      if (here) node = chain[index + 1];
      if (!node) return undefined;
      if (before !== taken && node.open?.some((channel) => channels.has(channel))) return null;
      if (![...channels].every((channel) => node.channels.has(channel))) return null;
      return { node, entry: here ? node : { ...node, messages: node.messages.slice(seen + 1) } };
    }
    return null;
  }
}

// The lead: which tab asks for all. By its table.

class Lead {
  name = "tabs";
  state = "out";
  term = ""; // of the leader that we follow, or our own
  heard = 0; // when the leader was last heard of
  greeted = 0;
  unanswered = 0; // greetings in a row
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
    this.client = client;
    this.id = client.unique();
    this.lock = name;
    this.patience = GREET * (1 - client.environment.random() / 2); // the first to greet spares the others
  }

  /** @param {string} event @param {any} [message] */
  send(event, message) {
    drive(this, LEAD, event, message);
  }

  /** Takes part with these channels, a list for each subscription; or does not. @param {string[][] | null} lists */
  offer(lists) {
    const offered = JSON.stringify(lists);
    if (offered === this.#offered) return;
    this.#offered = offered;
    this.send(lists ? "join" : "leave");
  }

  /** @param {boolean} [steal] */
  queue(steal) {
    const { locks, BroadcastChannel } = this.client.environment;
    this.release();
    this.base.channels = []; // nothing is known of whoever leads now
    const turn = (this.#turn = new AbortController());
    const granted = () => {
      if (this.#turn !== turn) return undefined;
      this.send("granted");
      return new Promise((resolve) => turn.signal.addEventListener("abort", resolve));
    };
    if (!this.lock || !locks || !BroadcastChannel) return queueMicrotask(granted);
    if (!this.#channel) {
      try {
        this.#channel = new BroadcastChannel(this.lock);
      } catch {
        this.lock = ""; // Firefox with cookies blocked
        return queueMicrotask(granted);
      }
      this.#channel.onmessage = ({ data }) => this.#receive(data);
    }
    locks
      .request(this.lock, steal ? { steal } : { signal: turn.signal }, granted)
      .catch((/** @type {Error} */ error) => {
        if (this.#turn !== turn) return;
        if (error.name === "AbortError") return this.send("lost");
        this.lock = ""; // the browser has locks, but not for this page
        granted();
      });
  }

  steal() {
    this.queue(true);
  }

  release() {
    const turn = this.#turn;
    this.#turn = null;
    turn?.abort();
  }

  /** @param {object} message */
  #post(message) {
    this.#channel?.postMessage(message);
  }

  greet() {
    this.greeted = this.client.now();
    this.#post({ type: "hello", tab: this.id, lists: JSON.parse(this.#offered) });
  }

  part() {
    this.#post({ type: "bye", tab: this.id });
    this.#channel?.close();
    this.#channel = undefined;
    this.tabs.clear();
    this.unanswered = 0;
  }

  lead() {
    this.term = this.client.unique();
    this.announce();
  }

  /** Says who leads, and where the shared request is. */
  announce() {
    const { base, feed, pollUntil } = this.client;
    this.base = { channels: base.request.channels, state: base.shown() };
    this.#post({ type: "lead", term: this.term, cursor: feed.cursor, pollUntil, base: this.base });
  }

  /** @param {{term: string, cursor?: string, pollUntil: number, base: Lead["base"]}} message */
  adopt({ term, cursor, pollUntil, base }) {
    const { client } = this;
    this.heard = client.now();
    this.unanswered = 0;
    this.base = base;
    client.pollUntil = pollUntil;
    client.continueFrom(cursor);
    if (term !== this.term) this.greet();
    this.term = term;
  }

  /** Every tab takes an entry. @param {Request} request @param {Entry} entry */
  pass({ cursor, channels }, entry) {
    this.#post({ type: "entry", term: this.term, from: cursor, channels, entry });
    this.client.follow(cursor, entry, channels);
  }

  /** The server asks what the user has seen; every tab answers for itself. */
  unread() {
    this.#post({ type: "unread" });
    this.client.unread();
  }

  /** Every tab has to find out which of its subscriptions are refused. */
  split() {
    this.tabs.clear();
    this.#post({ type: "split" });
    this.client.split();
  }

  /** @param {any} message */
  #receive({ type, tab, lists, ...message }) {
    const { client } = this;
    if (type === "lead") this.send("leader", message);
    if (type === "split") client.split();
    if (type === "unread") client.unread();
    if (type === "entry" && this.state === "following" && message.term === this.term) {
      this.heard = client.now();
      client.follow(message.from, message.entry, message.channels);
    }
    if (type === "bye") this.tabs.delete(tab);
    if (type === "hello") {
      this.tabs.set(tab, { lists, heard: client.now() });
      if (this.state === "leading") this.announce();
    }
    client.touch();
  }

  /** Greets a leader that is silent, and forgets tabs that are. @param {number} now */
  check(now) {
    for (const [tab, { heard }] of this.tabs) if (now - heard > FORGET) this.tabs.delete(tab);
    if (this.state !== "following" || now < this.greetAt) return;
    if (this.heard >= this.greeted) this.unanswered = 0;
    else if (++this.unanswered === 2) {
      this.unanswered = 0;
      this.send("silent");
    }
    this.greet();
  }

  /** @returns {State} */
  shown() {
    return this.unanswered ? { state: "catching-up" } : this.base.state;
  }

  get greetAt() {
    return Math.min(Math.max(this.heard, this.greeted) + this.patience, this.greeted + GREET_ALWAYS);
  }
}

// Subscriptions: each has a position, and takes what comes after it.

/** @implements {DeclaredSubscription} */
class Subscription {
  /** @type {Set<string>} */
  channels;
  /** @type {string | undefined} up to here everything was handled; undefined until the server has said where it is */
  cursor;
  begin = "now"; // or "earliest": no gaps are told then, so the shared request does not begin there; or SNAPSHOT
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
  /** @type {string | undefined} if the server asks what was seen: the cursor that was said last, or none */
  said;
  // Of its own requests, with which it catches up.
  /** @type {Entry | undefined} */
  answer;
  askedAt = 0;
  askAt = 0;
  asked = 0;
  complete = ""; // the cursor of the last answer if it left nothing behind
  leapt = ""; // the last cursor that onGap returned: if it does so again, that leads nowhere
  #client;
  #options;
  #key;

  /** @param {PushUp} client @param {Channels} channels @param {SubscriptionOptions} options */
  constructor(client, channels, options) {
    this.channels = new Set(channels);
    this.#client = client;
    this.#options = { ...client.options, ...options };
    this.#key = JSON.stringify(options.name ?? [...this.channels].sort());
    const { cursor } = options;
    if (cursor === "earliest" || cursor === SNAPSHOT) this.begin = cursor;
    else if (cursor && cursor !== "now") this.start(cursor);
    else if (!cursor) this.cursor = client.stored(this.#key);
  }

  /** @param {string} channel */
  add(channel) {
    if (this.channels.has(channel)) return;
    this.channels = new Set(this.channels).add(channel);
    this.last = this.node = undefined; // they say nothing about the new channel
    this.complete = "";
    this.asked = this.askAt = 0;
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
    this.#client.stored(this.#key, cursor);
  }

  /** Continues there instead. @param {string} cursor */
  leap(cursor) {
    this.last = undefined;
    this.asked = this.askAt = 0;
    if (cursor === SNAPSHOT) this.cursor = undefined;
    else this.start((this.leapt = cursor));
  }

  /** @param {Problem} reason */
  stop(reason) {
    this.reason = reason;
    if (reason.status === 400) this.#client.stored(this.#key, ""); // or it would be refused after each reload
  }

  retry() {
    this.reason = undefined;
    this.suspect = true;
    if (this.#client.now() - this.askedAt > LASTING) this.asked = this.askAt = 0; // the pause was for something else
  }

  get active() {
    return !this.closed && !this.reason && this.channels.size > 0;
  }

  /** Who is there now. @param {Snapshot} _snapshot */
  begins(_snapshot) {}

  /** What it has to handle next: undefined if there is nothing, null if the feed does not contain its position. */
  next() {
    return this.answer ? { entry: this.answer, node: undefined } : this.#client.feed.after(this);
  }

  /**
   * Handles everything there is, at once unless a handler makes it wait. A handler may leap, close, add or remove; so
   * this compares with what was there before.
   */
  async pump() {
    if (this.busy) return;
    this.busy = true;
    const { onMessage, onClosed, atLeastOnce } = this.#options;
    for (let next; this.active && (next = this.next());) {
      const { entry, node } = next;
      const { channels, cursor } = this;
      /** @param {string} channel */
      const isMine = (channel) => this.channels.has(channel);
      let { last } = this;
      this.answer = this.node = undefined;
      const gaps = entry.gaps.filter((gap) => isMine(gap.channel));
      if (gaps.length && ((await this.#tell(gaps)) || !this.active)) continue;
      const { snapshot } = entry;
      if (snapshot) this.#call(() => this.begins(snapshot));
      // Messages of a channel that was closed were dropped: what there is of it was published later.
      for (const channel of entry.closed) if (isMine(channel)) this.#call(() => onClosed?.(channel));
      for (const message of entry.messages) {
        if (!message.channels.some(isMine)) continue; // a handler may add and remove channels
        const call = () => onMessage?.({ ...message, channels: message.channels.filter(isMine) });
        if (atLeastOnce) await this.#untilItWorks(call);
        else this.#call(call);
        last = message.id;
      }
      if (this.closed || this.reason || (atLeastOnce && last !== this.last && !this.active)) break;
      if (cursor !== this.cursor) continue; // it leaps
      [this.last, this.node] = channels === this.channels ? [last, node] : [];
      this.start(entry.cursor);
    }
    this.busy = false;
    this.#client.touch();
  }

  /** Tells gaps; whether a handler chose another cursor. @param {Gap[]} gaps */
  async #tell(gaps) {
    const { onGap } = this.#options;
    for (const gap of gaps) {
      if (!onGap) this.#client.error(new Error(`PushUp: messages on ${gap.channel} were missed (${gap.reason})`));
      const cursor = await this.#untilItWorks(() => onGap?.(gap));
      if (typeof cursor !== "string" || cursor === this.leapt || !this.active) continue;
      this.leap(cursor);
      return true;
    }
    return false;
  }

  /** @param {() => unknown} call */
  #call(call) {
    if (this.closed) return;
    try {
      Promise.resolve(call()).catch((error) => this.#client.error(error));
    } catch (error) {
      this.#client.error(error);
    }
  }

  /** @param {() => unknown} call @returns {Promise<unknown>} */
  async #untilItWorks(call) {
    for (let failures = 0; this.active; failures++) {
      try {
        return await call();
      } catch (error) {
        this.#client.error(error);
        await this.#client.sleep(backoff(failures));
      }
    }
    return undefined;
  }

  /** @param {State} state */
  show(state) {
    if (JSON.stringify(state) === JSON.stringify(this.state)) return;
    this.state = state;
    this.#call(() => this.#options.onState?.(state));
  }
}

// Presence: a subscription that begins with a snapshot of the members, and keeps them by the messages after it.

/** @implements {DeclaredPresence} */
class Presence extends Subscription {
  /** @type {Map<string, Member> | null} */
  members = null;
  /** @type {number | undefined} */
  count;
  #onChange;

  /** @param {PushUp} client @param {string} channel @param {PresenceOptions} options */
  constructor(client, channel, { onChange, ...options }) {
    super(client, [channel], {
      onClosed: undefined,
      ...options,
      atLeastOnce: false,
      cursor: SNAPSHOT,
      name: `members of ${channel}`,
      onMessage: ({ event, data }) => event === "presence" && this.#take(data),
      onGap: () => SNAPSHOT,
    });
    this.#onChange = onChange;
  }

  /** @param {Snapshot} snapshot */
  begins({ count, members }) {
    const before = this.members;
    this.count = count;
    const now = (this.members = members ? new Map(members.map((member) => [member.subject, member])) : null);
    if (!before || !now || !members) return this.#onChange?.({ joined: [], updated: [], left: [] });
    const text = JSON.stringify;
    return this.#onChange?.({
      joined: members.filter(({ subject }) => !before.has(subject)),
      updated: members.filter((member) => before.has(member.subject) && text(before.get(member.subject)) !== text(member)),
      left: [...before.values()].filter(({ subject }) => !now.has(subject)),
    });
  }

  /** @param {{count: number, joins?: Member[], updates?: Member[], leaves?: string[]}} delta */
  #take({ count, joins = [], updates = [], leaves = [] }) {
    const { members } = this;
    const left = leaves.flatMap((subject) => members?.get(subject) ?? []);
    for (const subject of leaves) members?.delete(subject);
    for (const member of [...joins, ...updates]) members?.set(member.subject, member);
    this.count = count;
    if (members?.size !== count) {
      if (joins.length + updates.length + leaves.length) this.leap(SNAPSHOT);
      else this.members = null; // they are more than the server lists
    }
    return this.#onChange?.({ joined: joins, updated: updates, left });
  }
}

// What the page passes: a mistake that nobody reports looks like a page without news.

const HANDLERS = ["onMessage", "onGap", "onState", "onClosed", "atLeastOnce"];
const SUBSCRIPTION_OPTIONS = [...HANDLERS, "cursor", "name"];
const MORE = "url token credentials user share transport hidden onRefused onError channelLimit environment";
const OPTIONS = [...HANDLERS, ...MORE.split(" ")];
/** @type {Record<string, unknown[]>} */
const CHOICES = {
  transport: ["auto", "stream", "poll"],
  credentials: ["omit", "same-origin", "include"],
  hidden: ["continue", "pause"],
};

/** Throws a TypeError that says what to write. @param {unknown} options @param {string[]} names */
function checkOptions(options, names) {
  if (typeof options !== "object" || !options) throw new TypeError("PushUp: options are an object: {onMessage: show}");
  for (const [name, value] of Object.entries(options)) {
    if (!names.includes(name)) {
      const meant = names.find((known) => known.toLowerCase() === name.toLowerCase()) ?? `one of ${names.join(", ")}`;
      throw new TypeError(`PushUp: there is no option ${name}; write ${meant}`);
    }
    if (value === undefined) continue;
    if (name.startsWith("on") && typeof value !== "function") throw new TypeError(`PushUp: ${name} must be a function`);
    if (CHOICES[name]?.includes(value) === false)
      throw new TypeError(`PushUp: ${name} must be one of ${CHOICES[name].join(", ")}`);
  }
}

// The client: what the page sees, and where the parts meet.

/** @implements {DeclaredPushUp} */
export class PushUp {
  /** @type {Set<Subscription>} */
  #subscriptions = new Set();
  /** @type {import("./pushup.d.ts").Event[]} */
  #events = [];
  #touched = false;
  #shown = "";
  #warned = false;
  // Time, in milliseconds.
  #time = 0;
  #wall;
  #mono;
  #jumped = false;
  /** @type {unknown} */
  #timer;
  #checkAt = Infinity;
  /** @type {Request | null} a poll that says what was seen, until it is answered */
  #saying = null;
  sayAt = 0; // the earliest time of the next
  // The page.
  #frozen = false;
  #asleep = false;

  /** @param {Options} [options] */
  constructor(options = {}) {
    checkOptions(options, OPTIONS);
    this.options = options;
    this.environment = options.environment ?? browser();
    const { environment } = this;
    const { url, credentials, user, token, share, transport } = options;
    this.only = transport === "auto" ? undefined : transport;
    this.url = (url ?? environment.url).replace(/\/+$/, "");
    if (!this.url) throw new TypeError('PushUp: outside of a page, give the url of the server: {url: "https://..."}');
    this.#wall = environment.wall();
    this.#mono = environment.mono();
    this.pollUntil = Number(this.stored("transport")) || 0;
    this.token = new Token(this);
    this.feed = new Feed();
    const alone = share === false || (token && user === undefined);
    const shared = ["pushup 1", this.url, credentials ?? "", user ?? "", Boolean(token)];
    this.lead = new Lead(this, alone ? "" : JSON.stringify(shared));
    this.base = new Connection(this, "base", {
      plan: () => this.#planBase(),
      take: (request, entry) => this.lead.pass(request, entry),
      refused: (_request, problem) => this.#baseRefused(problem),
    });
    this.own = new Connection(this, "own", {
      plan: () => this.#planOwn(),
      take: (request, entry) => this.#takeOwn(request, entry),
      refused: (request, problem) => this.#ownRefused(request, problem),
    });
    environment.listen((event) => this.#happened(event));
  }

  /** @param {Channels} channels @param {SubscriptionOptions} [options] */
  subscribe(channels, options = {}) {
    if (typeof channels === "string" || !channels?.[Symbol.iterator])
      throw new TypeError('PushUp: subscribe to a list of channels, such as ["news"]');
    checkOptions(options, SUBSCRIPTION_OPTIONS);
    const sub = new Subscription(this, channels, options);
    return this.#add(sub);
  }

  /** @param {string} channel @param {PresenceOptions} [options] */
  presence(channel, options = {}) {
    if (typeof channel !== "string") throw new TypeError('PushUp: presence is of one channel, such as "room:1"');
    checkOptions(options, ["onChange", "onState"]);
    return this.#add(new Presence(this, channel, options));
  }

  /** @template {Subscription} Sub @param {Sub} sub */
  #add(sub) {
    this.now(); // time without subscriptions is no sleep
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
    queueMicrotask(() => {
      this.#touched = false;
      this.check();
    });
  }

  /** Sends the events that are due, and looks at everything, at one time: what is due a moment later has its timer. */
  check() {
    const { lead, base, own } = this;
    const now = this.now();
    if (this.#jumped) {
      this.#jumped = false;
      this.token.coming = undefined; // what was under way may hang
      this.#happened("jump");
    }
    this.#sleepOrWake();
    base.check(now);
    own.check(now);
    lead.check(now);
    if (!this.#active().length) this.feed.start();
    const lists = this.#asleep ? [] : this.#lists();
    lead.offer(lists.length ? lists : null);
    base.refresh();
    own.refresh();
    if (base.state === "live") this.token.check(now);
    for (const sub of this.#active()) if (!sub.busy && sub.next()) void sub.pump(); // it has joined within the feed
    for (const sub of this.#subscriptions) {
      const state = this.#stateOf(sub);
      sub.show(state);
      this.#warn(state);
    }
    const shown = JSON.stringify([base.shown(), base.request.channels]);
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
    if (this.#subscriptions.size && (byWall - byMono > JUMP || passed > LONGEST_PAUSE)) this.#jumped = true;
    return (this.#time += passed);
  }

  /** @param {number} time @returns {Promise<void>} */
  sleep(time) {
    return new Promise((resolve) => this.environment.setTimeout(resolve, time));
  }

  /** @param {number} now */
  #schedule(now) {
    const { base, own, lead, environment } = this;
    const times = [now + LOOK, this.sayAt, base.deadline.at, own.deadline.at, lead.greetAt];
    for (const { askAt } of this.#active()) times.push(askAt);
    const next = Math.max(now + 1, Math.min(...times.filter((time) => time > now)));
    if (!this.#subscriptions.size || next >= this.#checkAt) return; // a timer that is late comes, too
    environment.clearTimeout(this.#timer);
    this.#checkAt = next;
    this.#timer = environment.setTimeout(() => {
      this.#checkAt = Infinity;
      this.check();
    }, next - now);
  }

  // The page.

  /** @param {string} event */
  #happened(event) {
    const seen = event === "visibilitychange" && !this.environment.hidden();
    this.log("page", this.#asleep ? "asleep" : "awake", event);
    if (event === "freeze" || event === "pagehide") this.#frozen = true;
    if (event === "resume" || event === "pageshow" || seen) this.#frozen = false;
    // What is held was asked for by a page in view.
    if (event === "visibilitychange" && this.isAway) this.base.send("want");
    for (const connection of [this.base, this.own]) {
      if (event === "offline") connection.send("offline");
      if (event === "online" || event === "jump" || (seen && connection.state === "waiting")) connection.send("nudge");
    }
    if (event === "jump") return;
    this.check(); // now: a page that is being frozen runs nothing afterwards
    if (event === "pagehide") this.part(this.#presences());
  }

  #sleepOrWake() {
    const asleep = this.#frozen || (this.options.hidden === "pause" && this.environment.hidden());
    if (asleep === this.#asleep) return;
    this.#asleep = asleep;
    for (const connection of [this.base, this.own]) connection.send(asleep ? "sleep" : "wake");
  }

  /** Its user may be back later than that of another page. */
  get isAway() {
    return this.environment.hidden() && this.#presences().length > 0;
  }

  /** Their user is no longer there, unless another tab is. @param {Presence[]} presences */
  part(presences) {
    const channels = presences.flatMap((presence) => [...presence.channels]);
    const body = JSON.stringify({ channels, token: this.token.text || undefined });
    if (channels.length) this.environment.beacon?.(`${this.url}/v1/presence`, body);
  }

  // What to ask for.

  #presences() {
    return this.#active().filter((sub) => sub instanceof Presence);
  }

  #active() {
    return [...this.#subscriptions].filter((sub) => sub.active);
  }

  /** The subscriptions whose channels the shared request may be asked for. */
  #placed() {
    return this.#active().filter((sub) => sub.cursor && !sub.suspect);
  }

  #lists() {
    return this.#placed().map((sub) => [...sub.channels]);
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
    if (this.lead.state !== "leading" || this.#asleep) return null;
    const channels = this.#union();
    if (!channels.length) return null;
    this.continueFrom(this.feed.cursor ?? this.#placed()[0]?.cursor);
    const { cursor } = this.feed;
    return cursor === undefined ? null : { channels, cursor };
  }

  /** @returns {Request | null} */
  #planOwn() {
    const now = this.now();
    if (this.#asleep) return null;
    const due = this.#active().filter((each) => this.#isLost(each) && now >= each.askAt);
    const [sub] = due.sort((one, other) => one.askedAt - other.askedAt);
    const say = !sub || this.sayAt < sub.askedAt ? (this.#saying ??= this.#say(now)) : null;
    if (say || !sub) return say;
    return { channels: [...sub.channels].sort(), cursor: sub.cursor ?? sub.begin, sub };
  }

  /** A poll with the cursor up to which subscriptions have handled everything. @param {number} now */
  #say(now) {
    const asked = this.#active().filter(
      (sub) => sub.cursor && sub.said !== undefined && sub.said !== sub.cursor && this.#isCovered(sub),
    );
    const cursor = asked[0]?.cursor;
    if (!cursor || now < this.sayAt) return null;
    const subs = asked.filter((sub) => sub.cursor === cursor);
    // One that is not up to date will have handled more, and then says so.
    for (const sub of subs) sub.said = this.#stateOf(sub).state === "live" ? undefined : cursor;
    const channels = [...new Set(subs.flatMap((sub) => [...sub.channels]))].sort();
    return { channels, cursor, limit: 1 };
  }

  /** Whether a subscription has to ask for itself, sooner or later. @param {Subscription} sub */
  #isLost(sub) {
    return !sub.busy && (!sub.cursor || sub.suspect || (this.feed.cursor !== undefined && sub.next() === null));
  }

  /** Whether the shared request asks for all its channels. @param {Subscription} sub */
  #isCovered(sub) {
    const channels = this.lead.state === "leading" ? this.base.request.channels : this.lead.base.channels;
    return [...sub.channels].every((channel) => channels.includes(channel));
  }

  // What comes.

  /**
   * The shared request has yielded an entry, here or in the tab that leads.
   * @param {string} from @param {Entry} entry @param {string[]} channels
   */
  follow(from, entry, channels) {
    this.continueFrom(from);
    this.feed.add(entry, channels);
    const told = [...entry.messages.map((each) => each.channels), entry.gaps.map((gap) => gap.channel), entry.closed].flat();
    for (const sub of this.#active()) {
      void sub.pump();
      if (told.some((channel) => sub.channels.has(channel))) this.#askSoon(sub);
    }
  }

  /** The feed goes on here. If it had not come that far, it may lack messages from before. @param {string} [cursor] */
  continueFrom(cursor) {
    if (cursor === this.feed.cursor) return;
    this.feed.start(cursor);
    for (const sub of this.#active()) this.#askSoon(sub);
  }

  /** Something came that a subscription may not find, nor get by an answer under way. @param {Subscription} sub */
  #askSoon(sub) {
    if (!sub.busy && !this.#isLost(sub)) return;
    sub.complete = "";
    if (this.own.request.sub === sub) this.own.request.missed = true;
    if (sub.suspect) return;
    sub.asked = 0;
    sub.askAt = Math.min(sub.askAt, sub.askedAt + BACKOFF[0]);
  }

  /** @param {Request} request @param {Entry & {more?: boolean}} entry */
  #takeOwn({ sub, cursor, channels, missed }, entry) {
    const now = this.now();
    if (!sub) {
      this.#saying = null;
      this.sayAt = now + SAY_AGAIN;
    }
    if (!sub || (sub.cursor ?? sub.begin) !== cursor || sub.busy || String([...sub.channels].sort()) !== String(channels))
      return;
    const longest = sub.suspect || this.#isCovered(sub) ? SELDOM : BACKOFF[1];
    sub.suspect = false;
    sub.complete = entry.more ? "" : entry.cursor;
    sub.askedAt = now;
    sub.askAt = entry.more ? 0 : now + Math.min(longest, 1000 * 2 ** sub.asked++);
    sub.answer = entry;
    void sub.pump();
    if (missed) this.#askSoon(sub);
  }

  /** The shared request was refused: whose fault it is shows when each asks for itself. @param {Problem} problem */
  #baseRefused(problem) {
    const active = this.#active();
    if (this.base.refusals > REFUSALS || isRevoked(problem) || (active.length === 1 && !this.lead.tabs.size)) {
      for (const sub of active) sub.stop(problem);
    } else this.lead.split();
  }

  /** @param {Request} request @param {Problem} problem */
  #ownRefused({ sub }, problem) {
    if (!sub) return void (this.#saying = null);
    sub.stop(problem);
    for (const connection of [this.base, this.own]) connection.failures = connection.refusals = 0; // it was this one's fault
  }

  /** The server asks what the user has seen of what it has sent. */
  unread() {
    for (const sub of this.#active()) sub.said = "";
  }

  split() {
    this.feed.start();
    for (const sub of this.#active()) sub.retry();
  }

  /** What the page is shown. @param {Subscription} sub @returns {State} */
  #stateOf(sub) {
    if (sub.reason) return { state: "stopped", reason: sub.reason };
    const base = this.lead.state === "leading" ? this.base.shown() : this.lead.shown();
    const next = sub.suspect ? null : sub.next();
    if (this.#asleep) return this.base.shown();
    if (this.#isCovered(sub) && !sub.busy && (next === undefined || (next === null && sub.complete === sub.cursor)))
      return base;
    const own = this.own.shown();
    return own.state === "offline" ? own : base.state === "offline" ? base : { state: "catching-up" };
  }

  /** @param {Subscription} sub */
  closed(sub) {
    this.#subscriptions.delete(sub);
    if (sub instanceof Presence) this.part([sub]);
    this.touch();
  }

  // The application.

  /**
   * Whether the application wants a refused request to be tried again: with another token, if it had one.
   * @param {Connection} connection @param {Problem} problem
   */
  mayRetry({ name, token }, problem) {
    if (problem.status === 401 && typeof this.options.token === "function") return token && this.token.revoked < REVOKED;
    if (name === "base" && (this.#active().length > 1 || this.lead.tabs.size)) return false; // whose fault?
    return this.options.onRefused?.(problem);
  }

  /** Says once why the page is offline: browsers do not tell scripts. @param {State} state */
  #warn(state) {
    if (this.#warned || state.state !== "offline" || state.reason?.title === "no token") return;
    this.#warned = true;
    const { status = 0, title, detail } = state.reason ?? {};
    const { origin } = this.environment;
    let why = "cannot be reached; does it run?";
    if (status) why = `answers ${status}: ${detail ?? title ?? ""}`;
    else if (origin.startsWith("https:") && this.url.startsWith("http:")) why += " Browsers keep https pages from http.";
    else if (origin !== this.url)
      why += ` Is ${origin} in its cors_origins, and it in connect-src of the page's Content-Security-Policy?`;
    console.warn(`PushUp: ${this.url} ${why}`);
  }

  /** @param {unknown} error */
  error(error) {
    this.log("page", "", "error", String(error));
    void Promise.resolve(error).then(this.options.onError ?? console.error);
  }

  /** @param {string} part @param {string} state @param {string} event @param {string} [detail] */
  log(part, state, event, detail) {
    this.#events.push({ at: this.environment.wall(), part, state, event, ...(detail && { detail }) });
    if (this.#events.length > REPORT_LIMIT) this.#events.shift();
  }

  /** What is stored in the page, or is now; the page may refuse. @param {string} what @param {string} [value] */
  stored(what, value) {
    const key = `pushup ${this.url} ${this.options.user ?? ""} ${what}`;
    try {
      const storage = this.environment.storage();
      if (value === undefined) return storage.getItem(key) || undefined;
      storage.setItem(key, value);
    } catch {
      // A reload then begins at the page's cursor, or at the present.
    }
    return undefined;
  }

  /** Streams did not get through, and polls did. @param {number} time */
  pollFor(time) {
    this.pollUntil = this.environment.wall() + time;
    this.stored("transport", String(this.pollUntil));
  }

  /** An id that no other tab has. */
  unique() {
    return this.environment.random().toString(36).slice(2);
  }
}

// The browser.

/** @returns {Environment} */
function browser() {
  const [served, isServed] = import.meta.url.split("/v1/pushup.js");
  return {
    url: isServed === undefined ? (globalThis.location?.origin ?? "") : served,
    origin: globalThis.location?.origin ?? "",
    fetch: (...call) => fetch(...call),
    wall: Date.now,
    mono: () => performance.now(),
    setTimeout: (call, time) => setTimeout(call, time),
    clearTimeout: (timer) => clearTimeout(/** @type {number} */ (timer)),
    random: Math.random,
    storage: () => sessionStorage, // may throw
    locks: globalThis.navigator?.locks,
    BroadcastChannel: globalThis.BroadcastChannel,
    beacon: (url, body) => navigator.sendBeacon?.(url, body),
    hidden: () => globalThis.document?.visibilityState === "hidden",
    listen(heard) {
      const events = ["pagehide", "pageshow", "online", "offline", "visibilitychange", "freeze", "resume"];
      for (const event of events) globalThis.addEventListener?.(event, () => heard(event), true); // of the document, too
    },
  };
}
