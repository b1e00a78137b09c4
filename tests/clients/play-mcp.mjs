// Runs one story with each client over the Model Context Protocol. The client's only way to us is the tool
// `command_executor`: the model lists, runs a subtool that changes something, is told that the human must decide,
// waits while a human approves on the page in a browser, and answers with the result. The model is a stub whose
// answers depend on the request. The checks are on three records: what the model was sent, what went over the
// protocol, and what the client printed.
import { spawn, spawnSync } from "node:child_process"
import fs from "node:fs"
import http from "node:http"
import os from "node:os"
import path from "node:path"
import { createRequire } from "node:module"
import { setTimeout as pause } from "node:timers/promises"
import { fileURLToPath } from "node:url"
import { check, untilWithin } from "./story.mjs"

// Started by a client in place of the program: passes everything on and writes each message down.
if (process.argv[2] === "record") record(...process.argv.slice(3))
else await main()

function record(log, command, ...words) {
  const child = spawn(command, words, { stdio: ["pipe", "pipe", "inherit"] })
  const note = (entry) => fs.appendFileSync(log, `${JSON.stringify({ at: Date.now(), ...entry })}\n`)
  const watch = (from, to, who) => {
    let rest = ""
    from.on("data", (bytes) => {
      to.write(bytes)
      const lines = (rest + bytes).split("\n")
      rest = lines.pop()
      for (const line of lines.filter((line) => line.trim())) note({ from: who, message: JSON.parse(line) })
    })
    from.on("end", () => to.end())
  }
  watch(process.stdin, child.stdin, "client")
  watch(child.stdout, process.stdout, "server")
  child.stdin.on("error", () => {})
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"])
    process.on(signal, () => {
      note({ from: "client", signal })
      child.kill(signal)
    })
  child.on("close", (code, signal) => {
    note({ from: "server", ended: code ?? signal })
    process.exit(code ?? 1)
  })
}

async function main() {
  const cache = process.env.CLIENTS_CACHE
  const program = fs.realpathSync(process.env.AGENT_MAGIC_TOOL)
  const load = createRequire(path.join(cache, "package.json"))
  const { LLMock } = load("@copilotkit/aimock")
  const { chromium } = load("playwright-core")
  const bin = (name) => path.join(cache, "node_modules/.bin", name)

  const QUESTION = "Leave a mark, please."
  const DATA = "marked by a whale"
  const REASON = "not on a Sunday"
  const DENY = process.env.DECISION === "deny"
  const HUMAN_MS = Number(process.env.HUMAN_SECONDS ?? 3) * 1000
  const TIMEOUT_MS = 120_000 + 2 * HUMAN_MS
  const ANSWER = DENY ? `You said: ${REASON}.` : `The mark says: ${DATA}.`

  class World {
    constructor(client) {
      this.root = fs.mkdtempSync(path.join(process.env.CLIENTS_WORLDS ?? os.tmpdir(), `amt-mcp-${client}-`))
      for (const folder of ["home", "project", "bin"]) fs.mkdirSync(path.join(this.root, folder))
      this.log = path.join(this.root, "protocol.jsonl")
      fs.writeFileSync(this.log, "")
      // Stands in for the program in the client's configuration.
      this.recorder = path.join(this.root, "bin/agent-magic-tool")
      const quoted = [process.execPath, fileURLToPath(import.meta.url), "record", this.log, program].map((word) => `'${word}'`)
      fs.writeFileSync(this.recorder, `#!/bin/sh\nexec ${quoted.join(" ")} "$@"\n`, { mode: 0o755 })
      this.env = {
        HOME: path.join(this.root, "home"),
        PATH: process.env.PATH,
        AGENT_MAGIC_TOOL_DIR: path.join(this.root, "mailbox"),
        TERM: "dumb",
      }
      this.args = ["mcp", "--mailbox", this.env.AGENT_MAGIC_TOOL_DIR]
      this.write(".config/agent-magic-tool/subtools/mark.json", {
        mark: {
          description: "Leaves a mark.",
          input: { type: "object", properties: {} },
          run: { process: { argv: ["echo", DATA] } },
        },
      })
    }
    file(name) {
      return path.join(this.env.HOME, name)
    }
    read(name) {
      return JSON.parse(fs.readFileSync(this.file(name), "utf8"))
    }
    write(name, value) {
      fs.mkdirSync(path.dirname(this.file(name)), { recursive: true })
      fs.writeFileSync(this.file(name), typeof value === "string" ? value : JSON.stringify(value, null, 2))
    }
    tool(...words) {
      const ran = spawnSync(program, words, { env: this.env, cwd: path.join(this.root, "project"), encoding: "utf8" })
      if (ran.status !== 0) throw new Error(`${words.join(" ")}: ${ran.stderr}${ran.stdout}`)
      return JSON.parse(ran.stdout)
    }
    start(command, words, env = {}) {
      const child = spawn(command, words, {
        env: { ...this.env, ...env },
        cwd: path.join(this.root, "project"),
        stdio: ["ignore", "pipe", "pipe"],
      })
      const output = { out: "", err: "" }
      child.stdout.on("data", (bytes) => (output.out += bytes))
      child.stderr.on("data", (bytes) => (output.err += bytes))
      return { child, output, ended: new Promise((resolve) => child.on("close", resolve)) }
    }
    /** What went over the protocol so far. */
    protocol() {
      return fs.readFileSync(this.log, "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line))
    }
    end() {
      spawnSync(program, ["executor", "stop"], { env: this.env })
      if (!process.env.KEEP) fs.rmSync(this.root, { recursive: true, force: true, maxRetries: 20, retryDelay: 250 })
      else console.log(`kept: ${this.root}`)
    }
  }

  /** The human: signs in once told to, and decides after a while. */
  class Human {
    constructor(world) {
      this.world = world
    }
    async open() {
      // The link is only given to a terminal.
      const run = this.world.start("script", ["-qec", `'${program}' executor page`, "/dev/null"])
      await run.ended
      const link = run.output.out.match(/http:\/\/[^\s"]+/)?.[0]
      if (!link) throw new Error(`no link to the page: ${run.output.out}`)
      const args = ["--no-sandbox", "--disable-gpu"]
      this.browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args })
      this.page = await this.browser.newPage()
      await this.page.goto(link)
      await this.page.waitForSelector("[data-action=approve]")
      // The page is shown a moment before the executor knows that it is open.
      await pause(500)
      this.deciding = pause(HUMAN_MS).then(() => this.decide())
      this.deciding.catch((error) => console.log(`  the human failed: ${error.message}`))
    }
    async decide() {
      if (!DENY) return this.page.click("[data-action=approve]")
      await this.page.click("[data-opens=deny]")
      await this.page.fill("form:has([value=session]) textarea, form:has([value=session]) input[type=text]", REASON)
      await this.page.click("form:has([value=session]) button.danger:not([value])")
    }
    async leave() {
      await this.browser?.close()
    }
  }

  /** A request with the tools of each group as tools of their own. */
  function flat(body, groups) {
    const tools = body.tools.flatMap((group) => {
      if (group.type !== "namespace") return [group]
      return group.tools.map((tool) => {
        groups.push({ namespace: group.name, name: tool.name })
        return { ...tool, name: `${group.name}__${tool.name}` }
      })
    })
    return { ...body, tools }
  }

  /** The stub model. `seen` lists every request that offered our tool, with the answer. `raw` has every body. */
  async function model(human, started) {
    const seen = []
    const raw = []
    const mock = new LLMock({ port: 0, host: "127.0.0.1" })
    mock.on({ predicate: () => true }, async (request) => {
      const tools = (request.tools ?? []).map((tool) => tool.function ?? tool)
      const direct = tools.find((tool) => /command_executor/.test(tool.name))
      const text = (message) => (typeof message.content === "string" ? message.content : JSON.stringify(message.content))
      // Some clients tell the model only the name of a tool, or of a server to which they still connect. The model
      // must look the tool up first.
      const name = direct?.name ?? "mcp__agent-magic-tool__command_executor"
      const search = tools.find((tool) => /^tool_?search$/i.test(tool.name))?.name
      if (!direct && !search) return { content: "A title" }
      const through = direct ? undefined : tools.find((tool) => tool.name === "tool_call")?.name
      const use = (tool, words) => ({ toolCalls: [{ name: tool, arguments: JSON.stringify(words) }] })
      const call = (command) => (through ? use(through, { name, arguments: { command } }) : use(name, { command }))
      const searched = request.messages.flatMap((message) => message.tool_calls ?? []).some((made) => made.function.name === search)
      const results = request.messages.filter((message) => message.role === "tool").map(text).slice(searched ? 1 : 0)
      const last = results.at(-1) ?? ""
      const id = results.join("\n").match(/\b[0-9a-f]{32}\b/)?.[0]
      let answer
      if (!direct && !searched) answer = use(search, { query: `select:${name}`, max_results: 5 })
      else if (results.length === 0) answer = call('agent-magic-tool list tools --query="leave mark"')
      else if (results.length === 1) answer = call("agent-magic-tool run mark")
      // No one has the page open, so this returns at once and says what to tell the user.
      else if (results.length === 2) answer = call(`agent-magic-tool wait ${id}`)
      else if (last.includes(DATA) || last.includes(REASON)) answer = { content: ANSWER }
      else if (results.length > 12) answer = { content: "I give up." }
      else {
        if (results.length === 3) await human.open()
        answer = call(`agent-magic-tool wait ${id}`)
      }
      seen.push({ at: Date.now() - started, deferred: !direct, results: results.length, last, answer })
      return answer
    })
    await mock.start()
    // In front of it: keeps each body as the client sent it.
    const front = http.createServer((request, response) => {
      const parts = []
      request.on("data", (bytes) => parts.push(bytes))
      request.on("end", () => {
        const sent = Buffer.concat(parts).toString()
        raw.push({ at: Date.now() - started, url: request.url, body: sent })
        // Codex groups the tools of a server, which the stub model does not know.
        const groups = []
        const body = sent.includes('"type":"namespace"') ? JSON.stringify(flat(JSON.parse(sent), groups)) : sent
        const headers = { ...request.headers, host: new URL(mock.url).host, "content-length": Buffer.byteLength(body) }
        delete headers["transfer-encoding"]
        const behind = http.request(`${mock.url}${request.url}`, { method: request.method, headers }, async (from) => {
          response.writeHead(from.statusCode, from.headers)
          for await (const bytes of from) {
            let chunk = bytes.toString()
            for (const { namespace, name } of groups)
              chunk = chunk.replaceAll(`"name":"${namespace}__${name}"`, `"namespace":"${namespace}","name":"${name}"`)
            response.write(chunk)
          }
          response.end()
        })
        behind.on("error", () => response.destroy())
        behind.end(body)
      })
    })
    await new Promise((resolve) => front.listen(0, "127.0.0.1", resolve))
    const stop = async () => {
      front.close()
      front.closeAllConnections()
      await mock.stop()
    }
    return { stop, seen, raw, url: `http://127.0.0.1:${front.address().port}` }
  }

  /**
   * How each client is configured to use the stub model, and how it is asked. `file` is what `setup` writes; a
   * client without it is one that `setup` does not know, and gets its entry by `connect`.
   */
  const CLIENTS = {
    codex: {
      program: "codex",
      file: ".codex/config.toml",
      ask(world, url) {
        // Otherwise the model may be asked before the server is connected, and `exec`, which cannot ask, refuses the tool.
        const more = 'required = true\ndefault_tools_approval_mode = "approve"'
        const written = fs.readFileSync(world.file(this.file), "utf8").replace("[mcp_servers.agent-magic-tool]", `$&\n${more}`)
        const provider = `model = "stub"\nmodel_provider = "stub"\n[model_providers.stub]\nname = "stub"\nbase_url = "${url}/v1"\nwire_api = "responses"\n`
        world.write(this.file, provider + written)
        return world.start(bin("codex"), ["exec", "--skip-git-repo-check", QUESTION])
      },
    },
    "gemini-cli": {
      program: "gemini",
      file: ".gemini/settings.json",
      ask(world, url) {
        const settings = { ...world.read(this.file), security: { auth: { selectedType: "gemini-api-key" } } }
        world.write(this.file, settings)
        const env = { GEMINI_API_KEY: "x", GOOGLE_GEMINI_BASE_URL: url }
        return world.start(bin("gemini"), ["--yolo", "--skip-trust", "-m", "gemini-2.5-pro", "-p", QUESTION], env)
      },
    },
    "claude-code": {
      program: "claude",
      file: ".claude.json",
      ask(world, url) {
        const env = { ANTHROPIC_API_KEY: "x", ANTHROPIC_BASE_URL: url, CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1" }
        return world.start(bin("claude"), ["--allowedTools", "mcp__agent-magic-tool__command_executor", "-p", QUESTION], env)
      },
    },
    opencode: {
      program: "opencode",
      file: ".config/opencode/opencode.json",
      ask(world, url) {
        const options = { baseURL: `${url}/v1`, apiKey: "x" }
        world.write(this.file, {
          ...world.read(this.file),
          model: "stub/stub",
          provider: { stub: { npm: "@ai-sdk/openai-compatible", options, models: { stub: { tool_call: true } } } },
        })
        return world.start(bin("opencode"), ["run", QUESTION])
      },
    },
    "qwen-code": {
      program: "qwen",
      connect: (world) =>
        world.write(".qwen/settings.json", {
          mcpServers: { "agent-magic-tool": { command: world.recorder, args: world.args } },
          security: { auth: { selectedType: "openai" } },
        }),
      ask(world, url) {
        const env = { OPENAI_API_KEY: "x", OPENAI_BASE_URL: `${url}/v1`, OPENAI_MODEL: "stub" }
        return world.start(bin("qwen"), ["--yolo", "-p", QUESTION], env)
      },
    },
    copilot: {
      program: "copilot",
      connect: (world) =>
        world.write(".copilot/mcp-config.json", {
          mcpServers: { "agent-magic-tool": { type: "local", command: world.recorder, args: world.args, tools: ["*"] } },
        }),
      ask(world, url) {
        const env = {
          COPILOT_PROVIDER_BASE_URL: `${url}/v1`,
          COPILOT_PROVIDER_TYPE: "openai",
          COPILOT_PROVIDER_API_KEY: "x",
          COPILOT_MODEL: "gpt-4.1",
          COPILOT_OFFLINE: "true",
        }
        return world.start(bin("copilot"), ["--allow-all-tools", "--no-auto-update", "-p", QUESTION], env)
      },
    },
  }

  const until = (what, holds) => untilWithin(TIMEOUT_MS, what, holds)

  /** The calls of our tool: the line, the answer, how long it took, what else happened meanwhile. */
  function calls(protocol) {
    return protocol
      .filter((entry) => entry.message?.method === "tools/call")
      .map((entry) => {
        const { id, params } = entry.message
        const reply = protocol.find((other) => other.from === "server" && other.message?.id === id && !other.message.method && other.at >= entry.at)
        const token = params._meta?.progressToken
        const progress = protocol.filter((other) => token !== undefined && other.message?.params?.progressToken === token)
        const cancelled = protocol.find((other) => other.message?.method === "notifications/cancelled" && other.message.params.requestId === id && !(reply && other.at >= reply.at))
        return {
          line: params.arguments?.command,
          meta: params._meta,
          took: reply && reply.at - entry.at,
          result: reply?.message.result,
          error: reply?.message.error,
          progress: token === undefined ? "no token" : progress.length,
          cancelled: cancelled && cancelled.at - entry.at,
        }
      })
  }

  async function play(name) {
    const client = CLIENTS[name]
    const shown = { encoding: "utf8", env: { ...process.env, HOME: os.tmpdir() } }
    const version = spawnSync(bin(client.program), ["--version"], shown).stdout.trim().split("\n")[0]
    console.log(`${name}: ${version}`)
    const world = new World(name)
    const human = new Human(world)
    const started = Date.now()
    const { stop, seen, raw, url } = await model(human, started)
    let run
    try {
      world.tool("executor", "start")
      if (client.file) {
        check("setup --mcp is applied", world.tool("setup", name, "--mcp", "--user", "--yes").applied)
        const written = fs.readFileSync(world.file(client.file), "utf8")
        fs.writeFileSync(world.file(client.file), written.replaceAll(program, world.recorder))
      } else client.connect(world)
      run = await client.ask(world, url)
      const code = await Promise.race([run.ended, pause(TIMEOUT_MS).then(() => "too late")])
      await human.deciding
      const protocol = world.protocol()
      const said = calls(protocol)
      const used = said.at(0)?.meta?.["io.modelcontextprotocol/protocolVersion"]
      const agreed = protocol.find((entry) => entry.message?.result?.protocolVersion)?.message.result.protocolVersion
      console.log(`      version ${used ?? agreed} of the protocol`)
      for (const { line, took, progress, cancelled, result } of said)
        console.log(`      ${line}: ${took} ms, error ${result?.isError}, progress ${progress}, cancelled ${cancelled ?? "no"}`)
      check("the client exited with status 0", code === 0)
      check("the client listed the tool and offered it to the model", seen.length > 0)
      check("the tool lists, runs and waits", /list .* run mark .* wait /.test(said.map((call) => call.line).join(" ")))
      console.log(`      the tool was ${seen[0].deferred ? "deferred: the model had to look it up first" : "in the first request"}`)
      const receipt = seen.find((request) => request.results === 2)?.last ?? ""
      check("the model saw that the task waits for the human, and no address", /executor page/.test(receipt) && !/http/.test(receipt))
      check("what waits is not an error", said.slice(0, 3).every((call) => call.result?.isError === false))
      check("no call was cut off by the client", said.every((call) => call.result && call.cancelled === undefined))
      const end = said.at(-1).result
      check("the end is an error only if it was denied", end.isError === DENY)
      check("the model answered", seen.at(-1).answer.content === ANSWER)
      check("the user has the answer", run.output.out.includes(ANSWER))
      check("the task ran once", (world.tool("tasks")).length === 1)
      if (client.file) {
        const written = fs.readFileSync(world.file(client.file), "utf8")
        fs.writeFileSync(world.file(client.file), written.replaceAll(world.recorder, program))
        check("setup --mcp is undone", world.tool("setup", name, "--mcp", "--user", "--undo", "--yes").applied)
      }
      return true
    } catch (error) {
      console.log(`  FAILED  ${error.message}`)
      for (const request of seen) console.log(`    ${JSON.stringify(request).slice(0, 1200)}`)
      for (const entry of world.protocol().slice(-8)) console.log(`    ${JSON.stringify(entry).slice(0, 400)}`)
      console.log(run?.output.out.slice(-2000), run?.output.err.slice(-2000))
      return false
    } finally {
      fs.writeFileSync(path.join(world.root, "requests.jsonl"), raw.map((entry) => JSON.stringify(entry)).join("\n"))
      fs.writeFileSync(path.join(world.root, "seen.json"), JSON.stringify(seen, null, 2))
      fs.writeFileSync(path.join(world.root, "output.txt"), `${run?.output.out}\n--- standard error\n${run?.output.err}`)
      run?.child.kill()
      // Some clients go on writing for a moment.
      await Promise.race([run?.ended, pause(5_000)])
      await human.leave()
      await stop()
      world.end()
    }
  }

  const wanted = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(CLIENTS)
  const played = []
  for (const name of wanted) played.push(await play(name))
  process.exit(played.every(Boolean) ? 0 : 1)
}
