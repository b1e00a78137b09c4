// Ollama's SDK for JavaScript, unchanged.
//
// node ollama.mjs MODULES URL KEY REQUESTS, with the requests and the output of ollama.py

import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [, , folder, url, key, requests] = process.argv;
const found = createRequire(join(folder, "x.js")).resolve("ollama");
const loaded = await import(pathToFileURL(found));
const Ollama = loaded.Ollama ?? loaded.default.Ollama;
const show = (line) => console.log(JSON.stringify(line));

const summary = (text, last) => ({
  text,
  finish: last.done_reason,
  usage: { prompt_tokens: last.prompt_eval_count, completion_tokens: last.eval_count },
});

async function streamed(stream, textOf) {
  let text = "";
  let last;
  for await (last of stream) {
    if (textOf(last)) show({ piece: textOf(last) });
    text += textOf(last);
  }
  return summary(text, last);
}

async function chat(client, request, common) {
  const messages = request.messages ?? [{ role: "user", content: request.message }];
  const textOf = (answer) => answer.message.content;
  if (request.stream) return streamed(await client.chat({ ...common, messages, stream: true }), textOf);
  const answer = await client.chat({ ...common, messages });
  return summary(textOf(answer), answer);
}

async function generate(client, request, common) {
  const body = { ...common, prompt: request.message };
  if (request.stream) return streamed(await client.generate({ ...body, stream: true }), (answer) => answer.response);
  const answer = await client.generate(body);
  return summary(answer.response, answer);
}

async function models(client) {
  const names = (await client.list()).models.map((model) => model.model);
  const { capabilities } = await client.show({ model: names[0] });
  const { version } = await client.version();
  return { names: capabilities.includes("completion") && version ? names : [] };
}

async function embed(client, request, common) {
  const { embeddings, model, prompt_eval_count } = await client.embed({ ...common, input: request.message });
  return { vectors: embeddings, usage: { prompt_tokens: prompt_eval_count }, model };
}

for (const request of JSON.parse(requests)) {
  const common = { model: request.model ?? "llama3", ...request.more };
  const headers = { Authorization: `Bearer ${key}`, ...request.headers };
  const client = new Ollama({ host: url + (request.path ?? ""), headers });
  try {
    show({ answer: await { chat, generate, models, embed }[request.api](client, request, common) });
  } catch (error) {
    show({ error: { kind: error.constructor.name, status: error.status_code, message: error.message } });
  }
}
