//! The table of results: what was measured, its target, the result, and what it is compared with.

use std::fmt::Display;
use std::io::Write as _;

use crate::measure::{Samples, milliseconds};
use crate::plot::Plot;

#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<[String; 6]>,
    skipped: Vec<String>,
    plots: Vec<Plot>,
}

/// How a result compares with its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ok,
    Over,
    /// There is no target.
    NoTarget,
}

impl Verdict {
    pub(crate) fn of(holds: bool) -> Self {
        if holds { Self::Ok } else { Self::Over }
    }
}

impl Table {
    /// Adds a duration with a target in milliseconds, compared with a duration measured at the same time.
    pub(crate) fn time(
        &mut self,
        what: &str,
        max_ms: Option<f64>,
        ours: &Samples,
        reference: Option<(&str, &Samples)>,
    ) {
        let verdict = max_ms.map_or(Verdict::NoTarget, |max| Verdict::of(milliseconds(ours.median()) <= max));
        let target = max_ms.map_or_else(String::new, |max| format!("<= {max} ms"));
        let (other, ratio) = match reference {
            Some((name, other)) => (
                format!("{name} {}", other.text()),
                format!("{:.2}", ours.median().as_secs_f64() / other.median().as_secs_f64()),
            ),
            None => (String::new(), String::new()),
        };
        self.row(what, &target, &ours.text(), &other, &ratio, verdict);
    }

    pub(crate) fn row(&mut self, what: &str, target: &str, ours: &str, reference: &str, ratio: &str, verdict: Verdict) {
        let verdict = match verdict {
            Verdict::Ok => "ok",
            Verdict::Over => "OVER",
            Verdict::NoTarget => "",
        };
        progress(&format!("  {what}: {ours} {reference} {ratio} {verdict}"));
        self.rows.push([what, target, ours, reference, ratio, verdict].map(str::to_owned));
    }

    /// Reports, now and below the table, that something could not be measured.
    pub(crate) fn skip(&mut self, what: &str, reason: impl Display) {
        let line = format!("SKIPPED: {what}: {reason}");
        progress(&line);
        self.skipped.push(line);
    }

    pub(crate) fn plot(&mut self, plot: Plot) {
        self.plots.push(plot);
    }

    pub(crate) fn plots(&self) -> &[Plot] {
        &self.plots
    }

    pub(crate) fn print(&self) {
        let text = format!("\n{}", self.markdown());
        std::io::stdout().write_all(text.as_bytes()).expect("standard output is open");
    }

    /// The table in Markdown, with its columns below each other.
    pub(crate) fn markdown(&self) -> String {
        let head = ["what", "target", "ours (median, p95)", "compared with", "ratio", ""].map(str::to_owned);
        let mut widths = [0; 6];
        for row in self.rows.iter().chain([&head]) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let line = |row: &[String; 6]| {
            let cells: Vec<_> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let rule = line(&widths.map(|width| "-".repeat(width)));
        let mut text = format!("{}{rule}", line(&head));
        text.extend(self.rows.iter().map(line));
        text.extend(self.skipped.iter().map(|skipped| format!("{skipped}\n")));
        text
    }
}

/// Prints progress to standard error.
pub(crate) fn progress(text: &str) {
    writeln!(std::io::stderr(), "{text}").expect("standard error is open");
}
