//! Loading: valid definitions are loaded, whatever is wrong with others.

use catalog::listing_cache;
use catalog::{Catalog, Origin, Sources};
use listing::Listing;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::{Folder, definition, names, object_mut};

#[test]
fn one_bad_file_never_hides_the_others() {
    let folder = Folder::with(&[("good.json", &json!({"good": definition(json!({}))}))]);
    let bad: [(&str, &[u8]); 9] = [
        ("array.json", b"[]"),
        ("bom.json", b"\xef\xbb\xbf{}"),
        ("cut.json", b"{\"a\": "),
        ("deep.json", &b"[".repeat(100_000)),
        ("empty.json", b""),
        ("latin1.json", b"{\"caf\xe9\": 1}"),
        ("nul.json", b"{}\0"),
        ("trailing.json", b"{}{}"),
        ("twice.json", b"{\"a\": 1, \"a\": 2}"),
    ];
    for (name, content) in bad {
        folder.write(name, content);
    }
    std::fs::create_dir(folder.folder.path().join("folder.json")).expect("a folder");
    std::os::unix::fs::symlink("/nowhere", folder.folder.path().join("link.json")).expect("a link");
    let catalog = folder.load();
    assert_eq!(names(&catalog), ["good"]);
    let files: Vec<_> =
        catalog.problems().iter().map(|problem| problem.file.rsplit('/').next().unwrap_or_default()).collect();
    let expected: Vec<_> = bad.iter().map(|(name, _)| *name).chain(["folder.json", "link.json"]).collect();
    assert_eq!(sorted(files), sorted(expected));
}

#[test]
fn one_bad_subtool_never_hides_the_others() {
    let file = json!({
        "first": definition(json!({})),
        "second": definition(json!({"run": {"shell": "ls"}})),
        "third": 5,
        "a b": definition(json!({})),
        "last": definition(json!({}))
    });
    let folder = Folder::with(&[("file.json", &file)]);
    let catalog = folder.load();
    assert_eq!(names(&catalog), ["first", "last"]);
    let problems = catalog.all_problems();
    let wrong = problems.iter().filter_map(|problem| problem.subtool.as_deref()).collect();
    assert_eq!(sorted(wrong), ["a b", "second", "third"]);
}

#[test]
fn a_duplicate_name_names_both_files_and_the_first_one_stays() {
    let file = |description: &str| json!({"greet": definition(json!({"description": description}))});
    let folder = Folder::with(&[("b.json", &file("The second one.")), ("a.json", &file("The first one."))]);
    let catalog = folder.load();
    assert_eq!(catalog.get("greet").expect("the first").definition.description, "The first one.");
    let problem = catalog.problems_of("greet")[0].to_string();
    assert!(problem.contains("a.json") && problem.contains("b.json") && problem.contains("greet"), "{problem}");
    assert_eq!(catalog.all_problems().len(), 1);
}

#[test]
fn a_name_of_a_shipped_pack_cannot_be_reused() {
    let mut folder = Folder::with(&[("own.json", &json!({"git_log": definition(json!({}))}))]);
    folder.config.catalog.packs = vec!["git".to_owned()];
    let catalog = folder.load();
    assert_eq!(catalog.get("git_log").expect("the shipped one").origin, Origin::Pack("git".to_owned()));
    let problems = catalog.problems_of("git_log");
    assert!(problems[0].message.contains("built-in pack git"), "{}", problems[0]);
}

#[test]
fn a_namespace_prefixes_only_the_names_of_its_file() {
    let greet = json!({"greet": definition(json!({}))});
    let mut spaced = greet.clone();
    object_mut(&mut spaced).insert("$namespace".to_owned(), json!("acme"));
    let folder = Folder::with(&[("a.json", &greet), ("b.json", &spaced)]);
    assert_eq!(names(&folder.load()), ["acme-greet", "greet"]);
    assert!(folder.problems().is_empty());
}

#[test]
fn defaults_apply_only_to_the_subtools_of_their_file() {
    let file = json!({
        // `$defaults` comes last, because the order of keys must not matter.
        "plain": definition(json!({})),
        "own": definition(json!({"timeout": "5s", "annotations": {"readOnlyHint": false}, "tags": []})),
        "none": definition(json!({"timeout": Value::Null})),
        "$defaults": {"timeout": "7s", "annotations": {"readOnlyHint": true, "openWorldHint": false}, "tags": ["x"]}
    });
    let other = json!({"other": definition(json!({}))});
    let folder = Folder::with(&[("a.json", &file), ("b.json", &other)]);
    let catalog = folder.load();
    let shown = |name: &str| {
        let definition = serde_json::to_value(&*catalog.get(name).expect("it is there").definition).expect("JSON");
        json!([definition.get("timeout"), definition["annotations"], definition.get("tags")])
    };
    let annotations =
        |read_only: bool| json!({"readOnlyHint": read_only, "idempotentHint": false, "openWorldHint": false});
    assert_eq!(shown("plain"), json!(["7s", annotations(true), ["x"]]));
    assert_eq!(shown("own"), json!(["5s", annotations(false), Value::Null]));
    assert_eq!(shown("none"), shown("plain"), "`definition` removed the key");
    assert_eq!(shown("other"), json!([null, {"readOnlyHint": false, "idempotentHint": false}, null]));
}

#[test]
fn null_removes_a_default() {
    let mut greet = definition(json!({}));
    object_mut(&mut greet).insert("timeout".to_owned(), Value::Null);
    let folder = Folder::with(&[("a.json", &json!({"$defaults": {"timeout": "7s"}, "greet": greet}))]);
    let catalog = folder.load();
    assert_eq!(catalog.get("greet").expect("it is there").definition.timeout, None);
}

#[test]
fn a_subtool_that_depends_on_a_skipped_one_is_skipped() {
    let file = json!({
        "good": definition(json!({})),
        "depends": definition(json!({"depends_on": ["good"]})),
        "skipped": definition(json!({"depends_on": ["broken"]})),
        "skipped_too": definition(json!({"depends_on": ["skipped"]})),
        "broken": definition(json!({"timeout": "never"})),
        "loop_a": definition(json!({"depends_on": ["loop_b"]})),
        "loop_b": definition(json!({"depends_on": ["loop_a"]}))
    });
    let folder = Folder::with(&[("a.json", &file)]);
    let catalog = folder.load();
    assert_eq!(names(&catalog), ["depends", "good"]);
    assert_eq!(catalog.all_problems().len(), 5);
}

#[test]
fn a_chain_of_thousands_of_dependent_subtools_is_loaded() {
    let count = 3000;
    let file: Map<_, _> = (0..count)
        .map(|number| {
            let before = (number > 0).then(|| format!("subtool_{}", number - 1));
            let depends_on: Vec<_> = before.into_iter().collect();
            (format!("subtool_{number}"), definition(json!({"depends_on": depends_on})))
        })
        .collect();
    let folder = Folder::with(&[("a.json", &file.into())]);
    let catalog = folder.load();
    assert_eq!((catalog.subtools().count(), catalog.all_problems()), (count, vec![]));
}

#[test]
fn a_changed_setting_rebuilds_the_listing() {
    let mut folder = Folder::with(&[("a.json", &json!({"greet": definition(json!({}))}))]);
    let cache = folder.folder.path().join("cache");
    let seen = |folder: &Folder| {
        let read = |listing: &Listing| {
            let messages: Vec<_> = listing.problems().iter().map(|problem| problem.message.clone()).collect();
            Ok((listing.count(), messages))
        };
        listing_cache::read(&folder.sources(), &cache, read).expect("a listing")
    };
    assert_eq!(seen(&folder), (1, vec![]));
    folder.config.catalog.packs = vec!["nope".to_owned()];
    assert_eq!(seen(&folder), (1, vec!["no pack named `nope`; see: agent-magic-tool pack list".to_owned()]));
    folder.config.catalog.packs = vec!["none".to_owned()];
    assert_eq!(seen(&folder), (1, vec!["no pack named `none`; see: agent-magic-tool pack list".to_owned()]));
    folder.config.catalog.packs.clear();
    folder.config.access.deny = vec!["greet".to_owned()];
    assert_eq!(seen(&folder), (0, vec![]));
}

#[test]
fn only_visible_json_files_are_definitions() {
    let greet = json!({"greet": definition(json!({}))});
    let folder = Folder::with(&[("a.json", &greet)]);
    for name in ["subtool.schema.json", ".hidden.json", "a.json.bak", "a.JSON5", "README.md"] {
        folder.write(name, "not JSON at all");
    }
    assert_eq!(names(&folder.load()), ["greet"]);
    assert!(folder.problems().is_empty());
}

#[test]
fn a_source_may_be_a_single_file_and_a_missing_folder_is_a_problem() {
    let folder = Folder::with(&[("a.json", &json!({"greet": definition(json!({}))})), ("b.json", &json!([]))]);
    let path = folder.folder.path();
    let named = std::env::join_paths([path.join("a.json"), path.join("nowhere")]).expect("paths");
    let catalog = Catalog::load(&Sources::new(&folder.config, path, Some(&named)));
    assert_eq!(names(&catalog), ["greet"]);
    assert!(catalog.problems()[0].file.ends_with("nowhere"), "{}", catalog.problems()[0]);
    assert_eq!(catalog.problems().len(), 1);
}

#[test]
fn a_subtool_that_callers_may_not_use_is_hidden_without_a_problem() {
    let file = json!({
        "open": definition(json!({})),
        "denied": definition(json!({})),
        "off": definition(json!({"enabled": false})),
        "for_admins": definition(json!({"admin": true})),
        "privileged": definition(json!({"requires": ["mail:send"]})),
        "depends": definition(json!({"depends_on": ["off"]}))
    });
    let mut folder = Folder::with(&[("a.json", &file)]);
    folder.config.access.deny = vec!["den*".to_owned()];
    folder.config.access.privileges = vec!["calendar:*".to_owned()];
    assert_eq!(names(&folder.load()), ["depends", "open"]);
    assert!(folder.problems().is_empty());
}

#[test]
fn a_thousand_files_are_loaded_and_then_listed_from_the_cache() {
    let folder = Folder::new();
    for number in 0..1000 {
        let name = format!("subtool_{number:04}");
        folder.write(&format!("{number}.json"), json!({ name: definition(json!({})) }).to_string());
    }
    let catalog = folder.load();
    assert_eq!((catalog.subtools().count(), catalog.all_problems().len()), (1000, 0));
    let cache = folder.folder.path().join("cache");
    let names = || listing_cache::read(&folder.sources(), &cache, Listing::names).expect("a listing");
    let built = names();
    let cached = std::fs::read(&cache).expect("the cache");
    assert_eq!(names(), built);
    assert_eq!(built.len(), 1000);
    folder.write("500.json", "{}");
    assert_eq!(names().len(), 999);
    assert_ne!(std::fs::read(&cache).expect("the cache"), cached);
}

#[test]
fn a_damaged_cache_is_rebuilt() {
    let folder = Folder::with(&[("a.json", &json!({"greet": definition(json!({}))}))]);
    let cache = folder.folder.path().join("cache");
    let described = || {
        let read = |listing: &Listing| Ok((listing.entry(0)?.description, listing.count()));
        listing_cache::read(&folder.sources(), &cache, read).expect("a listing")
    };
    let greet = described();
    let whole = std::fs::read(&cache).expect("the cache");
    let mut damages: Vec<Vec<u8>> =
        ["", "{}", "[1]", "{\"stamp\": 5"].iter().map(|text| text.as_bytes().to_vec()).collect();
    damages.extend((0..whole.len()).step_by(whole.len() / 40 + 1).map(|length| whole[..length].to_vec()));
    damages.extend((0..whole.len()).step_by(whole.len() / 200 + 1).map(|at| {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x55;
        flipped
    }));
    for damage in damages {
        std::fs::write(&cache, damage).expect("a damaged cache");
        assert_eq!(described(), greet);
    }
}

fn sorted(mut names: Vec<&str>) -> Vec<&str> {
    names.sort_unstable();
    names
}

/// Arbitrary JSON whose keys include words of the format.
fn anything() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "$defaults",
        "$namespace",
        "$schema",
        "description",
        "input",
        "run",
        "http",
        "process",
        "builtin",
        "argv",
        "base_url",
        "auth",
        "body",
        "type",
        "properties",
        "timeout",
        "examples",
        "depends_on",
        "greet",
        "a b",
        "",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[ -~é{}%]{0,8}".prop_map(Value::from),
        prop::sample::select(vec!["30s", "secret:a", "{{ a }}", "{% if a %}", "object", "https://a.example"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..6).prop_map(|fields| {
                fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>().into()
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_json_in_one_file_never_affects_the_others(content in anything()) {
        let folder = Folder::with(&[("any.json", &content), ("good.json", &json!({"good": definition(json!({}))}))]);
        let catalog = folder.load();
        prop_assert!(catalog.get("good").is_some());
        for problem in catalog.all_problems() {
            prop_assert!(problem.file.ends_with("any.json") && !problem.message.is_empty(), "{problem}");
        }
    }

    #[test]
    fn defaults_have_the_same_effect_as_repeating_them(timeout in "[1-9][0-9]{0,3}(ms|s|m)", admin: bool, tag in "[a-z]{1,8}") {
        let common = json!({"timeout": timeout, "admin": admin, "tags": [tag]});
        let mut folder = Folder::with(&[
            ("a.json", &json!({"$defaults": common, "greet": definition(json!({}))})),
        ]);
        folder.config.access.admin = true;
        let with_defaults = folder.load().get("greet").map(|subtool| serde_json::to_value(&*subtool.definition).expect("JSON"));
        folder.write("a.json", json!({"greet": definition(common)}).to_string());
        let repeated = folder.load().get("greet").map(|subtool| serde_json::to_value(&*subtool.definition).expect("JSON"));
        prop_assert!(with_defaults.is_some());
        prop_assert_eq!(with_defaults, repeated);
    }
}
