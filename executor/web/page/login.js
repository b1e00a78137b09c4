// Signs in with the secret of a link, and opens the page for a browser that has.

import { find } from "./draw.js";
import { NoExecutor, storeKey } from "./session.js";
import { Problem, load, sendUnproven } from "./send.js";

/** Whether the address has the secret of a link. */
export function hasLink() {
    return /^#[0-9a-f]{64}$/.test(location.hash);
}

/** Signs in if the address has the secret of a link. */
export async function login() {
    if (!hasLink()) return;
    if (await endWorkers()) return;
    const secret = location.hash.slice(1);
    // Remove the secret from the address and its history before anything else can see it.
    history.replaceState(null, "", location.pathname);
    const words = find("[data-login-words]");
    if (words) words.textContent = "Opening";
    try {
        const { key } = await sendUnproven("/login", { secret });
        await storeKey(key);
        location.replace(location.pathname);
    } catch (problem) {
        if (!words) return;
        if (!(problem instanceof Problem))
            words.textContent = `This browser cannot keep a key here (${problem.message}). Use a window that is not private. For a new link, run this in your own terminal:`;
        else
            words.textContent =
                problem.status === 403
                    ? "This link was already used, or is older than a minute. For a new one, run this in your own terminal:"
                    : `${problem.message} For a new link, run this in your own terminal:`;
    }
}

/** A service worker of an earlier page would see the secret: ends it and loads the page again. Returns whether there is one. */
async function endWorkers() {
    if (!navigator.serviceWorker?.controller) return false;
    const found = await navigator.serviceWorker.getRegistrations();
    await Promise.all(found.map((worker) => worker.unregister()));
    location.reload();
    return true;
}

/** Replaces the empty page by the view that it stands for. Returns false, and shows how to sign in, if it cannot. */
export async function openView() {
    try {
        const view = await load(location.pathname + location.search);
        document.title = view.title;
        document.body.replaceWith(document.importNode(view.body, true));
        document.getElementById(location.hash.slice(1))?.scrollIntoView();
        return true;
    } catch (problem) {
        if (!(problem instanceof Problem)) throw problem;
        const isAsleep = problem.cause instanceof NoExecutor;
        find("[data-login]").hidden = isAsleep;
        if (!isAsleep && problem.status !== 401) {
            find("[data-login-title]").textContent = "This view did not load";
            find("[data-login-words]").textContent =
                "The executor took too long, or refused it. Reload the page. To see what waits without the page, run this:";
            find("[data-login] .command").textContent = "agent-magic-tool tasks --state awaiting_confirmation";
            find("[data-login] .quiet").hidden = true;
        }
        return false;
    }
}
