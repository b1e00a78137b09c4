// Requests to the executor.
//
// The scripts make no HTML from text: the browser parses fragments while they arrive. So the pages can use the policy
// `trusted-types 'none'`, and an attacker finds no sink for HTML.

import { find, showBanner } from "./draw.js";
import { NoExecutor, SignedOut, prove } from "./session.js";
import { touch } from "./touch.js";

/** How long to wait for an answer, in milliseconds. */
const ANSWER_TIMEOUT_MS = 30_000;

/** Text that is already JSON, so that numbers and untouched values keep every digit. */
export class RawJson {
    constructor(text) {
        this.text = text;
    }
}

function toJson(value) {
    if (value instanceof RawJson) return value.text;
    if (Array.isArray(value)) return `[${value.map(toJson).join(",")}]`;
    const entries = value instanceof Map ? [...value] : null;
    if (entries) return `{${entries.map(([key, entry]) => `${JSON.stringify(key)}:${toJson(entry)}`).join(",")}}`;
    if (value !== null && typeof value === "object") return toJson(new Map(Object.entries(value)));
    return JSON.stringify(value);
}

export class Problem extends Error {
    constructor(status, answer, cause) {
        super(answer.error?.message ?? `the executor answered ${status}`, { cause });
        this.status = status;
        this.answer = answer;
        this.code = answer.error?.code ?? answer.code ?? "";
        this.hint = answer.error?.hint ?? "";
    }
}

/** Proves a request; a failure becomes a problem, and nothing was sent. */
async function proof(method, target, body) {
    try {
        const proven = await prove(method, target, body);
        showAsleep(false);
        return proven;
    } catch (cause) {
        if (cause instanceof SignedOut) {
            signedOut();
            throw new Problem(401, { error: { message: "You are signed out. Nothing was sent." } }, cause);
        }
        if (!(cause instanceof NoExecutor)) throw cause;
        throw new Problem(0, { error: { message: "The executor does not answer. Nothing was sent." } }, cause);
    }
}

/**
 * Sends what a person decided, with the proof of the session. If the executor needs a touch of a key for it, asks for the
 * touch and sends it again with what the key signed.
 */
export async function send(path, body) {
    try {
        return await sendProven(path, body);
    } catch (problem) {
        const request = problem.answer?.touch;
        if (problem.code !== "needs-touch" || !request || request.credentials.length === 0) throw problem;
        return sendProven(path, { ...body, touch: await touch(request) });
    }
}

async function sendProven(path, body) {
    const text = toJson(body);
    return post(path, text, { "x-page-proof": await proof("POST", path, text) });
}

/** Sends what needs no session. */
export function sendUnproven(path, body) {
    return post(path, toJson(body), {});
}

async function post(path, body, headers) {
    let response;
    try {
        response = await fetch(path, {
            method: "POST",
            headers: { "content-type": "application/json", ...headers },
            body,
            credentials: "same-origin",
            cache: "no-store",
            redirect: "error",
            signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS),
        });
    } catch {
        throw new Problem(0, {
            error: {
                message: "No answer came, so we cannot say whether this arrived.",
                hint: "The result appears here once the connection is back.",
            },
        });
    }
    const answer = response.status === 204 ? {} : await response.json().catch(() => ({}));
    if (response.ok) return answer;
    if (response.status === 401) signedOut();
    throw new Problem(response.status, answer);
}

/** Loads a page or a fragment. The browser parses it while it arrives; scripts in it never run. */
export async function load(address) {
    const proven = await proof("GET", address);
    return new Promise((resolve, reject) => {
        const request = new XMLHttpRequest();
        request.open("GET", address);
        request.setRequestHeader("x-page-proof", proven);
        request.responseType = "document";
        request.timeout = ANSWER_TIMEOUT_MS;
        request.onload = () => {
            const isShown = request.status === 200 || request.status === 404;
            if (isShown && request.response) return resolve(request.response);
            if (request.status === 401) signedOut();
            return reject(new Problem(request.status, {}));
        };
        request.onerror = request.ontimeout = () => reject(new Problem(0, {}));
        request.send();
    });
}

/** Loads a file as text. */
export async function loadText(address) {
    const response = await fetch(address, {
        headers: { "x-page-proof": await proof("GET", address) },
        cache: "no-store",
        redirect: "error",
        signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS),
    }).catch(() => null);
    if (!response?.ok) throw new Problem(response?.status ?? 0, { error: { message: "The executor did not send it." } });
    return response.text();
}

/** The address of the event stream, with its proof. */
export async function eventsAddress() {
    return `/events?proof=${await proof("GET", "/events")}`;
}

export function describe(problem) {
    return [problem.message, problem.hint].filter(Boolean).join(" ");
}

export let isSignedOut = false;
function signedOut() {
    if (isSignedOut) return;
    isSignedOut = true;
    showBanner("You are signed out. To sign in again, run this in your own terminal: agent-magic-tool executor page");
}

/** Says calmly that the executor of this page has ended, and how to go on. */
export function showAsleep(isAsleep) {
    const words = find("#asleep");
    if (words) words.hidden = !isAsleep;
    if (isAsleep) showBanner(null);
}
