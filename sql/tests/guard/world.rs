//! A shop with customers, whose passwords are hidden, and a payroll that does not exist for the caller.

use sql::dialect::Dialect;
use sql::guard::{DEFAULT_MAX_ROWS, Guard, GuardedStatement, Refusal};
use sql::rules::{AccessLists, AccessRules};
use sql::schema::{Schema, Table, TableKind, TableName};

use crate::column::column;

/// A schema, rules, and the right to write or not.
pub(crate) struct World {
    pub(crate) dialect: Dialect,
    pub(crate) schema: Schema,
    pub(crate) rules: AccessRules,
    pub(crate) may_write: bool,
}

pub(crate) const DIALECTS: [Dialect; 3] = [Dialect::Sqlite, Dialect::Postgres, Dialect::Mysql];

/// The tables with their columns and types, as they are also made in a real database.
pub(crate) const TABLES: &[(&str, &[(&str, &str)])] = &[
    (
        "customers",
        &[
            ("id", "integer"),
            ("name", "text"),
            ("email", "text"),
            ("city", "text"),
            ("country", "text"),
            ("created_at", "timestamp"),
            ("password_hash", "text"),
            ("api_token", "text"),
            ("data", "json"),
        ],
    ),
    (
        "orders",
        &[
            ("id", "integer"),
            ("customer_id", "integer"),
            ("status", "text"),
            ("total", "numeric"),
            ("quantity", "integer"),
            ("created_at", "timestamp"),
            ("shipped_at", "timestamp"),
            ("note", "text"),
            ("details", "json"),
        ],
    ),
    (
        "order_items",
        &[("order_id", "integer"), ("product_id", "integer"), ("quantity", "integer"), ("price", "numeric")],
    ),
    (
        "products",
        &[
            ("id", "integer"),
            ("name", "text"),
            ("price", "numeric"),
            ("category", "text"),
            ("tags", "json"),
            ("description", "text"),
            ("parent_id", "integer"),
        ],
    ),
    ("payroll", &[("id", "integer"), ("salary", "numeric")]),
];

/// The views with their queries.
pub(crate) const VIEWS: &[(&str, &str, &[&str])] = &[
    ("open_orders", "SELECT id, customer_id, total FROM orders WHERE status = 'open'", &["id", "customer_id", "total"]),
    ("customer_names", "SELECT c.id, c.name FROM customers AS c", &["id", "name"]),
    ("customer_secrets", "SELECT id, password_hash AS p FROM customers", &["id", "p"]),
    ("customer_copies", "SELECT * FROM customers", &["id", "name", "email"]),
    ("secret_lengths", "SELECT id, length(p) AS n FROM customer_secrets", &["id", "n"]),
    ("salaries", "SELECT id, salary FROM payroll", &["id", "salary"]),
    ("computed", "SELECT my_function(id) AS x FROM orders", &["x"]),
];

pub(crate) fn schema_name(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => "main",
        Dialect::Postgres => "public",
        Dialect::Mysql => "shop",
    }
}

impl World {
    pub(crate) fn new(dialect: Dialect) -> Self {
        let lists = AccessLists { deny: vec!["payroll".to_owned()], ..AccessLists::default() };
        Self::with(dialect, &lists)
    }

    pub(crate) fn with(dialect: Dialect, lists: &AccessLists) -> Self {
        let schema = schema_name(dialect);
        let name = |name: &str| TableName { schema: schema.to_owned(), name: name.to_owned() };
        let tables = TABLES.iter().map(|(table, columns)| {
            let columns = columns.iter().map(|(column_name, type_name)| column(column_name, type_name)).collect();
            (name(table), Table { kind: TableKind::Base, comment: None, columns, estimated_rows: None })
        });
        let views = VIEWS.iter().map(|(view, definition, columns)| {
            let kind = TableKind::View { definition: Some((*definition).to_owned()) };
            let columns = columns.iter().map(|column_name| column(column_name, "text")).collect();
            (name(view), Table { kind, comment: None, columns, estimated_rows: None })
        });
        let tables = tables.chain(views).collect();
        Self {
            dialect,
            schema: Schema { search_path: vec![schema.to_owned()], tables, ..Schema::default() },
            rules: AccessRules::new(lists).expect("the patterns are valid"),
            may_write: false,
        }
    }

    pub(crate) fn writing(mut self) -> Self {
        self.may_write = true;
        self
    }

    pub(crate) fn check(&self, sql: &str) -> Result<GuardedStatement, Refusal> {
        self.guard().check(sql)
    }

    pub(crate) fn guard(&self) -> Guard<'_> {
        let Self { dialect, schema, rules, may_write } = self;
        Guard { dialect: *dialect, schema, rules, max_rows: DEFAULT_MAX_ROWS, may_write: *may_write }
    }
}
