/** pushup/frameworks/live.js: when it fetches a list again, and what a message replaces. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const SOURCE = readFileSync(new URL("../../pushup/frameworks/live.js", import.meta.url), "utf8");

/**
 * A page with one list, whose server gives these answers to requests for the page, one after another; `fetched` are the
 * options of the requests. Pauses are over at once.
 */
function page(...answers) {
  const scene = { list: { id: "notes", dataset: {} }, fetched: [] };
  scene.list.replaceWith = (fresh) => (scene.list = fresh);
  const script = { dataset: { pushup: JSON.stringify({ list: "notes", channels: ["notes"], cursor: "c1" }) } };
  const given = {
    PushUp: class {
      subscribe(_channels, handlers) {
        scene.handlers = handlers;
      }
    },
    document: { querySelectorAll: () => [script], getElementById: () => scene.list },
    window: {},
    location: { href: "http://page/", origin: "http://page" },
    DOMParser: class {
      parseFromString = (text) => ({ getElementById: () => ({ text, dataset: {} }) });
    },
    AbortSignal: { timeout: () => AbortSignal.abort() },
    setTimeout: (call) => queueMicrotask(call),
    async fetch(_url, options) {
      scene.fetched.push(options);
      return answers.shift()(options);
    },
  };
  scene.document = given.document;
  const code = SOURCE.replace('import { PushUp } from "./pushup.js";', "");
  new Function(...Object.keys(given), code)(...Object.values(given));
  return scene;
}

const html = (text) => () => ({ ok: true, text: async () => text });
const cutOff = () => ({ ok: true, text: () => Promise.reject(new TypeError("network")) });
const hangs = ({ signal }) => new Promise((_, reject) => signal?.aborted && reject(signal.reason));
const unavailable = () => ({ ok: false });

test("after a gap the list is fetched until it has come, whatever fails", async () => {
  const scene = page(cutOff, hangs, unavailable, html("new"));
  scene.handlers.onGap();
  await new Promise(setImmediate);
  assert.deepEqual([scene.list.text, scene.fetched.length], ["new", 4]);
  assert.ok(scene.fetched.every(({ cache }) => cache === "no-store"));
});

test("a form replaces the one with its id, also if it has a field of this name", async () => {
  const scene = page();
  const form = { id: { name: "id" }, getAttribute: () => "note-7" };
  scene.document.createElement = () => ({ content: { children: [form] } });
  scene.document.getElementById = (id) => (id === "note-7" ? { replaceWith: (fresh) => (scene.fresh = fresh) } : null);
  scene.handlers.onMessage({ event: "html", data: "<form id=note-7><input name=id></form>" });
  await new Promise(setImmediate);
  assert.equal(scene.fresh, form);
});
