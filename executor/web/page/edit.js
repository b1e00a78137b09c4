// Edits a request, then approves it. What changed is shown before anything runs.

import { all, announce, build, diffElement, find, spansOf, valueElement } from "./draw.js";
import { Problem, send } from "./send.js";
import { formInput, showProblems, touched } from "./form.js";

/** Whether the person changed something in the edit form; the original is then not what they want to approve. */
export function isEditing(card) {
    const form = card.panel("edit");
    return form !== null && all("[data-field]", form).some(touched);
}

/** Has the executor check the edited input, then shows what changed. */
export async function checkEdit(card) {
    const form = card.panel("edit");
    const input = formInput(form);
    if (input === null || card.isDeciding) return;
    card.isDeciding = true;
    card.showTrouble("");
    try {
        const answer = await send("/edit", { id: card.id, digest: card.digest, input });
        card.isDeciding = false;
        card.edited = { input, digest: answer.digest, word: answer.word };
        showChanges(card, answer.changes);
    } catch (problem) {
        card.isDeciding = false;
        if (!(problem instanceof Problem)) throw problem;
        if (problem.status === 422) card.showTrouble(showProblems(form, problem.answer.problems ?? []).join(" "));
        else card.handleProblem(problem);
    }
}

function showChanges(card, changes) {
    const many = changes.length === 1 ? "1 field" : `${changes.length} fields`;
    card.part("changes-title").textContent = changes.length === 0 ? "You changed nothing" : `You changed ${many}`;
    const side = (word, name, value) =>
        build(
            "div",
            { class: name },
            build("span", { class: "change-word" }, word),
            ...(value === null ? ["not given"] : valueElement(value)),
        );
    find("dl[data-changes]", card.element).replaceChildren(
        ...changes.map((change) =>
            build(
                "div",
                { class: "field" },
                build("dt", {}, build("span", { class: "label" }, ...spansOf(change.label))),
                build(
                    "dd",
                    { class: "change" },
                    ...(change.diff === null ? [] : [diffElement(change.diff)]),
                    side("before", "before", change.before),
                    side("after", "after", change.after),
                ),
            ),
        ),
    );
    const word = card.part("edited-word");
    if (word) {
        word.textContent = card.edited.word;
        card.part("edited-typed").value = "";
    }
    card.open("changes");
    announce(card.part("changes-title").textContent);
}

export function approveEdited(card) {
    if (card.edited === null || !card.mayApprove(true)) return;
    const body = {
        id: card.id,
        digest: card.digest,
        edited_digest: card.edited.digest,
        input: card.edited.input,
        reason: card.note("changes"),
        typed: card.part("edited-typed")?.value.trim() || null,
    };
    card.decide("/decide-edit", body, (answer) => card.approved("edited and approved", answer));
}
