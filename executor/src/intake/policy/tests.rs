//! Tests of the policy.

use ground::config::Config;
use protocol::tool_scope::ToolScope;
use serde_json::json;

use super::*;

fn policy(confirm: &str) -> Result<Policy, RuleError> {
    policy_of(&format!("[confirm]\n{confirm}"))
}

fn policy_of(config: &str) -> Result<Policy, RuleError> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("config.toml");
    std::fs::write(&path, config).expect("written");
    Policy::new(&Config::load(&path).expect("it loads"))
}

fn ruled(policy: &Policy, name: &str, fields: Value, input: Value) -> PolicyRuling {
    ruled_for(policy, name, ToolScope::default(), fields, input)
}

fn ruled_for(policy: &Policy, name: &str, tool_scope: ToolScope, fields: Value, input: Value) -> PolicyRuling {
    let mut whole = json!({"description": "d", "input": {}, "run": {"process": {"argv": ["true"]}}});
    let (Value::Object(whole), Value::Object(fields), Value::Object(input)) = (&mut whole, fields, input) else {
        panic!("objects")
    };
    whole.extend(fields);
    let definition = serde_json::from_value(Value::Object(whole.clone())).expect("a definition");
    let caller = Caller { uid: 1000, session: Some("s".to_owned()), tool_scope, ..Caller::default() };
    let name = name.parse().expect("a name");
    let assurance = Assurance::Page;
    policy.decide(PolicyCase { name: &name, definition: &definition, input: &input, caller: &caller, assurance })
}

fn decided(policy: &Policy, fields: Value, input: Value) -> PolicyDecision {
    ruled(policy, "tool", fields, input).decision
}

#[test]
fn a_subtool_that_changes_something_asks_unless_configured_otherwise() {
    use PolicyDecision::{Ask, Refuse, Run};
    let policies =
        ["ask", "allow", "refuse"].map(|writes| policy(&format!("writes = \"{writes}\"")).expect("a policy"));
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
fn a_mark_says_what_stands_out_and_decides_nothing() {
    let marked = policy(
        "[[confirm.marks]]\ntools = [\"pay_*\"]\nwhen = \"input.amount > 100\"\nsay = \"a large amount\"\n\
         [[confirm.marks]]\nwhen = \"caller.hour >= 20 or caller.weekday > 5\"\nsay = \"late\"\n",
    )
    .expect("two marks");
    let marks = |name: &str, amount: u32, at: &str| {
        let definition = json!({"description": "d", "input": {}, "run": {"process": {"argv": ["true"]}}});
        let definition = serde_json::from_value(definition).expect("a definition");
        let (name, input) = (name.parse().expect("a name"), json!({"amount": amount}));
        let input = input.as_object().expect("an object");
        let caller = Caller::default();
        let case =
            PolicyCase { name: &name, definition: &definition, input, caller: &caller, assurance: Assurance::Page };
        marked.marks(case, &at.parse().expect("a time"))
    };
    let (monday, night) = ("2026-11-23T10:00[UTC]", "2026-11-23T20:00[UTC]");
    assert_eq!(marks("pay_now", 101, monday), ["a large amount"]);
    assert_eq!(marks("pay_now", 100, monday), [""; 0]);
    assert_eq!(marks("other", 101, night), ["late"]);
    assert_eq!(marks("other", 101, "2026-11-22T10:00[UTC]"), ["late"], "a Sunday");
    assert_eq!(ruled(&marked, "pay_now", json!({}), json!({"amount": 101})).rule, None);
    let invalid = policy("[[confirm.marks]]\nwhen = \"input.\"\nsay = \"x\"\n").expect_err("a mistake");
    assert!(invalid.to_string().starts_with("mark 1 of `confirm.marks`: "), "{invalid}");
}

#[test]
fn a_condition_on_input_and_caller_decides_and_asks_if_it_fails() {
    let policy = policy("").expect("no rules");
    for (condition, input, expected) in [
        ("input.amount > 100", json!({"amount": 101}), Some("`input.amount > 100` is true")),
        ("input.amount > 100", json!({"amount": 100}), None),
        ("caller.uid == 1000", json!({}), Some("`caller.uid == 1000` is true")),
        ("caller.session == 'other'", json!({}), None),
        ("input.to | no_such_filter", json!({"to": 1}), Some("failed to evaluate its condition")),
    ] {
        let ruling = ruled(&policy, "tool", json!({"confirm": {"when": condition}}), input.clone());
        match expected {
            None => assert_eq!(ruling.decision, PolicyDecision::Run, "{condition} with {input}"),
            Some(why) => {
                assert!(ruling.decision == PolicyDecision::Ask && ruling.why.starts_with(why), "{ruling:?}");
            }
        }
    }
}

#[test]
fn the_strictest_matching_rule_wins_in_any_order() {
    let allow = "[[confirm.rules]]\ntools = [\"mail_*\"]\nthen = \"allow\"\n";
    let ask = "[[confirm.rules]]\ntags = [\"money\"]\nthen = \"ask\"\n";
    let refuse = "[[confirm.rules]]\ntools = [\"mail_send\"]\nwhen = \"input.to == 'eve'\"\nthen = \"refuse\"\nbecause = \"never to eve\"\n";
    for order in [[allow, ask, refuse], [refuse, ask, allow], [ask, refuse, allow]] {
        let policy = policy(&order.concat()).expect("rules");
        let of = |name: &str, tags: Value, to: &str| ruled(&policy, name, json!({"tags": tags}), json!({"to": to}));
        assert_eq!(
            of("mail_send", json!([]), "bob").decision,
            PolicyDecision::Run,
            "a rule can allow more than the default"
        );
        assert_eq!(of("mail_send", json!(["money"]), "bob").decision, PolicyDecision::Ask);
        let refused = of("mail_send", json!(["money"]), "eve");
        assert_eq!((refused.decision, refused.why.as_str()), (PolicyDecision::Refuse, "never to eve"));
        assert_eq!(refused.rule, order.iter().position(|rule| *rule == refuse).map(|index| index + 1));
        assert_eq!(of("other", json!([]), "bob").decision, PolicyDecision::Ask, "no rule matches");
    }
}

#[test]
fn a_rule_whose_condition_fails_never_allows() {
    let failing = "when = \"input.to + [] == 1\"\n";
    for (then, expected) in
        [("allow", PolicyDecision::Ask), ("ask", PolicyDecision::Ask), ("refuse", PolicyDecision::Refuse)]
    {
        let policy = policy(&format!("[[confirm.rules]]\n{failing}then = \"{then}\"\n")).expect("rules");
        assert_eq!(decided(&policy, json!({}), json!({"to": 1})), expected, "{then}");
    }
}

#[test]
fn a_rule_on_an_absent_field_restricts_and_allows_nothing() {
    let rule = |then: &str| format!("[[confirm.rules]]\nwhen = \"input.amount < 100\"\nthen = \"{then}\"\n");
    let policies = ["allow", "refuse"].map(|then| policy(&rule(then)).expect("rules"));
    assert_eq!(decided(&policies[0], json!({}), json!({})), PolicyDecision::Ask);
    assert_eq!(decided(&policies[0], json!({}), json!({"amount": 1})), PolicyDecision::Run);
    assert_eq!(decided(&policies[1], json!({}), json!({})), PolicyDecision::Refuse);
    let many = "[[confirm.rules]]\nwhen = \"input.cc | length > 1\"\nthen = \"refuse\"\n";
    assert_eq!(decided(&policy(many).expect("rules"), json!({}), json!({})), PolicyDecision::Ask, "it does not apply");
    assert!(policy("[[confirm.rules]]\nwhen = \"input.to | lowr\"\nthen = \"ask\"\n").is_err());
}

#[test]
fn a_rule_that_contradicts_its_samples_is_rejected() {
    let rule = "[[confirm.rules]]\ntools = [\"send\"]\nwhen = \"input.amount > 5\"\nthen = \"ask\"\n";
    let with = |samples: &str| policy(&format!("{rule}{samples}")).map(drop).map_err(|error| error.to_string());
    assert_eq!(with("match = [{tool = \"send\", input = {amount = 6}}]\n"), Ok(()));
    assert_eq!(
        with("not_match = [{tool = \"send\", input = {amount = 5}}, {tool = \"other\", input = {amount = 6}}]\n"),
        Ok(())
    );
    let message = with("match = [{tool = \"send\", input = {amount = 5}}]\n").expect_err("it does not match");
    assert_eq!(
        message,
        "rule 1 of `confirm.rules`: it does not match `send` with {\"amount\":5}, which is listed under `match`"
    );
    let message = with("not_match = [{tool = \"send\", input = {amount = 6}}]\n").expect_err("it matches");
    assert!(message.contains("it matches `send`"), "{message}");
    let broken = policy("[[confirm.rules]]\nwhen = \"input.\"\nthen = \"ask\"\n").expect_err("a broken condition");
    assert!(broken.to_string().starts_with("rule 1"), "{broken}");
}

#[test]
fn a_min_assurance_above_that_of_the_page_cannot_be_approved() {
    let policy = policy("").expect("no rules");
    let ruling = ruled(&policy, "tool", json!({"min_assurance": "touch"}), json!({}));
    assert_eq!(ruling.decision, PolicyDecision::NeedsAssurance);
    assert_eq!(decided(&policy, json!({"min_assurance": "page"}), json!({})), PolicyDecision::Ask);
    let read = json!({"min_assurance": "touch", "annotations": {"readOnlyHint": true}});
    assert_eq!(decided(&policy, read, json!({})), PolicyDecision::Run, "it needs no approval");
}

#[test]
fn a_profile_only_makes_a_ruling_stricter() {
    use PolicyDecision::{Ask, Refuse, Run};
    let base = |then: &str, profile: &str| {
        format!(
            "[[confirm.rules]]\ntools = [\"tool\"]\nthen = \"{then}\"\n[profiles.p]\nrules = [{{ tools = [\"tool\"], then = \
             \"{profile}\" }}]\n"
        )
    };
    for (then, of_profile, expected) in [
        ("allow", "ask", Ask),
        ("allow", "refuse", Refuse),
        ("ask", "ask", Ask),
        ("ask", "refuse", Refuse),
        ("refuse", "ask", Refuse),
    ] {
        let policy = policy_of(&base(then, of_profile)).expect("rules");
        let within = |name: &str| ToolScope::default().within_profile(name).expect("a name");
        let own = ruled_for(&policy, "tool", within("p"), json!({}), json!({}));
        assert_eq!(own.decision, expected, "{then} {of_profile}");
        let [allowed, other] = [ToolScope::default(), within("q")]
            .map(|scope| ruled_for(&policy, "tool", scope, json!({}), json!({})).decision);
        let without = if then == "allow" {
            Run
        } else if then == "ask" {
            Ask
        } else {
            Refuse
        };
        assert_eq!((allowed, other), (without, without), "it concerns the profile's callers alone");
    }
    let refusing = policy_of("[confirm]\nwrites = \"refuse\"\n[profiles.p]\nrules = [{ then = \"ask\" }]\n");
    let scope = ToolScope::default().within_profile("p").expect("a name");
    let ruling = ruled_for(&refusing.expect("rules"), "tool", scope.clone(), json!({}), json!({}));
    assert_eq!(ruling.decision, Refuse, "no rule of a profile replaces what holds for all");
    let policy = policy_of("[profiles.p]\nmin_assurance = \"touch\"\n").expect("a profile");
    let ruling = ruled_for(&policy, "tool", scope.clone(), json!({}), json!({}));
    assert_eq!((ruling.decision, ruling.needs), (PolicyDecision::NeedsAssurance, Some(Assurance::Touch)));
    let read = json!({"annotations": {"readOnlyHint": true}});
    assert_eq!(ruled_for(&policy, "tool", scope, read, json!({})).decision, Run);
    let broken = policy_of("[profiles.p]\nrules = [{ when = \"input.\", then = \"ask\" }]\n").expect_err("a condition");
    assert_eq!(broken.path(), "profiles.p.rules[0]");
    assert!(broken.to_string().starts_with("rule 1 of `profiles.p.rules`"), "{broken}");
}
