//! Verbs: what a subtool does and what a query wants done, in four classes.
//!
//! An API says by the method of a request what an operation does, where its words often do not. A class only helps to
//! choose among hits that have the words of the query.

/// What is done to things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Read,
    Create,
    Change,
    Delete,
}

/// What is left of the score of a hit that does something else than the query wants. A hit that does it gains nothing: it
/// would win over those whose verb is unknown.
const OTHER_VERB: f64 = 0.9;
/// What is left of the score of a hit that only reads, if the query wants something made, changed or deleted.
const READ_FOR_CHANGE: f64 = 0.8;
/// What is left of the score of a hit that deletes, if the query wants to read.
const DELETE_FOR_READ: f64 = 0.3;
/// What is left of the score of a hit that makes or changes something, if the query has few words and none that asks for
/// it. Such a query is explained by many hits alike.
const CHANGE_FOR_FEW_WORDS: f64 = 0.8;
/// What is left of the score of a hit that deletes, if the query only names things.
const DELETE_FOR_NOUNS: f64 = 0.6;

/// Stems of words that are verbs wherever they stand.
const VERBS: [(Verb, &[&str]); 4] = [
    (
        Verb::Read,
        &["get", "list", "show", "display", "read", "fetch", "retriev", "find", "brows", "see", "download", "inspect"],
    ),
    (Verb::Create, &["creat", "add", "make", "insert", "send", "upload", "regist"]),
    (Verb::Change, &["updat", "edit", "modifi", "renam", "replac", "alter", "adjust", "correct"]),
    (Verb::Delete, &["delet", "remov", "eras", "purg", "drop", "destroy", "discard", "wipe"]),
];
/// Stems of words that are verbs where a query begins, and may be anything elsewhere.
const FIRST_VERBS: [(Verb, &[&str]); 4] = [
    (Verb::Read, &["view", "search", "queri", "look", "check", "count", "print", "lookup"]),
    (Verb::Create, &["new", "post", "open", "start", "run"]),
    (Verb::Change, &["chang", "set", "patch"]),
    (Verb::Delete, &["clear", "trash"]),
];
/// Words that ask for something to be done, whose class depends on the API: a query that has one does not only name things.
/// Whole words, since their stems are those of nouns, too (`deploy`, `deployments`). Those that mostly name things, such
/// as `order` and `release`, are left out.
#[rustfmt::skip]
const ACTS: &[&str] = &[
    "abort", "accept", "activate", "analyze", "apply", "approve", "archive", "arrange", "ask", "assign", "attach",
    "authorize", "ban", "block", "bookmark", "buy", "calculate", "cancel", "capture", "choose", "clone", "close",
    "collect", "combine", "comment", "compile", "complete", "compose", "compress", "compute", "configure", "confirm",
    "connect", "convert", "copy", "crop", "deactivate", "decline", "decode", "decrypt", "deliver", "deny", "deploy",
    "describe", "disable", "disconnect", "dismiss", "divide", "draft", "duplicate", "email", "enable", "encode",
    "encrypt", "enroll", "escalate", "evaluate", "execute", "explain", "export", "extract", "finish", "follow", "fork",
    "forward", "generate", "grant", "hide", "import", "increase", "install", "invite", "invoke", "join", "kill",
    "label", "launch", "leave", "lock", "mark", "merge", "migrate", "move", "mute", "navigate", "notify", "optimize",
    "organize", "overwrite", "parse", "pause", "pay", "predict", "prepare", "process", "promote", "propose", "protect",
    "publish", "rebuild", "recommend", "recover", "redeem", "redirect", "reduce", "refresh", "refund", "reject",
    "reload", "remind", "reopen", "repair", "reply", "rerun", "reschedule", "reserve", "reset", "resize", "resolve",
    "respond", "restart", "restore", "resume", "revert", "review", "revoke", "rotate", "save", "scan", "schedule",
    "scrape", "share", "solve", "split", "star", "stop", "submit", "subscribe", "suggest", "summarize", "suspend",
    "sync", "take", "toggle", "transcribe", "transfer", "transform", "translate", "transmit", "trigger", "turn",
    "unassign", "unblock", "undo", "uninstall", "unlock", "unpin", "unpublish", "unsubscribe", "upgrade", "upsert",
    "validate", "verify", "void", "watch", "withdraw", "write",
];
/// Words that ask a question, where a query begins.
const QUESTIONS: [&str; 7] = ["who", "what", "which", "where", "when", "how", "whose"];

impl Verb {
    /// What a request with this HTTP method does.
    pub fn of_http_method(method: &str) -> Option<Self> {
        match method {
            "GET" | "HEAD" => Some(Self::Read),
            "POST" => Some(Self::Create),
            "PUT" | "PATCH" => Some(Self::Change),
            "DELETE" => Some(Self::Delete),
            _ => None,
        }
    }

    /// The class of a word, given as its stem.
    pub(crate) fn of_stem(stem: &str, is_first: bool) -> Option<Self> {
        let of = |table: [(Self, &[&str]); 4]| {
            table.into_iter().find(|(_, stems)| stems.contains(&stem)).map(|(verb, _)| verb)
        };
        of(VERBS).or_else(|| of(FIRST_VERBS).filter(|_| is_first))
    }

    /// Whether `word` asks for something to be done, though not for which of the four.
    pub(crate) fn is_act(word: &str) -> bool {
        ACTS.binary_search(&word).is_ok()
    }

    /// Whether `word` begins a question.
    pub(crate) fn is_question(word: &str) -> bool {
        QUESTIONS.contains(&word)
    }

    pub(crate) fn to_byte(verb: Option<Self>) -> u8 {
        verb.map_or(0, |verb| verb as u8 + 1)
    }

    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        [Self::Read, Self::Create, Self::Change, Self::Delete].get(usize::from(byte).checked_sub(1)?).copied()
    }
}

/// What a query wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// What its verb says.
    Verb(Verb),
    /// To read, in a few words: `list shop orders`.
    ShortRead,
    /// To read, most probably, since it has no verb and only names things: `shop orders`.
    Nouns,
}

/// What is left of the score of a hit that does `done`.
pub(crate) fn share(wish: Wish, done: Option<Verb>) -> f64 {
    match (wish, done) {
        (_, None) | (Wish::ShortRead | Wish::Nouns, Some(Verb::Read)) => 1.0,
        (Wish::Nouns, Some(Verb::Delete)) => DELETE_FOR_NOUNS,
        (Wish::ShortRead | Wish::Verb(Verb::Read), Some(Verb::Delete)) => DELETE_FOR_READ,
        (Wish::ShortRead | Wish::Nouns, Some(Verb::Create | Verb::Change)) => CHANGE_FOR_FEW_WORDS,
        (Wish::Verb(wanted), Some(done)) if wanted == done => 1.0,
        (Wish::Verb(_), Some(Verb::Read)) => READ_FOR_CHANGE,
        (Wish::Verb(_), Some(_)) => OTHER_VERB,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::WordSplitter;

    #[test]
    fn the_verbs_are_stems_and_are_kept_as_bytes() {
        let splitter = WordSplitter::new();
        for (verb, stems) in VERBS.into_iter().chain(FIRST_VERBS) {
            assert_eq!(Verb::from_byte(Verb::to_byte(Some(verb))), Some(verb));
            for stem in stems {
                assert!(splitter.stem(stem) == *stem || stem.ends_with(['i', 'z', 'v', 's', 'g', 't']), "{stem}");
            }
        }
        let words = ["retrieve", "browse", "modifies", "renamed", "deleting", "removes", "creates", "query", "changes"];
        assert!(words.iter().all(|word| Verb::of_stem(&splitter.stem(word), true).is_some()));
        assert_eq!(Verb::of_stem("run", false), None);
        assert!(ACTS.is_sorted() && Verb::is_act("deploy") && !Verb::is_act("deployments"));
        assert!(ACTS.iter().all(|word| Verb::of_stem(&splitter.stem(word), false).is_none()));
    }
}
