//! The formats of the listing: our own, those of other tool interfaces, and a table for people.

use std::borrow::Cow;
use std::fmt::Write as _;

use clap::ValueEnum;
use protocol::sentences::{first_sentence, first_sentences};
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::json;
use serde_json::value::RawValue;
use serde_with_macros::skip_serializing_none;

use super::{Detail, Line, MAX_SENTENCE_CHARS, Need, typescript};
use crate::context::Context;
use crate::error::Error;
use crate::output::{MAX_DOCUMENT_BYTES, Output};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// {name: {description, input}}; of a query, the best hit so, then {description, signature}, {description} and {}
    Json,
    /// Typed signatures of `TypeScript` with comments: `name(input: {...})`
    Typescript,
    /// [name, ...]
    Names,
    /// `{hits: [{tool, score, matched_in}], _meta: {total_candidates}}`
    Hits,
    /// `OpenAI`'s function calling: [{type, function: {name, description, parameters}}]
    Openai,
    /// Anthropic's tools: `[{name, description, input_schema}]`
    Anthropic,
    /// Gemini's tools: `[{functionDeclarations: [{name, description, parametersJsonSchema}]}]`
    Gemini,
    /// The result of MCP's `tools/list`: `{tools: [{name, description, inputSchema, annotations}]}`
    Mcp,
    /// For reading in a terminal
    Table,
}

impl Format {
    /// Whether it shows the inputs.
    pub(super) fn has_schemas(self) -> bool {
        !matches!(self, Self::Names | Self::Hits | Self::Table)
    }

    /// Whether a model reads it as it is, and so pays for each schema.
    pub(super) fn is_read(self) -> bool {
        matches!(self, Self::Json | Self::Typescript)
    }
}

/// Prints the page. One whose size the caller chose with `--limit` is printed as it is.
pub(super) fn print(
    lines: &[Line],
    total: usize,
    format: Format,
    has_limit: bool,
    context: &Context,
) -> Result<(), Error> {
    let output = DocumentOutput { output: &context.output, is_whole: has_limit };
    match format {
        Format::Json => output.json(&ByName(lines)),
        Format::Typescript => context.output.text(&signatures(lines, has_limit)),
        Format::Names => output.json(&lines.iter().map(|line| &line.entry.name).collect::<Vec<_>>()),
        Format::Hits => {
            let hit = |line: &Line| match &line.hit {
                Some(hit) => json!({"tool": line.entry.name, "score": rounded(hit.score),
                    "matched_in": hit.matched_in.names().collect::<Vec<_>>()}),
                None => json!({"tool": line.entry.name}),
            };
            let hits: Vec<_> = lines.iter().map(hit).collect();
            output.json(&json!({"hits": hits, "_meta": {"total_candidates": total}}))
        }
        Format::Openai => output.json(&tools(lines, |entry| {
            json!({"type": "function", "function": {
                "name": entry.name, "description": entry.description, "parameters": entry.input}})
        })),
        Format::Anthropic => output.json(&tools(
            lines,
            |entry| json!({"name": entry.name, "description": entry.description, "input_schema": entry.input}),
        )),
        Format::Gemini => {
            let functions = tools(
                lines,
                |entry| json!({"name": entry.name, "description": entry.description, "parametersJsonSchema": entry.input}),
            );
            output.json(&json!([{"functionDeclarations": functions}]))
        }
        Format::Mcp => {
            let tools = tools(lines, |entry| {
                json!({"name": entry.name, "description": entry.description, "inputSchema": entry.input,
                    "annotations": {"readOnlyHint": entry.is_read_only}})
            });
            output.json(&json!({"tools": tools}))
        }
        Format::Table => {
            let widest = lines.iter().map(|line| line.entry.name.len()).max().unwrap_or(0);
            let text = |Line { entry, needs, .. }: &Line| {
                let needs = needs.as_ref().map(|needs| format!(" (needs {})", needs.explained())).unwrap_or_default();
                format!("{:widest$}  {}{needs}\n", entry.name, short_sentence(&entry.description))
            };
            context.output.lines(&lines.iter().map(text).collect::<String>())
        }
    }
}

/// Prints the one document of the listing.
struct DocumentOutput<'a> {
    output: &'a Output,
    /// Whether it is printed whatever its size.
    is_whole: bool,
}

impl DocumentOutput<'_> {
    fn json(&self, document: &impl Serialize) -> Result<(), Error> {
        if self.is_whole {
            return self.output.whole_json(document);
        }
        self.output.json_or(document, "list fewer: --limit 3, or --format names")
    }
}

/// The best hits as typed signatures; the others, and what does not fit, as comments of a line.
fn signatures(lines: &[Line], is_whole: bool) -> String {
    let (mut text, mut explained, mut named) = (String::new(), ExplainedNeeds::default(), Vec::new());
    for Line { entry, detail, needs, .. } in lines {
        if *detail == Detail::Name {
            named.push(entry.name.as_str());
            continue;
        }
        let needs = needs.as_ref().map(|needs| explained.text(needs));
        let input = serde_json::from_str(entry.input.get()).ok().filter(|_| *detail == Detail::Schema);
        let signature = input.map(|input| typescript::signature(&entry.name, &entry.description, &input));
        let fits = |one: &String| is_whole || text.len() + one.len() <= MAX_DOCUMENT_BYTES;
        let written = if let Some(signature) = signature.filter(fits) {
            needs.map(|needs| format!("// needs {needs}\n")).unwrap_or_default() + &signature
        } else {
            let needs = needs.map(|needs| format!(" (needs {needs})")).unwrap_or_default();
            let input = if let Detail::Signature(input) = detail { typescript::comment(input) } else { String::new() };
            let sentence = typescript::comment(&short_sentence(&entry.description));
            format!("// {}{input}: {sentence}{needs}\n", entry.name)
        };
        text.push_str(&written);
    }
    if !named.is_empty() {
        writeln!(text, "// also: {}", named.join(", ")).expect("a text takes all");
    }
    if text.is_empty() { "// no subtool matches\n".to_owned() } else { text }
}

fn tools(lines: &[Line], tool: impl Fn(&super::ListingEntry) -> serde_json::Value) -> Vec<serde_json::Value> {
    lines.iter().map(|line| tool(&line.entry)).collect()
}

/// Two digits after the point: more say nothing.
fn rounded(score: f64) -> f64 {
    (score * 100.0).round() / 100.0
}

/// The first sentence, or its beginning, without the point.
fn short_sentence(description: &str) -> String {
    let line = description.lines().next().unwrap_or_default();
    let short = first_sentences(first_sentence(line), MAX_SENTENCE_CHARS);
    short.strip_suffix('.').map_or_else(|| short.clone(), str::to_owned)
}

/// What was explained so far: what several subtools lack is explained once.
#[derive(Default)]
struct ExplainedNeeds<'a>(Vec<&'a Need>);

impl<'a> ExplainedNeeds<'a> {
    fn text(&mut self, need: &'a Need) -> String {
        if self.0.contains(&need) {
            return need.named();
        }
        self.0.push(need);
        need.explained()
    }
}

/// Serializes as one object keyed by name, in order of relevance.
struct ByName<'a>(&'a [Line]);

#[skip_serializing_none]
#[derive(Default, Serialize)]
struct ListedTool<'a> {
    description: Option<Cow<'a, str>>,
    input: Option<&'a RawValue>,
    signature: Option<&'a str>,
    needs: Option<String>,
}

impl Serialize for ByName<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        let mut explained = ExplainedNeeds::default();
        for Line { entry, detail, needs, .. } in self.0 {
            let mut listed = ListedTool::default();
            if *detail != Detail::Name {
                listed.needs = needs.as_ref().map(|needs| explained.text(needs));
            }
            match detail {
                Detail::Schema => {
                    (listed.description, listed.input) = (Some(Cow::from(&entry.description)), Some(&*entry.input));
                }
                Detail::Signature(signature) => {
                    (listed.description, listed.signature) =
                        (Some(short_sentence(&entry.description).into()), Some(signature.as_str()));
                }
                Detail::Sentence => listed.description = Some(short_sentence(&entry.description).into()),
                Detail::Name => {}
            }
            map.serialize_entry(&entry.name, &listed)?;
        }
        map.end()
    }
}
