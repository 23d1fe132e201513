/**
 * Ways to break the client: what is wrong then, what is replaced in the source, and by what. The model must notice each
 * (mutations.long.js) within 80 seeds, or as many as the last number says.
 */
export const MUTATIONS = [
  [
    "a subscription takes entries that were not asked for with its channels",
    "if (![...channels].every((channel) => node.channels.has(channel))) return null;",
    "",
    250,
  ],
  ["a gap that was told before a subscription joined is not its own", "node.open?.some((channel) => channels.has(channel))", "false", 500],
  [
    "the message at which a subscription joins comes again",
    "node.messages.slice(seen + 1)",
    "node.messages.slice(seen)",
  ],
  [
    "a subscription that has lost track joins where the feed ends",
    "    return null;\n  }\n}\n\n// The lead",
    "    return undefined;\n  }\n}\n\n// The lead",
  ],
  ["gaps are not told", "const gaps = entry.gaps.filter((gap) => isMine(gap.channel));", "const gaps = [];"],
  ["the cursor is not kept over a reload", "this.#client.stored(this.#key, cursor);", ""],
  ["a request that is given up is not aborted", "this.attempt?.abort();", ""],
  ["no pause between attempts", "const BACKOFF = [300, 30_000];", "const BACKOFF = [20, 50];"],
  ["a server that answers in a loop is asked in a loop", "useless < 3", "useless < 1e9"],
  [
    "a silent connection is trusted for ever",
    "this.deadline = { at: this.client.now() + time, event };",
    'if (event === "due") this.deadline = { at: this.client.now() + time, event };',
  ],
  ["a stream that is held back is never given up", 'within(FIRST_BYTE, "mute")', 'within(1e9, "mute")'],
  [
    "the leader does not ask for the channels of other tabs",
    "...[...this.lead.tabs.values()].map((tab) => tab.lists)",
    "",
  ],
  ["a leader that hangs is waited for", 'silent: "following steal",', ""],
  [
    "whoever follows says live, whether or not it is up to date",
    "(next === undefined || (next === null && sub.complete === sub.cursor))",
    "true",
  ],
  [
    "the page is told live as soon as a request is sent",
    'if (state === "live") return { state };',
    'if (state !== "waiting") return { state: "live" };',
  ],
  [
    "a subscription has handled an entry before its handler has",
    "const { channels, cursor } = this;\n      /** @param",
    "this.start(next.entry.cursor);\n      const { channels, cursor } = this;\n      /** @param",
    250,
  ],
  ["a token that was refused is sent again", "    this.#endsAt = 0;\n    return", "    return"],
  ["a token() that hangs is waited for", "const TOKEN_PATIENCE = 10_000", "const TOKEN_PATIENCE = 1e9"],
  ["a token() that fails is not called again", "if (this.coming === coming) this.coming = undefined;", ""],
  ["the server is not told what was seen", 'if (event === "unread") connection.client.lead.unread();', ""],
  ["only the leader says what was seen", '    this.#post({ type: "unread" });\n', ""],
  ["what one subscription has not handled is said to be seen", "asked.filter((sub) => sub.cursor === cursor)", "asked"],
  ["what was seen is said again and again", "      this.#saying = null;\n", ""],
];
