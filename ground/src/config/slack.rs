//! `[serve.slack]`: which Slack app this is, who may ask, and how it answers.

use std::collections::BTreeMap;
use std::str::FromStr as _;

use super::secret::SecretName;
use protocol::duration::PositiveDuration;
use protocol::tool_scope::ToolScope;
use serde::Deserialize;
use url::{Host, Url};

/// In `users`: every full member of the workspace.
const EVERY_MEMBER: &str = "*";

/// Settings of the Slack connector.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SlackSettings {
    /// The app-level token (`xapp-…`) with the scope `connections:write`.
    pub app_token: SecretName,
    /// The bot's token (`xoxb-…`).
    pub bot_token: SecretName,
    pub api_url: Url,
    /// The ids of the users who may ask; `*` means every member of the workspace. Empty: nothing is answered.
    pub users: Vec<String>,
    /// The ids of the channels in which questions are answered; empty means all that the app was invited to, and
    /// direct messages.
    pub channels: Vec<String>,
    pub mode: SlackMode,
    #[serde(rename = "gate")]
    pub waiting: SlackWaiting,
    /// Whether messages in a thread in which the app takes part are questions without a mention.
    pub threads: bool,
    /// The least time between two messages or edits in one channel.
    pub interval: PositiveDuration,
    /// A name in `[models]`; the default model if it is not set.
    pub model: Option<String>,
    /// Which subtools may be used from Slack; it only narrows.
    pub tool_scope: ToolScope,
    /// The profile with the rights of all who ask from Slack.
    pub profile: Option<String>,
    /// By the id of a channel, the profile of those who ask there, beside that of all.
    pub channel_profiles: BTreeMap<String, String>,
    pub read_only: bool,
}

/// When an answer is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlackMode {
    /// As it is written: one message that is edited.
    #[default]
    Stream,
    /// Once, when it is complete.
    Final,
}

/// What happens to a task that needs a human's yes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlackWaiting {
    /// It waits, and its thread says so.
    #[default]
    Wait,
    /// It fails unless the page is open in a browser.
    Refuse,
}

impl Default for SlackSettings {
    fn default() -> Self {
        let secret = |name: &str| SecretName::in_reference(name).expect("a valid reference");
        Self {
            app_token: secret("secret:slack_app_token"),
            bot_token: secret("secret:slack_bot_token"),
            api_url: Url::parse("https://slack.com/api/").expect("a valid URL"),
            users: Vec::new(),
            channels: Vec::new(),
            mode: SlackMode::default(),
            waiting: SlackWaiting::default(),
            threads: true,
            interval: PositiveDuration::from_str("1200ms").expect("a valid duration"),
            model: None,
            tool_scope: ToolScope::default(),
            profile: None,
            channel_profiles: BTreeMap::new(),
            read_only: false,
        }
    }
}

impl SlackSettings {
    /// Returns what is wrong with the settings, for the one who wrote them.
    pub fn check(&self) -> Result<(), String> {
        let is_local = match self.api_url.host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => false,
        };
        if self.api_url.scheme() != "https" && !(self.api_url.scheme() == "http" && is_local) {
            return Err(format!("`api_url`: `{}` is not an https URL", self.api_url));
        }
        if !self.api_url.path().ends_with('/') {
            return Err(format!("`api_url`: `{}` must end with `/`", self.api_url));
        }
        for user in self.users.iter().filter(|user| *user != EVERY_MEMBER) {
            if !is_id(user, &['U', 'W']) {
                return Err(format!("`users`: `{user}` is not a member id like `U024BE7LH`, nor `*`"));
            }
        }
        let channels = self.channels.iter().map(|channel| ("channels", channel));
        for (key, channel) in channels.chain(self.channel_profiles.keys().map(|channel| ("channel_profiles", channel)))
        {
            if !is_id(channel, &['C', 'G', 'D']) {
                return Err(format!("`{key}`: `{channel}` is not a channel id like `C024BE7LH`"));
            }
        }
        Ok(())
    }

    /// What those may use who ask in `channel`.
    pub fn tool_scope_in(&self, channel: &str) -> ToolScope {
        let mut profiles = self.profile.iter().chain(self.channel_profiles.get(channel));
        let narrowed = profiles.try_fold(self.tool_scope.clone(), |scope, profile| scope.within_profile(profile));
        // The configuration was not accepted with such a name.
        narrowed.unwrap_or_else(|_| ToolScope::nothing())
    }

    /// Whether `user` may ask in `channel`. `is_member`: the user belongs to the app's own workspace.
    pub fn allows(&self, user: &str, is_member: bool, channel: &str) -> bool {
        let user_fits = self.users.iter().any(|allowed| allowed == user || (allowed == EVERY_MEMBER && is_member));
        user_fits && (self.channels.is_empty() || self.channels.iter().any(|allowed| allowed == channel))
    }
}

fn is_id(text: &str, kinds: &[char]) -> bool {
    text.starts_with(kinds) && text.len() > 1 && text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn settings(table: Value) -> Result<SlackSettings, String> {
        let settings: SlackSettings = serde_json::from_value(table).map_err(|error| error.to_string())?;
        settings.check().map(|()| settings)
    }

    #[test]
    fn an_empty_list_of_users_allows_no_one() {
        let closed = settings(json!({})).expect("valid");
        assert!(!closed.allows("U1", true, "C1"));
        let all = settings(json!({"users": ["*"]})).expect("valid");
        assert!(all.allows("U1", true, "C1"));
        assert!(!all.allows("U1", false, "C1"), "someone of another workspace in a shared channel");
        let some = settings(json!({"users": ["U1"], "channels": ["C1"]})).expect("valid");
        assert!(some.allows("U1", false, "C1"), "named explicitly");
        assert!(!some.allows("U1", true, "C2"));
        assert!(!some.allows("U2", true, "C1"));
    }

    #[test]
    fn the_chapter_names_all_settings() {
        let chapter = include_str!("../../../docs/serve-slack.md");
        let rows = chapter.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let mut named: Vec<_> = rows.map(|(key, _)| key).collect();
        named.sort_unstable();
        let error = settings(json!({"?": 1})).expect_err("unknown");
        let (_, known) = error.split_once("expected one of ").expect("serde lists the known ones");
        let mut known: Vec<_> = known.split('`').skip(1).step_by(2).collect();
        known.sort_unstable();
        assert_eq!(named, known);
    }

    #[test]
    fn wrong_settings_are_named() {
        for (table, word) in [
            (json!({"api_url": "http://slack.example/api/"}), "https"),
            (json!({"api_url": "https://slack.com/api"}), "must end"),
            (json!({"users": ["@me"]}), "`@me`"),
            (json!({"channels": ["#general"]}), "`#general`"),
            (json!({"app_token": "xapp-1-typed-here"}), "secret"),
            (json!({"bots": true}), "`bots`"),
        ] {
            let error = settings(table).expect_err("refused");
            assert!(error.contains(word), "{error}");
        }
        settings(json!({"api_url": "http://127.0.0.1:9/api/", "mode": "final", "gate": "refuse"})).expect("valid");
    }
}
