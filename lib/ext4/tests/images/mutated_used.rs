//! Images with wrong bytes, in whose journal there is something: they are recovered, mounted and
//! written, or refused. Nothing panics, nothing goes on for ever, nothing outside of the volume is
//! written, and nothing at all before the journal was read to its end.
//!
//! `PROPTEST_CASES=10000` makes it as many as the promise is about.

use std::rc::Rc;
use std::sync::LazyLock;

use ext4::{Kind, New, ROOT, SetXattr, Volume};
use proptest::prelude::*;

use crate::common::{Image, rich};
use crate::disk::Disk;
use crate::mutated::{Damaged, Target, change_all, marks, offset, sum, target, value};
use crate::power::Machine;
use crate::recovery::{place, put_sum};

/// Blocks of the journal.
const JOURNAL_BLOCKS: u32 = 1024;

/// A volume whose journal has transactions that are not in their places.
struct Used {
    image: Image,
    /// The blocks of the journal that have something.
    journal: Vec<u64>,
    /// What their checksums start from.
    seed: u32,
}

fn used() -> Option<&'static Used> {
    static USED: LazyLock<Option<Used>> = LazyLock::new(|| rich().map(make_used));
    USED.as_ref()
}

fn make_used(rich: &Image) -> Used {
    let mut machine = Machine::mount(Disk::new(&Rc::new(rich.clone())), 0).unwrap();
    let new = New { kind: Kind::File, permissions: 0o600, user: 1, group: 1, device: 0 };
    let a = machine.inode(ROOT).unwrap();
    let a = machine.ask(|volume, blocks| volume.lookup(blocks, &a, b"a")).unwrap();
    for number in 0..4 {
        let name = format!("new {number}").into_bytes();
        let file = machine.change(|operation| operation.create(a, &name, &new)).unwrap();
        machine.change(|operation| operation.write(file, number * 4096, &[7; 9000])).unwrap();
        machine.change(|operation| operation.set_xattr(file, b"user.x", &[7; 200], SetXattr::Any)).unwrap();
        machine.sync().unwrap();
    }
    // One is on the orphan list, and its blocks are revoked.
    machine.change(|operation| operation.unlink(a, b"new 0")).unwrap();
    machine.sync().unwrap();
    let image = machine.disk.image();
    let places: Vec<u64> = (0..JOURNAL_BLOCKS).map(|logical| place(&image, logical)).collect();
    let seed = sum(!0, &image.block(places[0]).unwrap()[48..64]);
    let is_used = |block: &u64| image.block(*block).is_some_and(|bytes| bytes.iter().any(|byte| *byte != 0));
    let journal = places.into_iter().filter(is_used).collect();
    Used { image, journal, seed }
}

/// Where bytes are changed.
#[derive(Clone, Copy, Debug)]
enum Place {
    Volume(Target),
    /// A block of the journal, with its checksum put right or not.
    Journal(usize, bool),
}

fn hurt(used: &Used, damaged: &mut Damaged, place: Place, offset: usize, value: &[u8]) {
    match place {
        Place::Volume(target) => marks().unwrap().hurt(damaged, target, offset, value),
        Place::Journal(which, has_sum) => {
            let block = used.journal[which % used.journal.len()];
            damaged.change(block, |bytes| {
                let at = offset % (bytes.len() - 4);
                bytes[at..at + value.len()].copy_from_slice(value);
                if has_sum && bytes[..4] == [0xC0, 0x3B, 0x39, 0x98] {
                    put_sum(bytes, used.seed);
                }
            });
        }
    }
}

fn any_place() -> impl Strategy<Value = Place> {
    prop_oneof![
        3 => target().prop_map(Place::Volume),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(which, has_sum)| Place::Journal(which, has_sum)),
    ]
}

proptest! {
    #[test]
    fn no_journal_in_use_makes_writing_panic_or_go_on(hurts in prop::collection::vec((any_place(), offset(), value()), 1..4)) {
        let (Some(used), Some(marks)) = (used(), marks()) else { return Ok(()) };
        let mut damaged = Damaged::new(&used.image);
        for (place, offset, value) in &hurts {
            hurt(used, &mut damaged, *place, *offset, value);
        }
        let Ok(volume) = Volume::open(&damaged, used.image.blocks()) else { return Ok(()) };
        change_all(&volume, &mut damaged, marks);
    }
}
