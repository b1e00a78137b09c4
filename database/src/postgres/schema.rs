//! Reads the tables of a PostgreSQL database that the user may read.

use std::collections::{BTreeMap, BTreeSet};

use sql::schema::{Column, Key, KeyColumn, Schema, Table, TableKind, TableName, UniqueKey, is_computed};
use tokio_postgres::Client;

use super::{PostgresWorkError, set_off};

/// Tables, views and the rest that a `SELECT` can name. A partition is left out: its table has all its rows.
const TABLES: &str = "
SELECT n.nspname::text, c.relname::text, c.relkind::text, obj_description(c.oid, 'pg_class'),
       CASE WHEN c.relkind IN ('v', 'm') THEN pg_get_viewdef(c.oid) END,
       CASE WHEN c.reltuples >= 0 THEN c.reltuples::int8 END,
       (SELECT o.option_value FROM pg_catalog.pg_foreign_table AS f, pg_options_to_table(f.ftoptions) AS o
        WHERE f.ftrelid = c.oid AND o.option_name = 'schema_name'),
       (SELECT o.option_value FROM pg_catalog.pg_foreign_table AS f, pg_options_to_table(f.ftoptions) AS o
        WHERE f.ftrelid = c.oid AND o.option_name = 'table_name'),
       EXISTS (SELECT FROM pg_catalog.pg_attribute AS a, pg_options_to_table(a.attfdwoptions) AS o
               WHERE a.attrelid = c.oid AND o.option_name = 'column_name' AND o.option_value <> a.attname)
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
  AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND has_schema_privilege(n.oid, 'USAGE')
  AND (has_table_privilege(c.oid, 'SELECT') OR has_any_column_privilege(c.oid, 'SELECT'))";

/// Functions that are not the database's own. One with the name of a built-in function is called where its types fit better.
const FUNCTIONS: &str = "
SELECT DISTINCT p.proname::text
FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
WHERE n.nspname <> 'pg_catalog' AND n.nspname <> 'information_schema'";

/// The columns of all tables, with the values of enumerations, also of domains over them and arrays of them.
const COLUMNS: &str = "
SELECT n.nspname::text, c.relname::text, a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull,
       pg_get_expr(d.adbin, d.adrelid), col_description(c.oid, a.attnum),
       ARRAY(SELECT e.enumlabel::text FROM pg_catalog.pg_enum AS e
             WHERE e.enumtypid IN (t.oid, t.typbasetype, t.typelem) ORDER BY e.enumsortorder),
       a.attidentity <> '', a.attgenerated <> ''
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
  AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
ORDER BY c.oid, a.attnum";

/// Keys, the most important first. A unique key of several columns makes none of them unique.
const KEYS: &str = "
SELECT n.nspname::text, c.relname::text, a.attname::text, k.contype::text, fn.nspname::text, fc.relname::text, fa.attname::text
FROM pg_catalog.pg_constraint AS k
JOIN pg_catalog.pg_class AS c ON c.oid = k.conrelid JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
CROSS JOIN LATERAL unnest(k.conkey, k.confkey) AS u(attnum, fattnum)
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = u.attnum
LEFT JOIN pg_catalog.pg_class AS fc ON fc.oid = k.confrelid
LEFT JOIN pg_catalog.pg_namespace AS fn ON fn.oid = fc.relnamespace
LEFT JOIN pg_catalog.pg_attribute AS fa ON fa.attrelid = fc.oid AND fa.attnum = u.fattnum
WHERE k.contype IN ('p', 'f') OR (k.contype = 'u' AND cardinality(k.conkey) = 1)
ORDER BY position(k.contype::text IN 'pfu'), k.oid, u.attnum";

/// Each table that inherits from another one, and each partition, with that one; the distance does not count.
const HEIRS: &str = "
WITH RECURSIVE heirs(child, parent) AS (
    SELECT inhrelid, inhparent FROM pg_catalog.pg_inherits
    UNION SELECT h.child, i.inhparent FROM heirs AS h JOIN pg_catalog.pg_inherits AS i ON i.inhrelid = h.parent)
SELECT cn.nspname::text, c.relname::text, pn.nspname::text, p.relname::text
FROM heirs JOIN pg_catalog.pg_class AS c ON c.oid = heirs.child JOIN pg_catalog.pg_namespace AS cn ON cn.oid = c.relnamespace
JOIN pg_catalog.pg_class AS p ON p.oid = heirs.parent JOIN pg_catalog.pg_namespace AS pn ON pn.oid = p.relnamespace
WHERE c.relkind IN ('r', 'p', 'f')";

/// The columns whose types hold rows of tables: directly, as elements of arrays, behind domains and inside composite types.
const ROWS_IN_COLUMNS: &str = "
WITH RECURSIVE part(whole, held) AS (
    SELECT oid, typelem FROM pg_catalog.pg_type WHERE typelem <> 0
    UNION ALL SELECT oid, typbasetype FROM pg_catalog.pg_type WHERE typtype = 'd'
    UNION ALL SELECT rngtypid, rngsubtype FROM pg_catalog.pg_range
    UNION ALL SELECT t.oid, a.atttypid FROM pg_catalog.pg_type AS t
        JOIN pg_catalog.pg_attribute AS a ON a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
        WHERE t.typtype = 'c'),
reached(root, held) AS (
    SELECT DISTINCT a.atttypid, a.atttypid FROM pg_catalog.pg_attribute AS a
    WHERE a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384
    UNION SELECT r.root, p.held FROM reached AS r JOIN part AS p ON p.whole = r.held)
SELECT n.nspname::text, c.relname::text, a.attname::text, tn.nspname::text, tc.relname::text
FROM reached AS r JOIN pg_catalog.pg_type AS t ON t.oid = r.held
JOIN pg_catalog.pg_class AS tc ON tc.oid = t.typrelid AND tc.relkind IN ('r', 'p', 'v', 'm', 'f')
JOIN pg_catalog.pg_namespace AS tn ON tn.oid = tc.relnamespace
JOIN pg_catalog.pg_attribute AS a ON a.atttypid = r.root AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'";

/// Unique indexes with the names of their columns, and whether they are about nothing else and about all rows.
const UNIQUE_KEYS: &str = "
SELECT n.nspname::text, c.relname::text,
       ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
             JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = k.attnum
             WHERE k.place <= i.indnkeyatts ORDER BY k.place),
       i.indexprs IS NULL AND i.indpred IS NULL
FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indrelid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE i.indisunique AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
ORDER BY i.indexrelid";

/// Reads the schemas that are named, or all.
pub(super) async fn read(client: &Client, schemas: Option<&[String]>) -> Result<Schema, PostgresWorkError> {
    let path = client.query_one("SELECT current_schemas(false)::text[]", &[]).await?;
    let search_path = path.try_get::<_, Vec<String>>(0)?;
    let mut tables: BTreeMap<TableName, Table> = BTreeMap::new();
    for row in client.query(TABLES, &[]).await? {
        let kind = match row.try_get::<_, &str>(2)? {
            "r" | "p" => TableKind::Base,
            "v" | "m" => TableKind::View { definition: row.try_get(4)? },
            // Columns with other names there could be hidden ones.
            "f" if !row.try_get::<_, bool>(8)? => {
                let schema = row.try_get::<_, Option<String>>(6)?.map_or_else(|| row.try_get(0), Ok)?;
                let name = row.try_get::<_, Option<String>>(7)?.map_or_else(|| row.try_get(1), Ok)?;
                TableKind::Foreign { remote: TableName { schema, name } }
            }
            _ => TableKind::Other,
        };
        let estimated_rows = row.try_get::<_, Option<i64>>(5)?.and_then(|rows| u64::try_from(rows).ok());
        let table = Table { kind, comment: row.try_get(3)?, columns: Vec::new(), estimated_rows };
        tables.insert(TableName { schema: row.try_get(0)?, name: row.try_get(1)? }, table);
    }
    for row in client.query(COLUMNS, &[]).await? {
        let name = TableName { schema: row.try_get(0)?, name: row.try_get(1)? };
        let Some(table) = tables.get_mut(&name) else { continue };
        let default: Option<String> = row.try_get(5)?;
        let (is_identity, is_generated) = (row.try_get(8)?, row.try_get::<_, bool>(9)?);
        table.columns.push(Column {
            name: row.try_get(2)?,
            type_name: row.try_get(3)?,
            nullable: !row.try_get::<_, bool>(4)?,
            // A generated column is computed from the others.
            is_filled: is_identity || (!is_generated && default.as_deref().is_some_and(is_computed)),
            default,
            key: None,
            comment: row.try_get(6)?,
            values: row.try_get(7)?,
        });
    }
    for row in client.query(KEYS, &[]).await? {
        let name = TableName { schema: row.try_get(0)?, name: row.try_get(1)? };
        let column: &str = row.try_get(2)?;
        let found = tables.get_mut(&name).and_then(|table| table.columns.iter_mut().find(|other| other.name == column));
        let Some(column) = found else { continue };
        let key = match row.try_get::<_, &str>(3)? {
            "p" => Key::Primary,
            "u" => Key::Unique,
            _ => {
                let table = TableName { schema: row.try_get(4)?, name: row.try_get(5)? };
                Key::Foreign { table, column: row.try_get(6)? }
            }
        };
        column.key.get_or_insert(key);
    }
    let functions = client.query(FUNCTIONS, &[]).await?.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    let mut heirs = BTreeSet::new();
    for row in client.query(HEIRS, &[]).await? {
        let name = |place: usize| {
            Ok::<_, tokio_postgres::Error>(TableName { schema: row.try_get(place)?, name: row.try_get(place + 1)? })
        };
        heirs.insert((name(0)?, name(2)?));
    }
    let mut rows_in_columns: BTreeMap<_, BTreeSet<TableName>> = BTreeMap::new();
    for row in client.query(ROWS_IN_COLUMNS, &[]).await? {
        let column = (TableName { schema: row.try_get(0)?, name: row.try_get(1)? }, row.try_get::<_, String>(2)?);
        let held = TableName { schema: row.try_get(3)?, name: row.try_get(4)? };
        rows_in_columns.entry(column).or_default().insert(held);
    }
    let mut unique_keys: BTreeMap<TableName, Vec<UniqueKey>> = BTreeMap::new();
    for row in client.query(UNIQUE_KEYS, &[]).await? {
        let columns = row.try_get::<_, Vec<String>>(2)?.into_iter().map(KeyColumn::new).collect();
        // A sequence may give a number that a row has.
        let key = UniqueKey { columns, is_plain: row.try_get(3)?, is_counted: false, replaces: false };
        let name = TableName { schema: row.try_get(0)?, name: row.try_get(1)? };
        unique_keys.entry(name).or_default().push(key);
    }
    if let Some(schemas) = schemas {
        tables.retain(|name, _| schemas.contains(&name.schema));
    }
    let foreign_keys = set_off::foreign_keys(client).await?;
    let triggers = set_off::triggers(client).await?;
    let is_part = schemas.is_some();
    let unseen_triggers = BTreeSet::new();
    Ok(Schema {
        search_path,
        tables,
        functions,
        heirs,
        rows_in_columns,
        unique_keys,
        foreign_keys,
        triggers,
        unseen_triggers,
        is_part,
    })
}
