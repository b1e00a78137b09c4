// Ask `agent-magic-tool serve`, and decide by a policy what waits for a human.

import { ApiError, Connection, ConnectionError, idOf } from "./connection.js";
import { approveAll, byKind, bySubtool, kindOf, rejectAll, verdictOf } from "./policy.js";

export { ApiError, ConnectionError, approveAll, byKind, bySubtool, kindOf, rejectAll };

const HERE = "http://127.0.0.1:8790";
/** How often a stream that broke off is opened again, one second apart, before that is an error. */
const RETRIES = 30;

const pause = (signal) =>
  new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, 1000);
    signal?.addEventListener("abort", end);
  });

/** What a policy threw, in words. */
const words = (error) =>
  error instanceof Error || typeof error === "string" ? `${error}` : `it threw a value of type ${typeof error}`;

/**
 * A program that asks, with an API key that has the scopes `ask` and `read`.
 *
 * Without a key, the server takes it for a program of its own user, which has all rights. Only loopback allows that.
 */
export class Client {
  #connection;
  #key;

  constructor({ url = HERE, key } = {}) {
    this.url = url;
    this.#key = key;
    this.#connection = new Connection(url, key);
  }

  /** Asks a question, and yields what happens until it is answered. The last event is `done`. */
  async *ask(message, options = {}) {
    const headers = { "idempotency-key": crypto.randomUUID() };
    const body = { ...options, message, wait: false };
    if (typeof body.session === "number") body.session = String(body.session);
    const asked = await this.#connection.request("POST", "/api/v1/submit", body, headers);
    if ("answer" in asked) {
      // Commands alone are no question: what they print is answered at once.
      const { id: _, ...outcome } = asked;
      yield { name: "done", data: { type: "done", ...outcome } };
      return;
    }
    if (!asked.question) throw new ConnectionError("the server has neither an answer nor a question to follow");
    const path = `/api/v1/stream/${encodeURIComponent(asked.id)}?question=${asked.question}`;
    let lastId;
    for (let failures = 0; failures <= RETRIES; failures += 1) {
      try {
        for await (const { id, name, data } of await this.#connection.stream(path, {
          headers: lastId ? { "last-event-id": lastId } : {},
        })) {
          [lastId, failures] = [id ?? lastId, 0];
          // The server stops, and the turn goes on when it is back.
          if (name === "error" && data.error?.code === "no-executor") break;
          if (name === "error") throw new ApiError(200, data.error);
          yield { name, data };
          if (name === "done") return;
        }
      } catch (error) {
        if (!(error instanceof ConnectionError)) throw error;
      }
      await pause();
    }
    throw new ConnectionError("the stream of the session ended before the answer");
  }

  /** Asks a question, and returns its answer. */
  async answer(message, options) {
    let last;
    for await (const event of this.ask(message, options)) last = event;
    return last.data;
  }

  /** What a session is doing. */
  async state(session) {
    return this.#connection.request("GET", `/api/v1/session/${encodeURIComponent(session)}`);
  }

  /** A decider with another key, for what is asked with the key of this client alone. */
  decidedBy(key, policy = rejectAll) {
    if (!this.#key) {
      throw new TypeError("a client without a key cannot be told from others; use a Decider, which decides for all");
    }
    return new Decider({ url: this.url, key, policy, askedBy: this.#key });
  }
}

/** The page alone decides these. */
const ONLY_ON_THE_PAGE = {
  touch: "it needs a touch of the human's key, which only the page takes",
  page: "it asks for a secret or a sign-in, which only the page takes",
};
/** The gate is no longer what was shown. If it still waits, it comes again. */
const MISSED = ["stale", "already-decided", "not-found"];

/**
 * Follows what waits, and decides it. While it runs, calls of other clients wait for it though no page is open.
 *
 * `askedBy` is the API key of one client: only what is asked with that is decided. If it is left out, everything is that waits,
 * also what your programs in a terminal ask.
 */
export class Decider {
  #connection;
  #askedBy;
  #closing = new AbortController();
  #stream;
  #work;

  constructor(options) {
    const { url = HERE, key, policy = rejectAll } = options;
    const own = idOf(key);
    this.#connection = new Connection(url, key);
    // `undefined` does not leave it out, as it may come from a setting that is missing.
    this.#askedBy = "askedBy" in options ? idOf(options.askedBy, "askedBy") : undefined;
    if (this.#askedBy === own) {
      throw new TypeError("a key never approves what was asked with it; decide with another one");
    }
    this.policy = policy;
    /** What was decided in the background. */
    this.outcomes = [];
    /** The error that ended it in the background, which is there as soon as it has ended. */
    this.error = undefined;
  }

  /** What waits now. */
  async gates() {
    const { gates } = await this.#connection.request("GET", "/api/v1/gates");
    return gates.filter((gate) => this.#isOurs(gate));
  }

  /**
   * What waits now, and then what comes, again when it shows something else. Ends with `close`.
   *
   * Throws `ConnectionError` if the server is not there at first. If it goes away later, it is waited for.
   */
  async *follow() {
    let wasThere = false;
    while (!this.#closing.signal.aborted) {
      try {
        const stream = this.#stream ?? (await this.#open());
        [this.#stream, wasThere] = [undefined, true];
        for await (const { name, data } of stream) {
          if (name === "error") throw new ApiError(403, data.error);
          if (name === "gate" && this.#isOurs(data)) yield data;
        }
      } catch (error) {
        if (!(error instanceof ConnectionError && (wasThere || this.#closing.signal.aborted))) throw error;
      }
      if (!this.#closing.signal.aborted) await pause(this.#closing.signal);
    }
  }

  /** Decides what waits and what comes, as `follow` yields it. Ends with `close`. */
  async *run() {
    for await (const gate of this.follow()) yield await this.decide(gate);
  }

  /** Decides one gate by the policy, for exactly what it shows. A policy that fails or returns no verdict decides nothing. */
  async decide(gate) {
    const { id, digest, own } = gate;
    const needs = { ...gate.needs };
    const left = (reason) => ({ gate, result: "left", reason });
    let verdict;
    try {
      verdict = verdictOf(await this.policy(gate));
    } catch (error) {
      return left(`the policy failed: ${words(error)}`);
    }
    if (verdict === undefined) return left("the policy leaves it to a human");
    const body = { decision: verdict.approve ? "approve" : "deny", digest, note: verdict.note };
    if (verdict.approve) {
      if (own) return left("it was asked with this very key, which can only deny it");
      if (needs.how === "word") body.word = needs.word;
      else if (needs.how === "answer" && verdict.answer) body.answer = verdict.answer;
      else if (needs.how !== "click") {
        return left(ONLY_ON_THE_PAGE[needs.how] ?? "it asks a question, and the policy has no answer");
      }
    }
    try {
      await this.#connection.request("POST", `/api/v1/gate/${id}`, body);
    } catch (error) {
      if (MISSED.includes(error.code)) return { gate, result: "missed", reason: error.message };
      return left(error.message);
    }
    return { gate, result: verdict.approve ? "approved" : "denied", reason: "" };
  }

  /** Has it run in the background. It is there when the promise is fulfilled. */
  async start() {
    this.#stream = await this.#open();
    this.#work = (async () => {
      try {
        for await (const outcome of this.run()) this.outcomes.push(outcome);
      } catch (error) {
        this.error = error;
      }
    })();
    return this;
  }

  /** Stops to follow. What was decided stays decided. Rejects with the error that ended it in the background, if one did. */
  async close() {
    this.#closing.abort();
    await this.#work;
    if (this.error !== undefined) throw this.error;
  }

  #open() {
    return this.#connection.stream("/api/v1/gates/stream", { signal: this.#closing.signal });
  }

  #isOurs(gate) {
    return this.#askedBy === undefined || (gate.asked_by.key ?? "").split(".").pop() === this.#askedBy;
  }
}
