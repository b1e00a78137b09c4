// Keeps the times on the page up to date: how long ago something was, how long is left, and when something starts in
// the reader's own time zone.

import { all } from "./draw.js";

export function span(seconds) {
    if (seconds < 60) return `${Math.max(0, Math.floor(seconds))} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
    if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h`;
    return `${Math.floor(seconds / 86_400)} d`;
}

const FULL = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

function until(at, now) {
    return at > now ? `(in ${span((at - now) / 1000)})` : "(now)";
}

function left(at, now) {
    return at > now ? `${span((at - now) / 1000)} left` : "time is up";
}

export function refreshTimes() {
    const now = Date.now();
    const kinds = {
        "data-ago": (at) => `${span((now - at) / 1000)} ago`,
        "data-left": (at) => left(at, now),
        "data-until": (at) => until(at, now),
        "data-at": (at) => FULL.format(at),
    };
    for (const [kind, wording] of Object.entries(kinds)) {
        for (const time of all(`time[${kind}]`)) {
            const at = Date.parse(time.dateTime);
            const words = Number.isNaN(at) ? time.textContent : wording(at);
            if (time.textContent !== words) time.textContent = words;
        }
    }
    // The time may come while the request waits.
    for (const words of all("[data-later]")) {
        words.textContent = Date.parse(words.dataset.later) > now ? ", not now" : ": as soon as you approve it";
    }
}
