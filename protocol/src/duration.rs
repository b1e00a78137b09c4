//! Durations in their human-readable form: `500ms`, `30s`, `5m`, `1h 30m`, `7d`.
//!
//! On the command line a bare number is seconds; in files the unit is required.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A length of time greater than zero, written like `30s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PositiveDuration(Duration);

/// Why a text is not a valid [`PositiveDuration`].
#[derive(Debug, thiserror::Error)]
pub enum DurationError {
    #[error("`{0}` is not a valid duration; write it like `500ms`, `30s`, `5m`, `1h` or `7d`")]
    Malformed(String),
    #[error("a duration must be longer than 0s; write it like `30s`, `5m` or `1h`")]
    NotPositive,
}

impl PositiveDuration {
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    pub const fn from_millis(milliseconds: u64) -> Self {
        Self(Duration::from_millis(milliseconds))
    }

    pub const fn get(self) -> Duration {
        self.0
    }
}

impl FromStr for PositiveDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let malformed = || DurationError::Malformed(text.to_owned());
        let word = text.trim();
        if let Ok(seconds) = word.parse::<f64>() {
            let duration = Duration::try_from_secs_f64(seconds)
                .map_err(|_| if seconds < 0.0 { DurationError::NotPositive } else { malformed() })?;
            return if duration.is_zero() { Err(DurationError::NotPositive) } else { Ok(Self(duration)) };
        }
        // Days are not a unit of `jiff`'s exact durations: a day of a calendar may have 23 hours. Here it has 24.
        let (days, rest) = match word.split_once('d') {
            Some((days, rest)) => (days.trim_end().parse::<u32>().map_err(|_| malformed())?, rest.trim_start()),
            None => (0, word),
        };
        let rest = match rest {
            "" if days > 0 => jiff::SignedDuration::ZERO,
            rest => rest.parse().map_err(|_| malformed())?,
        };
        let signed = jiff::SignedDuration::from_hours(24 * i64::from(days)).checked_add(rest).ok_or_else(malformed)?;
        match Duration::try_from(signed) {
            Ok(duration) if !duration.is_zero() => Ok(Self(duration)),
            _ => Err(DurationError::NotPositive),
        }
    }
}

impl fmt::Display for PositiveDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signed = jiff::SignedDuration::try_from(self.0).unwrap_or(jiff::SignedDuration::MAX);
        write!(f, "{signed:#}")
    }
}

impl<'de> Deserialize<'de> for PositiveDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        if text.trim().parse::<f64>().is_ok() {
            return Err(de::Error::custom(DurationError::Malformed(text.into_owned())));
        }
        text.parse().map_err(de::Error::custom)
    }
}

impl Serialize for PositiveDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for PositiveDuration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A duration: `500ms`, `30s`, `5m`, `1h 30m`, `7d`.",
            // Greater than zero; units from days to nanoseconds; fractions only for hours, minutes and seconds.
            "pattern": r"^(?=.*[1-9])([0-9]+ ?d ?)?([0-9.]+ ?h ?)?([0-9.]+ ?m ?)?([0-9.]+ ?s ?)?([0-9]+ ?ms ?)?([0-9]+ ?us ?)?([0-9]+ ?ns)?$",
            // Editors that support this keyword show it in place of the pattern.
            "patternErrorMessage": "Write a duration like `500ms`, `30s`, `5m`, `1h 30m` or `7d`.",
            "examples": ["30s"]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_from_their_human_readable_form() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h 30m", 5_400_000),
            ("30", 30_000),
            (" 0.5 ", 500),
            ("1d", 86_400_000),
            ("7 d", 604_800_000),
            ("1d 12h", 129_600_000),
        ] {
            let span: PositiveDuration = text.parse().expect(text);
            assert_eq!(span, PositiveDuration::from_millis(milliseconds));
            assert_eq!(span.to_string().parse::<PositiveDuration>().expect("a duration that we wrote"), span);
        }
        for wrong in ["0s", "0", "-5s", "-5", "soon", "", "d", "0d", "-1d", "1.5d", "1d soon", "inf", "nan", "1e300"] {
            assert!(wrong.parse::<PositiveDuration>().is_err(), "{wrong}");
        }
    }
}
