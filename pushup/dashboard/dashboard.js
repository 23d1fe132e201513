// @ts-check
/**
 * The dashboard: what it shows, and how to reach it, is in docs/operate/dashboard.md. Names and messages are hostile:
 * they get into the page as text only (`textContent`, `append`).
 */
// @ts-ignore: the server has it there
import { PushUp } from "../v1/pushup.js";

const LOOK = 2_000; // milliseconds between two looks at the server
const PATIENCE = 10_000; // with a call
const MINUTE = 60_000;
const RATE_OVER = 10_000;
const ROWS = 100; // channels that are shown
const MESSAGES = 200; // that are shown
const CHARACTERS = 2_000; // of a message
const EARLIEST_BYTES = 1_000_000; // channels with more are followed from now on
const KEY = "pushup dashboard key"; // in sessionStorage

/** @param {string} id @returns {any} */
const $ = (id) => document.getElementById(id);
const text = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

/** @param {string} name @param {Record<string, string>} [properties] @param {(string | Node)[]} children */
function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** Sets the text, if it is another: a selection in it stays. @param {Element} place @param {string} words */
function say(place, words) {
  if (place.textContent !== words) place.textContent = words;
}

/** The place for what is wrong with a card. @param {string} card @param {unknown} [error] */
function sayError(card, error) {
  say($(card).querySelector(".error"), error ? reasonOf(error) : "");
}

/**
 * Shows rows of text in a table: each its key, then its cells. Rows that stay keep their elements.
 * @param {HTMLTableSectionElement} body @param {string[][]} rows @param {boolean} [opens] the first cell is a button
 */
function show(body, rows, opens = false) {
  const heads = [...(body.parentElement?.querySelectorAll("thead th") ?? [])];
  const old = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const shown = rows.map(([key, ...cells]) => {
    let row = old.get(key);
    if (!row) {
      row = document.createElement("tr");
      row.dataset.key = key;
      for (const [n, head] of heads.entries()) {
        const cell = element(n ? "td" : "th", { className: head.className, ...(!n && { scope: "row" }) });
        cell.dataset.label = head.textContent ?? "";
        if (!n && opens) cell.append(element("button", { type: "button", className: "link" }));
        row.append(cell);
      }
    }
    for (const [n, cell] of [...row.cells].entries()) say(cell.querySelector("button") ?? cell, cells[n]);
    return row;
  });
  if (shown.length !== body.rows.length || shown.some((row, n) => row !== body.rows[n])) body.replaceChildren(...shown);
}

/** Shows terms and what they are. @param {HTMLElement} list @param {[string, ...(string | Node)[]][]} pairs */
function define(list, pairs) {
  const made = (/** @type {[string, ...(string | Node)[]]} */ [term, ...what]) =>
    element("div", {}, element("dt", {}, term), element("dd", {}, ...what));
  list.replaceChildren(...pairs.map(made));
}

/** @param {number} seconds since the epoch */
function timeOf(seconds) {
  return new Date(seconds * 1000).toISOString().replace("T", " ").replace("Z", " UTC");
}

/** @param {number} bytes */
function sizeOf(bytes) {
  const power = Math.min(Math.floor(Math.log2(bytes || 1) / 10), 4);
  return `${short.format(bytes / 1024 ** power)} ${["B", "KB", "MB", "GB", "TB"][power]}`;
}

// Calls.

let key = sessionStorage.getItem(KEY) ?? "";

/** A call that was not answered with what it asks for; status 0: it was not answered at all. */
class Refusal extends Error {
  /** @param {string} words @param {number} status @param {any} [body] */
  constructor(words, status, body) {
    super(words);
    this.status = status;
    this.body = body;
  }
}

/** @param {unknown} error */
const reasonOf = (error) => (error instanceof Error ? error.message : String(error));

/** @returns {Record<string, string>} */
const authorization = () => (key ? { Authorization: `Bearer ${key}` } : {});

/** Asks the server for JSON, or for text. @param {string} path @param {object} [body] */
async function call(path, body) {
  /** @type {Response} */
  let response;
  let content = "";
  try {
    response = await fetch(new URL(`../${path}`, import.meta.url), {
      method: body ? "POST" : "GET",
      headers: { ...authorization(), ...(body && { "Content-Type": "application/json" }) },
      body: body && JSON.stringify(body),
      cache: "no-store",
      signal: AbortSignal.timeout(PATIENCE),
    });
    content = await response.text();
  } catch {
    throw new Refusal("the server does not answer", 0);
  }
  const isJson = /json/.test(response.headers.get("Content-Type") ?? "");
  const value = isJson ? JSON.parse(content) : content;
  if (response.ok) return value;
  const detail = value.detail ?? value.reason ?? response.statusText;
  throw new Refusal(`${response.status}: ${detail}`, response.status, value);
}

// Looking at the server, again and again.

let after = 0; // the last channel before the page of channels
let failingSince = 0;
/** @type {{[name: string]: any}[]} */
let channels = [];
let hasMore = false;
/** @type {Sample[]} the oldest first */
let samples = [];
let looks = 0;
let shownLook = 0;
let isRefused = false; // until there is another key: each refusal is counted

async function look() {
  const number = ++looks; // answers to an earlier look are not shown
  const asked = ["readyz", "v1/nodes", `v1/channels${after ? `?after=${after}` : ""}`, "metrics"];
  const open = follower?.name;
  if (open !== undefined) asked.push(`v1/channels/${encodeURIComponent(open)}`);
  const [ready, nodes, page, metrics, channel] = await Promise.allSettled(asked.map((path) => call(path)));
  if (number !== looks) return;
  shownLook = number;
  const isAway = showHealth(ready);
  const refused = nodes.status === "rejected" && [401, 403].includes(nodes.reason.status) ? nodes.reason : null;
  isRefused = refused !== null;
  if (refused) {
    askForKey(refused);
    say($("health"), "asks for a key"); // until there is one, nobody looks whether it is ready
    $("health").dataset.is = "waiting";
  }
  for (const [card, result, shown] of /** @type {const} */ ([
    ["nodes-card", nodes, showNodes],
    ["channels-card", page, showPage],
    ["refusals-card", metrics, showMetrics],
    ["channel-card", channel, showChannel],
  ])) {
    if (!result || (card === "channel-card" && open !== follower?.name)) continue;
    const has = result.status === "fulfilled";
    $(card).classList.toggle("stale", !has);
    if (has) shown(result.value);
    sayError(card, has || isAway || refused ? undefined : result.reason);
    if (card === "channel-card" && !has && result.reason.status === 404) {
      sayError(card);
      say($("about"), "Nobody has published to it yet, or it has expired or was closed.");
    }
  }
  $("figures-card").classList.toggle("stale", metrics.status === "rejected");
}

/** Whether the server is away. @param {PromiseSettledResult<any>} ready */
function showHealth(ready) {
  const problem = ready.status === "rejected" ? ready.reason : null;
  const isAway = problem?.status === 0;
  failingSince = isAway ? failingSince || Date.now() : 0;
  $("away").hidden = !isAway;
  const since = new Date(failingSince).toLocaleTimeString();
  const words = `The server has not answered since ${since}. What is shown is older; the page keeps asking.`;
  if (isAway) say($("away"), words);
  say($("health"), isAway ? "away" : problem ? `not ready: ${problem.body?.reason ?? reasonOf(problem)}` : "ready");
  $("health").dataset.is = problem ? "bad" : "good";
  return isAway;
}

/** @param {{nodes: any[]}} answer */
function showNodes({ nodes }) {
  const nameOf = (/** @type {any} */ node) => node.name || node.id;
  const at = (/** @type {any} */ node) => Number(node.cursor.split("-").at(-1)) || 0;
  const last = Math.max(...nodes.map(at));
  nodes.sort((a, b) => (nameOf(a) < nameOf(b) ? -1 : 1));
  const row = (/** @type {any} */ node) => [
    node.id, nameOf(node) + (node.draining ? " (draining)" : ""), node.version, text.format(last - at(node)), text.format(node.held_polls),
    node.addresses.join(" "),
  ];
  show($("nodes"), nodes.map(row));
  const telling = nodes.filter((node) => node.settings);
  const names = [...new Set(telling.flatMap((node) => Object.keys(node.settings)))].sort();
  const differing = names.filter((name) => new Set(telling.map((node) => node.settings[name])).size > 1);
  const digests = differing.flatMap((name) =>
    telling.map((node) => [`${name} ${node.id}`, name, nameOf(node), node.settings[name] ?? "the default"]),
  );
  show($("settings"), digests);
  $("differing").hidden = !digests.length;
}

/** @param {{channels: any[], more: boolean}} page */
function showPage(page) {
  ({ channels, more: hasMore } = page);
  showChannels();
}

function showChannels() {
  const [part, by] = [$("name").value, $("sort").value];
  const found = channels.filter(({ name }) => name.includes(part));
  if (by === "name") found.sort((a, b) => (a.name < b.name ? -1 : 1));
  else found.sort((a, b) => b[by] - a[by] || b.id - a.id);
  const row = (/** @type {any} */ { id, name, subscribers, messages, bytes }) => [
    String(id), name, text.format(subscribers), text.format(messages), sizeOf(bytes),
  ];
  show($("channels"), found.slice(0, ROWS).map(row), true);
  const words = found.length > ROWS ? `${ROWS} of ${text.format(found.length)} channels` : `${found.length} channels`;
  say($("shown"), found.length === 1 ? "1 channel" : words);
  $("first").hidden = !after;
  $("next").hidden = !hasMore;
}

/** @param {any} channel */
function showChannel({ subscribers, messages, bytes, expires }) {
  const expiry = `It ends at ${timeOf(Math.round(expires))} if nobody publishes.`;
  const kept = `messages kept: ${text.format(messages)}, ${sizeOf(bytes)}`;
  say($("about"), `Subscribers: ${text.format(subscribers)}, with this page; ${kept}. ${expiry}`);
}

// Metrics: Prometheus' text format.

/** @typedef {{labels: Record<string, string>, value: number}} Value */

class Sample {
  at = performance.now();
  /** @type {Map<string, Value[]>} */
  #values = new Map();

  /** @param {string} page */
  constructor(page) {
    for (const line of page.split("\n")) {
      const [, name, labels = "", value] = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line) ?? [];
      if (!name) continue;
      const pairs = [...labels.matchAll(/(\w+)="((?:\\.|[^"\\])*)"/g)].map(([, label, words]) => [
        label, words.replace(/\\(.)/g, (_, letter) => (letter === "n" ? "\n" : letter)),
      ]);
      const values = this.#values.get(name) ?? [];
      values.push({ labels: Object.fromEntries(pairs), value: Number(value) });
      this.#values.set(name, values);
    }
  }

  /** @param {string} name without `pushup_` */
  all(name) {
    return this.#values.get(`pushup_${name}`) ?? [];
  }

  /** @param {string} name of what the processes of a server have together */
  sum(name) {
    return this.all(name).reduce((sum, { value }) => sum + value, 0);
  }

  /** @param {string} name of what each process of a server has */
  most(name) {
    return Math.max(0, ...this.all(name).map(({ value }) => value));
  }
}

const REFUSALS = [
  ["gap told", "gaps_total", "reason"],
  ["publication refused", "publications_refused_total", "reason"],
  ["request refused", "refusals_total", "kind"],
];

/** @param {string} page */
function showMetrics(page) {
  const now = new Sample(page);
  const last = samples.at(-1);
  if (last && now.sum("answers_total") < last.sum("answers_total")) samples = []; // it was started again
  samples = [...samples.filter(({ at }) => at > now.at - MINUTE - LOOK), now];

  const then = samples.find(({ at }) => at > now.at - RATE_OVER) ?? now;
  const rate = (/** @type {string} */ name) => {
    const seconds = (now.at - then.at) / 1000;
    return seconds ? short.format((now.sum(name) - then.sum(name)) / seconds) : "…";
  };
  /** @param {string} value @param {string} of @returns {[string, Node]} */
  const outOf = (value, of) => [value, element("small", {}, ` of ${of}`)];
  define($("figures"), [
    ["messages a second", rate("messages_total")],
    ["deliveries a second", rate("deliveries_total")],
    ["held polls", text.format(now.sum("held_polls"))],
    ["connections", ...outOf(text.format(now.sum("connections")), text.format(now.sum("connections_limit")))],
    ["history", ...outOf(sizeOf(now.most("cached_bytes")), sizeOf(now.most("retention_bytes")))],
    ["memory", sizeOf(now.sum("process_memory_bytes"))],
  ]);

  const [oldest] = samples;
  const rows = REFUSALS.flatMap(([what, name, label]) =>
    now.all(name).filter(({ value }) => value > 0).map(({ labels, value }) => {
      const before = oldest.all(name).find((each) => each.labels[label] === labels[label])?.value ?? 0;
      return [`${name} ${labels[label]}`, what, labels[label], text.format(value - before), text.format(value)];
    }),
  );
  show($("refusals"), rows);
  $("no-refusals").hidden = rows.length > 0;
}

// The key.

/** @param {unknown} [refused] */
function askForKey(refused) {
  if ($("key-form").hidden) {
    $("key-form").hidden = false;
    $("key").focus();
  }
  const why = key ? reasonOf(refused) : "401: this server needs a publish key";
  say($("key-error"), refused ? why : "");
}

/** @param {string} words */
function useKey(words) {
  if (!/^[\x21-\x7e]*$/.test(words)) {
    say($("key-error"), "A key has no spaces and only letters, digits and signs of ASCII.");
    return;
  }
  key = words;
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
  say($("key-error"), "");
  $("key").value = "";
  $("key-form").hidden = true;
  showPage({ channels: [], more: false }); // or the next filter would show those of the key before
  say($("shown"), "");
  questions++; // what is on its way is for the key before
  for (const body of document.querySelectorAll("tbody, #trace, #figures")) body.replaceChildren();
  if (follower) openChannel(follower.name);
  look();
}

// One channel: its messages as they come, and publishing.

/** @type {import("../browser/pushup.d.ts").PushUp} */
const push = new PushUp({ share: false });
const { environment } = push;
const { fetch: send } = environment; // pushup.js sends tokens in the body, where keys are not looked for
/** @type {typeof environment.fetch} */
const withKey = (url, init) => send(url, { ...init, headers: { ...init.headers, ...authorization() } });
environment.fetch = withKey;

/** Shows the messages of a channel. */
class Follower {
  isPaused = false;
  /** @type {HTMLElement[]} not shown yet, the oldest first */
  #coming = [];
  /** @type {import("../browser/pushup.d.ts").Subscription | undefined} */
  #subscription;
  #isClosed = false;

  /** @param {string} name */
  constructor(name) {
    this.name = name;
    this.#begin();
  }

  async #begin() {
    const channel = await call(`v1/channels/${encodeURIComponent(this.name)}`).catch(() => ({ bytes: 0 }));
    if (this.#isClosed) return;
    const isMuch = channel.bytes > EARLIEST_BYTES;
    if (isMuch) this.#add("gap", `${text.format(channel.messages)} older messages are not loaded: they are too large`);
    this.#subscription = push.subscribe([this.name], {
      cursor: isMuch ? "now" : "earliest",
      onMessage: (message) => this.#addMessage(message),
      onGap: ({ reason }) => this.#add("gap", `messages are missing here: ${reason}`),
      onClosed: () => this.#add("gap", "the channel was closed"),
      onState: (state) => this.#showState(state),
    });
  }

  close() {
    this.#isClosed = true;
    this.#subscription?.close();
  }

  /** @param {import("../browser/pushup.d.ts").State} state */
  #showState(state) {
    const reason = "reason" in state ? state.reason : undefined;
    const why = reason ? `: ${reason.detail ?? reason.title ?? "the server does not answer"}` : "";
    say($("live"), `${state.state}${why}`);
    $("live").dataset.is = state.state === "live" ? "good" : state.state === "catching-up" ? "" : "bad";
    if (state.state === "live") look(); // it is a subscriber now
  }

  /** @param {import("../browser/pushup.d.ts").Message} message */
  #addMessage({ id, time, data, event, ephemeral }) {
    const words = JSON.stringify(data);
    const isLong = words.length > CHARACTERS;
    const cut = isLong ? `${words.slice(0, CHARACTERS)} … (${text.format(words.length)} characters)` : words;
    const why = element("button", { type: "button", className: "link", title: "What became of it?" }, id);
    const about = element("div", { className: "about" }, element("span", {}, timeOf(time)), why);
    if (event) about.append(element("span", { className: "foreign" }, `event ${event}`));
    if (ephemeral) about.append("ephemeral");
    this.#put(element("li", {}, about, element("pre", {}, cut)));
  }

  /** @param {string} className @param {string} words */
  #add(className, words) {
    this.#put(element("li", { className }, words));
  }

  /** @param {HTMLElement} item */
  #put(item) {
    if (!this.#coming.length) requestAnimationFrame(() => this.flush());
    this.#coming.push(item);
    if (this.#coming.length > MESSAGES) this.#coming.shift();
  }

  /** Show what has come. */
  flush() {
    if (this.isPaused || this.#isClosed) return;
    const list = $("messages");
    list.prepend(...this.#coming.reverse());
    this.#coming = [];
    while (list.childElementCount > MESSAGES) list.lastElementChild.remove();
  }
}

/** @type {Follower | undefined} */
let follower;

/** @param {string} name */
function openChannel(name) {
  closeChannel();
  follower = new Follower(name);
  say($("channel"), name);
  for (const id of ["about", "live", "published"]) say($(id), "");
  sayError("channel-card");
  $("channel-card").hidden = false;
  $("channel-card").scrollIntoView({ block: "nearest" });
  look();
}

function closeChannel() {
  follower?.close();
  follower = undefined;
  $("messages").replaceChildren();
  $("channel-card").hidden = true;
  setPaused(false);
}

/** @param {boolean} isPaused */
function setPaused(isPaused) {
  if (follower) follower.isPaused = isPaused;
  $("pause").ariaPressed = String(isPaused);
  say($("pause"), isPaused ? "Go on" : "Pause");
  if (!isPaused) follower?.flush();
}

async function publish() {
  const { name } = /** @type {Follower} */ (follower);
  const place = $("published");
  const words = $("data").value;
  try {
    const data = $("form").value === "json" ? JSON.parse(words) : words;
    const event = $("event").value;
    const { id } = await call("v1/messages", { channels: [name], data, ...(event && { event }) });
    if (follower?.name !== name) return; // another channel is open, with what is written for it
    place.className = "";
    place.replaceChildren("Published: ", element("button", { type: "button", className: "link" }, id));
    if ($("data").value === words) $("data").value = "";
  } catch (error) {
    if (follower?.name !== name) return;
    place.className = "error";
    say(place, error instanceof SyntaxError ? `This is not JSON: ${error.message}` : reasonOf(error));
  }
}

// What became of a message.

let questions = 0;

async function why() {
  const number = ++questions; // answers to an earlier one are not shown
  const [id, cursor] = [$("id").value.trim(), $("cursor").value.trim()];
  $("trace").replaceChildren();
  sayError("why-card");
  try {
    const query = cursor && `?cursor=${encodeURIComponent(cursor)}`;
    const trace = await call(`v1/messages/${encodeURIComponent(id)}${query}`);
    if (number === questions) define($("trace"), [...linesOf(trace)]);
  } catch (error) {
    if (number === questions) sayError("why-card", error);
  }
}

/** As `pushup why` says it. @param {any} trace @returns {Generator<[string, string]>} */
function* linesOf(trace) {
  yield ["asked", `node ${trace.node || "(unnamed)"}`];
  if (trace.time !== undefined) {
    const by = trace.key ? ` with key ${trace.key}` : "";
    yield ["published", `${timeOf(trace.time)}${by}, ${text.format(trace.bytes)} bytes`];
    yield ["channels", trace.channels.join(", ")];
  }
  if ("acknowledged" in trace) yield ["accepted", trace.acknowledged ? "by this node" : "not by this node"];
  if (trace.traceparent) yield ["trace", trace.traceparent];
  yield ["now", fateOf(trace)];
  for (const { name, id, is_alive, applied, by, cursor, seen_at } of trace.nodes ?? []) {
    const what = applied
      ? `reported it as applied at ${timeOf(by)}`
      : `has not applied it: its last report, ${timeOf(seen_at)}, was ${cursor}`;
    yield ["node", `${name || id}${is_alive ? "" : " (no longer reports)"} ${what}`];
  }
  const { reader } = trace;
  if (!reader) return;
  const passed = "at the message or after it: its client was sent it, was told of a gap, or began after it";
  yield ["cursor", reader.has_passed ? passed : "before the message: its client has not passed it"];
  for (const { channel, delivers, gap } of reader.channels) {
    const gets = [delivers && "the message", gap && `a gap (${gap})`].filter(Boolean).join(" and ");
    yield ["", `a poll of ${channel} from there gets ${gets || "neither the message nor a gap"}`];
  }
}

/** @param {any} trace */
function fateOf({ fate, channels, kept_by = [], dropped, dropped_before }) {
  if (fate === "kept" && kept_by.length < channels.length)
    return `kept by ${kept_by.join(", ")}; dropped by the other channels`;
  if (fate === "dropped") {
    const by = dropped.limit ? ` because of ${dropped.limit}` : "";
    return `dropped at ${timeOf(dropped.time)}: ${dropped.reason}${by}`;
  }
  if (fate === "forgotten")
    return `no longer known: if it was a message, it was dropped before ${timeOf(dropped_before)}`;
  if (fate === "ahead") return "not known here: this node has not applied its entry yet";
  if (fate === "lost") return "lost: it was the end of an order that continued without it";
  return fate;
}

// What the operator does.

/** @param {string} id @param {() => unknown} act */
function onSubmit(id, act) {
  $(id).addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    act();
  });
}

/** @param {string} id @param {(event: any) => unknown} act */
const onClick = (id, act) => $(id).addEventListener("click", act);

onSubmit("key-form", () => useKey($("key").value.trim()));
onClick("forget-key", () => useKey(""));
onClick("change-key", () => {
  if ($("key-form").hidden) askForKey();
  else $("key-form").hidden = true;
});
onSubmit("open", () => {
  const name = $("name").value;
  $("name").value = "";
  if (name) openChannel(name);
  showChannels();
});
onSubmit("publish", publish);
onSubmit("why", why);
onClick("channels", ({ target }) => target.matches("button") && openChannel(target.textContent));
onClick("close", closeChannel);
onClick("pause", () => setPaused(!follower?.isPaused));
for (const id of ["messages", "published"])
  onClick(id, ({ target }) => {
    if (!target.matches("button")) return;
    $("id").value = target.textContent;
    $("why-card").scrollIntoView({ block: "nearest" });
    why();
  });
/** @param {number} channel */
function turnTo(channel) {
  after = channel;
  look();
}
onClick("first", () => turnTo(0));
onClick("next", () => turnTo(channels[channels.length - 1].id));
for (const id of ["name", "sort"]) $(id).addEventListener("input", showChannels);
const lookAgain = () => document.hidden || isRefused || shownLook !== looks || look();
document.addEventListener("visibilitychange", lookAgain);
setInterval(lookAgain, LOOK);

document.title = `PushUp ${location.host}`;
look();
