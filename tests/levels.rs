//! The table of `docs/security.md`: which attacks each level of approval stops, and the tests that prove it.
//!
//! The document is written from this table; `UPDATE_EXPECT=1` writes it anew.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Whether a level stops an attack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Stopped,
    /// Where a touch is needed.
    WithTouch,
    NotStopped,
}
use Outcome::{NotStopped, Stopped, WithTouch};

use crate::tidy::CRATES;

/// One attack: what it is, what becomes of it at the levels `page` and `touch`, why, and the tests that show it.
type Row = (&'static str, [Outcome; 2], &'static str, &'static [&'static str]);

const ROWS: [Row; 18] = [
    (
        "the model decides, by any command or file of its side",
        [Stopped, Stopped],
        "the mailbox has no request that approves",
        &["nothing_in_the_mailbox_decides"],
    ),
    (
        "a program makes an API key, or changes the file of API keys, and decides with it",
        [Stopped, Stopped],
        "a key decides only if you let that very key, on the page",
        &["no_interface_decides_for_a_human_without_the_scope", "the_file_of_keys_gives_no_scope"],
    ),
    (
        "a program sends requests without a session",
        [Stopped, Stopped],
        "each view and each decision needs a proof of the session's key",
        &["without_a_session_nothing_is_shown_and_nothing_changes"],
    ),
    (
        "a web site in your browser, or another page on this machine, sends or frames",
        [Stopped, Stopped],
        "random host name, exact `Host` and `Origin`, a key that no other origin can use",
        &[
            "only_requests_to_the_pages_own_host_name_are_answered",
            "another_page_in_the_same_browser_can_neither_read_nor_decide",
        ],
    ),
    (
        "a stolen session cookie",
        [Stopped, Stopped],
        "the cookie alone proves nothing, and no script can read the key",
        &["a_page_on_another_port_gets_the_cookie_but_decides_nothing"],
    ),
    (
        "another user of the machine, also with a whole stolen session",
        [Stopped, Stopped],
        "the kernel says who connects (Linux)",
        &["another_user_of_the_machine_gets_no_byte_from_the_page"],
    ),
    (
        "a program takes the port of an executor that has ended",
        [Stopped, Stopped],
        "the browser asks it for a proof first and sends it nothing else",
        &["a_squatter_at_the_page_of_an_ended_executor_decides_nothing"],
    ),
    (
        "a decision is sent again, or for another task",
        [Stopped, Stopped],
        "a decision is bound to the digest of one task and counts once; so is what a key signs",
        &["a_decision_counts_once_and_only_for_what_was_shown", "every_wrong_touch_is_refused"],
    ),
    (
        "input, definition or program change after the approval",
        [Stopped, Stopped],
        "what was shown is what runs, or nothing does",
        &[
            "a_task_whose_definition_changes_before_the_approval_fails_as_drifted",
            "a_script_that_is_replaced_all_the_time_never_runs_unseen",
        ],
    ),
    (
        "another program of yours reads the executor's memory, environment or open files",
        [Stopped, Stopped],
        "the kernel refuses it (Linux), and nothing dumps core",
        &["no_program_of_the_same_user_looks_into_the_executor"],
    ),
    (
        "a program that runs as you drives your browser, or opens a session of its own, and approves",
        [NotStopped, WithTouch],
        "it cannot touch your key, and a key signs only what it is asked to",
        &[
            "what_is_destructive_runs_only_with_a_touch_and_verify_proves_it",
            "with_a_key_what_is_grave_needs_its_touch_and_nothing_else_does",
        ],
    ),
    (
        "a program reads an API key that you let decide, and decides with it",
        [NotStopped, WithTouch],
        "a decision needs nothing but such a key, which approves nothing that needs a touch",
        &["with_a_passkey_only_its_touch_gives_the_scope_which_covers_no_touch"],
    ),
    (
        "the same program widens what you allowed before",
        [NotStopped, WithTouch],
        "a grant is worth what it was made with",
        &["a_grant_is_worth_what_it_was_made_with"],
    ),
    (
        "the same program enrols a key of its own after yours, or deletes the file of yours",
        [NotStopped, WithTouch],
        "after the first key only a key, or root, changes the keys, and lost keys are still demanded",
        &[
            "the_first_key_is_enrolled_with_a_session_and_every_other_with_a_key",
            "lost_keys_are_still_demanded_until_root_resets_them",
        ],
    ),
    (
        "a decision is forged in the record afterwards",
        [NotStopped, WithTouch],
        "`verify` checks the key's signature from the record alone",
        &["a_changed_record_is_not_proved"],
    ),
    (
        "a copied key signs",
        [NotStopped, WithTouch],
        "the counter of the key went back; only of keys that count, which passkeys that are synchronized do not",
        &["a_counter_that_an_earlier_executor_saw_still_counts"],
    ),
    (
        "a program that runs as you shows you one thing and has you sign another",
        [NotStopped, NotStopped],
        "the key has no display; an executor of another user and a second device would close this",
        &[],
    ),
    (
        "a program that runs as you replaces our program, its files or its configuration",
        [NotStopped, NotStopped],
        "they are yours; run the executor as another user",
        &[],
    ),
];

const BEGIN: &str = "<!-- The table is written by tests/levels.rs. -->\n";
const END: &str = "<!-- End of the table. -->\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository").to_owned()
}

fn table() -> String {
    let words = |outcome: Outcome| match outcome {
        Stopped => "stopped",
        WithTouch => "stopped, where a touch is needed",
        NotStopped => "**not stopped**",
    };
    let mut text = "| attack | `page` | `touch` | why |\n|---|---|---|---|\n".to_owned();
    for (attack, outcomes, why, _) in ROWS {
        let [page, touch] = outcomes.map(words);
        writeln!(text, "| {attack} | {page} | {touch} | {why} |").expect("a string grows");
    }
    text
}

#[test]
fn the_document_has_the_table_of_attacks() {
    let path = root().join("docs/security.md");
    let text = fs::read_to_string(&path).expect("readable");
    let (before, rest) = text.split_once(BEGIN).expect("the table begins");
    let (_, after) = rest.split_once(END).expect("the table ends");
    let expected = format!("{before}{BEGIN}\n{}\n{END}{after}", table());
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, expected).expect("written");
    } else {
        assert!(text == expected, "docs/security.md differs from tests/levels.rs; run this test with UPDATE_EXPECT=1");
    }
}

#[test]
fn every_attack_that_is_stopped_has_a_test_that_exists() {
    let mut tests = BTreeSet::new();
    collect(&root().join("tests"), &mut tests);
    for package in CRATES {
        collect(&root().join(package).join("src"), &mut tests);
    }
    for (attack, outcomes, _, proofs) in ROWS {
        let is_stopped = outcomes.iter().any(|outcome| *outcome != NotStopped);
        assert_eq!(is_stopped, !proofs.is_empty(), "{attack}");
        for proof in proofs {
            assert!(tests.contains(*proof), "{attack}: there is no test `{proof}`");
        }
    }
}

/// Collects the names of the test functions below `folder`.
fn collect(folder: &Path, tests: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, tests);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("readable");
            let lines: Vec<_> = text.lines().map(str::trim).collect();
            let is_test = |line: &str| matches!(line, "#[test]" | "#[tokio::test]");
            for (index, line) in lines.iter().enumerate().filter(|(index, _)| *index > 0) {
                let name = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
                let name = name.and_then(|rest| rest.split_once('(')).map(|(name, _)| name.to_owned());
                tests.extend(name.filter(|_| is_test(lines[index - 1])));
            }
        }
    }
}
