//! Schedules: when a task is to start that was asked for ahead of its time.
//!
//! A schedule is a time of day, and means what the clock of the machine shows then, even if the clock is
//! set meanwhile.

use std::time::Duration;

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _, Zoned};

use crate::code::Code;
use crate::error::ErrorBody;

/// Nobody knows what will be wanted later than this.
const MAX_AHEAD: SignedDuration = SignedDuration::from_hours(366 * 24);

/// How a time is written.
const HOW: &str = "write it like 2026-05-01T09:00:00+02:00, or by the local clock like 2026-05-01T09:00 or 09:00; or say \
                   --in=90m";

/// The time that `text` means, where and when it is written: RFC 3339, or by the clock of `zone`. A time
/// without a date is the next one.
pub fn read(text: &str, zone: &TimeZone, now: Timestamp) -> Result<Timestamp, ErrorBody> {
    let text = text.trim();
    let found = if let Ok(zoned) = text.parse::<Zoned>() {
        Ok(zoned.timestamp())
    } else if let Ok(time) = text.parse::<Timestamp>() {
        Ok(time)
    } else if let Ok(local) = text.parse::<DateTime>() {
        local.to_zoned(zone.clone()).map(|zoned| zoned.timestamp())
    } else if let Ok(time) = text.parse::<Time>() {
        next(time, zone, now)
    } else {
        return Err(ErrorBody::new(Code::Usage, format!("`{text}` is no time")).hint(HOW));
    };
    found.map_err(|error| ErrorBody::new(Code::Usage, format!("`{text}` is no time here: {error}")).hint(HOW))
}

/// As [`read`], where this process is, now.
pub fn read_here(text: &str) -> Result<Timestamp, ErrorBody> {
    read(text, &TimeZone::system(), crate::clock::now())
}

/// The time so long from now.
pub fn after(span: Duration) -> Result<Timestamp, ErrorBody> {
    let now = crate::clock::now();
    now.checked_add(span).map_err(|_| too_far())
}

/// What is recorded of a task that is to start at `at`, if that is not too far away.
pub fn check(at: Timestamp, now: Timestamp) -> Result<Timestamp, ErrorBody> {
    if at.duration_since(now) > MAX_AHEAD {
        return Err(too_far());
    }
    // As precise as the store.
    Ok(Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at))
}

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
        .hint("ask for it when its time is nearer")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn a_time_is_read_as_people_write_it_where_they_are() {
        let rome = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone");
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
        ] {
            assert_eq!(read(text, &rome, now), Ok(time(expected)), "{text}");
        }
        for text in ["", "soon", "25:00", "2026-13-01T00:00", "2026-05-01T09:00+99:00"] {
            assert_eq!(read(text, &rome, now).expect_err(text).code, Code::Usage);
        }
    }

    #[test]
    fn a_task_starts_in_a_year_or_never() {
        let now = time("2026-03-28T12:00:00.123456789Z");
        let year = now + SignedDuration::from_hours(366 * 24);
        assert_eq!(check(year, now), Ok(time("2027-03-29T12:00:00.123456Z")));
        assert!(check(year + SignedDuration::from_nanos(1), now).is_err());
        assert_eq!(check(Timestamp::MIN, Timestamp::MAX), Ok(Timestamp::MIN), "the past is no mistake");
    }
}
