// Keeps a page up to date: pushup.js delivers what is published on the page's channels after the cursor that the page was
// rendered with, and new messages are added to the list. User input is always inserted as text, never as HTML.

import { PushUp } from "./pushup.js";     // the application's own copy: the page works before PushUp does

const PATIENCE_SECONDS = 15;
const PAUSE_SECONDS = 5;
const SHOWN = 50;                 // maximum number of questions in a list, the same as on the server

const list = document.getElementById("list");
const title = document.title;
let unseen = 0;

// --- staying up to date ---

async function follow(channels, cursor) {
  while (!cursor) {               // the application could not reach PushUp when it rendered the page
    try {
      cursor = await catchUp();
    } catch {
      show({state: "offline"});
      await new Promise(resolve => setTimeout(resolve, PAUSE_SECONDS * 1000));
    }
  }
  new PushUp().subscribe(channels, {cursor, onMessage: take, onGap: catchUp, onState: show});
}

// Loads the current list from the application, and returns the cursor to continue from.
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
  return page.body.dataset.cursor;
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

const SHOWN_STATES = {
  "live": ["live", "Live"],
  "catching-up": ["connecting", "Connecting"],
  "offline": ["away", "Reconnecting"],
  "stopped": ["away", "Not up to date: reload the page"],
};

function show({state}) {
  const badge = document.getElementById("live");
  [badge.dataset.state, badge.querySelector("b").textContent] = SHOWN_STATES[state];
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
});
setInterval(tellTimes, 30000);
tellTimes();
follow(JSON.parse(document.body.dataset.channels), document.body.dataset.cursor);
