//! Embeddings: every SDK gets the vectors of a model of the configuration, and what cannot be passed on is refused.

use serde_json::{Value, json};

use super::{Server, sdk, world_with_model};
use crate::agent::stub::{Stub, StubAnswer};
use crate::world::World;

/// Those whose embeddings npm's aimock makes.
const PROVIDERS: [&str; 2] = ["openai", "openai_responses"];

/// Models that make embeddings, at this address.
fn embedders(address: &str) -> String {
    let one = |provider| {
        format!(
            "[models.{provider}_vectors]\nprovider = \"{provider}\"\nurl = \"http://{address}\"\nembeddings = true\n"
        )
    };
    PROVIDERS.map(one).concat()
}

#[test]
fn every_sdk_gets_the_vectors_of_every_provider() {
    let (Some((world, model)), Some(sdks)) = (world_with_model(""), sdk::all()) else { return };
    world.configure(&format!("{}{}", model.configuration(""), embedders(model.address())));
    let server = Server::start(&world);
    for provider in PROVIDERS {
        let mut of_all: Vec<Value> = Vec::new();
        for sdk in sdks.iter().filter(|sdk| sdk.is_openai() || sdk.is_ollama()) {
            let name = format!("{provider}_vectors");
            let ask =
                json!([{"api": "embed", "model": name, "message": ["one", "two words", "one"]}, {"api": "models"}]);
            let [answer, models] = <[Value; 2]>::try_from(sdk.run(&server.url(), "none", &ask)).expect("two answers");
            let vectors = answer["answer"]["vectors"].as_array();
            let vectors = vectors.unwrap_or_else(|| panic!("{provider} by {}: {answer}", sdk.script));
            let answer = &answer["answer"];
            assert_eq!(vectors.len(), 3, "{provider} by {}", sdk.script);
            assert!(vectors[0] == vectors[2] && vectors[0] != vectors[1], "{provider} by {}: {answer}", sdk.script);
            assert!(answer["usage"]["prompt_tokens"].as_u64() > Some(0), "{provider} by {}: {answer}", sdk.script);
            assert_eq!(answer["model"], name);
            assert!(models.to_string().contains(&name), "{models}");
            // Numbers of 32 bits in JSON, or in base64.
            let single = |number: &Value| json!(serde_json::from_value::<f32>(number.clone()).expect("a number"));
            of_all.push(vectors[1].as_array().expect("a vector").iter().map(single).collect());
        }
        assert!(of_all.windows(2).all(|pair| pair[0] == pair[1]), "{provider}: each SDK reads the same numbers");
    }
}

#[test]
fn what_is_sent_and_charged_and_what_is_refused() {
    let world = World::new();
    let stub = Stub::answering(|request, _| {
        let body = request.json();
        let texts = body["input"].as_array().map_or(0, Vec::len);
        let one = |index: usize| json!({"object": "embedding", "index": index, "embedding": [0.5, -1.25, index]});
        // The last one first: they have numbers.
        let data: Vec<_> = (0..texts).rev().map(one).collect();
        let usage = json!({"prompt_tokens": 30, "total_tokens": 30});
        match body["input"][0].as_str() {
            Some("too few") => StubAnswer::Raw {
                status: 200,
                body: json!({"object": "list", "data": [], "model": "m", "usage": usage}).to_string(),
            },
            Some("broken") => StubAnswer::error(500, "no memory left"),
            _ => StubAnswer::Raw {
                status: 200,
                body: json!({"object": "list", "data": data, "model": "m", "usage": usage}).to_string(),
            },
        }
    });
    let vectors = format!("{}key = \"secret:provider\"\nmodel = \"text-embedding-3-small\"\n", {
        let chat = stub.configuration("tokens_per_day = 100\n", "");
        let url = chat.split("url = ").nth(1).and_then(|rest| rest.lines().next()).expect("a URL").to_owned();
        format!("{chat}[models.vectors]\nprovider = \"openai\"\nurl = {url}\nembeddings = true\n")
    });
    world.run_with(&["secret", "set", "provider"], "sk-of-the-provider");
    world.configure(&vectors);
    let server = Server::start(&world);
    let ask = |path: &str, body: &Value| server.request("POST", path, "", &body.to_string());

    let answer =
        ask("/v1/embeddings", &json!({"model": "vectors", "input": ["a", "b"], "dimensions": 3, "user": "me"}));
    let one = |index: u32| json!({"object": "embedding", "index": index, "embedding": [0.5, -1.25, f64::from(index)]});
    let expected = json!({
        "object": "list", "data": [one(0), one(1)], "model": "vectors", "usage": {"prompt_tokens": 30, "total_tokens": 30},
    });
    assert_eq!(answer.json(), expected);
    let sent = &stub.received()[0];
    assert_eq!(sent.json(), json!({"input": ["a", "b"], "model": "text-embedding-3-small", "dimensions": 3}));
    assert!(sent.head.to_lowercase().contains("authorization: bearer sk-of-the-provider"), "{}", sent.head);

    let too_many: Vec<_> = (0..2049).map(|_| "x").collect();
    for (body, status, message) in [
        (json!({"model": "vectors"}), 400, "`input` is missing"),
        (json!({"model": "vectors", "input": []}), 400, "`input` is empty"),
        (json!({"model": "vectors", "input": too_many}), 400, "send at most 2048 at once"),
        (json!({"model": "vectors", "input": [1, 2]}), 400, "`check_embedding_ctx_length=False`"),
        (json!({"model": "vectors", "input": [[1, 2], [3]]}), 400, "`check_embedding_ctx_length=False`"),
        (json!({"model": "vectors", "input": ["a", 1]}), 400, "not a list of texts"),
        (json!({"model": "vectors", "input": {"a": 1}}), 400, "neither a text nor a list"),
        (json!({"model": "vectors", "input": "a", "dimensions": 0}), 400, "a whole number of at least 1"),
        (json!({"model": "vectors", "input": "a", "encoding_format": "hex"}), 400, "`float` or `base64`"),
        (json!({"model": "openai", "input": "a"}), 404, "those that do are vectors"),
        (json!({"model": "vectors", "input": "too few"}), 502, "failed to parse the answer"),
        (json!({"model": "vectors", "input": "broken"}), 502, "failed with status 500"),
    ] {
        let reply = ask("/v1/embeddings", &body);
        let told = reply.json()["error"]["message"].as_str().unwrap_or_else(|| panic!("{}", reply.body)).to_owned();
        assert!(reply.status == status && told.contains(message), "{body}: {} {told}", reply.status);
    }
    let chat = ask(
        "/v1/chat/completions",
        &json!({"model": "vectors", "messages": [{"role": "user", "content": "@vectors Hi"}]}),
    );
    assert!(chat.body.contains("it makes embeddings and answers no questions"), "{}", chat.body);

    // Each answer is 30 tokens of the day's 100.
    let status = |text: &str| ask("/v1/embeddings", &json!({"model": "vectors", "input": text})).status;
    assert_eq!((status("a"), status("b"), status("c"), status("d")), (200, 200, 200, 429));
}

#[test]
fn gemini_and_ollama_are_asked_in_their_own_form() {
    let world = World::new();
    let stub = Stub::answering(|request, _| {
        let (target, body) = (request.target(), request.json());
        let (list, answer): (_, fn(usize) -> Value) = match target {
            target if target.ends_with("/models/m:batchEmbedContents") => {
                (&body["requests"], |number| json!({"values": [0.25, number]}))
            }
            "/api/embed" => (&body["input"], |number| json!([0.25, number])),
            other => panic!("{other}"),
        };
        let texts = list.as_array().map_or(0, Vec::len);
        StubAnswer::Raw {
            status: 200,
            body: json!({"embeddings": (0..texts).map(answer).collect::<Vec<_>>()}).to_string(),
        }
    });
    let chat = stub.configuration("", "");
    let url = chat.split("url = ").nth(1).and_then(|rest| rest.lines().next()).expect("a URL");
    let one = |provider: &str| {
        format!(
            "[models.{provider}_vectors]\nprovider = \"{provider}\"\nmodel = \"m\"\nurl = {url}\nembeddings = true\nkey = \"secret:provider\"\n"
        )
    };
    world.configure(&format!("{chat}{}{}", one("gemini"), one("ollama")));
    let stored = world.run_with(&["secret", "set", "provider"], "key-of-provider");
    assert_eq!(stored.exit, 0, "{stored}");
    let server = Server::start(&world);
    for provider in ["gemini", "ollama"] {
        let answer = server
            .post("/api/embed", &json!({"model": format!("{provider}_vectors:latest"), "input": ["a", "b"]}))
            .json();
        assert_eq!(answer["embeddings"], json!([[0.25, 0.0], [0.25, 1.0]]), "{provider}: {answer}");
        assert_eq!(answer["prompt_eval_count"], 2, "what the provider does not count is estimated");
        let sent = stub.received().pop().expect("sent").head.to_lowercase();
        assert!(
            sent.contains("authorization: bearer key-of-provider") || sent.contains("x-goog-api-key: key-of-provider"),
            "{sent}"
        );
    }
}
