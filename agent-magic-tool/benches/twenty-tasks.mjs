// Counts what a model reads and writes for twenty whole everyday tasks over a catalog of about two thousand subtools.
//
//   npm install --prefix /tmp/tokens gpt-tokenizer@3.4.0 mcporter@0.12.3
//   NODE_PATH=/tmp/tokens/node_modules node agent-magic-tool/benches/twenty-tasks.mjs PROGRAM [--format=json] [--json]
//
// It needs what `tests/run` downloads: the descriptions of GitHub, Google and Magento, and MCP servers of npm and PyPI. The
// imported APIs are answered by a stand-in (twenty-tasks-world.mjs), so nothing leaves the machine. Ids and notes that depend on
// time make a few tokens of difference.
//
// The model is a script. It knows the definition of the one tool and what was printed: what no output named is not run, and a
// subtool of whose input too little was printed is looked at first. The words of each search were written before any search was
// made, and stay as they are; what is done with the hits was written with them in sight. A search that misses, unless
// the task has a second one, or an answer that is not there ends the script with status 1.
//
// Each text counts once, with the tokenizer `o200k_base`; the definition counts once for all tasks. `list` is what finding
// costs: the `list` commands and what they print. The rest is running.
//
// Beside it are `mcporter` and, if it is installed, `mcp2cli`, for the tasks that one MCP server each can do. The model is told
// which server to use; its tools are listed, and one is called.

import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

import { CACHE, World, standIn } from "./twenty-tasks-world.mjs";

const { countTokens } = createRequire(import.meta.url)("gpt-tokenizer/encoding/o200k_base");
const words = process.argv.slice(2);
const [program] = words.filter((word) => !word.startsWith("--"));
// The one tool lists signatures by itself; a program in a shell is told to.
const FORMAT = words.includes("--format=json") ? "" : " --format=typescript";
const MCPORTER = (process.env.NODE_PATH ?? "")
  .split(":")
  .map((path) => join(path, "mcporter/dist/cli.js"))
  .find(existsSync);
const MCP2CLI = join(CACHE, "mcp2cli-0.1.10/bin/mcp2cli");

// --- The tasks ---

/** Each task: its title, how the model does it, and what its last output must say. */
const TASKS = [
  [
    "convert a time",
    (model) => model.use("convert time zone", { convert_time: "source_timezone=Asia/Kolkata time=15:00 target_timezone=Asia/Tokyo --wait" }),
    /18:30/,
  ],
  [
    "git log of a week",
    (model) => model.use("recent git commits", { git_log: "since='1 week ago' --wait" }),
    /^(?=.*Mend the login page)(?!.*First draft)/s,
  ],
  ["echo through MCP", (model) => model.use("echo message", { echo: "message=hello --wait" }), /Echo: hello/],
  ["weather", (model) => model.use("current weather", { weather_now: "place=Lisbon --wait" }), /18\.4/],
  ["read a file", (model) => model.use("read file", { files_read: "path=note.txt --wait" }), /on Friday/],
  ["search in files", (model) => model.use("search in files", { files_search: "pattern=needle --wait" }), /plan\.txt/],
  [
    "open issues",
    (model) =>
      model.use("list github issues", {
        github_list_issues: "owner=acme repo=shop --wait",
        github_api_issues_list_for_repo: "owner=acme repo=shop --wait --jq '.[] | {number, title}'",
      }),
    /Checkout fails with two coupons/,
  ],
  [
    "create an issue",
    (model) => {
      const input = "owner=acme repo=shop title='The login page is slow' body='It takes ten seconds.' --wait";
      return model.use("create github issue", { github_create_issue: input, github_api_issues_create: input });
    },
    /\b57\b/,
  ],
  [
    "who merged last",
    async (model) => {
      const closed = "owner=acme repo=shop state=closed --wait";
      await model.use("merged pull requests", {
        github_list_pull_requests: closed,
        github_api_pulls_list: `${closed} --jq '.[] | {number, title, merged_at}'`,
      });
      // The shipped subtool does not promise to say who merged; the operation of the API has its well-known field.
      await model.look("github_api_pulls_get", "owner= repo= pull_number=");
      return model.run("github_api_pulls_get owner=acme repo=shop pull_number=41 --wait --jq '.merged_by.login'");
    },
    /mira/,
  ],
  [
    "search mails",
    (model) =>
      model.use("search mail", {
        gmail_search_messages: "search_query='invoice March' --wait",
        gmail_users_messages_list: "q='invoice March' --wait",
      }),
    /18c1f0a2b3d4e5f6/,
  ],
  [
    "read a mail",
    async (model) => {
      const reader = await model.find("read email message", { gmail_read_message: "message_id=", gmail_users_messages_get: "id=" });
      // The mail's id is what a search returns.
      await model.look("gmail_search_messages", "search_query=");
      const found = await model.run("gmail_search_messages search_query=from:berta --wait");
      const key = reader === "gmail_read_message" ? "message_id" : "id";
      return model.run(`${reader} ${key}=${/18c1\w+/.exec(found.stdout)[0]} --wait`);
    },
    /1,240 euros/,
  ],
  [
    "events of a day",
    (model) =>
      model.use("calendar events", {
        calendar_events_list:
          "calendarId=primary timeMin=2027-03-03T00:00:00Z timeMax=2027-03-04T00:00:00Z singleEvents:=true orderBy=startTime --wait",
      }),
    /Budget review/,
  ],
  [
    "create an event",
    (model) => {
      const [start, end] = ["12", "13"].map((hour) => `{"dateTime": "2027-03-04T${hour}:00:00+01:00"}`);
      return model.use("create calendar event", {
        calendar_events_insert: `calendarId=primary summary='Lunch with Berta' start:='${start}' end:='${end}' --wait`,
        calendar_events_quick_add: "calendarId=primary text='Lunch with Berta 4 March 2027 12:00-13:00' --wait",
      });
    },
    /confirmed/,
  ],
  ["find a file in Drive", (model) => model.use("search drive files", { drive_files_list: `q="name contains 'budget'" --wait` }), /budget-2027/],
  [
    "share it",
    async (model) => {
      // The first words miss it. Two models that knew neither names nor ranking asked with the second ones.
      const share = await model.find(
        "share drive file",
        { drive_permissions_create: "fileId= role= type= emailAddress=" },
        "drive share permission",
      );
      // The file's id is what a search returns.
      await model.look("drive_files_list", "q=");
      const found = await model.run(`drive_files_list q="name contains 'budget'" --wait`);
      return model.run(`${share} fileId=${/1Bxi\w+/.exec(found.stdout)[0]} role=reader type=user emailAddress=berta@example.com --wait`);
    },
    /reader/,
  ],
  [
    "orders of a customer",
    (model) =>
      model.use("customer orders", {
        magento_get_orders:
          "searchCriteria_filterGroups_0_filters_0_field=customer_email searchCriteria_filterGroups_0_filters_0_value=anna@example.com " +
          "--wait --jq '.items[] | {increment_id, status, grand_total}'",
      }),
    /000000007/,
  ],
  [
    "sum of 230 orders",
    async (model) => {
      const name = await model.find("list shop orders", { magento_get_orders: "" });
      const run = (option) => model.run(`${name} ${option} --jq '[.items[].grand_total] | add'`);
      // A note says that this is a part, and how all of it is read.
      const { text } = await run("--wait");
      if (!text.includes("--all")) throw new Error(`nothing says that there is more: ${text}`);
      return run("--all --wait");
    },
    /^5290$/m,
  ],
  [
    "product stock",
    (model) =>
      model.use("product stock", {
        magento_get_stock_statuses_by_product_sku: "productSku=MUG-01 --wait",
        magento_get_stock_items_by_product_sku: "productSku=MUG-01 --wait",
      }),
    /\b42\b/,
  ],
  [
    "ask the database",
    async (model) => {
      const name = await model.find("query database", { library_query: "query=" });
      // Its description names the tables, and their columns or the subtool for these.
      if (!model.turns.at(-1).output.includes("reader_id")) {
        await model.look("library_describe_table", "table=");
        for (const table of ["reader", "loan"]) await model.run(`library_describe_table table=${table} --wait`);
      }
      const query = "SELECT r.town, COUNT(*) AS loans FROM loan l JOIN reader r ON r.id = l.reader_id GROUP BY r.town";
      return model.run(`${name} query='${query}' --wait`);
    },
    /Basel[^}]*3/,
  ],
  [
    "something for later",
    async (model) => {
      const name = await model.find("add todo task", { tasks_insert: "tasklist= title=" });
      return model.run(`${name} tasklist=@@default title='call Berta' --in 2h`);
    },
    /run_at/,
  ],
];

/** The tasks that one MCP server can do: the server, the tool with its input, and what must be printed. */
const PEER_TASKS = {
  "convert a time": ["time", "convert_time", { source_timezone: "Asia/Kolkata", time: "15:00", target_timezone: "Asia/Tokyo" }, /18:30/],
  "git log of a week": ["git", "git_log", { repo_path: "$PWD", start_timestamp: "1 week ago" }, /Mend the login page/],
  "echo through MCP": ["everything", "echo", { message: "hello" }, /Echo: hello/],
  weather: ["weather", "weather_now", { place: "Lisbon" }, /18\.4/],
};

// --- The model ---

/** The subtools of an output of `list`, in its order, each with what is said of its input: a schema, a signature or nothing. */
function listed(text) {
  if (text.startsWith("{")) {
    const input = ({ input, signature }) => (input ? JSON.stringify(input) : signature);
    return new Map(Object.entries(JSON.parse(text)).map(([name, subtool]) => [name, input(subtool)]));
  }
  const found = new Map();
  for (const line of text.split("\n")) {
    const [, also] = /^\/\/ also: (.*)/.exec(line) ?? [];
    const [, comment, name, rest] = /^(\/\/ )?"?([\w-]+)"?([(:].*)/.exec(line) ?? [];
    if (also) for (const one of also.split(", ")) found.set(one, undefined);
    else if (name) found.set(name, rest.startsWith("(") ? (comment ? rest.split("): ")[0] : rest) : undefined);
    // A signature goes on.
    else if (/^[ }]/.test(line)) found.set([...found.keys()].pop(), [...found.values()].pop() + line);
  }
  return found;
}

/** The parameters that a line of `run` gives, also those inside JSON. */
function keysOf(line) {
  return [...line.matchAll(/(?:^|\s)(\w+):?=|"(\w+)":/g)].map(([, key, inner]) => key ?? inner);
}

class Model {
  turns = [];
  /** The subtools whose names were printed, each with what was printed of its input. */
  seen = new Map();

  constructor(world, title) {
    this.world = world;
    this.title = title;
  }

  async say(command, isList, silent = "") {
    const printed = await this.world.shell(command + silent, this.title);
    this.turns.push({ command, output: printed.text, isList, tokens: countTokens(command) + countTokens(printed.text) });
    return printed;
  }

  async list(what) {
    const { stdout } = await this.say(`agent-magic-tool list tools ${what}`, true, FORMAT);
    const found = listed(stdout);
    for (const [name, input] of found) this.seen.set(name, input ?? this.seen.get(name));
    return [...found.keys()];
  }

  /** Whether enough was printed to give a subtool this input. */
  knows(name, line) {
    const input = this.seen.get(name);
    return input !== undefined && keysOf(line).every((key) => input.includes(key));
  }

  /** Searches with these words, or with others if none fits; returns the best of the wanted subtools, once the input that it is
   * to get is known. */
  async find(query, inputs, otherwise) {
    const wanted = async (words) => (await this.list(`--query="${words}"`)).find((name) => name in inputs);
    const name = (await wanted(query)) ?? (otherwise && (await wanted(otherwise)));
    if (!name) throw new Error(`"${query}" finds none of ${Object.keys(inputs).join(", ")}`);
    this.foundAtOnce = this.knows(name, inputs[name]);
    await this.look(name, inputs[name]);
    return name;
  }

  /** The input of a subtool, unless enough of it was printed before. */
  async look(name, line) {
    if (!this.seen.has(name)) throw new Error(`nothing has printed ${name}`);
    if (!this.knows(name, line)) await this.list(name);
  }

  async run(line) {
    const [name] = line.split(" ");
    if (!this.knows(name, line.slice(name.length))) throw new Error(`the input of ${line} was not printed`);
    const printed = await this.say(`agent-magic-tool run ${line}`, false);
    if (printed.exit !== 0) throw new Error(`${line}: ${printed.text}`);
    return printed;
  }

  /** Finds one of these subtools and runs it with its input. */
  async use(query, inputs) {
    const name = await this.find(query, inputs);
    return this.run(`${name} ${inputs[name]}`);
  }
}

// --- The others ---

/** A small MCP server for the weather, since the others cannot call an API by themselves. */
const WEATHER_SERVER = `#!/usr/bin/env node
const tool = {name: "weather_now", description: "Tells the current weather of a place: temperature, wind, rain.",
  inputSchema: {type: "object", properties: {place: {type: "string", description: "A city."}}, required: ["place"]}};
const answers = {
  initialize: ({protocolVersion}) => ({protocolVersion, capabilities: {tools: {}}, serverInfo: {name: "weather", version: "1"}}),
  "tools/list": () => ({tools: [tool]}),
  "tools/call": () => ({content: [{type: "text", text: '{"place":"Lisbon","temperature":18.4,"wind":12,"rain":0}'}]}),
};
require("node:readline").createInterface({input: process.stdin}).on("line", (line) => {
  const {id, method, params} = JSON.parse(line);
  if (id !== undefined) console.log(JSON.stringify({jsonrpc: "2.0", id, result: answers[method]?.(params) ?? {}}));
});
`;

/** The MCP servers: a name and a command line each. */
const SERVERS = { time: ["mcp-server-time"], git: ["mcp-server-git"], everything: ["mcp-server-everything", "stdio"], weather: ["weather-server"] };

/** How each of the others is set up, how it lists the tools of a server, and how it calls one. */
const PEERS = {
  mcporter: {
    missing: () => !MCPORTER && "npm's mcporter@0.12.3 is not in NODE_PATH",
    install(world) {
      world.install("mcporter", MCPORTER);
      const mcpServers = Object.fromEntries(Object.entries(SERVERS).map(([name, [command, ...args]]) => [name, { command, args }]));
      mkdirSync(join(world.home, ".mcporter"));
      writeFileSync(join(world.home, ".mcporter/mcporter.json"), JSON.stringify({ mcpServers }));
    },
    list: (server) => `mcporter list ${server}`,
    call: (server, tool, input) =>
      `mcporter call ${server}.${tool} ${Object.entries(input)
        .map(([key, value]) => `${key}="${value}"`)
        .join(" ")}`,
  },
  mcp2cli: {
    missing: () => !existsSync(MCP2CLI) && "crate mcp2cli 0.1.10 is not installed, see `cargo bench -- peer`",
    async install(world) {
      world.install("mcp2cli", MCP2CLI);
      for (const [name, [command, ...args]] of Object.entries(SERVERS)) {
        const words = args.map((word) => `--stdio-arg '${word}'`).join(" ");
        await world.must(`mcp2cli config init --name ${name} --app bridge --transport stdio --stdio-command '${command}' ${words}`);
      }
    },
    list: (server) => `mcp2cli ${server} ls`,
    call: (server, tool, input) =>
      `mcp2cli ${server} ${tool} ${Object.entries(input)
        .map(([key, value]) => `--${key} "${value}"`)
        .join(" ")}`,
  },
};

/** The tokens of the tasks with one of the others, or why there are none. */
async function peer(world, { missing, install, list, call }) {
  const reason = missing();
  if (reason) return { reason, costs: {} };
  await install(world);
  const costs = {};
  for (const [title, [name, tool, input, answer]] of Object.entries(PEER_TASKS)) {
    const model = new Model(world, title);
    await model.say(list(name), true);
    const { text } = await model.say(call(name, tool, input), false);
    if (!answer.test(text)) throw new Error(`${title}: ${call(name, tool, input)}: ${text}`);
    costs[title] = cost(model);
  }
  return { costs };
}

// --- The table ---

function cost({ turns, foundAtOnce }) {
  const sum = (isList) => turns.filter((turn) => turn.isList === isList).reduce((sum, { tokens }) => sum + tokens, 0);
  const [list, rest] = [sum(true), sum(false)];
  return { turns: turns.length, foundAtOnce, list, rest, sum: list + rest, played: turns };
}

async function play(world, [title, plan, answer]) {
  const model = new Model(world, title);
  const { text } = await plan(model).catch((error) => {
    throw new Error(`${title}: ${error.message}`);
  });
  if (!answer.test(text)) throw new Error(`${title}: the answer is not in ${text}`);
  return { task: title, ...cost(model) };
}

const KEYS = ["turns", "list", "rest", "sum"];
const total = (costs) => Object.fromEntries(KEYS.map((key) => [key, costs.reduce((sum, cost) => sum + cost[key], 0)]));

function table({ subtools, definition, tasks, peers }) {
  const others = Object.entries(peers);
  const row = (name, cost, theirs = () => undefined) => {
    const numbers = [...KEYS.map((key) => cost[key]), ...others.map(([, { costs }]) => theirs(costs))];
    return `| ${[name, ...numbers.map((number) => number?.toLocaleString("en") ?? "")].join(" | ")} |`;
  };
  const all = total(tasks);
  return [
    `${subtools.toLocaleString("en")} subtools`,
    `| task | turns | list | the rest | sum | ${others.map(([name]) => name).join(" | ")} |`,
    `|---|---|---|---|---|${"---|".repeat(others.length)}`,
    row("the definition, once", { sum: definition }),
    ...tasks.map((task) => row(`${task.task}${task.foundAtOnce ? "" : " *"}`, task, (costs) => costs[task.task]?.sum)),
    row("**all twenty**", { ...all, sum: all.sum + definition }),
    row(
      "those that the others can do",
      total(tasks.filter(({ task }) => task in PEER_TASKS)),
      (costs) => total(Object.values(costs)).sum || undefined,
    ),
    "\n\\* the search said too little of its input, which was asked for",
    ...others.filter(([, { reason }]) => reason).map(([name, { reason }]) => `SKIPPED ${name}: ${reason}`),
  ].join("\n");
}

async function measure() {
  const [world, apis] = [new World(program), await standIn()];
  try {
    const subtools = await world.setUp(apis.url);
    const definition = countTokens(await world.must("agent-magic-tool command-executor --definition"));
    const tasks = [];
    for (const task of TASKS) tasks.push(await play(world, task));
    writeFileSync(join(world.bin, "weather-server"), WEATHER_SERVER, { mode: 0o755 });
    const peers = {};
    for (const [name, other] of Object.entries(PEERS))
      peers[name] = await peer(world, other).catch(({ message }) => ({ reason: message, costs: {} }));
    return { subtools, definition, tasks, peers };
  } finally {
    await world.end();
    apis.close();
  }
}

if (!program) throw new Error("which program? See the first lines of this script");
try {
  const measured = await measure();
  console.log(words.includes("--json") ? JSON.stringify(measured, null, 1) : table(measured));
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
