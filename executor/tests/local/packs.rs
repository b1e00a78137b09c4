//! The shipped packs are well-formed, and say what a model needs.

use executor::task::effect::EffectClass;
use jaq_core::load::{Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Vars, data, unwrap_valr};
use jaq_json::Val;
use serde_json::{Value, json};

use crate::{World, pack};

/// What the subtool's `result.select` makes of `data`.
pub(crate) fn selected(pack_name: &str, subtool: &str, data: Value) -> Value {
    let found = pack(pack_name).into_iter().find(|(name, _)| name == subtool);
    let (_, definition) = found.expect("a subtool of the pack");
    let Some(shape) = definition.result else { return data };
    let arena = Arena::default();
    let defs = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
    let funs = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
    let modules = Loader::new(defs).load(&arena, File { code: shape.select.as_str(), path: () }).expect("it parses");
    let filter = Compiler::default().with_funs(funs).compile(modules).expect("it compiles");
    let input: Val = serde_json::from_value(data).expect("a value of jq");
    let ctx = Ctx::<data::JustLut<Val>>::new(&filter.lut, Vars::new([]));
    let mut outputs = filter.id.run((ctx, input)).map(unwrap_valr);
    let output = outputs.next().expect("one value").unwrap_or_else(|error| panic!("{error}"));
    assert!(outputs.next().is_none(), "one value only");
    serde_json::from_str(&output.to_string()).expect("it is JSON")
}

#[test]
fn each_subtool_is_well_formed_and_its_examples_fit() {
    for name in ["files", "git"] {
        for (subtool, definition) in pack(name) {
            assert!(subtool.starts_with(name), "{subtool}: the names of a pack begin alike");
            definition.run.check().unwrap_or_else(|mistake| panic!("{subtool}: {mistake:?}"));
            assert_eq!(definition.annotations.effect_class(), EffectClass::Read, "{subtool}");
            assert_eq!(definition.annotations.open_world_hint, Some(false), "{subtool}");
            assert!(definition.description.contains("Returns"), "{subtool}: a description ends on what it returns");
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
                definition.run.plan(&world.invocation(input), &world.context.config).expect("it can be planned");
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
            assert!(!validator.is_valid(&input), "{subtool} takes `{revision}`");
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
