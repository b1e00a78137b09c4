// The list of what waits: new cards come one after the other, at the end.

import { all, announce, find } from "./draw.js";
import { Card, cardFrom, cards, openCards } from "./card.js";
import { batch } from "./batch.js";
import { isSignedOut } from "./send.js";

/** How many open cards are on the page at most; further ones come as these are decided. */
const MOST_CARDS = 50;

/** After this a card that could not be had is asked for again, in milliseconds. */
const AGAIN = 2_000;

/** What is still to be shown, and all that waits. */
let wanted = [];
let still = new Set();
let isTaking = false;
let again = null;

export function waitingNow(ids) {
    still = new Set(ids);
    for (const card of openCards()) if (!still.has(card.id)) card.gone();
    wanted = ids.filter((id) => !cards.has(id));
    takeMore();
}

export async function takeMore() {
    if (isTaking || !find("#cards")) return;
    isTaking = true;
    try {
        while (wanted.length > 0 && openCards().length < MOST_CARDS) {
            const id = wanted[0];
            const element = cards.has(id) ? null : await cardFrom(`/card/${id}`);
            wanted = wanted.filter((other) => other !== id);
            if (element === null || cards.has(id) || !still.has(id)) continue;
            append(element);
        }
    } catch {
        // The executor was busy, or is gone. Its stream may be whole, and then nobody else would ask.
        again ??= setTimeout(() => {
            again = null;
            if (!isSignedOut) takeMore();
        }, AGAIN);
    } finally {
        isTaking = false;
        showMood();
        if (counts) showCounts(counts);
    }
}

function append(element) {
    element.classList.add("new");
    find("#cards").append(element);
    const card = new Card(element);
    batch.offer();
    showMood();
    announce(`${card.isQuestion ? "A question waits" : "A new request waits"}: ${card.tool}`);
    if (element.getBoundingClientRect().top > innerHeight - 120) find("#below").hidden = false;
}

/** Whether anything is there at all. */
export function showMood() {
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
        const coming = Math.min(wanted.length, Math.max(0, MOST_CARDS - open));
        const behind = next.waiting - open - coming;
        more.hidden = behind <= 0;
        find("[data-more]", more).textContent = String(behind);
    }
}
