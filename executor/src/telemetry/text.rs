//! Formats the metrics in Prometheus' text format, version 0.0.4.

use std::fmt::Write as _;

use super::metrics::{DataPoint, DataPoints, Histogram, MetricValues};

/// The content type of the text that [`render`] returns.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn render(metrics: &MetricValues) -> String {
    let mut text = String::new();
    for family in metrics.families() {
        let (unit, kind) = match family.points {
            DataPoints::Counter(_) => ("_total", "counter"),
            DataPoints::Gauge(_) => ("", "gauge"),
            DataPoints::Bytes(_) => ("_bytes", "gauge"),
            DataPoints::Histogram(_) => ("_seconds", "histogram"),
        };
        let name = format!("agent_magic_tool_{}{unit}", family.name.replace('.', "_"));
        line(&mut text, format_args!("# HELP {name} {}\n# TYPE {name} {kind}", family.help));
        match family.points {
            DataPoints::Counter(points) | DataPoints::Gauge(points) => {
                for point in &points {
                    render_point(&mut text, &name, point);
                }
            }
            DataPoints::Bytes(bytes) => line(&mut text, format_args!("{name} {bytes}")),
            DataPoints::Histogram(histogram) => render_histogram(&mut text, &name, histogram),
        }
    }
    text
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("writing to a String cannot fail");
}

/// Renders one point. Labels are states and error codes, which need no escaping.
fn render_point(text: &mut String, name: &str, (label, number): &DataPoint<'_>) {
    match label {
        Some((label, value)) => line(text, format_args!("{name}{{{label}=\"{value}\"}} {number}")),
        None => line(text, format_args!("{name} {number}")),
    }
}

/// Renders a histogram. In this format the buckets are cumulative.
fn render_histogram(text: &mut String, name: &str, histogram: &Histogram) {
    let mut cumulative = 0;
    for (bound, count) in histogram.bounds.iter().zip(&histogram.counts) {
        cumulative += count;
        line(text, format_args!("{name}_bucket{{le=\"{bound}\"}} {cumulative}"));
    }
    let count = histogram.count();
    line(text, format_args!("{name}_bucket{{le=\"+Inf\"}} {count}"));
    line(text, format_args!("{name}_sum {}\n{name}_count {count}", histogram.sum));
}
