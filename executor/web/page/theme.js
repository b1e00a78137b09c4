// The light and dark themes, and the choices stored in the browser.
//
// first.js applies the choice before the first paint.

import { announce } from "./draw.js";

export const root = document.documentElement;

export const memory = {
    get(key) {
        try {
            return localStorage.getItem(key);
        } catch {
            return null;
        }
    },
    set(key, value) {
        try {
            if (value === null) localStorage.removeItem(key);
            else localStorage.setItem(key, value);
        } catch {
            /* No storage in this browser: the choice lasts until the page is closed. */
        }
    },
};

export function switchTheme() {
    const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    const next = (root.dataset.theme ?? system) === "dark" ? "light" : "dark";
    // Choosing what the system has means following the system again.
    memory.set("theme", next === system ? null : next);
    if (next === system) delete root.dataset.theme;
    else root.dataset.theme = next;
    announce(`${next} theme`);
}
