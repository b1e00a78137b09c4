//! Tests of the machine: events in, effects out, without a runtime or a model.

use serde_json::json;

use super::*;
use crate::model::conversation::{TaskSpending, TokenUsage};

const TASK: &str = "0198a7b2c3d47e5f8a9b0c1d2e3f4a5b";

fn settings() -> LoopSettings {
    LoopSettings {
        steps: 4,
        reflect_after: 0,
        diagnose: false,
        retries: 2,
        budget: Budget::default(),
        client_tools: vec!["theirs".to_owned()],
        tools: vec!["command_executor".to_owned()],
    }
}

fn says(text: &str) -> MachineEvent {
    MachineEvent::Answered(ModelTurn {
        text: text.to_owned(),
        usage: TokenUsage { input: 10, output: 5, cached: 0 },
        ..ModelTurn::default()
    })
}

fn calls(commands: &[&str]) -> MachineEvent {
    let call = |(number, command): (usize, &&str)| ToolCall {
        id: format!("c{number}"),
        name: "command_executor".to_owned(),
        arguments: json!({ "command": command }),
    };
    let calls = commands.iter().enumerate().map(call).collect();
    MachineEvent::Answered(ModelTurn {
        calls,
        usage: TokenUsage { input: 10, output: 5, cached: 0 },
        ..ModelTurn::default()
    })
}

fn result(number: usize) -> ToolResult {
    ToolResult {
        call: format!("c{number}"),
        name: "command_executor".to_owned(),
        text: "{}".to_owned(),
        status: 0,
        opened: Vec::new(),
        collected: Vec::new(),
        only_reads: false,
        spent: Vec::new(),
        data_class: None,
    }
}

/// A turn that calls these tools.
fn calls_tools(names: &[&str]) -> MachineEvent {
    let call = |name: &&str| ToolCall { id: "c0".to_owned(), name: (*name).to_owned(), arguments: json!({}) };
    MachineEvent::Answered(ModelTurn { calls: names.iter().map(call).collect(), ..ModelTurn::default() })
}

#[test]
fn a_turn_that_calls_only_tools_of_the_client_ends_the_work() {
    let mut machine = Machine::new(settings());
    machine.handle(MachineEvent::Asked("x".to_owned()));
    let effects = machine.handle(calls_tools(&["theirs", "theirs"]));
    assert_eq!(effects.last(), Some(&MachineEffect::Done(StopReason::CallsClient)));
    machine.handle(MachineEvent::Asked("y".to_owned()));
    let effects = machine.handle(calls_tools(&["theirs", "command_executor"]));
    assert!(matches!(effects.last(), Some(MachineEffect::Call { calls, .. }) if calls.len() == 2), "{effects:?}");
}

fn called() -> MachineEvent {
    MachineEvent::Called(vec![result(0)])
}

fn opened(id: &str) -> OpenedTask {
    OpenedTask { id: id.parse().expect("an id"), tool: "send".to_owned(), result_file: "/r".into() }
}

fn delegated() -> MachineEvent {
    MachineEvent::Called(vec![ToolResult { opened: vec![opened(TASK)], ..result(0) }])
}

fn ended(state: TaskState) -> MachineEvent {
    let OpenedTask { id, tool, result_file } = opened(TASK);
    MachineEvent::Ended(vec![EndedTask { id, tool, state: Some(state), result_file, spent: None }])
}

fn failed(class: FailureClass) -> MachineEvent {
    MachineEvent::Failed(ModelFailure { class, message: "no".to_owned(), retry_after: None })
}

/// Handles an event, and returns its effects in short.
fn effects_of(machine: &mut Machine, event: MachineEvent) -> Vec<String> {
    let word = |effect: &MachineEffect| match effect {
        MachineEffect::Record(entry) => {
            let name = serde_json::to_value(entry).expect("an entry");
            match name {
                serde_json::Value::String(word) => word,
                other => other.as_object().expect("one key").keys().next().expect("one key").clone(),
            }
        }
        MachineEffect::Ask { tools: true } => "ask".to_owned(),
        MachineEffect::Ask { tools: false } => "ask without tools".to_owned(),
        MachineEffect::Call { turn, calls } => format!("call {} of {turn}", calls.len()),
        MachineEffect::Abort => "abort".to_owned(),
        MachineEffect::Pause { delay, attempt, .. } => format!("pause {delay:?} before {attempt}"),
        MachineEffect::Sleep => "sleep".to_owned(),
        MachineEffect::Done(reason) => format!("done: {}", reason.as_str()),
        MachineEffect::GiveUp(_) => "give up".to_owned(),
    };
    let effects = machine.handle(event);
    // The entries restore the same machine.
    let (restored, _) = Machine::restore(machine.settings.clone(), machine.entries.clone());
    assert_eq!(restored.open.keys().collect::<Vec<_>>(), {
        let unreported: BTreeSet<_> = machine.unreported.iter().map(|task| task.id).collect();
        let all: BTreeSet<_> = machine.open.keys().copied().chain(unreported).collect();
        restored.open.keys().filter(|id| all.contains(id)).collect::<Vec<_>>()
    });
    effects.iter().map(word).collect()
}

fn asked() -> Machine {
    let mut machine = Machine::new(settings());
    assert_eq!(effects_of(&mut machine, MachineEvent::Asked("q".to_owned())), ["asked", "ask"]);
    machine
}

#[test]
fn calls_are_performed_until_there_is_an_answer() {
    let mut machine = asked();
    assert_eq!(effects_of(&mut machine, calls(&["a", "b"])), ["answered", "call 2 of 1"]);
    assert_eq!(effects_of(&mut machine, MachineEvent::Called(vec![result(0), result(1)])), ["called", "ask"]);
    assert_eq!(effects_of(&mut machine, says("42")), ["answered", "stopped", "done: completed"]);
    assert_eq!((machine.answer(), machine.question_spending().requests), (Some("42"), 2));
}

#[test]
fn the_loop_sleeps_while_a_task_is_open_and_wakes_once() {
    let mut machine = asked();
    effects_of(&mut machine, calls(&["run"]));
    assert_eq!(effects_of(&mut machine, delegated()), ["called", "ask"]);
    assert_eq!(effects_of(&mut machine, says("it is on its way")), ["answered", "sleep"]);
    assert_eq!(effects_of(&mut machine, ended(TaskState::Succeeded)), ["woken", "ask"]);
    assert_eq!(effects_of(&mut machine, ended(TaskState::Succeeded)), [""; 0]);
    assert_eq!(effects_of(&mut machine, says("done")), ["answered", "stopped", "done: completed"]);
}

#[test]
fn a_task_that_ends_during_a_call_is_reported_after_it() {
    let mut machine = asked();
    effects_of(&mut machine, calls(&["run"]));
    effects_of(&mut machine, delegated());
    effects_of(&mut machine, calls(&["list"]));
    assert_eq!(effects_of(&mut machine, ended(TaskState::Failed)), [""; 0]);
    assert_eq!(effects_of(&mut machine, called()), ["called", "woken", "ask"]);
}

#[test]
fn a_task_that_ends_during_the_answer_makes_the_loop_continue() {
    let mut machine = asked();
    effects_of(&mut machine, calls(&["run"]));
    effects_of(&mut machine, delegated());
    effects_of(&mut machine, ended(TaskState::Succeeded));
    assert_eq!(effects_of(&mut machine, says("I shall wait")), ["answered", "woken", "ask"]);
}

#[test]
fn a_result_that_was_read_does_not_wake_the_loop() {
    let mut machine = asked();
    effects_of(&mut machine, calls(&["run"]));
    effects_of(&mut machine, delegated());
    effects_of(&mut machine, calls(&["wait"]));
    effects_of(&mut machine, ended(TaskState::Succeeded));
    let collected = ToolResult { collected: vec![TASK.parse().expect("an id")], ..result(0) };
    assert_eq!(effects_of(&mut machine, MachineEvent::Called(vec![collected])), ["called", "ask"]);
    assert_eq!(effects_of(&mut machine, says("read")), ["answered", "stopped", "done: completed"]);
}

#[test]
fn after_the_last_step_there_is_one_request_without_tools() {
    let mut machine = asked();
    for number in 0..4 {
        effects_of(&mut machine, calls(&[&format!("a{number}")]));
        let wanted = effects_of(&mut machine, called());
        if number < 3 {
            assert_eq!(wanted, ["called", "ask"]);
        } else {
            assert_eq!(wanted, ["called", "noted", "ask without tools"]);
        }
    }
    assert_eq!(effects_of(&mut machine, calls(&["more"])), ["answered", "stopped", "done: max_iterations"]);
    assert_eq!(machine.question_spending().requests, 5);
}

#[test]
fn a_used_up_budget_prevents_another_request() {
    let mut machine = asked();
    machine.settings.budget = Budget { tokens: 15, ..Budget::default() };
    effects_of(&mut machine, calls(&["a"]));
    assert_eq!(effects_of(&mut machine, called()), ["called", "stopped", "done: budget_exhausted"]);
}

#[test]
fn what_a_sub_agent_spent_counts_once_towards_the_budget_of_the_question() {
    let spent = TaskSpending {
        task: TASK.parse().expect("an id"),
        usage: TokenUsage { input: 900, output: 100, cached: 0 },
        cost: 0.5,
    };
    let mut machine = asked();
    machine.settings.budget = Budget { tokens: 1000, ..Budget::default() };
    effects_of(&mut machine, calls(&["run"]));
    effects_of(&mut machine, delegated());
    effects_of(&mut machine, says("on its way"));
    let MachineEvent::Ended(mut tasks) = ended(TaskState::Succeeded) else { panic!("another event") };
    tasks[0].spent = Some(spent.clone());
    assert_eq!(effects_of(&mut machine, MachineEvent::Ended(tasks)), ["woken", "stopped", "done: budget_exhausted"]);
    assert_eq!(machine.question_spending().usage.input, 920);
    effects_of(&mut machine, MachineEvent::Asked("again".to_owned()));
    effects_of(&mut machine, calls(&["read"]));
    let read = ToolResult { spent: vec![spent], ..result(0) };
    effects_of(&mut machine, MachineEvent::Called(vec![read]));
    assert_eq!((machine.question_spending().usage.input, machine.session_spending().cost), (10, 0.5));
}

#[test]
fn a_day_without_budget_ends_the_question_as_exhausted() {
    let mut machine = asked();
    assert_eq!(
        effects_of(&mut machine, failed(FailureClass::Budget)),
        ["give up", "stopped", "done: budget_exhausted"]
    );
}

#[test]
fn three_calls_in_a_row_and_a_repeated_call_get_a_note() {
    let mut machine = asked();
    machine.settings.reflect_after = 3;
    machine.settings.steps = 20;
    let mut notes = Vec::new();
    for command in ["a", "b", "c", "d", "d", "e"] {
        effects_of(&mut machine, calls(&[command]));
        if effects_of(&mut machine, called()).contains(&"noted".to_owned()) {
            notes.push(command);
        }
    }
    assert_eq!(notes, ["c", "d"]);
    // Waiting and reading results do not count.
    for _ in 0..5 {
        effects_of(&mut machine, calls(&["wait"]));
        let waited = ToolResult { only_reads: true, ..result(0) };
        assert_eq!(effects_of(&mut machine, MachineEvent::Called(vec![waited])), ["called", "ask"]);
    }
}

#[test]
fn only_transient_failures_are_retried() {
    let mut machine = asked();
    assert_eq!(effects_of(&mut machine, failed(FailureClass::RateLimit)), ["pause 1s before 1"]);
    assert_eq!(effects_of(&mut machine, MachineEvent::RetryDue), ["ask"]);
    assert_eq!(effects_of(&mut machine, failed(FailureClass::ServerError)), ["pause 2s before 2"]);
    assert_eq!(effects_of(&mut machine, MachineEvent::RetryDue), ["ask"]);
    assert_eq!(
        effects_of(&mut machine, failed(FailureClass::Connection)),
        ["give up", "stopped", "done: provider_failed"]
    );
    for class in [FailureClass::Auth, FailureClass::Rejected, FailureClass::Configuration] {
        let mut machine = asked();
        assert_eq!(effects_of(&mut machine, failed(class)), ["give up", "stopped", "done: provider_failed"]);
    }
}

#[test]
fn a_new_question_stops_the_current_one_and_every_call_has_a_result() {
    let mut machine = asked();
    assert_eq!(effects_of(&mut machine, MachineEvent::Asked("r".to_owned())), ["abort", "stopped", "asked", "ask"]);
    effects_of(&mut machine, calls(&["a"]));
    assert_eq!(
        effects_of(&mut machine, MachineEvent::Asked("s".to_owned())),
        ["abort", "called", "stopped", "asked", "ask"]
    );
    assert_eq!(effects_of(&mut machine, MachineEvent::Cancelled), ["abort", "stopped", "done: cancelled"]);
    assert_eq!(effects_of(&mut machine, MachineEvent::Cancelled), [""; 0]);
}

#[test]
fn the_task_of_a_call_that_is_stopped_wakes_the_loop() {
    for stop in [MachineEvent::Cancelled, MachineEvent::Asked("meanwhile?".to_owned())] {
        assert!(stop.interrupts());
        let mut machine = asked();
        effects_of(&mut machine, calls(&["run x", "run y --wait"]));
        machine.opened(vec![("c1".to_owned(), opened(TASK))]);
        effects_of(&mut machine, stop.clone());
        let Some(JournalEntry::Called { results }) =
            machine.entries().iter().rfind(|entry| matches!(entry, JournalEntry::Called { .. }))
        else {
            panic!("no results")
        };
        assert!(results[0].opened.is_empty() && !results[0].text.contains(TASK), "{results:?}");
        assert!(results[1].opened == [opened(TASK)] && results[1].text.contains(TASK), "{results:?}");
        if matches!(stop, MachineEvent::Asked(_)) {
            assert_eq!(effects_of(&mut machine, says("yes")), ["answered", "sleep"]);
        }
        assert_eq!(effects_of(&mut machine, ended(TaskState::Succeeded)), ["woken", "ask"]);
    }
}

#[test]
fn a_question_can_be_asked_while_tasks_run() {
    let mut machine = asked();
    effects_of(&mut machine, calls(&["run"]));
    effects_of(&mut machine, delegated());
    effects_of(&mut machine, says("on its way"));
    assert_eq!(effects_of(&mut machine, MachineEvent::Asked("meanwhile?".to_owned())), ["asked", "ask"]);
    assert_eq!(effects_of(&mut machine, says("yes")), ["answered", "sleep"]);
    assert_eq!(effects_of(&mut machine, ended(TaskState::Succeeded)), ["woken", "ask"]);
}

#[test]
fn an_answer_after_a_denial_or_refusal_ends_with_that_reason() {
    let mut machine = asked();
    effects_of(&mut machine, calls(&["run"]));
    effects_of(&mut machine, delegated());
    effects_of(&mut machine, says("waiting"));
    effects_of(&mut machine, ended(TaskState::Denied));
    assert_eq!(effects_of(&mut machine, says("you said no")), ["answered", "stopped", "done: approval_denied"]);
    let mut machine = asked();
    effects_of(&mut machine, calls(&["run"]));
    effects_of(&mut machine, MachineEvent::Called(vec![ToolResult { status: 5, ..result(0) }]));
    assert_eq!(effects_of(&mut machine, says("not allowed")), ["answered", "stopped", "done: policy_denied"]);
}

#[test]
fn a_failed_call_is_diagnosed_once_without_tools() {
    let mut machine = asked();
    machine.settings.diagnose = true;
    effects_of(&mut machine, calls(&["a"]));
    let failed_call = || MachineEvent::Called(vec![ToolResult { status: 2, ..result(0) }]);
    assert_eq!(effects_of(&mut machine, failed_call()), ["called", "noted", "ask without tools"]);
    assert_eq!(effects_of(&mut machine, says("a typing error")), ["diagnosed", "ask"]);
    effects_of(&mut machine, calls(&["b"]));
    assert_eq!(effects_of(&mut machine, failed_call()), ["called", "ask"]);
}

#[test]
fn after_an_empty_answer_the_model_is_asked_once_more() {
    let mut machine = asked();
    assert_eq!(effects_of(&mut machine, says(" ")), ["discarded", "noted", "ask"]);
    let spent = Machine::restore(settings(), machine.entries.clone()).0.question_spending();
    assert_eq!((spent.requests, spent.usage.input), (1, 10), "a resumed session knows what the empty answer cost");
    assert_eq!(effects_of(&mut machine, says("")), ["answered", "stopped", "done: completed"]);
}

#[test]
fn an_empty_last_answer_is_asked_for_once_more_without_tools() {
    let mut machine = asked();
    machine.settings.steps = 1;
    effects_of(&mut machine, calls(&["a"]));
    assert_eq!(effects_of(&mut machine, called()), ["called", "noted", "ask without tools"]);
    assert_eq!(effects_of(&mut machine, says("")), ["discarded", "noted", "ask without tools"]);
    assert_eq!(effects_of(&mut machine, says("so far")), ["answered", "stopped", "done: max_iterations"]);
}

#[test]
fn an_answer_that_was_cut_or_refused_ends_the_question_with_that_reason() {
    for (end, done) in [(TurnEnd::Truncated, "done: truncated"), (TurnEnd::Refused, "done: refused")] {
        let mut machine = asked();
        effects_of(&mut machine, calls(&["run"]));
        effects_of(&mut machine, delegated());
        let cut = MachineEvent::Answered(ModelTurn { text: "Half of".to_owned(), end, ..ModelTurn::default() });
        assert_eq!(effects_of(&mut machine, cut), ["answered", "stopped", done]);
        let mut machine = asked();
        let empty = MachineEvent::Answered(ModelTurn { end, ..ModelTurn::default() });
        assert_eq!(effects_of(&mut machine, empty), ["answered", "stopped", done], "it is not asked for again");
        assert_eq!(machine.answer(), None);
    }
}

#[test]
fn an_answer_to_an_earlier_question_is_not_the_answer() {
    let mut machine = asked();
    effects_of(&mut machine, says("one"));
    effects_of(&mut machine, MachineEvent::Asked("r".to_owned()));
    assert_eq!(machine.answer(), None);
}

#[test]
fn calls_in_the_text_are_performed_and_prose_is_not() {
    let mut machine = asked();
    let call = r#"{"name": "command_executor", "arguments": {"command": "x"}}"#;
    assert_eq!(effects_of(&mut machine, says(call)), ["answered", "call 1 of 1"]);
    let mut machine = asked();
    assert_eq!(effects_of(&mut machine, says("rm -rf /")), ["answered", "stopped", "done: completed"]);
}

#[test]
fn a_restored_machine_continues_where_it_was() {
    let mut machine = asked();
    let after = |machine: &Machine| Machine::restore(settings(), machine.entries.clone()).1;
    assert_eq!(after(&machine), [MachineEffect::Ask { tools: true }]);
    effects_of(&mut machine, calls(&["run"]));
    assert!(matches!(&after(&machine)[..], [MachineEffect::Call { turn: 1, calls }] if calls.len() == 1));
    effects_of(&mut machine, delegated());
    assert_eq!(after(&machine), [MachineEffect::Ask { tools: true }]);
    effects_of(&mut machine, says("later"));
    assert_eq!(after(&machine), [MachineEffect::Sleep]);
    effects_of(&mut machine, ended(TaskState::Succeeded));
    assert_eq!(after(&machine), [MachineEffect::Ask { tools: true }]);
    effects_of(&mut machine, says("done"));
    assert_eq!(after(&machine), []);
}

#[test]
fn an_undone_question_leaves_no_calls_and_its_turn_number_is_not_reused() {
    let mut machine = asked();
    effects_of(&mut machine, calls(&["a"]));
    effects_of(&mut machine, called());
    assert_eq!(effects_of(&mut machine, MachineEvent::Undone), ["abort", "stopped", "undone"]);
    effects_of(&mut machine, MachineEvent::Asked("again".to_owned()));
    assert_eq!(effects_of(&mut machine, calls(&["a"])), ["answered", "call 1 of 6"]);
}
