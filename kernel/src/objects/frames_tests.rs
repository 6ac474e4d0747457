//! Frames against a naive model: a list of counts.

use super::*;
use crate::memory::set_test_ram;

const PAGES: u64 = 300;

fn block(pages: u64) -> Vec<u128> {
    let mut ram = vec![0u128; (pages as usize + 1) * PAGE_BYTES / 16];
    let offset = ram.as_ptr().align_offset(PAGE_BYTES);
    set_test_ram(ram.as_mut_ptr().wrapping_add(offset).cast());
    ram
}

#[test]
fn counts_follow_the_model() {
    let _ram = block(2 * PAGES);
    let mut frames = Frames::new();
    frames.add(PhysRange::new(PAGE, 99 * PAGE)).unwrap();
    frames.add(PhysRange::new(PAGES * PAGE, 200 * PAGE)).unwrap();
    assert_eq!(frames.add(PhysRange::new(50 * PAGE, 10 * PAGE)), Err(AddError::Overlap));
    let total = frames.total();
    let mut held: Vec<PhysAddr> = Vec::new();
    let mut seed = 0x1234_5678_9abc_def1u64;
    let mut random = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    for _ in 0..20_000 {
        match random(6) {
            0 | 1 => {
                let got = frames.allocate();
                assert_eq!(got.is_none(), frames.free() == 0 && got.is_none());
                if let Some(frame) = got {
                    assert!(!held.contains(&frame));
                    held.push(frame);
                }
            }
            2 => {
                let pages = 1 + random(8);
                if let Some(base) = frames.allocate_run(pages) {
                    let run = (0..pages).map(|page| base + page * PAGE);
                    run.for_each(|frame| {
                        assert!(!held.contains(&frame));
                        held.push(frame);
                    });
                }
            }
            3 if !held.is_empty() => {
                let frame = held[random(held.len() as u64) as usize];
                frames.share(frame);
                held.push(frame);
            }
            _ if !held.is_empty() => {
                let index = random(held.len() as u64) as usize;
                frames.release(held.swap_remove(index));
            }
            _ => (),
        }
        let mut distinct = held.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(frames.free() + distinct.len() as u64, total);
    }
    while let Some(frame) = held.pop() {
        let left = held.iter().filter(|other| **other == frame).count() as u32;
        assert_eq!(frames.count(frame), left + 1);
        frames.release(frame);
    }
    assert_eq!(frames.free(), total);
}

#[test]
fn carved_pages_leave_and_come_back() {
    let _ram = block(PAGES);
    let mut frames = Frames::new();
    frames.add(PhysRange::new(0, PAGES * PAGE)).unwrap();
    let total = frames.total();
    let base = frames.carve(64).unwrap();
    assert_eq!((frames.total(), frames.free()), (total - 64, total - 64));
    assert_eq!(frames.add(PhysRange::new(base.0, 65 * PAGE)), Err(AddError::Overlap));
    frames.add(PhysRange::new(base.0, 64 * PAGE)).unwrap();
    assert_eq!((frames.total(), frames.free()), (total, total));
    assert!(frames.carve(PAGES).is_none() && frames.carve(0).is_none());
    // Parts come back in any order, once each, and what was not carved does not.
    let base = frames.carve(150).unwrap();
    let held = frames.allocate().unwrap();
    let mut add = |first: u64, pages: u64| frames.add(PhysRange::new(base.0 + first * PAGE, pages * PAGE));
    for (first, pages) in [(70, 61), (0, 3), (131, 19), (3, 67)] {
        assert_eq!(add(first, pages), Ok(()));
        assert_eq!(add(first, pages), Err(AddError::Overlap));
        assert_eq!(add(first + pages - 1, 1), Err(AddError::Overlap));
    }
    assert_eq!(frames.add(PhysRange::new(held.0, PAGE)), Err(AddError::Overlap));
    frames.release(held);
    assert_eq!((frames.total(), frames.free()), (total, total));
}

#[test]
fn one_run_may_be_all_that_is_free() {
    let _ram = block(PAGES);
    let mut frames = Frames::new();
    frames.add(PhysRange::new(0, PAGES * PAGE)).unwrap();
    let free = frames.free();
    assert!(frames.reserve_run(free + 1).is_none());
    let base = frames.reserve_run(free).unwrap();
    assert_eq!((frames.free(), frames.allocate()), (0, None));
    (0..free).for_each(|page| frames.free_reserved(base + page * PAGE));
    assert_eq!(frames.free(), free);
}

/// What is used of a region is no page of its maps and counts, whatever its size.
#[test]
fn maps_and_counts_lie_before_the_pages() {
    let _ram = block(PAGES * 8);
    for pages in 2..PAGES * 7 {
        let Some(region) = Region::new(PhysRange::new(0, pages * PAGE)) else { continue };
        let end = region.counts.wrapping_add(region.pages);
        assert!(region.bits.wrapping_add(2 * region.words()).cast() <= region.counts, "{pages} pages");
        assert!(end.cast() <= phys_to_virt(region.base), "{pages} pages");
    }
}

/// The highest run, looked for page by page.
fn naive_run(region: &mut Region, wanted: usize, align: u64) -> Option<usize> {
    let fits = |region: &mut Region, first: usize| {
        (region.address(first).0 / PAGE).is_multiple_of(align)
            && (first..first + wanted).all(|page| region.is_free(page))
    };
    (0..(region.pages + 1).saturating_sub(wanted)).rev().find(|first| fits(region, *first))
}

#[test]
fn runs_are_the_highest_there_are() {
    let _ram = block(PAGES * 8);
    let mut seed = 7u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (seed >> 33) % below
    };
    for turn in 0..400 {
        let pages = 1 + random(PAGES * 7);
        let Some(mut region) = Region::new(PhysRange::new(random(9) * PAGE, (pages + 4) * PAGE)) else { continue };
        // Taken pages in runs of different lengths.
        for _ in 0..turn % 40 {
            let first = random(region.pages as u64) as usize;
            let length = (1 + random(1 << (1 + turn % 9))) as usize;
            region.set(FREE, first, length.min(region.pages - first), false);
        }
        for wanted in [1, 2, 3, 7, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 300, 512, 900, 4000] {
            for align in if wanted >= 512 { [1, LARGE_PAGE] } else { [1, 1] } {
                let found = region.find_run(wanted, align);
                assert_eq!(found, naive_run(&mut region, wanted, align), "{wanted} of {}", region.pages);
            }
        }
    }
}
