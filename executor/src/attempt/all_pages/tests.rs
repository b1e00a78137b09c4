//! Which pages are joined, where they end, and what is said of it.

use serde_json::json;

use super::*;

#[test]
fn the_list_of_a_page_is_found() {
    let field = |name: &str| Some(ListPlace::Field(name.to_owned()));
    for (data, expected) in [
        (json!([1, 2]), Some(ListPlace::Whole)),
        (json!({"rows": [{"a": 1}], "columns": ["a"]}), field("rows")),
        (json!({"matches": [], "total": 0}), field("matches")),
        (json!({"names": ["a"]}), field("names")),
        (json!({"rows": [], "columns": []}), field("rows")),
        (json!({"rows": [{"a": 1}], "others": [{"b": 1}]}), field("rows")),
        (json!({"columns": [{"name": "id"}], "data": [{"id": 1}], "row_count": 1}), field("data")),
        (json!({"a": [{"x": 1}], "b": [{"y": 1}]}), None),
        (json!({"a": 1}), None),
        (json!("text"), None),
    ] {
        assert_eq!(ListPlace::of(&data), expected, "{data}");
    }
}

#[test]
fn pages_are_whole_only_if_nothing_says_otherwise() {
    let page = |items: &[u64], meta: Value| {
        let Value::Object(meta) = meta else { unreachable!() };
        (json!({ "items": items, "of": items.len() }), meta)
    };
    let read = |pages: Vec<(Value, Map<String, Value>)>| -> Result<(Value, Value), String> {
        let mut read = ReadPages::default();
        for (data, meta) in pages {
            if let Some(more) = read.add(data, meta, None, 1_000).map_err(|failure| failure.error.message)? {
                let (more, why) = read.ending(more, 1_000);
                let (outcome, meta) = read.end(more, why).map_err(|failure| failure.error.message)?;
                let Outcome::Data(data) = outcome else { unreachable!() };
                return Ok((data["items"].clone(), Value::Object(meta)));
            }
        }
        Err("it goes on".to_owned())
    };
    let (more, last) = (json!({"more_pages": true}), json!({"more_pages": false}));
    let cut = json!({"more_pages": true, "truncated": "cut"});
    let none = json!({});
    for (pages, expected) in [
        (vec![page(&[1], more.clone()), page(&[2], last.clone())], Ok((json!([1, 2]), json!({"pages": 2})))),
        (vec![page(&[1], none.clone()), page(&[], none.clone())], Ok((json!([1]), json!({"pages": 2})))),
        // An empty one in the middle.
        (
            vec![page(&[1], more.clone()), page(&[], more.clone()), page(&[2], last.clone())],
            Ok((json!([1, 2]), json!({"pages": 3}))),
        ),
        (
            vec![page(&[1], more.clone()), page(&[], more.clone()), page(&[], more.clone())],
            Ok((
                json!([1]),
                json!({"pages": 3, "more_pages": true, "limit": 1, "not_fetched": "two pages in a row were empty"}),
            )),
        ),
        (vec![page(&[1], cut), page(&[2], last)], Ok((json!([1, 2]), json!({"pages": 2, "truncated": "cut"})))),
        (
            vec![page(&[1], more.clone()), page(&[1], more.clone())],
            Err("page 2 is the same as the one before it".to_owned()),
        ),
        (
            vec![page(&[1], none.clone()), page(&[1], none.clone())],
            Ok((
                json!([1]),
                json!({"pages": 2, "more_pages": "unknown", "limit": 1,
                    "not_fetched": "a page came again that was read before"}),
            )),
        ),
        (
            vec![page(&[1], none.clone()), page(&[2], none.clone()), page(&[2], none.clone())],
            Ok((json!([1, 2]), json!({"pages": 3}))),
        ),
        (
            vec![page(&[1], more.clone()), (json!({"error": "internal"}), Map::new())],
            Err("its pages have no list that could be joined".to_owned()),
        ),
        (
            vec![page(&[1], more.clone()), page(&[7; 600], more)],
            Ok((
                json!([1]),
                json!({"pages": 1, "more_pages": true, "limit": 1,
                    "not_fetched": "at most 500 pages and 1000 bytes are read"}),
            )),
        ),
    ] {
        assert_eq!(read(pages), expected);
    }
}

/// Rows of a query may have the same `id` many times.
#[test]
fn pages_that_say_if_there_is_more_are_the_same_only_if_they_are_equal() {
    let mut read = ReadPages::default();
    let meta = |more: bool| Map::from_iter([("has_next_page".to_owned(), Value::Bool(more))]);
    let page = |rows: [u64; 2]| json!({"rows": rows.map(|row| json!({"id": 7, "row": row}))});
    assert_eq!(read.add(page([1, 2]), meta(true), None, 1_000).expect("a page"), None);
    assert_eq!(read.add(page([3, 4]), meta(false), None, 1_000).expect("a page"), Some(More::No));
    assert_eq!(read.ending(More::No, 1_000), (More::No, None));
    assert!(read.add(page([3, 4]), meta(true), None, 1_000).is_err());
}

/// What a selection leaves out of the items tells nothing of whether they came before.
#[test]
fn items_are_known_by_what_the_server_answered() {
    let mut read = ReadPages { is_shaped: true, ..ReadPages::default() };
    let mut add = |ids: std::ops::Range<u64>| {
        let answered: Vec<_> = ids.clone().map(|id| json!({"id": id, "name": "x"})).collect();
        let selected: Vec<_> = ids.map(|_| json!({"name": "x"})).collect();
        read.add(selected.into(), Map::new(), Some(AnsweredPage::with(&answered)), 1_000_000).expect("a page")
    };
    assert_eq!((add(0..10), add(9..19), add(0..0)), (None, None, Some(More::No)));
    let (more, why) = read.ending(More::No, 1_000);
    assert_eq!((more, why.as_deref()), (More::Unknown, Some("an item came more than once, so others may be missing")));
}

#[test]
fn what_counts_a_page_counts_all_of_them_in_the_end() {
    let page = |ids: std::ops::Range<u64>, limit: u64| json!({"row_count": ids.end - ids.start, "limit_count": limit, "data": ids.map(|id| json!({"id": id})).collect::<Vec<_>>()});
    let mut read = ReadPages { before: 2, ..ReadPages::default() };
    let Value::Object(more) = json!({"more_pages": true}) else { unreachable!() };
    assert!(read.add(page(0..2, 2), more, None, 1_000).expect("a list").is_none());
    let Value::Object(last) = json!({"more_pages": false}) else { unreachable!() };
    assert_eq!(read.add(page(2..3, 2), last, None, 1_000).expect("a list"), Some(More::No));
    let (Outcome::Data(data), meta) = read.end(More::No, None).expect("pages") else { unreachable!() };
    assert_eq!((&data["row_count"], &data["limit_count"]), (&json!(3), &json!(2)), "{data}");
    // What comes before the first one is not there.
    assert_eq!(Value::Object(meta), json!({"pages": 2, "page": 3}));
}

#[test]
fn a_total_is_believed_only_as_far_as_the_pages_agree() {
    let read = |pages: Vec<(Value, Value)>, is_shaped: bool| -> Option<(usize, u32, Value, Value)> {
        let mut read = ReadPages { is_from_first: true, is_shaped, ..ReadPages::default() };
        for (data, meta) in pages {
            let Value::Object(meta) = meta else { unreachable!() };
            if let Some(more) = read.add(data, meta, None, 1_000_000).expect("a list") {
                let (more, why) = read.ending(more, 1_000_000);
                let (count, pages) = (read.items.len(), read.pages);
                let (_, meta) = read.end(more, why).expect("pages");
                let of = |key: &str| meta.get(key).cloned().unwrap_or_default();
                return Some((count, pages, of("more_pages"), of("not_fetched")));
            }
        }
        None
    };
    let page = |ids: std::ops::Range<u64>, total: u64| {
        let items: Vec<_> = ids.map(|id| json!({ "id": id })).collect();
        (json!({"items": items, "total": total}), json!({}))
    };
    let more = |(data, _): (Value, Value)| (data, json!({"more_pages": true}));
    let whole = Value::Null;
    let said =
        |count: u64, total: u64| json!(format!("{count} items were read, and the answer says that there are {total}"));
    for (pages, is_shaped, expected) in [
        // It ends where all are there.
        (vec![page(0..10, 25), page(10..20, 25), page(20..25, 25)], false, Some((25, 3, whole.clone(), whole.clone()))),
        // All of the first page may be its size.
        (vec![page(0..10, 10), page(10..15, 5), page(0..0, 0)], false, Some((15, 3, whole.clone(), whole.clone()))),
        (vec![page(0..10, 10), page(0..0, 10)], false, Some((10, 2, whole.clone(), whole.clone()))),
        // Less than one page has.
        (vec![page(0..10, 3), page(10..15, 3), page(0..0, 3)], false, Some((15, 3, whole.clone(), whole.clone()))),
        // The answer says that there is more.
        (vec![more(page(0..10, 10)), more(page(10..20, 10)), page(20..25, 10)], false, None),
        // Fewer than there are, and more.
        (vec![page(0..10, 25), page(0..0, 25)], false, Some((10, 2, json!("unknown"), said(10, 25)))),
        (vec![page(0..10, 12), page(5..15, 12)], false, Some((20, 2, json!("unknown"), said(20, 12)))),
        // What one page said stands if a later one says nothing.
        (
            vec![page(0..10, 25), (json!({"items": [], "errors": ["timed out"]}), json!({}))],
            false,
            Some((10, 2, json!("unknown"), said(10, 25))),
        ),
        // What counts the items of a page is not read as a total.
        (
            vec![
                (json!({"items": [1, 2], "row_count": 2}), json!({"more_pages": true})),
                (json!({"items": [3], "row_count": 1}), json!({"more_pages": false})),
            ],
            false,
            Some((3, 2, whole.clone(), whole.clone())),
        ),
        // The same items, of which something has changed meanwhile.
        (
            vec![
                (json!({"items": [{"id": 1, "at": 1}, {"id": 2}]}), json!({})),
                (json!({"items": [{"id": 1, "at": 2}, {"id": 2}]}), json!({})),
            ],
            false,
            Some((2, 2, json!("unknown"), json!("a page came again that was read before"))),
        ),
        // A page that was there before, not only right before.
        (
            vec![page(0..10, 99), page(10..20, 99), page(0..10, 99)],
            false,
            Some((20, 3, json!("unknown"), json!("a page came again that was read before"))),
        ),
        // The same item on two pages: another one may have moved between them.
        (
            vec![page(0..10, 20), page(9..19, 20)],
            false,
            Some((20, 2, json!("unknown"), json!("an item came more than once, so others may be missing"))),
        ),
        // What a selection leaves is no number of all, and where the answer has no list, it is not the end.
        (
            vec![page(0..10, 10), page(0..0, 0), page(20..25, 5), page(0..0, 0), page(0..0, 0)],
            true,
            Some((15, 5, json!(true), json!("two pages in a row were empty"))),
        ),
    ] {
        assert_eq!(read(pages.clone(), is_shaped), expected, "{pages:?}");
    }
}
