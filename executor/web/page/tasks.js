// Buttons that stop tasks and revoke grants, trying a subtool by hand, resolving an unknown outcome, and the search.

import { all, announce, build, find, icon, showBanner } from "./draw.js";
import { Problem, describe, load, loadText, send } from "./send.js";
import { formInput, showProblems } from "./form.js";

/** Sends what a button stands for. On failure the button works again and a banner says why. */
export async function act(button, path, body, done) {
    if (button.getAttribute("aria-busy") === "true") return;
    button.setAttribute("aria-busy", "true");
    button.setAttribute("aria-disabled", "true");
    try {
        done(await send(path, body));
    } catch (problem) {
        if (!(problem instanceof Problem)) throw problem;
        button.removeAttribute("aria-busy");
        button.removeAttribute("aria-disabled");
        const words = problem.answer.decided ?? describe(problem);
        button.title = words;
        announce(words);
        showBanner(words);
        setTimeout(() => {
            if (find("#banner").textContent === words) showBanner(null);
        }, 6000);
    }
}

export function stopButton(id, tool) {
    return build(
        "button",
        { class: "button small", type: "button", "data-action": "stop", "data-id": id },
        icon("stop"),
        build("span", {}, "Stop"),
        build("span", { class: "visually-hidden" }, ` ${tool}`),
    );
}

export async function tryIt(form) {
    const input = formInput(form);
    const trouble = find("[data-trouble]", form);
    trouble.textContent = "";
    if (input === null || form.getAttribute("aria-busy") === "true") return;
    form.setAttribute("aria-busy", "true");
    try {
        const { id } = await send("/try", { tool: form.dataset.tool, input });
        location.assign(`/task/${encodeURIComponent(id)}`);
    } catch (problem) {
        if (!(problem instanceof Problem)) throw problem;
        trouble.textContent =
            problem.status === 422 ? showProblems(form, problem.answer.problems ?? []).join(" ") : describe(problem);
    } finally {
        form.removeAttribute("aria-busy");
    }
}

export async function resolveTask(form, happened) {
    const trouble = find("[data-trouble]", form);
    try {
        await send("/resolve", {
            id: form.dataset.id,
            happened,
            note: find("[data-note]", form).value.trim() || null,
        });
        location.reload();
    } catch (problem) {
        if (!(problem instanceof Problem)) throw problem;
        trouble.textContent = problem.answer.decided ?? describe(problem);
    }
}

/** Searches while the person types. Without this script the form submits the same query. */
let searching = 0;
export function search(form) {
    clearTimeout(searching);
    searching = setTimeout(async () => {
        const found = find("#found");
        const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
        const address = `${form.getAttribute("action")}${query.size > 0 ? `?${query}` : ""}`;
        found.setAttribute("aria-busy", "true");
        try {
            const fresh = find("#found", await load(address));
            found.replaceChildren(...[...fresh.childNodes].map((node) => document.importNode(node, true)));
            history.replaceState(null, "", address);
            const many = all(".row", found).length;
            announce(many === 1 ? "1 found" : `${many} found`);
        } catch {
            /* Keep showing the last results. */
        } finally {
            found.removeAttribute("aria-busy");
        }
    }, 180);
}

/** Saves the history that the search finds as a file: `jsonl` or `csv`. */
export async function saveHistory(kind) {
    try {
        const text = await loadText(`/history.${kind}${location.search}`);
        const link = build("a", { href: URL.createObjectURL(new Blob([text])), download: `history.${kind}` });
        link.click();
        URL.revokeObjectURL(link.href);
    } catch (problem) {
        if (!(problem instanceof Problem)) throw problem;
        showBanner(describe(problem));
    }
}
