//! How much larger than its values a template can become, found from its syntax alone.
//!
//! The engine limits the steps of a template, but one step can double a text. So before a template is rendered, each of
//! its expressions gets a bound: how many copies of all the values together the result can be as large as. A template
//! whose bound is over [`MAX_COPIES`] is refused, as are the few statements and operators that have no bound.

use std::collections::HashMap;

use minijinja::machinery::ast::{BinOpKind, Call, CallArg, Expr, Filter, ForLoop, Stmt};
use minijinja::machinery::{parse, parse_expr};
use protocol::excerpt;

use super::{MAX_SHOWN_CHARS, TemplateError};

/// The longest template; a shipped one has about 200 bytes.
const MAX_TEMPLATE_BYTES: usize = 64 << 10;
/// The most copies of all values that one expression may be as large as. `mime_message(...) | b64url`, the largest
/// that ships, has 36.
const MAX_COPIES: u32 = 64;

/// Filters whose result is a number.
const NUMBER_FILTERS: [&str; 7] = ["abs", "bool", "count", "float", "int", "length", "round"];
/// Filters whose result is a part of their operand or of an argument.
const PART_FILTERS: [&str; 17] = [
    "attr",
    "d",
    "default",
    "dictsort",
    "first",
    "items",
    "last",
    "max",
    "min",
    "reject",
    "rejectattr",
    "reverse",
    "select",
    "selectattr",
    "sort",
    "trim",
    "unique",
];
/// Filters whose result is a list of parts of a text, or of texts.
const LIST_FILTERS: [&str; 4] = ["lines", "list", "map", "split"];

/// The bound of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Growth {
    kind: Kind,
    /// The most copies of all values together that the value can be as large as.
    copies: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    Text,
    /// A list or an object, or not known.
    Any,
}

impl Growth {
    const NUMBER: Self = Self { kind: Kind::Number, copies: 1 };
    const VALUE: Self = Self { kind: Kind::Any, copies: 1 };

    fn text(copies: u32) -> Self {
        Self { kind: Kind::Text, copies }
    }

    fn any(copies: u32) -> Self {
        Self { kind: Kind::Any, copies }
    }

    /// The bound of this value as a text: in a list or an object, quotes and backslashes are escaped.
    fn as_text(self) -> u32 {
        if self.kind == Kind::Any { self.copies.saturating_mul(2) } else { self.copies }
    }

    fn or(self, other: Self) -> Self {
        let kind = if self.kind == other.kind { self.kind } else { Kind::Any };
        Self { kind, copies: self.copies.max(other.copies) }
    }
}

type Measured<T> = Result<T, String>;

/// What is known of a template or an expression before it is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// How many copies of its values it can be as large as in any of its steps.
    pub(super) copies: u32,
    /// Whether a loop reads more in each repetition than its own item.
    pub(super) reads_again: bool,
}

/// Finds the bounds of `template`. `is_number` knows which fields of the input are numbers.
pub(super) fn of_template(template: &str, is_number: &dyn Fn(&str) -> bool) -> Result<Bounds, TemplateError> {
    let parsed = short(template)
        .and_then(|()| parse(template, "<string>", super::syntax()).map_err(|error| super::reason(&error)));
    measure(template, parsed, is_number, |names, parsed| names.statement(&parsed))
}

/// Like [`of_template`], for an expression like that of `if`.
pub(super) fn of_expression(expression: &str, is_number: &dyn Fn(&str) -> bool) -> Result<Bounds, TemplateError> {
    let parsed = short(expression).and_then(|()| parse_expr(expression).map_err(|error| super::reason(&error)));
    measure(expression, parsed, is_number, |names, parsed| names.expression(&parsed).map(|_| ()))
}

/// Returns the `a` of a template that is exactly `{{ a | json }}`.
pub(super) fn operand_of_json(template: &str) -> Option<&str> {
    let inner = template.strip_prefix("{{")?.strip_suffix("}}")?.trim();
    let operand = inner.strip_suffix("json")?.trim_end().strip_suffix('|')?;
    short(template).ok()?;
    let is_whole = |expression: &Expr<'_>| matches!(expression, Expr::Filter(filter) if filter.name == "json");
    match parse(template, "<string>", super::syntax()).ok()? {
        Stmt::Template(parsed) => match parsed.children.as_slice() {
            [Stmt::EmitExpr(emitted)] if is_whole(&emitted.expr) => Some(operand),
            _ => None,
        },
        _ => None,
    }
}

fn short(template: &str) -> Measured<()> {
    if template.len() <= MAX_TEMPLATE_BYTES {
        return Ok(());
    }
    Err(format!("it has {} bytes; a template may have {MAX_TEMPLATE_BYTES}", template.len()))
}

fn measure<T>(
    template: &str,
    parsed: Measured<T>,
    is_number: &dyn Fn(&str) -> bool,
    check: impl FnOnce(&mut Names<'_>, T) -> Measured<()>,
) -> Result<Bounds, TemplateError> {
    let mut names =
        Names { is_number, assigned: HashMap::new(), items: HashMap::new(), loops: 0, most: 0, reads_again: false };
    let measured = parsed.and_then(|parsed| check(&mut names, parsed));
    measured
        .map(|()| Bounds { copies: names.most, reads_again: names.reads_again })
        .map_err(|reason| TemplateError { template: excerpt::line(template, MAX_SHOWN_CHARS), reason })
}

/// The names that a template has assigned so far, with the bounds of their values.
#[derive(Clone)]
struct Names<'a> {
    is_number: &'a dyn Fn(&str) -> bool,
    assigned: HashMap<String, Growth>,
    /// In how many loops each name was assigned: it is an item of the innermost, or made of it.
    items: HashMap<String, usize>,
    /// How many loops the statement is in.
    loops: usize,
    /// The highest bound so far.
    most: u32,
    reads_again: bool,
}

impl Names<'_> {
    fn statements(&mut self, statements: &[Stmt<'_>]) -> Measured<()> {
        statements.iter().try_for_each(|statement| self.statement(statement))
    }

    fn statement(&mut self, statement: &Stmt<'_>) -> Measured<()> {
        match statement {
            Stmt::Template(template) => self.statements(&template.children),
            Stmt::EmitRaw(_) => Ok(()),
            Stmt::EmitExpr(emitted) => {
                let growth = self.expression(&emitted.expr)?;
                self.bounded(growth.as_text()).map(|_| ())
            }
            Stmt::IfCond(condition) => {
                self.expression(&condition.expr)?;
                let mut other = self.clone();
                self.statements(&condition.true_body)?;
                other.statements(&condition.false_body)?;
                self.merge(other);
                Ok(())
            }
            Stmt::ForLoop(repeated) => self.repeated(repeated),
            Stmt::Set(set) => {
                let growth = self.expression(&set.expr)?;
                self.assign(&set.target, growth)
            }
            _ => Err("of the statements of Jinja there are `if`, `for` and `set NAME = VALUE`; for anything else use \
                      several fields, or a program"
                .to_owned()),
        }
    }

    fn repeated(&mut self, repeated: &ForLoop<'_>) -> Measured<()> {
        if repeated.recursive {
            return Err("a loop cannot be recursive".to_owned());
        }
        let items = self.expression(&repeated.iter)?;
        self.loops += 1;
        let is_range =
            matches!(&repeated.iter, Expr::Call(call) if matches!(&call.expr, Expr::Var(name) if name.id == "range"));
        self.assign(&repeated.target, if is_range { Growth::NUMBER } else { Growth::any(items.copies) })?;
        let before = self.clone();
        let repetition = |names: &mut Self| {
            repeated.filter_expr.as_ref().map(|filter| names.expression(filter)).transpose()?;
            names.statements(&repeated.body)
        };
        repetition(self)?;
        self.merge(before);
        let once = self.assigned.clone();
        repetition(self)?;
        self.loops -= 1;
        let grown =
            self.assigned.iter().find(|(name, growth)| once.get(*name).is_some_and(|it| it.copies < growth.copies));
        if let Some((name, _)) = grown {
            return Err(format!("`{name}` grows with each repetition of the loop"));
        }
        self.statements(&repeated.else_body)
    }

    fn assign(&mut self, target: &Expr<'_>, growth: Growth) -> Measured<()> {
        match target {
            Expr::Var(name) => {
                self.assigned.insert(name.id.to_owned(), growth);
                self.items.insert(name.id.to_owned(), self.loops);
                Ok(())
            }
            Expr::List(names) => names.items.iter().try_for_each(|name| self.assign(name, Growth::any(growth.copies))),
            Expr::Tuple(names) => names.items.iter().try_for_each(|name| self.assign(name, Growth::any(growth.copies))),
            _ => Err("only a name can be set".to_owned()),
        }
    }

    /// Keeps for each name the higher of both bounds.
    fn merge(&mut self, other: Self) {
        for (name, growth) in other.assigned {
            self.assigned.entry(name).and_modify(|known| *known = known.or(growth)).or_insert(growth);
        }
        self.items.extend(other.items);
        self.most = self.most.max(other.most);
        self.reads_again |= other.reads_again;
    }

    fn bounded(&mut self, copies: u32) -> Measured<u32> {
        self.most = self.most.max(copies);
        if copies <= MAX_COPIES {
            return Ok(copies);
        }
        Err(format!("it could become more than {MAX_COPIES} times as large as the input"))
    }

    fn expression(&mut self, expression: &Expr<'_>) -> Measured<Growth> {
        let growth = self.growth(expression)?;
        self.bounded(growth.copies)?;
        Ok(growth)
    }

    fn growth(&mut self, expression: &Expr<'_>) -> Measured<Growth> {
        Ok(match expression {
            Expr::Const(constant) => match constant.value.kind() {
                minijinja::value::ValueKind::Number => Growth::NUMBER,
                minijinja::value::ValueKind::String => Growth::text(1),
                _ => Growth::VALUE,
            },
            Expr::Var(name) => {
                self.reads_again |= self.loops > 0 && self.items.get(name.id) != Some(&self.loops);
                self.assigned.get(name.id).copied().unwrap_or_else(|| self.field(name.id))
            }
            Expr::GetAttr(attribute) => match &attribute.expr {
                Expr::Var(name) if name.id == "input" && !self.assigned.contains_key("input") => {
                    self.reads_again |= self.loops > 0;
                    self.field(attribute.name)
                }
                Expr::Var(name) if name.id == "loop" => {
                    // `loop.previtem` is an item of a list that was measured before.
                    if attribute.name.ends_with("item") { Growth::any(self.most.max(1)) } else { Growth::NUMBER }
                }
                of => Growth::any(self.expression(of)?.copies),
            },
            Expr::GetItem(item) => {
                self.expression(&item.subscript_expr)?;
                Growth::any(self.expression(&item.expr)?.copies)
            }
            Expr::Slice(slice) => {
                for bound in [&slice.start, &slice.stop, &slice.step].into_iter().flatten() {
                    self.expression(bound)?;
                }
                self.expression(&slice.expr)?
            }
            Expr::UnaryOp(operation) => {
                self.expression(&operation.expr)?;
                Growth::NUMBER
            }
            Expr::BinOp(operation) => {
                let (left, right) = (self.expression(&operation.left)?, self.expression(&operation.right)?);
                binary(operation.op, left, right)?
            }
            Expr::Compare(comparison) => {
                self.expression(&comparison.expr)?;
                for operation in &comparison.ops {
                    self.expression(&operation.expr)?;
                }
                Growth::NUMBER
            }
            Expr::IfExpr(choice) => {
                self.expression(&choice.test_expr)?;
                let chosen = self.expression(&choice.true_expr)?;
                match &choice.false_expr {
                    Some(other) => chosen.or(self.expression(other)?),
                    None => Growth::any(chosen.copies),
                }
            }
            Expr::Test(test) => {
                self.expression(&test.expr)?;
                self.arguments(&test.args)?;
                Growth::NUMBER
            }
            Expr::Filter(filter) => self.filter(filter)?,
            Expr::Call(call) => self.call(call)?,
            Expr::List(list) => self.all(list.items.iter())?,
            Expr::Tuple(tuple) => self.all(tuple.items.iter())?,
            Expr::Map(map) => self.all(map.keys.iter().chain(&map.values))?,
        })
    }

    /// The bound of a field of the input.
    fn field(&self, name: &str) -> Growth {
        if (self.is_number)(name) { Growth::NUMBER } else { Growth::VALUE }
    }

    /// The bound of a collection of these items.
    fn all<'a, 'source: 'a>(&mut self, items: impl Iterator<Item = &'a Expr<'source>>) -> Measured<Growth> {
        let mut copies: u32 = 0;
        for item in items {
            // Constants together are at most as large as the template.
            let growth = self.expression(item)?;
            copies = copies.saturating_add(if is_constant(item) { 0 } else { growth.copies });
        }
        Ok(Growth::any(copies.max(1)))
    }

    fn arguments(&mut self, arguments: &[CallArg<'_>]) -> Measured<Growth> {
        let expressions = arguments.iter().map(|argument| match argument {
            CallArg::Pos(expression)
            | CallArg::Kwarg(_, expression)
            | CallArg::PosSplat(expression)
            | CallArg::KwargSplat(expression) => expression,
        });
        self.all(expressions)
    }

    fn filter(&mut self, filter: &Filter<'_>) -> Measured<Growth> {
        let Some(operand) = &filter.expr else { return Err("a filter needs a value before it".to_owned()) };
        let operand = self.expression(operand)?;
        let arguments = self.arguments(&filter.args)?;
        Ok(match filter.name {
            name if NUMBER_FILTERS.contains(&name) => Growth::NUMBER,
            "default" | "d" => operand.or(arguments),
            name if PART_FILTERS.contains(&name) => Growth::any(operand.copies.max(arguments.copies)),
            // A letter becomes an item, or each item becomes another.
            name if LIST_FILTERS.contains(&name) => Growth::any(operand.copies.saturating_mul(4).max(arguments.copies)),
            "string" => Growth::text(operand.as_text()),
            // One character can become three.
            "lower" | "upper" | "title" => Growth::text(operand.as_text().saturating_mul(3)),
            "b64url" => Growth::text(operand.as_text().saturating_mul(2)),
            // A control character becomes `\u0000`.
            "json" => Growth::text(operand.copies.saturating_mul(6)),
            // These count what they write while they do.
            "join" | "replace" => Growth::text(operand.as_text().max(8)),
            // There are no others; the engine says so.
            _ => Growth::any(operand.copies),
        })
    }

    fn call(&mut self, call: &Call<'_>) -> Measured<Growth> {
        let arguments = self.arguments(&call.args)?;
        self.reads_again |= self.loops > 0;
        match &call.expr {
            Expr::Var(function) => Ok(match function.id {
                "mime_message" => Growth::text(arguments.as_text()),
                _ => arguments,
            }),
            Expr::GetAttr(method) if matches!(&method.expr, Expr::Var(of) if of.id == "loop") => Ok(arguments),
            Expr::GetAttr(method) => {
                Err(format!("values have no method `{}`; perhaps the filter `|{0}` is meant", method.name))
            }
            _ => Err("only a function can be called".to_owned()),
        }
    }
}

/// Whether it is a constant, or a list or an object of constants.
fn is_constant(expression: &Expr<'_>) -> bool {
    match expression {
        Expr::Const(_) => true,
        Expr::List(list) => list.items.iter().all(is_constant),
        Expr::Map(map) => map.keys.iter().chain(&map.values).all(is_constant),
        _ => false,
    }
}

fn binary(operation: BinOpKind, left: Growth, right: Growth) -> Measured<Growth> {
    let numbers = left.kind == Kind::Number && right.kind == Kind::Number;
    Ok(match operation {
        BinOpKind::Add if numbers => Growth::NUMBER,
        BinOpKind::Add => Growth::any(left.copies.saturating_add(right.copies)),
        BinOpKind::Concat => Growth::text(left.as_text().saturating_add(right.as_text())),
        BinOpKind::ScAnd | BinOpKind::ScOr => left.or(right),
        BinOpKind::Mul if !numbers => {
            return Err("`*` could repeat a text; for numbers write `a|int * b|int` or `a|float * b|float`".to_owned());
        }
        _ => Growth::NUMBER,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Templates that would take gigabytes, or hours.
    const BOMBS: [&str; 22] = [
        "{{ a ~ a }}{% for x in [a ~ a ~ a ~ a] %}{% for y in [x ~ x ~ x ~ x] %}{% for z in [y ~ y ~ y ~ y] %}{{ z }}{% endfor %}{% endfor %}{% endfor %}",
        "{% set x = a %}{% for i in range(99) %}{% set x = x ~ x %}{% endfor %}{{ x }}",
        "{% set x = [a] %}{% for i in range(99) %}{% set x = x + x %}{% endfor %}{{ x }}",
        "{% set x = a ~ a %}{% set x = x ~ x %}{% set x = x ~ x %}{% set x = x ~ x %}{% set x = x ~ x %}{% set x = x ~ x %}{{ x ~ x }}",
        "{% set x %}{{ a }}{{ a }}{% endset %}{{ x }}",
        "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}{{ m(m(m(a))) }}",
        "{% filter upper %}{{ a }}{% endfilter %}",
        "{% with x = a ~ a %}{{ x }}{% endwith %}",
        "{% for x in a recursive %}{{ loop(x) }}{% endfor %}",
        "{{ a * 1000000 }}",
        "{{ 'a' * 100000000 }}",
        "{{ [a] * 1000000 }}",
        "{{ 1000000 * a }}",
        "{{ [[[[[[[a]|string]|string]|string]|string]|string]|string]|string }}",
        "{{ [[[[[[[a] ~ ''] ~ ''] ~ ''] ~ ''] ~ ''] ~ ''] ~ '' }}",
        "{{ a|b64url|b64url|b64url|b64url|b64url|b64url|b64url }}",
        "{{ a|list|string|list|string|list|string|list|string }}",
        "{% if b %}{% set x = [a, a, a, a, a, a, a, a] %}{% else %}{% set x = a %}{% endif %}{{ [x, x, x, x, x, x, x, x, x] }}",
        "{{ [a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a] }}",
        "{{ dict(x=[a, a, a, a, a, a], y=[a, a, a, a, a, a])|items|list|string|list }}",
        "{{ a.replace('a', 'b') }}",
        "{% include 'other' %}",
    ];

    #[test]
    fn a_template_that_could_multiply_its_values_is_refused() {
        for bomb in BOMBS {
            assert!(of_template(bomb, &|_| false).is_err(), "{bomb}");
        }
    }

    #[test]
    fn the_bound_is_that_of_the_largest_expression() {
        for (template, copies) in [
            ("plain", 0),
            ("{{ a }}{{ a }}{{ a }}", 2),
            ("{{ a|int * b|int + 3 }}", 1),
            ("{{ a ~ '/' ~ b }}", 5),
            ("{{ {'a': [{'x': 1}, {'x': 2}], 'b': {'y': {'z': 3}}}[a] }}", 2),
            ("{% for part in path|split('/') %}{% if not loop.first %}/{% endif %}{{ part }}{% endfor %}", 8),
            ("{% set found = label|default('none') %}{% if found is string %}{{ found }}{% endif %}", 2),
            ("{% for x in a %}{% set y = x|trim %}{{ loop.index }}: {{ y }}{% endfor %}", 2),
            (
                "{{ mime_message(to=a, cc=a, bcc=a, subject=a, body=a, html=a, in_reply_to=a, references=a) | b64url }}",
                32,
            ),
        ] {
            assert_eq!(of_template(template, &|_| false).expect("within bounds").copies, copies, "{template}");
        }
        let total = "input.amount|float * input.price|float > 100 or 'x' in input.to";
        assert_eq!(of_expression(total, &|_| false).expect("bounded").copies, 1);
        assert_eq!(of_template("{{ n * 3 * input.n }}", &|name| name == "n").expect("numbers").copies, 1);
    }

    #[test]
    fn what_is_missing_is_said_with_what_there_is() {
        for (template, said) in [
            ("{{ a * 2 }}", "a|int * b|int"),
            ("{{ a.upper() }}", "`|upper`"),
            ("{% set x %}{% endset %}", "`set NAME = VALUE`"),
            ("{% for i in b %}{% set x = x ~ i %}{% endfor %}", ""),
        ] {
            let error = of_template(template, &|_| false).expect_err("it has no bound").to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_loop_that_reads_only_its_item_is_told_from_others() {
        for (template, reads_again) in [
            ("{% for i in l %}{{ i|trim }}{% if not loop.last %},{% endif %}{% endfor %}{{ x }}", false),
            ("{% for i in l %}{% set t = i.name ~ '!' %}{% for c in t %}{{ c }}{% endfor %}{% endfor %}", false),
            ("{% for i in l %}{{ x }}{% endfor %}", true),
            ("{% for i in l %}{% for c in i %}{{ i }}{% endfor %}{% endfor %}", true),
            ("{% for i in l %}{% for j in l %}{{ j }}{% endfor %}{% endfor %}", true),
            ("{% set y = x %}{% for i in l %}{{ i in y }}{% endfor %}", true),
            ("{% for i in l %}{% for j in range(9) %}{% endfor %}{% endfor %}", true),
        ] {
            assert_eq!(of_template(template, &|_| false).expect("bounded").reads_again, reads_again, "{template}");
        }
    }
}
