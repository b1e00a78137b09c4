// Talking to the executor.
//
// No HTML is made from text: a fragment is parsed by the browser on its way in, so the pages live under
// `trusted-types 'none'`, and no policy exists that an attacker could feed.

import { find, showBanner } from "./draw.js";

/** Where the session's token is kept: for this origin alone, while its cookie is sent to every port. */
const TOKEN = "page-token";

/** How long an answer may take before we say that none came, in milliseconds. */
const ANSWER_WITHIN = 30_000;

/** A text that is JSON already: numbers and untouched values keep every digit. */
export class Exact {
    constructor(text) {
        this.text = text;
    }
}

function toJson(value) {
    if (value instanceof Exact) return value.text;
    if (Array.isArray(value)) return `[${value.map(toJson).join(",")}]`;
    const entries = value instanceof Map ? [...value] : null;
    if (entries) return `{${entries.map(([key, entry]) => `${JSON.stringify(key)}:${toJson(entry)}`).join(",")}}`;
    if (value !== null && typeof value === "object") return toJson(new Map(Object.entries(value)));
    return JSON.stringify(value);
}

export class Problem extends Error {
    constructor(status, answer) {
        super(answer.error?.message ?? `the executor answered ${status}`);
        this.status = status;
        this.answer = answer;
        this.code = answer.error?.code ?? answer.code ?? "";
        this.hint = answer.error?.hint ?? "";
    }
}

export function keepToken(token) {
    localStorage.setItem(TOKEN, token);
}

export async function send(path, body) {
    let response;
    try {
        response = await fetch(path, {
            method: "POST",
            headers: {
                "content-type": "application/json",
                "x-page-token": localStorage.getItem(TOKEN) ?? "",
            },
            body: toJson(body),
            credentials: "same-origin",
            cache: "no-store",
            redirect: "error",
            signal: AbortSignal.timeout(ANSWER_WITHIN),
        });
    } catch {
        throw new Problem(0, {
            error: {
                message: "No answer came, so we cannot say whether this arrived.",
                hint: "What came of it shows here once the connection is back.",
            },
        });
    }
    const answer = response.status === 204 ? {} : await response.json().catch(() => ({}));
    if (response.ok) return answer;
    if (response.status === 401) signedOut();
    throw new Problem(response.status, answer);
}

/** A page or a fragment, parsed by the browser while it arrives; scripts in it never run. */
export function load(address) {
    return new Promise((resolve, reject) => {
        const request = new XMLHttpRequest();
        request.open("GET", address);
        request.responseType = "document";
        request.timeout = ANSWER_WITHIN;
        request.onload = () => {
            if (request.status === 200 && request.response) return resolve(request.response);
            if (request.status === 401) signedOut();
            return reject(new Problem(request.status, {}));
        };
        request.onerror = request.ontimeout = () => reject(new Problem(0, {}));
        request.send();
    });
}

export function inWords(problem) {
    return [problem.message, problem.hint].filter(Boolean).join(" ");
}

export let isSignedOut = false;
function signedOut() {
    if (isSignedOut) return;
    isSignedOut = true;
    showBanner("You are signed out. In a terminal of your own: agent-magic-tool executor page");
}
