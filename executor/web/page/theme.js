// The light and the dark theme, and what the browser keeps of a person's choices.
//
// first.js puts the choice in force before anything is painted.

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
            /* A browser that keeps nothing: the choice lasts until the page goes. */
        }
    },
};

export function switchTheme() {
    const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    const next = (root.dataset.theme ?? system) === "dark" ? "light" : "dark";
    // Back at what the system says, we follow the system again.
    memory.set("theme", next === system ? null : next);
    if (next === system) delete root.dataset.theme;
    else root.dataset.theme = next;
    announce(`${next} theme`);
}
