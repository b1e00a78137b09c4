//! Translates a `curl` line into a definition.
//!
//! The values of the query and of a JSON body become input parameters, with the pasted values as the example. A
//! credential becomes a secret: its value is never written anywhere.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::document::Document;
use crate::literal;
use crate::names::{self, Names};
use crate::{ImportError, ImportOptions, Imported, ImportedSubtool};

/// A definition, and what its author must do before it works.
#[derive(Debug)]
pub struct CurlDraft {
    pub definition: Value,
    pub steps: Vec<String>,
}

/// Why a `curl` line cannot be translated.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct CurlError {
    pub message: String,
    pub hint: &'static str,
}

impl CurlError {
    fn new(message: impl Into<String>) -> Self {
        let hint = "paste the whole line in single quotes: agent-magic-tool new NAME --curl 'curl https://…'";
        Self { message: message.into(), hint }
    }

    fn hint(self, hint: &'static str) -> Self {
        Self { hint, ..self }
    }
}

/// Options of `curl` that change nothing about the request, without a value.
const IGNORED: [&str; 16] = [
    "-s",
    "--silent",
    "-S",
    "--show-error",
    "-L",
    "--location",
    "-i",
    "--include",
    "-v",
    "--verbose",
    "-f",
    "--fail",
    "--compressed",
    "-g",
    "--globoff",
    "-sS",
];
/// Options of `curl` that change nothing about the request, with a value.
const IGNORED_WITH_VALUE: [&str; 8] =
    ["-o", "--output", "-m", "--max-time", "--connect-timeout", "--retry", "-w", "--write-out"];
/// Headers that the executor sets by itself.
const OWN_HEADERS: [&str; 5] = ["accept", "content-length", "host", "user-agent", "accept-encoding"];

/// Words of templates, which cannot be parameters.
const KEYWORDS: [&str; 13] =
    ["input", "task", "caller", "vars", "and", "or", "not", "in", "is", "if", "else", "true", "false"];

/// A parsed `curl` line.
#[derive(Default)]
struct CurlLine {
    method: Option<String>,
    url: Option<String>,
    headers: Vec<(String, String)>,
    data: Vec<String>,
    /// Form fields, already separated.
    form: Vec<(String, String)>,
    user: Option<String>,
    is_get: bool,
    is_json: bool,
}

/// The request as it becomes a definition.
struct CurlTranslation {
    http: Map<String, Value>,
    properties: Map<String, Value>,
    example: Map<String, Value>,
    steps: Vec<String>,
    secret: String,
}

/// Translates `line` into a document that can be imported. Nothing of a credential is in it.
pub fn document(line: &str) -> Result<Document, ImportError> {
    let failed = |error: CurlError| ImportError::new(error.message).hint(error.hint);
    let CurlDraft { definition, steps } = of_curl(line, "curl").map_err(failed)?;
    let http = &definition["run"]["http"];
    let text = |key: &str| http[key].as_str().unwrap_or_default();
    let from = format!("curl {}{}", text("base_url"), text("path"));
    Document::new(from, json!({CURL: {"definition": definition, "steps": steps}}).to_string())
}

/// The key of the document of a `curl` line.
const CURL: &str = "curl_line";

/// Whether `document` was made of a `curl` line.
pub(crate) fn recognizes(document: &Document) -> bool {
    document.data[CURL].is_object()
}

/// Imports the one request of a `curl` line.
pub(crate) fn import(document: &Document, options: &ImportOptions) -> Result<Imported, ImportError> {
    let draft = &document.data[CURL];
    let Value::Object(mut definition) = draft["definition"].clone() else {
        return Err(ImportError::new("a `curl` line cannot be read again").hint("import the line again"));
    };
    if let Some(server) = &options.server {
        definition["run"]["http"]["base_url"] = server.as_str().into();
    }
    let http = &definition["run"]["http"];
    let method = http["method"].as_str().unwrap_or("GET").to_owned();
    let path = http["path"].as_str().unwrap_or("/").to_owned();
    let host = http["base_url"].as_str().and_then(|url| url::Url::parse(url).ok());
    let host = host.and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
    let labels: Vec<_> = host.split('.').collect();
    let word = names::pack(labels.iter().rev().nth(1).unwrap_or(&"curl"), 2);
    let pack = options.pack.clone().unwrap_or_else(|| word.clone());
    let name = Names::new(options.max_name_chars).make(&pack, &format!("{} {path}", method.to_lowercase()));
    let what = format!("{method} {path}");
    let steps = draft["steps"].as_array().into_iter().flatten().filter_map(Value::as_str);
    // The last one names the subtool, which had no name yet.
    let notes = steps.map(|step| step.replace("`curl`", &format!("`{name}`"))).collect();
    let subtool = ImportedSubtool { name, what, group: word.clone(), definition };
    let secrets = literal::secrets(&subtool.definition["run"]);
    let id = document.from.clone();
    Ok(Imported { id, word, found: 1, subtools: vec![subtool], notes, secrets, ..Imported::default() })
}

/// Translates `line`, for the subtool `name`.
pub fn of_curl(line: &str, name: &str) -> Result<CurlDraft, CurlError> {
    let line = CurlLine::parse(line)?;
    let url = line.url.clone().ok_or_else(|| CurlError::new("the `curl` line has no URL"))?;
    let (base, query) = url.split_once('?').map_or((url.as_str(), ""), |(base, query)| (base, query));
    let base = if base.contains("://") { base.to_owned() } else { format!("https://{base}") };
    let base = base.split('#').next().unwrap_or_default().to_owned();
    taken_over("URL", &base)?;
    if !base.starts_with("https://") && !base.starts_with("http://") {
        return Err(CurlError::new("the URL of the `curl` line is neither http nor https"));
    }
    let authority = base.find("://").map_or(0, |at| at + 3);
    let path_at = base[authority..].find('/').map_or(base.len(), |at| authority + at);
    let (host, path) = base.split_at(path_at);
    let secret = secret_name(&host[authority..], name);
    let mut draft =
        CurlTranslation { http: Map::new(), properties: Map::new(), example: Map::new(), steps: Vec::new(), secret };
    let host = match host[authority..].rsplit_once('@') {
        Some((credentials, host)) => {
            draft.basic(credentials)?;
            format!("{}{host}", &base[..authority])
        }
        None => host.to_owned(),
    };
    let method = line.method();
    taken_over("method", &method)?;
    if method != "GET" {
        draft.http.insert("method".to_owned(), method.as_str().into());
    }
    draft.http.insert("base_url".to_owned(), host.into());
    if !path.is_empty() && path != "/" {
        draft.http.insert("path".to_owned(), path.into());
    }
    let mut pairs = pairs_of(query);
    if line.is_get {
        pairs.extend(line.data.iter().flat_map(|data| pairs_of(data)));
    }
    let query = draft.parameters(pairs);
    if !query.is_empty() {
        draft.http.insert("query".to_owned(), query.into());
    }
    if let Some(user) = &line.user {
        draft.basic(user)?;
    }
    draft.headers(&line.headers)?;
    draft.body(&line)?;
    let is_read = matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS");
    let mut definition = json!({
        "description": format!("Sends the request {method} {path} to {}; say here when to use it.", &base[authority..path_at].rsplit('@').next().unwrap_or_default()),
        "input": {"type": "object", "properties": draft.properties, "required": [], "additionalProperties": false},
        "annotations": if is_read { json!({"readOnlyHint": true}) } else { json!({"destructiveHint": method == "DELETE"}) },
        "run": {"http": draft.http},
        "examples": [{"input": draft.example}]
    });
    let required: Vec<_> = definition["examples"][0]["input"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| Value::from(name.as_str()))
        .collect();
    definition["input"]["required"] = required.into();
    if !is_read {
        definition["confirm"] = "always".into();
    }
    if matches!(method.as_str(), "POST" | "PATCH") {
        draft.steps.push(
            "if its answer can get lost, let the executor look up what happened: add \"verify\", a read-only subtool and a \
             condition, as docs/subtools.md shows"
                .to_owned(),
        );
    }
    draft.steps.push(format!("describe `{name}` and its parameters in the words of a user who needs it"));
    let written = definition.as_object().expect("a definition is an object");
    literal::check_definition(written, &BTreeSet::from([draft.secret]))
        .map_err(|reason| not_taken_over("line", &reason))?;
    Ok(CurlDraft { definition, steps: draft.steps })
}

impl CurlLine {
    fn parse(line: &str) -> Result<Self, CurlError> {
        let unfolded = line.replace("\\\r\n", " ").replace("\\\n", " ");
        let words = words_of(&unfolded).ok_or_else(|| CurlError::new("a quote of the `curl` line is not closed"))?;
        let mut words = words.into_iter().peekable();
        words.next_if(|word| word == "$");
        if words.next().is_none_or(|program| program.rsplit('/').next() != Some("curl")) {
            return Err(CurlError::new("the line does not begin with `curl`"));
        }
        let mut parsed = Self::default();
        while let Some(word) = words.next() {
            let (option, attached) = option_of(&word);
            let mut value = || {
                attached
                    .map(str::to_owned)
                    .or_else(|| words.next())
                    .ok_or_else(|| CurlError::new(format!("`{option}` of the `curl` line has no value")))
            };
            match option {
                "-X" | "--request" => parsed.method = Some(value()?.to_uppercase()),
                "--url" => parsed.url = Some(value()?),
                "-H" | "--header" => {
                    let header = value()?;
                    let (name, text) = header.split_once(':').unwrap_or((&header, ""));
                    parsed.headers.push((name.trim().to_owned(), text.trim().to_owned()));
                }
                "-d" | "--data" | "--data-raw" | "--data-binary" | "--data-ascii" => parsed.data.push(value()?),
                "--json" => {
                    parsed.is_json = true;
                    parsed.data.push(value()?);
                }
                "--data-urlencode" | "-F" | "--form" | "--form-string" => {
                    let field = value()?;
                    let (name, text) = field.split_once('=').unwrap_or((&field, ""));
                    parsed.form.push((name.to_owned(), text.to_owned()));
                }
                "-u" | "--user" => parsed.user = Some(value()?),
                "-A" | "--user-agent" | "-e" | "--referer" => drop(value()?),
                "-b" | "--cookie" => parsed.headers.push(("Cookie".to_owned(), value()?)),
                "-G" | "--get" => parsed.is_get = true,
                "-I" | "--head" => parsed.method = Some("HEAD".to_owned()),
                option if IGNORED.contains(&option) => {}
                option if IGNORED_WITH_VALUE.contains(&option) => drop(value()?),
                option if option.starts_with('-') => {
                    return Err(CurlError::new(format!("`{option}` of the `curl` line is not understood"))
                        .hint("leave it out, and add what it means to the definition by hand"));
                }
                url if parsed.url.is_none() => parsed.url = Some(url.to_owned()),
                _ => return Err(CurlError::new("the `curl` line has more than one URL")),
            }
        }
        Ok(parsed)
    }

    fn method(&self) -> String {
        let has_body = !(self.is_get || self.data.is_empty() && self.form.is_empty());
        self.method.clone().unwrap_or_else(|| if has_body { "POST" } else { "GET" }.to_owned())
    }
}

/// Separates an option from a value that is attached to it: `-XPOST`, `--request=POST`.
fn option_of(word: &str) -> (&str, Option<&str>) {
    if let Some(long) = word.strip_prefix("--") {
        return long.find('=').map_or((word, None), |at| (&word[..at + 2], Some(&word[at + 3..])));
    }
    let takes_value = ["-X", "-H", "-d", "-u", "-F", "-o", "-m", "-A", "-b", "-e", "-w"];
    match takes_value.iter().find(|option| word.starts_with(**option) && word.len() > 2) {
        Some(option) => (&word[..option.len()], Some(&word[option.len()..])),
        None => (word, None),
    }
}

impl CurlTranslation {
    /// Makes a parameter with `value` as the example, and returns its template.
    fn parameter(&mut self, name: &str, value: Value) -> Value {
        let mut parameter: String =
            name.chars().map(|it| if it.is_ascii_alphanumeric() { it.to_ascii_lowercase() } else { '_' }).collect();
        if !parameter.starts_with(|first: char| first.is_ascii_alphabetic()) {
            parameter.insert_str(0, "p_");
        }
        if KEYWORDS.contains(&parameter.as_str()) {
            parameter.push_str("_value");
        }
        while self.properties.contains_key(&parameter) {
            parameter.push('_');
        }
        let kind = match &value {
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
            Value::String(_) | Value::Null => "string",
        };
        let value = if value.is_null() { "".into() } else { value };
        self.properties
            .insert(parameter.clone(), json!({"type": kind, "description": format!("The value of `{name}`.")}));
        self.example.insert(parameter.clone(), value);
        format!("{{{{ {parameter} }}}}").into()
    }

    fn parameters(&mut self, pairs: Vec<(String, String)>) -> Map<String, Value> {
        let mut placed = Map::new();
        for (name, value) in pairs {
            let template = if is_secret_name(&name) { self.secret() } else { self.parameter(&name, value.into()) };
            placed.insert(name, template);
        }
        placed
    }

    fn headers(&mut self, headers: &[(String, String)]) -> Result<(), CurlError> {
        let mut placed = Map::new();
        for (name, value) in headers {
            taken_over("name of a header", name)?;
            let lower = name.to_ascii_lowercase();
            if lower == "authorization" {
                taken_over("header `Authorization`", value.split_once(' ').map_or("", |(scheme, _)| scheme))?;
                match value.split_once(' ') {
                    Some((scheme, _)) if scheme.eq_ignore_ascii_case("bearer") => self.bearer(),
                    Some((scheme, _)) if scheme.eq_ignore_ascii_case("basic") => {
                        self.api_key(name, &format!("{scheme} "));
                        self.steps.push("the secret is what follows `Basic ` in the header; `auth.basic` takes a name and a password instead".to_owned());
                    }
                    Some((scheme, _)) => self.api_key(name, &format!("{scheme} ")),
                    None => self.api_key(name, ""),
                }
            } else if is_secret_name(&lower) || lower == "cookie" {
                self.api_key(name, "");
            } else if lower == "content-type" || OWN_HEADERS.contains(&lower.as_str()) {
                // Set from the body, or by the executor.
            } else {
                taken_over(&format!("header `{name}`"), value)?;
                placed.insert(name.clone(), value.as_str().into());
            }
        }
        if !placed.is_empty() {
            self.http.insert("headers".to_owned(), placed.into());
        }
        Ok(())
    }

    fn body(&mut self, line: &CurlLine) -> Result<(), CurlError> {
        if line.is_get || (line.data.is_empty() && line.form.is_empty()) {
            return Ok(());
        }
        if line.data.iter().any(|data| data.starts_with('@')) || line.form.iter().any(|(_, text)| text.starts_with('@'))
        {
            return Err(CurlError::new("the `curl` line sends a file")
                .hint("leave it out, and write `body.file` or `body.multipart`: see docs/subtools.md"));
        }
        let data = line.data.join("&");
        let content_type = line.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let says_json = line.is_json || content_type.is_some_and(|(_, value)| value.contains("json"));
        let body = match serde_json::from_str::<Value>(&data) {
            Ok(Value::Object(fields)) => {
                let mut placed = Map::new();
                for (name, value) in fields {
                    let template = if is_secret_name(&name) { self.secret() } else { self.parameter(&name, value) };
                    placed.insert(name, template);
                }
                json!({"json": placed})
            }
            Ok(value) if says_json => json!({"json": self.parameter("body", value)}),
            _ if says_json => return Err(CurlError::new("the body of the `curl` line is not valid JSON")),
            _ => {
                let pairs = pairs_of(&data).into_iter().chain(line.form.iter().cloned()).collect();
                json!({"form": self.parameters(pairs)})
            }
        };
        self.http.insert("body".to_owned(), body);
        Ok(())
    }

    fn basic(&mut self, credentials: &str) -> Result<(), CurlError> {
        let user = credentials.split(':').next().unwrap_or_default();
        if user.is_empty() {
            return Err(CurlError::new("the `curl` line has credentials without a user name"));
        }
        taken_over("user name", user)?;
        let password = format!("secret:{}", self.secret);
        self.http.insert("auth".to_owned(), json!({"basic": {"username": user, "password": password}}));
        self.say_secret();
        Ok(())
    }

    fn bearer(&mut self) {
        let secret = self.secret();
        self.http.insert("auth".to_owned(), json!({"bearer": secret}));
    }

    fn api_key(&mut self, header: &str, prefix: &str) {
        let mut key = json!({"header": header, "value": self.secret()});
        if !prefix.is_empty() {
            key["prefix"] = prefix.into();
        }
        self.http.insert("auth".to_owned(), json!({"api_key": key}));
    }

    /// Returns a reference to the secret, and says how to store it.
    fn secret(&mut self) -> Value {
        self.say_secret();
        format!("secret:{}", self.secret).into()
    }

    fn say_secret(&mut self) {
        let step = format!("the credential was not written; store it: agent-magic-tool secret set {}", self.secret);
        if !self.steps.contains(&step) {
            self.steps.push(step);
        }
    }
}

/// Fails if `text`, which is written as it is, would be more than a text.
fn taken_over(what: &str, text: &str) -> Result<(), CurlError> {
    literal::text(text).map(drop).map_err(|reason| not_taken_over(what, &reason))
}

fn not_taken_over(what: &str, reason: &str) -> CurlError {
    CurlError::new(format!("the {what} cannot be taken over: {reason}"))
        .hint("leave it out, and write it into the definition by hand")
}

/// The name of the secret for a host: `api.github.com` gives `github_token`. An address gives none, so it is named after
/// the subtool.
fn secret_name(host: &str, subtool: &str) -> String {
    let host = host.rsplit('@').next().unwrap_or_default().split(':').next().unwrap_or_default();
    let labels: Vec<_> = host.split('.').filter(|label| !label.is_empty()).collect();
    let is_number = labels.iter().all(|label| label.bytes().all(|byte| byte.is_ascii_digit()));
    let name = match labels.as_slice() {
        [.., name, _] if !is_number => name,
        [only] if !is_number => only,
        _ => subtool,
    };
    let name = name.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '_' });
    name.take(50).chain("_token".chars()).collect()
}

/// Whether the value of a field of this name is a secret: a pasted line has a value, which would stand in the definition.
fn is_secret_name(name: &str) -> bool {
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    ["apikey", "token", "secret", "password", "passwd", "accesskey", "authkey", "signature"]
        .iter()
        .any(|known| name.ends_with(known))
        || matches!(name.as_str(), "key" | "auth" | "appid" | "xauth")
}

fn pairs_of(text: &str) -> Vec<(String, String)> {
    url::form_urlencoded::parse(text.as_bytes()).map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

/// Splits a line into words as a shell does. Nothing is expanded. `None` if a quote is not closed.
fn words_of(line: &str) -> Option<Vec<String>> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut rest = line.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            character if character.is_whitespace() => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next()? {
                        '\'' => break,
                        other => word.push(other),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next()? {
                        '"' => break,
                        '\\' if matches!(rest.peek(), Some('"' | '\\' | '$' | '`')) => word.extend(rest.next()),
                        other => word.push(other),
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(rest.next()),
            // Browsers write `$'…'` around what has a quote in it.
            '$' if word.is_none() && rest.peek() == Some(&'\'') => {
                rest.next();
                let word = word.get_or_insert_default();
                loop {
                    match rest.next()? {
                        '\'' => break,
                        '\\' => word.push(match rest.next()? {
                            'n' => '\n',
                            't' => '\t',
                            'r' => '\r',
                            other => other,
                        }),
                        other => word.push(other),
                    }
                }
            }
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Some(words)
}
