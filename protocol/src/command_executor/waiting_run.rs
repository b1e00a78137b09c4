//! A `run --wait` in its two steps: the `run`, and the `wait` for its task. Between them it is known which task there is
//! to wait for, so that all who watch the caller learn of it while a human has not decided yet.

use crate::duration::PositiveDuration;
use crate::shell::is_dry_run;
use crate::task::TaskId;

/// How long a `run --wait` waits that names no duration.
pub const DEFAULT_WAIT: &str = "60s";

/// The steps of a `run --wait`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WaitingRun {
    /// The words of the `run` alone.
    pub(super) run: Vec<String>,
    /// The options of the `wait`.
    options: Vec<String>,
}

impl WaitingRun {
    /// `None` for any other call, and for one that has to be refused as a whole: nothing may start before its options are
    /// known to be right.
    pub(super) fn of(arguments: &[String]) -> Option<Self> {
        let (command, rest) = arguments.split_first()?;
        let mut steps = Self { run: vec![command.clone()], options: Vec::new() };
        let (mut wait, mut jq) = (None, None);
        let mut words = rest.iter();
        while let Some(word) = words.next() {
            let (name, value) = word.split_once('=').map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
            match name {
                "--" => {
                    steps.run.push(word.clone());
                    steps.run.extend(words.by_ref().cloned());
                }
                name if is_dry_run(name) => return None,
                "--wait" => {
                    value.unwrap_or(DEFAULT_WAIT).parse::<PositiveDuration>().ok()?;
                    let is_repeated = wait.replace(value.unwrap_or(DEFAULT_WAIT)).is_some();
                    (!is_repeated).then_some(())?;
                }
                "--jq" => {
                    let value =
                        value.or_else(|| words.next().map(String::as_str).filter(|word| !word.starts_with('-')))?;
                    jq.replace(value).is_none().then_some(())?;
                }
                "--whole" => {
                    steps.run.push(word.clone());
                    steps.options.push(word.clone());
                }
                _ => steps.run.push(word.clone()),
            }
        }
        steps.options.push(format!("--timeout={}", wait?));
        // Checked by the `run`, so that a mistake in it starts nothing.
        if let Some(jq) = jq {
            steps.run.insert(1, format!("--checked-jq={jq}"));
        }
        steps.options.extend(jq.map(|jq| format!("--jq={jq}")));
        (command == "run").then_some(steps)
    }

    /// The words of the `wait` for this task.
    pub(super) fn wait(self, id: TaskId) -> Vec<String> {
        ["wait".to_owned(), id.to_string()].into_iter().chain(self.options).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(line: &str) -> Option<(String, String)> {
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        let steps = WaitingRun::of(&words)?;
        Some((steps.run.join(" "), steps.options.join(" ")))
    }

    #[test]
    fn every_form_of_waiting_becomes_two_steps() {
        for (line, run, options) in [
            ("run x --wait", "run x", "--timeout=60s"),
            ("run --wait=5s x a=1", "run x a=1", "--timeout=5s"),
            ("run x --wait --jq .[0].id", "run --checked-jq=.[0].id x", "--timeout=60s --jq=.[0].id"),
            ("run x --jq=-1 --wait=1m b:=2", "run --checked-jq=-1 x b:=2", "--timeout=1m --jq=-1"),
            ("run x --whole --wait", "run x --whole", "--whole --timeout=60s"),
            ("run x --wait -- --jq --wait", "run x -- --jq --wait", "--timeout=60s"),
        ] {
            assert_eq!(steps(line), Some((run.to_owned(), options.to_owned())), "{line}");
        }
    }

    #[test]
    fn what_is_refused_is_refused_as_a_whole() {
        for line in [
            "run x",
            "run x --jq .",
            "run x -- --wait",
            "run x --wait --dry-run",
            "run x --wait=0s",
            "run x --wait=soon",
            "run x --wait --wait=5s",
            "run x --wait --jq",
            "run x --wait --jq --reason=y",
            "run x --wait --jq . --jq .",
            "wait x --wait",
        ] {
            assert_eq!(steps(line), None, "{line}");
        }
    }
}
