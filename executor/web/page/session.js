// The session's key. Before each request the executor proves that it knows the key; only then this browser sends the
// request, with a proof of its own. So another program at this address learns nothing that opens the real page. The
// key is stored in a form that no script can read. `executor/src/page/proof.rs` is the executor's end.

const EXECUTOR = "agent-magic-tool/page/1 executor";
const REQUEST = "agent-magic-tool/page/1 request";
const HMAC = { name: "HMAC", hash: "SHA-256" };

/** How long to wait for the answer to a challenge, in milliseconds. */
const CHALLENGE_TIMEOUT_MS = 10_000;

/** The session has ended, or this browser has never signed in. */
export class SignedOut extends Error {}

/** The executor does not answer, or another program does. */
export class NoExecutor extends Error {}

const encoder = new TextEncoder();
let cached = null;

function hex(buffer) {
    return [...new Uint8Array(buffer)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Runs one operation of the browser's key store. */
function withKeys(mode, operation) {
    return new Promise((resolve, reject) => {
        const opening = indexedDB.open("session", 1);
        opening.onupgradeneeded = () => opening.result.createObjectStore("keys");
        opening.onerror = () => reject(opening.error);
        opening.onsuccess = () => {
            const database = opening.result;
            const request = operation(database.transaction("keys", mode).objectStore("keys"));
            request.onsuccess = () => resolve(request.result);
            request.onerror = () => reject(request.error);
            request.transaction.oncomplete = request.transaction.onabort = () => database.close();
        };
    });
}

export async function storeKey(digits) {
    const bytes = Uint8Array.from(digits.match(/../g), (pair) => Number.parseInt(pair, 16));
    cached = await crypto.subtle.importKey("raw", bytes, HMAC, false, ["sign", "verify"]);
    await withKeys("readwrite", (keys) => keys.put(cached, "key"));
}

async function storedKey() {
    cached = (await withKeys("readonly", (keys) => keys.get("key"))) ?? null;
    return cached;
}

async function mac(key, ...parts) {
    return hex(await crypto.subtle.sign(HMAC.name, key, encoder.encode(parts.join("\n"))));
}

async function challenge(ours) {
    let response;
    try {
        response = await fetch(`/challenge?nonce=${ours}`, {
            cache: "no-store",
            redirect: "error",
            signal: AbortSignal.timeout(CHALLENGE_TIMEOUT_MS),
        });
        if (response.status !== 401) return await response.json();
    } catch {
        throw new NoExecutor("the executor does not answer");
    }
    throw new SignedOut("this session has ended");
}

/** Returns the proof of a request, after the executor has proven that it is the one that this browser signed in to. */
export async function prove(method, target, body = "") {
    const ours = hex(crypto.getRandomValues(new Uint8Array(32)));
    const answer = await challenge(ours);
    const knows = async (key) => key !== null && (await mac(key, EXECUTOR, ours, answer.nonce)) === answer.proof;
    // Another tab may have signed in again, with a new key.
    const key = (await knows(cached)) ? cached : await storedKey();
    if (key === null) throw new SignedOut("this browser has no key");
    if (!(await knows(key))) throw new NoExecutor("another program answers here");
    const digest = hex(await crypto.subtle.digest("SHA-256", encoder.encode(body)));
    return `${answer.nonce}.${await mac(key, REQUEST, method, target, answer.nonce, digest)}`;
}
