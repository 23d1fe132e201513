// @ts-check
/**
 * ag-ui.js: an agent for AG-UI whose answers survive a reload; how to use it: docs/guide/answers.md.
 *
 * It sends each run to the application, which answers with the channel of the answer.
 *
 * @typedef {import("@ag-ui/client").BaseEvent} BaseEvent
 * @typedef {import("@ag-ui/client").RunAgentInput} RunAgentInput
 * @typedef {import("./ag-ui").PushUpAgentConfig} PushUpAgentConfig
 */
import { AbstractAgent, EventType } from "@ag-ui/client";
import { Observable } from "rxjs";
import { AnswerCutOff, readAnswer } from "./answers.js";

export class PushUpAgent extends AbstractAgent {
  /** @type {PushUpAgentConfig} */
  config;
  /** @type {AbortController | undefined} of the run */
  reading;

  /** @param {PushUpAgentConfig} config */
  constructor(config) {
    super(config);
    this.config = config;
  }

  /** @param {RunAgentInput} input @returns {Observable<BaseEvent>} */
  run(input) {
    return eventsFrom(this, input, () => ask(this, "", "POST", JSON.stringify(input)));
  }

  /** The answer that is being written, after a reload. @param {RunAgentInput} input @returns {Observable<BaseEvent>} */
  connect(input) {
    this.reading?.abort(); // it is shown once, however often somebody connects
    return eventsFrom(this, input, () => ask(this, pathOf(this, "stream"), "GET"));
  }

  /** The user asks the writer to stop; the answer then ends as `stopped`. */
  abortRun() {
    void ask(this, pathOf(this, "stop"), "POST").catch(console.error);
    this.reading?.abort();
  }

  clone() {
    const cloned = super.clone();
    cloned.config = this.config;
    return cloned;
  }
}

// Functions, for AbstractAgent makes a clone without its constructor: it has no private methods.

/** @param {PushUpAgent} agent @param {string} what */
function pathOf({ threadId }, what) {
  return `/${encodeURIComponent(threadId)}/${what}`;
}

/** @param {PushUpAgent} agent @param {string} path @param {string} method @param {string} [body] */
async function ask({ config }, path, method, body) {
  const { url, credentials, headers: own, fetch = globalThis.fetch } = config;
  const headers = { ...own, ...(body && { "Content-Type": "application/json" }) };
  const response = await fetch(url + path, { method, headers, body, credentials });
  if (response.ok || (method === "GET" && response.status === 404)) return response;
  throw new Error(`${url + path} answered ${response.status}: ${await response.text()}`);
}

/**
 * @param {PushUpAgent} agent @param {RunAgentInput} input @param {() => Promise<Response>} begin
 * @returns {Observable<BaseEvent>}
 */
function eventsFrom(agent, input, begin) {
  return new Observable((subscriber) => {
    const { pushup, silence } = agent.config;
    const reading = (agent.reading = new AbortController());
    const run = async () => {
      const response = await begin();
      if (response.status === 204 || response.status === 404) return;
      const { channel } = await response.json();
      const answer = readAnswer(pushup, channel, { silence, signal: reading.signal });
      const others = input.messages.filter(({ id }) => id !== channel && !id.startsWith(`${channel}-`));
      for await (const event of eventsOf(answer, channel, input)) {
        subscriber.next(event);
        if (event.type !== EventType.RUN_STARTED || others.length === input.messages.length) continue;
        const snapshot = { type: EventType.MESSAGES_SNAPSHOT, messages: others };
        subscriber.next(snapshot); // without what is there already: it comes from its beginning
      }
    };
    run().then(
      () => subscriber.complete(),
      (error) => subscriber.error(error),
    );
    return () => reading.abort();
  });
}

/**
 * The events of an answer: a run of strings is a text message; the start and the end of the run are added if the writer
 * sends none.
 * @param {import("./answers.d.ts").Answer} answer @param {string} channel @param {RunAgentInput} input
 * @returns {AsyncGenerator<BaseEvent, void, undefined>}
 */
async function* eventsOf(answer, channel, { threadId, runId }) {
  const { RUN_STARTED, RUN_FINISHED, RUN_ERROR, TEXT_MESSAGE_START, TEXT_MESSAGE_CONTENT, TEXT_MESSAGE_END } = EventType;
  /** @param {EventType} type @param {object} fields */
  const event = (type, fields) => /** @type {BaseEvent} */ ({ type, ...fields });
  const sent = new Set(); // the types of events
  let texts = 0;
  let messageId = ""; // of the text that is open
  try {
    for await (const part of answer) {
      if (!sent.size && part?.type !== RUN_STARTED) yield event(RUN_STARTED, { threadId, runId });
      sent.add(part?.type);
      if (typeof part === "string") {
        if (!messageId) {
          messageId = texts ? `${channel}-${texts}` : channel; // the same in every tab
          texts++;
          yield event(TEXT_MESSAGE_START, { messageId, role: "assistant" });
        }
        if (part) yield event(TEXT_MESSAGE_CONTENT, { messageId, delta: part });
        continue;
      }
      if (messageId) yield event(TEXT_MESSAGE_END, { messageId });
      messageId = "";
      yield part;
    }
  } catch (error) {
    const { name, message } = /** @type {Error} */ (error);
    if (!sent.size) yield event(RUN_STARTED, { threadId, runId });
    if (name === "AbortError") return;
    yield event(RUN_ERROR, { message, code: error instanceof AnswerCutOff ? "cut-off" : "failed" });
    return;
  }
  if (messageId) yield event(TEXT_MESSAGE_END, { messageId });
  if (!sent.size) yield event(RUN_STARTED, { threadId, runId });
  if (!sent.has(RUN_FINISHED) && !sent.has(RUN_ERROR)) yield event(RUN_FINISHED, { threadId, runId });
}
