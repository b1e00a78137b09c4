// OpenAI's SDK for JavaScript, unchanged.
//
// node openai.mjs MODULES URL KEY REQUESTS, with the requests and the output of openai.py

import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [, , folder, url, key, requests] = process.argv;
const found = createRequire(join(folder, "x.js")).resolve("openai");
const { default: loaded } = await import(pathToFileURL(found));
const OpenAI = loaded.OpenAI ?? loaded;
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key });
const show = (line) => console.log(JSON.stringify(line));

async function chat(request, common, options) {
  const messages = request.messages ?? [{ role: "user", content: request.message }];
  if (!request.stream) {
    const answer = await client.chat.completions.create({ ...common, messages }, options);
    const [choice] = answer.choices;
    return { text: choice.message.content, finish: choice.finish_reason, usage: answer.usage };
  }
  // The helper builds the completion from the chunks, and fails if one does not fit.
  const stream = client.chat.completions.stream({ ...common, messages, stream_options: { include_usage: true } }, options);
  stream.on("content", (piece) => show({ piece }));
  const answer = await stream.finalChatCompletion();
  const [choice] = answer.choices;
  return { text: choice.message.content, finish: choice.finish_reason, usage: answer.usage };
}

async function responses(request, common, options) {
  const body = { ...common, input: request.messages ?? request.message };
  if (!request.stream) {
    const answer = await client.responses.create(body, options);
    return { text: answer.output_text, finish: answer.status, usage: answer.usage, id: answer.id };
  }
  const stream = client.responses.stream(body, options);
  stream.on("response.output_text.delta", (event) => show({ piece: event.delta }));
  const answer = await stream.finalResponse();
  return { text: answer.output_text, finish: answer.status, usage: answer.usage, id: answer.id };
}

async function completions(request, common, options) {
  const body = { ...common, prompt: request.message };
  if (!request.stream) {
    const answer = await client.completions.create(body, options);
    const [choice] = answer.choices;
    return { text: choice.text, finish: choice.finish_reason, usage: answer.usage };
  }
  const all = { text: "", finish: null, usage: null };
  const stream = await client.completions.create({ ...body, stream: true, stream_options: { include_usage: true } }, options);
  for await (const chunk of stream) {
    all.usage = chunk.usage ?? all.usage;
    for (const choice of chunk.choices) {
      if (choice.text) show({ piece: choice.text });
      all.text += choice.text;
      all.finish = choice.finish_reason ?? all.finish;
    }
  }
  return all;
}

async function models() {
  const names = (await Array.fromAsync?.(client.models.list()) ?? (await client.models.list()).data).map((model) => model.id);
  const one = await client.models.retrieve(names[0]);
  return { names: one.id === names[0] ? names : [] };
}

async function embed(request, common, options) {
  const { data, usage, model } = await client.embeddings.create({ ...common, input: request.message }, options);
  return { vectors: data.map(({ embedding }) => embedding), usage, model };
}

for (const request of JSON.parse(requests)) {
  const common = { model: request.model ?? "gpt-5", ...request.more };
  try {
    const api = { chat, responses, completions, models, embed }[request.api];
    show({ answer: await api(request, common, { headers: request.headers }) });
  } catch (error) {
    const { status, code, param, message } = error;
    show({ error: { kind: error.constructor.name, status, code, param, message } });
  }
}
