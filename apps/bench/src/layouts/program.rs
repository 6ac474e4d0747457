//! A dispatcher on each core: the paper's sizes, or those that words of the command line ask for.
//!
//! In memclone each core touches pages of its own, all at once; in mempass all touch the same pages
//! one after another, and the first has them made. Making and mapping is done before the clock
//! runs. Each row is done once unmeasured, so that neither guest nor host meets memory for the
//! first time. What a core writes into its own pages says whose they are, for who looks at the
//! machine's memory from outside (`./pelago test layouts/numa4`).

use abi::layout::{SEGMENT_PAGES_MAX, counter, lock};
use abi::{Error, Handle, PAGE_BYTES};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use runtime::{Program, Start};

use super::ring::{self, Outcome, Refusal, Step, Work};
use super::{COMMON, Common, LAYOUTS, Layout, OWN, RANGE_PAGES, READ_WRITE, touch, turns, unmap};
use crate::sample::{Stopwatch, known_loop, look};

/// Of each core, and of what all pass on: 100 MiB.
const PAGES: u64 = 25_600;
/// Words of the command line: other numbers of pages, and of cores that take part.
const PAGES_WORD: &str = "layouts.pages=";
const CORES_WORD: &str = "layouts.cores=";
/// Pages between two looks at what else is to be done.
const PIECE: u64 = 512;
/// How often a row is measured, after one time that is not.
const SAMPLES: u64 = 3;
/// Other components still start; their work would be measured too.
const SETTLE_NS: u64 = 300_000_000;
/// What begins the word in each page that is a core's own; then come layout, core and page.
const STAMP: u64 = 0x6d65_6d63 << 32;

/// Memory of a core in memclone.
struct Own {
    segment: Handle,
    /// Its id in the pool, if it is of the pool.
    id: Option<u64>,
    /// The range that shows it, where, and how many pages are to be unmapped.
    mapped: (Handle, u64, u64),
    /// A range of its own around it.
    nested: Option<Handle>,
    /// Where the core sees it.
    address: u64,
}

/// A dispatcher.
pub(super) struct Member {
    pub(super) start: Start,
    pub(super) program: Program,
    pages: u64,
    /// Its turn, its node, whether it has told both, and how many take part.
    turn: u64,
    node: u64,
    told: Cell<bool>,
    workers: u64,
    common: Cell<Option<Common>>,
    own: RefCell<Option<Own>>,
}

/// The number after a word of the command line.
fn asked(start: &Start, word: &str) -> Option<u64> {
    start.command_line().split(' ').find_map(|text| text.strip_prefix(word)?.parse().ok())
}

/// The component.
pub async fn run(start: Start) {
    let Some(program) = start.program() else {
        return runtime::log!("failed: it is one domain, not a program of several cores");
    };
    let order = match turns(start.cores().into()) {
        Ok(order) => order,
        Err(error) => return runtime::log!("failed: the kernel does not tell the nodes ({})", error.name()),
    };
    let core = u64::from(start.core());
    let turn = order.iter().position(|(other, _)| *other == core).unwrap_or(0);
    let (turn, node) = (turn as u64, order[turn].1);
    let pages = asked(&start, PAGES_WORD).unwrap_or(PAGES).max(1);
    let workers = asked(&start, CORES_WORD).unwrap_or(u64::MAX).clamp(1, order.len() as u64);
    let (common, own, told) = (Cell::new(None), RefCell::new(None), Cell::new(false));
    let member = Rc::new(Member { start: start.clone(), program, pages, turn, node, told, workers, common, own });
    ring::serve(&start, member.clone());
    start.serving();
    if member.program.number > 0 {
        return core::future::pending().await;
    }
    runtime::sleep(SETTLE_NS).await;
    mark::arm();
    known_loop();
    if let Err(refusal) = member.layouts().await {
        runtime::log!("failed: {refusal}");
    }
    mark::finish();
    runtime::log!("done");
    core::future::pending().await
}

impl Member {
    /// Has all dispatchers do it.
    async fn all(&self, work: Work) -> Result<Outcome, Refusal> {
        self.carry_out(Step { work, left: self.program.cores.len() as u32 - 1 }).await
    }

    fn refuse(&self, error: Error) -> Refusal {
        Refusal::of(self.start.core(), error)
    }

    /// All rows. What the cores have of the last layout stays, for who looks at the machine's
    /// memory.
    async fn layouts(&self) -> Result<(), Refusal> {
        let mut before = None;
        for (layout, clone, pass) in LAYOUTS {
            if let Some(pool) = before.take() {
                self.all(Work::Leave).await?;
                // It goes with the last name of it.
                sys::cap_drop(pool).map_err(|error| self.refuse(error))?;
            }
            let pages = self.pool_pages(layout);
            if pages > RANGE_PAGES.min(SEGMENT_PAGES_MAX) {
                for name in [clone, pass] {
                    runtime::log!(
                        "{name} absent: no pool is as large as {} cores with {} pages each",
                        self.workers,
                        self.pages
                    );
                }
                continue;
            }
            let made = sys::share_pool_alloc(Handle::SELF_RAM, pages, lock::SPIN, [0; 2]);
            let (pool, _) = made.map_err(|error| self.refuse(error))?;
            before = Some(pool);
            let (id, range) = self.publish(pool).map_err(|error| self.refuse(error))?;
            self.all(Work::Join { pool: id, range }).await?;
            self.mempass(layout, pass, pool).await?;
            self.memclone(layout, clone).await?;
        }
        Ok(())
    }

    fn pool_pages(&self, layout: Layout) -> u64 {
        // What one range shows is of its pool: then that has the memory of all.
        let pages = self.stride() * if layout == Layout::Single { self.workers } else { 1 };
        // And a word for each page in its head and in the segment, tables, and some for the
        // objects.
        pages + pages / 64 + 64
    }

    /// The pool's id, and that of a range in it.
    fn publish(&self, pool: Handle) -> Result<(u64, u64), Error> {
        let pcore = self.start.capability("cores").ok_or(Error::NoRights)?;
        Ok((sys::share_pool(pcore, pool)?, Common::make(pool)?))
    }

    fn waits(&self) -> Result<u64, Refusal> {
        let common = self.common.get().ok_or(Error::NotFound);
        common.and_then(|common| common.waits()).map_err(|error| self.refuse(error))
    }

    async fn memclone(&self, layout: Layout, name: &str) -> Result<(), Refusal> {
        let mut samples = Vec::new();
        let mut waits = 0;
        for _ in 0..=SAMPLES {
            self.all(Work::Make(layout)).await?;
            waits = self.waits()?;
            samples.push(self.all(Work::Touch(layout)).await?);
            waits = self.waits()? - waits;
        }
        self.tell(name, &samples[1..], waits);
        Ok(())
    }

    async fn mempass(&self, layout: Layout, name: &str, pool: Handle) -> Result<(), Refusal> {
        let mut samples = Vec::new();
        let mut waits = 0;
        for _ in 0..=SAMPLES {
            let made = sys::share_segment(pool, self.pages, [0; 2], 0);
            let (_, segment) = made.map_err(|error| self.refuse(error))?;
            self.all(Work::Map { layout, segment }).await?;
            waits = self.waits()?;
            let mut sum = Outcome::default();
            for turn in 0..self.workers {
                let one = self.all(Work::Pass { layout, turn }).await?;
                sum = Outcome { faults: sum.faults + one.faults, ns: sum.ns + one.ns };
            }
            samples.push(sum);
            waits = self.waits()? - waits;
            self.all(Work::Unmap(layout)).await?;
            sys::share_remove(pool, segment).map_err(|error| self.refuse(error))?;
        }
        self.tell(name, &samples[1..], waits);
        Ok(())
    }

    /// The median sample: time of each touch, and faults of all cores.
    fn tell(&self, name: &str, samples: &[Outcome], waits: u64) {
        let mut samples = samples.to_vec();
        samples.sort_unstable_by_key(|sample| sample.ns);
        let Outcome { faults, ns } = samples[samples.len() / 2];
        let (cores, pages) = (self.workers, self.pages);
        let ns = ns / (cores * pages);
        runtime::log!("{name}: {ns} ns a touch, {faults} faults of {cores} cores at {pages} pages each, {waits} waits");
    }

    /// This dispatcher's part.
    pub(super) async fn work(&self, work: Work) -> Result<Outcome, Error> {
        let takes_part = self.turn < self.workers;
        match work {
            Work::Join { pool, range } => self.join(pool, range)?,
            Work::Leave => self.leave()?,
            Work::Make(layout) if takes_part => self.make(layout)?,
            Work::Touch(layout) if takes_part => {
                let address = self.own.borrow().as_ref().ok_or(Error::NotFound)?.address;
                return self.touch(LAYOUTS[layout as usize].1, address, layout).await;
            }
            Work::Map { layout, segment } => self.map_layout(layout, segment)?,
            Work::Pass { layout, turn } if turn == self.turn => {
                if !self.told.replace(true) {
                    runtime::log!("turn {turn}: core {} of node {}", self.start.core(), self.node);
                }
                return self.touch(LAYOUTS[layout as usize].2, shared_at(layout), layout).await;
            }
            Work::Unmap(layout) => self.unmap_layout(layout)?,
            _ => (),
        }
        Ok(Outcome::default())
    }

    fn common(&self) -> Result<Common, Error> {
        self.common.get().ok_or(Error::NotFound)
    }

    fn join(&self, pool: u64, range: u64) -> Result<(), Error> {
        let pcore = self.start.capability("cores").ok_or(Error::NoRights)?;
        let pool = sys::share_import(pcore, Handle::SELF_RAM, pool)?;
        self.common.set(Some(Common::map(pool, range)?));
        Ok(())
    }

    fn leave(&self) -> Result<(), Error> {
        self.let_go()?;
        let Some(common) = self.common.take() else { return Ok(()) };
        common.unmap()?;
        sys::cap_drop(common.pool)
    }

    /// Pages from the beginning of a core's memory to that of the next one's, so that they have no
    /// table in common.
    fn stride(&self) -> u64 {
        self.pages.next_multiple_of(512)
    }

    /// In the place of what it had.
    fn make(&self, layout: Layout) -> Result<(), Error> {
        self.let_go()?;
        *self.own.borrow_mut() = Some(self.make_own(layout)?);
        Ok(())
    }

    fn make_own(&self, layout: Layout) -> Result<Own, Error> {
        let common = self.common()?;
        if layout == Layout::Single {
            let (segment, id) = sys::share_segment(common.pool, self.pages, [0; 2], 0)?;
            let place = self.turn * self.stride() * PAGE_BYTES;
            sys::range_map(common.range, place, segment, 0, self.pages, READ_WRITE)?;
            let mapped = (common.range, place, self.pages);
            return Ok(Own { segment, id: Some(id), mapped, nested: None, address: COMMON + place });
        }
        let (segment, _) = sys::segment_alloc(Handle::SELF_RAM, self.pages, 0)?;
        let (mut mapped, mut nested) = ((Handle::SELF_RANGE, OWN, self.pages), None);
        if layout == Layout::Mixed {
            let (range, pages) = sys::range_alloc(Handle::SELF_RAM, self.pages, 0)?;
            sys::range_map(range, 0, segment, 0, self.pages, READ_WRITE)?;
            sys::range_nest(Handle::SELF_RANGE, OWN, range, READ_WRITE)?;
            (mapped.2, nested) = (pages, Some(range));
        } else {
            sys::range_map(Handle::SELF_RANGE, OWN, segment, 0, self.pages, READ_WRITE)?;
        }
        Ok(Own { segment, id: None, mapped, nested, address: OWN })
    }

    fn let_go(&self) -> Result<(), Error> {
        let Some(own) = self.own.take() else { return Ok(()) };
        let (range, address, pages) = own.mapped;
        unmap(range, address, pages)?;
        own.nested.map_or(Ok(()), sys::cap_drop)?;
        own.id.map_or_else(|| sys::cap_drop(own.segment), |id| sys::share_remove(self.common()?.pool, id))
    }

    /// The first dispatcher maps for all where one range serves all.
    fn map_layout(&self, layout: Layout, segment: u64) -> Result<(), Error> {
        let common = self.common()?;
        let segment = Handle::in_share(common.pool, segment).ok_or(Error::NotFound)?;
        match (layout, self.program.number) {
            (Layout::Separate, _) => sys::range_map(Handle::SELF_RANGE, OWN, segment, 0, self.pages, READ_WRITE),
            (_, 0) => sys::range_map(common.range, 0, segment, 0, self.pages, READ_WRITE),
            _ => Ok(()),
        }
    }

    fn unmap_layout(&self, layout: Layout) -> Result<(), Error> {
        match (layout, self.program.number) {
            (Layout::Separate, _) => unmap(Handle::SELF_RANGE, OWN, self.pages),
            (_, 0) => unmap(self.common()?.range, 0, self.pages),
            _ => Ok(()),
        }
    }

    /// Touches all pages from an address on.
    async fn touch(&self, name: &str, address: u64, layout: Layout) -> Result<Outcome, Error> {
        let stamp = STAMP | (layout as u64) << 28 | u64::from(self.start.core()) << 20;
        let mut sum = Outcome::default();
        for first in (0..self.pages).step_by(PIECE as usize) {
            let pages = PIECE.min(self.pages - first);
            let before = sys::counter_read(counter::SOFT_FAULTS)?;
            let watch = Stopwatch::start(name, pages);
            touch(address + first * PAGE_BYTES, pages, stamp + first);
            sum.ns += watch.stop().ns;
            sum.faults += sys::counter_read(counter::SOFT_FAULTS)? - before;
            look().await;
        }
        Ok(sum)
    }
}

/// Where a core sees what all pass on.
fn shared_at(layout: Layout) -> u64 {
    if layout == Layout::Separate { OWN } else { COMMON }
}
