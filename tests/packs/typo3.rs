//! The pack `typo3` against TYPO3's own tables in MariaDB and SQLite, and with a real PHP, which runs a script as
//! `vendor/bin/typo3`.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{TestDatabase, assert_found, configure, data, error};
use crate::skip::skip;
use crate::world::World;

const TABLES: &str = include_str!("typo3.sql");
/// The words for a record that does not exist and for one that may not be seen.
const DENIED: &str = "no such record, or not permitted";

/// Prints its arguments, and the configuration of a site, as `vendor/bin/typo3` does it.
const BIN_TYPO3: &str = "#!/usr/bin/env php
<?php
array_shift($argv);
echo implode(' ', $argv), \"\\n\";
if (in_array('site:show', $argv, true)) {
    echo \"base: 'https://user:hunter2-of-the-site@example.com/'\\nsettings:\\n  crm:\\n    apiKey: key-of-the-crm\\n    url: 'https://crm.example.com'\\n\";
}
";
const SETTINGS: &str = "<?php
return [
    'DB' => ['Connections' => ['Default' => ['dbname' => 'site', 'user' => 'typo3', 'password' => 'hunter2-of-the-database']]],
    'SYS' => ['encryptionKey' => 'key-of-the-site', 'sitename' => 'Bags', 'trustedHostsPattern' => '.*'],
    'MAIL' => ['transport' => 'smtp', 'dsn' => 'smtp://mail:hunter2-of-the-mail@example.com', 'transport_smtp_password' => ''],
    'EXTENSIONS' => ['shop' => ['endpoint' => 'https://bot:hunter2-of-the-shop@example.com/', 'active' => true]],
];
";

/// Calls `test` with a website in each kind of database that TYPO3 and this program support.
fn each_database(settings: &str, test: impl Fn(&str, &World)) {
    for kind in ["sqlite", "mariadb"] {
        let world = World::new();
        if let Some(database) = TestDatabase::new(&world, "typo3", kind, TABLES) {
            configure(&world, "typo3", &format!("{}{settings}[vars]\ntypo3_root = \"/srv/typo3\"\n", database.config));
            test(kind, &world);
        }
    }
}

/// The values of a field of each item of a list.
#[track_caller]
fn each(list: &Value, field: &str) -> Vec<Value> {
    list.as_array().expect("a list").iter().map(|item| item[field].clone()).collect()
}

#[test]
fn the_log_is_read_newest_first_without_personal_data() {
    each_database("", |kind, world| {
        let log = |input: Value| data(world, "typo3_read_log", &input)["entries"].clone();
        assert_eq!(each(&log(json!({})), "uid"), [6, 5, 4, 3, 2, 1], "{kind}");
        assert_eq!(each(&log(json!({"level": "error"})), "uid"), [4, 3], "also what only the column `error` says");
        assert_eq!(each(&log(json!({"level": "warning", "limit": 2, "page": 2})), "uid"), [4, 3]);
        assert_eq!(each(&log(json!({"contains": "PASSWORD"})), "uid"), [5]);
        let of_page = log(json!({"table": "pages", "uid": 2}));
        assert_eq!(
            (each(&of_page, "record"), &of_page[0]["time"]),
            (vec![json!({"table": "pages", "uid": 2})], &json!("2026-01-01T00:01:40Z"))
        );
        let all = log(json!({})).to_string();
        for personal in ["203.0.113", "2001:db8", "ann@example.com", "root", "mallory"] {
            assert!(!all.contains(personal), "{kind}: {personal}: {all}");
        }
        assert!(all.contains("[e-mail] from [ip] and [ip] at 12:34:56"), "{all}");
        let many = world.run(&["run", "typo3_read_log", "--input", "{\"limit\": 51}"]);
        assert_eq!(many.error()["code"], "invalid-input", "50 is the most: {many}");
    });
}

#[test]
fn pages_and_contents_are_shown_also_hidden_ones_but_never_deleted_ones() {
    each_database("", |kind, world| {
        let call = |tool: &str, input: Value| data(world, tool, &input);
        let tree = call("typo3_page_tree", json!({"depth": 4}))["pages"].clone();
        assert_eq!(
            each(&tree, "uid"),
            [1, 8, 3, 2, 4, 5, 11],
            "{kind}: by depth and sorting; no drafts, no translations"
        );
        assert_eq!(each(&tree, "depth"), [1, 1, 2, 2, 2, 3, 4]);
        assert_eq!(
            (&tree[4]["hidden"], &tree[1]["type"], &tree[2]["subpages"]),
            (&json!(true), &json!("folder"), &json!(1))
        );
        assert_eq!(each(&call("typo3_page_tree", json!({"page_uid": 3, "depth": 1}))["pages"], "title"), ["Bags"]);
        assert_eq!(each(&call("typo3_page_tree", json!({"hidden": true}))["pages"], "uid"), [4]);
        let path = call("typo3_page_path", json!({"page_uid": 11}));
        assert_eq!(
            (&path["path"], each(&path["pages"], "uid")),
            (&json!("Home / Products / Bags / Small bags"), vec![json!(1), json!(3), json!(5), json!(11)])
        );
        // Page 6 is deleted, page 7 lies below it, page 99 does not exist.
        for page in [6, 7, 99] {
            assert_eq!(
                call("typo3_page_path", json!({"page_uid": page})),
                json!({"found": false, "reason": DENIED}),
                "{page}"
            );
        }
        assert_eq!(each(&call("typo3_find_pages", json!({"title": "ABOUT"}))["pages"], "uid"), [2]);
        assert_eq!(
            each(&call("typo3_find_pages", json!({"slug": "/ueber", "language": 1}))["pages"], "title"),
            ["Über uns"]
        );
        assert_eq!(each(&call("typo3_find_pages", json!({"title": "%"}))["pages"], "uid").len(), 0, "no wildcard");

        let content = call("typo3_page_content", json!({"page_uid": 2}))["elements"].clone();
        assert_eq!(each(&content, "header"), ["First", "Second", "Hidden", "Zweiter", "Aside"]);
        assert_eq!((&content[2]["hidden"], &content[1]["text"]), (&json!(true), &json!("<p>We make bags.</p>")));
        let german = json!({"page_uid": 2, "language": 1, "column": 0});
        assert_eq!(each(&call("typo3_page_content", german)["elements"], "uid"), [6]);
        assert_eq!(call("typo3_page_content", json!({"page_uid": 6}))["elements"], json!([]), "the page is deleted");
    });
}

#[test]
fn records_users_and_tables_are_shown_without_credentials() {
    each_database("deny_tables = [\"sys_registry\"]\n", |kind, world| {
        let call = |tool: &str, input: Value| data(world, tool, &input);
        let record = |table: &str, uid: u64| call("typo3_find_record", json!({"table": table, "uid": uid}));
        let news = json!({"uid": 17, "pid": 8, "tstamp": 1_767_225_600, "hidden": 1, "title": "New bags"});
        assert_eq!(record("tx_news_domain_model_news", 17), json!({"found": true, "record": news}), "{kind}");
        // A deleted record, one that does not exist, and users.
        for (table, uid) in
            [("tx_news_domain_model_news", 18), ("tx_news_domain_model_news", 99), ("be_users", 1), ("pages", 6)]
        {
            assert_eq!(record(table, uid), json!({"found": false, "reason": DENIED}), "{table} {uid}");
        }
        let said = |table: &str| {
            let error = error(world, "typo3_find_record", &json!({"table": table, "uid": 1}));
            error["message"].as_str().expect("a message").replace(table, "x")
        };
        assert_eq!(said("sys_registry"), said("sys_registrar"), "a denied table is one that is not there");
        for table in ["pages WHERE 1=1 --", "PAGES", "pages;be_users"] {
            let input = json!({"table": table, "uid": 1}).to_string();
            assert_eq!(
                world.run(&["run", "typo3_find_record", "--input", &input]).error()["code"],
                "invalid-input",
                "{table}"
            );
        }

        let users = call("typo3_list_backend_users", json!({}));
        assert_eq!(
            each(&users["users"], "username"),
            ["editor", "former", "root"],
            "disabled ones, but no deleted ones"
        );
        assert_eq!(each(&users["users"], "disabled"), [false, true, false]);
        assert_eq!(
            (&users["users"][0]["groups"], &users["users"][2]["last_login"]),
            (&json!([1, 2]), &json!("2026-01-02T00:00:00Z"))
        );
        for secret in ["hash-of-a-password", "example.com", "mfa"] {
            assert!(!users.to_string().contains(secret), "{secret}: {users:#}");
        }
        assert_eq!(each(&call("typo3_list_backend_users", json!({"admin": true}))["users"], "uid"), [1]);
        let groups = call("typo3_list_backend_groups", json!({}))["groups"].clone();
        assert_eq!(
            (each(&groups, "title"), each(&groups, "hidden")),
            (vec![json!("Editors"), json!("Translators")], vec![json!(false), json!(true)])
        );
        assert_eq!(groups[0]["tables_modify"], json!(["pages", "tt_content"]));

        assert_eq!(
            each(&call("typo3_list_tables", json!({"name_contains": "tx_"}))["tables"], "name"),
            ["tx_news_domain_model_news"]
        );
        let columns = each(&call("typo3_describe_table", json!({"table": "be_users"}))["columns"], "name");
        assert!(columns.contains(&json!("username")) && !columns.contains(&json!("password")), "{columns:?}");
    });
}

/// A world with a website in a folder; reports that a test is skipped if there is no PHP.
fn website(settings: &str) -> Option<World> {
    if Command::new("php").arg("-v").stdout(Stdio::null()).status().is_err() {
        skip("there is no php; `tests/run` installs it");
        return None;
    }
    let world = World::new();
    let root = world.folder().join("site");
    for (file, text) in [("vendor/bin/typo3", BIN_TYPO3), ("config/system/settings.php", SETTINGS)] {
        let file = root.join(file);
        fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        fs::write(file, text).expect("written");
    }
    configure(&world, "typo3", &format!("{settings}\n[vars]\ntypo3_root = \"{}\"\n", root.display()));
    Some(world)
}

#[test]
fn the_command_line_and_the_settings_are_read_without_secrets() {
    let Some(world) = website("") else { return };
    let status = |input: Value| data(&world, "typo3_status", &input).as_str().expect("a text").trim_end().to_owned();
    let fixed = "--no-ansi --no-interaction";
    assert_eq!(status(json!({"command": "extension:list"})), format!("{fixed} extension:list"));
    assert_eq!(status(json!({"command": "version"})), format!("{fixed} --version"));
    let site = status(json!({"command": "site:show", "site": "main"}));
    assert_eq!(
        site,
        format!(
            "{fixed} site:show main\nbase: 'https://[redacted]@example.com/'\nsettings:\n  crm:\n    apiKey: [redacted]\n    url: 'https://crm.example.com'"
        )
    );
    for input in [
        json!({"command": "cache:flush"}),
        json!({"command": "backend:user:create"}),
        json!({"command": "site:show"}),
        json!({"command": "site:show", "site": "--help"}),
    ] {
        let refused = world.run(&["run", "typo3_status", "--input", &input.to_string()]);
        assert_eq!(refused.error()["code"], "invalid-input", "{input}: {refused}");
    }
    let settings = |path: &str| data(&world, "typo3_read_settings", &json!({"path": path}));
    let all = settings("");
    assert!(!all.to_string().contains("hunter2") && !all.to_string().contains("key-of"), "{all:#}");
    assert_eq!(
        all["DB"]["Connections"]["Default"],
        json!({"dbname": "site", "user": "typo3", "password": "[redacted]"})
    );
    assert_eq!(all["EXTENSIONS"]["shop"], json!({"endpoint": "https://[redacted]@example.com/", "active": true}));
    assert_eq!((settings("SYS/sitename"), settings("SYS/encryptionKey")), (json!("Bags"), json!("[redacted]")));
    assert_eq!(settings("MAIL/transport_smtp_password"), "", "that nothing is set is no secret");
    assert_eq!(error(&world, "typo3_read_settings", &json!({"path": "SYS/x"}))["details"]["stderr"], "no such setting");
    let php = data(&world, "typo3_php_info", &json!({}));
    assert!(php["version"].as_str().is_some_and(|it| it.starts_with(|first: char| first.is_ascii_digit())), "{php:#}");
    assert!(php["limits"]["memory_limit"].is_string() && php["extensions"]["json"].is_string(), "{php:#}");
}

#[test]
fn the_raw_forms_are_off_until_a_human_switches_them_on() {
    let Some(world) = website("[access]\nadmin = true\n[confirm]\nwrites = \"allow\"\n") else { return };
    let raw = [("typo3_read_settings_raw", json!({"path": "SYS/encryptionKey"})), ("typo3_php_info_raw", json!({}))];
    for (tool, input) in &raw {
        let refused = world.run(&["run", tool, "--input", &input.to_string()]);
        assert_eq!(refused.error()["code"], "unknown-subtool", "{refused}");
    }
    let on = json!({"enabled": true, "confirm": "never"});
    world.define("own.json", &json!({"$overrides": {"typo3_read_settings_raw": on, "typo3_php_info_raw": on}}));
    assert_eq!(data(&world, raw[0].0, &raw[0].1), "key-of-the-site");
    assert!(data(&world, raw[1].0, &raw[1].1).as_str().is_some_and(|text| text.contains("PHP Version")));
    let Some(other) = website("") else { return };
    other.define("own.json", &json!({"$overrides": {"typo3_read_settings_raw": on}}));
    let refused = other.run(&["run", raw[0].0, "--input", &raw[0].1.to_string()]);
    assert_eq!(refused.error()["code"], "unknown-subtool", "only for callers with administrative access: {refused}");
}

#[test]
fn requests_of_people_find_its_subtools() {
    assert_found(
        "typo3",
        "[databases.typo3]\nurl = \"mysql://reader@127.0.0.1/typo3\"\n[vars]\ntypo3_root = \"/srv/typo3\"\n",
    );
}

#[test]
fn without_its_variable_it_says_what_to_set() {
    super::assert_says_what_to_set("typo3", &["typo3_root"]);
}
