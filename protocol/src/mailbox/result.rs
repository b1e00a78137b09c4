//! The parts of the result file format that callers rely on.

/// From this size on, in bytes, `_meta` has the size and shape of the data and the commands that read parts of it, and
/// commands print a preview in place of the data.
pub const LARGE_BYTES: usize = 16_384;
/// How much of large data a preview shows.
pub const PREVIEW_CHARS: usize = 2_000;
/// The message for callers that are woken when their task is final.
pub const WILL_BE_WOKEN: &str = "You will be woken when it is final: end your turn or go on with other work.";

/// The field that says to whom a task belongs, as [`Caller::owner`](crate::caller::Caller::owner) names it; absent if it
/// belongs to its whole user.
pub const OWNER: &str = "owner";

/// Whether `text` is a complete result file of a task that has ended.
///
/// A pending result has a status line that cannot occur elsewhere in the file: inside strings the quotes are
/// escaped, and nested fields are indented further.
pub fn is_final(text: &[u8]) -> bool {
    let pending = b"\n  \"status\": \"pending\"";
    text.ends_with(b"\n}\n") && !text.windows(pending.len()).any(|part| part == pending)
}
