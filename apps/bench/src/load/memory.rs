//! Corey's memclone and mempass (section 8.2) over cores, in the three layouts of its figure 4.
//!
//! `single`: all memory is in one range that all cores show; `separate`: each core maps for itself; `mixed`: what is shared is in the range of all, what is a
//! core's own in a range of its own. In memclone each core makes, maps and touches pages of its own, all at once; in mempass all touch the same pages one
//! after another, and the first clears them, in an order that goes round the nodes. Beside the measured stretches the first core says in a line how many soft faults all cores
//! took, and how often somebody waited for the lock of the common range. Lines of the region: 48 its id, 49 that of what is passed, 50 turns taken, 51 faults of all.

use abi::layout::{counter, lock, protection, range_stat};
use abi::{Error, Handle, PAGE_BYTES, Rights};
use core::sync::atomic::Ordering;
use runtime::Start;

use super::Room;
use super::shares::POOL;
use crate::sample::Stopwatch;

const RANGE: u64 = 48;
const PASSED: u64 = 49;
const TURNS: u64 = 50;
const FAULTS: u64 = 51;
const PAGES: u64 = 32;
/// Pages of the common range: of the middle size.
const RANGE_PAGES: u64 = 512 * 512;
/// Where the common range is shown, and a core's own memory: in the room of regions, past what the other rows map there.
const COMMON: u64 = abi::layout::REGIONS + (3 << 38) + (2 << 30);
const OWN: u64 = COMMON + (1 << 30);
const OWN_PAGES: u64 = 512;
const READ_WRITE: u64 = protection::READ | protection::WRITE;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Single,
    Separate,
    Mixed,
}

const LAYOUTS: [(Layout, &str, &str); 3] = [
    (Layout::Single, "memclone/single", "mempass/single"),
    (Layout::Separate, "memclone/separate", "mempass/separate"),
    (Layout::Mixed, "memclone/mixed", "mempass/mixed"),
];

/// A core's names of what all use.
struct Common {
    pool: Handle,
    range: Handle,
}

fn touch(address: u64) {
    for page in 0..PAGES {
        // SAFETY: mapped read-write by the caller, and nobody else uses it now.
        unsafe { ((address + page * PAGE_BYTES) as *mut u64).write_volatile(page) };
    }
}

fn unmap(range: Handle, address: u64, pages: u64) -> Result<(), Error> {
    // SAFETY: only `touch` uses what is there.
    unsafe { sys::range_unmap(range, address, pages) }.map(drop)
}

impl Room {
    /// Its place when cores go round the nodes.
    fn place_in_turn(&self) -> Result<u64, Error> {
        let node = |core: u64| sys::locality_get(core, core).map(|(_, node, _)| node);
        let own = node(self.core)?;
        let mut before = 0;
        for core in 0..self.cores {
            let rank = |of: u64, on: u64| (0..of).try_fold(0, |rank, core| Ok(rank + u64::from(node(core)? == on)));
            let key = (rank(core, node(core)?)?, node(core)?);
            before += u64::from(key < (rank(self.core, own)?, own));
        }
        Ok(before)
    }

    fn waits(&self, common: &Common) -> Result<u64, Error> {
        sys::range_stat(common.range, range_stat::LOCK).map(|[_, waits, _]| waits)
    }

    /// Measures `work` on this core, and adds its soft faults to those of all.
    fn count_faults(&mut self, name: &str, work: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let before = sys::counter_read(counter::SOFT_FAULTS)?;
        let watch = Stopwatch::start(name, PAGES);
        work()?;
        watch.stop();
        let faults = sys::counter_read(counter::SOFT_FAULTS)? - before;
        self.line(FAULTS).fetch_add(faults, Ordering::AcqRel);
        Ok(())
    }

    /// Says what all took, once all are done.
    fn tell(&mut self, common: &Common, name: &str, waits: u64) -> Result<(), Error> {
        self.until_all_finish(|_| core::hint::spin_loop());
        if self.core == 0 {
            let faults = self.line(FAULTS).swap(0, Ordering::AcqRel);
            let waits = self.waits(common)? - waits;
            runtime::log!("{name}: {faults} faults of {} cores at {PAGES} pages each, {waits} waits", self.cores);
        }
        Ok(())
    }

    /// Every core makes and touches memory of its own.
    fn clone_memory(&mut self, common: &Common, layout: Layout, name: &str) -> Result<(), Error> {
        let waits = self.waits(common)?;
        let place = self.core * PAGES * PAGE_BYTES;
        self.meet();
        if layout == Layout::Single {
            let mut id = 0;
            self.count_faults(name, || {
                let (segment, made) = sys::share_segment(common.pool, PAGES, [0; 2], 0)?;
                id = made;
                sys::range_map(common.range, place, segment, 0, PAGES, READ_WRITE)?;
                touch(COMMON + place);
                Ok(())
            })?;
            self.tell(common, name, waits)?;
            unmap(common.range, place, PAGES)?;
            return sys::share_remove(common.pool, id);
        }
        // Before the clock runs, as the common range was.
        let nested = (layout == Layout::Mixed).then(|| sys::range_alloc(Handle::SELF_RAM, PAGES, 0)).transpose()?;
        nested.map_or(Ok(()), |(range, _)| sys::range_nest(Handle::SELF_RANGE, OWN, range, READ_WRITE))?;
        let mut own = Handle::NONE;
        self.count_faults(name, || {
            (own, _) = sys::segment_alloc(Handle::SELF_RAM, PAGES, 0)?;
            let (range, at) = nested.map_or((Handle::SELF_RANGE, OWN), |(range, _)| (range, 0));
            sys::range_map(range, at, own, 0, PAGES, READ_WRITE)?;
            touch(OWN);
            Ok(())
        })?;
        self.tell(common, name, waits)?;
        unmap(Handle::SELF_RANGE, OWN, OWN_PAGES)?;
        nested.map_or(Ok(()), |(range, _)| sys::cap_drop(range))?;
        sys::cap_drop(own)
    }

    /// One core after the other touches the same memory.
    fn pass_memory(&mut self, common: &Common, layout: Layout, name: &str) -> Result<(), Error> {
        let waits = self.waits(common)?;
        if self.core == 0 {
            let (segment, id) = sys::share_segment(common.pool, PAGES, [0; 2], 0)?;
            self.line(PASSED).store(id, Ordering::Release);
            self.line(TURNS).store(0, Ordering::Release);
            if layout != Layout::Separate {
                sys::range_map(common.range, 0, segment, 0, PAGES, READ_WRITE)?;
            }
        }
        self.meet();
        let id = self.line(PASSED).load(Ordering::Acquire);
        let own_turn = self.place_in_turn()?;
        if layout == Layout::Separate {
            let segment = Handle::in_share(common.pool, id).ok_or(Error::NotFound)?;
            sys::range_map(Handle::SELF_RANGE, OWN, segment, 0, PAGES, READ_WRITE)?;
        }
        while self.line(TURNS).load(Ordering::Acquire) != own_turn {
            core::hint::spin_loop();
        }
        let address = if layout == Layout::Separate { OWN } else { COMMON };
        self.count_faults(name, || {
            touch(address);
            Ok(())
        })?;
        self.line(TURNS).store(own_turn + 1, Ordering::Release);
        self.tell(common, name, waits)?;
        if layout == Layout::Separate {
            unmap(Handle::SELF_RANGE, OWN, PAGES)?;
        }
        if self.core == 0 {
            if layout != Layout::Separate {
                unmap(common.range, 0, PAGES)?;
            }
            sys::share_remove(common.pool, id)?;
        }
        Ok(())
    }

    fn all_layouts(&mut self, pool: Handle) -> Result<(), Error> {
        if self.core == 0 {
            let (_, id, _) = sys::share_range(pool, RANGE_PAGES, lock::SPIN, [0; 2], 0)?;
            self.line(RANGE).store(id, Ordering::Release);
        }
        self.meet();
        let id = self.line(RANGE).load(Ordering::Acquire);
        let range = sys::share_add(Handle::NONE, Handle::in_share(pool, id).ok_or(Error::NotFound)?, Rights::ALL)?;
        sys::range_nest(Handle::SELF_RANGE, COMMON, range, READ_WRITE)?;
        let common = Common { pool, range };
        runtime::log!("memclone and mempass: core {} is at turn {}", self.core, self.place_in_turn()?);
        for (layout, clone, pass) in LAYOUTS {
            self.clone_memory(&common, layout, clone)?;
            self.pass_memory(&common, layout, pass)?;
        }
        self.meet();
        unmap(Handle::SELF_RANGE, COMMON, RANGE_PAGES)?;
        if self.core == 0 {
            sys::share_remove(pool, id)?;
        }
        sys::cap_drop(range)
    }
}

/// All rows. A core that is refused something says so and stays away, so that the others' wait is noticed.
pub(super) fn rows(room: &mut Room, start: &Start) {
    let Some(pool) = start.pool(POOL) else { return runtime::log!("load failed: the pool {POOL} is missing") };
    if let Err(error) = room.all_layouts(pool) {
        runtime::log!("load failed: memclone or mempass is refused with {error:?}");
    }
}
