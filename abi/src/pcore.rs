//! What `PcoreRun` starts a core with, and the ring by which a kernel core takes calls.

use core::sync::atomic::AtomicU64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most segments passed to a core.
pub const SEGMENTS_MAX: usize = 8;
/// Most devices that a kernel core polls.
pub const DEVICES_MAX: usize = 8;

/// A segment that the started core's first domain gets: it becomes its capability of slot
/// `Handle::FIRST_FREE` + position.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LaunchSegment {
    /// The caller's, over contiguous memory, with DMA.
    pub handle: u64,
    /// Where the whole of it is shown; 0: nowhere.
    pub address: u64,
    /// `layout::protection::*`.
    pub protection: u64,
}

/// What a core runs.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Launch {
    /// First instruction; 0: the monitor of the boot archive, for which the first segment is its
    /// link to the caller. Not used by a kernel core.
    pub entry: u64,
    /// Stack pointer.
    pub stack: u64,
    /// RDI.
    pub argument: u64,
    /// Rights to the started core's own Pcore and root Ram that the domain gets, at the handles of
    /// a monitor; 0: none. At most those of the capability used.
    pub rights: u64,
    /// How many of `segments` count.
    pub count: u64,
    /// The segments.
    pub segments: [LaunchSegment; SEGMENTS_MAX],
}

/// What a kernel core polls.
pub mod polled {
    /// The syscall pseudo-device: a [`Ring`](super::Ring) of calls.
    pub const RING: u64 = 0;
    /// A 16-bit word that a device writes, such as the index of a virtio ring of used buffers: each
    /// change is a wake-up of the wake slot. The device's interrupt stays masked.
    pub const WORD: u64 = 1;
}

/// What a core runs, as `PcoreUse` tells it.
pub mod runs {
    /// Nothing: it stands still, or has not begun.
    pub const NOTHING: u64 = 0;
    /// A monitor, and with it what the system put there.
    pub const MONITOR: u64 = 1;
    /// A program, alone.
    pub const PROGRAM: u64 = 2;
    /// No program: a kernel core, which polls.
    pub const KERNEL_CORE: u64 = 3;
}

/// First bytes of a ring's segment; [`RingSlot`]s follow. Whatever one side wrote is a claim to the
/// other.
#[repr(C, align(64))]
pub struct Ring {
    /// Requests written so far; the user's.
    pub submitted: AtomicU64,
    _user: [u64; 7],
    /// Replies written so far; the kernel core's, as are all below.
    pub completed: AtomicU64,
    /// Not 0: the kernel core may sleep; notify any wake slot of it after the next request.
    pub sleeping: AtomicU64,
    /// Not 0: `submitted` was impossible, and the ring is polled no more until the core is run
    /// again.
    pub stopped: AtomicU64,
    _kernel: [u64; 5],
}

/// One request and its reply. Request and reply number n (from 0) are in slot n modulo
/// [`ring_slots`].
#[repr(C, align(64))]
pub struct RingSlot {
    /// As in RAX: [`Call::number`].
    pub number: AtomicU64,
    /// As in RDI, RSI, RDX, R10, R8, R9.
    pub arguments: [AtomicU64; 6],
    _request: u64,
    /// As in RAX: 0 or a negated error.
    pub status: AtomicU64,
    /// As in RDI, RSI, RDX.
    pub results: [AtomicU64; 3],
    _reply: [u64; 4],
}

const _: () = assert!(size_of::<Ring>() == 128 && size_of::<RingSlot>() == 128);

/// Slots of a ring in so many pages.
pub const fn ring_slots(pages: u64) -> u64 {
    pages * (crate::PAGE_BYTES / size_of::<RingSlot>() as u64) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_has_the_slots_that_its_pages_hold_beside_its_head() {
        assert_eq!([1, 2, 16].map(ring_slots), [31, 63, 511]);
    }
}
