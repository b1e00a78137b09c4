//! Decisions that the page's own script would never send: each is refused with its code, and nothing changes.

use serde_json::{Value, json};

use super::http::Answer;
use super::human::Human;
use crate::world::{World, until};

/// A world in which one task of each kind waits, and a signed-in human.
struct Waiting {
    world: World,
    human: Human,
    plain: String,
    other: String,
    destructive: String,
    ungrantable: String,
    question: String,
}

impl Waiting {
    fn new() -> Self {
        let world = World::new();
        let leaves_mark = |more: Value| {
            let mut definition = json!({"description": "Leaves a mark.",
                "input": {"type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string", "minLength": 2}, "count": {"type": "integer"}}},
                "run": {"process": {"argv": ["sh", "-c", "echo x >> marks"], "folder": "."}}});
            definition.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
            definition
        };
        world.define(
            "marks.json",
            &json!({"mark": leaves_mark(json!({})),
                "wipe": leaves_mark(json!({"annotations": {"destructiveHint": true}})),
                "sign": leaves_mark(json!({"grantable": false}))}),
        );
        let human = Human::of(&world);
        let input = json!({"name": "eve", "count": 7});
        let plain = world.start("mark", &input);
        let other = world.start("mark", &json!({"name": "other"}));
        let destructive = world.start("wipe", &input);
        let ungrantable = world.start("sign", &input);
        let question = world.start("ask_user", &json!({"question": "Which year?"}));
        Self { world, human, plain, other, destructive, ungrantable, question }
    }

    /// The pending task `id`, extended by `more`.
    fn task(&self, id: &str, more: &Value) -> Value {
        let mut body = self.human.pending_task(id);
        body.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
        body
    }

    /// The body of an edit of the task `id` whose changes the human saw, replaced by `more`.
    fn edit(&self, id: &str, more: &Value) -> Value {
        let input = if id == self.question { json!({"question": "Which day?"}) } else { json!({"name": "bob"}) };
        let mut body = self.task(id, &json!({"input": input}));
        let shown = self.human.post("/edit", &body);
        assert_eq!(shown.status, 200, "{}", shown.body);
        let shown: Value = serde_json::from_str(shown.body.trim()).expect("JSON");
        body["edited_digest"] = shown["digest"].clone();
        body.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
        body
    }

    fn grant(&self, id: &str, more: &Value) -> Value {
        let mut body = self.task(id, &json!({"fields": [], "expires_in": "8h"}));
        body.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
        body
    }

    fn batch(&self, ids: &[&str], more: &Value) -> Value {
        let decisions: Vec<_> = ids.iter().map(|id| self.human.pending_task(id)).collect();
        let mut body = json!({"decisions": decisions, "verdict": "approve"});
        body.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
        body
    }

    /// Posts each of `rows` and asserts that it is refused with its status and code, and that nothing was decided.
    fn refuses(&self, path: &str, rows: &[(&str, Value, u16, &str)]) {
        for (case, body, status, code) in rows {
            let answer = self.human.post(path, body);
            assert_eq!((answer.status, code_of(&answer).as_str()), (*status, *code), "{case}: {}", answer.body);
        }
        for id in [&self.plain, &self.other, &self.destructive, &self.ungrantable, &self.question] {
            assert_eq!(self.world.result_file(id)["state"], "awaiting_confirmation", "{path}");
        }
        assert!(!self.world.folder().join("marks").exists(), "{path}");
        assert!(!self.human.get("/grants").body.contains("data-grant-id"), "{path}");
    }
}

fn code_of(answer: &Answer) -> String {
    let body: Value = serde_json::from_str(answer.body.trim()).unwrap_or_default();
    body["error"]["code"].as_str().unwrap_or_default().to_owned()
}

fn zeros() -> String {
    "0".repeat(64)
}

#[test]
fn an_edit_is_approved_only_as_the_human_saw_it() {
    let waiting = Waiting::new();
    let Waiting { plain, other, destructive, question, .. } = &waiting;
    let of_other = waiting.edit(other, &json!({}))["edited_digest"].clone();
    let mut unseen = waiting.edit(plain, &json!({}));
    unseen.as_object_mut().expect("an object").remove("edited_digest");
    waiting.refuses(
        "/decide-edit",
        &[
            ("the changes were not shown", unseen, 409, "stale"),
            ("other changes were shown", waiting.edit(plain, &json!({"input": {"name": "mallory"}})), 409, "stale"),
            ("the changes of another task", waiting.edit(plain, &json!({"edited_digest": of_other})), 409, "stale"),
            ("the digest of nothing", waiting.edit(plain, &json!({"edited_digest": zeros()})), 409, "stale"),
            ("the task was shown differently", waiting.edit(plain, &json!({"digest": zeros()})), 409, "stale"),
            ("no digest at all", waiting.edit(plain, &json!({"digest": "x"})), 400, "bad-request"),
            ("an invalid input", waiting.edit(plain, &json!({"input": {"name": "b"}})), 422, "invalid-input"),
            ("an unknown field", waiting.edit(plain, &json!({"verdict": "approve"})), 400, "bad-request"),
            ("the word is missing", waiting.edit(destructive, &json!({})), 422, "wants-word"),
            ("another word", waiting.edit(destructive, &json!({"typed": "mark"})), 422, "wants-word"),
            ("a question", waiting.edit(question, &json!({})), 422, "wants-answer"),
        ],
    );
}

/// It would end as drifted: what the edited input replaces was not looked up, and no human has seen it.
#[test]
fn an_edit_by_which_something_else_is_replaced_is_refused_at_once() {
    let world = World::new();
    let file = world.folder().join("shop.db");
    let shop = rusqlite::Connection::open(&file).expect("a database");
    shop.execute_batch("CREATE TABLE notes (id INTEGER PRIMARY KEY, body TEXT); INSERT INTO notes VALUES (1, 'old')")
        .expect("made");
    world.configure(&format!("[databases.shop]\nurl = \"sqlite://{}\"\nwritable = true\n", file.display()));
    world.define(
        "notes.json",
        &json!({
            "note_read": {"description": "Reads a note.", "input": {"type": "object", "properties": {"name": {"type": "string"}}},
                "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["cat", "{{ name }}"], "folder": "."}}},
            "note_write": {"description": "Writes a note.", "input": {"type": "object", "required": ["name", "text"],
                "properties": {"name": {"type": "string"}, "text": {"type": "string"}}},
                "preview": {"subtool": "note_read", "input": {"name": "{{ name }}"}, "replaces": "{text: .}"},
                "run": {"process": {"argv": ["sh", "-c", "printf %s \"$1\" > \"$2\"", "w", "{{ text }}", "{{ name }}"], "folder": "."}}},
            "shop_change": {"description": "Changes rows.", "input": {"type": "object", "required": ["statement"],
                "properties": {"statement": {"type": "string"}}}, "run": {"sql": {"database": "shop", "change": "{{ statement }}"}}}
        }),
    );
    std::fs::write(world.folder().join("first"), "old").expect("written");
    let human = Human::of(&world);
    let posted = |path: &str, id: &str, more: Value| {
        let mut body = human.pending_task(id);
        body.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
        (human.post(path, &body), body)
    };
    let card = |id: &str| human.get(&format!("/card/{id}")).body;
    let change = world.start("shop_change", &json!({"statement": "UPDATE notes SET body = 'new' WHERE id = 1"}));
    let note = world.start("note_write", &json!({"name": "first", "text": "new"}));
    until("what they replace is known", || {
        card(&change).contains("data-change") && card(&note).contains("class=\"replaces\"")
    });
    let has_form = |id: &str| card(id).contains("data-form=\"edit\"");
    assert!(has_form(&note) && !has_form(&change), "{}", card(&change));
    for (id, input) in [
        (&change, json!({"statement": "UPDATE notes SET body = 'other' WHERE id = 1"})),
        (&note, json!({"name": "second", "text": "new"})),
    ] {
        let (answer, _) = posted("/edit", id, json!({"input": input}));
        assert_eq!((answer.status, code_of(&answer).as_str()), (422, "invalid-input"), "{}", answer.body);
        assert!(answer.body.contains("looked up for the input as it was asked for"), "{}", answer.body);
        assert_eq!(posted("/decide-edit", id, json!({"input": input, "edited_digest": zeros()})).0.status, 422);
    }
    let input = json!({"name": "first", "text": "newer"});
    let (answer, mut body) = posted("/edit", &note, json!({ "input": input }));
    let shown: Value = serde_json::from_str(answer.body.trim()).expect("JSON");
    body["edited_digest"] = shown["digest"].clone();
    assert_eq!(human.post("/decide-edit", &body).status, 200);
    assert_eq!(world.end_of(&note)["status"], "succeeded");
    assert_eq!(std::fs::read_to_string(world.folder().join("first")).expect("read"), "newer");
}

#[test]
fn a_grant_is_made_only_within_its_bounds() {
    let waiting = Waiting::new();
    let Waiting { plain, destructive, ungrantable, question, .. } = &waiting;
    let field = |how: &str, value: Value| json!({"fields": [{"pointer": "/name", "how": how, "value": value}]});
    let path = waiting.world.start("mark", &json!({"name": "/srv/reports/may"}));
    let chosen = |pointers: &[&str]| {
        let fields: Vec<_> = pointers.iter().map(|pointer| json!({"pointer": pointer, "how": "exact"})).collect();
        json!({ "fields": fields })
    };
    waiting.refuses(
        "/grants",
        &[
            ("the subtool's approvals cannot be remembered", waiting.grant(ungrantable, &json!({})), 422, "bad-grant"),
            ("more than 30 days", waiting.grant(plain, &json!({"expires_in": "721h"})), 422, "bad-grant"),
            ("no time", waiting.grant(plain, &json!({"expires_in": "0s"})), 422, "bad-grant"),
            ("forever", waiting.grant(plain, &json!({"expires_in": "forever"})), 422, "bad-grant"),
            ("any value without the word", waiting.grant(plain, &field("any", Value::Null)), 422, "wants-word"),
            (
                "any value with another word",
                waiting.grant(plain, &json!({"fields": [{"pointer": "/name", "how": "any"}], "typed": "yes"})),
                422,
                "wants-word",
            ),
            ("a relative path", waiting.grant(plain, &field("prefix", json!("reports"))), 422, "bad-grant"),
            ("at most a word", waiting.grant(plain, &field("at_most", json!("many"))), 422, "bad-grant"),
            ("a field that is not there", waiting.grant(plain, &chosen(&["&#x2f;name"])), 422, "bad-grant"),
            ("every path without the word", waiting.grant(&path, &field("prefix", json!("/"))), 422, "wants-word"),
            ("another folder", waiting.grant(&path, &field("prefix", json!("/etc"))), 422, "bad-grant"),
            (
                "a folder that the value is not below",
                waiting.grant(plain, &field("prefix", json!("/"))),
                422,
                "bad-grant",
            ),
            ("no use", waiting.grant(plain, &json!({"most_uses": 0})), 422, "bad-grant"),
            ("a field twice", waiting.grant(plain, &chosen(&["/name", "/name"])), 422, "bad-grant"),
            ("an unknown kind of width", waiting.grant(plain, &field("regex", json!(".*"))), 400, "bad-request"),
            ("the task was shown differently", waiting.grant(plain, &json!({"digest": zeros()})), 409, "stale"),
            ("a destructive task without the word", waiting.grant(destructive, &json!({})), 422, "wants-word"),
            ("a question", waiting.grant(question, &json!({})), 422, "wants-answer"),
        ],
    );
    let revoked = waiting.human.post("/grants/revoke", &json!({"id": plain}));
    assert_eq!((revoked.status, code_of(&revoked).as_str()), (404, "not-found"));
}

#[test]
fn a_batch_holds_each_task_once_and_nothing_that_needs_a_closer_look() {
    let waiting = Waiting::new();
    let Waiting { plain, other, destructive, question, .. } = &waiting;
    let mut stale = waiting.batch(&[plain, other], &json!({}));
    stale["decisions"][1]["digest"] = zeros().into();
    let typed = json!({"typed": "wipe"});
    waiting.refuses(
        "/decide",
        &[
            ("nothing", waiting.batch(&[], &json!({})), 400, "bad-request"),
            ("a stale task", stale, 409, "stale"),
            ("a destructive task", waiting.batch(&[plain, destructive], &typed), 422, "wants-word"),
            ("a destructive task, first", waiting.batch(&[destructive, plain], &typed), 422, "wants-word"),
            (
                "a destructive task alone, without the word",
                waiting.batch(&[destructive], &json!({})),
                422,
                "wants-word",
            ),
            ("a question", waiting.batch(&[plain, question], &json!({})), 422, "wants-answer"),
            ("one task twice", waiting.batch(&[plain, other, plain], &json!({})), 409, "already-decided"),
            (
                "one task twice, denied",
                waiting.batch(&[plain, plain], &json!({"verdict": "deny"})),
                409,
                "already-decided",
            ),
            ("an unknown verdict", waiting.batch(&[plain], &json!({"verdict": "allow"})), 400, "bad-request"),
        ],
    );
    assert_eq!(waiting.human.approve(plain).status, 200, "the executor still decides");
}
