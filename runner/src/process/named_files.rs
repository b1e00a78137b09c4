//! The files that a command line and its environment name. Which of them a program executes, reads or writes it alone
//! knows: what looks like a script is taken for one.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ground::task::fingerprint::{FileRole, leads_elsewhere};
use protocol::paths::real_path;

/// What ends the name of a file that is loaded or interpreted.
const EXTENSIONS: [&str; 25] = [
    "awk", "bash", "cjs", "cts", "jar", "jq", "js", "lua", "mjs", "mk", "mts", "php", "pl", "pm", "ps1", "py", "pyz",
    "rb", "sed", "sh", "so", "tcl", "ts", "zip", "zsh",
];

/// Programs, and their options whose value is the file of a program text, whatever its name.
const TEXT_OPTIONS: [(&str, &[&str]); 13] = [
    ("awk", &["-f", "--file"]),
    ("bash", &["--rcfile", "--init-file"]),
    ("gawk", &["-f", "--file", "-i", "--include"]),
    ("gmake", &["-f", "--file", "--makefile"]),
    ("gsed", &["-f", "--file"]),
    ("jq", &["-f", "--from-file"]),
    ("make", &["-f", "--file", "--makefile"]),
    ("mawk", &["-f", "--file"]),
    ("node", &["-r", "--require", "--import", "--loader", "--experimental-loader"]),
    ("nodejs", &["-r", "--require", "--import", "--loader", "--experimental-loader"]),
    ("php", &["-f", "--file"]),
    ("psql", &["-f", "--file"]),
    ("sed", &["-f", "--file"]),
];

/// Programs that run what lies in a folder, and programs that start others; without the number of their version.
const INTERPRETERS: [&str; 27] = [
    "bash", "bun", "busybox", "dash", "deno", "env", "gmake", "java", "ksh", "lua", "luajit", "make", "nice", "node",
    "nodejs", "nohup", "perl", "php", "pypy", "python", "ruby", "setsid", "sh", "tclsh", "timeout", "xargs", "zsh",
];

/// Environment variables that name folders or files from which interpreters and the loader take code.
const CODE_VARIABLES: [&str; 21] = [
    "AWKLIBPATH",
    "AWKPATH",
    "BASH_ENV",
    "CLASSPATH",
    "ENV",
    "GIT_EXEC_PATH",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LUA_CPATH",
    "LUA_PATH",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PERL5LIB",
    "PERL5OPT",
    "PERLLIB",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "RUBYLIB",
    "RUBYOPT",
    "ZDOTDIR",
];

/// The files that `text` may name in `folder`.
fn files_in(text: &str, folder: &Path) -> impl Iterator<Item = PathBuf> {
    names_in(text).map(|name| folder.join(name)).filter(|path| path.is_file())
}

/// The files that an argument names which the input fills, and the paths that lead elsewhere through links.
pub(super) fn arguments_in(text: &str, folder: &Path) -> impl Iterator<Item = (PathBuf, FileRole)> {
    // The links above the folder do not count: they are those of the working folder, which is compared by itself.
    let real_folder = real_path(folder).unwrap_or_else(|| folder.to_owned());
    names_in(text).flat_map(move |name| {
        let path = folder.join(name);
        let is_file = path.is_file().then(|| (path.clone(), FileRole::Argument));
        // A whole path is the same in both folders.
        let is_place = leads_elsewhere(&path, &real_folder.join(name)).then_some((path, FileRole::Place));
        is_file.into_iter().chain(is_place)
    })
}

/// The names of files that `text` may be or contain: as in `path`, `@path`, `--option=path`, `field=@path` and `-opath`.
fn names_in(text: &str) -> impl Iterator<Item = &str> {
    let value = text.split_once('=').map(|(_, value)| value);
    let glued = text.strip_prefix('-').filter(|rest| !rest.starts_with('-')).and_then(|rest| rest.get(1..));
    let names = [Some(text), value, glued].into_iter().flatten();
    let names = names.flat_map(|name| [Some(name), name.strip_prefix('@')]).flatten();
    names.filter(|name| !name.is_empty())
}

/// The folders from which a program takes code by its constants: arguments of interpreters that are folders, the search paths
/// in its variables, and its own folder if it is to find a module or a makefile there.
pub(crate) fn code_folders<'a>(
    program: &str,
    arguments: &[Option<&str>],
    variables: impl IntoIterator<Item = (&'a str, &'a str)>,
    folder: &Path,
) -> BTreeSet<PathBuf> {
    let kind = |text: &str| {
        let name = Path::new(text).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.trim_end_matches(|it: char| it.is_ascii_digit() || it == '.').to_owned()
    };
    // As `env -S` splits them.
    let constants =
        || arguments.iter().copied().flatten().flat_map(|text| std::iter::once(text).chain(text.split_whitespace()));
    let folder = &changed_folder(arguments, folder);
    let kinds: Vec<_> = std::iter::once(program).chain(constants()).map(kind).collect();
    let mut found = BTreeSet::new();
    if kinds.iter().any(|kind| INTERPRETERS.contains(&kind.as_str())) {
        let names = constants().flat_map(names_in).map(|name| name.strip_prefix("file://").unwrap_or(name));
        found.extend(names.map(|name| folder.join(name)).filter(|path| path.is_dir() || is_script(path)));
        // With `-P` and `-I`, Python looks for modules in no folder of the caller.
        let is_module =
            constants().any(|text| text.starts_with("-m")) && !constants().any(|text| matches!(text, "-P" | "-I"));
        if is_module || kinds.iter().any(|kind| matches!(kind.as_str(), "make" | "gmake")) {
            found.insert(folder.to_owned());
        }
    }
    let paths = constants().filter_map(|text| text.strip_prefix("--exec-path="));
    found.extend(paths.map(|path| folder.join(path)));
    for (_, value) in variables.into_iter().filter(|(name, _)| CODE_VARIABLES.contains(name)) {
        let words = value.split(|it: char| it == ':' || it.is_whitespace()).flat_map(names_in);
        found.extend(words.map(|word| folder.join(word)).filter(|path| path.exists()));
    }
    found
}

/// The folder to which `env -C FOLDER` leads from `folder`.
fn changed_folder(arguments: &[Option<&str>], folder: &Path) -> PathBuf {
    for (at, text) in arguments.iter().copied().enumerate() {
        let next = || arguments.get(at + 1).copied().flatten();
        let changed = match text {
            Some("-C" | "--chdir") => next(),
            Some(text) => text.strip_prefix("--chdir="),
            None => None,
        };
        if let Some(changed) = changed {
            return folder.join(changed);
        }
    }
    folder.to_owned()
}

/// The scripts that constants name: the arguments of a program, of which `None` stands for one that the input fills, and
/// the values of environment variables.
pub(super) fn scripts_named<'a>(
    program: &Path,
    arguments: &[Option<&str>],
    variables: impl IntoIterator<Item = (&'a str, &'a str)>,
    folder: &Path,
) -> BTreeSet<PathBuf> {
    let mut found = scripts_among(program, arguments, folder);
    found.extend(variables.into_iter().flat_map(|(_, value)| scripts_in_variable(value, folder)));
    found
}

fn scripts_among(program: &Path, arguments: &[Option<&str>], folder: &Path) -> BTreeSet<PathBuf> {
    let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let options = TEXT_OPTIONS.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, options)| options);
    let mut found = BTreeSet::new();
    let mut is_value = false;
    for argument in arguments {
        let Some(text) = argument else {
            is_value = false;
            continue;
        };
        found.extend(files_in(text, folder).filter(|path| is_value || is_script(path)));
        let values: Vec<_> = options.iter().filter_map(|option| value_of(option, text)).collect();
        is_value = values.contains(&"");
        let glued = values.into_iter().filter(|value| !value.is_empty()).map(|value| folder.join(value));
        found.extend(glued.filter(|path| path.is_file()));
    }
    found
}

/// The value that `text` gives to `option`; empty if the next argument is the value.
fn value_of<'a>(option: &str, text: &'a str) -> Option<&'a str> {
    let Some(letter) = option.strip_prefix('-').filter(|rest| rest.len() == 1) else {
        let rest = text.strip_prefix(option)?;
        return if rest.is_empty() { Some(rest) } else { rest.strip_prefix('=') };
    };
    // Letters without a value may precede it, as in `-nf`.
    let letters = text.strip_prefix('-').filter(|rest| !rest.starts_with('-'))?;
    letters.split_once(letter).map(|(_, rest)| rest)
}

/// The scripts that the value of an environment variable names, as in `BASH_ENV`, `LD_PRELOAD` and
/// `NODE_OPTIONS`.
fn scripts_in_variable(value: &str, folder: &Path) -> BTreeSet<PathBuf> {
    let words = value.split(|character: char| character == ':' || character.is_whitespace());
    let files = std::iter::once(value).chain(words).flat_map(|word| files_in(word, folder));
    files.filter(|path| is_script(path)).collect()
}

/// Whether a file is probably executed rather than only read: it is executable, or has the extension of a script.
fn is_script(path: &Path) -> bool {
    let Ok(metadata) = fs::metadata(path) else { return false };
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    metadata.is_file() && (EXTENSIONS.contains(&extension) || metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_in_order() {
        assert!(EXTENSIONS.is_sorted() && TEXT_OPTIONS.is_sorted());
        assert!(INTERPRETERS.is_sorted() && CODE_VARIABLES.is_sorted());
    }

    #[test]
    fn a_script_is_found_wherever_it_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["a.js", "rules", "data.json", "lib.so"] {
            fs::write(folder.path().join(name), "").expect("written");
        }
        let found = |program: &str, arguments: &[&str]| {
            let arguments: Vec<_> =
                arguments.iter().map(|argument| Some(*argument).filter(|text| *text != "{{ x }}")).collect();
            let found = scripts_among(Path::new(program), &arguments, folder.path());
            found.iter().filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect::<Vec<_>>()
        };
        let cases: [(&str, &[&str], &[&str]); 14] = [
            ("node", &["--require=a.js", "data.json"], &["a.js"]),
            ("node", &["-r", "rules"], &["rules"]),
            ("node", &["-rrules"], &["rules"]),
            ("other", &["-ra.js"], &["a.js"]),
            ("other", &["x=@a.js"], &["a.js"]),
            ("/usr/bin/sed", &["-frules", "data.json"], &["rules"]),
            ("sed", &["-n", "-f", "rules", "data.json"], &["rules"]),
            ("sed", &["--file=rules"], &["rules"]),
            ("sed", &["-nfrules"], &["rules"]),
            ("sed", &["-nf", "rules"], &["rules"]),
            ("sed", &["-f", "{{ x }}", "data.json"], &[]),
            ("cat", &["-f", "rules"], &[]),
            ("cat", &["data.json"], &[]),
            ("cat", &["absent.js", "-", "--", "-é"], &[]),
        ];
        for (program, arguments, expected) in cases {
            assert_eq!(found(program, arguments), expected, "{program} {arguments:?}");
        }
        let variable = |value: &str| scripts_in_variable(value, folder.path()).len();
        assert_eq!(variable("a.js"), 1);
        assert_eq!(variable("--max-old-space-size=64 --require=a.js"), 1);
        assert_eq!(variable("absent.so:lib.so"), 1);
        assert_eq!(variable("data.json"), 0);
    }
}
