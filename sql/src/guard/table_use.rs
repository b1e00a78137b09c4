//! What a statement does with the tables that it names.

use std::fmt;

use crate::schema::{TableAccess, TableName};

/// What a statement does with one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableUse {
    pub name: TableName,
    pub access: TableAccess,
}

/// Its stable text is part of the names by which rules call an access: `orders.read`, `orders.insert`.
impl fmt::Display for TableUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.name.schema, self.name.name, self.access.as_str())
    }
}
