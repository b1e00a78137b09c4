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

/// What is left of the score of a hit that does `done`.
pub(crate) fn share(wanted: Verb, done: Option<Verb>) -> f64 {
    match done {
        Some(Verb::Delete) if wanted == Verb::Read => DELETE_FOR_READ,
        Some(Verb::Read) if wanted != Verb::Read => READ_FOR_CHANGE,
        Some(done) if wanted != done => OTHER_VERB,
        _ => 1.0,
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
    }
}
