// Approves a request and makes a grant from it, field by field.

import { all, find } from "./draw.js";
import { RawJson, describe, send } from "./send.js";

function grantOf(card) {
    const form = card.panel("remember");
    const fields = all("[data-grant]", form).map((field) => {
        const picked = find("input[type=radio]:checked", field);
        const value = find(`[data-value="${picked.value}"]`, picked.closest(".grant-choice"));
        return { pointer: field.dataset.grant, how: picked.value, value: value ? value.value.trim() : null };
    });
    const uses = find("[data-uses]", form).value.trim();
    return {
        id: card.id,
        digest: card.digest,
        fields,
        expires_in: find("[data-expires]", form).value,
        most_uses: uses === "" ? null : new RawJson(uses),
        typed: (find("[data-word-typed]", form).value.trim() || card.part("typed")?.value.trim()) ?? null,
    };
}

/** Shows whether the chosen grant needs the name typed, and how many earlier requests it would have matched. */
export function previewGrant(card) {
    const form = card.panel("remember");
    // At once, without the server, which also knows what a folder covers.
    const box = find("[data-word-box]", form);
    box.hidden = find("[data-needs-word]:checked", form) === null;
    clearTimeout(card.previewTimer);
    card.previewTimer = setTimeout(async () => {
        const place = find("[data-would-match]", form);
        try {
            const { matched, of, needs_word: needsWord } = await send("/grants/preview", grantOf(card));
            box.hidden = !needsWord;
            place.textContent =
                of === 0
                    ? "There were no earlier requests to compare with."
                    : `It would have let ${matched} of the last ${of} requests run without asking you.`;
        } catch (problem) {
            place.textContent = describe(problem);
        }
    }, 200);
}

export function remember(card) {
    const form = card.panel("remember");
    const uses = find("[data-uses]", form);
    const word = find("[data-word-typed]", form);
    const wordNeeded = card.element.dataset.grantWord;
    if (uses.value.trim() !== "" && !/^[1-9]\d{0,8}$/.test(uses.value.trim())) {
        uses.focus();
        return card.showTrouble("Enter a whole number of times, or leave it empty for no limit.");
    }
    if (!find("[data-word-box]", form).hidden && word.value.trim() !== wordNeeded) {
        word.focus();
        return card.showTrouble(`Type ${wordNeeded} to allow this much.`);
    }
    if (!card.mayApprove()) return undefined;
    return card.decide("/grants", grantOf(card), (answer) => card.approved("approved and remembered", answer));
}
