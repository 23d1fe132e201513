/**
 * A small world for pushup.js: one simulated clock, a PushUp service that is as simple as can be (a list of messages,
 * nodes that lag behind, both transports), a network with faults, and a browser with tabs. A seed decides everything.
 */

/** Random numbers from a seed (mulberry32). */
export class Dice {
  constructor(seed) {
    this.seed = seed >>> 0;
  }

  next() {
    this.seed = (this.seed + 0x6d2b79f5) >>> 0;
    let t = this.seed;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }

  chance(probability) {
    return this.next() < probability;
  }

  between(low, high) {
    return low + this.next() * (high - low);
  }

  below(count) {
    return Math.floor(this.next() * count);
  }

  pick(list) {
    return list[this.below(list.length)];
  }

  some(list) {
    return list.filter(() => this.chance(0.5));
  }
}

/** The order of what happens. Times are milliseconds; each call is followed by all promises that it settles. */
export class Clock {
  now = 0;
  #coming = []; // the earliest first

  at(time, call) {
    const entry = { time: Math.max(time, this.now), call };
    this.#coming.splice(this.#coming.findLastIndex((other) => other.time <= entry.time) + 1, 0, entry);
    return entry;
  }

  after(time, call) {
    return this.at(this.now + time, call);
  }

  async run(until) {
    await new Promise(setImmediate);
    while (this.#coming[0]?.time <= until) {
      const entry = this.#coming.shift();
      if (!entry.call) continue;
      this.now = entry.time;
      entry.call();
      await new Promise(setImmediate);
    }
    this.now = until;
  }
}

const TICKET_ENDED = { status: 401, type: "urn:pushup:ticket-expired" };
const OVERLOADED = { type: "urn:pushup:overloaded", detail: "too many polls are held" };
const EARLY = 250; // a held poll is answered this long before its token ends, ms

/** The service: one list of messages, and nodes that have applied it up to somewhere. */
export class Service {
  messages = []; // {sequence, id, channels, time, kept: Set of channels}
  cache = {}; // channel -> messages that are kept
  closings = []; // {sequence, channel}
  epoch = 0;
  forbidden = new Set(); // channels that get 403
  tokens = null; // if set: a Set of the valid ones
  ticket = ""; // if set: given with each answer; a request with another one gets 401
  ticketTime = 0; // if set: the application is asked about `tokens`, and its decisions are tickets for so long, ms
  ends = null; // if set: signed tokens, each with the time at which it ends, ms
  revoked = new Set(); // of these
  unread = new Set(); // messages that wait until the user of the tabs has seen them
  limit = 5;
  channelLimit = 100;
  presenceLimit = 200;

  constructor(clock, dice, { nodes = 2, keep = 50 } = {}) {
    this.clock = clock;
    this.dice = dice;
    this.keep = keep;
    this.nodes = Array.from({ length: nodes }, () => ({ applied: 0, waiting: new Set(), stalledUntil: 0 }));
  }

  get head() {
    return this.messages.length;
  }

  publish(channels, data, event) {
    const sequence = this.messages.push(null);
    const message = {
      sequence,
      id: `m${sequence}`,
      channels,
      time: this.clock.now / 1000,
      data,
      event,
      kept: new Set(channels),
    };
    this.messages[sequence - 1] = message;
    for (const channel of channels) {
      const there = (this.cache[channel] ??= []);
      if (there.push(message) > this.keep) there.shift().kept.delete(channel);
    }
    for (const node of this.nodes) {
      const at = Math.max(this.clock.now + this.dice.between(0, 300), node.stalledUntil);
      this.clock.at(at, () => this.#apply(node, sequence));
    }
    return message;
  }

  /** Closes a channel: its messages are dropped. What is published on it afterwards is kept. */
  close(channel) {
    const { sequence } = this.publish([], null);
    this.closings.push({ sequence, channel });
    for (const message of this.cache[channel] ?? []) message.kept.delete(channel);
    this.cache[channel] = [];
  }

  /** Members of a channel come, change or go. */
  change(channel, { joins = [], updates = [], leaves = [] }) {
    const members = new Map(this.#members(channel, this.head));
    for (const member of [...joins, ...updates]) members.set(member.subject, member);
    for (const subject of leaves) members.delete(subject);
    const count = members.size;
    const lists = count > this.presenceLimit ? {} : { joins, updates, leaves };
    const data = Object.fromEntries(Object.entries(lists).filter(([, list]) => list.length));
    this.publish([channel], { count, ...data }, "presence").members = [...members];
  }

  #members(channel, head) {
    return this.messages.slice(0, head).findLast((m) => m.members && m.channels[0] === channel)?.members ?? [];
  }

  /** Who is there, as far as a node knows. */
  presence(node, channel) {
    const members = this.#members(channel, node.applied).map(([, member]) => member);
    const list = members.length > this.presenceLimit ? {} : { members };
    return { channel, cursor: this.cursor(node.applied), count: members.length, ...list };
  }

  #apply(node, sequence) {
    if (this.clock.now < node.stalledUntil)
      return void this.clock.at(node.stalledUntil, () => this.#apply(node, sequence));
    if (sequence <= node.applied) return;
    node.applied = sequence;
    for (const wake of [...node.waiting]) wake();
  }

  /** Everything is lost, as by a restart in memory. */
  wipe() {
    this.epoch++;
    this.wiped = this.head;
    for (const message of this.messages) message.kept.clear();
    this.unread.clear();
    this.cache = {};
    for (const node of this.nodes) node.applied = Math.max(node.applied, this.head);
    for (const node of this.nodes) for (const wake of [...node.waiting]) wake();
  }

  cursor(sequence) {
    return `${this.epoch}~${(sequence * 7919 + 13).toString(36)}`;
  }

  position(cursor) {
    const [, epoch, text] = /^(\d+)~(\w+)$/.exec(cursor) ?? [];
    if (text === undefined) return null;
    return { epoch: Number(epoch), sequence: (parseInt(text, 36) - 13) / 7919 };
  }

  /** The messages that wait, and that a client at this cursor of these channels has passed. */
  passed({ channels, cursor }) {
    const { epoch, sequence } = this.position(cursor) ?? {};
    return [...this.unread].filter(
      (message) =>
        epoch === this.epoch && message.sequence <= sequence && message.channels.some((each) => channels.includes(each)),
    );
  }

  /** What a node answers to a poll that does not wait. */
  look(node, { channels, cursor }, limit = this.limit) {
    const ends = { earliest: 0, now: node.applied };
    const position = cursor in ends ? { epoch: this.epoch, sequence: ends[cursor] } : this.position(cursor);
    const lost = position.epoch !== this.epoch;
    const from = lost ? this.wiped : position.sequence;
    const gap = (channel, reason) => {
      const dropped = this.messages.slice(from, node.applied).filter((m) => m.channels.includes(channel) && !m.kept.has(channel));
      return { channel, reason, until: this.cursor(dropped.at(-1)?.sequence ?? from) };
    };
    const gaps = lost ? channels.map((channel) => gap(channel, "lost")) : [];
    const isClosed = (channel) =>
      this.closings.some((each) => each.channel === channel && each.sequence > from && each.sequence <= node.applied);
    const closed = lost || cursor in ends ? [] : channels.filter(isClosed);
    const found = [];
    for (let sequence = from + 1; sequence <= node.applied && found.length <= limit; sequence++) {
      const message = this.messages[sequence - 1];
      const asked = message.channels.filter((channel) => channels.includes(channel));
      const kept = asked.filter((channel) => message.kept.has(channel));
      if (cursor !== "earliest") {
        for (const channel of asked) {
          if (!kept.includes(channel) && !gaps.some((gap) => gap.channel === channel))
            gaps.push(gap(channel, "evicted"));
        }
      }
      if (kept.length) found.push({ message, asked: kept });
    }
    const more = found.length > limit;
    if (more) found.length = limit;
    const end = more ? found.at(-1).message.sequence : Math.max(node.applied, from);
    const messages = found.map(({ message, asked }) => ({
      id: message.id,
      time: message.time,
      channels: asked,
      data: message.data,
      event: message.event,
      sequence: message.sequence,
    }));
    return { cursor: this.cursor(end), messages, more, gaps, closed };
  }

  /** The time to which a request may be answered, and what its client is told of it. */
  grant(token, ticket) {
    const { now } = this.clock;
    if (this.ends) return { until: this.ends.get(token) ?? Infinity, isOfToken: this.ends.has(token) };
    if (!this.ticketTime) return { until: Infinity, ticket: this.ticket || undefined };
    if (ticket > now) return { until: Number(ticket) };
    return { until: now + this.ticketTime, ticket: String(now + this.ticketTime) };
  }

  /** Refuses tokens from now on, and ends what is held on them. */
  revoke(...tokens) {
    for (const token of tokens) this.revoked.add(token);
    for (const end of [...this.held]) end();
  }

  held = new Set(); // calls that look whether a held request is to be ended

  /** null, or why a token is not accepted (any more), or not `early` ms later. */
  tokenRefusal(token, early = 0) {
    const code = this.revoked.has(token)
      ? "revoked"
      : this.ends && !this.ends.has(token)
        ? token
          ? "invalid-token"
          : "unauthorized"
        : this.ends?.get(token) <= this.clock.now + early && "token-expired";
    return code ? { status: 401, type: `urn:pushup:${code}` } : null;
  }

  /** null, or why a request is refused. */
  refusal(body, token, ticket) {
    if (this.ends || this.revoked.size) {
      const refusal = this.tokenRefusal(token, EARLY);
      if (refusal) return refusal;
    }
    if (this.ticketTime && ticket > this.clock.now) return null;
    if (this.ticket && ticket && ticket !== this.ticket) return TICKET_ENDED;
    if (this.tokens && !this.tokens.has(token)) return { status: 401, type: "urn:pushup:unauthorized" };
    if (body?.channels.length > this.channelLimit) return { status: 400, type: "urn:pushup:bad-request" };
    if (body && !["earliest", "now"].includes(body.cursor) && !this.position(body.cursor))
      return { status: 400, type: "urn:pushup:bad-request" };
    if (body?.channels.some((channel) => this.forbidden.has(channel)))
      return { status: 403, type: "urn:pushup:forbidden" };
    return null;
  }
}

/** Between the tabs and the service. `faults` holds probabilities and conditions, which the test changes. */
export class Network {
  faults = {};
  open = new Set(); // requests: {tab, path, held, at}
  log = []; // {at, tab, useful}
  beacons = []; // {tab, path, ...body}

  constructor(clock, dice, service) {
    this.clock = clock;
    this.dice = dice;
    this.service = service;
  }

  delay() {
    return this.dice.between(2, this.faults.slow ?? 60);
  }

  fetch(tab, url, { method = "GET", body, headers = {}, signal }) {
    const { clock, dice, service, faults } = this;
    if (tab.gone) return new Promise(() => {});
    const { pathname: path, searchParams } = new URL(url, "http://server");
    const asked = body ? JSON.parse(body) : null;
    const held = path === "/v1/events" || asked?.timeout > 0;
    const request = { tab, path, held, asked, method, headers, at: clock.now, over: false, dead: false, useful: false };
    this.open.add(request);
    this.log.push(request);
    const node = dice.pick(service.nodes);
    request.fate = this.#fate(request);
    return new Promise((resolve, reject) => {
      const fail = (error) => {
        request.over = true;
        this.open.delete(request);
        request.unhold?.();
        request.fail?.(error);
        reject(error);
      };
      request.break = () => clock.after(1, () => tab.deliver(() => !request.over && fail(new TypeError("network"))));
      if (signal.aborted) return fail(new DOMException("aborted", "AbortError"));
      // One request at a time has the signal. What was on its way may still come.
      signal.onabort = () => {
        this.open.delete(request);
        const abort = () => request.over || fail(new DOMException("aborted", "AbortError"));
        if (dice.chance(0.3)) clock.after(dice.between(1, 300), abort);
        else abort();
      };
      const { fate } = request;
      if (fate === "refuse") return void request.break();
      if (fate === "hang") return (request.dead = true);
      const answer = (status, content, headers = {}) => {
        request.status = status;
        const finish = () => {
          if (request.over || request.dead) return;
          const text = JSON.stringify(content);
          request.over = true;
          this.open.delete(request);
          resolve(response(status, headers, fate === "truncate" ? text.slice(0, dice.below(text.length)) : text));
        };
        clock.after(this.delay(), () => tab.deliver(finish));
      };
      clock.after(this.delay(), () => {
        if (request.over || request.dead) return;
        if (fate === "502") return answer(502, { title: "bad gateway" });
        if (fate === "html") return answer(200, "<html>");
        if (fate === "429") return answer(429, {}, { "Retry-After": String(1 + dice.below(4)) });
        if (fate === "503") {
          const date = new Date(tab.wall() + 3000).toUTCString();
          return answer(503, OVERLOADED, { "Retry-After": dice.chance(0.5) ? date : "2" });
        }
        request.token = asked?.token ?? headers.Authorization?.replace("Bearer ", "") ?? "";
        const refusal =
          faults.refuseSome && dice.chance(faults.refuseSome)
            ? { status: 401, type: "urn:pushup:invalid-token" }
            : service.refusal(asked, request.token, headers["PushUp-Ticket"]);
        if (refusal) return answer(refusal.status, refusal);
        if (path === "/v1/presence") return this.#presence(node, searchParams.get("channel"), answer);
        if (path === "/v1/poll") return this.#poll(request, node, answer);
        if (faults.noStreams) return answer(404, { type: "urn:pushup:unknown-resource" });
        this.#stream(request, node, resolve);
      });
    });
  }

  #fate(request) {
    const { dice, faults } = this;
    if (faults.outage) return faults.outage;
    if (faults.refuseStreams && request.path === "/v1/events") return "refuse";
    for (const fate of ["refuse", "hang", "truncate", "502", "429", "503", "html"]) {
      if (dice.chance(faults[fate] ?? 0)) return fate;
    }
    return request.path === "/v1/events" && faults.buffering ? "buffer" : "";
  }

  #presence(node, channel, answer) {
    if (channel.startsWith("room:")) answer(200, this.service.presence(node, channel));
    else answer(404, { type: "urn:pushup:unknown-resource", detail: `${channel} has no presence` });
  }

  #poll(request, node, answer) {
    const { clock, service } = this;
    const { asked, token, headers } = request;
    for (const message of service.passed(asked)) {
      service.unread.delete(message);
      service.onSeen?.(request, message);
    }
    const { until, ticket, isOfToken } = service.grant(token, headers["PushUp-Ticket"]);
    const reply = () => {
      request.unhold();
      const refusal = service.tokenRefusal(token);
      if (refusal) return answer(401, refusal);
      if (until <= clock.now) return answer(401, TICKET_ENDED);
      const content = service.look(node, asked);
      request.useful = content.messages.length > 0;
      const left = (until - clock.now) / 1000;
      answer(200, { ...content, ticket, expires_in: isOfToken && left < 120 ? Math.floor(left) : undefined });
    };
    const end = () => service.tokenRefusal(token) && reply();
    service.held.add(end);
    let timer;
    const look = () => {
      const { messages, gaps, closed } = service.look(node, asked);
      if (messages.length || gaps.length || closed.length) reply();
    };
    request.unhold = () => {
      node.waiting.delete(look);
      service.held.delete(end);
      if (timer) timer.call = null;
    };
    const ahead = service.position(asked.cursor)?.sequence > node.applied;
    const wait = this.faults.loop
      ? 0
      : asked.timeout
        ? asked.timeout * 1000 * this.dice.between(0.85, 1)
        : ahead
          ? 1000
          : 0;
    node.waiting.add(look);
    timer = clock.at(Math.min(clock.now + wait, until - (isOfToken ? EARLY : 0)), reply);
    look();
  }

  #stream(request, node, resolve) {
    const { clock, dice, service, faults } = this;
    const { tab, asked, fate, token, headers } = request;
    const { until, ticket, isOfToken } = service.grant(token, headers["PushUp-Ticket"]);
    let { cursor } = asked;
    const encoder = new TextEncoder();
    let held = fate === "buffer" ? [] : null;
    const chunks = [];
    let reading = null;
    let ended = false;
    const wake = () => {
      if (!reading) return;
      const { resolve: give, reject } = reading;
      if (chunks.length) give({ done: false, value: chunks.shift() });
      else if (ended instanceof Error) reject(ended);
      else if (ended) give({ done: true });
      else return;
      reading = null;
    };
    const send = (text) => {
      if (request.over || request.dead) return;
      const bytes = encoder.encode(text);
      if (held) return void held.push(bytes);
      const arrives = this.delay();
      request.arrives = Math.max(request.arrives ?? 0, clock.now + arrives) + 0.001;
      const cut = fate === "truncate" && dice.chance(0.1);
      const size = cut ? dice.below(bytes.length) : bytes.length;
      const arrive = () => {
        if (request.over || request.dead) return;
        for (let at = 0; at < size;) {
          const next = dice.chance(0.3) ? Math.min(size, at + 1 + dice.below(40)) : size;
          chunks.push(bytes.slice(at, next));
          at = next;
        }
        wake();
        if (cut) end(new TypeError("cut off"));
      };
      clock.at(request.arrives, () => tab.deliver(arrive));
    };
    const end = (how) => {
      if (request.over) return;
      request.over = true;
      this.open.delete(request);
      request.unhold();
      ended = how;
      wake();
    };
    const askWhatWasSeen = () =>
      service.passed({ channels: asked.channels, cursor }).length && send("event: unread\ndata: {}\n\n");
    const look = () => {
      for (;;) {
        const answer = service.look(node, { channels: asked.channels, cursor }, 20);
        let text = answer.gaps.map((gap) => `event: gap\ndata: ${JSON.stringify(gap)}\n\n`).join("");
        for (const channel of answer.closed) text += `event: closed\ndata: ${JSON.stringify({ channel })}\n\n`;
        const place = (at) => service.position(at).sequence;
        const ends = answer.gaps.map((gap) => gap.until).filter((until) => place(until) < place(answer.cursor));
        const ids = [...new Set([...ends, ...answer.messages.map(({ sequence }) => service.cursor(sequence))])];
        for (const id of ids.sort((one, other) => place(one) - place(other))) {
          const message = answer.messages.find(({ sequence }) => sequence === place(id));
          text += message ? `id: ${id}\ndata: ${JSON.stringify(message)}\n\n` : `id: ${id}\n\n`;
        }
        const isNew = answer.cursor !== service.cursor(answer.messages.at(-1)?.sequence ?? -1);
        if (text && (answer.gaps.length || answer.closed.length || isNew))
          text += `id: ${answer.cursor}\n\n`;
        if (text) {
          request.useful = true;
          cursor = answer.cursor;
          send(text);
          askWhatWasSeen();
        }
        if (!answer.more) break;
      }
    };
    const beat = () => {
      if (request.over) return;
      look();
      cursor = service.look(node, { channels: asked.channels, cursor }).cursor;
      if (!request.mute) send(`:\nid: ${cursor}\n\n`);
      askWhatWasSeen();
      timer = clock.after(15_000, beat);
    };
    let timer = clock.after(15_000, beat);
    const limit = faults.cutAfter ?? dice.between(60_000, 120_000);
    const close = clock.after(limit, () => tab.deliver(() => end(faults.cutAfter ? new TypeError("cut") : true)));
    /** Its token or ticket has ended, or was revoked. */
    const endWithGrant = () => {
      const refusal = service.tokenRefusal(token) ?? (until > clock.now ? null : TICKET_ENDED);
      if (!refusal) return;
      send(`event: error\ndata: ${JSON.stringify(refusal)}\n\n`);
      clock.at((request.arrives ?? clock.now) + 1, () => tab.deliver(() => end(true)));
    };
    service.held.add(endWithGrant);
    const grantEnds = until < Infinity ? clock.at(until, endWithGrant) : close;
    request.fail = (error) => {
      ended = error;
      wake();
    };
    request.unhold = () => {
      node.waiting.delete(look);
      service.held.delete(endWithGrant);
      timer.call = close.call = grantEnds.call = null;
    };
    node.waiting.add(look);
    send(":\nretry: 1000\n\nevent: new\nid: new\ndata: {}\n\n"); // clients ignore events that they do not know
    if (isOfToken) send(`event: expiry\ndata: {"expires_in":${Math.floor((until - clock.now) / 1000)}}\n\n`);
    if (ticket) send(`event: ticket\ndata: {"ticket":"${ticket}"}\n\n`);
    look();
    const body = {
      getReader: () => ({ read: () => new Promise((resolve, reject) => ((reading = { resolve, reject }), wake())) }),
    };
    const give = () =>
      resolve({ status: 200, headers: new Headers({ "Content-Type": "text/event-stream; charset=utf-8" }), body });
    if (!held) clock.after(this.delay() / 2, () => tab.deliver(() => request.over || give()));
  }

  /** All connections that are open go on, and carry nothing any more. */
  silence() {
    for (const request of this.open) request.dead = true;
  }

  /** All connections that are open are reset. */
  reset() {
    for (const request of [...this.open]) request.break();
  }
}

function response(status, headers, text) {
  return { status, headers: new Headers(headers), json: async () => JSON.parse(text), body: null };
}

/** The browser: locks and channels of one origin, and the clocks of one machine. */
export class Browser {
  locks = new Map(); // name -> {holder, queue}
  channels = new Map();
  asleep = 0; // total time for which the machine slept, ms
  busy = 0; // messages between tabs take up to so long, ms

  constructor(clock, dice, network) {
    this.clock = clock;
    this.dice = dice;
    this.network = network;
  }

  request(tab, name, options, call) {
    const lock = this.locks.get(name) ?? { holder: null, queue: [] };
    this.locks.set(name, lock);
    return new Promise((resolve, reject) => {
      const request = { tab, call, resolve, reject };
      options.signal?.addEventListener("abort", () => {
        const index = lock.queue.indexOf(request);
        if (index < 0) return;
        lock.queue.splice(index, 1);
        reject(new DOMException("aborted", "AbortError"));
      });
      if (options.steal) {
        const { holder } = lock;
        lock.holder = null;
        holder?.tab.deliver(() => holder.reject(new DOMException("stolen", "AbortError")));
        lock.queue.unshift(request);
      } else lock.queue.push(request);
      this.#grant(lock);
    });
  }

  #grant(lock) {
    if (lock.holder || !lock.queue.length) return;
    const request = (lock.holder = lock.queue.shift());
    const release = () => {
      if (lock.holder === request) {
        lock.holder = null;
        this.#grant(lock);
      }
      request.resolve();
    };
    request.release = release;
    this.clock.after(2, () =>
      request.tab.deliver(() => {
        if (lock.holder === request) Promise.resolve(request.call({})).then(release, release);
      }),
    );
  }

  gone(tab) {
    for (const lock of this.locks.values()) {
      lock.queue = lock.queue.filter((request) => request.tab !== tab);
      if (lock.holder?.tab === tab) lock.holder.release();
    }
    for (const set of this.channels.values())
      for (const channel of [...set]) if (channel.tab === tab) set.delete(channel);
    for (const request of [...this.network.open]) {
      if (request.tab !== tab) continue;
      request.over = true;
      request.unhold?.();
      this.network.open.delete(request);
    }
  }
}

/** One tab: the environment of one page. After `reload` there is another one with the same storage. */
export class Tab {
  frozen = false;
  gone = false;
  hidden = false;
  hiddenAt = 0;
  storageFails = false;
  #waiting = [];
  #heard = [];

  constructor(browser, storage = new Map()) {
    this.browser = browser;
    this.clock = browser.clock;
    this.storage = storage;
  }

  wall() {
    return 1_795_000_000_000 + this.clock.now;
  }

  /** Runs a call, or when the page runs again. */
  deliver(call) {
    if (this.gone) return;
    if (this.frozen) this.#waiting.push(call);
    else call();
  }

  freeze() {
    this.frozen = true;
  }

  thaw() {
    this.frozen = false;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const call of waiting) this.clock.after(0, () => this.deliver(call));
  }

  close() {
    this.gone = true;
    this.browser.gone(this);
  }

  happen(event) {
    for (const heard of this.#heard) this.deliver(() => heard(event));
  }

  show(visible) {
    this.hidden = !visible;
    this.hiddenAt = this.clock.now;
    this.happen("visibilitychange");
  }

  environment() {
    const tab = this;
    const { browser, clock } = this;
    return {
      url: "http://server",
      origin: "http://page",
      fetch: (url, init) => browser.network.fetch(tab, url, init),
      wall: () => tab.wall(),
      mono: () => clock.now - browser.asleep,
      setTimeout: (call, time) => {
        let at = clock.now + time;
        if (tab.hidden) at = Math.ceil(at / 1000) * 1000;
        if (tab.hidden && clock.now - tab.hiddenAt > 300_000) at = Math.ceil(at / 60_000) * 60_000;
        return clock.at(at, () => tab.deliver(call));
      },
      clearTimeout: (timer) => timer && (timer.call = null),
      random: () => browser.dice.next(),
      storage: () => {
        if (tab.storageFails) throw new Error("no storage");
        return {
          getItem: (key) => tab.storage.get(key) ?? null,
          setItem: (key, value) => void tab.storage.set(key, value),
        };
      },
      locks: { request: (name, options, call) => browser.request(tab, name, options, call) },
      BroadcastChannel: class {
        onmessage = null;
        constructor(name) {
          this.name = name;
          this.tab = tab;
          if (!browser.channels.has(name)) browser.channels.set(name, new Set());
          browser.channels.get(name).add(this);
        }
        postMessage(data) {
          const text = JSON.stringify(data); // as a structured clone: nothing is shared
          for (const other of browser.channels.get(this.name)) {
            if (other === this) continue;
            other.hears =
              Math.max(other.hears ?? 0, clock.now + (browser.busy ? browser.dice.between(1, browser.busy) : 1)) +
              0.001;
            clock.at(other.hears, () => other.tab.deliver(() => other.onmessage?.({ data: JSON.parse(text) })));
          }
        }
        close() {
          this.onmessage = null;
          browser.channels.get(this.name).delete(this);
        }
      },
      beacon: (url, body) => browser.network.beacons.push({ tab, path: new URL(url).pathname, ...JSON.parse(body) }),
      hidden: () => tab.hidden,
      listen: (heard) => tab.#heard.push(heard),
    };
  }
}

/** A clock, a service, a network and a browser. */
export function world(seed, options) {
  const dice = new Dice(seed);
  const clock = new Clock();
  const service = new Service(clock, dice, options);
  const network = new Network(clock, dice, service);
  const browser = new Browser(clock, dice, network);
  return { dice, clock, service, network, browser, tab: (storage) => new Tab(browser, storage) };
}
