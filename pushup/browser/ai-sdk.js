// @ts-check
/**
 * ai-sdk.js: answers for `useChat` of the AI SDK, which survive a reload; how to use it: docs/guide/answers.md.
 *
 * It sends the SDK's own requests to the application, which answers with the channel of the answer.
 *
 * @typedef {import("ai").UIMessageChunk} Chunk
 * @typedef {import("ai").ChatTransport<import("ai").UIMessage>} Transport
 * @typedef {import("./ai-sdk").TransportOptions} TransportOptions
 * @typedef {Record<string, string> | Headers} HeadersGiven
 */
import { readAnswer } from "./answers.js";

/** @implements {Transport} */
export class PushUpTransport {
  resumeStreamIsReplay = true; // an answer always comes from its beginning
  #options;
  #api;
  /** @type {Map<string, AbortSignal | undefined>} that of each chat's last resume */
  #resumed = new Map();

  /** @param {TransportOptions} options */
  constructor(options) {
    this.#options = options;
    this.#api = options.api ?? "/api/chat";
  }

  /** @type {Transport["sendMessages"]} */
  async sendMessages({ abortSignal, chatId, messages, trigger, messageId, headers, body }) {
    abortSignal?.addEventListener("abort", () => this.#stop(chatId, headers), { once: true });
    const content = JSON.stringify({ ...this.#options.body, ...body, id: chatId, messages, trigger, messageId });
    const response = await this.#fetch(this.#api, "POST", headers, abortSignal, content);
    return this.#stream((await response.json()).channel, abortSignal);
  }

  /** @type {Transport["reconnectToStream"]} */
  async reconnectToStream({ abortSignal, chatId, headers }) {
    this.#resumed.set(chatId, abortSignal);
    const response = await this.#fetch(this.#of(chatId, "stream"), "GET", headers, abortSignal);
    if (response.status === 204 || response.status === 404) return null;
    const { channel } = await response.json();
    // The SDK aborts a resume, too, just before it makes another one; useChat does so before the answer to this request.
    const stop = () => this.#resumed.get(chatId) === abortSignal && this.#stop(chatId, headers);
    abortSignal?.addEventListener("abort", () => queueMicrotask(stop), { once: true });
    return this.#stream(channel, abortSignal);
  }

  /** @param {string} chatId @param {string} what */
  #of(chatId, what) {
    return `${this.#api}/${encodeURIComponent(chatId)}/${what}`;
  }

  /** The user asks the writer to stop. @param {string} chatId @param {HeadersGiven} [headers] */
  #stop(chatId, headers) {
    void this.#fetch(this.#of(chatId, "stop"), "POST", headers).catch(console.error);
  }

  /**
   * @param {string} url @param {string} method @param {HeadersGiven} [headers] @param {AbortSignal} [signal]
   * @param {string} [body]
   */
  async #fetch(url, method, headers, signal, body) {
    const { credentials, headers: own, fetch = globalThis.fetch } = this.#options;
    const all = new Headers(own);
    new Headers(headers).forEach((value, name) => all.set(name, value));
    if (body) all.set("Content-Type", "application/json");
    const response = await fetch(url, { method, headers: all, body, credentials, signal });
    if (response.ok || (method === "GET" && response.status === 404)) return response;
    throw new Error((await response.text()) || `${url} answered ${response.status}`);
  }

  /** @param {string} channel @param {AbortSignal} [abortSignal] @returns {ReadableStream<Chunk>} */
  #stream(channel, abortSignal) {
    const reading = new AbortController();
    const abort = () => reading.abort(abortSignal?.reason);
    if (abortSignal?.aborted) abort();
    abortSignal?.addEventListener("abort", abort, { once: true });
    const { pushup, silence } = this.#options;
    const chunks = chunksOf(readAnswer(pushup, channel, { silence, signal: reading.signal }), channel);
    return new ReadableStream(
      {
        async pull(controller) {
          const { done, value } = await chunks.next(); // if it throws, the chat shows the error
          if (done) controller.close();
          else controller.enqueue(value);
        },
        cancel: (reason) => reading.abort(reason),
      },
      { highWaterMark: 0 }, // an error overtakes no chunk
    );
  }
}

/**
 * The chunks of an answer: a run of strings is a text; start and finish are added if the writer sends none.
 * @param {import("./answers.d.ts").Answer} answer @param {string} channel
 * @returns {AsyncGenerator<Chunk, void, undefined>}
 */
async function* chunksOf(answer, channel) {
  const sent = new Set(); // the types of chunks
  let texts = 0;
  let id = ""; // of the text that is open
  for await (const part of answer) {
    if (!sent.size && part?.type !== "start") yield { type: "start", messageId: channel }; // the same in every tab
    sent.add(part?.type);
    if (typeof part === "string") {
      if (!id) yield { type: "text-start", id: (id = `pushup-${texts++}`) };
      yield { type: "text-delta", id, delta: part };
      continue;
    }
    if (id) yield { type: "text-end", id };
    id = "";
    yield part;
  }
  if (id) yield { type: "text-end", id };
  if (!sent.size) yield { type: "start", messageId: channel };
  if (!sent.has("finish") && !sent.has("abort")) yield { type: "finish" };
}
