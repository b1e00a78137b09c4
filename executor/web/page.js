// The entry script of every page. It connects clicks, keys and forms to the modules in page/, which show what the
// server rendered and send what a person decided. It decides nothing by itself.

import { choose, showPreferences, switchTheme } from "./page/theme.js";
import { all, announce, copyExactly, find } from "./page/draw.js";
import { Card, cardOf, openCards, typing } from "./page/card.js";
import { approveEdited, checkEdit } from "./page/edit.js";
import { previewGrant, remember } from "./page/remember.js";
import { showCounts, showEmptyState } from "./page/waiting.js";
import { batch } from "./page/batch.js";
import { filterCards } from "./page/filter.js";
import { live, showNewSession, unansweredSession } from "./page/live.js";
import { refreshTimes } from "./page/time.js";
import { isStraySpace, onKey } from "./page/keyboard.js";
import { act, saveHistory, search, resolveTask, tryIt } from "./page/tasks.js";
import { hasLink, login, openView } from "./page/login.js";
import { isSignedOut } from "./page/send.js";
import { enrolKey } from "./page/keys.js";

const actions = {
    theme: switchTheme,
    help() {
        find("#help").showModal();
    },
    logout(button) {
        act(button, "/logout", {}, () => location.replace("/"));
    },
    approve(button) {
        cardOf(button).approve();
    },
    decline(button) {
        cardOf(button).answer("decline");
    },
    dismiss(button) {
        cardOf(button).answer("cancel");
    },
    open(button) {
        const card = cardOf(button);
        if (button.getAttribute("aria-expanded") === "true") card.closePanels();
        else card.open(button.dataset.opens);
    },
    end(button) {
        cardOf(button).showEnd();
    },
    "close-panels"(button) {
        cardOf(button).closePanels();
    },
    discard(button) {
        const card = cardOf(button);
        card.panel("edit").reset();
        card.edited = null;
        card.showTrouble("");
        card.closePanels();
    },
    below() {
        const last = openCards().findLast((card) => card.element.getBoundingClientRect().top > innerHeight - 120);
        last?.element.focus({ preventScroll: true });
        last?.element.scrollIntoView({ block: "start", behavior: "smooth" });
        find("#below").hidden = true;
    },
    "batch-approve"() {
        batch.decide("approve");
    },
    "batch-deny"() {
        batch.decide("deny");
    },
    "batch-clear"() {
        batch.clear();
    },
    stop(button) {
        act(button, "/cancel", { id: button.dataset.id }, () => {
            find("span", button).textContent = "Stopping";
            announce("stop requested");
        });
    },
    "end-session"(button) {
        act(button, "/sessions/end", { name: button.dataset.id }, () => location.reload());
    },
    "end-other-sessions"(button) {
        act(button, "/sessions/end-others", {}, () => location.reload());
    },
    "dismiss-session"() {
        showNewSession(null);
    },
    "end-new-session"(button) {
        act(button, "/sessions/end", { name: unansweredSession()?.name ?? "" }, () => {
            showNewSession(null);
            announce("signed out");
        });
    },
    export(button) {
        saveHistory(button.dataset.kind);
    },
    async copy(button) {
        await navigator.clipboard.writeText(find(button.dataset.copies).textContent);
        announce("copied");
    },
    undo(button) {
        act(button, "/undo", { id: button.dataset.id }, ({ id }) => location.assign(`/task/${encodeURIComponent(id)}`));
    },
    "revoke-key"(button) {
        act(button, "/keys/revoke", { id: button.dataset.id }, () => location.reload());
    },
    "give-scope"(button) {
        act(button, "/api-keys/give", { name: button.dataset.name, hash: button.dataset.id }, () => location.reload());
    },
    "take-scope"(button) {
        act(button, "/api-keys/take", { hash: button.dataset.id }, () => location.reload());
    },
    revoke(button) {
        act(button, "/grants/revoke", { id: button.dataset.id }, () => {
            const grant = button.closest("[data-grant-id]");
            find("[data-grant-state]", grant).textContent = "revoked";
            grant.classList.add("over");
            grant.tabIndex = -1;
            grant.focus({ preventScroll: true });
            // Hidden but not removed, so nothing moves under the pointer.
            button.style.visibility = "hidden";
            announce("revoked");
        });
    },
};

const forms = {
    deny(card, submitter) {
        if (submitter?.value === "session") card.denySession();
        else card.deny();
    },
    edit(card) {
        checkEdit(card);
    },
    changes(card) {
        approveEdited(card);
    },
    remember(card) {
        remember(card);
    },
    answer(card) {
        card.answer("accept");
    },
};

function onClick(event) {
    const button = event.target.closest("[data-action]");
    if (!button) return;
    // The second click of a double click was aimed at what was here before the first one.
    if (event.detail > 1 && button.dataset.action !== "theme") return;
    actions[button.dataset.action](button);
}

function onSubmit(event) {
    const form = event.target;
    const kind = form.dataset.form;
    if ("search" in form.dataset) {
        event.preventDefault();
        search(form);
    }
    if (!kind) return;
    event.preventDefault();
    if (kind === "try") tryIt(form);
    else if (kind === "enrol") enrolKey(form);
    else if (kind === "resolve") resolveTask(form, event.submitter?.value === "true");
    else forms[kind](cardOf(form), event.submitter);
}

function onInput(event) {
    const { target } = event;
    if (target.closest("[data-search]")) return search(target.closest("[data-search]"));
    if (target.matches("[data-preference]")) return choose(target);
    if (target.id === "filter-text") {
        filterCards();
        return batch.refresh();
    }
    const card = cardOf(target);
    if (!card) return undefined;
    if (target.matches("[data-select]")) batch.refresh();
    else if (target.matches("[data-typed], [data-edited-typed]")) card.refresh();
    else if (target.closest('form[data-form="edit"]')) {
        // The checked edit is out of date.
        card.edited = null;
        card.refresh();
    } else if (target.closest('form[data-form="remember"]') && !target.matches("[data-word-typed]")) previewGrant(card);
    return undefined;
}

async function start() {
    document.addEventListener("click", onClick);
    // A fresh link that is pasted into a tab which is signed out.
    addEventListener("hashchange", () => {
        if (find("[data-login]") || isSignedOut) login();
        else forgetLink();
    });
    const needsLogin = find("[data-login]");
    if (needsLogin && needsLogin.dataset.login !== "opening") return login();
    if (needsLogin && !(await openView())) return login();
    return startView();
}

/** The person was already signed in and the link was not needed: removes its secret from the address. */
function forgetLink() {
    if (hasLink()) history.replaceState(null, "", location.pathname + location.search);
}

function startView() {
    forgetLink();
    document.addEventListener("copy", copyExactly);
    document.addEventListener("submit", onSubmit);
    document.addEventListener("input", onInput);
    document.addEventListener("keydown", onKey);
    // Some browsers press a button when the key is let go.
    document.addEventListener("keyup", (event) => isStraySpace(event) && event.preventDefault());
    document.addEventListener("pointerdown", () => typing.goOn());
    document.addEventListener("visibilitychange", () => {
        if (document.hidden) return;
        refreshTimes();
        for (const card of openCards()) card.arm();
    });
    addEventListener("pageshow", (event) => {
        // A page restored from the back/forward cache is out of date.
        if (event.persisted) location.reload();
    });
    document.addEventListener("scroll", showEmptyState, { passive: true });
    showPreferences();
    showNewSession(unansweredSession());
    for (const element of all("[data-card]")) new Card(element);
    batch.offer();
    const places = all("[data-count]");
    if (places.length > 0) {
        showCounts(Object.fromEntries(places.map((place) => [place.dataset.count, Number(place.textContent)])));
        live.start();
    }
    refreshTimes();
    setInterval(refreshTimes, 1000);
}

start();
