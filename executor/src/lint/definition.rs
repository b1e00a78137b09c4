//! Settings that load but do not do what they seem to do.

use catalog::Subtool;
use definition::Verify;
use definition::run::Run;
use ground::base::template::names::SHARED_NAMES;
use ground::task::effect::EffectClass;
use serde_json::{Map, Value};

use super::{Finding, warning};

pub(super) fn check(subtool: &Subtool, findings: &mut Vec<Finding>) {
    parameters(subtool, findings);
    effects(subtool, findings);
    if let Some(verify) = &subtool.definition.verify {
        lookup(subtool, verify, findings);
    }
}

fn parameters(subtool: &Subtool, findings: &mut Vec<Finding>) {
    let input = Value::Object(subtool.definition.input.clone());
    let no_properties = Map::new();
    let properties = input["properties"].as_object().unwrap_or(&no_properties);
    let required: Vec<_> = input["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, property) in properties {
        let place = format!("input.properties.{name}");
        if required.contains(&name.as_str()) && property.get("default").is_some() {
            let message = format!("`{name}` is required and has a default; a default makes it optional");
            findings.push(warning(subtool, "required-with-default", &place, message));
        }
        if property.get("description").is_none() && property.get("enum").is_none() {
            findings.push(warning(subtool, "undescribed-parameter", &place, format!("`{name}` has no description")));
        }
        if property["enum"].as_array().is_some_and(Vec::is_empty) {
            let message = format!("no value of `{name}` is valid: its `enum` is empty");
            findings.push(warning(subtool, "empty-enum", &place, message));
        }
        if SHARED_NAMES.contains(&name.as_str()) {
            let message = format!("templates know this field only as `input.{name}`; another name avoids mix-ups");
            findings.push(warning(subtool, "shared-name", &place, message));
        }
    }
    for name in required.iter().filter(|name| !properties.contains_key(**name)) {
        let message = format!("`{name}` is required but not declared in `properties`");
        findings.push(warning(subtool, "unknown-required", "input.required", message));
    }
    let says_what_else = ["additionalProperties", "unevaluatedProperties", "patternProperties", "$ref"]
        .iter()
        .any(|keyword| input.get(*keyword).is_some());
    if !says_what_else {
        let message =
            "a misspelled field is accepted, and may be dropped without a word; add \"additionalProperties\": false";
        findings.push(warning(subtool, "open-input", "input", message));
    }
}

fn effects(subtool: &Subtool, findings: &mut Vec<Finding>) {
    let definition = &subtool.definition;
    let effect = definition.effect_class();
    let is_own_retry = definition.retries.is_some_and(|retries| retries.times > 0);
    if is_own_retry && effect == EffectClass::Once {
        let message = "an attempt that may have had an effect is never repeated, so this helps only before anything was \
                       sent; say that repeating is safe with \"idempotentHint\": true, or how to look it up with `verify`";
        findings.push(warning(subtool, "retries-without-effect", "retries", message));
    }
    let Run::Http(http) = &definition.run else { return };
    if http.idempotency_header.is_none() || effect == EffectClass::Idempotent {
        return;
    }
    let message = if effect == EffectClass::Read {
        "a read-only request needs no idempotency key; leave it out"
    } else {
        "the key is sent, but a lost attempt is still not repeated; if the service acts once for each key, say so with \
         \"annotations\": {\"idempotentHint\": true}"
    };
    findings.push(warning(subtool, "idempotency-without-effect", "run.http.idempotency_header", message));
}

/// How many hits are looked at, which says nothing of which ones.
const HOW_MANY: [&str; 6] = ["limit", "page", "page_size", "per_page", "max_results", "offset"];

/// Warns about a `verify` that would take the success of another run for its own.
fn lookup(subtool: &Subtool, verify: &Verify, findings: &mut Vec<Finding>) {
    // Not evaluated: an expression may take any time and memory.
    let happened: String = verify.happened.split_whitespace().collect();
    let is_tautology =
        ["true", "length>=0", "length>-1", "length!=null", ".==.", "1==1", "true==true", "falsenot", "null|not"];
    if is_tautology.contains(&happened.as_str())
        || happened.starts_with("trueor")
        || happened.ends_with("ortrue")
        || happened.ends_with("|true")
        || happened.ends_with("//true")
    {
        let message = "it is true even if nothing was found; test what was found, like `length > 0`";
        findings.push(warning(subtool, "verify-accepts-anything", "verify.happened", message));
        return;
    }
    let fields = subtool.definition.input.get("properties").and_then(Value::as_object);
    let fields = fields.into_iter().flatten().map(|(name, _)| name.as_str()).filter(|name| !HOW_MANY.contains(name));
    let of_run: Vec<&str> = fields.chain(["input", "task"]).collect();
    let mentions_run =
        super::inputs::words_in_templates(&verify.input).iter().any(|word| of_run.contains(&word.as_str()))
            || verify.happened.contains("$input")
            || verify.happened.contains("$task");
    if !mentions_run {
        let message = "it accepts any hit, also one of another run; look for this very run, by a field of the input \
                       or by `{{ task.id }}`";
        findings.push(warning(subtool, "verify-accepts-any-hit", "verify.input", message));
    }
}
