// The list of waiting requests. New cards are loaded one after the other and added at the end.

import { all, announce, find } from "./draw.js";
import { Card, cardFrom, cards, openCards } from "./card.js";
import { batch } from "./batch.js";
import { filterCards } from "./filter.js";
import { markIcon, notifyOf } from "./notice.js";
import { isSignedOut } from "./send.js";

/** The most open cards on the page; more are loaded as these are decided. */
const MAX_CARDS = 50;

/** The pause before a card that failed to load is requested again, in milliseconds. */
const RETRY_MS = 2_000;

/** The ids of cards that are still to be loaded, and of all waiting tasks. */
let pending = [];
let waiting = new Set();
let isLoading = false;
let retryTimer = null;

export function setWaiting(ids) {
    waiting = new Set(ids);
    for (const card of openCards()) if (!waiting.has(card.id)) card.markGone();
    pending = ids.filter((id) => !cards.has(id));
    loadMore();
}

export async function loadMore() {
    if (isLoading || !find("#cards")) return;
    isLoading = true;
    try {
        while (pending.length > 0 && openCards().length < MAX_CARDS) {
            const id = pending[0];
            const element = cards.has(id) ? null : await cardFrom(`/card/${id}`);
            pending = pending.filter((other) => other !== id);
            if (element === null || cards.has(id) || !waiting.has(id)) continue;
            append(element);
        }
    } catch {
        // The executor is busy or has stopped. If the stream still works, no event would trigger another attempt.
        retryTimer ??= setTimeout(() => {
            retryTimer = null;
            if (!isSignedOut) loadMore();
        }, RETRY_MS);
    } finally {
        isLoading = false;
        showEmptyState();
        if (counts) showCounts(counts);
    }
}

function append(element) {
    element.classList.add("new");
    find("#cards").append(element);
    const card = new Card(element);
    batch.offer();
    showEmptyState();
    notifyOf(card.tool, waiting.size);
    announce(`${card.isQuestion ? "A question waits" : "A new request waits"}: ${card.tool}`);
    if (element.getBoundingClientRect().top > innerHeight - 120) find("#below").hidden = false;
}

/** Shows or hides the empty state, and hides the button that leads to cards below once they are in view. */
export function showEmptyState() {
    filterCards();
    const empty = find("#empty");
    if (empty && find("#cards")) empty.hidden = cards.size > 0;
    const below = find("#below");
    if (
        below &&
        !below.hidden &&
        openCards().every((card) => card.element.getBoundingClientRect().top < innerHeight - 120)
    ) {
        below.hidden = true;
    }
}

let counts = null;
export function showCounts(next) {
    counts = next;
    markIcon(next.waiting);
    for (const place of all("[data-count]")) {
        const count = next[place.dataset.count] ?? 0;
        place.textContent = count > 999 ? "999+" : String(count);
        place.toggleAttribute("data-none", count === 0);
    }
    const title = document.title.replace(/^\(\d+\+?\) /, "");
    document.title = next.waiting > 0 ? `(${next.waiting}) ${title}` : title;
    const lead = find("[data-lead]");
    if (lead) {
        lead.textContent =
            next.waiting === 0
                ? "Nothing needs you."
                : next.waiting === 1
                  ? "One request needs your yes or no."
                  : `${next.waiting} requests need your yes or no.`;
    }
    const more = find("#more");
    if (more) {
        const open = openCards().length;
        const loading = Math.min(pending.length, Math.max(0, MAX_CARDS - open));
        const behind = next.waiting - open - loading;
        more.hidden = behind <= 0;
        find("[data-more]", more).textContent = String(behind);
    }
}
