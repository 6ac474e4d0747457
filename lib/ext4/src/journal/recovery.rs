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
