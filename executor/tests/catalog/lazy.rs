//! A catalog reads a definition when it is used, and notices that its file changed meanwhile.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use catalog::{Catalog, CheckOutcome, SourcesWatch};
use serde_json::{Value, json};

use crate::{Folder, definition};

fn greet(description: &str) -> Value {
    json!({"greet": definition(json!({"description": description}))})
}

fn description(catalog: &Catalog) -> Option<String> {
    catalog.get("greet").map(|subtool| subtool.definition.description.clone())
}

#[test]
fn a_mistake_in_a_definition_is_found_when_it_is_used_and_not_before() {
    let file = json!({
        "good": definition(json!({})),
        "bad": definition(json!({"timeout": "never"})),
        "needs_bad": definition(json!({"depends_on": ["good", "bad"]})),
        "hidden": definition(json!({"enabled": false})),
    });
    let folder = Folder::with(&[("a.json", &file)]);
    let catalog = folder.load();
    assert_eq!(catalog.problems(), []);
    let known: Vec<_> = catalog.names().map(ToString::to_string).collect();
    assert_eq!(known, ["bad", "good", "hidden", "needs_bad"]);
    let is_usable = |name: &str| (catalog.get(name).is_some(), catalog.is_hidden(name));
    assert_eq!(
        ["good", "bad", "needs_bad", "hidden", "none"].map(is_usable),
        [(true, false), (false, false), (false, false), (false, true), (false, false)]
    );
    let said = |name: &str| {
        let problems = catalog.problems_of(name);
        problems.into_iter().map(|problem| (problem.place.unwrap_or_default(), problem.message)).collect::<Vec<_>>()
    };
    let [(place, message)] = said("needs_bad").try_into().expect("one problem");
    assert_eq!(place, "depends_on");
    assert!(
        message.starts_with("the subtool `bad` has a mistake, so it was not loaded") && message.contains("timeout"),
        "{message}"
    );
    assert_eq!(said("bad").len(), 1);
    assert_eq!([said("good"), said("hidden"), said("none")], [vec![], vec![], vec![]]);
    let checked: Vec<_> = catalog
        .check_file(0)
        .map(|(name, checked)| match checked {
            CheckOutcome::Usable(_) => format!("{name} can be used"),
            CheckOutcome::Hidden => format!("{name} is hidden"),
            CheckOutcome::Broken(problems) => format!("{name}: {} problem", problems.len()),
        })
        .collect();
    assert_eq!(checked, ["good can be used", "bad: 1 problem", "needs_bad: 1 problem", "hidden is hidden"]);
}

#[test]
fn a_definition_in_a_file_that_changed_is_read_as_it_is_now() {
    let folder = Folder::with(&[("a.json", &greet("The first one."))]);
    let catalog = folder.load();
    folder.write("a.json", greet("Another one, at another place.").to_string());
    assert_eq!(description(&catalog).as_deref(), Some("Another one, at another place."));
    assert!(catalog.is_stale(), "it is loaded again before the next request");

    let catalog = folder.load();
    assert!(!catalog.is_stale());
    folder.write("a.json", json!({"other": definition(json!({}))}).to_string());
    assert_eq!(description(&catalog), None);
    assert!(catalog.is_stale());

    folder.write("a.json", greet("The first one.").to_string());
    let catalog = folder.load();
    fs::remove_file(folder.folder.path().join("a.json")).expect("removed");
    assert_eq!(description(&catalog), None);
    assert!(catalog.is_stale());
}

#[test]
fn a_file_that_others_may_have_changed_since_is_not_read() {
    let folder = Folder::with(&[("a.json", &greet("The first one."))]);
    let catalog = folder.load();
    let file = folder.folder.path().join("a.json");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("set");
    assert_eq!(description(&catalog), None);
    let problems = catalog.problems_of("greet");
    assert!(problems[0].message.contains("others can write to"), "{}", problems[0]);
    assert!(catalog.is_stale());
}

#[test]
fn two_keys_of_one_name_break_one_definition_and_not_its_file() {
    let folder = Folder::new();
    let good = definition(json!({}));
    folder.write(
        "a.json",
        format!("{{\"good\": {good},\n \"bad\": {{\"input\": {{}}, \"input\": {{}}}},\n \"last\": {good}}}"),
    );
    assert_eq!(crate::names(&folder.load()), ["good", "last"]);
    assert_eq!(folder.problems(), ["a.json: bad: line 2 column 29: duplicate key `input`"]);
}

#[test]
fn a_duplicate_of_a_broken_definition_counts() {
    let broken = json!({"greet": definition(json!({"timeout": "never"}))});
    let folder =
        Folder::with(&[("a.json", &broken), ("b.json", &greet("The second one.")), ("c.json", &greet("Third."))]);
    let catalog = folder.load();
    assert_eq!(description(&catalog).as_deref(), Some("The second one."));
    let problems: Vec<_> = catalog.problems_of("greet").iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[1].contains("c.json: greet: the name is already defined by"), "{problems:?}");
}

#[test]
fn a_watch_that_sees_nothing_means_that_the_catalog_is_current() {
    let folder = Folder::with(&[("a.json", &greet("The first one."))]);
    let sources = folder.sources();
    let watch = SourcesWatch::new(&sources);
    let catalog = folder.load();
    assert!(!watch.may_have_changed(&sources) && sources.stamp() == *catalog.stamp());
    folder.write("a.json", greet("Another one.").to_string());
    assert!(watch.may_have_changed(&sources) && sources.stamp() != *catalog.stamp());
    assert!(SourcesWatch::none().may_have_changed(&sources));
}

#[test]
fn rate_limits_are_found_without_loading_what_has_them() {
    let limit = |per: &str| json!({"rate_limit": {"calls": 1, "per": per}});
    let defaults = json!({"$defaults": limit("1h"), "a": definition(json!({}))});
    let escaped = definition(limit("2h")).to_string().replace("rate_limit", "rate\\u005flimit");
    let folder = Folder::with(&[("a.json", &json!({"a": definition(json!({}))}))]);
    let longest = |folder: &Folder| folder.load().longest_window().map(|window| window.as_secs() / 60);
    assert_eq!(longest(&folder), None);
    folder.write("b.json", json!({"b": definition(limit("5m"))}).to_string());
    assert_eq!(longest(&folder), Some(5));
    folder.write("c.json", defaults.to_string());
    assert_eq!(longest(&folder), Some(60));
    folder.write("d.json", format!("{{\"d\": {escaped}}}"));
    assert_eq!(longest(&folder), Some(120));
}
