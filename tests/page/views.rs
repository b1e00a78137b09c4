//! Every view of the page in both themes, on a desktop and on a phone: no errors, no sideways scrolling, accessible.
//!
//! `AGENT_MAGIC_TOOL_TEST_AXE` is the path of axe-core's script, which checks contrast, roles, names and order;
//! without it that check is skipped with a note. If `AGENT_MAGIC_TOOL_PICTURES` names a folder, screenshots go there:
//! the first screen of each view, and the whole page below `whole/`.

use std::path::PathBuf;

use super::human::Human;
use super::scenario::Scenario;
use crate::browser::Tab;
use crate::skip::skip;

const THEMES: [&str; 2] = ["light", "dark"];
/// A desktop and a phone.
const SIZES: [(u32, u32); 2] = [(1280, 900), (390, 844)];

/// A view: its name, its path, and a script that prepares it.
type Scene = (&'static str, String, &'static str);

/// The script of axe-core, which finds accessibility problems.
fn axe() -> Option<String> {
    let Ok(path) = std::env::var("AGENT_MAGIC_TOOL_TEST_AXE") else {
        skip("accessibility: AGENT_MAGIC_TOOL_TEST_AXE is not set to the path of axe-core's script");
        return None;
    };
    Some(std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}")))
}

fn screenshot_folder() -> Option<PathBuf> {
    std::env::var_os("AGENT_MAGIC_TOOL_PICTURES").map(PathBuf::from)
}

/// Opens each scene in each theme and size, and returns the problems found.
async fn check(tab: &mut Tab, origin: &str, scenes: &[Scene], ignores_errors: bool) -> Vec<String> {
    let axe = axe();
    let mut wrong = Vec::new();
    for (theme, (width, height)) in THEMES.into_iter().flat_map(|theme| SIZES.map(|size| (theme, size))) {
        tab.size(width, height, theme).await;
        for (name, path, first) in scenes {
            let scene = format!("{name}-{theme}-{width}");
            tab.go(&format!("{origin}{path}")).await;
            tab.until("!document.querySelector('[data-arming]')").await;
            if !first.is_empty() {
                tab.value(first).await;
                tab.until("!document.querySelector('[data-arming], [data-deciding]')").await;
            }
            if !ignores_errors {
                wrong.extend(tab.errors.iter().map(|error| format!("{scene}: {error}")));
            }
            tab.errors.clear();
            let wide = tab.value("document.documentElement.scrollWidth").await.as_u64().expect("a number");
            if wide > u64::from(width) {
                let beyond = format!(
                    "[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > {width})\
                     .slice(0, 3).map(e => e.outerHTML.slice(0, 120)).join(' | ')"
                );
                let beyond = tab.value(&beyond).await;
                wrong.push(format!("{scene}: the page is {wide} wide and scrolls sideways: {beyond}"));
            }
            if let Some(folder) = screenshot_folder() {
                tab.screenshot(&folder.join(format!("{scene}.png"))).await;
                tab.full_screenshot(&folder.join("whole").join(format!("{scene}.png"))).await;
            }
            if let Some(axe) = &axe {
                wrong
                    .extend(accessibility_problems(tab, axe).await.iter().map(|problem| format!("{scene}: {problem}")));
            }
        }
    }
    wrong
}

/// The violations that axe-core finds, each with its place and reason.
async fn accessibility_problems(tab: &mut Tab, axe: &str) -> Vec<String> {
    tab.value(&format!("{axe}; true")).await;
    let found = tab
        .value(
            "axe.run(document, {resultTypes: ['violations']}).then(found => found.violations.flatMap(rule => \
             rule.nodes.map(node => `${rule.id} at ${node.target.join(' ')}: ${node.failureSummary}`)))",
        )
        .await;
    let found = found.as_array().expect("a list");
    found.iter().map(|text| text.as_str().unwrap_or_default().replace('\n', " ")).collect()
}

#[tokio::test]
async fn every_view_works_in_both_themes_on_a_desktop_and_on_a_phone() {
    let scenario = Scenario::new();
    let finished = scenario.finish_tasks();
    let human = Human::of(&scenario.world);
    scenario.world.make_deciding_key(&human, "phone");
    scenario.world.make_api_key("nightly-build");
    // The tabs would tell of the other session.
    assert!(matches!(human.post("/logout", &serde_json::json!({})).status, 200 | 204));
    let Some(mut tab) = scenario.world.signed_in_tab().await else { return };
    let origin = scenario.world.site().origin();
    let empty: [Scene; 1] = [("empty", "/".to_owned(), "")];
    let mut wrong = check(&mut tab, &origin, &empty, false).await;

    let waiting = scenario.start_waiting_tasks();
    let scroll = "document.querySelector('[data-kind=question]').scrollIntoView({block: 'start', behavior: 'instant'}); \
                  scrollBy({top: -90, behavior: 'instant'})";
    let mail = "document.querySelector('[data-tool=gmail_send_message]').scrollIntoView({block: 'start', behavior: 'instant'}); \
                scrollBy({top: -90, behavior: 'instant'})";
    let scenes: [Scene; 19] = [
        ("waiting", "/".to_owned(), ""),
        ("mail", "/".to_owned(), mail),
        ("sessions", "/sessions".to_owned(), ""),
        ("question", "/".to_owned(), scroll),
        ("editing", "/".to_owned(), "document.querySelector('[data-opens=edit]').click()"),
        ("remembering", "/".to_owned(), "document.querySelector('[data-opens=remember]').click()"),
        ("denying", "/".to_owned(), "document.querySelector('[data-opens=deny]').click()"),
        ("help", "/".to_owned(), "document.querySelector('[data-action=help]').click()"),
        ("tasks", "/tasks".to_owned(), ""),
        ("history", "/history".to_owned(), ""),
        ("search", "/history?q=push&state=succeeded".to_owned(), ""),
        ("task", format!("/task/{}", finished.denied), ""),
        ("task-result", format!("/task/{}", finished.read), ""),
        ("task-granted", format!("/task/{}", finished.granted), ""),
        ("task-unknown", format!("/task/{}", finished.unknown), ""),
        ("grants", "/grants".to_owned(), ""),
        ("api-keys", "/api-keys".to_owned(), "document.querySelector('details.give').open = true"),
        ("subtools", "/subtools".to_owned(), ""),
        ("subtool", "/subtool/gmail_send_message".to_owned(), ""),
    ];
    wrong.extend(check(&mut tab, &origin, &scenes, false).await);
    // The page of a waiting task, and a path that does not exist: its status 404 is reported as an error.
    let more: [Scene; 2] =
        [("task-waiting", format!("/task/{}", waiting[0]), ""), ("nowhere", "/nowhere".to_owned(), "")];
    wrong.extend(check(&mut tab, &origin, &more[..1], false).await);
    wrong.extend(check(&mut tab, &origin, &more[1..], true).await);
    // A browser without a session.
    let mut stranger = Tab::open().await.expect("the browser runs");
    wrong.extend(check(&mut stranger, &origin, &[("login", "/".to_owned(), "")], true).await);
    assert_eq!(wrong, [] as [String; 0]);
}
