//! Nothing outside the roots is ever read, and no failure reveals what exists there.

use runner::Runner as _;
use std::os::unix::fs::symlink;
use std::time::Duration;

use ground::task::failure::SideEffect;
use nix::sys::stat::Mode;
use protocol::caller::Caller;
use protocol::code::Code;
use runner::Invocation;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{World, json_of, runner, shipped};

const SECRET: &str = "text outside the roots";

/// A caller's folder with every kind of link out of it.
fn world_with_links_out() -> World {
    let world = World::new();
    std::fs::create_dir(world.outside().join("deep")).expect("a folder");
    std::fs::write(world.outside().join("deep/secret.txt"), SECRET).expect("a file");
    world.write("inside.txt", "fine\n");
    world.write("sub/file.txt", "fine\n");
    let home = world.home();
    let outside = world.outside();
    symlink(outside.join("deep/secret.txt"), home.join("link.txt")).expect("a link to a file");
    symlink("../outside/deep/secret.txt", home.join("relative-link.txt")).expect("a relative link");
    symlink(outside.join("nothing"), home.join("dangling.txt")).expect("a link to nothing");
    symlink(&outside, home.join("linked")).expect("a link to a folder");
    symlink("/etc", home.join("etc")).expect("a link to a folder of the system");
    symlink("inside.txt", home.join("good-link.txt")).expect("a link that stays inside");
    world
}

#[tokio::test]
async fn no_path_leads_out() {
    let world = world_with_links_out();
    let outside = world.outside().to_string_lossy().into_owned();
    let home = world.home().to_string_lossy().into_owned();
    let paths = [
        "../outside/deep/secret.txt".to_owned(),
        "sub/../../outside/deep/secret.txt".to_owned(),
        "./sub/./../../outside/deep/secret.txt".to_owned(),
        format!("{home}/../outside/deep/secret.txt"),
        format!("{outside}/deep/secret.txt"),
        "/etc/passwd".to_owned(),
        "/proc/self/environ".to_owned(),
        "link.txt".to_owned(),
        "relative-link.txt".to_owned(),
        "linked/deep/secret.txt".to_owned(),
        "etc/passwd".to_owned(),
        "sub/../etc/passwd".to_owned(),
        "linked".to_owned(),
        "..".to_owned(),
        "/".to_owned(),
    ];
    for (subtool, input) in
        [("files_read", json!({})), ("files_search", json!({"pattern": "."})), ("files_list", json!({}))]
    {
        let run = shipped("files", subtool);
        for path in &paths {
            let mut input = input.clone();
            input["path"] = json!(path);
            let failure = world.failure(&run, input).await;
            assert_eq!(
                (failure.error.code, failure.side_effect),
                (Code::OutsideRoots, SideEffect::None),
                "{subtool} {path}"
            );
            assert!(!format!("{failure:?}").contains(SECRET));
        }
    }
}

#[tokio::test]
async fn a_path_that_leads_out_fails_the_same_way_whether_or_not_something_is_there() {
    let world = world_with_links_out();
    let run = shipped("files", "files_read");
    let outside = world.outside().to_string_lossy().into_owned();
    let pairs = [
        ("../outside/deep/secret.txt".to_owned(), "../outside/deep/nothing.txt".to_owned()),
        (format!("{outside}/deep/secret.txt"), format!("{outside}/deep/nothing.txt")),
        ("linked/deep/secret.txt".to_owned(), "linked/nothing/nothing.txt".to_owned()),
        ("link.txt".to_owned(), "dangling.txt".to_owned()),
    ];
    for (there, not_there) in pairs {
        let masked = |failure: ground::task::failure::Failure, path: &str| {
            (
                failure.error.code,
                failure.error.message.replace(path, "PATH"),
                failure.error.hint,
                Value::Object(failure.error.details),
            )
        };
        let first = masked(world.failure(&run, json!({"path": there})).await, &there);
        assert_eq!(first, masked(world.failure(&run, json!({"path": not_there})).await, &not_there));
        assert_eq!(first.0, Code::OutsideRoots);
    }
}

#[tokio::test]
async fn a_path_inside_may_be_written_in_any_way() {
    let world = world_with_links_out();
    let run = shipped("files", "files_read");
    let absolute = world.home().join("inside.txt").to_string_lossy().into_owned();
    for path in ["inside.txt", "./inside.txt", "sub/../inside.txt", "good-link.txt", &absolute] {
        let data = world.data(&run, json!({"path": path})).await;
        assert_eq!((&data["text"], &data["path"]), (&json!("fine\n"), &json!("inside.txt")), "{path}");
    }
    for path in ["nothing.txt", "inside.txt/x", "nothing/../inside.txt"] {
        let failure = world.failure(&run, json!({"path": path})).await;
        assert_eq!((failure.error.code, failure.side_effect), (Code::NotFound, SideEffect::None), "{path}");
    }
    let failure = world.failure(&run, json!({"path": "a\0b"})).await;
    assert_eq!(failure.error.code, Code::Rejected);
}

#[tokio::test]
async fn a_walk_never_leaves_through_a_link() {
    let world = world_with_links_out();
    let data = world.data(&shipped("files", "files_search"), json!({"pattern": "outside|fine|root"})).await;
    let paths: Vec<_> = data["matches"].as_array().into_iter().flatten().map(|hit| hit["path"].clone()).collect();
    assert_eq!(paths, [json!("inside.txt"), json!("sub/file.txt")]);
    let data = world.data(&shipped("files", "files_list"), json!({"glob": "**/*"})).await;
    let links: Vec<_> =
        data["entries"].as_array().into_iter().flatten().filter(|entry| entry["type"] == "link").collect();
    assert_eq!(links.len(), 6, "{data}");
    assert!(!data.to_string().contains("secret.txt"), "{data}");
}

#[tokio::test]
async fn pipes_and_devices_are_refused_without_waiting_for_them() {
    let world = World::new();
    nix::unistd::mkfifo(&world.home().join("pipe"), Mode::S_IRWXU).expect("a named pipe");
    world.write("file.txt", "word\n");
    let run = shipped("files", "files_read");
    let failure = world.failure(&run, json!({"path": "pipe"})).await;
    assert_eq!(failure.error.code, Code::Rejected);
    let failure = world.failure(&run, json!({"path": "."})).await;
    assert_eq!(failure.error.code, Code::Rejected, "a folder is not a file");
    let found = world.data(&shipped("files", "files_search"), json!({"pattern": "word"})).await;
    assert_eq!((found["files_searched"].as_u64(), found["matches"].as_array().map(Vec::len)), (Some(1), Some(1)));
    let found = world.data(&shipped("files", "files_search"), json!({"pattern": "word", "path": "pipe"})).await;
    assert_eq!(found["files_searched"], 0);
}

#[tokio::test]
async fn configured_roots_may_be_outside_the_callers_folder() {
    let mut world = World::new();
    std::fs::write(world.outside().join("note.txt"), "elsewhere\n").expect("a file");
    world.context.config.files.roots = vec![world.outside()];
    world.write("inside.txt", "not in a root\n");
    let run = shipped("files", "files_read");
    let absolute = world.outside().join("note.txt").to_string_lossy().into_owned();
    for path in ["note.txt", &absolute] {
        assert_eq!(world.data(&run, json!({"path": path})).await["text"], "elsewhere\n");
    }
    assert_eq!(world.failure(&run, json!({"path": "inside.txt"})).await.error.code, Code::NotFound);
    let absolute = world.home().join("inside.txt").to_string_lossy().into_owned();
    assert_eq!(world.failure(&run, json!({"path": absolute})).await.error.code, Code::OutsideRoots);

    // The caller's folder lies below the root: relative paths start there.
    std::fs::create_dir(world.outside().join("below")).expect("a folder");
    let invocation = Invocation {
        caller: Caller { folder: Some(world.outside().join("below")), ..Caller::default() },
        ..world.invocation(json!({"path": "../note.txt"}))
    };
    let outcome = runner(&run).perform(&invocation, &world.context, &CancellationToken::new()).await;
    assert_eq!(json_of(outcome.expect("a file in the root"))["text"], "elsewhere\n");
    // It lies above the root: they start there too if they lead into it, and at the root otherwise.
    let above = world.outside().parent().expect("a folder").to_owned();
    let name = world.outside().file_name().expect("a name").to_string_lossy().into_owned();
    for path in [format!("{name}/note.txt"), "note.txt".to_owned()] {
        let caller = Caller { folder: Some(above.clone()), ..Caller::default() };
        let invocation = Invocation { caller, ..world.invocation(json!({"path": path})) };
        let outcome = runner(&run).perform(&invocation, &world.context, &CancellationToken::new()).await;
        assert_eq!(json_of(outcome.expect("a file in the root"))["text"], "elsewhere\n", "{path}");
    }
}

#[tokio::test]
async fn without_a_callers_folder_there_is_no_root() {
    let world = World::new();
    let invocation =
        Invocation { caller: Caller { folder: None, ..Caller::default() }, ..world.invocation(json!({"path": "x"})) };
    let run = runner(&shipped("files", "files_read"));
    let failure = run.perform(&invocation, &world.context, &CancellationToken::new()).await.expect_err("no root");
    assert_eq!(failure.error.code, Code::OutsideRoots);
}

#[tokio::test]
async fn a_folder_that_is_replaced_with_a_link_never_exposes_its_target() {
    let world = World::new();
    let (home, outside) = (world.home(), world.outside());
    std::fs::write(outside.join("file.txt"), SECRET).expect("a file");
    world.write("real/file.txt", "fine");
    symlink(&outside, home.join("link-out")).expect("a link");
    let stop = CancellationToken::new();
    let swapping = {
        let (stop, home) = (stop.clone(), home.clone());
        tokio::task::spawn_blocking(move || {
            while !stop.is_cancelled() {
                for name in ["real", "link-out"] {
                    std::fs::rename(home.join(name), home.join("swapped")).expect("renamed");
                    std::fs::rename(home.join("swapped"), home.join(name)).expect("renamed back");
                }
            }
        })
    };
    let (read, search) = (shipped("files", "files_read"), shipped("files", "files_search"));
    let until = tokio::time::Instant::now() + Duration::from_millis(500);
    while tokio::time::Instant::now() < until {
        let outcomes = [
            world.perform(&read, json!({"path": "swapped/file.txt"})).await,
            world.perform(&search, json!({"pattern": "."})).await,
        ];
        for outcome in outcomes {
            assert!(!format!("{outcome:?}").contains(SECRET));
        }
    }
    stop.cancel();
    swapping.await.expect("the task should end");
}
