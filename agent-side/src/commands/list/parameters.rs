//! The parameters of an input, weighed for a search: what must be given, what the query names, what callers mostly give.

use serde_json::{Map, Value};

/// Shorter words of a query say nothing about a parameter.
const MIN_WORD_CHARS: usize = 3;
/// How many parameters a word of a query chooses, at most: a word that many have is that of the thing itself.
const MAX_NAMED_BY_WORD: usize = 3;
/// Parameters that callers mostly give, whatever they ask for.
const USUAL: [&str; 27] = [
    "attendees",
    "body",
    "content",
    "description",
    "email",
    "end",
    "filter",
    "from",
    "labels",
    "location",
    "message",
    "name",
    "q",
    "query",
    "search_query",
    "since",
    "start",
    "state",
    "subject",
    "summary",
    "text",
    "timemax",
    "timemin",
    "title",
    "to",
    "until",
    "values",
];

/// The parameters of one input.
pub(super) struct Parameters<'a> {
    properties: Option<&'a Map<String, Value>>,
    required: Vec<&'a str>,
}

impl<'a> Parameters<'a> {
    pub(super) fn of(input: &'a Value) -> Self {
        let required = input["required"].as_array().map(Vec::as_slice).unwrap_or_default();
        Self {
            properties: input["properties"].as_object(),
            required: required.iter().filter_map(Value::as_str).collect(),
        }
    }

    /// Whether everything that must be given is described.
    pub(super) fn has_all_required(&self) -> bool {
        self.required.iter().all(|name| self.properties.is_some_and(|known| known.contains_key(*name)))
    }

    /// Name, schema, and whether it must be given: first those that must, then those that the query names or that callers
    /// mostly give, then the others; each in their order.
    pub(super) fn by_weight(&self, query: &str) -> Vec<(&'a str, &'a Value, bool)> {
        let words = self.rare_words(query);
        let weigh = |name: &str| {
            let lower = name.to_lowercase();
            match () {
                () if self.required.contains(&name) => 0,
                () if USUAL.contains(&&*lower) || words.iter().any(|word| lower.contains(word)) => 1,
                () => 2,
            }
        };
        let all = self.properties.into_iter().flatten();
        let mut weighed: Vec<_> = all.map(|(name, schema)| (weigh(name), name.as_str(), schema)).collect();
        weighed.sort_by_key(|(weight, ..)| *weight);
        weighed.into_iter().map(|(weight, name, schema)| (name, schema, weight == 0)).collect()
    }

    /// The words of a query that may choose parameters.
    fn rare_words(&self, query: &str) -> Vec<String> {
        let query = query.to_lowercase();
        let names: Vec<_> = self.properties.into_iter().flatten().map(|(name, _)| name.to_lowercase()).collect();
        query
            .split(|character: char| !character.is_alphanumeric())
            .map(|word| word.strip_suffix('s').unwrap_or(word))
            .filter(|word| word.chars().count() >= MIN_WORD_CHARS)
            .filter(|word| names.iter().filter(|name| name.contains(word)).count() <= MAX_NAMED_BY_WORD)
            .map(str::to_owned)
            .collect()
    }
}
