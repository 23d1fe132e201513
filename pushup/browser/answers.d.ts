/** The types of answers.js. docs/guide/answers.md says what everything means. */
import type { PushUp } from "./pushup.d.ts";

/** Text to be appended, or a JSON value that the application gave. */
export type Part = any;

/** Returns how the writer ended it. Throws `AnswerFailed`, `AnswerCutOff`, or the reason of the signal. */
export type Answer = AsyncGenerator<Part, "done" | "stopped", undefined>;

export interface AnswerOptions {
  /** Stops reading. The writer goes on. */
  signal?: AbortSignal;
  /** Milliseconds without a message from the writer, while the page is live, after which the answer is cut off: 15,000. */
  silence?: number;
}

export class AnswerFailed extends Error {}

export class AnswerCutOff extends Error {}

export function readAnswer(pushup: PushUp, channel: string, options?: AnswerOptions): Answer;
