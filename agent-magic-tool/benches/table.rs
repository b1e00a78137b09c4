//! The one table: what, its bar, what it is, what it is compared with.

use std::fmt::Display;
use std::io::Write as _;

use crate::measure::{Samples, milliseconds};

#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<[String; 6]>,
    skipped: Vec<String>,
}

/// How a figure stands to its bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ok,
    Over,
    /// There is no bar for it.
    Told,
}

impl Verdict {
    pub(crate) fn of(holds: bool) -> Self {
        if holds { Self::Ok } else { Self::Over }
    }
}

impl Table {
    /// A duration with a bar in milliseconds, beside a duration of the same minutes.
    pub(crate) fn time(&mut self, what: &str, most: Option<f64>, ours: &Samples, beside: Option<(&str, &Samples)>) {
        let verdict = most.map_or(Verdict::Told, |most| Verdict::of(milliseconds(ours.median()) <= most));
        let bar = most.map_or_else(String::new, |most| format!("<= {most} ms"));
        let (other, ratio) = match beside {
            Some((name, other)) => (
                format!("{name} {}", other.text()),
                format!("{:.2}", ours.median().as_secs_f64() / other.median().as_secs_f64()),
            ),
            None => (String::new(), String::new()),
        };
        self.row(what, &bar, &ours.text(), &other, &ratio, verdict);
    }

    pub(crate) fn row(&mut self, what: &str, bar: &str, ours: &str, beside: &str, ratio: &str, verdict: Verdict) {
        let verdict = match verdict {
            Verdict::Ok => "ok",
            Verdict::Over => "OVER",
            Verdict::Told => "",
        };
        say(&format!("  {what}: {ours} {beside} {ratio} {verdict}"));
        self.rows.push([what, bar, ours, beside, ratio, verdict].map(str::to_owned));
    }

    /// Says that something could not be measured here, where nobody overlooks it.
    pub(crate) fn skip(&mut self, what: &str, why: impl Display) {
        let line = format!("SKIPPED: {what}: {why}");
        say(&line);
        self.skipped.push(line);
    }

    pub(crate) fn print(&self) {
        let head = ["what", "bar", "ours (median, p95)", "beside it", "ratio", ""].map(str::to_owned);
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
        let mut text = format!("\n{}{rule}", line(&head));
        text.extend(self.rows.iter().map(line));
        text.extend(self.skipped.iter().map(|skipped| format!("{skipped}\n")));
        std::io::stdout().write_all(text.as_bytes()).expect("somebody reads the table");
    }
}

/// What goes on, for whoever waits.
pub(crate) fn say(text: &str) {
    writeln!(std::io::stderr(), "{text}").expect("said");
}
