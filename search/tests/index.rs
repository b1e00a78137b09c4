//! The index file: what is written is found again, and what is damaged is never believed.

use std::io::Write as _;

use proptest::prelude::*;
use search::{
    Document, Fields, Hit, Index, IndexWriter, LearnedRequests, PreviousIndex, Unusable, Verb, words_of_request,
};
use serde_json::{Map, Value, json};

/// Name, description, phrases, schema.
type Definition = (&'static str, &'static str, &'static [&'static str], Value);

fn definitions() -> Vec<Definition> {
    let query = json!({"properties": {"search_query": {"type": "string", "description": "The words"}}});
    let level = json!({"properties": {"level": {"type": "string", "description": "Which messages are kept"}}});
    vec![
        ("gmail_search_messages", "Searches for messages in Gmail based on a query.", &[], query),
        ("gmail_send_message", "Sends an email.", &[], json!({"properties": {"recipient": {"type": "string"}}})),
        ("countProducts", "Counts and sums records. For questions like: how many products.", &[], json!({})),
        ("search_products", "Searches products by name.", &["what do we sell"], json!({})),
        ("rotate_logs", "Rotates the logs of a program each day.", &[], level),
        ("report_zh", "生成年度报告并发送", &[], json!({})),
    ]
}

fn write(definitions: &[Definition]) -> Vec<u8> {
    let mut writer = IndexWriter::new(Vec::new()).expect("memory");
    for (name, description, phrases, input) in definitions {
        let phrases: Vec<String> = phrases.iter().map(|phrase| (*phrase).to_owned()).collect();
        let input = input.as_object().expect("an object");
        let document = Document { name, description, phrases: &phrases, tags: &[], verb: None, input };
        writer.add(&document, format!("payload of {name}").as_bytes()).expect("memory");
    }
    writer.finish(b"the header").expect("memory")
}

fn index() -> Index {
    Index::from_bytes(write(&definitions())).expect("just written")
}

fn names(index: &Index, query: &str) -> Vec<String> {
    let hits = index.search(query, &LearnedRequests::default()).expect("an index in memory");
    hits.iter().map(|hit| index.name(hit.document).expect("an index in memory")).collect()
}

#[test]
fn a_query_in_the_words_of_a_user_finds_the_subtool() {
    let index = index();
    assert_eq!(names(&index, "gmail"), ["gmail_search_messages", "gmail_send_message"]);
    assert_eq!(names(&index, "send email")[0], "gmail_send_message");
    assert_eq!(names(&index, "how many products are there?")[0], "countProducts");
    assert_eq!(names(&index, "please search the messages for me")[0], "gmail_search_messages");
    assert_eq!(names(&index, "recipients"), ["gmail_send_message"]);
    assert_eq!(names(&index, "what do we sell")[0], "search_products");
}

#[test]
fn a_subtool_that_merely_mentions_a_word_is_not_found() {
    assert_eq!(names(&index(), "search messages in gmail")[0], "gmail_search_messages");
    assert!(!names(&index(), "search messages in gmail").contains(&"rotate_logs".to_owned()));
}

#[test]
fn a_verb_chooses_among_those_that_have_the_words() {
    let input = Map::new();
    let mut writer = IndexWriter::new(Vec::new()).expect("memory");
    for (name, method) in [("repos_x_label", "DELETE"), ("repos_y_label", "PATCH"), ("repos_z_label", "GET")] {
        let verb = Verb::of_http_method(method);
        let document = Document { name, description: "A label.", phrases: &[], tags: &[], verb, input: &input };
        writer.add(&document, &[]).expect("memory");
    }
    let index = Index::from_bytes(writer.finish(&[]).expect("memory")).expect("just written");
    assert_eq!(
        names(&index, "labels"),
        ["repos_z_label", "repos_y_label", "repos_x_label"],
        "who names it wants to see it"
    );
    assert_eq!(names(&index, "assign label")[0], "repos_x_label", "a verb of no class");
    for (query, best) in [("show the label", "z"), ("which label", "z"), ("rename a label", "y"), ("delete label", "x")]
    {
        assert_eq!(names(&index, query)[0], format!("repos_{best}_label"), "{query}");
    }
    assert_eq!(names(&index, "lösche das Label")[0], "repos_x_label");
    // A copy knows it, too.
    let mut copies = PreviousIndex::new(&index).expect("readable");
    let mut writer = IndexWriter::new(Vec::new()).expect("memory");
    for number in 0..3 {
        writer.copy(&mut copies, number, None).expect("readable");
    }
    let rebuilt = Index::from_bytes(writer.finish(&[]).expect("memory")).expect("just written");
    assert_eq!(names(&rebuilt, "show the label")[0], "repos_z_label");
}

#[test]
fn a_few_words_that_ask_for_no_change_find_what_reads() {
    let index = Index::from_bytes(write(&[
        ("orders_create", "Orders of a shop.", &[], json!({})),
        ("orders_delete_all", "Orders of a shop.", &[], json!({})),
        ("orders_get_history_of_customers", "Orders of a shop.", &[], json!({})),
    ]))
    .expect("just written");
    for query in ["shop orders", "show shop orders"] {
        assert_eq!(names(&index, query)[0], "orders_get_history_of_customers", "{query}");
    }
    for query in ["cancel orders", "the orders of this shop and nothing else"] {
        assert_eq!(names(&index, query)[0], "orders_create", "{query}");
    }
}

#[test]
fn who_wants_to_read_is_not_led_to_what_deletes() {
    let index = Index::from_bytes(write(&[
        ("issue_label_remove", "Takes a label away from an issue.", &[], json!({})),
        ("thread_view", "Gives the labels and comments of an issue.", &[], json!({})),
    ]))
    .expect("just written");
    assert_eq!(names(&index, "show the label of an issue")[0], "thread_view");
    assert_eq!(names(&index, "remove the label of an issue")[0], "issue_label_remove");
}

#[test]
fn short_forms_and_mistakes_find_what_is_meant() {
    let index = Index::from_bytes(write(&[
        ("workflow_re_run", "Starts the failed jobs again.", &[], json!({})),
        ("list_stargazers", "People of a repository.", &[], json!({})),
        ("merge_pull_request", "Merges.", &[], json!({})),
        ("create_webhook", "Calls an address.", &[], json!({})),
        ("translate_text", "Into another language, at a cheap rate.", &[], json!({})),
    ]))
    .expect("just written");
    for (query, best) in [
        ("rerun", "workflow_re_run"),
        ("re-run it", "workflow_re_run"),
        ("who starred this", "list_stargazers"),
        ("the repos", "list_stargazers"),
        ("PR", "merge_pull_request"),
        ("a web hook", "create_webhook"),
        ("web-hooks", "create_webhook"),
        ("tranlsate", "translate_text"),
        ("cheaper", "translate_text"),
    ] {
        assert_eq!(names(&index, query).first().map(String::as_str), Some(best), "{query}");
    }
    assert_eq!(names(&index, "brepository"), [""; 0], "the first letter is right");
}

#[test]
fn a_shared_word_of_a_phrase_does_not_win_over_what_is_described() {
    let phrases = &["book a table for two", "book me on the train", "what is in the book", "book of the month"];
    let index = Index::from_bytes(write(&[
        ("assistant", "Asks the user.", phrases, json!({})),
        ("hotel_rooms", "Finds rooms, and lets one book them.", &[], json!({})),
    ]))
    .expect("just written");
    assert_eq!(names(&index, "book rooms for my parents")[0], "hotel_rooms");
    assert_eq!(names(&index, "book a table for two")[0], "assistant");
    assert_eq!(names(&index, "find rooms for my parents, then book a table for two").len(), 2);
}

#[test]
fn a_phrase_that_is_the_query_says_more_than_one_that_shares_a_word() {
    let index = Index::from_bytes(write(&[
        ("a", "Shows changes.", &["which branch changed this line", "branch"], json!({})),
        ("b", "Shows the state.", &["what branch am I on"], json!({})),
    ]))
    .expect("just written");
    assert_eq!(names(&index, "what branch am I on?")[0], "b");
    assert_eq!(names(&index, "branch")[0], "a");
}

#[test]
fn a_request_in_another_language_finds_a_subtool_in_english() {
    let index = index();
    assert_eq!(names(&index, "帮我发送一封邮件")[0], "gmail_send_message");
    assert_eq!(names(&index, "發送郵件")[0], "gmail_send_message");
    assert_eq!(names(&index, "Bitte eine Nachricht verschicken")[0], "gmail_send_message");
    assert_eq!(names(&index, "annual report")[0], "report_zh");
}

#[test]
fn chinese_is_found_without_spaces() {
    assert_eq!(names(&index(), "年度报告"), ["report_zh"]);
    assert_eq!(names(&index(), "我想看报告")[0], "report_zh");
}

#[test]
fn a_query_without_relevant_words_finds_nothing() {
    for query in ["", "the of and", "xylophone", "🙂 !!"] {
        assert_eq!(names(&index(), query), [""; 0], "{query}");
    }
}

#[test]
fn what_was_written_is_read_again() {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(&write(&definitions())).expect("a temporary file");
    let index = Index::open(file.path()).expect("an index");
    let mut expected: Vec<_> = definitions().into_iter().map(|definition| definition.0).collect();
    expected.sort_unstable();
    assert_eq!(index.names().expect("names"), expected);
    assert_eq!(index.header().expect("the header"), b"the header");
    for (number, name) in (0..).zip(expected) {
        assert_eq!(index.find(name).expect("readable"), Some(number));
        assert_eq!(index.name(number).expect("readable"), name);
        assert_eq!(index.payload(number).expect("readable"), format!("payload of {name}").as_bytes());
    }
    assert_eq!(index.find("report").expect("readable"), None);
    assert!(matches!(index.payload(6), Err(Unusable::Damaged(_))));
}

#[test]
fn an_index_without_documents_finds_nothing() {
    let index = Index::from_bytes(write(&[])).expect("just written");
    assert_eq!(names(&index, "anything"), [""; 0]);
    assert_eq!(index.find("anything").expect("readable"), None);
    assert_eq!(index.names().expect("readable"), [""; 0]);
}

#[test]
fn an_index_made_of_copies_is_the_same_as_one_made_of_documents() {
    let previous = index();
    let definitions = definitions();
    let mut copies = PreviousIndex::new(&previous).expect("readable");
    let mut writer = IndexWriter::new(Vec::new()).expect("memory");
    for (name, ..) in &definitions {
        let number = previous.find(name).expect("readable").expect("a document");
        writer.copy(&mut copies, number, None).expect("readable");
    }
    let rebuilt = Index::from_bytes(writer.finish(b"the header").expect("memory")).expect("just written");
    for query in ["messages", "search products", "年度报告", "what do we sell", "the words of a query"] {
        let search = |index: &Index| index.search(query, &LearnedRequests::default()).expect("in memory");
        assert_eq!(search(&rebuilt), search(&previous), "{query}");
    }
    assert_eq!(rebuilt.payload(0).expect("readable"), previous.payload(0).expect("readable"));
}

#[test]
fn a_copy_may_have_another_payload_and_other_neighbours() {
    let previous = index();
    let mut copies = PreviousIndex::new(&previous).expect("readable");
    let mut writer = IndexWriter::new(Vec::new()).expect("memory");
    let input = Map::new();
    let added = Document {
        name: "a_new_one",
        description: "Sends a letter.",
        phrases: &[],
        tags: &[],
        verb: None,
        input: &input,
    };
    writer.add(&added, b"new").expect("memory");
    let number = previous.find("gmail_send_message").expect("readable").expect("a document");
    writer.copy(&mut copies, number, Some(b"changed")).expect("readable");
    let index = Index::from_bytes(writer.finish(&[]).expect("memory")).expect("just written");
    assert_eq!(names(&index, "send"), ["gmail_send_message", "a_new_one"]);
    assert_eq!(index.payload(1).expect("readable"), b"changed");
}

#[test]
fn a_past_request_finds_what_it_led_to() {
    let index = index();
    let words = words_of_request("get rid of the old noise");
    let learned = LearnedRequests::new([("rotate_logs", words.as_str()), ("removed_since", words.as_str())]);
    let hits = index.search("too much noise", &learned).expect("in memory");
    let rotate = index.find("rotate_logs").expect("readable").expect("a document");
    assert_eq!(hits.iter().map(|hit| hit.document).collect::<Vec<_>>(), [rotate]);
    assert_eq!(hits[0].matched_in.names().collect::<Vec<_>>(), ["past requests"]);
}

#[test]
fn a_match_says_which_words_it_lacks_and_where_it_found_the_others() {
    let index = index();
    let document = index.find("rotate_logs").expect("readable").expect("a document");
    let with_fit = |query, fit| {
        let hit = Hit { document, score: 1.0, fit, matched_in: Fields::default() };
        index.matched_words(query, &hit).expect("in memory")
    };
    let matched = |query| with_fit(query, 0.3);
    let messages = matched("send the messages");
    assert_eq!(
        (messages.found.clone(), messages.missing.clone()),
        (vec!["messages".to_owned()], vec!["send".to_owned()])
    );
    assert!(messages.is_weak(), "a parameter merely mentions it");
    assert!(!matched("rotate my logs").is_weak());
    assert!(matched("order pizza for the logs").is_weak());
    assert!(with_fit("rotate my logs", 0.1).is_weak(), "the words are those that most documents have");
    assert!(!with_fit("order pizza for the logs", 0.5).is_weak(), "a phrase is much like it");
}

#[test]
fn a_foreign_file_and_one_of_another_version_are_errors() {
    let open = |bytes: &[u8]| Index::from_bytes(bytes.to_vec());
    assert!(matches!(open(b""), Err(Unusable::Foreign)));
    assert!(matches!(open(&[b'{'; 500]), Err(Unusable::Foreign)));
    let mut other = write(&definitions());
    other[8] = 200;
    assert!(matches!(open(&other), Err(Unusable::Version(200))));
}

/// Asks an index everything there is to ask; the answers do not matter.
fn exercise(bytes: Vec<u8>) {
    let Ok(index) = Index::from_bytes(bytes) else { return };
    drop(index.header());
    drop(index.names());
    for query in ["search gmail messages", "logs", "年度报告"] {
        let hits = index.search(query, &LearnedRequests::new([("rotate_logs", "log nois")]));
        for hit in hits.iter().flatten() {
            drop(index.matched_words(query, hit));
        }
    }
    for (name, ..) in definitions() {
        if let Ok(Some(number)) = index.find(name) {
            drop(index.payload(number));
        }
    }
    if let Ok(mut previous) = PreviousIndex::new(&index) {
        let mut writer = IndexWriter::new(Vec::new()).expect("memory");
        for number in 0..index.document_count().min(10) {
            drop(writer.copy(&mut previous, number, None));
        }
        writer.finish(&[]).expect("memory");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_index_never_panics(flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u8), 1..4)) {
        let mut bytes = write(&definitions());
        for (place, bit) in flips {
            let place = place.index(bytes.len());
            bytes[place] ^= 1 << bit;
        }
        exercise(bytes);
    }

    #[test]
    fn a_truncated_index_never_panics(length in any::<prop::sample::Index>(), tail in any::<bool>()) {
        let mut bytes = write(&definitions());
        let length = length.index(bytes.len());
        if tail { drop(bytes.drain(..length)) } else { bytes.truncate(length) }
        exercise(bytes);
    }
}
