//! Private caches and a directory, MESI.
//!
//! Each core has two first-level caches (data, instructions) and a second level that includes both;
//! caches of one core need no coherence among themselves. The directory knows for each line who
//! holds it and who may write it, exactly: an evicted line is told at once. Invariants: a line with
//! an owner is in the owner's second level and nowhere else; a first-level line is in the second
//! level. Not modelled: a shared last level, queueing, prefetch, store buffers, page walks,
//! devices' accesses.

use crate::{CORES_MAX, Cache, Counters};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Sizes and latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Cores 0 to this less one are on the first socket, and so on.
    pub cores_per_socket: usize,
    /// Each of the two first-level caches.
    pub first_bytes: usize,
    /// The second level: what a core has for itself.
    pub second_bytes: usize,
    /// Of every cache.
    pub ways: usize,
    /// Cycles of an access that ends at the first level,
    pub first: u64,
    /// the second level,
    pub second: u64,
    /// a cache of the same socket,
    pub same_socket: u64,
    /// one of another socket,
    pub other_socket: u64,
    /// memory.
    pub memory: u64,
    /// Cycles that a locked instruction waits for other copies to go, where it has the data.
    pub ownership: u64,
}

impl Default for Setting {
    fn default() -> Setting {
        Setting {
            cores_per_socket: 4,
            first_bytes: 32 << 10,
            second_bytes: 512 << 10,
            ways: 8,
            first: 4,
            second: 14,
            same_socket: 70,
            other_socket: 300,
            memory: 200,
            ownership: 55,
        }
    }
}

/// What a core wants of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// An instruction.
    Fetch,
    /// Data.
    Read,
    /// Data, alone. Nobody waits for it: it is a store buffer's.
    Write,
    /// Data, alone, by a locked instruction, which waits for it.
    Locked,
}

impl Access {
    fn writes(self) -> bool {
        matches!(self, Access::Write | Access::Locked)
    }
}

/// Who wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// Programs.
    User,
    /// The system.
    Kernel,
}

/// Note of a second-level line: others may have it too; nobody else has it; it was written.
const SHARED: u8 = 0;
const EXCLUSIVE: u8 = 1;
const MODIFIED: u8 = 2;

/// A set of cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cores([u64; CORES_MAX / 64]);

impl Cores {
    fn add(&mut self, core: usize) {
        self.0[core / 64] |= 1 << (core % 64);
    }

    fn remove(&mut self, core: usize) {
        self.0[core / 64] &= !(1 << (core % 64));
    }

    fn iter(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().enumerate().flat_map(|(index, mut bits)| {
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                Some(64 * index + bit)
            })
        })
    }
}

/// A line as the directory sees it.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    holders: Cores,
    /// The only holder, if it may write.
    owner: Option<u8>,
    /// Rises with each write that a core was not yet allowed to make alone.
    version: u32,
    last_writer: Option<u8>,
}

/// What a core remembers of a line it lost.
#[derive(Clone, Copy, Debug)]
struct Lost {
    version: u32,
    evicted_for: Privilege,
}

/// Line numbers are spread well enough by one multiplication; the standard hasher would be half of
/// the model's time.
#[derive(Default)]
struct LineHasher(u64);

impl Hasher for LineHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

type Lines<V> = HashMap<u64, V, BuildHasherDefault<LineHasher>>;

struct Core {
    data: Cache,
    instructions: Cache,
    second: Cache,
    lost: Lines<Lost>,
}

/// See the module's head.
pub struct Machine {
    setting: Setting,
    cores: Vec<Core>,
    directory: Lines<Entry>,
}

impl Machine {
    /// A machine with empty caches.
    pub fn new(cores: usize, setting: Setting) -> Machine {
        assert!((1..=CORES_MAX).contains(&cores), "{cores} cores; the directory knows 1 to {CORES_MAX}");
        let core = |_| Core {
            data: Cache::new(setting.first_bytes, setting.ways),
            instructions: Cache::new(setting.first_bytes, setting.ways),
            second: Cache::new(setting.second_bytes, setting.ways),
            lost: Lines::default(),
        };
        Machine { setting, cores: (0..cores).map(core).collect(), directory: Lines::default() }
    }

    /// One access; counts it, and returns its cycles. An access that hits the first level costs
    /// nothing if it is a fetch.
    pub fn access(&mut self, core: usize, line: u64, access: Access, who: Privilege, counters: &mut Counters) -> u64 {
        match access {
            Access::Fetch => {}
            Access::Read => counters.loads += 1,
            Access::Write | Access::Locked => counters.stores += 1,
        }
        let own = &mut self.cores[core];
        let first = if access == Access::Fetch { &mut own.instructions } else { &mut own.data };
        let near = first.touch(line).is_some();
        if !near {
            first.insert(line, 0);
        }
        let near_cycles = match (near, access) {
            (true, Access::Fetch) => 0,
            (true, _) => self.setting.first,
            (false, _) => self.setting.second,
        };
        let far_cycles = match own.second.touch(line) {
            Some(note) => {
                counters.hits += 1;
                match (note, access.writes()) {
                    (SHARED, true) => {
                        counters.upgrades += 1;
                        self.take(core, line, counters);
                        self.setting.ownership
                    }
                    (EXCLUSIVE, true) => {
                        own.second.note(line, MODIFIED);
                        self.written(core, line);
                        near_cycles
                    }
                    _ => near_cycles,
                }
            }
            None => self.miss(core, line, access, who, counters),
        };
        if access == Access::Write { near_cycles } else { far_cycles }
    }

    fn miss(&mut self, core: usize, line: u64, access: Access, who: Privilege, counters: &mut Counters) -> u64 {
        let entry = self.directory.entry(line).or_default();
        let (holders, owner, version) = (entry.holders, entry.owner, entry.version);
        let held = holders != Cores::default();
        // Another core's data, and still on its way.
        let news = held && entry.last_writer.is_some_and(|writer| usize::from(writer) != core);
        let cause = match self.cores[core].lost.get(&line) {
            Some(lost) if lost.version != version => &mut counters.coherence,
            None if news => &mut counters.coherence,
            None => &mut counters.cold,
            Some(lost) if lost.evicted_for == who => &mut counters.capacity,
            Some(_) => &mut counters.other_privilege,
        };
        *cause += 1;
        // An owner is asked wherever it is; a clean shared line comes from a neighbour if there is
        // one, else from memory.
        let near = holders.iter().map(|holder| self.distance(core, holder)).min();
        let cycles = match near {
            Some(distance) if owner.is_some() || distance < self.setting.memory => distance,
            _ => self.setting.memory,
        };
        let note = if access.writes() {
            // The request that brings the line also takes it from all others.
            self.take(core, line, counters);
            MODIFIED
        } else if !held {
            EXCLUSIVE
        } else {
            if let Some(owner) = owner {
                self.cores[usize::from(owner)].second.note(line, SHARED);
            }
            SHARED
        };
        self.fill(core, line, note, who);
        cycles
    }

    fn fill(&mut self, core: usize, line: u64, note: u8, who: Privilege) {
        let entry = self.directory.entry(line).or_default();
        entry.holders.add(core);
        entry.owner = (note != SHARED).then_some(core as u8);
        let own = &mut self.cores[core];
        own.lost.remove(&line);
        let Some(gone) = own.second.insert(line, note) else { return };
        own.data.remove(gone);
        own.instructions.remove(gone);
        let entry = self.directory.entry(gone).or_default();
        entry.holders.remove(core);
        if entry.owner == Some(core as u8) {
            entry.owner = None;
        }
        own.lost.insert(gone, Lost { version: entry.version, evicted_for: who });
    }

    /// Makes `core` the one that may write `line`.
    fn take(&mut self, core: usize, line: u64, counters: &mut Counters) {
        let entry = self.directory.entry(line).or_default();
        let (version, mut others) = (entry.version, entry.holders);
        others.remove(core);
        for other in others.iter() {
            let holder = &mut self.cores[other];
            holder.second.remove(line);
            holder.data.remove(line);
            holder.instructions.remove(line);
            // The version rises with this write, so the privilege does not matter.
            holder.lost.insert(line, Lost { version, evicted_for: Privilege::User });
            counters.invalidations += 1;
        }
        self.cores[core].second.note(line, MODIFIED);
        self.written(core, line);
    }

    fn written(&mut self, core: usize, line: u64) {
        let entry = self.directory.entry(line).or_default();
        entry.holders = Cores::default();
        entry.holders.add(core);
        entry.owner = Some(core as u8);
        entry.last_writer = Some(core as u8);
        entry.version = entry.version.wrapping_add(1);
    }

    fn distance(&self, one: usize, other: usize) -> u64 {
        if one / self.setting.cores_per_socket == other / self.setting.cores_per_socket {
            self.setting.same_socket
        } else {
            self.setting.other_socket
        }
    }
}

#[cfg(test)]
mod tests;
