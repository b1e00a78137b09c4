//! Decimal numbers as they are written, compared exactly: floats round, and then a limit lets through what is above it.

use std::cmp::Ordering;

/// More digits of an exponent than any number has that could be told from zero or from infinity.
const MAX_EXPONENT_DIGITS: usize = 15;

/// A decimal number, exactly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decimal {
    is_negative: bool,
    /// Without zeros at both ends; empty for zero.
    digits: Vec<u8>,
    /// Where the point is: the value is 0.DIGITS times ten to this power.
    magnitude: i64,
}

impl Decimal {
    /// Reads the text of a JSON number of any length; `None` if it is not one, or if its exponent is beyond all bounds.
    pub fn parse(text: &str) -> Option<Self> {
        let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !is_number(whole) || !is_number(fraction) {
            return None;
        }
        let unsigned = exponent.trim_start_matches(['+', '-']);
        if exponent.len() > unsigned.len() + 1 || unsigned.is_empty() || !is_number(unsigned) {
            return None;
        }
        let exponent = exponent.strip_prefix('+').unwrap_or(exponent);
        let all: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        let Some(first) = all.iter().position(|digit| *digit != b'0') else {
            return Some(Self { is_negative: false, digits: Vec::new(), magnitude: 0 });
        };
        let last = all.iter().rposition(|digit| *digit != b'0').unwrap_or(first);
        if unsigned.trim_start_matches('0').len() > MAX_EXPONENT_DIGITS {
            return None;
        }
        let place = |count: usize| i64::try_from(count).ok();
        let magnitude = place(whole.len())? - place(first)? + exponent.parse::<i64>().ok()?;
        Some(Self { is_negative, digits: all[first..=last].to_vec(), magnitude })
    }

    /// How many digits it has, without zeros at both ends.
    pub fn digits(&self) -> usize {
        self.digits.len()
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let sign = |number: &Self| match (number.digits.is_empty(), number.is_negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        };
        let size = || self.magnitude.cmp(&other.magnitude).then_with(|| self.digits.cmp(&other.digits));
        sign(self).cmp(&sign(other)).then_with(|| match sign(self) {
            0 => Ordering::Equal,
            1 => size(),
            _ => size().reverse(),
        })
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse(text).unwrap_or_else(|| panic!("`{text}` is a number"))
    }

    #[test]
    fn numbers_are_compared_exactly() {
        let ascending = [
            "-1e400",
            "-100.00000000000000000001",
            "-100",
            "-1e-400",
            "0",
            "1e-400",
            "0.1",
            "99.99999999999999999999",
            "100",
            "100.00000000000000000001",
            "100.0000000000000001",
            "9007199254740992",
            "9007199254740993",
            "18446744073709551616",
            "18446744073709551617",
            "1e400",
            "1.00000000000000000000000000001e400",
        ];
        for (index, lower) in ascending.iter().enumerate() {
            assert_eq!(decimal(lower).cmp(&decimal(lower)), Ordering::Equal);
            for higher in &ascending[index + 1..] {
                assert!(decimal(lower) < decimal(higher) && decimal(higher) > decimal(lower), "{lower} {higher}");
            }
        }
        for (one, other) in
            [("1e2", "100.000"), ("0.001e+5", "1E2"), ("-0", "0e9"), ("1000e-3", "1"), ("0e99999999999999999999", "0")]
        {
            assert_eq!(decimal(one), decimal(other), "{one} {other}");
        }
        for no_number in ["", "-", "+1", ".5", "1e", "1e+-2", "0x1", "1,5", "inf", "1e9999999999999999999"] {
            assert_eq!(Decimal::parse(no_number), None, "{no_number}");
        }
    }

    proptest! {
        #[test]
        fn integers_are_in_their_own_order(one: i64, other: i64) {
            prop_assert_eq!(decimal(&one.to_string()).cmp(&decimal(&other.to_string())), one.cmp(&other));
        }
    }
}
