//! Everything of a Linux process that its proxy keeps, in one plain block at a fixed address.
//!
//! It lies in a segment that `DomainFork` copies, so a forked child's fresh proxy finds it at
//! [`crate::memory::STATE_BASE`]. All else in the proxy (heap, channels, executor) is control state
//! and never inherited. No pointer into that lies here.

use abi::ProgramRegisters;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::descriptors::Descriptors;
use crate::epoll::Interests;
use crate::memory::Memory;
use crate::path::PATH_MAX;
use crate::signals::Signals;

/// Changes with the layout, so that a child with another proxy build refuses it.
pub const VERSION: u64 = 0x5045_4c41_5354_0004;

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

/// The block.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct ProcessState {
    /// [`VERSION`].
    pub version: u64,
    /// Handle of the segment that holds this block.
    pub segment: u64,
    /// Process id, parent's and the id cleared at exit (set_tid_address).
    pub process: u32,
    /// Parent's id, as told at the fork and whenever it changed; [`PARENT_UNKNOWN`] if that may
    /// have been missed.
    pub parent: u32,
    /// clear_child_tid.
    pub clear_id_at: u64,
    /// First address of the heap, its end, and the segment it lives in (0 = none yet).
    pub heap_start: u64,
    /// What brk(0) gives.
    pub heap_end: u64,
    /// Segment of the heap.
    pub heap_segment: u64,
    /// Where FS and GS point.
    pub fs_base: u64,
    /// GS.
    pub gs_base: u64,
    /// File creation mask.
    pub umask: u64,
    /// Name as prctl gives it.
    pub name: [u8; 16],
    /// A mask to put back after a handler (rt_sigsuspend and friends), and whether there is one.
    pub mask_to_restore: u64,
    /// 1 if there is.
    pub restores_mask: u64,
    /// Registers a forked child starts with.
    pub registers: ProgramRegisters,
    /// Where a forked child stores its id (CLONE_CHILD_SETTID), 0 = nowhere.
    pub child_id_at: u64,
    /// The id that a child being forked will have.
    pub child: u64,
    reserved: [u64; 2],
    /// FXSAVE image a forked child starts with.
    pub vectors: [u8; 512],
    /// Memory map.
    pub memory: Memory,
    /// Descriptors.
    pub descriptors: Descriptors,
    /// Epoll sets.
    pub interests: Interests,
    /// Signals.
    pub signals: Signals,
    /// Working directory, absolute and clean.
    pub directory: Text,
    /// Path of the program.
    pub program: Text,
    reserved_end: [u64; 3],
}

const _: () = assert!(core::mem::offset_of!(ProcessState, vectors).is_multiple_of(16));

/// Pages the block takes.
pub const STATE_PAGES: u64 = (size_of::<ProcessState>() as u64).div_ceil(crate::memory::PAGE);
const _: () = assert!(STATE_PAGES <= 16);

impl ProcessState {
    /// A fresh process in `/`.
    pub fn reset(&mut self, segment: u64) {
        self.version = VERSION;
        self.segment = segment;
        self.umask = 0o022;
        self.signals = Signals::default();
        self.directory = Text::new("/");
    }

    /// Is this block one of ours?
    pub fn is_valid(&self) -> bool {
        self.version == VERSION
    }

    /// What does not pass to a forked child.
    pub fn become_child(&mut self, process: u32, parent: u32) {
        self.process = process;
        self.parent = parent;
        self.signals.pending = 0;
        self.registers.rax = 0;
    }
}
