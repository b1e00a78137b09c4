// Applies the chosen theme before the first paint, so that the other one does not flash. A module would run too late.
"use strict";

try {
    const theme = localStorage.getItem("theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
    if (localStorage.getItem("keys") === "off") document.documentElement.dataset.noKeys = "";
} catch {
    // No storage in this browser: use the system's theme.
}
