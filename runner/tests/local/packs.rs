//! The shipped packs are well-formed, and contain the descriptions that a model needs.

use ground::base::schema::InputSchema;
use ground::task::effect::EffectClass;
use jq::select::select_with;
use runner::Runner as _;
use serde_json::{Value, json};

use crate::{World, pack};

/// Applies the subtool's `result.select` to `data`.
pub(crate) fn selected(pack_name: &str, subtool: &str, input: Value, data: Value) -> Value {
    let found = pack(pack_name).into_iter().find(|(name, _)| name == subtool);
    let (_, definition) = found.expect("a subtool of the pack");
    let Some(select) = definition.result.and_then(|shape| shape.select) else { return data };
    let Value::Object(mut input) = input else { panic!("{input} is not an object") };
    InputSchema::compile(&definition.input).expect("a schema").normalize(&mut input);
    select_with(&select, &data, &[("$input", &Value::Object(input))]).expect("a value")
}

#[test]
fn each_subtool_is_well_formed_and_its_examples_match_its_schema() {
    for name in ["files", "git"] {
        for (subtool, definition) in pack(name) {
            assert!(subtool.starts_with(name), "{subtool}: the name should begin with the name of the pack");
            assert_eq!(definition.run.check(), [], "{subtool}");
            assert_eq!(definition.annotations.effect_class(), EffectClass::Read, "{subtool}");
            assert_eq!(definition.annotations.open_world_hint, Some(false), "{subtool}");
            assert!(
                definition.description.contains("Returns"),
                "{subtool}: the description should name what it returns"
            );
            let schema = Value::Object(definition.input.clone());
            let validator = jsonschema::validator_for(&schema).unwrap_or_else(|error| panic!("{subtool}: {error}"));
            let properties = schema["properties"].as_object().expect("properties");
            for (property, about) in properties {
                assert!(about["description"].is_string(), "{subtool}: {property} has no description");
            }
            assert!(!definition.examples.is_empty(), "{subtool}: no example");
            for example in definition.examples {
                let input = Value::Object(example.input);
                validator.validate(&input).unwrap_or_else(|error| panic!("{subtool}: {input}: {error}"));
                let world = World::new();
                definition.run.plan(&world.invocation(input), &world.context.config).expect("a plan");
            }
        }
    }
}

#[test]
fn the_schemas_refuse_options_as_revisions() {
    for (subtool, definition) in pack("git") {
        let schema = Value::Object(definition.input);
        let validator = jsonschema::validator_for(&schema).expect("a schema");
        if !schema["properties"]["revision"].is_object() {
            continue;
        }
        for revision in ["--output=x", "-p", "", "a b", " --x"] {
            let input = json!({"path": "x", "revision": revision});
            assert!(!validator.is_valid(&input), "{subtool} accepts `{revision}`");
        }
        for revision in ["HEAD~2", "main...topic", "v1.0^{commit}", "HEAD:a.txt", "@{-1}", "^main"] {
            let mut input = json!({"revision": revision});
            if subtool == "git_blame" {
                input["path"] = json!("x");
            }
            assert!(validator.is_valid(&input), "{subtool} refuses `{revision}`");
        }
    }
}
