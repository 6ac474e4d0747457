//! Everything of a Linux process that its forked children begin with, in one plain block at a fixed
//! address.
//!
//! It lies in a segment that `DomainFork` copies, so a forked child's fresh proxy finds it at
//! [`crate::memory::STATE_BASE`]. Zeroes are its beginning: a page that nothing was written to does
//! not exist. All else in the proxy (heap, channels, executor) is control state
//! and never inherited. No pointer into that lies here.

use core::ops::Range;

use abi::ProgramRegisters;
use contracts::process::capability;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::backings::Backings;
use crate::descriptors::Descriptors;
use crate::epoll::Interests;
use crate::errno::Errno;
use crate::identity::Identity;
use crate::layouts::Limit;
use crate::limits::{Limits, UNLIMITED, resource};
use crate::memory::{Area, Memory, protection};
use crate::path::PATH_MAX;
use crate::pieces::Pieces;
use crate::signals::{Signals, ThreadSignals};

/// Changes with the layout, so that a child with another proxy build refuses it.
pub const VERSION: u64 = 0x5045_4c41_5354_0014;

/// No parent's id: the process server has to be asked.
pub const PARENT_UNKNOWN: u32 = u32::MAX;

/// A text of bounded length.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Text {
    bytes: [u8; PATH_MAX + 4],
}

const _: () = assert!(size_of::<Text>().is_multiple_of(8));

impl Default for Text {
    fn default() -> Self {
        Text { bytes: [0; PATH_MAX + 4] }
    }
}

impl Text {
    /// A copy of a text, cut at the limit.
    pub fn new(text: &str) -> Text {
        let mut copy = Text::default();
        let length = text.len().min(PATH_MAX);
        copy.bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
        copy
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        let end = self.bytes.iter().position(|byte| *byte == 0).unwrap_or(PATH_MAX);
        core::str::from_utf8(&self.bytes[..end]).unwrap_or("/")
    }
}

/// What all threads share.
#[derive(Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ProcessState {
    /// [`VERSION`].
    pub version: u64,
    /// Handle of the segment that holds this block.
    pub segment: u64,
    /// Process id.
    pub process: u32,
    /// Parent's id, as told at the fork and whenever it changed; [`PARENT_UNKNOWN`] if that may
    /// have been missed.
    pub parent: u32,
    /// First address of the heap, its end, and the segment it lives in (0 = none yet).
    pub heap_start: u64,
    /// What brk(0) gives.
    pub heap_end: u64,
    /// Segment of the heap.
    pub heap_segment: u64,
    /// File creation mask.
    pub umask: u64,
    /// What setpriority was told.
    pub niceness: i64,
    /// 1 once PR_SET_NO_NEW_PRIVS was asked for. No program gives any here.
    pub no_new_privileges: u64,
    /// Whose the process is.
    pub identity: Identity,
    /// Resource limits; [`ProcessState::set_limit`] changes them.
    pub limits: Limits,
    /// Where a forked child stores its id (CLONE_CHILD_SETTID), 0 = nowhere.
    pub child_id_at: u64,
    /// The id that a child being forked will have.
    pub child: u64,
    /// Where a child of vfork, which is being forked, has its parent's stack; 0 = nowhere.
    pub vfork_stack_at: u64,
    /// Not 0: a child being forked has also what it is not to have (MADV_DONTFORK,
    /// MADV_WIPEONFORK).
    pub child_has_all: u64,
    /// What of the memory map belongs to files.
    pub pieces: Pieces,
    /// What of it is read from files as it is touched.
    pub backings: Backings,
    /// Descriptors.
    pub descriptors: Descriptors,
    /// Epoll sets.
    pub interests: Interests,
    /// Number of the event counter that was made last.
    pub last_counter: u64,
    /// Signals.
    pub signals: Signals,
    /// Working directory, absolute and clean.
    pub directory: Text,
    /// Path of the program.
    pub program: Text,
    /// Memory map: its table is the longest, so all else is in the first pages.
    pub memory: Memory,
}

/// A thread. The process's first one lies before the [`ProcessState`], where a forked child finds
/// the thread that forked.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct ThreadState {
    /// x87 and SSE registers (FXSAVE) while another thread runs.
    pub vectors: [u8; 512],
    /// The other registers while the program does not run on this thread.
    pub registers: ProgramRegisters,
    /// Where FS and GS point; kept up only while another thread runs, or where the processor cannot
    /// be asked.
    pub bases: [u64; 2],
    /// Thread id: the process's for its first.
    pub id: u64,
    /// Cleared and woken when the thread ends (set_tid_address, CLONE_CHILD_CLEARTID), 0 = nothing.
    pub clear_id_at: u64,
    /// Head of the list of robust futexes, 0 = none.
    pub robust_at: u64,
    /// Name as prctl gives it.
    pub name: [u8; 16],
    /// Memory that its call would have read, and that was paged out: first byte and the one after
    /// the last; equal if there was none.
    pub missed: [u64; 2],
    /// Mask and pending signals.
    pub signals: ThreadSignals,
}

/// What lies at [`crate::memory::STATE_BASE`].
#[derive(Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StateBlock {
    /// The process's first thread.
    pub first: ThreadState,
    /// The process.
    pub process: ProcessState,
}

const _: () = assert!(core::mem::offset_of!(ThreadState, vectors).is_multiple_of(16));

/// Pages the block has room in; they are there as far as they were used, so large tables that are
/// nearly empty cost a process nothing.
pub const STATE_PAGES: u64 = (size_of::<StateBlock>() as u64).div_ceil(crate::memory::PAGE);
/// A table and two that were not used, of the kernel's.
const _: () = assert!(STATE_PAGES <= 3 * 512);

impl ProcessState {
    /// Changes a resource limit; gives the one before. As for [`Limits::check`].
    pub fn set_limit(&mut self, resource: u64, new: Limit) -> Result<Limit, Errno> {
        let old = self.limits.get(resource)?;
        self.limits.set(resource, new, self.identity.may(capability::SYS_RESOURCE))?;
        self.descriptors.set_end(self.limits.soft(resource::DESCRIPTORS));
        self.signals.set_queued_max(self.limits.soft(resource::SIGNALS));
        Ok(old)
    }

    /// May `bytes` be mapped in the place of what lies at `over`? `ENOMEM` beyond RLIMIT_AS and,
    /// for what is the program's own to write, beyond RLIMIT_DATA.
    pub fn may_map(&self, bytes: u64, over: Range<u64>, is_data: bool) -> Result<(), Errno> {
        let data_fits = || self.fits(resource::DATA, Area::is_data, bytes, over.clone());
        let may = self.fits(resource::ADDRESSES, |_| true, bytes, over.clone()) && (!is_data || data_fits());
        if may { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// May all of a range be written from now on? `ENOMEM` if that is more of the program's own
    /// than RLIMIT_DATA allows.
    pub fn may_open(&self, range: Range<u64>) -> Result<(), Errno> {
        let opened = |area: &Area| Area { protection: protection::WRITE, ..*area }.is_data() && !area.is_data();
        let may = self.limits.soft(resource::DATA) == UNLIMITED
            || self.fits(resource::DATA, Area::is_data, self.memory.bytes(range, opened), 0..0);
        if may { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// Do `bytes` more fit into a limit that bounds what `counts`, in the place of what lies at
    /// `over`?
    fn fits(&self, resource: u64, counts: fn(&Area) -> bool, bytes: u64, over: Range<u64>) -> bool {
        let limit = self.limits.soft(resource);
        let mapped = |range: Range<u64>| self.memory.bytes(range, counts);
        limit == UNLIMITED || (mapped(0..u64::MAX) - mapped(over)).saturating_add(bytes) <= limit
    }
}

impl StateBlock {
    /// A fresh process in `/`, with one thread.
    pub fn reset(&mut self, segment: u64, process: u32, parent: u32) {
        let state = &mut self.process;
        (state.version, state.segment, state.umask) = (VERSION, segment, 0o022);
        (state.process, state.parent) = (process, parent);
        state.signals = Signals::default();
        state.identity = Identity::default();
        state.limits = Limits::default();
        state.descriptors.set_end(state.limits.soft(resource::DESCRIPTORS));
        state.directory = Text::new("/");
        self.first.signals = ThreadSignals::default();
        self.first.id = process.into();
    }

    /// Is this block one of ours?
    pub fn is_valid(&self) -> bool {
        self.process.version == VERSION
    }

    /// What does not pass to a forked child goes; it gets the id that its parent was told.
    pub fn become_child(&mut self) {
        let state = &mut self.process;
        (state.parent, state.process) = (state.process, state.child as u32);
        state.signals.become_child();
        self.first.signals.become_child();
        (self.first.id, self.first.robust_at) = (state.process.into(), 0);
        self.first.registers.rax = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::{Description, server};
    use crate::limits::DESCRIPTORS_SOFT;
    use crate::memory::PAGE;
    use contracts::process::Capabilities;
    use zerocopy::FromZeros;

    fn block() -> Box<StateBlock> {
        let mut block = StateBlock::new_box_zeroed().unwrap();
        block.reset(5, 7, 1);
        block
    }

    fn open(state: &mut ProcessState) -> Result<u64, Errno> {
        state.descriptors.add(Description { server: server::FS, ..Description::default() }, false)
    }

    #[test]
    fn a_block_is_ours_from_its_beginning_and_a_path_is_told_as_it_was() {
        let mut unused = StateBlock::new_box_zeroed().unwrap();
        assert!(!unused.is_valid() && block().is_valid());
        unused.process.version = VERSION + 1;
        assert!(!unused.is_valid());
        assert_eq!(block().process.directory.as_str(), "/");
        for path in ["", "/tmp", &"/long".repeat(PATH_MAX / 5)] {
            assert_eq!(Text::new(path).as_str(), path);
        }
        let cut = Text::new(&"a".repeat(PATH_MAX + 9));
        assert_eq!(cut.as_str(), "a".repeat(PATH_MAX));
    }

    #[test]
    fn limits_are_kept_and_inherited() {
        let mut block = block();
        let state = &mut block.process;
        assert_eq!(state.limits, Limits::default());
        let few = Limit { current: 2, maximum: 8 };
        assert_eq!(state.set_limit(resource::DESCRIPTORS, few).map(|old| old.current), Ok(DESCRIPTORS_SOFT));
        assert_eq!(state.set_limit(resource::CPU, few).map(|old| old.current), Ok(UNLIMITED));
        assert!(state.signals.has_room(None));
        state.set_limit(resource::SIGNALS, Limit { current: 0, maximum: 8 }).unwrap();
        assert!(!state.signals.has_room(None));
        assert_eq!((open(state), open(state), open(state)), (Ok(0), Ok(1), Err(Errno::EMFILE)));
        // What is refused changes nothing.
        assert_eq!(state.set_limit(resource::DESCRIPTORS, Limit { current: 9, maximum: 8 }), Err(Errno::EINVAL));
        assert_eq!(state.set_limit(resource::DESCRIPTORS, Limit { current: 9, maximum: 20_480 }), Err(Errno::EPERM));
        assert_eq!(open(state), Err(Errno::EMFILE));
        state.child = 8;
        block.become_child();
        let child = &mut block.process;
        assert_eq!((child.process, child.limits.get(resource::DESCRIPTORS)), (8, Ok(few)));
        assert_eq!((child.limits.get(resource::CPU), open(child)), (Ok(few), Err(Errno::EMFILE)));
        child.identity.set_capabilities(Capabilities { effective: 0, ..Capabilities::default() });
        assert_eq!(child.set_limit(resource::DESCRIPTORS, Limit { current: 9, maximum: 9 }), Err(Errno::EPERM));
        assert_eq!(child.set_limit(resource::DESCRIPTORS, Limit { current: 3, maximum: 8 }), Ok(few));
        assert_eq!((open(child), open(child)), (Ok(2), Err(Errno::EMFILE)));
    }

    #[test]
    fn memory_is_bounded_by_what_was_set() {
        let mut block = block();
        let state = &mut block.process;
        let area = |start: u64, pages: u64, protection| Area {
            start,
            end: start + pages * PAGE,
            segment: 1,
            protection,
            ..Area::default()
        };
        state.memory.insert(area(0x10_0000, 4, protection::READ)).unwrap();
        state.memory.insert(area(0x20_0000, 4, protection::READ | protection::WRITE)).unwrap();
        assert_eq!(state.may_map(1 << 46, 0..0, true), Ok(()));
        state.set_limit(resource::ADDRESSES, Limit { current: 10 * PAGE, maximum: UNLIMITED }).unwrap();
        assert_eq!(state.may_map(2 * PAGE, 0..0, false), Ok(()));
        assert_eq!(state.may_map(3 * PAGE, 0..0, false), Err(Errno::ENOMEM));
        assert_eq!(state.may_map(4 * PAGE, 0x10_0000..0x10_2000, false), Ok(()));
        assert_eq!(state.may_map(u64::MAX, 0..0, false), Err(Errno::ENOMEM));
        state.set_limit(resource::DATA, Limit { current: 5 * PAGE, maximum: UNLIMITED }).unwrap();
        assert_eq!((state.may_map(2 * PAGE, 0..0, false), state.may_map(PAGE, 0..0, true)), (Ok(()), Ok(())));
        assert_eq!(state.may_map(2 * PAGE, 0..0, true), Err(Errno::ENOMEM));
        // What can be written already is no more.
        assert_eq!((state.may_open(0x10_0000..0x10_1000), state.may_open(0x20_0000..0x20_4000)), (Ok(()), Ok(())));
        assert_eq!(state.may_open(0x10_0000..0x10_2000), Err(Errno::ENOMEM));
        state.set_limit(resource::DATA, Limit { current: UNLIMITED, maximum: UNLIMITED }).unwrap();
        assert_eq!(state.may_open(0..u64::MAX), Ok(()));
    }
}
