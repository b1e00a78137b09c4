//! Neighbours in meaning: words that people use for the same thing.
//!
//! A small list by hand, of what software does and what it does it to. It only breaks ties: the words that a user wrote
//! weigh five times as much.

use crate::words::WordSplitter;

/// Words of one group stand for each other.
const GROUPS: &[&[&str]] = &[
    // What is done.
    &["get", "fetch", "retrieve", "obtain", "read", "lookup"],
    &["list", "show", "display", "view", "browse", "enumerate"],
    &["search", "find", "query", "locate", "discover"],
    &["create", "make", "add", "new", "generate", "insert"],
    &["delete", "remove", "erase", "clear", "drop", "discard"],
    &["update", "edit", "modify", "change", "set", "alter"],
    &["send", "deliver", "post", "submit", "transmit"],
    &["convert", "transform", "translate", "turn"],
    &["calculate", "compute", "count", "estimate"],
    &["check", "verify", "validate", "test", "inspect"],
    &["analyze", "analyse", "examine", "evaluate", "assess"],
    &["compare", "diff", "contrast"],
    &["download", "save", "export"],
    &["upload", "import", "attach"],
    &["open", "launch", "start", "begin", "run", "execute"],
    &["stop", "end", "terminate", "kill", "cancel", "abort"],
    &["schedule", "plan", "arrange", "organize"],
    &["book", "reserve", "booking", "reservation"],
    &["buy", "purchase", "order", "shop", "shopping"],
    &["pay", "payment", "charge"],
    &["merge", "combine", "join", "concatenate"],
    &["split", "divide", "separate"],
    &["copy", "duplicate", "clone"],
    &["move", "rename", "relocate"],
    &["write", "compose", "draft"],
    &["reply", "answer", "respond"],
    &["explain", "describe", "clarify"],
    &["summarize", "summary", "abstract", "digest"],
    &["recommend", "suggest", "recommendation", "suggestion"],
    &["subscribe", "follow"],
    &["share", "publish"],
    &["watch", "monitor", "track"],
    &["remind", "reminder", "alert", "notify", "notification"],
    &["enable", "activate"],
    &["disable", "deactivate"],
    &["resize", "scale", "crop"],
    &["draw", "plot", "render", "visualize"],
    &["learn", "study", "course", "lesson", "tutorial"],
    // What it is done to.
    &["email", "mail", "message", "inbox"],
    &["picture", "image", "photo", "photograph"],
    &["video", "movie", "film", "clip"],
    &["song", "music", "track", "audio"],
    &["document", "file", "doc"],
    &["folder", "directory"],
    &["spreadsheet", "excel", "workbook", "sheet"],
    &["presentation", "slides", "powerpoint"],
    &["chart", "graph", "diagram"],
    &["website", "webpage", "site", "page"],
    &["url", "link", "address"],
    &["calendar", "event", "appointment", "meeting"],
    &["task", "todo", "issue", "ticket"],
    &["user", "person", "people", "member", "account"],
    &["company", "business", "firm", "organization"],
    &["price", "cost", "fee", "rate"],
    &["stock", "share", "ticker", "equity"],
    &["currency", "money", "exchange"],
    &["trip", "travel", "journey", "itinerary", "vacation"],
    &["hotel", "accommodation", "lodging"],
    &["flight", "airline", "plane"],
    &["restaurant", "dining", "food", "meal"],
    &["recipe", "cooking", "dish"],
    &["place", "location", "venue", "spot"],
    &["route", "direction", "navigation"],
    &["nearby", "near", "around", "close"],
    &["weather", "forecast", "temperature"],
    &["news", "headline", "article"],
    &["book", "novel", "reading"],
    &["paper", "publication", "research"],
    &["job", "career", "employment", "vacancy"],
    &["game", "match", "play"],
    &["score", "result", "outcome"],
    &["car", "vehicle", "automobile"],
    &["house", "home", "property", "apartment"],
    &["gift", "present"],
    &["doctor", "physician", "medical"],
    &["medicine", "drug", "medication"],
    &["exercise", "workout", "fitness"],
    &["kid", "child", "children"],
    &["code", "program", "script", "source"],
    &["bug", "error", "defect", "problem"],
    &["repository", "repo", "project"],
    &["database", "table", "sql"],
    &["command", "shell", "terminal"],
    &["statistics", "stats", "metrics"],
    &["latest", "newest", "recent", "current"],
    &["trend", "trending", "popular", "hot"],
    &["review", "rating", "feedback"],
    &["discount", "coupon", "deal"],
    &["text", "string"],
    &["phone", "call", "telephone"],
    &["contact", "person"],
];

/// Abbreviations for several words.
const ABBREVIATIONS: &[(&str, &[&str])] = &[("pr", &["pull", "request"])];

/// The words that `word` abbreviates.
pub(crate) fn spelled_out(word: &str) -> &'static [&'static str] {
    ABBREVIATIONS.iter().find(|(short, _)| *short == word).map_or(&[], |(_, words)| words)
}

/// How many letters the words of a group have in common with a word that is one of them, at least.
const COMMON_START: usize = 3;

/// The stems of the neighbours of a word, which is given as its stem.
pub(crate) fn of(stem: &str, splitter: &WordSplitter) -> Vec<String> {
    let is_known = |word: &&str| {
        let start = COMMON_START.min(stem.len()).min(word.len());
        word.as_bytes()[..start] == stem.as_bytes()[..start] && splitter.stem(word) == stem
    };
    let mut found = Vec::new();
    for group in GROUPS.iter().filter(|group| group.iter().any(is_known)) {
        found.extend(group.iter().map(|word| splitter.stem(word).into_owned()).filter(|word| word != stem));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_the_other_words_of_a_group() {
        let splitter = WordSplitter::new();
        assert_eq!(of(&splitter.stem("pictures"), &splitter), ["imag", "photo", "photograph"]);
        assert_eq!(of("xylophon", &splitter), [""; 0]);
        assert_eq!(of("", &splitter), [""; 0]);
    }
}
