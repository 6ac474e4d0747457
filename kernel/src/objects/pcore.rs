//! Pcore: a core, as an object. Every core's first domain may have its own; those of other cores
//! are claims on core 0, which has the pool of cores.
//!
//! Invariants: a core is claimed at most once; a claim holds itself from the command to run until
//! the core says that it has halted, so its plan and the segments that the core uses stay that
//! long, whatever becomes of its capabilities. When the last of those is dropped, core 0 commands
//! it to halt. The plan changes only while the core is halted. Core 0 writes nothing of another
//! core, and the other way round: see `core_commands`.

use super::mapping::PageRun;
use super::notification::Notification;
use super::remote::SHARED_SLOT;
use super::segment::Segment;
use super::slot::{Capability, Source};
use super::{Header, Link, Made, Object, Ptr, Ram, Slot, linked};
use crate::hardware::{self, CoreCommand, State};
use crate::memory::{PAGE_BYTES, PhysAddr, phys_to_virt};
use crate::state::Kernel;
use abi::layout::WAKE_SLOTS;
use abi::pcore::{DEVICES_MAX, SEGMENTS_MAX, runs};
use abi::{Error, ObjectType, Rights};
use core::cell::Cell;
use core::ptr::NonNull;

/// The doorbell by which core 0 learns that a core's state changed, and another core that its
/// command did.
pub const CORE_SLOT: usize = WAKE_SLOTS as usize - 1;
const _: () = assert!(SHARED_SLOT + 1 == CORE_SLOT && CORE_SLOT + 1 == WAKE_SLOTS as usize, "the last two");

/// A core.
#[repr(C)]
pub struct Pcore {
    header: Header,
    /// Which one.
    pub core: usize,
    /// Id of the domain that claimed it.
    claimant: u64,
    claim: Option<Ptr<Claim>>,
    claims: Link<Pcore>,
}

// SAFETY: repr(C), header first.
unsafe impl Object for Pcore {
    const TYPE: ObjectType = ObjectType::Pcore;
}

linked!(Pcore, 0: claims);

/// Contiguous memory that a started core can access.
#[derive(Clone, Copy)]
pub struct Part {
    /// First byte.
    pub base: PhysAddr,
    /// Length.
    pub pages: u64,
    /// Of the capability for it.
    pub rights: Rights,
    /// Where it is mapped, and how.
    pub mapped: Option<(PageRun, u64)>,
}

/// What a kernel core polls.
#[derive(Clone, Copy)]
pub enum Polled {
    /// A ring of calls in so many pages.
    Ring {
        /// Its first byte.
        base: PhysAddr,
        /// Its length.
        pages: u64,
    },
    /// A word that a device writes, and the wake slot to post at each change.
    Word {
        /// Where it is.
        at: PhysAddr,
        /// Told by its mailbox,
        core: usize,
        /// in this slot.
        slot: usize,
    },
}

/// What a core is to run; it copies it from core 0's memory.
#[derive(Clone, Copy)]
pub struct Plan {
    /// Number of the run.
    pub run: u32,
    /// First instruction; 0: the monitor.
    pub entry: u64,
    /// Stack pointer.
    pub stack: u64,
    /// First argument.
    pub argument: u64,
    /// Of the first domain to its own core and root Ram.
    pub rights: Rights,
    /// Its segments.
    pub parts: [Option<Part>; SEGMENTS_MAX],
    /// What it polls; a kernel core if it polls anything.
    pub devices: [Option<Polled>; DEVICES_MAX],
}

impl Plan {
    /// Nothing to run.
    pub const NONE: Plan = Plan {
        run: 0,
        entry: 0,
        stack: 0,
        argument: 0,
        rights: Rights(0),
        parts: [None; SEGMENTS_MAX],
        devices: [None; DEVICES_MAX],
    };

    /// What that is: of `abi::pcore::runs`.
    pub fn runs(&self) -> u64 {
        match (self.devices.iter().any(Option::is_some), self.entry) {
            (true, _) => runs::KERNEL_CORE,
            (false, 0) => runs::MONITOR,
            (false, _) => runs::PROGRAM,
        }
    }

    /// The plan at an address that a command gave.
    pub fn at(address: PhysAddr) -> Plan {
        // SAFETY: core 0 wrote a plan there before it gave the order, and leaves it alone until
        // this core has halted.
        unsafe { phys_to_virt(address).cast::<Plan>().read() }
    }
}

/// The stage of a claimed core, as core 0 knows it; the number is that of the run.
///
/// | from | by what | to |
/// |---|---|---|
/// | `Idle` | `run` sends the command; the claim holds itself | `Commanded` |
/// | `Commanded` | the core says that it runs | `Runs` |
/// | `Commanded`, `Runs` | the core says that the run is over; the claim is released | `Idle` |
///
/// `set_stage` asserts that a change is one of these.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    Commanded(u32),
    Runs(u32),
}

/// The part of a claim that other cores read, and what the claim keeps; a page of its own.
#[repr(C)]
struct Claim {
    plan: Cell<Plan>,
    stage: Cell<Stage>,
    is_to_halt: Cell<bool>,
    watcher: Slot,
    parts: [Slot; SEGMENTS_MAX],
    devices: [Slot; DEVICES_MAX],
    frame: PhysAddr,
}
const _: () = assert!(size_of::<Claim>() <= PAGE_BYTES && core::mem::offset_of!(Claim, plan) == 0);

impl Claim {
    fn set_stage(&self, stage: Stage) {
        use Stage::*;
        let before = self.stage.replace(stage);
        assert!(
            matches!((before, stage), (Idle, Commanded(_)) | (Commanded(_) | Runs(_), Idle))
                || matches!((before, stage), (Commanded(run), Runs(now)) if run == now),
            "a change of stage that no core makes"
        );
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.parts.iter().chain(&self.devices)
    }
}

impl Pcore {
    /// The core on which it is; the header comes from `Kernel::create`.
    pub fn own(header: Header, core: usize) -> Pcore {
        Pcore { header, core, claimant: 0, claim: None, claims: Link::new() }
    }

    fn claim(&self) -> Result<Ptr<Claim>, Error> {
        self.claim.ok_or(Error::BadArgument)
    }

    /// The claim of a core that is halted.
    fn idle_claim(&self) -> Result<Ptr<Claim>, Error> {
        let claim = self.claim()?;
        if claim.stage.get() == Stage::Idle { Ok(claim) } else { Err(Error::Busy) }
    }

    fn claimed(kernel: &Kernel, core: usize) -> Option<Ptr<Pcore>> {
        let first = kernel.claims.first();
        core::iter::successors(first, |pcore| pcore.claims.next()).find(|pcore| pcore.core == core)
    }

    /// Whether a core runs. On core 0 a claimed one does from the command to run until core 0 has
    /// learnt that it has halted.
    pub fn runs(kernel: &Kernel, core: usize) -> bool {
        hardware::core_state(core).is_running() || Pcore::claimed(kernel, core).is_some_and(|pcore| !pcore.is_frozen())
    }

    /// What a core runs, as core 0 knows (`abi::pcore::runs`), and the id of the domain that
    /// claimed it; 0: nobody.
    pub fn used_by(kernel: &Kernel, core: usize) -> (u64, u64) {
        let Some(pcore) = Pcore::claimed(kernel, core) else {
            return (if core == kernel.core() { runs::MONITOR } else { runs::NOTHING }, 0);
        };
        let what = match pcore.claim {
            Some(claim) if claim.stage.get() != Stage::Idle => claim.plan.get().runs(),
            _ => runs::NOTHING,
        };
        (what, pcore.claimant)
    }

    /// Claims a core of the pool for the domain of id `claimant`; the caller holds the one
    /// reference.
    pub fn new_claim(kernel: &mut Kernel, ram: Ptr<Ram>, core: usize, claimant: u64) -> Made<Pcore> {
        if Pcore::claimed(kernel, core).is_some() {
            return Err(Error::Busy);
        }
        let frame = kernel.allocate_page(ram)?;
        let place = NonNull::new(phys_to_virt(frame).cast::<Claim>()).expect("the direct map is not at zero");
        let claim = Claim {
            plan: Cell::new(Plan::NONE),
            stage: Cell::new(Stage::Idle),
            is_to_halt: Cell::new(false),
            watcher: Slot::new(),
            parts: [const { Slot::new() }; SEGMENTS_MAX],
            devices: [const { Slot::new() }; DEVICES_MAX],
            frame,
        };
        // SAFETY: a fresh page, large enough; it is given back with the Pcore, whose alone it is.
        let claim = unsafe {
            place.write(claim);
            Ptr::new(place)
        };
        let new = |header| Pcore { header, core, claimant, claim: Some(claim), claims: Link::new() };
        let made = kernel.create(ram, new);
        match made {
            Ok(pcore) => kernel.claims.push_back(pcore),
            Err(_) => kernel.free_page(ram, frame),
        }
        made
    }
}

impl Ptr<Pcore> {
    /// Whether the core can be run now.
    pub fn check_idle(self) -> Result<(), Error> {
        self.idle_claim().map(drop)
    }

    /// Adds to what the core polls when it runs next.
    pub fn add_polled(self, kernel: &mut Kernel, polled: Polled, segment: Source) -> Result<usize, Error> {
        let claim = self.idle_claim()?;
        let mut plan = claim.plan.get();
        let index = plan.devices.iter().position(Option::is_none).ok_or(Error::Busy)?;
        plan.devices[index] = Some(polled);
        claim.plan.set(plan);
        kernel.keep(&claim.devices[index], Some(segment.1), Some(segment.0));
        Ok(index)
    }

    /// Runs a halted core as `plan` says; the devices are those added before. Holds `segments`
    /// until it has halted.
    pub fn run(self, kernel: &mut Kernel, plan: Plan, segments: &[Option<Source>; SEGMENTS_MAX]) {
        let Ok(claim) = self.idle_claim() else { unreachable!("decoded") };
        let state = hardware::core_state(self.core);
        let run = state.next_run();
        claim.plan.set(Plan { run, devices: claim.plan.get().devices, ..plan });
        for (slot, source) in claim.parts.iter().zip(segments) {
            kernel.keep(slot, source.map(|(_, capability)| capability), source.map(|(from, _)| from));
        }
        claim.set_stage(Stage::Commanded(run));
        claim.is_to_halt.set(false);
        kernel.retain(self);
        hardware::send_core_command(self.core, CoreCommand::Run(run, claim.frame));
        match state {
            State::Never => hardware::start_core(self.core),
            _ => hardware::post(self.core, CORE_SLOT),
        }
    }

    /// Commands a claimed core to halt; it says when it has.
    pub fn halt(self) -> Result<(), Error> {
        let claim = self.claim()?;
        let run = match claim.stage.get() {
            Stage::Commanded(run) | Stage::Runs(run) if !claim.is_to_halt.replace(true) => run,
            _ => return Ok(()),
        };
        hardware::send_core_command(self.core, CoreCommand::Halt(run));
        // A core that still starts misses the doorbell, but says when it runs: `cores_changed`.
        hardware::post(self.core, CORE_SLOT);
        Ok(())
    }

    /// Sets the notification for when the core runs and when it has halted.
    pub fn watch(self, kernel: &mut Kernel, target: Source) -> Result<(), Error> {
        let claim = self.claim()?;
        kernel.keep(&claim.watcher, Some(target.1), Some(target.0));
        Ok(())
    }

    /// Halts a core whose last capability was dropped: nobody else could.
    pub(super) fn lost_name(self) {
        if self.claim.is_some() && self.header.capabilities.is_empty() {
            self.halt().expect("it is a claim");
        }
    }

    /// Whether nothing runs there; the destruction of a claim waits for that.
    pub(super) fn is_frozen(self) -> bool {
        self.claim.is_none_or(|claim| claim.stage.get() == Stage::Idle)
    }

    /// Follows what the core says of its state.
    fn follow(self, kernel: &mut Kernel, claim: Ptr<Claim>) {
        match (claim.stage.get(), hardware::core_state(self.core)) {
            (Stage::Commanded(run), State::Running(now)) if run == now => {
                claim.set_stage(Stage::Runs(run));
                if claim.is_to_halt.get() {
                    hardware::post(self.core, CORE_SLOT);
                }
                tell_watcher(kernel, claim);
            }
            (Stage::Commanded(run) | Stage::Runs(run), State::Halted(now)) if run == now => {
                claim.set_stage(Stage::Idle);
                claim.plan.set(Plan::NONE);
                for slot in claim.slots() {
                    kernel.keep(slot, None, None);
                }
                tell_watcher(kernel, claim);
                kernel.release(self);
            }
            _ => (),
        }
    }
}

/// Core 0: handles changes of other cores' states.
pub fn cores_changed(kernel: &mut Kernel) {
    let mut next = kernel.claims.first();
    while let Some(pcore) = next {
        next = pcore.claims.next();
        if let Some(claim) = pcore.claim {
            pcore.follow(kernel, claim);
        }
    }
}

fn tell_watcher(kernel: &mut Kernel, claim: Ptr<Claim>) {
    if let Some(notification) = Notification::kept(&claim.watcher) {
        notification.send(kernel);
    }
}

/// A segment as another core can access it.
pub fn decode_run(segment: Ptr<Segment>, capability: Capability) -> Result<(PhysAddr, u64), Error> {
    if !capability.rights.contains(Rights::DMA) {
        return Err(Error::NoRights);
    }
    let base = segment.base().filter(|_| segment.is_ram()).ok_or(Error::BadArgument)?;
    Ok((base, segment.pages()))
}

pub(super) fn destroy(kernel: &mut Kernel, pcore: Ptr<Pcore>) {
    let Some(claim) = pcore.claim else { return };
    assert!(claim.stage.get() == Stage::Idle, "a claim holds itself while its core runs");
    kernel.keep(&claim.watcher, None, None);
    for slot in claim.slots() {
        kernel.keep(slot, None, None);
    }
    kernel.claims.remove(pcore);
    kernel.free_page(pcore.ram(), claim.frame);
}
