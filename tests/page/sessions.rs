//! Sessions: where a human is signed in, who else is, and how one ends.

use ground::page_client::client::PageClient;
use ground::page_client::link::make_link;
use serde_json::json;

use super::hostile::{define_mark, written_marks};
use super::human::Human;
use crate::world::{World, is_alive, until};

#[tokio::test]
async fn an_open_tab_tells_of_another_browser_and_signs_it_out() {
    let world = World::new();
    define_mark(&world);
    let Some(mut tab) = world.signed_in_tab().await else { return };
    tab.until("document.querySelector('#new-session').hidden").await;
    // The first event has come, so the stream is open.
    tab.until("document.querySelector('[data-count=waiting]').textContent === '0'").await;
    let presence = || world.run(&["executor", "status"]).json()["page"]["online"] == true;
    until("the page is open", presence);
    let thief = Human::of(&world);
    tab.until("!document.querySelector('#new-session').hidden").await;
    assert!(tab.text("#new-session").await.contains("another program"));
    // What the other one decides is not this session's.
    let id = world.start("mark", &json!({"name": "other"}));
    assert_eq!(thief.approve(&id).status, 200);
    world.end_of(&id);
    tab.go(&format!("{}/history", world.site().origin())).await;
    tab.until("document.body.innerText.includes('approved by you, not in this session: program-')").await;
    tab.go(&format!("{}/task/{id}", world.site().origin())).await;
    tab.until("document.body.innerText.includes('you, in another session (program-')").await;
    tab.go(&format!("{}/sessions", world.site().origin())).await;
    tab.until("document.querySelectorAll('[data-session]').length === 2").await;
    assert!(tab.text("[data-session^=chromium]").await.contains("this browser"));
    let (mut stream, _) = thief.open_page();
    tab.click("[data-session^=program] [data-action=end-session]").await;
    tab.until("document.querySelectorAll('[data-session]').length === 1").await;
    assert_eq!(thief.get("/").status, 401);
    // Its open event stream ends as well.
    std::io::copy(&mut stream, &mut std::io::sink()).expect("the stream ends");
    let own = world.start("mark", &json!({"name": "own"}));
    tab.go(&format!("{}/", world.site().origin())).await;
    tab.card(&own).approve().await;
    until("the task has run", || written_marks(&world) == "other\nown\n");
    tab.go(&format!("{}/task/{own}", world.site().origin())).await;
    tab.until("document.body.innerText.includes('you, in this session (chromium-linux-')").await;
}

#[test]
fn one_session_signs_all_others_out() {
    let world = World::new();
    let (first, second, third) = (Human::of(&world), Human::of(&world), Human::of(&world));
    let answer = second.post("/sessions/end-others", &json!({}));
    assert_eq!((answer.status, answer.body.trim()), (200, "{\"ended\":2}"));
    assert_eq!([&first, &second, &third].map(|human| human.get("/").status), [401, 200, 401]);
    let ended = second.post("/sessions/end", &json!({"name": "program-0000"}));
    assert_eq!(ended.status, 404, "{}", ended.body);
}

/// The terminal of `agent chat` and of `demo`.
#[test]
fn the_terminal_is_a_session_like_any_other() {
    let world = World::new();
    let human = Human::of(&world);
    let terminal = PageClient::log_in(&world.executor_folder()).expect("the page answers");
    assert!(terminal.get("/").expect("a view").body.contains("signed-in"));
    assert!(human.get("/sessions").body.contains("your terminal"));
    terminal.log_out();
    assert!(!human.get("/sessions").body.contains("your terminal"));
}

/// A fresh link in a tab that was signed out, which changes only the fragment of its address.
#[tokio::test]
async fn a_fresh_link_works_in_a_tab_that_was_signed_out() {
    let world = World::new();
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let other = Human::of(&world);
    let secret = || make_link(&world.executor_folder()).expect("a link");
    assert_eq!(other.post("/sessions/end-others", &json!({})).status, 200);
    tab.until("document.querySelector('#banner').innerText.includes('signed out')").await;
    tab.value(&format!("location.hash = '{}'", secret())).await;
    tab.until("document.body.classList.contains('signed-in') && document.querySelector('#banner').hidden").await;
    // The same on the page that says how to sign in.
    assert_eq!(other.post("/sessions/end-others", &json!({})).status, 200);
    tab.go(&format!("{}/", world.site().origin())).await;
    tab.until("!document.querySelector('[data-login]').hidden").await;
    tab.value(&format!("location.hash = '{}'", secret())).await;
    tab.until("document.body.classList.contains('signed-in')").await;
    assert_eq!(tab.value("location.hash").await, "", "the secret is not left in the address");
}

/// The page's address ends with the executor, so a browser that is signed in keeps it.
#[tokio::test]
async fn the_executor_stays_while_a_browser_is_signed_in() {
    let world = World::new();
    world.configure("[executor]\nidle = \"2s\"\n[page]\nidle = \"10s\"\n");
    let (stream, _) = Human::of(&world).open_page();
    let Some(mut tab) = world.signed_in_tab().await else { return };
    drop(stream);
    let executor = world.executor().expect("a running executor");
    // The tab is discarded, as browsers do; its stream is closed.
    tab.go("about:blank#").await;
    let closed = || world.run(&["executor", "status"]).json()["page"]["online"] == false;
    until("the page is closed", closed);
    assert!(is_alive(executor), "the session can still be used");
    until("the session is over, and the executor ends", || !is_alive(executor));
}
