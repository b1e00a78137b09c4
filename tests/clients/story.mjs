// What every story with a real client needs: to wait for a condition, and to check one.
import { setTimeout as pause } from "node:timers/promises"

/** Waits until `holds` returns something, and returns that; fails after `timeoutMs`. */
export async function untilWithin(timeoutMs, what, holds) {
  const deadline = Date.now() + timeoutMs
  for (;;) {
    const found = await holds()
    if (found) return found
    if (Date.now() > deadline) throw new Error(`timed out waiting until ${what}`)
    await pause(50)
  }
}

export function check(what, holds) {
  if (!holds) throw new Error(`failed: ${what}`)
  console.log(`  ok  ${what}`)
}
