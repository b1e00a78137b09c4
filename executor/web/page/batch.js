// Decides several selected requests at once: only requests of one subtool or of one script, and all of them or none.

import { find } from "./draw.js";
import { Problem, describe, send } from "./send.js";
import { ARMING_MS, openCards, shownCards } from "./card.js";

export const batch = {
    selected: () => shownCards().filter((card) => card.part("select")?.checked),

    /** Shows a checkbox on each card whose subtool or script has another open card, unless it is destructive or a question. */
    offer() {
        const kinds = new Map();
        for (const card of shownCards()) {
            if (!card.isDangerous && !card.isQuestion) kinds.set(card.group, (kinds.get(card.group) ?? 0) + 1);
        }
        const [first] = batch.selected();
        for (const card of openCards()) {
            const several = !card.isDangerous && !card.isQuestion && kinds.get(card.group) > 1;
            const fits = !first || first.group === card.group;
            card.part("select-label")?.toggleAttribute("data-on", several && fits);
            if (!several && card.part("select")) card.part("select").checked = false;
        }
    },

    refresh() {
        const bar = find("#batch");
        if (!bar) return;
        batch.offer();
        const selected = batch.selected();
        const appears = bar.hidden && selected.length > 0;
        bar.hidden = selected.length === 0;
        if (selected.length === 0) return;
        find("[data-batch-count]").textContent = `${selected.length} selected`;
        find("[data-batch-tool]").textContent = selected[0].isOfScript ? `the script …${selected[0].group.slice(-6)}` : selected[0].tool;
        find("[data-batch-approve]").textContent =
            selected.length === 1 ? "Approve the selected one" : `Approve the ${selected.length} selected`;
        if (!appears) return;
        bar.inert = true;
        setTimeout(() => {
            bar.inert = false;
        }, ARMING_MS);
    },

    async decide(verdict) {
        const selected = batch.selected();
        const bar = find("#batch");
        if (selected.length === 0 || bar.inert || selected.some((card) => card.isDeciding)) return;
        if (verdict === "approve" && !selected.every((card) => card.mayApprove())) return;
        bar.inert = true;
        for (const card of selected) card.isDeciding = true;
        const decisions = selected.map((card) => ({ id: card.id, digest: card.digest }));
        try {
            const answer = await send("/decide", { decisions, verdict, reason: null, typed: null });
            for (const card of selected) {
                card.isDeciding = false;
                if (verdict === "approve") card.approved("approved together with others", answer);
                else card.close("ban", "denied by you", "denied");
            }
        } catch (problem) {
            if (!(problem instanceof Problem)) throw problem;
            for (const card of selected) {
                card.isDeciding = false;
                if (card.isGone) card.markGone();
            }
            const open = selected.find((card) => !card.isClosed);
            open?.showTrouble(`None of the ${selected.length} was decided. ${describe(problem)}`);
            open?.part("trouble").scrollIntoView({ block: "nearest" });
        } finally {
            bar.inert = false;
            batch.refresh();
        }
    },

    clear() {
        for (const card of batch.selected()) card.part("select").checked = false;
        batch.refresh();
    },
};
