// Keeps the times on the page up to date: how long ago something was, and how long is left.

import { all } from "./draw.js";

export function span(seconds) {
    if (seconds < 60) return `${Math.max(0, Math.floor(seconds))} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
    if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h`;
    return `${Math.floor(seconds / 86_400)} d`;
}

export function refreshTimes() {
    const now = Date.now();
    for (const time of all("time[data-ago], time[data-left]")) {
        const at = Date.parse(time.dateTime);
        if (Number.isNaN(at)) continue;
        const words =
            "ago" in time.dataset
                ? `${span((now - at) / 1000)} ago`
                : at > now
                  ? `${span((at - now) / 1000)} left`
                  : "held" in time.dataset
                    ? ""
                    : "time is up";
        if (time.textContent !== words) time.textContent = words;
    }
}
