//! A column that a test describes.

use sql::schema::Column;

/// A column that may hold nothing and has no default.
pub(crate) fn column(name: &str, type_name: &str) -> Column {
    Column {
        name: name.to_owned(),
        type_name: type_name.to_owned(),
        nullable: true,
        default: None,
        key: None,
        comment: None,
        values: Vec::new(),
        is_filled: false,
    }
}
