//! Which tables the text of a trigger writes: the body of one in MySQL, a function in PL/pgSQL, the action of a rule.
//!
//! No parser knows these languages whole, so the words of the text are looked at. What is not surely understood counts as
//! writing any table: statements that are put together while they run, procedures, functions that are on no list.

use sqlparser::ast::Ident;
use sqlparser::tokenizer::{Token, Tokenizer, Word};

use super::catalog::{Catalog, WrittenTable};
use super::dialects::{folded, parser_dialect, same};
use super::functions::lists;
use crate::dialect::Dialect;
use crate::schema::TableAccess;
use crate::schema::TableKind;

/// Statements that may write anything, or run what is not in the text.
const UNREADABLE: &[&str] = &[
    "alter", "call", "copy", "create", "drop", "execute", "grant", "import", "load", "prepare", "refresh", "rename",
    "revoke", "truncate",
];
/// Words before a parenthesis that call nothing.
const NO_CALLS: &[&str] = &[
    "all",
    "and",
    "any",
    "array",
    "as",
    "begin",
    "between",
    "by",
    "case",
    "conflict",
    "do",
    "else",
    "elseif",
    "elsif",
    "except",
    "exists",
    "exit",
    "filter",
    "for",
    "from",
    "having",
    "if",
    "in",
    "intersect",
    "interval",
    "is",
    "key",
    "like",
    "limit",
    "loop",
    "not",
    "on",
    "or",
    "over",
    "partition",
    "perform",
    "raise",
    "return",
    "returning",
    "row",
    "select",
    "set",
    "some",
    "then",
    "union",
    "using",
    "values",
    "when",
    "where",
    "while",
    "with",
    "within",
    // Types with a length.
    "bigint",
    "binary",
    "bit",
    "char",
    "character",
    "datetime",
    "dec",
    "decimal",
    "double",
    "float",
    "int",
    "integer",
    "nchar",
    "numeric",
    "nvarchar",
    "smallint",
    "time",
    "timestamp",
    "timestamptz",
    "tinyint",
    "varbinary",
    "varchar",
    "varying",
    "year",
    "enum",
    // Forms with a grammar of their own.
    "cast",
    "coalesce",
    "convert",
    "extract",
    "greatest",
    "least",
    "nullif",
    "position",
    "substring",
    "trim",
    "overlay",
];
/// Between the verb of a change and its table.
const BETWEEN: &[&str] = &["into", "only", "ignore", "low_priority", "high_priority", "delayed", "quick"];

/// The tables that a text writes; `None` if they cannot be told.
pub(super) fn written_tables(catalog: &Catalog<'_>, text: &str) -> Option<Vec<(WrittenTable, TableAccess)>> {
    // Such a comment is code for some servers.
    if catalog.dialect == Dialect::Mysql && (text.contains("/*!") || text.contains("/*M!")) {
        return None;
    }
    let tokens = Tokenizer::new(parser_dialect(catalog.dialect), text).tokenize().ok()?;
    let tokens = tokens.into_iter().filter(|token| !matches!(token, Token::Whitespace(_))).collect();
    let mut body = Body { catalog, tokens, found: Vec::new() };
    for place in 0..body.tokens.len() {
        body.read(place)?;
    }
    Some(body.found)
}

/// Whether a trigger may set a column of the row that is written to something else.
pub(super) fn may_set(catalog: &Catalog<'_>, text: &str, columns: &[String]) -> bool {
    let Ok(tokens) = Tokenizer::new(parser_dialect(catalog.dialect), text).tokenize() else { return true };
    let tokens = tokens.into_iter().filter(|token| !matches!(token, Token::Whitespace(_))).collect();
    let body = Body { catalog, tokens, found: Vec::new() };
    let sets = |place: usize| matches!(body.tokens.get(place), Some(Token::Eq | Token::Assignment));
    (0..body.tokens.len()).any(|place| match body.word(place).as_deref() {
        // Of a column, or of the whole row.
        Some("new") if matches!(body.tokens.get(place + 1), Some(Token::Period)) => {
            let Some(Token::Word(column)) = body.tokens.get(place + 2) else { return true };
            let is_key = columns.iter().any(|key| same(catalog.dialect, key, &body.folded(column)));
            is_key && (sets(place + 3) || body.is_after_into(place))
        }
        Some("new") => sets(place + 1) || body.is_after_into(place),
        Some("return") => {
            catalog.dialect == Dialect::Postgres
                && !matches!(body.word(place + 1).as_deref(), Some("new" | "old" | "null"))
        }
        _ => false,
    })
}

struct Body<'a, 'c> {
    catalog: &'c Catalog<'a>,
    tokens: Vec<Token>,
    found: Vec<(WrittenTable, TableAccess)>,
}

impl Body<'_, '_> {
    /// A word without quotes, in lower case.
    fn word(&self, place: usize) -> Option<String> {
        match self.tokens.get(place) {
            Some(Token::Word(word)) if word.quote_style.is_none() => Some(word.value.to_lowercase()),
            _ => None,
        }
    }

    fn word_before(&self, place: usize) -> Option<String> {
        self.word(place.checked_sub(1)?)
    }

    fn folded(&self, word: &Word) -> String {
        let ident = Ident {
            value: word.value.clone(),
            quote_style: word.quote_style,
            span: sqlparser::tokenizer::Span::empty(),
        };
        folded(self.catalog.dialect, &ident)
    }

    fn is(&self, place: usize, token: &Token) -> bool {
        self.tokens.get(place) == Some(token)
    }

    /// Whether it may be one of the variables after `INTO`, which is not that of a change.
    fn is_after_into(&self, place: usize) -> bool {
        let mut statement = (0..place).rev().take_while(|&place| !self.is(place, &Token::SemiColon));
        statement.any(|place| {
            let is_of_change = self.word_before(place).is_some_and(|word| {
                ["insert", "replace", "merge"].contains(&word.as_str()) || BETWEEN.contains(&word.as_str())
            });
            self.word(place).as_deref() == Some("into") && !is_of_change
        })
    }

    /// Looks at one token; `None` if what it does is not known.
    fn read(&mut self, place: usize) -> Option<()> {
        let Token::Word(word) = &self.tokens[place] else { return Some(()) };
        let name = self.folded(word);
        // A view may call any function.
        let is_table = |kind: &TableKind| matches!(kind, TableKind::Base);
        let named =
            self.catalog.schema.tables.iter().filter(|(table, _)| same(self.catalog.dialect, &table.name, &name));
        if named.clone().any(|(_, table)| !is_table(&table.kind)) {
            return None;
        }
        let is_part = place > 0 && self.is(place - 1, &Token::Period);
        if self.is(place + 1, &Token::LParen) {
            return self.may_call(place, &name, is_part).then_some(());
        }
        if is_part || word.quote_style.is_some() {
            return Some(());
        }
        let word = name.to_lowercase();
        match word.as_str() {
            "insert" => self.add(place + 1, &[TableAccess::Insert]).map(drop),
            "merge" => self.add(place + 1, &[TableAccess::Insert, TableAccess::Update, TableAccess::Delete]).map(drop),
            "replace" if self.catalog.dialect == Dialect::Mysql => {
                self.add(place + 1, &[TableAccess::Insert, TableAccess::Delete]).map(drop)
            }
            "update" => self.update(place),
            "delete" => {
                // Of more than one table, in MySQL.
                if self.word(place + 1).as_deref() != Some("from") {
                    return None;
                }
                let end = self.add(place + 2, &[TableAccess::Delete])?;
                let is_one = !self.is(end, &Token::Comma)
                    && !matches!(
                        self.word(end).as_deref(),
                        Some("using" | "join" | "inner" | "left" | "right" | "cross")
                    );
                (is_one || self.catalog.dialect != Dialect::Mysql).then_some(())
            }
            "do" => (!matches!(
                self.tokens.get(place + 1),
                Some(Token::SingleQuotedString(_) | Token::DollarQuotedString(_))
            ))
            .then_some(()),
            other => (!UNREADABLE.contains(&other)).then_some(()),
        }
    }

    fn update(&mut self, place: usize) -> Option<()> {
        match self.word_before(place).as_deref() {
            // `FOR UPDATE`, `FOR NO KEY UPDATE`: a lock.
            Some("for") => return Some(()),
            Some("key") if self.word_before(place - 1).as_deref() == Some("no") => return Some(()),
            // `ON CONFLICT … DO UPDATE`, `ON DUPLICATE KEY UPDATE`: of the table of the `INSERT`.
            Some("do" | "key") => {
                let (table, _) = self.found.last()?.clone();
                self.found.push((table, TableAccess::Update));
                return Some(());
            }
            _ => {}
        }
        let mut end = self.add(place + 1, &[TableAccess::Update])?;
        // An alias may stand before `SET`, and nothing else.
        if self.word(end).as_deref() == Some("as") {
            end += 1;
        }
        let is_one = [end, end + 1].iter().any(|&place| self.word(place).as_deref() == Some("set"));
        is_one.then_some(())
    }

    /// Adds the table whose name begins at a place or a few words later. Returns the place after it.
    fn add(&mut self, mut place: usize, accesses: &[TableAccess]) -> Option<usize> {
        while self.word(place).is_some_and(|word| BETWEEN.contains(&word.as_str())) {
            place += 1;
        }
        let mut parts = Vec::new();
        loop {
            let Some(Token::Word(word)) = self.tokens.get(place) else { return None };
            parts.push(self.folded(word));
            place += 1;
            if !self.is(place, &Token::Period) {
                break;
            }
            place += 1;
        }
        let name = parts.pop()?;
        let table = WrittenTable { schema: parts.pop(), name };
        self.found.extend(accesses.iter().map(|access| (table.clone(), *access)));
        Some(place)
    }

    /// Whether what stands before a parenthesis is no function, or one that writes nothing.
    fn may_call(&self, place: usize, name: &str, is_part: bool) -> bool {
        // `INSERT INTO name (…)`.
        let start = if is_part { place.saturating_sub(2) } else { place };
        let is_quoted = self.word(place).is_none();
        if self.word_before(start).is_some_and(|word| BETWEEN.contains(&word.as_str()) || word == "insert") {
            return true;
        }
        let lists = lists(self.catalog.dialect);
        let lowered = name.to_lowercase();
        let is_built_in = lists.scalar.iter().any(|names| names.contains(&lowered.as_str()))
            || lists.table.contains(&lowered.as_str())
            || MORE_FUNCTIONS.contains(&lowered.as_str());
        if is_part {
            return is_built_in && self.word(start).as_deref() == Some("pg_catalog");
        }
        !is_quoted
            && (NO_CALLS.contains(&lowered.as_str()) || is_built_in)
            && !self.catalog.schema.functions.contains(&lowered)
    }
}

/// Functions that callers may not use, and that write no table.
const MORE_FUNCTIONS: &[&str] = &[
    "current_setting",
    "last_insert_id",
    "nextval",
    "currval",
    "lastval",
    "pg_notify",
    "txid_current",
    "user",
    "database",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{AccessLists, AccessRules};
    use crate::schema::{Schema, Table, TableKind, TableName};

    /// What a text writes in a database with the view `seen` and the function `helper`, or `?`.
    fn written(dialect: Dialect, text: &str) -> String {
        let view = TableKind::View { definition: None };
        let table = Table { kind: view, comment: None, columns: Vec::new(), estimated_rows: None };
        let name = TableName { schema: "s".to_owned(), name: "seen".to_owned() };
        let functions = ["helper".to_owned(), "lower".to_owned()].into();
        let schema = Schema { tables: [(name, table)].into(), functions, ..Schema::default() };
        let rules = AccessRules::new(&AccessLists::default()).expect("the patterns are valid");
        let catalog = Catalog { dialect, schema: &schema, rules: &rules, hides_anything: false };
        let Some(tables) = written_tables(&catalog, text) else { return "?".to_owned() };
        let shown = |(table, access): &(WrittenTable, TableAccess)| {
            let schema = table.schema.as_ref().map(|schema| format!("{schema}.")).unwrap_or_default();
            format!("{schema}{}.{}", table.name, access.as_str())
        };
        tables.iter().map(shown).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_text_tells_the_tables_that_it_writes() {
        for (dialect, text, expected) in [
            (Dialect::Postgres, "BEGIN NEW.changed := now(); RETURN NEW; END", ""),
            (
                Dialect::Postgres,
                "BEGIN IF (TG_OP = 'DELETE') THEN RETURN OLD; END IF; NEW.a = coalesce(NEW.b, 1); RETURN NEW; END",
                "",
            ),
            (Dialect::Postgres, "BEGIN INSERT INTO Log (a, b) VALUES (NEW.a, now()); RETURN NULL; END", "log.insert"),
            (
                Dialect::Postgres,
                "BEGIN UPDATE ONLY s.\"Sums\" AS x SET n = n + 1 WHERE id = NEW.id; DELETE FROM old WHERE id = OLD.id; RETURN NEW; END",
                "s.Sums.update old.delete",
            ),
            (
                Dialect::Postgres,
                "INSERT INTO sums VALUES (1) ON CONFLICT (id) DO UPDATE SET n = 2",
                "sums.insert sums.update",
            ),
            (
                Dialect::Postgres,
                "SELECT n INTO x FROM a WHERE id = NEW.id FOR UPDATE; MERGE INTO b USING a ON true WHEN MATCHED THEN DELETE",
                "?",
            ),
            (Dialect::Postgres, "SELECT n INTO x FROM a WHERE id = NEW.id FOR UPDATE", ""),
            (Dialect::Postgres, "EXECUTE 'DELETE FROM a'", "?"),
            (Dialect::Postgres, "EXECUTE format('DELETE FROM %I', TG_ARGV[0])", "?"),
            (Dialect::Postgres, "PERFORM helper(NEW.id)", "?"),
            (Dialect::Postgres, "PERFORM s.anything(NEW.id)", "?"),
            (Dialect::Postgres, "PERFORM \"lower\"(NEW.id)", "?"),
            // One of their own takes the name of a built-in one.
            (Dialect::Postgres, "NEW.a := lower(NEW.a)", "?"),
            (Dialect::Postgres, "NEW.a := upper(NEW.a)", ""),
            (Dialect::Postgres, "NEW.a := (SELECT max(n) FROM seen)", "?"),
            (Dialect::Postgres, "TRUNCATE a", "?"),
            (Dialect::Mysql, "SET NEW.a = REPLACE(NEW.a, 'x', INSERT('abc', 1, 1, 'y'))", ""),
            (Dialect::Mysql, "BEGIN DECLARE n INT; SELECT count(*) INTO n FROM a; SET NEW.n = n; END", ""),
            (Dialect::Mysql, "REPLACE INTO `log` (a) VALUES (NEW.a)", "log.insert log.delete"),
            (Dialect::Mysql, "INSERT IGNORE INTO log SET a = 1 ON DUPLICATE KEY UPDATE a = 2", "log.insert log.update"),
            (Dialect::Mysql, "UPDATE a, b SET a.x = b.x", "?"),
            (Dialect::Mysql, "DELETE a FROM a JOIN b ON a.id = b.id", "?"),
            (Dialect::Mysql, "CALL do_it()", "?"),
            (Dialect::Mysql, "SET NEW.a = shop.my_function(1)", "?"),
            (Dialect::Mysql, "SET NEW.a = 1 /*! ; DELETE FROM b */", "?"),
        ] {
            assert_eq!(written(dialect, text), expected, "{dialect}: {text}");
        }
    }

    #[test]
    fn what_a_trigger_sets_of_the_row_itself_is_seen() {
        let schema = Schema::default();
        let rules = AccessRules::new(&AccessLists::default()).expect("the patterns are valid");
        for (dialect, text, expected) in [
            (Dialect::Mysql, "SET NEW.id = 5", true),
            (Dialect::Mysql, "SET NEW.note = OLD.id", false),
            (Dialect::Mysql, "INSERT INTO log VALUES (NEW.id)", false),
            (Dialect::Mysql, "SELECT 1 INTO NEW.id", true),
            (Dialect::Postgres, "NEW.id := 5; RETURN NEW;", true),
            (Dialect::Postgres, "NEW := OLD; RETURN NEW;", true),
            (Dialect::Postgres, "SELECT * INTO NEW FROM other; RETURN NEW;", true),
            (Dialect::Postgres, "RETURN ROW(1, 2);", true),
            (Dialect::Postgres, "NEW.note := NEW.id::text; RETURN NEW;", false),
        ] {
            let catalog = Catalog { dialect, schema: &schema, rules: &rules, hides_anything: false };
            assert_eq!(may_set(&catalog, text, &["id".to_owned()]), expected, "{dialect}: {text}");
        }
    }
}
