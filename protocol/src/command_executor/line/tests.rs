//! Tests of the line parser, some of them against bash.

use std::process::Command as Process;

use proptest::prelude::*;

use super::*;

fn words(text: &str) -> Vec<Vec<String>> {
    let line = parse(text).unwrap_or_else(|refusal| panic!("{text:?}: {refusal}"));
    line.commands().map(|command| command.words.clone()).collect()
}

fn refused(text: &str) -> String {
    match parse(text) {
        Err(Refusal::Shell { construct, .. }) => construct,
        other => panic!("{text:?} is not refused as a shell feature: {other:?}"),
    }
}

#[test]
fn words_are_what_a_shell_would_pass() {
    for (text, expected) in [
        (r#"a 'b c' "d e" f\ g"#, &["a", "b c", "d e", "f g"][..]),
        (r#"run x --input='{"q": "年度报告"}'"#, &["run", "x", r#"--input={"q": "年度报告"}"#]),
        (r#""it's \"so\" \n $ $." '' """#, &[r#"it's "so" \n $ $."#, "", ""]),
        (r"$'tab\tnew\nquote\' \x41\u5e74\101\xe5\xb9\xb4 \z'", &["tab\tnew\nquote' A年A年 \\z"]),
        ("a\\\nb c # d", &["ab", "c"]),
        ("--input={} a#b key:=1 HEAD~2 a=b c!", &["--input={}", "a#b", "key:=1", "HEAD~2", "a=b", "c!"]),
        ("'a'=b", &["a=b"]),
    ] {
        assert_eq!(words(text), [expected], "{text}");
    }
}

#[test]
fn operators_join_commands_into_pipelines() {
    let line = parse("a; b 'x;y' && c | d 2>&1 || e >/dev/null 2>&1\n\n# f\ng").expect("the line was refused");
    let shape: Vec<_> = line
        .pipelines
        .iter()
        .map(|pipeline| (pipeline.condition, pipeline.commands.iter().map(|command| command.words.join(" ")).collect()))
        .collect();
    let pipeline =
        |condition, commands: &[&str]| (condition, commands.iter().map(ToString::to_string).collect::<Vec<_>>());
    assert_eq!(
        shape,
        [
            pipeline(PipelineCondition::Always, &["a"]),
            pipeline(PipelineCondition::Always, &["b x;y"]),
            pipeline(PipelineCondition::Success, &["c", "d"]),
            pipeline(PipelineCondition::Failure, &["e"]),
            pipeline(PipelineCondition::Always, &["g"]),
        ]
    );
    let targets: Vec<_> = line.commands().map(|command| (command.stdout, command.stderr)).collect();
    assert_eq!(targets[3], (StreamTarget::Own, StreamTarget::Other));
    assert_eq!(targets[4], (StreamTarget::Null, StreamTarget::Null));
    assert_eq!(words("a |\n\n b &&\n c"), [["a"], ["b"], ["c"]]);
}

#[test]
fn here_documents_are_the_standard_input_of_their_commands() {
    let text =
        "a --input=- <<'EOF' | b <<-\\X && c <<< 'd e' && f\n{\"it's\": \"$HOME\"}\n\nEOF\n\tx\n\tX\ng <<E\nh\\$i `\nE";
    assert_eq!(refused(text), "`");
    let line = parse(&text.replace(" `", " $ \\\\n \"")).expect("the line was refused");
    let texts: Vec<_> = line.commands().map(|command| line.stdin_of(command)).collect();
    assert_eq!(texts, [Some("{\"it's\": \"$HOME\"}\n\n"), Some("x\n"), Some("d e\n"), None, Some("h$i $ \\n \"\n")]);
    for malformed in ["a <<EOF\nb", "a <<EOF", "a <<EOF\nb\n EOF\n"] {
        assert!(matches!(parse(malformed), Err(Refusal::Malformed { .. })), "{malformed:?}");
    }
    assert_eq!(refused("a <<E\n$(id)\nE"), "$(");
    assert_eq!(refused("a <<E\n$id7 x\nE"), "$id7");
    assert_eq!(refused("a <<E\nx\\\nE\nE"), "\\ at the end of a line");
}

#[test]
fn shell_features_are_refused_by_name() {
    for (text, construct) in [
        ("a $(id)", "$("),
        ("a \"$(id)\"", "$("),
        ("a `id`", "`"),
        ("a \"`id`\"", "`"),
        ("a $HOME", "$HOME"),
        ("a \"${HOME}\"", "${"),
        ("a $\\\nHOME", "$"),
        ("a \"$\\\nHOME\"", "$"),
        ("a $?", "$?"),
        ("a &", "&"),
        ("a & b", "&"),
        ("a > b", "> b"),
        ("a >> 'b c'", ">> b c"),
        ("a 2> b", "> b"),
        ("a &> b", "&> b"),
        ("a >| b", ">|"),
        ("a < b", "<"),
        ("a <(b)", "<("),
        ("a 3>&1", "3>"),
        ("a >&3", ">&3"),
        ("(a)", "("),
        ("a() { b; }", "("),
        ("a *.json", "*"),
        ("a b?", "?"),
        ("a [b]", "["),
        ("a ~/b", "~"),
        ("a b=~/c", "~"),
        ("a b=\\\n~/c", "~"),
        ("a {b,c}", "{"),
        ("a {\"b\":1,\"c\":2}", "{"),
        ("X=1 a", "X="),
        ("if a; then b; fi", "if"),
        ("! a", "!"),
        ("time a", "time"),
        ("a ;; b", ";;"),
        ("a |& b", "|&"),
        ("a $'\\\u{1}'", "\\\u{1}"),
    ] {
        assert_eq!(refused(text), construct, "{text}");
    }
    for malformed in [
        "a '",
        "a \"b",
        "a | ",
        "a &&",
        "; a",
        "a && ; b",
        "| a",
        "a \\",
        "> /dev/null",
        "a <<<2>&1",
        "a <<<# b",
        "a >",
        "a $'\\xff'",
        "\0",
    ] {
        assert!(matches!(parse(malformed), Err(Refusal::Malformed { .. })), "{malformed:?}");
    }
    assert_eq!(parse(" \n# nothing\n"), Ok(CommandLine::default()));
}

/// Runs `text` in bash, where no program is in `PATH`; returns what `printf` prints. Fails if the line
/// creates a file.
fn bash(text: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("failed to create a temporary folder");
    let output = Process::new("bash")
        .args(["--norc", "--noprofile", "-c", &format!("PATH=/nowhere\n{text}")])
        .env_clear()
        .env("LC_ALL", "C.UTF-8")
        .current_dir(folder.path())
        .output()
        .expect("failed to run bash");
    let files = std::fs::read_dir(folder.path()).expect("failed to read the folder");
    assert_eq!(files.count(), 0, "{text:?} created a file");
    output.stdout
}

/// The output that we expect of a line of `printf '%s\0'` commands; `None` for other lines.
fn printed(line: &CommandLine) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    let mut succeeded = true;
    for pipeline in &line.pipelines {
        let words: Vec<_> = pipeline.commands.iter().map(|command| command.words.as_slice()).collect();
        if !words.iter().all(|words| matches!(words, [program, format, ..] if program == "printf" && format == "%s\\0"))
        {
            return None;
        }
        let is_executed = match pipeline.condition {
            PipelineCondition::Always => true,
            PipelineCondition::Success => succeeded,
            PipelineCondition::Failure => !succeeded,
        };
        let last = pipeline.commands.last()?;
        if is_executed && last.stdout == StreamTarget::Own {
            let words = &last.words[2..];
            // Without arguments, `printf` uses the format once.
            let arguments = if words.is_empty() { &[String::new()][..] } else { words };
            all.extend(arguments.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()));
        }
        succeeded |= is_executed;
    }
    Some(all)
}

/// Pieces of command lines: plain text, quotes and operators, and shell features.
fn piece() -> impl Strategy<Value = String> {
    let fixed = prop::sample::select(
        [
            "a",
            "b c",
            "x=1",
            " ",
            "  ",
            "\t",
            "\n",
            "'",
            "\"",
            "\\",
            "$",
            "`",
            "~",
            "*",
            "?",
            "[",
            "]",
            "{",
            "}",
            "{}",
            "#",
            "=",
            ":",
            "&",
            "|",
            ";",
            "<",
            ">",
            "(",
            ")",
            "!",
            "-",
            "%",
            "^",
            "@",
            ",",
            "年",
            "é",
            "\r",
            "$'",
            "\\n",
            "\\x41",
            "\\u5e74",
            "\\101",
            "\\'",
            "\\\"",
            "\\$",
            "\\\n",
            "2>&1",
            ">/dev/null",
            "2>/dev/null",
            "&&",
            "||",
            "<<<",
            "<<'E'\n",
            "<<E\n",
            "\nE\n",
            "' '",
            "\"$\"",
            "$.",
            "''",
            "\"\"",
            "if",
            "; printf '%s\\0' ",
            " && printf '%s\\0' ",
            " | printf '%s\\0' ",
            " || printf '%s\\0' ",
            "$HOME",
            "${x}",
            "$((1+1))",
            "$(echo x)",
            "{a,b}",
            "~root",
            "=~",
            "[a]",
            "\\ ",
            "1",
            "2",
        ]
        .map(str::to_owned)
        .to_vec(),
    );
    prop_oneof![
        4 => fixed,
        2 => prop::sample::select([" ", "; printf '%s\\0' ", " && printf '%s\\0' ", " | printf '%s\\0' ", "\nprintf '%s\\0' ", "\nE\nprintf '%s\\0' ", " <<'E'\n"].map(str::to_owned).to_vec()),
        2 => "[a-zA-Z0-9_./:=,+-]{1,6}",
        1 => "'[^'\\x00\\n]{0,6}'",
        1 => "\"[^\"\\\\$`!\\x00\\n]{0,6}\"",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_accepted_line_means_the_same_to_bash(pieces in prop::collection::vec(piece(), 1..12)) {
        let text = format!("printf '%s\\0' {}", pieces.concat());
        if let Ok(line) = parse(&text)
            && let Some(expected) = printed(&line)
        {
            let found = bash(&text);
            prop_assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(&expected), "{:?}", text);
        }
    }

    #[test]
    fn no_line_makes_the_parser_panic(text in any::<String>(), pieces in prop::collection::vec(piece(), 0..40)) {
        drop(parse(&text));
        drop(parse(&pieces.concat()));
        drop(parse(&format!("{text}{}", pieces.concat())));
    }
}
