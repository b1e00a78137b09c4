//! The part of CBOR (RFC 8949) that authenticators write: CTAP2's canonical form.
//!
//! Lengths are definite and as short as possible, a key stands once in a map, and nesting is shallow. Anything else is
//! refused, so that these bytes mean the same to every reader.

/// The deepest nesting. CTAP2 allows 4.
const MAX_DEPTH: u8 = 4;

/// One value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cbor {
    Integer(i64),
    Bytes(Vec<u8>),
    Text(String),
    List(Vec<Self>),
    Map(Vec<(Self, Self)>),
    Boolean(bool),
    Null,
}

impl Cbor {
    /// Parses exactly one value; `None` if it is not in the canonical form, or if anything follows it.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (value, rest) = Self::parse_first(bytes)?;
        rest.is_empty().then_some(value)
    }

    /// Parses the first value, and returns what follows it.
    pub(super) fn parse_first(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut reader = Reader(bytes);
        let value = reader.value(MAX_DEPTH)?;
        Some((value, reader.0))
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn value(&mut self, depth: u8) -> Option<Cbor> {
        let depth = depth.checked_sub(1)?;
        let [first] = *self.take(1)? else { return None };
        let (kind, info) = (first >> 5, first & 0x1f);
        if kind == 7 {
            return match info {
                20 => Some(Cbor::Boolean(false)),
                21 => Some(Cbor::Boolean(true)),
                22 => Some(Cbor::Null),
                _ => None,
            };
        }
        let number = self.number(info)?;
        match kind {
            0 => i64::try_from(number).ok().map(Cbor::Integer),
            1 => i64::try_from(number).ok().map(|number| Cbor::Integer(-1 - number)),
            2 => self.take(usize::try_from(number).ok()?).map(|bytes| Cbor::Bytes(bytes.to_vec())),
            3 => {
                let bytes = self.take(usize::try_from(number).ok()?)?;
                String::from_utf8(bytes.to_vec()).ok().map(Cbor::Text)
            }
            // Nothing is allocated for a length that only the header claims.
            4 => (0..number).map(|_| self.value(depth)).collect::<Option<_>>().map(Cbor::List),
            5 => {
                let mut fields: Vec<(Cbor, Cbor)> = Vec::new();
                for _ in 0..number {
                    let (key, value) = (self.value(depth)?, self.value(depth)?);
                    if fields.iter().any(|(other, _)| *other == key) {
                        return None;
                    }
                    fields.push((key, value));
                }
                Some(Cbor::Map(fields))
            }
            _ => None,
        }
    }

    /// The number of a header, which must be as short as it can be.
    fn number(&mut self, info: u8) -> Option<u64> {
        let (size, least) = match info {
            0..=23 => return Some(u64::from(info)),
            24 => (1, 24),
            25 => (2, 1 << 8),
            26 => (4, 1 << 16),
            27 => (8, 1 << 32),
            _ => return None,
        };
        let number = self.take(size)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        (number >= least).then_some(number)
    }

    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_canonical_form_is_read() {
        let nested = [0x81, 0x81, 0x81, 0x01];
        assert!(Cbor::parse(&nested).is_some());
        for (bytes, what) in [
            (&[][..], "nothing"),
            (&[0x18, 0x17], "a number that would be shorter"),
            (&[0x19, 0x00, 0xff], "another one"),
            (&[0x42, 0x01], "bytes that end early"),
            (&[0x5b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], "bytes of any length"),
            (&[0x9b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], "a list of any length"),
            (&[0x5f, 0x41, 0x01, 0xff], "an indefinite length"),
            (&[0xa2, 0x01, 0x02, 0x01, 0x03], "a key that stands twice"),
            (&[0x61, 0xff], "text that is not UTF-8"),
            (&[0xf9, 0x00, 0x00], "a float"),
            (&[0xc0, 0x01], "a tag"),
            (&[0x1b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], "a number beyond 63 bits"),
            (&[0x01, 0x01], "something after it"),
            (&[0x81, 0x81, 0x81, 0x81, 0x01], "deeper nesting"),
        ] {
            assert_eq!(Cbor::parse(bytes), None, "{what}");
        }
        assert_eq!(Cbor::parse(&[0x39, 0x01, 0x00]), Some(Cbor::Integer(-257)));
    }
}
