//! The question with which a running task asks the human: for MCP servers that ask, and for sign-ins.
//!
//! It is built in. Which packs are enabled, what `[access]` lists and what else is named `ask_user` say nothing about it.

use std::sync::{Arc, OnceLock};

use ground::task::name::SubtoolName;
use ground::task::question_key::QUESTION;
use serde_json::{Map, Value};

use super::destinations::Destinations;
use super::load::subtool;
use super::variables::Variables;
use super::{Origin, Subtool, packs};

/// The pack and the subtool that have its fields.
const PACK: &str = "human";
const FIELDS_OF: &str = "ask_user";

/// The built-in question.
pub(super) fn question() -> Option<Arc<Subtool>> {
    static BUILT: OnceLock<Option<Arc<Subtool>>> = OnceLock::new();
    BUILT.get_or_init(build).clone()
}

fn build() -> Option<Arc<Subtool>> {
    let mut file: Map<String, Value> = serde_json::from_str(packs::shipped(PACK)?.text).ok()?;
    let Value::Object(definition) = file.remove(FIELDS_OF)? else { return None };
    let name = QUESTION.parse::<SubtoolName>().ok()?;
    let settings = (&Variables::default(), &Destinations::default());
    let built = subtool(&name, definition, &Origin::Pack(PACK.to_owned()), settings);
    built.ok().map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_is_built_from_what_ships() {
        let built = question().expect("a definition without a mistake");
        assert_eq!((built.name.as_str(), built.definition.run.name()), (QUESTION, "ask_user"));
    }
}
