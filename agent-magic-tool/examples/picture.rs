//! Draws the picture in the README: the real output of `agent-magic-tool demo`, as an SVG.
//!
//! `cargo run --release --example picture -- docs/session.svg`, after `cargo build --release`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

/// The width of the terminal in characters; narrow enough for the README.
const COLUMNS: usize = 112;
const LINE_HEIGHT: usize = 18;
/// The width of a character in pixels: 0.6 em, as usual for a monospace font.
const CHARACTER_WIDTH: f64 = 7.8;
/// The picture ends before this line, which starts the second half of the demo.
const END: &str = "# A developer adds";

fn main() -> std::io::Result<()> {
    let target = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("docs/session.svg"), PathBuf::from);
    let program = std::env::current_exe()?.with_file_name("../agent-magic-tool");
    let output = Command::new(program).arg("demo").output()?;
    let session = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = session.lines().skip(1).take_while(|line| !line.starts_with(END));
    std::fs::write(target, draw(&lines.flat_map(wrap).collect::<Vec<_>>()))
}

/// A line of the session and its style.
struct Line {
    text: String,
    color: &'static str,
    bold: bool,
}

fn wrap(line: &str) -> Vec<Line> {
    let (color, bold) = match line.get(..2) {
        Some("# ") => ("#7d8590", false),
        Some("$ ") => ("#e6edf3", true),
        _ => ("#a5d6ff", false),
    };
    let mut rows = vec![String::new()];
    let mut used = 0;
    for character in line.chars() {
        // East Asian characters take two columns.
        let width = if character >= '\u{2E80}' { 2 } else { 1 };
        if used + width > COLUMNS {
            rows.push(String::new());
            used = 0;
        }
        rows.last_mut().expect("there is at least one row").push(character);
        used += width;
    }
    rows.into_iter().map(|text| Line { text, color, bold }).collect()
}

fn draw(lines: &[Line]) -> String {
    let blank = lines.iter().rev().take_while(|line| line.text.is_empty()).count();
    let lines = &lines[..lines.len() - blank];
    #[expect(clippy::cast_precision_loss, reason = "the width is a small number")]
    let width = (COLUMNS as f64).mul_add(CHARACTER_WIDTH, 40.0);
    let height = lines.len() * LINE_HEIGHT + 64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height}\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"10\" fill=\"#0d1117\"/>\n"
    );
    for (index, color) in ["#ff5f57", "#febc2e", "#28c840"].into_iter().enumerate() {
        writeln!(svg, "<circle cx=\"{}\" cy=\"20\" r=\"6\" fill=\"{color}\"/>", 24 + index * 20)
            .expect("writing to a string cannot fail");
    }
    for (index, line) in lines.iter().enumerate() {
        let y = 54 + index * LINE_HEIGHT;
        let weight = if line.bold { " font-weight=\"bold\"" } else { "" };
        let text = line.text.replace('&', "&amp;").replace('<', "&lt;");
        let color = line.color;
        writeln!(svg, "<text x=\"20\" y=\"{y}\" fill=\"{color}\"{weight} xml:space=\"preserve\">{text}</text>")
            .expect("writing to a string cannot fail");
    }
    svg.push_str("</svg>\n");
    svg
}
