// Approve and remember: a grant, field by field.

import { all, find } from "./draw.js";
import { Exact, inWords, send } from "./send.js";

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
        most_uses: uses === "" ? null : new Exact(uses),
        typed: (find("[data-word-typed]", form).value.trim() || card.part("typed")?.value.trim()) ?? null,
    };
}

/** The grant as it is chosen now: what it needs, and what it would have let through. */
export function weighGrant(card) {
    const form = card.panel("remember");
    const wide = find("[data-needs-word]:checked", form) !== null;
    find("[data-word-box]", form).hidden = !wide;
    clearTimeout(card.weighing);
    card.weighing = setTimeout(async () => {
        const place = find("[data-would-match]", form);
        try {
            const { matched, of } = await send("/grants/preview", grantOf(card));
            place.textContent =
                of === 0
                    ? "There were no earlier requests to compare with."
                    : `It would have let ${matched} of the last ${of} requests run by themselves.`;
        } catch (problem) {
            place.textContent = inWords(problem);
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
        return card.tell("How many times is a whole number, or empty for no limit.");
    }
    if (!find("[data-word-box]", form).hidden && word.value.trim() !== wordNeeded) {
        word.focus();
        return card.tell(`Type ${wordNeeded} to allow something this wide.`);
    }
    if (!card.mayApprove()) return undefined;
    return card.decide("/grants", grantOf(card), (answer) => card.approved("approved and remembered", answer));
}
