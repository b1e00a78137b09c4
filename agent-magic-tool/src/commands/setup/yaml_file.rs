//! Edits our entry below a key of a client's YAML file, between two marker lines. Everything else in the file stays
//! unchanged: the file is never parsed and written again, since that would lose its comments.

use super::section::SectionMarks;

/// The indentation of an entry if the file has none to follow.
const INDENT: &str = "  ";

/// Returns `file` with `entry` below the key `key`; the error says what the user has to do by hand.
pub(super) fn with(file: &str, key: &str, entry: &[String]) -> Result<String, String> {
    let others = SectionMarks::Hash.without(file);
    let name = entry.first().map(String::as_str).unwrap_or_default();
    let by_hand = || format!("add this below `{key}:`\n{}", indented(entry, INDENT));
    let mut at = 0;
    for line in others.split_inclusive('\n') {
        at += line.len();
        let Some(rest) = line.strip_prefix(key).and_then(|rest| rest.trim_start().strip_prefix(':')) else { continue };
        let rest = rest.trim();
        if !rest.is_empty() && !rest.starts_with('#') || !line.ends_with('\n') {
            return Err(by_hand());
        }
        let inner = others[at..].lines().find(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
        let inner = inner.unwrap_or_default();
        let indent = &inner[..inner.len() - inner.trim_start().len()];
        let indent = if indent.is_empty() { INDENT } else { indent };
        if indent.contains('\t') || others.lines().any(|line| line.trim() == name) {
            return Err(by_hand());
        }
        let section = SectionMarks::Hash.section(&format!("{}\n", indented(entry, indent)));
        return Ok(format!("{}{section}{}", &others[..at], &others[at..]));
    }
    if others.trim_start().starts_with('{') {
        return Err(by_hand());
    }
    Ok(SectionMarks::Hash.with(&others, &format!("{key}:\n{}\n", indented(entry, INDENT))))
}

/// Returns `file` without our entry.
pub(super) fn without(file: &str) -> String {
    SectionMarks::Hash.without(file)
}

fn indented(entry: &[String], indent: &str) -> String {
    entry.iter().map(|line| format!("{indent}{line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Vec<String> {
        ["ours:", "  cmd: \"x\""].map(str::to_owned).to_vec()
    }

    #[test]
    fn an_entry_is_added_and_removed_and_everything_else_stays() {
        for (file, expected) in [
            ("", "# agent-magic-tool: begin\nextensions:\n  ours:\n    cmd: \"x\"\n# agent-magic-tool: end\n"),
            (
                "a: 1 # mine\nextensions: # these\n    # first\n    dev:\n        enabled: true\nb: 2\n",
                "a: 1 # mine\nextensions: # these\n# agent-magic-tool: begin\n    ours:\n      cmd: \"x\"\n# agent-magic-tool: end\n    # first\n    dev:\n        enabled: true\nb: 2\n",
            ),
            (
                "a: 1",
                "a: 1\n\n# agent-magic-tool: begin\nextensions:\n  ours:\n    cmd: \"x\"\n# agent-magic-tool: end\n",
            ),
        ] {
            let once = with(file, "extensions", &entry()).expect("it can be edited");
            assert_eq!(once, expected);
            assert_eq!(with(&once, "extensions", &entry()).expect("again"), once);
            assert_eq!(without(&once).trim_end(), file.trim_end());
        }
    }

    #[test]
    fn what_cannot_be_edited_by_lines_is_left_to_the_user() {
        for file in
            ["extensions: {}\n", "{extensions: {}}", "extensions:\n  ours:\n    cmd: y\n", "extensions: {a: {b: 1}}\n"]
        {
            let by_hand = with(file, "extensions", &entry()).expect_err("by hand");
            assert!(by_hand.contains("below `extensions:`\n  ours:\n"), "{by_hand}");
        }
    }
}
