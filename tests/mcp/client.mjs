// A client of the official TypeScript SDKs, driven by JSON lines on standard input; each gets one line in return.
// Arguments: the folder of the packages; the settings as for client.py, with "sdk": "client" or "sdk".

import { rmSync } from "node:fs";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [packages, text] = process.argv.slice(2);
const settings = JSON.parse(text);
const load = (path) => import(pathToFileURL(`${packages}/@modelcontextprotocol/${path}`));
const isModern = settings.sdk === "client";
const { Client } = await load(isModern ? "client/dist/index.mjs" : "sdk/dist/esm/client/index.js");
const { StdioClientTransport } = await load(isModern ? "client/dist/stdio.mjs" : "sdk/dist/esm/client/stdio.js");
const { StreamableHTTPClientTransport } = await load(
  isModern ? "client/dist/index.mjs" : "sdk/dist/esm/client/streamableHttp.js",
);

const events = [];
const client = new Client(
  { name: "typescript-sdk", version: "1" },
  isModern ? { versionNegotiation: { mode: settings.mode } } : {},
);
client.fallbackNotificationHandler = async (notification) => void events.push(notification);

let transport;
if (settings.url) {
  const headers = { Authorization: `Bearer ${settings.key}` };
  transport = new StreamableHTTPClientTransport(new URL(settings.url), { requestInit: { headers } });
} else {
  const [command, ...args] = settings.command;
  transport = new StdioClientTransport({ command, args, env: settings.env, cwd: settings.cwd });
}
await client.connect(transport);
if (isModern) {
  for (const method of ["notifications/resources/updated", "notifications/tools/list_changed"]) {
    client.setNotificationHandler(method, (notification) => void events.push(notification));
  }
}

// Removes the file that holds the called tool up, so that the call ends only after progress was told.
const remover = (path) => (progress) => {
  events.push({ method: "progress", ...progress });
  rmSync(path, { force: true });
};

async function act(line) {
  switch (line.op) {
    case "version":
      return { version: client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion, instructions: client.getInstructions() };
    case "list_tools":
      return client.listTools();
    case "call": {
      const params = { name: line.name, arguments: line.arguments, ...(line.meta && { _meta: line.meta }) };
      const options = line.held ? { onprogress: remover(line.held) } : {};
      return isModern ? client.callTool(params, options) : client.callTool(params, undefined, options);
    }
    case "list_resources":
      return client.listResources();
    case "list_templates":
      return client.listResourceTemplates();
    case "read":
      return client.readResource({ uri: line.uri });
    case "subscribe":
      return client.subscribeResource({ uri: line.uri });
    case "listen": {
      const { tools_list_changed, resource_subscriptions } = line.filter;
      await client.listen({
        ...(tools_list_changed && { toolsListChanged: true }),
        ...(resource_subscriptions && { resourceSubscriptions: resource_subscriptions }),
      });
      events.push({ method: "listening" });
      return {};
    }
    case "list_prompts":
      return client.listPrompts();
    case "get_prompt":
      return client.getPrompt({ name: line.name, arguments: line.arguments });
    case "events":
      return events;
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    answer = { ok: await act(JSON.parse(line)) };
  } catch (error) {
    answer = { error: { code: error.code ?? null, message: String(error.message) } };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await client.close();
process.exit(0);
