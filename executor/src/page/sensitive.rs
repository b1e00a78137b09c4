//! Which fields of a question ask for a password, a code or a key.
//!
//! The agent reads what is typed into a field that is not declared as a password. So a field that asks for something
//! secret by its name or its words is flagged. It is a list of words, in several languages, that errs on the side of a
//! flag; nothing depends on it but a warning. Words are compared as they look: without what is not visible, and letters
//! that look alike are one letter.

use std::sync::LazyLock;

use protocol::invisible;
use serde_json::Value;
use unicode_security::skeleton;

/// Words that name a secret, each as a whole word; a space stands for any separator.
const SECRETS: [&str; 46] = [
    "password",
    "passwords",
    "passwd",
    "pwd",
    "passphrase",
    "passcode",
    "pass code",
    "pin",
    "pincode",
    "otp",
    "totp",
    "tan",
    "mfa",
    "2fa",
    "one time",
    "cvv",
    "cvc",
    "token",
    "tokens",
    "secret",
    "secrets",
    "credential",
    "credentials",
    "apikey",
    "keyfile",
    "private key",
    "seed phrase",
    "recovery phrase",
    "mnemonic",
    "passwort",
    "kennwort",
    "geheimzahl",
    "schlüssel",
    "mot de passe",
    "contraseña",
    "contrasena",
    "clave",
    "senha",
    "parola",
    "wachtwoord",
    "hasło",
    "heslo",
    "пароль",
    "密码",
    "パスワード",
    "비밀번호",
];

/// `code` and `key` are mostly secrets, but not after these words.
const HARMLESS_BEFORE: [&str; 23] = [
    "zip", "postal", "post", "country", "area", "language", "currency", "error", "status", "exit", "source", "color",
    "colour", "dress", "bar", "qr", "dial", "airport", "product", "primary", "foreign", "sort", "issue",
];

/// Whether a field with these texts asks for something secret.
pub(super) fn asks_for_secret(texts: &[&str]) -> bool {
    texts.iter().any(|text| names_a_secret(text))
}

/// The texts of a field that a human reads.
pub(super) fn texts_of<'a>(name: &'a str, property: &'a Value) -> Vec<&'a str> {
    let texts = ["title", "description"].map(|key| property[key].as_str().unwrap_or_default());
    [name].into_iter().chain(texts).collect()
}

fn names_a_secret(text: &str) -> bool {
    let words = words(text);
    let joined = format!(" {} ", words.join(" "));
    let is_named = |secret: &String| joined.contains(secret.as_str());
    let is_code = |(at, word): (usize, &String)| {
        let before = at.checked_sub(1).and_then(|at| words.get(at)).map_or("", String::as_str);
        ["code", "codes", "key", "keys"].contains(&word.as_str())
            && !HARMLESS_BEFORE.iter().any(|word| look(word) == before)
    };
    SEEN_SECRETS.iter().any(is_named) || words.iter().enumerate().any(is_code)
}

/// The words of [`SECRETS`] as they look, each with its spaces unless its script has none.
static SEEN_SECRETS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let seen = SECRETS.iter().map(|secret| {
        let has_no_spaces = !secret.is_ascii() && secret.chars().all(|character| u32::from(character) >= 0x3000);
        let words: Vec<_> = secret.split(' ').map(look).collect();
        if has_no_spaces { words.join(" ") } else { format!(" {} ", words.join(" ")) }
    });
    seen.collect()
});

/// What a word looks like: the same for words that a reader takes for each other.
fn look(word: &str) -> String {
    skeleton(word).flat_map(char::to_lowercase).collect()
}

/// The words of a text or a name such as `apiKey` or `api_key`, in lower case, as they look.
fn words(text: &str) -> Vec<String> {
    let mut spaced = String::with_capacity(text.len());
    let mut was_lower = false;
    for character in text.chars().filter(|character| !is_unseen(*character)) {
        if character.is_uppercase() && was_lower {
            spaced.push(' ');
        }
        was_lower = character.is_lowercase();
        spaced.extend(character.to_lowercase());
    }
    spaced.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty()).map(look).collect()
}

/// Whether a reader sees nothing where `character` stands, not even a gap.
fn is_unseen(character: char) -> bool {
    invisible::is_invisible(character) && !character.is_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_codes_and_keys_are_recognized_by_their_words() {
        for text in [
            "password",
            "Your password, please",
            "bank_pin",
            "apiKey",
            "API key",
            "access_token",
            "The code from the SMS",
            "Enter the 6-digit code",
            "one-time password",
            "SSH private key",
            "2FA",
            "Passwort",
            "Mot de passe",
            "请输入密码",
            "пароль",
            "Your key",
            "Pass\u{200b}word",
            "P\u{ad}IN",
            "P\u{430}ssw\u{43e}rd",
            "\u{ff30}\u{ff41}\u{ff53}\u{ff53}\u{ff57}\u{ff4f}\u{ff52}\u{ff44}",
            "\u{1d40f}\u{1d422}\u{1d427}",
            "Your k\u{435}y",
        ] {
            assert!(asks_for_secret(&[text]), "{text}");
        }
        for text in [
            "",
            "Name",
            "zip code",
            "country_code",
            "Your answer",
            "keyboard layout",
            "monkey",
            "primary key",
            "spinning",
            "encode the file",
            "Which year?",
        ] {
            assert!(!asks_for_secret(&[text]), "{text}");
        }
    }
}
