//! The databases themselves: SQLite, and real servers of PostgreSQL and MariaDB that `tests/databases` starts.

#[path = "../../sql/tests/guard/column.rs"]
mod column;
#[path = "../../sql/tests/guard/corpus.rs"]
mod corpus;
#[path = "database/crowds.rs"]
mod crowds;
#[path = "../../tests/database_server.rs"]
mod database_server;
#[path = "database/endings.rs"]
mod endings;
#[path = "database/failures.rs"]
mod failures;
#[path = "../../tests/free_port.rs"]
mod free_port;
#[path = "database/hostile.rs"]
mod hostile;
#[path = "database/schemas.rs"]
mod schemas;
#[path = "database/servers.rs"]
mod servers;
#[path = "../../tests/skip.rs"]
mod skip;
#[path = "database/values.rs"]
mod values;
#[path = "database/writes.rs"]
mod writes;
