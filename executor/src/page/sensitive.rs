//! Which fields of a question ask for a password, a code or a key.
//!
//! The agent reads what is typed into a field that is not declared as a password. So a field that asks for something
//! secret by its name or its words is flagged. It is a list of words, in several languages, that errs on the side of a
//! flag; nothing depends on it but a warning.

use serde_json::Value;

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
    let is_named = |secret: &&str| {
        // These scripts put no spaces between words.
        let has_no_spaces = !secret.is_ascii() && secret.chars().all(|character| u32::from(character) >= 0x3000);
        if has_no_spaces { joined.contains(*secret) } else { joined.contains(&format!(" {secret} ")) }
    };
    let is_code = |(at, word): (usize, &String)| {
        let before = at.checked_sub(1).and_then(|at| words.get(at)).map_or("", String::as_str);
        match word.as_str() {
            "code" | "codes" | "key" | "keys" => !HARMLESS_BEFORE.contains(&before),
            _ => false,
        }
    };
    SECRETS.iter().any(is_named) || words.iter().enumerate().any(is_code)
}

/// The words of a text or a name such as `apiKey` or `api_key`, in lower case.
fn words(text: &str) -> Vec<String> {
    let mut spaced = String::with_capacity(text.len());
    let mut was_lower = false;
    for character in text.chars() {
        if character.is_uppercase() && was_lower {
            spaced.push(' ');
        }
        was_lower = character.is_lowercase();
        spaced.extend(character.to_lowercase());
    }
    spaced
        .split(|character: char| !character.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
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
