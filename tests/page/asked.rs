//! Questions of the agent and what a card does not know, in a real browser.

use serde_json::json;

use super::human::Human;
use crate::world::World;

#[tokio::test]
async fn a_question_is_the_agents_and_says_who_reads_the_answer() {
    let world = World::new();
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let form = json!({"type": "object", "properties": {
        "user": {"type": "string", "title": "User name"},
        "pin": {"type": "integer", "title": "Your PIN"},
        "password": {"type": "string", "format": "password", "title": "Password"}}});
    let asked = world.start("ask_user", &json!({"question": "How do I sign in?", "form": form}));
    let mut card = tab.card(&asked);
    card.is_armed().await;
    assert_eq!(card.text("h2").await, "The agent asks you");
    assert!(card.text(".card-about").await.contains("The words below are the agent's"));
    let fate = "e => e.querySelector('.fate')?.innerText ?? null";
    assert_eq!(card.call("[data-pointer='/user']", fate).await, json!(null));
    let pin = card.call("[data-pointer='/pin']", fate).await;
    assert!(pin.as_str().is_some_and(|words| words.contains("The agent will read this in clear")), "{pin}");
    let password = card.call("[data-pointer='/password']", fate).await;
    assert!(password.as_str().is_some_and(|words| words.contains("Goes to the secret store")), "{password}");
    assert_eq!(card.call("[data-pointer='/password'] input", "e => e.type").await, "password");

    // The words of a question without a form are those of its only field.
    let code = world.start("ask_user", &json!({"question": "Which code did the bank send you?"}));
    let mut card = tab.card(&code);
    card.appears().await;
    assert_eq!(card.call("", "e => e.querySelectorAll('[data-read-by-agent]').length").await, 1);
    let year = world.start("ask_user", &json!({"question": "Which year?"}));
    let mut card = tab.card(&year);
    card.appears().await;
    assert_eq!(card.call("", "e => e.querySelectorAll('[data-read-by-agent]').length").await, 0);
}

/// A label, a description, an option and a suggestion are as much the agent's (or a server's) as the question is.
#[tokio::test]
async fn the_words_of_a_form_hide_nothing_and_a_disguised_password_is_one() {
    let world = World::new();
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let hidden = |word: &str| format!("{word}\u{200b}{word}");
    let few = json!({"enum": ["a", "b"], "enumNames": [hidden("few"), "plain"]});
    let many: Vec<_> = (0..9).map(|n| json!({"const": n, "title": hidden("many")})).collect();
    let form = json!({"type": "object", "properties": {
        "label": {"type": "string", "title": hidden("label")},
        "about": {"type": "string", "description": hidden("about")},
        "few": few, "many": {"oneOf": many}, "some": {"type": "array", "items": few},
        "given": {"type": "string", "default": hidden("given")},
        "hint": {"type": "string", "examples": [hidden("hint")]},
        "alike": {"type": "string", "title": "p\u{430}ypal"},
        "disguised": {"type": "string", "title": "Pass\u{200b}word"},
        "homoglyph": {"type": "string", "title": "Your P\u{406}N"}}});
    let asked = world.start("ask_user", &json!({"question": "What?", "form": form}));
    let mut card = tab.card(&asked);
    card.appears().await;
    for (field, shown) in [
        ("label", "labelU+200Blabel"),
        ("about", "aboutU+200Babout"),
        ("few", "fewU+200Bfew"),
        ("many", "many\\u{200b}many"),
        ("some", "fewU+200Bfew"),
        ("given", "what it suggests has U+200B zero width space"),
        ("alike", "mixes letters of several scripts: p\u{430}ypal"),
        ("disguised", "PassU+200Bword"),
        ("disguised", "The agent will read this in clear"),
        ("homoglyph", "The agent will read this in clear"),
    ] {
        let text = card.call(&format!("[data-pointer='/{field}']"), "e => e.textContent").await;
        assert!(text.as_str().is_some_and(|text| text.contains(shown)), "{field}: {text}");
    }
    let hint = card.call("[data-pointer='/hint'] input", "e => e.placeholder").await;
    assert_eq!(hint, "hint\\u{200b}hint");
    let raw = card.call("", "e => e.querySelector('form').textContent.includes('\u{200b}')").await;
    assert_eq!(raw, false, "a character that is not visible is in the form");
}

/// What a definition or an import says of a subtool, on every page that says it.
#[tokio::test]
async fn a_description_hides_nothing_wherever_it_stands() {
    let world = World::new();
    let input =
        json!({"type": "object", "properties": {"to\u{200b}": {"type": "string", "description": "who\u{202e}"}}});
    world.define(
        "sends.json",
        &json!({"sends": {"description": "Sends\u{202e} it.\n\nSafely.", "input": input, "run": {"process": {"argv": ["true"]}}}}),
    );
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let id = world.start("sends", &json!({"to\u{200b}": "x\u{200b}y"}));
    let mut card = tab.card(&id);
    card.appears().await;
    assert_eq!(card.text(".card-about").await, "SendsU+202E it. Safely.");
    card.open("edit").await;
    assert!(card.text("[data-form=edit]").await.contains("whoU+202E"));
    card.open("remember").await;
    let remember = card.text("[data-form=remember]").await;
    assert!(remember.contains("toU+200B") && remember.contains("exactly \u{201c}xU+200By\u{201d}"), "{remember}");
    for page in ["/subtools".to_owned(), "/subtool/sends".to_owned(), format!("/task/{id}")] {
        let body = Human::of(&world).get(&page).body;
        assert!(body.contains(">U+202E</mark> it. Safely."), "{page}: {body}");
        // An attribute such as the name of a field is not read by anyone.
        let shown: String = body.split('<').filter_map(|part| part.split_once('>')).map(|(_, text)| text).collect();
        assert!(!shown.contains(['\u{202e}', '\u{200b}']), "{page}: {shown}");
    }
}

/// The reason may quote whatever a program printed; a human only needs to know that it is unknown.
#[tokio::test]
async fn a_failed_preview_says_that_it_is_unknown_and_shows_no_dump() {
    let world = World::new();
    world.define(
        "note.json",
        &json!({
            "note_read": {"description": "Reads the note.", "input": {}, "annotations": {"readOnlyHint": true},
                "run": {"process": {"argv": ["sh", "-c", "echo 'Approve this: all is well' >&2; exit 3"]}}},
            "note_write": {"description": "Writes the note.", "input": {"type": "object", "properties": {"text": {"type": "string"}}},
                "preview": {"subtool": "note_read", "replaces": "{text: .}"}, "run": {"process": {"argv": ["true"]}}}
        }),
    );
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let id = world.start("note_write", &json!({"text": "new"}));
    let mut card = tab.card(&id);
    card.until("[data-unknown]", "e => e.innerText.includes('What it would replace is unknown')").await;
    let whole = card.text("").await;
    assert!(!whole.contains("Approve this") && !whole.contains("exit"), "{whole}");
}

/// A session is only a name, so no grant is offered for one.
#[tokio::test]
async fn a_grant_is_said_to_cover_a_user_and_a_folder() {
    let world = World::new();
    world.define(
        "marks.json",
        &json!({"mark": {"description": "Leaves a mark.", "input": {}, "run": {"process": {"argv": ["echo", "marked"]}}}}),
    );
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let ask = |session: &str| {
        let mut command = world.command(&["run", "mark"]);
        command.env("AGENT_MAGIC_TOOL_SESSION", session);
        let ran = world.transcript(&command.output().expect("the program starts"));
        ran.json()["id"].as_str().unwrap_or_else(|| panic!("{ran}")).to_owned()
    };
    let id = ask("mine");
    let mut card = tab.card(&id);
    card.open("remember").await;
    let words = card.text("[data-form=remember]").await;
    let folder = world.folder().display().to_string();
    assert!(words.contains(&folder) && words.contains("a session is only a name"), "{words}");
    assert!(!words.contains("This session"), "{words}");
    card.submit("remember").await;
    assert_eq!(world.end_of(&id)["status"], "succeeded");
    // As the card said, another session name makes no difference, and another folder does.
    assert_eq!(world.end_of(&ask("another"))["data"], "marked");
    let elsewhere = world.home();
    let mut command = world.command(&["run", "mark"]);
    let ran = world.transcript(&command.current_dir(&elsewhere).output().expect("the program starts"));
    let other = ran.json()["id"].as_str().expect("an id").to_owned();
    assert_eq!(world.result_file(&other)["state"], "awaiting_confirmation");
    let grants = Human::of(&world).get("/grants").body.replace("&#x2f;", "/");
    assert!(grants.contains(&format!(" in {folder}")), "{grants}");
}

/// What a human is shown is where the request goes, not what the definition says.
#[tokio::test]
async fn a_card_shows_the_target_after_the_configuration() {
    let world = World::new();
    world.configure("[http.endpoints]\n\"https://api.example.com\" = \"https://own.example.org:8443/api\"\n");
    world.define(
        "send.json",
        &json!({"send": {"description": "Sends.", "input": {}, "run": {"http": {"method": "POST",
            "base_url": "https://api.example.com", "path": "/send"}}}}),
    );
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let id = world.start("send", &json!({}));
    let mut card = tab.card(&id);
    card.appears().await;
    assert_eq!(card.text(".facts .target").await, "https://own.example.org:8443");
    for page in [format!("/task/{id}"), "/subtool/send".to_owned()] {
        let shown = Human::of(&world).get(&page).body.replace("&#x2f;", "/");
        assert!(
            shown.contains("https://own.example.org:8443") && !shown.contains("https://api.example.com"),
            "{shown}"
        );
    }
}
