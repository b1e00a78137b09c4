//! The schema of [`crate::world`] as a real SQLite database with rows.

use rusqlite::Connection;
use rusqlite::types::Value;

use crate::world::{TABLES, VIEWS};

/// Part of each hidden value.
pub(crate) const HIDDEN_VALUE: &str = "hidden-value";

const ROWS: &str = "
INSERT INTO customers VALUES
  (1, 'Ada', 'ada@example.org', 'Berlin', 'DE', '2024-01-05 10:00:00', 'hidden-value-1', 'hidden-value-a', '{\"a\":1}'),
  (2, 'Bob', 'bob@example.com', 'Rome', 'IT', '2024-02-07 11:30:00', 'hidden-value-2', 'hidden-value-b', NULL),
  (3, 'Cy', 'cy@example.org', NULL, 'DE', '2024-02-09 12:00:00', 'hidden-value-3', 'hidden-value-c', '{}'),
  (4, 'Di', 'di@example.com', 'Berlin', 'DE', '2024-03-01 08:00:00', 'hidden-value-4', 'hidden-value-d', NULL);
INSERT INTO orders VALUES
  (1, 1, 'open', 19.5, 1, '2024-01-06 10:00:00', NULL, NULL, '{\"channel\":\"web\"}'),
  (2, 1, 'paid', 120.0, 2, '2024-01-09 10:00:00', '2024-01-11 09:00:00', 'it''s urgent', '{\"channel\":\"shop\"}'),
  (3, 2, 'paid', 55.25, 3, '2024-02-10 10:00:00', '2024-02-12 09:00:00', NULL, '{\"channel\":\"web\"}'),
  (4, 3, 'open', 7.0, 1, '2024-02-20 10:00:00', NULL, 'none', '{}'),
  (5, 3, 'lost', 33.0, 4, '2024-03-02 10:00:00', '2024-03-04 09:00:00', NULL, '{\"channel\":\"mail\"}');
INSERT INTO products VALUES
  (1, 'Table', 100, 'home', '[\"wood\",\"big\"]', 'a table', NULL), (2, 'Lamp', 20, 'home', '[\"light\"]', 'a lamp', 1),
  (3, 'Tea', 5, 'food', '[]', 'red tea', 1), (4, 'a_b', 1, 'food', '[\"x\"]', '', 3), (5, 'Cup', 20, 'home', '[]', 'a cup', 2);
INSERT INTO order_items VALUES (1, 2, 1, 20), (2, 1, 1, 100), (2, 2, 1, 20), (3, 3, 11, 5), (4, 3, 1, 5), (5, 2, 1, 20);
INSERT INTO payroll VALUES (1, 4711);
";

pub(crate) fn open() -> Connection {
    let connection = Connection::open_in_memory().expect("SQLite takes the shop");
    for (table, columns) in TABLES {
        let columns: Vec<String> = columns.iter().map(|(name, type_name)| format!("{name} {type_name}")).collect();
        connection
            .execute_batch(&format!("CREATE TABLE {table} ({})", columns.join(", ")))
            .expect("SQLite takes the shop");
    }
    for (view, definition, _) in VIEWS.iter().filter(|(view, ..)| *view != "computed") {
        connection.execute_batch(&format!("CREATE VIEW {view} AS {definition}")).expect("SQLite takes the shop");
    }
    connection.execute_batch(ROWS).expect("SQLite takes the shop");
    connection
}

pub(crate) fn rows(connection: &Connection, sql: &str) -> Result<Vec<Vec<Value>>, rusqlite::Error> {
    let mut statement = connection.prepare(sql)?;
    let width = statement.column_count();
    let rows = statement.query_map([], |row| (0..width).map(|column| row.get(column)).collect())?;
    rows.collect()
}
