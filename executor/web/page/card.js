// One request that waits: when it may be decided, and what became of it.

import { FINAL, STATE_ICONS, all, announce, build, find, icon, stateBadge } from "./draw.js";
import { Problem, inWords, load, send } from "./send.js";
import { formInput } from "./form.js";
import { isEditing } from "./edit.js";
import { weighGrant } from "./remember.js";
import { showMood, takeMore } from "./waiting.js";
import { batch } from "./batch.js";
import { stopButton } from "./tasks.js";

/** How long a card that has just come or moved cannot be decided, in milliseconds: longer than a double click. */
export const SETTLE = 800;

/** Every card on the page by its task's id. */
export const cards = new Map();
/** What the stream last said of a task. */
export const lastSaid = new Map();
/** All cards as they stand on the page. */
export const cardsInOrder = () =>
    all("#cards > [data-card]")
        .map((element) => cards.get(element.dataset.card))
        .filter(Boolean);
export const openCards = () => cardsInOrder().filter((card) => !card.isClosed);

const endSeen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        const card = cards.get(entry.target.closest("[data-card]")?.dataset.card);
        card?.wasSeen();
    }
});

export class Card {
    constructor(element) {
        this.element = element;
        this.id = element.dataset.card;
        this.digest = element.dataset.digest;
        this.tool = element.dataset.tool;
        this.word = element.dataset.word ?? null;
        this.isDangerous = "danger" in element.dataset;
        this.isLong = "long" in element.dataset;
        this.isQuestion = element.dataset.kind === "question";
        this.isClosed = false;
        this.isDeciding = false;
        this.isSettling = false;
        this.isSeen = false;
        /** It stopped waiting without us. */
        this.isLost = false;
        /** What the executor would run, once somebody edited it and it was checked. */
        this.edited = null;
        /** The button that opened the panel. */
        this.trigger = null;
        /** What a key asked for while the card could not be decided. */
        this.afterSettling = null;
        this.settled = 0;
        this.weighing = 0;
        cards.set(this.id, this);
        const evidence = this.part("evidence");
        if (this.isLong) {
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
        this.settle();
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

    /** For a moment nothing here can be pressed: what came or moved under a finger is not what was aimed at. */
    settle() {
        if (this.isClosed) return;
        clearTimeout(this.settled);
        this.isSettling = true;
        // Whoever writes in there goes on writing; every button asks for itself as well.
        this.part("actions").inert = !this.part("actions").contains(document.activeElement);
        delete this.element.dataset.settling;
        void this.element.offsetWidth;
        this.element.dataset.settling = "";
        this.refresh();
        if (!this.isSeen) {
            // Asks anew whether its end is in sight: while nobody looked, that did not count.
            endSeen.unobserve(this.part("end"));
            endSeen.observe(this.part("end"));
        }
        // Nobody sees it yet: the moment begins when the page is looked at.
        if (document.hidden) return;
        this.settled = setTimeout(() => {
            this.isSettling = false;
            delete this.element.dataset.settling;
            if (this.isClosed) return;
            this.part("actions").inert = false;
            this.refresh();
            this.afterSettling?.();
            this.afterSettling = null;
        }, SETTLE);
    }

    wasSeen() {
        if (document.hidden) return;
        this.isSeen = true;
        endSeen.unobserve(this.part("end"));
        const bar = this.part("read");
        if (bar) bar.value = 100;
        this.refresh();
        if (this.isLong) announce("Read to the end.");
    }

    /** Why this cannot be approved yet, in words, or null. */
    obstacle(isOfEdited = false) {
        const verb = this.isQuestion ? "answer" : "approve";
        if (this.isSettling) return "One moment.";
        if (!this.isSeen) return this.isLong ? `Read to the end to ${verb}.` : `Look at the whole request to ${verb}.`;
        if (!isOfEdited && isEditing(this)) return "You have edited this: go on with Edit, or discard it there.";
        const typed = this.part("typed");
        if (this.word !== null && typed && typed.value.trim() !== this.word) return `Type ${this.word} to approve.`;
        return null;
    }

    refresh() {
        if (this.isClosed) return;
        const obstacle = this.obstacle();
        const ofEdited = this.obstacle(true);
        const gate = this.part("gate");
        const words = (this.panel("changes")?.hidden === false ? ofEdited : obstacle) ?? gate.dataset.rest;
        if (gate.textContent !== words) gate.textContent = words;
        gate.toggleAttribute("data-shut", words !== gate.dataset.rest && !this.isSettling);
        delete gate.dataset.nudge;
        for (const button of this.all("[data-approve]")) {
            const shut = button.closest('form[data-form="changes"]') ? ofEdited : obstacle;
            button.setAttribute("aria-disabled", String(shut !== null));
        }
        const tick = this.part("tick");
        if (tick) {
            tick.disabled = obstacle !== null;
            if (obstacle !== null) tick.checked = false;
        }
        batch.refresh();
    }

    mayApprove(isOfEdited = false) {
        if (this.isClosed || this.isDeciding) return false;
        const obstacle = this.obstacle(isOfEdited);
        if (obstacle === null) return true;
        this.part("gate").dataset.nudge = "";
        announce(obstacle);
        const typed = this.part("typed");
        if (this.isSeen && !this.isSettling && typed) typed.focus();
        return false;
    }

    /** One way to decide at a time: sends it, and either closes or says what prevented it. */
    async decide(path, body, close) {
        if (this.isClosed || this.isDeciding || this.isSettling) return;
        this.isDeciding = true;
        this.element.dataset.deciding = "";
        this.element.setAttribute("aria-busy", "true");
        this.tell("");
        try {
            const answer = await send(path, body);
            this.isDeciding = false;
            close(answer);
        } catch (problem) {
            if (!(problem instanceof Problem)) throw problem;
            this.isDeciding = false;
            this.refuse(problem);
        } finally {
            delete this.element.dataset.deciding;
            this.element.removeAttribute("aria-busy");
            // What the stream said of it meanwhile.
            if (this.isLost && !this.isDeciding) this.gone();
        }
    }

    refuse(problem) {
        const { decided } = problem.answer;
        if (problem.status === 409 && decided) this.close(/^(approved|answered)/.test(decided) ? "check" : "ban", decided);
        else if (problem.status === 409 || problem.status === 410) this.renew();
        else this.tell(inWords(problem));
    }

    tell(words) {
        this.part("trouble").textContent = words;
    }

    /** The request is no longer what was shown: shows it as it is now, unread. */
    async renew() {
        try {
            const fresh = await cardFrom(`/card/${this.id}`);
            if (fresh === null) return this.gone();
            cards.delete(this.id);
            endSeen.unobserve(this.part("end"));
            this.element.replaceWith(fresh);
            const card = new Card(fresh);
            card.tell("This request changed while you looked. Nothing was decided; please read it again.");
            fresh.focus();
        } catch {
            this.tell("This request changed while you looked, and could not be loaded again. Reload the page.");
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
        const state = answer.decided?.find((one) => one.id === this.id)?.state ?? answer.state ?? "queued";
        this.close("check", words, state);
    }

    deny() {
        const reason = this.note("deny");
        this.decide("/decide", this.decision("deny", reason), () => this.close("ban", "denied by you", "denied"));
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

    /** Opens one panel and closes the others; what opened it gets the focus back. */
    open(name) {
        if (this.isClosed || this.isSettling) return;
        const panel = this.panel(name);
        if (!panel) return;
        this.shut(false);
        this.trigger = find(`[data-opens="${name}"][aria-controls]`, this.element) ?? this.trigger;
        panel.hidden = false;
        this.refresh();
        this.trigger?.setAttribute("aria-expanded", "true");
        if (name === "remember") weighGrant(this);
        const first = find("[data-first]", panel) ?? find("input:not([type=hidden]), textarea, select", panel);
        first?.focus({ preventScroll: true });
        panel.scrollIntoView({ block: "nearest" });
    }

    shut(focusBack = true) {
        for (const panel of this.all("form.panel")) panel.hidden = true;
        for (const button of this.all("[aria-expanded]")) button.setAttribute("aria-expanded", "false");
        this.refresh();
        if (focusBack) (this.trigger ?? this.element).focus();
    }

    /** It no longer waits, and not because of what was pressed here: its place stays, so that nothing moves. */
    gone() {
        this.isLost = true;
        if (this.isDeciding || this.isClosed) return;
        this.element.classList.add("kept");
        const said = lastSaid.get(this.id);
        if (said) this.close(STATE_ICONS[said.state] ?? "ban", "no longer waits", said.state, said.state_words);
        else this.close("ban", "no longer waits: decided elsewhere or withdrawn");
    }

    letGo() {
        if (!this.element.classList.contains("kept")) return;
        this.element.classList.remove("kept");
        find(".card-open", this.element).remove();
    }

    /** Folds the card into one quiet line, in its place. */
    close(picture, words, state = null, stateWords = null) {
        if (this.isClosed) return;
        const hadFocus = this.element.contains(document.activeElement);
        this.isClosed = true;
        clearTimeout(this.settled);
        clearTimeout(this.weighing);
        const outcome = this.part("outcome");
        const side = build("span", { class: "closed-side" });
        const status = build("span", { "data-task": this.id });
        const said = lastSaid.get(this.id);
        const isNews = said && said.state !== "awaiting_confirmation";
        const shown = isNews ? said : state ? { state, state_words: stateWords ?? state.replaceAll("_", " ") } : null;
        // Who denied it knows that it is denied.
        if (shown && shown.state !== "denied") status.append(stateBadge(shown.state, shown.state_words));
        side.append(status);
        if (state !== null && !FINAL.has(shown.state)) side.append(stopButton(this.id, this.tool));
        side.append(build("a", { href: `/task/${this.id}` }, "Details"));
        outcome.replaceChildren(
            icon(picture),
            build("span", { class: "closed-tool" }, this.tool),
            build("span", {}, words),
            side,
        );
        const isKept = this.element.classList.contains("kept");
        const open = find(".card-open", this.element);
        if (isKept) open.inert = true;
        else open.remove();
        outcome.hidden = false;
        delete this.element.dataset.settling;
        this.element.classList.add("closed");
        this.element.removeAttribute("aria-labelledby");
        this.element.setAttribute("aria-label", `${this.tool}: ${words}`);
        announce(`${this.tool}: ${words}`);

        const order = cardsInOrder();
        const after = order.slice(order.indexOf(this) + 1).find((card) => !card.isClosed);
        if (hadFocus) (after ?? openCards()[0] ?? this).element.focus({ preventScroll: true });
        if (!isKept) {
            // Here a person made things move; the places that were kept can go, too.
            for (const card of order) card.letGo();
            for (const card of openCards()) card.settle();
            this.element.scrollIntoView({ block: "nearest" });
        }
        batch.refresh();
        showMood();
        takeMore();
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
