//! Parses the options of the reading programs: letters, some with a value, and their long names.

/// The options and operands of a call.
#[derive(Debug, Default)]
pub(super) struct ProgramOptions {
    letters: Vec<(char, String)>,
    pub(super) operands: Vec<String>,
}

impl ProgramOptions {
    pub(super) fn has(&self, letter: char) -> bool {
        self.letters.iter().any(|(found, _)| *found == letter)
    }

    /// The last value of the option `letter`.
    pub(super) fn value(&self, letter: char) -> Option<&str> {
        self.letters.iter().rev().find(|(found, _)| *found == letter).map(|(_, value)| value.as_str())
    }

    /// The files to read, or `-` for standard input if none is named.
    pub(super) fn files(&self) -> Vec<String> {
        if self.operands.is_empty() { vec!["-".to_owned()] } else { self.operands.clone() }
    }
}

/// Parses `arguments`.
///
/// `flags` are the option letters without a value and `values` those with one; `long` maps long names to
/// letters. `known` is the list of options that the error for an unknown option shows.
pub(super) fn read(
    program: &str,
    known: &str,
    flags: &str,
    values: &str,
    long: &[(&str, char)],
    arguments: &[String],
) -> Result<ProgramOptions, String> {
    let unknown = |option: &str| format!("the option `{option}` is not supported; `{program}` supports {known}");
    let missing = |option: &str| format!("the option `{option}` needs a value");
    let mut options = ProgramOptions::default();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            options.operands.extend(arguments.by_ref().cloned());
        } else if let Some(name) = argument.strip_prefix("--") {
            let (name, given) = name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
            let letter = long.iter().find(|(known, _)| *known == name).map(|(_, letter)| *letter);
            let letter = letter.ok_or_else(|| unknown(argument))?;
            let value = match given {
                Some(value) => value.to_owned(),
                None if values.contains(letter) => arguments.next().ok_or_else(|| missing(argument))?.clone(),
                None => String::new(),
            };
            options.letters.push((letter, value));
        } else if let Some(letters) = argument.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            if values.contains('n') && letters.bytes().all(|byte| byte.is_ascii_digit()) && program != "grep" {
                options.letters.push(('n', letters.to_owned()));
                continue;
            }
            for (at, letter) in letters.char_indices() {
                if flags.contains(letter) {
                    options.letters.push((letter, String::new()));
                } else if values.contains(letter) {
                    let rest = &letters[at + letter.len_utf8()..];
                    let value = if rest.is_empty() {
                        arguments.next().ok_or_else(|| missing(argument))?.clone()
                    } else {
                        rest.to_owned()
                    };
                    options.letters.push((letter, value));
                    break;
                } else {
                    return Err(unknown(argument));
                }
            }
        } else {
            options.operands.push(argument.clone());
        }
    }
    Ok(options)
}
