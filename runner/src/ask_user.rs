//! The `ask_user` runner: a question to the human on the page.
//!
//! A question waits like a confirmation. The task is performed after the human has answered, so the runner only
//! passes the answer on. Accepting, declining and dismissing are three different answers, as in MCP's elicitation.
//! A secret that the human types is kept in the secret store, and the caller gets its name.

use definition::run::ask_user::AskUser;
use futures_util::future::{BoxFuture, ready};
use ground::base::schema::{InputSchema, Problem};
use ground::config::seal::is_hidden;
use ground::config::secret::{SecretName, Secrets};
use serde_json::{Map, json};

use super::{CancellationToken, Code, Config, Failure, Invocation, Runner, RunnerContext, RunnerOutput, Value};

/// The only field of a question without a form.
const ANSWER: &str = "answer";

/// A question as the human sees it.
#[derive(Debug)]
pub struct UserQuestion {
    pub text: String,
    /// The JSON Schema of an object; its properties are the fields of the form.
    pub schema: Map<String, Value>,
    is_form: bool,
    compiled: InputSchema,
}

/// Returns the question of an invocation; fails if its input does not make a valid question.
pub fn question(ask: &AskUser, invocation: &Invocation) -> Result<UserQuestion, Failure> {
    let scope = invocation.values();
    let text = scope.text(&ask.question)?;
    let value = |template: &Option<String>| -> Result<Value, Failure> {
        let template = template.as_ref().map(|template| Value::String(template.clone()));
        Ok(template.map_or(Ok(None), |template| scope.value(&template))?.unwrap_or(Value::Null))
    };
    let invalid = |message: &str| Failure::new(Code::InvalidInput, message);
    let (schema, is_form) = match value(&ask.form)? {
        Value::Object(schema) => (schema, true),
        Value::Null => (one_field(&value(&ask.options)?, &value(&ask.multiple)?, &value(&ask.kind)?)?, false),
        _ => return Err(invalid("the form is not the JSON Schema of an object")),
    };
    if schema.get("properties").and_then(Value::as_object).is_none_or(Map::is_empty) {
        return Err(invalid("the form has no `properties`, so there is nothing to fill in"));
    }
    let compiled = InputSchema::compile(&schema)
        .map_err(|error| invalid("the form is not a valid JSON Schema").detail("problem", error.to_string()))?;
    Ok(UserQuestion { text, schema, is_form, compiled })
}

/// The form of a question without a form: one field for the answer.
fn one_field(options: &Value, multiple: &Value, kind: &Value) -> Result<Map<String, Value>, Failure> {
    let invalid = |message: &str| Failure::new(Code::InvalidInput, message);
    let mut field = match (options, kind.as_str().unwrap_or("text")) {
        (Value::Array(options), _) if options.is_empty() => return Err(invalid("`options` is empty")),
        (Value::Array(options), _) if *multiple == Value::Bool(true) => {
            json!({"type": "array", "items": {"enum": options}, "uniqueItems": true})
        }
        (Value::Array(options), _) => json!({"enum": options}),
        (Value::Null, "text") => json!({"type": "string", "maxLength": 100_000}),
        (Value::Null, "number") => json!({"type": "number"}),
        (Value::Null, "boolean") => json!({"type": "boolean"}),
        (Value::Null, _) => return Err(invalid("`type` is not `text`, `number` or `boolean`")),
        _ => return Err(invalid("`options` is not a list")),
    };
    field["title"] = "Your answer".into();
    let schema =
        json!({"type": "object", "properties": {ANSWER: field}, "required": [ANSWER], "additionalProperties": false});
    let Value::Object(schema) = schema else { unreachable!("the literal above is an object") };
    Ok(schema)
}

impl UserQuestion {
    /// Whether one of its fields is a secret.
    pub fn asks_for_secrets(&self) -> bool {
        self.fields().any(|(_, field)| is_hidden(field))
    }

    fn fields(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.schema.get("properties").and_then(Value::as_object).into_iter().flatten()
    }

    /// Checks what the human filled in and returns the answer for the caller.
    ///
    /// Stores secrets under names that begin with `prefix`; the answer contains these names in their place. If the
    /// content does not match the form, returns the problems and stores nothing.
    pub fn accept(
        &self,
        mut content: Map<String, Value>,
        prefix: &str,
        secrets: &Secrets,
    ) -> Result<Value, Vec<Problem>> {
        let problems = self.compiled.problems(&Value::Object(content.clone()));
        if !problems.is_empty() {
            return Err(problems);
        }
        for (name, _) in self.fields().filter(|(_, field)| is_hidden(field)) {
            let Some(Value::String(secret)) = content.get(name) else { continue };
            let suffix: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
            let secret_name = format!("{prefix}-{suffix}").parse::<SecretName>().map_err(|error| error.to_string());
            let stored = secret_name
                .and_then(|name| secrets.set(&name, secret).map(|()| name).map_err(|error| error.to_string()));
            match stored {
                Ok(stored) => content.insert(name.clone(), json!({"stored_as": format!("secret:{}", stored.as_str())})),
                Err(problem) => {
                    let pointer = format!("/{name}");
                    return Err(vec![Problem { pointer, problem, fields: None, did_you_mean: None, schema: None }]);
                }
            };
        }
        Ok(if self.is_form {
            json!({"action": "accept", "content": content})
        } else {
            json!({"action": "accept", "answer": content.remove(ANSWER)})
        })
    }
}

impl Runner for AskUser {
    fn plan(&self, invocation: &Invocation, _: &Config) -> Result<Value, Failure> {
        let question = question(self, invocation)?;
        Ok(json!({"question": question.text, "form": question.schema}))
    }

    fn perform<'a>(
        &'a self,
        invocation: &'a Invocation,
        _: &'a RunnerContext,
        _: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<RunnerOutput, Failure>> {
        let unanswered = || Failure::new(Code::Internal, "the question was dispatched without an answer");
        Box::pin(ready(invocation.answer.clone().map(RunnerOutput::json).ok_or_else(unanswered)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask() -> AskUser {
        let definition = json!({"question": "{{ question }}", "options": "{{ options }}", "multiple": "{{ multiple }}",
            "type": "{{ type }}", "form": "{{ form }}"});
        serde_json::from_value(definition).expect("a runner")
    }

    fn question(input: &Value) -> Result<UserQuestion, String> {
        let invocation = Invocation { input: input.as_object().expect("an object").clone(), ..Invocation::default() };
        super::question(&ask(), &invocation).map_err(|failure| failure.error.message)
    }

    #[test]
    fn each_kind_of_question_has_its_form() {
        let field = |input: Value| question(&input).expect("a question").schema["properties"][ANSWER].clone();
        assert_eq!(field(json!({"question": "q"}))["type"], "string");
        assert_eq!(field(json!({"question": "q", "type": "number"}))["type"], "number");
        assert_eq!(field(json!({"question": "q", "options": ["a", "b"]}))["enum"], json!(["a", "b"]));
        let several = field(json!({"question": "q", "options": ["a", "b"], "multiple": true}));
        assert_eq!(several["items"]["enum"], json!(["a", "b"]));
        let form = json!({"type": "object", "properties": {"name": {"type": "string"}}});
        assert_eq!(Value::Object(question(&json!({"question": "q", "form": form})).expect("a question").schema), form);
        for wrong in [
            json!({"question": "q", "options": []}),
            json!({"question": "q", "type": "colour"}),
            json!({"question": "q", "form": {"type": "object"}}),
            json!({"question": "q", "form": {"type": "object", "properties": {"a": {"type": "strin"}}}}),
        ] {
            assert!(question(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_answer_must_match_the_form_and_shows_only_the_name_of_a_secret() {
        let folder = tempfile::tempdir().expect("a folder");
        let secrets = Secrets::new(folder.path().join("secrets"), std::collections::BTreeMap::new());
        let form = json!({"type": "object", "required": ["user"], "properties": {
            "user": {"type": "string"}, "pass word": {"type": "string", "format": "password"}}});
        let question = question(&json!({"question": "q", "form": form})).expect("a question");
        assert!(question.asks_for_secrets());
        let accept = |content: Value| {
            let Value::Object(content) = content else { panic!("the content is not an object") };
            question.accept(content, "ask-1", &secrets)
        };
        assert_eq!(accept(json!({"pass word": "hunter22"})).expect_err("`user` is missing").len(), 1);
        assert!(secrets.names().expect("readable").is_empty(), "a secret was stored for a rejected answer");
        let answer = accept(json!({"user": "ann", "pass word": "hunter22"})).expect("a valid answer");
        let expected = json!({"user": "ann", "pass word": {"stored_as": "secret:ask-1-pass-word"}});
        assert_eq!(answer, json!({"action": "accept", "content": expected}));
        assert_eq!(secrets.names().expect("readable")[0].0, "ask-1-pass-word");
    }
}
