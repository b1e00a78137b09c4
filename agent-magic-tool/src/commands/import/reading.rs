//! Gets the description that a source names: a file, a URL that a human gave, a program, or a `curl` line.

use std::path::Path;

use agent_side::error::Error;
use ground::config::Config;
use import::ImportError;
use import::document::{Document, MAX_DOCUMENT_BYTES};
use import::kinds::{Kind, Reading};
use net::download;
use protocol::code::Code;
use protocol::regular_file;
use serde_json::json;

use super::programs;

/// Reads the source that `words` name: one word, or a program and those of one of its commands.
pub(super) fn document(words: &[String], kind: Option<&Kind>, config: &Config) -> Result<Document, Error> {
    let name = words.join(" ");
    let is_url = name.starts_with("http://") || name.starts_with("https://");
    match kind.map(|kind| kind.reading) {
        Some(Reading::Program) => programs::transcript(words),
        Some(Reading::CurlLine) => import::curl::document(&name).map_err(|error| failed("curl", error)),
        None if name.starts_with("curl ") => import::curl::document(&name).map_err(|error| failed("curl", error)),
        Some(Reading::FileOrGraphql(query)) if is_url => {
            let answer = download::ask(config, &name, &json!({"query": query}), MAX_DOCUMENT_BYTES as u64)?;
            Document::new(name.as_str(), answer.text()).map_err(|error| failed(&name, error))
        }
        // A server is asked by `servers`.
        Some(Reading::McpServer | Reading::Database | Reading::FileOrUrl | Reading::FileOrGraphql(_)) | None => {
            file_or_url(&name, config)
        }
    }
}

fn file_or_url(name: &str, config: &Config) -> Result<Document, Error> {
    let max = MAX_DOCUMENT_BYTES as u64;
    let (from, text) = if name.starts_with("http://") || name.starts_with("https://") {
        let page = download::download(config, name, max)?;
        if !(200..300).contains(&page.status) {
            return Err(Error::new(Code::ApiError, format!("`{name}` answered with status {}", page.status))
                .hint("open it in a browser; if it needs a login, download it and import the file"));
        }
        (name.to_owned(), page.text())
    } else {
        let path = Path::new(name);
        if !path.exists() {
            return Err(Error::new(Code::NotFound, format!("no file `{name}`"))
                .hint("name a file, or a URL that begins with https://"));
        }
        let bytes =
            regular_file::read(path, max).map_err(|error| Error::io(&format!("failed to read `{name}`"), &error))?;
        if bytes.len() as u64 >= max {
            return Err(Error::usage(format!("`{name}` is larger than {max} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|_| Error::usage(format!("`{name}` is not a text in UTF-8")))?;
        // A refresh may run in another folder.
        let absolute = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        (absolute.display().to_string(), text)
    };
    Document::new(from, text).map_err(|error| failed(name, error))
}

pub(super) fn failed(name: &str, error: ImportError) -> Error {
    let failed = Error::usage(format!("failed to import `{name}`: {}", error.message));
    match error.hint {
        Some(hint) => failed.hint(hint),
        None => failed,
    }
}

/// Orders versions of one API: stable ones before others, then by their numbers.
pub(super) fn stability(document: &Document) -> (bool, Vec<u64>) {
    let version = document.data["version"].as_str().unwrap_or_default();
    let is_stable = !["alpha", "beta", "preview"].iter().any(|word| version.contains(word));
    let numbers = version.split(|it: char| !it.is_ascii_digit()).filter_map(|part| part.parse().ok());
    (is_stable, numbers.collect())
}
