/** The types of pushup.js. docs/guide/browser.md says what everything means. */

export interface Message<Data = any> {
  id: string;
  /** Seconds since the epoch. */
  time: number;
  /** Those of the message's channels that the subscription has. */
  channels: string[];
  data: Data;
  /** The name that its publisher gave it, if any. */
  event?: string;
  /** True of a message that the server keeps for 5 s only, and then drops without a gap. */
  ephemeral?: boolean;
}

export interface Gap {
  channel: string;
  /** `expired`, `evicted`, `closed`, `deleted`, `lost`, or another that a newer server knows. */
  reason: string;
  /** The cursor after which nothing is missing on the channel. */
  until: string;
}

/** A problem document (RFC 9457). */
export interface Problem {
  status: number;
  type?: string;
  title?: string;
  detail?: string;
  field?: string;
}

export type State =
  | { state: "live" }
  | { state: "catching-up" }
  /** Times in milliseconds since the epoch; `next` is null if no attempt is planned. `reason`: of the last failure. */
  | { state: "offline"; failures: number; since: number; next: number | null; reason?: Problem }
  | { state: "stopped"; reason: Problem };

export interface Handlers {
  onMessage?(message: Message): unknown;
  /** May return the cursor from which to continue. */
  onGap?(gap: Gap): string | void | Promise<string | void>;
  onState?(state: State): unknown;
  onClosed?(channel: string): unknown;
  /** The cursor advances when the promise that `onMessage` returns resolves. */
  atLeastOnce?: boolean;
}

/** Not any iterable, for a string is one, of its letters. */
export type Channels = readonly string[] | ReadonlySet<string>;

export interface SubscriptionOptions extends Handlers {
  /** A cursor, `earliest` or `now`. */
  cursor?: string;
  /** Under which its cursor is kept over a reload, instead of its channels. */
  name?: string;
}

/** The handlers are those of all subscriptions that have none of their own. */
export interface Options extends Handlers {
  url?: string;
  /** A function is called again before its token ends; a text is used until then. */
  token?: string | (() => string | null | undefined | Promise<string | null | undefined>);
  credentials?: RequestCredentials;
  user?: string;
  share?: boolean;
  transport?: "auto" | "stream" | "poll";
  /** What a hidden page does. */
  hidden?: "continue" | "pause";
  /** True: try again. */
  onRefused?(problem: Problem): boolean | void | Promise<boolean | void>;
  onError?(error: unknown): unknown;
  channelLimit?: number;
  environment?: Environment;
}

export interface Event {
  /** Milliseconds since the epoch. */
  at: number;
  part: string;
  state: string;
  event: string;
  detail?: string;
}

export interface Subscription {
  /** Everything up to here has been handled; undefined until the server has said where it is. */
  readonly cursor: string | undefined;
  readonly channels: ReadonlySet<string>;
  readonly state: State;
  /** It counts from the cursor. While a handler runs, messages up to the end of what is handled may be missing. */
  add(channel: string): void;
  remove(channel: string): void;
  close(): void;
}

/** A user who is there. */
export interface Member<Data = any> {
  subject: string;
  /** Seconds since the epoch. */
  since: number;
  /** From the user's token, or from the application. */
  data: Data;
}

export interface PresenceChange<Data = any> {
  joined: Member<Data>[];
  updated: Member<Data>[];
  left: Member<Data>[];
}

export interface PresenceOptions<Data = any> {
  /** Called after `members` and `count` have changed; with nothing but empty lists when they are known first. */
  onChange?(change: PresenceChange<Data>): unknown;
  onState?(state: State): unknown;
}

export interface Presence<Data = any> {
  /** By subject, in the order of joining; null until it is known, and while there are more than the server lists. */
  readonly members: ReadonlyMap<string, Member<Data>> | null;
  readonly count: number | undefined;
  readonly state: State;
  close(): void;
}

/** What the client needs of a browser. */
export interface Environment {
  url: string;
  /** That of the page; empty outside of one. */
  origin: string;
  fetch(url: string, init: RequestInit): Promise<Response>;
  /** Milliseconds since the epoch, by the clock on the wall. */
  wall(): number;
  /** Milliseconds, by a clock that nobody sets. */
  mono(): number;
  setTimeout(call: () => void, time: number): unknown;
  clearTimeout(timer: unknown): void;
  /** From 0 up to, but not, 1. */
  random(): number;
  storage(): Pick<Storage, "getItem" | "setItem">;
  locks: Pick<LockManager, "request"> | undefined;
  BroadcastChannel: typeof BroadcastChannel | undefined;
  /** Sends something by POST, also if the page ends now. */
  beacon?(url: string, body: string): unknown;
  hidden(): boolean;
  /** Calls back with `pagehide`, `pageshow`, `freeze`, `resume`, `visibilitychange`, `online` and `offline`. */
  listen(heard: (event: string) => void): void;
}

export class PushUp {
  constructor(options?: Options);
  /** The browser's, or what was given. */
  readonly environment: Environment;
  subscribe(channels: Channels, options?: SubscriptionOptions): Subscription;
  /** Who follows a channel; this page's user, too. */
  presence<Data = any>(channel: string, options?: PresenceOptions<Data>): Presence<Data>;
  /** The last 200 events, oldest first. */
  report(): Event[];
}
