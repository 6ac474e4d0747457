//! What callers ask for: random calls over what their core holds, some of them nonsense.

use crate::cluster::Cluster;
use abi::{ObjectType, Rights};
use capability::{Call, Capability, Node, Protocol, Slot};
use rand::seq::{IndexedRandom, IteratorRandom};
use rand::{Rng, RngExt};

const KINDS: [ObjectType; 6] =
    [ObjectType::Ram, ObjectType::Ram, ObjectType::Ram, ObjectType::Segment, ObjectType::Segment, ObjectType::Domain];

/// A call for someone on `core`.
pub fn call<P: Protocol>(random: &mut impl Rng, cluster: &Cluster<P>, node: &Node<P>) -> Call {
    let Some((slot, held)) = node.table().slots().choose(random) else { return Call::Delete { slot: Slot(0) } };
    match random.random_range(0..100) {
        0..15 => Call::Copy { slot, rights: some_rights(random, held) },
        15..35 => retype(random, slot, held),
        35..50 => Call::Delete { slot },
        50..58 => Call::Revoke { slot },
        58..83 => Call::Transfer {
            slot,
            to: random.random_range(0..cluster.cores()),
            rights: some_rights(random, held),
            moved: random.random_bool(0.5),
        },
        83..91 => Call::Touch { slot, rights: some_protection(random) },
        91..97 => Call::Invalidate { slot, keep: [Rights(0), Rights::READ][random.random_range(0..2)] },
        _ => nonsense(random),
    }
}

fn some_rights(random: &mut impl Rng, held: &Capability) -> Rights {
    let without =
        [Rights(0), Rights(0), Rights(0), Rights::WRITE, Rights::GRANT].choose(random).copied().unwrap_or(Rights(0));
    Rights(held.rights.0 & !without.0)
}

fn some_protection(random: &mut impl Rng) -> Rights {
    if random.random_bool(0.5) { Rights::READ } else { Rights::READ.union(Rights::WRITE) }
}

fn retype(random: &mut impl Rng, slot: Slot, held: &Capability) -> Call {
    let count = random.random_range(1..=3);
    let kind = KINDS.choose(random).copied().unwrap_or(ObjectType::Ram);
    Call::Retype { slot, kind, pages: (held.extent.pages / u64::from(count)).max(1), count }
}

fn nonsense(random: &mut impl Rng) -> Call {
    let slot = Slot(random.random_range(0..u32::MAX));
    match random.random_range(0..4) {
        0 => Call::Retype { slot: Slot(0), kind: ObjectType::Pcore, pages: 1, count: 1 },
        1 => Call::Retype { slot: Slot(0), kind: ObjectType::Ram, pages: u64::MAX, count: u32::MAX },
        2 => Call::Copy { slot: Slot(0), rights: Rights(u32::MAX) },
        _ => Call::Delete { slot },
    }
}
