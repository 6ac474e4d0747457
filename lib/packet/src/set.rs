//! Sets of buffers of one pool.

use crate::BUFFERS;
use serde::{Deserialize, Serialize};

const WORDS: usize = BUFFERS as usize / 64;

/// A set of buffers: ownership, free lists and what a survivor says it holds. Numbers past the pool
/// are never in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferSet([u64; WORDS]);

impl BufferSet {
    /// No buffer.
    pub const EMPTY: BufferSet = BufferSet([0; WORDS]);

    /// The buffers `from..to`.
    pub fn range(from: u16, to: u16) -> BufferSet {
        let mut set = BufferSet::EMPTY;
        (from..to).for_each(|buffer| {
            set.insert(buffer);
        });
        set
    }

    /// Is it in?
    pub fn contains(&self, buffer: u16) -> bool {
        self.0.get(usize::from(buffer / 64)).is_some_and(|word| word & bit(buffer) != 0)
    }

    /// Adds; true if it was not in (and exists).
    pub fn insert(&mut self, buffer: u16) -> bool {
        let Some(word) = self.0.get_mut(usize::from(buffer / 64)) else { return false };
        let fresh = *word & bit(buffer) == 0;
        *word |= bit(buffer);
        fresh
    }

    /// Takes out; true if it was in.
    pub fn remove(&mut self, buffer: u16) -> bool {
        let was = self.contains(buffer);
        if was {
            self.0[usize::from(buffer / 64)] &= !bit(buffer);
        }
        was
    }

    /// Takes the lowest out.
    pub fn take(&mut self) -> Option<u16> {
        let (index, word) = self.0.iter_mut().enumerate().find(|(_, word)| **word != 0)?;
        let first = word.trailing_zeros();
        *word &= *word - 1;
        Some(index as u16 * 64 + first as u16)
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// None in?
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// What is here and not in `other`.
    pub fn without(&self, other: &BufferSet) -> BufferSet {
        let mut words = self.0;
        words.iter_mut().zip(other.0).for_each(|(word, other)| *word &= !other);
        BufferSet(words)
    }

    /// What is in both.
    pub fn and(&self, other: &BufferSet) -> BufferSet {
        let mut words = self.0;
        words.iter_mut().zip(other.0).for_each(|(word, other)| *word &= other);
        BufferSet(words)
    }

    /// In ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + use<> {
        let words = self.0;
        (0..BUFFERS).filter(move |&buffer| words[usize::from(buffer / 64)] & bit(buffer) != 0)
    }
}

fn bit(buffer: u16) -> u64 {
    1 << (buffer % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_a_set() {
        let mut set = BufferSet::range(60, 70);
        assert_eq!(set.len(), 10);
        assert!(!set.insert(60) && set.insert(255) && !set.insert(256) && !set.contains(u16::MAX));
        assert!(set.remove(255) && !set.remove(255) && !set.remove(256));
        assert_eq!(set.take(), Some(60));
        let rest = set.without(&BufferSet::range(0, 68));
        assert_eq!(rest.iter().collect::<alloc::vec::Vec<_>>(), [68, 69]);
        assert_eq!(set.and(&BufferSet::range(0, 62)), BufferSet::range(61, 62));
        assert!(BufferSet::EMPTY.is_empty());
    }
}
