//! Calls of functions: the name is on a list, the arguments are walked, and lengths that an argument chooses are bounded.

use sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgOperator, FunctionArgumentClause, FunctionArgumentList,
    FunctionArguments, Ident, ListAggOnOverflow, ObjectName, ObjectNamePart, Query, UnaryOperator, Value,
    WildcardAdditionalOptions, WindowType,
};

use super::functions::{lists, may_call};
use super::literal::literal;
use super::print::{keep_as_it_is, keep_name};
use super::refusal::Refusal;
use super::text::shortened;
use super::walk::Walk;
use crate::dialect::Dialect;

/// Longest value that `repeat` and its like may make: enough for bars of text diagrams.
const MAX_GROWTH: u64 = 10_000;
/// Most rows of `generate_series` with constant bounds: the minutes of almost two years.
const MAX_SERIES: u64 = 1_000_000;

const UNITS: &[&str] = &[
    "microsecond",
    "second",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "quarter",
    "year",
    "sql_tsi_second",
    "sql_tsi_minute",
    "sql_tsi_hour",
    "sql_tsi_day",
    "sql_tsi_week",
    "sql_tsi_month",
    "sql_tsi_quarter",
    "sql_tsi_year",
];

impl Walk<'_> {
    pub(super) fn function(&mut self, function: &mut Function) -> Result<(), Refusal> {
        let Function { name, uses_odbc_syntax, parameters, args, within_group, filter, null_treatment: _, over } =
            function;
        if *uses_odbc_syntax || !matches!(parameters, FunctionArguments::None) {
            return Err(Refusal::not_allowed("this way to call a function", "write `name(arguments)`"));
        }
        let called =
            if self.is_values_of_insert(name, args) { "values".to_owned() } else { may_call(&self.catalog, name)? };
        keep_name(name);
        match args {
            FunctionArguments::None => {}
            FunctionArguments::Subquery(query) => {
                // ARRAY(SELECT …)
                if called != "array" {
                    return Err(Refusal::not_allowed("a query as the argument list", "put the query in parentheses"));
                }
                self.array_query(query)?;
            }
            FunctionArguments::List(FunctionArgumentList { duplicate_treatment: _, args, clauses }) => {
                self.function_args(&called, args)?;
                for clause in clauses {
                    self.argument_clause(clause)?;
                }
            }
        }
        self.order_by_exprs(within_group)?;
        if let Some(filter) = filter {
            self.expr(filter)?;
        }
        match over {
            Some(WindowType::WindowSpec(spec)) => self.window_spec(spec),
            Some(WindowType::NamedWindow(_)) | None => Ok(()),
        }
    }

    fn array_query(&mut self, query: &mut Query) -> Result<(), Refusal> {
        self.query(query).map(drop)
    }

    /// Checks the arguments of a function that may be called.
    pub(super) fn function_args(&mut self, called: &str, args: &mut [FunctionArg]) -> Result<(), Refusal> {
        let lists = lists(self.dialect());
        let growing = lists.growing.iter().find(|(name, _)| *name == called).map(|(_, place)| *place);
        if growing.is_some() && self.in_growing {
            return Err(Refusal::not_allowed(format!("`{called}` inside of such a function"), "call it once"));
        }
        if called == "generate_series" {
            check_series(args)?;
        }
        let was_growing = self.in_growing;
        self.in_growing |= growing.is_some();
        for (place, argument) in args.iter_mut().enumerate() {
            if place == 0 && lists.unit_first.contains(&called) && keep_unit(argument) {
                continue;
            }
            self.argument(called, argument)?;
            if growing == Some(place) {
                self.bound_length(called, argument)?;
            }
        }
        self.in_growing = was_growing;
        Ok(())
    }

    fn argument(&mut self, called: &str, argument: &mut FunctionArg) -> Result<(), Refusal> {
        let value = match argument {
            FunctionArg::Unnamed(value) => value,
            FunctionArg::Named { name, arg, operator } => {
                let is_named = matches!(operator, FunctionArgOperator::RightArrow | FunctionArgOperator::Assignment);
                if !is_named || self.dialect() != Dialect::Postgres {
                    return Err(Refusal::not_allowed("a named argument", "give the arguments in their order"));
                }
                keep_plain(name)?;
                arg
            }
            FunctionArg::ExprNamed { name: Expr::Identifier(name), arg, operator: FunctionArgOperator::RightArrow }
                if self.dialect() == Dialect::Postgres =>
            {
                keep_plain(name)?;
                arg
            }
            FunctionArg::ExprNamed { .. } => {
                return Err(Refusal::not_allowed("a named argument", "give the arguments in their order"));
            }
        };
        match value {
            FunctionArgExpr::Expr(expr) => self.expr(expr),
            FunctionArgExpr::Wildcard => self.star(called),
            FunctionArgExpr::WildcardWithOptions(options) if *options == WildcardAdditionalOptions::default() => {
                self.star(called)
            }
            FunctionArgExpr::WildcardWithOptions(_) => Err(Refusal::not_allowed("`*` with options", "write `*`")),
            FunctionArgExpr::QualifiedWildcard(name) => self.qualified_wildcard(name),
        }
    }

    fn star(&self, called: &str) -> Result<(), Refusal> {
        if called == "count" || self.scopes.strict.is_none() {
            return Ok(());
        }
        Err(Refusal::not_allowed(format!("`{called}(*)`"), "name the columns that you need"))
    }

    fn argument_clause(&mut self, clause: &mut FunctionArgumentClause) -> Result<(), Refusal> {
        match clause {
            FunctionArgumentClause::OrderBy(exprs) => self.order_by_exprs(exprs),
            FunctionArgumentClause::Separator(value) => literal(value),
            FunctionArgumentClause::Limit(expr) => self.expr(expr),
            FunctionArgumentClause::IgnoreOrRespectNulls(_) | FunctionArgumentClause::JsonNullClause(_) => Ok(()),
            FunctionArgumentClause::JsonReturningClause(returning) => self.data_type(&mut returning.data_type),
            FunctionArgumentClause::OnOverflow(ListAggOnOverflow::Error) => Ok(()),
            FunctionArgumentClause::OnOverflow(ListAggOnOverflow::Truncate { .. })
            | FunctionArgumentClause::Where(_)
            | FunctionArgumentClause::Having(_) => {
                Err(Refusal::not_allowed("this clause in a function's arguments", "leave it out"))
            }
        }
    }

    /// `VALUES(column)` in `ON DUPLICATE KEY UPDATE` of MySQL.
    fn is_values_of_insert(&self, name: &ObjectName, args: &FunctionArguments) -> bool {
        let [ObjectNamePart::Identifier(ident)] = name.0.as_slice() else { return false };
        self.in_write
            && self.dialect() == Dialect::Mysql
            && ident.quote_style.is_none()
            && ident.value.eq_ignore_ascii_case("values")
            && matches!(args, FunctionArguments::List(list) if list.args.len() == 1)
    }

    /// Refuses a constant length that is too large, and bounds one that is computed.
    fn bound_length(&self, called: &str, argument: &mut FunctionArg) -> Result<(), Refusal> {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = argument else {
            return Err(Refusal::not_allowed(format!("this argument of `{called}`"), "give the length as a number"));
        };
        if let Some(length) = constant(expr) {
            return if length <= i128::from(MAX_GROWTH) {
                Ok(())
            } else {
                Err(Refusal::not_allowed(
                    format!("the length {length} in `{called}`"),
                    format!("use at most {MAX_GROWTH}"),
                ))
            };
        }
        let least = if self.dialect() == Dialect::Sqlite { "min" } else { "least" };
        let inner = std::mem::replace(expr, Expr::Value(Value::Null.with_empty_span()));
        let most = Expr::Value(Value::Number(MAX_GROWTH.to_string(), false).with_empty_span());
        *expr = call(least, vec![inner, most]);
        Ok(())
    }
}

fn keep_plain(ident: &mut Ident) -> Result<(), Refusal> {
    let is_word = ident.value.chars().all(|character| character.is_ascii_alphanumeric() || character == '_');
    if is_word && ident.quote_style.is_none() {
        keep_as_it_is(ident);
        return Ok(());
    }
    Err(Refusal::not_allowed(
        format!("the argument `{}`", shortened(&ident.value)),
        "give the arguments in their order",
    ))
}

fn keep_unit(argument: &mut FunctionArg) -> bool {
    if let FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Identifier(ident))) = argument
        && ident.quote_style.is_none()
        && UNITS.contains(&ident.value.to_ascii_lowercase().as_str())
    {
        keep_as_it_is(ident);
        return true;
    }
    false
}

/// The value of an integer literal, with its sign; a number that is not an integer counts as too large.
fn constant(expr: &Expr) -> Option<i128> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => Some(digits.parse().unwrap_or(i128::MAX)),
            _ => None,
        },
        Expr::Nested(inner) => constant(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => constant(expr).map(|value| -value),
        _ => None,
    }
}

fn check_series(args: &[FunctionArg]) -> Result<(), Refusal> {
    let numbers: Vec<Option<i128>> = args
        .iter()
        .map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => constant(expr),
            _ => None,
        })
        .collect();
    if let [Some(first), Some(last), rest @ ..] = numbers.as_slice() {
        let step = rest.first().copied().flatten().unwrap_or(1).unsigned_abs().max(1);
        if first.abs_diff(*last) / step > u128::from(MAX_SERIES) {
            return Err(Refusal::not_allowed(
                format!("a series of more than {MAX_SERIES} rows"),
                "choose a smaller range or a larger step",
            ));
        }
    }
    Ok(())
}

/// Makes the call of a built-in function, as the parser would.
fn call(name: &str, args: Vec<Expr>) -> Expr {
    let mut name = ObjectName::from(Ident::new(name));
    keep_name(&mut name);
    Expr::Function(Function {
        name,
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: args.into_iter().map(|expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))).collect(),
            clauses: Vec::new(),
        }),
        within_group: Vec::new(),
        filter: None,
        null_treatment: None,
        over: None,
    })
}
