//! Takes secrets out of command lines and URLs: configurations often have them there.
//!
//! Errs on the safe side: what is long and looks random is hidden as well.

use url::Url;

/// What stands for a hidden value.
const HIDDEN: &str = "…";
/// A word of at least this length that has letters and digits is probably a key.
const MIN_KEY_CHARS: usize = 20;

/// Hides the values of options and variables that are named like credentials, and what looks like a key.
pub(super) fn command_line(words: &[String]) -> Vec<String> {
    let mut shown: Vec<String> = Vec::with_capacity(words.len());
    let mut hides_next = false;
    for (index, word) in words.iter().enumerate() {
        let is_option = word.starts_with('-');
        shown.push(if hides_next && !is_option {
            HIDDEN.to_owned()
        } else if word.contains("://") {
            url(word)
        } else {
            match word.split_once('=') {
                // `-e GITHUB_TOKEN=…`, `--api-key=…`: of variables the name is enough.
                Some((name, value)) if hides_value(name) || is_variable(name) || looks_random(value) => {
                    format!("{name}={HIDDEN}")
                }
                Some(_) => word.clone(),
                None if index > 0 && looks_random(word) => HIDDEN.to_owned(),
                // `Authorization: Bearer …`
                None => match word.split_once(':') {
                    Some((name, _)) if hides_value(name) => format!("{name}: {HIDDEN}"),
                    _ => word.clone(),
                },
            }
        });
        hides_next = is_option && !word.contains('=') && hides_value(word);
    }
    shown
}

/// Hides credentials, the values of the query, and segments of the path that look like keys. An option may stand before
/// the address: `--url=https://…`.
pub(super) fn url(text: &str) -> String {
    let scheme = text.find("://").unwrap_or_default();
    let start = text[..scheme].rfind(|it: char| !it.is_ascii_alphanumeric()).map_or(0, |at| at + 1);
    let (before, address) = text.split_at(start);
    if before.split('=').next().is_some_and(hides_value) {
        return format!("{before}{HIDDEN}");
    }
    let Ok(url) = Url::parse(address) else { return HIDDEN.to_owned() };
    let host = url.host_str().unwrap_or_default();
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    // A user alone is no credential, unless it is a token.
    let credentials = match (url.username(), url.password()) {
        ("", None) => String::new(),
        (user, None) if !looks_random(user) && !has_known_prefix(user) => format!("{user}@"),
        _ => "…@".to_owned(),
    };
    let path: Vec<_> = url.path().split('/').map(|part| if looks_random(part) { HIDDEN } else { part }).collect();
    let query: Vec<_> = url.query_pairs().map(|(name, _)| format!("{name}={HIDDEN}")).collect();
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    format!("{before}{}://{credentials}{host}{port}{}{query}", url.scheme(), path.join("/"))
}

/// Whether `value`, under this name, looks like a credential: by the name, or since it looks like a key.
pub fn is_credential_value(name: &str, value: &str) -> bool {
    const ORDINARY: [&str; 11] = ["", "0", "1", "true", "false", "yes", "no", "on", "off", "none", "null"];
    let is_word = ORDINARY.iter().any(|word| value.eq_ignore_ascii_case(word));
    let is_path = value.starts_with(['/', '~', '.']);
    !is_word && !is_path && (hides_value(name) || looks_random(value))
}

/// The first argument that has a credential: the value of an option that is called like one, a known kind of key, or a
/// URL with a password.
pub fn credential_in_command(words: &[String]) -> Option<&str> {
    let mut follows_option = false;
    for word in words.iter().skip(1) {
        let is_option = word.starts_with('-');
        let (name, value) = word.split_once('=').filter(|_| is_option).unwrap_or(("", word));
        let is_named = hides_value(name) && is_credential_value(name, value);
        let is_next = follows_option && !is_option && is_credential_value("key", value);
        if is_named || is_next || has_known_prefix(value) || value.contains("://") && credential_in_url(value) {
            return Some(word);
        }
        follows_option = is_option && name.is_empty() && hides_value(word);
    }
    None
}

/// Whether a URL has a password, a parameter that looks like a credential, or a part that looks like a key.
pub fn credential_in_url(text: &str) -> bool {
    let shown = url(text);
    let is_harmless =
        |(name, value): (std::borrow::Cow<'_, str>, std::borrow::Cow<'_, str>)| !is_credential_value(&name, &value);
    let parsed = Url::parse(text).ok();
    let has_login = shown.contains("…@");
    let path_hides = shown.split('?').next().is_some_and(|path| path.contains(HIDDEN));
    has_login || path_hides || !parsed.is_some_and(|url| url.query_pairs().all(is_harmless))
}

/// Whether a name hides its value. Its list is the widest of all: what is hidden in vain can still be read in its own file.
fn hides_value(name: &str) -> bool {
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    [
        "key",
        "token",
        "secret",
        "password",
        "passwd",
        "pwd",
        "auth",
        "authorization",
        "credential",
        "credentials",
        "bearer",
        "header",
        "pat",
    ]
    .iter()
    .any(|word| name.ends_with(word))
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

/// Whether a word begins like the keys of well-known services.
fn has_known_prefix(word: &str) -> bool {
    const PREFIXES: [&str; 10] =
        ["sk-", "sk_", "pk_", "ghp_", "gho_", "github_pat_", "xoxb-", "xoxp-", "glpat-", "AIza"];
    PREFIXES.iter().any(|prefix| word.starts_with(prefix)) && word.len() > 10
}

/// Whether a word looks like a key: long, of letters and digits in a mixture that words and versions do not have.
fn looks_random(word: &str) -> bool {
    if has_known_prefix(word) {
        return true;
    }
    let longest = word.split(|it: char| !it.is_ascii_alphanumeric()).max_by_key(|part| part.len()).unwrap_or_default();
    let has = |class: fn(&char) -> bool| longest.chars().any(|it| class(&it));
    let is_uuid = word.len() == 36 && word.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
    is_uuid || longest.len() >= MIN_KEY_CHARS && has(char::is_ascii_digit) && has(char::is_ascii_alphabetic)
}
