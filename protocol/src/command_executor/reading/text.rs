//! `cat`, `head`, `tail`, `wc` and `echo`.

use std::io::{BufRead as _, Read as _};

use super::options::{self, ProgramOptions};
use super::{MAX_BYTES, ProgramFailure, ProgramOutput, ResultReader};

pub(super) fn echo(arguments: &[String]) -> ProgramOutput {
    let (end, words) = match arguments.split_first() {
        Some((first, rest)) if first == "-n" => ("", rest),
        _ => ("\n", arguments),
    };
    ProgramOutput { stdout: format!("{}{end}", words.join(" ")).into_bytes(), ..ProgramOutput::default() }
}

pub(super) fn cat(arguments: &[String], reader: &mut ResultReader<'_>) -> Result<ProgramOutput, ProgramFailure> {
    let options = options::read("cat", "-n", "n", "", &[("number", 'n')], arguments)?;
    let mut stdout = Vec::new();
    for file in options.files() {
        stdout.extend(reader.read(&file)?);
    }
    if options.has('n') {
        let lines = stdout.split_inclusive(|byte| *byte == b'\n').enumerate();
        stdout = lines.flat_map(|(index, line)| [format!("{:6}\t", index + 1).as_bytes(), line].concat()).collect();
    }
    Ok(ProgramOutput { stdout, ..ProgramOutput::default() })
}

/// How much of a text `head` and `tail` print.
enum Extent {
    Lines(Amount),
    Bytes(Amount),
}

enum Amount {
    /// `head`: the first ones. `tail`: the last ones.
    Limit(u64),
    /// `head`: all but the last ones. `tail`: from this one on.
    Rest(u64),
}

fn extent(options: &ProgramOptions, rest: char) -> Result<Extent, ProgramFailure> {
    let count = |text: &str| {
        let (is_rest, digits) = text.strip_prefix(rest).map_or((false, text), |digits| (true, digits));
        let number = digits.trim_start_matches(['+', '-']).parse::<u64>();
        let number = number.map_err(|_| ProgramFailure(1, format!("`{text}` is not a number")))?;
        Ok::<_, ProgramFailure>(if is_rest { Amount::Rest(number) } else { Amount::Limit(number) })
    };
    match (options.value('c'), options.value('n')) {
        (Some(bytes), _) => count(bytes).map(Extent::Bytes),
        (None, lines) => count(lines.unwrap_or("10")).map(Extent::Lines),
    }
}

const LONG: [(&str, char); 4] = [("lines", 'n'), ("bytes", 'c'), ("quiet", 'q'), ("silent", 'q')];

pub(super) fn head(arguments: &[String], reader: &mut ResultReader<'_>) -> Result<ProgramOutput, ProgramFailure> {
    let options = options::read("head", "-n N, -c N, -q", "q", "nc", &LONG, arguments)?;
    let extent = extent(&options, '-')?;
    each(&options, reader, |reader, file| {
        let mut taken = Vec::new();
        let failed = |error: std::io::Error| ProgramFailure(1, format!("{file}: failed to read the file: {error}"));
        match &extent {
            Extent::Lines(Amount::Limit(count)) => {
                let mut source = reader.open(file)?.take(MAX_BYTES);
                for _ in 0..*count {
                    if source.read_until(b'\n', &mut taken).map_err(failed)? == 0 {
                        break;
                    }
                }
            }
            Extent::Bytes(Amount::Limit(count)) => {
                reader.open(file)?.take((*count).min(MAX_BYTES)).read_to_end(&mut taken).map_err(failed)?;
            }
            Extent::Lines(Amount::Rest(left_out)) => {
                let all = reader.read(file)?;
                let lines: Vec<_> = all.split_inclusive(|byte| *byte == b'\n').collect();
                let kept = lines.len().saturating_sub(index(*left_out));
                taken = lines[..kept].concat();
            }
            Extent::Bytes(Amount::Rest(left_out)) => {
                taken = reader.read(file)?;
                taken.truncate(taken.len().saturating_sub(index(*left_out)));
            }
        }
        Ok(taken)
    })
}

pub(super) fn tail(arguments: &[String], reader: &mut ResultReader<'_>) -> Result<ProgramOutput, ProgramFailure> {
    if arguments.iter().any(|argument| argument == "-f" || argument == "-F" || argument == "--follow") {
        return Err(ProgramFailure(
            1,
            "files cannot be followed here; `agent-magic-tool wait ID` blocks until the result is final".to_owned(),
        ));
    }
    let options = options::read("tail", "-n N, -n +N, -c N, -q", "q", "nc", &LONG, arguments)?;
    let extent = extent(&options, '+')?;
    each(&options, reader, |reader, file| {
        let all = reader.read(file)?;
        let from = match &extent {
            Extent::Bytes(Amount::Limit(count)) => all.len().saturating_sub(index(*count)),
            Extent::Bytes(Amount::Rest(first)) => index(first.saturating_sub(1)).min(all.len()),
            Extent::Lines(amount) => {
                let starts: Vec<_> = line_starts(&all).collect();
                let line = match amount {
                    Amount::Limit(count) => starts.len().saturating_sub(index(*count)),
                    Amount::Rest(first) => index(first.saturating_sub(1)),
                };
                starts.get(line).copied().unwrap_or(all.len())
            }
        };
        Ok(all[from..].to_vec())
    })
}

fn line_starts(text: &[u8]) -> impl Iterator<Item = usize> {
    text.split_inclusive(|byte| *byte == b'\n').scan(0, |next, line| {
        let start = *next;
        *next += line.len();
        Some(start)
    })
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Prints a part of each file, with a heading for each if there are several.
fn each(
    options: &ProgramOptions,
    reader: &mut ResultReader<'_>,
    part: impl Fn(&mut ResultReader<'_>, &str) -> Result<Vec<u8>, ProgramFailure>,
) -> Result<ProgramOutput, ProgramFailure> {
    let files = options.files();
    let mut stdout = Vec::new();
    for (number, file) in files.iter().enumerate() {
        if files.len() > 1 && !options.has('q') {
            let before = if number == 0 { "" } else { "\n" };
            stdout.extend(format!("{before}==> {file} <==\n").into_bytes());
        }
        stdout.extend(part(reader, file)?);
    }
    Ok(ProgramOutput { stdout, ..ProgramOutput::default() })
}

pub(super) fn wc(arguments: &[String], reader: &mut ResultReader<'_>) -> Result<ProgramOutput, ProgramFailure> {
    let long = [("lines", 'l'), ("words", 'w'), ("bytes", 'c'), ("chars", 'm')];
    let options = options::read("wc", "-l, -w, -c, -m", "lwcm", "", &long, arguments)?;
    let wanted: Vec<_> = "lwmc".chars().filter(|letter| options.has(*letter)).collect();
    let wanted = if wanted.is_empty() { vec!['l', 'w', 'c'] } else { wanted };
    let files = options.files();
    let mut totals = vec![0; wanted.len()];
    let mut stdout = String::new();
    let mut line = |counts: &[usize], name: &str| {
        let counts: Vec<_> = counts.iter().map(ToString::to_string).collect();
        let name = if name == "-" { String::new() } else { format!(" {name}") };
        stdout.extend([counts.join(" "), name, "\n".to_owned()]);
    };
    for file in &files {
        let bytes = reader.read(file)?;
        let counts: Vec<_> = wanted.iter().map(|letter| count(*letter, &bytes)).collect();
        line(&counts, file);
        for (total, counted) in totals.iter_mut().zip(counts) {
            *total += counted;
        }
    }
    if files.len() > 1 {
        line(&totals, "total");
    }
    Ok(ProgramOutput { stdout: stdout.into_bytes(), ..ProgramOutput::default() })
}

fn count(letter: char, bytes: &[u8]) -> usize {
    match letter {
        'l' => bytes.split(|byte| *byte == b'\n').count() - 1,
        'w' => String::from_utf8_lossy(bytes).split_whitespace().count(),
        'm' => String::from_utf8_lossy(bytes).chars().count(),
        _ => bytes.len(),
    }
}
