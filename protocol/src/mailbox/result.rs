//! What callers may rely on in a result file.

/// From this many bytes on `_meta` tells the size and shape of the data.
pub const LARGE: usize = 20_000;
/// What a caller is told that is woken; never said where nobody would.
pub const WOKEN: &str = "You will be woken when it is final: end your turn or go on with other work.";

/// Whether `text` is a whole result file that says how its task ended.
///
/// No other place has this line: a text inside the file has its quotes escaped, and what is nested
/// is indented further.
pub fn is_final(text: &[u8]) -> bool {
    let pending = b"\n  \"status\": \"pending\"";
    text.ends_with(b"\n}\n") && !text.windows(pending.len()).any(|part| part == pending)
}
