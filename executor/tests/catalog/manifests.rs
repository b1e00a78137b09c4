//! Packs of the human: what of them is loaded, and what is said about mistakes, in one file that a person can read from
//! the beginning to the end: `executor/tests/catalog/pack-messages.txt`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use catalog::listing_cache;
use catalog::packs::schema;
use catalog::{LoadProblem, SHIPPED, SourcesWatch, left_out};
use definition::enabled_files::{self, EnabledFiles};
use executor::attempt::pinned::perform;
use executor::lint::{Level, LintScope, lint};
use ground::config::secret::Secrets;
use jsonschema::Validator;
use listing::Listing;
use protocol::caller::Caller;
use protocol::code::Code;
use runner::{Invocation, RunnerContext};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{Folder, definition, names};

/// If this environment variable is set, files are rewritten instead of compared.
const UPDATE: &str = "UPDATE_EXPECT";

/// A manifest without mistakes, for the pack `zoo`.
const MANIFEST: &str = r#"name = "zoo"
version = "1.2.0"
description = "the animals of a zoo"
executor = ">=0.1"
needs.programs.echo = { description = "for everything" }
"#;

/// A folder with the pack `zoo`, which is enabled.
fn zoo(manifest: &str, files: &[(&str, Value)]) -> Folder {
    let mut folder = Folder::new();
    pack(&folder, "zoo", manifest, files);
    enable(&mut folder, "zoo", "enabled = true");
    folder
}

fn pack(folder: &Folder, name: &str, manifest: &str, files: &[(&str, Value)]) {
    fs::create_dir_all(folder.folder.path().join("packs").join(name)).expect("a folder");
    folder.write(&format!("packs/{name}/pack.toml"), manifest);
    for (file, content) in files {
        folder.write(&format!("packs/{name}/{file}"), content.to_string());
    }
}

/// Enables a pack as it is now.
fn enable(folder: &mut Folder, name: &str, settings: &str) {
    let packs = folder.folder.path().join("packs");
    if let Ok(files) = enabled_files::files(&packs.join(name)) {
        EnabledFiles::record(&packs, name, Some(files)).expect("recorded");
    }
    folder.config.packs.insert(name.to_owned(), toml::from_str(settings).expect("settings"));
}

fn reads(changes: Value) -> Value {
    let mut reads = definition(json!({"description": "Looks at the animals of the zoo.",
        "annotations": {"readOnlyHint": true, "openWorldHint": false},
        "input": {"type": "object", "additionalProperties": false,
            "properties": {"name": {"type": "string", "description": "The animal."}}}}));
    for (key, value) in crate::object(changes) {
        reads[key] = value;
    }
    reads
}

/// Two subtools: one that looks, and one that feeds.
fn animals() -> Value {
    let feeds = json!({"annotations": {"openWorldHint": false}, "description": "Feeds an animal with what it likes."});
    json!({"zoo_look": reads(json!({})), "zoo_feed": reads(feeds)})
}

#[test]
fn a_pack_loads_when_it_is_enabled_with_all_of_its_files() {
    let other = json!({"zoo_count": reads(json!({"description": "Counts how many animals there are."}))});
    let mut folder = zoo(MANIFEST, &[("animals.json", animals()), ("numbers.json", other)]);
    folder.write("packs/zoo/README.md", "Read me.");
    enable(&mut folder, "zoo", "enabled = true");
    assert_eq!(folder.problems(), [""; 0]);
    assert_eq!(names(&folder.load()), ["zoo_count", "zoo_feed", "zoo_look"]);
    enable(&mut folder, "zoo", "enabled = false");
    assert_eq!((names(&folder.load()), folder.problems()), (vec![], vec![]), "it is switched off");
    folder.config.packs.clear();
    assert_eq!((names(&folder.load()), folder.problems()), (vec![], vec![]), "it is off by default");
    folder.config.catalog.packs = vec!["zoo".to_owned()];
    assert_eq!(names(&folder.load()).len(), 3, "the list of packs enables it too");
}

#[test]
fn a_pack_takes_no_name_of_the_humans_own_or_of_a_shipped_subtool_and_changes_none() {
    let file = json!({"own_greet": reads(json!({"description": "The pack greets."})),
        "git_log": reads(json!({"description": "The pack logs."})),
        "$overrides": {"git_status": {"description": "The pack changes it."}}});
    let mut folder = zoo(MANIFEST, &[("zoo.json", file)]);
    folder.config.catalog.packs = vec!["git".to_owned()];
    folder.write("own.json", json!({"own_greet": reads(json!({"description": "The human greets."}))}).to_string());
    let catalog = folder.load();
    let description = |name: &str| catalog.get(name).expect(name).definition.description.clone();
    assert_eq!(description("own_greet"), "The human greets.");
    assert!(!description("git_log").contains("pack") && !description("git_status").contains("pack"));
    let problems = folder.problems().join("\n");
    for part in [
        "zoo.json: $overrides.git_status: a pack cannot change the subtools of others",
        "zoo.json: git_log: the name is already defined by built-in pack git",
        "zoo.json: own_greet: the name is already defined by own.json",
    ] {
        assert!(problems.contains(part), "{part}: {problems}");
    }
}

#[test]
fn the_humans_own_file_changes_a_subtool_of_a_pack() {
    let folder = zoo(MANIFEST, &[("zoo.json", animals())]);
    folder.write("own.json", json!({"$overrides": {"zoo_feed": {"confirm": "always"}}}).to_string());
    assert_eq!(folder.problems(), [""; 0]);
    let feed = folder.load().get("zoo_feed").expect("loaded");
    assert_eq!(serde_json::to_value(&feed.definition.confirm).expect("JSON"), "always");
}

#[test]
fn a_broken_pack_or_file_leaves_out_only_itself() {
    let mut folder = zoo("name = ", &[("zoo.json", animals())]);
    let house = json!({"house_look": reads(json!({"description": "Looks at the house."}))});
    pack(&folder, "house", &MANIFEST.replace("zoo", "house"), &[("house.json", house)]);
    fs::write(folder.folder.path().join("packs/house/broken.json"), "{").expect("written");
    enable(&mut folder, "house", "enabled = true");
    folder.config.catalog.packs = vec!["git".to_owned()];
    folder.write("own.json", json!({"own": reads(json!({"description": "Looks at something else."}))}).to_string());
    let catalog = folder.load();
    for name in ["house_look", "git_log", "own"] {
        assert!(catalog.get(name).is_some(), "{name}");
    }
    assert!(catalog.get("zoo_look").is_none());
    let problems = folder.problems();
    assert_eq!(problems.len(), 2, "{problems:#?}");
    assert!(problems.iter().any(|problem| problem.starts_with("packs/zoo/pack.toml: line 1 column ")), "{problems:?}");
    assert!(problems.iter().any(|problem| problem.starts_with("packs/house/broken.json: line 1")), "{problems:?}");
}

#[test]
fn switches_and_limits_are_in_force() {
    let manifest = format!(
        "{MANIFEST}[switches.feeding]\ndescription = \"feeding\"\ndefault = true\nsubtools = [\"zoo_f*\"]\n\
         [switches.night]\ndescription = \"at night\"\ndefault = false\nsubtools = [\"zoo_night\"]\n\
         [limits]\nread = {{ calls = 9, per = \"1m\" }}\nwrite = {{ calls = 2, per = \"2h\" }}\n"
    );
    let mut file = animals();
    file["zoo_night"] = reads(json!({"description": "Looks at what sleeps."}));
    file["zoo_own"] = reads(json!({"description": "Knows its own limit.", "rate_limit": {"calls": 1, "per": "1s"}}));
    let mut folder = zoo(&manifest, &[("zoo.json", file)]);
    let limit = |folder: &Folder, name: &str| {
        let found = folder.load().get(name).map(|subtool| subtool.definition.rate_limit.expect("a limit").calls);
        found.ok_or(folder.load().is_hidden(name))
    };
    assert_eq!(
        (limit(&folder, "zoo_look"), limit(&folder, "zoo_feed"), limit(&folder, "zoo_own")),
        (Ok(9), Ok(2), Ok(1))
    );
    assert_eq!(limit(&folder, "zoo_night"), Err(true), "it is off by default, and not a mistake");
    assert_eq!(folder.load().longest_window().map(|window| window.as_secs()), Some(2 * 60 * 60));
    enable(&mut folder, "zoo", "enabled = true\nswitches = { feeding = false, night = true }");
    assert_eq!((limit(&folder, "zoo_feed"), limit(&folder, "zoo_night")), (Err(true), Ok(9)));
    assert_eq!(folder.problems(), [""; 0]);
    enable(&mut folder, "zoo", "enabled = true\nswitches = { feedin = false }");
    assert_eq!(names(&folder.load()), [""; 0], "more must not be allowed than the human meant");
    let expected = "config.toml: packs.zoo.switches.feedin: the pack `zoo` has no switch `feedin`, so it is not loaded; \
                    did you mean `feeding`?";
    assert_eq!(folder.problems(), [expected]);
}

#[test]
fn a_variable_that_is_not_set_is_said_once_for_the_pack() {
    let manifest = format!(
        "{MANIFEST}[needs.variables]\nzoo_url = {{ description = \"the zoo\", example = \"https://zoo.example\" }}\n"
    );
    let away = json!({"process": {"argv": ["echo", "{{ vars.zoo_url }}"]}});
    let mut file = animals();
    for number in 0..5 {
        let changes = json!({"description": format!("Asks the zoo, kind {number}."), "run": away});
        file[format!("zoo_ask_{number}")] = reads(changes);
    }
    let needs = json!({"description": "Asks twice.", "depends_on": ["zoo_ask_1"]});
    file["zoo_twice"] = reads(needs);
    file["zoo_thrice"] = reads(json!({"description": "Asks three times.", "depends_on": ["zoo_twice"]}));
    file["zoo_typo"] = json!({"description": "Has a mistake of its own."});
    let mut folder = zoo(&manifest, &[("zoo.json", file)]);
    let problems = folder.problems();
    let expected = "packs/zoo/pack.toml: needs.variables.zoo_url: the variable `zoo_url` (the zoo) is not set, so 7 of 10 \
                    subtools of the pack are left out; set it under [vars] in config.toml, like zoo_url = \
                    \"https://zoo.example\"";
    assert_eq!(problems.last().map(String::as_str), Some(expected), "{problems:#?}");
    assert!(problems[..problems.len() - 1].iter().all(|problem| problem.contains("zoo_typo")), "{problems:#?}");
    assert_eq!(names(&folder.load()), ["zoo_feed", "zoo_look"]);
    let file = format!("{}/", folder.folder.path().display());
    let summary = left_out(&folder.load().all_problems()).expect("problems").replace(&file, "");
    assert_eq!(summary, "left out: 7 definitions of packs/zoo/pack.toml, 1 definition of packs/zoo/zoo.json");
    folder.config.vars = toml::from_str("zoo_url = \"https://zoo.example\"").expect("variables");
    assert_eq!(names(&folder.load()).len(), 9);
}

#[test]
fn what_changes_in_a_pack_is_noticed() {
    let folder = zoo(MANIFEST, &[("zoo.json", animals())]);
    let sources = folder.sources();
    let mut watch = SourcesWatch::new(&sources);
    let mut before = sources.stamp();
    let path = folder.folder.path();
    let edits: [(&str, &dyn Fn()); 8] = [
        ("the manifest", &|| folder.write("packs/zoo/pack.toml", format!("{MANIFEST}# more\n"))),
        ("a folder", &|| {
            fs::create_dir(path.join("packs/zoo/bin")).expect("made");
            folder.write("packs/zoo/bin/look.sh", "echo good");
        }),
        ("a script", &|| folder.write("packs/zoo/bin/look.sh", "echo evil, and more")),
        ("no script", &|| fs::remove_file(path.join("packs/zoo/bin/look.sh")).expect("removed")),
        ("a new file", &|| folder.write("packs/zoo/more.json", "{}")),
        ("the pack is gone", &|| fs::rename(path.join("packs/zoo"), path.join("elsewhere")).expect("moved")),
        ("it is back", &|| fs::rename(path.join("elsewhere"), path.join("packs/zoo")).expect("moved")),
        ("a folder with a shipped name", &|| fs::create_dir(path.join("packs/git")).expect("made")),
    ];
    for (what, edit) in edits {
        edit();
        assert!(watch.may_have_changed(&sources), "{what}");
        watch.restart(&sources);
        let after = sources.stamp();
        assert_ne!(after, before, "{what}");
        before = after;
    }
    assert_eq!(sources.stamp(), before);
}

#[test]
fn a_pack_that_another_user_may_have_written_is_not_loaded() {
    let mut folder = zoo(MANIFEST, &[("zoo.json", animals())]);
    let path = folder.folder.path().join("packs/zoo");
    fs::create_dir(path.join("bin")).expect("made");
    folder.write("packs/zoo/bin/look.sh", "echo zebra");
    enable(&mut folder, "zoo", "enabled = true");
    let record = path.with_file_name(".enabled.json");
    let places = [
        (path.join("pack.toml"), 0o666),
        (path.join("zoo.json"), 0o666),
        (path.clone(), 0o777),
        (path.join("bin"), 0o777),
        (path.join("bin/look.sh"), 0o666),
        (record, 0o666),
    ];
    for (place, writable) in places {
        let mode = |mode| fs::set_permissions(&place, fs::Permissions::from_mode(mode)).expect("set");
        let before = fs::metadata(&place).expect("it exists").permissions().mode();
        mode(writable);
        assert_eq!(names(&folder.load()).len(), 0, "{}", place.display());
        let problems = folder.problems().join("\n");
        assert!(problems.contains("another user may have changed it") && problems.contains("chmod go-w"), "{problems}");
        mode(before);
    }
    assert_eq!(names(&folder.load()).len(), 2);
}

/// The catalog that loaded it knows nothing of the change, nor does whoever performs it.
#[tokio::test]
async fn a_subtool_that_was_loaded_before_its_pack_changed_is_not_performed() {
    let mut folder = zoo(MANIFEST, &[("zoo.json", animals())]);
    let path = folder.folder.path().join("packs/zoo");
    let script = path.join("look.sh");
    fs::write(&script, "echo good").expect("written");
    enable(&mut folder, "zoo", "enabled = true");
    let look = folder.load().get("zoo_look").expect("loaded");
    let secrets = Secrets::new(folder.folder.path().join("secrets"), BTreeMap::new());
    let context =
        RunnerContext::new(folder.config.clone(), secrets, folder.folder.path().join("spool")).expect("clients");
    let invocation = Invocation {
        input: crate::object(json!({"name": "zebra"})),
        caller: Caller { folder: Some(folder.folder.path().to_owned()), ..Caller::default() },
        ..Invocation::default()
    };
    let performed = async || {
        let done = perform(&look.definition, &invocation, &context, &CancellationToken::new()).await;
        done.map(|_| ()).map_err(|failure| failure.error.code)
    };
    assert_eq!(performed().await, Ok(()));
    let edits: [(&str, &dyn Fn()); 5] = [
        ("a script", &|| fs::write(&script, "echo evil, and more").expect("written")),
        ("of the same length and time", &|| {
            let before = fs::metadata(&script).expect("there").modified().expect("a time");
            fs::write(&script, "echo evil").expect("written");
            fs::File::options().write(true).open(&script).expect("open").set_modified(before).expect("set");
        }),
        ("a new file", &|| fs::write(path.join("more.sh"), "echo evil").expect("written")),
        ("a file is gone", &|| fs::remove_file(&script).expect("removed")),
        ("the manifest", &|| folder.write("packs/zoo/pack.toml", format!("{MANIFEST}# more\n"))),
    ];
    for (what, edit) in edits {
        edit();
        assert_eq!(performed().await, Err(Code::Drifted), "{what}");
        fs::remove_file(path.join("more.sh")).ok();
        folder.write("packs/zoo/pack.toml", MANIFEST);
        fs::write(&script, "echo good").expect("written");
        assert_eq!(performed().await, Ok(()), "after {what}");
    }
}

#[test]
fn the_listing_follows_each_file_of_a_pack() {
    let manifest = |default: bool| {
        format!("{MANIFEST}[switches.feeding]\ndescription = \"d\"\ndefault = {default}\nsubtools = [\"zoo_feed\"]\n")
    };
    let mut folder = zoo(&manifest(false), &[("zoo.json", animals())]);
    let cache = folder.folder.path().join("cache");
    let seen = |folder: &Folder| {
        let problems = |listing: &Listing| listing.problems().iter().map(|problem| problem.message.clone()).collect();
        let read = |listing: &Listing| Ok((listing.count(), problems(listing)));
        let (count, problems): (_, Vec<String>) =
            listing_cache::read(&folder.sources(), &cache, read).expect("a listing");
        (count, problems.iter().filter(|problem| problem.contains("changed since it was enabled")).count())
    };
    assert_eq!(seen(&folder), (1, 0));
    folder.write("packs/zoo/pack.toml", manifest(true));
    assert_eq!(seen(&folder), (0, 1), "a manifest that changed switches nothing on");
    enable(&mut folder, "zoo", "enabled = true");
    assert_eq!(seen(&folder), (2, 0));
    folder.write("packs/zoo/pack.toml", manifest(false));
    assert_eq!(seen(&folder), (0, 1));
    folder.write("packs/zoo/pack.toml", manifest(true));
    assert_eq!(seen(&folder), (2, 0), "it is as it was");
    // So do the files that the catalog does not read.
    let script = folder.folder.path().join("packs/zoo/bin/look.sh");
    fs::create_dir(script.parent().expect("a folder")).expect("made");
    fs::write(&script, "echo good").expect("written");
    enable(&mut folder, "zoo", "enabled = true");
    for text in ["echo evil", "echo good", "echo evil, and more", "echo good"] {
        fs::write(&script, text).expect("written");
        assert_eq!(seen(&folder), if text == "echo good" { (2, 0) } else { (0, 1) }, "{text}");
    }
    fs::write(script.with_file_name("more.sh"), "echo evil").expect("written");
    assert_eq!(seen(&folder), (0, 1), "a new file");
    fs::remove_file(script.with_file_name("more.sh")).expect("removed");
    assert_eq!(seen(&folder), (2, 0), "it is gone again");
}

#[test]
fn a_check_is_refused_unless_every_definition_of_its_name_only_reads() {
    let manifest = format!("{MANIFEST}[health]\nsubtool = \"zoo_look\"\n");
    let look = |changes: Value| json!({"zoo_look": reads(changes)});
    let (reading, writing) = (look(json!({})), look(json!({"annotations": {}})));
    let asks = look(json!({"run": {"agent": {"prompt": "{{ name }}"}}}));
    let answers = look(json!({"run": {"llm": {"prompt": "{{ name }}"}}}));
    let calls = look(json!({"run": {"llm": {"prompt": "{{ name }}", "tool": "zoo_feed"}}}));
    let cases = [
        ("it reads", vec![&reading], false),
        ("all read", vec![&reading, &reading], false),
        ("it writes", vec![&writing], true),
        ("the second one writes", vec![&reading, &writing], true),
        ("the first one writes", vec![&writing, &reading], true),
        ("what it delegates may write", vec![&asks], true),
        ("a model that is only asked", vec![&answers], false),
        ("what the model calls may write", vec![&calls], true),
    ];
    for (what, files, is_refused) in cases {
        let named: Vec<_> = ["a.json", "b.json"].into_iter().zip(files.into_iter().cloned()).collect();
        let problems = zoo(&manifest, &named).problems().join("\n");
        assert_eq!(problems.contains("`zoo_look` is not read-only"), is_refused, "{what}: {problems}");
    }
}

/// What is wrong, and the manifest, the files beside it, and the settings of the pack.
type WrongPack = (&'static str, String, Vec<(&'static str, Value)>, &'static str);

fn wrong_packs() -> Vec<WrongPack> {
    let wrong = |what, more: &str| (what, format!("{MANIFEST}{more}"), vec![("zoo.json", animals())], "");
    let instead = |what, from: &str, to: &str| (what, MANIFEST.replace(from, to), vec![("zoo.json", animals())], "");
    vec![
        ("text that is not TOML", "name = zoo\n".to_owned(), vec![], ""),
        ("an empty manifest", String::new(), vec![], ""),
        instead("a name that is not the folder's", "\"zoo\"", "\"zebra\""),
        instead("a name with a space", "\"zoo\"", "\"our zoo\""),
        instead("a version as a number", "\"1.2.0\"", "1.2"),
        instead("an empty description", "\"the animals of a zoo\"", "\" \""),
        instead("a least version without `>=`", "\">=0.1\"", "\"0.1\""),
        instead("a program that is too old", "\">=0.1\"", "\">=99.1\""),
        wrong("a misspelled key", "[swiches.a]\n"),
        wrong("a kind of need that does not exist", "[needs.variable.a]\ndescription = \"a\"\n"),
        wrong("a need as a text", "[needs.secrets]\nzoo = \"the key\"\n"),
        wrong("a need without a description", "[needs.programs.php]\n"),
        wrong("a need that says nothing", "[needs.programs.php]\ndescription = \"\"\n"),
        wrong("a switch without a default", "[switches.feeding]\ndescription = \"d\"\nsubtools = [\"zoo_feed\"]\n"),
        wrong("a switch for nothing", "[switches.feeding]\ndescription = \"d\"\ndefault = true\nsubtools = []\n"),
        wrong(
            "a switch for a subtool that does not exist",
            "[switches.feeding]\ndescription = \"d\"\ndefault = true\nsubtools = [\"zoo_fed\"]\n",
        ),
        wrong(
            "a switch with a pattern that cannot be read",
            "[switches.feeding]\ndescription = \"d\"\ndefault = true\nsubtools = [\"zoo_{feed\"]\n",
        ),
        wrong("a limit of a kind that does not exist", "[limits]\ndelete = { calls = 1, per = \"1m\" }\n"),
        wrong("a limit without a window", "[limits]\nwrite = { calls = 1 }\n"),
        wrong("a check by a subtool that changes something", "[health]\nsubtool = \"zoo_feed\"\n"),
        wrong("a check by a subtool of another pack", "[health]\nsubtool = \"git_log\"\n"),
        wrong("a check without a subtool", "[health]\ninput = { name = \"Ann\" }\n"),
        wrong("a check every now and then", "[health]\nsubtool = \"zoo_look\"\nevery = \"often\"\n"),
        wrong("two mistakes at once", "[limits]\nwrite = 5\n[health]\nsubtool = 5\n"),
        ("a definition file that is not JSON", MANIFEST.to_owned(), vec![("zoo.json", json!([]))], ""),
        (
            "a definition with a mistake",
            MANIFEST.to_owned(),
            vec![("zoo.json", json!({"zoo_look": reads(json!({"tiemout": "5s"})), "zoo_feed": animals()["zoo_feed"]}))],
            "",
        ),
        (
            "a program that is not there",
            format!("{MANIFEST}needs.programs.zebra-feeder = {{ description = \"to feed\" }}\n"),
            vec![(
                "zoo.json",
                json!({"zoo_look": reads(json!({"run": {"process": {"argv": ["zebra-feeder"]}}})),
                    "zoo_feed": reads(json!({"description": "Feeds all of the animals.",
                        "run": {"process": {"argv": ["zebra-feeder"]}}}))}),
            )],
            "",
        ),
        (
            "a switch that does not exist",
            MANIFEST.to_owned(),
            vec![("zoo.json", animals())],
            "switches = { feeding = false }",
        ),
    ]
}

#[test]
fn every_mistake_of_a_pack_is_explained() {
    let mut text = String::from(
        "What `agent-magic-tool lint` says about wrong packs. Rewritten by\n\
         UPDATE_EXPECT=1 cargo test -p agent-magic-tool-executor --test catalog every_mistake_of_a_pack\n",
    );
    let findings = |folder: &Folder| {
        let path = format!("{}/", folder.folder.path().display());
        let mut findings = lint(&folder.load(), &folder.config, &LintScope::default());
        findings.retain(|finding| finding.level != Level::Advice);
        findings.iter().map(|finding| finding.to_line().replace(&path, "")).collect::<Vec<_>>()
    };
    assert_eq!(findings(&zoo(MANIFEST, &[("zoo.json", animals())])), [""; 0], "the pack itself has no mistake");
    for (number, (title, manifest, files, settings)) in wrong_packs().iter().enumerate() {
        let mut folder = zoo(manifest, files);
        enable(&mut folder, "zoo", &format!("enabled = true\n{settings}\n"));
        let findings = findings(&folder);
        assert!(!findings.is_empty(), "{title}: nothing is said");
        let shown = manifest.strip_prefix(MANIFEST).unwrap_or(manifest).trim().replace('\n', "\n   ");
        writeln!(text, "\n{}. {title}\n   {shown}", number + 1).expect("a text takes any text");
        for finding in findings {
            writeln!(text, "   > {finding}").expect("a text takes any text");
        }
    }
    let mut folder = zoo(MANIFEST, &[("zoo.json", animals())]);
    fs::remove_file(folder.folder.path().join("packs/zoo/pack.toml")).expect("removed");
    pack(&folder, "git", &MANIFEST.replace("zoo", "git"), &[]);
    enable(&mut folder, "zebra", "enabled = true");
    enable(&mut folder, "../zoo", "enabled = true");
    writeln!(text, "\nA pack without a manifest, one with the name of a shipped one, and two that do not exist")
        .expect("a text takes any text");
    for finding in findings(&folder) {
        writeln!(text, "   > {finding}").expect("a text takes any text");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/catalog/pack-messages.txt");
    if std::env::var_os(UPDATE).is_some() {
        fs::write(&path, &text).expect("written");
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    let first = text.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
    assert!(
        text == expected,
        "executor/tests/catalog/pack-messages.txt is out of date; the first difference: {first:?}"
    );
}

#[test]
fn the_schema_of_manifests_matches_the_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../subtools/pack.schema.json");
    let expected = schema::manifest_schema_text();
    if std::env::var_os(UPDATE).is_some() {
        fs::write(&path, &expected).expect("the schema is written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "subtools/pack.schema.json does not match the types; regenerate it with\n    \
         {UPDATE}=1 cargo test -p agent-magic-tool-executor --test catalog the_schema_of_manifests"
    );
    jsonschema::meta::validate(&schema::manifest_schema()).expect("a schema of draft 2020-12");
}

fn validator() -> Validator {
    jsonschema::validator_for(&schema::manifest_schema()).expect("a schema")
}

fn json_of(manifest: &str) -> Option<Value> {
    let table: toml::Table = manifest.parse().ok()?;
    serde_json::to_value(table).ok()
}

#[test]
fn every_shipped_manifest_matches_the_schema_and_names_it() {
    let validator = validator();
    for pack in SHIPPED {
        let manifest = json_of(pack.manifest).expect("it is TOML");
        let wrong: Vec<_> = validator.iter_errors(&manifest).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{}: {wrong:#?}", pack.name);
        assert!(pack.manifest.starts_with("#:schema ../pack.schema.json\n"), "{}: editors need `#:schema`", pack.name);
    }
}

/// What an editor calls wrong is also a mistake to the loader; some mistakes only the loader finds.
#[test]
fn the_schema_and_the_loader_agree_on_what_is_wrong() {
    let validator = validator();
    let mut both = 0;
    for (title, manifest, files, _) in wrong_packs() {
        let Some(value) = json_of(&manifest) else { continue };
        let is_wrong = zoo(&manifest, &files)
            .load()
            .problems()
            .iter()
            .any(|problem: &LoadProblem| problem.file.ends_with("pack.toml"));
        if !validator.is_valid(&value) {
            assert!(is_wrong, "{title}: only the schema calls it wrong");
            both += 1;
        }
    }
    assert!(both > 10, "{both}");
}

#[test]
fn the_name_of_the_built_in_question_is_taken_in_files_and_in_packs() {
    let own = json!({"human_question": definition(json!({})), "human_questions": definition(json!({}))});
    for (folder, file) in [
        (Folder::with(&[("own.json", &own)]), "own.json"),
        (zoo(MANIFEST, &[("zoo.json", own.clone())]), "packs/zoo/zoo.json"),
    ] {
        let expected = "human_question: `human_question` is built in: it is how tasks that run ask the human, and no \
                        definition can take its place; choose another name";
        assert_eq!(folder.problems(), [format!("{file}: {expected}")]);
        let catalog = folder.load();
        assert_eq!(catalog.get("human_question").expect("the built-in one").definition.run.name(), "ask_user");
        assert!(catalog.get("human_questions").is_some());
    }
}
