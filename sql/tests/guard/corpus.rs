//! The statements of the data files beside the tests.

use sql::dialect::Dialect;

/// One line of a data file: a statement and what it is about.
pub(crate) struct Line {
    pub(crate) sql: String,
    pub(crate) about: &'static str,
}

/// Reads a data file. In a statement `⏎` stands for a line break and `⇥` for a tab.
pub(crate) fn lines(text: &'static str) -> Vec<Line> {
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with("# "));
    lines
        .map(|line| {
            let (sql, about) = line.rsplit_once(" ¦ ").unwrap_or((line, ""));
            Line { sql: sql.replace('⏎', "\n").replace('⇥', "\t"), about }
        })
        .collect()
}

pub(crate) fn hostile(dialect: Dialect) -> Vec<Line> {
    lines(match dialect {
        Dialect::Sqlite => include_str!("../hostile/sqlite.sql"),
        Dialect::Postgres => include_str!("../hostile/postgres.sql"),
        Dialect::Mysql => include_str!("../hostile/mysql.sql"),
    })
}

pub(crate) fn harmless(dialect: Dialect) -> Vec<Line> {
    lines(match dialect {
        Dialect::Sqlite => include_str!("../harmless/sqlite.sql"),
        Dialect::Postgres => include_str!("../harmless/postgres.sql"),
        Dialect::Mysql => include_str!("../harmless/mysql.sql"),
    })
}

pub(crate) fn hidden(dialect: Dialect) -> Vec<Line> {
    lines(match dialect {
        Dialect::Sqlite => include_str!("../hidden/sqlite.sql"),
        Dialect::Postgres => include_str!("../hidden/postgres.sql"),
        Dialect::Mysql => include_str!("../hidden/mysql.sql"),
    })
}
