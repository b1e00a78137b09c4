//! Words that say nothing about what a subtool or a query is for. They are left out of both.

/// In lower case, sorted by their bytes.
const SILENT_WORDS: &[&str] = &[
    "a", "about", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by", "can",
    "could", "did", "do", "does", "for", "from", "give", "had", "has", "have", "help", "her", "his", "how", "i", "if",
    "im", "in", "into", "is", "it", "its", "just", "know", "let", "like", "ll", "looking", "may", "me", "might",
    "much", "must", "my", "need", "of", "on", "or", "our", "please", "s", "should", "so", "some", "t", "tell", "than",
    "thanks", "that", "the", "their", "them", "then", "there", "these", "they", "this", "those", "to", "too", "tool",
    "tools", "up", "us", "use", "using", "very", "want", "was", "way", "we", "were", "what", "when", "where", "which",
    "while", "who", "whose", "why", "will", "with", "would", "you", "your", "不", "与", "个", "之", "也", "了", "些",
    "从", "他", "但", "你", "使", "和", "哪", "在", "她", "对", "将", "就", "并", "我", "或", "把", "是", "有", "来",
    "某", "此", "由", "的", "给", "要", "请", "这", "那", "都",
];

pub(crate) fn is_silent(word: &str) -> bool {
    SILENT_WORDS.binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_silent_words_are_sorted() {
        assert!(SILENT_WORDS.is_sorted());
        assert!(is_silent("a") && is_silent("your") && is_silent("looking") && is_silent("的") && !is_silent("get"));
    }
}
