//! The host's stand-in for `hardware.rs`: a clock the test sets, and a processor that does nothing.

use crate::arch::bases::Bases;
use crate::arch::context::Registers;
use crate::arch::fpu::AREA_BYTES;
use crate::arch::paging::Root;
use crate::boot::info::{self, Machine};
use crate::clock;
use crate::devices::DeviceInfo;
use crate::memory::PhysAddr;
use crate::shared::registry;
use core::cell::{Cell, RefCell};
use core::ptr::NonNull;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

std::thread_local! {
    static CLOCK_NS: Cell<u64> = const { Cell::new(0) };
    static CLOCK_LOOK: Cell<Option<Box<dyn Fn()>>> = const { Cell::new(None) };
    static TIMER_NS: Cell<Option<u64>> = const { Cell::new(None) };
    static FLUSHES: RefCell<Vec<Flush>> = const { RefCell::new(Vec::new()) };
    static COUNTS: RefCell<BTreeMap<usize, u64>> = const { RefCell::new(BTreeMap::new()) };
    static STATES: Cell<[State; CORES]> = const { Cell::new([State::Never; CORES]) };
    static THIS_CORE: Cell<usize> = const { Cell::new(0) };
    static USED: Cell<[Used; CORES]> = const { Cell::new([Used::NONE; CORES]) };
    static COMMANDS: Cell<[CoreCommand; CORES]> = const { Cell::new([CoreCommand::Halt(0); CORES]) };
    static CLAIMED: Cell<u128> = const { Cell::new(0) };
    static VECTORS: RefCell<BTreeSet<u8>> = const { RefCell::new(BTreeSet::new()) };
    static RAISED: RefCell<BTreeMap<Raiser, (u8, bool)>> = const { RefCell::new(BTreeMap::new()) };
    static MASTERS: RefCell<Vec<(u32, bool)>> = const { RefCell::new(Vec::new()) };
    static SHOOTDOWNS_TAKEN: RefCell<Option<Vec<usize>>> = const { RefCell::new(Some(Vec::new())) };
    static LAST_LOOK: Cell<Option<Box<dyn Fn()>>> = const { Cell::new(None) };
    static MEANWHILE: Cell<Option<Box<dyn FnMut()>>> = const { Cell::new(None) };
    static WORK: Cell<u64> = const { Cell::new(0) };
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static MACHINE: Cell<Option<&'static Machine>> = const { Cell::new(None) };
    static IMAGE: Cell<Option<(Layout, PhysAddr)>> = const { Cell::new(None) };
    static PORTS: RefCell<BTreeMap<u16, u8>> = const { RefCell::new(BTreeMap::new()) };
    static SAID_FIRST: RefCell<BTreeMap<Place, VecDeque<u32>>> = const { RefCell::new(BTreeMap::new()) };
    static PORT_WRITES: RefCell<Vec<(u16, u8)>> = const { RefCell::new(Vec::new()) };
    static MSRS: RefCell<BTreeMap<u32, u64>> = const { RefCell::new(BTreeMap::new()) };
    static MSR_WRITES: RefCell<Vec<(u32, u64)>> = const { RefCell::new(Vec::new()) };
    static REGISTERS: RefCell<BTreeMap<u64, Register>> = const { RefCell::new(BTreeMap::new()) };
    static REGISTER_WRITES: RefCell<Vec<(u64, u32)>> = const { RefCell::new(Vec::new()) };
    static POSTED: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
    static PROCESSOR: Cell<Processor> = const { Cell::new(Processor::NEW) };
    static CONSOLE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

const FLUSHES_MAX: usize = 4096;
const LINES_MAX: usize = 8192;

pub use crate::core_commands::{CoreCommand, State, Used};

/// Cores whose words tests can set.
pub const CORES: usize = 4;

/// As in `hardware.rs`, of the same size: one vector register that programs of tests use.
#[repr(C, align(16))]
pub struct VectorArea {
    register: u64,
    _others: [u8; AREA_BYTES - size_of::<u64>()],
}

impl VectorArea {
    /// What a program begins with.
    pub const fn new() -> VectorArea {
        VectorArea { register: 0, _others: [0; AREA_BYTES - size_of::<u64>()] }
    }
}

impl Default for VectorArea {
    fn default() -> Self {
        VectorArea::new()
    }
}

/// As in `hardware.rs`.
pub fn count_work(units: u64) {
    WORK.set(WORK.get() + units);
}

/// The work counted since the last question.
pub fn take_work() -> u64 {
    WORK.take()
}

/// Sets the test's clock.
pub fn set_clock(at_ns: u64) {
    CLOCK_NS.set(at_ns);
}

/// The deadline set last.
pub fn deadline() -> Option<u64> {
    TIMER_NS.get()
}

/// What happens whenever somebody looks at the clock.
pub fn set_clock_look(look: Option<Box<dyn Fn()>>) {
    CLOCK_LOOK.set(look);
}

/// As in `hardware.rs`.
pub fn now_ns() -> u64 {
    let look = CLOCK_LOOK.take();
    look.as_ref().inspect(|look| look());
    CLOCK_LOOK.set(look);
    CLOCK_NS.get()
}
pub use now_ns as now_ns_inlined;

/// Clock of the machine that tests play: started long ago, and fast.
const BOOT_TSC: u64 = 1 << 62;
const TICKS_PER_NS: u64 = clock::ratio(4_700_000_000, 1_000_000_000);

/// As in `hardware.rs`; computes the register values of both kinds of timer, too.
pub fn set_deadline(at_ns: Option<u64>) {
    if let Some(at_ns) = at_ns {
        assert!(clock::tsc_deadline(BOOT_TSC, at_ns, TICKS_PER_NS) > BOOT_TSC);
        assert!(clock::timer_count(at_ns.saturating_sub(now_ns()), 62_500_000) > 0);
    }
    TIMER_NS.set(at_ns);
}

/// What the processor was told last of the context that runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Processor {
    /// Where its registers are saved.
    pub registers: Option<NonNull<Registers>>,
    /// Its space.
    pub root: Option<Root>,
    /// Its bases.
    pub bases: Bases,
    /// Whether it may touch vector registers.
    pub vectors_open: bool,
    /// Where these were loaded from.
    pub vectors: Option<NonNull<VectorArea>>,
    /// Where they were saved last.
    pub saved: Option<NonNull<VectorArea>>,
    /// How often they were loaded or saved.
    pub moves: u64,
    /// What is in the only one that programs of tests use.
    vector: u64,
}

impl Processor {
    const NEW: Processor = Processor {
        registers: None,
        root: None,
        bases: Bases { fs: 0, gs: 0 },
        vectors_open: true,
        vectors: None,
        saved: None,
        moves: 0,
        vector: 0,
    };
}

/// What the processor of this thread was told.
pub fn processor() -> Processor {
    PROCESSOR.get()
}

fn tell(change: impl FnOnce(&mut Processor)) {
    let mut processor = PROCESSOR.get();
    change(&mut processor);
    PROCESSOR.set(processor);
}

/// As in `hardware.rs`.
pub fn switch_bases(_before: Option<&Cell<Bases>>, next: &Cell<Bases>) {
    tell(|processor| processor.bases = next.get());
}

/// As in `hardware.rs`.
pub fn change_bases(of: &Cell<Bases>, change: impl FnOnce(&mut Bases)) {
    let mut bases = of.get();
    change(&mut bases);
    of.set(bases);
}

/// As in `hardware.rs`.
pub fn set_current(registers: Option<NonNull<Registers>>) {
    tell(|processor| processor.registers = registers);
}

/// What the processor was told to invalidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flush {
    /// All translations.
    All,
    /// That of one page.
    Page(u64),
}

/// What was flushed since this was asked last.
pub fn take_flushes() -> Vec<Flush> {
    FLUSHES.take()
}

fn note(flush: Flush) {
    FLUSHES.with_borrow_mut(|flushes| {
        // All that came before is forgotten too.
        if flush == Flush::All {
            flushes.clear();
        }
        flushes.push(flush);
        // Most tests do not ask.
        if flushes.len() > FLUSHES_MAX {
            *flushes = vec![Flush::All];
        }
    });
}

/// As in `hardware.rs`.
pub fn flush_all() {
    note(Flush::All);
}

/// As in `hardware.rs`.
pub fn flush_page(address: u64) {
    note(Flush::Page(address));
}

/// As in `hardware.rs`.
pub fn load_root(root: Root) {
    tell(|processor| processor.root = Some(root));
    note(Flush::All);
}

/// As in `hardware.rs`.
pub fn open_vectors(open: bool) {
    tell(|processor| processor.vectors_open = open);
}

/// As in `hardware.rs`.
pub fn save_vectors(area: &mut VectorArea) {
    area.register = processor().vector;
    tell(|processor| (processor.saved, processor.moves) = (Some(NonNull::from(area)), processor.moves + 1));
}

/// As in `hardware.rs`.
pub fn restore_vectors(area: &VectorArea) {
    tell(|processor| {
        (processor.vectors, processor.moves) = (Some(NonNull::from(area)), processor.moves + 1);
        processor.vector = area.register;
    });
}

/// What the context that runs reads in its vector register; `None`: that is an exception.
pub fn vector() -> Option<u64> {
    let processor = processor();
    processor.vectors_open.then_some(processor.vector)
}

/// The context that runs writes its vector register.
pub fn set_vector(value: u64) {
    tell(|processor| processor.vector = value);
}

/// As in `hardware.rs`: noted.
pub fn post(core: usize, slot: usize) {
    POSTED.set(Some((core, slot)));
}

/// The last post since the last question.
pub fn posted() -> Option<(usize, usize)> {
    POSTED.take()
}

/// As in `hardware.rs`.
pub fn core_state(core: usize) -> State {
    STATES.get().get(core).copied().unwrap_or(State::Never)
}

/// Sets how a core stands.
pub fn set_state_of(core: usize, state: State) {
    let mut states = STATES.get();
    states[core] = state;
    STATES.set(states);
}

/// Sets which core's words are this core's: core 0's if nobody says it.
pub fn set_this_core(core: usize) {
    THIS_CORE.set(core);
}

/// As in `hardware.rs`.
pub fn set_core_state(state: State) {
    let core = THIS_CORE.get();
    assert!(core_state(core).may_become(state), "a core's state does not follow from its last");
    set_state_of(core, state);
}

/// As in `hardware.rs`.
pub fn used_ns(core: usize, now_ns: u64) -> u64 {
    USED.get().get(core).map_or(0, |used| used.total_ns(now_ns))
}

/// As in `hardware.rs`.
pub fn set_used(change: impl FnOnce(Used) -> Used) {
    set_used_of(THIS_CORE.get(), change);
}

/// Changes how long programs had a core.
pub fn set_used_of(core: usize, change: impl FnOnce(Used) -> Used) {
    let mut used = USED.get();
    used[core] = change(used[core]);
    USED.set(used);
}

/// As in `hardware.rs`.
pub fn core_command(core: usize) -> CoreCommand {
    COMMANDS.get()[core]
}

/// As in `hardware.rs`: the other core does it at once, but its wake-up is the test's to play
/// (`pcore::cores_changed`).
pub fn send_core_command(core: usize, command: CoreCommand) {
    let mut commands = COMMANDS.get();
    assert!(commands[core].may_become(command), "a command does not follow from the one before");
    commands[core] = command;
    COMMANDS.set(commands);
    match command {
        CoreCommand::Run(run, _) => set_state_of(core, State::Running(run)),
        CoreCommand::Halt(run) => set_state_of(core, State::Halted(run)),
    }
}

/// As in `hardware.rs`.
pub fn claim_device(index: usize) -> bool {
    let claimed = CLAIMED.get();
    CLAIMED.set(claimed | 1 << index);
    claimed >> index & 1 == 0
}

/// As in `hardware.rs`.
pub fn free_device(index: usize) {
    CLAIMED.set(CLAIMED.get() & !(1 << index));
}

/// What raises interrupts: a line, or an entry of the device of that hardware id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Raiser {
    /// By its number.
    Line(u32),
    /// A message.
    Message(u32, u16),
}

const INTERRUPT_LINES: u32 = 24;

/// As in `hardware.rs`: a core of few vectors.
pub fn allocate_vector() -> Option<u8> {
    VECTORS.with_borrow_mut(|taken| {
        let free = (0x30..0x40).find(|vector| !taken.contains(vector))?;
        taken.insert(free);
        Some(free)
    })
}

/// As in `hardware.rs`.
pub fn free_vector(vector: u8) {
    let is_masked = |(_, (of, masked)): (&Raiser, &(u8, bool))| *of != vector || *masked;
    assert!(RAISED.with_borrow(|raised| raised.iter().all(is_masked)), "a vector is freed that is still raised");
    assert!(VECTORS.with_borrow_mut(|taken| taken.remove(&vector)), "a vector is freed twice");
}

/// How many vectors devices have.
pub fn vectors_taken() -> usize {
    VECTORS.with_borrow(BTreeSet::len)
}

/// The vector that comes when this raises an interrupt; `None`: no interrupt comes.
pub fn raised_by(raiser: Raiser) -> Option<u8> {
    let found = RAISED.with_borrow(|raised| raised.get(&raiser).copied());
    found.filter(|(_, masked)| !masked).map(|(vector, _)| vector)
}

fn raise(raiser: Raiser, vector: u8) {
    RAISED.with_borrow_mut(|raised| raised.insert(raiser, (vector, false)));
}

fn set_masked(raiser: Raiser, masked: bool) {
    RAISED.with_borrow_mut(|raised| raised.get_mut(&raiser).into_iter().for_each(|found| found.1 = masked));
}

/// As in `hardware.rs`: the machine has 24 lines, and core 0 has them.
pub fn route_ioapic(line: u32, vector: u8, core: usize) -> Option<()> {
    (line < INTERRUPT_LINES && core == 0).then(|| raise(Raiser::Line(line), vector))
}

/// As in `hardware.rs`.
pub fn mask_ioapic(line: u32, masked: bool) {
    set_masked(Raiser::Line(line), masked);
}

/// As in `hardware.rs`.
pub fn program_msix(device: &DeviceInfo, entry: u16, vector: u8) -> Option<()> {
    let msix = device.msix?;
    (entry < msix.entries).then(|| raise(Raiser::Message(device.hwid, entry), vector))
}

/// As in `hardware.rs`.
pub fn mask_msix(device: &DeviceInfo, entry: u16, masked: bool) {
    set_masked(Raiser::Message(device.hwid, entry), masked);
}

/// As in `hardware.rs`: it has begun already.
pub fn start_core(_core: usize) {}

/// As in `hardware.rs`: the test is all cores.
pub fn post_count(_core: usize, slot: usize, count: u32) {
    COUNTS.with_borrow_mut(|counts| *counts.entry(slot).or_default() += u64::from(count));
}

/// As in `hardware.rs`.
pub fn take_count(slot: usize) -> u64 {
    COUNTS.with_borrow_mut(|counts| counts.remove(&slot).unwrap_or_default())
}

/// As in `hardware.rs`: the test is told.
pub fn set_bus_master(device: &DeviceInfo, on: bool) {
    MASTERS.with_borrow_mut(|masters| masters.push((device.hwid, on)));
}

/// Which devices were allowed to reach memory or forbidden since the last question.
pub fn take_bus_masters() -> Vec<(u32, bool)> {
    MASTERS.take()
}

/// As in `hardware.rs`: the test's, or one that has nothing.
pub fn machine() -> &'static Machine {
    MACHINE.get().unwrap_or_else(info::machine)
}

/// Sets the machine that tests play; `None`: one that has nothing.
pub fn set_machine(machine: Option<&'static Machine>) {
    MACHINE.set(machine);
}

/// As in `image.rs`.
#[derive(Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct Layout {
    pub image_start: u64,
    pub text_end: u64,
    pub rodata_end: u64,
    pub shared_end: u64,
    pub start_end: u64,
    pub core_start: u64,
    pub stack_bottom: u64,
    pub stack_top: u64,
    pub fault_stack_bottom: u64,
    pub fault_stack_top: u64,
    pub data_start: u64,
    pub data_end: u64,
    pub bss_start: u64,
    pub core_end: u64,
    pub data_template: PhysAddr,
}

/// Sets where the parts of the image lie that tests play, and where its tables; `None`: there is
/// none.
pub fn set_image(image: Option<(Layout, PhysAddr)>) {
    IMAGE.set(image);
}

fn image() -> (Layout, PhysAddr) {
    IMAGE.get().unwrap_or_else(|| panic!("only on the bare machine, or where a test says it"))
}

/// As in `image.rs`, if a test said it.
pub fn layout() -> Layout {
    image().0
}

/// As in `image.rs`, if a test said it.
pub fn boot_tables() -> PhysAddr {
    image().1
}

/// What is read of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// By its number.
    Port(u16),
    /// By its physical address.
    Register(u64),
}

/// Sets what a place says first, one value at each read; then it says what it always does.
pub fn says_first(place: Place, values: &[u32]) {
    SAID_FIRST.with_borrow_mut(|all| all.insert(place, values.iter().copied().collect()));
}

fn said_first(place: Place) -> Option<u32> {
    SAID_FIRST.with_borrow_mut(|all| all.get_mut(&place)?.pop_front())
}

/// As in `hardware.rs`: the test goes on where it catches this.
pub fn halt() -> ! {
    panic!("the core halts")
}

/// Sets what a port says.
pub fn set_port(port: u16, value: u8) {
    PORTS.with_borrow_mut(|all| all.insert(port, value));
}

/// What was written to ports since the last question: port and value.
pub fn take_port_writes() -> Vec<(u16, u8)> {
    PORT_WRITES.take()
}

/// As in `hardware.rs`: all ones where nothing is, as a bus says it.
pub fn port_read8(port: u16) -> u8 {
    if let Some(value) = said_first(Place::Port(port)) {
        return value as u8;
    }
    PORTS.with_borrow(|all| all.get(&port).copied().unwrap_or(u8::MAX))
}

/// As in `hardware.rs`: noted.
pub fn port_write8(port: u16, value: u8) {
    PORT_WRITES.with_borrow_mut(|writes| writes.push((port, value)));
}

/// Sets what a model-specific register says.
pub fn set_msr(register: u32, value: u64) {
    MSRS.with_borrow_mut(|all| all.insert(register, value));
}

/// What was written to model-specific registers since the last question.
pub fn take_msr_writes() -> Vec<(u32, u64)> {
    MSR_WRITES.take()
}

/// As in `hardware.rs`.
pub fn read_msr(register: u32) -> u64 {
    MSRS.with_borrow(|all| all.get(&register).copied().unwrap_or_default())
}

/// As in `hardware.rs`: noted.
pub fn write_apic_msr(register: u32, value: u64) {
    MSR_WRITES.with_borrow_mut(|writes| writes.push((register, value)));
}

/// A register of a device that tests play.
#[derive(Clone, Copy)]
struct Register {
    value: u32,
    writable: u32,
}

/// Sets a device's register at a physical address, of which only the bits `writable` can be
/// written.
pub fn set_register(address: u64, value: u32, writable: u32) {
    REGISTERS.with_borrow_mut(|all| all.insert(address, Register { value, writable }));
}

/// There are no registers and ports any more.
pub fn remove_registers() {
    REGISTERS.take();
    REGISTER_WRITES.take();
    PORTS.take();
    PORT_WRITES.take();
    SAID_FIRST.take();
    MSRS.take();
    MSR_WRITES.take();
}

/// What was written to registers, there or not, since the last question: address and value.
pub fn take_register_writes() -> Vec<(u64, u32)> {
    REGISTER_WRITES.take()
}

/// As in `hardware.rs`: all ones where no register is, as a bus says it.
pub fn read_register(address: u64) -> u32 {
    if let Some(value) = said_first(Place::Register(address)) {
        return value;
    }
    REGISTERS.with_borrow(|all| all.get(&address).map_or(u32::MAX, |register| register.value))
}

/// As in `hardware.rs`: noted; changes what can be written there.
pub fn write_register(address: u64, value: u32) {
    REGISTER_WRITES.with_borrow_mut(|writes| writes.push((address, value)));
    REGISTERS.with_borrow_mut(|all| {
        if let Some(Register { value: now, writable }) = all.get_mut(&address) {
            *now = *now & !*writable | value & *writable;
        }
    });
}

/// As in `hardware.rs`: the last lines are kept, and so made, which finds what panics in making
/// them.
pub fn write_line(text: core::fmt::Arguments<'_>) {
    LINES.with_borrow_mut(|lines| {
        if lines.len() == LINES_MAX {
            lines.clear();
        }
        lines.push(text.to_string());
    });
}

/// The lines since the last question, or the last of them.
pub fn take_lines() -> Vec<String> {
    LINES.take()
}

/// As in `hardware.rs`.
pub fn write_user(bytes: &[u8]) {
    CONSOLE.with_borrow_mut(|console| console.extend(bytes));
}

/// What programs wrote to the console since the last question.
pub fn take_console() -> Vec<u8> {
    CONSOLE.take()
}

/// As in `hardware.rs`.
pub fn print_user(_registers: &Registers, _root: Root, _component: &str) {}

/// Whether the other cores are threads of their own, which answer when they come to it; otherwise
/// this thread is all cores, and each answers at once.
pub fn set_alone(alone: bool) {
    SHOOTDOWNS_TAKEN.set(alone.then(Vec::new));
}

/// In a test that plays all cores: what happens elsewhere right before a core invalidates.
pub fn set_last_look(look: Option<Box<dyn Fn()>>) {
    LAST_LOOK.set(look);
}

/// In a test that plays all cores: what happens elsewhere each time that a core which waits for
/// others serves shootdowns.
pub fn set_meanwhile(look: Option<Box<dyn FnMut()>>) {
    MEANWHILE.set(look);
}

/// In a test that plays all cores: which of them served a shootdown since this was asked last.
pub fn take_shootdowns() -> Vec<usize> {
    SHOOTDOWNS_TAKEN.with_borrow_mut(|flushed| flushed.as_mut().map(core::mem::take).unwrap_or_default())
}

/// As in `hardware.rs`.
pub fn send_tlb_shootdown(core: usize) {
    let (shootdown, own) = registry::shootdown(core);
    shootdown.ask(own);
}

/// As in `hardware.rs`.
pub fn shootdown_is_done(core: usize) -> bool {
    let (shootdown, own) = registry::shootdown(core);
    if SHOOTDOWNS_TAKEN.with_borrow(Option::is_some) {
        let look = LAST_LOOK.take();
        look.as_ref().inspect(|look| look());
        LAST_LOOK.set(look);
    }
    SHOOTDOWNS_TAKEN.with_borrow_mut(|flushed| {
        if let Some(flushed) = flushed {
            shootdown.answer(|| flushed.push(core));
        }
    });
    shootdown.is_answered(own)
}

/// As in `hardware.rs`.
pub fn service_tlb_shootdowns() -> u64 {
    if let Some(mut look) = MEANWHILE.take() {
        look();
        MEANWHILE.set(Some(look));
    }
    let (_, own) = registry::shootdown(0);
    registry::shootdown(own).0.answer(flush_all)
}
