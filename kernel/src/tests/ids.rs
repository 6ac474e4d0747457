//! Object ids: as many objects as `PELAGO_STRESS_OBJECTS` says are made and go again, private and
//! shared ones, and no id comes twice. The nightly run makes 10^7 (`./pelago test
//! host-stress/ids`).

use super::World;
use super::shared::Block;
use abi::layout::lock;
use abi::{Call, Handle};

/// Without the variable.
const OBJECTS: u64 = 20_000;
const RAM: u64 = Handle::ROOT_RAM.0;

fn wanted() -> u64 {
    std::env::var("PELAGO_STRESS_OBJECTS").map_or(OBJECTS, |objects| objects.parse().expect("a number of objects"))
}

#[test]
fn ids_of_private_objects_rise() {
    let mut world = World::new(200);
    let actor = world.outsider();
    let mut last = 0;
    for number in 0..wanted() {
        let made = match number % 3 {
            0 => world.make(actor, Call::SegmentAlloc, &[RAM, 1, 0]),
            1 => world.make(actor, Call::RamSplit, &[RAM, 1]),
            _ => world.make(actor, Call::SemaphoreAlloc, &[RAM, 0]),
        };
        let id = world.run(actor, Call::CapStat, &[made]).unwrap()[1];
        assert!(id > last, "id {id:#x} after {last:#x}");
        last = id;
        world.make(actor, Call::CapDrop, &[made]);
    }
    world.leave_nothing(&[actor]);
}

#[test]
fn ids_of_shared_objects_rise() {
    let block = Block::new(1);
    let mut home = block.core(0);
    let share = home.pool(32, lock::SPIN);
    let mut last = 0;
    for number in 0..wanted() {
        let call = if number % 2 == 0 { Call::ShareSegment } else { Call::ShareAlloc };
        let words = if number % 2 == 0 { [share, 1, 0, 0, 0, 0] } else { [share, 0, 0, lock::MCS, 0, 0] };
        let id = home.run(call, &words).unwrap()[1];
        assert!(id > last, "id {id:#x} after {last:#x}");
        last = id;
        home.make(Call::ShareRemove, &[share, id]);
    }
    home.drop(share);
    home.assert_back();
    home.end();
}
