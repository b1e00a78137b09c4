// One waiting request: when it can be decided, and how it was decided.

import { FINAL, STATE_ICONS, all, announce, build, find, icon, stateElements } from "./draw.js";
import { Problem, describe, load, send } from "./send.js";
import { formInput, showProblems } from "./form.js";
import { isEditing } from "./edit.js";
import { previewGrant } from "./remember.js";
import { showEmptyState, loadMore } from "./waiting.js";
import { batch } from "./batch.js";
import { stopButton } from "./tasks.js";

/**
 * How long a card's buttons do nothing after it has appeared or moved, in milliseconds. Longer than a double click, so
 * that a click aimed at something else decides nothing.
 */
export const ARMING_MS = 800;

/** Where letters are text and no shortcuts. */
export const TYPED = "input:not([type=checkbox]):not([type=radio]), textarea, select";

/** Whether a request went away while the person was typing into it, until they press Escape or point at something. */
export const typing = {
    wasCutOff: false,
    cutOff(card) {
        typing.wasCutOff = true;
        card.part("outcome").append(build("span", { "data-cut-off": "" }, "You were typing: press Esc to go on."));
    },
    goOn() {
        typing.wasCutOff = false;
        for (const words of all("[data-cut-off]")) words.remove();
    },
};

/** Every card on the page, by task id. */
export const cards = new Map();
/** The last update that the event stream sent about each task. */
export const lastUpdates = new Map();
/** All cards, in the order of the page. */
export const cardsInOrder = () =>
    all("#cards > [data-card]")
        .map((element) => cards.get(element.dataset.card))
        .filter(Boolean);
export const openCards = () => cardsInOrder().filter((card) => !card.isClosed);
/** The open cards that the filter shows. */
export const shownCards = () => openCards().filter((card) => !card.element.hidden);

const endSeen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        const card = cards.get(entry.target.closest("[data-card]")?.dataset.card);
        card?.markSeen();
    }
});

export class Card {
    constructor(element) {
        this.element = element;
        this.id = element.dataset.card;
        this.digest = element.dataset.digest;
        this.tool = element.dataset.tool;
        /** Which others can be decided together with it: those of its script, or of its subtool. */
        this.group = element.dataset.script ?? element.dataset.tool;
        this.isOfScript = "script" in element.dataset;
        this.word = element.dataset.word ?? null;
        this.isDangerous = "danger" in element.dataset;
        this.isLong = "long" in element.dataset;
        this.isQuestion = element.dataset.kind === "question";
        this.isClosed = false;
        this.isDeciding = false;
        this.isArming = false;
        this.isSeen = false;
        /** Whether the task stopped waiting without a decision in this tab. */
        this.isGone = false;
        /** The edited input, its digest and the word to type, after the executor has checked them. */
        this.edited = null;
        /** When the approved task starts, if it is held so that a person can still stop it. */
        this.startsAt = null;
        /** The button that opened the current panel; it gets the focus back. */
        this.trigger = null;
        /** What a key asked for while the card was arming. */
        this.afterArming = null;
        this.armTimer = 0;
        this.previewTimer = 0;
        cards.set(this.id, this);
        const evidence = this.part("evidence");
        if (this.isLong) {
            this.element.style.setProperty("--preview-lines", this.element.dataset.long);
            evidence.addEventListener(
                "scroll",
                () => {
                    const read = (100 * (evidence.scrollTop + evidence.clientHeight)) / evidence.scrollHeight;
                    const bar = this.part("read");
                    bar.value = Math.max(bar.value, read);
                },
                { passive: true },
            );
        }
        this.arm();
    }

    part(name) {
        return find(`[data-${name}]`, this.element);
    }
    all(selector) {
        return all(selector, this.element);
    }
    panel(name) {
        return find(`form[data-form="${name}"]`, this.element);
    }

    /** Disables the buttons and enables them after `ARMING_MS`: a press may be aimed at what was here before. */
    arm() {
        if (this.isClosed) return;
        clearTimeout(this.armTimer);
        this.isArming = true;
        // Do not take the focus away from a person who is typing here; each button checks `isArming` as well.
        this.part("actions").inert = !this.part("actions").contains(document.activeElement);
        // The forced layout restarts the animation.
        delete this.element.dataset.arming;
        void this.element.offsetWidth;
        this.element.dataset.arming = "";
        this.refresh();
        if (!this.isSeen) {
            // Observe again: an end that came into view while the tab was hidden did not count.
            endSeen.unobserve(this.part("end"));
            endSeen.observe(this.part("end"));
        }
        // In a hidden tab the time starts when the tab is shown.
        if (document.hidden) return;
        this.armTimer = setTimeout(() => {
            this.isArming = false;
            delete this.element.dataset.arming;
            if (this.isClosed) return;
            this.part("actions").inert = false;
            this.refresh();
            this.afterArming?.();
            this.afterArming = null;
        }, ARMING_MS);
    }

    markSeen() {
        if (document.hidden) return;
        this.isSeen = true;
        endSeen.unobserve(this.part("end"));
        const bar = this.part("read");
        if (bar) bar.value = 100;
        this.refresh();
        if (this.isLong) announce("Read to the end.");
    }

    /** Scrolls to the end of a long input. What comes into view gets its true height then, so more than once. */
    showEnd(times = 5) {
        const evidence = this.part("evidence");
        evidence.scrollTop = evidence.scrollHeight;
        if (times > 1 && !this.isClosed) requestAnimationFrame(() => this.showEnd(times - 1));
        else evidence.focus({ preventScroll: true });
    }

    /** Why this card cannot be approved yet, as a sentence, or null. */
    obstacle(isOfEdited = false) {
        const verb = this.isQuestion ? "answer" : "approve";
        if (this.isArming) return "One moment.";
        if (!this.isSeen) return this.isLong ? `Read to the end to ${verb}.` : `Look at the whole request to ${verb}.`;
        if (!isOfEdited && isEditing(this)) {
            return "You changed this request. Continue in Edit, or discard your changes there.";
        }
        const typed = this.part(isOfEdited ? "edited-typed" : "typed");
        const word = isOfEdited ? (this.edited?.word ?? null) : this.word;
        if (word !== null && typed && typed.value.trim() !== word) return `Type ${word} to approve.`;
        return null;
    }

    refresh() {
        if (this.isClosed) return;
        const obstacle = this.obstacle();
        const ofEdited = this.obstacle(true);
        const status = this.part("status");
        const words = (this.panel("changes")?.hidden === false ? ofEdited : obstacle) ?? status.dataset.ready;
        if (status.textContent !== words) status.textContent = words;
        status.toggleAttribute("data-blocked", words !== status.dataset.ready && !this.isArming);
        delete status.dataset.nudge;
        for (const button of this.all("[data-approve]")) {
            const own = button.closest('form[data-form="changes"]') ? ofEdited : obstacle;
            button.setAttribute("aria-disabled", String(own !== null));
        }
        const select = this.part("select");
        if (select) {
            select.disabled = obstacle !== null;
            if (obstacle !== null) select.checked = false;
        }
        batch.refresh();
    }

    /** Whether the card can be approved; if not, points the person to what is missing. */
    mayApprove(isOfEdited = false) {
        if (this.isClosed || this.isDeciding) return false;
        const obstacle = this.obstacle(isOfEdited);
        if (obstacle === null) return true;
        this.part("status").dataset.nudge = "";
        announce(obstacle);
        const typed = this.part(isOfEdited ? "edited-typed" : "typed");
        if (this.isSeen && !this.isArming && typed) typed.focus();
        return false;
    }

    /** Sends one decision; closes the card, or shows what went wrong. Only one decision is under way at a time. */
    async decide(path, body, close) {
        if (this.isClosed || this.isDeciding || this.isArming) return;
        this.isDeciding = true;
        this.element.dataset.deciding = "";
        this.element.setAttribute("aria-busy", "true");
        this.showTrouble("");
        try {
            const answer = await send(path, body);
            this.isDeciding = false;
            close(answer);
        } catch (problem) {
            if (!(problem instanceof Problem)) throw problem;
            this.isDeciding = false;
            this.handleProblem(problem);
        } finally {
            delete this.element.dataset.deciding;
            this.element.removeAttribute("aria-busy");
            // The stream may have reported meanwhile that the task no longer waits.
            if (this.isGone && !this.isDeciding) this.markGone();
        }
    }

    handleProblem(problem) {
        const { decided } = problem.answer;
        if (problem.status === 409 && decided) {
            this.close(/^(approved|answered)/.test(decided) ? "check" : "ban", decided);
        } else if (problem.status === 409 || problem.status === 410) this.renew();
        else if (problem.answer.problems && this.isQuestion)
            this.showTrouble(showProblems(this.panel("answer"), problem.answer.problems).join(" "));
        else this.showTrouble(describe(problem));
    }

    showTrouble(words) {
        this.part("trouble").textContent = words;
    }

    /** The request is no longer what was shown: loads it again, as not yet read. */
    async renew() {
        try {
            const fresh = await cardFrom(`/card/${this.id}`);
            if (fresh === null) return this.markGone();
            cards.delete(this.id);
            endSeen.unobserve(this.part("end"));
            this.element.replaceWith(fresh);
            const card = new Card(fresh);
            card.showTrouble(
                "This request changed while you were looking at it. Nothing was decided. Please read it again.",
            );
            fresh.focus();
        } catch {
            this.showTrouble(
                "This request changed while you were looking at it, and could not be loaded again. Reload the page.",
            );
        }
        return undefined;
    }

    approve() {
        if (!this.mayApprove()) return;
        this.decide("/decide", this.decision("approve"), (answer) => this.approved("approved", answer));
    }

    decision(verdict, reason = null) {
        const typed = this.part("typed")?.value.trim() || null;
        return { decisions: [{ id: this.id, digest: this.digest }], verdict, reason, typed };
    }

    approved(words, answer) {
        const decided = answer.decided?.find((one) => one.id === this.id);
        this.startsAt = decided?.starts_at ?? null;
        this.close("check", words, decided?.state ?? answer.state ?? "queued");
    }

    deny() {
        const reason = this.note("deny");
        this.decide("/decide", this.decision("deny", reason), () => this.close("ban", "denied by you", "denied"));
    }

    /** Denies everything that the session of this card has waiting, with one reason. */
    denySession() {
        const reason = this.note("deny");
        this.decide("/deny-session", { id: this.id, reason }, ({ decided }) => {
            for (const { id } of decided) cards.get(id)?.close("ban", "denied by you", "denied");
            const count = decided.length;
            announce(count === 1 ? "1 request denied" : `${count} requests denied`);
        });
    }

    note(panel) {
        return find("[data-note]", this.panel(panel)).value.trim() || null;
    }

    answer(action) {
        if (action === "accept" && !this.mayApprove()) return;
        const content = action === "accept" ? formInput(this.panel("answer")) : null;
        if (action === "accept" && content === null) return;
        const words = { accept: "answered", decline: "declined by you", cancel: "cancelled by you" }[action];
        const body = { id: this.id, digest: this.digest, action, content };
        this.decide("/answer", body, () => this.close(action === "accept" ? "check" : "ban", words));
    }

    /** Opens one panel and closes the others. */
    open(name) {
        if (this.isClosed || this.isArming) return;
        const panel = this.panel(name);
        if (!panel) return;
        this.closePanels(false);
        this.trigger = find(`[data-opens="${name}"][aria-controls]`, this.element) ?? this.trigger;
        panel.hidden = false;
        this.refresh();
        this.trigger?.setAttribute("aria-expanded", "true");
        if (name === "remember") previewGrant(this);
        const first = find("[data-first]", panel) ?? find("input:not([type=hidden]), textarea, select", panel);
        first?.focus({ preventScroll: true });
        panel.scrollIntoView({ block: "nearest" });
    }

    closePanels(returnFocus = true) {
        for (const panel of this.all("form.panel")) panel.hidden = true;
        for (const button of this.all("[aria-expanded]")) button.setAttribute("aria-expanded", "false");
        this.refresh();
        if (returnFocus) (this.trigger ?? this.element).focus();
    }

    /** The task no longer waits, without a decision in this tab. The card keeps its place, so that nothing moves. */
    markGone() {
        this.isGone = true;
        if (this.isDeciding || this.isClosed) return;
        this.element.classList.add("kept");
        const update = lastUpdates.get(this.id);
        if (update) this.close(STATE_ICONS[update.state] ?? "ban", "no longer waits", update.state, update.state_words);
        else this.close("ban", "no longer waits: decided elsewhere or withdrawn");
    }

    /** Removes the faded contents of a card that kept its place. */
    removeKept() {
        if (!this.element.classList.contains("kept")) return;
        this.element.classList.remove("kept");
        find(".card-open", this.element).remove();
    }

    /** Folds the card into one line, in its place. */
    close(picture, words, state = null, stateWords = null) {
        if (this.isClosed) return;
        const hadFocus = this.element.contains(document.activeElement);
        const wasTyping = hadFocus && document.activeElement.matches(TYPED);
        const isKept = this.element.classList.contains("kept");
        this.isClosed = true;
        clearTimeout(this.armTimer);
        clearTimeout(this.previewTimer);
        const outcome = this.part("outcome");
        const side = build("span", { class: "closed-side" });
        const status = build("span", { "data-task": this.id });
        const update = lastUpdates.get(this.id);
        // A task that starts later can still be stopped.
        if (this.startsAt) {
            const left = { class: "tabular", datetime: this.startsAt, "data-until": "", "data-held": this.id };
            const at = build("time", { datetime: this.startsAt, "data-at": "" });
            side.append(build("span", { "data-start": "" }, "starts ", at, " ", build("time", left)));
        }
        const isNewer = update && update.state !== "awaiting_confirmation";
        const own = state ? { state, state_words: stateWords ?? state.replaceAll("_", " ") } : null;
        const shown = isNewer ? update : own;
        // A denied card already says so in its words.
        if (shown && (isKept || shown.state !== "denied")) status.append(...stateElements(shown));
        side.append(status);
        if (state !== null && !FINAL.has(shown.state)) side.append(stopButton(this.id, this.tool));
        side.append(build("a", { href: `/task/${this.id}` }, "Details"));
        outcome.replaceChildren(
            icon(picture),
            build("span", { class: "closed-tool" }, this.tool),
            build("span", {}, words),
            side,
        );
        const open = find(".card-open", this.element);
        if (isKept) open.inert = true;
        else open.remove();
        outcome.hidden = false;
        delete this.element.dataset.arming;
        this.element.classList.add("closed");
        this.element.removeAttribute("aria-labelledby");
        this.element.setAttribute("aria-label", `${this.tool}: ${words}`);
        announce(`${this.tool}: ${words}`);

        const order = cardsInOrder();
        const after = order.slice(order.indexOf(this) + 1).find((card) => !card.isClosed);
        // Only the person's own decision leads on to another request: what they type is meant for this one.
        const next = isKept ? this : (after ?? openCards()[0] ?? this);
        if (hadFocus) next.element.focus({ preventScroll: true });
        if (isKept && wasTyping) typing.cutOff(this);
        if (!isKept) {
            // The person's own decision moves the page anyway, so the kept places can be given up as well.
            for (const card of order) card.removeKept();
            for (const card of openCards()) card.arm();
            this.element.scrollIntoView({ block: "nearest" });
        }
        batch.refresh();
        showEmptyState();
        loadMore();
    }
}

export const cardOf = (element) => cards.get(element.closest("[data-card]")?.dataset.card);

export async function cardFrom(address) {
    try {
        const fragment = await load(address);
        const element = find("[data-card]", fragment);
        return element ? document.importNode(element, true) : null;
    } catch (problem) {
        if (problem.status === 404 || problem.status === 410) return null;
        throw problem;
    }
}
