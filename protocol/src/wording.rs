//! How messages write counts and lists of names.

use std::fmt::Display;

/// A number and its noun: `1 error`, `2 errors`.
pub fn counted<N: Copy + Display + From<u8> + PartialEq>(number: N, noun: &str) -> String {
    inflected(number, noun, &format!("{noun}s"))
}

/// A number and what is said of `one` or of `many`: `1 task waits`, `2 tasks wait`.
pub fn inflected<N: Copy + Display + From<u8> + PartialEq>(number: N, one: &str, many: &str) -> String {
    let words = if number == N::from(1) { one } else { many };
    format!("{number} {words}")
}

/// A name or a value as messages show it.
pub fn in_backticks(name: impl Display) -> String {
    format!("`{name}`")
}

/// Names in backticks, with commas between them.
pub fn quoted(names: impl IntoIterator<Item = impl Display>) -> String {
    names.into_iter().map(in_backticks).collect::<Vec<_>>().join(", ")
}

/// The first `most` items with commas between them, and how many more there are: `a, b and 3 more`.
pub fn at_most<T: Display>(most: usize, items: impl IntoIterator<Item = T>) -> String {
    let mut items = items.into_iter();
    let shown = items.by_ref().take(most).map(|item| item.to_string()).collect::<Vec<_>>().join(", ");
    match items.count() {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_many() {
        assert_eq!([counted(0_u32, "task"), counted(1_u64, "task")], ["0 tasks", "1 task"]);
        let waiting = |number: usize| inflected(number, "task waits", "tasks wait");
        assert_eq!([waiting(1), waiting(2)], ["1 task waits", "2 tasks wait"]);
    }

    #[test]
    fn a_long_list_says_how_much_is_left_out() {
        assert_eq!(quoted(["a", "b"]), "`a`, `b`");
        assert_eq!(at_most(2, ["a", "b"]), "a, b");
        assert_eq!(at_most(1, ["a", "b", "c"].map(in_backticks)), "`a` and 2 more");
    }
}
