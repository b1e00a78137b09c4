//! The time, as precise as the store keeps it.

use jiff::Timestamp;

/// Now, in whole microseconds: what was stored and read back is equal to what was written.
pub fn now() -> Timestamp {
    Timestamp::from_microsecond(Timestamp::now().as_microsecond()).expect("the present lies in the range of timestamps")
}
