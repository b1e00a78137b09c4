//! Programs: one subtool for each command, made of what `--help` says.
//!
//! Runs nothing itself: it is given a reader of helps, which the command bounds in time and size. Conservative: nothing
//! is declared harmless, so every call asks.

use serde_json::{Map, json};

use crate::document::Document;
use crate::names::{self, Names};
use crate::{ImportError, ImportOptions, Imported, ImportedSubtool, LeftOut};
use help::Help;
use subtool::Command;

mod help;
mod known;
mod option;
mod subtool;
mod usage;

/// How many words a command may have: `docker image ls` has three.
const MAX_WORDS: usize = 5;
/// The most helps that are read of one program.
const MAX_HELPS: usize = 400;

/// Starts the program with these arguments, which ask for a help, and returns what it prints, or what went wrong.
pub type HelpReader<'a> = dyn FnMut(&[String]) -> Result<String, String> + 'a;

/// The key of a transcript that names the program and the words of its command.
const COMMAND: &str = "command";
/// The key with what each list of arguments made it print.
const HELPS: &str = "helps";

/// Reads the helps of a program and of its commands, as far as an import needs them.
///
/// `words` are the program, as it is to be started, and the words of one of its commands.
pub fn transcript(words: &[String], read: &mut HelpReader<'_>) -> Result<Document, ImportError> {
    let mut helps = Map::new();
    let mut recorded = |arguments: &[String]| {
        let outcome = read(arguments);
        let (key, text) = match &outcome {
            Ok(text) => ("text", text),
            Err(reason) => ("error", reason),
        };
        helps.insert(arguments.join(" "), json!({key: text}));
        outcome
    };
    of_helps(words, &ImportOptions::default(), &mut recorded)?;
    Document::new(words.join(" "), json!({COMMAND: words, HELPS: helps}).to_string())
}

/// Whether `document` is a transcript.
pub(crate) fn recognizes(document: &Document) -> bool {
    document.data[COMMAND].is_array() && document.data[HELPS].is_object()
}

/// Imports a transcript.
pub(crate) fn import(document: &Document, options: &ImportOptions) -> Result<Imported, ImportError> {
    let words = document.data[COMMAND].as_array().into_iter().flatten();
    let words: Vec<_> = words.filter_map(|word| word.as_str().map(str::to_owned)).collect();
    let helps = &document.data[HELPS];
    of_helps(&words, options, &mut |arguments| {
        let help = &helps[arguments.join(" ")];
        let text = |key: &str| help[key].as_str().map(str::to_owned);
        text("text").ok_or_else(|| text("error").unwrap_or_else(|| "it was not read".to_owned()))
    })
}

fn of_helps(words: &[String], options: &ImportOptions, read: &mut HelpReader<'_>) -> Result<Imported, ImportError> {
    let Some((program, subcommands)) = words.split_first() else {
        return Err(ImportError::new("no program is named").hint("write: agent-magic-tool import cli PROGRAM"));
    };
    let name = program.rsplit('/').next().unwrap_or(program).to_owned();
    let pack = options.pack.clone().unwrap_or_else(|| name.clone());
    let made = Names::new(options.max_name_chars);
    let imported = Imported { id: words.join(" "), word: names::pack(&name, 2), ..Imported::default() };
    let mut walk =
        Walk { name: name.clone(), program, pack, names: made, read, left: MAX_HELPS, full: options.full, imported };
    let path: Vec<_> = std::iter::once(name).chain(subcommands.iter().cloned()).collect();
    let shown = path.join(" ");
    let text = walk
        .help(&path)
        .map_err(|error| ImportError::new(format!("the help of `{shown}` could not be read: {error}")))?;
    let help = Help::of(&text, &path);
    if !help.is_understood() {
        let first = crate::text::one_line(text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default(), 200);
        let printed =
            if first.is_empty() { "it printed nothing".to_owned() } else { format!("it begins with `{first}`") };
        return Err(ImportError::new(format!("the help of `{shown}` shows no usage, options or commands; {printed}"))
            .hint("write the definition by hand: agent-magic-tool new NAME --runner process"));
    }
    walk.command(&path, "", help);
    let mut imported = walk.imported;
    imported.found = imported.subtools.len() + imported.left_out.len();
    Ok(imported)
}

struct Walk<'a, 'b> {
    /// The program's name in usages.
    name: String,
    /// The program as it is started.
    program: &'a str,
    /// The first part of each subtool's name.
    pack: String,
    names: Names,
    /// Whether commands for scripts are imported too.
    full: bool,
    read: &'a mut HelpReader<'b>,
    left: usize,
    imported: Imported,
}

impl Walk<'_, '_> {
    fn help(&mut self, path: &[String]) -> Result<String, String> {
        self.left = self.left.checked_sub(1).ok_or("too many commands")?;
        let asking = known::help_arguments(&self.name).iter().map(|it| (*it).to_owned());
        let arguments: Vec<_> = path[1..].iter().cloned().chain(asking).collect();
        (self.read)(&arguments)
    }

    /// Imports the command `path`, whose help was read, or those below it.
    fn command(&mut self, path: &[String], listed: &str, mut help: Help) {
        if path.len() == 1
            && let Some(arguments) = known::list_arguments(&self.name)
            && let Ok(text) = (self.read)(&arguments)
        {
            let listed = Help::of(&text, path);
            if listed.commands.len() > help.commands.len() {
                help.commands = listed.commands;
                help.internal = listed.internal;
            }
        }
        let commands = if path.len() < MAX_WORDS { self.commands(path, &help) } else { Vec::new() };
        if self.full {
            help.commands.extend(help.internal.drain(..).map(|name| (name, String::new())));
        }
        for name in &help.internal {
            self.leave_out(format!("{} {name}", path.join(" ")), "is meant for scripts; --full keeps it");
        }
        if commands.is_empty() {
            self.add(path, listed, &help);
            return;
        }
        for (name, description) in commands {
            let path: Vec<_> = path.iter().cloned().chain([name.clone()]).collect();
            if let Some(reason) = known::reason_to_leave_out(&name, &description) {
                self.leave_out(path.join(" "), reason);
                continue;
            }
            // A word that only the usage has may be no command: `git bisect start -h` starts a bisection.
            let is_listed = help.commands.iter().any(|(known, _)| *known == name);
            let own = if is_listed {
                self.help(&path).map(|text| Help::of(&text, &path))
            } else {
                Err("it is not listed as a command".to_owned())
            };
            match own {
                Ok(own) if !own.forms.is_empty() || own.is_understood() && help.forms.is_empty() => {
                    self.command(&path, &description, own);
                }
                // What the usage of the command above says has to do.
                Ok(_) | Err(_) if help.forms.iter().any(|form| form.word.as_ref() == Some(&name)) => {
                    let forms = help.forms.iter().filter(|form| form.word.as_ref() == Some(&name)).cloned().collect();
                    self.add(&path, &description, &Help { forms, ..Help::default() });
                }
                Ok(_) => self.leave_out(path.join(" "), "its help is not understood"),
                Err(reason) => self.leave_out(path.join(" "), &format!("its help could not be read: {reason}")),
            }
        }
    }

    /// The commands below `path`: those that the help lists, or the words that its usage writes out.
    fn commands(&self, path: &[String], help: &Help) -> Vec<(String, String)> {
        if !help.commands.is_empty() {
            return help.commands.clone();
        }
        let mut words: Vec<(String, String)> = Vec::new();
        if help.forms.len() > 1 || path.len() > 1 && self.name == "git" {
            for word in help.forms.iter().filter_map(|form| form.word.clone()) {
                if words.iter().all(|(known, _)| *known != word) {
                    // The command above says what all of them are about.
                    let about = help
                        .about
                        .chars()
                        .next()
                        .map(|first| first.to_lowercase().to_string() + &help.about[first.len_utf8()..]);
                    words.push((word.clone(), about.map(|about| format!("{word}: {about}")).unwrap_or_default()));
                }
            }
        }
        words
    }

    fn add(&mut self, path: &[String], listed: &str, help: &Help) {
        let command = path.join(" ");
        let mut made = Command { path, listed, help, full: self.full }.definition();
        if self.program != self.name {
            made.definition["run"]["process"]["argv"][0] = self.program.into();
        }
        let mut reasons: Vec<&str> = made.left_out.iter().map(|(_, reason)| *reason).collect();
        reasons.dedup();
        for reason in reasons {
            let flags: Vec<_> =
                made.left_out.iter().filter(|(_, it)| *it == reason).map(|(flag, _)| flag.as_str()).collect();
            let what = format!("{command} {}", flags.join(" "));
            self.imported.simplified.push(LeftOut::new(what, reason));
        }
        let name = self.names.make(&self.pack, &path[1..].join(" "));
        let group = path.get(1).cloned().unwrap_or_default();
        self.imported.subtools.push(ImportedSubtool { name, what: command, group, definition: made.definition });
    }

    fn leave_out(&mut self, what: String, reason: &str) {
        self.imported.left_out.push(LeftOut::new(what, reason));
    }
}

#[cfg(test)]
mod tests;
