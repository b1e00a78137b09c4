//! Every expression: allowed kinds by name, columns looked up, the rest refused.

use sqlparser::ast::{
    AccessExpr, Array, BinaryOperator, CaseWhen, CastKind, CeilFloorKind, DateTimeField, Expr, Ident, Interval,
    MemberOf, ObjectName, ObjectNamePart, Subscript, TypedString, UnaryOperator, Value, ValueWithSpan, WindowFrame,
    WindowFrameBound, WindowSpec,
};

use super::catalog::Catalog;
use super::print::{exact, keep_as_it_is};
use super::refusal::Refusal;
use super::scope::{Meaning, Source};
use super::text::shortened;
use super::walk::Walk;
use crate::dialect::Dialect;

/// Introducers of character sets that MySQL's own view texts and tools write.
const INTRODUCERS: &[&str] = &["_utf8mb4", "_utf8mb3", "_utf8", "_latin1", "_ascii", "_binary"];
const CHARSETS: &[&str] = &["utf8mb4", "utf8mb3", "utf8", "latin1", "ascii", "binary"];

impl Walk<'_> {
    pub(super) fn exprs(&mut self, exprs: &mut [Expr]) -> Result<(), Refusal> {
        exprs.iter_mut().try_for_each(|expr| self.expr(expr))
    }

    #[expect(clippy::too_many_lines, reason = "one row for each kind of expression")]
    pub(super) fn expr(&mut self, expr: &mut Expr) -> Result<(), Refusal> {
        match expr {
            Expr::Identifier(ident) => self.bare_identifier(ident),
            Expr::CompoundIdentifier(parts) => self.compound(parts),
            Expr::Value(value) => literal(value),
            Expr::Nested(inner)
            | Expr::IsFalse(inner)
            | Expr::IsNotFalse(inner)
            | Expr::IsTrue(inner)
            | Expr::IsNotTrue(inner)
            | Expr::IsNull(inner)
            | Expr::IsNotNull(inner)
            | Expr::IsUnknown(inner)
            | Expr::IsNotUnknown(inner) => self.expr(inner),
            Expr::IsJson { expr, kind: _, unique_keys: _, negated: _ }
            | Expr::IsNormalized { expr, form: _, negated: _ } => self.expr(expr),
            Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right) => {
                self.expr(left)?;
                self.expr(right)
            }
            Expr::InList { expr, list, negated: _ } => {
                self.expr(expr)?;
                self.exprs(list)
            }
            Expr::InSubquery { expr, subquery, negated: _ } => {
                self.expr(expr)?;
                self.query(subquery).map(drop)
            }
            Expr::Between { expr, negated: _, low, high } => {
                self.expr(expr)?;
                self.expr(low)?;
                self.expr(high)
            }
            Expr::BinaryOp { left, op, right } => {
                self.binary_operator(op)?;
                self.expr(left)?;
                self.expr(right)
            }
            Expr::Like { negated: _, any: false, expr, pattern, escape_char }
            | Expr::ILike { negated: _, any: false, expr, pattern, escape_char }
            | Expr::SimilarTo { negated: _, expr, pattern, escape_char } => {
                self.expr(expr)?;
                self.expr(pattern)?;
                escape_char.as_mut().map_or(Ok(()), |escape| self.expr(escape))
            }
            Expr::RLike { negated: _, expr, pattern, regexp: _ } => {
                self.expr(expr)?;
                self.expr(pattern)
            }
            Expr::AnyOp { left, compare_op, right, is_some: _ } | Expr::AllOp { left, compare_op, right } => {
                self.binary_operator(compare_op)?;
                self.expr(left)?;
                self.expr(right)
            }
            Expr::UnaryOp { op, expr } => {
                self.unary_operator(*op)?;
                self.expr(expr)?;
                separate_operand(*op, expr);
                Ok(())
            }
            Expr::Convert { is_try: false, expr, data_type, charset, target_before_value: false, styles }
                if styles.is_empty() && self.dialect() == Dialect::Mysql =>
            {
                self.expr(expr)?;
                if let Some(charset) = charset {
                    keep_listed(charset, CHARSETS, "the character set")?;
                }
                data_type.as_mut().map_or(Ok(()), |data_type| self.data_type(data_type))
            }
            Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, format: None } => {
                self.expr(expr)?;
                self.data_type(data_type)
            }
            Expr::AtTimeZone { timestamp, time_zone } => {
                self.expr(timestamp)?;
                self.expr(time_zone)
            }
            Expr::Extract { field, syntax: _, expr } => {
                date_field(field)?;
                self.expr(expr)
            }
            Expr::Ceil { expr, field } | Expr::Floor { expr, field } => {
                match field {
                    CeilFloorKind::DateTimeField(field) => date_field(field)?,
                    CeilFloorKind::Scale(value) => literal(value)?,
                }
                self.expr(expr)
            }
            Expr::Position { expr, r#in } => {
                self.expr(expr)?;
                self.expr(r#in)
            }
            Expr::Substring { expr, substring_from, substring_for, special: _, shorthand: _ } => {
                self.expr(expr)?;
                [substring_from, substring_for].into_iter().flatten().try_for_each(|part| self.expr(part))
            }
            Expr::Trim { trim_where: _, trim_what, expr, trim_characters } => {
                self.expr(expr)?;
                if let Some(what) = trim_what {
                    self.expr(what)?;
                }
                trim_characters.as_mut().map_or(Ok(()), |characters| self.exprs(characters))
            }
            Expr::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                self.expr(expr)?;
                self.expr(overlay_what)?;
                self.expr(overlay_from)?;
                overlay_for.as_mut().map_or(Ok(()), |part| self.expr(part))
            }
            Expr::Collate { expr, collation } => {
                self.expr(expr)?;
                check_collation(collation)
            }
            Expr::Prefixed { prefix, value } if self.dialect() == Dialect::Mysql => {
                introducer(prefix)?;
                match value.as_mut() {
                    Expr::Value(value) => literal(value),
                    _ => Err(Refusal::not_allowed("a prefix before an expression", "leave out the prefix")),
                }
            }
            Expr::TypedString(TypedString { data_type, value, uses_odbc_syntax: false }) => {
                literal(value)?;
                self.data_type(data_type)
            }
            Expr::Function(function) => self.function(function),
            Expr::Case { case_token: _, end_token: _, operand, conditions, else_result } => {
                for part in [operand, else_result].into_iter().flatten() {
                    self.expr(part)?;
                }
                conditions.iter_mut().try_for_each(|CaseWhen { condition, result }| {
                    self.expr(condition)?;
                    self.expr(result)
                })
            }
            Expr::Exists { subquery, negated: _ } | Expr::Subquery(subquery) => self.query(subquery).map(drop),
            Expr::GroupingSets(sets) | Expr::Cube(sets) | Expr::Rollup(sets) => {
                sets.iter_mut().try_for_each(|set| self.exprs(set))
            }
            Expr::Tuple(exprs) => self.exprs(exprs),
            Expr::Array(Array { elem, named: _ }) if self.dialect() == Dialect::Postgres => self.exprs(elem),
            Expr::Interval(Interval {
                value,
                leading_field,
                leading_precision: _,
                last_field,
                fractional_seconds_precision: _,
            }) => {
                for field in [leading_field, last_field].into_iter().flatten() {
                    date_field(field)?;
                }
                self.expr(value)
            }
            Expr::MatchAgainst { columns, match_value, opt_search_modifier: _ } => {
                for column in columns {
                    self.match_column(column)?;
                }
                literal(match_value)
            }
            Expr::MemberOf(MemberOf { value, array }) if self.dialect() == Dialect::Mysql => {
                self.expr(value)?;
                self.expr(array)
            }
            Expr::CompoundFieldAccess { root, access_chain } if self.dialect() == Dialect::Postgres => {
                self.expr(root)?;
                access_chain.iter_mut().try_for_each(|access| self.access(access))
            }
            Expr::CompoundFieldAccess { .. }
            | Expr::JsonAccess { .. }
            | Expr::InUnnest { .. }
            | Expr::Like { .. }
            | Expr::ILike { .. }
            | Expr::Convert { .. }
            | Expr::Cast { .. }
            | Expr::Prefixed { .. }
            | Expr::TypedString(_)
            | Expr::Struct { .. }
            | Expr::Named { .. }
            | Expr::Dictionary(_)
            | Expr::Map(_)
            | Expr::Array(_)
            | Expr::Wildcard(_)
            | Expr::QualifiedWildcard(..)
            | Expr::OuterJoin(_)
            | Expr::Prior(_)
            | Expr::Lambda(_)
            | Expr::MemberOf(_) => Err(Refusal::not_allowed(
                format!("the expression `{}`", shortened(&expr.to_string())),
                format!("write it with {}'s usual operators and functions", self.dialect()),
            )),
        }
    }

    fn bare_identifier(&mut self, ident: &mut Ident) -> Result<(), Refusal> {
        if self.in_write && ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default") {
            keep_as_it_is(ident);
            return Ok(());
        }
        self.column(ident)
    }

    /// Looks up a column without a table's name.
    pub(super) fn column(&mut self, ident: &Ident) -> Result<(), Refusal> {
        let name = self.name(ident);
        if self.scopes.column(self.dialect(), &name) == Meaning::Found {
            return Ok(());
        }
        let of = self.scopes.only_source().unwrap_or_default();
        let mut refusal = Catalog::no_such_column(&name, of, &self.scopes.all_columns());
        if self.dialect() != Dialect::Mysql && ident.quote_style == Some('"') {
            refusal.hint.push_str("; a string is written in single quotes");
        } else if self.scopes.strict.is_some() {
            refusal.hint.push_str("; where a table is written to, name the columns of subqueries");
        }
        Err(refusal)
    }

    /// Looks up `table.column` and `schema.table.column`.
    fn compound(&mut self, parts: &mut Vec<Ident>) -> Result<(), Refusal> {
        let names: Vec<String> = parts.iter().map(|part| self.name(part)).collect();
        let dialect = self.dialect();
        let (source, column, shown) = match names.as_slice() {
            [table, column] => (self.scopes.source(dialect, table), column, table.clone()),
            [schema, table, column] => (self.scopes.table(dialect, schema, table), column, format!("{schema}.{table}")),
            _ => {
                return Err(Refusal::not_allowed(
                    format!("the name `{}`", shortened(&names.join("."))),
                    "write `column`, `table.column` or `schema.table.column`",
                ));
            }
        };
        let Some(source) = source else { return Err(self.scopes.no_such_source(&shown)) };
        if !self.is_column_of(source, column) {
            let columns = source.columns.clone().unwrap_or_default();
            return Err(Catalog::no_such_column(column, &shown, &columns));
        }
        if let Some(own_name) = source.name.clone().filter(|_| names.len() == 3) {
            // What is sent may have another schema's spelling, or no schema: the table's own name is enough.
            *parts = vec![exact(&own_name), exact(column)];
        }
        Ok(())
    }

    fn is_column_of(&self, source: &Source, column: &str) -> bool {
        match &source.columns {
            _ if self.scopes.forbids_column(column) => false,
            Some(columns) => super::scope::has(self.dialect(), columns, column),
            None => self.scopes.strict.is_none(),
        }
    }

    /// Checks `table.*` and gives a table with a schema its own name.
    pub(super) fn qualified_wildcard(&mut self, name: &mut ObjectName) -> Result<(), Refusal> {
        if self.scopes.strict.is_some() {
            return Err(Refusal::not_allowed(
                "`.*` where a table with unnamed columns is written to",
                "name the columns",
            ));
        }
        let written = self.catalog.written_table(name)?;
        let source = match &written.schema {
            None => self.scopes.source(self.dialect(), &written.name),
            Some(schema) => self.scopes.table(self.dialect(), schema, &written.name),
        };
        let Some(source) = source else { return Err(self.scopes.no_such_source(&written.name)) };
        let own_name = source.name.clone().unwrap_or(written.name);
        *name = ObjectName::from(exact(&own_name));
        Ok(())
    }

    fn match_column(&mut self, column: &mut ObjectName) -> Result<(), Refusal> {
        let parts: Option<Vec<Ident>> = column.0.iter().map(|part| part.as_ident().cloned()).collect();
        let mut parts = parts.unwrap_or_default();
        if let [ident] = parts.as_slice() {
            return self.column(ident);
        }
        self.compound(&mut parts)?;
        *column = ObjectName::from(parts);
        Ok(())
    }

    fn access(&mut self, access: &mut AccessExpr) -> Result<(), Refusal> {
        match access {
            AccessExpr::Subscript(Subscript::Index { index }) => self.expr(index),
            AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, stride: None }) => {
                [lower_bound, upper_bound].into_iter().flatten().try_for_each(|bound| self.expr(bound))
            }
            AccessExpr::Subscript(Subscript::Slice { .. }) | AccessExpr::Dot(_) => {
                Err(Refusal::not_allowed("a field of a row", "name the column in the query that makes the row"))
            }
        }
    }

    pub(super) fn window_spec(&mut self, spec: &mut WindowSpec) -> Result<(), Refusal> {
        let WindowSpec { window_name: _, partition_by, order_by, window_frame } = spec;
        self.exprs(partition_by)?;
        self.order_by_exprs(order_by)?;
        if let Some(WindowFrame { units: _, start_bound, end_bound }) = window_frame {
            for bound in [Some(start_bound), end_bound.as_mut()].into_iter().flatten() {
                match bound {
                    WindowFrameBound::Preceding(Some(expr)) | WindowFrameBound::Following(Some(expr)) => {
                        self.expr(expr)?;
                    }
                    WindowFrameBound::CurrentRow
                    | WindowFrameBound::Preceding(None)
                    | WindowFrameBound::Following(None) => {}
                }
            }
        }
        Ok(())
    }

    fn binary_operator(&mut self, op: &BinaryOperator) -> Result<(), Refusal> {
        let is_listed = match op {
            BinaryOperator::Plus
            | BinaryOperator::Minus
            | BinaryOperator::Multiply
            | BinaryOperator::Divide
            | BinaryOperator::Modulo
            | BinaryOperator::StringConcat
            | BinaryOperator::Gt
            | BinaryOperator::Lt
            | BinaryOperator::GtEq
            | BinaryOperator::LtEq
            | BinaryOperator::Spaceship
            | BinaryOperator::Eq
            | BinaryOperator::NotEq
            | BinaryOperator::And
            | BinaryOperator::Or
            | BinaryOperator::Xor
            | BinaryOperator::BitwiseOr
            | BinaryOperator::BitwiseAnd
            | BinaryOperator::BitwiseXor
            | BinaryOperator::MyIntegerDivide
            | BinaryOperator::Match
            | BinaryOperator::Regexp
            | BinaryOperator::Glob
            | BinaryOperator::PGBitwiseShiftLeft
            | BinaryOperator::PGBitwiseShiftRight
            | BinaryOperator::Arrow
            | BinaryOperator::LongArrow => true,
            BinaryOperator::PGBitwiseXor
            | BinaryOperator::PGExp
            | BinaryOperator::PGOverlap
            | BinaryOperator::PGRegexMatch
            | BinaryOperator::PGRegexIMatch
            | BinaryOperator::PGRegexNotMatch
            | BinaryOperator::PGRegexNotIMatch
            | BinaryOperator::PGLikeMatch
            | BinaryOperator::PGILikeMatch
            | BinaryOperator::PGNotLikeMatch
            | BinaryOperator::PGNotILikeMatch
            | BinaryOperator::PGStartsWith
            | BinaryOperator::HashArrow
            | BinaryOperator::HashLongArrow
            | BinaryOperator::AtAt
            | BinaryOperator::AtArrow
            | BinaryOperator::ArrowAt
            | BinaryOperator::HashMinus
            | BinaryOperator::AtQuestion
            | BinaryOperator::Question
            | BinaryOperator::QuestionAnd
            | BinaryOperator::QuestionPipe
            | BinaryOperator::Overlaps
            | BinaryOperator::LtDashGt
            | BinaryOperator::AndLt
            | BinaryOperator::AndGt => self.dialect() == Dialect::Postgres,
            BinaryOperator::DuckIntegerDivide
            | BinaryOperator::Custom(_)
            | BinaryOperator::PGCustomBinaryOperator(_)
            | BinaryOperator::DoubleHash
            | BinaryOperator::LtLtPipe
            | BinaryOperator::PipeGtGt
            | BinaryOperator::AndLtPipe
            | BinaryOperator::PipeAndGt
            | BinaryOperator::LtCaret
            | BinaryOperator::GtCaret
            | BinaryOperator::QuestionHash
            | BinaryOperator::QuestionDash
            | BinaryOperator::QuestionDashPipe
            | BinaryOperator::QuestionDoublePipe
            | BinaryOperator::At
            | BinaryOperator::TildeEq
            | BinaryOperator::Assignment => false,
        };
        // MySQL's && is printed as the parser read it.
        if is_listed || (matches!(op, BinaryOperator::PGOverlap) && self.dialect() == Dialect::Mysql) {
            return Ok(());
        }
        Err(Refusal::not_allowed(format!("the operator `{}`", shortened(&op.to_string())), "use another operator"))
    }

    fn unary_operator(&mut self, op: UnaryOperator) -> Result<(), Refusal> {
        let is_listed = match op {
            UnaryOperator::Plus | UnaryOperator::Minus | UnaryOperator::Not | UnaryOperator::BitwiseNot => true,
            UnaryOperator::BangNot => self.dialect() == Dialect::Mysql,
            UnaryOperator::PGAbs | UnaryOperator::PGCubeRoot | UnaryOperator::PGSquareRoot => {
                self.dialect() == Dialect::Postgres
            }
            UnaryOperator::AtDashAt
            | UnaryOperator::DoubleAt
            | UnaryOperator::Hash
            | UnaryOperator::PGPostfixFactorial
            | UnaryOperator::PGPrefixFactorial
            | UnaryOperator::QuestionDash
            | UnaryOperator::QuestionPipe => false,
        };
        if is_listed {
            return Ok(());
        }
        Err(Refusal::not_allowed(format!("the operator `{op}`"), "use another operator"))
    }
}

/// A literal, and not a variable or placeholder.
pub(super) fn literal(value: &ValueWithSpan) -> Result<(), Refusal> {
    if let Value::Placeholder(name) = &value.value {
        return Err(Refusal::not_allowed(
            format!("the placeholder or variable `{}`", shortened(name)),
            "write the value itself",
        ));
    }
    Ok(())
}

fn check_collation(collation: &ObjectName) -> Result<(), Refusal> {
    if collation.0.iter().all(|part| matches!(part, ObjectNamePart::Identifier(_))) && collation.0.len() <= 2 {
        return Ok(());
    }
    Err(Refusal::not_allowed("this collation", "leave it out"))
}

fn introducer(prefix: &mut Ident) -> Result<(), Refusal> {
    if prefix.quote_style.is_none() && INTRODUCERS.contains(&prefix.value.to_ascii_lowercase().as_str()) {
        keep_as_it_is(prefix);
        return Ok(());
    }
    Err(Refusal::not_allowed(format!("the prefix `{}`", shortened(&prefix.value)), "leave out the prefix"))
}

/// Puts parentheses around an operand that begins with a sign, because `--` is a comment.
fn separate_operand(op: UnaryOperator, expr: &mut Box<Expr>) {
    let begins_with_sign = matches!(expr.as_ref(), Expr::UnaryOp { op: inner, .. } if *inner != UnaryOperator::Not);
    if op != UnaryOperator::Not && begins_with_sign {
        let inner = std::mem::replace(expr.as_mut(), Expr::Value(Value::Null.with_empty_span()));
        **expr = Expr::Nested(Box::new(inner));
    }
}

fn keep_listed(name: &mut ObjectName, list: &[&str], what: &str) -> Result<(), Refusal> {
    if let [ObjectNamePart::Identifier(ident)] = name.0.as_mut_slice()
        && ident.quote_style.is_none()
        && list.contains(&ident.value.to_ascii_lowercase().as_str())
    {
        keep_as_it_is(ident);
        return Ok(());
    }
    Err(Refusal::not_allowed(
        format!("{what} `{}`", shortened(&name.to_string())),
        format!("use one of {}", list.join(", ")),
    ))
}

/// A unit of time; other words must look like one, because they are printed as they are.
fn date_field(field: &mut DateTimeField) -> Result<(), Refusal> {
    let (DateTimeField::Custom(ident) | DateTimeField::Week(Some(ident))) = field else { return Ok(()) };
    let is_word = ident.value.chars().all(|character| character.is_ascii_alphabetic() || character == '_');
    if is_word && !ident.value.is_empty() && matches!(ident.quote_style, None | Some('\'')) {
        keep_as_it_is(ident);
        return Ok(());
    }
    Err(Refusal::not_allowed(format!("the unit of time `{}`", shortened(&ident.value)), "use a unit such as `month`"))
}
