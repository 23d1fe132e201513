/** The types of ai-sdk.js. docs/guide/answers.md says what everything means. */
import type { ChatTransport, UIMessage } from "ai";
import type { PushUp } from "./pushup.d.ts";

/** `headers`, `body`, `credentials` and `fetch` are those of the SDK's own transport. */
export interface TransportOptions {
  pushup: PushUp;
  /** The application's endpoint: `/api/chat`. */
  api?: string;
  headers?: Record<string, string> | Headers;
  body?: object;
  credentials?: RequestCredentials;
  fetch?: typeof globalThis.fetch;
  /** Milliseconds, as for `readAnswer`. */
  silence?: number;
}

export class PushUpTransport<Message extends UIMessage = UIMessage> implements ChatTransport<Message> {
  constructor(options: TransportOptions);
  readonly resumeStreamIsReplay: boolean;
  sendMessages: ChatTransport<Message>["sendMessages"];
  reconnectToStream: ChatTransport<Message>["reconnectToStream"];
}
