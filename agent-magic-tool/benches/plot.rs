//! Plots with two logarithmic axes, as SVG.

use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
/// Room for the numbers at the axes, and for the names of the lines at the right.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 48.0;
const NAME_HEIGHT: f64 = 14.0;
/// Distinguishable without colors too, by their dashes.
const STYLES: [(&str, &str); 5] =
    [("#0b6e4f", ""), ("#3366cc", "6 3"), ("#b8860b", "2 3"), ("#8b2e5d", "8 3 2 3"), ("#555555", "1 5")];

/// One plot.
#[derive(Debug, Clone)]
pub(crate) struct Plot {
    /// The name of its file.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) lines: Vec<Line>,
}

/// What was measured at several places.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// One axis: from where to where, each a power of ten.
struct Scale {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
}

impl Scale {
    fn of(values: impl Iterator<Item = f64> + Clone, start: f64, end: f64) -> Self {
        let (least, most) = values.fold((f64::MAX, f64::MIN), |(least, most), it| (least.min(it), most.max(it)));
        Self { from: least.log10().floor(), to: most.log10().ceil(), start, end }
    }

    fn at(&self, value: f64) -> f64 {
        let part = (value.log10() - self.from) / (self.to - self.from).max(1.0);
        self.start + part * (self.end - self.start)
    }

    /// 1, 2 and 5 of each power.
    fn marks(&self) -> Vec<f64> {
        let mut marks = Vec::new();
        let mut power = self.from;
        while power <= self.to {
            marks.extend([1.0, 2.0, 5.0].map(|step| step * 10f64.powf(power)));
            power += 1.0;
        }
        marks.retain(|mark| mark.log10() <= self.to + f64::EPSILON);
        marks
    }
}

impl Plot {
    pub(crate) fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| line.points.iter());
        let x = Scale::of(points().map(|(x, _)| *x), LEFT, WIDTH - RIGHT);
        let y = Scale::of(points().map(|(_, y)| *y), HEIGHT - BOTTOM, TOP);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n\
             <title>{}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
             <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{}</text>\n",
            self.title, self.title
        );
        let mut add = |element: String| writeln!(svg, "{element}").expect("a text");
        for mark in x.marks() {
            let at = x.at(mark);
            add(format!(
                "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{:.1}\" stroke=\"#e4e4e4\"/>",
                HEIGHT - BOTTOM
            ));
            add(format!(
                "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                HEIGHT - BOTTOM + 16.0,
                shown(mark)
            ));
        }
        for mark in y.marks() {
            let at = y.at(mark);
            add(format!(
                "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#e4e4e4\"/>",
                WIDTH - RIGHT
            ));
            add(format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                shown(mark)
            ));
        }
        add(format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            HEIGHT - 10.0,
            self.x
        ));
        add(format!("<text x=\"{:.1}\" y=\"42\" font-size=\"11\">{}</text>", 8.0, self.y));
        let mut names = Vec::new();
        for (number, line) in self.lines.iter().enumerate() {
            let (color, dashes) = STYLES[number % STYLES.len()];
            let places: Vec<_> = line.points.iter().map(|(at, value)| (x.at(*at), y.at(*value))).collect();
            let path: Vec<_> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            add(format!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>",
                path.join(" ")
            ));
            for (x, y) in &places {
                add(format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"/>"));
            }
            names.extend(places.last().map(|(x, y)| (x + 8.0, y + 4.0, color, line.name)));
        }
        // From the top down, none on another one.
        names.sort_by(|(_, one, ..), (_, other, ..)| one.total_cmp(other));
        let mut free = 0.0_f64;
        for (x, y, color, name) in names {
            let y = y.max(free);
            free = y + NAME_HEIGHT;
            add(format!("<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{color}\">{name}</text>"));
        }
        svg + "</svg>\n"
    }
}

/// 20000 as `20 k`, 0.5 as `0.5`.
fn shown(value: f64) -> String {
    if value >= 1000.0 { format!("{} k", value / 1000.0) } else { format!("{}", (value * 1000.0).round() / 1000.0) }
}
