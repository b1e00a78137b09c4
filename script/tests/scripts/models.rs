//! Scripts as language models write them, unchanged, with the results that their authors expect.

use script::{Call, CallError, CallKind, ErrorClass, Json, Outcome, Start};
use serde_json::{Value, json};

use super::host::{data, play_with, start};

mod first;
mod second;

/// A title, a script, and its result as JSON.
type Sample = (&'static str, &'static str, &'static str);

/// Orders, mails, customers and files, as subtools return them.
struct World {
    /// How often `flaky` was called.
    attempts: u64,
    sent: Vec<Value>,
}

impl World {
    fn answer(&mut self, call: &Call) -> Outcome {
        let input = call.input.to_value().expect("an input that can be read");
        match (call.kind, call.name.as_deref().unwrap_or_default()) {
            (CallKind::AskUser, _) => data(
                &json!({"answer": if input["question"].as_str().is_some_and(|text| text.contains("Send")) { "yes" } else { "no" }}),
            ),
            (CallKind::ListTools, _) => data(
                &json!({"tools": [{"name": "shop_search_orders"}, {"name": "mail_send"}], "query": input["query"]}),
            ),
            (CallKind::Read, _) => data(&json!({"text": "alpha\nbeta\ngamma\n", "id": input["id"]})),
            (CallKind::Sleep, _) => data(&Value::Null),
            (CallKind::Run, "shop_search_orders") => orders(&input),
            (CallKind::Run, "shop_get_order") => order(input["id"].as_u64().unwrap_or(0)),
            (CallKind::Run, "mail_list") => {
                let ids: Vec<_> = (1..=20).map(|id| json!({"id": format!("m{id}")})).collect();
                data(&json!({"messages": ids}))
            }
            (CallKind::Run, "mail_read") => mail(input["id"].as_str().unwrap_or_default()),
            (CallKind::Run, "mail_draft" | "mail-send" | "sheet_append") => {
                self.sent.push(input);
                data(&json!({"id": format!("d{}", self.sent.len()), "ok": true}))
            }
            (CallKind::Run, "flaky") => {
                self.attempts += 1;
                if self.attempts.is_multiple_of(3) {
                    data(&json!({"value": 42}))
                } else {
                    failure("rate_limited", "slow down", ErrorClass::Error)
                }
            }
            (CallKind::Run, "files_delete") => failure("denied", "the user said no", ErrorClass::Denied),
            (CallKind::Run, "pay") => failure("timeout", "no reply", ErrorClass::OutcomeUnknown),
            (CallKind::Run, "export_csv") => data(&json!("id,name,city\n1,\"Ann, A.\",Rome\n2,Bob,Oslo\n")),
            (CallKind::Run, "raw_json") => data(&json!("{\"items\": [{\"n\": 1}, {\"n\": 2}]}")),
            (CallKind::Run, "customers") => data(&json!([
                {"id": 1, "name": "Zoë", "email": "ZOE@example.com", "tags": ["vip", "eu"], "address": {"city": "Paris"}},
                {"id": 2, "name": "adam", "email": "adam@example.com", "tags": [], "address": null},
                {"id": 3, "name": "Émile", "email": "zoe@example.com", "tags": ["eu"]},
                {"id": 4, "name": "Bob", "email": "bob@example.org", "tags": ["vip"]}
            ])),
            (kind, name) => panic!("an unexpected call: {kind:?} {name}"),
        }
    }
}

fn failure(code: &str, message: &str, class: ErrorClass) -> Outcome {
    let details = Some(Json::from(&json!({"retry_after_ms": 20})));
    Outcome::Error(CallError { code: code.to_owned(), message: message.to_owned(), hint: None, details, class })
}

/// Seven orders, three on a page.
fn orders(input: &Value) -> Outcome {
    let customers = ["Ann", "Bob", "Ann", "Cy", "Bob", "Ann", "Dee"];
    let all: Vec<_> = customers.iter().enumerate().map(|(index, customer)| {
        let statuses = ["paid", "open", "paid"];
        let total = [10.1, 20.2, 30.3, 5.0, 99.99, 0.1, 1234.5][index];
        json!({
            "id": index + 1, "customer": {"name": customer, "id": format!("c_{customer}")}, "status": statuses[index % 3],
            "total": total, "currency": "USD",
            "created_at": format!("2026-0{}-1{index}T08:30:00Z", 1 + index % 3)
        })
    }).collect();
    let page = usize::try_from(input["page"].as_u64().unwrap_or(1)).unwrap_or(1);
    let size = usize::try_from(input["page_size"].as_u64().unwrap_or(3)).unwrap_or(3);
    let rows: Vec<_> = all.iter().skip((page - 1) * size).take(size).cloned().collect();
    let next = (page * size < all.len()).then_some(page + 1);
    data(&json!({"orders": rows, "next_page": next, "count": all.len()}))
}

fn order(id: u64) -> Outcome {
    if id > 7 || id == 0 {
        return failure("not_found", &format!("no order {id}"), ErrorClass::Error);
    }
    data(
        &json!({"id": id, "items": [{"sku": format!("sku-{id}"), "qty": id, "price": 2.5}], "shipped": id.is_multiple_of(2)}),
    )
}

fn mail(id: &str) -> Outcome {
    let number: u64 = id.trim_start_matches('m').parse().unwrap_or(0);
    let subject =
        if number.is_multiple_of(5) { format!("Invoice #{}", 1000 + number) } else { format!("Hello {number}") };
    data(&json!({
        "id": id, "from": format!("Person {number} <p{}@example.com>", number % 4), "subject": subject,
        "body": format!("Dear team,\n\nthe amount is ${}.50 due 2026-03-{:02}.\nCall +1 555 010{}.", number * 10, number, number % 10),
        "unread": number.is_multiple_of(2), "date": format!("2026-02-{number:02}T12:00:00Z")
    }))
}

fn with_world(source: &str) -> Start {
    let mut start = start(source);
    start.tools.clear();
    for name in [
        "shop_search_orders",
        "shop_get_order",
        "mail_list",
        "mail_read",
        "mail_draft",
        "flaky",
        "files_delete",
        "pay",
        "export_csv",
        "raw_json",
        "customers",
        "sheet_append",
    ] {
        start.tools.insert(name.to_owned(), name.to_owned());
    }
    start.tools.insert("mail_send".to_owned(), "mail-send".to_owned());
    start
}

#[test]
fn scripts_of_models_give_what_their_authors_expect() {
    let mut wrong = Vec::new();
    let samples: Vec<_> = first::SCRIPTS.iter().chain(second::SCRIPTS).collect();
    for (title, source, expected) in &samples {
        let mut world = World { attempts: 0, sent: Vec::new() };
        let played = play_with(with_world(source), |call| Some(world.answer(call)), |_| 0);
        let expected: Value = serde_json::from_str(expected).unwrap_or_else(|error| panic!("{title}: {error}"));
        let is_right = match played.last() {
            script::WorkerMessage::Done(done) => done.value.to_value().is_ok_and(|value| value == expected),
            _ => false,
        };
        if !is_right {
            wrong.push(format!("{title}: expected {expected}\n    got {:?}", played.last()));
        }
    }
    assert!(
        samples.len() >= 40 && wrong.is_empty(),
        "{} of {} are wrong:\n{}",
        wrong.len(),
        samples.len(),
        wrong.join("\n")
    );
}
