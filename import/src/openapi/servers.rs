//! Where the API is: `servers`, or `schemes`, `host` and `basePath`.

use serde_json::Value;
use url::Url;

use crate::ImportOptions;
use crate::document::Document;

/// The server of a description that names none. The top-level domain is reserved (RFC 2606): it never exists.
const UNKNOWN_SERVER: &str = "https://unknown-server.invalid";

/// Returns the base URL of the description, and notes for the user.
pub(super) fn of_description(
    data: &Value,
    is_swagger: bool,
    document: &Document,
    options: &ImportOptions,
) -> (String, Vec<String>) {
    let mut notes = Vec::new();
    if let Some(server) = &options.server {
        return (server.trim_end_matches('/').to_owned(), notes);
    }
    let declared = if is_swagger { of_swagger(data) } else { first(&data["servers"], &mut notes) };
    let found = declared.as_deref().and_then(|url| absolute(url, document.url().as_ref()));
    let is_example = found.as_deref().is_some_and(is_example);
    let declared = declared.map(|url| if is_example { path_of(&url) } else { url });
    let found = found.filter(|_| !is_example);
    let origin = || document.url().map(|url| url.origin().ascii_serialization());
    if let Some(url) = found {
        let host = Url::parse(&url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
        if ["localhost", "127.0.0.1"].contains(&host.as_str()) || host.ends_with(".example.com") {
            notes.push(format!("the server is `{url}`: set `base_url` in `$defaults` if that is only an example"));
        }
        (url, notes)
    } else {
        let path = declared.filter(|path| path.starts_with('/')).unwrap_or_default();
        let host = if declared_none(data, is_swagger) && !is_example { origin() } else { None };
        let server = format!("{}{}", host.unwrap_or_else(|| UNKNOWN_SERVER.to_owned()), path.trim_end_matches('/'));
        if server.starts_with(UNKNOWN_SERVER) {
            notes.push(
                "the description does not say where its server is: set `base_url` in `$defaults`, or import it again with \
                 --server URL"
                    .to_owned(),
            );
        }
        (server, notes)
    }
}

/// Whether a URL only shows what one looks like (RFC 2606).
fn is_example(url: &str) -> bool {
    let host = Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
    let host = host.strip_prefix("www.").unwrap_or(&host);
    ["example.com", "example.net", "example.org"].contains(&host)
}

fn path_of(url: &str) -> String {
    Url::parse(url).map_or_else(|_| String::new(), |url| url.path().to_owned())
}

fn declared_none(data: &Value, is_swagger: bool) -> bool {
    if is_swagger { data.get("host").is_none() } else { data["servers"].as_array().is_none_or(Vec::is_empty) }
}

/// The server of a path or an operation, if it has one of its own.
pub(super) fn of_part(part: &Value, base: &str) -> Option<String> {
    let url = first(&part["servers"], &mut Vec::new())?;
    absolute(&url, Url::parse(base).ok().as_ref()).filter(|url| url != base)
}

fn of_swagger(data: &Value) -> Option<String> {
    let path = data["basePath"].as_str().unwrap_or_default().trim_end_matches('/');
    let Some(host) = data["host"].as_str() else { return Some(path.to_owned()).filter(|path| !path.is_empty()) };
    let schemes: Vec<_> = data["schemes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let scheme = if schemes.is_empty() || schemes.contains(&"https") { "https" } else { "http" };
    Some(format!("{scheme}://{host}/{}", path.trim_start_matches('/')))
}

/// The first usable server, with the defaults of its variables.
fn first(servers: &Value, notes: &mut Vec<String>) -> Option<String> {
    let servers = servers.as_array()?;
    let is_web = |url: &&Value| url["url"].as_str().is_some_and(|url| !url.starts_with("ws"));
    let server = servers.iter().find(is_web)?;
    let mut url = server["url"].as_str()?.to_owned();
    for (name, variable) in server["variables"].as_object().into_iter().flatten() {
        let placeholder = format!("{{{name}}}");
        let first_choice = variable["enum"].as_array().and_then(|values| values.first());
        let value = match variable.get("default").or(first_choice) {
            Some(Value::String(value)) => value.clone(),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
            _ => continue,
        };
        if url.contains(&placeholder) {
            notes.push(format!(
                "the server's `{name}` is `{value}`; if yours differs, change `base_url` in `$defaults`"
            ));
            url = url.replace(&placeholder, &value);
        }
    }
    // A placeholder without a default: the URL cannot be used as it is.
    (!url.contains('{')).then_some(url)
}

/// Returns `url` without a trailing slash; a relative one is resolved against `base`.
fn absolute(url: &str, base: Option<&Url>) -> Option<String> {
    let parsed = match Url::parse(url) {
        Ok(url) => url,
        Err(_) if url.starts_with("//") => Url::parse(&format!("https:{url}")).ok()?,
        Err(_) => base?.join(url).ok()?,
    };
    let is_usable = matches!(parsed.scheme(), "http" | "https") && parsed.has_host() && parsed.username().is_empty();
    is_usable.then(|| {
        let mut parsed = parsed;
        parsed.set_query(None);
        parsed.set_fragment(None);
        parsed.as_str().trim_end_matches('/').to_owned()
    })
}
