/**
 * One run of the model: tabs that subscribe, a service that publishes, faults, and then peace. `run(seed, PushUp)`
 * returns what was wrong, as text, or an empty list.
 *
 * Checked: each message of a subscription's channels after its start is delivered once and in order, or a gap was told
 * when it had been dropped; each closing is told, and before what was published on the channel after it; one held
 * request at most, but for those of frozen tabs; no loop of requests; a page that says `live` is not behind; no tab
 * says that a message was seen which it has not handled; and after the faults every subscription is live, gets what is
 * published, and the server knows what was seen.
 */
import { Dice, world } from "./world.js";

const CHANNELS = ["a", "b", "c", "d", "e"];
const FAULTS = 60_000; // ms with faults
const PEACE = 110_000; // ms in which everything must be live again
const BEHIND = 60_000; // ms for which a page may say `live` and miss something: silence of a stream or a poll, and 20 s
const NOTICED = 45_000; // ms after which a page must know that nothing comes any more

/** What one subscription was promised, and got; a reload continues it. */
class Ledger {
  delivered = []; // sequences
  start = Infinity; // the sequence after which everything counts
  gaps = 0;
  excused = new Set();
  closings = []; // {channel, at}, as told
  skipTo = 0; // a handler of a gap chose to continue there
  liveSince = Infinity;
  lookAt = 0;
  closed = false;
  mayRepeat = false; // after a reload, with atLeastOnce

  constructor(world, channels, problems, name) {
    Object.assign(this, { world, channels: new Set(channels), problems, name });
    this.since = new Map(channels.map((channel) => [channel, -1])); // the sequence after which a channel counts
  }

  got(message) {
    const { sequence } = this.world.service.messages[message.sequence - 1];
    const before = this.delivered.at(-1) ?? -1;
    if (sequence > before) this.mayRepeat = false;
    if (sequence <= before && sequence > this.start && !this.mayRepeat) {
      this.problems.push(`${this.name}: ${sequence} after ${before} at ${this.world.clock.now}`);
    }
    if (sequence <= this.start) this.problems.push(`${this.name}: ${sequence}, from before its start at ${this.start}`);
    this.delivered.push(sequence);
  }

  /** A gap excuses what has been dropped by now. */
  gap({ channel, reason }) {
    this.gaps++;
    if (reason === "lost") this.skipTo = this.world.service.head;
    for (const message of this.world.service.messages) {
      if (message.channels.includes(channel) && !message.kept.has(channel))
        this.excused.add(`${message.sequence} ${channel}`);
    }
  }

  wasClosed(channel) {
    const { closings, messages } = this.world.service;
    const { sequence } = closings.findLast((each) => each.channel === channel);
    const later = this.delivered.find((each) => each > sequence && messages[each - 1].channels.includes(channel));
    if (later && !this.mayRepeat)
      this.problems.push(`${this.name}: ${channel} was closed at ${sequence}, told after ${later}`);
    this.closings.push({ channel, at: this.world.clock.now });
  }

  /** Closings of which it was not told. One before a place where it began again was not its own. */
  untold() {
    const from = Math.max(this.start, this.skipTo, this.world.service.wiped ?? 0);
    return this.world.service.closings.filter(({ channel, sequence }) => {
      if (!this.channels.has(channel) || sequence <= Math.max(from, this.since.get(channel))) return false;
      const at = this.world.service.messages[sequence - 1].time * 1000;
      return !this.closings.some((each) => each.channel === channel && each.at > at);
    });
  }

  missing(until) {
    const seen = new Set(this.delivered);
    return this.world.service.messages.slice(Math.max(this.start, 0)).filter(({ sequence, channels, time }) => {
      if (time * 1000 > until || seen.has(sequence)) return false;
      const mine = channels.filter((channel) => this.channels.has(channel) && sequence > this.since.get(channel));
      return mine.length > 0 && !mine.every((channel) => this.excused.has(`${sequence} ${channel}`));
    });
  }
}

export async function run(seed, PushUp, { faults: only } = {}) {
  const w = world(seed, { keep: [1000, 12, 6, 1000][seed % 4], nodes: 1 + (seed % 3) });
  const { dice, clock, service, network, browser } = w;
  const problems = [];
  const pages = [];
  const ledgers = [];
  const transport = ["auto", "auto", "auto", "poll"][dice.below(4)];

  // Every third time the application signs tokens; its function may be slow, fail or hang.
  const of = new Dice(seed);
  const signs = seed % 3 === 0;
  if (signs) service.ends = new Map();
  let signed = 0;
  const token = async (tab) => {
    const slow = () => new Promise((resolve) => clock.after(of.between(5, of.chance(0.1) ? 3000 : 100), () => tab.deliver(resolve)));
    if (!calm && of.chance(0.05)) await new Promise(() => {});
    await slow();
    if (!calm && of.chance(0.1)) throw new Error("of the application");
    const text = `t${++signed}`;
    service.ends.set(text, clock.now + of.between(5000, 60_000));
    tab.signed = (tab.signed ?? 0) + 1; // two revoked in a row would stop a tab for good
    if (!calm && tab.signed % 2 && of.chance(0.2)) clock.after(of.between(0, 20_000), () => service.revoke(text));
    return text;
  };

  function open(storage, old = []) {
    const tab = w.tab(storage);
    tab.storageFails = false;
    const page = { tab, subs: [], opened: clock.now };
    page.push = new PushUp({
      environment: tab.environment(),
      transport,
      onError() {},
      channelLimit: 100,
      ...(signs && { token: () => token(tab), user: "mei" }),
    });
    pages.push(page);
    for (const { ledger, name } of old) subscribe(page, ledger, name);
    if (!old.length) for (let more = dice.below(2); more >= 0; more--) subscribe(page, null);
    return page;
  }

  function subscribe(page, ledger, name = `n${ledgers.length}`) {
    const continued = ledger !== null;
    if (!ledger) {
      const some = dice.some(CHANNELS);
      ledger = new Ledger(w, some.length ? some : ["a"], problems, `subscription ${ledgers.length}`);
      ledger.atLeastOnce = dice.chance(0.3);
      ledgers.push(ledger);
    }
    const kind = dice.below(3);
    let cursor;
    if (!continued && kind === 0) {
      // Rendered into the page by an application that asked some node a moment ago.
      const sequence = Math.max(
        service.wiped ?? 0,
        dice.pick(service.nodes).applied - dice.below(dice.pick([1, 3, 30])),
      );
      cursor = service.cursor(sequence);
      ledger.start = sequence;
    }
    const slow = dice.chance(0.4);
    const { atLeastOnce } = ledger;
    const later = (most) =>
      new Promise((resolve) => clock.after(dice.between(1, most), () => page.tab.deliver(resolve)));
    const sub = page.push.subscribe([...ledger.channels], {
      name,
      cursor,
      atLeastOnce,
      async onMessage(message) {
        if (!atLeastOnce) ledger.got(message);
        if (dice.chance(0.05)) throw new Error("of the page");
        if (!atLeastOnce) return;
        await later(300);
        ledger.got(message);
      },
      onClosed: (channel) => ledger.wasClosed(channel),
      onGap: async (gap) => {
        ledger.gap(gap);
        if (slow) await later(3000);
        if (dice.chance(0.1)) throw new Error("of the page");
        if (gap.reason === "lost" || dice.chance(0.5)) return undefined;
        const sequence = Math.max(
          service.wiped ?? 0,
          Math.min(...service.nodes.map((node) => node.applied)),
          ledger.delivered.at(-1) ?? ledger.start,
        );
        ledger.skipTo = Math.max(ledger.skipTo, sequence);
        for (const { sequence: each, channels } of service.messages) {
          if (each <= sequence) for (const channel of channels) ledger.excused.add(`${each} ${channel}`);
        }
        return service.cursor(sequence);
      },
    });
    const { start } = sub;
    sub.start = (first) => {
      if (ledger.start === Infinity) ledger.start = service.position(first).sequence;
      start.call(sub, first);
    };
    page.subs.push({ sub, ledger, name });
    return sub;
  }

  const running = () => pages.filter((page) => !page.tab.gone);

  // A held poll has the cursor of all tabs; one that only says what was seen has that of subscriptions of its tab.
  service.onSeen = ({ tab, asked }, { sequence, channels }) => {
    if (asked.limit !== 1) return;
    const { subs } = pages.find((page) => page.tab === tab);
    const asking = subs.filter(({ ledger }) => [...ledger.channels].every((channel) => asked.channels.includes(channel)));
    const its = asking.filter(({ ledger }) => !ledger.closed && channels.some((channel) => ledger.channels.has(channel)));
    if (its.length && its.every(({ ledger }) => ledger.missing(Infinity).some((each) => each.sequence === sequence)))
      problems.push(`${its[0].ledger.name}: ${sequence} is said to be seen, and is not, at ${clock.now}`);
  };

  async function fault() {
    const faults = (network.faults = {});
    const kinds = {
      none: () => {},
      slow: () => (faults.slow = 1500),
      refuse: () => (faults.refuse = 0.5),
      hang: () => (faults.hang = 0.4),
      truncate: () => (faults.truncate = 0.6),
      502: () => (faults["502"] = 0.6),
      429: () => (faults["429"] = 0.6),
      503: () => (faults["503"] = 0.6),
      html: () => (faults.html = 0.5),
      buffering: () => (faults.buffering = true),
      noStreams: () => (faults.noStreams = true),
      refuseStreams: () => (faults.refuseStreams = true),
      cut: () => (faults.cutAfter = 20_000),
      loop: () => (faults.loop = true),
      silence: () => network.silence(),
      outage: () => {
        faults.outage = dice.pick(["hang", "refuse"]);
        outageAt = clock.now;
        network.silence();
        if (dice.chance(0.5)) for (const page of running()) page.tab.happen("offline");
      },
      reset: () => network.reset(),
      stall: () => (dice.pick(service.nodes).stalledUntil = clock.now + dice.between(500, 8000)),
      wipe: () => dice.chance(0.3) && service.wipe(),
      machineSleeps: () => {
        const time = dice.between(5_000, 200_000);
        const tabs = running().filter((page) => !page.tab.frozen);
        if (slept || !tabs.length) return;
        for (const { tab } of tabs) tab.freeze();
        if (dice.chance(0.7)) network.silence();
        const stands = dice.chance(0.7);
        slept += time;
        clock.after(time, () => {
          if (stands) browser.asleep += time;
          for (const { tab } of tabs) tab.thaw();
          outageAt = Math.max(outageAt, clock.now); // nobody could notice before
        });
      },
      freeze: () => {
        const page = dice.pick(running().filter(({ tab }) => !tab.frozen));
        if (!page) return;
        const { tab } = page;
        const told = dice.chance(0.6);
        const cached = dice.chance(0.5);
        if (told) tab.happen(cached ? "pagehide" : "freeze");
        tab.freeze();
        clock.after(dice.between(1000, 40_000), () => {
          tab.thaw();
          if (told) clock.after(0, () => tab.happen(cached ? "pageshow" : "resume"));
        });
      },
      hide: () => {
        const { tab } = dice.pick(running());
        tab.show(tab.hidden);
      },
      reload: () => {
        const page = dice.pick(running().filter(({ tab }) => !tab.frozen));
        if (!page) return;
        if (dice.chance(0.5)) page.tab.happen("pagehide");
        page.tab.close();
        for (const { ledger } of page.subs) ledger.mayRepeat = ledger.atLeastOnce;
        open(
          page.tab.storage,
          page.subs.filter(({ ledger }) => !ledger.closed && ledger.start < Infinity),
        );
      },
      kill: () => {
        const page = dice.pick(running());
        if (running().length < 2) return;
        if (dice.chance(0.5)) page.tab.happen("pagehide");
        page.tab.close();
        for (const { ledger } of page.subs) ledger.closed = true;
      },
      busy: () => (browser.busy = dice.pick([0, 50, 1000])),
      tab: () => running().length < 4 && open(),
      subscribe: () => subscribe(dice.pick(running()), null),
      change: () => {
        const page = dice.pick(running().filter(({ tab }) => !tab.frozen));
        const each = page && dice.pick(page.subs);
        if (!each || each.ledger.closed || each.sub.cursor === undefined) return;
        const channel = dice.pick(CHANNELS);
        if (each.ledger.channels.has(channel)) return;
        if (each.sub.busy) return;
        each.ledger.channels.add(channel);
        each.ledger.since.set(channel, service.position(each.sub.cursor).sequence);
        each.sub.add(channel);
      },
      leave: () => {
        const each = dice.pick(dice.pick(running()).subs);
        if (!each) return;
        each.sub.close();
        each.ledger.closed = true;
      },
    };
    const names = only ?? Object.keys(kinds);
    for (let count = 1 + dice.below(4); count > 0; count--) {
      kinds[dice.pick(names)]();
      await new Promise(setImmediate); // a page that is closed has done what it was about to do
    }
  }
  let slept = 0;
  let outageAt = 0;

  /** What must hold at any time. */
  function look() {
    const held = [...network.open].filter((request) => request.held && !request.tab.frozen);
    if (held.length > 1) overlap++;
    else overlap = 0;
    if (overlap > 1) problems.push(`${held.length} held requests at ${clock.now}`);
    for (const { tab, subs } of running()) {
      for (const { sub, ledger } of subs) {
        const runs = sub.state.state === "live" && !tab.frozen && !tab.hidden && !ledger.closed;
        if (runs && sub.cursor === undefined) problems.push(`${ledger.name}: live, and has not begun`);
        if (runs && network.faults.outage && clock.now - outageAt > NOTICED)
          problems.push(`${ledger.name}: live in an outage at ${clock.now}, from ${outageAt}`);
        ledger.liveSince = runs ? Math.min(ledger.liveSince, clock.now) : Infinity;
        if (clock.now - ledger.liveSince < BEHIND || clock.now < ledger.lookAt) continue;
        ledger.lookAt = clock.now + 10_000;
        const missing = ledger.missing(clock.now - BEHIND);
        if (missing.length) problems.push(`${ledger.name}: live at ${clock.now}, and behind: ${missing[0].sequence}`);
      }
    }
  }
  let overlap = 0;

  open();
  for (let more = dice.below(3); more > 0; more--) open();
  let rate = service.keep < 100 ? dice.between(100, 1000) : dice.between(300, 4000);
  let calm = false;
  const publish = () => {
    const message = service.publish(
      [dice.pick(CHANNELS), ...dice.some(CHANNELS).slice(0, 1)].filter((c, i, all) => all.indexOf(c) === i),
      0,
    );
    if (message.sequence % 5 === 0) service.unread.add(message);
    if (!calm && dice.chance(0.05)) service.close(dice.pick(CHANNELS));
    if (!calm) clock.after(dice.between(0, 2 * rate), publish);
  };
  clock.after(500, publish);
  const looking = () => {
    look();
    clock.after(1000, looking);
  };
  clock.after(100, looking);
  while (clock.now < FAULTS + slept) {
    await fault();
    await clock.run(clock.now + dice.between(500, network.faults.outage ? 80_000 : 12_000));
  }
  network.faults = {};
  browser.busy = 0;
  rate = 4000; // slow handlers, too, have to come to an end
  for (const { tab } of running()) {
    if (tab.hidden) tab.show(true);
    if (dice.chance(0.5)) tab.happen("online");
  }
  await clock.run(clock.now + PEACE);
  calm = true;
  for (const channel of CHANNELS) service.unread.add(service.publish([channel], 0));
  await clock.run(clock.now + 20_000);
  const all = () =>
    running().every(({ subs }) => subs.every(({ sub, ledger }) => ledger.closed || sub.state.state === "live"));
  for (let tries = 0; tries < 60 && !all(); tries++) await clock.run(clock.now + 1000); // a handler may be slow
  for (const { tab, subs } of running()) {
    for (const { sub, ledger } of subs) {
      if (ledger.closed) continue;
      if (sub.state.state !== "live")
        problems.push(`${ledger.name}: ${JSON.stringify(sub.state)} in the end, ${tab.frozen}`);
      const missing = ledger.missing(Infinity);
      if (missing.length) problems.push(`${ledger.name}: ${missing.length} lost, first ${missing[0].sequence}`);
      for (const { channel, sequence } of ledger.untold())
        problems.push(`${ledger.name}: was not told that ${channel} was closed at ${sequence}`);
    }
  }
  await clock.run(clock.now + 40_000); // a poll is held for 25 s
  const followed = running().flatMap(({ subs }) => subs.flatMap(({ ledger }) => (ledger.closed ? [] : [...ledger.channels])));
  for (const { sequence, channels } of service.unread) {
    if (channels.some((channel) => followed.includes(channel))) problems.push(`${sequence} was seen, and not said to be`);
  }
  problems.push(...loops(network.log));
  return { problems, world: w, pages, delivered: ledgers.reduce((sum, ledger) => sum + ledger.delivered.length, 0) };
}

/** Tabs that made more than 40 requests in 10 s that brought no message. */
function loops(log) {
  const found = [];
  for (const tab of new Set(log.map((request) => request.tab))) {
    const times = log.filter((request) => request.tab === tab && !request.useful).map((request) => request.at);
    for (let index = 40; index < times.length; index++) {
      if (times[index] - times[index - 40] < 10_000) {
        found.push(`40 useless requests within ${times[index] - times[index - 40]} ms at ${times[index]}`);
        break;
      }
    }
  }
  return found;
}
