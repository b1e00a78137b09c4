//! Which part of all there is the data of a result is: runners say it in these fields of `_meta`, and readers are told.
//!
//! Every runner that cuts what it returns says so with [`DataExtent`], so that a caller who sees only a value computed from the
//! data still learns that it is not that of everything. Decides nothing about what is cut.

use serde_json::{Map, Value};

/// The fields of `_meta` that say it.
pub const FIELDS: [&str; 7] = ["more_pages", "has_next_page", "truncated", "page", "limit", "asked_limit", "total"];

/// The field that says with which option all of it is read.
pub const MORE_WITH: &str = "more_with";

/// The value of `more_pages` if it is not known whether there is more.
pub const UNKNOWN: &str = "unknown";

/// Whether there is more than the data has.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum More {
    #[default]
    No,
    Yes,
    Unknown,
}

/// What a runner says about what it left out.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct DataExtent {
    pub more: More,
    /// The most that was returned; said only if there may be more.
    pub limit: Option<u64>,
    /// The limit that was asked for, if it was lowered to `limit`.
    pub asked_limit: Option<u64>,
    /// What else is missing, such as the ends of long lines.
    pub truncated: Option<String>,
}

/// What the fields of a result say about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    Whole,
    /// It is the last of several pages.
    LastPage,
    /// There may be more.
    Unknown,
    Part,
}

impl From<bool> for More {
    fn from(is_more: bool) -> Self {
        if is_more { Self::Yes } else { Self::No }
    }
}

impl DataExtent {
    /// Adds it to the `_meta` of a result; nothing if the data is all there is and no limit was lowered.
    pub fn add_to(self, meta: &mut Map<String, Value>) {
        let Self { more, limit, asked_limit, truncated } = self;
        match more {
            More::No if asked_limit.is_some() => drop(meta.insert("more_pages".to_owned(), false.into())),
            More::No => {}
            More::Yes => drop(meta.insert("more_pages".to_owned(), true.into())),
            More::Unknown => drop(meta.insert("more_pages".to_owned(), UNKNOWN.into())),
        }
        if let Some(limit) = limit.filter(|_| more != More::No || asked_limit.is_some()) {
            meta.insert("limit".to_owned(), limit.into());
        }
        meta.extend(asked_limit.map(|asked| ("asked_limit".to_owned(), asked.into())));
        meta.extend(truncated.map(|truncated| ("truncated".to_owned(), truncated.into())));
    }
}

/// Whether something in `meta` says which part it is.
pub fn is_told(meta: &Map<String, Value>) -> bool {
    ["more_pages", "has_next_page", "truncated"].iter().any(|field| meta.contains_key(*field))
}

/// Whether there is, or may be, a page after the one with this `_meta`.
pub fn has_next_page(meta: &Map<String, Value>) -> bool {
    let [more, next, limit] =
        ["more_pages", "has_next_page", "limit"].map(|field| meta.get(field).unwrap_or(&Value::Null));
    let is_unsaid = more.is_null() && next.is_null();
    *more == true || *next == true || *more == UNKNOWN || (is_unsaid && limit.is_u64())
}

/// Whether data with this `_meta` lacks something, or may lack something.
pub fn is_incomplete(meta: &Value) -> bool {
    matches!(Reading::of(meta), Reading::Part | Reading::Unknown)
}

/// What a reader of data with this `_meta` must know who does not see the `_meta`.
pub fn note(meta: &Value) -> Option<String> {
    let about = match Reading::of(meta) {
        Reading::Whole => None,
        Reading::LastPage => Some(
            "this is the last page: there is nothing after it, and a sum or count of it leaves out the pages before it",
        ),
        Reading::Unknown => {
            Some("the data may not be all there is, so no sum or count of it is certain to be that of everything")
        }
        Reading::Part => Some("the data is not all there is, so no sum or count of it is that of everything"),
    };
    let fields: Map<String, Value> =
        FIELDS.iter().filter_map(|key| Some(((*key).to_owned(), meta.get(*key)?.clone()))).collect();
    let about = about.map(|about| format!("{about}: {}", Value::Object(fields)));
    let parts: Vec<_> = about.into_iter().chain(lowered(meta)).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// How all pages are read into one result, if that is possible.
pub fn all_pages(meta: &Value) -> Option<String> {
    meta[MORE_WITH].as_str().map(|option| format!("all pages in one result: run it with {option}"))
}

fn lowered(meta: &Value) -> Option<String> {
    let asked = meta["asked_limit"].as_u64()?;
    let limit = meta["limit"].as_u64().map(|limit| format!(" to {limit}")).unwrap_or_default();
    Some(format!("the limit of {asked} was lowered{limit}, the most that is returned at once"))
}

impl Reading {
    fn of(meta: &Value) -> Self {
        let is_cut = meta["truncated"] == true || meta["truncated"].as_str().is_some_and(|why| !why.is_empty());
        let is_unsaid = meta["more_pages"].is_null() && meta["has_next_page"].is_null();
        if is_cut || meta["more_pages"] == true || meta["has_next_page"] == true {
            Self::Part
        } else if meta["more_pages"] == UNKNOWN || (meta["limit"].is_u64() && is_unsaid) {
            Self::Unknown
        } else if meta["page"].as_u64().is_some_and(|page| page > 1) {
            Self::LastPage
        } else {
            Self::Whole
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_cut_is_told_and_what_is_whole_is_not() {
        let part = "the data is not all there is";
        let maybe = "the data may not be all there is";
        let last = "this is the last page";
        for (meta, expected) in [
            (json!({}), None),
            (json!({"more_pages": false}), None),
            (json!({"page": 1, "limit": 20, "has_next_page": false}), None),
            (json!({"truncated": false, "total": 3}), None),
            (json!({"more_pages": true}), Some(part)),
            (json!({"page": 2, "has_next_page": true}), Some(part)),
            (json!({"truncated": true}), Some(part)),
            (json!({"truncated": "1 long values were cut", "has_next_page": false}), Some(part)),
            (json!({"more_pages": "unknown"}), Some(maybe)),
            (json!({"page": 1, "limit": 20}), Some(maybe)),
            (json!({"page": 3, "limit": 20, "has_next_page": false}), Some(last)),
            (json!({"page": 3, "more_pages": false}), Some(last)),
            (
                json!({"more_pages": false, "limit": 100, "asked_limit": 1000}),
                Some("the limit of 1000 was lowered to 100"),
            ),
        ] {
            let note = note(&meta);
            assert_eq!(note.is_some(), expected.is_some(), "{meta}: {note:?}");
            assert!(note.iter().zip(expected).all(|(note, expected)| note.starts_with(expected)), "{meta}: {note:?}");
        }
        let both = note(&json!({"more_pages": true, "limit": 100, "asked_limit": 1000})).expect("a note");
        assert!(both.starts_with(part) && both.contains("the limit of 1000 was lowered to 100"), "{both}");
    }

    #[test]
    fn a_part_is_written_as_it_is_read() {
        let written = |part: DataExtent| {
            let mut meta = Map::new();
            part.add_to(&mut meta);
            Value::Object(meta)
        };
        assert_eq!(written(DataExtent { limit: Some(50), ..DataExtent::default() }), json!({}));
        let more = DataExtent { more: More::Yes, limit: Some(50), ..DataExtent::default() };
        assert_eq!(written(more), json!({"more_pages": true, "limit": 50}));
        let lowered = DataExtent { limit: Some(50), asked_limit: Some(1000), ..DataExtent::default() };
        assert_eq!(written(lowered.clone()), json!({"more_pages": false, "limit": 50, "asked_limit": 1000}));
        assert!(!is_incomplete(&written(lowered)));
        assert!(is_incomplete(&written(DataExtent { more: More::Unknown, ..DataExtent::default() })));
    }
}
