// Counts what a model reads and writes for the same 25 tasks with native tools, with the one tool call by call, and with scripts.
//
//   npm install --prefix /tmp/tokens gpt-tokenizer@3.4.0
//   NODE_PATH=/tmp/tokens/node_modules node agent-magic-tool/benches/scripts.mjs PROGRAM [tasks] [overhead] [peers] [--json] [--show=TASK]
//
// It needs what `tests/run` downloads, which twenty-tasks-world.mjs reads. The shop behind the 25 subtools is in scripts-world.mjs, in
// this process; the tasks are in scripts-tasks.mjs. Each task starts with a new shop, and ends with the right answer and the right
// changes, or the benchmark ends with status 1.
//
// The model is written down: its turns are those of a good model that has read what is printed. Calls that do not depend on each
// other are made in one turn.
//
// - native: the schemas of the 25 subtools are in the request, and each result goes whole into the conversation.
// - calls: the one tool; `list` in one turn, then a `run --wait` for each call, with `--all` and `--jq` where these help. Each command is
//   a turn of its own, as in twenty-tasks.mjs; "grouped" has those that do not depend on each other in one turn.
// - script: the one tool; `list` in one turn, then one script.
//
// What was not printed is not used: if a search says too little of a subtool or of what it returns, a turn asks for it, and the task
// has a `*`. "Once" is each text once, "billed" is the input of all requests: each sends everything before it again. A task's turns are its
// requests, with the one that answers; the text of the answer is the same each time and does not count.
//
// Beside them are the prompts of other code modes, if they are installed in the cache of `tests/run`. They have all subtools in their prompt, so
// a task is one piece of code and its result; what that costs is worked out with our scripts and was not played.
//
//   python3 -m venv $CACHE/monty-1; $CACHE/monty-1/bin/pip install pydantic-ai-slim==2.62.0 pydantic-ai-harness==0.62.0 pydantic-monty==1.4.0
//   npm install --prefix $CACHE/codemode-1 @cloudflare/codemode@0.5.6 ai@7 zod@4

import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

import { CACHE } from "./twenty-tasks-world.mjs";
import { TASKS, cents, range } from "./scripts-tasks.mjs";
import { NAMES, Shop, ShopWorld, definitions, fieldsOf } from "./scripts-world.mjs";

const { countTokens } = createRequire(import.meta.url)("gpt-tokenizer/encoding/o200k_base");
const words = process.argv.slice(2);
const [program, ...parts] = words.filter((word) => !word.startsWith("--"));
const shown = /--show=(.*)/.exec(words.find((word) => word.startsWith("--show=")))?.[1];
const wants = (part) => !parts.length || parts.includes(part);

/** What the definition of the one tool would have to say of scripts. It counts if the definition says nothing of them. */
const OF_SCRIPTS =
  "4. Three or more calls, loops, filters, sums: agent-magic-tool script --wait <<'EOF', JavaScript, EOF. It is the body of an async function, and " +
  "each tool is an async function of one object that returns the data or throws: const {orders} = await NAME({page: 1}); return orders.length";

const saysOfScripts = (definition) => /agent-magic-tool script/.test(definition);

// --- The three ways ---

/** What a model reads and writes: texts in turns. */
class Talk {
  turns = [];
  failures = 0;

  constructor(tools, ask) {
    this.start = countTokens(tools) + countTokens(ask);
  }

  /** Adds a turn: what the model writes, and what it is answered, each as often as it makes calls in it. */
  add(exchanges) {
    this.turns.push(exchanges.map(([written, answer]) => ({ written, answer, tokens: countTokens(written) + countTokens(answer) })));
  }

  /** The tokens of all turns; with `isSingle`, each call is a turn of its own. */
  cost(isSingle = false) {
    let once = this.start;
    let billed = once;
    const turns = isSingle ? this.turns.flatMap((turn) => turn.map((call) => [call])) : this.turns;
    for (const turn of turns) {
      once += sumOf(turn, ({ tokens }) => tokens);
      billed += once;
    }
    return { turns: turns.length + 1, once, billed };
  }
}

/** A model that makes its calls itself. `does` carries out those of a turn. */
class Caller {
  constructor(does) {
    this.does = does;
  }

  /** The data of calls that are made in one turn; none of those that failed for now, if that is expected. */
  async turn(calls, expectsFailures = false) {
    const results = await this.does(calls);
    const failed = results.find(({ status }) => status !== 200 && !(status === 503 && expectsFailures));
    if (failed) throw new Error(`a call failed: ${JSON.stringify(failed)}`);
    return results.map(({ status, data }) => (status === 200 ? data : undefined));
  }

  async one(...call) {
    return (await this.turn([call]))[0];
  }

  /** The same, and those that failed again in the next turn. */
  async steady(calls, pick) {
    const results = [];
    let left = calls.map((_, index) => index);
    while (left.length) {
      const found = await this.turn(
        left.map((index) => calls[index]),
        true,
      );
      left.forEach((index, n) => (results[index] = found[n]));
      left = left.filter((index) => results[index] === undefined);
    }
    return results.map((result) => (typeof result === "object" ? pick(result) : result));
  }

  /** What is worked out of all pages of a list. Once the first page has told how many there are, the others are read in one turn. */
  async pages(key, name, input, expression, compute) {
    const first = await this.one(name, { ...input, page: 1 });
    const others = range(first.pages - 1).map((n) => [name, { ...input, page: n + 2 }]);
    const pages = others.length ? [first, ...(await this.turn(others))] : [first];
    return compute(pages.flatMap((page) => page[key]));
  }
}

function native(shop, tools, ask) {
  const talk = new Talk(tools, ask);
  const does = async (calls) => {
    const results = calls.map(([name, input]) => shop.call(name, input));
    talk.add(
      calls.map(([name, input], n) => [
        JSON.stringify({ name, arguments: input }),
        JSON.stringify(results[n].status === 200 ? results[n].data : { error: results[n].status, ...results[n].data }),
      ]),
    );
    return results;
  };
  return { talk, model: new Caller(does) };
}

/** The value of one word of a command line. */
const quoted = (value) => (/^[\w.@-]+$/.test(value) ? value : `'${value}'`);
const lineOf = ([name, input, jq], options = "") =>
  [
    "agent-magic-tool run",
    name,
    ...Object.entries(input).map(([key, value]) => `${key}=${quoted(String(value))}`),
    `${options}--wait`,
    ...(jq ? [`--jq '${jq}'`] : []),
  ].join(" ");

/** A talk with the one tool. */
class OneTool {
  printed = "";

  constructor(session, definition, ask) {
    this.session = session;
    this.talk = new Talk(definition, ask);
  }

  async say(...commands) {
    const answers = [];
    for (const command of commands) answers.push(await this.session.say(command));
    this.talk.add(commands.map((command, n) => [JSON.stringify({ command }), answers[n].output]));
    return answers;
  }

  /** Searches, and asks for those of which too little was printed for what the script uses. */
  async find(queries, script) {
    const [{ output }] = await this.say(queries.map((query) => `agent-magic-tool list tools --query="${query}"`).join("; "));
    const short = NAMES.filter((name) => script.includes(`${name}(`) && !tells(output, name, script));
    const unseen = short.filter((name) => !output.includes(name));
    if (unseen.length) throw new Error(`the searches ${queries.join(", ")} do not find ${unseen.join(", ")}`);
    if (short.length) await this.say(`agent-magic-tool list tools ${short.join(" ")}`);
    this.foundAtOnce = !short.length;
  }
}

/** Whether an output of `list` has the input of a subtool, and what a script uses of its result. */
function tells(output, name, script) {
  const lines = output.split("\n");
  const at = lines.findIndex((line) => line.startsWith(`${name}(`) || line.startsWith(`// ${name}(`));
  if (at < 0) return false;
  const said = `${lines[at - 1] ?? ""}${lines[at]}`;
  return fieldsOf(name).every((field) => !new RegExp(`\\b${field}\\b`).test(script) || said.includes(field));
}

function oneByOne(one) {
  const model = new Caller(async (calls) => {
    const answers = await one.say(...calls.map((call) => lineOf(call)));
    return answers.map(({ output, exit }, n) => resultOf(output, exit, calls[n][2]));
  });
  // The one tool reads all pages by itself, and works out of them what is wanted.
  model.pages = async (key, name, input, expression) => {
    const [{ output, exit }] = await one.say(lineOf([name, input, expression], "--all "));
    return resultOf(output, exit, expression).data;
  };
  return model;
}

/** The HTTP status and the data of what `run --wait` prints. */
function resultOf(output, exit, jq) {
  if (exit === 0) return { status: 200, data: jq ? jsonOf(output) : jsonOf(output).data };
  const { error } = jsonOf(output.replace(/\nexit status.*/s, ""));
  return { status: error.details?.http_status ?? exit, data: error };
}

/** The JSON before any notes; of a text alone, the text. */
function jsonOf(output) {
  const text = output.split("\nnote: ")[0].trim();
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const plain = (value, anyOrder) =>
  JSON.stringify(anyOrder ? [...value].sort() : value, (_, item) =>
    typeof item === "number"
      ? cents(item)
      : item && typeof item === "object" && !Array.isArray(item)
        ? Object.fromEntries(Object.entries(item).sort())
        : item,
  );

/** Plays one task in one way with a new shop, and checks the answer and the changes. */
async function play(shop, title, way, plays) {
  const { right, anyOrder } = TASKS[title];
  shop.reset();
  const [answer, ...effects] = structuredClone(right(shop.state));
  const given = await plays().catch((error) => {
    throw new Error(`${title}, ${way}: ${error.message}`);
  });
  for (const [what, found, wanted] of [
    ["answer", plain(given, anyOrder), plain(answer, anyOrder)],
    [
      "changes",
      plain(
        shop.effects.map((e) => plain(e)),
        true,
      ),
      plain(
        effects.map((e) => plain(e)),
        true,
      ),
    ],
  ])
    if (found !== wanted) throw new Error(`${title}, ${way}: the ${what} are ${found}, not ${wanted}`);
  return shop.calls;
}

/** Where the tokens of a talk with a script are, each text once. */
function partsOf({ start, turns }) {
  const calls = turns.flat();
  const { written, answer } = calls.pop();
  const { data } = jsonOf(answer);
  return {
    start,
    searches: sumOf(calls, ({ written }) => countTokens(written)),
    listed: sumOf(calls, ({ answer }) => countTokens(answer)),
    script: countTokens(written),
    data: countTokens(JSON.stringify(data)),
    receipt: countTokens(answer) - countTokens(JSON.stringify(data)),
  };
}

async function playAll(world, shop, tools, definition) {
  const rows = [];
  const withScripts = saysOfScripts(definition) ? definition : `${definition}\n${OF_SCRIPTS}`;
  for (const [title, { ask, find, plan, script }] of Object.entries(TASKS)) {
    const a = native(shop, tools, ask);
    const calls = await play(shop, title, "native", () => plan(a.model));
    const sessions = ["calls", "script"].map((way) => world.session(`${title} ${way}`));
    const b = new OneTool(sessions[0], definition, ask);
    await play(shop, title, "calls", async () => {
      await b.find(find, script);
      return plan(oneByOne(b));
    });
    const c = new OneTool(sessions[1], withScripts, ask);
    await play(shop, title, "script", async () => {
      await c.find(find, script);
      const [{ output, exit }] = await c.say(`agent-magic-tool script --wait <<'EOF'\n${script}\nEOF`);
      if (exit !== 0) throw new Error(output);
      return jsonOf(output).data;
    });
    sessions.forEach((session) => session.end());
    if (title === shown)
      for (const talk of [b.talk, c.talk])
        console.error(
          talk.turns
            .flat()
            .map(({ written, answer, tokens }) => `> ${written}\n${answer}(${tokens} tokens)`)
            .join("\n"),
        );
    rows.push({
      title,
      calls,
      foundAtOnce: c.foundAtOnce,
      native: a.talk.cost(),
      nativeSingle: a.talk.cost(true),
      single: b.talk.cost(true),
      grouped: b.talk.cost(),
      script: c.talk.cost(),
      parts: partsOf(c.talk),
    });
  }
  return rows;
}

// --- The tables ---

const number = (value) => value.toLocaleString("en");
const sumOf = (list, pick) => list.reduce((sum, item) => sum + pick(item), 0);
const WAYS = ["native", "single", "grouped", "script"];

const SIZES = { "1 to 3 calls": (n) => n < 4, "4 to 9": (n) => n > 3 && n < 10, "10 and more": (n) => n > 9 };

function table(rows) {
  const line = (title, calls, row) =>
    `| ${[title, calls, ...WAYS.map((way) => row[way].turns), ...WAYS.map((way) => number(row[way].once)), ...WAYS.map((way) => number(row[way].billed)), (row.native.billed / row.script.billed).toFixed(1)].join(" | ")} |`;
  const total = (rows) =>
    Object.fromEntries(
      WAYS.map((way) => [way, Object.fromEntries(["turns", "once", "billed"].map((key) => [key, sumOf(rows, (row) => row[way][key])]))]),
    );
  const calls = (rows) => sumOf(rows, ({ calls }) => calls);
  return [
    `| task | calls | turns: ${WAYS.join(" | ")} | once: ${WAYS.join(" | ")} | billed: ${WAYS.join(" | ")} | native ÷ script |`,
    `|---|${"---|".repeat(14)}`,
    ...rows.map((row) => line(`${row.title}${row.foundAtOnce ? "" : " *"}`, row.calls, row)),
    ...Object.entries(SIZES)
      .map(([title, fits]) => [title, rows.filter((row) => fits(row.calls))])
      .map(([title, rows]) => line(`**${title}** (${rows.length})`, calls(rows), total(rows))),
    line("**all**", calls(rows), total(rows)),
  ].join("\n");
}

function bars(rows) {
  const bar = (what, rows, fits) => {
    const over = rows.filter((row) => !fits(row));
    return `${over.length ? "OVER" : "ok  "} ${what}: ${rows.length - over.length} of ${rows.length}${over.length ? `; not ${over.map(({ title }) => title).join(", ")}` : ""}`;
  };
  const large = rows.filter(({ calls }) => calls >= 10);
  const several = rows.filter(({ calls }) => calls >= 3);
  return [
    bar("ten calls or more: at most 3 turns", large, ({ script }) => script.turns <= 3),
    bar("ten calls or more: at most 1/15 of the billed tokens of native", large, ({ native, script }) => script.billed * 15 <= native.billed),
    bar("the same, of native with single calls (no bar was set)", large, ({ nativeSingle, script }) => script.billed * 15 <= nativeSingle.billed),
    bar("three calls or more: at most the billed tokens of single calls", several, ({ single, script }) => script.billed <= single.billed),
    bar("the same, of grouped calls (no bar was set)", several, ({ grouped, script }) => script.billed <= grouped.billed),
  ].join("\n");
}

/** Where the tokens of the scripts are, on average, for a task of each size. */
function partsTable(rows) {
  const keys = Object.keys(rows[0].parts);
  const line = (title, rows) => `| ${[title, ...keys.map((key) => Math.round(sumOf(rows, ({ parts }) => parts[key]) / rows.length))].join(" | ")} |`;
  return [
    `| script: tokens once, on average | ${keys.join(" | ")} |`,
    `|---|${"---|".repeat(keys.length)}`,
    ...Object.entries(SIZES).map(([title, fits]) =>
      line(
        title,
        rows.filter(({ calls }) => fits(calls)),
      ),
    ),
  ].join("\n");
}

// --- Overhead ---

/** The least of three wall times of each way to make 100 calls that do nothing. */
async function overhead(world, url) {
  const session = world.session("overhead");
  const scriptOf = (body) => async () => {
    const { output, exit } = await session.say(`agent-magic-tool script --wait <<'EOF'\n${body}\nEOF`);
    if (exit !== 0) throw new Error(output);
  };
  const run = "agent-magic-tool run files_read path=note.txt --wait >/dev/null";
  const fetched = async () => (await fetch(`${url}/shop_exchange_rate?currency=USD`)).json();
  const ways = {
    "one script, one after another": scriptOf(`for (let n = 0; n < 100; n++) await files_read({path: "note.txt"});`),
    "one script, Promise.all": scriptOf(`await Promise.all(Array.from({length: 100}, () => files_read({path: "note.txt"})));`),
    "100 `run --wait`, one after another": () => world.must(`for n in $(seq 100); do ${run} || exit 1; done`),
    "100 `run --wait` at once, Promise.all by hand": () => Promise.all(range(100).map(() => world.must(run))),
    "100 HTTP requests without us, Promise.all by hand": () => Promise.all(range(100).map(fetched)),
    "one script of no call": scriptOf("return 1;"),
  };
  const times = {};
  for (const [name, way] of Object.entries(ways)) {
    times[name] = Infinity;
    for (const _ of range(3)) {
      const start = performance.now();
      await way();
      times[name] = Math.min(times[name], performance.now() - start);
    }
  }
  session.end();
  return times;
}

function overheadTable(times) {
  const [[, script], , [, runs]] = Object.entries(times);
  return [
    "| 100 calls of files_read | time, as a part of 100 `run --wait` one after another |\n|---|---|",
    ...Object.entries(times).map(([name, time]) => `| ${name} | ${(time / runs).toFixed(3)} |`),
    `${script * 5 <= runs ? "ok  " : "OVER"} one script, one after another: at most a fifth`,
  ].join("\n");
}

// --- The others ---

const PYDANTIC = `
import json, sys
from pydantic_ai import Agent, Tool
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai_harness import CodeMode
tools = [Tool.from_schema(lambda **_: None, name=name, description=tool["description"], json_schema=tool["input"]) for name, tool in json.load(sys.stdin).items()]
def model(_, info):
    print(json.dumps([{"name": t.name, "description": t.description, "parameters": t.parameters_json_schema} for t in info.function_tools]))
    return ModelResponse(parts=[TextPart("done")])
Agent(FunctionModel(model), tools=tools, capabilities=[CodeMode()]).run_sync("hello")
`;

/** The prompt alone: what Cloudflare's platform has is replaced by empty classes. */
const CODEMODE = `
import { register } from "node:module";
import { readFileSync } from "node:fs";
const data = (text) => "data:text/javascript," + encodeURIComponent(text);
const empty = data("export class RpcTarget {} export class WorkerEntrypoint {} export class DurableObject {}");
register(data(\`export const resolve = (name, context, next) => name.startsWith("cloudflare:") ? { url: "\${empty}", shortCircuit: true } : next(name, context);\`));
const { createCodeTool } = await import("@cloudflare/codemode/ai");
const { tool, jsonSchema } = await import("ai");
const { z } = await import("zod");
const definitions = Object.entries(JSON.parse(readFileSync(0, "utf8")));
const tools = definitions.map(([name, { description, input }]) => [name, tool({ description, inputSchema: jsonSchema(input), execute: async () => {} })]);
const { description, inputSchema } = createCodeTool({ tools: Object.fromEntries(tools), executor: {} });
console.log(JSON.stringify([{ name: "codemode", description, parameters: inputSchema.jsonSchema ?? z.toJSONSchema(inputSchema) }]));
`;

/** How each of the others prints its request for the same subtools. */
const PEERS = {
  "PyPI's pydantic-ai-harness code mode": { command: [join(CACHE, "monty-1/bin/python"), "-c", PYDANTIC], needs: join(CACHE, "monty-1/bin/python") },
  "npm's @cloudflare/codemode": {
    command: [process.execPath, "--input-type=module", "-e", CODEMODE],
    needs: join(CACHE, "codemode-1/node_modules/@cloudflare/codemode"),
    cwd: join(CACHE, "codemode-1"),
  },
};

function promptOf({ command: [file, ...args], cwd }, url) {
  return new Promise((done, fail) => {
    const child = spawn(file, args, { cwd, stdio: ["pipe", "pipe", "inherit"] });
    let printed = "";
    child.stdout.on("data", (data) => (printed += data));
    child.on("close", (exit) => (exit === 0 ? done(countTokens(printed)) : fail(new Error(`${file} ended with ${exit}`))));
    child.stdin.end(JSON.stringify(definitions(url)));
  });
}

/** The prompts of the others in tokens, and what all tasks would be billed with them: two requests each. */
async function peers(url, rows, definition) {
  const found = {};
  for (const [name, peer] of Object.entries(PEERS)) {
    if (!existsSync(peer.needs)) continue;
    const prompt = await promptOf(peer, url);
    const billed = rows && sumOf(rows, ({ parts: { start, script, data } }) => 2 * (prompt + start - definition) + script + data);
    found[name] = { prompt, billed };
  }
  return found;
}

// --- All of it ---

if (!program) throw new Error("which program? See the first lines of this script");
const [world, shop] = [new ShopWorld(program), new Shop()];
try {
  const url = await shop.listen();
  const subtools = await world.setUp(url);
  const tools = JSON.stringify(
    Object.entries(definitions(url)).map(([name, { description, input }]) => ({
      type: "function",
      function: { name, description, parameters: input },
    })),
  );
  const definition = await world.must("agent-magic-tool command-executor --definition");
  const measured = { subtools, tokens: { native: countTokens(tools), definition: countTokens(definition), ofScripts: countTokens(OF_SCRIPTS) } };
  if (wants("tasks")) measured.tasks = await playAll(world, shop, tools, definition);
  if (wants("overhead")) measured.overhead = await overhead(world, url);
  if (wants("peers"))
    measured.peers = await peers(url, measured.tasks, measured.tokens.definition + (saysOfScripts(definition) ? 0 : measured.tokens.ofScripts));
  if (words.includes("--json")) console.log(JSON.stringify(measured, null, 1));
  else {
    const { native, definition: one, ofScripts } = measured.tokens;
    console.log(
      `${subtools} subtools, of which ${NAMES.length} are the shop's. Tokens of a request before the first word: native ${native}, the one tool ${one}`,
    );
    if (!saysOfScripts(definition)) console.log(`(the definition says nothing of scripts: ${ofScripts} tokens more are counted for "script")`);
    for (const [name, { prompt, billed }] of Object.entries(measured.peers ?? {}))
      console.log(`${name}, with the ${NAMES.length} in its prompt: ${prompt}${billed ? `; all tasks would be billed ${number(billed)}` : ""}`);
    if (measured.tasks)
      console.log(
        `${table(measured.tasks)}\n\\* the searches said too little, which was asked for\n\n${bars(measured.tasks)}\n\n${partsTable(measured.tasks)}`,
      );
    if (measured.overhead) console.log(`\n${overheadTable(measured.overhead)}`);
  }
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  await world.end();
  shop.close();
}
