//! Databases that a stranger's model may be let loose on.
//!
//! [`guard`] decides from the text which statements may run and rewrites them; [`database`] runs them, and has the
//! database itself refuse what the guard should have refused. Knows nothing of subtools, tasks and configuration
//! files, and decides nothing about who may ask.
//!
//! ```
//! use sql::database::{Database, DatabaseSettings, Freshness};
//! use sql::guard::Guard;
//! use sql::rules::{AccessLists, AccessRules};
//!
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("shop.db");
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! rusqlite::Connection::open(&file)?.execute_batch("CREATE TABLE customer (id INT, name TEXT, password TEXT)")?;
//! let database = Database::new(DatabaseSettings::new(&format!("sqlite://{}", file.display()))?)?;
//! let schema = database.schema(Freshness::Recent, &Default::default()).await?;
//! let rules = AccessRules::new(&AccessLists::default())?;
//! let guard = Guard { dialect: database.dialect(), schema: &schema, rules: &rules, max_rows: 100, may_write: false };
//! let checked = guard.check("SELECT * FROM customer")?;
//! assert!(checked.sql.ends_with("LIMIT 100") && !checked.sql.contains("password"), "{}", checked.sql);
//! assert!(guard.check("SELECT password FROM customer").is_err());
//! assert!(guard.check("DROP TABLE customer").is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod answer;
pub mod database;
pub mod dialect;
pub mod guard;
pub mod parameters;
pub mod rules;
pub mod schema;
pub mod value;
