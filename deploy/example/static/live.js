// Keeps a page up to date: polls PushUp for the page's channels, from the cursor that the page was rendered with, and
// adds new messages to the list. User input is always inserted as text, never as HTML.
"use strict";

const POLL_SECONDS = 25;
const PATIENCE_SECONDS = 15;      // beyond the poll's own timeout; then the connection is considered dead
const FIRST_PAUSE_SECONDS = 1;
const LONGEST_PAUSE_SECONDS = 30;
const SHOWN = 50;                 // maximum number of questions in a list, the same as on the server

const channels = JSON.parse(document.body.dataset.channels);
const list = document.getElementById("list");
const title = document.title;
let cursor = document.body.dataset.cursor;
let unseen = 0;
let wake = () => {};              // ends the pause before the next attempt

// --- polling ---

async function follow() {
  let failures = 0;
  let connected = false;          // whether PushUp has responded since the last failure
  for (;;) {
    try {
      if (!cursor) await catchUp();
      const began = Date.now();
      const answer = await poll(connected ? POLL_SECONDS : 0);   // the first poll only checks that PushUp responds
      failures = 0;
      show("live");
      if (answer.gaps.length) {
        await catchUp();          // messages were missed that PushUp no longer has; the database has them
      } else {
        answer.messages.forEach(take);
        cursor = answer.cursor;
      }
      // A server that is shutting down responds at once: pause, to avoid polling in a tight loop.
      if (connected && !answer.more && !answer.messages.length && Date.now() - began < 1000) await pause(1);
      connected = true;
    } catch (error) {
      connected = false;
      show("away");
      const seconds = Math.min(FIRST_PAUSE_SECONDS * 2 ** failures++, LONGEST_PAUSE_SECONDS);
      await pause(seconds * (0.5 + Math.random() / 2));     // so that clients do not all retry at once
    }
  }
}

async function poll(seconds) {
  const query = new URLSearchParams(channels.map(channel => ["channel", channel]));
  query.set("cursor", cursor);
  query.set("timeout", seconds);
  const signal = AbortSignal.timeout((seconds + PATIENCE_SECONDS) * 1000);
  const response = await fetch(`/v1/poll?${query}`, {signal, cache: "no-store"});
  if (!response.ok) throw new Error(`PushUp responded with ${response.status}`);
  return response.json();
}

// Loads the current list from the application, and the cursor to continue from.
async function catchUp() {
  const response = await fetch(location.href, {signal: AbortSignal.timeout(PATIENCE_SECONDS * 1000)});
  if (!response.ok) throw new Error(`the application responded with ${response.status}`);
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  if (!page.body.dataset.cursor) throw new Error("the application cannot reach PushUp");
  const had = new Set([...list.children].map(card => card.id));
  const cards = [...page.getElementById("list").children].map(card => document.importNode(card, true));
  cards.filter(card => !had.has(card.id)).forEach(announce);
  list.replaceChildren(...cards);
  tellTimes();
  cursor = page.body.dataset.cursor;
}

function pause(seconds) {
  return new Promise(resolve => {
    const timer = setTimeout(resolve, seconds * 1000);
    wake = () => { clearTimeout(timer); resolve(); };
  });
}

// --- messages ---

function take(message) {
  const data = message.data;
  const id = `${data.kind}-${data.id}`;
  if (document.getElementById(id)) return;                  // already on the page
  const card = data.kind === "question" ? questionCard(data) : answerCard(data);
  card.id = id;
  announce(card);
  if (data.kind === "question") {
    list.prepend(card);
    while (list.children.length > SHOWN) list.lastElementChild.remove();
  } else {
    list.append(card);
  }
  tellTimes();
}

function questionCard(question) {
  const card = filled("question-card", question);
  const link = card.querySelector(".title");
  link.textContent = question.title;
  link.href = `/question/${Number(question.id)}`;
  card.querySelector(".tags").replaceChildren(...question.tags.map(tag => {
    const chip = document.createElement("a");
    chip.className = "tag";
    chip.textContent = tag;
    chip.href = `/tag/${encodeURIComponent(tag)}`;
    return chip;
  }));
  return card;
}

function answerCard(answer) {
  return filled("answer-card", answer);
}

function filled(template, data) {
  const card = document.getElementById(template).content.firstElementChild.cloneNode(true);
  card.querySelector(".text").textContent = data.text;
  card.querySelector(".author").href = `/author/${encodeURIComponent(data.author)}`;
  card.querySelector(".name").textContent = data.author;
  const letters = [...data.author];
  const face = card.querySelector(".face");
  face.textContent = letters[0].toUpperCase();
  face.classList.add(`hue${letters.reduce((sum, letter) => sum + letter.codePointAt(0), 0) % 8}`);
  card.querySelector("time").dateTime = new Date(data.time * 1000).toISOString();
  return card;
}

// --- display ---

function announce(card) {
  card.classList.add("new");
  if (document.hidden) document.title = `(${++unseen}) ${title}`;
}

function show(state) {
  const badge = document.getElementById("live");
  badge.dataset.state = state;
  badge.querySelector("b").textContent = {live: "Live", away: "Reconnecting"}[state];
}

const relative = new Intl.RelativeTimeFormat("en", {numeric: "auto"});

function tellTimes() {
  for (const time of document.querySelectorAll("main time")) {
    const then = new Date(time.dateTime);
    const minutes = Math.round((then - Date.now()) / 60000);
    time.title = then.toLocaleString();
    time.textContent = minutes > -1 ? "just now"
      : minutes > -60 ? relative.format(minutes, "minute")
      : minutes > -1440 ? relative.format(Math.round(minutes / 60), "hour")
      : relative.format(Math.round(minutes / 1440), "day");
  }
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  unseen = 0;
  document.title = title;
  wake();
});
addEventListener("online", () => wake());
setInterval(tellTimes, 30000);
tellTimes();
follow();
