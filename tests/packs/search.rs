//! The pack `search`: one description in front of three search engines, one of which the configuration names.

use serde_json::{Value, json};

use super::{FarSide, MIN_FIRST, data, error};
use crate::world::World;

const NEEDS: [&str; 1] = ["AGENT_MAGIC_TOOL_TEST_PRISM"];

/// The configuration for `engine` at `base`, with the pack in place of `web`.
fn config(engine: &str, base: &str) -> String {
    format!(
        "[catalog]\npacks = [\"files\", \"git\", \"github\", \"gmail\", \"human\", \"search\"]\n\
         [vars]\nsearch_engine = \"{engine}\"\nsearch_url = \"{base}/searx\"\n\
         [http]\nprivate_hosts = [\"127.0.0.1\"]\n\
         [http.endpoints]\n\"https://api.search.brave.com\" = \"{base}\"\n\"https://api.tavily.com\" = \"{base}/tavily\"\n"
    )
}

fn world(engine: &str, base: &str) -> World {
    let world = World::new();
    world.configure(&config(engine, base));
    for (name, key) in [("brave", "brave-key-of-the-tests"), ("tavily", "tvly-key-of-the-tests")] {
        assert_eq!(world.run_with(&["secret", "set", name], key).exit, 0);
    }
    world
}

#[tokio::test]
async fn every_engine_gives_results_of_one_shape() {
    let Some(engines) = FarSide::start("search.mjs", &NEEDS) else { return };
    let all = ["searxng", "brave", "tavily"].map(|engine| (engine, world(engine, &engines.base)));
    let search = |world: &World, tool: &str, input: Value| data(world, tool, &input);
    for (engine, world) in &all {
        let found = search(world, "search_web", json!({"query": "rust 年度", "limit": 2, "freshness": "week"}));
        let expected = json!([
            {"title": "Rust", "url": "https://www.rust-lang.org/", "snippet": "A language."},
            {"title": "年度报告", "url": "https://example.com/report", "snippet": "Revenue grew."}
        ]);
        assert_eq!(found, expected, "{engine}");
        let news = search(world, "search_news", json!({"query": "rust"}));
        assert_eq!((news.as_array().map(Vec::len), &news[0]["title"]), (Some(3), &json!("Rust")), "{engine}");
        assert!(news[0]["date"].is_string(), "{engine}: {news}");
    }
    assert_eq!(engines.requests("/searx/search").await.len(), 2);
    assert_eq!(engines.requests("/res/v1/").await.len(), 2);
    assert_eq!(engines.requests("/tavily/search").await.len(), 2);

    let [searxng, _, tavily] = all.map(|(_, world)| world);
    let page = format!("{}/page", engines.base);
    let extracted = data(&searxng, "search_extract", &json!({"url": page}));
    assert!(extracted["text"].as_str().is_some_and(|text| text.contains("The page.")), "{extracted}");
    let extracted = data(&tavily, "search_extract", &json!({"url": "https://www.rust-lang.org/"}));
    assert_eq!(extracted, json!({"url": "https://www.rust-lang.org/", "text": "A language."}));
    let unread = error(&tavily, "search_extract", &json!({"url": "https://example.com/none"}));
    assert_eq!(unread["message"], "the page could not be read: Failed to fetch url");
    engines.assert_no_problems().await;
}

#[test]
fn a_model_sees_the_same_subtools_whatever_the_engine_is() {
    let listed = |engine: &str| {
        let world = world(engine, "https://search.example.com");
        world.run(&["list", "tools", "--in=search", "--full"]).json()
    };
    let all = listed("searxng");
    assert_eq!(all.as_object().map(serde_json::Map::len), Some(3), "{all}");
    assert_eq!((&listed("brave"), &listed("tavily")), (&all, &all));
}

#[test]
fn requests_of_people_find_its_subtools() {
    let world = World::new();
    world.configure(&config("searxng", "https://search.example.com"));
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/packs/search.jsonl");
    let ran = world.run(&["lint", "--eval", file, &format!("--min={MIN_FIRST}")]);
    assert_eq!(ran.exit, 0, "{ran}");
}

#[test]
fn without_an_engine_it_says_what_to_set_and_an_unknown_one_is_a_mistake() {
    let said = |vars: &str| {
        let world = World::new();
        world.configure(&format!("[catalog]\npacks = [\"search\"]\n[vars]\n{vars}\n"));
        let ran = world.run(&["lint"]);
        assert_eq!(ran.exit, 2, "{ran}");
        ran.stdout
    };
    let missing = said("");
    let choices = "the variable `search_engine` (searxng, brave or tavily) is not set, so all 3 subtools";
    assert!(missing.contains(choices), "{missing}");
    assert!(!missing.contains("search_url"), "only the chosen engine needs its variables: {missing}");
    assert!(said("search_engine = \"bing\"").contains("is not one of its choices"));
    assert!(said("search_engine = \"searxng\"").contains("the variable `search_url`"));
    let world = World::new();
    world.configure("[catalog]\npacks = [\"search\"]\n[vars]\nsearch_engine = \"brave\"\n");
    assert_eq!(world.run(&["lint"]).exit, 0);
}
