// Installed by `agent-magic-tool setup opencode`, which also removes it (--undo) and writes it anew.
// Tells the shell which session it is in, and wakes the session when results are ready.
import { spawn } from "node:child_process"

const command = "HOOK"
// `opencode run` ends with its turn: nobody would be there to be woken.
const stays = !process.argv.includes("run")

const hook = (hook_event_name, session_id) =>
  new Promise((resolve) => {
    const child = spawn(command, { shell: true, stdio: ["pipe", "pipe", "ignore"] })
    let said = ""
    child.stdout.on("data", (bytes) => (said += bytes))
    child.stdin.on("error", () => {})
    child.on("error", () => resolve(""))
    child.on("close", () => resolve(said))
    child.stdin.end(JSON.stringify({ hook_event_name, session_id }))
  })

export const AgentMagicTool = async ({ client }) => {
  const known = new Set()
  return {
    "shell.env": async ({ sessionID }, output) => {
      if (!sessionID) return
      output.env.OPENCODE_SESSION_ID = sessionID
      if (!stays || known.has(sessionID)) return
      known.add(sessionID)
      await hook("SessionStart", sessionID)
    },
    event: async ({ event }) => {
      if (event.type !== "session.idle" || !stays) return
      const id = event.properties.sessionID
      // Not awaited: OpenCode goes on meanwhile.
      hook("Stop", id)
        .then((said) => {
          const text = said && JSON.parse(said).wake
          if (text) return client.session.promptAsync({ path: { id }, body: { parts: [{ type: "text", text }] } })
        })
        .catch(() => {})
    },
  }
}
