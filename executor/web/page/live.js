// Updates from the executor while the page is open.
//
// All tabs share one event stream, since a browser opens only six connections to one host. The tab that holds the lock
// `events` reads the stream and broadcasts each message to the others.

import { all, announce, find, showBanner, stateBadge, stateElements } from "./draw.js";
import { Problem, eventsAddress, isSignedOut, load, showAsleep } from "./send.js";
import { lastUpdates, openCards } from "./card.js";
import { showCounts, setWaiting } from "./waiting.js";

/** The longest pause before connecting again, in milliseconds. */
const MAX_PAUSE_MS = 15_000;
/** After this many failures in a row, the executor has ended: a busy one answers sooner. */
const ASLEEP_AFTER = 3;

export const live = {
    failures: 0,
    /** Counts connections, so that one that is overtaken gives up. */
    attempt: 0,
    queue: null,
    source: null,
    channel: null,
    retry: 0,
    bannerTimer: null,

    start() {
        live.channel = new BroadcastChannel("events");
        live.channel.onmessage = (message) => live.receive(message.data);
        // A visible new tab takes over at once: the tab before may be signed out or suspended.
        if (navigator.locks) live.lead(!document.hidden);
        else live.connect();
        document.addEventListener("visibilitychange", () => {
            // Browsers throttle hidden tabs, so the visible tab takes over.
            if (!document.hidden && !live.source && navigator.locks) live.lead(true);
            // The person may have signed in again in another tab.
            if (!document.hidden && isSignedOut) load("/").then(() => location.reload(), () => {});
        });
    },

    lead(steal) {
        live.queue?.abort();
        const queue = new AbortController();
        live.queue = queue;
        navigator.locks
            .request("events", steal ? { steal } : { signal: queue.signal }, () => new Promise(() => live.connect()))
            .catch(() => {
                // Either this tab left the queue, or another tab took over; then wait until that one closes.
                if (queue.signal.aborted) return;
                live.disconnect();
                live.lead(false);
            });
    },

    broadcast(message) {
        live.receive(message);
        live.channel.postMessage(message);
    },

    async connect() {
        live.disconnect();
        if (isSignedOut) return;
        live.attempt += 1;
        const { attempt } = live;
        let address;
        try {
            address = await eventsAddress();
        } catch (problem) {
            if (!(problem instanceof Problem)) throw problem;
            if (attempt === live.attempt) live.lost();
            return;
        }
        // Another call has connected or disconnected meanwhile.
        if (attempt !== live.attempt) return;
        const source = new EventSource(address);
        live.source = source;
        source.onopen = () => {
            live.failures = 0;
            live.broadcast({ kind: "open" });
        };
        for (const kind of ["waiting", "task", "session"]) {
            source.addEventListener(kind, (event) => live.broadcast({ kind, data: JSON.parse(event.data) }));
        }
        source.onerror = () => {
            source.close();
            live.lost();
        };
    },

    /** Tries again, after a pause that grows. */
    lost() {
        live.failures += 1;
        live.broadcast({ kind: "lost", data: { failures: live.failures } });
        const pause = Math.min(MAX_PAUSE_MS, 500 * 2 ** Math.min(live.failures - 1, 6));
        live.retry = setTimeout(live.connect, pause * (0.8 + 0.4 * Math.random()));
    },

    disconnect() {
        live.attempt += 1;
        clearTimeout(live.retry);
        live.source?.close();
        live.source = null;
    },

    receive({ kind, data }) {
        if (kind === "open") {
            clearTimeout(live.bannerTimer);
            live.bannerTimer = null;
            if (!isSignedOut) showBanner(null);
            showAsleep(false);
            catchUp();
        } else if (kind === "lost") {
            live.bannerTimer ??= setTimeout(() => {
                if (!isSignedOut && find("#asleep")?.hidden !== false)
                    showBanner("No connection to the executor. Trying again.");
            }, 1200);
            if (data.failures >= ASLEEP_AFTER && !isSignedOut) showAsleep(true);
        } else if (kind === "waiting") {
            waitingEvents += 1;
            if (find("#cards")) setWaiting(data.ids);
            showCounts(data.counts);
        } else if (kind === "task") {
            updateTask(data);
        } else if (kind === "session") {
            showNewSession(data);
        }
    },
};

/** Where a sign-in that the person has not answered is kept, for the next view. */
const NEW_SESSION = "new-session";

/** Says that another browser has signed in, until the person answers. */
export function showNewSession(session) {
    const place = find("#new-session");
    if (!place) return;
    place.hidden = session === null;
    if (session === null) return sessionStorage.removeItem(NEW_SESSION);
    sessionStorage.setItem(NEW_SESSION, JSON.stringify(session));
    find("[data-new-session]", place).textContent = `${session.words} (${session.name})`;
    return announce(`another browser has signed in: ${session.words}`);
}

/** The sign-in that the person has not answered, or null. */
export function unansweredSession() {
    return JSON.parse(sessionStorage.getItem(NEW_SESSION) ?? "null");
}

function updateTask(update) {
    lastUpdates.set(update.id, update);
    if (lastUpdates.size > 2000) lastUpdates.delete(lastUpdates.keys().next().value);
    for (const place of all(`[data-task="${CSS.escape(update.id)}"]`)) {
        const badge = find(".state", place);
        const isClosed = Boolean(place.closest(".closed"));
        const isOfOthers = Boolean(place.closest(".kept"));
        if (isClosed && (badge || isOfOthers || update.state !== "denied")) place.replaceChildren(...stateElements(update));
        else if (badge) badge.replaceWith(stateBadge(update.state, update.state_words));
        const line = place.closest(".card-closed, .row") ?? place;
        // What has ended cannot be stopped, and does not start any more.
        if (update.final) for (const part of all('[data-action="stop"], [data-start]', line)) part.remove();
    }
    const story = find(`[data-live-task="${CSS.escape(update.id)}"]`);
    if (story) refreshStory(story);
    if (find("#task-rows") && !find(`#task-rows [data-task="${CSS.escape(update.id)}"]`)) refreshRows();
}

/** How many lists of waiting tasks the event stream has sent. */
let waitingEvents = 0;

/** Loads what changed while there was no connection. */
async function catchUp() {
    try {
        if (find("#cards")) {
            const before = waitingEvents;
            const page = await load("/");
            // A list that came meanwhile is newer than the page.
            if (find("#cards", page) && before === waitingEvents) {
                const ids = all("[data-card]", page).map((card) => card.dataset.card);
                // The page shows only the first cards, so open cards beyond them may still wait.
                const behind = Number(find("[data-more]", page)?.textContent ?? 0);
                setWaiting(behind > 0 ? [...new Set([...ids, ...openCards().map((card) => card.id)])] : ids);
            }
        }
        if (find("#task-rows")) await refreshRows();
        const story = find("[data-live-task]");
        if (story) await refreshStory(story);
    } catch {
        /* The connection was lost again; the next one catches up. */
    }
}

/** Updates known rows in place and adds new ones at the end. */
async function refreshRows() {
    const page = await load("/tasks");
    const rows = find("#task-rows");
    for (const fresh of all("#task-rows > [data-task]", page)) {
        const own = find(`[data-task="${CSS.escape(fresh.dataset.task)}"]`, rows);
        if (!own) rows.append(document.importNode(fresh, true));
        else find(".state", own).replaceWith(document.importNode(find(".state", fresh), true));
    }
    find("#empty").hidden = rows.children.length > 0;
}

let storyTimer = 0;
function refreshStory(story) {
    clearTimeout(storyTimer);
    storyTimer = setTimeout(async () => {
        // Not while the person is typing in it.
        if (story.contains(document.activeElement) && document.activeElement.matches("input, textarea, select")) return;
        const fresh = find("[data-live-task]", await load(location.pathname).catch(() => document));
        if (fresh && fresh !== story) {
            const hadFocus = story.contains(document.activeElement);
            story.replaceChildren(...[...fresh.childNodes].map((node) => document.importNode(node, true)));
            if (hadFocus) find("#main").focus({ preventScroll: true });
        }
    }, 120);
}
