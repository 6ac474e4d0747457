//! The table against a page by page model, and its rules one by one.

use super::*;
use zerocopy::FromZeros;

fn none() -> Box<Memory> {
    Memory::new_box_zeroed().unwrap()
}

/// The naive model: one entry per page.
#[derive(Default)]
struct Model(std::collections::BTreeMap<u64, (u64, u64, u32)>);

fn pages(memory: &Memory) -> std::collections::BTreeMap<u64, (u64, u64, u32)> {
    let mut all = std::collections::BTreeMap::new();
    for area in memory.areas() {
        for page in 0..area.pages() {
            let number = if area.segment == 0 { 0 } else { area.first_page + page };
            assert!(all.insert(area.start + page * PAGE, (area.segment, number, area.protection)).is_none());
        }
    }
    all
}

#[test]
fn follows_a_page_by_page_model() {
    let mut seed = 0x1234_5678_9abc_def1u64;
    let mut random = |limit: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % limit
    };
    let mut memory = none();
    let mut model = Model::default();
    for step in 1..20_000u64 {
        let start = PLACE_BASE + random(64) * PAGE;
        let end = start + (1 + random(8)) * PAGE;
        match random(3) {
            0 => {
                // Of its own, or of one that others are of, lying as its pages do; or of none.
                let (segment, first_page) = match random(3) {
                    0 => (step, 0),
                    1 => (100_000 + random(3), (start - PLACE_BASE) / PAGE),
                    _ => (0, 0),
                };
                let protection = random(4) as u32;
                let area = Area { start, end, segment, first_page, protection, ..Area::default() };
                let free = !(start..end).step_by(PAGE as usize).any(|page| model.0.contains_key(&page));
                assert_eq!(memory.insert(area).is_ok(), free);
                if free {
                    model.0.extend((0..area.pages()).map(|page| {
                        let number = if segment == 0 { 0 } else { first_page + page };
                        (start + page * PAGE, (segment, number, area.protection))
                    }));
                }
            }
            1 => {
                let mut removed = 0;
                memory.remove(start, end, |area| removed += area.pages()).unwrap();
                let before = model.0.len();
                model.0.retain(|page, _| *page < start || *page >= end);
                assert_eq!(removed, (before - model.0.len()) as u64);
            }
            _ => {
                let full = (start..end).step_by(PAGE as usize).all(|page| model.0.contains_key(&page));
                let protection = random(4) as u32;
                assert_eq!(memory.protect(start, end, protection, |_, _| Ok(())).is_ok(), full);
                if full {
                    model.0.range_mut(start..end).for_each(|(_, page)| page.2 = protection);
                }
            }
        }
        assert_eq!(pages(&memory), model.0);
        assert!(memory.areas().windows(2).all(|two| !two[1].continues(&two[0])), "all that can be one are one");
        let taken = memory.packed.max(PLACE_BASE);
        assert!((PLACE_BASE..taken).step_by(PAGE as usize).all(|page| model.0.contains_key(&page)));
        let place = memory.place(0, PAGE).unwrap();
        assert_eq!(place, (PLACE_BASE..).step_by(PAGE as usize).find(|page| !model.0.contains_key(page)).unwrap());
        let segment = 1 + random(step);
        assert_eq!(memory.uses(segment, start), model.0.values().any(|(of, ..)| *of == segment));
        let needs = random(4) as u32;
        let allowed = (start..end)
            .step_by(PAGE as usize)
            .all(|page| model.0.get(&page).is_some_and(|entry| entry.2 & needs == needs));
        assert_eq!(memory.allows(start, end - start, needs), allowed);
        let mut parts = model.0.range(start..end);
        for part in memory.parts(start, end) {
            assert!(start <= part.start && part.end <= end && part.start < part.end);
            for page in 0..part.pages() {
                let number = if part.segment == 0 { 0 } else { part.first_page + page };
                let found = (&(part.start + page * PAGE), &(part.segment, number, part.protection));
                assert_eq!(parts.next(), Some(found));
            }
        }
        assert_eq!(parts.next(), None);
    }
}

#[test]
fn places_areas_in_free_permitted_gaps() {
    let mut memory = none();
    let mut at = PLACE_BASE;
    for size in [1u64, 5, 300, 2] {
        let start = memory.place(0, size * PAGE).unwrap();
        assert_eq!(start, at, "each continues the one before");
        at += size * PAGE;
        memory.insert(Area { start, end: at, segment: size, ..Area::default() }).unwrap();
    }
    memory.remove(PLACE_BASE + 2 * PAGE, PLACE_BASE + 5 * PAGE, |_| ()).unwrap();
    assert_eq!((memory.place(0, 3 * PAGE), memory.place(0, 4 * PAGE)), (Ok(PLACE_BASE + 2 * PAGE), Ok(at)));
    assert_eq!(memory.place(0x40_0000, PAGE), Ok(0x40_0000));
    assert!(memory.place(LOW_END, PAGE).unwrap() > RESERVED_END);
    // What is too large for the first part goes below it, and what is for both, nowhere.
    assert_eq!(memory.place(0, PLACE_TOP - PLACE_BASE), Ok(RESERVED_END));
    assert_eq!(memory.place_low(LOW_END - PLACE_LOW), Ok(PLACE_LOW));
    assert_eq!(memory.place_low(LOW_END - PLACE_LOW + PAGE), Err(Errno::ENOMEM));
    assert_eq!(memory.place(0, 1 << 47), Err(Errno::ENOMEM));
    assert_eq!(memory.place(0, !(PAGE - 1)), Err(Errno::ENOMEM));
    assert!(
        !permitted(LOW_END - PAGE, LOW_END + PAGE) && !permitted(STATE_BASE, STATE_BASE + PAGE) && !permitted(0, PAGE)
    );
}

#[test]
fn what_may_be_continued_is_known() {
    let mut memory = none();
    let area = |start, end, segment| Area { start, end, segment, first_page: 3, ..Area::default() };
    memory.insert(area(0x10_0000, 0x10_4000, 5)).unwrap();
    let most = abi::layout::SEGMENT_PAGES_MAX - 7;
    let last = *memory.before(0x10_4000).unwrap();
    assert_eq!([most, most + 1, u64::MAX].map(|pages| last.room_behind(pages)), [Some((5, 7)), None, None]);
    assert_eq!([0x10_3000, 0x10_5000, 0].map(|start| memory.before(start)), [None; 3]);
    memory.mark(0x10_3000, 0x10_4000, [0, mark::FILLED]).unwrap();
    assert_eq!(memory.before(0x10_4000).unwrap().room_behind(1), None);
    assert!(memory.find(0x10_0000).is_some_and(|area| area.is_anonymous() && area.end == 0x10_3000));
    assert_eq!(area(0x20_0000, 0x20_4000, 0).room_behind(1), None, "it has no segment");
}

#[test]
fn bytes_and_the_stack_are_measured() {
    let mut memory = none();
    let mut add = |start: u64, end: u64, protection: u32, common: u64| {
        memory.insert(Area { start, end, segment: 1, protection, common, ..Area::default() }).unwrap();
    };
    let (read, write) = (protection::READ, protection::READ | protection::WRITE);
    add(0x10_0000, 0x10_4000, read, 0);
    add(0x20_0000, 0x20_2000, write, 0);
    add(0x30_0000, 0x30_1000, write, 7);
    add(STACK_TOP - 0x8000, STACK_TOP, write, 0);
    add(STACK_TOP - 0xa000, STACK_TOP - 0x8000, write, 0);
    add(STACK_TOP - 0xc000, STACK_TOP - 0xb000, write, 0);
    assert_eq!(memory.bytes(0..u64::MAX, |_| true), 0x4000 + 0x2000 + 0x1000 + 0xa000 + 0x1000);
    assert_eq!(memory.bytes(0..u64::MAX, Area::is_data), 0x2000);
    assert_eq!(memory.bytes(0x10_3000..0x20_1000, |_| true), 0x2000);
    assert_eq!(memory.bytes(0x40_0000..0x50_0000, |_| true), 0);
    assert_eq!(memory.stack_start(), STACK_TOP - 0xa000);
    assert_eq!(none().stack_start(), STACK_TOP);
    assert_eq!([0, 1 << 20, 8 << 20, u64::MAX].map(stack_bytes), [256 << 10, 1 << 20, 8 << 20, 64 << 20]);
    assert_eq!(stack_bytes((1 << 20) + 1), 1 << 20);
}

#[test]
fn seals_stay_where_they_are() {
    let mut memory = none();
    let area = |start, common| Area { start, end: start + 4 * PAGE, segment: 5, common, ..Area::default() };
    memory.insert(area(0x10_0000, 3)).unwrap();
    memory.insert(Area { first_page: 4, ..area(0x10_4000, 3) }).unwrap();
    memory.mark(0x10_4000, 0x10_8000, [0, mark::SEALED]).unwrap();
    assert!(!memory.is_sealed(0, 0x10_4000) && memory.is_sealed(0x10_0000, 0x10_4001));
    // Neighbours of one segment are not joined over it, and its parts keep it.
    memory.protect(0x10_0000, 0x10_8000, protection::READ, |_, _| Ok(())).unwrap();
    assert_eq!(memory.areas().len(), 2);
    memory.remove(0x10_5000, 0x10_6000, |_| ()).unwrap();
    assert!(memory.is_sealed(0x10_4000, 0x10_5000) && memory.is_sealed(0x10_6000, 0x10_7000));
    assert!(!memory.is_sealed(0x10_5000, 0x10_6000));
    assert_eq!((memory.segment_of(3), memory.segment_of(4)), (Some(5), None));
}

#[test]
fn what_may_be_made_zeroes_again_is_known() {
    let mut memory = none();
    let area =
        |start, marks, common| Area { start, end: start + 4 * PAGE, marks, common, segment: 1, ..Area::default() };
    memory.insert(area(0x10_0000, 0, 0)).unwrap();
    memory.insert(area(0x10_4000, mark::FILLED, 0)).unwrap();
    memory.insert(area(0x10_8000, 0, 9)).unwrap();
    memory.insert(area(0x10_c000, 0, 0)).unwrap();
    memory.mark(0x10_c000, 0x11_0000, [0, mark::SEALED]).unwrap();
    let found: Vec<_> = memory.parts(0x10_1000, 0x20_0000).map(|part| (part.start, part.is_anonymous())).collect();
    assert_eq!(found, [(0x10_1000, true), (0x10_4000, false), (0x10_8000, false), (0x10_c000, false)]);
    // Parts keep what is known of the whole.
    memory.protect(0x10_5000, 0x10_6000, protection::READ, |_, _| Ok(())).unwrap();
    assert!(memory.parts(0x10_4000, 0x10_8000).all(|part| !part.is_anonymous()));
    assert!(!memory.is_sealed(0, 0x10_c000) && memory.is_sealed(0, 0x10_c001));
}

#[test]
fn what_is_said_of_forks_can_be_taken_back() {
    let mut memory = none();
    memory.insert(Area { start: 0x10_0000, end: 0x11_0000, segment: 1, ..Area::default() }).unwrap();
    memory.mark(0x10_4000, 0x10_8000, [0, mark::NOT_FORKED]).unwrap();
    memory.mark(0x10_4000, 0x10_c000, [0, mark::WIPED]).unwrap();
    let marks = |memory: &Memory| memory.areas().iter().map(|area| area.marks).collect::<Vec<_>>();
    assert_eq!(marks(&memory), [0, mark::OF_FORKS, mark::WIPED, 0]);
    assert!(memory.areas().iter().all(Area::is_anonymous));
    memory.mark(0x10_0000, 0x11_0000, [mark::WIPED, 0]).unwrap();
    assert_eq!(marks(&memory), [0, mark::NOT_FORKED, 0]);
    memory.mark(0x10_6000, 0x10_7000, [mark::NOT_FORKED, 0]).unwrap();
    assert_eq!(memory.areas().len(), 5);
    memory.mark(0, 0x20_0000, [mark::NOT_FORKED, 0]).unwrap();
    assert_eq!(marks(&memory), [0]);
}

#[test]
fn neighbours_of_a_segment_are_one_area_if_their_pages_follow() {
    let mut memory = none();
    let area = |start, segment, first_page| Area { start, end: start + PAGE, segment, first_page, ..Area::default() };
    for (start, segment, first_page) in [(0x10_0000, 5, 7), (0x10_1000, 5, 8), (0x10_2000, 5, 8), (0x10_3000, 6, 9)] {
        memory.insert(area(start, segment, first_page)).unwrap();
    }
    // What has no segment yet has no pages either.
    for start in [0x20_0000, 0x20_1000] {
        memory.insert(area(start, 0, 0)).unwrap();
    }
    let starts: Vec<_> = memory.areas().iter().map(|area| area.start).collect();
    assert_eq!(starts, [0x10_0000, 0x10_2000, 0x10_3000, 0x20_0000]);
}

#[test]
fn what_is_rounded_is_rounded_to_pages() {
    let sizes = [0, 1, PAGE, PAGE + 1, u64::MAX - PAGE + 1, u64::MAX - PAGE + 2];
    let rounded = [0, PAGE, PAGE, 2 * PAGE, u64::MAX - PAGE + 1].map(Some);
    assert!(sizes.map(round_up).into_iter().eq(rounded.into_iter().chain([None])));
    assert_eq!(stack_bytes((1 << 20) + 0x1800), (1 << 20) + 0x1000);
    assert_eq!(none().place(0x40_1800, PAGE), Ok(0x40_1000));
    assert!(permitted(0x40_0000, 0x40_1000) && !permitted(0x40_0000, 0x40_0000), "nothing is no range");
}

/// What can be written differs from its file; what a program may write elsewhere is of none.
#[test]
fn what_becomes_writable_is_of_its_file_no_more() {
    let mut memory = none();
    let area = |start, marks| Area { start, end: start + PAGE, segment: 5, marks, ..Area::default() };
    memory.insert(area(0x10_0000, mark::BACKED)).unwrap();
    memory.insert(area(0x20_0000, 0)).unwrap();
    let (read, write) = (protection::READ, protection::READ | protection::WRITE);
    for (protection, expected) in [(read, [mark::BACKED, 0]), (write, [mark::FILLED, 0]), (read, [mark::FILLED, 0])] {
        for start in [0x10_0000, 0x20_0000] {
            memory.protect(start, start + PAGE, protection, |_, _| Ok(())).unwrap();
        }
        assert!(memory.areas().iter().map(|area| area.marks).eq(expected), "{protection}");
    }
    // A mark that is given twice is there all the same.
    memory.mark(0x10_0000, 0x10_1000, [0, mark::FILLED]).unwrap();
    assert_eq!(memory.areas()[0].marks, mark::FILLED);
}

#[test]
fn what_is_paged_out_is_found_by_those_who_may_use_it() {
    let mut memory = none();
    let (read, write) = (protection::READ, protection::READ | protection::WRITE);
    memory.insert(Area { start: 0x10_0000, end: 0x10_2000, protection: read, ..Area::default() }).unwrap();
    memory
        .insert(Area { start: 0x10_2000, end: 0x10_6000, protection: read, marks: mark::BACKED, ..Area::default() })
        .unwrap();
    memory.set_out(0x10_3000, 0x10_5000, true).unwrap();
    let found = |memory: &Memory, needs| memory.first_out(0x10_0000, 0x6000, needs);
    assert_eq!((found(&memory, read), found(&memory, write)), (Some(0x10_3000..0x10_5000), None));
    memory.protect(0x10_0000, 0x10_6000, write, |_, _| Ok(())).unwrap();
    assert_eq!(found(&memory, protection::WRITE), Some(0x10_3000..0x10_5000));
    assert_eq!(memory.first_out(0x10_0000, 0x3000, 0), None, "before it");
    assert_eq!(memory.first_out(0xf_f000, 0x6000, 0), None, "begins where nothing is");
    memory.set_out(0x10_3000, 0x10_5000, false).unwrap();
    assert_eq!(found(&memory, 0), None);
}

#[test]
fn the_stack_is_no_data_however_large() {
    let of = |start| Area { start, end: start + PAGE, protection: protection::WRITE, ..Area::default() };
    let lowest = STACK_TOP - STACK_BYTES_MAX;
    assert!(of(lowest - PAGE).is_data() && !of(lowest).is_data());
}

#[test]
fn what_is_mapped_is_measured_up_to_a_gap_or_what_may_not_be_done() {
    let mut memory = none();
    let (read, write) = (protection::READ, protection::READ | protection::WRITE);
    for (start, end, protection) in
        [(0x10_0000, 0x10_2000, write), (0x10_2000, 0x10_3000, read), (0x10_4000, 0x10_5000, read)]
    {
        memory.insert(Area { start, end, segment: start, protection, ..Area::default() }).unwrap();
    }
    let extents = |address, needs| [0, 0x800, 0x2800, u64::MAX].map(|limit| memory.extent(address, limit, needs));
    assert_eq!(extents(0x10_0100, protection::READ), [0, 0x800, 0x2800, 0x2f00]);
    assert_eq!(extents(0x10_0100, protection::WRITE), [0, 0x800, 0x1f00, 0x1f00]);
    assert_eq!(extents(0x10_3000, 0), [0; 4]);
}

#[test]
fn who_has_memory_in_common_knows_a_word_by_the_same_numbers() {
    let mut memory = none();
    let area =
        |start, common| Area { start, end: start + 4 * PAGE, segment: 5, first_page: 3, common, ..Area::default() };
    memory.insert(area(0x10_0000, 9)).unwrap();
    memory.insert(area(0x20_0000, 0)).unwrap();
    assert_eq!(memory.in_common(0x10_1008), Some((9, 4 * PAGE + 8)));
    assert_eq!([0x20_0000, 0x30_0000].map(|address| memory.in_common(address)), [None; 2]);
}

#[test]
fn marks_are_given_for_others_where_all_of_these_are() {
    let mut memory = none();
    let given = [mark::OF_FORKS | mark::FILLED, mark::WIPED | mark::SEALED, 0];
    for (start, marks) in [0x10_0000, 0x10_4000, 0x10_8000].into_iter().zip(given) {
        memory.insert(Area { start, end: start + 4 * PAGE, segment: 1, marks, ..Area::default() }).unwrap();
    }
    memory.mark_if(0x10_2000, 0x11_0000, [mark::OF_FORKS, mark::SEALED | mark::FILLED]).unwrap();
    let marks: Vec<_> = memory.areas().iter().map(|area| (area.start, area.marks)).collect();
    let expected =
        [(0x10_0000, given[0]), (0x10_2000, mark::SEALED | mark::FILLED), (0x10_4000, given[1]), (0x10_8000, 0)];
    assert_eq!(marks, expected);
}

/// One of areas of three pages, eight apart, with room for so many more.
fn filled(room: usize) -> Box<Memory> {
    let mut memory = none();
    for index in 0..(AREAS_MAX - room) as u64 {
        let start = RESERVED_END + index * 8 * PAGE;
        memory.insert(Area { start, end: start + 3 * PAGE, segment: index + 1, ..Area::default() }).unwrap();
    }
    memory
}

#[test]
fn a_full_table_refuses_and_stays_whole() {
    let mut memory = filled(0);
    let before = pages(&memory);
    assert_eq!(memory.remove(RESERVED_END + PAGE, RESERVED_END + 2 * PAGE, |_| ()), Err(Errno::ENOMEM));
    let more = Area { start: RESERVED_END + 4 * PAGE, end: RESERVED_END + 5 * PAGE, ..Area::default() };
    assert_eq!((memory.insert(more), memory.insert(memory.areas()[0])), (Err(Errno::ENOMEM), Err(Errno::EEXIST)));
    assert_eq!(pages(&memory), before);
    memory.remove(RESERVED_END, RESERVED_END + 3 * PAGE, |_| ()).unwrap();
    assert_eq!(memory.areas().len(), AREAS_MAX - 1);
    assert_eq!(memory.insert(more), Ok(()));
}

#[test]
fn a_cut_is_refused_only_if_it_needs_an_entry_that_is_not_there() {
    // First and last page in eighths of a place, and how many areas are cut.
    let cases = [(0, 3, 0), (3, 8, 0), (0, 11, 0), (1, 3, 1), (0, 1, 1), (0, 9, 1), (2, 8, 1), (1, 2, 2), (1, 9, 2)];
    for room in 0..3 {
        let full = filled(room);
        for (first, end, cuts) in cases {
            let mut memory = none();
            memory.as_mut_bytes().copy_from_slice(full.as_bytes());
            let [start, end] = [first, end].map(|page| RESERVED_END + page * PAGE);
            let done = memory.mark(start, end, [0, mark::FILLED]);
            let expected = if cuts <= room { Ok(()) } else { Err(Errno::ENOMEM) };
            assert_eq!(done, expected, "{cuts} cuts with room for {room}");
            assert_eq!(memory.areas().len(), AREAS_MAX - room + if done.is_ok() { cuts } else { 0 });
            assert!(done.is_ok() || memory.areas() == full.areas());
        }
    }
}
