// Signs in with the secret of a link.

import { find } from "./draw.js";
import { storeToken, send } from "./send.js";

export async function login() {
    const secret = location.hash.slice(1);
    if (secret === "") return;
    // Remove the secret from the address and its history before anything else can see it.
    history.replaceState(null, "", location.pathname);
    const words = find("[data-login-words]");
    words.textContent = "Opening";
    try {
        const { token } = await send("/login", { token: secret });
        storeToken(token);
        location.replace("/");
    } catch (problem) {
        words.textContent =
            problem.status === 403
                ? "This link was already used, or is older than a minute. For a new one, run this in your own terminal:"
                : `${problem.message} For a new link, run this in your own terminal:`;
    }
}
