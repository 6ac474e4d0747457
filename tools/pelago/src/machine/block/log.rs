//! What was asked of a disk, in the order in which it was done, and marks of what its user said.
//!
//! Invariants: all that is written lies within the disk; a flush covers nothing that was not
//! completed when it came.

use crate::machine::block::image::Image;
use anyhow::{Result, ensure};

/// The longest log: many times what a test writes, and little enough for any machine's memory.
pub const LOG_BYTES_MAX: u64 = 1 << 30;
/// What an entry takes beside its data, at least.
const ENTRY_BYTES: u64 = 64;

/// What is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Data(Vec<u8>),
    /// So many zeros; of what is trimmed, too.
    Zeros(u64),
}

impl Content {
    /// How many bytes it is.
    pub fn bytes(&self) -> u64 {
        match self {
            Content::Data(data) => data.len() as u64,
            Content::Zeros(bytes) => *bytes,
        }
    }

    /// Writes its bytes from `from` to `to` where they belong, if the content stands at `offset`.
    pub fn apply(&self, image: &mut Image, offset: u64, from: u64, to: u64) {
        match self {
            Content::Data(data) => image.write(offset + from, &data[from as usize..to as usize]),
            Content::Zeros(_) => image.zero(offset + from, to - from),
        }
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Durable at once if it was written through; else once it is flushed.
    Write { offset: u64, content: Content, is_through: bool },
    /// Makes durable what stands in the first `covers` entries: those that had been completed when
    /// the flush came.
    Flush { covers: usize },
    /// The disk's user said that so much of its work is kept.
    Mark(u64),
}

/// See the module's head.
#[derive(Clone)]
pub struct Log {
    initial: Image,
    entries: Vec<Entry>,
    bytes: u64,
}

impl Log {
    /// Of a disk that nothing was asked of yet; what is on it is durable.
    pub fn new(initial: Image) -> Log {
        Log { initial, entries: Vec::new(), bytes: 0 }
    }

    /// The disk before the first entry.
    pub fn initial(&self) -> &Image {
        &self.initial
    }

    /// The disk after the last entry, if its power stays.
    pub fn last(&self) -> Image {
        let mut image = self.initial.clone();
        for entry in &self.entries {
            if let Entry::Write { offset, content, .. } = entry {
                content.apply(&mut image, *offset, 0, content.bytes());
            }
        }
        image
    }

    /// All entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Appends an entry. An error where it would be longer than [`LOG_BYTES_MAX`]: write less, or
    /// in a shorter run; and for what the module's invariants exclude.
    pub fn add(&mut self, entry: Entry) -> Result<()> {
        let data = match &entry {
            Entry::Write { offset, content, .. } => {
                self.initial.check(*offset, content.bytes())?;
                if let Content::Data(data) = content { data.len() as u64 } else { 0 }
            }
            Entry::Flush { covers } => {
                ensure!(*covers <= self.entries.len(), "a flush of what is still to come");
                0
            }
            Entry::Mark(_) => 0,
        };
        let bytes = self.bytes + data + ENTRY_BYTES;
        ensure!(bytes <= LOG_BYTES_MAX, "more than {} MiB were written; write less in one run", LOG_BYTES_MAX >> 20);
        self.bytes = bytes;
        self.entries.push(entry);
        Ok(())
    }

    /// What was marked in the first `position` entries.
    pub fn marks(&self, position: usize) -> impl Iterator<Item = u64> {
        self.entries[..position].iter().filter_map(|entry| match entry {
            Entry::Mark(number) => Some(*number),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused() {
        let mut log = Log::new(Image::zeros(1024));
        let zeros = |bytes| Entry::Write { offset: 512, content: Content::Zeros(bytes), is_through: false };
        assert!(log.add(zeros(513)).is_err() && log.add(Entry::Flush { covers: 1 }).is_err());
        log.add(zeros(512)).unwrap();
        log.add(Entry::Mark(7)).unwrap();
        log.add(Entry::Flush { covers: 2 }).unwrap();
        assert_eq!((log.entries().len(), log.marks(1).count()), (3, 0));
        assert_eq!(log.marks(2).collect::<Vec<_>>(), [7]);
    }
}
