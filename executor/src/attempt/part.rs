//! What a result says about the part of all there is that it is: by the definition, or else by the answer itself.

use definition::Definition;
use definition::run::Run;
use ground::base::next_page;
use ground::task::failure::Failure;
use protocol::code::Code;
use protocol::extent;
use runner::ResponseFacts;
use serde_json::{Map, Value};

use super::Attempt;
use super::paging::PageParameters;

/// The fields that `result.part` of a definition may give.
const DECLARED: [&str; 5] = ["more_pages", "page", "limit", "total", "truncated"];

impl Attempt<'_> {
    /// Adds to `meta` which part of all there is `data` is, as the runner gave it. Fails only if the attempt is stopped:
    /// data whose extent cannot be told is still data.
    pub(super) async fn add_part(
        &self,
        definition: &Definition,
        data: &Value,
        facts: Option<&ResponseFacts>,
        input: &Map<String, Value>,
        meta: &mut Map<String, Value>,
    ) -> Result<(), Failure> {
        let declared = definition.result.as_ref().and_then(|shape| shape.part.as_ref());
        if let Some(expression) = declared {
            let (status, headers) = ResponseFacts::values(facts);
            let said = self.select(expression, data, input, &[("$status", &status), ("$headers", &headers)]).await;
            let why = match said {
                Ok(said) => declare(&said, meta).err(),
                Err(failure) if failure.error.code == Code::Cancelled => return Err(failure),
                Err(failure) => Some(failure.error.message),
            };
            meta.extend(why.map(|why| ("truncated".to_owned(), format!("{UNTOLD}: {why}").into())));
        }
        let parameters = PageParameters::of(definition);
        // What is ours says if there is more.
        let mut is_told = matches!(definition.run, Run::Builtin(_) | Run::Sql(_))
            || declared.is_some_and(|expression| expression.contains("more_pages"));
        if declared.is_none_or(|expression| !says_more(expression)) && is_open(&definition.run, meta) {
            let more = parameters.map(|parameters| parameters.has_more(data, input));
            is_told |= more.flatten().is_some();
            if next_page::is_named(data, facts.map(|facts| &facts.headers)) || more == Some(Some(true)) {
                meta.insert("more_pages".to_owned(), true.into());
            } else if more == Some(None) {
                // It has pages, and does not say whether this was the last one.
                meta.insert("more_pages".to_owned(), extent::UNKNOWN.into());
            }
        }
        // What comes before a later page is not there, whatever comes after it.
        let page = parameters.and_then(|parameters| parameters.later_page(input));
        if let Some(page) = page.filter(|_| (is_told || extent::is_told(meta)) && !meta.contains_key("page")) {
            meta.insert("page".to_owned(), page.into());
        }
        Ok(())
    }
}

/// Whether `result.part` says itself whether there is more: by its field, or by saying that there is nothing to say.
pub(super) fn says_more(expression: &str) -> bool {
    ["more_pages", "null"].iter().any(|word| expression.contains(word))
}

const UNTOLD: &str = "it is not known whether this is everything";

/// Whether the answer of someone else may say that it has a next page, and nothing here does.
fn is_open(run: &Run, meta: &Map<String, Value>) -> bool {
    let is_asked = match run {
        Run::Http(http) => http.pagination.is_none(),
        Run::Mcp(_) => true,
        _ => false,
    };
    is_asked && !extent::is_told(meta)
}

/// Puts what `result.part` gave into `meta`, over what the runner says; nothing for the first page if it is the only one.
fn declare(said: &Value, meta: &mut Map<String, Value>) -> Result<(), String> {
    let fields = match said {
        Value::Null => {
            meta.retain(|field, _| !extent::FIELDS.contains(&field.as_str()));
            return Ok(());
        }
        Value::Object(fields) => fields,
        other => return Err(format!("`result.part` gave {other}, which is not an object")),
    };
    for (field, value) in fields {
        let fits = match field.as_str() {
            "more_pages" => value.is_boolean() || *value == "unknown",
            "page" | "limit" | "total" => value.is_u64(),
            "truncated" => value.is_string(),
            _ => return Err(format!("`result.part` gave `{field}`; it may give `{}`", DECLARED.join("`, `"))),
        };
        if !fits && !value.is_null() {
            return Err(format!("`result.part` gave {value} as `{field}`"));
        }
    }
    let said = fields.iter().filter(|(_, value)| !value.is_null());
    meta.extend(said.map(|(field, value)| (field.clone(), value.clone())));
    if extent::note(&Value::Object(meta.clone())).is_none() {
        meta.retain(|field, _| !fields.contains_key(field));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_definition_says_of_a_part_is_checked() {
        for (said, expected) in [
            (json!(null), Ok(json!({}))),
            (json!({"more_pages": false, "page": 1, "total": 3}), Ok(json!({}))),
            (json!({"more_pages": true, "total": null}), Ok(json!({"more_pages": true}))),
            (json!({"more_pages": "unknown"}), Ok(json!({"more_pages": "unknown"}))),
            (json!({"more_pages": false, "page": 2}), Ok(json!({"more_pages": false, "page": 2}))),
            (json!({"truncated": "2 texts are cut"}), Ok(json!({"truncated": "2 texts are cut"}))),
            (json!(true), Err("`result.part` gave true, which is not an object")),
            (json!({"more_pages": "perhaps"}), Err("`result.part` gave \"perhaps\" as `more_pages`")),
            (
                json!({"pages": 1}),
                Err("`result.part` gave `pages`; it may give `more_pages`, `page`, `limit`, `total`, `truncated`"),
            ),
        ] {
            let mut meta = Map::new();
            let found = declare(&said, &mut meta).map(|()| Value::Object(meta));
            assert_eq!(found, expected.map_err(str::to_owned), "{said}");
        }
    }

    #[test]
    fn what_a_definition_says_stands_over_what_the_runner_says() {
        for (said, expected) in [
            (json!(null), json!({"url": "x"})),
            (json!({}), json!({"url": "x", "page": 2, "has_next_page": true})),
            (json!({"truncated": "cut"}), json!({"url": "x", "page": 2, "has_next_page": true, "truncated": "cut"})),
        ] {
            let Value::Object(mut meta) = json!({"url": "x", "page": 2, "has_next_page": true}) else { unreachable!() };
            declare(&said, &mut meta).expect("it is valid");
            assert_eq!(Value::Object(meta), expected, "{said}");
        }
    }
}
