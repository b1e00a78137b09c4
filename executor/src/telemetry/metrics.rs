//! The numbers, and their names; how they are written is the business of `text.rs` and `otlp.rs`.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use protocol::task::State;

/// Upper bounds in seconds, for what takes as long as a far side takes.
const LONG: &[f64] = &[0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0];
/// Upper bounds in seconds, for what the executor does by itself.
const SHORT: &[f64] = &[0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0];

/// What was counted since the executor started.
#[derive(Debug, Clone)]
pub(super) struct MetricValues {
    pub(super) since: SystemTime,
    pub(super) accepted: u64,
    pub(super) refused: BTreeMap<&'static str, u64>,
    ended: BTreeMap<State, u64>,
    open: BTreeMap<State, u64>,
    pub(super) attempts: Histogram,
    pub(super) commits: Histogram,
    pub(super) answers: Histogram,
    pub(super) late: u64,
    pub(super) spans_dropped: u64,
    pub(super) record_bytes: u64,
    pub(super) log_bytes: u64,
}

impl Default for MetricValues {
    fn default() -> Self {
        Self {
            since: SystemTime::now(),
            accepted: 0,
            refused: BTreeMap::new(),
            ended: State::ALL.into_iter().filter(|state| state.is_final()).map(|state| (state, 0)).collect(),
            open: State::ALL.into_iter().filter(|state| !state.is_final()).map(|state| (state, 0)).collect(),
            attempts: Histogram::new(LONG),
            commits: Histogram::new(SHORT),
            answers: Histogram::new(SHORT),
            late: 0,
            spans_dropped: 0,
            record_bytes: 0,
            log_bytes: 0,
        }
    }
}

impl MetricValues {
    pub(super) fn opened(&mut self, state: State) {
        *self.open.entry(state).or_default() += 1;
    }

    pub(super) fn moved(&mut self, from: State, to: State) {
        let before = self.open.entry(from).or_default();
        *before = before.saturating_sub(1);
        let after = if to.is_final() { &mut self.ended } else { &mut self.open };
        *after.entry(to).or_default() += 1;
    }

    /// All of them, in the order in which they are shown.
    pub(super) fn families(&self) -> Vec<Family<'_>> {
        let by_state = |counts: &BTreeMap<State, u64>| {
            counts.iter().map(|(state, count)| (Some(("state", state.as_str())), *count)).collect()
        };
        let codes = self.refused.iter().map(|(code, count)| (Some(("code", *code)), *count)).collect();
        let one = |count| vec![(None, count)];
        let family = |name, help, points| Family { name, help, points };
        vec![
            family("tasks.accepted", "Tasks that were accepted.", DataPoints::Counter(one(self.accepted))),
            family("requests.refused", "Requests that were refused, by error code.", DataPoints::Counter(codes)),
            family(
                "tasks.ended",
                "Tasks that ended, by their final state.",
                DataPoints::Counter(by_state(&self.ended)),
            ),
            family("tasks.open", "Tasks that are open now, by state.", DataPoints::Gauge(by_state(&self.open))),
            family("attempt.duration", "How long attempts took.", DataPoints::Histogram(&self.attempts)),
            family(
                "commit.duration",
                "How long it took to make changes durable.",
                DataPoints::Histogram(&self.commits),
            ),
            family("answer.duration", "From a request's writing to its answer.", DataPoints::Histogram(&self.answers)),
            family(
                "results.late",
                "Results and answers that could not be written at once.",
                DataPoints::Counter(one(self.late)),
            ),
            family(
                "spans.dropped",
                "Spans that no collector took in time.",
                DataPoints::Counter(one(self.spans_dropped)),
            ),
            family("record.size", "Size of the record of tasks, with its log.", DataPoints::Bytes(self.record_bytes)),
            family("log.size", "Size of the executor's log.", DataPoints::Bytes(self.log_bytes)),
        ]
    }
}

/// One metric.
#[derive(Debug)]
pub(super) struct Family<'a> {
    /// With dots, below `agent_magic_tool`.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) points: DataPoints<'a>,
}

/// A label's name and value, if a point has one, and its number.
pub(super) type DataPoint<'a> = (Option<(&'static str, &'a str)>, u64);

#[derive(Debug)]
pub(super) enum DataPoints<'a> {
    Counter(Vec<DataPoint<'a>>),
    Gauge(Vec<DataPoint<'a>>),
    /// A gauge with that unit.
    Bytes(u64),
    /// In seconds.
    Histogram(&'a Histogram),
}

#[derive(Debug, Clone)]
pub(super) struct Histogram {
    pub(super) bounds: &'static [f64],
    /// One for each bound, for what is above the bound before and not above it; one for the rest.
    pub(super) counts: Vec<u64>,
    pub(super) sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    pub(super) fn observe(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        let place = self.bounds.partition_point(|bound| *bound < seconds);
        self.counts[place] += 1;
        self.sum += seconds;
    }

    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_below_the_first_bound_that_is_not_less() {
        let mut histogram = Histogram::new(&[0.001, 1.0]);
        for milliseconds in [0, 1, 2, 1000, 1001] {
            histogram.observe(Duration::from_millis(milliseconds));
        }
        assert_eq!((histogram.counts.as_slice(), histogram.count()), (&[2, 2, 1][..], 5));
    }

    #[test]
    fn an_open_task_is_in_one_state_and_an_ended_one_in_none() {
        let mut numbers = MetricValues::default();
        numbers.opened(State::Accepted);
        numbers.moved(State::Accepted, State::Queued);
        numbers.moved(State::Queued, State::Running);
        assert_eq!((numbers.open[&State::Accepted], numbers.open[&State::Running]), (0, 1));
        numbers.moved(State::Running, State::Failed);
        assert_eq!((numbers.open.values().sum::<u64>(), numbers.ended[&State::Failed]), (0, 1));
    }
}
