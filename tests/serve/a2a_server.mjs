// An agent made with the protocol's own JavaScript SDK.
//
// node a2a_server.mjs MODULES [--legacy]
//
// It prints its address and serves until standard input ends. What it does is said by the first word of a message:
// echo, wait (until it is cancelled), fail, ask, reply (a message without a task).

import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [, , modules, ...flags] = process.argv;
const legacy = flags.includes("--legacy");
const load = (file) => import(pathToFileURL(join(modules, "@a2a-js/sdk/dist", file)));
const express = createRequire(join(modules, "x.js"))("express");
const { DefaultRequestHandler, InMemoryTaskStore, AgentEvent } = await load("server/index.js");
const { jsonRpcHandler, agentCardHandler, UserBuilder } = await load("server/express/index.js");
const { Task, Message, TaskStatusUpdateEvent, TaskArtifactUpdateEvent, AgentCard } = await load("index.js");

class Agent {
  #stops = new Map();

  async execute(request, bus) {
    const { userMessage, taskId, contextId } = request;
    const text = userMessage.parts.map((part) => part.content?.value ?? "").join("");
    const [, word, rest] = /^(\S+) ?(.*)$/s.exec(text);
    const said = (words) => ({
      messageId: randomUUID(), role: "ROLE_AGENT", taskId, contextId, parts: [{ text: words }],
    });
    if (word === "reply") {
      bus.publish(AgentEvent.message(Message.fromJSON({ ...said(`you said ${rest}`), taskId: "" })));
      return bus.finished();
    }
    const status = (state, words) => ({ state: `TASK_STATE_${state}`, message: words && said(words), timestamp: new Date().toISOString() });
    const task = { id: taskId, contextId, status: status("SUBMITTED"), history: [Message.toJSON(userMessage)] };
    bus.publish(AgentEvent.task(Task.fromJSON(task)));
    const tell = (state, words) =>
      bus.publish(AgentEvent.statusUpdate(TaskStatusUpdateEvent.fromJSON({ taskId, contextId, status: status(state, words) })));
    tell("WORKING", "I begin");
    if (word === "wait") {
      await new Promise((stop) => this.#stops.set(taskId, stop));
      tell("CANCELED");
    } else if (word === "fail") tell("FAILED", "it did not work");
    else if (word === "ask") tell("INPUT_REQUIRED", "Which one?");
    else {
      const half = rest.length >> 1;
      for (const [piece, append] of [[rest.slice(0, half), false], [rest.slice(half), true]]) {
        const artifact = { artifactId: "a", name: "a", parts: [{ text: piece }] };
        bus.publish(AgentEvent.artifactUpdate(TaskArtifactUpdateEvent.fromJSON({ taskId, contextId, artifact, append })));
      }
      tell("COMPLETED");
    }
    bus.finished();
  }

  cancelTask = async (taskId) => this.#stops.get(taskId)?.();
}

const app = express();
const listener = app.listen(0, "127.0.0.1", () => {
  const url = `http://127.0.0.1:${listener.address().port}`;
  const card = AgentCard.fromJSON({
    name: "Tester",
    description: "Does what it is told.",
    version: "1",
    supportedInterfaces: [{ url: `${url}/rpc`, protocolBinding: "JSONRPC", protocolVersion: legacy ? "0.3" : "1.0" }],
    capabilities: { streaming: true },
    defaultInputModes: ["text/plain"],
    defaultOutputModes: ["text/plain"],
    skills: [{ id: "x", name: "X", description: "x", tags: ["x"] }],
  });
  const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Agent());
  const userBuilder = UserBuilder.noAuthentication;
  app.use("/.well-known/agent-card.json", agentCardHandler({ agentCardProvider: requestHandler }));
  app.use("/rpc", jsonRpcHandler({ requestHandler, userBuilder, legacyCompat: { enabled: legacy } }));
  console.log(url);
});
process.stdin.resume().on("end", () => process.exit(0));
