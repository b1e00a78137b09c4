//! Types of casts and of the columns of functions that give rows: built-in ones by name.

use sqlparser::ast::{ArrayElemTypeDef, DataType, ObjectNamePart};

use super::print::keep_as_it_is;
use super::refusal::Refusal;
use super::text::shortened;
use super::walk::Walk;
use crate::dialect::Dialect;

/// Built-in types that the parser knows only by name. Types that look up objects, such as `regclass`, and types of the
/// schema, whose input functions may be anything, are not among them.
const NAMED_TYPES: &[&str] = &[
    "bpchar",
    "box",
    "char",
    "cidr",
    "circle",
    "citext",
    "cube",
    "daterange",
    "datemultirange",
    "geography",
    "geometry",
    "halfvec",
    "hstore",
    "inet",
    "int4range",
    "int8range",
    "jsonpath",
    "line",
    "lseg",
    "ltree",
    "lquery",
    "macaddr",
    "macaddr8",
    "money",
    "name",
    "numrange",
    "path",
    "point",
    "polygon",
    "record",
    "serial",
    "sparsevec",
    "tsrange",
    "tstzrange",
    "tsquery",
    "tsvector",
    "vector",
    "year",
    "signed",
    "unsigned",
    "timetz",
    "timestamptz",
    "nchar",
    "native",
    "any",
    "varbit",
    "integer",
    "double",
];

impl Walk<'_> {
    #[expect(clippy::too_many_lines, reason = "one row for each type")]
    pub(super) fn data_type(&mut self, data_type: &mut DataType) -> Result<(), Refusal> {
        match data_type {
            DataType::Character(_)
            | DataType::Char(_)
            | DataType::CharacterVarying(_)
            | DataType::CharVarying(_)
            | DataType::Varchar(_)
            | DataType::Nvarchar(_)
            | DataType::Uuid
            | DataType::Clob(_)
            | DataType::Binary(_)
            | DataType::Varbinary(_)
            | DataType::Blob(_)
            | DataType::Numeric(_)
            | DataType::Decimal(_)
            | DataType::DecimalUnsigned(_)
            | DataType::Dec(_)
            | DataType::DecUnsigned(_)
            | DataType::Float(_)
            | DataType::FloatUnsigned(_)
            | DataType::TinyInt(_)
            | DataType::TinyIntUnsigned(_)
            | DataType::Int2(_)
            | DataType::Int2Unsigned(_)
            | DataType::SmallInt(_)
            | DataType::SmallIntUnsigned(_)
            | DataType::MediumInt(_)
            | DataType::MediumIntUnsigned(_)
            | DataType::Int(_)
            | DataType::Int4(_)
            | DataType::Int8(_)
            | DataType::Integer(_)
            | DataType::IntUnsigned(_)
            | DataType::IntegerUnsigned(_)
            | DataType::BigInt(_)
            | DataType::BigIntUnsigned(_)
            | DataType::Signed
            | DataType::SignedInteger
            | DataType::Unsigned
            | DataType::UnsignedInteger
            | DataType::Float4
            | DataType::Float8
            | DataType::Real
            | DataType::RealUnsigned
            | DataType::Double(_)
            | DataType::DoubleUnsigned(_)
            | DataType::DoublePrecision
            | DataType::DoublePrecisionUnsigned
            | DataType::Bool
            | DataType::Boolean
            | DataType::Date
            | DataType::Time(..)
            | DataType::Datetime(_)
            | DataType::Timestamp(..)
            | DataType::Interval { .. }
            | DataType::JSON
            | DataType::JSONB
            | DataType::Text
            | DataType::TinyText
            | DataType::MediumText
            | DataType::LongText
            | DataType::TinyBlob
            | DataType::MediumBlob
            | DataType::LongBlob
            | DataType::Bytea
            | DataType::Bit(_)
            | DataType::BitVarying(_)
            | DataType::VarBit(_)
            | DataType::GeometricType(_)
            | DataType::TsVector
            | DataType::TsQuery => Ok(()),
            DataType::Array(ArrayElemTypeDef::SquareBracket(inner, _) | ArrayElemTypeDef::Qualified(inner, _))
                if self.dialect() == Dialect::Postgres =>
            {
                self.data_type(inner)
            }
            DataType::Custom(name, modifiers) => {
                let is_number = |text: &String| text.chars().all(|character| character.is_ascii_digit());
                let is_pg_catalog = |part: &ObjectNamePart| {
                    matches!(part, ObjectNamePart::Identifier(ident)
                        if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("pg_catalog"))
                };
                let has_schema = name.0.len() == 2 && name.0.first().is_some_and(is_pg_catalog);
                if let (1, _) | (_, true) = (name.0.len(), has_schema)
                    && modifiers.iter().all(is_number)
                    && let Some(ObjectNamePart::Identifier(ident)) = name.0.last_mut()
                    && ident.quote_style.is_none()
                    && NAMED_TYPES.contains(&ident.value.to_ascii_lowercase().as_str())
                {
                    keep_as_it_is(ident);
                    return Ok(());
                }
                Err(not_listed(data_type))
            }
            DataType::Array(_)
            | DataType::Table(_)
            | DataType::NamedTable { .. }
            | DataType::CharacterLargeObject(_)
            | DataType::CharLargeObject(_)
            | DataType::Bytes(_)
            | DataType::BigNumeric(_)
            | DataType::BigDecimal(_)
            | DataType::UTinyInt
            | DataType::USmallInt
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Int128
            | DataType::Int256
            | DataType::Int4Unsigned(_)
            | DataType::HugeInt
            | DataType::UHugeInt
            | DataType::UInt8
            | DataType::UInt16
            | DataType::UInt32
            | DataType::UInt64
            | DataType::UInt128
            | DataType::UInt256
            | DataType::UBigInt
            | DataType::Int8Unsigned(_)
            | DataType::Float32
            | DataType::Float64
            | DataType::Date32
            | DataType::Datetime64(..)
            | DataType::TimestampNtz(_)
            | DataType::Regclass
            | DataType::String(_)
            | DataType::FixedString(_)
            | DataType::Map(..)
            | DataType::Tuple(_)
            | DataType::Nested(_)
            | DataType::Enum(..)
            | DataType::Set(_)
            | DataType::Struct(..)
            | DataType::Union(_)
            | DataType::Nullable(_)
            | DataType::LowCardinality(_)
            | DataType::Unspecified
            | DataType::Trigger
            | DataType::AnyType => Err(not_listed(data_type)),
        }
    }
}

fn not_listed(data_type: &DataType) -> Refusal {
    Refusal::not_allowed(
        format!("the type `{}`", shortened(&data_type.to_string())),
        "cast to a built-in type, or compare with text",
    )
}
