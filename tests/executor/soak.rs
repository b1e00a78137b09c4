//! The load of the soak test, for a few seconds: the program `examples/soak` runs it for half an hour and measures.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use protocol::mailbox::Mailbox;

use crate::world::{World, until};

#[path = "../../agent-magic-tool/examples/soak/load.rs"]
mod load;

/// Enough that each caller cancels several times.
const TASKS: u64 = 120;

#[derive(Debug)]
struct SoakWorld(World);

impl SoakWorld {
    fn work(&self) -> PathBuf {
        self.0.folder()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        self.0.command(arguments)
    }
}

#[test]
fn mixed_tasks_of_several_callers_end_as_they_should() {
    let world = SoakWorld(World::new());
    world.0.configure("[confirm]\nwrites = \"allow\"\n");
    world.0.define("soak.json", &load::definitions(&load::start_server()));
    std::fs::write(world.work().join("note.txt"), "one\ntwo\n").expect("written");
    assert_eq!(world.0.run(&["executor", "start"]).exit, 0);
    let mailbox = Mailbox::open(&world.0.mailbox()).expect("a mailbox");
    let (stop, counts) = (AtomicBool::new(false), load::Counts::default());
    thread::scope(|scope| {
        let callers: Vec<_> = (0..load::CALLERS)
            .map(|number| {
                let (world, mailbox, stop, counts) = (&world, &mailbox, &stop, &counts);
                scope.spawn(move || load::call(number, world, mailbox, stop, counts))
            })
            .collect();
        // A caller that fails ends before.
        until("the tasks ended", || {
            counts.ended.load(Ordering::Relaxed) >= TASKS || callers.iter().any(thread::ScopedJoinHandle::is_finished)
        });
        stop.store(true, Ordering::Relaxed);
    });
    assert!(counts.ended.into_inner() >= TASKS);
}
