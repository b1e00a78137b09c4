//! The header of a listing's index: of which definitions it is, and what is known of all subtools without their entries.

use search::Unusable;
use serde::{Deserialize, Serialize};

use crate::problem::LoadProblem;
use crate::{ListedGroup, Stamp};

/// For each subtool its flags, and its group as two bytes.
pub const FACT_BYTES: usize = 3;
pub const READ_ONLY: u8 = 1;
/// Its description has letters beyond ASCII.
pub const NOT_ENGLISH: u8 = 2;
/// It needs other subtools, so whether it can be used depends on them.
pub const HAS_RELATIVES: u8 = 4;

/// What is known of all subtools together.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    pub problems: Vec<LoadProblem>,
    pub groups: Vec<ListedGroup>,
    /// Whether every description is in English, as far as its letters tell.
    pub is_english: bool,
}

/// The header of the index. What every command needs comes first; the files are for the next listing.
#[derive(Debug)]
pub struct Header {
    /// The digest of the sources, and of what of them concerns all files.
    pub stamp: Stamp,
    pub base: [u8; 32],
    pub facts: Vec<u8>,
    /// The [`ListedFile`]s as JSON.
    pub files: Vec<u8>,
    pub summary: Summary,
}

impl Header {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = [self.stamp.0, self.base].concat();
        for part in [&self.facts, &self.files] {
            bytes.extend(u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            bytes.extend(part);
        }
        bytes.extend(serde_json::to_vec(&self.summary).expect("texts can be written as JSON"));
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Unusable> {
        const DAMAGED: Unusable = Unusable::Damaged("the header is unreadable");
        let part = |bytes| -> Result<(Vec<u8>, &[u8]), Unusable> {
            let (length, rest) = <[u8]>::split_first_chunk::<8>(bytes).ok_or(DAMAGED)?;
            let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| DAMAGED)?;
            let (part, rest) = rest.split_at_checked(length).ok_or(DAMAGED)?;
            Ok((part.to_vec(), rest))
        };
        let (stamp, rest) = bytes.split_first_chunk::<32>().ok_or(DAMAGED)?;
        let (base, rest) = rest.split_first_chunk::<32>().ok_or(DAMAGED)?;
        let (facts, rest) = part(rest)?;
        let (files, summary) = part(rest)?;
        let summary = serde_json::from_slice(summary).map_err(|_| DAMAGED)?;
        Ok(Self { stamp: Stamp(*stamp), base: *base, facts, files, summary })
    }
}
