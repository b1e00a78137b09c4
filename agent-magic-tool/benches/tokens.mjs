// Counts the tokens of the ten tasks that tests/cli/ten_tasks.rs plays, before and after a change.
//
//   npm install --prefix /tmp/tokens gpt-tokenizer@3.4.0
//   TEN_TASKS_OUT=/tmp/after.json cargo test -p agent-magic-tool --test main -- ten_tasks
//   TEN_TASKS_PROGRAM=/path/to/an/older/agent-magic-tool TEN_TASKS_OUT=/tmp/before.json cargo test -p ... -- ten_tasks
//   NODE_PATH=/tmp/tokens/node_modules node agent-magic-tool/benches/tokens.mjs /tmp/before.json /tmp/after.json
//
// "Once" is each text once: the definition, every command as the model writes it, every output. "Billed" is the input of
// all requests: each turn sends everything before it again.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const { countTokens } = createRequire(import.meta.url)("gpt-tokenizer/encoding/o200k_base");

function cost({ definition, turns }) {
  let once = countTokens(definition);
  let billed = once;
  for (const { command, output } of turns) {
    once += countTokens(JSON.stringify({ command })) + countTokens(output);
    billed += once;
  }
  return { once, billed, turns: turns.length };
}

const [before, after] = process.argv.slice(2).map((file) => JSON.parse(readFileSync(file, "utf8")));
const change = (from, to) => `${to <= from ? "-" : "+"}${Math.abs(Math.round((1 - to / from) * 100))} %`;
const row = (name, a, b) =>
  `| ${name} | ${a.turns} → ${b.turns} | ${a.once} → ${b.once} | ${change(a.once, b.once)} | ${a.billed} → ${b.billed} | ${change(a.billed, b.billed)} |`;

console.log("| task | turns | tokens once | | tokens billed | |\n|---|---|---|---|---|---|");
const total = [before, after].map(() => ({ once: 0, billed: 0, turns: 0 }));
before.forEach((task, index) => {
  const costs = [cost(task), cost(after[index])];
  costs.forEach((found, side) => Object.keys(found).forEach((key) => (total[side][key] += found[key])));
  console.log(row(task.task, ...costs));
});
console.log(row("**all ten**", ...total));
