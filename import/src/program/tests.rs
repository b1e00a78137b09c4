//! Helps of the common kinds, and what becomes of them.

use serde_json::Value;

use super::*;

/// Imports a program that prints these texts for these arguments.
fn imported(words: &[&str], helps: &[(&str, &str)], options: &ImportOptions) -> Imported {
    let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
    let mut read = |arguments: &[String]| {
        let found = helps.iter().find(|(known, _)| *known == arguments.join(" "));
        found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| "it ended with status 1".to_owned())
    };
    let document = transcript(&words, &mut read).expect("a help");
    assert!(recognizes(&document));
    import(&document, options).expect("an import")
}

fn one(name: &str, help: &str) -> Value {
    let imported = imported(&[name], &[("--help", help)], &ImportOptions::default());
    assert_eq!(imported.subtools.len(), 1);
    Value::Object(imported.subtools[0].definition.clone())
}

#[test]
fn clap_options_choices_and_arguments() {
    let help = "Packs folders into archives

Usage: packer [OPTIONS] <FOLDER> [FILES]...

Arguments:
  <FOLDER>    The folder to pack
  [FILES]...  Only these files

Options:
  -o, --output <FILE>    Where to write
  -l, --level <N>        How hard to try [default: 6]
      --format <FORMAT>  The format [possible values: zip, tar]
      --exclude <GLOB>   What to leave out; may be repeated
  -q, --quiet            Print nothing
      --color <WHEN>     Coloring
  -h, --help             Print help
";
    assert_eq!(
        one("packer", help),
        json!({
            "description": "Packs folders into archives. Runs `packer`.",
            "input": {
                "type": "object",
                "properties": {
                    "output": {"type": "string", "description": "Where to write."},
                    "level": {"type": "integer", "description": "How hard to try [default: 6]."},
                    "format": {"type": "string", "enum": ["zip", "tar"], "description": "The format."},
                    "exclude": {"type": "array", "items": {"type": "string"}, "description": "What to leave out; may be repeated."},
                    "quiet": {"type": "boolean", "description": "Print nothing."},
                    "folder": {"type": "string", "description": "The folder to pack."},
                    "files": {"type": "array", "items": {"type": "string"}, "description": "Only these files."}
                },
                "required": ["folder"],
                "additionalProperties": false
            },
            "run": {"process": {"argv": [
                "packer",
                {"if": "output is defined", "args": ["--output={{ output }}"]},
                {"if": "level is defined", "args": ["--level={{ level }}"]},
                {"if": "format is defined", "args": ["--format={{ format }}"]},
                {"each": "{{ exclude }}", "prefix": "--exclude="},
                {"if": "quiet", "args": ["--quiet"]},
                "--",
                "{{ folder }}",
                "{{ files }}"
            ]}}
        })
    );
}

#[test]
fn argparse_repeats_and_choices() {
    let help = "usage: tool.py [-h] [--mode {fast,slow}] [-n N] FILE [FILE ...]

Counts things.

positional arguments:
  FILE                the files

options:
  -h, --help          show this help message and exit
  --mode {fast,slow}  how
  -n N                how many
";
    let definition = one("tool.py", help);
    let argv = &definition["run"]["process"]["argv"];
    let expected = json!([
        "tool.py",
        {"if": "mode is defined", "args": ["--mode={{ mode }}"]},
        {"if": "n is defined", "args": ["-n", "{{ n }}"]},
        "--",
        "{{ file }}"
    ]);
    assert_eq!(*argv, expected);
    assert_eq!(definition["input"]["properties"]["mode"]["enum"], json!(["fast", "slow"]));
    assert_eq!(
        definition["input"]["properties"]["file"],
        json!({"type": "array", "items": {"type": "string"}, "description": "The files."})
    );
    assert_eq!(definition["input"]["required"], json!(["file"]));
}

const HUB: &str = "Work with issues from the command line.

USAGE
  hub <command> <subcommand> [flags]

CORE COMMANDS
  issue:         Manage issues
  browse:        Open things in the browser
  ssh-key:       Manage keys

FLAGS
  --help      Show help for command
";
const ISSUE: &str = "Manage issues.

USAGE
  hub issue <command> [flags]

AVAILABLE COMMANDS
  create:        Create a new issue
  odd:           Does something

INHERITED FLAGS
  --help   Show help for command
";
const CREATE: &str = "Create an issue.

USAGE
  hub issue create [flags]

FLAGS
  -t, --title string     Supply a title
  -l, --label name       Add labels by name
      --state string     Filter: {open|closed|all}
  -w, --web              Open the browser

INHERITED FLAGS
  -R, --repo [HOST/]OWNER/REPO   Select another repository
";

#[test]
fn commands_are_followed_and_what_waits_for_a_human_is_left_out() {
    let helps = [("--help", HUB), ("issue --help", ISSUE), ("issue create --help", CREATE)];
    let hub = imported(&["hub"], &helps, &ImportOptions::default());
    let names: Vec<_> = hub.subtools.iter().map(|it| (it.name.as_str(), it.what.as_str())).collect();
    assert_eq!(names, [("hub_issue_create", "hub issue create")]);
    let left_out: Vec<_> = hub.left_out.iter().map(|it| format!("{}: {}", it.what, it.reason)).collect();
    assert_eq!(
        left_out,
        [
            "hub issue odd: its help could not be read: it ended with status 1",
            "hub browse: waits for a human at a terminal",
            "hub ssh-key: its help could not be read: it ended with status 1"
        ]
    );
    assert_eq!(hub.found, 4);
    let definition = &hub.subtools[0].definition;
    let names: Vec<_> = definition["input"]["properties"].as_object().expect("an object").keys().cloned().collect();
    assert_eq!(names, ["title", "label", "state", "repo"]);
    assert_eq!(definition["input"]["properties"]["state"]["enum"], json!(["open", "closed", "all"]));
    // Nothing says that it is harmless, so it asks.
    assert!(!definition.contains_key("annotations") && !definition.contains_key("confirm"));
    let only = imported(&["/opt/hub", "issue", "create"], &helps, &ImportOptions::default());
    assert_eq!(only.subtools[0].name, "hub_issue_create");
    assert_eq!(only.subtools[0].definition["run"]["process"]["argv"][0], "/opt/hub");
}

#[test]
fn git_has_opposites_paths_after_dashes_and_forms() {
    let log = "usage: git log [<options>] [<revision-range>] [[--] <path>...]
   or: git show [<options>] <object>...

    -q, --[no-]quiet      suppress diff output
    --[no-]decorate[=...] decorate options
    -L <range:file>       trace lines
    --checkout            opposite of --no-checkout
";
    let remote = "usage: git remote [-v | --verbose]
   or: git remote add [-t <branch>] <name> <url>
   or: git remote prune [-n | --dry-run] <name>

    -v, --[no-]verbose    be verbose
";
    // What only the usage names is never started: `git bisect start -h` would start a bisection.
    let helps = [("log -h", log), ("remote -h", remote), ("remote add -h", "usage: git remote add --started")];
    let log = imported(&["git", "log"], &helps, &ImportOptions::default());
    assert_eq!(
        log.subtools[0].definition["run"]["process"]["argv"],
        json!([
            "git", "log",
            {"if": "quiet", "args": ["--quiet"]},
            {"if": "quiet is defined and not quiet", "args": ["--no-quiet"]},
            {"if": "decorate is defined and decorate == true", "args": ["--decorate"]},
            {"if": "decorate is string", "args": ["--decorate={{ decorate }}"]},
            {"if": "L is defined", "args": ["-L", "{{ L }}"]},
            "{{ revision_range }}", "--", "{{ path }}"
        ])
    );
    let remote = imported(&["git", "remote"], &helps, &ImportOptions::default());
    let argv = |index: usize| &remote.subtools[index].definition["run"]["process"]["argv"];
    assert_eq!(
        *argv(0),
        json!(["git", "remote", "add", {"if": "t is defined", "args": ["-t", "{{ t }}"]}, "{{ name }}", "{{ url }}"])
    );
    assert_eq!(*argv(1), json!(["git", "remote", "prune", {"if": "dry_run", "args": ["--dry-run"]}, "{{ name }}"]));
}

#[test]
fn other_forms_of_arguments_stay_together() {
    let help = "Usage: join A B\n   or: join --all C D\n";
    let definition = one("join", help);
    assert_eq!(
        definition["input"]["properties"]["arguments"],
        json!({"type": "array", "items": {"type": "string"},
            "description": "Positional arguments, in the order of the usage: `join A B` or `join --all C D`."})
    );
}

#[test]
fn what_is_no_help_is_an_error() {
    let mut read = |_: &[String]| Ok("Segmentation fault".to_owned());
    let error = transcript(&["odd".to_owned()], &mut read).expect_err("no help");
    assert_eq!(
        error.message,
        "the help of `odd` shows no usage, options or commands; it begins with `Segmentation fault`"
    );
    let mut read = |_: &[String]| Err("it is not there".to_owned());
    let error = transcript(&["odd".to_owned()], &mut read).expect_err("no help");
    assert_eq!(error.message, "the help of `odd` could not be read: it is not there");
}
