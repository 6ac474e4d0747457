//! What lies in the journal. All numbers are big-endian, unlike those of the rest of the volume.

use alloc::boxed::Box;
use alloc::vec::Vec;

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::Checksum;
use crate::error::{Error, Refusal, Stop};
use crate::super_block::JOURNAL_INODE;
use crate::{BLOCK_BYTES, Block, Time};

/// What each block about a transaction begins with; a block of data that does too is escaped.
pub(super) const MAGIC: u32 = 0xC03B_3998;
const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;
const SUPER_BLOCK: u32 = 4;
const REVOKE: u32 = 5;

/// Incompatible features of a journal: what they are called, and which are known.
const FEATURES: [(u32, &str, bool); 6] = [
    (REVOKES, "revoke", true),
    (SIXTY_FOUR_BIT, "64bit", true),
    (0x4, "async_commit", false),
    (CSUM_V2, "checksum_v2", false),
    (CSUM_V3, "checksum_v3", true),
    (0x20, "fast_commit", false),
];
const REVOKES: u32 = 0x1;
const CSUM_V2: u32 = 0x8;
const CSUM_V3: u32 = 0x10;
const SIXTY_FOUR_BIT: u32 = 0x2;
/// Fewest blocks of a journal.
const BLOCKS_MIN: u32 = 1024;
/// Bytes of a journal's superblock that its checksum is about, and where that stands.
const SUPER_BLOCK_BYTES: usize = 1024;
const SUPER_BLOCK_SUM_AT: usize = 0xFC;
/// Where the checksum of a commit block stands.
const COMMIT_SUM_AT: usize = 16;
/// Bytes at the end of descriptors and revokes with their checksum.
const TAIL_AT: usize = BLOCK_BYTES - 4;
/// Bytes of the UUID behind a tag that does not say that it is the same.
const UUID_BYTES: usize = 16;

/// The block in the log has its first four bytes as zeros, for they are the magic number.
const FLAG_ESCAPED: u32 = 1;
/// No UUID follows the tag.
const FLAG_SAME_UUID: u32 = 2;
/// There is no tag behind it.
const FLAG_LAST: u32 = 8;

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    magic: U32,
    kind: U32,
    sequence: U32,
}

/// The journal's superblock, as far as it is looked at.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    header: Header,
    block_bytes: U32,
    blocks: U32,
    first: U32,
    sequence: U32,
    start: U32,
    error: U32,
    compat: U32,
    incompat: U32,
    ro_compat: U32,
    uuid: [u8; 16],
    users: U32,
    copy: U32,
    limits: [U32; 2],
    checksum_type: u8,
}

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawTag {
    block_low: U32,
    flags: U32,
    block_high: U32,
    checksum: U32,
}

/// What the journal's superblock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    /// Blocks of the journal.
    pub blocks: u32,
    /// The first of the ring.
    pub first: u32,
    /// Where the oldest transaction begins, or `None` if there is none.
    pub start: Option<u32>,
    /// Number of that transaction, or of the next one.
    pub sequence: u32,
    /// What checksums start from.
    pub seed: u32,
    has_wide_numbers: bool,
}

/// A block that is in the log behind a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    /// Its place in the volume.
    pub block: u64,
    /// The checksum of the block in the log.
    pub checksum: u32,
    pub is_escaped: bool,
}

/// What a block of the log is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// The next blocks have these places.
    Descriptor(Vec<Tag>),
    /// Older transactions' versions of these blocks do not count.
    Revoke(Vec<u64>),
    /// The transaction is whole.
    Commit,
    /// Nothing of the transaction that is looked for: the log ends before it.
    End,
}

pub(super) fn corrupt(what: &'static str) -> Stop {
    Error::corrupt(what, u64::from(JOURNAL_INODE))
}

impl Log {
    /// Decodes the first of a journal's `blocks` blocks.
    ///
    /// # Errors
    /// [`Error::Refused`] with a feature that is not supported; [`Error::Corrupt`].
    pub fn decode(block: &Block, blocks: u64) -> Result<Log, Stop> {
        let (raw, _) = Raw::ref_from_prefix(block).map_err(|_| corrupt("the journal's superblock"))?;
        if raw.header.magic.get() != MAGIC || raw.header.kind.get() != SUPER_BLOCK {
            return Err(corrupt("the journal's superblock"));
        }
        let has_sum = check_features(raw)?;
        if has_sum && !is_sum_right(&block[..SUPER_BLOCK_BYTES], SUPER_BLOCK_SUM_AT, Checksum::START) {
            return Err(corrupt("the checksum of the journal's superblock"));
        }
        let (length, first, start) = (raw.blocks.get(), raw.first.get(), raw.start.get());
        let is_right = raw.block_bytes.get() as usize == BLOCK_BYTES
            && length >= BLOCKS_MIN
            && u64::from(length) <= blocks
            && (1..length).contains(&first)
            && (start == 0 || (first..length).contains(&start));
        if !is_right {
            return Err(corrupt("the sizes of the journal"));
        }
        if start != 0 && !has_sum {
            return Err(Error::Refused(Refusal::Lacks("checksum_v3 (of the journal)")).into());
        }
        Ok(Log {
            blocks: length,
            first,
            start: (start != 0).then_some(start),
            sequence: raw.sequence.get(),
            seed: Checksum::START.with(&raw.uuid).0,
            has_wide_numbers: raw.incompat.get() & SIXTY_FOUR_BIT != 0,
        })
    }

    /// What a block of the log is, if it is of transaction `sequence`. One whose checksum does not
    /// fit was never whole, since its transaction is committed only when all of it is on the disk.
    ///
    /// # Errors
    /// [`Error::Corrupt`]: the checksum fits, and what it says cannot be.
    pub fn record(&self, block: &Block, sequence: u32) -> Result<Record, Stop> {
        let Ok((header, _)) = Header::ref_from_prefix(block) else { return Ok(Record::End) };
        if header.magic.get() != MAGIC || header.sequence.get() != sequence {
            return Ok(Record::End);
        }
        let seed = Checksum(self.seed);
        match header.kind.get() {
            DESCRIPTOR if is_sum_right(block, TAIL_AT, seed) => self.tags(block).map(Record::Descriptor),
            REVOKE if is_sum_right(block, TAIL_AT, seed) => self.revoked(block).map(Record::Revoke),
            COMMIT if is_sum_right(block, COMMIT_SUM_AT, seed) => Ok(Record::Commit),
            _ => Ok(Record::End),
        }
    }

    /// The checksum of a block in the log, as a tag has it.
    pub fn sum(&self, sequence: u32, block: &Block) -> u32 {
        Checksum(self.seed).with(&sequence.to_be_bytes()).with(block).0
    }

    fn tags(&self, block: &Block) -> Result<Vec<Tag>, Stop> {
        let mut tags = Vec::new();
        let mut rest = &block[size_of::<Header>()..TAIL_AT];
        while let Ok((tag, behind)) = RawTag::ref_from_prefix(rest) {
            let flags = tag.flags.get();
            let high = if self.has_wide_numbers { tag.block_high.get() } else { 0 };
            tags.push(Tag {
                block: u64::from(high) << 32 | u64::from(tag.block_low.get()),
                checksum: tag.checksum.get(),
                is_escaped: flags & FLAG_ESCAPED != 0,
            });
            if flags & FLAG_LAST != 0 {
                return Ok(tags);
            }
            let skip = if flags & FLAG_SAME_UUID != 0 { 0 } else { UUID_BYTES };
            rest = behind.get(skip..).ok_or(corrupt("a descriptor of the journal"))?;
        }
        Ok(tags)
    }

    fn revoked(&self, block: &Block) -> Result<Vec<u64>, Stop> {
        const COUNT_AT: usize = size_of::<Header>();
        let wrong = || corrupt("a revoke of the journal");
        let (bytes, _) = U32::ref_from_prefix(&block[COUNT_AT..]).map_err(|_| wrong())?;
        let records = block[..TAIL_AT].get(COUNT_AT + 4..bytes.get() as usize).ok_or_else(wrong)?;
        if self.has_wide_numbers {
            let numbers = <[U64]>::ref_from_bytes(records).map_err(|_| wrong())?;
            return Ok(numbers.iter().map(|number| number.get()).collect());
        }
        let numbers = <[U32]>::ref_from_bytes(records).map_err(|_| wrong())?;
        Ok(numbers.iter().map(|number| u64::from(number.get())).collect())
    }
}

/// The first block of an empty journal of `blocks` blocks, with the features that Linux would give
/// it at its first mount.
pub(crate) fn new_super_block(blocks: u32, uuid: &[u8; 16]) -> Box<Block> {
    let mut raw = Raw::new_zeroed();
    raw.header = Header { magic: U32::new(MAGIC), kind: U32::new(SUPER_BLOCK), sequence: U32::ZERO };
    raw.block_bytes = U32::new(BLOCK_BYTES as u32);
    raw.blocks = U32::new(blocks);
    (raw.first, raw.sequence, raw.users) = (U32::new(1), U32::new(1), U32::new(1));
    raw.incompat = U32::new(REVOKES | SIXTY_FOUR_BIT | CSUM_V3);
    raw.uuid = *uuid;
    raw.checksum_type = 4;
    let mut block = Box::new([0; BLOCK_BYTES]);
    block[..size_of::<Raw>()].copy_from_slice(raw.as_bytes());
    let sum = Checksum::START.with(&block[..SUPER_BLOCK_BYTES]).0;
    block[SUPER_BLOCK_SUM_AT..][..4].copy_from_slice(&sum.to_be_bytes());
    block
}

/// Refuses features by name. Returns whether the journal has checksums.
fn check_features(raw: &Raw) -> Result<bool, Stop> {
    let incompat = raw.incompat.get();
    for (bit, name, is_known) in FEATURES {
        if incompat & bit != 0 && !is_known {
            return Err(Error::Refused(Refusal::Has(name)).into());
        }
    }
    let unknown = incompat & !FEATURES.iter().fold(0, |known, (bit, ..)| known | bit);
    if unknown != 0 {
        return Err(Error::Refused(Refusal::Unknown("incompat (of the journal)", unknown)).into());
    }
    let has_sum = incompat & CSUM_V3 != 0;
    if has_sum && raw.checksum_type != 4 {
        return Err(corrupt("the kind of the journal's checksums"));
    }
    Ok(has_sum)
}

/// Whether the four bytes at `at` are the checksum of all, with zeros in their place.
fn is_sum_right(bytes: &[u8], at: usize, start: Checksum) -> bool {
    let sum = start.with(&bytes[..at]).with(&[0; 4]).with(&bytes[at + 4..]);
    bytes[at..at + 4] == sum.0.to_be_bytes()
}

/// Puts the checksum of all into the four bytes at `at`.
fn put_sum(bytes: &mut [u8], at: usize, start: Checksum) {
    bytes[at..at + 4].fill(0);
    let sum = start.with(bytes);
    bytes[at..at + 4].copy_from_slice(&sum.0.to_be_bytes());
}

/// The head of a block about transaction `sequence`.
fn header(kind: u32, sequence: u32) -> Header {
    Header { magic: U32::new(MAGIC), kind: U32::new(kind), sequence: U32::new(sequence) }
}

/// A block with this head and zeros.
fn begin(kind: u32, sequence: u32) -> Block {
    let mut block = [0; BLOCK_BYTES];
    block[..size_of::<Header>()].copy_from_slice(header(kind, sequence).as_bytes());
    block
}

/// A block as it stands in the log, and whether its first four bytes had to be escaped.
pub(super) fn escape(bytes: &Block) -> Option<Block> {
    (bytes[..4] == MAGIC.to_be_bytes()).then(|| {
        let mut escaped = *bytes;
        escaped[..4].fill(0);
        escaped
    })
}

impl Log {
    /// A descriptor of the blocks behind it, at most
    /// [`TAGS_MAX`](crate::transaction::TAGS_MAX).
    pub fn write_descriptor(&self, sequence: u32, tags: &[Tag]) -> Block {
        let mut block = begin(DESCRIPTOR, sequence);
        let mut at = size_of::<Header>();
        for (index, tag) in tags.iter().enumerate() {
            let same = if index > 0 { FLAG_SAME_UUID } else { 0 };
            let last = if index + 1 == tags.len() { FLAG_LAST } else { 0 };
            let escaped = if tag.is_escaped { FLAG_ESCAPED } else { 0 };
            let raw = RawTag {
                block_low: U32::new(tag.block as u32),
                flags: U32::new(same | last | escaped),
                block_high: U32::new((tag.block >> 32) as u32),
                checksum: U32::new(tag.checksum),
            };
            block[at..at + size_of::<RawTag>()].copy_from_slice(raw.as_bytes());
            at += size_of::<RawTag>() + if index == 0 { UUID_BYTES } else { 0 };
        }
        put_sum(&mut block, TAIL_AT, Checksum(self.seed));
        block
    }

    /// A revoke of these blocks, at most [`REVOKES_MAX`](crate::transaction::REVOKES_MAX).
    pub fn write_revoke(&self, sequence: u32, numbers: &[u64]) -> Block {
        const COUNT_AT: usize = size_of::<Header>();
        let mut block = begin(REVOKE, sequence);
        let end = COUNT_AT + 4 + 8 * numbers.len();
        block[COUNT_AT..COUNT_AT + 4].copy_from_slice(&(end as u32).to_be_bytes());
        for (index, number) in numbers.iter().enumerate() {
            let at = COUNT_AT + 4 + 8 * index;
            block[at..at + 8].copy_from_slice(&number.to_be_bytes());
        }
        put_sum(&mut block, TAIL_AT, Checksum(self.seed));
        block
    }

    /// The block that makes a transaction count.
    pub fn write_commit(&self, sequence: u32, now: Time) -> Block {
        const SECONDS_AT: usize = 48;
        let mut block = begin(COMMIT, sequence);
        block[SECONDS_AT..SECONDS_AT + 8].copy_from_slice(&now.seconds.to_be_bytes());
        block[SECONDS_AT + 8..SECONDS_AT + 12].copy_from_slice(&now.nanoseconds.to_be_bytes());
        put_sum(&mut block, COMMIT_SUM_AT, Checksum(self.seed));
        block
    }

    /// The log as this library writes it: block numbers of 64 bits, checksums.
    pub fn to_write(self) -> Log {
        Log { has_wide_numbers: true, ..self }
    }

    /// Changes the journal's superblock: the oldest transaction begins at `start`, or there is
    /// none, and it, or the next one, has the number `sequence`. Only its first sector changes.
    pub fn write_super(block: &mut Block, start: Option<u32>, sequence: u32) {
        if let Ok((raw, _)) = Raw::mut_from_prefix(block) {
            raw.start = U32::new(start.unwrap_or(0));
            raw.sequence = U32::new(sequence);
            raw.incompat |= U32::new(0x1 | SIXTY_FOUR_BIT | CSUM_V3);
            raw.compat &= U32::new(!0x1);
            raw.checksum_type = 4;
        }
        put_sum(&mut block[..SUPER_BLOCK_BYTES], SUPER_BLOCK_SUM_AT, Checksum::START);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: [u8; 16] = *b"fedcba9876543210";
    const SEQUENCE: u32 = 0x8000_0001;

    fn log(has_wide_numbers: bool) -> Log {
        let seed = Checksum::START.with(&UUID).0;
        Log { blocks: 1024, first: 1, start: None, sequence: SEQUENCE, seed, has_wide_numbers }
    }

    /// A journal's superblock with other words, and the checksum of that.
    fn with(words: &[(usize, u32)]) -> Box<Block> {
        let mut block = new_super_block(2000, &UUID);
        for (at, word) in words {
            block[*at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        put_sum(&mut block[..SUPER_BLOCK_BYTES], SUPER_BLOCK_SUM_AT, Checksum::START);
        block
    }

    /// Decodes that of a journal in 2000 blocks.
    fn decoded(words: &[(usize, u32)]) -> Result<Log, Stop> {
        Log::decode(&with(words), 2000)
    }

    /// A block about a transaction: what is behind its head, and the checksum at `sum_at`.
    fn block(kind: u32, parts: &[(usize, &[u8])], sum_at: usize) -> Block {
        let mut block = [0; BLOCK_BYTES];
        for (at, bytes) in [(0, MAGIC), (4, kind), (8, SEQUENCE)].map(|(at, word)| (at, word.to_be_bytes())) {
            block[at..at + 4].copy_from_slice(&bytes);
        }
        for (at, bytes) in parts {
            block[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        put_sum(&mut block, sum_at, Checksum(log(true).seed));
        block
    }

    #[test]
    fn a_new_journal_has_the_features_that_linux_gives_it_and_is_empty() {
        let block = new_super_block(2000, &UUID);
        let word = |at: usize| u32::from_be_bytes(block[at..at + 4].try_into().unwrap());
        // Magic, version 2 of a superblock; features; CRC32C.
        assert_eq!([word(0), word(4), word(0x28)], [0xC03B_3998, 4, 0x13]);
        assert_eq!(block[0x50], 4);
        let log = Log { blocks: 2000, sequence: 1, ..log(true) };
        assert_eq!(Log::decode(&block, 2000), Ok(log));
        assert_eq!(Log::decode(&block, 3000), Ok(log), "the file may be longer");
    }

    #[test]
    fn what_is_no_superblock_of_a_journal_is_refused() {
        for (at, word) in [(0, 0xC03B_3999), (4, 3)] {
            assert_eq!(decoded(&[(at, word)]), Err(corrupt("the journal's superblock")));
        }
        let mut wrong = with(&[]);
        wrong[0x30] ^= 1;
        assert_eq!(Log::decode(&wrong, 2000), Err(corrupt("the checksum of the journal's superblock")));
        assert_eq!(decoded(&[(0x50, 1 << 24)]), Err(corrupt("the kind of the journal's checksums")));
    }

    #[test]
    fn sizes_of_a_journal_fit_each_other() {
        const FIRST: usize = 20;
        const START: usize = 28;
        let wrong = Err(corrupt("the sizes of the journal"));
        let cases: [&[(usize, u32)]; 8] = [
            &[(12, 1024)],
            &[(16, 1023)],
            &[(16, 2001)],
            &[(FIRST, 0)],
            &[(FIRST, 2000)],
            &[(FIRST, 10), (START, 9)],
            &[(START, 2000)],
            &[(16, 1024), (START, 1024)],
        ];
        for words in cases {
            assert_eq!(decoded(words), wrong, "{words:?}");
        }
        for (words, first, start) in [
            (&[(FIRST, 10), (START, 10)][..], 10, Some(10)),
            (&[(FIRST, 1999), (START, 1999)], 1999, Some(1999)),
            (&[(FIRST, 1999)], 1999, None),
        ] {
            let log = decoded(words).unwrap();
            assert_eq!((log.first, log.start, log.sequence), (first, start, 1));
        }
        assert_eq!(decoded(&[(16, 1024)]).unwrap().blocks, 1024);
        // Without checksums there is no telling what was written whole.
        let refusal = Refusal::Lacks("checksum_v3 (of the journal)");
        assert_eq!(decoded(&[(0x28, 0x3), (START, 1)]), Err(Error::Refused(refusal).into()));
        assert!(decoded(&[(0x28, 0x3)]).is_ok(), "an empty one needs none");
    }

    #[test]
    fn features_are_known_or_refused() {
        let wide = |features: u32| decoded(&[(0x28, features)]).map(|log| log.has_wide_numbers);
        assert_eq!([0x10, 0x11, 0x12, 0x13, 0x2, 0].map(wide), [false, false, true, true, true, false].map(Ok));
        let unknown = Refusal::Unknown("incompat (of the journal)", 0x40);
        assert_eq!(wide(0x53), Err(Error::Refused(unknown).into()));
        assert_eq!(wide(0x33), Err(Error::Refused(Refusal::Has("fast_commit")).into()));
    }

    /// Tags as Linux writes them: the first has the UUID behind it, the last says that it is.
    #[test]
    fn a_descriptor_says_where_blocks_go() {
        let tag = |low: u32, flags: u32, high: u32, sum: u32| [low, flags, high, sum].map(u32::to_be_bytes).concat();
        let parts = [
            (12, tag(5, 0, 1, 0xA1A2_A3A4)),
            (28, UUID.to_vec()),
            (44, tag(0xF000_0006, 2 | 1, 0xABCD, 0xB1B2_B3B4)),
            (60, tag(7, 2 | 8, 0, 0xC1C2_C3C4)),
            (76, tag(8, 2, 0, 0)),
        ];
        let parts = parts.each_ref().map(|(at, bytes)| (*at, &bytes[..]));
        let bytes = block(1, &parts, 4092);
        let tags = |high: u64, other: u64| {
            let tag = |block, checksum, is_escaped| Tag { block, checksum, is_escaped };
            Vec::from([
                tag(high | 5, 0xA1A2_A3A4, false),
                tag(other | 0xF000_0006, 0xB1B2_B3B4, true),
                tag(7, 0xC1C2_C3C4, false),
            ])
        };
        let wide = tags(0x1_0000_0000, 0xABCD_0000_0000);
        assert_eq!(log(true).record(&bytes, SEQUENCE), Ok(Record::Descriptor(wide.clone())));
        assert_eq!(log(false).record(&bytes, SEQUENCE), Ok(Record::Descriptor(tags(0, 0))));
        let mut ours = log(true).write_descriptor(SEQUENCE, &wide);
        ours[28..44].copy_from_slice(&UUID);
        assert!(ours[..76] == bytes[..76], "what is written is the same, with zeros for the UUID");
    }

    #[test]
    fn a_descriptor_without_a_last_tag_is_full() {
        let full = [[0, 0, 0, 9, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]; 255].concat();
        let bytes = block(1, &[(12, &full)], 4092);
        let Ok(Record::Descriptor(tags)) = log(true).record(&bytes, SEQUENCE) else { panic!("it is right") };
        assert_eq!(tags.len(), 255);
        // The UUID behind a tag reaches over the end.
        let mut wrong = full;
        wrong[254 * 16 + 7] = 0;
        let bytes = block(1, &[(12, &wrong)], 4092);
        assert_eq!(log(true).record(&bytes, SEQUENCE), Err(corrupt("a descriptor of the journal")));
    }

    #[test]
    fn a_revoke_names_blocks_by_64_or_32_bits() {
        let numbers = [0x1_0000_0002u64, 0x3_0000_0004];
        let bytes = block(5, &[(12, &32u32.to_be_bytes()), (16, &numbers.map(u64::to_be_bytes).concat())], 4092);
        assert_eq!(log(true).record(&bytes, SEQUENCE), Ok(Record::Revoke(numbers.into())));
        assert_eq!(log(false).record(&bytes, SEQUENCE), Ok(Record::Revoke([1, 2, 3, 4].into())));
        assert!(log(true).write_revoke(SEQUENCE, &numbers) == bytes);
        let none = log(true).write_revoke(SEQUENCE, &[]);
        assert_eq!(log(true).record(&none, SEQUENCE), Ok(Record::Revoke(Vec::new())));
        for count in [0u32, 15, 17, 24 + 4, 4093, u32::MAX] {
            let wrong = block(5, &[(12, &count.to_be_bytes())], 4092);
            assert_eq!(log(true).record(&wrong, SEQUENCE), Err(corrupt("a revoke of the journal")), "{count}");
        }
        // As many as fit.
        let many: Vec<u64> = (0..crate::transaction::REVOKES_MAX as u64).map(|number| number << 33).collect();
        let full = log(true).write_revoke(SEQUENCE, &many);
        assert_eq!(log(true).record(&full, SEQUENCE), Ok(Record::Revoke(many)));
    }

    #[test]
    fn a_commit_has_its_time() {
        let now = Time { seconds: 0x1_2345_6789, nanoseconds: 0x0A0B_0C0D };
        let bytes = log(true).write_commit(SEQUENCE, now);
        let (seconds, nanoseconds) = (now.seconds.to_be_bytes(), now.nanoseconds.to_be_bytes());
        assert!(bytes == block(2, &[(48, &seconds), (56, &nanoseconds)], 16));
        assert_eq!(log(false).record(&bytes, SEQUENCE), Ok(Record::Commit));
    }

    #[test]
    fn what_is_not_of_the_transaction_or_not_whole_ends_the_log() {
        let tag = Tag { block: 1, checksum: 2, is_escaped: false };
        let blocks = [
            log(true).write_descriptor(SEQUENCE, &[tag]),
            log(true).write_revoke(SEQUENCE, &[3]),
            log(true).write_commit(SEQUENCE, Time::default()),
        ];
        for bytes in blocks {
            assert_ne!(log(true).record(&bytes, SEQUENCE), Ok(Record::End));
            for sequence in [SEQUENCE - 1, SEQUENCE + 1] {
                assert_eq!(log(true).record(&bytes, sequence), Ok(Record::End));
            }
            assert_eq!(Log { seed: 1, ..log(true) }.record(&bytes, SEQUENCE), Ok(Record::End), "of another journal");
            for at in [0, 4, 11, 100, 4095] {
                let mut torn = bytes;
                torn[at] ^= 0x40;
                assert_eq!(log(true).record(&torn, SEQUENCE), Ok(Record::End), "{at}");
            }
        }
        assert_eq!(log(true).record(&block(3, &[], 4092), SEQUENCE), Ok(Record::End), "of no kind");
        assert_eq!(log(true).record(&[0; BLOCK_BYTES], 0), Ok(Record::End));
    }

    #[test]
    fn a_log_is_written_with_wide_numbers_whatever_it_had() {
        let tag = Tag { block: 0x7_0000_0001, checksum: 2, is_escaped: false };
        let written = log(false).to_write();
        let bytes = written.write_descriptor(SEQUENCE, &[tag]);
        assert_eq!(written.record(&bytes, SEQUENCE), Ok(Record::Descriptor([tag].into())));
    }

    #[test]
    fn the_superblock_says_what_is_written_and_keeps_all_else() {
        for features in [0, 0x13] {
            // Old kinds of checksums (1) go; other compatible features stay.
            let mut block = with(&[(0x24, 0x5), (0x28, features), (0x30, 0x1234_5678)]);
            Log::write_super(&mut block, Some(17), SEQUENCE);
            let expected = [(0x24, 0x4), (0x28, 0x13), (0x30, 0x1234_5678), (28, 17), (24, SEQUENCE)];
            assert!(block == with(&expected));
            let log = Log::decode(&block, 2000).unwrap();
            assert_eq!((log.start, log.sequence), (Some(17), SEQUENCE));
            Log::write_super(&mut block, None, 0);
            assert_eq!(Log::decode(&block, 2000).map(|log| (log.start, log.sequence)), Ok((None, 0)));
        }
    }
}
