//! Security schemes: which credential a request carries. A credential is always a secret, never an input.

use std::collections::{BTreeMap, HashSet};
use std::iter;

use serde_json::{Value, json};
use url::Url;

use super::OpenApi;
use crate::http::Request;
use crate::literal;

/// The rank of a token of OAuth, whose client may have two secrets.
const OAUTH: usize = 1;
/// The rank of a user name with a password, which are two secrets.
const BASIC: usize = 4;
const USER: &str = "user";
const PASSWORD: &str = "password";
const CLIENT_ID: &str = "client_id";
const CLIENT_SECRET: &str = "client_secret";

/// The credentials that an operation needs: names of secrets, with what each is.
pub(super) type NeededSecrets = BTreeMap<String, String>;

/// Adds what the security requirement of `operation` says to `request`.
pub(super) fn apply(
    api: &OpenApi<'_>,
    operation: &Value,
    request: &mut Request,
    simplified: &mut Vec<String>,
) -> NeededSecrets {
    let mut secrets = NeededSecrets::new();
    let Some(alternatives) = operation.get("security").or_else(|| api.data.get("security")).and_then(Value::as_array)
    else {
        return secrets;
    };
    // An empty requirement means that the credential is optional: without it, the request works at once.
    if alternatives.is_empty() || alternatives.iter().any(|it| it.as_object().is_some_and(serde_json::Map::is_empty)) {
        return secrets;
    }
    let best = alternatives
        .iter()
        .filter_map(|requirement| {
            let schemes = requirement.as_object()?;
            let ranks = schemes.keys().map(|name| rank(scheme(api, name)));
            let worst = ranks.max().unwrap_or(usize::MAX);
            Some((schemes.len(), worst, schemes))
        })
        .min_by_key(|(count, worst, _)| (*worst == usize::MAX, *count, *worst));
    let Some((_, _, schemes)) = best else { return secrets };
    for (name, scopes) in schemes {
        if !add(api, name, scopes, request, &mut secrets) {
            simplified.push(format!("its authentication `{name}` is not one that a definition can express"));
        }
    }
    secrets
}

/// All schemes of an API, by name.
fn schemes<'a>(api: &OpenApi<'a>) -> &'a Value {
    if api.is_swagger { &api.data["securityDefinitions"] } else { &api.data["components"]["securitySchemes"] }
}

fn scheme<'a>(api: &OpenApi<'a>, name: &str) -> &'a Value {
    let scheme = schemes(api).get(name).unwrap_or(&Value::Null);
    api.schemas.resolve(scheme).unwrap_or(&Value::Null)
}

/// The scheme of an API that serves best; of several that serve alike, the first by name.
fn primary<'a>(api: &OpenApi<'a>) -> Option<&'a str> {
    let names = schemes(api).as_object()?.keys().map(String::as_str);
    names.filter(|name| rank(scheme(api, name)) < usize::MAX).min_by_key(|name| (rank(scheme(api, name)), *name))
}

/// What follows the pack in the names of a scheme's secrets. No two schemes share a secret, however they are called: no
/// credential is sent in the place of another.
fn suffix(api: &OpenApi<'_>, name: &str) -> String {
    let primary = primary(api);
    let mut names: Vec<_> = schemes(api).as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    // The best scheme has the name of the pack, whatever the others are called.
    names.sort_by_key(|name| (primary != Some(*name), *name));
    let mut taken = HashSet::new();
    for known in names {
        let base = if primary == Some(known) { String::new() } else { crate::names::words(known).join("_") };
        let numbered = (2..).map(|number| joined(&base, &number.to_string()));
        let own = iter::once(base.clone())
            .chain(numbered)
            .find(|suffix| secret_words(api, scheme(api, known), suffix).iter().all(|word| !taken.contains(word)))
            .expect("numbers do not end");
        if known == name {
            return own;
        }
        taken.extend(secret_words(api, scheme(api, known), &own));
    }
    crate::names::words(name).join("_")
}

/// The ends of the names of the secrets of a scheme.
fn secret_words(api: &OpenApi<'_>, scheme: &Value, suffix: &str) -> Vec<String> {
    match rank(scheme) {
        OAUTH if client_token_url(api, scheme).is_some() => {
            vec![joined(suffix, CLIENT_ID), joined(suffix, CLIENT_SECRET)]
        }
        BASIC => vec![joined(suffix, USER), joined(suffix, PASSWORD)],
        _ => vec![suffix.to_owned()],
    }
}

fn joined(suffix: &str, word: &str) -> String {
    if suffix.is_empty() { word.to_owned() } else { format!("{suffix}_{word}") }
}

/// How well a scheme serves: the lower, the better.
fn rank(scheme: &Value) -> usize {
    match (scheme["type"].as_str().unwrap_or_default(), scheme["scheme"].as_str().unwrap_or_default()) {
        ("http", kind) if kind.eq_ignore_ascii_case("bearer") => 0,
        ("oauth2" | "openIdConnect", _) => OAUTH,
        ("apiKey", _) if scheme["in"] == "header" => 2,
        ("apiKey", _) if scheme["in"] == "query" => 3,
        ("http" | "basic", kind) if kind.eq_ignore_ascii_case("basic") || kind.is_empty() => BASIC,
        ("apiKey", _) => 5,
        _ => usize::MAX,
    }
}

/// Adds one scheme, with the `scopes` that are required of it. Returns whether it can be expressed.
fn add(api: &OpenApi<'_>, name: &str, scopes: &Value, request: &mut Request, secrets: &mut NeededSecrets) -> bool {
    let scheme = scheme(api, name);
    let text = |key: &str| scheme[key].as_str().unwrap_or_default();
    let mut secret = |about: String, suffix: &str| {
        let name = if suffix.is_empty() { api.pack.clone() } else { format!("{}_{suffix}", api.pack) };
        secrets.insert(name.clone(), about);
        format!("secret:{name}")
    };
    let suffix = suffix(api, name);
    let auth = match rank(scheme) {
        0 => json!({"bearer": secret("the access token".to_owned(), &suffix)}),
        OAUTH => match client_token_url(api, scheme) {
            Some(token_url) => json!({"client_credentials": {
                "token_url": token_url,
                "client_id": secret("the id of the OAuth client".to_owned(), &joined(&suffix, CLIENT_ID)),
                "client_secret": secret("the secret of the OAuth client".to_owned(), &joined(&suffix, CLIENT_SECRET)),
                "scope": required(scopes),
            }}),
            None => json!({"oauth2": secret(oauth2(scheme), &suffix)}),
        },
        BASIC => json!({"basic": {
            "username": secret("the user name".to_owned(), &joined(&suffix, USER)),
            "password": secret("the password".to_owned(), &joined(&suffix, PASSWORD)),
        }}),
        2 if text("name").eq_ignore_ascii_case("authorization") && request.auth.is_none() => {
            let about =
                format!("the whole value of the header `{}`, with a word like `Bearer` before it", text("name"));
            json!({"api_key": {"header": text("name"), "value": secret(about, &suffix)}})
        }
        2 => {
            let value = secret(format!("the key for the header `{}`", text("name")), &suffix);
            if !crate::http::may_set_header(text("name")) {
                return false;
            }
            if request.auth.is_some() {
                request.header(text("name"), value);
                return true;
            }
            json!({"api_key": {"header": text("name"), "value": value}})
        }
        3 => {
            let value = secret(format!("the key for the query parameter `{}`", text("name")), &suffix);
            if request.auth.is_some() {
                request.query(text("name"), value);
                return true;
            }
            json!({"api_key": {"query": text("name"), "value": value}})
        }
        5 => {
            let prefix = format!("{}=", text("name"));
            let value = secret(format!("the value of the cookie `{}`", text("name")), &suffix);
            json!({"api_key": {"header": "Cookie", "prefix": prefix, "value": value}})
        }
        _ => return false,
    };
    if request.auth.is_some() {
        return false;
    }
    request.auth = Some(auth);
    true
}

/// The token endpoint of a scheme by which clients get tokens for themselves, and in no other way.
fn client_token_url(api: &OpenApi<'_>, scheme: &Value) -> Option<String> {
    let flow = match scheme["flows"].as_object() {
        Some(flows) => flows.get("clientCredentials").filter(|_| flows.keys().all(|key| is_only(key)))?,
        None => Some(scheme).filter(|scheme| scheme["flow"] == "application")?,
    };
    let text = literal::text(flow["tokenUrl"].as_str()?).ok()?;
    let url = Url::parse(text).or_else(|_| Url::parse(&api.server)?.join(text)).ok()?;
    let is_usable = matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none();
    is_usable.then(|| url.to_string())
}

/// Whether the flow `key` leaves a scheme to clients alone.
fn is_only(key: &str) -> bool {
    key == "clientCredentials" || key.starts_with("x-")
}

/// The scopes that an operation requires; null for those that the server gives by itself.
fn required(scopes: &Value) -> Value {
    let scopes: Vec<_> = scopes.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let text = scopes.join(" ");
    if text.is_empty() || literal::text(&text).is_err() { Value::Null } else { Value::String(text) }
}

/// What a human stores for OAuth 2: a token, or what tokens are obtained with.
fn oauth2(scheme: &Value) -> String {
    let flows = scheme["flows"].as_object().into_iter().flatten().map(|(_, flow)| flow);
    let token_url = flows.chain([scheme]).find_map(|flow| flow["tokenUrl"].as_str());
    let at = token_url.map(|url| format!(" (its token_url is {url})")).unwrap_or_default();
    format!("an access token, or OAuth client data{at},")
}
