// @ts-check
/**
 * answers.js: reads an answer, such as a language model's, while it is being written; how to use it:
 * docs/guide/answers.md. Each message of its channel has the event `answer`, and as data
 *
 * - a piece, `{piece: 0, parts: ["text", {...}]}`, numbered without holes; the last one has an `end`: `done`, `stopped`
 *   or `error`;
 * - or a beat, `{beat: 1}`, with the number of the next piece: the writer lives, and has nothing to send.
 *
 * @typedef {import("./answers.d.ts").Answer} Answer
 * @typedef {import("./answers.d.ts").AnswerOptions} AnswerOptions
 * @typedef {import("./pushup.d.ts").State} State
 */

const SILENCE = 15_000; // milliseconds; a writer sends a beat every 4 s
const BEATS = 3; // in this time: the timer of a page that slept is late once, and proves nothing

/** The writer could not finish; `message` is its text for the user. */
export class AnswerFailed extends Error {
  name = "AnswerFailed";
}

/** The rest of the answer will not come; `message` says why, for the developer. */
export class AnswerCutOff extends Error {
  name = "AnswerCutOff";
}

/**
 * The parts of the answer on a channel, from its beginning.
 * @param {import("./pushup.d.ts").PushUp} pushup @param {string} channel @param {AnswerOptions} [options]
 * @returns {Answer}
 */
export async function* readAnswer(pushup, channel, { signal, silence = SILENCE } = {}) {
  const { environment } = pushup;
  /** @type {unknown[]} */
  let parts = []; // that the caller has not taken
  let expected = 0; // the number of the next piece
  /** @type {{value: "done" | "stopped"} | {error: unknown} | undefined} */
  let end;
  let wake = () => {};
  let away = -Infinity; // since when the page is not live, in milliseconds
  /** @type {unknown} */
  let timer;

  /** @param {NonNullable<typeof end>} reason */
  const finish = (reason) => {
    end ??= reason;
    leave();
    wake();
  };
  /** @param {string} why */
  const cutOff = (why) => finish({ error: new AnswerCutOff(`${channel} was cut off: ${why}`) });
  const abort = () => {
    parts = [];
    end = undefined;
    finish({ error: signal?.reason });
  };
  /** @type {import("./pushup.d.ts").Subscription | undefined} */
  let second;
  const rest = () => {
    environment.clearTimeout(timer);
    second?.close();
  };
  const leave = () => {
    rest();
    first.close();
  };
  const listen = (missed = 0) => {
    rest();
    if (missed < BEATS) timer = environment.setTimeout(() => listen(missed + 1), silence / BEATS);
    else second = subscribe(doubt);
  };
  /** A connection that died may look live for 30 s; a subscription that begins sends a request. @param {State} state */
  const doubt = ({ state }) => {
    if (state === "live") cutOff(`its writer was silent for ${silence / 1000} s`);
  };
  /** @param {(state: State) => void} onState */
  const subscribe = (onState) =>
    pushup.subscribe([channel], {
      cursor: "earliest",
      name: "answer", // where it stands is not used after a reload
      onGap() {}, // the number of the next piece says whether anything is missing
      onClosed: () => cutOff("the channel was closed"),
      onState,
      onMessage({ event, data }) {
        if (event !== "answer" || end || !data) return;
        const number = data.piece ?? data.beat;
        if (number >= expected) listen();
        if (number > expected) cutOff(`piece ${expected} is missing; the next one is ${number}`);
        if (data.piece !== expected) return;
        expected++;
        parts = parts.concat(data.parts ?? []);
        if (data.end === "error") finish({ error: new AnswerFailed(data.error) });
        else if (data.end) finish({ value: data.end });
        wake();
      },
    });

  signal?.throwIfAborted();
  signal?.addEventListener("abort", abort);
  const first = subscribe((state) => {
    if (state.state === "stopped") cutOff(`status ${state.reason.status}: ${state.reason.detail ?? ""}`);
    const now = environment.mono();
    if (state.state !== "live") away = Math.min(away, now);
    else if (now - away > silence / BEATS) listen(); // not after less: it is not live while another tab takes the lead
    if (state.state === "live") away = Infinity;
  });
  try {
    for (;;) {
      while (parts.length) yield parts.shift();
      if (end) break;
      await new Promise((/** @type {(value?: undefined) => void} */ resolve) => (wake = resolve));
    }
    if ("error" in end) throw end.error;
    return end.value;
  } finally {
    signal?.removeEventListener("abort", abort);
    leave();
  }
}
