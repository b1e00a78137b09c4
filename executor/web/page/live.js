// What the executor tells while the page is open.
//
// One stream for all tabs of the browser, since a browser opens only six connections to one place.

import { all, find, showBanner, stateBadge } from "./draw.js";
import { isSignedOut, load } from "./send.js";
import { lastSaid } from "./card.js";
import { showCounts, waitingNow } from "./waiting.js";

/** The pauses before the connection is tried again grow up to this, in milliseconds. */
const LONGEST_PAUSE = 15_000;

export const live = {
    failures: 0,
    queue: null,
    source: null,
    channel: null,
    retry: 0,
    worry: null,

    start() {
        live.channel = new BroadcastChannel("events");
        live.channel.onmessage = (message) => live.receive(message.data);
        // A new tab takes over at once if it is looked at: the one before may be signed out, or asleep.
        if (navigator.locks) live.lead(!document.hidden);
        else live.connect();
        document.addEventListener("visibilitychange", () => {
            // A hidden tab is slowed down by its browser: the one that is looked at takes over.
            if (!document.hidden && !live.source && navigator.locks) live.lead(true);
            // Somebody signed in again in another tab.
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
                // Another tab took over; we are next when it closes. Or it was we who left the queue.
                if (queue.signal.aborted) return;
                live.disconnect();
                live.lead(false);
            });
    },

    tell(message) {
        live.receive(message);
        live.channel.postMessage(message);
    },

    connect() {
        live.disconnect();
        if (isSignedOut) return;
        const source = new EventSource("/events");
        live.source = source;
        source.onopen = () => {
            live.failures = 0;
            live.tell({ kind: "open" });
        };
        for (const kind of ["waiting", "task"]) {
            source.addEventListener(kind, (event) => live.tell({ kind, data: JSON.parse(event.data) }));
        }
        source.onerror = () => {
            source.close();
            live.failures += 1;
            live.tell({ kind: "lost" });
            const pause = Math.min(LONGEST_PAUSE, 500 * 2 ** Math.min(live.failures - 1, 6));
            live.retry = setTimeout(live.connect, pause * (0.8 + 0.4 * Math.random()));
        };
    },

    disconnect() {
        clearTimeout(live.retry);
        live.source?.close();
        live.source = null;
    },

    receive({ kind, data }) {
        if (kind === "open") {
            clearTimeout(live.worry);
            live.worry = null;
            if (!isSignedOut) showBanner(null);
            catchUp();
        } else if (kind === "lost") {
            // A restart takes a moment; nobody need be told of that.
            live.worry ??= setTimeout(() => {
                if (!isSignedOut) showBanner("No connection to the executor. Trying again.");
            }, 1200);
            // The stream does not say why: a page that answers 401 does.
            load("/").catch(() => {});
        } else if (kind === "waiting") {
            if (find("#cards")) waitingNow(data.ids);
            showCounts(data.counts);
        } else if (kind === "task") {
            taskSaid(data);
        }
    },
};

function taskSaid(said) {
    lastSaid.set(said.id, said);
    if (lastSaid.size > 2000) lastSaid.delete(lastSaid.keys().next().value);
    for (const place of all(`[data-task="${CSS.escape(said.id)}"]`)) {
        const badge = find(".state", place);
        if (badge) badge.replaceWith(stateBadge(said.state, said.state_words));
        else if (place.closest(".closed") && said.state !== "denied")
            place.append(stateBadge(said.state, said.state_words));
        const line = place.closest(".card-closed, .row") ?? place;
        if (said.final) for (const button of all('[data-action="stop"]', line)) button.remove();
    }
    const story = find(`[data-live-task="${CSS.escape(said.id)}"]`);
    if (story) refreshStory(story);
    if (find("#task-rows") && !find(`#task-rows [data-task="${CSS.escape(said.id)}"]`)) refreshRows();
}

/** What happened while nobody told us. */
async function catchUp() {
    try {
        if (find("#cards")) {
            const page = await load("/");
            if (find("#cards", page)) {
                const ids = all("[data-card]", page).map((card) => card.dataset.card);
                // The page shows the first ones only; a card beyond them is not gone.
                const behind = Number(find("[data-more]", page)?.textContent ?? 0);
                waitingNow(behind > 0 ? [...new Set([...ids, ...openCards().map((card) => card.id)])] : ids);
            }
        }
        if (find("#task-rows")) await refreshRows();
        const story = find("[data-live-task]");
        if (story) await refreshStory(story);
    } catch {
        /* Gone again: the next connection catches up. */
    }
}

/** Rows keep their places: known ones change, new ones come at the end. */
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
        // Not while somebody writes in it.
        if (story.contains(document.activeElement) && document.activeElement.matches("input, textarea, select")) return;
        const fresh = find("[data-live-task]", await load(location.pathname).catch(() => document));
        if (fresh && fresh !== story) {
            const hadFocus = story.contains(document.activeElement);
            story.replaceChildren(...[...fresh.childNodes].map((node) => document.importNode(node, true)));
            if (hadFocus) find("#main").focus({ preventScroll: true });
        }
    }, 120);
}
