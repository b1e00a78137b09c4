//! The values and names of the metrics. `text.rs` and `otlp.rs` format them.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use protocol::task::State;

/// Bucket bounds in seconds for durations that depend on remote servers and programs.
const LONG_BOUNDS: &[f64] = &[0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0];
/// Bucket bounds in seconds for durations that depend only on the executor.
const SHORT_BOUNDS: &[f64] = &[0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0];

/// The values since the start of the executor.
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
            attempts: Histogram::new(LONG_BOUNDS),
            commits: Histogram::new(SHORT_BOUNDS),
            answers: Histogram::new(SHORT_BOUNDS),
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

    pub(super) fn transitioned(&mut self, from: State, to: State) {
        let before = self.open.entry(from).or_default();
        *before = before.saturating_sub(1);
        let after = if to.is_final() { &mut self.ended } else { &mut self.open };
        *after.entry(to).or_default() += 1;
    }

    /// Returns all metrics in the order of their output.
    pub(super) fn families(&self) -> Vec<Family<'_>> {
        let by_state = |counts: &BTreeMap<State, u64>| {
            counts.iter().map(|(state, count)| (Some(("state", state.as_str())), *count)).collect()
        };
        let codes = self.refused.iter().map(|(code, count)| (Some(("code", *code)), *count)).collect();
        let one = |count| vec![(None, count)];
        let family = |name, help, points| Family { name, help, points };
        vec![
            family("tasks.accepted", "Accepted tasks.", DataPoints::Counter(one(self.accepted))),
            family("requests.refused", "Refused requests, by error code.", DataPoints::Counter(codes)),
            family("tasks.ended", "Ended tasks, by final state.", DataPoints::Counter(by_state(&self.ended))),
            family("tasks.open", "Open tasks, by state.", DataPoints::Gauge(by_state(&self.open))),
            family("attempt.duration", "Duration of attempts.", DataPoints::Histogram(&self.attempts)),
            family("commit.duration", "Duration of commits to the store.", DataPoints::Histogram(&self.commits)),
            family(
                "answer.duration",
                "Time from writing a request to its answer.",
                DataPoints::Histogram(&self.answers),
            ),
            family(
                "results.late",
                "Results and answers that could not be written immediately.",
                DataPoints::Counter(one(self.late)),
            ),
            family("spans.dropped", "Spans that were not exported.", DataPoints::Counter(one(self.spans_dropped))),
            family(
                "record.size",
                "Size of the store, including its write-ahead log.",
                DataPoints::Bytes(self.record_bytes),
            ),
            family("log.size", "Size of the executor's log.", DataPoints::Bytes(self.log_bytes)),
        ]
    }
}

/// One metric.
#[derive(Debug)]
pub(super) struct Family<'a> {
    /// The name with dots, without the prefix `agent_magic_tool`.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) points: DataPoints<'a>,
}

/// The name and the value of the label, if there is one, and the number.
pub(super) type DataPoint<'a> = (Option<(&'static str, &'a str)>, u64);

#[derive(Debug)]
pub(super) enum DataPoints<'a> {
    Counter(Vec<DataPoint<'a>>),
    Gauge(Vec<DataPoint<'a>>),
    /// A gauge in bytes.
    Bytes(u64),
    /// A histogram in seconds.
    Histogram(&'a Histogram),
}

#[derive(Debug, Clone)]
pub(super) struct Histogram {
    pub(super) bounds: &'static [f64],
    /// The count of each bucket. A bucket includes its upper bound; the last bucket has no upper bound.
    pub(super) counts: Vec<u64>,
    pub(super) sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    pub(super) fn observe(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        self.counts[bucket] += 1;
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
    fn a_duration_is_counted_in_the_first_bucket_whose_bound_is_not_less() {
        let mut histogram = Histogram::new(&[0.001, 1.0]);
        for milliseconds in [0, 1, 2, 1000, 1001] {
            histogram.observe(Duration::from_millis(milliseconds));
        }
        assert_eq!((histogram.counts.as_slice(), histogram.count()), (&[2, 2, 1][..], 5));
    }

    #[test]
    fn a_task_counts_as_open_in_one_state_until_it_ends() {
        let mut metrics = MetricValues::default();
        metrics.opened(State::Accepted);
        metrics.transitioned(State::Accepted, State::Queued);
        metrics.transitioned(State::Queued, State::Running);
        assert_eq!((metrics.open[&State::Accepted], metrics.open[&State::Running]), (0, 1));
        metrics.transitioned(State::Running, State::Failed);
        assert_eq!((metrics.open.values().sum::<u64>(), metrics.ended[&State::Failed]), (0, 1));
    }
}
