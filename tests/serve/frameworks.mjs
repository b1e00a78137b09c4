// Vercel's AI SDK, unchanged, with its providers for OpenAI, for servers that are compatible with it, and for Anthropic.
//
// node frameworks.mjs MODULES URL KEY REQUESTS, with the requests and the output of frameworks.py; "protocol" can also be
// "compatible", and "stored": the responses of a server that is expected to keep them.

import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [, , folder, url, key, requests] = process.argv;
const { resolve } = createRequire(join(folder, "x.js"));
const names = ["ai", "zod", "@ai-sdk/openai", "@ai-sdk/openai-compatible", "@ai-sdk/anthropic"];
const modules = await Promise.all(names.map((name) => import(pathToFileURL(resolve(name)))));
const [ai, { z }, { createOpenAI }, { createOpenAICompatible }, { createAnthropic }] = modules;

const MODEL = "agent-magic-tool";
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
globalThis.AI_SDK_LOG_WARNINGS = false;
const show = (line) => console.log(JSON.stringify(line));

const settings = { baseURL: `${url}/v1`, apiKey: key };
const models = {
  chat: createOpenAI(settings).chat(MODEL),
  responses: createOpenAI(settings)(MODEL),
  stored: createOpenAI(settings)(MODEL),
  compatible: createOpenAICompatible({ ...settings, name: "serve", includeUsage: true, supportsStructuredOutputs: true })(MODEL),
  anthropic: createAnthropic(settings)(MODEL),
};
const providerOptions = {
  // Otherwise it sends the ids of earlier messages instead of the messages.
  responses: { openai: { store: false } },
  // The name tells it nothing about the model.
  anthropic: { anthropic: { structuredOutputMode: "outputFormat" } },
};

const performed = [];
const schema = z.object({ city: z.string(), degrees: z.number().int() });
const weather = ai.tool({
  description: "Says the weather of a city.",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => {
    performed.push(city);
    return `sunny in ${city}`;
  },
});

async function generate({ protocol, stream }, more) {
  const options = { model: models[protocol], providerOptions: providerOptions[protocol], ...more };
  if (!stream) return ai.generateText(options);
  const failed = [];
  const result = ai.streamText({ ...options, onError: ({ error }) => failed.push(error) });
  for await (const piece of result.textStream) if (piece) show({ piece });
  if (failed.length > 0) throw failed[0];
  return { text: await result.text };
}

const exercises = {
  ask: async (request) => (await generate(request, { prompt: request.message })).text,
  tool: async (request) => {
    const more = { prompt: request.message, system: "You are a pirate.", tools: { weather }, stopWhen: ai.stepCountIs(5) };
    return (await generate(request, more)).text;
  },
  form: async (request) => (await generate(request, { prompt: request.message, output: ai.Output.object({ schema }) })).output,
  call: async (request) => {
    const tools = { report: ai.tool({ description: "Reports the weather.", inputSchema: schema }) };
    const toolChoice = { type: "tool", toolName: "report" };
    return (await generate(request, { prompt: request.message, tools, toolChoice })).toolCalls[0].input;
  },
  image: async (request) => {
    const picture = { type: "image", image: PNG, mediaType: "image/png" };
    const content = [{ type: "text", text: request.message }, picture];
    return (await generate(request, { messages: [{ role: "user", content }] })).text;
  },
  turns: async (request) => {
    const said = request.messages.map(() => []);
    const texts = request.messages.map(() => []);
    for (const turn of request.messages[0].keys()) {
      for (const [number, questions] of request.messages.entries()) {
        said[number].push({ role: "user", content: questions[turn] });
        const result = await generate(request, { messages: said[number] });
        said[number].push(...result.response.messages);
        texts[number].push(result.text);
      }
    }
    return texts;
  },
};

for (const request of JSON.parse(requests)) {
  performed.length = 0;
  try {
    const answer = await exercises[request.do](request);
    show({ answer, performed });
  } catch (error) {
    show({ error: { kind: error.name, message: error.message } });
  }
}
