//! Measures the floor: the cost of the machine itself.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::path::Path;

use rusqlite::Connection;

use crate::Effort;
use crate::measure::{self, Samples, in_turns};
use crate::table::Table;
use crate::world::World;

pub(crate) fn measure(effort: Effort, table: &mut Table) {
    let world = World::new();
    let mut commit = durable_commit(&world.state());
    let mut write = durable_write(&world.state());
    let mut bare = || measure::run(&mut measure::bare());
    let [bare, commit, write] = in_turns(effort.runs, &mut [&mut bare, &mut commit, &mut write]);
    let row = |table: &mut Table, what: &str, samples: &Samples| table.time(what, None, samples, None);
    row(table, "floor: a bare process (`true`)", &bare);
    row(table, "floor: a durable commit (SQLite, WAL, FULL)", &commit);
    row(table, "floor: 4 KiB written and synced", &write);
}

/// Commits one row per call, with the same durability settings as the executor's store.
pub(crate) fn durable_commit(folder: &Path) -> impl FnMut() + use<> {
    std::fs::create_dir_all(folder).expect("made");
    let connection = Connection::open(folder.join("floor.db")).expect("opened");
    connection.pragma_update(None, "journal_mode", "WAL").expect("set");
    connection.pragma_update(None, "synchronous", "FULL").expect("set");
    connection.execute_batch("CREATE TABLE rows (id INTEGER PRIMARY KEY, text TEXT)").expect("made");
    let text = "x".repeat(300);
    move || {
        connection.execute("INSERT INTO rows (text) VALUES (?1)", [&text]).expect("inserted");
    }
}

fn durable_write(folder: &Path) -> impl FnMut() + use<> {
    std::fs::create_dir_all(folder).expect("made");
    let mut file = File::create(folder.join("floor")).expect("made");
    let bytes = [7; 4096];
    move || {
        file.rewind().expect("rewound");
        file.write_all(&bytes).expect("written");
        file.sync_all().expect("synced");
    }
}
