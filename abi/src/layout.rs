//! Flags, limits and fixed addresses shared by kernel, runtime, loader and proxy.

/// First user address that can be mapped: page zero stays unmapped.
pub const USER_START: u64 = 0x1000;
/// First address past the user window; the last canonical page is left out so that no instruction
/// of a user ends at a non-canonical address.
pub const USER_END: u64 = 0x0000_7fff_ffff_f000;
/// Most pages of one segment: 992 MiB.
pub const SEGMENT_PAGES_MAX: u64 = 496 * 512;
const _: () = assert!(SEGMENT_PAGES_MAX * crate::PAGE_BYTES == 992 << 20);
/// Most slots of a root share.
pub const SHARE_SLOTS_MAX: u64 = 16_384;
/// Wake slots per core; slot 0 is the kernel's own.
pub const WAKE_SLOTS: u64 = 1024;

/// Where native components are linked (`lib/runtime/link.ld`): below 2 GiB, as the bare target's
/// code model wants.
pub const COMPONENT_BASE: u64 = 0x1000_0000;
/// Where the Linux proxy is linked: above any non-PIE program and the room for its heap.
pub const PROXY_BASE: u64 = 0x7000_0000;
/// The proxy's image, bss and stack end below this.
pub const PROXY_END: u64 = 0x8000_0000;
/// Where the loader maps the start page, read-only.
pub const START_INFO: u64 = 0x0000_7200_0000_0000;
/// Where the loader maps the clock page, read-only.
pub const CLOCK_PAGE: u64 = 0x0000_7200_0008_0000;
/// Where the loader maps the control page of the first context.
pub const CONTROL_PAGE: u64 = 0x0000_7200_0010_0000;
/// Top of the first context's stack; the pages below are mapped, then a guard.
pub const STACK_TOP: u64 = 0x0000_7200_1000_0000;
/// Where the loader and runtime map channel, bulk and device regions.
pub const REGIONS: u64 = 0x0000_7300_0000_0000;
/// Native heap.
pub const HEAP: u64 = 0x0000_7400_0000_0000;

/// `SegmentAlloc`, `ShareSegment` and `SegmentImport` flags.
pub mod segment {
    /// Physically contiguous (implies EAGER).
    pub const CONTIGUOUS: u64 = 1;
    /// All pages at once.
    pub const EAGER: u64 = 2;
    /// `DomainFork` gives the child the same pages, not a copy; of `SegmentAlloc` only, with EAGER.
    pub const COMMON: u64 = 8;
    /// Device registers: mapped uncached.
    pub const UNCACHED: u64 = 4;
}

/// `SegmentCopy` modes.
pub mod copy {
    /// All bytes now.
    pub const PLAIN: u64 = 0;
    /// Share until written.
    pub const ON_WRITE: u64 = 1;
    /// Share until the copy is touched at all, or the source is written: what is used is in memory
    /// of the core that uses it.
    pub const ON_REFERENCE: u64 = 2;
}

/// Protection of a mapping.
pub mod protection {
    /// Nothing: every access faults.
    pub const NONE: u64 = 0;
    /// Loads.
    pub const READ: u64 = 1;
    /// Stores (with READ).
    pub const WRITE: u64 = 2;
    /// Fetches (with READ; never with WRITE unless the domain was made with
    /// `domain::WRITE_EXECUTE`).
    pub const EXECUTE: u64 = 4;
}

/// `DomainAlloc` flags.
pub mod domain {
    /// Linux programs may ask for writable code; native domains may not.
    pub const WRITE_EXECUTE: u64 = 1;
}

/// `ContextAlloc` flags.
pub mod context {
    /// Has vector registers, saved at switches.
    pub const FPU: u64 = 1;
    /// May call `ContextProxy`.
    pub const LINUX: u64 = 2;
    /// Shortest limit of `ContextWatch`: so probes are rare beside the work that they watch.
    pub const WATCH_LIMIT_MIN_NS: u64 = 100_000_000;
}

/// `ContextUpcall` flags.
pub mod upcall {
    /// The end of a slice is an upcall, also if nobody else wants to run.
    pub const TICKS: u64 = 1;
}

/// `PortalAlloc` kinds.
pub mod portal {
    /// Words in, words out, callee in `PortalReplyWait` (bounded synchronous servers).
    pub const RENDEZVOUS: u64 = 0;
    /// Sets badge bits and donates time until the callee idles (async servers).
    pub const MAILBOX: u64 = 1;
}

/// Locks of shared objects: `ShareAlloc`.
pub mod lock {
    /// Spins at one line.
    pub const SPIN: u64 = 0;
    /// Readers beside each other, at one line.
    pub const READ_WRITE: u64 = 1;
    /// A queue; each waits at a line of its own.
    pub const MCS: u64 = 2;
    /// Readers each at a line of their own.
    pub const SCALABLE_READ_WRITE: u64 = 3;
}

/// What `RangeStat` tells.
pub mod range_stat {
    /// (times its lock was taken, times somebody waited for it, times other cores were asked to
    /// invalidate translations of it).
    pub const LOCK: u64 = 0;
    /// (faults served in it, table pages below its uppermost, cores that show it now).
    pub const FAULTS: u64 = 1;
}

/// Indices of `CounterRead`.
pub mod counter {
    /// System calls entered.
    pub const CALLS: u64 = 0;
    /// Linux calls sent to proxies.
    pub const LINUX_CALLS: u64 = 1;
    /// Page faults handled in the kernel.
    pub const SOFT_FAULTS: u64 = 2;
    /// Copy-on-write copies.
    pub const COPY_FAULTS: u64 = 3;
    /// Faults given to the proxy or fatal.
    pub const HARD_FAULTS: u64 = 4;
    /// Device and timer interrupts.
    pub const INTERRUPTS: u64 = 5;
    /// Wake interrupts sent to other cores.
    pub const WAKES_SENT: u64 = 6;
    /// Wake interrupts taken.
    pub const WAKES_TAKEN: u64 = 7;
    /// Context switches.
    pub const SWITCHES: u64 = 8;
    /// Address-space switches.
    pub const SPACE_SWITCHES: u64 = 9;
    /// Times the core went idle.
    pub const IDLES: u64 = 10;
    /// Nanoseconds idle.
    pub const IDLE_NS: u64 = 11;
    /// Portal calls.
    pub const PORTAL_CALLS: u64 = 12;
    /// Pages of kernel memory of this core in use (objects and tables).
    pub const KERNEL_PAGES: u64 = 13;
    /// TLB shootdowns that this core sent, because protection in a range that both map was reduced.
    pub const SHOOTDOWNS_SENT: u64 = 14;
    /// Times this core did so for others.
    pub const SHOOTDOWNS_SERVICED: u64 = 15;
    /// Nanoseconds in which the core neither idled nor ran a domain: boot, the start of a core, and
    /// the end of what ran.
    pub const KERNEL_NS: u64 = 16;
    /// Number of counters.
    pub const COUNT: u64 = 17;
}
