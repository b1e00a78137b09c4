//! The agent runner's settings: a sub-agent of ours, or a remote one.

use ground::base::template;
use ground::config::secret::SecretName;
use ground::task::failure::Failure;
use protocol::code::Code;
use protocol::tool_scope::{ToolScope, check_profile_name};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;
use url::Url;

use super::{DefinitionMistake, Settings, TextKind};

/// A sub-agent.
#[skip_serializing_none]
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    /// What the sub-agent does: a template.
    pub prompt: String,
    /// Text for the end of the system prompt: a template.
    pub system: Option<String>,
    /// A name in `[models]`: a template. Without a value: the model of `[agent]`.
    pub model: Option<String>,
    /// The subtools it may use, out of those that its caller may use: a list of names and globs, or a template
    /// for one. Absent: all of them.
    #[schemars(example = ["gmail_*", "ask_user"])]
    pub subtools: Option<Value>,
    /// The profile with its rights: a name in `[profiles]`. Absent: those of its caller.
    pub profile: Option<String>,
    /// The most requests it may make to the model: a number, or a template. Absent: the limit in `[agent]`.
    pub steps: Option<Value>,
    /// The most tokens it may use, in addition to the limit in `[agent]`.
    pub tokens: Option<Value>,
    /// The most it may cost, in addition to the limit in `[agent]`.
    pub cost: Option<Value>,
    /// The address of a remote agent, which then does the work: a template. If it depends on the input, private addresses cannot be reached.
    #[schemars(regex(pattern = r"^https?://|\{[{%]"), example = "https://agent.example.com")]
    pub url: Option<String>,
    /// What the remote agent speaks. Absent: A2A if it has an agent card, and otherwise our own HTTP API.
    pub protocol: Option<AgentProtocol>,
    /// The key for the remote agent, sent as `Authorization: Bearer`.
    pub key: Option<SecretName>,
    /// The session of the remote agent: a template. Absent: one for each caller, address and key, the same each time.
    pub session: Option<String>,
}

/// What a remote agent speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentProtocol {
    /// The HTTP API of `agent-magic-tool serve`.
    Api,
    /// The agent2agent protocol, over JSON-RPC.
    A2a,
}

impl Settings for Agent {
    fn check(&self) -> Vec<DefinitionMistake> {
        let found = self.check_kind();
        if !found.is_empty() {
            return found;
        }
        if let Some(Err(wrong)) = self.profile.as_deref().map(check_profile_name) {
            return vec![DefinitionMistake::new("profile", &wrong.to_string())];
        }
        let Some(list) = self.subtools.as_ref().filter(|subtools| !subtools.is_string()) else { return Vec::new() };
        let wrong = |problem: &dyn ToString| vec![DefinitionMistake::new("subtools", &problem.to_string())];
        let Ok(patterns) = serde_json::from_value::<Vec<String>>(list.clone()) else {
            return wrong(&"it must be a list of names and globs, or a template for one");
        };
        let constant = patterns.into_iter().filter(|pattern| template::is_constant(pattern)).collect();
        ToolScope::default().narrowed(constant).map_or_else(|error| wrong(&error), |_| Vec::new())
    }

    fn text_kind(&self, place: &str) -> TextKind {
        if matches!(place, "protocol" | "key" | "profile") { TextKind::Constant } else { TextKind::Template }
    }
}

impl Agent {
    /// Whether its definition says what it may use.
    pub fn names_subtools(&self) -> bool {
        self.profile.is_some() || self.subtools.as_ref().is_some_and(|subtools| !subtools.is_string())
    }

    /// The mistakes of fields that belong to the other kind of agent, and of the address.
    fn check_kind(&self) -> Vec<DefinitionMistake> {
        let Some(url) = &self.url else {
            let remote = [
                ("protocol", self.protocol.is_some()),
                ("key", self.key.is_some()),
                ("session", self.session.is_some()),
            ];
            let given = remote.into_iter().filter(|(_, is_given)| *is_given);
            return given
                .map(|(name, _)| DefinitionMistake::new(name, &"is only for a remote agent: give `url`"))
                .collect();
        };
        let local = [
            ("system", self.system.is_some()),
            ("subtools", self.subtools.is_some()),
            ("profile", self.profile.is_some()),
        ];
        let given = local.into_iter().filter(|(_, is_given)| *is_given);
        let words = "is not for a remote agent: what it may use is decided where it runs";
        let mut found: Vec<_> = given.map(|(name, _)| DefinitionMistake::new(name, &words)).collect();
        if template::is_constant(url)
            && let Err(failure) = usable(url)
        {
            found.push(DefinitionMistake::new("url", &failure.error.message));
        }
        found
    }
}

/// Reads the address of a remote agent.
pub fn usable(url: &str) -> Result<Url, Failure> {
    let wrong = |why: &str| Failure::new(Code::Rejected, format!("`{url}` is no address of an agent: {why}"));
    let parsed = Url::parse(url).map_err(|error| wrong(&error.to_string()))?;
    if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
        return Err(wrong("it must begin with https:// or http://"));
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(wrong("it must not contain credentials; use `key`"));
    }
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err(wrong("it must not have a query or a fragment"));
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn agent(definition: Value) -> Agent {
        serde_json::from_value(definition).expect("a runner")
    }

    #[test]
    fn subtools_that_are_not_a_list_of_globs_are_a_mistake() {
        for subtools in [json!(5), json!([5]), json!(["a[b"])] {
            assert!(!agent(json!({"prompt": "x", "subtools": subtools})).check().is_empty());
        }
        assert_eq!(agent(json!({"prompt": "x", "subtools": ["gmail_*", "{{ more }}"]})).check(), []);
    }

    #[test]
    fn a_remote_agent_has_an_address_and_nothing_of_a_local_one() {
        let places = |definition: Value| -> Vec<String> {
            agent(definition).check().into_iter().map(|mistake| mistake.place).collect()
        };
        assert_eq!(places(json!({"prompt": "x", "url": "https://a.example", "key": "secret:k"})), [""; 0]);
        assert_eq!(places(json!({"prompt": "x", "url": "{{ url }}", "session": "s"})), [""; 0]);
        for (definition, place) in [
            (json!({"prompt": "x", "key": "secret:k"}), "key"),
            (json!({"prompt": "x", "protocol": "a2a"}), "protocol"),
            (json!({"prompt": "x", "session": "s"}), "session"),
            (json!({"prompt": "x", "url": "https://a.example", "system": "s"}), "system"),
            (json!({"prompt": "x", "url": "https://a.example", "subtools": []}), "subtools"),
            (json!({"prompt": "x", "url": "ftp://a.example"}), "url"),
            (json!({"prompt": "x", "url": "https://me:key@a.example"}), "url"),
        ] {
            assert_eq!(places(definition.clone()), [place], "{definition}");
        }
    }
}
