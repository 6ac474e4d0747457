//! Writing the journal: commits, checkpoints, and the end.
//!
//! A state machine that gives one [`Batch`] at a time:
//!
//! | batch | what | behind it |
//! |---|---|---|
//! | mark | the super block says that the journal may have transactions; once for each mount | flush |
//! | reset | the log begins anew, at the number of the first transaction; once for each mount | flush |
//! | log | bytes of files, revokes, descriptors, blocks of metadata | flush |
//! | commit | the commit block: now the transaction lasts | its own |
//! | places | blocks of committed transactions go to their places, in parts | the last: flush |
//! | tail | the log's tail moves behind those | its own |
//! | empty, clean | at the end: the log is empty; the super block says so | flush, its own |
//!
//! Invariants: a block of the ring is used again only after the tail that frees it lasts; a block
//! that the log has is written to its place only as the log has it; no number of a transaction is
//! used twice.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::format::{Log, Tag, escape};
use super::recovery::Recovered;
use crate::super_block::{self, Change};
use crate::transaction::{REVOKES_MAX, TAGS_MAX, Transaction, Version};
use crate::{Block, Known, Time};

/// Most blocks of a batch that writes blocks to their places: a commit waits for no more.
const PLACES_MAX: usize = 256;
/// A transaction has at most this part of the log; so two fit while a third is being collected.
const PART: u32 = 4;

/// Blocks that the device has to write.
#[derive(Clone, Debug)]
pub struct Batch {
    /// What is to be written, in any order.
    pub writes: Vec<Put>,
    /// What has to be done behind them.
    pub flush: Flush,
}

/// A block and its place.
#[derive(Clone, Debug)]
pub struct Put {
    /// Number of the block in the volume.
    pub block: u64,
    /// All of its bytes. They stay as they are, whatever is changed meanwhile.
    pub bytes: Arc<Block>,
    /// The file whose bytes they are; 0 for metadata.
    pub inode: u32,
}

/// What has to be done behind a batch before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Nothing: a later batch flushes.
    No,
    /// The batch's own blocks must last: write them with FUA, or flush.
    Own,
    /// They and all that was written before must last: flush.
    All,
}

/// What comes next, or is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Mark,
    Reset,
    Log,
    Commit,
    Places,
    Tail,
    Empty,
    Clean,
}

/// Blocks on their way to their places.
#[derive(Clone, Copy, Debug)]
struct Checkpoint {
    /// The newest transaction that it takes.
    upto: u32,
    /// Where the next one began in the ring, and how many blocks are behind it.
    head: u32,
    used: u32,
    /// Blocks before this one are done.
    next: u64,
}

/// How the volume is at its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub free_blocks: u64,
    pub free_inodes: u32,
    pub now: Time,
}

/// The writing half of a journal.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    log: Log,
    places: Vec<u64>,
    /// The journal's superblock.
    own: Block,
    /// The volume's, as it was committed.
    pub super_block: Arc<Block>,
    /// The next block of the ring, and how many before it have transactions.
    head: u32,
    used: u32,
    /// Whether the two superblocks say that there may be transactions.
    is_marked: bool,
    is_closed: bool,
    /// The disk says that it has to be recovered.
    is_dirty: bool,
    phase: Phase,
    is_under_way: bool,
    checkpoint: Option<Checkpoint>,
    pub committing: Option<Transaction>,
    /// Blocks that the log has and their places do not, each with its newest transaction.
    pub committed: BTreeMap<u64, (u32, Version)>,
    /// The newest transaction that lasts.
    pub lasting: u32,
    /// A checkpoint was asked for.
    pub wants_places: bool,
}

impl Writer {
    /// Begins behind what was recovered. `own` is the journal's first block, `super_block` the
    /// volume's.
    pub fn begin(recovered: &Recovered, own: &Block, super_block: &Block, is_dirty: bool) -> Writer {
        let log = recovered.log.to_write();
        let mut super_block = *super_block;
        super_block::change(&mut super_block, &Change::NeedsRecovery);
        Writer {
            log,
            places: recovered.places.clone(),
            own: *own,
            super_block: Arc::new(super_block),
            head: log.first,
            used: 0,
            is_marked: false,
            is_closed: false,
            is_dirty,
            phase: Phase::Idle,
            is_under_way: false,
            checkpoint: None,
            committing: None,
            committed: BTreeMap::new(),
            // What is not whole in the log has the number that recovery did not find: pass it.
            lasting: recovered.sequence,
            wants_places: false,
        }
    }

    /// Blocks of the log that a transaction may take.
    pub fn limit(&self) -> usize {
        (self.ring() / PART) as usize
    }

    /// The newest version of a block that is not in its place.
    pub fn block(&self, number: u64) -> Option<(&Block, Option<&Known>)> {
        let committing = self.committing.as_ref().and_then(|transaction| transaction.changes.block(number));
        if committing.is_some() {
            return committing;
        }
        if number == 0 {
            return Some((&self.super_block, None));
        }
        self.committed.get(&number).map(|(_, version)| (&*version.bytes, Some(&version.known)))
    }

    /// Whether all is written and the volume says so.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    fn ring(&self) -> u32 {
        self.log.blocks - self.log.first
    }

    fn behind(&self, at: u32, count: u32) -> u32 {
        let offset = u64::from(at - self.log.first) + u64::from(count);
        self.log.first + (offset % u64::from(self.ring())) as u32
    }

    /// The next batch. `running` is taken, and a new one begun, if `commits` and there is room in
    /// the log. With `end` the volume is closed when all else is done.
    pub fn next(&mut self, running: &mut Transaction, commits: bool, end: Option<End>, now: Time) -> Option<Batch> {
        if self.is_under_way {
            return None;
        }
        if self.phase == Phase::Idle {
            self.phase = self.choose(running, commits, end.is_some());
        }
        let batch = match self.phase {
            Phase::Idle => return None,
            Phase::Mark => self.put_super(Flush::All),
            Phase::Reset => self.put_own(Some(self.head), self.lasting.wrapping_add(1), Flush::All),
            Phase::Log => self.log(),
            Phase::Commit => self.commit(now),
            Phase::Places => self.places_batch(),
            Phase::Tail => self.tail(),
            Phase::Empty => self.put_own(None, self.lasting.wrapping_add(1), Flush::All),
            Phase::Clean => self.clean(end?),
        };
        self.is_under_way = true;
        Some(batch)
    }

    /// What to do when nothing is under way.
    fn choose(&mut self, running: &mut Transaction, commits: bool, closes: bool) -> Phase {
        let needs = running.log_blocks(&Default::default()) as u32;
        let has_room = needs <= self.ring() - self.used;
        if commits && has_room && !running.changes.is_empty() {
            let next = Transaction { number: running.number.wrapping_add(1), ..Default::default() };
            self.committing = Some(core::mem::replace(running, next));
            return if self.is_marked { Phase::Log } else { Phase::Mark };
        }
        let is_asked = commits || closes || self.wants_places || self.used > self.ring() / 2;
        if self.checkpoint.is_none() && self.used > 0 && is_asked {
            self.wants_places = false;
            let (upto, head) = (self.lasting, self.head);
            self.checkpoint = Some(Checkpoint { upto, head, used: self.used, next: 0 });
        }
        match self.checkpoint {
            Some(checkpoint) if self.places_left(checkpoint).next().is_some() => Phase::Places,
            Some(_) => Phase::Tail,
            None if closes && !self.is_closed && (self.is_marked || self.is_dirty) => Phase::Empty,
            None => {
                self.is_closed |= closes;
                Phase::Idle
            }
        }
    }

    /// The batch was written, and flushed as it says.
    pub fn done(&mut self) {
        if !core::mem::take(&mut self.is_under_way) {
            return;
        }
        self.phase = match self.phase {
            Phase::Mark => Phase::Reset,
            Phase::Reset => {
                self.is_marked = true;
                Phase::Log
            }
            Phase::Log => Phase::Commit,
            Phase::Commit => {
                self.end_commit();
                Phase::Idle
            }
            Phase::Tail => {
                self.end_checkpoint();
                Phase::Idle
            }
            Phase::Empty => Phase::Clean,
            Phase::Clean => {
                self.is_closed = true;
                Phase::Idle
            }
            Phase::Idle | Phase::Places => Phase::Idle,
        };
    }

    fn end_commit(&mut self) {
        let Some(Transaction { number, changes }) = self.committing.take() else { return };
        self.lasting = number;
        for block in &changes.revoked {
            self.committed.remove(block);
        }
        for (block, version) in changes.blocks {
            if block == 0 {
                self.super_block = version.bytes.clone();
            }
            self.committed.insert(block, (number, version));
        }
    }

    fn end_checkpoint(&mut self) {
        let Some(done) = self.checkpoint.take() else { return };
        self.used -= done.used;
        self.committed.retain(|_, (number, _)| is_newer(*number, done.upto));
    }

    /// Blocks that a checkpoint has still to write.
    fn places_left(&self, checkpoint: Checkpoint) -> impl Iterator<Item = (u64, &Arc<Block>)> {
        self.committed
            .range(checkpoint.next..)
            .filter(move |(_, (number, _))| !is_newer(*number, checkpoint.upto))
            .map(|(block, (_, version))| (*block, &version.bytes))
    }

    fn places_batch(&mut self) -> Batch {
        let Some(mut checkpoint) = self.checkpoint else { return Batch { writes: Vec::new(), flush: Flush::No } };
        let mut left = self.places_left(checkpoint);
        let writes: Vec<Put> = left
            .by_ref()
            .take(PLACES_MAX)
            .map(|(block, bytes)| Put { block, bytes: bytes.clone(), inode: 0 })
            .collect();
        let flush = if left.next().is_some() { Flush::No } else { Flush::All };
        drop(left);
        checkpoint.next = writes.last().map_or(0, |put| put.block + 1);
        self.checkpoint = Some(checkpoint);
        Batch { writes, flush }
    }

    fn tail(&mut self) -> Batch {
        let (start, number) = match self.checkpoint {
            Some(checkpoint) => (checkpoint.head, checkpoint.upto),
            None => (self.head, self.lasting),
        };
        self.put_own(Some(start), number.wrapping_add(1), Flush::Own)
    }

    fn clean(&mut self, end: End) -> Batch {
        let (free_blocks, free_inodes) = (end.free_blocks, end.free_inodes);
        let change = Change::Clean { free_blocks, free_inodes, now: end.now.seconds as u32 };
        super_block::change(Arc::make_mut(&mut self.super_block), &change);
        self.put_super(Flush::Own)
    }

    fn put_super(&self, flush: Flush) -> Batch {
        Batch { writes: [Put { block: 0, bytes: self.super_block.clone(), inode: 0 }].into(), flush }
    }

    fn put_own(&mut self, start: Option<u32>, sequence: u32, flush: Flush) -> Batch {
        Log::write_super(&mut self.own, start, sequence);
        Batch { writes: [self.put(0, Arc::new(self.own))].into(), flush }
    }

    /// Block `logical` of the journal.
    fn put(&self, logical: u32, bytes: Arc<Block>) -> Put {
        Put { block: self.places[logical as usize], bytes, inode: 0 }
    }

    /// Bytes of files, and all of the transaction but its commit block.
    fn log(&mut self) -> Batch {
        let Some(transaction) = self.committing.take() else {
            return Batch { writes: Vec::new(), flush: Flush::All };
        };
        let number = transaction.number;
        let changes = &transaction.changes;
        let data = changes.data.iter();
        let mut writes: Vec<Put> =
            data.map(|(block, data)| Put { block: *block, bytes: data.bytes.clone(), inode: data.inode }).collect();
        let revoked: Vec<u64> = changes.revoked.iter().copied().collect();
        for part in revoked.chunks(REVOKES_MAX) {
            self.append(&mut writes, Arc::new(self.log.write_revoke(number, part)));
        }
        let blocks: Vec<(u64, &Arc<Block>)> =
            changes.blocks.iter().map(|(block, version)| (*block, &version.bytes)).collect();
        for part in blocks.chunks(TAGS_MAX) {
            self.log_part(&mut writes, number, part);
        }
        self.committing = Some(transaction);
        Batch { writes, flush: Flush::All }
    }

    /// A descriptor and its blocks.
    fn log_part(&mut self, writes: &mut Vec<Put>, number: u32, part: &[(u64, &Arc<Block>)]) {
        let mut tags = Vec::with_capacity(part.len());
        let mut logged = Vec::with_capacity(part.len());
        for &(block, bytes) in part {
            let escaped = escape(bytes);
            let is_escaped = escaped.is_some();
            let bytes = escaped.map_or_else(|| bytes.clone(), Arc::new);
            tags.push(Tag { block, checksum: self.log.sum(number, &bytes), is_escaped });
            logged.push(bytes);
        }
        self.append(writes, Arc::new(self.log.write_descriptor(number, &tags)));
        for bytes in logged {
            self.append(writes, bytes);
        }
    }

    /// The next block of the ring.
    fn append(&mut self, writes: &mut Vec<Put>, bytes: Arc<Block>) {
        writes.push(self.put(self.head, bytes));
        self.head = self.behind(self.head, 1);
        self.used += 1;
    }

    fn commit(&mut self, now: Time) -> Batch {
        let number = self.lasting.wrapping_add(1);
        let mut writes = Vec::with_capacity(1);
        self.append(&mut writes, Arc::new(self.log.write_commit(number, now)));
        Batch { writes, flush: Flush::Own }
    }
}

/// Whether transaction `number` comes behind `other`.
pub(crate) fn is_newer(number: u32, other: u32) -> bool {
    number.wrapping_sub(other) as i32 > 0
}
