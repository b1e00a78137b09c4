// Counts what a catalog costs an agent: its tools as native definitions, in every request, against our one tool for a
// whole task, which searches, runs one subtool and reads the result.
//
//   npm install --prefix /tmp/tokens gpt-tokenizer@3.4.0
//   NODE_PATH=/tmp/tokens/node_modules node agent-magic-tool/benches/context-cost.mjs PROGRAM DEFINITIONS [SVG]
//
// DEFINITIONS is a folder of discovery JSON, such as `import google` makes of all of Google's documents. The subtools of
// each size are taken from it in a fixed order. The counts are those of the tokenizer `o200k_base`; no tool that is
// billed by another is exactly the same.

import { execFileSync } from "node:child_process";
import { mkdtempSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

const { countTokens } = createRequire(import.meta.url)("gpt-tokenizer/encoding/o200k_base");
const [program, definitions, svg] = process.argv.slice(2);
const SIZES = [10, 100, 1000];
const QUERY = "find mails about the invoice";
const WANTED = "gmail_search_messages";

/** All definitions with the keys of their files, in an order that depends on nothing but their names. */
function all() {
  const found = [];
  for (const file of readdirSync(definitions).filter((name) => name.endsWith(".json"))) {
    const text = JSON.parse(readFileSync(join(definitions, file), "utf8"));
    const namespace = text.$namespace ? `${text.$namespace}-` : "";
    for (const [key, definition] of Object.entries(text)) {
      if (!key.startsWith("$")) found.push({ name: namespace + key, definition, defaults: text.$defaults ?? {} });
    }
  }
  const hash = (name) => [...name].reduce((sum, letter) => (Math.imul(sum, 31) + letter.codePointAt(0)) >>> 0, 7);
  return found.sort((one, other) => hash(one.name) - hash(other.name) || (one.name < other.name ? -1 : 1));
}

/** The tokens of the same tools as an agent gets them natively, in one request. */
const native = (subtools) =>
  subtools.reduce((sum, { name, definition }) => {
    const tool = { type: "function", function: { name, description: definition.description, parameters: definition.input } };
    return sum + countTokens(JSON.stringify(tool)) + 1;
  }, 0);

/** The tokens of our one tool, and of all that a task makes the model write and read, with this many subtools. */
function ours(subtools) {
  const home = mkdtempSync(join(tmpdir(), "context-cost-"));
  const folder = join(home, ".config/agent-magic-tool/subtools");
  mkdirSync(folder, { recursive: true });
  const files = new Map();
  for (const { name, definition, defaults } of subtools) {
    const key = JSON.stringify(defaults);
    files.set(key, { ...(files.get(key) ?? { $defaults: defaults }), [name]: definition });
  }
  [...files.values()].forEach((file, number) => writeFileSync(join(folder, `part-${number}.json`), JSON.stringify(file)));
  const env = { HOME: home, AGENT_MAGIC_TOOL_DIR: join(home, "box"), PATH: process.env.PATH };
  const run = (...words) => execFileSync(program, words, { env, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  const left = JSON.parse(run("list", "tools", "--format=hits", "--query=google", "--limit=1"));
  if (subtools.length > 5000 && left._meta.total_candidates < 10) throw new Error("the definitions were not loaded");
  const definition = run("command-executor", "--definition");
  const commands = [
    [`agent-magic-tool list tools --query="${QUERY}"`, run("list", "tools", `--query=${QUERY}`)],
    [`agent-magic-tool run ${WANTED} search_query=invoice --wait`, JSON.stringify({ data: Array(5).fill({ id: "18c1f0a2b3d4e5f6", threadId: "18c1f0a2b3d4e5f6" }) })],
  ];
  rmSync(home, { recursive: true, force: true });
  return commands.reduce((sum, [command, output]) => sum + countTokens(command) + countTokens(output), countTokens(definition));
}

const found = all();
const rows = [...SIZES.filter((size) => size < found.length), found.length].map((size) => {
  const subtools = found.slice(0, size);
  return { size, native: native(subtools), ours: ours(subtools) };
});
console.log("| subtools | as native definitions, in every request | ours, for the whole task | ratio |\n|---|---|---|---|");
for (const { size, native, ours } of rows) {
  console.log(`| ${size.toLocaleString("en")} | ${native.toLocaleString("en")} | ${ours.toLocaleString("en")} | ${(native / ours).toFixed(0)} |`);
}
if (svg) writeFileSync(svg, plot(rows));

/** Both as lines over logarithmic axes. */
function plot(rows) {
  const [width, height, left, bottom] = [640, 360, 70, 50];
  const x = (size) => left + ((Math.log10(size) - 1) / (Math.log10(20000) - 1)) * (width - left - 30);
  const y = (tokens) => height - bottom - ((Math.log10(tokens) - 2.5) / 5) * (height - bottom - 20);
  const line = (key) => rows.map((row) => `${x(row.size).toFixed(1)},${y(row[key]).toFixed(1)}`).join(" ");
  const label = (value) => (value >= 1e6 ? `${value / 1e6} M` : value >= 1e3 ? `${value / 1e3} k` : `${value}`);
  const grid = [1e3, 1e4, 1e5, 1e6, 1e7].map(
    (tokens) => `<line x1="${left}" x2="${width - 30}" y1="${y(tokens)}" y2="${y(tokens)}" class="grid"/><text x="${left - 8}" y="${y(tokens) + 4}" text-anchor="end">${label(tokens)}</text>`,
  );
  const ticks = rows.map(({ size }) => `<text x="${x(size)}" y="${height - bottom + 20}" text-anchor="middle">${size.toLocaleString("en")}</text>`);
  const dots = (key) => rows.map((row) => `<circle cx="${x(row.size)}" cy="${y(row[key])}" r="4" class="${key}"/>`).join("");
  const last = rows.at(-1);
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-label="Tokens by the number of subtools">
<style>text{font:12px sans-serif;fill:#555}.grid{stroke:#8884;stroke-width:1}polyline{fill:none;stroke-width:2.5}.native{stroke:#c2410c;fill:#c2410c}.ours{stroke:#1d4ed8;fill:#1d4ed8}polyline.native,polyline.ours{fill:none}text.native{stroke:none}text.ours{stroke:none}</style>
${grid.join("\n")}
${ticks.join("\n")}
<text x="${(left + width) / 2}" y="${height - 8}" text-anchor="middle">subtools</text>
<polyline points="${line("native")}" class="native"/>${dots("native")}
<polyline points="${line("ours")}" class="ours"/>${dots("ours")}
<text x="${x(last.size) - 10}" y="${y(last.native) + 22}" text-anchor="end" class="native">native definitions, tokens in every request</text>
<text x="${x(last.size) - 10}" y="${y(last.ours) - 12}" text-anchor="end" class="ours">one tool, tokens of a whole task</text>
</svg>
`;
}
