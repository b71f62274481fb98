use std::ops::{AddAssign, SubAssign};

use serde::{Deserialize, Serialize};

use crate::tree::{Rows, Tree};

/// Sum over all rows but `meta`: a database from which a row was lost, or in which an older one
/// came back, does not have the digest that its last commit wrote.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) fn of(rows: &Rows) -> Self {
        let mut sum = Self::default();
        for ((tree, key), value) in rows {
            sum += Self::of_row(*tree, key, value);
        }
        sum
    }

    /// FNV-1a, 64 bit (RFC 9923 section 3), over the parts with their lengths, then mixed so that
    /// sums of similar rows differ. On disk: it must never change.
    pub(crate) fn of_row(tree: Tree, key: &[u8], value: &[u8]) -> Self {
        if tree == Tree::Meta {
            return Self::default();
        }
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for part in [tree.name().as_bytes(), key, value] {
            for byte in (part.len() as u64).to_be_bytes().iter().chain(part) {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
        hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        Self(hash ^ (hash >> 32))
    }
}

impl AddAssign for Digest {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }
}

impl SubAssign for Digest {
    fn sub_assign(&mut self, other: Self) {
        self.0 = self.0.wrapping_sub(other.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_a_row_never_changes() {
        assert_eq!(Digest::of_row(Tree::Cooling, b"k", b"v"), Digest(GOLDEN));
    }

    #[test]
    fn a_lost_row_shows_and_the_order_of_changes_does_not() {
        let (one, two) =
            (Digest::of_row(Tree::Journal, b"1", b"v"), Digest::of_row(Tree::Journal, b"2", b"v"));
        let mut there_and_back = Digest::default();
        there_and_back += one;
        there_and_back += two;
        there_and_back -= one;
        assert_eq!(there_and_back, two);
        assert_ne!(one, two);
    }

    /// Computed once, by the first version that wrote it.
    const GOLDEN: u64 = 6841216345369399695;
}
