//! What changes of a MySQL or MariaDB server set off: foreign keys, and triggers as far as the user may see them.

use std::collections::{BTreeMap, BTreeSet};

use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use sql::schema::TableAccess;
use sql::schema::{ForeignKey, ReferenceAction, TableName, Trigger, TriggerBody};

use super::MysqlWorkError;

type Name = (String, String);
type ForeignKeyRow = (String, String, String, String, String, String, String, String, String);

/// The keys that refer to a table of the databases in `list`.
pub(super) async fn foreign_keys(conn: &mut Conn, list: &str) -> Result<Vec<ForeignKey>, MysqlWorkError> {
    let rows: Vec<ForeignKeyRow> = conn
        .query(format!(
            "SELECT k.constraint_name, k.table_schema, k.table_name, k.column_name, k.referenced_table_schema, \
             k.referenced_table_name, k.referenced_column_name, r.delete_rule, r.update_rule \
             FROM information_schema.key_column_usage AS k JOIN information_schema.referential_constraints AS r \
             ON r.constraint_schema = k.constraint_schema AND r.constraint_name = k.constraint_name \
             AND r.table_name = k.table_name \
             WHERE k.referenced_table_schema IN ({list}) ORDER BY k.ordinal_position"
        ))
        .await?;
    let mut keys: BTreeMap<(Name, String), ForeignKey> = BTreeMap::new();
    for (constraint, schema, name, column, to_schema, to_name, to_column, on_delete, on_update) in rows {
        let key = keys.entry(((schema.clone(), name.clone()), constraint)).or_insert_with(|| ForeignKey {
            child: TableName { schema, name },
            child_columns: Vec::new(),
            parent: TableName { schema: to_schema, name: to_name },
            parent_columns: Vec::new(),
            on_delete: ReferenceAction::of(&on_delete),
            on_update: ReferenceAction::of(&on_update),
        });
        key.child_columns.push(column);
        key.parent_columns.push(to_column);
    }
    Ok(keys.into_values().collect())
}

/// The database, table, event, body and circumstances of a trigger.
type TriggerRow = (String, String, String, Option<String>, Option<String>);

/// The triggers of the databases in `list`. The server shows them to those who have the right `TRIGGER`.
pub(super) async fn triggers(conn: &mut Conn, list: &str) -> Result<Vec<Trigger>, MysqlWorkError> {
    let rows: Vec<TriggerRow> = conn
        .query(format!(
            "SELECT event_object_schema, event_object_table, CAST(event_manipulation AS CHAR), CAST(action_statement AS CHAR), \
             CAST(concat_ws(' ', action_timing, action_order, definer, sql_mode) AS CHAR) \
             FROM information_schema.triggers WHERE event_object_schema IN ({list})"
        ))
        .await?;
    let trigger = |(schema, name, events, text, more): TriggerRow| {
        let definition = [&events, more.as_deref().unwrap_or_default(), text.as_deref().unwrap_or_default()].join("\n");
        let events = events.to_uppercase();
        let fired_by =
            [("INSERT", TableAccess::Insert), ("UPDATE", TableAccess::Update), ("DELETE", TableAccess::Delete)];
        let body = text
            .filter(|text| !text.is_empty())
            .map_or(TriggerBody::Unknown, |text| TriggerBody::Text { text, has_own_path: false });
        Trigger {
            table: TableName { schema, name },
            events: fired_by
                .into_iter()
                .filter(|(word, _)| events.contains(word))
                .map(|(_, access)| access)
                .collect::<BTreeSet<_>>(),
            columns: Vec::new(),
            body,
            definition,
        }
    };
    Ok(rows.into_iter().map(trigger).collect())
}
