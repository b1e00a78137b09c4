// Applies the chosen theme before the first paint, so that the other one does not flash. A module would run too late.
// Before that, it ends whatever an earlier page of this origin left in the browser to answer in the executor's place.
"use strict";

navigator.serviceWorker?.getRegistrations().then((found) => found.forEach((worker) => worker.unregister()));

try {
    const theme = localStorage.getItem("theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
    if (localStorage.getItem("keys") === "off") document.documentElement.dataset.noKeys = "";
} catch {
    // No storage in this browser: use the system's theme.
}
