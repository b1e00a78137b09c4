// Enrols and revokes the keys of the person who approves.

import { find } from "./draw.js";
import { Problem, describe, send } from "./send.js";
import { makeKey } from "./touch.js";

export async function enrolKey(form) {
    const name = find("[data-key-name]", form);
    const trouble = find("[data-trouble]", form);
    trouble.textContent = "";
    if (form.getAttribute("aria-busy") === "true") return;
    if (name.value.trim() === "") {
        name.focus();
        trouble.textContent = "Give the key a name by which you recognize it.";
        return;
    }
    form.setAttribute("aria-busy", "true");
    try {
        const registration = await makeKey(await send("/keys/begin", {}));
        // With other keys enrolled, `send` asks for a touch of one of them.
        await send("/keys", { name: name.value.trim(), registration });
        location.reload();
    } catch (problem) {
        if (!(problem instanceof Problem)) throw problem;
        trouble.textContent = describe(problem);
    } finally {
        form.removeAttribute("aria-busy");
    }
}
