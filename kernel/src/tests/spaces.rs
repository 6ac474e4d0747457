//! Segments, copy-on-write and ranges against a naive model: a map from page to byte per space.

use super::steps::{fork_in_steps, protect_in_steps, unmap_in_steps};
use super::{Random, World};
use crate::memory::{PAGE_BYTES, phys_to_virt};
use crate::objects::domain::Death;
use crate::objects::fault::Access;
use crate::objects::mapping::{PageRun, VaRange};
use crate::objects::share::Capability;
use crate::objects::{Domain, Ptr, Ram, Segment};
use abi::layout::protection::{READ, WRITE};
use abi::{DeathCause, Rights};
use std::collections::BTreeMap;

const PAGE: u64 = PAGE_BYTES as u64;
const BASE: u64 = 0x10_0000;
const WINDOW: u64 = 64;

/// What a program would see at a page: nothing, or (protection, value).
#[derive(Clone, Copy, PartialEq, Debug)]
struct Seen {
    protection: u64,
    /// Segment number in its space, page in it.
    of: (u64, u64),
}

/// One space: the domain, its model of mappings, and of the bytes of its segments.
struct Space {
    domain: Ptr<Domain>,
    mappings: BTreeMap<u64, Seen>,
    bytes: BTreeMap<(u64, u64), u8>,
    segments: Vec<(u64, Ptr<Segment>)>,
    next: u64,
}

fn space(world: &mut World) -> Space {
    let payer = world.ram;
    space_of(world, payer)
}

fn space_of(world: &mut World, payer: Ptr<Ram>) -> Space {
    let domain = Ptr::<Domain>::create(&mut world.kernel, payer, 0, super::name()).unwrap();
    Space { domain, mappings: BTreeMap::new(), bytes: BTreeMap::new(), segments: Vec::new(), next: 0 }
}

fn step(world: &mut World, space: &mut Space, random: &mut Random) {
    let kernel = &mut *world.kernel;
    let range = space.domain.range();
    let start = random.below(WINDOW);
    let pages = 1 + random.below(8).min(WINDOW - start - 1);
    let place = PageRun { start: BASE + start * PAGE, pages };
    match random.below(8) {
        0 if space.segments.len() < 6 => {
            let segment = Ptr::<Segment>::new_anonymous(kernel, world.ram, 1 + random.below(40)).unwrap();
            let slot = space.domain.reserve(kernel).unwrap();
            let rights = Rights::ALL.union(Rights::INHERIT);
            space.domain.insert(slot, Capability { object: segment.any(), badge: 0, rights });
            space.segments.push((space.next, segment));
            space.next += 1;
        }
        1 if !space.segments.is_empty() => {
            let (number, segment) = random.one(&space.segments);
            let first = random.below(segment.pages());
            let protection = random.one(&[READ, READ | WRITE]);
            let fits = first + pages <= segment.pages();
            let free = (start..start + pages).all(|page| !space.mappings.contains_key(&page));
            let mapped = range.map(kernel, place, segment, first, [protection, READ | WRITE]);
            assert_eq!(mapped.is_ok(), fits && free);
            if mapped.is_ok() {
                for page in 0..pages {
                    space.mappings.insert(start + page, Seen { protection, of: (number, first + page) });
                }
            }
        }
        2 => {
            let unmapped = unmap_in_steps(kernel, range, place, random).unwrap();
            let known = (start..start + pages).filter(|page| space.mappings.remove(page).is_some()).count();
            assert_eq!(unmapped, known as u64);
        }
        3 => {
            let protection = random.one(&[READ, READ | WRITE, 0]);
            let covered = (start..start + pages).all(|page| space.mappings.contains_key(&page));
            assert_eq!(protect_in_steps(kernel, range, place, protection, random).is_ok(), covered);
            if covered {
                (start..start + pages).for_each(|page| space.mappings.get_mut(&page).unwrap().protection = protection);
            }
        }
        4 if !space.segments.is_empty() && random.below(4) == 0 => {
            let (number, segment) = random.one(&space.segments);
            let pages = 1 + random.below(40);
            segment.set_pages(kernel, pages).unwrap();
            space.bytes.retain(|(of, page), _| *of != number || *page < pages);
        }
        5 if !space.segments.is_empty() && random.below(4) == 0 => {
            let (number, segment) = random.one(&space.segments);
            let first = random.below(segment.pages());
            let end = first + random.below(segment.pages() - first + 1);
            segment.discard(kernel, first, end);
            space.bytes.retain(|(of, page), _| *of != number || !(first..end).contains(page));
        }
        _ => access(world, space, random, start),
    }
}

/// Reads or writes one page as the processor would: through the hardware tables, with a fault if
/// they do not allow it.
fn access(world: &mut World, space: &mut Space, random: &mut Random, page: u64) {
    use crate::arch::paging::{Flags, translate};
    let kernel = &mut *world.kernel;
    let range = space.domain.range();
    let address = BASE + page * PAGE;
    let write = random.below(2) == 0;
    let (access, needs, right) =
        if write { (Access::Write, Flags::WRITE, WRITE) } else { (Access::Read, Flags::NONE, READ) };
    let seen = space.mappings.get(&page).copied();
    let inside =
        |of: (u64, u64)| space.segments.iter().any(|(number, segment)| *number == of.0 && of.1 < segment.pages());
    let allowed = seen.is_some_and(|seen| seen.protection & right != 0 && inside(seen.of));
    let hit = translate(range.root(), address, needs);
    assert!(hit.is_none() || allowed, "the tables allow too much");
    let frame = hit.or_else(|| range.resolve(kernel, address, access).ok());
    assert_eq!(frame.is_some(), allowed);
    let (Some(frame), Some(seen)) = (frame, seen) else { return };
    if write {
        assert_eq!(translate(range.root(), address, Flags::WRITE), Some(frame));
    }
    // SAFETY: a page of the fake RAM.
    unsafe {
        assert_eq!(phys_to_virt(frame).read(), space.bytes.get(&seen.of).copied().unwrap_or(0));
        if write {
            let value = random.any() as u8;
            phys_to_virt(frame).write(value);
            space.bytes.insert(seen.of, value);
        }
    }
}

fn fork(world: &mut World, parent: &Space, random: &mut Random) -> Space {
    let mut child = space(world);
    fork_in_steps(&mut world.kernel, parent.domain, child.domain, random);
    child.mappings = parent.mappings.clone();
    child.bytes = parent.bytes.clone();
    child.next = parent.next;
    child.segments = Vec::new();
    for (number, segment) in &parent.segments {
        let mut slot = 0;
        while let Some(index) = parent.domain.share().next_taken(slot) {
            slot = index + 1;
            let handle = abi::Handle(index as u64);
            let same =
                parent.domain.share().find::<Segment>(handle, Rights(0)).is_ok_and(|(found, _)| found == *segment);
            if same {
                child.segments.push((*number, child.domain.share().find::<Segment>(handle, Rights(0)).unwrap().0));
            }
        }
    }
    // A mapping that reaches past its segment's end is copied too; both sides see nothing there.
    child
}

fn end(world: &mut World, space: Space) {
    world.kernel.kill(space.domain, Death::by_call(DeathCause::Killed, 0));
    world.kernel.release(space.domain);
    world.kernel.drain_all();
}

#[test]
fn spaces_agree_with_the_model_and_give_everything_back() {
    for seed in 1..=60u64 {
        let mut world = World::new(4000);
        if seed % 2 == 0 {
            // A machine with hardly any addresses.
            world.kernel.user_window = VaRange { start: BASE, end: BASE + WINDOW * PAGE };
        }
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut spaces = vec![space(&mut world)];
        for _ in 0..3000 {
            let index = random.below(spaces.len() as u64) as usize;
            match random.below(150) {
                0 if spaces.len() < 6 => {
                    let child = fork(&mut world, &spaces[index], &mut random);
                    spaces.push(child);
                }
                1 if spaces.len() > 1 => {
                    let gone = spaces.swap_remove(index);
                    end(&mut world, gone);
                }
                _ => step(&mut world, &mut spaces[index], &mut random),
            }
        }
        spaces.into_iter().for_each(|space| end(&mut world, space));
        world.assert_empty();
    }
}

/// Gives a space pages in common that `payer` pays for, mapped at the lowest address.
fn give_common(world: &mut World, space: &mut Space, payer: Ptr<Ram>, pages: u64) -> Ptr<Segment> {
    let kernel = &mut *world.kernel;
    let segment = Ptr::<Segment>::new_anonymous(kernel, payer, pages).unwrap();
    assert!(segment.populate(kernel, &mut crate::steps::Budget::all()).unwrap());
    segment.make_common();
    let slot = space.domain.reserve(kernel).unwrap();
    let rights = Rights::ALL.union(Rights::INHERIT);
    space.domain.insert(slot, Capability { object: segment.any(), badge: 0, rights });
    space.segments.push((0, segment));
    let place = PageRun { start: BASE, pages };
    space.domain.range().map(kernel, place, segment, 0, [READ | WRITE, READ | WRITE]).unwrap();
    segment
}

#[test]
fn pages_in_common_are_written_by_all_and_go_with_the_last() {
    const PAGES: u64 = 3;
    let mut world = World::new(400);
    let mut parent = space(&mut world);
    let payer = world.ram;
    give_common(&mut world, &mut parent, payer, PAGES);
    let frame = |world: &mut World, of: &Space, page: u64, access| {
        of.domain.range().resolve(&mut world.kernel, BASE + page * PAGE, access).unwrap()
    };
    let before = frame(&mut world, &parent, 1, Access::Write);
    let child = fork(&mut world, &parent, &mut Random::new(1));
    // The parent still writes where it wrote, and both to the same frame, without a fault more.
    for of in [&parent, &child] {
        assert_eq!(frame(&mut world, of, 1, Access::Read), before);
        let mapped =
            crate::arch::paging::translate(of.domain.range().root(), BASE + PAGE, crate::arch::paging::Flags::WRITE);
        assert_eq!(mapped, Some(before));
        assert_eq!(frame(&mut world, of, 1, Access::Write), before);
    }
    assert_eq!(frame(&mut world, &parent, 2, Access::Write), frame(&mut world, &child, 2, Access::Read));
    let grandchild = fork(&mut world, &child, &mut Random::new(2));
    // The first who had them ends: the others go on.
    end(&mut world, parent);
    end(&mut world, child);
    assert_eq!(frame(&mut world, &grandchild, 1, Access::Write), before);
    end(&mut world, grandchild);
    world.assert_empty();
}

#[test]
fn pages_in_common_that_another_pays_for_are_paid_once_and_stay_for_a_child() {
    const PAGES: u64 = 300;
    let mut world = World::new(1200);
    let account = world.ram.split(&mut world.kernel, 200, crate::objects::group::Turns::Own).unwrap();
    let mut parent = space_of(&mut world, account);
    let payer = world.ram;
    let segment = give_common(&mut world, &mut parent, payer, PAGES);
    let frame = |world: &mut World, of: &Space, access| {
        of.domain.range().resolve(&mut world.kernel, BASE + 299 * PAGE, access).unwrap()
    };
    let before = frame(&mut world, &parent, Access::Write);
    // Neither the parent's account nor the child's has room for as many pages.
    let child = space_of(&mut world, account);
    fork_in_steps(&mut world.kernel, parent.domain, child.domain, &mut Random::new(1));
    assert_eq!(world.kernel.frames.count(before), 1, "no other segment has it");
    end(&mut world, parent);
    assert_eq!(segment.present(), PAGES);
    assert_eq!(frame(&mut world, &child, Access::Write), before);
    end(&mut world, child);
    world.kernel.release(account);
    world.assert_empty();
}
