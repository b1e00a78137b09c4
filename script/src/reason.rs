//! The words for what goes wrong in a script, for the model that wrote it: what is wrong, and what to write instead.

use crate::messages::{Failure, FailureKind};
use crate::names;
use crate::run::Run;

/// What exists elsewhere and not here, and what to write instead.
const ABSENT: &[(&[&str], &str)] = &[
    (
        &[
            "process",
            "Deno",
            "Bun",
            "global",
            "window",
            "self",
            "document",
            "navigator",
            "localStorage",
            "sessionStorage",
        ],
        "a script has no environment, files or page; what it is given is in `input`",
    ),
    (
        &[
            "fs",
            "path",
            "os",
            "child_process",
            "http",
            "https",
            "axios",
            "module",
            "exports",
            "__dirname",
            "__filename",
        ],
        "there are no modules, files or network; call a subtool, which list_tools(\"what it should do\") finds",
    ),
    (
        &["Buffer", "Blob", "File", "FileReader"],
        "for base64 of text use btoa and atob, for bytes TextEncoder and Uint8Array",
    ),
    (
        &["WebAssembly", "Worker", "SharedArrayBuffer", "Atomics"],
        "write plain JavaScript; await several calls at once with Promise.all",
    ),
    (&["WeakRef", "FinalizationRegistry"], "keep an ordinary reference; a script is short"),
    (
        &["alert", "prompt", "confirm", "readline"],
        "use await ask_user({ … }) to ask, and console.log to note something",
    ),
    (&["_", "lodash", "moment", "dayjs", "axios", "z"], "there are no libraries; write it with the language itself"),
    (
        &["AbortController", "AbortSignal", "Event", "EventTarget"],
        "calls cannot be aborted; race them with sleep(ms) by Promise.race",
    ),
    (&["FormData", "Headers", "Request", "Response"], "there is no network; call a subtool"),
    (&["print", "printf", "echo"], "use console.log to note something, and return for the result"),
    (&["None", "True", "False", "len", "str"], "this is JavaScript, not Python"),
];

/// For a script that threw `null`.
pub(crate) const NULL_HINT: &str = "throw an Error with a message; `null` is also thrown when no memory is left";

pub(crate) fn stuck() -> Failure {
    Failure::new(FailureKind::Stuck, "the script waits, but no call is open and nothing else can happen")
        .with_hint("a promise that it awaits is never settled; see that each `new Promise` calls resolve or reject")
}

pub(crate) fn computed_too_long() -> Failure {
    let message = "the script computed for too long without waiting for a call (`compute_ms`); perhaps a loop or a \
                   regular expression never ends";
    Failure::new(FailureKind::Limit, message)
        .with_hint("check the condition of each loop, and work on less data at once")
}

pub(crate) fn no_memory() -> Failure {
    Failure::new(FailureKind::Limit, "the script needs more memory than it may use (`memory_bytes`)")
        .with_hint("keep less data at once: process each page or row and keep only what is needed")
}

pub(crate) fn too_deep(what: &str) -> String {
    format!("{what} is nested more deeply than {} levels; pass a flatter value", crate::messages::MAX_DEPTH)
}

/// The failure that an error of the engine itself stands for.
pub(crate) fn engine_limit(name: Option<&str>, message: Option<&str>) -> Option<Failure> {
    match (name?, message?) {
        ("InternalError", "out of memory") => Some(no_memory()),
        ("InternalError" | "RangeError", "stack overflow" | "Maximum call stack size exceeded") => {
            let failed = Failure::new(FailureKind::Limit, "functions of the script call each other too deeply (stack)");
            Some(failed.with_hint("check what ends the recursion, or write a loop with a list of what is left to do"))
        }
        _ => None,
    }
}

/// The failure of a script that did nothing, because it never calls the function it declares.
pub(crate) fn nothing_done(source: &str, run: &Run) -> Option<Failure> {
    if run.has_acted() {
        return None;
    }
    let function = names::uncalled_main(source)?;
    let failed = Failure::new(FailureKind::Value, format!("the script declares `{function}` and never calls it"));
    Some(failed.with_hint(format!("add `return await {function}();` as the last line")))
}

/// What to write instead of a source that does not parse.
pub(crate) fn syntax_hint(source: &str, failed: &Failure) -> Option<&'static str> {
    let code = names::code_of(source);
    let line = failed.line.and_then(|line| code.lines().nth(line as usize - 1)).unwrap_or_default();
    let starts = |word: &str| code.lines().any(|line| line.trim_start().starts_with(word));
    if starts("import ") || starts("import{") {
        Some("there are no modules: leave out `import`; subtools are global functions, and `tools` has them all")
    } else if starts("export ") {
        Some("write the statements at the top level, without `export`; `return` gives the result")
    } else if names::looks_typed(&code) {
        Some("write plain JavaScript, without types")
    } else if failed.message.contains("await") || line.contains("await ") {
        Some("`await` works at the top level and in async functions: write `async` before the function around it")
    } else if source.trim_start().starts_with('<') {
        Some("write plain JavaScript, without markup")
    } else {
        None
    }
}

/// What to write instead of what threw an error of the language.
///
/// `closest` finds the subtool whose name is most like another one.
pub(crate) fn thrown_hint<'a>(failed: &Failure, closest: impl FnOnce(&str) -> Option<&'a str>) -> Option<String> {
    let message = failed.message.as_str();
    match failed.name.as_deref()? {
        "ReferenceError" => {
            if let Some(name) = message.strip_suffix(" is not defined") {
                let name = name.trim_matches('\'');
                let absent = ABSENT.iter().find(|(names, _)| names.contains(&name)).map(|(_, instead)| *instead);
                if let Some(absent) = absent {
                    return Some(absent.to_owned());
                }
                let meant = closest(name).map(|meant| format!("did you mean `{meant}`? ")).unwrap_or_default();
                return Some(format!(
                    "{meant}no variable and no subtool is called `{name}`; list_tools(\"what it should do\") finds subtools"
                ));
            }
            if message.ends_with(" is not initialized") {
                return Some(
                    "it is used before the line that declares it; a variable must not have the name of the \
                             subtool that fills it: rename it, or call tools.name({ … })"
                        .to_owned(),
                );
            }
            message
                .contains("could not load module")
                .then(|| "there are no modules; subtools are global functions, and `tools` has them all".to_owned())
        }
        "TypeError" if message.contains("of undefined") || message.contains("of null") => Some(
            "the value is not there: perhaps an `await` is missing, or the result has other fields; note it with \
                  console.log(value)"
                .to_owned(),
        ),
        "TypeError" if message == "not a function" || message.ends_with("is not a function") => Some(
            "perhaps an `await` is missing, or the value is not of the kind expected; note it with \
                  console.log(value)"
                .to_owned(),
        ),
        _ => None,
    }
}
