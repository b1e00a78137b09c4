//! The OpenAPI document of the own API, made from the types that it reads and writes.

use ground::page_client::api_client::{Gate, GateDecision, GateList};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::api::{DecisionAnswer, Health, SessionChange, SessionList, SubmitAnswer, SubmitPending, SubmitRequest};
use super::stream_types::ErrorAnswer;
use super::waiting_stream::GateEvent;
use crate::service::SessionState;
use crate::service::turn::SessionEvent;

/// One operation of the API.
struct Operation {
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    scope: &'static str,
    body: Option<Value>,
    answers: Vec<(&'static str, &'static str, Value)>,
}

/// The document.
pub fn document() -> Value {
    let mut types = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .into_generator();
    let operations = operations(&mut types).into_iter().chain(decisions(&mut types));
    let error = reference::<ErrorAnswer>(&mut types);
    let mut paths = Map::new();
    for operation in operations {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = described(&operation, &error);
    }
    let schemas = types.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "agent-magic-tool serve",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Sessions of the agent. A question goes to a session, its answer comes whole or as a stream of events. \
                            A task that needs a human waits for the page, or for a key with the scope `decide`.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "An API key: agent-magic-tool serve key create NAME"}},
        },
        "security": [{"key": []}, {}],
    })
}

fn described(operation: &Operation, error: &Value) -> Value {
    let mut responses = Map::new();
    for (status, description, content) in &operation.answers {
        responses.insert((*status).to_owned(), json!({"description": description, "content": content}));
    }
    responses.insert(
        "default".to_owned(),
        json!({"description": "What is wrong, and how to go on.", "content": {"application/json": {"schema": error}}}),
    );
    let parameters: Vec<Value> = operation
        .path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .chain((operation.id == "stream").then(|| {
            json!({"name": "Last-Event-ID", "in": "header", "required": false, "schema": {"type": "string"},
                   "description": "The id of the last event that you got; the stream goes on after it."})
        }))
        .chain((operation.id == "stream").then(|| {
            json!({"name": "until", "in": "query", "required": false, "schema": {"type": "string", "enum": ["turn"]},
                   "description": "`turn` ends the stream with the turn."})
        }))
        .chain((operation.id == "submit").then(|| {
            json!({"name": "Idempotency-Key", "in": "header", "required": false, "schema": {"type": "string"},
                   "description": "A repetition with the same key is the same question, and gets its answer."})
        }))
        .chain(["cancelSession", "deleteSession"].contains(&operation.id).then(|| {
            json!({"name": "tasks", "in": "query", "required": false, "schema": {"type": "boolean"},
                   "description": "Whether the open tasks are cancelled as well."})
        }))
        .collect();
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "description": format!("Scope: {}.", operation.scope),
        "responses": responses,
    });
    if !parameters.is_empty() {
        described["parameters"] = parameters.into();
    }
    if let Some(body) = &operation.body {
        described["requestBody"] = json!({"required": true, "content": {"application/json": {"schema": body}}});
    }
    described
}

/// The operations with which a key decides in the place of a human.
fn decisions(types: &mut SchemaGenerator) -> Vec<Operation> {
    vec![
        Operation {
            method: "get",
            path: "/api/v1/gates",
            id: "gates",
            summary: "What waits for a human",
            scope: "decide, which a human grants on the page",
            body: None,
            answers: vec![("200", "What waits.", json_content::<GateList>(types))],
        },
        Operation {
            method: "get",
            path: "/api/v1/gates/stream",
            id: "followGates",
            summary: "What waits for a human, as server-sent events; while a key follows, the calls of others wait for it",
            scope: "decide, which a human grants on the page",
            body: None,
            answers: vec![(
                "200",
                "`gate` with each gate that waits, also when it shows something else than before; `gone` when it no \
                 longer waits; a comment every 25 seconds.",
                json!({"text/event-stream": {"schema": reference::<GateEvent>(types)}}),
            )],
        },
        Operation {
            method: "get",
            path: "/api/v1/gate/{id}",
            id: "gate",
            summary: "One task that waits for a human, as the page shows it",
            scope: "decide, which a human grants on the page",
            body: None,
            answers: vec![("200", "What would be done.", json_content::<Gate>(types))],
        },
        Operation {
            method: "post",
            path: "/api/v1/gate/{id}",
            id: "decide",
            summary: "Decides on a task in the place of a human",
            scope: "decide, which a human grants on the page",
            body: Some(reference::<GateDecision>(types)),
            answers: vec![("200", "The decision is recorded.", json_content::<DecisionAnswer>(types))],
        },
    ]
}

fn operations(types: &mut SchemaGenerator) -> Vec<Operation> {
    let ok = |content: Value| vec![("200", "Done.", content)];
    let session = |id, method, path, summary, types: &mut SchemaGenerator| Operation {
        method,
        path,
        id,
        summary,
        scope: "ask",
        body: None,
        answers: ok(json_content::<SessionChange>(types)),
    };
    vec![
        Operation {
            method: "get",
            path: "/health",
            id: "health",
            summary: "Whether the server works",
            scope: "none",
            body: None,
            answers: vec![("200", "It works.", json_content::<Health>(types))],
        },
        Operation {
            method: "post",
            path: "/api/v1/submit",
            id: "submit",
            summary: "Asks a session a question",
            scope: "ask",
            body: Some(reference::<SubmitRequest>(types)),
            answers: vec![
                ("200", "The answer.", json_content::<SubmitAnswer>(types)),
                ("202", "It is not there yet; follow the stream of the session.", json_content::<SubmitPending>(types)),
            ],
        },
        Operation {
            method: "get",
            path: "/api/v1/stream/{session}",
            id: "stream",
            summary: "The events of a session, as server-sent events",
            scope: "read",
            body: None,
            answers: vec![(
                "200",
                "Events with an `id`, a name and JSON; a comment every 25 seconds.",
                json!({"text/event-stream": {"schema": reference::<SessionEvent>(types)}}),
            )],
        },
        Operation {
            method: "get",
            path: "/api/v1/sessions",
            id: "sessions",
            summary: "The sessions of this client",
            scope: "read",
            body: None,
            answers: vec![("200", "The sessions.", json_content::<SessionList>(types))],
        },
        Operation {
            method: "get",
            path: "/api/v1/session/{session}",
            id: "session",
            summary: "What a session is doing, and its last answer",
            scope: "read",
            body: None,
            answers: vec![("200", "Its state.", json_content::<SessionState>(types))],
        },
        session(
            "deleteSession",
            "delete",
            "/api/v1/session/{session}",
            "Deletes a session and the results of its tasks; open tasks continue",
            types,
        ),
        session("resetSession", "post", "/api/v1/session/{session}/reset", "Starts the conversation over", types),
        session(
            "cancelSession",
            "post",
            "/api/v1/session/{session}/cancel",
            "Stops the current answer; open tasks continue",
            types,
        ),
    ]
}

fn reference<T: JsonSchema>(types: &mut SchemaGenerator) -> Value {
    types.subschema_for::<T>().to_value()
}

fn json_content<T: JsonSchema>(types: &mut SchemaGenerator) -> Value {
    json!({"application/json": {"schema": reference::<T>(types)}})
}
