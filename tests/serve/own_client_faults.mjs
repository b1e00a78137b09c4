// Our own client for JavaScript with wrong arguments, wrong verdicts, and a server that breaks off or is another one.
//
// node own_client_faults.mjs prints `all good`.

import assert from "node:assert/strict";
import { createServer } from "node:http";

import { ApiError, Client, ConnectionError, Decider, approveAll, byKind, bySubtool } from "../../clients/typescript/index.js";

const SECRET = "S".repeat(43);
const [ASK_KEY, DECIDE_KEY] = [`amt_00000001_${SECRET}`, `amt_00000002_${SECRET}`];
const [SUBMIT, GATES] = ["POST /api/v1/submit", "GET /api/v1/gates/stream"];
const json = (value, status = 200) => ({ status, kind: "application/json", text: JSON.stringify(value) });
const ASKED = json({ session: 101, id: "s 1", question: "q1", state: "working" }, 202);
const STREAM = "GET /api/v1/stream/s%201?question=q1";

function event(name, id, data) {
  return `${id ? `id: ${id}\n` : ""}event: ${name}\ndata: ${JSON.stringify({ type: name, ...data })}\n\n`;
}

const stream = (...pieces) => ({ status: 200, kind: "text/event-stream", text: pieces.join("") });

const gate = (id) => ({
  id, digest: `digest of ${id}`, subtool: "note", needs: { how: "click" }, asked_by: { key: "asker.00000001" }, danger: false, effect: "once",
});

/** Has `work` use a server that gives these answers, each path one after the other and the last one again. */
async function withServer(answers, work) {
  const asked = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const piece of request) body += piece;
    const path = `${request.method} ${request.url}`;
    asked.push({ path, last: request.headers["last-event-id"], body: body ? JSON.parse(body) : undefined });
    const { status, kind, text } = answers[path].length > 1 ? answers[path].shift() : answers[path][0];
    response.writeHead(status, { "content-type": kind, connection: "close" });
    // A stream breaks off: the last chunk is missing.
    if (kind === "text/event-stream") response.write(text || ": nothing\n\n", () => setTimeout(() => response.destroy(), 20));
    else response.end(text);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    await work(`http://127.0.0.1:${server.address().port}`, asked);
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}

async function all(events) {
  const found = [];
  for await (const one of events) found.push(one);
  return found;
}

async function until(condition) {
  for (const deadline = Date.now() + 60_000; !condition(); ) {
    assert(Date.now() < deadline, "it did not happen");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function aClientGoesOnAfterTheLastEvent() {
  const streams = [
    stream(event("tok", "1.1.1", { text: "a" }), event("tok", "1.1.2", { text: "b\u2028" }), 'id: 1.1.3\nevent: tok\ndata: {"te'),
    stream(event("error", "1.1.3", { error: { code: "no-executor", message: "it stops" } })),
    stream(event("tok", "1.2.1", { text: "c" }), "id: 1.2.2\nevent: tok\ndata: {broken\n\n", event("tok", "1.2.3", { text: "no" })),
    stream(event("tok", "1.2.2", { text: "d" }), event("done", "1.2.3.end", { answer: "abcd" })),
  ];
  await withServer({ [SUBMIT]: [ASKED], [STREAM]: streams }, async (url, asked) => {
    const events = await all(new Client({ url, key: ASK_KEY }).ask("x", { session: 101 }));
    assert.deepEqual(events.map(({ name, data }) => data.text ?? name), ["a", "b\u2028", "c", "d", "done"]);
    const [first, ...followed] = asked;
    assert.deepEqual(first, { path: SUBMIT, last: undefined, body: { session: "101", message: "x", wait: false } });
    assert.deepEqual(followed.map(({ path, last }) => [path, last]), [undefined, "1.1.2", "1.1.3", "1.2.1"].map((last) => [STREAM, last]));
  });
}

async function aDeciderGoesOnAfterTheStreamBrokeOff() {
  const streams = [stream(event("gate", undefined, gate("g1"))), stream(event("gate", undefined, gate("g2"))), stream()];
  const decided = [json({})];
  const answers = { [GATES]: streams, "POST /api/v1/gate/g1": decided, "POST /api/v1/gate/g2": decided };
  await withServer(answers, async (url, asked) => {
    const decider = await new Client({ url, key: ASK_KEY }).decidedBy(DECIDE_KEY, approveAll).start();
    await until(() => decider.outcomes.length === 2);
    await decider.close();
    const posts = asked.filter(({ body }) => body).map(({ path, body }) => [path, body.digest]);
    assert.deepEqual(posts, ["g1", "g2"].map((id) => [`POST /api/v1/gate/${id}`, `digest of ${id}`]));
    assert.deepEqual(decider.outcomes.map(({ result }) => result), ["approved", "approved"]);
  });
}

async function anErrorThatEndedADeciderIsThrown() {
  const ended = stream(event("error", undefined, { error: { code: "needs-scope", message: "taken back" } }));
  await withServer({ [GATES]: [ended] }, async (url) => {
    const decider = await new Decider({ url, key: DECIDE_KEY }).start();
    await until(() => decider.error);
    await assert.rejects(decider.close(), ApiError);
  });
}

async function whatCommandsPrintIsTheEnd() {
  const outcome = { answer: "!help", termination: "completed", truncated: false, session: 101, model: "m", usage: {} };
  await withServer({ [SUBMIT]: [json({ ...outcome, id: "s" })] }, async (url) => {
    assert.deepEqual(await all(new Client({ url }).ask("!help")), [{ name: "done", data: { type: "done", ...outcome } }]);
    assert.equal((await new Client({ url }).answer("!help")).answer, "!help");
  });
}

function whatIsNoKeyIsRefused() {
  const wrong = ["", "foo", "amt", "amt_00000001", `amt__${SECRET}`, ASK_KEY.slice(0, -1), `${ASK_KEY}\n`, ` ${ASK_KEY}`, `${ASK_KEY}\r\nX: 1`, 7, null];
  const url = "http://127.0.0.1:1";
  const refused = (error) =>
    error instanceof TypeError && error.message.includes("no whole API key") && !/SSS|foo/.test(error.message);
  for (const key of wrong) {
    assert.throws(() => new Client({ url, key }), refused);
    assert.throws(() => new Decider({ url, key }), refused);
    assert.throws(() => new Decider({ url, key: DECIDE_KEY, askedBy: key }), refused);
    assert.throws(() => new Client({ url, key: ASK_KEY }).decidedBy(key), refused);
  }
  assert.throws(() => new Decider({ url, key: DECIDE_KEY, askedBy: undefined }), /askedBy/);
  assert.throws(() => new Decider({ url, key: undefined }), refused);
  assert.throws(() => new Decider({ url, key: ASK_KEY, askedBy: ASK_KEY }), /never approves/);
  for (const place of ["file:///etc/passwd", "127.0.0.1:8790", "ftp://127.0.0.1", "", "http://127.0.0.1:x"]) {
    assert.throws(() => new Client({ url: place }), TypeError);
  }
  for (const rules of [null, undefined, ["note"], "note", new Map(), { note: 1 }]) {
    assert.throws(() => bySubtool(rules), TypeError);
    assert.throws(() => byKind(rules), TypeError);
  }
}

async function whatIsNoVerdictIsLeft() {
  const circular = {};
  circular.self = circular;
  const verdicts = [
    "yes", 1, 1n, Symbol("yes"), circular, [], () => true, { approve: "no" }, { approve: 1 }, { approve: null },
    { approve: true, note: 7 }, { approve: false, note: 1n }, { approve: true, answer: [1] }, { approve: true, answer: "x" },
    { approve: true, answer: new Map() }, { approve: true, answer: { a: 1n } }, { approve: true, answer: circular },
    { get approve() { throw Symbol("no"); } },
  ];
  await withServer({}, async (url, asked) => {
    for (const verdict of verdicts) {
      for (const how of ["click", "answer"]) {
        const decider = new Decider({ url, key: DECIDE_KEY, policy: () => verdict });
        const outcome = await decider.decide({ ...gate("g"), needs: { how } });
        assert(outcome.result === "left" && outcome.reason, outcome);
      }
    }
    assert.deepEqual(asked, []);
  });
}

async function anotherServerIsAConnectionError() {
  const page = { status: 200, kind: "text/html", text: "<html></html>" };
  for (const other of [page, json([]), json({})]) {
    await withServer({ [SUBMIT]: [other], [GATES]: [other], "GET /api/v1/session/s": [page] }, async (url) => {
      await assert.rejects(all(new Client({ url }).ask("x")), ConnectionError);
      await assert.rejects(new Client({ url }).state("s"), ConnectionError);
      await assert.rejects(all(new Decider({ url, key: DECIDE_KEY }).run()), ConnectionError);
    });
  }
}

async function aServerThatIsNotThereIsAnErrorAtOnce() {
  let url;
  await withServer({}, (gone) => (url = gone));
  await assert.rejects(all(new Client({ url }).ask("x")), ConnectionError);
  await assert.rejects(all(new Decider({ url, key: DECIDE_KEY }).run()), ConnectionError);
  await assert.rejects(all(new Decider({ url, key: DECIDE_KEY }).follow()), ConnectionError);
  await assert.rejects(new Decider({ url, key: DECIDE_KEY }).start(), ConnectionError);
}

await aClientGoesOnAfterTheLastEvent();
await aDeciderGoesOnAfterTheStreamBrokeOff();
await anErrorThatEndedADeciderIsThrown();
await whatCommandsPrintIsTheEnd();
whatIsNoKeyIsRefused();
await whatIsNoVerdictIsLeft();
await anotherServerIsAConnectionError();
await aServerThatIsNotThereIsAnErrorAtOnce();
console.log("all good");
