//! What a table finds among a Ram, pieces of it, and a piece of a piece.

use super::*;
use alloc::vec;

const ME: NodeId = NodeId { core: 0, life: 1 };
const OTHER: NodeId = NodeId { core: 1, life: 1 };
const LIMIT: usize = 4;
/// First page, pages, depth.
type Place = (u64, u64, u8);
/// All memory; its halves; a quarter, made out of the first.
const ALL: Place = (0, 16, 0);
const FIRST: Place = (0, 8, 1);
const SECOND: Place = (8, 8, 1);
const QUARTER: Place = (4, 4, 2);

fn extent((first, pages, _): Place) -> Extent {
    Extent { first, pages }
}

/// Each place has a capability and an object of its own, by its numbers.
fn id((first, pages, depth): Place) -> CapabilityId {
    CapabilityId { node: ME, number: first << 16 | pages << 8 | u64::from(depth) }
}

fn object(place: Place) -> ObjectId {
    ObjectId { home: ME, number: id(place).number }
}

/// The places that it was made out of.
fn lineage(place: Place) -> Vec<CapabilityId> {
    match place {
        ALL => vec![],
        QUARTER => vec![id(ALL), id(FIRST)],
        _ => vec![id(ALL)],
    }
}

fn held(place: Place) -> Capability {
    Capability {
        id: id(place),
        object: object(place),
        kind: ObjectType::Ram,
        extent: extent(place),
        depth: place.2,
        rights: Rights::ALL,
        lineage: lineage(place),
        remote: false,
    }
}

/// With capabilities of these, in slots from 0 on, and records of those.
fn table(slots: &[Place], records: &[Place]) -> Table {
    let mut table = Table::new(LIMIT);
    assert!(table.reserve(slots.len()));
    slots.iter().for_each(|place| _ = table.insert(held(*place)));
    for place in records {
        let record = Record { kind: ObjectType::Ram, extent: extent(*place), depth: place.2, origin: lineage(*place) };
        table.add_record(object(*place), record);
    }
    table
}

#[test]
fn slots_are_promised_once() {
    let mut table = table(&[ALL], &[]);
    assert!(table.reserve(2) && !table.reserve(2) && table.reserve(1) && !table.reserve(1));
    table.unreserve(3);
    assert!(table.reserve(3) && !table.reserve(1));
    assert_eq!([FIRST, SECOND].map(|place| table.insert(held(place))), [Slot(1), Slot(2)]);
    assert!(table.remove(Slot(1)).is_some() && table.remove(Slot(1)).is_none());
    assert_eq!(table.insert(held(QUARTER)), Slot(1), "the lowest that is free");
}

#[test]
fn what_was_made_out_of_a_ram_is_found_by_capability_or_record() {
    let has = |table: &Table, place: Place| table.has_descendants(extent(place), place.2);
    for table in [table(&[FIRST, SECOND, QUARTER], &[]), table(&[FIRST, SECOND], &[QUARTER])] {
        assert_eq!([ALL, FIRST, SECOND, QUARTER].map(|place| has(&table, place)), [true, true, false, false]);
    }
    assert!(!has(&table(&[FIRST], &[FIRST]), FIRST));
}

#[test]
fn who_is_related_is_there_and_not_spared() {
    let relates =
        |table: &Table, place: Place, except: Option<Place>| table.relates(extent(place), place.2, except.map(id));
    let one = table(&[QUARTER], &[]);
    assert_eq!([ALL, FIRST, SECOND, QUARTER].map(|place| relates(&one, place, None)), [true, true, false, true]);
    // A record is no capability of the object itself.
    let record = table(&[], &[QUARTER]);
    assert_eq!([ALL, FIRST, SECOND, QUARTER].map(|place| relates(&record, place, None)), [true, true, false, false]);
    for table in [one, record] {
        assert_eq!([FIRST, SECOND].map(|except| relates(&table, FIRST, Some(except))), [false, true]);
    }
    assert!(relates(&table(&[FIRST, QUARTER], &[QUARTER]), FIRST, Some(FIRST)), "it is not derived from itself");
}

#[test]
fn a_capability_is_alone_if_nothing_of_its_object_is_elsewhere_in_the_table() {
    let besides = |slots: &[Place], records: &[Place]| table(slots, records).relates_besides(Slot(0));
    assert!(!besides(&[], &[ALL]) && !besides(&[FIRST], &[]));
    assert!(!besides(&[FIRST, SECOND, ALL], &[FIRST, SECOND]), "others, what it was made out of, its own record");
    assert!(besides(&[FIRST, FIRST], &[]) && besides(&[FIRST, QUARTER], &[]) && besides(&[FIRST], &[QUARTER]));
}

#[test]
fn that_others_may_have_some_is_marked_on_what_it_was_made_out_of() {
    // The whole first half, made out of it.
    let deeper = (0, 8, 2);
    for itself in [false, true] {
        let mut table = table(&[ALL, FIRST, SECOND, deeper], &[]);
        table.set_remote(extent(FIRST), 1, itself);
        let marked = |table: &Table| table.slots().map(|(_, held)| held.remote).collect::<Vec<_>>();
        assert_eq!(marked(&table), [true, itself, false, false]);
        table.clear_remote_of(id(QUARTER));
        assert_eq!(marked(&table), [true, itself, false, false]);
        table.clear_remote_of(id(FIRST));
        assert_eq!(marked(&table), [true, false, false, false]);
        table.clear_remote(object(ALL));
        assert_eq!(marked(&table), [false; 4]);
    }
}

#[test]
fn what_goes_takes_its_translations_along() {
    let other = Capability { object: ObjectId { home: OTHER, number: 1 }, ..held(SECOND) };
    let full = || {
        let mut table = table(&[ALL, QUARTER], &[QUARTER, FIRST]);
        assert!(table.reserve(1) && table.insert(other.clone()) == Slot(2));
        [1, 2].iter().for_each(|slot| table.translate(Slot(*slot), Rights::READ));
        table
    };
    let left = |table: &Table| [table.slots().count(), table.records().count(), table.translations().count()];
    let mut table = full();
    assert_eq!(table.delete_derived(id(FIRST)), [object(QUARTER)].into());
    assert_eq!((left(&table), table.unnamed()), ([2, 1, 1], vec![object(FIRST)]));
    let mut table = full();
    assert_eq!(table.delete_of_home(OTHER), [other.object].into());
    assert_eq!((left(&table), table.unnamed()), ([2, 2, 1], vec![object(FIRST)]));
    assert_eq!((table.drop_translation(other.id), table.drop_translation(id(QUARTER)).is_some()), (None, true));
    assert_eq!(left(&table), [2, 2, 0]);
}

#[test]
fn translations_of_a_segment_are_narrowed_and_others_are_not() {
    let both = Rights::READ.union(Rights::WRITE);
    let mut table = table(&[FIRST, SECOND], &[]);
    [0, 1].iter().for_each(|slot| table.translate(Slot(*slot), both));
    let allowed = |table: &Table| [FIRST, SECOND].map(|place| table.translated(object(place)));
    assert!(!table.downgrade(object(QUARTER), Rights(0)) && !table.downgrade(object(FIRST), both));
    assert_eq!(allowed(&table), [both, both]);
    assert!(table.downgrade(object(FIRST), Rights::READ) && !table.downgrade(object(FIRST), Rights::READ));
    assert_eq!(allowed(&table), [Rights::READ, both]);
    assert!(table.downgrade(object(FIRST), Rights(0)) && !table.downgrade(object(FIRST), Rights(0)));
    assert_eq!((allowed(&table), table.translations().count()), ([Rights(0), both], 1));
}
