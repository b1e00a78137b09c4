// Shows only the waiting requests that contain a text. What is filtered out still waits; it is not decided by anything.

import { find } from "./draw.js";
import { openCards } from "./card.js";

/** The fewest cards that are worth filtering. */
const MIN_CARDS = 2;

function contains(card, words) {
    const text = card.element.textContent.toLowerCase();
    return words.every((word) => text.includes(word));
}

/** Applies the filter to all cards; called whenever the text or the cards change. */
export function filterCards() {
    const box = find("#filter");
    if (!box) return;
    const words = find("#filter-text").value.toLowerCase().split(/\s+/).filter(Boolean);
    const open = openCards();
    // Its place stays, so that nothing moves under the pointer.
    box.toggleAttribute("data-off", open.length < MIN_CARDS && words.length === 0);
    let shown = 0;
    for (const card of open) {
        const matches = words.length === 0 || contains(card, words);
        if (matches) shown += 1;
        if (card.element.hidden !== !matches) {
            card.element.hidden = !matches;
            // It appears where another one was.
            if (matches) card.arm();
        }
    }
    find("#filter-count").textContent = words.length === 0 ? "" : `${shown} of ${open.length}`;
}
