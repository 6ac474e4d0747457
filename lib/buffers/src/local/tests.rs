//! One core's part beside another's, each call after the other.

use super::*;

#[derive(Default)]
struct Alone;

impl Relax for Alone {
    fn relax(&mut self) {
        panic!("nobody else is at work");
    }
}

/// As threads have them.
fn own() -> [Local<u64>; 2] {
    locals(2, 1000, 2, || 0).unwrap().try_into().unwrap()
}

fn put<A: Allocator>(local: &mut Local<u64, A>, key: u64, value: u64) -> Result<usize, NoRoom> {
    local.insert::<Alone>(key, |block| *block = value).map(FrameId::index)
}

fn get<A: Allocator>(local: &Local<u64, A>, key: u64) -> Option<u64> {
    local.read().get(key).map(|(_, block)| *block)
}

#[test]
fn domains_find_what_others_put_into_frames_of_their_own() {
    let [mut first, mut second] = in_domains::<OfEachCore>();
    assert_eq!((put(&mut first, 7, 70), put(&mut second, 700, 71)), (Ok(1), Ok(3)));
    assert_eq!([7, 700, 8].map(|key| get(&first, key)), [Some(70), Some(71), None]);
    assert_eq!([7, 700, 8].map(|key| get(&second, key)), [Some(70), Some(71), None]);
    assert_eq!((put(&mut second, 7, 72), get(&first, 7)), (Ok(2), Some(72)));
    assert_eq!(put(&mut second, 8, 80), Err(NoRoom), "the first one's frame went home");
    assert_eq!((put(&mut first, 8, 80), put(&mut first, 9, 90)), (Ok(0), Ok(1)));
    assert_eq!((first.grow(), first.shrink::<Alone>(), first.places()), (Err(NoMemory), false, 4));
}

#[test]
fn frames_and_nodes_go_home_to_whom_they_belong() {
    for [mut first, mut second] in [in_domains::<OfEachCore>(), own()] {
        // Far from each other: each has its node. The first one takes out what the second put.
        let filled = [put(&mut second, 7, 1), put(&mut second, 700, 1)];
        assert_eq!((filled, put(&mut second, 8, 1)), ([Ok(3), Ok(2)], Err(NoRoom)));
        assert!(first.remove(7) && first.remove(700));
        first.reclaim::<Alone>();
        assert_eq!((first.free.len(), first.nodes.free.len()), (2, 2), "the first one's alone");
        let filled = [put(&mut second, 99, 2), put(&mut second, 999, 2)].map(|place| place.unwrap());
        assert!(filled.contains(&2) && filled.contains(&3), "{filled:?}");
    }
}

#[test]
fn memory_for_all_of_it_is_as_much_as_lies_in_it() {
    let shape = Shape { cores: 3, keys: 1 << 13, frames_each: 5 };
    // Two lines for each core, the root and two nodes for each frame, of nine lines, and frames
    // of two.
    assert_eq!(shape.bytes::<u64>(), (3 * 2 + (1 + 3 * 5 * 2) * 9 + 3 * 5 * 2) * size_of::<Line>());
}

#[test]
fn with_an_allocator_of_all_a_core_fills_what_others_took_out() {
    let [mut first, mut second] = in_domains::<OfAll>();
    let mut filled: Vec<_> = (0..3).map(|key| put(&mut first, key, key)).collect();
    filled.push(put(&mut second, 3, 3));
    filled.sort_by_key(|place| place.unwrap());
    assert_eq!(filled, [Ok(0), Ok(1), Ok(2), Ok(3)]);
    assert_eq!((put(&mut first, 4, 4), put(&mut second, 4, 4)), (Err(NoRoom), Err(NoRoom)));
    let last = second.read().get(3).unwrap().0.index();
    assert!(second.remove(3));
    assert_eq!(put(&mut first, 4, 4), Err(NoRoom), "it is in the second one's hands");
    second.reclaim::<Alone>();
    assert_eq!((put(&mut first, 4, 4), get(&second, 4)), (Ok(last), Some(4)));
}

#[test]
fn with_an_allocator_of_all_a_core_takes_what_it_needs_and_no_more() {
    let [mut first, mut second] = in_domains::<OfAll>();
    // Each in a node of its own, at the word that the node has in the root.
    let far = [0, 65, 130, 195];
    for (count, key) in far.into_iter().enumerate() {
        let core = if count % 2 == 0 { &mut first } else { &mut second };
        put(core, key, key + 1).unwrap();
        assert_eq!((core.free(), core.nodes.free.len()), (0, 0), "after {key}");
    }
    assert_eq!(far.map(|key| get(&first, key)), [1, 66, 131, 196].map(Some), "all frames and nodes are in use");
    // A block more in a node that is there: a node stays in the core's hands, and is enough.
    assert!(first.remove(0) && first.remove(65));
    first.reclaim::<Alone>();
    for key in [131, 132] {
        put(&mut second, key, key).unwrap();
        assert_eq!((second.free.len(), second.nodes.free.len()), (0, 1), "after {key}");
    }
}

#[test]
fn a_node_comes_home_to_a_core_that_has_frames() {
    let [mut first, mut second] = in_domains::<OfEachCore>();
    [7, 700].into_iter().for_each(|key| _ = put(&mut second, key, 1).unwrap());
    // The same blocks in the first one's frames: the second's come home, its nodes stay.
    [7, 700].into_iter().for_each(|key| _ = put(&mut first, key, 2).unwrap());
    first.reclaim::<Alone>();
    put(&mut second, 8, 3).unwrap();
    assert_eq!((second.free.len(), second.nodes.free.len()), (1, 0));
    // A node goes, too.
    assert!(first.remove(7) && first.remove(8));
    let [node] = first.nodes.retired[..] else { panic!("{:?}", first.nodes) };
    assert!(first.shared.tree.nodes.at(node as usize).is_sealed(), "nobody puts anything there");
    first.reclaim::<Alone>();
    assert!(put(&mut second, 99, 4).is_ok());
    assert_eq!([700, 99].map(|key| get(&first, key)), [Some(2), Some(4)]);
}

#[test]
fn a_block_that_another_core_put_there_meanwhile_is_changed_again() {
    let [mut first, mut second] = in_domains::<OfEachCore>();
    put(&mut first, 7, 70).unwrap();
    let mut seen = Vec::new();
    let changed = first.change::<Alone>(7, |old, new| {
        if seen.is_empty() {
            put(&mut second, 7, 5).unwrap();
        }
        seen.push(*old);
        *new = old + 1;
    });
    assert_eq!((changed, &seen[..], get(&second, 7)), (Ok(true), &[70, 5][..], Some(6)));
}
