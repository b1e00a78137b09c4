//! Start times of scheduled tasks.
//!
//! A start time is a wall-clock time: the task starts when the machine's clock shows it, even if the clock
//! was set in between.

use std::time::Duration;

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _, Zoned};

use crate::code::Code;
use crate::error::ErrorBody;

/// The farthest start time, about a year ahead: what was wanted that long ago is rarely wanted still.
const MAX_AHEAD: SignedDuration = SignedDuration::from_hours(366 * 24);

/// The hint for a malformed time.
const FORMATS: &str = "write it like 2026-05-01T09:00:00+02:00, or in local time like 2026-05-01T09:00 or 09:00; or use \
                       --in=90m";

/// Parses `text` as an RFC 3339 time, or as a local time in `zone`. A time without a date means its next
/// occurrence after `now`.
pub fn parse(text: &str, zone: &TimeZone, now: Timestamp) -> Result<Timestamp, ErrorBody> {
    let text = text.trim();
    // `9:00`
    let padded = format!("0{text}");
    let text = if text.as_bytes().get(1) == Some(&b':') { &padded } else { text };
    let found = if let Ok(zoned) = text.parse::<Zoned>() {
        Ok(zoned.timestamp())
    } else if let Ok(time) = text.parse::<Timestamp>() {
        Ok(time)
    } else if let Ok(local) = text.parse::<DateTime>() {
        local.to_zoned(zone.clone()).map(|zoned| zoned.timestamp())
    } else if let Ok(time) = text.parse::<Time>() {
        next(time, zone, now)
    } else {
        return Err(ErrorBody::new(Code::Usage, format!("`{text}` is not a valid time")).hint(FORMATS));
    };
    found.map_err(|error| {
        ErrorBody::new(Code::Usage, format!("`{text}` is not a valid time in this time zone: {error}")).hint(FORMATS)
    })
}

/// How far in the past a requested time may lie: the caller's clock may differ, and it takes a moment to ask.
const MAX_BEHIND: SignedDuration = SignedDuration::from_mins(1);

/// Parses `text` like [`parse`], in the system's time zone and relative to the current time. Refuses a time in the past.
pub fn parse_local(text: &str) -> Result<Timestamp, ErrorBody> {
    let now = crate::clock::now();
    not_past(parse(text, &TimeZone::system(), now)?, text, now)
}

fn not_past(at: Timestamp, text: &str, now: Timestamp) -> Result<Timestamp, ErrorBody> {
    if now.duration_since(at) <= MAX_BEHIND {
        return Ok(at);
    }
    let message = format!("`{text}` is in the past; it is now {}", now.strftime("%Y-%m-%dT%H:%M:%SZ"));
    Err(ErrorBody::new(Code::Usage, message).hint("leave out --at to start it now, or give a later time"))
}

/// Returns the time `span` from now.
pub fn after(span: Duration) -> Result<Timestamp, ErrorBody> {
    let now = crate::clock::now();
    now.checked_add(span).map_err(|_| too_far())
}

/// Returns how far ahead the start time `at` of a result file is; zero if it has passed, `None` if it is not a time.
pub fn time_until(at: &str) -> Option<Duration> {
    let at: Timestamp = at.parse().ok()?;
    Some(Duration::try_from(at.duration_since(crate::clock::now())).unwrap_or_default())
}

/// Returns `at` in the precision of the store, or an error if it is too far ahead of `now`.
pub fn check(at: Timestamp, now: Timestamp) -> Result<Timestamp, ErrorBody> {
    if at.duration_since(now) > MAX_AHEAD {
        return Err(too_far());
    }

    Ok(Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at))
}

/// Returns the next occurrence of `time` in `zone`.
fn next(time: Time, zone: &TimeZone, now: Timestamp) -> Result<Timestamp, jiff::Error> {
    let today = now.to_zoned(zone.clone()).date();
    let first = today.to_datetime(time).to_zoned(zone.clone())?.timestamp();
    if first > now {
        return Ok(first);
    }
    Ok(today.checked_add(1.day())?.to_datetime(time).to_zoned(zone.clone())?.timestamp())
}

fn too_far() -> ErrorBody {
    let days = MAX_AHEAD.as_hours() / 24;
    ErrorBody::new(Code::Usage, format!("a task can start at most {days} days ahead"))
        .hint("request it again when the time is closer")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().expect("a valid time")
    }

    #[test]
    fn a_time_is_parsed_in_the_local_time_zone() {
        let rome = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a valid time zone");
        let now = time("2026-03-28T12:00:00Z");
        for (text, expected) in [
            ("2026-05-01T09:00:00+02:00", "2026-05-01T07:00:00Z"),
            ("2026-05-01T07:00:00Z", "2026-05-01T07:00:00Z"),
            ("2026-05-01T09:00:00+02:00[Europe/Rome]", "2026-05-01T07:00:00Z"),
            ("2026-05-01T09:00", "2026-05-01T07:00:00Z"),
            (" 2026-01-01 09:00:30 ", "2026-01-01T08:00:30Z"),
            ("14:00", "2026-03-28T13:00:00Z"),
            ("13:00", "2026-03-29T11:00:00Z"),
            ("02:30", "2026-03-29T01:30:00Z"),
            ("9:00", "2026-03-29T07:00:00Z"),
        ] {
            assert_eq!(parse(text, &rome, now), Ok(time(expected)), "{text}");
        }
        for text in ["", "soon", "25:00", "2026-13-01T00:00", "2026-05-01T09:00+99:00"] {
            assert_eq!(parse(text, &rome, now).expect_err(text).code, Code::Usage);
        }
    }

    #[test]
    fn a_time_in_the_past_is_refused_but_a_moment_ago_means_now() {
        let now = time("2026-03-28T12:00:00Z");
        for (text, is_valid) in
            [("2026-03-28T11:59:30Z", true), ("2026-03-28T12:00:01Z", true), ("2026-03-28T11:58:00Z", false)]
        {
            assert_eq!(not_past(time(text), text, now).is_ok(), is_valid, "{text}");
        }
    }

    #[test]
    fn a_task_can_start_at_most_a_year_ahead() {
        let now = time("2026-03-28T12:00:00.123456789Z");
        let year = now + SignedDuration::from_hours(366 * 24);
        assert_eq!(check(year, now), Ok(time("2027-03-29T12:00:00.123456Z")));
        assert!(check(year + SignedDuration::from_nanos(1), now).is_err());
        assert_eq!(check(Timestamp::MIN, Timestamp::MAX), Ok(Timestamp::MIN), "a time in the past is valid");
    }
}
