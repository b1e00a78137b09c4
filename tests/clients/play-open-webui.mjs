// Open WebUI asks `agent-magic-tool serve`. The model is a stub: it lists, runs a subtool that changes something, ends its
// turn, and is woken when a human has approved on the page in a browser. Open WebUI shows all of it in one stream.
import { spawn, spawnSync } from "node:child_process"
import fs from "node:fs"
import net from "node:net"
import os from "node:os"
import path from "node:path"
import { createRequire } from "node:module"
import { check, untilWithin } from "./story.mjs"

const load = createRequire(path.join(process.env.CLIENTS_CACHE, "package.json"))
const { LLMock } = load("@copilotkit/aimock")
const { chromium } = load("playwright-core")
const program = fs.realpathSync(process.env.AGENT_MAGIC_TOOL)

const QUESTION = "Leave a mark, please."
const SECOND = "And what was that?"
const DATA = "marked by a whale"
const ANSWER = `The mark says: ${DATA}.`
const TIMEOUT_MS = 180_000

const root = fs.mkdtempSync(path.join(os.tmpdir(), "amt-open-webui-"))
const children = []
const browsers = []
const env = { HOME: path.join(root, "home"), PATH: process.env.PATH, AGENT_MAGIC_TOOL_DIR: path.join(root, "mailbox"), TERM: "dumb" }

function write(name, text) {
  const file = path.join(env.HOME, ".config/agent-magic-tool", name)
  fs.mkdirSync(path.dirname(file), { recursive: true })
  fs.writeFileSync(file, text)
}

/** Starts a program; its output goes to a file of that name. */
function start(name, command, words, more = {}) {
  const log = fs.openSync(path.join(root, `${name}.log`), "w")
  const child = spawn(command, words, { cwd: root, env: { ...env, ...more }, stdio: ["ignore", log, log] })
  children.push(child)
  return () => fs.readFileSync(path.join(root, `${name}.log`), "utf8")
}

function run(command, words) {
  return spawnSync(command, words, { cwd: root, env, encoding: "utf8" })
}

const until = (what, holds) => untilWithin(TIMEOUT_MS, what, holds)

async function freePort() {
  const server = net.createServer()
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve))
  const { port } = server.address()
  await new Promise((resolve) => server.close(resolve))
  return port
}

/** The stub model; `asked` has what each question of the loop ended with. */
async function model() {
  const asked = []
  const mock = new LLMock({ port: 0, host: "127.0.0.1" })
  mock.on({ predicate: () => true }, async (request) => {
    const text = (message) => (typeof message.content === "string" ? message.content : JSON.stringify(message.content))
    const tool = (request.tools ?? []).map((tool) => tool.function ?? tool)[0]?.name
    if (!tool) return { content: "A title" }
    const call = (command) => ({ toolCalls: [{ name: tool, arguments: JSON.stringify({ command }) }] })
    const last = request.messages.at(-1)
    const results = request.messages.filter((message) => message.role === "tool").map(text)
    asked.push(text(last))
    if (text(last).includes(SECOND)) return { content: `I told you: ${DATA}.` }
    if (last.role === "user" && text(last).includes(QUESTION)) return call('agent-magic-tool list tools --query="leave mark"')
    if (results.length === 1) return call("agent-magic-tool run mark")
    if (text(last).includes(DATA)) return { content: ANSWER }
    const id = results.join("\n").match(/\b[0-9a-f]{32}\b/)?.[0]
    if (text(last).includes("result is final")) return call(`agent-magic-tool read ${id}`)
    return { content: "It needs your yes." }
  })
  await mock.start()
  return { url: mock.url, asked, stop: () => mock.stop() }
}

/** The human's page, open in a browser. */
async function openPage() {
  run(program, ["executor", "start"])
  // The link is only given to a terminal.
  const link = run("script", ["-qec", `'${program}' executor page`, "/dev/null"]).stdout.match(/http:\/\/[^\s"]+/)?.[0]
  if (!link) throw new Error("no link to the page")
  const args = ["--no-sandbox", "--disable-gpu"]
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args })
  browsers.push(browser)
  const page = await browser.newPage()
  await page.goto(link)
  return { page, browser }
}

/** Open WebUI in the browser of its user. */
class WebUi {
  constructor(url, browser) {
    this.url = url
    this.browser = browser
  }
  async isUp() {
    return fetch(`${this.url}/health`).then((reply) => reply.ok, () => false)
  }
  async open() {
    this.page = await this.browser.newPage()
    await this.page.goto(this.url)
    await this.page.waitForSelector("#chat-input", { timeout: TIMEOUT_MS })
    // A dialog may tell what is new.
    await this.page.keyboard.press("Escape")
  }
  /** Asks, and waits until the answer is as it should be. Returns each text that was seen on the way. */
  async ask(question, isWhole) {
    const answers = this.page.locator(".chat-assistant")
    const before = await answers.count()
    await this.page.click("#chat-input")
    await this.page.keyboard.type(question)
    await this.page.keyboard.press("Enter")
    const seen = [""]
    await until(`Open WebUI shows the answer to "${question}", and not only ${JSON.stringify(seen)}`, async () => {
      if ((await answers.count()) === before) return false
      const text = (await answers.last().innerText()).trim()
      if (text !== seen.at(-1)) seen.push(text)
      return isWhole(text)
    })
    return seen
  }
}

async function play() {
  for (const folder of ["home", "data"]) fs.mkdirSync(path.join(root, folder))
  const { url, asked, stop } = await model()
  write("config.toml", `[agent]\nmodel = "stub"\n[models.stub]\nprovider = "openai"\nurl = "${url}/v1"\n`)
  const mark = {
    description: "Leaves a mark.",
    input: { type: "object", properties: {} },
    run: { process: { argv: ["echo", DATA] } },
  }
  write("subtools/mark.json", JSON.stringify({ mark }))
  const serving = start("serve", program, ["serve", "--listen=127.0.0.1:0"])
  const server = await until("serve listens", () => serving().match(/"url":\s*"([^"]+)"/)?.[1])
  const port = await freePort()
  start("open-webui", process.env.OPEN_WEBUI, ["serve", "--host", "127.0.0.1", "--port", String(port)], {
    DATA_DIR: path.join(root, "data"),
    WEBUI_SECRET_KEY: "test",
    WEBUI_AUTH: "False",
    OFFLINE_MODE: "true",
    HF_HUB_OFFLINE: "1",
    OPENAI_API_BASE_URL: `${server}/v1`,
    OPENAI_API_KEY: "none",
    ENABLE_OLLAMA_API: "false",
    ENABLE_FORWARD_USER_INFO_HEADERS: "true",
  })
  const { page, browser } = await openPage()
  const ui = new WebUi(`http://127.0.0.1:${port}`, browser)
  await until("Open WebUI answers", () => ui.isUp())
  await ui.open()
  check("Open WebUI is open and has chosen the model", (await ui.page.innerText("body")).includes("agent-magic-tool"))
  const human = (async () => {
    await page.waitForSelector("[data-action=approve]", { timeout: TIMEOUT_MS })
    await page.click("[data-action=approve]")
  })()
  const seen = await ui.ask(QUESTION, (text) => text.includes(ANSWER))
  await human
  check("it is streamed", seen.length > 2)
  check("the stream says in words that a human is waited for", seen.some((text) => /waits for your decision/.test(text)))
  check("and goes on with the answer by itself", seen.at(-1).includes(ANSWER))
  await ui.ask(SECOND, (text) => text.includes(`I told you: ${DATA}.`))
  check("the second message is answered in the same conversation", true)
  const { sessions } = await (await fetch(`${server}/api/v1/sessions`)).json()
  check("which is one session", sessions.length === 1 && sessions[0].client.includes("@"))
  check("the question was asked once", asked.filter((text) => text.includes(QUESTION)).length === 1)
  const tasks = JSON.parse(run(program, ["tasks"]).stdout)
  check("the task ran once", tasks.length === 1 && tasks[0].status === "succeeded")
  await stop()
}

try {
  await play()
} finally {
  await Promise.all(browsers.map((browser) => browser.close()))
  for (const child of children) child.kill()
  run(program, ["executor", "stop"])
  if (process.env.KEEP) console.log(`kept: ${root}`)
  else fs.rmSync(root, { recursive: true, force: true, maxRetries: 20, retryDelay: 250 })
}
