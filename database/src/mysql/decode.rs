//! Cells from the values of MySQL's binary protocol, which are exact, and from what a column says of itself.

use std::fmt::Write as _;

use mysql_async::consts::{ColumnFlags, ColumnType};
use mysql_async::{Column, Value};
use serde_json::Value as Json;
use sql::value::bytes_to_json;

use crate::rows::{document_to_json, float_to_json};

/// The number of the character set that means bytes.
const BINARY: u16 = 63;

/// Returns the type of a column as MySQL writes it.
pub(super) fn type_name(column: &Column) -> String {
    use ColumnType as T;
    let flags = column.flags();
    let is_binary = column.character_set() == BINARY;
    let name = if flags.contains(ColumnFlags::ENUM_FLAG) {
        "enum"
    } else if flags.contains(ColumnFlags::SET_FLAG) {
        "set"
    } else {
        match column.column_type() {
            T::MYSQL_TYPE_TINY => "tinyint",
            T::MYSQL_TYPE_SHORT => "smallint",
            T::MYSQL_TYPE_INT24 => "mediumint",
            T::MYSQL_TYPE_LONG => "int",
            T::MYSQL_TYPE_LONGLONG => "bigint",
            T::MYSQL_TYPE_FLOAT => "float",
            T::MYSQL_TYPE_DOUBLE => "double",
            T::MYSQL_TYPE_DECIMAL | T::MYSQL_TYPE_NEWDECIMAL => "decimal",
            T::MYSQL_TYPE_YEAR => "year",
            T::MYSQL_TYPE_DATE | T::MYSQL_TYPE_NEWDATE => "date",
            T::MYSQL_TYPE_DATETIME | T::MYSQL_TYPE_DATETIME2 => "datetime",
            T::MYSQL_TYPE_TIMESTAMP | T::MYSQL_TYPE_TIMESTAMP2 => "timestamp",
            T::MYSQL_TYPE_TIME | T::MYSQL_TYPE_TIME2 => "time",
            T::MYSQL_TYPE_BIT => "bit",
            T::MYSQL_TYPE_JSON => "json",
            T::MYSQL_TYPE_GEOMETRY => "geometry",
            T::MYSQL_TYPE_NULL => "null",
            T::MYSQL_TYPE_STRING if is_binary => "binary",
            T::MYSQL_TYPE_STRING => "char",
            T::MYSQL_TYPE_VARCHAR | T::MYSQL_TYPE_VAR_STRING if is_binary => "varbinary",
            T::MYSQL_TYPE_VARCHAR | T::MYSQL_TYPE_VAR_STRING => "varchar",
            _ if is_binary => "blob",
            _ => "text",
        }
    };
    let is_number = column.column_type().is_numeric_type();
    let unsigned = if is_number && flags.contains(ColumnFlags::UNSIGNED_FLAG) { " unsigned" } else { "" };
    format!("{name}{unsigned}")
}

/// Returns a cell of a column.
pub(super) fn cell(value: Value, column: &Column) -> Json {
    match value {
        Value::NULL => Json::Null,
        Value::Int(integer) => Json::from(integer),
        Value::UInt(unsigned) => Json::from(unsigned),
        // The shortest text that is read as the same number, not the digits of the double that holds it.
        Value::Float(float) => float.to_string().parse().map_or(Json::Null, float_to_json),
        Value::Double(double) => float_to_json(double),
        Value::Date(year, month, day, hour, minute, second, micros) => {
            Json::String(date([year, month.into(), day.into()], [hour, minute, second], micros, column))
        }
        Value::Time(is_negative, days, hours, minutes, seconds, micros) => {
            let sign = if is_negative { "-" } else { "" };
            let hours = u64::from(days) * 24 + u64::from(hours);
            Json::String(format!("{sign}{hours:02}:{minutes:02}:{seconds:02}{}", fraction(micros, column)))
        }
        Value::Bytes(bytes) => bytes_cell(bytes, column),
    }
}

fn bytes_cell(bytes: Vec<u8>, column: &Column) -> Json {
    match column.column_type() {
        ColumnType::MYSQL_TYPE_BIT => Json::String(bits(&bytes, column.column_length())),
        ColumnType::MYSQL_TYPE_JSON => text(bytes, document_to_json),
        ColumnType::MYSQL_TYPE_GEOMETRY => bytes_to_json(&bytes),
        ColumnType::MYSQL_TYPE_DECIMAL | ColumnType::MYSQL_TYPE_NEWDECIMAL => text(bytes, Json::String),
        _ if column.character_set() == BINARY => bytes_to_json(&bytes),
        _ => text(bytes, Json::String),
    }
}

fn text(bytes: Vec<u8>, read: impl FnOnce(String) -> Json) -> Json {
    String::from_utf8(bytes).map_or_else(|error| bytes_to_json(error.as_bytes()), read)
}

/// Returns the digits of a bit field of that length.
fn bits(bytes: &[u8], length: u32) -> String {
    let digits = bytes.iter().fold(String::new(), |mut digits, byte| {
        write!(digits, "{byte:08b}").expect("a string takes everything");
        digits
    });
    let length = usize::try_from(length).unwrap_or(usize::MAX).clamp(1, 64);
    digits[digits.len().saturating_sub(length)..].to_owned()
}

/// Returns a date or a time of day as RFC 3339 writes it; a date that does not exist, as MySQL writes it. Sessions are
/// in UTC, so a `TIMESTAMP` is too; a `DATETIME` has no zone.
fn date([year, month, day]: [u16; 3], [hour, minute, second]: [u8; 3], micros: u32, column: &Column) -> String {
    let date = format!("{year:04}-{month:02}-{day:02}");
    if matches!(column.column_type(), ColumnType::MYSQL_TYPE_DATE | ColumnType::MYSQL_TYPE_NEWDATE) {
        return date;
    }
    let is_real = month > 0 && day > 0;
    let separator = if is_real { "T" } else { " " };
    let is_timestamp =
        matches!(column.column_type(), ColumnType::MYSQL_TYPE_TIMESTAMP | ColumnType::MYSQL_TYPE_TIMESTAMP2);
    let zone = if is_timestamp && is_real { "Z" } else { "" };
    format!("{date}{separator}{hour:02}:{minute:02}:{second:02}{}{zone}", fraction(micros, column))
}

/// Returns the fraction of a second with as many digits as the column has.
fn fraction(micros: u32, column: &Column) -> String {
    match column.decimals() {
        digits @ 1..=6 => format!(".{}", &format!("{micros:06}")[..usize::from(digits)]),
        _ if micros > 0 => format!(".{micros:06}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_without_a_form_of_their_own_are_read_exactly() {
        let column = |kind| Column::new(kind);
        assert_eq!(cell(Value::Float(1.1), &column(ColumnType::MYSQL_TYPE_FLOAT)), json!(1.1));
        assert_eq!(
            cell(Value::Date(0, 0, 0, 0, 0, 0, 0), &column(ColumnType::MYSQL_TYPE_DATETIME)),
            json!("0000-00-00 00:00:00")
        );
        assert_eq!(
            cell(Value::Time(true, 34, 22, 59, 59, 5), &column(ColumnType::MYSQL_TYPE_TIME)),
            json!("-838:59:59.000005")
        );
        let bit = column(ColumnType::MYSQL_TYPE_BIT).with_column_length(10);
        assert_eq!(cell(Value::Bytes(vec![0b10, 0b101]), &bit), json!("1000000101"));
    }
}
