//! One walk through a syntax tree for all visitors.
//!
//! The parser's walk is compiled anew for each type of visitor, with half a megabyte of code each time. Here it is compiled
//! once for each type of what ends it.

use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, Ident, ObjectName, Query, Select, Statement, TableFactor, Visit as ParserVisit, Visitor as ParserVisitor,
};

/// What is done at each node, before its parts are walked through. What it leaves out is passed by.
pub(crate) trait Visitor<B> {
    fn visit_statement(&mut self, _: &Statement) -> ControlFlow<B> {
        ControlFlow::Continue(())
    }

    fn visit_query(&mut self, _: &Query) -> ControlFlow<B> {
        ControlFlow::Continue(())
    }

    fn visit_select(&mut self, _: &Select) -> ControlFlow<B> {
        ControlFlow::Continue(())
    }

    fn visit_relation(&mut self, _: &ObjectName) -> ControlFlow<B> {
        ControlFlow::Continue(())
    }

    fn visit_table_factor(&mut self, _: &TableFactor) -> ControlFlow<B> {
        ControlFlow::Continue(())
    }

    fn visit_expr(&mut self, _: &Expr) -> ControlFlow<B> {
        ControlFlow::Continue(())
    }

    fn visit_ident(&mut self, _: &Ident) -> ControlFlow<B> {
        ControlFlow::Continue(())
    }
}

/// Walks through `node` until `visitor` ends it.
pub(crate) fn walk<B>(node: &impl ParserVisit, visitor: &mut dyn Visitor<B>) -> ControlFlow<B> {
    node.visit(&mut ErasedVisitor(visitor))
}

/// Calls `visit` for each relation that `node` names, until it ends the walk.
pub(crate) fn walk_relations<B>(
    node: &impl ParserVisit,
    visit: impl FnMut(&ObjectName) -> ControlFlow<B>,
) -> ControlFlow<B> {
    struct Relations<F>(F);

    impl<B, F: FnMut(&ObjectName) -> ControlFlow<B>> Visitor<B> for Relations<F> {
        fn visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<B> {
            self.0(relation)
        }
    }

    walk(node, &mut Relations(visit))
}

struct ErasedVisitor<'a, B>(&'a mut dyn Visitor<B>);

impl<B> ParserVisitor for ErasedVisitor<'_, B> {
    type Break = B;

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<B> {
        self.0.visit_statement(statement)
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<B> {
        self.0.visit_query(query)
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<B> {
        self.0.visit_select(select)
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<B> {
        self.0.visit_relation(relation)
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<B> {
        self.0.visit_table_factor(factor)
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<B> {
        self.0.visit_expr(expr)
    }

    fn pre_visit_ident(&mut self, ident: &Ident) -> ControlFlow<B> {
        self.0.visit_ident(ident)
    }
}
