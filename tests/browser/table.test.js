/** The tables in docs/internals/browser-client.md and in pushup.js are the same, and complete. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { CONNECTION, LEAD, step } from "../../pushup/browser/pushup.js";

const TEXT = readFileSync(new URL("../../docs/internals/browser-client.md", import.meta.url), "utf8");

function section(heading) {
  return TEXT.split(`\n## ${heading}\n`)[1].split("\n## ")[0];
}

/** The rows of each table of a section, by the names in its head. */
function tables(text) {
  const found = [];
  let head = null;
  for (const line of text.split("\n")) {
    if (!line.startsWith("|")) head = null;
    else {
      const cells = line
        .split("|")
        .slice(1, -1)
        .map((cell) => cell.trim());
      if (!head) found.push({ head: (head = cells), rows: [] });
      else if (!/^[-:]+$/.test(cells[0]))
        found.at(-1).rows.push(Object.fromEntries(head.map((name, at) => [name, cells[at]])));
    }
  }
  return found;
}

const names = (cell) => [...cell.matchAll(/`([\w-]+)`/g)].map(([, name]) => name);
const named = (all, column) =>
  all.find(({ head }) => head[0] === column && head.length < 4).rows.flatMap((row) => names(row[column]));

for (const [heading, table] of [
  ["The connection", CONNECTION],
  ["The lead", LEAD],
]) {
  const all = tables(section(heading));
  const states = named(all, "state");
  const events = named(all, "event");
  const { rows } = all.find(({ head }) => head.includes("next"));
  const cells = rows.flatMap((row) =>
    names(row.state).flatMap((state) =>
      names(row.event).map((event) => ({
        state,
        event,
        next: row.next === "same" ? state : names(row.next)[0],
        actions: row.actions ? row.actions.split(", ") : [],
      })),
    ),
  );

  test(`${heading}: every state with every event, once`, () => {
    const expected = states.flatMap((state) => events.map((event) => `${state} ${event}`)).sort();
    assert.deepEqual(cells.map(({ state, event }) => `${state} ${event}`).sort(), expected);
    assert.ok(cells.every(({ next }) => states.includes(next)));
    assert.deepEqual(Object.keys(table).sort(), [...states].sort());
  });

  for (const { state, event, next, actions } of cells) {
    test(`${heading}: ${state}, ${event} -> ${next}`, () => {
      assert.deepEqual(step(table, state, event), { state: next, actions });
    });
  }

  test(`${heading}: every action is explained or says what it does`, () => {
    if (heading === "The connection") {
      const explained = named(all, "action");
      for (const { actions } of cells) for (const action of actions) assert.ok(explained.includes(action), action);
    }
  });
}
