/**
 * Keeps the lists of a page up to date: for each `<script data-pushup>`, what the template tag of a framework says.
 *
 * An element that arrives replaces the one with its id, or joins the list. Other data arrive as the event "pushup" of
 * the list. After a gap, an outage, or without a cursor, the page fetches the list again.
 */
import { PushUp } from "./pushup.js";

for (const script of document.querySelectorAll("script[data-pushup]")) follow(JSON.parse(script.dataset.pushup));

function follow({ list, prepend, url, user, token, channels, cursor }) {
  let queue = Promise.resolve(); // what arrives while the list is fetched is shown in the new one
  let behind = !cursor;
  const next = task => { queue = queue.then(task).catch(console.error); };
  const push = new PushUp({ url: url || location.origin, ...(user && { user }), ...(token && { token: () => get(token) }) });
  push.subscribe(channels, {
    ...(cursor && { cursor }),
    onMessage: message => next(() => show(message)),
    onGap: () => next(fetchAgain),
    onState({ state, reason }) {
      document.getElementById(list).dataset.pushupState = state;
      if (state === "stopped") console.error(`the list "${list}" is no longer live: ${reason?.detail ?? reason?.title}`);
      if (state === "offline") behind = true;
      if (state === "live" && behind) behind = false, next(fetchAgain);
    },
  });

  function show({ event, data }) {
    const target = document.getElementById(list);
    if (event !== "html") return void target.dispatchEvent(new CustomEvent("pushup", { detail: data, bubbles: true }));
    const template = document.createElement("template");
    template.innerHTML = data;
    for (const element of [...template.content.children]) {
      const old = document.getElementById(element.getAttribute("id")); // the property of a form may be its field "id"
      if (old) old.replaceWith(element);
      else target[prepend ? "prepend" : "append"](element);
      window.htmx?.process(element);
    }
  }

  async function fetchAgain() {
    for (let seconds = 1; ; seconds = Math.min(seconds * 2, 30)) {
      const signal = AbortSignal.timeout?.(15_000); // not in Safari 15
      const request = { headers: { Accept: "text/html" }, cache: "no-store", signal };
      const html = await fetch(location.href, request).then(response => response.ok && response.text()).catch(() => "");
      if (html) {
        const page = new DOMParser().parseFromString(html, "text/html");
        const fresh = page.getElementById(list);
        if (!fresh) return location.reload(); // it is another page, such as one to log in
        fresh.dataset.pushupState = document.getElementById(list).dataset.pushupState;
        document.getElementById(list).replaceWith(fresh);
        window.htmx?.process(fresh);
        return;
      }
      await new Promise(done => setTimeout(done, 1000 * seconds * (0.5 + Math.random() / 2)));
    }
  }
}

async function get(url) {
  const response = await fetch(url);
  if (response.status === 401) return undefined; // logged out: the list stops
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  return (await response.json()).token;
}
