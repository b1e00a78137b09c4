//! Every expression: allowed kinds by name, the rest refused.

use sqlparser::ast::{
    AccessExpr, Array, BinaryOperator, CaseWhen, CastKind, CeilFloorKind, Expr, Interval, MemberOf, Subscript,
    TypedString, UnaryOperator, Value, WindowFrame, WindowFrameBound, WindowSpec,
};

use super::functions::may_call_built_in;
use super::literal::{check_charset, check_collation, date_field, introducer, literal};
use super::refusal::Refusal;
use super::text::shortened;
use super::walk::Walk;
use crate::dialect::Dialect;

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
                    check_charset(charset)?;
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
                may_call_built_in(&self.catalog, &["ceil", "ceiling", "floor"])?;
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
                may_call_built_in(&self.catalog, &["substring", "substr"])?;
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

/// Puts parentheses around an operand that begins with a sign, because `--` is a comment.
fn separate_operand(op: UnaryOperator, expr: &mut Box<Expr>) {
    let begins_with_sign = matches!(expr.as_ref(), Expr::UnaryOp { op: inner, .. } if *inner != UnaryOperator::Not);
    if op != UnaryOperator::Not && begins_with_sign {
        let inner = std::mem::replace(expr.as_mut(), Expr::Value(Value::Null.with_empty_span()));
        **expr = Expr::Nested(Box::new(inner));
    }
}
