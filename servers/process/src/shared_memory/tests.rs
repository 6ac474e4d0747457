//! Who may have a segment, and when it goes.

use super::*;
use contracts::process::{Capabilities, Ids};

const NUMBER: u64 = 0x1234_5678_9abc_0000;

fn user(id: u32) -> Identity {
    let ids = |id| Ids { real: id, effective: id, saved: id };
    let all = if id == 0 { Capabilities::ALL } else { 0 };
    let capabilities = Capabilities { effective: all, permitted: all, ..Capabilities::default() };
    Identity { users: ids(id), groups: ids(id + 100), others: vec![7], capabilities }
}

fn wish(key: u32, bytes: u64) -> SegmentWish {
    SegmentWish { key, bytes, creates: true, is_new: false, mode: 0o600 }
}

/// A segment of a user's by that key, and its id.
fn of(memory: &mut SharedMemory, key: u32, bytes: u64, identity: &Identity) -> SegmentId {
    let number = NUMBER + (u64::from(memory.last) << 16);
    memory.find(Caller { process: 2, identity, now_s: 5 }, wish(key, bytes), number).unwrap()
}

#[test]
fn a_key_leads_to_one_segment_and_its_size_and_bits_are_judged() {
    let (mut memory, mary, root) = (SharedMemory::default(), user(5), user(0));
    let caller = Caller { process: 2, identity: &mary, now_s: 9 };
    let find = |memory: &mut SharedMemory, caller, wish| memory.find(caller, wish, NUMBER + 3);
    let only = SegmentWish { creates: false, ..wish(8, 1) };
    assert_eq!(find(&mut memory, caller, only), Err(SegmentError::NotFound));
    assert_eq!(find(&mut memory, caller, wish(8, 0)), Err(SegmentError::Invalid));
    let id = find(&mut memory, caller, wish(8, 5000)).unwrap();
    assert_eq!(find(&mut memory, caller, SegmentWish { is_new: true, ..wish(8, 1) }), Err(SegmentError::Exists));
    assert_eq!(find(&mut memory, caller, wish(8, 5001)), Err(SegmentError::Invalid));
    assert_eq!((find(&mut memory, caller, only), find(&mut memory, caller, wish(8, 0))), (Ok(id), Ok(id)));
    assert_eq!(find(&mut memory, caller, wish(8, 5000)), Ok(id), "as large as it is");
    let told = memory.state(caller, SegmentName::Id(id)).unwrap();
    assert_eq!((told.owner, told.creator, told.creator_process), ([5, 105], [5, 105], 2));
    assert_eq!((told.bytes, told.changed_s, told.attached_s), (5000, 9, 0));
    // Each private one is another.
    let private = find(&mut memory, caller, SegmentWish { creates: false, ..wish(KEY_PRIVATE, 1) }).unwrap();
    assert!(private != id && find(&mut memory, caller, wish(KEY_PRIVATE, 1)).unwrap() != private);

    let (other, fellow) = (user(6), Identity { others: vec![105], ..user(6) });
    let of = |identity| Caller { process: 3, identity, now_s: 9 };
    assert_eq!(find(&mut memory, of(&other), only), Err(SegmentError::Denied));
    assert_eq!(find(&mut memory, of(&other), SegmentWish { mode: 0, ..only }), Ok(id), "who asks for nothing");
    assert_eq!(memory.attach(of(&other), id, false), Err(SegmentError::Denied));
    assert_eq!(find(&mut memory, of(&root), only), Ok(id));
    let set = |mode| SegmentChange::Set { owner: [5, 105], mode };
    assert_eq!(memory.change(of(&other), id, set(0o666)), Err(SegmentError::NotOwner));
    memory.change(caller, id, set(0o640)).unwrap();
    assert!(memory.attach(of(&fellow), id, false).is_ok() && memory.attach(of(&other), id, false).is_err());
    assert_eq!(memory.attach(of(&fellow), id, true), Err(SegmentError::Denied));
    let asks = |memory: &mut SharedMemory, mode| find(memory, of(&fellow), SegmentWish { mode, ..only });
    assert_eq!([0o400, 0o040, 0o004, 0o444].map(|mode| asks(&mut memory, mode)), [Ok(id); 4]);
    for mode in [0o200, 0o020, 0o002, 0o660, 0o066, 0o606, 0o666] {
        assert_eq!(asks(&mut memory, mode), Err(SegmentError::Denied), "{mode:o}: whichever bits ask");
    }
    memory.change(of(&root), id, set(0o004)).unwrap();
    assert_eq!(memory.attach(caller, id, false), Err(SegmentError::Denied), "what others may, the owner may not");
    assert!(memory.attach(of(&other), id, false).is_ok());
}

#[test]
fn a_removed_segment_goes_with_the_last_who_has_it() {
    let (mut memory, mary) = (SharedMemory::default(), user(5));
    let caller = Caller { process: 2, identity: &mary, now_s: 9 };
    let id = of(&mut memory, 8, PART_PAGES * PAGE + 1, &mary);
    let Attached { number, pages } = memory.attach(caller, id, true).unwrap();
    assert_eq!((number, pages), (NUMBER, PART_PAGES + 1));
    assert_eq!(memory.part(2, number, 0), Ok(Part::Missing(PART_PAGES, 1)));
    assert_eq!(memory.part(2, number, 1), Ok(Part::Missing(1, PART_PAGES)));
    assert_eq!(memory.part(2, number, 2), Err(SegmentError::Invalid));
    assert_eq!(memory.part(3, number, 0), Err(SegmentError::Invalid), "who does not have it");
    assert_eq!((memory.made(number, 0, 70), memory.made(number, 0, 71)), (None, Some(71)), "made twice");
    assert_eq!((memory.made(number, 1, 72), memory.made(number, 5, 73)), (None, Some(73)));
    assert_eq!(memory.part(2, number + 1, 1), Ok(Part::Made(72, true)));
    assert_eq!(memory.not_made(number), [], "it is whole, and may have been written to");

    memory.inherit(2, 3);
    memory.change(caller, id, SegmentChange::Set { owner: [5, 105], mode: 0o604 }).unwrap();
    let other = user(6);
    memory.attach(Caller { process: 4, identity: &other, ..caller }, id, false).unwrap();
    assert_eq!(memory.part(4, number, 0), Ok(Part::Made(70, false)), "to read only");
    assert_eq!(memory.change(caller, id, SegmentChange::Remove), Ok(vec![]));
    let told = memory.state(caller, SegmentName::Id(id)).unwrap();
    assert_eq!((told.attaches, told.is_removed, told.key), (3, true, KEY_PRIVATE));
    // Its key makes another; its id still leads to it.
    assert_ne!(of(&mut memory, 8, 1, &mary), id);
    assert!(memory.attach(caller, id, true).is_ok());
    assert_eq!(memory.detach(2, number, 20), []);
    assert_eq!(memory.detach(2, number, 20), []);
    assert_eq!((memory.detach(2, number, 20), memory.detach(9, number, 20)), (vec![], vec![]), "once too often");
    assert_eq!(memory.ended(3, 30), []);
    let told = memory.state(caller, SegmentName::Id(id)).unwrap();
    assert_eq!((told.attaches, told.last_process, told.detached_s), (1, 3, 30));
    assert_eq!(memory.ended(4, 31), [70, 72]);
    assert_eq!(memory.state(caller, SegmentName::Id(id)), Err(SegmentError::Invalid));
    assert_eq!(memory.made(number, 0, 74), Some(74), "made too late");
}

#[test]
fn what_cannot_be_made_whole_is_given_back_and_tried_again() {
    let (mut memory, mary) = (SharedMemory::default(), user(5));
    let caller = Caller { process: 2, identity: &mary, now_s: 9 };
    let id = of(&mut memory, 8, 3 * PART_PAGES * PAGE, &mary);
    let Attached { number, .. } = memory.attach(caller, id, true).unwrap();
    assert_eq!((memory.made(number, 0, 70), memory.made(number, 1, 71)), (None, None));
    assert_eq!(memory.sum().0.present_pages, 3 * PART_PAGES);
    assert_eq!(memory.not_made(number), [70, 71]);
    assert_eq!(memory.detach(2, number, 9), []);
    assert_eq!(memory.sum(), (SegmentsSum { segments: 1, pages: 3 * PART_PAGES, present_pages: 0 }, 0));
    memory.attach(caller, id, true).unwrap();
    assert_eq!(memory.part(2, number, 0), Ok(Part::Missing(PART_PAGES, 2 * PART_PAGES)));
    // Removed while nobody has it, it goes at once.
    memory.detach(2, number, 9);
    assert_eq!(memory.change(caller, id, SegmentChange::Remove), Ok(vec![]));
    assert_eq!(memory.sum(), (SegmentsSum::default(), 0));
    assert_eq!(memory.change(caller, id, SegmentChange::Remove), Err(SegmentError::Invalid));
}

#[test]
fn segments_and_their_pages_have_an_end() {
    let (mut memory, mary) = (SharedMemory::default(), user(5));
    let caller = Caller { process: 2, identity: &mary, now_s: 9 };
    for bytes in [u64::MAX, PAGES_MAX * PAGE + 1] {
        assert_eq!(memory.find(caller, wish(8, bytes), NUMBER), Err(SegmentError::TooMany));
    }
    (0..SEGMENTS_MAX).for_each(|_| _ = of(&mut memory, KEY_PRIVATE, 1, &mary));
    assert_eq!(memory.find(caller, wish(8, 1), NUMBER), Err(SegmentError::TooMany));
    let (sum, highest) = memory.sum();
    assert_eq!((sum.segments as usize, highest as usize), (SEGMENTS_MAX, SEGMENTS_MAX - 1));
    let last = SegmentName::Place { place: highest, is_open: false };
    assert_eq!(memory.state(caller, last).unwrap().id, memory.last);
    let other = user(6);
    let of_other = Caller { identity: &other, ..caller };
    assert_eq!(memory.state(of_other, last), Err(SegmentError::Denied));
    let open = SegmentName::Place { place: highest, is_open: true };
    assert_eq!(memory.state(of_other, open).unwrap().owner, [5, 105]);
    assert_eq!(
        memory.state(caller, SegmentName::Place { place: highest + 1, is_open: true }),
        Err(SegmentError::Invalid)
    );
}

#[test]
fn memory_without_a_name_is_had_by_who_knows_its_number_and_goes_with_the_last() {
    let (mut memory, mary) = (SharedMemory::default(), user(5));
    let caller = Caller { process: 2, identity: &mary, now_s: 9 };
    assert_eq!(memory.add_nameless(2, 0, NUMBER), Err(SegmentError::Invalid));
    assert_eq!(memory.add_nameless(2, u64::MAX, NUMBER), Err(SegmentError::TooMany));
    let (pages, number) = (PART_PAGES + 1, NUMBER);
    assert_eq!(memory.add_nameless(2, pages, number + 9), Ok(Attached { number, pages }));
    assert_eq!(memory.add_nameless(3, 1, number), Err(SegmentError::TooMany), "a number is of one");
    assert_eq!(memory.add_nameless(3, PAGES_MAX - PART_PAGES, number + PARTS_MAX), Err(SegmentError::TooMany));
    // No key and no id leads to it.
    assert_eq!(memory.state(caller, SegmentName::Id(0)), Err(SegmentError::Invalid));
    let first = SegmentName::Place { place: 0, is_open: true };
    assert_eq!((memory.state(caller, first), memory.sum().0.segments), (Err(SegmentError::Invalid), 0));
    assert_eq!(memory.part(3, number, 0), Err(SegmentError::Invalid), "who does not have it");
    assert_eq!(memory.part(2, number, 0), Ok(Part::Missing(PART_PAGES, 1)));
    assert_eq!((memory.made(number, 0, 77), memory.made(number, 1, 78)), (None, None));
    assert_eq!(memory.join(3, number + PARTS_MAX), Err(SegmentError::Invalid));
    memory.join(3, number).unwrap();
    memory.inherit(3, 4);
    assert_eq!(memory.part(4, number, 1), Ok(Part::Made(78, true)));
    assert!(memory.ended(3, 9).is_empty() && memory.detach(2, number, 9).is_empty());
    assert_eq!(memory.ended(4, 9), [77, 78]);
    assert_eq!(memory.join(2, number), Err(SegmentError::Invalid));
}

/// Who made a segment may do with it as before, and so may its group, whatever user owns it now.
#[test]
fn a_segment_is_its_creators_and_its_owners() {
    let (mut memory, mary, john) = (SharedMemory::default(), user(5), user(6));
    let id = of(&mut memory, 8, 1, &mary);
    fn caller(identity: &Identity) -> Caller<'_> {
        Caller { process: 3, identity, now_s: 9 }
    }
    memory.change(caller(&mary), id, SegmentChange::Set { owner: [6, 106], mode: 0o640 }).unwrap();
    for identity in [&mary, &john] {
        assert!(memory.attach(caller(identity), id, true).is_ok());
        assert_eq!(memory.change(caller(identity), id, SegmentChange::Lock(true)), Ok(vec![]));
    }
    for group in [105, 106] {
        let fellow = Identity { others: vec![group], ..user(7) };
        assert!(memory.attach(caller(&fellow), id, false).is_ok());
        assert_eq!(memory.attach(caller(&fellow), id, true), Err(SegmentError::Denied));
    }
    assert_eq!(memory.attach(caller(&user(7)), id, false), Err(SegmentError::Denied));
}
