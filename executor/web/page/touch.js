// Has a passkey or a security key sign what a person decides. The executor says what to sign, and checks the signature.

import { Problem } from "./send.js";

const toBytes = (text) =>
    Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.codePointAt(0));

function toText(buffer) {
    const letters = String.fromCodePoint(...new Uint8Array(buffer));
    return btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

const named = (credential) => ({ type: "public-key", id: toBytes(credential) });

/** A ceremony that the person or the browser ended. The browser does not say which, so that no page can find out. */
async function ceremony(run, words) {
    if (!globalThis.PublicKeyCredential) {
        throw new Problem(0, { error: { message: "This browser cannot use passkeys or security keys here." } });
    }
    try {
        return await run();
    } catch (error) {
        const isKnown = error.name === "InvalidStateError";
        throw new Problem(0, { error: { message: isKnown ? "This key is enrolled already." : words } });
    }
}

/** Asks for a touch of one of the enrolled keys. Returns the assertion to send. */
export async function touch({ challenge, credentials, rp_id }) {
    const used = await ceremony(
        () =>
            navigator.credentials.get({
                publicKey: {
                    challenge: toBytes(challenge),
                    rpId: rp_id,
                    allowCredentials: credentials.map(named),
                    userVerification: "required",
                },
            }),
        "No key was used, so nothing was decided.",
    );
    return {
        credential: toText(used.rawId),
        client_data: toText(used.response.clientDataJSON),
        authenticator_data: toText(used.response.authenticatorData),
        signature: toText(used.response.signature),
    };
}

/** Makes a new key. Returns the registration to send. */
export async function makeKey({ challenge, rp_id, user, algorithms, enrolled }) {
    const made = await ceremony(
        () =>
            navigator.credentials.create({
                publicKey: {
                    challenge: toBytes(challenge),
                    rp: { id: rp_id, name: "agent-magic-tool" },
                    user: { id: toBytes(user), name: "approver", displayName: "Approver" },
                    pubKeyCredParams: algorithms.map((alg) => ({ type: "public-key", alg })),
                    excludeCredentials: enrolled.map(named),
                    authenticatorSelection: { userVerification: "required", residentKey: "preferred" },
                    attestation: "none",
                },
            }),
        "No key was made.",
    );
    return {
        client_data: toText(made.response.clientDataJSON),
        attestation: toText(made.response.attestationObject),
    };
}
