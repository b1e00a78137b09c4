//! Values of options, parsed so that an error names what is allowed.

/// Parses a number from `MIN` to `MAX`.
pub fn number<const MIN: u64, const MAX: u64>(text: &str) -> Result<u64, String> {
    let digits = text.replace('_', "");
    match digits.parse::<u64>() {
        Ok(number) if number < MIN => Err(format!("`{text}` is too small; the least is {MIN}")),
        Ok(number) if number > MAX => Err(format!("`{text}` is too large; the most is {MAX}")),
        Ok(number) => Ok(number),
        Err(_) => Err(format!("`{text}` is not a whole number; write one from {MIN} to {MAX}")),
    }
}

/// Parses a text that must not be empty.
pub fn not_empty(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        Err("it is empty; give it a value, or leave the option out".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

/// Parses the number of items of a list, from 1.
pub fn count(text: &str) -> Result<usize, String> {
    let count = number::<1, 1_000_000>(text)?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}
