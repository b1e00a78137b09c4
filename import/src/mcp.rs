//! MCP servers: one subtool for each tool that a server offers.
//!
//! Pure: the command asks the server and gives the answer here, with the settings by which it is reached. What a server
//! says of itself is untrusted text. Its schemas are kept as they are, since they decide what is accepted; a tool whose
//! schema cannot be used is left out as a whole. Its annotations are claims: what would make a gate lower stays out of
//! the definition and is noted in the record of the source, unless the human trusts the server.

use serde_json::{Map, Value, json};

use crate::document::Document;
use crate::text::{one_line, sentence};
use crate::{ImportError, ImportOptions, Imported, ImportedSubtool, LeftOut, names};
use names_of_tools::ToolNames;
use schema::ToolSchema;

mod headers;
mod names_of_tools;
mod schema;

/// The option by which each name begins with that of the server: `SERVER__TOOL`.
pub const PREFIX: &str = "prefix";
/// The option by which the annotations of a server count as they are.
pub const TRUST_ANNOTATIONS: &str = "trust-annotations";

/// The longest description. A longer one costs a model more than any tool is worth.
const MAX_DESCRIPTION_CHARS: usize = 4_096;
/// The longest title that is searched.
const MAX_TITLE_CHARS: usize = 120;
/// The most characters of a server's instructions that are kept.
const MAX_INSTRUCTIONS_CHARS: usize = 16_384;
/// The most characters of a tool's name in a report.
const MAX_SHOWN_NAME_CHARS: usize = 80;

/// The annotations that a definition knows.
const ANNOTATIONS: [&str; 4] = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"];
/// The annotations that only raise a gate when they are true.
const RAISING: [&str; 2] = ["destructiveHint", "openWorldHint"];

/// Writes what a server offers as the text of a [`Document`]: its settings, as `run.mcp.server` has them, and the
/// snapshot of it.
pub fn document(from: &str, server: &Value, snapshot: &Value) -> Result<Document, ImportError> {
    Document::new(from, json!({"server": server, "snapshot": snapshot}).to_string())
}

pub(crate) fn recognizes(document: &Document) -> bool {
    document.data["server"].is_object() && document.data.pointer("/snapshot/tools").is_some_and(Value::is_array)
}

/// Imports a document that [`document`] made.
pub(crate) fn import(document: &Document, options: &ImportOptions) -> Result<Imported, ImportError> {
    let (server, snapshot) = (&document.data["server"], &document.data["snapshot"]);
    let (Some(server), Some(tools)) = (server.as_object(), snapshot["tools"].as_array()) else {
        return Err(ImportError::new("it is no snapshot of an MCP server"));
    };
    let name = server.get("name").and_then(Value::as_str).unwrap_or_default();
    let pack = options.pack.clone().unwrap_or_else(|| pack_name(name));
    let text = |pointer: &str| snapshot.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
    let mut imported = Imported {
        id: text("/info/name").unwrap_or(&document.from).to_owned(),
        word: pack.clone(),
        version: text("/info/version").map(str::to_owned),
        found: tools.len(),
        ..Imported::default()
    };
    let mut settings = server.clone();
    settings.retain(|key, value| !(key == "transport" && value == "auto"));
    if let Some(protocol) = text("/protocol") {
        settings.insert("protocol".to_owned(), protocol.into());
    }
    imported.defaults.insert("run".to_owned(), json!({"mcp": {"server": settings}}));
    imported.defaults.insert("tags".to_owned(), json!([pack]));
    let conversion = ToolConversion {
        server: name,
        is_remote: server.contains_key("url"),
        is_trusted: options.others.contains_key(TRUST_ANNOTATIONS),
    };
    let prefix = options.others.contains_key(PREFIX).then_some(pack.as_str());
    let mut made = ToolNames::of(tools.iter().filter_map(tool_name), prefix, options.max_name_chars);
    let mut claims = Map::new();
    for entry in tools {
        let Some(own) = tool_name(entry) else {
            imported.left_out.push(LeftOut::new("a tool", "it has no name"));
            continue;
        };
        let what = one_line(own, MAX_SHOWN_NAME_CHARS);
        let Some(name) = made.take(own) else {
            imported.left_out.push(LeftOut::new(what, "the server has another tool of this name"));
            continue;
        };
        match conversion.definition(own, entry, &mut imported.simplified) {
            Ok(definition) => {
                claims.extend(claims_of(entry).map(|claimed| (own.to_owned(), claimed)));
                imported.subtools.push(ImportedSubtool { name, what, group: pack.clone(), definition });
            }
            Err(reason) => imported.left_out.push(LeftOut::new(what, reason)),
        }
    }
    notes(&mut imported, &claims, conversion.is_trusted);
    if let Some(instructions) = text("/instructions") {
        let kept: String = instructions.chars().take(MAX_INSTRUCTIONS_CHARS).collect();
        imported.about.insert("instructions".to_owned(), kept.into());
    }
    if !claims.is_empty() {
        imported.about.insert("annotations".to_owned(), claims.into());
    }
    Ok(imported)
}

/// What no loader refuses is the input that the server declares, or nothing: only the schema of the output is given up.
pub(crate) fn loosen(definition: &mut Map<String, Value>) -> &'static str {
    definition.remove("output");
    "its output is not checked, since the loader refuses the declared schema"
}

/// Makes the name of a pack of the name that a server has elsewhere.
pub fn pack_name(name: &str) -> String {
    const MAX_PACK_CHARS: usize = 24;
    let mut pack = String::new();
    for letter in name.chars() {
        if letter.is_ascii_alphanumeric() || letter == '_' {
            pack.push(letter);
        } else if !pack.is_empty() && !pack.ends_with('-') {
            pack.push('-');
        }
    }
    pack.truncate(MAX_PACK_CHARS);
    let pack = pack.trim_end_matches('-');
    if pack.is_empty() { "mcp".to_owned() } else { pack.to_owned() }
}

/// Makes the name of a pack of the URL of a server: `https://mcp.linear.app/sse` is called `linear`.
pub fn pack_name_of_url(url: &str) -> String {
    let url = url::Url::parse(url).ok();
    let host = url.as_ref().and_then(url::Url::host_str).unwrap_or_default();
    names::of_host(host).unwrap_or_else(|| "mcp".to_owned())
}

fn tool_name(entry: &Value) -> Option<&str> {
    entry["tool"]["name"].as_str().filter(|name| !name.trim().is_empty())
}

/// What the tool says of its effects.
fn claims_of(entry: &Value) -> Option<Value> {
    let claimed = entry["tool"]["annotations"].as_object()?;
    let known: Map<_, _> = claimed
        .iter()
        .filter(|(key, value)| ANNOTATIONS.contains(&key.as_str()) && value.is_boolean())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    (!known.is_empty()).then(|| known.into())
}

fn notes(imported: &mut Imported, claims: &Map<String, Value>, is_trusted: bool) {
    if imported.found == 0 {
        imported.notes.push("the server offers no tools: there is nothing to run until it does".to_owned());
    }
    let lowering = claims.values().filter(|claimed| claimed["readOnlyHint"] == true).count();
    if lowering > 0 && !is_trusted {
        imported.notes.push(format!(
            "{lowering} of its tools say that they only read; a server's word does not lower a gate, so they ask like \
             the others. If you trust it: --trust-annotations, or `annotations` of single tools in the file"
        ));
    }
}

/// How the tools of one server become definitions.
struct ToolConversion<'a> {
    /// The server's name, for humans.
    server: &'a str,
    /// Whether it is reached by a URL, where parameters may become headers.
    is_remote: bool,
    is_trusted: bool,
}

impl ToolConversion<'_> {
    /// Makes the definition of a tool, or says why it is left out.
    fn definition(
        &self,
        name: &str,
        entry: &Value,
        simplified: &mut Vec<LeftOut>,
    ) -> Result<Map<String, Value>, String> {
        let tool = &entry["tool"];
        let what = one_line(name, MAX_SHOWN_NAME_CHARS);
        let mut note = |reason: String| simplified.push(LeftOut::new(what.as_str(), reason));
        if self.is_remote {
            headers::check(&tool["inputSchema"])?;
        }
        let input = ToolSchema::of_input(&tool["inputSchema"])?;
        input.simplified.into_iter().for_each(&mut note);
        let mut definition = Map::new();
        definition.insert("description".to_owned(), self.description(name, tool, &mut note).into());
        definition.extend(title(name, tool).map(|title| ("phrases".to_owned(), json!([title]))));
        definition.insert("input".to_owned(), input.schema.into());
        let annotations = self.annotations(entry);
        if !annotations.is_empty() {
            definition.insert("annotations".to_owned(), annotations.into());
        }
        let mut call = json!({"tool": name});
        if let Some(digest) = entry["digest"].as_str() {
            call["digest"] = digest.into();
        }
        definition.insert("run".to_owned(), json!({"mcp": call}));
        match tool.get("outputSchema").map(ToolSchema::of_output) {
            Some(Ok(output)) => drop(definition.insert("output".to_owned(), output.schema.into())),
            Some(Err(reason)) => note(format!("its output is not checked: {reason}")),
            None => {}
        }
        Ok(definition)
    }

    /// The tool's own words, unchanged: whatever a human reads here is what a model reads.
    fn description(&self, name: &str, tool: &Value, note: &mut impl FnMut(String)) -> String {
        let own = tool["description"].as_str().unwrap_or_default().trim();
        if own.is_empty() {
            let title = title_of(tool).map(sentence).map(|title| format!("{title} ")).unwrap_or_default();
            return format!("{title}Calls the tool `{name}` of the MCP server {}.", self.server);
        }
        if own.chars().count() <= MAX_DESCRIPTION_CHARS {
            return own.to_owned();
        }
        note(format!("its description was cut after {MAX_DESCRIPTION_CHARS} characters"));
        let cut: String = own.chars().take(MAX_DESCRIPTION_CHARS - 1).collect();
        format!("{}…", cut.trim_end())
    }

    /// Of a server that is not trusted, the claims that only raise a gate.
    fn annotations(&self, entry: &Value) -> Map<String, Value> {
        let claimed = claims_of(entry).and_then(|claimed| claimed.as_object().cloned()).unwrap_or_default();
        let raises = |key: &str, value: &Value| RAISING.contains(&key) && *value == Value::Bool(true);
        claimed.into_iter().filter(|(key, value)| self.is_trusted || raises(key, value)).collect()
    }
}

/// The title, if it has words that the name and the description lack.
fn title(name: &str, tool: &Value) -> Option<String> {
    let title = title_of(tool)?;
    let known = names::words(&format!("{name} {}", tool["description"].as_str().unwrap_or_default()));
    let says_more = !title.is_ascii() || names::words(title).iter().any(|word| !known.contains(word));
    says_more.then(|| one_line(title, MAX_TITLE_CHARS))
}

fn title_of(tool: &Value) -> Option<&str> {
    let titles = [tool.get("title"), tool.pointer("/annotations/title")];
    titles.into_iter().flatten().filter_map(Value::as_str).map(str::trim).find(|title| !title.is_empty())
}

#[cfg(test)]
mod tests;
