/** Ask `agent-magic-tool serve`, and decide by a policy what waits for a human. */

import type { Gate, SessionEvent, SessionState, SubmitRequest, TurnOutcome } from "./api-types.js";

export type * from "./api-types.js";

/** The server refused a request. `code` is one of a fixed list, `hint` says how to go on. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly hint?: string;
}

/** The server is not there, or broke off. */
export class ConnectionError extends Error {}

/** What happens in a session, by its name: that is its type, and `tok` for a text. */
export type StreamEvent = {
  [T in Exclude<SessionEvent["type"], "error">]: { name: T extends "text" ? "tok" : T; data: Extract<SessionEvent, { type: T }> };
}[Exclude<SessionEvent["type"], "error">];

/** What may be said about a question, apart from the question. */
export type AskOptions = Omit<SubmitRequest, "message" | "wait" | "session"> & {
  /** An id of your choice, or the number of a session. Without it a new session begins. */
  session?: string | number | null;
};

/**
 * A program that asks, with an API key that has the scopes `ask` and `read`.
 *
 * Without a key, the server takes it for a program of its own user, which has all rights. Only loopback allows that.
 */
export class Client {
  readonly url: string;
  constructor(options?: { url?: string; key?: string });
  /** Asks a question, and yields what happens until it is answered. The last event is `done`. */
  ask(message: string, options?: AskOptions): AsyncGenerator<StreamEvent, void>;
  /** Asks a question, and returns its answer. */
  answer(message: string, options?: AskOptions): Promise<TurnOutcome>;
  /** What a session is doing. */
  state(session: string | number): Promise<SessionState>;
  /** A decider with another key, for what is asked with the key of this client alone. */
  decidedBy(key: string, policy?: Policy): Decider;
}

/** A decision with more to say than yes or no: a note for the agent, the fields of the answer if the gate asks a question. */
export interface Verdict {
  approve: boolean;
  note?: string;
  answer?: Record<string, unknown>;
}

type Answer = boolean | Verdict | null | undefined | void;

/** `true` approves, `false` denies, nothing leaves it to a human on the page. */
export type Policy = (gate: Gate) => Answer | Promise<Answer>;

export type Kind = "read" | "write" | "destructive";

/** Denies everything. */
export const rejectAll: Policy;
/** Approves everything that a key may approve, also what destroys something. */
export const approveAll: Policy;
/**
 * Decides by the name of the subtool, which may have `*`: `bySubtool({"note_*": true, note_delete: false})`. A name counts
 * before patterns; if several patterns match, one `false` denies. What no rule names is denied.
 */
export function bySubtool(rules: Record<string, boolean>): Policy;
/** Decides by what a call changes: `byKind({read: true, write: false})`. A kind that is not named is denied. */
export function byKind(rules: Partial<Record<Kind, boolean>>): Policy;
/** `read` changes nothing, `destructive` destroys something, all else is a `write`. */
export function kindOf(gate: Gate): Kind;

/** What became of one gate. `left` still waits for a human on the page; `missed` changed or was decided meanwhile. */
export interface Outcome {
  gate: Gate;
  result: "approved" | "denied" | "left" | "missed";
  /** Why it was left or missed. */
  reason: string;
}

/**
 * Follows what waits, and decides it. While it runs, calls of other clients wait for it though no page is open.
 *
 * `askedBy` is the API key of one client: only what is asked with that is decided. If it is left out, everything is that waits,
 * also what your programs in a terminal ask.
 */
export class Decider {
  constructor(options: { url?: string; key: string; policy?: Policy; askedBy?: string });
  policy: Policy;
  /** What was decided in the background. */
  readonly outcomes: Outcome[];
  /** The error that ended it in the background, which is there as soon as it has ended. */
  readonly error?: unknown;
  /** What waits now. */
  gates(): Promise<Gate[]>;
  /**
   * What waits now, and then what comes, again when it shows something else. Ends with `close`.
   *
   * Throws `ConnectionError` if the server is not there at first. If it goes away later, it is waited for.
   */
  follow(): AsyncGenerator<Gate, void>;
  /** Decides what waits and what comes, as `follow` yields it. Ends with `close`. */
  run(): AsyncGenerator<Outcome, void>;
  /** Decides one gate by the policy, for exactly what it shows. A policy that fails or returns no verdict decides nothing. */
  decide(gate: Gate): Promise<Outcome>;
  /** Has it run in the background. It is there when the promise is fulfilled. */
  start(): Promise<this>;
  /** Stops to follow. What was decided stays decided. Rejects with the error that ended it in the background, if one did. */
  close(): Promise<void>;
}
