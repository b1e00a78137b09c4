//! Read-only access to the store for the page.
//!
//! Uses its own connection: it reads only committed data and never waits for the executor.

use std::collections::HashMap;
use std::path::Path;

use ground::task::Task;
use ground::task::decide_scope::DecideScope;
use ground::task::grant::Grant;
use ground::task::part_of;
use protocol::task::{State, TaskId};
use rusqlite::{Connection, OpenFlags, params};

use super::{COLUMNS, decide_scopes, grants, steps, task};
use crate::{RecordedStep, StoreError};

/// The tasks that wait for a human and whose preview is complete, if they have one.
const READY_TO_APPROVE: &str =
    "state = 'awaiting_confirmation' AND coalesce(confirmation ->> 'preview', '') <> 'pending'";

/// A read-only connection to the store.
#[derive(Debug)]
pub struct RecordReader {
    connection: Connection,
}

/// Which ended tasks to look for.
#[derive(Debug, Default)]
pub struct HistoryFilter<'a> {
    /// A substring of the subtool's name, the input, the confirmation or the id.
    pub text: &'a str,
    pub state: Option<State>,
    pub tool: Option<&'a str>,
    /// Only tasks older than this one.
    pub before: Option<TaskId>,
}

/// How many tasks wait for a human and how many run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TaskCounts {
    pub waiting: u32,
    pub running: u32,
}

impl RecordReader {
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.busy_timeout(std::time::Duration::from_secs(5))?;
        Ok(Self { connection })
    }

    pub fn task(&self, id: TaskId) -> Result<Option<Task>, StoreError> {
        Ok(self.tasks("id = ?1", [id.to_string()])?.pop())
    }

    pub fn steps(&self, id: TaskId) -> Result<Vec<RecordedStep>, StoreError> {
        steps(&self.connection, id)
    }

    pub fn grants(&self) -> Result<Vec<Grant>, StoreError> {
        grants(&self.connection)
    }

    /// Returns the scope of every API key that ever could decide.
    pub fn decide_scopes(&self) -> Result<Vec<DecideScope>, StoreError> {
        decide_scopes::read(&self.connection)
    }

    /// Returns the tasks that a human can decide on, oldest first.
    pub fn waiting(&self, limit: u32) -> Result<Vec<Task>, StoreError> {
        self.tasks(&format!("{READY_TO_APPROVE} ORDER BY id LIMIT ?1"), [limit])
    }

    /// Returns the ids of the tasks that a human can decide on, oldest first.
    pub fn waiting_ids(&self, limit: u32) -> Result<Vec<String>, StoreError> {
        let sql = format!("SELECT id FROM tasks WHERE {READY_TO_APPROVE} ORDER BY id LIMIT ?1");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let ids = statement.query_map([limit], |row| row.get(0))?.collect::<Result<_, _>>()?;
        Ok(ids)
    }

    /// Returns the tasks that have not ended, oldest first.
    pub fn open_tasks(&self, limit: u32) -> Result<Vec<Task>, StoreError> {
        self.tasks("finished_at IS NULL ORDER BY id LIMIT ?1", [limit])
    }

    pub fn counts(&self) -> Result<TaskCounts, StoreError> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT state, count(*) FROM tasks WHERE finished_at IS NULL GROUP BY state")?;
        let mut counts = TaskCounts::default();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (state, count): (String, u32) = row.try_into()?;
            match state.parse() {
                Ok(State::AwaitingConfirmation) => counts.waiting = count,
                Ok(State::Running) => counts.running = count,
                _ => {}
            }
        }
        Ok(counts)
    }

    /// Returns the ended tasks that match `filter`, newest first.
    pub fn ended(&self, filter: &HistoryFilter<'_>, limit: u32) -> Result<Vec<Task>, StoreError> {
        let pattern = format!("%{}%", filter.text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_"));
        self.tasks(
            "finished_at IS NOT NULL
             AND (?1 IS NULL OR state = ?1) AND (?2 IS NULL OR tool = ?2) AND (?3 IS NULL OR id < ?3)
             AND (tool LIKE ?4 ESCAPE '\\' OR input LIKE ?4 ESCAPE '\\' OR id LIKE ?4 ESCAPE '\\'
                  OR confirmation LIKE ?4 ESCAPE '\\')
             ORDER BY id DESC LIMIT ?5",
            params![
                filter.state.map(State::as_str),
                filter.tool,
                filter.before.map(|id| id.to_string()),
                pattern,
                limit
            ],
        )
    }

    /// Returns the tasks that are parts of `whole`, such as the calls of a script, in the order in which they were made.
    pub fn parts_of(&self, whole: &Task, limit: u32) -> Result<Vec<Task>, StoreError> {
        let [call, step] = part_of::keys_of_parts(whole.id, &whole.caller);
        // Each key is a range of the index.
        let mut parts = Vec::new();
        for key in [call, step] {
            let end = format!("{key}\u{10ffff}");
            parts.extend(self.tasks(
                "uid = ?1 AND idempotency_key >= ?2 AND idempotency_key < ?3 ORDER BY id LIMIT ?4",
                params![whole.caller.uid, key, end, limit],
            )?);
        }
        parts.sort_by_key(|part| part.id);
        Ok(parts)
    }

    /// Returns the number of recorded tasks of each subtool.
    pub fn runs(&self) -> Result<HashMap<String, u32>, StoreError> {
        let mut statement = self.connection.prepare_cached("SELECT tool, count(*) FROM tasks GROUP BY tool")?;
        let counted = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
        Ok(counted)
    }

    /// Returns the last tasks of one subtool that needed confirmation, newest first, to show what a grant would cover.
    pub fn recent_confirmations(&self, tool: &str, limit: u32) -> Result<Vec<Task>, StoreError> {
        self.tasks("tool = ?1 AND confirmation IS NOT NULL ORDER BY id DESC LIMIT ?2", params![tool, limit])
    }

    /// Returns the last tasks of one subtool that a human approved on the page, newest first.
    pub fn approved(&self, tool: &str, limit: u32) -> Result<Vec<Task>, StoreError> {
        self.tasks(
            "tool = ?1 AND confirmation ->> '$.decision.verdict' IN ('approved', 'edited')
             AND confirmation ->> '$.decision.by.page' IS NOT NULL ORDER BY id DESC LIMIT ?2",
            params![tool, limit],
        )
    }

    /// Returns the tasks that the session of `task` made just before it, newest first. It looks at the last tasks of all
    /// sessions only, so that a long record does not make it slow.
    pub fn earlier_in_session(&self, task: &Task, limit: u32) -> Result<Vec<Task>, StoreError> {
        const MAX_LOOKED_AT: u32 = 500;
        let Some(session) = &task.caller.session else { return Ok(Vec::new()) };
        self.tasks(
            "id IN (SELECT id FROM tasks WHERE id < ?1 ORDER BY id DESC LIMIT ?4)
             AND caller ->> '$.session' = ?2 AND caller ->> '$.uid' = ?3 ORDER BY id DESC LIMIT ?5",
            params![task.id.to_string(), session, task.caller.uid, MAX_LOOKED_AT, limit],
        )
    }

    fn tasks(&self, condition: &str, parameters: impl rusqlite::Params) -> Result<Vec<Task>, StoreError> {
        let mut statement =
            self.connection.prepare_cached(&format!("SELECT {COLUMNS} FROM tasks WHERE {condition}"))?;
        statement.query_and_then(parameters, task)?.collect()
    }
}
