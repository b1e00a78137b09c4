//! What a statement begins with. The guard knows what a statement means; this only keeps statements apart that are run
//! in different ways.

use super::error::DatabaseError;

/// Returns the first word of a statement in lower case, after comments and opening parentheses.
///
/// What MySQL executes inside a comment (`/*! … */`) is no word: a statement that begins so has none.
pub(crate) fn first_word(sql: &str) -> String {
    let mut rest = sql;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '(');
        if let Some(comment) = rest.strip_prefix("--").or_else(|| rest.strip_prefix('#')) {
            rest = comment.split_once('\n').map_or("", |(_, after)| after);
        } else if let Some(comment) = rest.strip_prefix("/*") {
            if comment.starts_with(['!', 'M']) {
                return String::new();
            }
            rest = after_comment(comment);
        } else {
            break;
        }
    }
    rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect::<String>().to_ascii_lowercase()
}

/// Skips a comment that has begun, with those inside it, as PostgreSQL does.
fn after_comment(mut rest: &str) -> &str {
    let mut depth = 1;
    while depth > 0 {
        let (Some(end), start) = (rest.find("*/"), rest.find("/*")) else { return "" };
        match start {
            Some(start) if start < end => {
                depth += 1;
                rest = &rest[start + 2..];
            }
            _ => {
                depth -= 1;
                rest = &rest[end + 2..];
            }
        }
    }
    rest
}

/// Refuses what is not a change of rows, before it is run in a transaction that may write.
pub(crate) fn check_change(sql: &str) -> Result<(), DatabaseError> {
    match first_word(sql).as_str() {
        "insert" | "update" | "delete" | "replace" | "merge" | "with" => Ok(()),
        word => Err(DatabaseError::Denied {
            message: format!(
                "`{word}` does not change rows, only `INSERT`, `UPDATE`, `DELETE`, `REPLACE` and `MERGE` do"
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_stands_behind_comments_and_parentheses() {
        let words = [
            "SELECT 1",
            " /* a /* b */ c */ (\n(values(1)))",
            "-- x\nwith a as (select 1)",
            "/*!50000 drop*/",
            "--",
            "/* x",
        ];
        assert_eq!(words.map(first_word), ["select", "values", "with", "", "", ""]);
    }

    #[test]
    fn only_changes_of_rows_are_writes() {
        assert_eq!(check_change("UPDATE t SET a = 1"), Ok(()));
        for sql in ["DROP TABLE t", "COMMIT", "/*! COMMIT */", "CALL p()", "SELECT f()", ""] {
            assert!(check_change(sql).is_err(), "{sql}");
        }
    }
}
