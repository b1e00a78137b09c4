// Single-key shortcuts. No single key decides: a key moves the focus to a button, and Enter presses it.

import { wants } from "./theme.js";
import { announce, find } from "./draw.js";
import { TYPED, cardOf, cards, cardsInOrder, shownCards, typing } from "./card.js";
import { batch } from "./batch.js";

function current() {
    const focused = cards.get(document.activeElement?.closest?.("[data-card]")?.dataset.card);
    return focused && !focused.isClosed ? focused : null;
}

function move(step) {
    const open = shownCards();
    if (open.length === 0) return;
    const order = cardsInOrder();
    const here = cards.get(document.activeElement?.closest?.("[data-card]")?.dataset.card);
    const at = here ? order.indexOf(here) : step > 0 ? -1 : order.length;
    const ahead = step > 0 ? order.slice(at + 1) : order.slice(0, at).reverse();
    const next = ahead.find((card) => open.includes(card)) ?? (here && !here.isClosed ? here : open[0]);
    next.element.focus({ preventScroll: true });
    next.element.scrollIntoView({ block: "start" });
}

/** Moves the focus for a key. Of a button that got it so, only Enter is a press: the next key of a sentence may be a space. */
function focusByKey(element) {
    element.focus();
    if (!element.matches("button")) return;
    element.dataset.byKey = "";
    element.addEventListener("blur", () => delete element.dataset.byKey, { once: true });
}

/** Whether a space would press a button to which a key led. */
export function isStraySpace({ key, target }) {
    return key === " " && Boolean(target.closest?.("[data-by-key]"));
}

/** Runs `then` once the card's buttons work, if the card is still the current one. */
function whenArmed(card, then) {
    if (card.isArming)
        card.afterArming = () => {
            if (current() === card) then();
        };
    else then();
}

export const keys = {
    j() {
        move(1);
    },
    k() {
        move(-1);
    },
    a(card) {
        whenArmed(card, () => {
            // The edited request is approved where its changes are shown.
            if (card.panel("changes")?.hidden === false) return focusByKey(find("[data-approve]", card.panel("changes")));
            const typed = card.part("typed");
            const first = card.isQuestion
                ? find("[data-field] input, [data-field] textarea, [data-field] select", card.element)
                : null;
            const place =
                first ??
                (typed && typed.value.trim() !== card.word ? typed : find(".actions [data-approve]", card.element));
            focusByKey(place);
            place.scrollIntoView({ block: "nearest" });
            return undefined;
        });
    },
    d(card) {
        whenArmed(card, () => {
            if (card.isQuestion) focusByKey(find('[data-action="decline"]', card.element));
            else card.open("deny");
        });
    },
    e(card) {
        whenArmed(card, () => card.open("edit"));
    },
    r(card) {
        whenArmed(card, () => card.open("remember"));
    },
    x(card) {
        const select = card.part("select");
        if (!select || select.disabled || !card.part("select-label").hasAttribute("data-on")) return;
        select.checked = !select.checked;
        batch.refresh();
        announce(select.checked ? "selected" : "not selected");
    },
};

export function onKey(event) {
    const { target, key } = event;
    if (typing.wasCutOff && !event.ctrlKey && !event.metaKey && !event.altKey) {
        // The request into which the person was typing went away. What they still type is for no other one.
        if (key === "Escape") typing.goOn();
        return event.preventDefault();
    }
    // Holding Enter down must not press the next button that gets the focus.
    if (key === "Enter" && event.repeat && target.closest("button")) return event.preventDefault();
    if (key === "Escape") {
        const card = cardOf(target);
        if (card && !card.isClosed && card.all("form.panel").some((panel) => !panel.hidden)) {
            event.preventDefault();
            card.closePanels();
        }
        return undefined;
    }
    if (isStraySpace(event)) {
        announce("Press Enter.");
        return event.preventDefault();
    }
    const isTyping = target.closest(TYPED);
    if (key === "Enter" && !event.shiftKey && !event.isComposing && target.matches('form[data-form="deny"] textarea')) {
        event.preventDefault();
        if (!event.repeat) target.form.requestSubmit();
        return undefined;
    }
    if (key === "Enter" && !event.repeat && target.matches(".actions [data-typed]")) {
        event.preventDefault();
        cardOf(target).approve();
        return undefined;
    }
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey || event.isComposing || find("dialog[open]"))
        return undefined;
    if (!wants("keys")) return undefined;
    if (key === "?") {
        event.preventDefault();
        return find("#help")?.showModal();
    }
    if (key === "/" && find("input[type=search]")) {
        event.preventDefault();
        return find("input[type=search]").focus();
    }
    if (cards.size === 0) return undefined;
    if (key === "ArrowDown" || key === "ArrowUp") {
        // The arrow keys scroll as usual unless the whole card is in view.
        const card = current();
        if (!card || target !== card.element) return undefined;
        const { top, bottom } = card.element.getBoundingClientRect();
        if (top < 0 || bottom > innerHeight || card.isLong) return undefined;
        event.preventDefault();
        return move(key === "ArrowDown" ? 1 : -1);
    }
    if (!Object.hasOwn(keys, key) || (event.repeat && key !== "j" && key !== "k")) return undefined;
    event.preventDefault();
    if (key === "j" || key === "k") return keys[key]();
    if (cardOf(target)?.isClosed) return announce("This request no longer waits. Choose another, with j and k.");
    const card = current() ?? (shownCards().length === 1 ? shownCards()[0] : null);
    if (!card) return announce("Choose a request first, with j and k.");
    if (current() !== card) card.element.focus({ preventScroll: true });
    return keys[key](card);
}
