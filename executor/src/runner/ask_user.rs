//! The `ask_user` runner: a question to the human, on the page.
//!
//! The question waits like a confirmation does; by the time the order is performed the answer is there,
//! and this only hands it over. Accepting, declining and dismissing are three answers, as in MCP's
//! elicitation. A secret that a human types is kept in the secret store, and the caller gets its name.

use serde_json::{Map, json};

use super::{
    CancellationToken, Code, Config, DefinitionMistake, Deserialize, Failure, Invocation, JsonSchema, Runner,
    RunnerContext, RunnerOutput, Serialize, Value,
};
use crate::base::schema::{InputSchema, Problem};
use crate::base::template::{self, TemplateValues};
use crate::config::secret::{SecretName, Secrets};

/// The one field of a question that has no form of its own.
const ANSWER: &str = "answer";

/// A question to the human.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AskUser {
    /// What is asked: a template.
    pub question: String,
    /// The answers to choose from: a template that gives a list of texts. Absent: any answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<String>,
    /// Whether several of them may be chosen: a template that gives true or false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multiple: Option<String>,
    /// What kind of answer is wanted where there are no options: a template that gives `text`, `number` or `boolean`.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "type")]
    pub kind: Option<String>,
    /// Several fields at once: a template that gives the JSON Schema of an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<String>,
}

/// A question as it is put to the human.
#[derive(Debug)]
pub struct UserQuestion {
    pub text: String,
    /// Of an object, whose fields are the form.
    pub schema: Map<String, Value>,
    is_form: bool,
    compiled: InputSchema,
}

impl AskUser {
    /// The question that an input asks, or why it asks none.
    pub fn question(&self, input: &Map<String, Value>) -> Result<UserQuestion, Failure> {
        let scope = TemplateValues::of_input(input);
        let text = scope.text(&self.question)?;
        let given = |template: &Option<String>| -> Result<Value, Failure> {
            let template = template.as_ref().map(|template| Value::String(template.clone()));
            Ok(template.map_or(Ok(None), |template| scope.value(&template))?.unwrap_or(Value::Null))
        };
        let wrong = |message: &str| Failure::new(Code::InvalidInput, message);
        let (schema, is_form) = match given(&self.form)? {
            Value::Object(schema) => (schema, true),
            Value::Null => (single(&given(&self.options)?, &given(&self.multiple)?, &given(&self.kind)?)?, false),
            _ => return Err(wrong("the form is no JSON Schema of an object")),
        };
        if schema.get("properties").and_then(Value::as_object).is_none_or(Map::is_empty) {
            return Err(wrong("the form has no `properties`: there would be nothing to fill in"));
        }
        let compiled = InputSchema::compile(&schema)
            .map_err(|error| wrong("the form is no JSON Schema").detail("problem", error.to_string()))?;
        Ok(UserQuestion { text, schema, is_form, compiled })
    }
}

/// The form of a question with one answer.
fn single(options: &Value, multiple: &Value, kind: &Value) -> Result<Map<String, Value>, Failure> {
    let wrong = |message: &str| Failure::new(Code::InvalidInput, message);
    let mut field = match (options, kind.as_str().unwrap_or("text")) {
        (Value::Array(options), _) if options.is_empty() => return Err(wrong("there is no option to choose")),
        (Value::Array(options), _) if *multiple == Value::Bool(true) => {
            json!({"type": "array", "items": {"enum": options}, "uniqueItems": true})
        }
        (Value::Array(options), _) => json!({"enum": options}),
        (Value::Null, "text") => json!({"type": "string", "maxLength": 100_000}),
        (Value::Null, "number") => json!({"type": "number"}),
        (Value::Null, "boolean") => json!({"type": "boolean"}),
        (Value::Null, _) => return Err(wrong("the type is `text`, `number` or `boolean`")),
        _ => return Err(wrong("the options are no list")),
    };
    field["title"] = "Your answer".into();
    let schema =
        json!({"type": "object", "properties": {ANSWER: field}, "required": [ANSWER], "additionalProperties": false});
    let Value::Object(schema) = schema else { unreachable!("it is written as one") };
    Ok(schema)
}

impl UserQuestion {
    /// Whether one of its fields is a secret.
    pub fn asks_for_secrets(&self) -> bool {
        self.fields().any(|(_, field)| is_secret(field))
    }

    fn fields(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.schema.get("properties").and_then(Value::as_object).into_iter().flatten()
    }

    /// What the human filled in, as the caller reads it: secrets are put away under names that begin with
    /// `prefix`. Or what does not fit, and nothing is put away.
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
        for (name, _) in self.fields().filter(|(_, field)| is_secret(field)) {
            let Some(Value::String(secret)) = content.get(name) else { continue };
            let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
            let kept = format!("{prefix}-{plain}").parse::<SecretName>().map_err(|error| error.to_string());
            let kept =
                kept.and_then(|name| secrets.set(&name, secret).map(|()| name).map_err(|error| error.to_string()));
            match kept {
                Ok(kept) => content.insert(name.clone(), json!({"stored_as": format!("secret:{}", kept.as_str())})),
                Err(problem) => {
                    let pointer = format!("/{name}");
                    return Err(vec![Problem { pointer, problem, did_you_mean: None, schema: None }]);
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

fn is_secret(field: &Value) -> bool {
    field["writeOnly"] == true || field["format"] == "password"
}

impl Runner for AskUser {
    fn check(&self) -> Result<(), DefinitionMistake> {
        template::check(&self.question).map_err(|error| DefinitionMistake::new("question", &error))?;
        let others =
            [("options", &self.options), ("multiple", &self.multiple), ("type", &self.kind), ("form", &self.form)];
        for (place, template) in others {
            if let Some(template) = template {
                template::check(template).map_err(|error| DefinitionMistake::new(place, &error))?;
            }
        }
        Ok(())
    }

    fn plan(&self, invocation: &Invocation, _: &Config) -> Result<Value, Failure> {
        let question = self.question(&invocation.input)?;
        Ok(json!({"question": question.text, "form": question.schema}))
    }

    async fn perform(
        &self,
        invocation: &Invocation,
        _: &RunnerContext,
        _: &CancellationToken,
    ) -> Result<RunnerOutput, Failure> {
        let unanswered = || Failure::new(Code::Internal, "it was let through without an answer");
        invocation.answer.clone().map(RunnerOutput::json).ok_or_else(unanswered)
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
        ask().question(input.as_object().expect("an object")).map_err(|failure| failure.error.message)
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
    fn an_answer_must_fit_and_a_secret_is_told_by_its_name_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let secrets = Secrets::new(folder.path().join("secrets"), std::collections::BTreeMap::new());
        let form = json!({"type": "object", "required": ["user"], "properties": {
            "user": {"type": "string"}, "pass word": {"type": "string", "format": "password"}}});
        let asked = question(&json!({"question": "q", "form": form})).expect("a question");
        assert!(asked.asks_for_secrets());
        let accept = |content: Value| {
            let Value::Object(content) = content else { panic!("an object") };
            asked.accept(content, "ask-1", &secrets)
        };
        assert_eq!(accept(json!({"pass word": "hunter22"})).expect_err("no user").len(), 1);
        assert!(secrets.names().expect("read").is_empty(), "nothing is kept of what does not fit");
        let told = accept(json!({"user": "ann", "pass word": "hunter22"})).expect("it fits");
        let expected = json!({"user": "ann", "pass word": {"stored_as": "secret:ask-1-pass-word"}});
        assert_eq!(told, json!({"action": "accept", "content": expected}));
        assert_eq!(secrets.names().expect("read")[0].0, "ask-1-pass-word");
    }
}
