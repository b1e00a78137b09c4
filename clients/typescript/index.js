// Ask `agent-magic-tool serve`, and decide by a policy what waits for a human.

import { ApiError, Connection, ConnectionError } from "./connection.js";
import { approveAll, byKind, bySubtool, kindOf, rejectAll } from "./policy.js";

export { ApiError, ConnectionError, approveAll, byKind, bySubtool, kindOf, rejectAll };

const HERE = "http://127.0.0.1:8790";
/** How often a stream that broke off is opened again, one second apart, before that is an error. */
const RETRIES = 30;

const pause = (signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, 1000);
    signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });

/** A program that asks. On the server's own machine it needs no key. */
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
    const asked = await this.#connection.request("POST", "/api/v1/submit", { ...options, message, wait: false }, headers);
    const which = asked.question ? `question=${asked.question}` : "until=turn";
    const path = `/api/v1/stream/${encodeURIComponent(asked.id)}?${which}`;
    let lastId;
    for (let failures = 0; failures <= RETRIES; failures += 1) {
      try {
        for await (const { id, name, data } of await this.#connection.stream(path, {
          headers: lastId ? { "last-event-id": lastId } : {},
        })) {
          [lastId, failures] = [id, 0];
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

/** Follows what waits, and decides it. While it runs, calls of other clients wait for it though no page is open. */
export class Decider {
  #connection;
  #askedBy;
  #closing = new AbortController();
  #stream;
  #work;

  constructor({ url = HERE, key, policy = rejectAll, askedBy }) {
    this.#connection = new Connection(url, key);
    this.#askedBy = askedBy === undefined ? undefined : idOf(askedBy);
    if (this.#askedBy === idOf(key)) {
      throw new TypeError("a key never approves what was asked with it; decide with another one");
    }
    this.policy = policy;
    /** What was decided in the background. */
    this.outcomes = [];
    /** What ended it in the background. */
    this.error = undefined;
  }

  /** What waits now. */
  async gates() {
    const { gates } = await this.#connection.request("GET", "/api/v1/gates");
    return gates.filter((gate) => this.#isOurs(gate));
  }

  /** What waits now, and then what comes, again when it shows something else. Ends with `close`. */
  async *follow() {
    while (!this.#closing.signal.aborted) {
      try {
        const stream = this.#stream ?? (await this.#open());
        this.#stream = undefined;
        for await (const { name, data } of stream) {
          if (name === "error") throw new ApiError(403, data.error);
          if (name === "gate" && this.#isOurs(data)) yield data;
        }
      } catch (error) {
        if (!(error instanceof ConnectionError)) throw error;
      }
      if (!this.#closing.signal.aborted) await pause(this.#closing.signal);
    }
  }

  /** Decides what waits and what comes. Ends with `close`. */
  async *run() {
    for await (const gate of this.follow()) yield await this.decide(gate);
  }

  /** Decides one gate by the policy, for exactly what it shows. A policy that fails decides nothing. */
  async decide(gate) {
    const { id, digest, own } = gate;
    const needs = { ...gate.needs };
    const left = (reason) => ({ gate, result: "left", reason });
    let verdict;
    try {
      verdict = await this.policy(gate);
    } catch (error) {
      return left(`the policy failed: ${error}`);
    }
    if (verdict === undefined || verdict === null) return left("the policy leaves it to a human");
    if (typeof verdict === "boolean") verdict = { approve: verdict };
    if (typeof verdict.approve !== "boolean") return left(`the policy returned ${JSON.stringify(verdict)}, which is no verdict`);
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

  /** Stops to follow. What was decided stays decided. */
  async close() {
    this.#closing.abort();
    await this.#work;
  }

  #open() {
    return this.#connection.stream("/api/v1/gates/stream", { signal: this.#closing.signal });
  }

  #isOurs(gate) {
    return this.#askedBy === undefined || (gate.asked_by.key ?? "").split(".").pop() === this.#askedBy;
  }
}

/** The part of an API key that is no secret. */
function idOf(key) {
  const [start, id, ...secret] = String(key).split("_");
  if (start !== "amt" || secret.length === 0) throw new TypeError("this is not an API key, which begins with amt_");
  return id;
}
