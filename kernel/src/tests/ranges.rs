//! Trees of ranges against a naive model, through a model of the processor's translation buffer:
//! what a program sees is what the mappings say, whatever the tables and the buffer remember.

use super::steps::{protect_in_steps, unmap_in_steps};
use super::{Random, World};
use crate::arch::paging::{Flags, Leaves, Pte, Table, leaves, view};
use crate::hardware::{Flush, take_flushes};
use crate::memory::{PAGE_BYTES, phys_to_virt};
use crate::objects::domain::Death;
use crate::objects::fault::Access;
use crate::objects::frames::LARGE_PAGE;
use crate::objects::mapping::{Mapped, PageRun, VaRange};
use crate::objects::segment::Kind;
use crate::objects::{Domain, Ptr, Range, Segment};
use crate::steps::Budget;
use abi::layout::protection::{EXECUTE, READ, WRITE};
use abi::{DeathCause, Error};
use std::collections::BTreeMap;

const PAGE: u64 = PAGE_BYTES as u64;
const SEGMENT_PAGES: u64 = 24;
/// Room for a large page.
const RUN_PAGES: u64 = 520;
const RANGES_MAX: usize = 8;
const SEGMENTS_MAX: usize = 5;

/// A mapping of the model; ranges and segments by their number.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Part {
    pages: u64,
    protection: u64,
    allowed: u64,
    target: MapTarget,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum MapTarget {
    Segment { number: usize, first: u64 },
    Range(usize),
}

/// A range and its model: parts by first page.
struct Tree {
    range: Ptr<Range>,
    parts: BTreeMap<u64, Part>,
    domain: Option<Ptr<Domain>>,
}

struct Memory {
    segment: Ptr<Segment>,
    bytes: BTreeMap<u64, u8>,
}

/// All ranges, the first ones roots; numbers are never used again.
struct Model {
    world: World,
    trees: BTreeMap<usize, Tree>,
    memories: BTreeMap<usize, Memory>,
    next: usize,
    /// The space that is loaded.
    loaded: usize,
    /// What the processor remembers of the loaded space, by page, and whether a large page showed
    /// it.
    buffer: BTreeMap<u64, (Pte, bool)>,
    faults: u64,
    hits: u64,
    /// Looks at pages that a large page of the space itself maps.
    large: u64,
}

impl Model {
    fn new(window: Option<VaRange>) -> Model {
        let mut world = World::new(6000);
        if let Some(window) = window {
            world.kernel.user_window = window;
        }
        take_flushes();
        let (trees, memories, buffer) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut model = Model { world, trees, memories, next: 0, loaded: 0, buffer, faults: 0, hits: 0, large: 0 };
        for _ in 0..2 {
            let domain = Ptr::<Domain>::create(&mut model.world.kernel, model.world.ram, 0, super::name()).unwrap();
            model.add_tree(domain.range(), Some(domain));
        }
        model
    }

    fn number(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }

    fn add_tree(&mut self, range: Ptr<Range>, domain: Option<Ptr<Domain>>) -> usize {
        let number = self.number();
        self.trees.insert(number, Tree { range, parts: BTreeMap::new(), domain });
        number
    }

    /// The processor does what it was told.
    fn flush(&mut self) {
        for flush in take_flushes() {
            match flush {
                Flush::All => self.buffer.clear(),
                Flush::Page(address) => {
                    self.buffer.remove(&(address / PAGE));
                    let slot = address / Table::bytes(0) * LARGE_PAGE;
                    self.buffer.retain(|page, (_, is_large)| !(*is_large && (slot..slot + LARGE_PAGE).contains(page)));
                }
            }
        }
    }

    /// The part of a tree that covers a page.
    fn part(&self, tree: usize, page: u64) -> Option<(u64, Part)> {
        let (start, part) = self.trees[&tree].parts.range(..=page).next_back()?;
        (start + part.pages > page).then_some((*start, *part))
    }

    fn is_free(&self, tree: usize, place: PageRun) -> bool {
        let (first, end) = (place.start / PAGE, place.end() / PAGE);
        self.part(tree, first).is_none() && self.trees[&tree].parts.range(first..end).next().is_none()
    }

    /// What a program sees at a page: which page of which memory, with what rights.
    fn seen(&self, tree: usize, page: u64) -> Option<(usize, u64, u64)> {
        let (start, part) = self.part(tree, page)?;
        match part.target {
            MapTarget::Segment { number, first } => Some((number, first + page - start, part.protection)),
            MapTarget::Range(nested) => {
                let (number, page, rights) = self.seen(nested, page - start)?;
                Some((number, page, rights & part.protection))
            }
        }
    }

    /// Cuts the model's mapping of a segment at a page.
    fn cut(&mut self, tree: usize, page: u64) {
        let Some((start, part)) = self.part(tree, page).filter(|(start, _)| *start < page) else { return };
        let MapTarget::Segment { number, first } = part.target else { panic!("nested ranges are not cut") };
        let parts = &mut self.trees.get_mut(&tree).unwrap().parts;
        let kept = page - start;
        parts.insert(start, Part { pages: kept, ..part });
        let target = MapTarget::Segment { number, first: first + kept };
        parts.insert(page, Part { pages: part.pages - kept, target, ..part });
    }

    fn cuts_nested(&self, tree: usize, place: PageRun) -> bool {
        [place.start / PAGE, place.end() / PAGE].into_iter().any(|page| {
            self.part(tree, page)
                .is_some_and(|(start, part)| start < page && matches!(part.target, MapTarget::Range(_)))
        })
    }

    fn load(&mut self, tree: usize) {
        let range = self.trees[&tree].range;
        if self.world.kernel.loaded != Some(range) {
            self.world.kernel.loaded = Some(range);
            self.loaded = tree;
            self.buffer.clear();
        }
    }

    /// Reads or writes a page as a program in that space would: the buffer first, then the tables,
    /// then a fault.
    fn access(&mut self, tree: usize, page: u64, access: Access, value: u8) {
        self.load(tree);
        let (needs, right) = match access {
            Access::Write => (Flags::WRITE, WRITE),
            Access::Read => (Flags::NONE, READ),
            Access::Execute => (Flags::NONE, EXECUTE),
        };
        let suffices = |entry: &Pte| {
            entry.flags().contains(needs) && !(access == Access::Execute && entry.flags().contains(Flags::NO_EXECUTE))
        };
        let seen = self.seen(tree, page);
        let inside = seen.is_some_and(|(number, page, _)| page < self.memories[&number].segment.pages());
        let allowed = inside && seen.is_some_and(|(_, _, rights)| rights & right != 0);
        let range = self.trees[&tree].range;
        let is_large = matches!(leaves(range.top(), page * PAGE, 1), Leaves::Large(_));
        self.large += u64::from(is_large);
        if !self.buffer.contains_key(&page)
            && let Some(entry) = view(range.root(), page * PAGE)
        {
            self.buffer.insert(page, (entry, is_large));
        }
        let remembered = self.buffer.get(&page).map(|(entry, _)| *entry).filter(suffices);
        assert!(remembered.is_none() || allowed, "tables or buffer allow too much");
        let frame = match remembered {
            Some(entry) => {
                self.hits += 1;
                Some(entry.address())
            }
            None => {
                self.faults += 1;
                let made = range.resolve(&mut self.world.kernel, page * PAGE, access);
                self.buffer.remove(&page);
                self.flush();
                made.ok()
            }
        };
        assert_eq!(frame.is_some(), allowed, "{access:?} of page {page:#x}");
        let (Some(frame), Some((number, page, _))) = (frame, seen) else { return };
        let bytes = &mut self.memories.get_mut(&number).unwrap().bytes;
        // SAFETY: a page of the fake RAM.
        unsafe {
            assert_eq!(phys_to_virt(frame).read(), bytes.get(&page).copied().unwrap_or(0));
            if access == Access::Write {
                phys_to_virt(frame).write(value);
                bytes.insert(page, value);
            }
        }
    }

    /// `RangeGet` tells of the mappings of the model, in order; two that continue each other may be
    /// one.
    fn compare(&self, tree: usize) {
        let told = &self.trees[&tree];
        let mut next = 0;
        let mut seen = BTreeMap::new();
        while let Some(mapping) = told.range.at_or_after(next) {
            assert!(mapping.start() >= next);
            next = mapping.end();
            let number = |of: &dyn Fn(&Model) -> Option<usize>| of(self).expect("what is mapped is known");
            for page in mapping.start() / PAGE..mapping.start() / PAGE + mapping.pages().min(600) {
                let target = match mapping.mapped() {
                    Mapped::Segment(mapped) => MapTarget::Segment {
                        number: number(&|model| {
                            model.memories.iter().find(|(_, memory)| memory.segment == mapped).map(|(n, _)| *n)
                        }),
                        first: mapping.page_at(page * PAGE),
                    },
                    Mapped::Range(mapped) => MapTarget::Range(number(&|model| {
                        model.trees.iter().find(|(_, tree)| tree.range == mapped).map(|(n, _)| *n)
                    })),
                };
                seen.insert(page, (target, mapping.protection(), mapping.allowed()));
            }
        }
        let known: BTreeMap<_, _> = told
            .parts
            .iter()
            .flat_map(|(start, part)| {
                (0..part.pages.min(600)).map(move |page| {
                    let target = match part.target {
                        MapTarget::Segment { number, first } => MapTarget::Segment { number, first: first + page },
                        nested => nested,
                    };
                    (start + page, (target, part.protection, part.allowed))
                })
            })
            .collect();
        assert_eq!(seen, known);
    }
}

/// A page where something may be: near the start of a table of some level.
fn somewhere(random: &mut Random, window: VaRange, level: u32) -> u64 {
    let table = Table::bytes(random.below(u64::from(level).max(1)) as u32);
    let offset = random.below(3) * table + random.below(20) * PAGE;
    (window.start.next_multiple_of(table) + offset) / PAGE
}

fn step(model: &mut Model, random: &mut Random) {
    let numbers: Vec<usize> = model.trees.keys().copied().collect();
    let memories: Vec<usize> = model.memories.keys().copied().collect();
    let tree = random.one(&numbers);
    let range = model.trees[&tree].range;
    let page = somewhere(random, range.window(), range.level());
    let kernel = &mut *model.world.kernel;
    match random.below(16) {
        0 if numbers.len() < RANGES_MAX => {
            let pages = random.one(&[1, 512, 513, 1 << 18, (1 << 18) + 1]);
            let range = Ptr::<Range>::create_nested(kernel, model.world.ram, pages, false).unwrap();
            assert!(range.pages() >= pages);
            model.add_tree(range, None);
        }
        1 if memories.len() < SEGMENTS_MAX => {
            // Every fourth is one that large pages can map; rarely does memory suffice for many.
            let large = random.below(4) == 0;
            let run = large.then(|| Ptr::<Segment>::new_contiguous(kernel, model.world.ram, RUN_PAGES).ok()).flatten();
            let segment =
                run.unwrap_or_else(|| Ptr::<Segment>::new_anonymous(kernel, model.world.ram, SEGMENT_PAGES).unwrap());
            let number = model.number();
            model.memories.insert(number, Memory { segment, bytes: BTreeMap::new() });
        }
        2 if memories.len() < SEGMENTS_MAX && !memories.is_empty() => {
            let of = &model.memories[&random.one(&memories)];
            let segment = match of.segment.kind() {
                Kind::Anonymous => {
                    let copy = Ptr::<Segment>::new_anonymous(kernel, model.world.ram, of.segment.pages()).unwrap();
                    if random.below(2) == 0 {
                        copy.set_by_reference();
                    }
                    let mut few = || Budget::new(1 + random.below(20) as u32);
                    while !of.segment.share_until_written(kernel, copy, &mut few()).unwrap() {}
                    copy
                }
                _ => return,
            };
            let bytes = of.bytes.clone();
            let number = model.number();
            model.memories.insert(number, Memory { segment, bytes });
        }
        3 if !memories.is_empty() => {
            let number = random.one(&memories);
            let memory = model.memories.get_mut(&number).unwrap();
            if memory.segment.kind() != Kind::Anonymous {
                return;
            }
            let pages = 1 + random.below(SEGMENT_PAGES);
            memory.segment.set_pages(kernel, pages).unwrap();
            memory.bytes.retain(|page, _| *page < pages);
        }
        4 | 5 if !memories.is_empty() => map(model, random, tree, page, random_memory(&memories, page)),
        6 | 7 => nest(model, random, tree, page, random_other(&numbers, page)),
        8 => unmap(model, random, tree, page),
        9 => protect(model, random, tree, page),
        10 if random.below(4) == 0 => model.compare(tree),
        11 if random.below(6) == 0 => remove(model, tree),
        _ => {
            let space = if random.below(8) == 0 { random.one(&numbers[..2]) } else { model.loaded };
            let window = model.trees[&space].range.window();
            let page = match random.below(8) {
                0 => somewhere(random, window, Table::TOP_LEVEL),
                _ => some_mapped(model, random, space),
            };
            let access = random.one(&[Access::Read, Access::Write, Access::Write, Access::Execute]);
            if page * PAGE < window.end {
                model.access(space, page, access, random.any() as u8);
            }
        }
    }
    model.flush();
}

/// A page that a tree maps, or nearly so.
fn some_mapped(model: &Model, random: &mut Random, tree: usize) -> u64 {
    let parts = &model.trees[&tree].parts;
    let Some((start, part)) = parts.iter().nth(random.below(parts.len().max(1) as u64) as usize) else { return 1 };
    match part.target {
        MapTarget::Segment { .. } => {
            let pages = random.one(&[part.pages, part.pages.min(4)]);
            start + random.below(pages + 1)
        }
        MapTarget::Range(nested) => start + some_mapped(model, random, nested),
    }
}

fn random_memory(memories: &[usize], page: u64) -> usize {
    memories[page as usize % memories.len()]
}

fn random_other(numbers: &[usize], page: u64) -> usize {
    numbers[(page / 3) as usize % numbers.len()]
}

fn map(model: &mut Model, random: &mut Random, tree: usize, page: u64, number: usize) {
    let range = model.trees[&tree].range;
    let segment = model.memories[&number].segment;
    let is_run = segment.kind() != Kind::Anonymous;
    let (page, first, pages) = match is_run && random.below(4) != 0 {
        // Where a large page fits, or not quite.
        true => (page / 512 * 512 + random.below(2), random.below(2), 510 + random.below(RUN_PAGES - 510)),
        false => (page, random.below(SEGMENT_PAGES), 1 + random.below(16)),
    };
    let protection = random.one(&[READ, READ | WRITE, READ | EXECUTE]);
    let allowed = READ | WRITE | EXECUTE;
    let Ok(place) = range.place(page * PAGE, pages) else { return };
    let made = range.map(&mut model.world.kernel, place, segment, first, [protection, allowed]);
    let expected = match (first + pages <= segment.pages(), model.is_free(tree, place)) {
        (false, _) => Err(Error::BadArgument),
        (true, false) => Err(Error::Busy),
        (true, true) => Ok(()),
    };
    assert_eq!(made, expected);
    if made.is_ok() {
        let part = Part { pages, protection, allowed, target: MapTarget::Segment { number, first } };
        model.trees.get_mut(&tree).unwrap().parts.insert(page, part);
    }
}

fn nest(model: &mut Model, random: &mut Random, tree: usize, page: u64, nested: usize) {
    let (range, child) = (model.trees[&tree].range, model.trees[&nested].range);
    let page = if random.below(8) == 0 { page } else { page / 512 * 512 };
    let protection = random.one(&[READ, READ | WRITE, READ | WRITE | EXECUTE, 0]);
    let allowed = protection | READ;
    let made = range.nest(&mut model.world.kernel, page * PAGE, child, [protection, allowed]);
    let pages = Table::bytes(child.level()) / PAGE;
    let place = range.place(page * PAGE, pages);
    let fits = child.level() < range.level() && page.is_multiple_of(pages) && place.is_ok();
    let expected = match (fits, place.is_ok_and(|place| model.is_free(tree, place))) {
        (false, _) => Err(Error::BadArgument),
        (true, false) => Err(Error::Busy),
        (true, true) => Ok(()),
    };
    assert_eq!(made, expected);
    if made.is_ok() {
        let part = Part { pages, protection, allowed, target: MapTarget::Range(nested) };
        model.trees.get_mut(&tree).unwrap().parts.insert(page, part);
    }
}

/// Some place, often just what a part covers.
fn place_near(model: &Model, random: &mut Random, tree: usize, page: u64) -> Option<PageRun> {
    let range = model.trees[&tree].range;
    let exact = model.part(tree, page).filter(|_| random.below(3) != 0).map(|(start, part)| (start, part.pages));
    let (start, pages) = exact.unwrap_or((page, 1 + random.below(24)));
    range.place(start * PAGE, pages).ok()
}

fn unmap(model: &mut Model, random: &mut Random, tree: usize, page: u64) {
    let Some(place) = place_near(model, random, tree, page) else { return };
    let unmapped = unmap_in_steps(&mut model.world.kernel, model.trees[&tree].range, place, random);
    if model.cuts_nested(tree, place) {
        assert_eq!(unmapped, Err(Error::BadArgument));
        return;
    }
    let (first, end) = (place.start / PAGE, place.end() / PAGE);
    model.cut(tree, first);
    model.cut(tree, end);
    let parts = &mut model.trees.get_mut(&tree).unwrap().parts;
    let gone: Vec<u64> = parts.range(first..end).map(|(start, _)| *start).collect();
    let pages = gone.iter().map(|start| parts.remove(start).unwrap().pages).sum();
    assert_eq!(unmapped, Ok(pages));
}

fn protect(model: &mut Model, random: &mut Random, tree: usize, page: u64) {
    let Some(place) = place_near(model, random, tree, page) else { return };
    let wanted = random.one(&[READ, READ | WRITE, READ | EXECUTE, 0]);
    let range = model.trees[&tree].range;
    let (first, end) = (place.start / PAGE, place.end() / PAGE);
    let cuts = model.cuts_nested(tree, place);
    let mut next = first;
    while let Some((start, part)) = model.part(tree, next).filter(|_| next < end && !cuts) {
        if part.allowed & wanted != wanted {
            assert_eq!(protect_in_steps(&mut model.world.kernel, range, place, wanted, random), Err(Error::NoRights));
            return;
        }
        next = start + part.pages;
    }
    let protected = protect_in_steps(&mut model.world.kernel, range, place, wanted, random);
    if next < end || cuts {
        return assert_eq!(protected, Err(Error::BadArgument));
    }
    protected.unwrap();
    model.cut(tree, first);
    model.cut(tree, end);
    let parts = &mut model.trees.get_mut(&tree).unwrap().parts;
    parts.range_mut(first..end).for_each(|(_, part)| part.protection = wanted);
}

/// Unmaps a nested range everywhere, as revocation does, and drops it.
fn remove(model: &mut Model, number: usize) {
    let tree = &model.trees[&number];
    if tree.domain.is_some() {
        return;
    }
    let range = tree.range;
    assert!(range.leave_all(&mut model.world.kernel));
    model.world.kernel.release(range);
    model.world.kernel.drain_all();
    model.trees.remove(&number);
    for tree in model.trees.values_mut() {
        tree.parts.retain(|_, part| part.target != MapTarget::Range(number));
    }
}

fn end(mut model: Model) {
    for (_, tree) in core::mem::take(&mut model.trees) {
        match tree.domain {
            Some(domain) => {
                model.world.kernel.kill(domain, Death::by_call(DeathCause::Killed, 0));
                model.world.kernel.release(domain);
            }
            None => model.world.kernel.release(tree.range),
        }
        model.world.kernel.drain_all();
    }
    for (_, memory) in core::mem::take(&mut model.memories) {
        model.world.kernel.release(memory.segment);
    }
    model.world.assert_empty();
}

#[test]
fn trees_of_ranges_agree_with_the_model_through_the_translation_buffer() {
    let window = |start: u64, end: u64| Some(VaRange { start, end });
    // The whole window, 8 GiB from an odd start, 16 MiB: with the smallest no range of 1 GiB fits
    // anywhere but in 512 GiB.
    let windows = [None, window(0x3_0000_1000, 0x5_0000_0000), window(0x20_0000, 0x120_0000)];
    let (mut faults, mut hits, mut large) = (0, 0, 0);
    for seed in 1..=60u64 {
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut model = Model::new(windows[seed as usize % windows.len()]);
        for _ in 0..2500 {
            step(&mut model, &mut random);
        }
        (faults, hits, large) = (faults + model.faults, hits + model.hits, large + model.large);
        end(model);
    }
    let enough = faults > 10_000 && hits > 5000 && large > 500;
    assert!(enough, "too little was tried: {faults} faults, {hits} hits, {large} of large pages");
}

#[test]
fn one_fault_serves_every_space_that_shows_the_range() {
    let mut model = Model::new(None);
    let kernel = &mut *model.world.kernel;
    let ram = model.world.ram;
    let [outer, inner] = [1 << 18, 512].map(|pages| Ptr::<Range>::create_nested(kernel, ram, pages, false).unwrap());
    let open = [READ | WRITE; 2];
    let spaces = [0, 1].map(|number| model.trees[&number].range);
    // Three levels: space, 1 GiB, 2 MiB; at another address in each space.
    let [at, inner_at] = [Table::bytes(1), 7 * Table::bytes(0)];
    spaces[0].nest(kernel, at, outer, open).unwrap();
    spaces[1].nest(kernel, 5 * at, outer, open).unwrap();
    outer.nest(kernel, inner_at, inner, open).unwrap();
    let segment = Ptr::<Segment>::new_anonymous(kernel, ram, 64).unwrap();
    let place = inner.place(0x1000, 64).unwrap();
    inner.map(kernel, place, segment, 0, open).unwrap();
    let here = |page: u64| at + inner_at + 0x1000 + page * PAGE;
    let there = |page: u64| here(page) + 4 * at;
    let used = kernel.frames.free();
    for page in 0..64 {
        let frame = spaces[0].resolve(kernel, here(page), Access::Write).unwrap();
        assert_eq!(
            view(spaces[1].root(), there(page)).map(Pte::address),
            Some(frame),
            "no fault is left for the other"
        );
    }
    assert_eq!(used - kernel.frames.free(), 64 + 1, "pages, and one for the segment's table: none for tables");
    // Taken out of one space it is still seen in the other.
    spaces[0].unmap(kernel, spaces[0].place(at, 1 << 18).unwrap(), &mut Budget::all()).unwrap();
    assert!((0..64).all(|page| view(spaces[0].root(), here(page)).is_none()));
    assert!((0..64).all(|page| view(spaces[1].root(), there(page)).is_some()));
    // A range that goes under a parent leaves nothing of itself there.
    assert!(inner.leave_all(kernel));
    assert!((0..64).all(|page| view(spaces[1].root(), there(page)).is_none()));
    assert_eq!(spaces[1].resolve(kernel, there(0), Access::Read).ok(), None);
    for range in [outer, inner] {
        kernel.release(range);
    }
    kernel.release(segment);
    end(model);
}

#[test]
fn no_range_is_seen_in_itself() {
    let mut model = Model::new(None);
    let kernel = &mut *model.world.kernel;
    let ram = model.world.ram;
    let ranges =
        [512, 512, 1 << 18, 1 << 27].map(|pages| Ptr::<Range>::create_nested(kernel, ram, pages, true).unwrap());
    let open = [READ; 2];
    let [small, other, middle, large] = ranges;
    for (parent, child) in [(small, small), (small, other), (small, middle), (middle, large), (large, large)] {
        assert_eq!(parent.nest(kernel, 0, child, open), Err(Error::BadArgument));
    }
    let space = model.trees[&0].range;
    assert_eq!(small.nest(kernel, 0, space, open), Err(Error::BadArgument));
    assert_eq!(
        space.nest(kernel, 1 << 30, small, open),
        Err(Error::BadArgument),
        "writable code stays where it may be"
    );
    assert_eq!(middle.nest(kernel, PAGE, small, open), Err(Error::BadArgument), "not a multiple of its size");
    assert_eq!(middle.nest(kernel, 1 << 30, small, open), Err(Error::BadArgument), "past the end");
    assert_eq!(Ptr::<Range>::create_nested(kernel, ram, 0, false).err(), Some(Error::BadArgument));
    assert_eq!(Ptr::<Range>::create_nested(kernel, ram, (1 << 27) + 1, false).err(), Some(Error::BadArgument));
    ranges.iter().for_each(|range| kernel.release(*range));
    end(model);
}
