//! What a core does from its memory to its first domain and back, on cores that a test plays.

#[path = "start/monitor_tests.rs"]
mod monitor;

use super::*;
use crate::arch::context::Event;
use crate::boot::acpi::Affinity;
use crate::boot::info::CoreEntry;
use crate::hardware::Layout;
use crate::memory::{PhysAddr, set_test_ram};
use crate::objects::fault::Access;
use crate::objects::mapping::PageRun;
use crate::objects::pcore::{Part, Polled};
use crate::objects::share::Capability;
use crate::objects::{Context, Pcore, Segment};
use crate::scheduler::Decision;
use crate::tests::machine::{self, Played};
use abi::layout::{self, protection};
use abi::{ExceptionInfo, Handle, Rights};
use std::panic::{AssertUnwindSafe, catch_unwind};

const CORE: usize = 2;
const CORES: [CoreEntry; hardware::CORES] = [CoreEntry { apic_id: 0, node: 0 }; hardware::CORES];
/// RAM of a core that has enough.
const PAGES: u64 = 400;
/// Memory behind it, which other cores have: a page for a plan, then what a plan passes, or an
/// archive.
const OTHERS_PAGES: u64 = 64;
/// Of the first serial port: what is said.
const SERIAL: u16 = 0x3f8;
const READ: u64 = protection::READ;
const OPEN: u64 = protection::READ | protection::WRITE;

/// A file as a boot archive has it; its name ends with so many zeros more than one.
pub(super) fn file(name: &str, padding: usize, contents: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let fields = [0, 0o100644, 0, 0, 1, 0, contents.len(), 0, 0, 0, 0, name.len() + 1 + padding, 0];
    bytes.extend(b"070701");
    fields.iter().for_each(|field| bytes.extend(format!("{field:08x}").bytes()));
    bytes.extend(name.bytes());
    bytes.resize(bytes.len() + 1 + padding, 0);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.extend(contents);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// A core whose kernel has its memory.
struct Core {
    kernel: Box<Kernel>,
    info: &'static CoreInfo,
    /// Pages that are free while it runs nothing.
    free: u64,
    /// Of memory that others have.
    others: PhysAddr,
    _memory: Vec<u128>,
}

impl Core {
    fn new(core: usize) -> Core {
        Core::with(core, PAGES, |_| ())
    }

    /// One with so many pages, of which boot tells what `change` makes of it.
    fn with(core: usize, pages: u64, change: impl FnOnce(&mut CoreInfo)) -> Core {
        let mut memory = vec![0u128; ((pages + OTHERS_PAGES + 2) * PAGE / 16) as usize];
        let offset = memory.as_ptr().cast::<u8>().align_offset(PAGE_BYTES);
        set_test_ram(memory.as_mut_ptr().cast::<u8>().wrapping_add(offset));
        // Page 0 plays the kernel's own root table.
        let ram = Vec::leak(vec![PhysRange::new(PAGE, pages * PAGE)]);
        let mut info = CoreInfo {
            core,
            cores: &CORES,
            ram,
            archive: None,
            command_line: "",
            devices: &[],
            tsc_hz: 1,
            boot_tsc: 0,
        };
        change(&mut info);
        let info: &'static CoreInfo = Box::leak(Box::new(info));
        let mut kernel = Box::new(Kernel::new(core, Some(info)));
        take_memory(&mut kernel, info).unwrap();
        hardware::set_this_core(core);
        hardware::posted();
        said();
        Core { free: kernel.frames.free(), kernel, info, others: PhysAddr((pages + 1) * PAGE), _memory: memory }
    }

    /// Core 0 commands it to run a plan, and wakes it.
    fn run(&mut self, plan: Plan) {
        machine::write(self.others, &[plan]);
        self.command(CoreCommand::Run(plan.run, self.others));
    }

    fn command(&mut self, command: CoreCommand) {
        let state = hardware::core_state(self.kernel.core());
        hardware::send_core_command(self.kernel.core(), command);
        // It has not come to it yet.
        hardware::set_state_of(self.kernel.core(), state);
        self.kernel.on_core_slot();
    }

    fn state(&self) -> State {
        hardware::core_state(self.kernel.core())
    }

    fn first(&self) -> Ptr<Domain> {
        self.kernel.first.expect("it has a first domain")
    }

    fn context(&self) -> Ptr<Context> {
        self.first().contexts.first().expect("it has a context")
    }

    /// What its first domain reads there.
    fn read(&mut self, address: u64, bytes: u64) -> Vec<u8> {
        let range = self.first().range();
        let read = |at| {
            let frame = range.resolve(&mut self.kernel, at / PAGE * PAGE, Access::Read).unwrap();
            machine::read(frame + at % PAGE)
        };
        (address..address + bytes).map(read).collect()
    }

    /// What is mapped there: first address, pages, protection.
    fn mapped(&self, address: u64) -> Option<(u64, u64, u64)> {
        let mapping = self.first().range().at(address)?;
        assert_eq!(mapping.protection(), mapping.allowed());
        Some((mapping.start(), mapping.pages(), mapping.protection()))
    }

    fn capability(&self, handle: Handle) -> Option<Capability> {
        self.first().share().get(handle).ok()
    }

    fn segment(&self, handle: Handle) -> (Ptr<Segment>, Rights) {
        let capability = self.capability(handle).expect("a capability");
        (capability.object.cast().expect("a segment"), capability.rights)
    }

    /// Until nothing that died is left.
    fn settle(&mut self) {
        while !self.kernel.destroy_queue.is_empty() || !self.kernel.ending.is_empty() {
            self.kernel.drain_dead();
        }
        self.kernel.drain_dead();
    }

    /// All that it had at its start is there again, and nothing more.
    fn assert_as_at_its_start(&self) {
        assert_eq!((self.kernel.kernel_objects, self.kernel.root_ram().used()), (1, ROOT_PAGES));
        assert_eq!(self.kernel.frames.free(), self.free);
        assert!(self.kernel.first.is_none());
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        hardware::set_this_core(0);
        set_test_ram(core::ptr::null_mut());
    }
}

/// The lines on the serial port since the last question.
fn said() -> Vec<String> {
    let writes = hardware::take_port_writes().into_iter().filter(|(port, _)| *port == SERIAL);
    let text: String = writes.map(|(_, byte)| char::from(byte)).collect();
    text.lines().map(String::from).collect()
}

/// What was said before the machine ended, and the status it ended with.
fn powers_off(f: impl FnOnce()) -> (Vec<String>, u8) {
    said();
    assert!(catch_unwind(AssertUnwindSafe(f)).is_err(), "the machine goes on");
    let mut writes = hardware::take_port_writes();
    let [(0xf4, status), (0x64, 0xfe)] = writes[writes.len() - 2..] else { panic!("not ended: {writes:?}") };
    writes.retain(|(port, _)| *port == SERIAL);
    let text: String = writes.into_iter().map(|(_, byte)| char::from(byte)).collect();
    let mut lines: Vec<_> = text.lines().map(String::from).collect();
    assert_eq!(lines.pop(), Some(format!("pelago: exit {status}")));
    (lines, status)
}

/// A program that begins at an address.
fn program(run: u32) -> Plan {
    Plan { run, entry: 0x40_0000, stack: 0x50_0000, argument: 77, ..Plan::NONE }
}

#[test]
fn a_core_takes_the_memory_that_boot_gave_it() {
    let core = Core::new(CORE);
    let all = core.kernel.frames.total();
    assert_eq!(all - core.free, ROOT_PAGES + trace::PAGES + WAKE_TABLE_PAGES);
    let take = |ranges: &[(u64, u64)]| {
        let ranges: Vec<_> = ranges.iter().map(|(page, pages)| PhysRange::new(page * PAGE, pages * PAGE)).collect();
        let mut kernel = Kernel::new(CORE, None);
        take_memory(&mut kernel, &CoreInfo { ram: Vec::leak(ranges), ..*core.info }).map(|()| kernel.frames.total())
    };
    let half = take(&[(1, 200)]).unwrap();
    assert_eq!(take(&[(1, 200), (201, 200)]), Ok(2 * half));
    assert_eq!(take(&[(1, 200), (300, 1)]), Ok(half), "a page is not worth its tables");
    assert_eq!(take(&[(1, 200), (200, 200)]), Err("boot gave it overlapping memory"));
    assert_eq!(take(&[(1, 1)]), Err("it has no memory"));
    assert_eq!(take(&[]), Err("it has no memory"));
    let few = trace::PAGES + WAKE_TABLE_PAGES;
    for pages in [4, few] {
        assert_eq!(take(&[(1, pages)]), Err("its memory is too small"));
    }
}

#[test]
fn memory_on_another_node_than_the_core_is_told() {
    const IMAGE_BYTES: u64 = 64 << 10;
    let info = |core, cores, at: u64, bytes: u64| CoreInfo {
        core,
        cores,
        ram: Vec::leak(vec![PhysRange::new(at, bytes)]),
        ..*Core::new(CORE).info
    };
    let cores = &[CoreEntry { apic_id: 0, node: 5 }, CoreEntry { apic_id: 1, node: 6 }];
    let cases = [
        // The kernel's root table lies at 0.
        (0, 1 << 20, 2 << 20, None),
        (0, 6 << 20, 4 << 20, Some(2 << 10)),
        (1, 10 << 20, 4 << 20, Some(4)),
        (1, 7 << 20, 4 << 20, Some((1 << 10) + 4)),
    ];
    for has_nodes in [false, true] {
        let _machine = Played::new(|machine| {
            machine.shares[0].image = PhysAddr(4 << 20);
            machine.shares[1].image = PhysAddr(9 << 20);
            if has_nodes {
                for (node, first) in [(5, 0), (6, 8 << 20)] {
                    machine.facts.affinities.push(Affinity { range: PhysRange::new(first, 8 << 20), node });
                }
            }
        });
        let shared_end = 0x1000 + IMAGE_BYTES;
        hardware::set_image(Some((Layout { image_start: 0x1000, shared_end, ..Layout::default() }, PhysAddr(0))));
        for (core, at, bytes, kib) in cases {
            let info = info(core, cores, at, bytes);
            said();
            report_distant_memory(&info);
            let node = info.node();
            let told = kib.map(|kib| format!("pelago: {kib} KiB of core {core}'s memory are not of its node {node}"));
            assert_eq!(said(), Vec::from_iter(told.filter(|_| has_nodes)));
        }
    }
}

#[test]
fn memory_of_cores_and_the_archive_are_ram_and_nothing_else_is() {
    let share = |page: u64, pages: u64| PhysRange::new(page * PAGE, pages * PAGE);
    let _machine = Played::new(|machine| {
        machine.shares[0].ram[0] = share(100, 10);
        machine.shares[1].ram[..2].copy_from_slice(&[share(200, 10), share(220, 10)]);
        machine.shares[2].ram[0] = share(300, 10);
    });
    let mut kernel = Kernel::new(0, None);
    assert!(!kernel.is_ram(share(100, 1)) && !kernel.is_core_memory(share(100, 1)));
    let archive = Some(PhysRange::new(400 * PAGE + 100, 3 * PAGE));
    let of = |archive| CoreInfo { cores: &CORES[..2], archive, ..*Core::new(CORE).info };
    let without: &'static CoreInfo = Box::leak(Box::new(of(None)));
    let with: &'static CoreInfo = Box::leak(Box::new(of(archive)));
    for (range, is_memory, is_archive) in [
        (share(100, 10), true, false),
        (share(209, 1), true, false),
        (share(220, 1), true, false),
        (share(99, 2), false, false),
        (share(209, 2), false, false),
        (share(300, 1), false, false),
        // All pages that it touches.
        (share(400, 4), false, true),
        (share(403, 1), false, true),
        (share(399, 1), false, false),
        (share(399, 2), false, false),
        (share(404, 1), false, false),
        (share(400, 5), false, false),
    ] {
        kernel.info = Some(with);
        assert_eq!(kernel.is_core_memory(range), is_memory, "{range:x?}");
        assert_eq!(kernel.is_ram(range), is_memory || is_archive, "{range:x?}");
        kernel.info = Some(without);
        assert_eq!(kernel.is_ram(range), is_memory, "{range:x?}");
    }
}

#[test]
fn core_0_says_once_that_all_cores_run() {
    let mut core = Core::new(0);
    let up = [format!("pelago: {} cores up", hardware::CORES)];
    for number in 0..hardware::CORES {
        core.kernel.on_core_slot();
        assert_eq!(said(), [""; 0]);
        hardware::set_state_of(number, State::Running(1));
    }
    core.kernel.on_core_slot();
    assert_eq!(said(), up);
    hardware::set_state_of(1, State::Halted(1));
    core.kernel.on_core_slot();
    hardware::set_state_of(1, State::Running(2));
    core.kernel.on_core_slot();
    assert_eq!(said(), [""; 0]);
}

#[test]
fn a_core_does_each_command_once_and_says_what_it_did() {
    let mut core = Core::new(CORE);
    let told = Some((0, CORE_SLOT));
    hardware::set_used_of(CORE, |_| Used::NONE.begin(5));
    for run in [1, 2] {
        core.run(program(run));
        assert_eq!((core.state(), hardware::posted()), (State::Running(run), told));
        assert_eq!(hardware::used_ns(CORE, 100), 0, "the time of each run is counted anew");
        let first = core.first();
        core.kernel.on_core_slot();
        assert!(core.first() == first && first.is_alive() && hardware::posted().is_none(), "it does so already");
        assert!(matches!(core.kernel.decide(), Decision::Resume(_)));
        core.command(CoreCommand::Halt(run));
        assert!(!first.is_alive());
        assert_eq!((core.state(), hardware::posted()), (State::Running(run), None), "not before all is destroyed");
        core.settle();
        assert_eq!((core.state(), hardware::posted()), (State::Halted(run), told));
        core.assert_as_at_its_start();
        core.kernel.on_core_slot();
        assert_eq!((core.state(), hardware::posted()), (State::Halted(run), None));
    }
    assert_eq!(said(), [""; 0]);
}

#[test]
fn a_command_to_halt_ends_its_run_and_no_other() {
    let mut core = Core::new(CORE);
    // It comes before the core has begun the run.
    hardware::send_core_command(CORE, CoreCommand::Run(1, core.others));
    hardware::set_state_of(CORE, State::Never);
    core.command(CoreCommand::Halt(1));
    assert_eq!((core.state(), core.kernel.run, hardware::posted()), (State::Halted(1), 1, Some((0, CORE_SLOT))));
    core.kernel.on_core_slot();
    assert_eq!((core.state(), hardware::posted()), (State::Halted(1), None), "once");
    core.assert_as_at_its_start();
    // It ended by itself, and is told to halt all the same.
    core.run(program(2));
    core.kernel.kill(core.first(), Death::by_call(DeathCause::Exit, 0));
    core.settle();
    assert_eq!((core.state(), hardware::posted()), (State::Halted(2), Some((0, CORE_SLOT))));
    core.kernel.on_core_slot();
    assert_eq!((core.state(), hardware::posted()), (State::Halted(2), None), "the command to run is done");
    core.command(CoreCommand::Halt(2));
    assert_eq!((core.state(), hardware::posted()), (State::Halted(2), None));
    // The run that it has is not the one of the command.
    core.run(program(3));
    core.kernel.run = 4;
    core.command(CoreCommand::Halt(3));
    assert!(core.first().is_alive());
}

#[test]
fn a_core_halts_itself_by_a_call_unless_it_is_core_0() {
    let mut core = Core::new(CORE);
    core.run(program(1));
    assert_eq!(core.kernel.halt_here(), Ok(()));
    core.settle();
    assert_eq!((core.state(), said()), (State::Halted(1), vec![]));
    core.assert_as_at_its_start();
    let mut core = Core::new(0);
    assert_eq!(core.kernel.halt_here(), Err(Error::BadArgument));
}

#[test]
fn an_end_that_nobody_asked_for_is_told() {
    let mut core = Core::new(CORE);
    let exception = Death::by_call(DeathCause::Exception, 3);
    for (run, end, told) in [
        (1, None, Some((DeathCause::Killed, 124))),
        (2, Some(Death::by_call(DeathCause::Exit, 0)), None),
        (3, Some(Death::by_call(DeathCause::Exit, 9)), None),
        (4, Some(Death::by_call(DeathCause::Killed, 9)), None),
        (5, Some(exception), Some((DeathCause::Exception, 3))),
        (6, Some(Death::by_call(DeathCause::Exit, 124)), Some((DeathCause::Exit, 124))),
    ] {
        core.run(program(run));
        match end {
            Some(death) => core.kernel.kill(core.first(), death),
            None => core.kernel.end_hung_first(),
        }
        assert!(!core.first().is_alive());
        let line = told.map(|(cause, status)| {
            format!("pelago: first domain of core {CORE} ended, cause {} status {status}", cause as u64)
        });
        core.settle();
        assert_eq!(said(), Vec::from_iter(line));
        assert_eq!(core.state(), State::Halted(run));
        core.assert_as_at_its_start();
    }
}

#[test]
fn the_machine_ends_with_the_first_domain_of_core_0() {
    for (cause, status, ends_with) in [
        (DeathCause::Exit, 0, 0),
        (DeathCause::Exit, 6, 6),
        (DeathCause::Exit, 256, 255),
        (DeathCause::Exit, u64::MAX, 255),
        (DeathCause::Killed, 6, 7),
        (DeathCause::Killed, 7, 7),
        (DeathCause::Exception, 0, 1),
    ] {
        let mut core = Core::new(0);
        program::start(&mut core.kernel, &program(0)).unwrap();
        let first = core.first();
        let ended = powers_off(|| core.kernel.kill(first, Death::by_call(cause, status)));
        let line = format!("pelago: first domain of core 0 ended, cause {} status {status}", cause as u64);
        assert_eq!(ended, (vec![line], ends_with));
    }
}

#[test]
fn what_is_left_when_a_core_halts_is_told() {
    let mut core = Core::new(CORE);
    core.run(program(1));
    let ram = core.kernel.root_ram();
    let lost = Ptr::<Segment>::new_contiguous(&mut core.kernel, ram, 5).unwrap();
    core.command(CoreCommand::Halt(1));
    core.settle();
    let pages = ram.used() - ROOT_PAGES;
    assert!(pages >= 5);
    let line = format!("pelago: core {CORE} halts with 1 objects and {pages} pages left");
    assert_eq!((said(), core.state()), (vec![line], State::Halted(1)));
    // It runs again all the same.
    core.run(program(2));
    core.kernel.release(lost);
    core.command(CoreCommand::Halt(2));
    core.settle();
    assert_eq!(said(), [""; 0]);
    core.assert_as_at_its_start();
}

#[test]
fn a_program_has_what_its_plan_names_and_nothing_else() {
    let mut core = Core::new(CORE);
    let base = core.others + PAGE;
    let place = PageRun { start: 0x40_0000, pages: 3 };
    let mut plan = program(1);
    let rights = Rights::READ.union(Rights::DMA);
    plan.parts[0] = Some(Part { base, pages: 3, rights, mapped: Some((place, READ)) });
    plan.parts[1] = Some(Part { base: base + 3 * PAGE, pages: 1, rights: Rights::ALL, mapped: None });
    machine::write(base + 2 * PAGE + 9, &[42_u8]);
    core.run(plan);
    assert_eq!(core.first().writer.name().as_str(), "program");
    for handle in [Handle::PCORE, Handle::ROOT_RAM, Handle::ARCHIVE, Handle(Handle::FIRST_FREE.0 + 2)] {
        assert!(core.capability(handle).is_none(), "{handle:?}");
    }
    for (index, part) in plan.parts.iter().flatten().enumerate() {
        let (segment, rights) = core.segment(Handle(Handle::FIRST_FREE.0 + index as u64));
        assert_eq!((segment.base(), segment.pages(), rights), (Some(part.base), part.pages, part.rights));
        assert!(segment.is_ram());
    }
    assert_eq!(core.mapped(0x40_0000), Some((0x40_0000, 3, READ)));
    assert_eq!(core.read(0x40_2009, 2), [42, 0]);
    assert_eq!(core.mapped(layout::CONTROL_PAGE), Some((layout::CONTROL_PAGE, 1, OPEN)));
    assert_eq!(core.first().range().count(), 2);
    let context = core.context();
    let given = core.capability(Handle::SELF_CONTEXT).unwrap();
    assert!(given.object == context.any() && given.rights == Rights::ALL);
    assert_eq!(context.with_registers(|r| [r.rip, r.rsp, r.rdi, r.rsi]), [0x40_0000, 0x50_0000, 77, 0]);
    assert!(!context.is_linux && !context.has_vectors() && context.priority_max == 7);
    assert_eq!((context.schedule.get().unwrap().priority, context.watch_limit_ns.get()), (7, 0));
    assert!(core.kernel.polling.is_none());
    core.kernel.decide();
    assert!(core.kernel.scheduler.current() == Some(context));
    // It is given its core only if the plan says so.
    core.command(CoreCommand::Halt(1));
    core.settle();
    core.run(Plan { rights: Rights::POWER, ..program(2) });
    let [pcore, ram] = [Handle::PCORE, Handle::ROOT_RAM].map(|handle| core.capability(handle).unwrap());
    assert_eq!([pcore.rights, ram.rights], [Rights::POWER; 2]);
    assert!(pcore.object.cast::<Pcore>().unwrap().core == CORE && ram.object == core.kernel.root_ram().any());
    core.command(CoreCommand::Halt(2));
    core.settle();
    core.assert_as_at_its_start();
}

#[test]
fn a_core_that_is_told_to_poll_runs_no_program() {
    let mut core = Core::new(CORE);
    let mut plan = Plan { entry: 0, ..program(1) };
    plan.devices[1] = Some(Polled::Ring { base: core.others + PAGE, pages: 1 });
    core.run(plan);
    assert_eq!((core.state(), core.first().writer.name().as_str()), (State::Running(1), "program"));
    assert!(core.kernel.polling.as_ref().unwrap().stat(1).is_some());
    assert!(core.context().schedule.get().is_none() && matches!(core.kernel.decide(), Decision::Idle));
    core.command(CoreCommand::Halt(1));
    core.settle();
    assert!(core.kernel.polling.is_none());
    core.assert_as_at_its_start();
}

/// Core 0 checks plans; a core that was given a bad one says so, and can be run again.
#[test]
fn a_core_that_cannot_begin_its_run_says_why_and_loses_nothing() {
    let mut core = Core::new(CORE);
    let mut plan = program(1);
    let place = PageRun { start: 0x40_0000, pages: 1 };
    let part = Part { base: core.others + PAGE, pages: 1, rights: Rights::ALL, mapped: Some((place, READ)) };
    plan.parts[..2].copy_from_slice(&[Some(part); 2]);
    core.run(plan);
    core.settle();
    let line = |reason: &str| vec![format!("pelago: core {CORE} cannot start: {reason}")];
    assert_eq!((said(), core.state()), (line("two of its segments overlap"), State::Halted(1)));
    core.assert_as_at_its_start();
    // With each number of pages that is too small for it.
    plan.parts[1] = None;
    plan.rights = Rights::ALL;
    for pages in 0.. {
        let mut core = Core::new(CORE);
        hardware::set_state_of(CORE, State::Never);
        let taken: Vec<_> = (pages..core.free).map(|_| core.kernel.frames.allocate().unwrap()).collect();
        core.run(plan);
        if core.kernel.first.is_some_and(|first| first.is_alive()) {
            assert!(pages > 5 && said().is_empty());
            break;
        }
        core.settle();
        assert_eq!((said(), core.state()), (line(NO_MEMORY), State::Halted(1)));
        taken.into_iter().for_each(|frame| core.kernel.frames.release(frame));
        core.assert_as_at_its_start();
    }
}

/// The kernel that was made, after it left for a program or to wait, neither of which a host has.
fn main(info: &'static CoreInfo) -> Kernel {
    assert!(catch_unwind(|| kernel_main(info)).is_err());
    trap::KERNEL.with(Option::take).expect("a kernel")
}

#[test]
fn core_0_begins_with_its_monitor_and_others_with_what_they_are_told() {
    let _machine = Played::new(|_| ());
    hardware::set_image(Some((Layout::default(), PhysAddr(0))));
    let core = monitor::with_monitor(0);
    hardware::set_state_of(1, State::Running(1));
    let kernel = main(Box::leak(Box::new(CoreInfo { cores: &CORES[..2], ..*core.info })));
    assert_eq!(kernel.first.unwrap().writer.name().as_str(), "monitor");
    assert_eq!((core.state(), hardware::posted()), (State::Running(0), None));
    assert_eq!(said(), ["pelago: 2 cores up"]);
    assert!(kernel.scheduler.current().is_some());
    drop(core);
    let core = Core::new(CORE);
    machine::write(core.others, &[program(1)]);
    hardware::send_core_command(CORE, CoreCommand::Run(1, core.others));
    hardware::set_state_of(CORE, State::Never);
    let mut kernel = main(core.info);
    let first = kernel.first.unwrap();
    assert_eq!((core.state(), first.writer.name().as_str()), (State::Running(1), "program"));
    assert!(kernel.scheduler.current().is_some());
    // One event from there on.
    let fault = ExceptionInfo { vector: 6, error: 0, address: 0 };
    kernel.step(Event::Exception { vector: fault.vector as u8, error: 0, address: 0 });
    assert!(!first.is_alive());
}

#[test]
fn a_core_0_that_cannot_begin_ends_the_machine() {
    let mut core = Core::new(0);
    let info = core.info;
    let ended = powers_off(|| core.kernel.begin(info, &Plan::NONE));
    let line = "pelago: core 0 cannot start: there is no boot archive; give one with -initrd";
    assert_eq!(ended, (vec![line.to_string()], FAILED));
}
