//! The shipped packs: their definitions are valid, and the subtools of Gmail and GitHub work.

use definition::Definition;
use ground::task::failure::{Failure, SideEffect};
use protocol::code::Code;
use runner::Runner as _;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::fixture::{Fixture, json_of, pack, run_of, selected};
use crate::myworld::World;

/// Runs the subtools of one pack against the simulated services.
struct PackSubtools {
    fixture: Fixture,
    pack: Map<String, Value>,
}

impl PackSubtools {
    fn new(name: &str, world: &World) -> Self {
        let hosts = ["gmail.googleapis.com", "oauth2.googleapis.com", "api.github.com"];
        let endpoints = hosts.map(|host| (format!("https://{host}"), world.endpoint(host)));
        let fixture = Fixture::with(|config| config.http.endpoints.extend(endpoints))
            .secret("google", &world.google_token)
            .secret("github", &world.github_token);
        Self { fixture, pack: pack(name) }
    }

    /// The data as a caller gets it, after `result.select`.
    async fn run(&self, name: &str, input: Value) -> Value {
        let data = json_of(self.outcome(name, input).await);
        match self.pack[name]["result"]["select"].as_str() {
            Some(select) => selected(&data, select),
            None => data,
        }
    }

    async fn outcome(&self, name: &str, input: Value) -> Result<runner::RunnerOutput, Failure> {
        let definition = &self.pack[name];
        let validator = jsonschema::validator_for(&definition["input"]).expect("a schema");
        assert!(validator.is_valid(&input), "{name}: {input}");
        let run = run_of(definition["run"].clone());
        run.perform(&self.fixture.invocation(input), &self.fixture.context, &CancellationToken::new()).await
    }
}

#[test]
fn every_definition_loads_and_its_examples_are_valid_and_can_be_planned() {
    let fixture = Fixture::new();
    for name in ["gmail.json", "github.json", "web.json"] {
        for (name, subtool) in pack(name) {
            let run = subtool["run"].clone();
            if run.get("http").is_none() {
                continue;
            }
            let definition: Definition =
                serde_json::from_value(subtool).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(definition.run.check(), [], "{name}");
            assert!(definition.confirm.is_none() && !definition.examples.is_empty(), "{name}");
            let schema = Value::Object(definition.input.clone());
            let validator = jsonschema::validator_for(&schema).expect("a schema");
            for property in schema["properties"].as_object().expect("properties").values() {
                assert!(property["description"].as_str().is_some_and(|text| text.ends_with('.')), "{name}: {property}");
            }
            for example in definition.examples {
                let input = Value::Object(example.input);
                assert!(validator.is_valid(&input), "{name}: {input}");
                let plan = definition.run.plan(&fixture.invocation(input), &fixture.context.config);
                assert!(plan.is_ok(), "{name}: {plan:?}");
            }
        }
    }
}

#[test]
fn a_mail_with_an_injected_header_cannot_be_planned() {
    let fixture = Fixture::new();
    let run = run_of(pack("gmail.json")["gmail_send_message"]["run"].clone());
    let input = json!({"to": ["a@b.example"], "subject": "Hi\r\nBcc: eve@example.com", "body": "x"});
    let failure = run.plan(&fixture.invocation(input), &fixture.context.config).expect_err("refused");
    assert_eq!(failure.error.code, Code::TemplateFailed);
}

#[tokio::test]
async fn a_mail_can_be_found_read_labeled_and_trashed() {
    let Some(world) = World::start().await else { return };
    let subtools = PackSubtools::new("gmail.json", &world);
    let wanted = world.insert_mail("年度报告 2026", "请看附件。\n第二行", &["INBOX", "UNREAD", "work"]).await;
    world.insert_mail("年度报告 home", "other", &["INBOX"]).await;

    let found = subtools.run("gmail_search_messages", json!({"search_query": "年度报告", "label": "work"})).await;
    assert_eq!(found, json!([{"id": wanted, "threadId": wanted}]));
    assert_eq!(subtools.run("gmail_search_messages", json!({"search_query": "nothing-like-it"})).await, json!([]));
    let both = subtools.run("gmail_search_messages", json!({"search_query": "年度报告"})).await;
    assert_eq!(both.as_array().map(Vec::len), Some(2));

    let mail = subtools.run("gmail_read_message", json!({"message_id": wanted})).await;
    assert_eq!((&mail["subject"], &mail["body"]), (&json!("年度报告 2026"), &json!("请看附件。\n第二行")));
    assert_eq!((&mail["from"], &mail["attachments"]), (&json!("Bob <bob@example.com>"), &json!([])));

    let labels = subtools.run("gmail_list_labels", json!({})).await;
    let work = world.label("work").await;
    assert!(labels.as_array().expect("labels").contains(&json!({"id": work, "name": "work", "type": "user"})));
    let change = json!({"message_id": wanted, "add_label_ids": ["STARRED"], "remove_label_ids": ["UNREAD"]});
    assert_eq!(subtools.run("gmail_modify_labels", change).await["labelIds"], json!(["INBOX", work, "STARRED"]));
    let trashed = subtools.run("gmail_trash_message", json!({"message_id": wanted})).await;
    assert!(trashed["labelIds"].as_array().expect("labels").contains(&json!("TRASH")));
    let left = subtools.run("gmail_search_messages", json!({"search_query": "年度报告", "label": "work"})).await;
    assert_eq!(left, json!([]));
}

#[tokio::test]
async fn a_mail_is_sent_once_with_the_right_content() {
    let Some(world) = World::start().await else { return };
    let subtools = PackSubtools::new("gmail.json", &world);
    let question = world.insert_mail("报告?", "When?", &["INBOX"]).await;
    let question = subtools.run("gmail_read_message", json!({"message_id": question})).await;
    let input = json!({
        "to": ["王芳 <fang@example.com>", "bob@example.com"], "cc": ["Eve Lee <eve@example.com>"],
        "subject": "报告?", "body": "附件是年度报告。\n\n— Ann", "html": "<p>年度报告</p>",
        "thread_id": question["threadId"], "in_reply_to": question["message_id_header"]
    });
    let answer = subtools.run("gmail_send_message", input).await;
    let sent = world.sent().await;
    assert_eq!(sent.len(), 1);
    assert_eq!((&sent[0]["id"], &sent[0]["threadId"]), (&answer["id"], &question["threadId"]));
    let read = subtools.run("gmail_read_message", json!({"message_id": answer["id"]})).await;
    assert_eq!((&read["subject"], &read["body"]), (&json!("报告?"), &json!("附件是年度报告。\n\n— Ann")));
    assert_eq!(read["to"], "王芳 <fang@example.com>, bob@example.com");
    assert_eq!(read["cc"], "Eve Lee <eve@example.com>");

    let draft = json!({"to": ["bob@example.com"], "subject": "草稿", "body": "later"});
    let draft = subtools.run("gmail_create_draft", draft).await;
    let stored =
        world.gmail(reqwest::Method::GET, &format!("drafts/{}", draft["id"].as_str().expect("an id")), None).await;
    assert_eq!(stored["message"]["labelIds"], json!(["DRAFT"]));
    assert_eq!(world.sent().await.len(), 1);
}

#[tokio::test]
async fn a_mail_whose_request_times_out_may_have_been_sent() {
    let faults =
        json!([{"server": "gmail", "tool": "gmail.users.messages.send", "kind": "timeout_after_commit", "on_call": 1}]);
    let Some(world) = World::with_faults(faults).await else { return };
    let subtools = PackSubtools::new("gmail.json", &world);
    let input = json!({"to": ["bob@example.com"], "subject": "once", "body": "only"});
    let failure = subtools.outcome("gmail_send_message", input).await.expect_err("a timeout");
    assert_eq!((failure.error.code, failure.side_effect), (Code::ApiError, SideEffect::Possible), "{failure:?}");
    assert_eq!(world.sent().await.len(), 1);
    let asked = world.calls().await.into_iter().filter(|call| call["tool"] == "gmail.users.messages.send").count();
    assert_eq!(asked, 1);
}

#[tokio::test]
async fn a_failure_has_the_message_of_gmail() {
    let Some(world) = World::start().await else { return };
    let subtools = PackSubtools::new("gmail.json", &world);
    let failure = subtools.outcome("gmail_read_message", json!({"message_id": "nope"})).await.expect_err("unknown");
    assert!(failure.error.message.contains("Requested entity was not found. (NOT_FOUND)"), "{}", failure.error.message);
    subtools.fixture.set("google", "ya29.wrong-token");
    let failure = subtools.outcome("gmail_list_labels", json!({})).await.expect_err("refused");
    assert_eq!(failure.error.details["http_status"], json!(401));
    assert!(!format!("{failure:?}").contains("wrong-token"), "{failure:?}");
}

#[tokio::test]
async fn a_google_refresh_token_is_enough() {
    let Some(world) = World::start().await else { return };
    let subtools = PackSubtools::new("gmail.json", &world);
    let client = json!({
        "type": "authorized_user", "token_uri": "https://oauth2.googleapis.com/token", "client_id": "id",
        "client_secret": "s3cret-client", "refresh_token": world.google_token
    });
    subtools.fixture.set("google", &client.to_string());
    assert!(subtools.run("gmail_list_labels", json!({})).await.as_array().is_some_and(|labels| labels.len() > 5));
    let mut revoked = client;
    revoked["refresh_token"] = json!("ya29.a0revoked.signature");
    subtools.fixture.set("google", &revoked.to_string());
    let failure = subtools.outcome("gmail_list_labels", json!({})).await.expect_err("revoked");
    assert_eq!(failure.error.code, Code::NeedsReauthorization);
}

#[tokio::test]
async fn every_subtool_of_github_works() {
    let Some(world) = World::start().await else { return };
    let subtools = PackSubtools::new("github.json", &world);
    let at = |more: Value| {
        let mut input = json!({"owner": "acme", "repo": "api"});
        input.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        input
    };
    assert_eq!(subtools.run("github_get_repository", at(json!({}))).await["full_name"], "acme/api");
    let found = subtools.run("github_search_repositories", json!({"query": "acme"})).await;
    assert_eq!(found["total_count"], json!(2));
    let code = subtools.run("github_search_code", json!({"query": "backoff repo:acme/api"})).await;
    assert!(code["items"].as_array().is_some_and(|items| !items.is_empty()), "{code}");
    let readme = subtools.run("github_get_file_contents", at(json!({"path": "README.md"}))).await;
    assert_eq!(readme["text"], "# Acme API\n\nPayments and billing API.\n");
    let folder = subtools.run("github_get_file_contents", at(json!({"path": "src"}))).await;
    assert_eq!(folder.as_array().map(Vec::len), Some(2), "{folder}");

    let mut numbers = Vec::new();
    for number in 0..7 {
        let input = at(json!({"title": format!("问题 {number}"), "body": "b", "labels": ["bug"]}));
        numbers.push(subtools.run("github_create_issue", input).await["number"].clone());
    }
    let listed = subtools.run("github_list_issues", at(json!({"labels": ["bug"], "limit": 7}))).await;
    assert_eq!(listed.as_array().map(Vec::len), Some(7));
    assert_eq!(listed[0]["title"], "问题 6");
    // As GitHub's, the search's index lags behind.
    world.advance(3600).await;
    let found = subtools.run("github_search_issues", json!({"query": "repo:acme/api is:issue 问题", "limit": 3})).await;
    assert_eq!((&found["total_count"], found["items"].as_array().map(Vec::len)), (&json!(7), Some(3)));

    let number = &numbers[0];
    subtools.run("github_comment_on_issue", at(json!({"number": number, "body": "第一"}))).await;
    let comments = subtools.run("github_list_issue_comments", at(json!({"number": number}))).await;
    assert_eq!((&comments[0]["body"], &comments[0]["user"]), (&json!("第一"), &json!("alex-rivera")));
    let closed = subtools.run("github_update_issue", at(json!({"number": number, "state": "closed"}))).await;
    assert_eq!((&closed["state"], &closed["title"]), (&json!("closed"), &json!("问题 0")));
    assert_eq!(subtools.run("github_get_issue", at(json!({"number": number}))).await["comments"], json!(1));

    let pulls = subtools.run("github_list_pull_requests", at(json!({}))).await;
    assert_eq!(pulls[0]["head"], "fix/flaky-retry");
    let pull = subtools.run("github_get_pull_request", at(json!({"number": pulls[0]["number"]}))).await;
    assert_eq!(pull["title"], "Fix flaky retry jitter");
}

#[tokio::test]
async fn github_pages_are_followed_through_the_configured_endpoint() {
    let Some(world) = World::start().await else { return };
    let mut subtools = PackSubtools::new("github.json", &world);
    for number in 0..5 {
        let input = json!({"owner": "acme", "repo": "web", "title": format!("page me {number}")});
        subtools.run("github_create_issue", input).await;
    }
    subtools.pack["github_list_issues"]["run"]["http"]["query"]["per_page"] = json!(2);
    let input = json!({"owner": "acme", "repo": "web", "limit": 5});
    let success = subtools.outcome("github_list_issues", input).await.expect("it succeeds");
    assert_eq!(success.meta.get("pages"), Some(&json!(3)));
    assert_eq!(json_of(Ok(success)).as_array().map(Vec::len), Some(5));
}
