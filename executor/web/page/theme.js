// The light and dark themes, and what else the person likes. The executor keeps the choices, since the origin of the page,
// and with it the browser's storage, is new at each start of the executor.

import { all, announce, showBanner } from "./draw.js";
import { describe, send } from "./send.js";

export const root = document.documentElement;

const CHOICES = ["keys", "notify", "sound"];

/** Whether the person wants this; the root element has it. */
export function wants(choice) {
    return choice === "keys" ? !("noKeys" in root.dataset) : choice in root.dataset;
}

function apply(choice, isOn) {
    if (choice === "keys") root.toggleAttribute("data-no-keys", !isOn);
    else root.toggleAttribute(`data-${choice}`, isOn);
}

/** A change lasts at least until the page is closed. */
async function save() {
    const chosen = { theme: root.dataset.theme ?? null };
    for (const choice of CHOICES) chosen[choice] = wants(choice);
    await send("/preferences", chosen).catch((problem) => showBanner(describe(problem)));
}

/** Shows the choices in their checkboxes. */
export function showPreferences() {
    for (const box of all("[data-preference]")) box.checked = wants(box.dataset.preference);
}

export async function choose(box) {
    const choice = box.dataset.preference;
    if (choice === "notify" && box.checked && (await Notification.requestPermission()) !== "granted") {
        box.checked = false;
        announce("the browser does not allow notifications for this page");
        return;
    }
    apply(choice, box.checked);
    await save();
}

export function switchTheme() {
    const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    const next = (root.dataset.theme ?? system) === "dark" ? "light" : "dark";
    // Choosing what the system has means following the system again.
    if (next === system) delete root.dataset.theme;
    else root.dataset.theme = next;
    announce(`${next} theme`);
    return save();
}
