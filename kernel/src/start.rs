//! From a core that is ready to its first domain running, and back.
//!
//! Each core makes its root Ram from the memory boot gave it. Then core 0 commands what it runs
//! (`core_commands`): `sbin/monitor` from the boot archive, with the capabilities that
//! `abi::Handle` names, a program that core 0 passed, or nothing but polling (`polling`). The
//! kernel starts nothing else ever. When the first domain has ended, everything else of the core
//! has: it says so and idles, its memory as at its start, until it is commanded to run again. A
//! core tells core 0 its state by a word in its own memory and a wake bit; it writes no other
//! core's memory.

mod archive;
mod first;
mod monitor;
mod program;

use crate::arch::{instance, power};
use crate::boot::info::CoreInfo;
use crate::hardware::{self, CoreCommand, State, Used, machine};
use crate::memory::{PAGE, PAGE_BYTES, PhysRange, phys_to_virt};
use crate::objects::domain::Death;
use crate::objects::frames::AddError;
use crate::objects::pcore::{CORE_SLOT, Plan};
use crate::objects::ram::ROOT_PAGES;
use crate::objects::remote::WAKE_TABLE_PAGES;
use crate::objects::{Domain, Ptr, pcore};
use crate::state::Kernel;
use crate::steps::Budget;
use crate::{log, trace, trap};
use abi::pcore::runs;
use abi::{DeathCause, Error};

/// Status of a machine that cannot start.
const FAILED: u8 = 100;
/// Status of a first domain that hung.
const HUNG: u64 = 124;
/// Status of a first domain whose core was halted.
const HALTED: u64 = 0;

type Started = Result<(), &'static str>;
const NO_MEMORY: &str = "no memory for its first domain";

/// Called once per core when boot is done.
pub fn kernel_main(info: &'static CoreInfo) -> ! {
    let decision = trap::KERNEL.with(|slot| {
        let kernel = slot.insert(Kernel::new(info.core, Some(info)));
        if let Err(reason) = take_memory(kernel, info) {
            give_up(info.core, reason);
        }
        report_distant_memory(info);
        if info.core == 0 {
            kernel.begin(info, &Plan::NONE);
            kernel.report_if_complete(info);
        } else {
            kernel.follow_order();
        }
        kernel.drain_dead();
        kernel.decide()
    });
    trap::leave(decision)
}

fn give_up(core: usize, reason: &str) -> ! {
    log!("pelago: core {core} cannot start: {reason}");
    power::power_off(FAILED)
}

/// Says if this core's kernel or memory lies on other nodes than its own: a node has too little for
/// its cores then.
fn report_distant_memory(info: &CoreInfo) {
    let affinities = machine().facts.affinities.all();
    let own = || affinities.iter().filter(|affinity| affinity.node == info.node()).map(|affinity| affinity.range);
    let near = |range: PhysRange| own().map(|node| node.overlap_bytes(&range)).sum::<u64>();
    let kernel = [PhysRange::new(instance::kernel_root().0.0, PAGE_BYTES as u64), instance::image_of(info.core)];
    let parts = || info.ram.iter().copied().chain(kernel);
    let distant: u64 = parts().map(|range| range.bytes - near(range)).sum();
    if !affinities.is_empty() && distant > 0 {
        let (core, node, kib) = (info.core, info.node(), distant >> 10);
        log!("pelago: {kib} KiB of core {core}'s memory are not of its node {node}");
    }
}

/// The root Ram, and the tables the kernel itself needs.
fn take_memory(kernel: &mut Kernel, info: &CoreInfo) -> Result<(), &'static str> {
    for range in info.ram {
        match kernel.frames.add(*range) {
            // A range of a page or two is not worth its tables.
            Ok(()) | Err(AddError::Small) => (),
            Err(AddError::Full | AddError::Overlap) => return Err("boot gave it overlapping memory"),
        }
    }
    kernel.make_root_ram().ok_or("it has no memory")?;
    let ring = kernel.frames.allocate_run(trace::PAGES).ok_or("its memory is too small")?;
    kernel.trace.set_ring(ring);
    let table = kernel.frames.allocate_run(WAKE_TABLE_PAGES).ok_or("its memory is too small")?;
    kernel.wake_slots.set_table(table);
    Ok(())
}

/// The boot archive's bytes.
fn archive_bytes(info: &CoreInfo) -> Result<&'static [u8], &'static str> {
    let range = info.archive.ok_or("there is no boot archive; give one with -initrd")?;
    // SAFETY: boot checked that it is RAM of the direct map, reserved it and never writes it.
    Ok(unsafe { core::slice::from_raw_parts(phys_to_virt(range.base), range.bytes as usize) })
}

impl Kernel {
    /// Whether the range lies in memory that was given to some core, or in the boot archive.
    pub fn is_ram(&self, range: PhysRange) -> bool {
        let archive = self.info.and_then(|info| info.archive).map(|archive| {
            let first = archive.base.0 / PAGE * PAGE;
            PhysRange::new(first, archive.end().0.next_multiple_of(PAGE) - first)
        });
        self.is_core_memory(range) || archive.is_some_and(|archive| archive.covers(&range))
    }

    /// Whether the range lies in memory that was given to some core.
    pub fn is_core_memory(&self, range: PhysRange) -> bool {
        let Some(info) = self.info else { return false };
        machine().shares[..info.cores.len()].iter().flat_map(|share| &share.ram).any(|whole| whole.covers(&range))
    }

    /// Handles the doorbell for changes of states and commands: on core 0 of some other core's
    /// state, elsewhere of this core's command.
    pub fn on_core_slot(&mut self) {
        match self.info {
            Some(info) if info.core == 0 => {
                self.report_if_complete(info);
                pcore::cores_changed(self);
            }
            _ => self.follow_order(),
        }
    }

    /// Core 0, once: all cores run for the first time.
    fn report_if_complete(&mut self, info: &CoreInfo) {
        let cores = info.cores.len();
        if !self.is_complete && (0..cores).all(|core| hardware::core_state(core).is_running()) {
            self.is_complete = true;
            log!("pelago: {cores} cores up");
        }
    }

    /// Carries out core 0's command, if this core has not done so.
    fn follow_order(&mut self) {
        let state = hardware::core_state(self.core());
        match (hardware::core_command(self.core()), self.first, self.info) {
            (CoreCommand::Run(run, plan), None, Some(info)) if state != State::Halted(run) => {
                self.begin(info, &Plan::at(plan))
            }
            (CoreCommand::Halt(run), Some(_), _) if run == self.run => self.end_first(HALTED),
            // Commanded to halt before it began.
            (CoreCommand::Halt(run), None, _) if state != State::Halted(run) => {
                self.run = run;
                self.tell_state(State::Halted(run));
            }
            _ => (),
        }
    }

    /// Makes the first domain. A core other than core 0 that cannot says so and halts.
    fn begin(&mut self, info: &'static CoreInfo, plan: &Plan) {
        self.run = plan.run;
        hardware::set_used(|_| Used::NONE);
        let is_monitor = plan.runs() == runs::MONITOR;
        let link = plan.parts[0].map(|part| (part.base, part.pages));
        let started = if is_monitor { monitor::start(self, info, link) } else { program::start(self, plan) };
        self.tell_state(State::Running(self.run));
        if let Err(reason) = started {
            if self.core() == 0 {
                give_up(0, reason);
            }
            log!("pelago: core {} cannot start: {reason}", self.core());
            match self.first {
                Some(_) => self.end_first(HALTED),
                None => self.halted(),
            }
        }
    }

    fn tell_state(&mut self, state: State) {
        hardware::set_core_state(state);
        if self.core() != 0 {
            hardware::post(0, CORE_SLOT);
        }
    }

    /// Halts this core by a call of its own. `BadArgument`: core 0 keeps the machine together.
    pub fn halt_here(&mut self) -> Result<(), Error> {
        if self.core() == 0 {
            return Err(Error::BadArgument);
        }
        self.end_first(HALTED);
        Ok(())
    }

    fn end_first(&mut self, status: u64) {
        if let Some(first) = self.first {
            self.kill(first, Death::by_call(DeathCause::Killed, status));
        }
    }

    /// Ends this core's first domain, which hangs: nobody else watches it.
    pub fn end_hung_first(&mut self) {
        self.end_first(HUNG);
    }

    /// Handles the end of this core's first domain: core 0 ends the machine with its status,
    /// another core halts once all is destroyed.
    pub fn first_domain_ended(&mut self, first: Ptr<Domain>) {
        let state = first.state();
        let is_asked = [DeathCause::Exit, DeathCause::Killed].iter().any(|cause| *cause as u64 == state.cause);
        if !is_asked || state.status == HUNG || self.core() == 0 {
            log!("pelago: first domain of core {} ended, cause {} status {}", self.core(), state.cause, state.status);
        }
        if self.core() == 0 {
            power::power_off(state.status.min(255) as u8 | u8::from(state.cause != DeathCause::Exit as u64));
        }
        self.first_ended = true;
    }

    /// Halts this core after all of the first domain is destroyed. Only the root account is left;
    /// anything else is a defect, which the log tells.
    pub(crate) fn halted(&mut self) {
        self.first_ended = false;
        self.polling = None;
        if let Some(first) = self.first.take() {
            self.has_ended(first);
            self.release(first);
            self.destroy_queued(&mut Budget::all());
        }
        self.drain_waking();
        self.scheduler.disarm_timer();
        let (objects, pages) = (self.kernel_objects - 1, self.root_ram().used() - ROOT_PAGES);
        if (objects, pages) != (0, 0) {
            log!("pelago: core {} halts with {objects} objects and {pages} pages left", self.core());
        }
        self.tell_state(State::Halted(self.run));
    }
}

#[cfg(test)]
#[path = "start_tests.rs"]
mod tests;
