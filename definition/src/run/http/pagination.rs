//! The ways in which an API divides a list into pages, as a definition declares them.
//!
//! Fetching and joining the pages is up to the runner.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

use super::{DefinitionMistake, Http, Method, ResponseFormat};

/// How further pages are fetched: exactly one of `next_token`, `link_header`, `next_url`, `page`, `offset` and
/// `last_item`.
#[skip_serializing_none]
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pagination {
    /// The response contains a token (or cursor) that the next request sends back.
    pub next_token: Option<NextToken>,
    /// The `Link` header of the response has the URL of the next page (RFC 8288, `rel="next"`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub link_header: bool,
    /// The field (or JSON pointer) of the response that contains the URL of the next page, on the same server.
    pub next_url: Option<String>,
    /// The request carries the number of the page, from 1.
    pub page: Option<Counter>,
    /// The request carries how many items to skip, from 0.
    pub offset: Option<Counter>,
    /// The request carries a field of the last item so far.
    pub last_item: Option<LastItem>,
    /// The field (or JSON pointer) of the response that is `true` if there are further pages. Absent: they end where the response names no next page, or at an empty page.
    pub has_more: Option<String>,
    /// The field (or JSON pointer) of the array to join; default: the response itself is the array.
    pub items: Option<String>,
    /// The most pages to fetch.
    #[serde(default = "default_max_pages")]
    #[schemars(range(min = 1))]
    pub max_pages: u32,
    /// The most items to return: a number, or a template that renders to one.
    pub max_items: Option<Value>,
}

fn default_max_pages() -> u32 {
    5
}

/// A token for the next page, sent in exactly one of `query` and `body`.
#[skip_serializing_none]
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NextToken {
    /// The query parameter that carries the token.
    pub query: Option<String>,
    /// The field (or JSON pointer) of the JSON body that carries the token.
    pub body: Option<String>,
    /// The field (or JSON pointer) of the response that contains the token.
    pub response: String,
}

/// A number that grows from page to page, sent in exactly one of `query` and `body`. If the declared request has a
/// number there, the pages start with it.
#[skip_serializing_none]
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Counter {
    /// The query parameter that carries the number.
    pub query: Option<String>,
    /// The field (or JSON pointer) of the JSON body that carries the number.
    pub body: Option<String>,
    /// The number of the first page if the request has none. Absent: 1 for `page`, 0 for `offset`.
    pub first: Option<u64>,
}

/// A field of the last item, like its id, sent in exactly one of `query` and `body`.
#[skip_serializing_none]
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LastItem {
    /// The query parameter that carries the value, like `starting_after`.
    pub query: Option<String>,
    /// The field (or JSON pointer) of the JSON body that carries the value.
    pub body: Option<String>,
    /// The field (or JSON pointer) of an item, like `id`.
    pub field: String,
}

/// Where a request carries what selects its page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parameter {
    Query(String),
    /// A JSON pointer into the JSON body.
    Body(String),
}

impl Parameter {
    /// The parameter of a checked definition, which has exactly one of `query` and `body`.
    fn of(query: Option<&String>, body: Option<&String>) -> Option<Self> {
        match (query, body) {
            (Some(query), None) => Some(Self::Query(query.clone())),
            (None, Some(body)) => Some(Self::Body(pointer(body))),
            _ => None,
        }
    }
}

impl NextToken {
    pub fn parameter(&self) -> Option<Parameter> {
        Parameter::of(self.query.as_ref(), self.body.as_ref())
    }
}

impl Counter {
    pub fn parameter(&self) -> Option<Parameter> {
        Parameter::of(self.query.as_ref(), self.body.as_ref())
    }
}

impl LastItem {
    pub fn parameter(&self) -> Option<Parameter> {
        Parameter::of(self.query.as_ref(), self.body.as_ref())
    }
}

/// Turns a field name into a JSON pointer; returns a pointer unchanged.
pub fn pointer(field: &str) -> String {
    if field.starts_with('/') { field.to_owned() } else { format!("/{}", protocol::json::pointer_token(field)) }
}

impl Pagination {
    /// Whether the request, and not the response, says which page is next.
    pub fn counts(&self) -> bool {
        self.page.is_some() || self.offset.is_some() || self.last_item.is_some()
    }

    /// Finds mistakes that the types cannot express, except in the template `max_items`.
    pub(super) fn check(&self, http: &Http) -> Result<(), DefinitionMistake> {
        let mistake = |place: &str, message: &str| Err(DefinitionMistake::new(place, &message));
        let has_json_body = matches!(http.body, Some(super::Body::Json(_)));
        if http.method != Method::Get && !(http.method == Method::Post && has_json_body) {
            return mistake("pagination", "requires the method GET, or POST with a JSON body");
        }
        if !matches!(http.response, ResponseFormat::Auto | ResponseFormat::Json) {
            return mistake("pagination", "requires a JSON response");
        }
        if http.poll.is_some() {
            return mistake("pagination", "cannot be combined with `poll`");
        }
        if self.max_pages == 0 {
            return mistake("pagination.max_pages", "must be at least 1");
        }
        let parameters = [
            self.next_token.as_ref().map(|token| ("next_token", token.parameter())),
            self.page.as_ref().map(|page| ("page", page.parameter())),
            self.offset.as_ref().map(|offset| ("offset", offset.parameter())),
            self.last_item.as_ref().map(|last| ("last_item", last.parameter())),
        ];
        let links = usize::from(self.link_header) + usize::from(self.next_url.is_some());
        if parameters.iter().flatten().count() + links != 1 {
            let kinds = "`next_token`, `link_header`, `next_url`, `page`, `offset` and `last_item`";
            return mistake("pagination", &format!("must have exactly one of {kinds}"));
        }
        for (kind, parameter) in parameters.iter().flatten() {
            let place = format!("pagination.{kind}");
            match parameter {
                None => return mistake(&place, "must have exactly one of `query` and `body`"),
                Some(Parameter::Body(_)) if !has_json_body => {
                    return mistake(&format!("{place}.body"), "requires a JSON body; set `method` and `body.json`");
                }
                Some(_) => {}
            }
        }
        let needs_items = [
            ("next_token", self.next_token.is_some()),
            ("next_url", self.next_url.is_some()),
            ("has_more", self.has_more.is_some()),
        ];
        match needs_items.iter().find(|(_, declared)| *declared && self.items.is_none()) {
            Some((kind, _)) => mistake("pagination", &format!("`{kind}` requires `items`")),
            None => Ok(()),
        }
    }
}
