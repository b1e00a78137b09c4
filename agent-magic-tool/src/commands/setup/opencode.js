// Installed by `agent-magic-tool setup opencode`, which also updates it and removes it (--undo).
// Sets the session's id in the shell, and wakes the session when results are ready.
import { spawn } from "node:child_process"

const command = "HOOK"
// `opencode run` ends with its first turn, so there is no session to wake.
const canWake = !process.argv.includes("run")

const hook = (hook_event_name, session_id) =>
  new Promise((resolve) => {
    const child = spawn(command, { shell: true, stdio: ["pipe", "pipe", "ignore"] })
    let output = ""
    child.stdout.on("data", (bytes) => (output += bytes))
    child.stdin.on("error", () => {})
    child.on("error", () => resolve(""))
    child.on("close", () => resolve(output))
    child.stdin.end(JSON.stringify({ hook_event_name, session_id }))
  })

export const AgentMagicTool = async ({ client }) => {
  const registered = new Set()
  return {
    "shell.env": async ({ sessionID }, output) => {
      if (!sessionID) return
      output.env.OPENCODE_SESSION_ID = sessionID
      if (!canWake || registered.has(sessionID)) return
      registered.add(sessionID)
      await hook("SessionStart", sessionID)
    },
    event: async ({ event }) => {
      if (event.type !== "session.idle" || !canWake) return
      const id = event.properties.sessionID
      // Not awaited, so that OpenCode is not blocked.
      hook("Stop", id)
        .then((output) => {
          const text = output && JSON.parse(output).wake
          if (text) return client.session.promptAsync({ path: { id }, body: { parts: [{ type: "text", text }] } })
        })
        .catch(() => {})
    },
  }
}
