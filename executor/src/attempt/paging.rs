//! How an input asks for a page, and what an answer says of how many items there are: by the names that APIs use.
//!
//! A definition says it itself with `pagination` or `result.part`. Imported operations and MCP tools mostly do not.

use definition::Definition;
use ground::base::next_page::plain;
use protocol::json;
use serde_json::{Map, Value};

/// Names of the number of a page, in lower case and without separators; those of APIs that flatten objects end with one.
const PAGES: [&str; 3] = ["currentpage", "pagenumber", "pageno"];
const PAGE: &str = "page";
/// Names of the number of items of a page, also as the end of one.
const SIZES: [&str; 3] = ["pagesize", "perpage", "itemsperpage"];
const SIZE: &str = "limit";
/// Fields of an answer with the number of all items.
const TOTALS: [&str; 6] = ["totalcount", "total", "totalitems", "totalresults", "totalrecords", "totalsize"];

/// The parameters of a subtool that choose a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageParameters<'a> {
    /// The one with the number of the page.
    pub(super) number: &'a str,
    /// The number of the first page, mostly 1.
    pub(super) first: u64,
    /// The one with the number of items of a page.
    pub(super) size: Option<&'a str>,
}

impl<'a> PageParameters<'a> {
    /// Those of the definition; `None` unless exactly one is the number of a page.
    pub(super) fn of(definition: &'a Definition) -> Option<Self> {
        Self::of_input(&definition.input)
    }

    fn of_input(input: &'a Map<String, Value>) -> Option<Self> {
        let named = |is_it: fn(&str) -> bool| {
            let properties = input.get("properties").and_then(Value::as_object).into_iter().flatten();
            let mut found = properties.filter(|(name, schema)| {
                json::allowed_types(schema, &Value::Null).contains(&"integer") && is_it(&plain(name))
            });
            found.next().filter(|_| found.next().is_none())
        };
        let (number, schema) = named(|name| name == PAGE || PAGES.iter().any(|page| name.ends_with(page)))?;
        let size = named(|name| name == SIZE || SIZES.iter().any(|size| name.ends_with(size)));
        // `import` leaves a default to the server, and says it in words.
        let is_said = schema["description"].as_str().is_some_and(|text| text.contains("Default: 0."));
        let is_from_zero =
            is_said || schema.get("default").or_else(|| schema.get("minimum")).is_some_and(|least| *least == 0);
        Some(Self { number, first: u64::from(!is_from_zero), size: size.map(|(name, _)| name.as_str()) })
    }

    /// The number of the page that `input` asks for, counted from 1, unless that is the first one.
    pub(super) fn later_page(&self, input: &Map<String, Value>) -> Option<u64> {
        let asked = input.get(self.number).and_then(Value::as_u64)?;
        asked.checked_sub(self.first).filter(|before| *before > 0).map(|before| before + 1)
    }

    /// Whether items come after `data`, if it says how many there are: the answer to `input`.
    pub(super) fn has_more(&self, data: &Value, input: &Map<String, Value>) -> Option<bool> {
        let (items, total) = counted(data)?;
        let number = |name: &str| input.get(name).and_then(Value::as_u64);
        let before = number(self.number).unwrap_or(self.first).saturating_sub(self.first);
        let size = self.size.and_then(number);
        if before == 0 {
            // As many as were asked for, or fewer than there are on the page: it may count the page alone.
            let is_count = total > items || (total == items && size != Some(items));
            return is_count.then_some(items < total);
        }
        let size = size?;
        // A server that gives fewer than were asked for has pages of another size.
        Some(before.saturating_mul(size).saturating_add(items) < total).filter(|more| items == size || !more)
    }
}

/// How many items a page has, and how many there are in all, if it says so beside its only list.
fn counted(data: &Value) -> Option<(u64, u64)> {
    let fields = data.as_object()?;
    let mut lists = fields.values().filter_map(Value::as_array);
    let items = lists.next().filter(|_| lists.next().is_none())?;
    // Some write it as a text.
    let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
    let mut totals = fields.iter().filter(|(name, _)| TOTALS.contains(&plain(name).as_str()));
    Some((items.len() as u64, totals.find_map(|(_, value)| number(value))?))
}

/// The fields of a page that say how many items it has.
pub(super) fn counts_of_page(data: &Value, items: u64) -> Vec<String> {
    let fields = data.as_object().into_iter().flatten();
    let is_count = |name: &str| name.ends_with("count") && !TOTALS.contains(&name);
    let counts = fields.filter(|(name, value)| value.as_u64() == Some(items) && is_count(&plain(name)));
    counts.map(|(name, _)| name.clone()).collect()
}

/// How many items there are in all, if a page says so.
pub(super) fn total(data: &Value) -> Option<u64> {
    counted(data).map(|(_, total)| total)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn input(names: &[&str]) -> Map<String, Value> {
        let properties: Map<String, Value> =
            names.iter().map(|name| ((*name).to_owned(), json!({"type": "integer"}))).collect();
        Map::from_iter([("properties".to_owned(), properties.into())])
    }

    #[test]
    fn the_number_of_a_page_is_known_by_its_name() {
        for (names, expected) in [
            (vec!["page", "limit"], Some(("page", Some("limit")))),
            (
                vec!["searchCriteria_currentPage", "searchCriteria_pageSize"],
                Some(("searchCriteria_currentPage", Some("searchCriteria_pageSize"))),
            ),
            (vec!["page_number", "id"], Some(("page_number", None))),
            (vec!["page", "per_page"], Some(("page", Some("per_page")))),
            (vec!["homepage", "page_id", "limit"], None),
            // Which of them counts?
            (vec!["page", "currentPage"], None),
        ] {
            let input = input(&names);
            let found = PageParameters::of_input(&input).map(|found| (found.number, found.size));
            assert_eq!(found, expected, "{names:?}");
        }
        let mut one = input(&["page"]);
        one["properties"]["page"]["minimum"] = json!(0);
        assert_eq!(PageParameters::of_input(&one).map(|found| found.first), Some(0));
        one["properties"]["page"] = json!({"type": ["integer", "null"], "description": "The page. Default: 0."});
        assert_eq!(PageParameters::of_input(&one).map(|found| found.first), Some(0));
        one["properties"]["page"] =
            json!({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "default": null});
        assert_eq!(PageParameters::of_input(&one).map(|found| found.first), Some(1));
        one["properties"]["page"] = json!({"type": "string"});
        assert_eq!(PageParameters::of_input(&one), None);
    }

    #[test]
    fn a_total_tells_whether_items_come_after_a_page() {
        let names = input(&["page", "limit"]);
        let parameters = PageParameters::of_input(&names).expect("a page");
        let page = |count: usize| json!({"items": vec![json!({}); count], "total_count": 230});
        for (data, input, expected) in [
            (page(100), json!({}), Some(true)),
            (page(230), json!({}), Some(false)),
            (page(100), json!({"page": 2, "limit": 100}), Some(true)),
            (page(30), json!({"page": 3, "limit": 100}), Some(false)),
            // Lowered by the server, or a default that is not known.
            (page(50), json!({"page": 2, "limit": 100}), None),
            (page(100), json!({"page": 2}), None),
            (json!({"items": [], "others": [], "total": 9}), json!({}), None),
            (json!({"items": [], "total": 9.5}), json!({}), None),
            (json!({"items": [1], "total": "35"}), json!({}), Some(true)),
            (json!({"items": [1], "total": "many"}), json!({}), None),
            (json!([1]), json!({}), None),
        ] {
            let input = input.as_object().cloned().expect("an object");
            assert_eq!(parameters.has_more(&data, &input), expected, "{data} {input:?}");
        }
    }
}
