//! Every view of the page, in both themes, on a desk and on a phone: readable by everybody, and seen.
//!
//! `AGENT_MAGIC_TOOL_TEST_AXE` names axe-core's script, which checks contrast, roles, names and order; without
//! it that part is skipped loudly. Where `AGENT_MAGIC_TOOL_PICTURES` names a folder, the first screen of each
//! view is kept there, and the whole of it below `whole/`.

use std::io::Write as _;
use std::path::PathBuf;

use super::ann::Ann;
use crate::browser::Tab;

const THEMES: [&str; 2] = ["light", "dark"];
/// A desk and a phone.
const SIZES: [(u32, u32); 2] = [(1280, 900), (390, 844)];

/// A view: its name, its address, and what is done there before it is looked at.
type Scene = (&'static str, String, &'static str);

/// The script that finds what keeps somebody from using the page.
fn axe() -> Option<String> {
    let Ok(path) = std::env::var("AGENT_MAGIC_TOOL_TEST_AXE") else {
        // Past the harness, which would keep it to itself.
        writeln!(
            std::io::stderr(),
            "SKIPPED: accessibility; AGENT_MAGIC_TOOL_TEST_AXE does not name axe-core's script"
        )
        .expect("said");
        return None;
    };
    Some(std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}")))
}

fn pictures() -> Option<PathBuf> {
    std::env::var_os("AGENT_MAGIC_TOOL_PICTURES").map(PathBuf::from)
}

/// Looks at each scene everywhere; what is wrong with any of them.
async fn look(tab: &mut Tab, origin: &str, scenes: &[Scene], may_complain: bool) -> Vec<String> {
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
            if !may_complain {
                wrong.extend(tab.complaints.iter().map(|complaint| format!("{scene}: {complaint}")));
            }
            tab.complaints.clear();
            let wide = tab.value("document.documentElement.scrollWidth").await.as_u64().expect("a number");
            if wide > u64::from(width) {
                wrong.push(format!("{scene}: it is {wide} wide, and scrolls sideways"));
            }
            if let Some(folder) = pictures() {
                tab.picture(&folder.join(format!("{scene}.png"))).await;
                tab.whole_picture(&folder.join("whole").join(format!("{scene}.png"))).await;
            }
            if let Some(axe) = &axe {
                wrong.extend(barriers(tab, axe).await.iter().map(|barrier| format!("{scene}: {barrier}")));
            }
        }
    }
    wrong
}

/// What axe-core finds, each with where and why.
async fn barriers(tab: &mut Tab, axe: &str) -> Vec<String> {
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
async fn every_view_is_readable_in_both_themes_on_a_desk_and_on_a_phone() {
    let ann = Ann::new();
    let day = ann.works();
    let Some(mut tab) = ann.world.human().await else { return };
    let origin = ann.world.site().origin();
    let at_rest: [Scene; 1] = [("empty", "/".to_owned(), "")];
    let mut wrong = look(&mut tab, &origin, &at_rest, false).await;

    let waiting = ann.has_before_her();
    let scroll = "document.querySelector('[data-kind=question]').scrollIntoView({block: 'start', behavior: 'instant'}); \
                  scrollBy({top: -90, behavior: 'instant'})";
    let scenes: [Scene; 16] = [
        ("waiting", "/".to_owned(), ""),
        ("question", "/".to_owned(), scroll),
        ("editing", "/".to_owned(), "document.querySelector('[data-opens=edit]').click()"),
        ("remembering", "/".to_owned(), "document.querySelector('[data-opens=remember]').click()"),
        ("denying", "/".to_owned(), "document.querySelector('[data-opens=deny]').click()"),
        ("help", "/".to_owned(), "document.querySelector('[data-action=help]').click()"),
        ("tasks", "/tasks".to_owned(), ""),
        ("history", "/history".to_owned(), ""),
        ("search", "/history?q=push&state=succeeded".to_owned(), ""),
        ("task", format!("/task/{}", day.denied), ""),
        ("task-result", format!("/task/{}", day.read), ""),
        ("task-granted", format!("/task/{}", day.granted), ""),
        ("task-unknown", format!("/task/{}", day.lost), ""),
        ("grants", "/grants".to_owned(), ""),
        ("subtools", "/subtools".to_owned(), ""),
        ("subtool", "/subtool/gmail_send_message".to_owned(), ""),
    ];
    wrong.extend(look(&mut tab, &origin, &scenes, false).await);
    // What is nowhere, and what waits, as a task of its own.
    let more: [Scene; 2] =
        [("task-waiting", format!("/task/{}", waiting[0]), ""), ("nowhere", "/nowhere".to_owned(), "")];
    wrong.extend(look(&mut tab, &origin, &more[..1], false).await);
    wrong.extend(look(&mut tab, &origin, &more[1..], true).await);
    // Somebody without a session.
    let mut stranger = Tab::open().await.expect("the browser runs");
    wrong.extend(look(&mut stranger, &origin, &[("login", "/".to_owned(), "")], true).await);
    assert_eq!(wrong, [] as [String; 0]);
}
