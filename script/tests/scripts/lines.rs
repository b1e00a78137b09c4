//! Errors say where in the script they come from.

use script::FailureKind;

use super::host::{play, start};

fn failure(source: &str) -> script::Failure {
    play(start(source)).failed().clone()
}

#[test]
fn a_source_that_does_not_parse_has_a_line_and_a_column() {
    let failed = failure("const a = 1;\nconst b = 2 2;\n");
    assert_eq!((failed.kind, failed.line), (FailureKind::Syntax, Some(2)), "{failed:?}");
    let failed = failure("const a = = 1;");
    assert_eq!((failed.kind, failed.line, failed.column), (FailureKind::Syntax, Some(1), Some(11)), "{failed:?}");
    assert_eq!(failed.name.as_deref(), Some("SyntaxError"));
}

#[test]
fn what_is_thrown_has_the_line_and_the_stack() {
    let failed = failure("function inner() {\n  throw new RangeError('no')\n}\n\ninner();");
    assert_eq!((failed.kind, failed.line, failed.name.as_deref()), (FailureKind::Thrown, Some(2), Some("RangeError")));
    assert_eq!(failed.stack.len(), 2, "{failed:?}");
    assert!(failed.stack[0].starts_with("inner (script.js:2:"), "{failed:?}");
    let failed = failure("await echo({});\n\nnull.x");
    assert_eq!((failed.line, failed.name.as_deref()), (Some(3), Some("TypeError")), "{failed:?}");
}

#[test]
fn a_failed_call_has_the_line_that_made_it() {
    let failed = failure("await echo({});\n\nconst wanted = await fail({ code: 'gone' });\n");
    assert_eq!((failed.kind, failed.line, failed.seq), (FailureKind::Call, Some(3), Some(2)), "{failed:?}");
    assert_eq!(failed.name.as_deref(), Some("SubtoolError"));
    let error = failed.error.expect("the error of the call");
    assert_eq!(
        (error.code.as_str(), error.message.as_str(), error.hint.as_deref()),
        ("gone", "it failed", Some("try again"))
    );
    assert_eq!(error.details.expect("details").as_text(), r#"{"input":{"code":"gone"}}"#);
}

#[test]
fn a_name_that_does_not_exist_has_its_line_and_a_hint() {
    let mut misspelt = start("const a = 1;\nawait shop_serch({ a });");
    misspelt.tools.insert("shop_search".to_owned(), "shop_search".to_owned());
    let failed = play(misspelt).failed().clone();
    assert_eq!(
        (failed.kind, failed.line, failed.name.as_deref()),
        (FailureKind::Thrown, Some(2), Some("ReferenceError"))
    );
    assert!(
        failed
            .hint
            .as_deref()
            .is_some_and(|hint| hint.contains("`shop_serch`") && hint.contains("did you mean `shop_search`?")),
        "{failed:?}"
    );
}

#[test]
fn calls_have_the_lines_of_the_script() {
    let played = play(start(
        "const all = [1, 2].map((n) =>\n  echo({ n }));\nawait Promise.all(all);\nasync function later() {\n  await sleep(5);\n  return await tools['a-b']({});\n}\nreturn later();",
    ));
    let lines: Vec<_> = played.calls().iter().map(|call| call.line).collect();
    assert_eq!(lines, [Some(2), Some(2), Some(5), Some(6)], "{played:?}");
    assert_eq!(played.calls()[3].name.as_deref(), Some("a-b"));
}

#[test]
fn an_endless_loop_has_its_line() {
    let mut endless = start("let n = 0;\nconst spin = () => {\n  while (true) n += 1;\n};\nspin();");
    endless.limits.compute_ms = 50;
    let failed = play(endless).failed().clone();
    assert_eq!(failed.kind, FailureKind::Limit);
    assert!(failed.line.is_some_and(|line| (2..=3).contains(&line)), "{failed:?}");
}
