// Getting in.

import { find } from "./draw.js";
import { keepToken, send } from "./send.js";

export async function login() {
    const secret = location.hash.slice(1);
    if (secret === "") return;
    // Out of the address and its history before anything else can see it.
    history.replaceState(null, "", location.pathname);
    const words = find("[data-login-words]");
    words.textContent = "Opening";
    try {
        const { token } = await send("/login", { token: secret });
        keepToken(token);
        location.replace("/");
    } catch (problem) {
        words.textContent =
            problem.status === 403
                ? "This link was used already, or is older than a minute. A new one comes from a terminal of your own:"
                : `${problem.message} Ask for a new link in a terminal of your own:`;
    }
}
