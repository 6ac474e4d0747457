//! Finding out what the journal has for places in the volume.
//!
//! A state machine: each step takes one block of the log. It ends with the list of all writes, of
//! which each was checked; only then is anything written. A transaction without its commit block
//! was never promised to anybody and does not count.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::format::{Log, MAGIC, Record, corrupt};
use crate::error::{Error, Refusal, Stop};
use crate::extent::{self, Place};
use crate::super_block::{Geometry, JOURNAL_INODE};
use crate::{Block, Blocks, Kind, Volume, need};

/// Most blocks of a journal: 4 GiB, four times the largest that mkfs.ext4 makes by itself. The
/// places of all are kept, in 8 bytes each.
const BLOCKS_MAX: u64 = 1 << 20;

/// A block that has to go to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// Its place.
    pub to: u64,
    /// The block of the volume, inside the journal, that has its bytes.
    pub from: u64,
    /// Whether its first four bytes are to be the journal's magic number.
    is_escaped: bool,
}

impl Write {
    /// What is to be written, of what the log has.
    pub fn bytes(&self, logged: &Block) -> Block {
        let mut bytes = *logged;
        if self.is_escaped {
            bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
        }
        bytes
    }
}

/// What a step came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is more to do.
    More,
    /// All is known.
    Done(Recovered),
}

/// What the journal has. The volume can be written once its writes were made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// What has to be written, in order of the places, each place once.
    pub writes: Vec<Write>,
    pub(crate) log: Log,
    /// The journal's blocks: where each is in the volume.
    pub(crate) places: Vec<u64>,
    /// Number of the first transaction that is not in the log.
    pub(crate) sequence: u32,
}

/// The newest version of a block in the log.
#[derive(Clone, Copy, Debug)]
struct Version {
    sequence: u32,
    /// Where in the journal it is.
    logical: u32,
    checksum: u32,
    is_escaped: bool,
}

/// Where the machine is.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Reads records, the next one at this block of the journal.
    Scan(u32),
    /// Sums the versions, the next one that of the first place not before this one.
    Sum(u64),
}

/// A recovery under way.
#[derive(Clone, Debug)]
pub struct Recovery {
    log: Log,
    /// The journal's blocks: where each is in the volume.
    places: Vec<u64>,
    phase: Phase,
    /// Blocks of the log that were passed, at most as many as it has.
    passed: u32,
    /// The transaction that is looked for.
    sequence: u32,
    /// What it has so far.
    found: Vec<(u64, Version)>,
    revoked_now: Vec<u64>,
    /// What all before it have.
    versions: BTreeMap<u64, Version>,
    revoked: BTreeMap<u64, u32>,
}

impl Recovery {
    /// Begins with the journal of a volume.
    ///
    /// # Errors
    /// [`Stop::Need`]; [`Error::Refused`](crate::Error::Refused) with a feature of the journal;
    /// [`Error::Corrupt`](crate::Error::Corrupt).
    pub fn begin<B: Blocks>(volume: &Volume, blocks: &B) -> Result<Recovery, Stop> {
        let geometry = volume.geometry();
        let inode = volume.inode(blocks, JOURNAL_INODE)?;
        if inode.kind != Kind::File {
            return Err(corrupt("the journal's inode"));
        }
        if inode.blocks() > BLOCKS_MAX {
            return Err(Error::Refused(Refusal::Size("the journal's number of blocks", inode.blocks())).into());
        }
        let mut places = Vec::new();
        while (places.len() as u64) < inode.blocks() {
            let stretch = extent::find(geometry, blocks, &inode, places.len() as u32)?;
            let Place::Written(first) = stretch.place else { return Err(corrupt("a hole in the journal")) };
            let left = inode.blocks() - places.len() as u64;
            places.extend(first..first + stretch.blocks.min(left));
        }
        let first = *places.first().ok_or(corrupt("the size of the journal"))?;
        let log = Log::decode(need(blocks, first)?, places.len() as u64)?;
        Ok(Recovery {
            log,
            places,
            phase: Phase::Scan(log.start.unwrap_or(0)),
            passed: 0,
            sequence: log.sequence,
            found: Vec::new(),
            revoked_now: Vec::new(),
            versions: BTreeMap::new(),
            revoked: BTreeMap::new(),
        })
    }

    /// Does one step. With [`Stop::Need`] nothing has changed.
    ///
    /// # Errors
    /// [`Stop::Need`]; [`Error::Corrupt`](crate::Error::Corrupt): a committed transaction says what
    /// cannot be, or a block of it is not what it was.
    pub fn step<B: Blocks>(&mut self, geometry: &Geometry, blocks: &B) -> Result<Step, Stop> {
        match self.phase {
            Phase::Scan(_) if self.log.start.is_none() => Ok(Step::Done(self.recovered(Vec::new()))),
            Phase::Scan(at) => self.scan(geometry, blocks, at),
            Phase::Sum(from) => self.sum(blocks, from),
        }
    }

    fn recovered(&self, writes: Vec<Write>) -> Recovered {
        Recovered { writes, log: self.log, places: self.places.clone(), sequence: self.sequence }
    }

    /// Where a block of the journal is in the volume.
    fn place(&self, logical: u32) -> Result<u64, Stop> {
        self.places.get(logical as usize).copied().ok_or(corrupt("the size of the journal"))
    }

    /// The block of the ring `count` behind `at`; `count` is at most that of the ring.
    fn behind(&self, at: u32, count: u32) -> u32 {
        let ring = u64::from(self.log.blocks - self.log.first);
        let offset = (u64::from(at - self.log.first) + u64::from(count)) % ring;
        self.log.first + offset as u32
    }

    fn scan<B: Blocks>(&mut self, geometry: &Geometry, blocks: &B, at: u32) -> Result<Step, Stop> {
        let record = self.log.record(need(blocks, self.place(at)?)?, self.sequence)?;
        let taken = 1 + if let Record::Descriptor(tags) = &record { tags.len() as u32 } else { 0 };
        // A whole ring of blocks was passed at most: then comes the oldest transaction again.
        if record == Record::End || taken > self.log.blocks - self.log.first - self.passed {
            self.begin_sums();
            return Ok(Step::More);
        }
        match record {
            Record::Descriptor(tags) => self.take_tags(geometry, at, &tags)?,
            Record::Revoke(numbers) => self.revoked_now.extend(numbers),
            Record::Commit => self.commit(),
            Record::End => {}
        }
        self.passed += taken;
        self.phase = Phase::Scan(self.behind(at, taken));
        Ok(Step::More)
    }

    fn take_tags(&mut self, geometry: &Geometry, at: u32, tags: &[super::format::Tag]) -> Result<(), Stop> {
        if tags.iter().any(|tag| tag.block >= geometry.blocks) {
            return Err(corrupt("a place that the journal names"));
        }
        for (tag, count) in tags.iter().zip(1..) {
            let logical = self.behind(at, count);
            let (checksum, is_escaped) = (tag.checksum, tag.is_escaped);
            self.found.push((tag.block, Version { sequence: self.sequence, logical, checksum, is_escaped }));
        }
        Ok(())
    }

    fn commit(&mut self) {
        self.versions.extend(self.found.drain(..));
        let sequence = self.sequence;
        self.revoked.extend(self.revoked_now.drain(..).map(|block| (block, sequence)));
        self.sequence = sequence.wrapping_add(1);
    }

    /// Drops what does not count: a transaction that is not whole, and versions that were revoked
    /// by their own transaction or a later one.
    fn begin_sums(&mut self) {
        self.found.clear();
        self.revoked_now.clear();
        let revoked = &self.revoked;
        let is_newer = |version: &Version, by: &u32| version.sequence.wrapping_sub(*by) as i32 > 0;
        self.versions.retain(|block, version| revoked.get(block).is_none_or(|by| is_newer(version, by)));
        self.phase = Phase::Sum(0);
    }

    fn sum<B: Blocks>(&mut self, blocks: &B, from: u64) -> Result<Step, Stop> {
        let Some((&to, version)) = self.versions.range(from..).next() else {
            return self.writes().map(|writes| Step::Done(self.recovered(writes)));
        };
        let logged = need(blocks, self.place(version.logical)?)?;
        if self.log.sum(version.sequence, logged) != version.checksum {
            return Err(corrupt("the checksum of a block in the journal"));
        }
        self.phase = Phase::Sum(to + 1);
        Ok(Step::More)
    }

    /// The writes. None of them goes to the journal itself.
    fn writes(&self) -> Result<Vec<Write>, Stop> {
        let mut own = self.places.clone();
        own.sort_unstable();
        let mut writes = Vec::with_capacity(self.versions.len());
        for (&to, version) in &self.versions {
            if own.binary_search(&to).is_ok() {
                return Err(corrupt("a place that the journal names"));
            }
            writes.push(Write { to, from: self.place(version.logical)?, is_escaped: version.is_escaped });
        }
        Ok(writes)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::super::format::{Tag, escape};
    use super::*;
    use crate::inode::{Inode, MAP_BYTES};
    use crate::testing::{Memory, NOW};
    use crate::{BLOCK_BYTES, journal};

    /// Blocks of the journal.
    const BLOCKS: u32 = 1024;
    /// Blocks that transactions write to begin here; they are free.
    const TO: u64 = 1500;

    /// A volume whose journal is being written.
    struct Ring {
        memory: Memory,
        places: Vec<u64>,
        log: Log,
        at: u32,
    }

    /// A block that has this byte everywhere.
    fn filled(byte: u8) -> Block {
        [byte; BLOCK_BYTES]
    }

    impl Ring {
        /// One that begins with block `first`, whose oldest transaction is `sequence` at `start`.
        fn new(first: u32, start: u32, sequence: u32) -> Ring {
            let mut memory = Memory::formatted(2048);
            let places = memory.recover().unwrap().places;
            let mut own = journal::new_super_block(BLOCKS, b"0123456789abcdef");
            own[20..24].copy_from_slice(&first.to_be_bytes());
            Log::write_super(&mut own, Some(start), sequence);
            *memory.edit(places[0]) = *own;
            let log = Log::decode(&own, BLOCKS.into()).unwrap();
            Ring { memory, places, log, at: start }
        }

        fn append(&mut self, block: &Block) {
            *self.memory.edit(self.places[self.at as usize]) = *block;
            self.at = if self.at + 1 == BLOCKS { self.log.first } else { self.at + 1 };
        }

        fn descriptor(&mut self, sequence: u32, blocks: &[(u64, Block)]) {
            let logged: Vec<Block> = blocks.iter().map(|(_, bytes)| escape(bytes).unwrap_or(*bytes)).collect();
            let tag = |((to, bytes), logged): (&(u64, Block), &Block)| Tag {
                block: *to,
                checksum: self.log.sum(sequence, logged),
                is_escaped: bytes != logged,
            };
            let tags: Vec<Tag> = blocks.iter().zip(&logged).map(tag).collect();
            self.append(&self.log.write_descriptor(sequence, &tags));
            logged.iter().for_each(|bytes| self.append(bytes));
        }

        fn commit(&mut self, sequence: u32) {
            self.append(&self.log.write_commit(sequence, NOW));
        }

        /// A transaction that writes to these blocks behind the first, each a byte everywhere.
        fn transaction(&mut self, sequence: u32, blocks: &[(u64, u8)]) {
            let blocks: Vec<_> = blocks.iter().map(|(to, byte)| (TO + to, filled(*byte))).collect();
            self.descriptor(sequence, &blocks);
            self.commit(sequence);
        }

        fn revoke(&mut self, sequence: u32, blocks: &[u64]) {
            let blocks: Vec<u64> = blocks.iter().map(|to| TO + to).collect();
            self.append(&self.log.write_revoke(sequence, &blocks));
        }

        /// What goes where, by its first byte; and the number of the next transaction.
        fn recovered(&self) -> (Vec<(u64, u8)>, u32) {
            let recovered = self.memory.recover().unwrap();
            let byte = |write: &Write| write.bytes(self.memory.block(write.from).unwrap())[0];
            (recovered.writes.iter().map(|write| (write.to - TO, byte(write))).collect(), recovered.sequence)
        }
    }

    #[test]
    fn the_newest_version_of_each_block_counts() {
        let mut ring = Ring::new(1, 1, 7);
        ring.transaction(7, &[(0, 1), (1, 2), (2, 3)]);
        ring.transaction(8, &[(1, 4)]);
        ring.transaction(9, &[(2, 5), (0, 6)]);
        assert_eq!(ring.recovered(), (vec![(0, 6), (1, 4), (2, 5)], 10));
    }

    #[test]
    fn recovery_stops_at_the_first_block_that_does_not_belong() {
        let mut ring = Ring::new(1, 1, 7);
        ring.transaction(7, &[(0, 1)]);
        let second = ring.at;
        ring.transaction(8, &[(1, 2)]);
        // One number is left out.
        ring.transaction(10, &[(2, 3)]);
        assert_eq!(ring.recovered(), (vec![(0, 1), (1, 2)], 9));
        ring.at = second;
        ring.append(&filled(9));
        assert_eq!(ring.recovered(), (vec![(0, 1)], 8));
        ring.at = second;
        ring.descriptor(8, &[(TO + 1, filled(4))]);
        ring.append(&filled(0));
        assert_eq!(ring.recovered(), (vec![(0, 1)], 8), "without its commit it does not count");
    }

    #[test]
    fn a_log_that_fills_its_ring_counts_to_its_last_block() {
        // A ring of ten blocks, and two transactions of five.
        let mut ring = Ring::new(BLOCKS - 10, BLOCKS - 10, 7);
        ring.transaction(7, &[(0, 1), (1, 2), (2, 3)]);
        ring.transaction(8, &[(1, 4), (3, 5), (4, 6)]);
        assert_eq!(ring.at, BLOCKS - 10);
        assert_eq!(ring.recovered(), (vec![(0, 1), (1, 4), (2, 3), (3, 5), (4, 6)], 9));
    }

    #[test]
    fn a_log_goes_on_at_the_beginning_of_its_ring_and_numbers_at_0() {
        let mut ring = Ring::new(20, BLOCKS - 2, u32::MAX);
        ring.transaction(u32::MAX, &[(0, 1), (1, 2), (2, 3)]);
        ring.transaction(0, &[(1, 4)]);
        ring.transaction(1, &[(2, 5)]);
        assert_eq!(ring.at, 20 + 9);
        assert_eq!(ring.recovered(), (vec![(0, 1), (1, 4), (2, 5)], 2));
    }

    #[test]
    fn a_transaction_that_would_be_longer_than_the_ring_does_not_count() {
        let mut ring = Ring::new(BLOCKS - 10, BLOCKS - 10, 7);
        // One of its blocks looks like the commit of the next, where that would end.
        let commit = ring.log.write_commit(8, NOW);
        ring.descriptor(7, &[(TO, filled(1)), (TO + 1, filled(2)), (TO + 2, filled(3))]);
        ring.commit(7);
        let tags: [Tag; 7] = [3, 4, 5, 6, 7, 8, 9].map(|to| Tag { block: TO + to, checksum: 0, is_escaped: false });
        ring.append(&ring.log.write_descriptor(8, &tags));
        *ring.memory.edit(ring.places[BLOCKS as usize - 7]) = commit;
        let mut recovery = Recovery::begin(&ring.memory.volume(), &ring.memory).unwrap();
        while matches!(recovery.phase, Phase::Scan(_)) {
            recovery.step(ring.memory.volume().geometry(), &ring.memory).unwrap();
        }
        assert_eq!((recovery.versions.len(), recovery.sequence), (3, 8));
    }

    #[test]
    fn a_revoke_drops_what_its_transaction_and_older_ones_have() {
        for first in [7, u32::MAX, u32::MAX - 1, 0x7FFF_FFFF] {
            let number = |more: u32| first.wrapping_add(more);
            let mut ring = Ring::new(1, 1, first);
            ring.transaction(first, &[(0, 1), (1, 2), (2, 3), (3, 4)]);
            ring.revoke(number(1), &[0, 1, 3]);
            ring.transaction(number(1), &[(3, 5), (4, 6)]);
            ring.transaction(number(2), &[(1, 7)]);
            let expected = vec![(1, 7), (2, 3), (4, 6)];
            assert_eq!(ring.recovered(), (expected.clone(), number(3)));
            // Without a commit a revoke does not count.
            ring.revoke(number(3), &[2]);
            assert_eq!(ring.recovered(), (expected, number(3)));
        }
    }

    #[test]
    fn a_block_that_begins_like_the_journals_own_is_as_it_was() {
        let mut ring = Ring::new(1, 1, 7);
        let mut bytes = filled(8);
        bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
        ring.descriptor(7, &[(TO, bytes)]);
        ring.commit(7);
        let [write] = ring.memory.recover().unwrap().writes[..] else { panic!("it is one") };
        let logged = ring.memory.block(write.from).unwrap();
        assert_eq!(logged[..8], [0, 0, 0, 0, 8, 8, 8, 8]);
        assert!(write.bytes(logged) == bytes);
    }

    #[test]
    fn a_place_outside_of_the_volume_or_in_the_journal_is_corrupt() {
        for to in [2048, u64::MAX, 200] {
            let mut ring = Ring::new(1, 1, 7);
            ring.descriptor(7, &[(to, filled(1))]);
            ring.commit(7);
            assert_eq!(ring.memory.recover(), Err(corrupt("a place that the journal names")), "{to}");
        }
    }

    /// A volume whose journal has another inode.
    fn with_inode(change: impl FnOnce(&mut Inode)) -> Memory {
        let mut memory = Memory::formatted(2048);
        let mut inode = memory.inode(JOURNAL_INODE);
        change(&mut inode);
        memory.put_inode(&inode);
        memory
    }

    #[test]
    fn a_journal_has_at_most_4_gib_and_no_holes() {
        let sized =
            |blocks: u64| with_inode(|inode| inode.size = blocks * 4096).recover().map(|found| found.places.len());
        assert_eq!(sized(1024), Ok(1024));
        assert_eq!(sized(1 << 20), Err(corrupt("a hole in the journal")));
        let refusal = Refusal::Size("the journal's number of blocks", (1 << 20) + 1);
        assert_eq!(sized((1 << 20) + 1), Err(Error::Refused(refusal).into()));
        assert_eq!(sized(0), Err(corrupt("the size of the journal")));
        assert_eq!(sized(1023), Err(corrupt("the sizes of the journal")), "its superblock says 1024");
    }

    #[test]
    fn blocks_behind_the_end_of_the_journals_file_are_not_its_own() {
        // Two extents: of a thousand blocks, and of two hundred, of which the file has but fifty.
        let extent = |logical: u32, length: u16, first: u32| {
            let mut bytes = [0; 12];
            bytes[..4].copy_from_slice(&logical.to_le_bytes());
            bytes[4..6].copy_from_slice(&length.to_le_bytes());
            bytes[8..].copy_from_slice(&first.to_le_bytes());
            bytes
        };
        let mut memory = with_inode(|inode| {
            let first = crate::extent::root_of(137..1137);
            inode.map = [0; MAP_BYTES];
            inode.map[..12].copy_from_slice(&first[..12]);
            inode.map[2] = 2;
            inode.map[12..24].copy_from_slice(&extent(0, 1000, 137));
            inode.map[24..36].copy_from_slice(&extent(1000, 200, 1300));
            inode.size = 1050 * 4096;
        });
        let places: Vec<u64> = (137..1137).chain(1300..1350).collect();
        assert_eq!(memory.recover().unwrap().places, places);
        *memory.edit(137) = *journal::new_super_block(1051, &[0; 16]);
        assert_eq!(memory.recover(), Err(corrupt("the sizes of the journal")));
    }
}
