//! The fields of a document, what a word in each of them weighs, and how much a field's length takes away from it.

/// What a word in a field weighs, and how strongly the length of the field reduces that (`b` of BM25).
pub(crate) struct FieldWeight {
    pub(crate) weight: f64,
    pub(crate) length: f64,
}

/// How many fields a document has in the index.
pub(crate) const FIELD_COUNT: usize = 6;

pub(crate) const NAME: usize = 0;
pub(crate) const DESCRIPTION: usize = 1;
/// The names of the parameters.
pub(crate) const PARAMETERS: usize = 2;
/// Titles, descriptions and choices in the schemas of the parameters, and tags.
pub(crate) const TEXTS: usize = 3;
/// What users say when they want this subtool.
pub(crate) const PHRASES: usize = 4;
/// English words for the Chinese ones in the document.
pub(crate) const GLOSSES: usize = 5;
/// What was asked for when this subtool was used before. Not in the index, but added to a search.
pub(crate) const LEARNED: usize = 6;

/// Of each field in the index, in the order of the constants above.
pub(crate) const WEIGHTS: [FieldWeight; FIELD_COUNT] = [
    FieldWeight { weight: 10.0, length: 0.3 },
    FieldWeight { weight: 6.5, length: 0.6 },
    FieldWeight { weight: 4.0, length: 0.3 },
    FieldWeight { weight: 2.0, length: 0.3 },
    // Their single words. What a whole phrase adds, and what is taken if none is like the query, is up to `likeness.rs`.
    FieldWeight { weight: 3.5, length: 0.3 },
    FieldWeight { weight: 2.0, length: 0.5 },
];

/// Raw requests contain more words that have nothing to do with the subtool than phrases do.
pub(crate) const LEARNED_WEIGHT: FieldWeight = FieldWeight { weight: 2.0, length: 0.5 };

/// The weight of `count` occurrences in a field of `length` words, where fields have `mean` words on average:
/// `weight * count / (1 - b + b * length / mean)`.
pub(crate) fn weighted(field: &FieldWeight, count: f64, length: f64, mean: f64) -> f64 {
    let normalization = 1.0 - field.length + field.length * length / mean.max(f64::EPSILON);
    field.weight * count / normalization.max(f64::EPSILON)
}

/// The fields in which a document contains a word, or a query.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fields(u8);

impl Fields {
    pub(crate) fn of(field: usize) -> Self {
        Self(1 << field)
    }

    pub(crate) fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    #[must_use]
    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn contains(self, field: usize) -> bool {
        self.0 & (1 << field) != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the match is nowhere but in the schema, such as in the description of a parameter.
    pub fn is_only_schema(self) -> bool {
        self.0 & !(Self::of(PARAMETERS).0 | Self::of(TEXTS).0) == 0
    }

    /// The names of the fields, for people and models.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        const NAMES: [&str; FIELD_COUNT + 1] =
            ["name", "description", "parameters", "schema", "phrases", "description", "past requests"];
        NAMES
            .into_iter()
            .enumerate()
            .filter(move |(field, name)| {
                // A match in the translated description is a match in the description.
                self.contains(*field) && !(*field == GLOSSES && self.contains(DESCRIPTION) && *name == "description")
            })
            .map(|(_, name)| name)
    }
}
