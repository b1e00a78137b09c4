// Runs before anything is painted, and is therefore no module: the chosen theme, without a flash of the other one.
"use strict";

try {
    const theme = localStorage.getItem("theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
    if (localStorage.getItem("keys") === "off") document.documentElement.dataset.noKeys = "";
} catch {
    // A browser that keeps nothing: the system's theme.
}
