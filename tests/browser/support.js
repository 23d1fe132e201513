/** What the tests of single behaviours share: pages in a small world, whose messages and states are noted. */
import { PushUp } from "../../pushup/browser/pushup.js";
import { world } from "./world.js";

export const SECOND = 1000;

/** A world in which `page()` opens a tab with a client; `calm: true` has one node without lag and a fast network. */
export function scene(options = {}) {
  const w = world(options.seed ?? 1, { keep: 1000, nodes: 1, ...options });
  w.service.limit = options.limit ?? 100;
  w.network.delay = () => 10;
  w.run = (seconds) => w.clock.run(w.clock.now + seconds * SECOND);
  w.page = (given = {}, tab = w.tab()) => {
    const page = { tab, errors: [] };
    page.push = new PushUp({ environment: tab.environment(), onError: (error) => page.errors.push(error), ...given });
    page.subscribe = (channels, more = {}) => {
      const got = { messages: [], states: [], gaps: [] };
      const sub = page.push.subscribe(channels, {
        onMessage: (message) => void got.messages.push(message.data),
        onState: (state) => void got.states.push(state.state),
        onGap: (gap) => void got.gaps.push(gap),
        ...more,
      });
      return Object.assign(got, { sub });
    };
    return page;
  };
  w.publish = (channel, ...data) => data.map((each) => w.service.publish([channel].flat(), each));
  /** Requests for which `fails(url)` is true do not get through, until the function that this returns is called. */
  w.block = (fails) => {
    const { fetch } = w.network;
    const network = () => Promise.reject(new TypeError("network"));
    w.network.fetch = (tab, url, init) => (fails(url) ? network() : fetch.call(w.network, tab, url, init));
    return () => (w.network.fetch = fetch);
  };
  w.held = () => [...w.network.open].filter((request) => request.held);
  return w;
}
