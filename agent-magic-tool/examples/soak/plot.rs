//! The plot: one strip per measure over the same time axis, as an SVG for light and dark pages.

use std::fmt::Write as _;
use std::time::Duration;

use super::Sample;

const WIDTH: f64 = 760.0;
const STRIP: f64 = 96.0;
const GAP: f64 = 34.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 26.0;
/// The most points per strip; more would not be visible.
const MAX_POINTS: usize = 360;

/// A strip: its title, its value, its unit, and how much of the value makes one unit.
type Strip = (&'static str, fn(&Sample) -> u64, &'static str, f64);

const STRIPS: &[Strip] = &[
    ("Tasks ended", |sample| sample.ended, "/s", 1.0),
    ("Resident memory", |sample| sample.memory, "MiB", 1_048_576.0),
    ("Open descriptors", |sample| sample.descriptors, "", 1.0),
    ("Write-ahead log", |sample| sample.wal, "MiB", 1_048_576.0),
    ("Disk: results, record, log", |sample| sample.disk, "MiB", 1_048_576.0),
];

#[expect(clippy::cast_precision_loss, reason = "a picture needs little precision")]
pub(crate) fn draw(samples: &[Sample], length: Duration) -> String {
    let height = (STRIP + GAP).mul_add(STRIPS.len() as f64, TOP + 14.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" role=\"img\">\n\
         <title>The executor under mixed load for {:.0} minutes</title>\n\
         <style>text {{ fill: #57606a }} .title {{ font-weight: 600 }} .grid {{ stroke: #8c959f; stroke-opacity: .35 }} \
         .line {{ fill: none; stroke: #2f81f7; stroke-width: 1.4; stroke-linejoin: round }} \
         @media (prefers-color-scheme: dark) {{ text {{ fill: #9ea7b1 }} }}</style>\n",
        length.as_secs_f64() / 60.0
    );
    for (number, strip) in STRIPS.iter().enumerate() {
        draw_strip(&mut svg, strip, (STRIP + GAP).mul_add(number as f64, TOP), samples);
    }
    let minutes = length.as_secs_f64() / 60.0;
    for tick in 0_u8..=6 {
        let share = f64::from(tick) / 6.0;
        let x = (WIDTH - LEFT - RIGHT).mul_add(share, LEFT);
        let anchor = if tick == 6 { "end" } else { "middle" };
        let unit = if tick == 6 { " min" } else { "" };
        line(
            &mut svg,
            &format!(
                "<text x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"{anchor}\">{}{unit}</text>",
                height - 12.0,
                short(minutes * share)
            ),
        );
    }
    svg.push_str("</svg>\n");
    svg
}

#[expect(clippy::cast_precision_loss, reason = "a picture needs little precision")]
fn draw_strip(svg: &mut String, (title, value, unit, per_unit): &Strip, top: f64, samples: &[Sample]) {
    let chunk_size = samples.len().div_ceil(MAX_POINTS).max(1);
    let means: Vec<f64> = samples
        .chunks(chunk_size)
        .map(|chunk| chunk.iter().map(|sample| value(sample) as f64 / per_unit).sum::<f64>() / chunk.len() as f64)
        .collect();
    let max = round_up(means.iter().copied().fold(0.0, f64::max));
    let bottom = top + STRIP;
    line(svg, &format!("<text class=\"title\" x=\"{LEFT}\" y=\"{:.0}\">{title}</text>", top - 7.0));
    for share in [0.0, 0.5, 1.0] {
        let y = STRIP.mul_add(-share, bottom);
        let label = if share > 0.9 && !unit.is_empty() { format!("{} {unit}", short(max)) } else { short(max * share) };
        line(svg, &format!("<path class=\"grid\" d=\"M{LEFT} {y:.1}H{}\"/>", WIDTH - RIGHT));
        line(svg, &format!("<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", LEFT - 8.0, y + 4.0));
    }
    let step = (WIDTH - LEFT - RIGHT) / (means.len().max(2) - 1) as f64;
    let points: Vec<_> = means
        .iter()
        .enumerate()
        .map(|(number, mean)| {
            format!("{:.1},{:.1}", step.mul_add(number as f64, LEFT), STRIP.mul_add(-(mean / max), bottom))
        })
        .collect();
    line(svg, &format!("<polyline class=\"line\" points=\"{}\"/>", points.join(" ")));
}

fn line(svg: &mut String, text: &str) {
    writeln!(svg, "{text}").expect("writing to a string cannot fail");
}

/// Rounds up to the next of 1, 2, 5, 10, 20, 50, and so on.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|step| *step >= value).unwrap_or(10.0 * power)
}

fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}
