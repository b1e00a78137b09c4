//! The agent card: what any client may know of this agent.

use ground::config::ServeSettings;
use serde_json::{Value, json};

/// The path of the JSON-RPC binding, and the beginning of those of the HTTP+JSON binding.
pub(super) const PATH: &str = "/a2a";

/// What the card says. All of it is public.
#[derive(Debug, Clone, Default)]
pub struct CardFacts {
    pub name: String,
    pub description: String,
    /// The address under which other machines reach this server. A client that asked another host, and one without it, is
    /// told the host that it asked.
    pub url: Option<String>,
    /// Whether it encrypts itself.
    pub has_tls: bool,
    /// Whether a client needs an API key.
    pub needs_key: bool,
}

impl CardFacts {
    /// The facts of a server with these settings.
    pub fn of(settings: &ServeSettings) -> Self {
        Self {
            name: settings.name.clone(),
            description: settings.description.clone(),
            url: settings.public_names.first().map(|name| format!("https://{name}")),
            has_tls: !settings.certificate.as_os_str().is_empty(),
            needs_key: !settings.keyless || !settings.listen.ip().is_loopback(),
        }
    }

    /// The card for a client that asked `host`.
    pub(super) fn to_card(&self, host: &str) -> Value {
        let is_local = host.starts_with("127.0.0.1") || host.starts_with("localhost") || host.starts_with("[::1]");
        let base = match &self.url {
            Some(url) if !is_local => url.trim_end_matches('/').to_owned(),
            _ => format!("{}://{host}", if self.has_tls { "https" } else { "http" }),
        };
        let url = format!("{base}{PATH}");
        let interface =
            |binding: &str, version: &str| json!({"url": url, "protocolBinding": binding, "protocolVersion": version});
        let modes = ["text/plain", "application/json"];
        let mut card = json!({
            "name": self.name,
            "description": self.description,
            "version": env!("CARGO_PKG_VERSION"),
            "supportedInterfaces": [
                interface("JSONRPC", "1.0"),
                interface("HTTP+JSON", "1.0"),
                interface("JSONRPC", "0.3"),
            ],
            "capabilities": {
                "streaming": true,
                "pushNotifications": false,
                "extendedAgentCard": false,
                "extensions": [{
                    "uri": "urn:agent-magic-tool:repeatable",
                    "description": "A message that is sent again with its messageId is not answered twice.",
                    "required": false,
                }],
            },
            "defaultInputModes": modes,
            "defaultOutputModes": ["text/plain"],
            "skills": [{
                "id": "ask",
                "name": "Ask",
                "description": self.description,
                "tags": ["agent"],
                "inputModes": modes,
                "outputModes": ["text/plain"],
            }],
            // Where clients of version 0.3 look.
            "protocolVersion": "0.3.0",
            "url": url,
            "preferredTransport": "JSONRPC",
        });
        if self.needs_key {
            card["securitySchemes"] = json!({"bearer": {"httpAuthSecurityScheme": {"scheme": "bearer"}}});
            card["securityRequirements"] = json!([{"schemes": {"bearer": {"list": []}}}]);
        }
        card
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_names_the_configured_address_and_the_key_that_is_needed() {
        let facts = CardFacts { name: "x".to_owned(), ..CardFacts::default() };
        let card = facts.to_card("127.0.0.1:8080");
        assert_eq!(card["supportedInterfaces"][0]["url"], "http://127.0.0.1:8080/a2a");
        assert_eq!(card["securitySchemes"], Value::Null);
        let facts = CardFacts { url: Some("https://agent.example/".to_owned()), needs_key: true, ..facts };
        // The door lets no other host in than ours.
        let card = facts.to_card("agent.example");
        assert_eq!(card["supportedInterfaces"][0]["url"], "https://agent.example/a2a");
        assert_eq!(facts.to_card("[::1]:80")["supportedInterfaces"][0]["url"], "http://[::1]:80/a2a");
        assert_eq!(card["securitySchemes"]["bearer"]["httpAuthSecurityScheme"]["scheme"], "bearer");
    }
}
