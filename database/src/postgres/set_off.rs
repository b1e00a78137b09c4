//! What changes of a PostgreSQL database set off: foreign keys, triggers, and rules.

use std::collections::BTreeSet;

use sql::schema::TableAccess;
use sql::schema::{ForeignKey, ReferenceAction, TableName, Trigger, TriggerBody};
use tokio_postgres::{Client, Row};

use super::PostgresWorkError;

const FOREIGN_KEYS: &str = "
SELECT n.nspname::text, c.relname::text, fn.nspname::text, fc.relname::text,
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum = ANY (k.conkey)),
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = fc.oid AND a.attnum = ANY (k.confkey)),
       CASE k.confdeltype WHEN 'c' THEN 'CASCADE' WHEN 'n' THEN 'SET NULL' WHEN 'd' THEN 'SET DEFAULT' ELSE '' END,
       CASE k.confupdtype WHEN 'c' THEN 'CASCADE' WHEN 'n' THEN 'SET NULL' WHEN 'd' THEN 'SET DEFAULT' ELSE '' END
FROM pg_catalog.pg_constraint AS k
JOIN pg_catalog.pg_class AS c ON c.oid = k.conrelid JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_class AS fc ON fc.oid = k.confrelid JOIN pg_catalog.pg_namespace AS fn ON fn.oid = fc.relnamespace
WHERE k.contype = 'f'";

/// Triggers that are on, with the text of their function, unless it is not in PL/pgSQL; that of a built-in one is empty.
/// A condition of a trigger stands in its definition.
const TRIGGERS: &str = "
SELECT n.nspname::text, c.relname::text, t.tgtype & 4 <> 0, t.tgtype & 16 <> 0, t.tgtype & 8 <> 0,
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute AS a
             WHERE a.attrelid = c.oid AND a.attnum = ANY (t.tgattr::int2[])),
       CASE WHEN l.lanname = 'plpgsql' THEN p.prosrc WHEN l.lanname = 'internal' THEN '' END,
       EXISTS (SELECT FROM unnest(p.proconfig) AS s WHERE s LIKE 'search_path=%'),
       CASE WHEN t.tgqual IS NOT NULL THEN pg_get_triggerdef(t.oid) END,
       concat_ws(E'\n', pg_get_triggerdef(t.oid), t.tgenabled, l.lanname, p.prosrc, p.probin, p.proconfig, p.prosecdef, p.proowner)
FROM pg_catalog.pg_trigger AS t
JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_proc AS p ON p.oid = t.tgfoid JOIN pg_catalog.pg_language AS l ON l.oid = p.prolang
WHERE NOT t.tgisinternal AND t.tgenabled <> 'D'";

/// Rules of changes. The numbers of their events are 2, 3 and 4.
const RULES: &str = "
SELECT n.nspname::text, c.relname::text, r.ev_type = '3', r.ev_type = '2', r.ev_type = '4', pg_get_ruledef(r.oid)
FROM pg_catalog.pg_rewrite AS r
JOIN pg_catalog.pg_class AS c ON c.oid = r.ev_class JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE r.ev_type <> '1' AND r.ev_enabled <> 'D' AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'";

pub(super) async fn foreign_keys(client: &Client) -> Result<Vec<ForeignKey>, PostgresWorkError> {
    let mut keys = Vec::new();
    for row in client.query(FOREIGN_KEYS, &[]).await? {
        keys.push(ForeignKey {
            child: table_name(&row, 0)?,
            parent: table_name(&row, 2)?,
            child_columns: row.try_get(4)?,
            parent_columns: row.try_get(5)?,
            on_delete: ReferenceAction::of(row.try_get(6)?),
            on_update: ReferenceAction::of(row.try_get(7)?),
        });
    }
    Ok(keys)
}

pub(super) async fn triggers(client: &Client) -> Result<Vec<Trigger>, PostgresWorkError> {
    let mut triggers = Vec::new();
    for row in client.query(TRIGGERS, &[]).await? {
        let definition: Option<String> = row.try_get(8)?;
        // Between these words stands the condition.
        let condition = definition.as_deref().and_then(|text| text.split_once(" WHEN ")).map(|(_, rest)| rest);
        let condition = condition.and_then(|text| text.rsplit_once(" EXECUTE ")).map_or("", |(condition, _)| condition);
        let body = match row.try_get::<_, Option<String>>(6)? {
            Some(text) => TriggerBody::Text { text: format!("{condition};\n{text}"), has_own_path: row.try_get(7)? },
            None => TriggerBody::Unknown,
        };
        let (table, definition) = (table_name(&row, 0)?, row.try_get(9)?);
        triggers.push(Trigger { table, events: events(&row)?, columns: row.try_get(5)?, body, definition });
    }
    for row in client.query(RULES, &[]).await? {
        let definition: Option<String> = row.try_get(5)?;
        // After its table stand a condition, `DO`, and what is done.
        let text = definition.as_deref().and_then(|text| text.split_once(" TO ")).map(|(_, rest)| rest);
        let body = text.map_or(TriggerBody::Unknown, |text| TriggerBody::Text {
            text: text.replacen(" DO ", " ; ", 1),
            has_own_path: false,
        });
        let (table, definition) = (table_name(&row, 0)?, definition.unwrap_or_default());
        triggers.push(Trigger { table, events: events(&row)?, columns: Vec::new(), body, definition });
    }
    Ok(triggers)
}

fn table_name(row: &Row, place: usize) -> Result<TableName, PostgresWorkError> {
    Ok(TableName { schema: row.try_get(place)?, name: row.try_get(place + 1)? })
}

/// The changes that fire it, of the columns 2 to 4.
fn events(row: &Row) -> Result<BTreeSet<TableAccess>, PostgresWorkError> {
    let mut events = BTreeSet::new();
    for (place, access) in [(2, TableAccess::Insert), (3, TableAccess::Update), (4, TableAccess::Delete)] {
        if row.try_get(place)? {
            events.insert(access);
        }
    }
    Ok(events)
}
