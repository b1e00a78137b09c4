// A client made with the protocol's own JavaScript SDK, unchanged.
//
// node a2a_client.mjs MODULES URL BINDING ACTION [WORD] [CONTEXT]
//
// BINDING is jsonrpc, rest or legacy (version 0.3). It prints one JSON line for each thing that it is told.

import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [, , modules, url, binding, action, word = "", context = ""] = process.argv;
const load = (file) => import(pathToFileURL(join(modules, "@a2a-js/sdk/dist", file)));
const sdk = await load("client/index.js");
const types = await load("index.js");
const say = (thing) => console.log(JSON.stringify(thing));

const event = (told) => say(types.StreamResponse.toJSON(told));

try {
  const wanted = { jsonrpc: ["JSONRPC", "1.0"], rest: ["HTTP+JSON", "1.0"], legacy: ["JSONRPC", "0.3"] }[binding];
  const legacyCompat = { enabled: binding === "legacy" };
  const factory = new sdk.ClientFactory({
    transports: [new sdk.JsonRpcTransportFactory({ legacyCompat }), new sdk.RestTransportFactory({ legacyCompat })],
    preferredTransports: [wanted[0]],
  });
  const card = await new sdk.DefaultAgentCardResolver().resolve(url);
  card.supportedInterfaces = card.supportedInterfaces.filter(
    (one) => one.protocolBinding === wanted[0] && one.protocolVersion === wanted[1],
  );
  const client = await factory.createFromAgentCard(card);
  const message = { messageId: randomUUID(), role: "ROLE_USER", parts: [{ text: word }] };
  if (context) message.contextId = context;
  const request = types.SendMessageRequest.fromJSON({ message });
  if (action === "stream") {
    for await (const told of client.sendMessageStream(request)) event(told);
  } else if (action === "send") {
    const told = await client.sendMessage(request);
    say("status" in told ? { task: types.Task.toJSON(told) } : { message: types.Message.toJSON(told) });
  } else if (action === "get") {
    say(types.Task.toJSON(await client.getTask({ id: word })));
  } else if (action === "cancel") {
    say(types.Task.toJSON(await client.cancelTask({ id: word })));
  } else if (action === "subscribe") {
    for await (const told of client.resubscribeTask({ id: word })) event(told);
  } else if (action === "list") {
    say(types.ListTasksResponse.toJSON(await client.listTasks(types.ListTasksRequest.fromJSON({ contextId: context, includeArtifacts: true }))));
  }
} catch (error) {
  say({ error: error.name ?? "Error", message: `${error.message}` });
}
