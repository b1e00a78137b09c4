//! Which files the start of a program executes: the program, the interpreters of `#!` lines, and a script.
//!
//! The kernel opens each of them by its name, at a moment of its own. To execute what a human was shown, the executor
//! finds them first, and `held.rs` starts them from open files. Libraries, modules and other programs are not looked
//! for: `covers` in the definition lists those that an approval is to be bound to.

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use ground::config::programs;
use ground::task::failure::Failure;
use ground::task::fingerprint::FileRole;
use protocol::code::Code;
use protocol::regular_file;

/// The most interpreters that are scripts themselves; the kernel's limit.
const MAX_INTERPRETERS: usize = 4;
/// The longest `#!` line that the kernel reads, in bytes.
const MAX_LINE_BYTES: u64 = 255;

/// Interpreters, and the letters of their options after which a program text or a module follows in place of a script.
const INTERPRETERS: [(&str, &str); 14] = [
    ("sh", "c"),
    ("bash", "c"),
    ("dash", "c"),
    ("ksh", "c"),
    ("zsh", "c"),
    ("fish", "c"),
    ("python", "cm"),
    ("pypy", "cm"),
    ("perl", "eE"),
    ("ruby", "e"),
    ("lua", "e"),
    ("php", "r"),
    ("node", "ep"),
    ("nodejs", "ep"),
];

/// What is executed when a program starts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Startup {
    /// The program as it was found.
    pub(super) program: PathBuf,
    /// What the kernel executes: the program, or the interpreter of its `#!` line.
    pub(super) binary: PathBuf,
    /// The arguments from `#!` lines, which precede all others.
    pub(super) before: Vec<StartupArgument>,
    /// The script among the arguments: its place and its file.
    pub(super) script: Option<(usize, PathBuf)>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum StartupArgument {
    Text(OsString),
    /// A file with a `#!` line.
    Script(PathBuf),
}

impl Startup {
    /// Finds what `program` executes with `arguments` in `folder`. `search` are the folders of its `PATH`.
    pub(super) fn of(
        program: PathBuf,
        arguments: &[String],
        folder: &Path,
        search: &[PathBuf],
    ) -> Result<Self, Failure> {
        let (mut binary, mut before) = (program.clone(), Vec::new());
        for count in 0.. {
            let Some((interpreter, options)) = interpreter_of(&binary, search)? else { break };
            if count == MAX_INTERPRETERS {
                return Err(cannot_start(&program, "too many interpreters that are scripts"));
            }
            let script = std::mem::replace(&mut binary, interpreter);
            let options = options.into_iter().map(StartupArgument::Text);
            before.splice(..0, options.chain([StartupArgument::Script(script)]));
        }
        let script = script_among(&program, arguments, folder);
        Ok(Self { program, binary, before, script })
    }

    /// The files that are executed, the program first.
    pub(super) fn files(&self) -> Vec<(PathBuf, FileRole)> {
        let role = |path: &Path| if path == self.program { FileRole::Program } else { FileRole::Interpreter };
        let scripts = self.before.iter().rev().filter_map(|argument| match argument {
            StartupArgument::Script(path) => Some(path),
            StartupArgument::Text(_) => None,
        });
        let executed = scripts.chain([&self.binary]).map(|path| (path.clone(), role(path)));
        executed.chain(self.script.iter().map(|(_, path)| (path.clone(), FileRole::Script))).collect()
    }
}

/// Returns the kind of interpreter that a program is by its name, as in `python` for `/usr/bin/python3.11`, and its
/// letters in [`INTERPRETERS`].
pub(super) fn interpreter_kind(program: &Path) -> Option<(&'static str, &'static str)> {
    let name = program.file_name()?.to_str()?;
    let stem = name.trim_end_matches(|character: char| character.is_ascii_digit() || ".-".contains(character));
    INTERPRETERS.into_iter().find(|(known, _)| *known == stem)
}

/// Returns the interpreter that the `#!` line of `file` names, and its arguments; `None` if there is no such line.
fn interpreter_of(file: &Path, search: &[PathBuf]) -> Result<Option<(PathBuf, Vec<OsString>)>, Failure> {
    let mut start = Vec::new();
    let opened = regular_file::open(file).and_then(|opened| opened.take(MAX_LINE_BYTES).read_to_end(&mut start));
    opened.map_err(|error| cannot_start(file, &error.to_string()))?;
    let Some(line) = start.strip_prefix(b"#!") else { return Ok(None) };
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let interpreter = Path::new(OsStr::from_bytes(&line[..end]));
    let argument = OsStr::from_bytes(line[end..].trim_ascii_start());
    if !interpreter.is_absolute() {
        return Err(cannot_start(file, "its `#!` line does not name an interpreter with its whole path"));
    }
    if interpreter.file_name() == Some(OsStr::new("env"))
        && let Some(mut words) = words_of_env(argument)
    {
        let name = PathBuf::from(words.remove(0));
        let found = programs::find(&name, search.iter().cloned());
        let found = found.ok_or_else(|| {
            cannot_start(file, &format!("no program named `{}`, which its `#!` line names", name.display()))
        })?;
        return Ok(Some((found, words)));
    }
    let argument = Some(argument.to_owned()).filter(|argument| !argument.is_empty());
    Ok(Some((interpreter.to_owned(), argument.into_iter().collect())))
}

/// Returns the command that `env` would run for the argument of a `#!` line, if that is only a name or a list of words.
fn words_of_env(argument: &OsStr) -> Option<Vec<OsString>> {
    let text = argument.to_str()?;
    let words: Vec<_> = match text.strip_prefix("-S") {
        Some(rest) => rest.split_whitespace().collect(),
        None => vec![text],
    };
    let first = words.first()?;
    let is_plain = !first.is_empty() && !first.starts_with('-') && !text.contains(['=', '\'', '"', '\\', '$', '#']);
    is_plain.then(|| words.into_iter().map(OsString::from).collect())
}

/// Returns the first argument of an interpreter that is a file: the script, unless its text or a module is given
/// instead.
fn script_among(program: &Path, arguments: &[String], folder: &Path) -> Option<(usize, PathBuf)> {
    let (kind, letters) = interpreter_kind(program)?;
    let is_shell = letters == "c" && kind != "python";
    for (place, argument) in arguments.iter().enumerate() {
        let Some(option) = argument.strip_prefix('-').filter(|option| !option.is_empty()) else {
            let path = folder.join(argument);
            if path.is_file() {
                return Some((place, path));
            }
            continue;
        };
        let ends_script = match option.strip_prefix('-') {
            Some(long) => ["eval", "print", "command"].contains(&long.split('=').next().unwrap_or_default()),
            // A shell takes its letters in any order, the others take the text after the last one.
            None if is_shell => option.contains('c'),
            None => option.ends_with(|last| letters.contains(last)) || option.starts_with(|one| letters.contains(one)),
        };
        if ends_script {
            return None;
        }
    }
    None
}

fn cannot_start(file: &Path, reason: &str) -> Failure {
    Failure::new(Code::CannotStart, format!("failed to start `{}`: {reason}", file.display()))
        .hint("ask a human to mend or install it")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    struct Files(tempfile::TempDir);

    impl Files {
        fn new() -> Self {
            Self(tempfile::tempdir().expect("a folder"))
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn program(&self, name: &str, text: &str) -> PathBuf {
            let path = self.at(name);
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
            path
        }

        fn startup(&self, program: &Path, arguments: &[&str]) -> Result<Startup, Failure> {
            let arguments: Vec<_> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
            Startup::of(program.to_owned(), &arguments, self.0.path(), &[self.0.path().to_owned()])
        }
    }

    fn text(text: &str) -> StartupArgument {
        StartupArgument::Text(text.into())
    }

    #[test]
    fn the_interpreters_of_scripts_are_found_like_the_kernel_and_env_find_them() {
        let files = Files::new();
        let binary = files.program("python3", "\x7fELF");
        let inner = files.program("inner", &format!("#! {} -u  -x \nrest", binary.display()));
        let outer = files.program("outer", &format!("#!{}\n", inner.display()));
        let found = files.startup(&outer, &[]).expect("it starts");
        assert_eq!(found.binary, binary);
        let before = [text("-u  -x"), StartupArgument::Script(inner.clone()), StartupArgument::Script(outer.clone())];
        assert_eq!(found.before, before, "the kernel passes what follows the interpreter as one argument");
        let roles =
            [(outer, FileRole::Program), (inner, FileRole::Interpreter), (binary.clone(), FileRole::Interpreter)];
        assert_eq!(found.files(), roles);

        for (line, before) in [("python3", vec![]), ("-S python3 -u -x", vec![text("-u"), text("-x")])] {
            let script = files.program("script", &format!("#!/usr/bin/env {line}\n"));
            let found = files.startup(&script, &[]).expect("it starts");
            let expected: Vec<_> = before.into_iter().chain([StartupArgument::Script(script)]).collect();
            assert_eq!((found.binary, found.before), (binary.clone(), expected), "{line}");
        }
        let own = files.startup(&binary, &["x"]).expect("it starts");
        assert_eq!((own.binary, own.before, own.script), (binary, vec![], None));
    }

    #[test]
    fn a_program_without_its_interpreter_is_refused() {
        let files = Files::new();
        let looped = files.program("looped", &format!("#!{}\n", files.at("looped").display()));
        let cases = [
            (looped, "too many interpreters"),
            (files.program("relative", "#!python3\n"), "whole path"),
            (files.program("absent", "#!/usr/bin/env no-such-program\n"), "no program named `no-such-program`"),
            (files.program("gone", "#!/no/such/interpreter\n"), "No such file"),
            (files.at("none"), "No such file"),
        ];
        for (program, expected) in cases {
            let failure = files.startup(&program, &[]).expect_err("it cannot start");
            assert_eq!(failure.error.code, Code::CannotStart);
            assert!(failure.error.message.contains(expected), "{}", failure.error.message);
        }
    }

    #[test]
    fn the_script_of_an_interpreter_is_its_first_file() {
        let files = Files::new();
        fs::write(files.at("tool.py"), "").expect("written");
        fs::write(files.at("data"), "").expect("written");
        let script = |name: &str, arguments: &[&str]| {
            let program = files.program(name, "\x7fELF");
            files.startup(&program, arguments).expect("it starts").script.map(|(place, _)| place)
        };
        assert_eq!(script("python3.11", &["-u", "tool.py", "data"]), Some(1));
        assert_eq!(script("bash", &["-o", "pipefail", "tool.py"]), Some(2));
        assert_eq!(script("sh", &["-ec", "true", "tool.py"]), None);
        assert_eq!(script("sh", &["-e", "tool.py"]), Some(1));
        assert_eq!(script("python3", &["-m", "module", "data"]), None);
        assert_eq!(script("node", &["--eval=1", "data"]), None);
        assert_eq!(script("node", &["tool.py"]), Some(0));
        assert_eq!(script("rm", &["tool.py"]), None, "its argument is data");
    }
}
