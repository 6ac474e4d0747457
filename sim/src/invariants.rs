//! What must hold, whatever the order of events.
//!
//! [`always`] looks at one state; [`quiet`] at one in which nothing is under way; [`revoked`] and
//! [`Ghost`] at what was promised over time.

use crate::cluster::Cluster;
use abi::{ObjectType, Rights};
use capability::{CapabilityId, Extent, Node, NodeId, ObjectId, Protocol};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What is broken, in one line.
pub type Broken = String;

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(message()) }
}

/// Holds in every state: memory has one use, and a core that thinks it is alone is.
pub fn always<P: Protocol>(cluster: &Cluster<P>) -> Result<(), Broken> {
    one_use(cluster)?;
    alone(cluster)
}

#[derive(Clone, Copy)]
struct Use {
    object: ObjectId,
    kind: ObjectType,
    extent: Extent,
    depth: u8,
}

/// Objects that overlap are nested, and all but the innermost are Ram. What a core still maps
/// counts, even if the object's home is gone.
fn one_use<P: Protocol>(cluster: &Cluster<P>) -> Result<(), Broken> {
    let mut uses: BTreeMap<ObjectId, Use> = BTreeMap::new();
    for node in cluster.nodes() {
        for (_, held) in node.table().slots() {
            // Nothing is in Ram; whether a stale capability for it may still be used is for its
            // holder's next vote.
            if held.kind != ObjectType::Ram || cluster.is_live(held.object.home) {
                let (object, kind, extent, depth) = (held.object, held.kind, held.extent, held.depth);
                uses.insert(object, Use { object, kind, extent, depth });
            }
        }
        for (object, record) in node.table().records() {
            uses.insert(object, Use { object, kind: record.kind, extent: record.extent, depth: record.depth });
        }
    }
    let mut uses: Vec<Use> = uses.into_values().collect();
    uses.sort_by_key(|one| (one.extent.first, u64::MAX - one.extent.pages, one.depth));
    let mut around: Vec<Use> = Vec::new();
    for inner in uses {
        while around.last().is_some_and(|outer| outer.extent.end() <= inner.extent.first) {
            around.pop();
        }
        if let Some(outer) = around.last() {
            let nested = outer.extent.contains(inner.extent) && outer.depth < inner.depth;
            ensure(nested && outer.kind == ObjectType::Ram, || {
                format!(
                    "pages {} to {} are {:?} {:?} and {:?} {:?} at once",
                    inner.extent.first,
                    inner.extent.end(),
                    outer.kind,
                    outer.object,
                    inner.kind,
                    inner.object
                )
            })?;
        }
        around.push(inner);
    }
    Ok(())
}

/// While a remote flag is clear, no other core has a capability of the object, nor of anything made
/// out of it, nor such an object.
fn alone<P: Protocol>(cluster: &Cluster<P>) -> Result<(), Broken> {
    // Per region of memory: who holds what. Nothing crosses regions.
    let mut held: HashMap<u64, Vec<(NodeId, Extent, u8)>> = HashMap::new();
    for node in cluster.nodes() {
        let slots = node.table().slots().filter(|(slot, _)| !node.is_moving(*slot));
        let capabilities = slots.map(|(_, held)| (held.extent, held.depth));
        // A record is no capability: it matters to those for the Ram it was made out of, not to
        // those for the object itself.
        let records = node.table().records().filter(|(_, record)| record.depth > 0);
        for (extent, depth) in capabilities.chain(records.map(|(_, record)| (record.extent, record.depth - 1))) {
            held.entry(cluster.region_of(extent.first)).or_default().push((node.id(), extent, depth));
        }
    }
    for node in cluster.nodes() {
        let unmarked = node.table().slots().filter(|(slot, held)| !held.remote && !node.is_moving(*slot));
        for (slot, mine) in unmarked {
            let related = |(at, extent, depth): &&(NodeId, Extent, u8)| {
                *at != node.id() && mine.extent.contains(*extent) && *depth >= mine.depth
            };
            let other = held[&cluster.region_of(mine.extent.first)].iter().find(related);
            ensure(other.is_none(), || {
                format!("{:?} at {:?} {slot:?} counts as the only one, but {other:?} exists", mine.id, node.id())
            })?;
        }
    }
    Ok(())
}

/// Holds when nothing is under way: every object has a capability and every capability an object,
/// and nothing allows more than it was made from.
pub fn quiet<P: Protocol>(cluster: &Cluster<P>) -> Result<(), Broken> {
    let records: BTreeSet<ObjectId> =
        cluster.nodes().flat_map(|n| n.table().records().map(|(object, _)| object)).collect();
    let mut named = BTreeSet::new();
    for node in cluster.nodes() {
        for (slot, held) in node.table().slots() {
            ensure(records.contains(&held.object), || {
                format!("{:?} {slot:?} names {:?}, which is no more", node.id(), held.object)
            })?;
            named.insert(held.object);
        }
        translations(node)?;
    }
    let lost = records.difference(&named).next();
    ensure(lost.is_none(), || format!("memory is lost: nothing names {lost:?}"))
}

fn translations<P: Protocol>(node: &Node<P>) -> Result<(), Broken> {
    let rights: HashMap<CapabilityId, Rights> = node.table().slots().map(|(_, held)| (held.id, held.rights)).collect();
    for (through, translation) in node.table().translations() {
        let allowed = rights.get(&through).is_some_and(|rights| rights.contains(translation.rights));
        ensure(allowed, || format!("{:?} maps {:?} without a right to", node.id(), translation.object))?;
    }
    Ok(())
}

/// Holds when a revoke is answered: nothing derived from the capability is left, or on its way to
/// anyone who would take it.
pub fn revoked<P: Protocol>(cluster: &Cluster<P>, capability: CapabilityId) -> Result<(), Broken> {
    for node in cluster.nodes() {
        let left = node.table().slots().find(|(_, held)| held.derives_from(capability));
        ensure(left.is_none(), || format!("{capability:?} was revoked, but {left:?} is at {:?}", node.id()))?;
        let left = node.table().records().find(|(_, record)| record.origin.contains(&capability));
        ensure(left.is_none(), || format!("{capability:?} was revoked, but {left:?} is at home at {:?}", node.id()))?;
    }
    Ok(())
}

/// After everything was revoked: each core has its memory back whole.
pub fn whole<P: Protocol>(cluster: &Cluster<P>) -> Result<(), Broken> {
    for node in cluster.nodes() {
        let counts =
            [node.table().slots().count(), node.table().records().count(), node.table().translations().count()];
        ensure(counts == [1, 1, 0], || {
            format!("{:?} is left with {counts:?} capabilities, objects and translations, not [1, 1, 0]", node.id())
        })?;
    }
    Ok(())
}

/// What was seen before, to compare with.
#[derive(Default)]
pub struct Ghost {
    rights: HashMap<CapabilityId, Rights>,
}

impl Ghost {
    /// After a step of `core`: its capabilities allow no more than those they were derived from,
    /// and than they did before.
    pub fn look<P: Protocol>(&mut self, cluster: &Cluster<P>, core: u16) -> Result<(), Broken> {
        let Some(node) = cluster.node(core) else { return Ok(()) };
        // What is being moved may already be elsewhere, with fewer rights.
        for (slot, held) in node.table().slots().filter(|(slot, _)| !node.is_moving(*slot)) {
            let known = self.rights.get(&held.id).copied();
            let bound = known.or_else(|| self.rights.get(held.lineage.last()?).copied());
            ensure(bound.is_none_or(|bound| bound.contains(held.rights)), || {
                format!("{:?} {slot:?} has rights {:?}, more than {bound:?} before it", node.id(), held.rights)
            })?;
            ensure(bound.is_some() || held.lineage.is_empty(), || {
                format!("{:?} {slot:?} comes from nowhere", node.id())
            })?;
            self.rights.insert(held.id, held.rights);
        }
        Ok(())
    }
}
