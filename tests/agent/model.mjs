// A scripted language model: @copilotkit/aimock speaks the providers' protocols, this file chooses the answers.
//
// node model.mjs AIMOCK_PACKAGE SCENARIO.json
//
// A scenario is a list of rules: {"last": REGEX, "says": TEXT, "runs": [COMMAND...], "calls": [{name, arguments}],
// "fails": STATUS, "times": N, "slow": true, "seen": REGEX, "tools": BOOLEAN}. The first rule answers for which "last"
// matches the last message, "seen" matches the whole conversation, "tools" says whether the request offers tools, and
// "times" is not used up. In its texts, $1 is the first group of the match with "last", $ID the newest task id in the
// conversation. The program prints its URL; the requests are listed at /__aimock/journal.

import { pathToFileURL } from "node:url";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const [, , folder, scenario] = process.argv;
const { LLMock } = await import(pathToFileURL(join(folder, "dist", "index.js")));
const rules = JSON.parse(readFileSync(scenario, "utf8")).map((rule) => ({ times: Infinity, ...rule }));

// Gemini's results are JSON inside JSON.
const text = (content) =>
  (typeof content === "string" ? content : (content ?? []).map((part) => part.text ?? "").join("")).replaceAll('\\"', '"');

function matching(request) {
  const said = request.messages.map((message) => text(message.content));
  const last = said.at(-1);
  const all = said.join("\n");
  for (const rule of rules) {
    const found = new RegExp(rule.last ?? "", "s").exec(last);
    if (!found || rule.times <= 0 || !new RegExp(rule.seen ?? "", "s").test(all)) continue;
    if ("tools" in rule && rule.tools !== Boolean(request.tools?.length)) continue;
    return { rule, found, last, all };
  }
  return { last, all };
}

function answer(request) {
  const { rule, found, last, all } = matching(request);
  if (!rule) return { content: `no rule fits: ${last.slice(0, 2000)}` };
  rule.times -= 1;
  const ids = [...all.matchAll(/"id":\s*"([0-9a-f]{32})"|\(id ([0-9a-f]{32})\)/g)].map((id) => id[1] ?? id[2]);
  const fill = (words) => words.replace(/\$ID/g, ids.at(-1)).replace(/\$1/g, found[1]);
  if (rule.fails) return { error: { message: "as the scenario wants it", type: "error" }, status: rule.fails };
  const calls = rule.calls ?? (rule.runs ?? []).map((command) => ({ name: "command_executor", arguments: { command: fill(command) } }));
  const toolCalls = calls.map((call) => ({
    name: call.name,
    arguments: typeof call.arguments === "string" ? call.arguments : JSON.stringify(call.arguments),
  }));
  const usage = { prompt_tokens: Math.ceil((all.length + JSON.stringify(request.tools ?? []).length) / 4), completion_tokens: 7 };
  usage.total_tokens = usage.prompt_tokens + usage.completion_tokens;
  const words = rule.says === undefined ? undefined : fill(rule.says);
  if (toolCalls.length === 0) return { content: words ?? "", usage };
  return words ? { content: words, toolCalls, usage } : { toolCalls, usage };
}

const mock = new LLMock({ port: 0, logLevel: "silent", journalMaxEntries: 0 });
// What makes embeddings has no rules: the vector of a text follows from the text.
const isChat = (request) => request._endpointType !== "embedding";
// A few characters at a time, for tests that act while the answer arrives.
mock.on({ predicate: (request) => isChat(request) && Boolean(matching(request).rule?.slow) }, answer, { latency: 100, chunkSize: 8 });
mock.on({ predicate: isChat }, answer);
await mock.start();
console.log(mock.url);
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
