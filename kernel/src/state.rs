//! The state of one core's kernel: everything that changes hangs off one [`Kernel`].
//!
//! Invariants: there is one per core and nobody else touches it; every event gets it as `&mut`,
//! changes it, and ends with a decision what runs next. Objects hang below it in pages of this core
//! (`objects`).

use crate::arch::paging;
use crate::boot::info::CoreInfo;
use crate::counters::Counters;
use crate::hardware;
use crate::memory::{USER_END, USER_START};
use crate::objects::device::Interrupts;
use crate::objects::frames::Frames;
use crate::objects::mapping::VaRange;
use crate::objects::remote::WakeSlots;
use crate::objects::writer::LogParts;
use crate::objects::{Context, Domain, Header, List, Pcore, Ptr, Ram, Range};
use crate::polling::Polling;
use crate::scheduler::Scheduler;
use crate::shared::Local;
use crate::trace::Trace;

/// Numbers of object types end before this.
pub const OBJECT_TYPES: usize = 16;

/// One core's kernel.
pub struct Kernel {
    /// What boot found out; `None` only in host tests.
    pub info: Option<&'static CoreInfo>,
    /// Physical pages.
    pub frames: Frames,
    /// The scheduler.
    pub scheduler: Scheduler,
    /// Counters of `CounterRead`.
    pub counters: Counters,
    /// Event trace.
    pub trace: Trace,
    /// The domains' parts of the log.
    pub(crate) log: LogParts,
    /// Wake slots given to contexts.
    pub wake_slots: WakeSlots,
    /// The targets of interrupts, and the claims of devices.
    pub interrupts: Interrupts,
    /// The part of the address space that domains may use.
    pub user_window: VaRange,
    /// The user space that is loaded.
    pub loaded: Option<Ptr<Range>>,
    /// The context whose FS and GS base the processor holds.
    pub bases_of: Option<Ptr<Context>>,
    /// The context whose vector registers the processor holds.
    pub vectors_of: Option<Ptr<Context>>,
    /// Whether user mode may touch them.
    pub vectors_open: bool,
    /// Objects alive.
    pub kernel_objects: u64,
    /// The same by `ObjectType`.
    pub(crate) objects_by_type: [u64; OBJECT_TYPES],
    /// Objects whose last reference was dropped.
    pub(crate) destroy_queue: List<Header>,
    /// Domains that nobody can name any more, or that died and have something left.
    pub(crate) ending: List<Domain, 0>,
    /// What represents shared objects here.
    pub(crate) shared: Local,
    /// The first domain of this core; with its end the core halts.
    pub first: Option<Ptr<Domain>>,
    /// Set when it has ended, until the core has halted.
    pub(crate) first_ended: bool,
    /// Number of the run, as core 0 counts.
    pub(crate) run: u32,
    /// If this is a kernel core: what it polls.
    pub(crate) polling: Option<Polling>,
    /// On core 0: the other cores that are claimed.
    pub(crate) claims: List<Pcore>,
    /// On core 0: it was said that all cores are up.
    pub(crate) is_complete: bool,
    root_ram: Option<Ptr<Ram>>,
    core: u64,
    sequence: u64,
}

impl Kernel {
    /// A kernel without memory.
    pub const fn new(core: usize, info: Option<&'static CoreInfo>) -> Kernel {
        Kernel {
            info,
            frames: Frames::new(),
            scheduler: Scheduler::new(),
            counters: Counters::new(),
            trace: Trace::new(),
            log: LogParts::new(),
            wake_slots: WakeSlots::new(),
            interrupts: Interrupts::new(),
            user_window: VaRange { start: USER_START, end: USER_END },
            loaded: None,
            bases_of: None,
            vectors_of: None,
            vectors_open: true,
            kernel_objects: 0,
            objects_by_type: [0; OBJECT_TYPES],
            destroy_queue: List::new(),
            ending: List::new(),
            shared: Local::new(),
            first: None,
            first_ended: false,
            run: 0,
            polling: None,
            claims: List::new(),
            is_complete: false,
            root_ram: None,
            core: core as u64,
            sequence: 0,
        }
    }

    /// Makes the root account once memory was added; `None` if there is none.
    pub fn make_root_ram(&mut self) -> Option<Ptr<Ram>> {
        self.root_ram = Some(Ram::new_root(self)?);
        self.root_ram
    }

    /// The account over all pages.
    pub fn root_ram(&self) -> Ptr<Ram> {
        self.root_ram.expect("made at start")
    }

    /// Which core this is.
    pub fn core(&self) -> usize {
        self.core as usize
    }

    pub(crate) fn next_id(&mut self) -> u64 {
        self.sequence += 1;
        self.core << 48 | self.sequence
    }

    /// Loads the kernel's own space, before the loaded one is destroyed.
    pub fn load_kernel_space(&mut self) {
        hardware::load_root(paging::kernel_root());
        self.loaded = None;
    }
}
