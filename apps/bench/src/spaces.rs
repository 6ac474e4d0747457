//! Address ranges: what inserting and removing costs, and Corey's memclone and mempass (section
//! 8.2) by domains of one core in the three layouts of its figure 4.
//!
//! Each domain plays a core: it touches pages because we call it. `single`: all share one space;
//! `separate`: each has its own and maps for itself; `ranges`: each has its own, and what is shared
//! is a nested range. In memclone each domain touches pages of its own, in mempass all touch the
//! same ones, one after another. Besides time, the soft faults of one pass are logged.

use abi::layout::{counter, protection, segment};
use abi::{Error, Handle};

use crate::sample::{BATCH, SAMPLES, Stopwatch, Stretch, look, row};
use worker::{Job, Worker};

const PAGE_BYTES: u64 = abi::PAGE_BYTES;
const READ_WRITE: u64 = protection::READ | protection::WRITE;
/// In the room of regions, past what the loader, the runtime and the other rows map there.
const PLACE: u64 = abi::layout::REGIONS + (7 << 37);
/// What a nested range of the smallest size takes.
const SLOT_BYTES: u64 = 512 * PAGE_BYTES;
const LARGE_PAGES: u64 = 4;
/// Domains that play cores.
const DOMAINS: usize = 4;
/// Pages that each touches.
const PAGES: u64 = 256;
/// Where they are in a domain; those of the next one follow a slot later.
const BUFFER: u64 = 0x6000_0000;

/// Where memory is mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Single,
    Separate,
    Ranges,
}

const LAYOUTS: [(Layout, &str, &str); 3] = [
    (Layout::Single, "memclone-single", "mempass-single"),
    (Layout::Separate, "memclone-separate", "mempass-separate"),
    (Layout::Ranges, "memclone-ranges", "mempass-ranges"),
];

/// All rows.
pub async fn all() -> Result<(), Error> {
    mappings().await?;
    nestings().await?;
    large().await?;
    for (layout, clone, pass) in LAYOUTS {
        let players = Players::new(layout)?;
        players.measure(clone, Players::clone_once).await?;
        players.measure(pass, Players::pass_once).await?;
    }
    Ok(())
}

/// Measures a batch of something at `address(0)` and so on, and of what undoes it.
async fn both(
    names: [&str; 2],
    make: impl Fn(u64) -> Result<(), Error>,
    undo: impl Fn(u64) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut stretches = [[Stretch::default(); SAMPLES]; 2];
    let [made, undone] = &mut stretches;
    for (made, undone) in made.iter_mut().zip(undone) {
        let watch = Stopwatch::start(names[0], BATCH);
        (0..BATCH).try_for_each(&make)?;
        *made = watch.stop();
        let watch = Stopwatch::start(names[1], BATCH);
        (0..BATCH).try_for_each(&undo)?;
        *undone = watch.stop();
        look().await;
    }
    for (name, stretches) in names.iter().zip(&mut stretches) {
        row(name, BATCH, stretches);
    }
    Ok(())
}

fn unmap(range: Handle, address: u64, pages: u64) -> Result<(), Error> {
    // SAFETY: what these rows map, only they and their workers touch.
    unsafe { sys::range_unmap(range, address, pages) }.map(drop)
}

/// Mappings of a page that nobody touches, in one range.
async fn mappings() -> Result<(), Error> {
    let (memory, _) = sys::segment_alloc(Handle::SELF_RAM, 1, 0)?;
    // One page apart, or they would become one.
    let at = |number: u64| PLACE + 2 * number * PAGE_BYTES;
    let insert = |number| sys::range_map(Handle::SELF_RANGE, at(number), memory, 0, 1, READ_WRITE);
    both(["range-insert", "range-remove"], insert, |number| unmap(Handle::SELF_RANGE, at(number), 1)).await?;
    sys::cap_drop(memory)
}

/// The same of a nested range.
async fn nestings() -> Result<(), Error> {
    let (inner, pages) = sys::range_alloc(Handle::SELF_RAM, 1, 0)?;
    let at = |number: u64| PLACE + number * SLOT_BYTES;
    let insert = |number| sys::range_nest(Handle::SELF_RANGE, at(number), inner, READ_WRITE);
    both(["range-nest", "range-unnest"], insert, |number| unmap(Handle::SELF_RANGE, at(number), pages)).await?;
    sys::cap_drop(inner)
}

/// First touch of memory that large pages map.
async fn large() -> Result<(), Error> {
    const NAME: &str = "large-page";
    let pages = LARGE_PAGES * SLOT_BYTES / PAGE_BYTES;
    let (memory, _) = sys::segment_alloc(Handle::SELF_RAM, pages, segment::CONTIGUOUS)?;
    let mut samples = [Stretch::default(); SAMPLES];
    let mut faults = 0;
    for sample in &mut samples {
        sys::range_map(Handle::SELF_RANGE, PLACE, memory, 0, pages, READ_WRITE)?;
        let before = sys::counter_read(counter::SOFT_FAULTS)?;
        let watch = Stopwatch::start(NAME, LARGE_PAGES);
        for page in 0..LARGE_PAGES {
            // SAFETY: just mapped for this alone.
            unsafe { ((PLACE + page * SLOT_BYTES) as *mut u64).write_volatile(page) };
        }
        *sample = watch.stop();
        faults = sys::counter_read(counter::SOFT_FAULTS)? - before;
        unmap(Handle::SELF_RANGE, PLACE, pages)?;
        look().await;
    }
    row(NAME, LARGE_PAGES, &mut samples);
    runtime::log!("{NAME} {faults} faults");
    sys::cap_drop(memory)
}

/// Domains that touch pages as they are told.
struct Players {
    layout: Layout,
    workers: [Worker; DOMAINS],
    portals: [Handle; DOMAINS],
    ranges: [Handle; DOMAINS],
}

/// Makes one of each.
fn each<T>(make: impl Fn(usize) -> Result<T, Error>) -> Result<[T; DOMAINS], Error> {
    Ok([make(0)?, make(1)?, make(2)?, make(3)?])
}

impl Players {
    fn new(layout: Layout) -> Result<Players, Error> {
        let workers = each(|number| Worker::new(number as u64, Job::Touch))?;
        for worker in &workers {
            worker.start([0, 0])?;
        }
        let portals = each(|number| workers[number].portal(0))?;
        let ranges = each(|number| workers[number].range())?;
        Ok(Players { layout, workers, portals, ranges })
    }

    /// The domain that plays core `number`.
    fn space(&self, number: usize) -> usize {
        if self.layout == Layout::Single { 0 } else { number }
    }

    /// Core `number` writes to each of the pages.
    fn touch(&self, number: usize, address: u64) -> Result<(), Error> {
        sys::portal_call(self.portals[self.space(number)], [address, PAGES, 0, 0], u64::MAX).map(drop)
    }

    /// Shows a segment to core `number`; gives the range in between, if there is one.
    fn map(&self, number: usize, address: u64, memory: Handle) -> Result<Option<Handle>, Error> {
        let range = self.ranges[self.space(number)];
        if self.layout != Layout::Ranges {
            sys::range_map(range, address, memory, 0, PAGES, READ_WRITE)?;
            return Ok(None);
        }
        let (inner, _) = sys::range_alloc(self.workers[number].ram, PAGES, 0)?;
        sys::range_map(inner, 0, memory, 0, PAGES, READ_WRITE)?;
        sys::range_nest(range, address, inner, READ_WRITE)?;
        Ok(Some(inner))
    }

    /// Each touches fresh pages of its own.
    fn clone_once(&self, name: &str) -> Result<Stretch, Error> {
        let address = |number: usize| BUFFER + number as u64 * SLOT_BYTES;
        let memory = each(|number| sys::segment_alloc(self.workers[number].ram, PAGES, 0))?;
        let inner = each(|number| self.map(number, address(number), memory[number].0))?;
        let watch = Stopwatch::start(name, PAGES * DOMAINS as u64);
        (0..DOMAINS).try_for_each(|number| self.touch(number, address(number)))?;
        let stretch = watch.stop();
        for number in 0..DOMAINS {
            unmap(self.ranges[self.space(number)], address(number), SLOT_BYTES / PAGE_BYTES)?;
            sys::cap_drop(memory[number].0)?;
            inner[number].map_or(Ok(()), sys::cap_drop)?;
        }
        Ok(stretch)
    }

    /// All touch the same fresh pages in turn.
    fn pass_once(&self, name: &str) -> Result<Stretch, Error> {
        let (memory, _) = sys::segment_alloc(Handle::SELF_RAM, PAGES, 0)?;
        let inner = self.map(0, BUFFER, memory)?;
        for number in 1..DOMAINS {
            match (self.layout, inner) {
                (Layout::Single, _) => (),
                (_, Some(inner)) => sys::range_nest(self.ranges[number], BUFFER, inner, READ_WRITE)?,
                (_, None) => sys::range_map(self.ranges[number], BUFFER, memory, 0, PAGES, READ_WRITE)?,
            }
        }
        let watch = Stopwatch::start(name, PAGES * DOMAINS as u64);
        (0..DOMAINS).try_for_each(|number| self.touch(number, BUFFER))?;
        let stretch = watch.stop();
        for range in self.ranges {
            unmap(range, BUFFER, SLOT_BYTES / PAGE_BYTES)?;
        }
        sys::cap_drop(memory)?;
        inner.map_or(Ok(()), sys::cap_drop)?;
        Ok(stretch)
    }

    async fn measure(&self, name: &str, once: impl Fn(&Players, &str) -> Result<Stretch, Error>) -> Result<(), Error> {
        let mut samples = [Stretch::default(); SAMPLES];
        let mut faults = 0;
        for sample in &mut samples {
            let before = sys::counter_read(counter::SOFT_FAULTS)?;
            *sample = once(self, name)?;
            faults = sys::counter_read(counter::SOFT_FAULTS)? - before;
            look().await;
        }
        row(name, PAGES * DOMAINS as u64, &mut samples);
        runtime::log!("{name} {faults} faults");
        Ok(())
    }
}

impl Drop for Players {
    fn drop(&mut self) {
        for handle in self.portals.into_iter().chain(self.ranges) {
            let _ = sys::cap_drop(handle);
        }
    }
}
