/** The types of ag-ui.js. docs/guide/answers.md says what everything means. */
import { AbstractAgent } from "@ag-ui/client";
import type { AgentConfig, BaseEvent, RunAgentInput } from "@ag-ui/client";
import type { Observable } from "rxjs";
import type { PushUp } from "./pushup.d.ts";

export interface PushUpAgentConfig extends AgentConfig {
  pushup: PushUp;
  /** The application's endpoint. */
  url: string;
  headers?: Record<string, string>;
  credentials?: RequestCredentials;
  fetch?: typeof globalThis.fetch;
  /** Milliseconds, as for `readAnswer`. */
  silence?: number;
}

export class PushUpAgent extends AbstractAgent {
  constructor(config: PushUpAgentConfig);
  run(input: RunAgentInput): Observable<BaseEvent>;
  protected connect(input: RunAgentInput): Observable<BaseEvent>;
}
