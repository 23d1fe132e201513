/** The parts of pushup.js that are plain functions: events from bytes, and `Retry-After`. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { EventParser, retryAfter } from "../../pushup/browser/pushup.js";

const STREAM =
  ':\nretry: 1000\n\nid: c1\ndata: {"data":"grüße 🙂"}\n\nevent: gap\ndata:{"channel":"a"}\n\nid: c2\n\n:\nid: c3\n\n';
const BLOCKS = [
  { id: "c1", data: '{"data":"grüße 🙂"}' },
  { event: "gap", data: '{"channel":"a"}' },
  { id: "c2" },
  { id: "c3" },
];

function parse(pieces) {
  const parser = new EventParser();
  const blocks = pieces.flatMap((piece) => parser.push(piece));
  return blocks
    .map(({ id, event, data }) => JSON.parse(JSON.stringify({ event, id, data })))
    .filter((block) => Object.keys(block).length);
}

test("a stream may be cut into two pieces anywhere, also within a character", () => {
  const bytes = new TextEncoder().encode(STREAM);
  for (let at = 0; at <= bytes.length; at++) assert.deepEqual(parse([bytes.slice(0, at), bytes.slice(at)]), BLOCKS);
});

test("a stream may come byte by byte", () => {
  assert.deepEqual(parse([...new TextEncoder().encode(STREAM)].map((byte) => Uint8Array.of(byte))), BLOCKS);
});

test("lines may end in CR LF, cut anywhere", () => {
  const bytes = new TextEncoder().encode(STREAM.replaceAll("\n", "\r\n"));
  for (let at = 0; at <= bytes.length; at++) assert.deepEqual(parse([bytes.slice(0, at), bytes.slice(at)]), BLOCKS);
});

test("a line separator of Unicode, which JSON allows, ends no line", () => {
  const data = JSON.stringify("a\u2028id: x\u2029b").replace(/\\u202[89]/g, (text) => JSON.parse(`"${text}"`));
  assert.equal(JSON.parse(parse([new TextEncoder().encode(`data: ${data}\n\n`)])[0].data), "a\u2028id: x\u2029b");
});

test("several lines of data are joined, a byte order mark and unknown fields are ignored", () => {
  const text = "\uFEFFdata: 1\ndata: 2\nother: x\nwhat\n\n";
  assert.deepEqual(parse([new TextEncoder().encode(text)]), [{ data: "1\n2" }]);
});

test("a block that is cut off is none", () => {
  assert.deepEqual(parse([new TextEncoder().encode("id: c1\ndata: 1\n")]), []);
});

test("Retry-After is a number of seconds or a date, and nonsense is no pause", () => {
  const wall = Date.parse("2026-11-22T10:00:00Z");
  for (const [value, pause] of [
    ["7", 7000],
    [" 7 ", 7000],
    ["Sun, 22 Nov 2026 10:00:05 GMT", 5000],
    ["Sun, 22 Nov 2026 09:00:00 GMT", 0],
    [null, 0],
    ["", 0],
    ["soon", 0],
    ["-5", 0],
    ["99999999", 3_600_000],
  ])
    assert.equal(retryAfter(value, wall), pause, String(value));
});
