// Several at once: only what was shown, of one subtool, all or nothing.

import { find } from "./draw.js";
import { Problem, inWords, send } from "./send.js";
import { SETTLE, openCards } from "./card.js";

export const batch = {
    ticked: () => openCards().filter((card) => card.part("tick")?.checked),

    /** A box to tick stands where there are two of a kind, and nothing destructive. */
    offer() {
        const kinds = new Map();
        for (const card of openCards()) {
            if (!card.isDangerous && !card.isQuestion) kinds.set(card.tool, (kinds.get(card.tool) ?? 0) + 1);
        }
        const [first] = batch.ticked();
        for (const card of openCards()) {
            const several = !card.isDangerous && !card.isQuestion && kinds.get(card.tool) > 1;
            const fits = !first || first.tool === card.tool;
            card.part("tick-label")?.toggleAttribute("data-on", several && fits);
            if (!several && card.part("tick")) card.part("tick").checked = false;
        }
    },

    refresh() {
        const bar = find("#batch");
        if (!bar) return;
        batch.offer();
        const ticked = batch.ticked();
        const appears = bar.hidden && ticked.length > 0;
        bar.hidden = ticked.length === 0;
        if (ticked.length === 0) return;
        find("[data-batch-count]").textContent = `${ticked.length} ticked`;
        find("[data-batch-tool]").textContent = ticked[0].tool;
        find("[data-batch-approve]").textContent =
            ticked.length === 1 ? "Approve the one ticked" : `Approve the ${ticked.length} ticked`;
        if (!appears) return;
        bar.inert = true;
        setTimeout(() => {
            bar.inert = false;
        }, SETTLE);
    },

    async decide(verdict) {
        const ticked = batch.ticked();
        const bar = find("#batch");
        if (ticked.length === 0 || bar.inert || ticked.some((card) => card.isDeciding)) return;
        if (verdict === "approve" && !ticked.every((card) => card.mayApprove())) return;
        bar.inert = true;
        for (const card of ticked) card.isDeciding = true;
        const decisions = ticked.map((card) => ({ id: card.id, digest: card.digest }));
        try {
            const answer = await send("/decide", { decisions, verdict, reason: null, typed: null });
            for (const card of ticked) {
                card.isDeciding = false;
                if (verdict === "approve") card.approved("approved with others", answer);
                else card.close("ban", "denied by you", "denied");
            }
        } catch (problem) {
            if (!(problem instanceof Problem)) throw problem;
            for (const card of ticked) {
                card.isDeciding = false;
                if (card.isLost) card.gone();
            }
            const left = ticked.find((card) => !card.isClosed);
            left?.tell(`None of the ${ticked.length} was decided. ${inWords(problem)}`);
            left?.part("trouble").scrollIntoView({ block: "nearest" });
        } finally {
            bar.inert = false;
            batch.refresh();
        }
    },

    clear() {
        for (const card of batch.ticked()) card.part("tick").checked = false;
        batch.refresh();
    },
};
