// Builds icons, values and state badges node by node. They are the same as those of parts.html.

export const find = (selector, within = document) => within.querySelector(selector);
export const all = (selector, within = document) => [...within.querySelectorAll(selector)];

export function build(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
}

export function icon(name) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    for (const [key, value] of [
        ["class", "icon"],
        ["viewBox", "0 0 24 24"],
        ["aria-hidden", "true"],
    ]) {
        svg.setAttribute(key, value);
    }
    const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
    use.setAttribute("href", `#i-${name}`);
    svg.append(use);
    return svg;
}

export const STATE_ICONS = {
    awaiting_confirmation: "pause",
    accepted: "clock",
    queued: "clock",
    running: "running",
    succeeded: "done",
    failed: "failed",
    denied: "ban",
    expired: "clock",
    cancelled: "stop",
    timed_out: "clock",
    unknown: "question",
};
export const FINAL = new Set(["succeeded", "failed", "denied", "expired", "cancelled", "timed_out", "unknown"]);

export function stateBadge(state, words) {
    const badge = build("span", { class: `state state-${state}` });
    badge.append(icon(STATE_ICONS[state] ?? "question"), build("span", {}, words));
    return badge;
}

/** The state of a task that changed, and why, if it ended without success. */
export function stateElements({ state, state_words: words, why }) {
    const badge = stateBadge(state, words);
    return why ? [badge, build("span", { class: "closed-why" }, ...spansOf(why))] : [badge];
}

function rowElement(row, many) {
    const spans = spansOf(row.spans);
    if (row.fold) {
        const folded = build("span", { class: "folded" }, ...spans);
        return build("span", { class: "line fold", "data-n": row.label, "data-fold": row.fold }, folded);
    }
    const line = build("span", many ? { class: "line", "data-n": row.label } : { class: "line" }, ...spans);
    if (row.end) line.append("\n");
    return line;
}

/** Shows a value like the macro `value` of parts.html. */
export function valueElement(value) {
    const many = value.lines > 1 || value.blocks.length > 1 || value.blocks[0].rows.length > 1;
    const isEmpty = value.kind === "string" && value.bytes === 0;
    const element = build("bdi", {
        dir: "ltr",
        class: `value kind-${value.kind}${many ? " many" : ""}${isEmpty ? " empty-text" : ""}`,
    });
    for (const { rows } of value.blocks) {
        const block = value.blocks.length > 1 ? build("span", { class: "text-rows" }) : element;
        if (block !== element) element.append(block);
        for (const row of rows) block.append(rowElement(row, many));
    }
    const notes = build("span", { class: "value-notes" });
    if (isEmpty) notes.append(build("span", {}, "empty text"));
    if (many) notes.append(build("span", {}, `${value.lines} ${value.lines === 1 ? "line" : "lines"}, ${value.bytes} bytes`));
    for (const note of value.notes) notes.append(build("span", { class: "flag" }, icon("eye"), note));
    const drawn = notes.childNodes.length > 0 ? [element, notes] : [element];
    if (value.decoded) {
        const word = build("span", { class: "decoded-word" }, "which decodes to");
        drawn.push(build("div", { class: "decoded" }, word, ...valueElement(value.decoded)));
    }
    return drawn;
}

/**
 * Copies exactly the text of a value. A browser would add line breaks where a long line is broken, and leave out folded
 * ones.
 */
export function copyExactly(event) {
    const selection = getSelection();
    if (selection.rangeCount !== 1) return;
    const range = selection.getRangeAt(0);
    const within = range.commonAncestorContainer;
    const element = within.nodeType === Node.ELEMENT_NODE ? within : within.parentElement;
    if (!element?.closest(".value")) return;
    event.clipboardData.setData("text/plain", range.cloneContents().textContent);
    event.preventDefault();
}

export function spansOf(line) {
    return line.map((span) => ("c" in span ? build("mark", { class: "chip", title: span.n }, span.c) : span.t));
}

/** Shows the lines that differ, like the macro `diff` of parts.html. */
export function diffElement({ added, removed, rows }) {
    const names = { "+": "added", "-": "removed", " ": "same" };
    const drawn = rows.map((row) =>
        row.sign === "…"
            ? build("div", { class: "diff-fold" }, `${row.count} unchanged ${row.count === 1 ? "line" : "lines"}`)
            : build(
                  "div",
                  { class: `diff-row ${names[row.sign]}` },
                  build("span", { class: "diff-sign" }, row.sign),
                  build("bdi", { dir: "ltr" }, ...spansOf(row.line)),
              ),
    );
    const label = `${added} lines added, ${removed} lines removed`;
    return build("div", { class: "diff", role: "group", "aria-label": label }, ...drawn);
}

/** Has screen readers say something. */
export function announce(words) {
    const place = find("#announcements");
    // Screen readers only speak when the text changes.
    if (place) place.textContent = place.textContent === words ? `${words}\u00a0` : words;
}

export function showBanner(words) {
    const banner = find("#banner");
    if (!banner) return;
    banner.hidden = words === null;
    banner.textContent = words ?? "";
}
