//! Corey's memclone and mempass over cores as the coherence model has them: a few pages of each
//! layout (see `layouts`), all cores beginning at once and spinning for each other.
//!
//! Mempass goes round the nodes. Beside the measured stretches the first core says in a line how
//! many soft faults all cores took, and how often somebody waited for the lock of the common range.
//! Lines of the region: 48 its id, 49 that of what is passed, 50 turns taken, 51 faults of all.

use abi::layout::counter;
use abi::{Error, Handle, PAGE_BYTES};
use core::sync::atomic::Ordering;
use runtime::Start;

use super::Room;
use super::shares::POOL;
use crate::layouts::{COMMON, Common, LAYOUTS, Layout, OWN, READ_WRITE, touch, turns, unmap};
use crate::sample::Stopwatch;

const RANGE: u64 = 48;
const PASSED: u64 = 49;
const TURNS: u64 = 50;
const FAULTS: u64 = 51;
const PAGES: u64 = 32;
const OWN_PAGES: u64 = 512;

impl Room {
    /// Its place when cores go round the nodes.
    fn place_in_turn(&self) -> Result<u64, Error> {
        let order = turns(self.cores)?;
        order.iter().position(|(core, _)| *core == self.core).map(|place| place as u64).ok_or(Error::NotFound)
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
            let waits = common.waits()? - waits;
            runtime::log!("{name}: {faults} faults of {} cores at {PAGES} pages each, {waits} waits", self.cores);
        }
        Ok(())
    }

    /// Every core makes and touches memory of its own.
    fn clone_memory(&mut self, common: &Common, layout: Layout, name: &str) -> Result<(), Error> {
        let waits = common.waits()?;
        let place = self.core * PAGES * PAGE_BYTES;
        self.meet();
        if layout == Layout::Single {
            let mut id = 0;
            self.count_faults(name, || {
                let (segment, made) = sys::share_segment(common.pool, PAGES, [0; 2], 0)?;
                id = made;
                sys::range_map(common.range, place, segment, 0, PAGES, READ_WRITE)?;
                touch(COMMON + place, PAGES, 0);
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
            touch(OWN, PAGES, 0);
            Ok(())
        })?;
        self.tell(common, name, waits)?;
        unmap(Handle::SELF_RANGE, OWN, OWN_PAGES)?;
        nested.map_or(Ok(()), |(range, _)| sys::cap_drop(range))?;
        sys::cap_drop(own)
    }

    /// One core after the other touches the same memory.
    fn pass_memory(&mut self, common: &Common, layout: Layout, name: &str) -> Result<(), Error> {
        let waits = common.waits()?;
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
            touch(address, PAGES, 0);
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
            self.line(RANGE).store(Common::make(pool)?, Ordering::Release);
        }
        self.meet();
        let id = self.line(RANGE).load(Ordering::Acquire);
        let common = Common::map(pool, id)?;
        runtime::log!("memclone and mempass: core {} is at turn {}", self.core, self.place_in_turn()?);
        for (layout, clone, pass) in LAYOUTS {
            self.clone_memory(&common, layout, clone)?;
            self.pass_memory(&common, layout, pass)?;
        }
        self.meet();
        common.unmap()?;
        if self.core == 0 {
            sys::share_remove(pool, id)?;
        }
        Ok(())
    }
}

/// All rows. A core that is refused something says so and stays away, so that the others' wait is
/// noticed.
pub(super) fn rows(room: &mut Room, start: &Start) {
    let Some(pool) = start.pool(POOL) else { return runtime::log!("load failed: the pool {POOL} is missing") };
    if let Err(error) = room.all_layouts(pool) {
        runtime::log!("load failed: memclone or mempass is refused with {error:?}");
    }
}
