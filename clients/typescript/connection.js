// Requests and server-sent events, with what the runtime has.

/** The server refused a request. `code` is one of a fixed list, `hint` says how to go on. */
export class ApiError extends Error {
  constructor(status, error = {}) {
    const message = error.message ?? `the server answered with the status ${status}`;
    super(`${message} (${error.code ?? "unknown"})${error.hint ? `; ${error.hint}` : ""}`);
    Object.assign(this, { name: "ApiError", status, code: error.code ?? "unknown", hint: error.hint });
  }
}

/** The server is not there, or broke off. */
export class ConnectionError extends Error {
  name = "ConnectionError";
}

/** Where the server is, and the API key that is shown to it. */
export class Connection {
  #key;

  constructor(url, key) {
    this.url = new URL(url);
    this.#key = key;
  }

  async #fetch(method, path, { body, headers, signal } = {}) {
    const all = new Headers(headers);
    if (this.#key) all.set("authorization", `Bearer ${this.#key}`);
    if (body !== undefined) all.set("content-type", "application/json");
    let response;
    try {
      const text = body === undefined ? undefined : JSON.stringify(body);
      response = await fetch(new URL(path, this.url), { method, headers: all, body: text, signal, redirect: "error" });
    } catch (error) {
      throw new ConnectionError(`the server is not there: ${error.cause?.message ?? error.message}`);
    }
    if (response.ok) return response;
    const answer = await response.json().catch(() => ({}));
    throw new ApiError(response.status, answer?.error ?? {});
  }

  /** Sends a request, and returns its answer. */
  async request(method, path, body, headers) {
    const response = await this.#fetch(method, path, { body, headers });
    return response.json();
  }

  /** Opens a stream of events, as `{id, name, data}`. It ends quietly when it is aborted or the server is gone. */
  async stream(path, { headers, signal } = {}) {
    const response = await this.#fetch("GET", path, { headers, signal });
    return events(response.body);
  }
}

async function* events(body) {
  let [rest, id, name, data] = ["", undefined, "message", []];
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { value, done } = await reader.read().catch(() => ({ done: true }));
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines.map((line) => line.replace(/\r$/, ""))) {
        const [, field, text] = /^([^:]*):? ?(.*)$/.exec(line);
        if (field === "id") id = text;
        else if (field === "event") name = text;
        else if (field === "data") data.push(text);
        else if (line === "") {
          if (data.length > 0) yield { id, name, data: JSON.parse(data.join("\n")) };
          [name, data] = ["message", []];
        }
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
