// Runs the same scenario with each client: list, run, the turn ends, the result becomes final, our hook wakes the
// client, the model reads the result and answers. The model is a stub whose answers depend on the request; the
// checks are on the requests that it got.
import { spawn, spawnSync } from "node:child_process"
import fs from "node:fs"
import os from "node:os"
import path from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import { check, untilWithin } from "./story.mjs"

const cache = process.env.CLIENTS_CACHE
const program = process.env.AGENT_MAGIC_TOOL
const bin = (name) => path.join(cache, "node_modules/.bin", name)
const { LLMock } = await import(path.join(cache, "node_modules/@copilotkit/aimock/dist/index.js"))

const QUESTION = "What does the report say?"
const CONTENT = "42 whales"
const ANSWER = `The report says: ${CONTENT}.`
const TIMEOUT_MS = 120_000

class World {
  constructor(client) {
    this.client = client
    this.root = fs.mkdtempSync(path.join(process.env.CLIENTS_WORLDS ?? os.tmpdir(), `amt-${client}-`))
    for (const folder of ["home", "project", "bin"]) fs.mkdirSync(path.join(this.root, folder))
    fs.symlinkSync(fs.realpathSync(program), path.join(this.root, "bin/agent-magic-tool"))
    this.gate = path.join(this.root, "gate")
    this.env = {
      HOME: path.join(this.root, "home"),
      PATH: `${this.root}/bin:${process.env.PATH}`,
      AGENT_MAGIC_TOOL_DIR: path.join(this.root, "mailbox"),
      TERM: "dumb",
    }
    // Codex runs its commands in a login shell, which may replace PATH.
    this.write(".profile", `PATH='${this.root}/bin':$PATH\n`)
    const wait = `until [ -e '${this.gate}' ]; do sleep 0.1; done; echo '${CONTENT}'`
    this.write(".config/agent-magic-tool/subtools/report.json", {
      slow_report: {
        description: "Writes a report; takes its time.",
        input: { type: "object", properties: {} },
        annotations: { readOnlyHint: true },
        run: { process: { argv: ["sh", "-c", wait] } },
      },
    })
  }
  write(name, value) {
    const file = path.join(this.env.HOME, name)
    fs.mkdirSync(path.dirname(file), { recursive: true })
    fs.writeFileSync(file, typeof value === "string" ? value : JSON.stringify(value, null, 2))
  }
  tool(...words) {
    const ran = spawnSync(program, words, { env: this.env, cwd: path.join(this.root, "project"), encoding: "utf8" })
    if (ran.status !== 0) throw new Error(`${words.join(" ")}: ${ran.stderr}`)
    return JSON.parse(ran.stdout)
  }
  start(command, words, env = {}) {
    const child = spawn(command, words, {
      env: { ...this.env, ...env },
      cwd: path.join(this.root, "project"),
      stdio: [command === "script" ? "pipe" : "ignore", "pipe", "pipe"],
    })
    const output = { out: "", err: "" }
    child.stdout.on("data", (bytes) => (output.out += bytes))
    child.stderr.on("data", (bytes) => (output.err += bytes))
    const ended = new Promise((resolve) => child.on("close", resolve))
    return { child, output, ended, closed: ended }
  }
  end() {
    spawnSync(program, ["executor", "stop"], { env: this.env })
    if (!process.env.KEEP) fs.rmSync(this.root, { recursive: true, force: true, maxRetries: 20, retryDelay: 250 })
    else console.log(`kept: ${this.root}`)
  }
}

/** The stub model. `seen` lists every request that offered a shell, with the answer. */
async function model() {
  const seen = []
  const mock = new LLMock({ port: 0, host: "127.0.0.1" })
  mock.on({ predicate: () => true }, (request) => {
    const tools = (request.tools ?? []).map((tool) => tool.function ?? tool)
    const shell = tools.find((tool) => /^(exec_command|shell|shell_command|run_shell_command|bash)$/i.test(tool.name))
    if (!shell) return { content: "A title" }
    const fields = Object.keys(shell.parameters?.properties ?? {})
    const key = fields.includes("cmd") ? "cmd" : "command"
    const more = fields.includes("description") ? { description: "Uses a tool" } : {}
    const call = (command) => ({ toolCalls: [{ name: shell.name, arguments: JSON.stringify({ [key]: command, ...more }) }] })
    const text = (message) => (typeof message.content === "string" ? message.content : JSON.stringify(message.content))
    const all = request.messages.map(text).join("\n")
    const calls = request.messages.filter((message) => message.role === "tool").length
    const wake = request.messages.map(text).findLast((words) => words.includes("Results are ready:"))
    const answers = [
      () => call('agent-magic-tool list tools --query="report"'),
      () => call("agent-magic-tool run slow_report"),
      () => (wake ? call(`agent-magic-tool read ${wake.match(/\b[0-9a-f]{32}\b/)[0]}`) : { content: "It is under way." }),
      () => ({ content: all.includes(CONTENT) ? ANSWER : "I have nothing." }),
    ]
    const answer = (answers[calls] ?? answers.at(-1))()
    seen.push({ calls, wake, last: text(request.messages.at(-1)), answer })
    return answer
  })
  await mock.start()
  return { mock, seen, url: mock.url }
}

/** How each client is configured to use the stub model, and how it is asked. */
const CLIENTS = {
  codex: {
    version: () => bin("codex"),
    async ask(world, url) {
      const file = path.join(world.env.HOME, ".codex/config.toml")
      const provider = `model = "stub"\nmodel_provider = "stub"\n[model_providers.stub]\nname = "stub"\nbase_url = "${url}/v1"\nwire_api = "responses"\n`
      fs.writeFileSync(file, provider + fs.readFileSync(file, "utf8"))
      // No human is there to trust the hooks with /hooks, and the machine may not support the sandbox.
      const free = ["--dangerously-bypass-hook-trust", "--dangerously-bypass-approvals-and-sandbox"]
      const words = process.env.SANDBOX ? ["--dangerously-bypass-hook-trust", "--sandbox", "workspace-write"] : free
      return world.start(bin("codex"), ["exec", "--skip-git-repo-check", ...words, QUESTION])
    },
  },
  "gemini-cli": {
    version: () => bin("gemini"),
    async ask(world, url) {
      const env = { GEMINI_API_KEY: "x", GOOGLE_GEMINI_BASE_URL: url }
      return world.start(bin("gemini"), ["--yolo", "--skip-trust", "-m", "gemini-2.5-pro", "-p", QUESTION], env)
    },
  },
  "claude-code": {
    version: () => bin("claude"),
    async ask(world, url) {
      const env = {
        ANTHROPIC_API_KEY: "x",
        ANTHROPIC_BASE_URL: url,
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
        IS_SANDBOX: "1",
      }
      return world.start(bin("claude"), ["--dangerously-skip-permissions", "-p", QUESTION], env)
    },
  },
  // Interactively, in a terminal: there the hook runs in parallel with the conversation.
  "claude-code-terminal": {
    setup: "claude-code",
    version: () => bin("claude"),
    async ask(world, url, seen) {
      const project = fs.realpathSync(path.join(world.root, "project"))
      world.write(".claude.json", {
        hasCompletedOnboarding: true,
        customApiKeyResponses: { approved: ["x"], rejected: [] },
        projects: { [project]: { hasTrustDialogAccepted: true, hasCompletedProjectOnboarding: true } },
      })
      const settings = path.join(world.env.HOME, ".claude/settings.json")
      const ours = JSON.parse(fs.readFileSync(settings, "utf8"))
      fs.writeFileSync(settings, JSON.stringify({ skipDangerousModePermissionPrompt: true, ...ours }))
      const env = {
        ANTHROPIC_API_KEY: "x",
        ANTHROPIC_BASE_URL: url,
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
        IS_SANDBOX: "1",
        TERM: "xterm-256color",
      }
      const run = world.start("script", ["-qefc", `${bin("claude")} --dangerously-skip-permissions`, "/dev/null"], env)
      await until("the prompt appears", () => run.output.out.includes("❯"))
      await pause(2_000)
      run.child.stdin.write(QUESTION)
      await pause(1_000)
      run.child.stdin.write("\r")
      run.ended = until("the model has answered", () => seen.at(-1)?.answer.content === ANSWER)
        .then(() => pause(2_000))
        .then(() => 0)
      return run
    },
  },
  opencode: {
    version: () => bin("opencode"),
    // Uses the server behind the terminal interface, since `opencode run` ends with its first turn.
    async ask(world, url) {
      const options = { baseURL: `${url}/v1`, apiKey: "x" }
      world.write(".config/opencode/opencode.json", {
        model: "stub/stub",
        permission: "allow",
        provider: { stub: { npm: "@ai-sdk/openai-compatible", options, models: { stub: { tool_call: true } } } },
      })
      const server = world.start(bin("opencode"), ["serve", "--port", "0", "--hostname", "127.0.0.1"])
      const at = await until("the server listens", () => server.output.out.match(/http:\/\/[\d.:]+/)?.[0])
      const post = (where, body) =>
        fetch(`${at}${where}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) })
      const { id } = await (await post("/session", {})).json()
      await post(`/session/${id}/message`, { parts: [{ type: "text", text: QUESTION }] })
      server.ended = (async () => {
        await until("the session has answered", async () => {
          const messages = await (await fetch(`${at}/session/${id}/message`)).json()
          const texts = messages.flatMap((message) => message.parts).filter((part) => part.type === "text")
          server.output.out = texts.map((part) => part.text).join("\n")
          return server.output.out.includes(ANSWER)
        })
        server.child.kill()
        return 0
      })()
      return server
    },
  },
}

const until = (what, holds) => untilWithin(TIMEOUT_MS, what, holds)

async function play(name) {
  const client = CLIENTS[name]
  const version = spawnSync(client.version(), ["--version"], { encoding: "utf8", env: { ...process.env, HOME: os.tmpdir() } }).stdout.trim()
  console.log(`${name}: ${version}`)
  const world = new World(name)
  const { mock, seen, url } = await model()
  let run
  try {
    // Started outside any sandbox, as a human would.
    world.tool("executor", "start")
    if (name === "gemini-cli") world.write(".gemini/settings.json", { security: { auth: { selectedType: "gemini-api-key" } } })
    const known = client.setup ?? name
    check("setup is applied", world.tool("setup", known, "--user", "--yes").applied)
    run = await client.ask(world, url, seen)
    await until("the turn has ended", () => seen.some((request) => request.answer.content === "It is under way."))
    // While the hook waits, the model must not be called.
    await pause(2_000)
    const requests = seen.length
    const delegated = seen.at(-1).last
    check("the model was told that it will be woken", delegated.includes("You will be woken"))
    check("the model got 3 requests in its turn, and none while the hook waited", requests === 3)
    fs.writeFileSync(world.gate, "")
    await until("the model was woken", () => seen.some((request) => request.wake))
    const code = await Promise.race([run.ended, pause(TIMEOUT_MS).then(() => "too late")])
    const woken = seen.find((request) => request.wake).wake
    check("the client exited with status 0", code === 0)
    check("the wake-up names the task and its file, but not its content", /result-[0-9a-f]{32}\.json/.test(woken) && !woken.includes(CONTENT))
    check("the model was woken once and answered in 5 requests", seen.length === 5)
    check("the model read the result", seen.at(-1).last.includes(CONTENT))
    // A terminal's output contains control sequences and frames.
    const letters = (text) => text.replace(/\x1b\[[0-9;?]*[a-zA-Z]/g, "").replace(/\W/g, "")
    check("the user has the answer", letters(run.output.out).includes(letters(ANSWER)))
    const folder = path.join(world.env.AGENT_MAGIC_TOOL_DIR, "wakeups")
    const files = fs.readdirSync(folder).flatMap((session) => fs.readdirSync(path.join(folder, session)))
    check("no wake-up is left", files.every((file) => !/^[0-9a-f]{32}$/.test(file)))
    const undone = world.tool("setup", known, "--user", "--undo", "--yes")
    check("setup is undone", undone.applied)
    return true
  } catch (error) {
    console.log(`  FAILED  ${error.message}`)
    for (const request of seen) console.log(`    ${JSON.stringify(request).slice(0, 600)}`)
    console.log(run?.output.out.slice(-1500), run?.output.err.slice(-1500))
    return false
  } finally {
    run?.child.kill()
    // Some clients go on writing for a moment.
    await Promise.race([run?.closed, pause(5_000)])
    await mock.stop()
    world.end()
  }
}

const wanted = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(CLIENTS)
const played = []
for (const name of wanted) played.push(await play(name))
process.exit(played.every(Boolean) ? 0 : 1)
