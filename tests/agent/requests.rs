//! What each provider is sent, byte for byte.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::aimock::PROVIDERS;
use super::story::entries_of;
use super::stub::{RawRequest, Stub, StubAnswer};
use crate::world::World;

/// Characters of one to four bytes.
const TEXT: &str = "Ich sehe nach: 年度报告 – 🦀é.";

/// The body of a request, with the texts that are the same in every request left out.
fn shown(request: &RawRequest) -> String {
    fn shorten(value: &mut Value) {
        match value {
            Value::String(text) if text.starts_with("You have one tool") => "[system]".clone_into(text),
            Value::String(text) if text.len() > 200 => "[long]".clone_into(text),
            Value::Array(values) => values.iter_mut().for_each(shorten),
            Value::Object(fields) => {
                fields.values_mut().for_each(shorten);
                for (key, value) in fields.iter_mut() {
                    if key.starts_with("parameters") || key == "input_schema" {
                        *value = "[schema]".into();
                    }
                }
            }
            _ => {}
        }
    }
    let mut body = request.json();
    shorten(&mut body);
    format!("{}\n{body:#}", request.head.lines().next().expect("a request line"))
}

/// The second request of a conversation in which the model makes two calls in one turn.
fn after_two_calls(provider: &str) -> String {
    let world = World::new();
    let stub = Stub::answering(|_, number| match number % 2 {
        0 => StubAnswer::runs(TEXT, &["echo 年", "echo two"]),
        _ => StubAnswer::says("Fertig: 年度报告 🦀."),
    });
    world.configure(&stub.configuration("", ""));
    let streamed = world.run(&["agent", "--json", "--model", provider, "年?"]);
    assert_eq!(streamed.json()["answer"], "Fertig: 年度报告 🦀.", "{provider}: {streamed}");
    assert_eq!(entries_of(&world, 101, "answered")[0]["turn"]["text"], TEXT, "{provider}");
    assert_eq!(streamed.json()["usage"]["input_tokens"], 20, "{provider}: {streamed}");
    let whole = world.run(&["agent", "--json", "--no-stream", "--model", provider, "年?"]);
    assert_eq!(whole.json()["answer"], "Fertig: 年度报告 🦀.", "{provider}: {whole}");
    let received = stub.received();
    // The same conversation, whether or not it was streamed.
    let strip = |request: &RawRequest| {
        let mut body = request.json();
        let fields = body.as_object_mut().expect("an object");
        fields.remove("stream");
        fields.remove("stream_options");
        body
    };
    assert_eq!(strip(&received[1]), strip(&received[3]), "{provider}");
    shown(&received[1])
}

#[test]
fn openai_gets_one_message_for_each_result() {
    assert_snapshot!(after_two_calls("openai"), @r#"
    POST /v1/chat/completions HTTP/1.1
    {
      "model": "openai",
      "stream": true,
      "tools": [
        {
          "type": "function",
          "function": {
            "name": "command_executor",
            "description": "[long]",
            "parameters": "[schema]",
            "strict": false
          }
        }
      ],
      "messages": [
        {
          "role": "system",
          "content": "[system]"
        },
        {
          "role": "user",
          "content": "年?"
        },
        {
          "role": "assistant",
          "content": "Ich sehe nach: 年度报告 – 🦀é.",
          "tool_calls": [
            {
              "type": "function",
              "id": "c00001000",
              "function": {
                "name": "command_executor",
                "arguments": "{\"command\":\"echo 年\"}"
              }
            },
            {
              "type": "function",
              "id": "c00001001",
              "function": {
                "name": "command_executor",
                "arguments": "{\"command\":\"echo two\"}"
              }
            }
          ]
        },
        {
          "role": "tool",
          "content": "年\n",
          "tool_call_id": "c00001000"
        },
        {
          "role": "tool",
          "content": "two\n",
          "tool_call_id": "c00001001"
        }
      ],
      "stream_options": {
        "include_usage": true
      }
    }
    "#);
}

#[test]
fn openai_responses_gets_one_item_for_each_result() {
    assert_snapshot!(after_two_calls("openai_responses"), @r#"
    POST /v1/responses HTTP/1.1
    {
      "store": false,
      "model": "openai_responses",
      "stream": true,
      "instructions": "[system]",
      "tools": [
        {
          "type": "function",
          "name": "command_executor",
          "parameters": "[schema]",
          "description": "[long]"
        }
      ],
      "input": [
        {
          "role": "user",
          "content": "年?"
        },
        {
          "type": "message",
          "role": "assistant",
          "content": [
            {
              "type": "output_text",
              "text": "Ich sehe nach: 年度报告 – 🦀é."
            }
          ]
        },
        {
          "type": "function_call",
          "call_id": "c00001000",
          "name": "command_executor",
          "arguments": "{\"command\":\"echo 年\"}"
        },
        {
          "type": "function_call",
          "call_id": "c00001001",
          "name": "command_executor",
          "arguments": "{\"command\":\"echo two\"}"
        },
        {
          "type": "function_call_output",
          "call_id": "c00001000",
          "output": "年\n"
        },
        {
          "type": "function_call_output",
          "call_id": "c00001001",
          "output": "two\n"
        }
      ]
    }
    "#);
}

#[test]
fn anthropic_gets_all_results_first_in_one_message() {
    assert_snapshot!(after_two_calls("anthropic"), @r#"
    POST /v1/messages HTTP/1.1
    {
      "model": "anthropic",
      "stream": true,
      "system": "[system]",
      "tools": [
        {
          "name": "command_executor",
          "input_schema": "[schema]",
          "description": "[long]"
        }
      ],
      "messages": [
        {
          "role": "user",
          "content": "年?"
        },
        {
          "role": "assistant",
          "content": [
            {
              "type": "text",
              "text": "Ich sehe nach: 年度报告 – 🦀é."
            },
            {
              "type": "tool_use",
              "id": "c00001000",
              "name": "command_executor",
              "input": {
                "command": "echo 年"
              }
            },
            {
              "type": "tool_use",
              "id": "c00001001",
              "name": "command_executor",
              "input": {
                "command": "echo two"
              }
            }
          ]
        },
        {
          "role": "user",
          "content": [
            {
              "type": "tool_result",
              "content": "年\n",
              "tool_use_id": "c00001000"
            },
            {
              "type": "tool_result",
              "content": "two\n",
              "tool_use_id": "c00001001",
              "cache_control": {
                "type": "ephemeral"
              }
            }
          ]
        }
      ],
      "max_tokens": 64000
    }
    "#);
}

#[test]
fn gemini_gets_all_results_in_one_content_without_ids_of_ours() {
    assert_snapshot!(after_two_calls("gemini"), @r#"
    POST /v1beta/models/gemini:streamGenerateContent?alt=sse HTTP/1.1
    {
      "systemInstruction": {
        "parts": [
          {
            "text": "[system]"
          }
        ]
      },
      "tools": [
        {
          "functionDeclarations": [
            {
              "name": "command_executor",
              "description": "[long]",
              "parametersJsonSchema": "[schema]"
            }
          ]
        }
      ],
      "contents": [
        {
          "role": "user",
          "parts": [
            {
              "text": "年?"
            }
          ]
        },
        {
          "role": "model",
          "parts": [
            {
              "text": "Ich sehe nach: 年度报告 – 🦀é."
            },
            {
              "functionCall": {
                "name": "command_executor",
                "args": {
                  "command": "echo 年"
                }
              }
            },
            {
              "functionCall": {
                "name": "command_executor",
                "args": {
                  "command": "echo two"
                }
              }
            }
          ]
        },
        {
          "role": "user",
          "parts": [
            {
              "functionResponse": {
                "name": "command_executor",
                "response": {
                  "name": "command_executor",
                  "content": "年\n"
                }
              }
            },
            {
              "functionResponse": {
                "name": "command_executor",
                "response": {
                  "name": "command_executor",
                  "content": "two\n"
                }
              }
            }
          ]
        }
      ]
    }
    "#);
}

#[test]
fn ollama_gets_objects_as_arguments_and_the_size_of_the_context() {
    assert_snapshot!(after_two_calls("ollama"), @r#"
    POST /api/chat HTTP/1.1
    {
      "model": "ollama",
      "stream": true,
      "options": {
        "num_ctx": 16384
      },
      "tools": [
        {
          "type": "function",
          "function": {
            "name": "command_executor",
            "description": "[long]",
            "parameters": "[schema]"
          }
        }
      ],
      "messages": [
        {
          "role": "system",
          "content": "[system]"
        },
        {
          "role": "user",
          "content": "年?"
        },
        {
          "role": "assistant",
          "content": "Ich sehe nach: 年度报告 – 🦀é.",
          "tool_calls": [
            {
              "function": {
                "name": "command_executor",
                "arguments": {
                  "command": "echo 年"
                }
              }
            },
            {
              "function": {
                "name": "command_executor",
                "arguments": {
                  "command": "echo two"
                }
              }
            }
          ]
        },
        {
          "role": "tool",
          "tool_name": "command_executor",
          "content": "年\n"
        },
        {
          "role": "tool",
          "tool_name": "command_executor",
          "content": "two\n"
        }
      ]
    }
    "#);
}

#[test]
fn a_note_after_results_is_in_the_same_message_for_anthropic() {
    let world = World::new();
    let script = vec![
        StubAnswer::runs("", &["agent-magic-tool list tools --query=a", "echo two"]),
        StubAnswer::runs("", &["agent-magic-tool list tools --query=a", "echo two"]),
        StubAnswer::says("Done."),
    ];
    let stub = Stub::start(&world, script, "");
    let ran = world.run(&["agent", "--json", "--model", "anthropic", "Loop"]);
    assert_eq!(ran.json()["answer"], "Done.", "{ran}");
    let last = stub.bodies(2)[0]["messages"].as_array().expect("messages").last().expect("one").clone();
    let kinds: Vec<_> = last["content"].as_array().expect("parts").iter().map(|part| part["type"].clone()).collect();
    assert_eq!(kinds, ["tool_result", "tool_result", "text"], "{last}");
}

#[test]
fn a_models_name_is_sent_as_it_is_and_no_effort_is_taken_from_it() {
    for provider in PROVIDERS {
        let world = World::new();
        let stub = Stub::start(&world, vec![StubAnswer::says("Hello.")], "model = \"qwen-max\"");
        assert_eq!(world.run(&["agent", "--json", "--model", provider, "Hello"]).exit, 0, "{provider}");
        let request = &stub.received()[0];
        let body = request.json();
        let name = body["model"].as_str().unwrap_or_else(|| request.target());
        assert!(name.contains("qwen-max"), "{provider}: {name}");
        for field in
            ["reasoning", "reasoning_effort", "include", "thinking", "output_config", "generationConfig", "think"]
        {
            assert!(body.get(field).is_none(), "{provider} sends {field}: {body}");
        }
    }
}

#[test]
fn calls_have_unique_ids_over_turns_and_providers() {
    let world = World::new();
    let stub = Stub::answering(|_, number| match number % 2 {
        0 => StubAnswer::runs("", &["echo a", "echo b"]),
        _ => StubAnswer::says("Done."),
    });
    world.configure(&stub.configuration("", ""));
    for provider in ["gemini", "ollama", "openai", "openai_responses", "anthropic"] {
        let words = ["agent", "--json", "--model", provider, "Count", "--session", "101"];
        let words = if provider == "gemini" { &words[..5] } else { &words[..] };
        let ran = world.run(words);
        assert_eq!(ran.exit, 0, "{provider}: {ran}");
    }
    let received = stub.received();
    let last = received.last().expect("asked").json();
    let parts =
        last["messages"].as_array().expect("messages").iter().filter_map(|message| message["content"].as_array());
    let parts: Vec<_> = parts.flatten().collect();
    let ids = |kind: &str, key: &str| {
        let of_kind = parts.iter().filter(|part| part["type"] == kind);
        of_kind.map(|part| part[key].as_str().expect("an id").to_owned()).collect::<Vec<_>>()
    };
    let (calls, results) = (ids("tool_use", "id"), ids("tool_result", "tool_use_id"));
    assert_eq!(calls, results, "each call has its result");
    let distinct: std::collections::BTreeSet<_> = calls.iter().collect();
    assert_eq!((distinct.len(), calls.len()), (10, 10), "{calls:?}");
    assert!(calls.iter().all(|id| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())), "{calls:?}");
}

#[test]
fn gemini_gets_back_the_ids_that_it_gave() {
    let world = World::new();
    let call = json!({"functionCall": {"id": "g-7", "name": "command_executor", "args": {"command": "echo a"}},
        "thoughtSignature": "c2ln"});
    let body = json!({"candidates": [{"content": {"role": "model", "parts": [call]}, "finishReason": "STOP"}]});
    let script = vec![StubAnswer::Raw { status: 200, body: body.to_string() }, StubAnswer::says("Done.")];
    let stub = Stub::start(&world, script, "");
    let ran = world.run(&["agent", "--json", "--no-stream", "--model", "gemini", "Count"]);
    assert_eq!(ran.json()["answer"], "Done.", "{ran}");
    let contents = &stub.bodies(1)[0]["contents"];
    assert_eq!(contents[1]["parts"][0]["functionCall"]["id"], "g-7", "{contents}");
    assert_eq!(contents[1]["parts"][0]["thoughtSignature"], "c2ln", "{contents}");
    assert_eq!(contents[2]["parts"][0]["functionResponse"]["id"], "g-7", "{contents}");
}

#[test]
fn anthropic_is_asked_to_think_in_the_words_of_each_model() {
    let adaptive = json!({"type": "adaptive", "display": "summarized"});
    let budget = |tokens: u32| json!({"type": "enabled", "budget_tokens": tokens});
    let asked = [
        ("model = \"claude-opus-4-7\"\nreasoning = true", Some(adaptive.clone())),
        ("model = \"claude-sonnet-4-6\"\nreasoning = true\neffort = \"low\"", Some(adaptive)),
        ("model = \"claude-haiku-4-5\"\nreasoning = true", Some(budget(4_000))),
        ("model = \"claude-opus-4-5\"\nreasoning = true\neffort = \"high\"", Some(budget(24_000))),
        ("model = \"claude-haiku-4-5\"\nreasoning = true\nmax_tokens = 2000", Some(budget(1_999))),
        ("model = \"claude-haiku-4-5\"\nreasoning = true\nmax_tokens = 500", None),
        ("model = \"claude-opus-4-7\"\nreasoning = true\neffort = \"none\"", None),
        ("model = \"claude-opus-4-7\"", None),
    ];
    for (settings, thinking) in asked {
        for more in [&[][..], &["--no-stream"]] {
            let world = World::new();
            let stub = Stub::start(&world, vec![StubAnswer::says("Hello.")], settings);
            let words = [&["agent", "--json", "--model", "anthropic"], more, &["Hello"]].concat();
            let ran = world.run(&words);
            assert_eq!(ran.json()["answer"], "Hello.", "{settings}: {ran}");
            assert_eq!(stub.bodies(0)[0].get("thinking"), thinking.as_ref(), "{settings}, {more:?}");
        }
    }
}

#[test]
fn anthropic_goes_on_without_thinking_if_its_model_cannot() {
    let world = World::new();
    let script = vec![StubAnswer::error(400, "thinking: this model does not support it"), StubAnswer::says("Hello.")];
    let stub = Stub::start(&world, script, "reasoning = true");
    let ran = world.run(&["agent", "--json", "--model", "anthropic", "Hello"]);
    assert_eq!(ran.json()["answer"], "Hello.", "{ran}");
    assert!(stub.bodies(0)[0].get("thinking").is_some() && stub.bodies(1)[0].get("thinking").is_none());
}

/// A whole answer of Anthropic.
fn anthropic_answer(content: &Value, reason: &str) -> StubAnswer {
    let body = json!({"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content,
        "stop_reason": reason, "usage": {"input_tokens": 10, "output_tokens": 5}});
    StubAnswer::Raw { status: 200, body: body.to_string() }
}

#[test]
fn anthropic_gets_back_its_thoughts_as_they_were() {
    let world = World::new();
    let thoughts = [
        json!({"type": "redacted_thinking", "data": "c2VjcmV0+/=="}),
        json!({"type": "thinking", "thinking": "I count.", "signature": "sig+/=="}),
    ];
    let call = json!({"type": "tool_use", "id": "toolu_1", "name": "command_executor", "input": {"command": "echo a"}});
    let content = json!([thoughts[0], thoughts[1], call]);
    let script = vec![
        anthropic_answer(&content, "tool_use"),
        anthropic_answer(&json!([{"type": "text", "text": "Done."}]), "end_turn"),
    ];
    let stub = Stub::start(&world, script, "reasoning = true");
    let words = ["agent", "--json", "--no-stream", "--model", "anthropic", "Count"];
    assert_eq!(world.run(&words).json()["answer"], "Done.");
    // From the journal as well, in a later process.
    let again = ["agent", "--json", "--no-stream", "--model", "anthropic", "--session", "101", "Again"];
    assert_eq!(world.run(&again).json()["answer"], "Done.");
    for body in stub.bodies(1) {
        let sent = body["messages"][1]["content"].as_array().expect("parts").clone();
        assert_eq!(sent.len(), 3, "{body}");
        assert_eq!(sent[..2], thoughts, "{body}");
        assert_eq!(sent[2]["type"], "tool_use", "{body}");
    }
}

#[test]
fn a_paused_answer_of_anthropic_goes_on() {
    let world = World::new();
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    let script = vec![
        anthropic_answer(&text("One, "), "pause_turn"),
        anthropic_answer(&text("two, "), "pause_turn"),
        anthropic_answer(&text("three."), "end_turn"),
    ];
    let stub = Stub::start(&world, script, "");
    let ran = world.run(&["agent", "--json", "--no-stream", "--model", "anthropic", "Count"]);
    assert_eq!(
        (&ran.json()["answer"], &ran.json()["termination"]),
        (&json!("One, two, three."), &json!("completed")),
        "{ran}"
    );
    let last = stub.bodies(2)[0]["messages"].clone();
    let roles: Vec<_> = last.as_array().expect("messages").iter().map(|message| message["role"].clone()).collect();
    assert_eq!(roles, ["user", "assistant", "assistant"], "{last}");
    // One that never ends is not asked for ever, and is not complete.
    let world = World::new();
    let stub = Stub::start(&world, vec![anthropic_answer(&text("More. "), "pause_turn")], "");
    let ran = world.run(&["agent", "--json", "--no-stream", "--model", "anthropic", "Count"]);
    assert_eq!((&ran.json()["termination"], stub.received().len()), (&json!("truncated"), 9), "{ran}");
}

#[test]
fn a_call_of_gemini_that_cannot_be_read_is_tried_again_and_then_an_error() {
    for reason in ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"] {
        for parts in [json!([]), json!([{"text": "I call it."}])] {
            let body = json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": reason}]});
            let malformed = || StubAnswer::Raw { status: 200, body: body.to_string() };
            let ask = |script: Vec<StubAnswer>| {
                let world = World::new();
                let stub = Stub::start(&world, script, "");
                world.configure(&stub.configuration("retries = 1", ""));
                let ran = world.run(&["agent", "--json", "--no-stream", "--model", "gemini", "Count"]);
                (ran, stub.received().len())
            };
            let (ran, requests) = ask(vec![malformed(), StubAnswer::says("Done.")]);
            assert_eq!((&ran.json()["answer"], requests), (&json!("Done."), 2), "{reason}: {ran}");
            let (ran, requests) = ask(vec![malformed()]);
            assert!(ran.exit != 0 && requests == 2, "{reason}, {requests}: {ran}");
            assert!(!ran.stdout.contains("completed"), "{reason}: {ran}");
        }
    }
}
