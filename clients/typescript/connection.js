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

/** An API key, with its id. */
const KEY = /^amt_([0-9a-f]{8})_[A-Za-z0-9_-]{43}$/;

/** The part of an API key that is no secret. If it is no API key, throws a `TypeError` that does not contain it. */
export function idOf(key, name = "key") {
  const found = typeof key === "string" ? KEY.exec(key) : null;
  if (!found) throw new TypeError(`\`${name}\` is no whole API key, which is \`amt_\`, 8 digits, \`_\` and 43 characters`);
  return found[1];
}

/** Where the server is, and the API key that is shown to it, if there is one. */
export class Connection {
  #key;

  constructor(url, key) {
    this.url = URL.canParse(url) ? new URL(url) : undefined;
    if (!["http:", "https:"].includes(this.url?.protocol)) {
      throw new TypeError(`\`${url}\` is not the URL of a server, like http://127.0.0.1:8790`);
    }
    if (key !== undefined) idOf(key);
    this.#key = key;
  }

  async #fetch(method, path, { body, headers, signal } = {}) {
    const all = new Headers(headers);
    if (this.#key) all.set("authorization", `Bearer ${this.#key}`);
    if (body !== undefined) all.set("content-type", "application/json");
    const text = body === undefined ? undefined : JSON.stringify(body);
    let response;
    try {
      response = await fetch(new URL(path, this.url), { method, headers: all, body: text, signal, redirect: "error" });
    } catch (error) {
      throw new ConnectionError(`the server is not there: ${error.cause?.message ?? error.message}`);
    }
    if (response.ok) return response;
    const answer = await response.json().catch(() => ({}));
    throw new ApiError(response.status, answer?.error ?? {});
  }

  /** Sends a request, and returns the object that it answers. */
  async request(method, path, body, headers) {
    const response = await this.#fetch(method, path, { body, headers });
    const answer = await response.json().catch(() => undefined);
    if (answer === null || typeof answer !== "object" || Array.isArray(answer)) throw strange("no JSON object");
    return answer;
  }

  /** Opens a stream of events, as `{id, name, data}`. Ends quietly when it is aborted, the server is gone or data is not JSON. */
  async stream(path, { headers, signal } = {}) {
    const response = await this.#fetch("GET", path, { headers, signal });
    if (/^text\/event-stream *(;|$)/i.test(response.headers.get("content-type"))) return events(response.body);
    await response.body?.cancel().catch(() => {});
    throw strange("no stream");
  }
}

/** Another program than ours answered. */
function strange(what) {
  return new ConnectionError(`the server's answer is ${what}; is this URL that of \`agent-magic-tool serve\`?`);
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
        const [, field, text] = /^([^:]*):? ?(.*)$/s.exec(line);
        if (field === "id") id = text;
        else if (field === "event") name = text;
        else if (field === "data") data.push(text);
        else if (line === "") {
          if (data.length > 0) {
            const value = parsed(data.join("\n"));
            if (value === undefined) return;
            yield { id, name, data: value };
          }
          [name, data] = ["message", []];
        }
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

/** The value of a JSON text; `undefined` if it is not JSON. */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
