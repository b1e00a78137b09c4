// Claude Code asks `agent-magic-tool serve` instead of Anthropic. The model is a stub: it reads a file with a tool of Claude
// Code, counts the words with a subtool of ours, and answers.
import { spawn, spawnSync } from "node:child_process"
import fs from "node:fs"
import os from "node:os"
import path from "node:path"
import { createRequire } from "node:module"
import { check, untilWithin } from "./story.mjs"

const load = createRequire(path.join(process.env.CLIENTS_CACHE, "package.json"))
const { LLMock } = load("@copilotkit/aimock")
const claude = path.join(process.env.CLIENTS_CACHE, "node_modules/.bin/claude")
const program = fs.realpathSync(process.env.AGENT_MAGIC_TOOL)

const QUESTION = "How many words has the report?"
const CONTENT = "forty two whales"
const ANSWER = "The report has 3 words."
const TIMEOUT_MS = 120_000

const root = fs.mkdtempSync(path.join(os.tmpdir(), "amt-claude-code-"))
const project = path.join(root, "project")
const env = { HOME: path.join(root, "home"), PATH: process.env.PATH, AGENT_MAGIC_TOOL_DIR: path.join(root, "mailbox"), TERM: "dumb" }

function write(name, value) {
  const file = path.join(env.HOME, ".config/agent-magic-tool", name)
  fs.mkdirSync(path.dirname(file), { recursive: true })
  fs.writeFileSync(file, typeof value === "string" ? value : JSON.stringify(value))
}

const text = (message) => (typeof message.content === "string" ? message.content : JSON.stringify(message.content ?? ""))

/** The stub model; `asked` has the requests with the question. */
async function model() {
  const asked = []
  const mock = new LLMock({ port: 0, host: "127.0.0.1" })
  mock.on({ predicate: () => true }, async (request) => {
    const said = request.messages.map(text)
    if (!said.some((one) => one.includes(QUESTION))) return { content: "Fine." }
    asked.push(request)
    const call = (name, given) => ({ toolCalls: [{ name, arguments: JSON.stringify(given) }] })
    const results = request.messages.filter((message) => message.role === "tool").map(text)
    if (results.length === 0) return call("Read", { file_path: path.join(project, "report.txt") })
    if (results.length === 1) return call("command_executor", { command: "agent-magic-tool run count_words --wait" })
    return { content: results.at(-1).includes("3") ? ANSWER : `not counted: ${results.at(-1)}` }
  })
  await mock.start()
  return { url: mock.url, asked, stop: () => mock.stop() }
}

fs.mkdirSync(project, { recursive: true })
fs.writeFileSync(path.join(project, "report.txt"), CONTENT)
write("subtools/words.json", {
  count_words: {
    description: "Counts the words of the report.",
    annotations: { readOnlyHint: true },
    input: { type: "object", properties: {} },
    run: { process: { argv: ["wc", "-w", path.join(project, "report.txt")] } },
  },
})
const stub = await model()
write("config.toml", `[models.stub]\nprovider = "openai"\nurl = "${stub.url}"\n`)
const made = spawnSync(program, ["serve", "key", "create", "claude", "--history=client"], { env, encoding: "utf8" })
const { key } = JSON.parse(made.stdout)
const server = spawn(program, ["serve", "--listen=127.0.0.1:0"], { env, cwd: project, stdio: ["ignore", "pipe", "inherit"] })
let failed = false
try {
  let printed = ""
  server.stdout.on("data", (data) => (printed += data))
  await untilWithin(TIMEOUT_MS, "the server listens", () => printed.includes("\n"))
  const { url } = JSON.parse(printed)
  const asks = {
    ...{ ANTHROPIC_BASE_URL: url, ANTHROPIC_AUTH_TOKEN: key, CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", DISABLE_AUTOUPDATER: "1" },
    ...{ ANTHROPIC_MODEL: "agent-magic-tool", ANTHROPIC_SMALL_FAST_MODEL: "agent-magic-tool" },
  }
  const words = ["-p", QUESTION, "--allowedTools", "Read"]
  const child = spawn(claude, words, { env: { ...env, ...asks }, cwd: project, stdio: ["ignore", "pipe", "inherit"] })
  let said = ""
  child.stdout.on("data", (data) => (said += data))
  const status = await untilWithin(TIMEOUT_MS, "Claude Code has ended", () => (child.exitCode === null ? undefined : [child.exitCode]))
  check(`Claude Code prints the answer: ${said.trim()}`, status[0] === 0 && said.includes(ANSWER))
  const offered = stub.asked[0].tools.map((tool) => (tool.function ?? tool).name)
  check("the model has the tools of Claude Code and ours", offered.includes("Read") && offered.includes("command_executor"))
  const last = stub.asked.at(-1).messages.map(text).join("\n")
  check("the model got what Claude Code read", last.includes(CONTENT))
  const tasks = JSON.parse(spawnSync(program, ["tasks"], { env, encoding: "utf8" }).stdout)
  check("our subtool ran once", tasks.length === 1 && tasks[0].status === "succeeded")
} catch (error) {
  failed = true
  console.error(error)
} finally {
  server.kill()
  stub.stop()
  if (failed) console.error(`all files are in ${root}`)
  else fs.rmSync(root, { recursive: true, force: true })
}
process.exit(failed ? 1 : 0)
