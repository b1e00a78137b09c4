//! Of which tables the server shows the triggers: those for which the user has the right `TRIGGER`.

use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;

/// Where the user has the right.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TriggerRights {
    granted: Vec<GrantPlace>,
    revoked: Vec<GrantPlace>,
}

/// What a right is granted on; `None` stands for all databases, or all tables of one.
#[derive(Debug, PartialEq, Eq)]
struct GrantPlace {
    database: Option<String>,
    table: Option<String>,
}

impl TriggerRights {
    /// Asks the server for the rights of the user with its active roles. What it does not say, the user does not have.
    pub(super) async fn read(conn: &mut Conn) -> Self {
        // MySQL 5.7 has no roles, and MariaDB counts the active one by itself.
        let roles = conn.query_first::<Option<String>, _>("SELECT CURRENT_ROLE()").await.ok().flatten().flatten();
        let roles = roles.filter(|roles| roles.starts_with('`'));
        let mut lines = Vec::new();
        if let Some(roles) = roles {
            lines = conn.query(format!("SHOW GRANTS FOR CURRENT_USER() USING {roles}")).await.unwrap_or_default();
        }
        if lines.is_empty() {
            lines = conn.query("SHOW GRANTS").await.unwrap_or_default();
        }
        Self::of(&lines)
    }

    fn of(lines: &[String]) -> Self {
        let mut rights = Self::default();
        for line in lines {
            let (list, places) = match line.strip_prefix("GRANT ") {
                Some(rest) => (rest, &mut rights.granted),
                None => (line.strip_prefix("REVOKE ").unwrap_or_default(), &mut rights.revoked),
            };
            // The names of columns are in parentheses, and a role has no `ON`.
            let Some((names, rest)) = list.split_once(" ON ") else { continue };
            let is_named = names.split(',').any(|name| matches!(name.trim(), "TRIGGER" | "ALL PRIVILEGES" | "ALL"));
            if is_named && let Some(place) = GrantPlace::of(rest) {
                places.push(place);
            }
        }
        rights
    }

    pub(super) fn has(&self, database: &str, table: &str) -> bool {
        let covers = |place: &GrantPlace| place.covers(database, table);
        self.granted.iter().any(covers) && !self.revoked.iter().any(covers)
    }
}

impl GrantPlace {
    /// Reads `*.*`, `` `database`.* `` or `` `database`.`table` ``; `None` for routines and the like.
    fn of(text: &str) -> Option<Self> {
        let (database, rest) = name(text)?;
        let (table, _) = name(rest.strip_prefix('.')?)?;
        Some(Self { database, table })
    }

    fn covers(&self, database: &str, table: &str) -> bool {
        let has_table = self.table.as_ref().is_none_or(|own| own.eq_ignore_ascii_case(table));
        has_table && self.database.as_ref().is_none_or(|pattern| matches_like(pattern, database))
    }
}

/// Reads a name in backticks, or `*`, and returns what follows.
fn name(text: &str) -> Option<(Option<String>, &str)> {
    if let Some(rest) = text.strip_prefix('*') {
        return Some((None, rest));
    }
    let mut rest = text.strip_prefix('`')?;
    let mut name = String::new();
    loop {
        let (part, after) = rest.split_once('`')?;
        name.push_str(part);
        let Some(further) = after.strip_prefix('`') else { return Some((Some(name), after)) };
        name.push('`');
        rest = further;
    }
}

/// Whether `text` is what the server's pattern describes: `%` is any text, `_` any character, `\` before one the character.
fn matches_like(pattern: &str, text: &str) -> bool {
    let mut signs = pattern.chars();
    let Some(sign) = signs.next() else { return text.is_empty() };
    let mut rest = text.chars();
    match sign {
        '%' => (0..=text.len()).filter_map(|at| text.get(at..)).any(|rest| matches_like(signs.as_str(), rest)),
        '_' => rest.next().is_some() && matches_like(signs.as_str(), rest.as_str()),
        sign => {
            let wanted = if sign == '\\' { signs.next().unwrap_or(sign) } else { sign };
            let is_same = rest.next().is_some_and(|found| found.to_lowercase().eq(wanted.to_lowercase()));
            is_same && matches_like(signs.as_str(), rest.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(lines: &[&str]) -> TriggerRights {
        TriggerRights::of(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_right_counts_where_it_is_granted() {
        let usage = "GRANT USAGE ON *.* TO `shop`@`%` IDENTIFIED BY PASSWORD '*0'";
        let cases: [(&[&str], bool); 13] = [
            (&[usage], false),
            (&[usage, "GRANT ALL PRIVILEGES ON `shop`.* TO `shop`@`%`"], true),
            (&["GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` WITH GRANT OPTION"], true),
            (&["GRANT SELECT, INSERT, TRIGGER ON `shop`.* TO `a`@`%`"], true),
            (&["GRANT SELECT, INSERT, UPDATE, DELETE ON `shop`.* TO `a`@`%`"], false),
            (&["GRANT TRIGGER ON `shop`.`orders` TO `a`@`%`"], true),
            (&["GRANT TRIGGER ON `shop`.`other` TO `a`@`%`"], false),
            (&["GRANT TRIGGER ON `sh%`.* TO `a`@`%`"], true),
            (&["GRANT TRIGGER ON `s_op`.* TO `a`@`%`"], true),
            (&[r"GRANT TRIGGER ON `s\_op`.* TO `a`@`%`"], false),
            (&["GRANT `TRIGGER`@`%` TO `a`@`%`"], false),
            (
                &[
                    "GRANT EXECUTE ON PROCEDURE `shop`.`p` TO `a`@`%`",
                    "GRANT SELECT (`TRIGGER`) ON `shop`.`orders` TO `a`@`%`",
                ],
                false,
            ),
            (&["GRANT ALL PRIVILEGES ON *.* TO `a`@`%`", "REVOKE TRIGGER ON `shop`.* FROM `a`@`%`"], false),
        ];
        for (lines, expected) in cases {
            assert_eq!(rights(lines).has("shop", "orders"), expected, "{lines:?}");
        }
        assert!(rights(&["GRANT TRIGGER ON `a``b`.* TO `a`@`%`"]).has("A`b", "t"));
    }
}
