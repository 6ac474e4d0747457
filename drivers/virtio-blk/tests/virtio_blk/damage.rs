//! Bytes of the ring region are changed while no driver lives: the next one goes on or resets, and
//! the device is never led to a foreign address (it would end the test).

use crate::common::world::World;
use proptest::prelude::*;
use virtio::pool_queue::{AVAILABLE_OFFSET, USED_OFFSET};
use virtio_blk::record::{HEAD_OFFSET, RING_BYTES, SLOT_BYTES, SLOTS_OFFSET, STATUS_OFFSET};

/// Where something stands: descriptors, rings and marks, the used ring, the head, the first slots;
/// or anywhere.
fn place() -> impl Strategy<Value = usize> {
    prop_oneof![
        0..1024usize,
        AVAILABLE_OFFSET..AVAILABLE_OFFSET + 128,
        AVAILABLE_OFFSET + 512..AVAILABLE_OFFSET + 2056,
        USED_OFFSET..USED_OFFSET + 512,
        HEAD_OFFSET..HEAD_OFFSET + 32,
        SLOTS_OFFSET..SLOTS_OFFSET + 40 * SLOT_BYTES,
        0..RING_BYTES,
    ]
}

/// Lives for a while, dies, and the bytes are changed; then a successor does what is left.
fn damage(stores: u64, seed: u64, changes: &[(usize, u8)]) {
    let mut world = World::new(&[stores]);
    (world.may_fail, world.changes) = (true, changes.to_vec());
    let mut chance = seed;
    let mut driver = world.begin();
    (0..260).for_each(|_| world.step(&mut driver, &mut chance));
    world.end(&mut driver);
    assert!(world.begun > 1 || stores > 500, "nobody died");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_byte_makes_nothing_wrong(stores in 100u64..1_500, seed: u64, at in place(), by in 1u8..) {
        // Of a status that the device wrote, another one is as good.
        let is_status = at >= SLOTS_OFFSET && at % SLOT_BYTES == STATUS_OFFSET;
        prop_assume!(!is_status);
        damage(stores, seed | 1, &[(at, by)]);
    }

    #[test]
    fn many_bytes_end_in_errors(
        stores in 100u64..1_500,
        seed: u64,
        changes in prop::collection::vec((place(), 1u8..), 2..40),
    ) {
        damage(stores, seed | 1, &changes);
    }
}
