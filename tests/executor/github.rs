//! The GitHub pack against a GitHub-shaped server: an issue is created and found again.

use serde_json::json;

use crate::myworld;
use crate::world::World;

#[tokio::test]
async fn an_issue_is_created_once_and_found_again() {
    let Some(server) = myworld::World::start().await else { return };
    let world = World::new();
    let endpoint = server.endpoint("api.github.com");
    world.configure(&format!(
        "[confirm]\nwrites = \"allow\"\n[http.endpoints]\n\"https://api.github.com\" = \"{endpoint}\"\n"
    ));
    world.run_with(&["secret", "set", "github"], &server.github_token);

    let created = world.result_of(
        "github_create_issue",
        &json!({"owner": "acme", "repo": "api", "title": "年度报告 is late", "body": "Again."}),
    );
    assert_eq!(created["status"], "succeeded", "{created}");
    // The search index of the server lags behind, as GitHub's does.
    server.advance(3600).await;
    let found = world.result_of("github_search_issues", &json!({"query": "repo:acme/api is:issue 年度报告"}));
    assert_eq!(
        (&found["data"]["total_count"], &found["data"]["items"][0]["title"]),
        (&json!(1), &json!("年度报告 is late")),
        "{found}"
    );
    let calls =
        server.calls().await.into_iter().filter(|call| {
            call["tool"].as_str().is_some_and(|tool| tool.contains("issues") && tool.contains("create"))
        });
    assert_eq!(calls.count(), 1);
}
