//! Pieces of files that are read here and there, beside a model.

use super::*;

const ONE: Name = (1, 7);
const MOST: usize = 64 << 10;

/// A file, as a server has it; its bytes are others with each edition.
struct Served {
    size: usize,
    edition: u8,
}

impl Served {
    fn byte(&self, at: usize) -> u8 {
        (at as u8).wrapping_mul(7) ^ (at / BLOCK) as u8 ^ self.edition
    }

    fn bytes(&self, at: u64, count: usize) -> Vec<u8> {
        let from = usize::try_from(at).unwrap().min(self.size);
        (from..self.size.min(from + count)).map(|at| self.byte(at)).collect()
    }
}

/// Reads a piece as the proxy does; whether the server was asked.
fn read(cache: &mut BlockCache, name: Name, served: &Served, at: u64, count: usize) -> (Vec<u8>, bool) {
    let found = cache.file(name).and_then(|file| Some((file, cache.find(file, at, count)?)));
    if let Some((file, count)) = found {
        let mut bytes = vec![0xee; count];
        cache.copy(file, at, &mut bytes);
        return (bytes, false);
    }
    if cache.reads_again(name, at, count)
        && let Some(plan) = cache.plan(name, at, count, MOST)
    {
        assert!(plan.from <= at && at + count as u64 <= plan.from + plan.length as u64, "{plan:?}");
        let all = served.bytes(plan.from, plan.length);
        cache.answered(plan, true);
        cache.keep(plan, all.len(), |from, into| {
            into.copy_from_slice(&all[from..from + into.len()]);
            true
        });
    }
    (served.bytes(at, count), true)
}

#[test]
fn what_is_read_here_and_there_is_kept_when_it_is_read_again() {
    let (mut cache, served) = (BlockCache::default(), Served { size: BLOCKS * BLOCK, edition: 0 });
    let scattered = |number: usize| (number * 0x9e37_79b1) % BLOCKS * BLOCK;
    for round in 0..4 {
        let asked = (0..BLOCKS).filter(|number| {
            let at = scattered(*number) as u64;
            let (bytes, is_asked) = read(&mut cache, ONE, &served, at, BLOCK);
            assert_eq!(bytes, served.bytes(at, BLOCK), "{at}");
            is_asked
        });
        let expected = if round < 2 { BLOCKS } else { 0 };
        assert_eq!(asked.count(), if round == 1 { BLOCKS } else { expected }, "{round}");
    }
}

#[test]
fn any_piece_of_a_file_is_right_beside_changes() {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut below = |end: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % end
    };
    let (mut cache, mut asked) = (BlockCache::default(), 0);
    let names = [ONE, (1, 8), (5, 7)];
    let mut all = [0, 1, 2].map(|edition| Served { size: 40_000, edition });
    for step in 0..30_000 {
        let which = below(3) as usize;
        if below(200) == 0 {
            all[which].edition = all[which].edition.wrapping_add(3);
            all[which].size = below(60_000) as usize;
            if let Some(file) = cache.file(names[which]) {
                cache.discard(file);
            }
        }
        let (at, count) = (below(61_000), below(9000) as usize + 1);
        let (bytes, is_asked) = read(&mut cache, names[which], &all[which], at, count);
        assert_eq!(bytes, all[which].bytes(at, count), "step {step}: {count} at {at}");
        asked += usize::from(is_asked);
    }
    assert!((1_000..10_000).contains(&asked), "{asked}");
}

#[test]
fn a_file_ends_where_it_ends() {
    for size in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK] {
        let (mut cache, served) = (BlockCache::default(), Served { size, edition: 0 });
        for (at, count) in [(0, BLOCK), (size, 1), (size, BLOCK), (0, 4 * BLOCK), (size.saturating_sub(1), 100)] {
            let piece = |cache: &mut BlockCache| read(cache, ONE, &served, at as u64, count);
            let expected = served.bytes(at as u64, count);
            let asked = [piece(&mut cache), piece(&mut cache), piece(&mut cache)].map(|(bytes, is_asked)| {
                assert_eq!(bytes, expected, "{count} at {at} of {size}");
                is_asked
            });
            assert!(!asked[2], "{count} at {at} of {size}");
        }
    }
}

#[test]
fn large_pieces_and_such_that_there_cannot_be_are_not_kept() {
    let mut cache = BlockCache::default();
    for (at, count) in [(0, PIECE_MAX + 1), (0, 0), (u64::MAX, 2), (u64::MAX - 10, usize::MAX)] {
        assert!(!(0..3).any(|_| cache.reads_again(ONE, at, count)), "{count} at {at}");
    }
    // Five blocks, and room for four.
    assert_eq!(cache.plan(ONE, 1, PIECE_MAX, PIECE_MAX), None);
    let plan = cache.plan(ONE, 1, PIECE_MAX, PIECE_MAX + BLOCK).unwrap();
    assert_eq!(plan, Plan { name: ONE, file: 0, from: 0, length: PIECE_MAX + BLOCK });
}

#[test]
fn nothing_is_found_while_the_server_is_asked_or_if_it_was_not_heard() {
    let (mut cache, served) = (BlockCache::default(), Served { size: 10 * BLOCK, edition: 0 });
    (0..2).for_each(|_| _ = read(&mut cache, ONE, &served, 0, BLOCK));
    assert_eq!((cache.find(0, 0, BLOCK), cache.has_blocks(0)), (Some(BLOCK), true));
    let plan = cache.plan(ONE, 5 * BLOCK as u64, BLOCK, MOST).unwrap();
    assert_eq!(cache.find(0, 0, BLOCK), None);
    cache.answered(plan, true);
    assert_eq!(cache.find(0, 0, BLOCK), Some(BLOCK));
    cache.plan(ONE, 5 * BLOCK as u64, BLOCK, MOST).unwrap();
    let plan = cache.plan(ONE, 5 * BLOCK as u64, BLOCK, MOST).unwrap();
    assert!(!cache.has_blocks(plan.file));
    cache.answered(plan, true);
    assert_eq!(cache.find(0, 0, BLOCK), None);
    // What cannot be read is not kept.
    cache.keep(plan, plan.length, |_, _| false);
    assert_eq!(cache.find(0, plan.from, BLOCK), None);
}

#[test]
fn a_file_that_changes_before_it_is_read_again_is_let_alone() {
    let (mut cache, served) = (BlockCache::default(), Served { size: BLOCK, edition: 0 });
    let mut planned = 0;
    for _ in 0..CREDIT as usize + LET_ALONE as usize {
        let before = cache.files[0].map_or(CREDIT, |file| file.credit);
        read(&mut cache, ONE, &served, 0, 10);
        planned += usize::from(cache.files[0].is_some_and(|file| file.credit != before));
        if let Some(file) = cache.file(ONE) {
            cache.discard(file);
        }
    }
    assert_eq!(planned, CREDIT as usize);
    // Then it is tried again, and so is one that the server refused.
    (0..3).for_each(|_| _ = read(&mut cache, ONE, &served, 0, 10));
    assert_eq!(cache.find(0, 0, 10), Some(10));
    let plan = cache.plan(ONE, 0, 10, MOST).unwrap();
    cache.refused(plan);
    assert_eq!(cache.find(0, 0, 10), None);
    (0..LET_ALONE - 1).for_each(|_| assert_eq!(cache.plan(ONE, 0, 10, MOST), None));
    assert!(cache.plan(ONE, 0, 10, MOST).is_some());
}

#[test]
fn nothing_is_kept_of_what_is_closed_or_of_an_earlier_life() {
    let served = Served { size: BLOCK, edition: 0 };
    let kept_of = |end: &dyn Fn(&mut BlockCache)| {
        let mut cache = BlockCache::default();
        let names = [ONE, (1, 8), (2, 7)];
        for name in names {
            (0..2).for_each(|_| _ = read(&mut cache, name, &served, 0, 10));
        }
        end(&mut cache);
        names.map(|name| !read(&mut cache, name, &served, 0, 10).1)
    };
    assert_eq!(kept_of(&|_| ()), [true, true, true]);
    assert_eq!(kept_of(&|cache| cache.close(ONE)), [false, true, true]);
    assert_eq!(kept_of(&|cache| cache.restarted(1)), [false, false, true]);
    // A place that another file has is not that of the one before.
    let mut cache = BlockCache::default();
    (0..2).for_each(|_| _ = read(&mut cache, ONE, &served, 0, 10));
    for id in 100..100 + 2 * FILES as u64 {
        (0..2).for_each(|_| _ = read(&mut cache, (1, id), &Served { size: BLOCK, edition: 9 }, 0, 10));
    }
    assert!(cache.file(ONE).is_none());
    assert_eq!(read(&mut cache, ONE, &served, 0, 10).0, served.bytes(0, 10));
}

#[test]
fn an_answer_for_a_file_that_lost_its_place_is_kept_of_none() {
    let (mut cache, served) = (BlockCache::default(), Served { size: BLOCK, edition: 9 });
    let plan = cache.plan(ONE, 0, BLOCK, MOST).unwrap();
    let others = 100..100 + 2 * FILES as u64;
    for id in others.clone() {
        (0..2).for_each(|_| _ = read(&mut cache, (5, id), &served, 0, BLOCK));
    }
    let name = cache.files[plan.file].unwrap().name;
    assert_ne!(name, ONE);
    // One that is being asked for stays so.
    cache.plan(name, 0, BLOCK, MOST).unwrap();
    cache.answered(plan, false);
    cache.keep(plan, BLOCK, |_, bytes| {
        bytes.fill(0xee);
        true
    });
    cache.refused(plan);
    let known = cache.files[plan.file].unwrap();
    assert!(known.is_asked && known.has_blocks && known.credit > 0);
    others.for_each(|id| assert_eq!(read(&mut cache, (5, id), &served, 0, BLOCK).0, served.bytes(0, BLOCK), "{id}"));
}

#[test]
fn of_many_files_those_that_came_last_are_kept() {
    let mut cache = BlockCache::default();
    let names: Vec<Name> = (0..FILES as u64 + 2).map(|id| (1, id)).collect();
    names.iter().for_each(|name| assert!(cache.plan(*name, 0, BLOCK, MOST).is_some()));
    let known = names.iter().filter(|name| cache.file(**name).is_some()).count();
    assert_eq!(known, FILES);
    assert!(names[FILES..].iter().all(|name| cache.file(*name).is_some()), "the newest do not displace each other");
}

#[test]
fn what_is_read_again_earns_that_more_is_kept() {
    let (mut cache, served) = (BlockCache::default(), Served { size: 9 * BLOCK, edition: 0 });
    (0..2).for_each(|_| _ = read(&mut cache, ONE, &served, 0, BLOCK));
    let file = cache.file(ONE).unwrap();
    cache.files[file].as_mut().unwrap().credit = -HIT - 1;
    let plans = |cache: &mut BlockCache| cache.plan(ONE, 4 * BLOCK as u64, BLOCK, MOST);
    assert_eq!(plans(&mut cache), None);
    for _ in 0..2 {
        assert!(!read(&mut cache, ONE, &served, 0, BLOCK).1, "it is kept");
    }
    assert!(plans(&mut cache).is_some());
}
