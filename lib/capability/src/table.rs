//! What one core holds: capabilities in slots, records of the objects that are at home here, and
//! the translations made through capabilities.
//!
//! Invariants: object extents form a tree: two that overlap are nested, and the inner one has the
//! greater depth. So what was made out of a Ram is known from extent and depth alone, without links
//! to other cores. A capability knows the capabilities it was derived from (its lineage); deleting
//! one of them does not change that. While a capability's `remote` is clear no other core holds a
//! capability of its object, nor a capability or record of anything made out of it: this core may
//! retype and revoke alone. It may be set without need. Nothing here sends messages.

use crate::ids::{CapabilityId, Extent, NodeId, ObjectId, Slot};
use abi::{ObjectType, Rights};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Longest lineage. Bounds the size of a capability and of the messages that carry it.
pub const LINEAGE_MAX: usize = 16;

/// What a slot holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Capability {
    /// Its own name.
    pub id: CapabilityId,
    /// What it names.
    pub object: ObjectId,
    /// The object's type.
    pub kind: ObjectType,
    /// The object's memory.
    pub extent: Extent,
    /// Retypes between a core's own Ram and the object.
    pub depth: u8,
    /// What its holder may do.
    pub rights: Rights,
    /// The capabilities it was derived from, the root first; the last is its parent.
    pub lineage: Vec<CapabilityId>,
    /// Other cores may hold capabilities of the object or of something made out of it.
    pub remote: bool,
}

impl Capability {
    /// Whether it was derived from `ancestor`, at whatever distance.
    pub fn derives_from(&self, ancestor: CapabilityId) -> bool {
        self.lineage.contains(&ancestor)
    }

    /// Whether its object was made out of `extent` at `depth`, or is that object.
    fn within(&self, extent: Extent, depth: u8) -> bool {
        extent.contains(self.extent) && self.depth >= depth
    }

    /// The lineage of what is derived from it; `None` if that would be too long.
    pub(crate) fn child_lineage(&self) -> Option<Vec<CapabilityId>> {
        let fits = self.lineage.len() < LINEAGE_MAX;
        fits.then(|| self.lineage.iter().copied().chain([self.id]).collect())
    }
}

/// An object at its home. Exists exactly as long as the memory is used for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Its type.
    pub kind: ObjectType,
    /// Its memory.
    pub extent: Extent,
    /// Retypes between a core's own Ram and it.
    pub depth: u8,
    /// The capabilities its first capability was derived from: when one of those is revoked, the
    /// object goes.
    pub origin: Vec<CapabilityId>,
}

/// Pages of a segment that this core's tables and TLB may hold because of a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Translation {
    /// The segment.
    pub object: ObjectId,
    /// Most that the entries allow.
    pub rights: Rights,
}

/// What one core holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Table {
    slots: BTreeMap<Slot, Capability>,
    records: BTreeMap<ObjectId, Record>,
    translations: BTreeMap<CapabilityId, Translation>,
    /// Slots promised to operations under way.
    reserved: usize,
    limit: usize,
}

impl Table {
    /// An empty one with room for `limit` capabilities.
    pub(crate) fn new(limit: usize) -> Table {
        let (slots, records, translations) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Table { slots, records, translations, reserved: 0, limit }
    }

    /// All capabilities.
    pub fn slots(&self) -> impl Iterator<Item = (Slot, &Capability)> {
        self.slots.iter().map(|(slot, capability)| (*slot, capability))
    }

    /// All objects at home here.
    pub fn records(&self) -> impl Iterator<Item = (ObjectId, &Record)> {
        self.records.iter().map(|(object, record)| (*object, record))
    }

    /// All translations, by the capability they were made through.
    pub fn translations(&self) -> impl Iterator<Item = (CapabilityId, Translation)> {
        self.translations.iter().map(|(capability, translation)| (*capability, *translation))
    }

    /// What `slot` holds.
    pub fn get(&self, slot: Slot) -> Option<&Capability> {
        self.slots.get(&slot)
    }

    pub(crate) fn record(&self, object: ObjectId) -> Option<&Record> {
        self.records.get(&object)
    }

    /// Promises `count` slots; false if there are not so many.
    pub(crate) fn reserve(&mut self, count: usize) -> bool {
        let fits = self.slots.len() + self.reserved + count <= self.limit;
        self.reserved += if fits { count } else { 0 };
        fits
    }

    pub(crate) fn unreserve(&mut self, count: usize) {
        self.reserved = self.reserved.checked_sub(count).expect("only what was reserved is given back");
    }

    /// Puts a capability into the lowest free slot, using up one promise.
    pub(crate) fn insert(&mut self, capability: Capability) -> Slot {
        self.unreserve(1);
        let slot =
            (0..).map(Slot).find(|slot| !self.slots.contains_key(slot)).expect("there are more numbers than slots");
        self.slots.insert(slot, capability);
        slot
    }

    pub(crate) fn add_record(&mut self, object: ObjectId, record: Record) {
        let old = self.records.insert(object, record);
        assert!(old.is_none(), "object ids are never used again");
    }

    pub(crate) fn remove_record(&mut self, object: ObjectId) {
        self.records.remove(&object);
    }

    /// Empties a slot. The object of the translation that goes with it, if there was one, comes
    /// second.
    pub(crate) fn remove(&mut self, slot: Slot) -> Option<(Capability, Option<Translation>)> {
        let capability = self.slots.remove(&slot)?;
        let translation = self.translations.remove(&capability.id);
        Some((capability, translation))
    }

    /// Slots whose capability fits.
    pub(crate) fn slots_where(&self, mut fits: impl FnMut(&Capability) -> bool) -> Vec<Slot> {
        self.slots.iter().filter(|(_, capability)| fits(capability)).map(|(slot, _)| *slot).collect()
    }

    /// Whether a capability of the object is here.
    pub(crate) fn holds(&self, object: ObjectId) -> bool {
        self.slots.values().any(|capability| capability.object == object)
    }

    /// Whether a capability or record of something made out of the Ram at `extent` and `depth` is
    /// here.
    pub(crate) fn has_descendants(&self, extent: Extent, depth: u8) -> bool {
        let deeper = |at: Extent, its: u8| extent.overlaps(at) && its > depth;
        self.slots.values().any(|held| deeper(held.extent, held.depth))
            || self.records.values().any(|record| deeper(record.extent, record.depth))
    }

    /// Whether a capability of the object at `extent` and `depth` is here, or a capability or
    /// record of anything made out of it, but for what is derived from `except`.
    pub(crate) fn relates(&self, extent: Extent, depth: u8, except: Option<CapabilityId>) -> bool {
        let spared = |lineage: &[CapabilityId]| except.is_some_and(|except| lineage.contains(&except));
        let made_of_it = |record: &&Record| record.depth > depth && extent.contains(record.extent);
        self.slots.values().any(|held| held.within(extent, depth) && !spared(&held.lineage))
            || self.records.values().filter(made_of_it).any(|record| !spared(&record.origin))
    }

    /// As `relates`, but for the capability in `slot`.
    pub(crate) fn relates_besides(&self, slot: Slot) -> bool {
        let Some(Capability { extent, depth, .. }) = self.slots.get(&slot) else { return false };
        self.slots.iter().any(|(other, held)| *other != slot && held.within(*extent, *depth))
            || self.records.values().any(|record| record.depth > *depth && extent.contains(record.extent))
    }

    /// Sets the remote flag on capabilities of the object, if `itself`, and on those of what it was
    /// made out of.
    pub(crate) fn set_remote(&mut self, extent: Extent, depth: u8, itself: bool) {
        for held in self.slots.values_mut() {
            if held.extent.contains(extent) && (held.depth < depth || (itself && held.depth == depth)) {
                held.remote = true;
            }
        }
    }

    /// Clears it on capabilities of the object.
    pub(crate) fn clear_remote(&mut self, object: ObjectId) {
        self.slots.values_mut().filter(|held| held.object == object).for_each(|held| held.remote = false);
    }

    /// Clears it on capabilities of whatever object the capability names, if it is here still.
    pub(crate) fn clear_remote_of(&mut self, capability: CapabilityId) {
        let object = self.slots.values().find(|held| held.id == capability).map(|held| held.object);
        object.into_iter().for_each(|object| self.clear_remote(object));
    }

    /// Deletes everything derived from `ancestor`: capabilities, objects, translations. Gives the
    /// segments whose translations went.
    pub(crate) fn delete_derived(&mut self, ancestor: CapabilityId) -> BTreeSet<ObjectId> {
        self.records.retain(|_, record| !record.origin.contains(&ancestor));
        let derived = self.slots_where(|held| held.derives_from(ancestor));
        derived.into_iter().filter_map(|slot| self.remove(slot)?.1).map(|translation| translation.object).collect()
    }

    /// Deletes all capabilities of objects at a home that is no more. Gives the segments whose
    /// translations went.
    pub(crate) fn delete_of_home(&mut self, home: NodeId) -> BTreeSet<ObjectId> {
        let dead = self.slots_where(|held| held.object.home == home);
        dead.into_iter().filter_map(|slot| self.remove(slot)?.1).map(|translation| translation.object).collect()
    }

    /// Lets this core's tables hold the segment's pages with these rights.
    pub(crate) fn translate(&mut self, slot: Slot, rights: Rights) {
        if let Some(held) = self.slots.get(&slot) {
            let at = self.translations.entry(held.id).or_insert(Translation { object: held.object, rights: Rights(0) });
            at.rights = at.rights.union(rights);
        }
    }

    /// Takes away what was made through a capability.
    pub(crate) fn drop_translation(&mut self, through: CapabilityId) -> Option<Translation> {
        self.translations.remove(&through)
    }

    /// Narrows the translations of a segment to `keep`. Whether any was wider.
    pub(crate) fn downgrade(&mut self, object: ObjectId, keep: Rights) -> bool {
        let mut any = false;
        self.translations.retain(|_, translation| {
            if translation.object == object {
                let narrowed = translation.rights.intersection(keep);
                any |= narrowed != translation.rights;
                translation.rights = narrowed;
            }
            translation.rights != Rights(0)
        });
        any
    }

    /// What translations of the segment that are left allow.
    pub(crate) fn translated(&self, object: ObjectId) -> Rights {
        let left = self.translations.values().filter(|translation| translation.object == object);
        left.fold(Rights(0), |all, translation| all.union(translation.rights))
    }

    /// Objects at home here that no capability here names.
    pub(crate) fn unnamed(&self) -> Vec<ObjectId> {
        let named: BTreeSet<ObjectId> = self.slots.values().map(|held| held.object).collect();
        self.records.keys().filter(|object| !named.contains(object)).copied().collect()
    }
}

#[cfg(test)]
mod tests;
