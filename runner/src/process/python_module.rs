//! Which files `python3 -m NAME` runs, as far as that can be told without running it.
//!
//! Python looks for a module in the folder where it runs, in those of `PYTHONPATH`, in its own library, and in the
//! packages of its environment, in this order. Where something else could decide, such as an option that changes the
//! order, a compiled module or a package without an `__init__.py`, nothing is said.

use std::fs;
use std::path::{Path, PathBuf};

/// A module that Python runs by its name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PythonModule {
    pub(crate) name: String,
    /// Its file, or the folder of its package; `None` if it cannot be told.
    pub(crate) path: Option<PathBuf>,
}

/// Variables that do not change where a module is found.
const HARMLESS: [&str; 9] = [
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONHASHSEED",
    "PYTHONIOENCODING",
    "PYTHONLOGLEVEL",
    "PYTHONPATH",
    "PYTHONPYCACHEPREFIX",
    "PYTHONUNBUFFERED",
    "PYTHONUTF8",
    "PYTHONWARNINGS",
];
/// Options without a value that do not change where a module is found.
const HARMLESS_OPTIONS: &str = "bBdiOquvx";
/// The library of a version lies in a folder of this name.
const LIBRARY: &str = "python3.";

impl PythonModule {
    /// The module that the Python at `program` runs with these arguments in `folder`; `None` if it runs none. `env` has
    /// the variables that it is given, those without a value being secrets.
    pub(super) fn of(
        program: &Path,
        arguments: &[String],
        env: &[(&str, Option<&str>)],
        folder: &Path,
    ) -> Option<Self> {
        let (name, is_plain) = named(arguments)?;
        let path = is_plain.then(|| search_path(program, env, folder)).flatten();
        let path = path.and_then(|path| path.find(&name));
        Some(Self { name, path })
    }
}

/// The module among the arguments, and whether no option before it changes where it is found.
fn named(arguments: &[String]) -> Option<(String, bool)> {
    let mut arguments = arguments.iter();
    let mut is_plain = true;
    while let Some(argument) = arguments.next() {
        let letters = argument.strip_prefix('-').filter(|letters| !letters.is_empty())?;
        for (at, letter) in letters.char_indices() {
            let rest = &letters[at + letter.len_utf8()..];
            match letter {
                'm' if rest.is_empty() => return Some((arguments.next()?.clone(), is_plain)),
                'm' => return Some((rest.to_owned(), is_plain)),
                'c' => return None,
                'W' | 'X' => {
                    // Of the latter, some change the order.
                    is_plain &= letter == 'W';
                    if rest.is_empty() {
                        arguments.next();
                    }
                    break;
                }
                _ => is_plain &= HARMLESS_OPTIONS.contains(letter),
            }
        }
    }
    None
}

/// Where Python looks for modules, in this order.
struct SearchPath {
    /// The folder where it runs, and those of `PYTHONPATH`.
    first: Vec<PathBuf>,
    environment: Option<VirtualEnvironment>,
}

/// A virtual environment, whose packages come after the library of the Python that it is of.
struct VirtualEnvironment {
    libraries: [PathBuf; 2],
    packages: PathBuf,
}

fn search_path(program: &Path, env: &[(&str, Option<&str>)], folder: &Path) -> Option<SearchPath> {
    let is_changed = env.iter().any(|(name, _)| name.starts_with("PYTHON") && !HARMLESS.contains(name));
    if is_changed {
        return None;
    }
    let mut first = vec![folder.to_owned()];
    if let Some((_, value)) = env.iter().find(|(name, _)| *name == "PYTHONPATH") {
        let folders = (*value)?.split(':');
        for entry in folders {
            // An empty one means something else in each version.
            first.push(folder.join(Some(entry).filter(|entry| !entry.is_empty())?));
        }
    }
    Some(SearchPath { first, environment: VirtualEnvironment::of(program) })
}

impl SearchPath {
    /// The file or the folder of the module, or of the package that it is a part of.
    fn find(&self, name: &str) -> Option<PathBuf> {
        let is_identifier =
            |part: &str| !part.is_empty() && part.chars().all(|it| it.is_ascii_alphanumeric() || it == '_');
        if !name.split('.').all(is_identifier) {
            return None;
        }
        let top = name.split('.').next()?;
        let found = self.first.iter().find_map(|folder| look(folder, top));
        let found = found.or_else(|| {
            let environment = self.environment.as_ref()?;
            let is_of_library = environment.libraries.iter().any(|library| look(library, top).is_some());
            if is_of_library { Some(ModuleMatch::Unclear) } else { look(&environment.packages, top) }
        });
        match found? {
            ModuleMatch::Package(path) => Some(path),
            ModuleMatch::Module(path) if name == top => Some(path),
            ModuleMatch::Module(_) | ModuleMatch::Unclear => None,
        }
    }
}

enum ModuleMatch {
    Package(PathBuf),
    Module(PathBuf),
    /// Something of that name, of which it cannot be told what Python makes of it.
    Unclear,
}

/// Looks for a module in one folder; `None` if Python would look further.
fn look(folder: &Path, name: &str) -> Option<ModuleMatch> {
    let package = folder.join(name);
    if package.join("__init__.py").is_file() {
        let is_compiled = has_compiled(&package, "__init__");
        return Some(if is_compiled { ModuleMatch::Unclear } else { ModuleMatch::Package(package) });
    }
    let module = folder.join(format!("{name}.py"));
    match (package.exists() || has_compiled(folder, name), module.is_file()) {
        (false, false) => None,
        (false, true) => Some(ModuleMatch::Module(module)),
        (true, _) => Some(ModuleMatch::Unclear),
    }
}

/// Whether a compiled file of this module may be loaded in the place of its source. What cannot be read may have one.
fn has_compiled(folder: &Path, name: &str) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return folder.exists() };
    entries.flatten().any(|entry| {
        let file = entry.file_name();
        let is_of_module =
            file.to_str().and_then(|file| file.strip_prefix(name)).is_some_and(|rest| rest.starts_with('.'));
        is_of_module && Path::new(&file).extension().is_some_and(|ending| ending == "so" || ending == "pyc")
    })
}

impl VirtualEnvironment {
    /// The one of `program`, if its library lies where it usually does.
    fn of(program: &Path) -> Option<Self> {
        let programs = program.parent()?;
        let root = [programs, programs.parent()?].into_iter().find(|root| root.join("pyvenv.cfg").is_file())?;
        let settings = fs::read_to_string(root.join("pyvenv.cfg")).ok()?;
        let setting = |line: &str| {
            let (name, value) = line.split_once('=')?;
            (name.trim() == "home").then(|| value.trim().to_owned())
        };
        let home = PathBuf::from(settings.lines().find_map(setting)?);
        let mut versions = fs::read_dir(root.join("lib")).ok()?.flatten().map(|entry| entry.file_name());
        let version = versions.find(|name| name.to_str().is_some_and(|name| name.starts_with(LIBRARY)))?;
        if versions.any(|name| name.to_str().is_some_and(|name| name.starts_with(LIBRARY))) {
            return None;
        }
        let library = home.parent()?.join("lib").join(&version);
        if !library.join("os.py").is_file() {
            return None;
        }
        let compiled = library.join("lib-dynload");
        Some(Self { libraries: [library, compiled], packages: root.join("lib").join(version).join("site-packages") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Files(tempfile::TempDir);

    impl Files {
        fn new(names: &[&str]) -> Self {
            let files = Self(tempfile::tempdir().expect("a folder"));
            for name in names {
                let path = files.at(name);
                fs::create_dir_all(path.parent().expect("a folder")).expect("made");
                fs::write(path, "").expect("written");
            }
            files
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        /// What is found, from here.
        fn found(&self, words: &str, env: &[(&str, Option<&str>)]) -> Option<(String, Option<String>)> {
            let words: Vec<_> = words.split(' ').map(str::to_owned).collect();
            let module = PythonModule::of(&self.at("venv/bin/python3"), &words, env, &self.at("run"))?;
            let from_here = |path: PathBuf| path.strip_prefix(self.0.path()).expect("below").display().to_string();
            Some((module.name, module.path.map(from_here)))
        }

        fn path(&self, words: &str) -> Option<String> {
            self.found(words, &[]).and_then(|(_, path)| path)
        }
    }

    #[test]
    fn a_module_is_found_where_python_runs() {
        let files = Files::new(&["run/tool.py", "run/pack/__init__.py", "run/pack/sub.py", "run/bare/x.py"]);
        for (words, path) in [
            ("-m tool", Some("run/tool.py")),
            ("-mtool", Some("run/tool.py")),
            ("-u -W ignore -Bm tool --port 1", Some("run/tool.py")),
            ("-m pack", Some("run/pack")),
            ("-m pack.sub", Some("run/pack")),
            ("-m tool.sub", None),
            ("-m bare.x", None),
            ("-m none", None),
            ("-m ../run/tool", None),
            ("-I -m tool", None),
            ("-P -m tool", None),
            ("-X frozen_modules -m tool", None),
            ("-Sm tool", None),
        ] {
            let found = files.found(words, &[]).expect("it names a module");
            assert_eq!(found.1.as_deref(), path, "{words}");
        }
        for words in ["tool.py -m tool", "-c print() -m tool", "-", "-u", "-m"] {
            assert_eq!(files.found(words, &[]), None, "{words}");
        }
    }

    #[test]
    fn in_doubt_nothing_is_found() {
        for other in ["run/tool.so", "run/tool.cpython-311-x86_64-linux-gnu.so", "run/tool.pyc", "run/tool/x.py"] {
            assert_eq!(Files::new(&["run/tool.py", other]).path("-m tool"), None, "{other}");
        }
        assert_eq!(Files::new(&["run/pack/__init__.py", "run/pack/__init__.abi3.so"]).path("-m pack"), None);
        let files = Files::new(&["run/tool.py"]);
        for env in
            [("PYTHONHOME", Some("/x")), ("PYTHONSAFEPATH", Some("1")), ("PYTHONPATH", None), ("PYTHONPATH", Some(""))]
        {
            assert_eq!(files.found("-m tool", &[env]).and_then(|(_, path)| path), None, "{env:?}");
        }
    }

    #[test]
    fn the_folders_of_a_variable_come_next_and_then_the_packages_of_the_environment() {
        let packages = "venv/lib/python3.11/site-packages";
        let server = format!("{packages}/server/__init__.py");
        let shadowed = format!("{packages}/json/__init__.py");
        let files = Files::new(&[
            "base/lib/python3.11/os.py",
            "base/lib/python3.11/json/__init__.py",
            "more/tool.py",
            &server,
            &shadowed,
        ]);
        let home = format!("home = {}\nversion = 3.11.7\n", files.at("base/bin").display());
        fs::write(files.at("venv/pyvenv.cfg"), home).expect("written");
        assert_eq!(files.path("-m server"), Some(format!("{packages}/server")));
        assert_eq!(files.path("-m json"), None, "the library has it");
        let more = files.at("more").display().to_string();
        let found = files.found("-m tool", &[("PYTHONPATH", Some(&more)), ("PYTHONUNBUFFERED", Some("1"))]);
        assert_eq!(found.and_then(|(_, path)| path).as_deref(), Some("more/tool.py"));
        fs::create_dir_all(files.at("venv/lib/python3.12")).expect("made");
        assert_eq!(files.path("-m server"), None, "there are two versions");
    }
}
