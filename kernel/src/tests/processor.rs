//! What the processor is told when another context runs, and what a core tells of itself: its
//! counters, its trace, and what programs write to the console.

use super::segment_calls::{read, write};
use super::time::{context, refusal};
use super::{MACHINE, World};
use crate::arch::context::Event;
use crate::boot::info::CoreInfo;
use crate::devices::{Bar, DeviceInfo};
use crate::hardware::{self, Processor, set_clock};
use crate::memory::{PAGE_BYTES, PhysAddr};
use crate::objects::context::{Options, State};
use crate::objects::device::PORTS_HWID;
use crate::objects::mapping::PageRun;
use crate::objects::{Context, Domain, Ptr, Schedule, Segment, user_memory};
use crate::scheduler::Decision;
use crate::trace::{self, RECORD_BYTES};
use abi::layout::{self, HEAP, counter, protection};
use abi::{Call, Error, Handle, Rights};
use core::ptr::NonNull;

const PAGE: u64 = PAGE_BYTES as u64;
const HWID: u32 = 8;
const REGISTERS: Bar = Bar { base: PhysAddr(0xfe00_0000), bytes: 0x1000, is_mmio: true };
static WITH_A_CARD: CoreInfo = CoreInfo {
    devices: &[DeviceInfo { hwid: HWID, vendor: 0x1af4, bars: [REGISTERS; 6], ..DeviceInfo::NONE }],
    ..MACHINE
};

/// Memory of a program at [`HEAP`], whose pages lie in RAM in the opposite order.
struct Memory {
    base: PhysAddr,
    pages: u64,
}

impl Memory {
    /// Whoever runs gets it.
    fn give(world: &mut World, pages: u64) -> Memory {
        let domain = world.kernel.scheduler.current().unwrap().domain();
        let words = [Handle::ROOT_RAM.0, pages, layout::segment::CONTIGUOUS, 0, 0, 0];
        let (status, segment) = world.runner_calls(Call::SegmentAlloc, words);
        assert_eq!(status, 0);
        for page in 0..pages {
            let open = protection::READ | protection::WRITE;
            let words = [Handle::SELF_RANGE.0, HEAP + page * PAGE, segment, pages - 1 - page, 1, open];
            assert_eq!(world.runner_calls(Call::RangeMap, words).0, 0);
        }
        let (segment, _) = domain.share().find::<Segment>(Handle(segment), Rights(0)).unwrap();
        Memory { base: segment.base().unwrap(), pages }
    }

    fn at(&self, offset: u64) -> PhysAddr {
        self.base + ((self.pages - 1 - offset / PAGE) * PAGE + offset % PAGE)
    }

    fn put(&self, offset: u64, bytes: &[u8]) {
        (offset..).zip(bytes).for_each(|(offset, byte)| write(self.at(offset), *byte));
    }

    fn get(&self, offset: u64, bytes: u64) -> Vec<u8> {
        (offset..offset + bytes).map(|offset| read(self.at(offset))).collect()
    }

    /// The five words of each record in so many bytes.
    fn records(&self, offset: u64, bytes: u64) -> Vec<[u64; 5]> {
        let words: Vec<u64> = { self.get(offset, bytes) }
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect();
        words.chunks_exact(5).map(|record| record.try_into().unwrap()).collect()
    }
}

/// A core whose only program has memory.
fn program(pages: u64) -> (World, Ptr<Domain>, Memory) {
    set_clock(0);
    let mut world = World::new(512);
    let domain = world.monitor();
    world.kernel.decide();
    let memory = Memory::give(&mut world, pages);
    (world, domain, memory)
}

/// A context that waits.
fn waiter(world: &mut World, domain: Ptr<Domain>, number: u64, has_vectors: bool) -> Ptr<Context> {
    let (kernel, ram) = (&mut *world.kernel, world.ram);
    let place = PageRun { start: layout::REGIONS + number * PAGE, pages: 1 };
    let options = Options { has_vectors, is_linux: false, priority_max: 7 };
    let context = Ptr::<Context>::create(kernel, ram, domain, place, options).unwrap();
    let schedule = kernel.create(ram, |header| Schedule::new(header, context, 7, 1_000_000)).unwrap();
    context.schedule.set(Some(schedule));
    context.bases.set(crate::arch::bases::Bases { fs: number, gs: number + 100 });
    kernel.start(context, 0x1000, 0x2000, [0; 2]);
    kernel.block(context, State::Waiting);
    context
}

/// Has `next` run instead of the context that does.
fn run(world: &mut World, next: Ptr<Context>) -> Processor {
    if let Some(current) = world.kernel.scheduler.current().filter(|current| current.state() == State::Runnable) {
        world.kernel.block(current, State::Waiting);
    }
    world.kernel.signal(next, 1);
    assert_eq!(world.kernel.decide(), Decision::Resume(next.registers_at()));
    hardware::processor()
}

fn area(context: Ptr<Context>) -> Option<NonNull<hardware::VectorArea>> {
    Some(context.with_vectors(|area| NonNull::from(area)))
}

/// Vector registers stay loaded until another context that has some runs; who has none cannot touch
/// them meanwhile.
#[test]
fn a_context_that_runs_has_its_own_registers_space_and_bases() {
    set_clock(0);
    let mut world = World::new(512);
    let homes = [world.monitor(), world.monitor()];
    world.kernel.decide();
    let with = waiter(&mut world, homes[0], 1, true);
    let without = waiter(&mut world, homes[0], 2, false);
    let other = waiter(&mut world, homes[1], 3, true);
    // Both first contexts wait.
    homes.map(context).iter().for_each(|first| world.kernel.block(*first, State::Waiting));
    let mut moves = None;
    // Whose vector registers are loaded then, and whose were saved for that.
    for (next, loaded, saved) in [
        (with, with, None),
        (without, with, None),
        (with, with, None),
        (other, other, Some(with)),
        (without, other, None),
        (with, with, Some(other)),
        (other, other, Some(with)),
        (without, other, None),
        (other, other, None),
    ] {
        let told = run(&mut world, next);
        assert_eq!(told.registers, Some(next.registers_at()));
        assert_eq!(told.root, Some(next.domain().range().root()));
        assert_eq!(told.bases, next.bases.get());
        assert_eq!((told.vectors_open, told.vectors), (next.has_vectors(), area(loaded)));
        if let Some(saved) = saved {
            assert_eq!(told.saved, area(saved), "before others take their place");
        }
        let moved = told.moves - moves.unwrap_or(told.moves);
        assert_eq!(moved, if saved.is_some() { 2 } else { 0 }, "no state is moved in vain");
        moves = Some(told.moves);
    }
}

#[test]
fn a_context_that_ends_leaves_nothing_of_it_with_the_processor_and_no_other_loses_anything() {
    set_clock(0);
    let mut world = World::new(512);
    let domain = world.monitor();
    world.kernel.decide();
    let [one, two] = [1, 2].map(|number| waiter(&mut world, domain, number, true));
    world.kernel.block(context(domain), State::Waiting);
    run(&mut world, one);
    let switches = world.kernel.counters.switches;
    world.kernel.end_context(two);
    let holds = |world: &World| [world.kernel.scheduler.current(), world.kernel.bases_of, world.kernel.vectors_of];
    assert!(holds(&world) == [Some(one); 3]);
    world.kernel.decide();
    assert!(holds(&world) == [Some(one); 3] && world.kernel.counters.switches == switches, "it goes on");
    world.kernel.end_context(one);
    assert!(holds(&world) == [None; 3]);
    assert_eq!(hardware::processor().registers, None, "where an interrupt would save them");
    assert_eq!(world.kernel.decide(), Decision::Idle);
}

/// The steps from one question to the next.
struct Counts([u64; 4]);

impl Counts {
    fn now(world: &World) -> [u64; 4] {
        [counter::SWITCHES, counter::SPACE_SWITCHES, counter::IDLES, counter::PORTAL_CALLS]
            .map(|index| world.kernel.counters.get(index).unwrap())
    }

    fn more(&mut self, world: &World) -> [u64; 4] {
        let now = Counts::now(world);
        let before = core::mem::replace(&mut self.0, now);
        core::array::from_fn(|index| now[index] - before[index])
    }
}

#[test]
fn switches_of_contexts_and_spaces_calls_of_portals_and_idling_are_counted() {
    set_clock(0);
    let mut world = World::new(600);
    let mut counts = Counts(Counts::now(&world));
    let server = world.party(0);
    assert_eq!(counts.more(&world), [1, 1, 0, 0]);
    world.answer(&server, 0);
    assert_eq!(counts.more(&world), [0, 0, 1, 0], "it waits, and its space stays");
    let client = world.party(5);
    world.connect(&client, &server);
    assert_eq!(counts.more(&world), [1, 1, 0, 0]);
    world.ask(&client, 10);
    assert_eq!(counts.more(&world), [1, 1, 0, 1], "there");
    world.answer(&server, 10);
    assert_eq!(counts.more(&world), [1, 1, 0, 0], "and back");
    let thread = world.thread(client.domain, 1, 5);
    world.runner_calls(Call::Wait, [u64::MAX, 0, 0, 0, 0, 0]);
    assert!(world.kernel.scheduler.current() == Some(thread));
    assert_eq!(counts.more(&world), [1, 0, 0, 0], "in the same space");
    world.runner_calls(Call::Wait, [u64::MAX, 0, 0, 0, 0, 0]);
    assert_eq!(counts.more(&world), [0, 0, 1, 0]);
    world.kernel.signal(thread, 1);
    world.kernel.decide();
    assert_eq!(counts.more(&world), [1, 0, 0, 0], "after idling, too");
    world.end([server, client]);
}

#[test]
fn the_pages_of_the_kernel_are_a_counter_and_unknown_counters_are_refused() {
    let (mut world, ..) = program(1);
    let read = |world: &mut World, index| world.runner_calls(Call::CounterRead, [index, 0, 0, 0, 0, 0]);
    let (status, before) = read(&mut world, counter::KERNEL_PAGES);
    assert_eq!((status, before), (0, world.used()));
    world.kernel.frames.allocate().unwrap();
    assert_eq!(read(&mut world, counter::KERNEL_PAGES), (0, before + 1));
    for index in 0..counter::COUNT {
        assert_eq!(read(&mut world, index).0, 0, "counter {index}");
    }
    for index in [counter::COUNT, u64::MAX] {
        assert_eq!(read(&mut world, index).0, refusal(Error::BadArgument));
    }
}

/// Who reads gets whole records, oldest first, and what did not fit another time.
#[test]
fn the_trace_is_read_in_whole_records_oldest_first() {
    const BYTES: u64 = RECORD_BYTES as u64;
    let (mut world, domain, memory) = program(2);
    let ring = world.kernel.frames.allocate_run(trace::PAGES).unwrap();
    world.kernel.trace.set_ring(ring);
    let id = context(domain).header().id();
    let mut touch = |at_ns: u64, page: u64| {
        set_clock(at_ns);
        let address = HEAP + page * PAGE;
        world.kernel.step(Event::Exception { vector: 14, error: 4, address });
        [at_ns, trace::Event::SoftFault as u64, id, address, 4]
    };
    let told: Vec<_> = (0..8).map(|number| touch(10 + number, number % 2)).collect();
    let mut take =
        |offset: u64, bytes: u64| world.runner_calls(Call::TraceRead, [Handle::PCORE.0, HEAP + offset, bytes, 0, 0, 0]);
    assert_eq!(take(0, BYTES - 1), (0, 0), "no room for a whole one");
    assert_eq!(take(0, 3 * BYTES - 1), (0, 2 * BYTES));
    assert_eq!(memory.records(0, 2 * BYTES), told[..2]);
    // Across a border of pages; and up to the last page's end, after which nothing is mapped.
    assert_eq!(take(PAGE - BYTES - 8, 3 * BYTES), (0, 3 * BYTES));
    assert_eq!(memory.records(PAGE - BYTES - 8, 3 * BYTES), told[2..5]);
    assert_eq!(take(2 * PAGE - BYTES - 8, 3 * BYTES).0, refusal(Error::BadPointer));
    assert_eq!(memory.records(2 * PAGE - BYTES - 8, BYTES), told[5..6], "what fits before is written, and gone");
    assert_eq!(take(0, 10 * BYTES), (0, 2 * BYTES), "all there is");
    assert_eq!(memory.records(0, 2 * BYTES), told[6..]);
    assert_eq!(take(0, 10 * BYTES), (0, 0));
}

#[test]
fn the_console_gets_all_bytes_in_order_and_from_core_0_only() {
    let (mut world, _, memory) = program(3);
    world.kernel.info = Some(&WITH_A_CARD);
    let text: Vec<u8> = (0..1300u32).map(|number| (number * 7 % 251) as u8).collect();
    memory.put(PAGE - 700, &text);
    let at = HEAP + PAGE - 700;
    let [console, card] = [PORTS_HWID, HWID.into()].map(|hwid| {
        let (status, device) =
            world.runner_calls(Call::DeviceAlloc, [Handle::PCORE.0, Handle::ROOT_RAM.0, hwid, 0, 0, 0]);
        assert_eq!(status, 0);
        device
    });
    let mut say = |device: u64, at: u64, bytes: u64| {
        let (status, _) = world.runner_calls(Call::ConsoleWrite, [device, at, bytes, 0, 0, 0]);
        (status, hardware::take_console())
    };
    hardware::take_console();
    for bytes in [0, 1, 511, 512, 513, 1024, 1300] {
        assert_eq!(say(console, at, bytes), (0, text[..bytes as usize].to_vec()));
    }
    assert_eq!(say(console, at, 4097), (refusal(Error::BadArgument), vec![]), "too many");
    assert_eq!(say(card, at, 1), (refusal(Error::BadArgument), vec![]), "it has no ports");
    let (status, before) = say(console, HEAP + 3 * PAGE - 512, 600);
    assert_eq!((status, before.len()), (refusal(Error::BadPointer), 512), "what can be read is written");
}

#[test]
fn another_core_than_0_has_no_console() {
    set_clock(0);
    let mut world = World::on(1, 512);
    world.monitor();
    world.kernel.decide();
    Memory::give(&mut world, 1);
    let (status, console) =
        world.runner_calls(Call::DeviceAlloc, [Handle::PCORE.0, Handle::ROOT_RAM.0, PORTS_HWID, 0, 0, 0]);
    assert_eq!(status, 0);
    let said = world.runner_calls(Call::ConsoleWrite, [console, HEAP, 1, 0, 0, 0]);
    assert_eq!((said.0, hardware::take_console()), (refusal(Error::BadArgument), vec![]));
}

/// For a trace of calls of a program that may have written anything to its stack.
#[test]
fn a_word_is_looked_at_inside_one_page_of_ram() {
    let (mut world, domain, memory) = program(2);
    memory.put(PAGE - 8, &0x1122_3344_5566_7788u64.to_le_bytes());
    memory.put(2000, &77u64.to_le_bytes());
    for page in 0..2 {
        world.kernel.step(Event::Exception { vector: 14, error: 4, address: HEAP + page * PAGE });
    }
    let peek = |address: u64| user_memory::peek(domain.range().root(), address);
    assert_eq!([2000, PAGE - 8].map(|offset| peek(HEAP + offset)), [Some(77), Some(0x1122_3344_5566_7788)]);
    assert!((1..8).all(|past| peek(HEAP + PAGE - 8 + past).is_none()), "it goes on in another page");
    assert_eq!(peek(HEAP + 2 * PAGE), None, "nothing is mapped there");
    assert_eq!([0, u64::MAX, 1 << 63].map(peek), [None; 3]);
}
