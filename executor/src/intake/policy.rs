//! Policy: whether a task runs by itself, asks a human, or is refused.
//!
//! Decides from the human's rules, the definition, the input and the caller. A rule that refuses is
//! stronger than one that asks, and that than one that allows; where no rule speaks the definition does,
//! and where that is silent what it is declared to do. A subtool is never let through because nobody
//! thought of it: what changes something and says nothing needs a human.

use globset::{Glob, GlobSet, GlobSetBuilder};
use protocol::caller::Caller;
use serde_json::{Map, Value};

use crate::base::template::{self, TemplateValues};
use crate::catalog::definition::{Confirm, Definition};
use crate::config::{self, RuleAction, RuleSample};
use crate::runner::Run;
use crate::task::confirmation::ASSURANCE;
use crate::task::effect::EffectClass;
use crate::task::name::SubtoolName;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyDecision {
    Run,
    /// A human must say yes.
    Ask,
    Refuse,
    /// Nothing here gives a yes that is sure enough.
    NeedsAssurance,
}

/// A decision, and what decided it, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRuling {
    pub decision: PolicyDecision,
    pub why: String,
    /// Which of the human's rules decided, as they count them; `None` if none did.
    pub rule: Option<usize>,
}

impl PolicyRuling {
    /// The same in a session that only reads: it can refuse what was not refused, and nothing else.
    #[must_use]
    pub fn where_only_read(self, definition: &Definition) -> Self {
        // What is delegated on is not bound by the word of whoever delegates it.
        let only_reads = definition.annotations.effect_class() == EffectClass::Read && !definition.run.delegates();
        if only_reads || self.decision == PolicyDecision::Refuse {
            return self;
        }
        let why = "this session only reads (--read-only), and it is not declared to only read".to_owned();
        Self { decision: PolicyDecision::Refuse, why, rule: None }
    }
}

/// What is decided about.
#[derive(Debug, Clone, Copy)]
pub struct PolicyCase<'a> {
    pub name: &'a SubtoolName,
    pub definition: &'a Definition,
    pub input: &'a Map<String, Value>,
    pub caller: &'a Caller,
}

/// The human's rules, understood.
#[derive(Debug)]
pub struct Policy {
    rules: Vec<CompiledRule>,
    writes: RuleAction,
}

#[derive(Debug)]
struct CompiledRule {
    /// As the human counts them.
    number: usize,
    tools: GlobSet,
    tags: Vec<String>,
    when: Option<String>,
    then: RuleAction,
    because: Option<String>,
}

/// A rule that cannot be understood, or that does not do what its samples say.
#[derive(Debug, thiserror::Error)]
#[error("rule {number} of `confirm.rules`: {problem}")]
pub struct RuleError {
    number: usize,
    problem: String,
}

impl Policy {
    /// Understands every rule, and tries it on its samples.
    pub fn new(config: &config::ConfirmSettings) -> Result<Self, RuleError> {
        let rules = config.rules.iter().zip(1..).map(|(rule, number)| CompiledRule::new(rule, number));
        Ok(Self { rules: rules.collect::<Result<_, _>>()?, writes: config.writes })
    }

    /// How many rules the human made.
    pub fn rules(&self) -> usize {
        self.rules.len()
    }

    /// Decides about one run.
    pub fn decide(&self, case: PolicyCase<'_>) -> PolicyRuling {
        let ruling = self.ruling(case);
        if matches!(case.definition.run, Run::AskUser(_)) && ruling.decision != PolicyDecision::Refuse {
            return PolicyRuling {
                decision: PolicyDecision::Ask,
                why: "it is a question to you".to_owned(),
                rule: None,
            };
        }
        match case.definition.min_assurance {
            Some(least) if ruling.decision == PolicyDecision::Ask && least > ASSURANCE => PolicyRuling {
                decision: PolicyDecision::NeedsAssurance,
                why: format!(
                    "it demands a yes of the kind `{}`, and this executor gives `{}`",
                    word(least),
                    word(ASSURANCE)
                ),
                rule: ruling.rule,
            },
            _ => ruling,
        }
    }

    fn ruling(&self, case: PolicyCase<'_>) -> PolicyRuling {
        let spoken = self.rules.iter().filter_map(|rule| rule.speaks(case));
        if let Some((then, why, number)) = spoken.max_by_key(|(then, ..)| *then) {
            return PolicyRuling { decision: then.into(), why, rule: Some(number) };
        }
        let (decision, why) = match &case.definition.confirm {
            Some(Confirm::Never) => (PolicyDecision::Run, "its definition says that it never asks".to_owned()),
            Some(Confirm::Always) => (PolicyDecision::Ask, "its definition always asks".to_owned()),
            Some(Confirm::When(condition)) => match holds(condition, case.input, case.caller) {
                Ok(false) => (PolicyDecision::Run, format!("`{condition}` does not hold")),
                Ok(true) => (PolicyDecision::Ask, format!("`{condition}` holds")),
                Err(error) => (PolicyDecision::Ask, format!("its condition could not be decided: {error}")),
            },
            None if case.definition.annotations.effect_class() == EffectClass::Read => {
                (PolicyDecision::Run, "it only reads".to_owned())
            }
            None => match self.writes {
                RuleAction::Allow => (PolicyDecision::Run, "the setting `confirm.writes` allows it".to_owned()),
                RuleAction::Ask => {
                    (PolicyDecision::Ask, "it changes something, and nothing says that it may do so unasked".to_owned())
                }
                RuleAction::Refuse => {
                    (PolicyDecision::Refuse, "the setting `confirm.writes` refuses what changes something".to_owned())
                }
            },
        };
        PolicyRuling { decision, why, rule: None }
    }
}

impl From<RuleAction> for PolicyDecision {
    fn from(then: RuleAction) -> Self {
        match then {
            RuleAction::Allow => Self::Run,
            RuleAction::Ask => Self::Ask,
            RuleAction::Refuse => Self::Refuse,
        }
    }
}

impl CompiledRule {
    fn new(rule: &config::RuleSettings, number: usize) -> Result<Self, RuleError> {
        let wrong = |problem: String| RuleError { number, problem };
        let mut tools = GlobSetBuilder::new();
        for tool in &rule.tools {
            tools.add(Glob::new(tool).map_err(|error| wrong(error.to_string()))?);
        }
        if let Some(when) = &rule.when {
            template::check_condition(when).map_err(|error| wrong(error.to_string()))?;
        }
        let understood = Self {
            number,
            tools: tools.build().map_err(|error| wrong(error.to_string()))?,
            tags: rule.tags.clone(),
            when: rule.when.clone(),
            then: rule.then,
            because: rule.because.clone(),
        };
        for (samples, expected) in [(&rule.matches, true), (&rule.not_matches, false)] {
            for sample in samples {
                if understood.matches_sample(sample).map_err(&wrong)? != expected {
                    let (does, should) = if expected { ("does not match", "match") } else { ("matches", "not_match") };
                    let input = Value::Object(sample.input.clone());
                    return Err(wrong(format!(
                        "it {does} `{}` with {input}, which stands under `{should}`",
                        sample.tool
                    )));
                }
            }
        }
        Ok(understood)
    }

    /// What it says about `case`, if anything. A condition that fails speaks as if it held, unless it
    /// would allow: nothing is let through by a mistake.
    fn speaks(&self, case: PolicyCase<'_>) -> Option<(RuleAction, String, usize)> {
        if !self.is_about(case.name.as_str(), &case.definition.tags) {
            return None;
        }
        let why = self.because.clone().unwrap_or_else(|| format!("rule {} of `confirm.rules` says so", self.number));
        match self.when.as_ref().map(|when| holds(when, case.input, case.caller)) {
            None | Some(Ok(true)) => Some((self.then, why, self.number)),
            Some(Ok(false)) => None,
            Some(Err(_)) if self.then == RuleAction::Allow => None,
            Some(Err(error)) => {
                let why = format!("the condition of rule {} could not be decided: {error}", self.number);
                Some((self.then, why, self.number))
            }
        }
    }

    fn is_about(&self, name: &str, tags: &[String]) -> bool {
        let is_named = self.tools.is_empty() || self.tools.is_match(name);
        is_named && (self.tags.is_empty() || self.tags.iter().any(|tag| tags.contains(tag)))
    }

    fn matches_sample(&self, sample: &RuleSample) -> Result<bool, String> {
        if !self.is_about(&sample.tool, &sample.tags) {
            return Ok(false);
        }
        let caller =
            Caller { uid: 0, session: sample.session.clone(), folder: sample.folder.clone(), ..Caller::default() };
        self.when
            .as_ref()
            .map_or(Ok(true), |when| holds(when, &sample.input, &caller).map_err(|error| error.to_string()))
    }
}

fn holds(condition: &str, input: &Map<String, Value>, caller: &Caller) -> Result<bool, template::TemplateError> {
    let depth = caller.depth;
    let mut caller = serde_json::to_value(caller).expect("a caller is plain JSON");
    // A record leaves it out where it is nothing; a condition may always name it.
    caller["depth"] = depth.into();
    TemplateValues::of_condition(input, &caller).holds(condition)
}

fn word(value: impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::Config;

    fn policy(confirm: &str) -> Result<Policy, RuleError> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.toml");
        std::fs::write(&path, format!("[confirm]\n{confirm}")).expect("written");
        Policy::new(&Config::load(&path).expect("it loads").confirm)
    }

    fn ruled(policy: &Policy, name: &str, fields: Value, input: Value) -> PolicyRuling {
        let mut whole = json!({"description": "d", "input": {}, "run": {"process": {"argv": ["true"]}}});
        let (Value::Object(whole), Value::Object(fields), Value::Object(input)) = (&mut whole, fields, input) else {
            panic!("objects")
        };
        whole.extend(fields);
        let definition = serde_json::from_value(Value::Object(whole.clone())).expect("a definition");
        let caller = Caller { uid: 1000, session: Some("s".to_owned()), ..Caller::default() };
        let name = name.parse().expect("a name");
        policy.decide(PolicyCase { name: &name, definition: &definition, input: &input, caller: &caller })
    }

    fn decided(policy: &Policy, fields: Value, input: Value) -> PolicyDecision {
        ruled(policy, "tool", fields, input).decision
    }

    #[test]
    fn what_changes_something_asks_unless_a_human_said_otherwise() {
        use PolicyDecision::{Ask, Refuse, Run};
        let policies = ["ask", "allow", "refuse"].map(|writes| policy(&format!("writes = \"{writes}\"")).expect("it"));
        for (fields, expected) in [
            (json!({"annotations": {"readOnlyHint": true}}), [Run, Run, Run]),
            (json!({}), [Ask, Run, Refuse]),
            (json!({"annotations": {"idempotentHint": true}}), [Ask, Run, Refuse]),
            (json!({"annotations": {"destructiveHint": false, "openWorldHint": false}}), [Ask, Run, Refuse]),
            (json!({"confirm": "never"}), [Run, Run, Run]),
            (json!({"confirm": "always"}), [Ask, Ask, Ask]),
            (json!({"confirm": "always", "annotations": {"readOnlyHint": true}}), [Ask, Ask, Ask]),
        ] {
            let found = policies.each_ref().map(|policy| decided(policy, fields.clone(), json!({})));
            assert_eq!(found, expected, "{fields}");
        }
    }

    #[test]
    fn a_condition_decides_over_input_and_caller_and_asks_when_it_cannot() {
        let policy = policy("").expect("no rules");
        for (condition, input, expected) in [
            ("input.amount > 100", json!({"amount": 101}), Some("`input.amount > 100` holds")),
            ("input.amount > 100", json!({"amount": 100}), None),
            ("caller.uid == 1000", json!({}), Some("`caller.uid == 1000` holds")),
            ("caller.session == 'other'", json!({}), None),
            ("input.to | no_such_filter", json!({"to": 1}), Some("its condition could not be decided")),
        ] {
            let ruling = ruled(&policy, "tool", json!({"confirm": {"when": condition}}), input.clone());
            match expected {
                None => assert_eq!(ruling.decision, PolicyDecision::Run, "{condition} with {input}"),
                Some(why) => {
                    assert!(ruling.decision == PolicyDecision::Ask && ruling.why.starts_with(why), "{ruling:?}")
                }
            }
        }
    }

    #[test]
    fn refusing_is_stronger_than_asking_and_asking_than_allowing_in_any_order() {
        let allow = "[[confirm.rules]]\ntools = [\"mail_*\"]\nthen = \"allow\"\n";
        let ask = "[[confirm.rules]]\ntags = [\"money\"]\nthen = \"ask\"\n";
        let refuse = "[[confirm.rules]]\ntools = [\"mail_send\"]\nwhen = \"input.to == 'eve'\"\nthen = \"refuse\"\nbecause = \"never to eve\"\n";
        for order in [[allow, ask, refuse], [refuse, ask, allow], [ask, refuse, allow]] {
            let policy = policy(&order.concat()).expect("rules");
            let of = |name: &str, tags: Value, to: &str| ruled(&policy, name, json!({"tags": tags}), json!({"to": to}));
            assert_eq!(of("mail_send", json!([]), "bob").decision, PolicyDecision::Run, "wider than the default");
            assert_eq!(of("mail_send", json!(["money"]), "bob").decision, PolicyDecision::Ask);
            let refused = of("mail_send", json!(["money"]), "eve");
            assert_eq!((refused.decision, refused.why.as_str()), (PolicyDecision::Refuse, "never to eve"));
            assert_eq!(refused.rule, order.iter().position(|rule| *rule == refuse).map(|place| place + 1));
            assert_eq!(of("other", json!([]), "bob").decision, PolicyDecision::Ask, "no rule speaks");
        }
    }

    #[test]
    fn a_rule_whose_condition_fails_lets_nothing_through() {
        let failing = "when = \"input.to | no_such_filter\"\n";
        for (then, expected) in
            [("allow", PolicyDecision::Ask), ("ask", PolicyDecision::Ask), ("refuse", PolicyDecision::Refuse)]
        {
            let policy = policy(&format!("[[confirm.rules]]\n{failing}then = \"{then}\"\n")).expect("rules");
            assert_eq!(decided(&policy, json!({}), json!({"to": 1})), expected, "{then}");
        }
    }

    #[test]
    fn a_rule_that_does_not_do_what_its_samples_say_is_no_rule() {
        let rule = "[[confirm.rules]]\ntools = [\"send\"]\nwhen = \"input.amount > 5\"\nthen = \"ask\"\n";
        let with = |samples: &str| policy(&format!("{rule}{samples}")).map(drop).map_err(|error| error.to_string());
        assert_eq!(with("match = [{tool = \"send\", input = {amount = 6}}]\n"), Ok(()));
        assert_eq!(
            with("not_match = [{tool = \"send\", input = {amount = 5}}, {tool = \"other\", input = {amount = 6}}]\n"),
            Ok(())
        );
        let told = with("match = [{tool = \"send\", input = {amount = 5}}]\n").expect_err("it does not match");
        assert_eq!(
            told,
            "rule 1 of `confirm.rules`: it does not match `send` with {\"amount\":5}, which stands under `match`"
        );
        let told = with("not_match = [{tool = \"send\", input = {amount = 6}}]\n").expect_err("it matches");
        assert!(told.contains("it matches `send`"), "{told}");
        let broken = policy("[[confirm.rules]]\nwhen = \"input.\"\nthen = \"ask\"\n").expect_err("a broken condition");
        assert!(broken.to_string().starts_with("rule 1"), "{broken}");
    }

    #[test]
    fn a_yes_that_is_not_sure_enough_here_is_none() {
        let policy = policy("").expect("no rules");
        let ruling = ruled(&policy, "tool", json!({"min_assurance": "touch"}), json!({}));
        assert_eq!(ruling.decision, PolicyDecision::NeedsAssurance);
        assert_eq!(decided(&policy, json!({"min_assurance": "page"}), json!({})), PolicyDecision::Ask);
        let read = json!({"min_assurance": "touch", "annotations": {"readOnlyHint": true}});
        assert_eq!(decided(&policy, read, json!({})), PolicyDecision::Run, "it needs no yes");
    }
}
