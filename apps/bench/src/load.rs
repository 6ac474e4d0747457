//! What every core does at once, for the coherence model: counters of all and of each, calls,
//! pages, and one update done in two ways, by shared memory and by messages (Barrelfish figure 3).
//!
//! One instance per core (`load-0`, `load-1`, ...). They meet in the region `load`, in which each
//! word has a cache line of its own; they spin there, since nobody may sleep while others are
//! measured. A core that has done its share goes on, unmeasured, until all have. Lines of the
//! region: 0 arrivals, 1 the shared counter, 2 finished cores, 3 cores that are there, 16 to 31 the
//! updated lines, 256 on a private counter per core, 512 on two message slots per core, 1024 on a
//! ring for each core.

mod blocks;
mod files;
mod memory;
mod rings;
mod shares;

use abi::layout::protection;
use abi::{Error, Handle};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use runtime::Start;

use crate::layouts;
use crate::parts::Lines;
use crate::sample::{self, Stopwatch};

/// Name of the region, and start of the components' names.
pub const NAME: &str = "load";
/// Operations of a core in a row; the first as many only warm the caches. So many that what another
/// component does meanwhile on one of the cores is little beside them.
const OPERATIONS: u64 = 2000;
/// Of a counter, in so many stretches.
const ADDITIONS: u64 = 500;
const STRETCHES: u64 = 50;
/// Instructions of a core's own before each addition: many turns of the model, over which the
/// cores' additions are spread, since within a turn the model does not know who was first.
const OWN_WORK: u64 = 4000;
const PAGES: u64 = 64;
/// The same for an update, of one line or many.
const UPDATES: u64 = 500;
/// And its own work before each update, in both ways.
const UPDATE_WORK: u64 = 400;
const AGAIN_NS: u64 = 1_000_000;
/// Other components still start; their work would be modelled too.
const SETTLE_NS: u64 = 300_000_000;
const ARRIVED: u64 = 0;
const SHARED: u64 = 1;
const FINISHED: u64 = 2;
const PRESENT: u64 = 3;
const UPDATED: u64 = 16;
const PRIVATE: u64 = 256;
const SLOTS: u64 = 512;
/// Most cores that the region has lines for.
const CORES_MAX: u64 = 256;
const LINES: u64 = rings::FIRST + rings::LINES * CORES_MAX;
const _: () = assert!(SLOTS + 2 * CORES_MAX <= rings::FIRST);
/// In the room of regions, past what others map there.
const TOUCHED: u64 = abi::layout::REGIONS + (3 << 38);

/// A core's view of the region.
struct Room {
    lines: Lines,
    core: u64,
    cores: u64,
    /// How many arrivals the next meeting needs.
    barrier: u64,
    /// How many cores will have finished all rows so far.
    finished: u64,
    objects: shares::Objects,
    blocks: blocks::Blocks,
}

impl Room {
    fn line(&self, line: u64) -> &AtomicU64 {
        self.lines.word(line, 0)
    }

    /// Waits until all cores are here.
    fn meet(&mut self) {
        self.barrier += self.cores;
        self.line(ARRIVED).fetch_add(1, Ordering::AcqRel);
        while self.line(ARRIVED).load(Ordering::Acquire) < self.barrier {
            core::hint::spin_loop();
        }
    }

    /// Does `operation` on all cores at once: some to warm up, a measured stretch, and more until
    /// all are done. The cores begin one after the other, spread over `spread` instructions.
    fn row(&mut self, name: &str, operations: u64, spread: u64, operation: fn(&Room)) {
        // A call each: several operations in one block of instructions could not be interleaved
        // with those of other cores.
        let operation = core::hint::black_box(operation);
        self.meet();
        sample::work(spread * self.core / self.cores);
        (0..operations).for_each(|_| operation(self));
        let watch = Stopwatch::start(name, operations);
        (0..operations).for_each(|_| operation(self));
        watch.stop();
        self.until_all_finish(operation);
    }

    /// Adds to a counter, `OWN_WORK` instructions between two additions. The cores are spread over
    /// these anew before each stretch: what interrupts one of them puts its additions elsewhere,
    /// maybe into the turns of another's, and from then on the model would not know who was first.
    fn counter(&mut self, name: &str, line: fn(&Room) -> u64) {
        let add = core::hint::black_box(move |room: &Room| {
            sample::work(OWN_WORK);
            room.line(line(room)).fetch_add(1, Ordering::Relaxed);
        });
        for _ in 0..STRETCHES {
            self.meet();
            sample::work(OWN_WORK * self.core / self.cores);
            // The line is another's now, or this core's own.
            add(self);
            let watch = Stopwatch::start(name, ADDITIONS / STRETCHES);
            (0..ADDITIONS / STRETCHES).for_each(|_| add(self));
            watch.stop();
            self.until_all_finish(add);
        }
    }

    fn until_all_finish(&mut self, meanwhile: impl Fn(&Room)) {
        self.finished += self.cores;
        self.line(FINISHED).fetch_add(1, Ordering::AcqRel);
        while self.line(FINISHED).load(Ordering::Acquire) < self.finished {
            meanwhile(self);
        }
    }

    /// Core 0 updates `LINES` lines for all others, who each send a line and wait for one.
    fn messages<const LINES: u64>(&mut self, client: &str, server: &str) {
        self.meet();
        if self.core == 0 {
            return self.serve::<LINES>(server);
        }
        (0..UPDATES).for_each(|_| self.ask(|_| false));
        let watch = Stopwatch::start(client, UPDATES);
        (0..UPDATES).for_each(|_| self.ask(|_| false));
        watch.stop();
        // The last ones are measured beside this one's requests, as the first were; but the server
        // may have gone home with those.
        self.until_all_finish(|room| room.ask(|room| room.line(FINISHED).load(Ordering::Relaxed) >= room.finished));
    }

    /// Sends a request and waits for its answer, or until told to give up.
    fn ask(&self, gives_up: impl Fn(&Room) -> bool) {
        sample::work(UPDATE_WORK);
        let slot = SLOTS + 2 * self.core;
        let number = self.line(slot).load(Ordering::Relaxed) + 1;
        self.line(slot).store(number, Ordering::Release);
        while self.line(slot + 1).load(Ordering::Acquire) != number && !gives_up(self) {
            core::hint::spin_loop();
        }
    }

    /// Is measured once its caches are warm, for as many requests as one client measures.
    fn serve<const LINES: u64>(&mut self, name: &str) {
        let last = core::cell::Cell::new(0);
        (0..UPDATES).for_each(|_| while !self.serve_next::<LINES>(&last) {});
        let watch = Stopwatch::start(name, UPDATES);
        (0..UPDATES).for_each(|_| while !self.serve_next::<LINES>(&last) {});
        watch.stop();
        self.until_all_finish(|room| {
            room.serve_next::<LINES>(&last);
        });
    }

    /// Looks at the client after the last; true if it had asked.
    fn serve_next<const LINES: u64>(&self, last: &core::cell::Cell<u64>) -> bool {
        last.set(last.get() % (self.cores - 1) + 1);
        let slot = SLOTS + 2 * last.get();
        let number = self.line(slot).load(Ordering::Acquire);
        let asked = number != self.line(slot + 1).load(Ordering::Relaxed);
        if asked {
            self.update::<LINES>();
            self.line(slot + 1).store(number, Ordering::Release);
        }
        asked
    }

    fn work_and_update<const LINES: u64>(&self) {
        sample::work(UPDATE_WORK);
        self.update::<LINES>();
    }

    fn update<const LINES: u64>(&self) {
        (0..LINES).for_each(|line| {
            self.line(UPDATED + line).fetch_add(1, Ordering::Relaxed);
        });
    }

    fn touch(&mut self) -> Result<(), Error> {
        let (segment, _) = sys::segment_alloc(Handle::SELF_RAM, PAGES, 0)?;
        sys::range_map(Handle::SELF_RANGE, TOUCHED, segment, 0, PAGES, protection::READ | protection::WRITE)?;
        self.meet();
        let watch = Stopwatch::start("page-touch/processes", PAGES);
        layouts::touch(TOUCHED, PAGES, 0);
        watch.stop();
        self.until_all_finish(|_| core::hint::spin_loop());
        layouts::unmap(Handle::SELF_RANGE, TOUCHED, PAGES)?;
        sys::cap_drop(segment)
    }
}

/// Words of the command line: the families of rows that are run, of which a row's name begins with
/// one. Without any all are.
const FAMILY: &str = "load.family=";

/// The rows, on this core; the first core says when all are done.
pub async fn run(start: &Start) {
    let cores = u64::from(start.cores());
    let Some(lines) = start.region(NAME).and_then(|region| Lines::of(&region, LINES)) else {
        return runtime::log!("load failed: the region {NAME} is missing or too small");
    };
    let core = u64::from(start.core());
    let (objects, blocks) = (shares::Objects::default(), blocks::Blocks::default());
    let mut room = Room { lines, core, cores, barrier: 0, finished: 0, objects, blocks };
    // Until all are here the boot goes on, and nobody may spin in its way.
    room.line(PRESENT).fetch_add(1, Ordering::AcqRel);
    loop {
        // Also the last one: that it serves is told when its turn ends.
        runtime::sleep(AGAIN_NS).await;
        if room.line(PRESENT).load(Ordering::Acquire) >= cores {
            break;
        }
    }
    // All sleep: who spun meanwhile would make the emulator run each of its turns.
    runtime::sleep(SETTLE_NS).await;
    if core == 0 {
        mark::arm();
    }
    let families: Vec<&str> = start.command_line().split(' ').filter_map(|word| word.strip_prefix(FAMILY)).collect();
    let is_wanted = |all: &[&str]| families.is_empty() || all.iter().any(|family| families.contains(family));
    if is_wanted(&["shared-counter"]) {
        room.counter("shared-counter", |_| SHARED);
    }
    if is_wanted(&["private-counter"]) {
        room.counter("private-counter", |room| PRIVATE + room.core);
    }
    if is_wanted(&["null-call"]) {
        room.row("null-call", OPERATIONS, 0, |_| {
            let _ = sys::null();
        });
    }
    if is_wanted(&["page-touch"]) {
        // Table pages and the kernel's lists warm up with the first.
        if let Err(error) = room.touch().and_then(|()| room.touch()) {
            runtime::log!("page-touch failed {error:?}");
        }
    }
    if is_wanted(&["update-shared"]) {
        room.row("update-shared/1", UPDATES, UPDATE_WORK, Room::work_and_update::<1>);
        room.row("update-shared/2", UPDATES, UPDATE_WORK, Room::work_and_update::<2>);
        room.row("update-shared/4", UPDATES, UPDATE_WORK, Room::work_and_update::<4>);
        room.row("update-shared/8", UPDATES, UPDATE_WORK, Room::work_and_update::<8>);
    }
    if cores > 1 && is_wanted(&["update-messages", "update-server"]) {
        room.messages::<1>("update-messages/1", "update-server/1");
        room.messages::<8>("update-messages/8", "update-server/8");
    }
    if cores > 1 && is_wanted(&["message"]) {
        rings::rows(&mut room);
    }
    if is_wanted(&["memclone", "mempass"]) {
        memory::rows(&mut room, start);
    }
    if is_wanted(&["share-add-remove"]) {
        shares::rows(&mut room, start);
    }
    if is_wanted(&["buffers"]) {
        blocks::rows(&mut room, start);
    }
    // For this there has to be a disk, so it is run where it is asked for.
    if families.contains(&"files") {
        files::rows(&mut room, start).await;
    }
    room.meet();
    if core == 0 {
        mark::finish();
        runtime::log!("load done");
    }
}
