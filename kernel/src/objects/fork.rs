//! `DomainFork`: a domain becomes a copy of another in bounded steps.
//!
//! Invariants: how far the steps are is the caller's word, and nothing is believed of it. A copy is
//! in the child's share when it is whole; until then it is the caller's `partial`, with the child's
//! id as its badge, so that no other call goes on with it. A mapping is copied if the child
//! has an anonymous segment in the slot of its segment, and allows what that capability does.

use super::mapping::allowed_by;
use super::segment::Kind;
use super::share::Capability;
use super::{Domain, Ptr, Segment, Slot};
use crate::state::Kernel;
use crate::steps::{Budget, MAPPING_UNITS};
use abi::{Error, Handle, Rights};

/// Where a fork goes on: the next slot, then the next address.
pub type Progress = [u64; 2];
/// All slots are done.
const SLOTS_END: u64 = u64::MAX;

impl Ptr<Domain> {
    /// Fills `child` as a copy that the child's own Ram pays for, so that a parent of many is not
    /// charged for them all: inheritable segments copy-on-write, or those in common with the same
    /// pages, into the same slots, then their mappings at the same addresses. What is in common and
    /// paid by another Ram than the parent's is the child's as it is. Tells whether the budget
    /// sufficed. On an error the child keeps what it got so far; its owner ends it.
    pub fn fork_into(
        self,
        kernel: &mut Kernel,
        child: Ptr<Domain>,
        partial: &Slot,
        [slot, address]: &mut Progress,
        budget: &mut Budget,
    ) -> Result<bool, Error> {
        while let Some(index) = self.share().next_taken(usize::try_from(*slot).unwrap_or(usize::MAX)) {
            *slot = index as u64;
            if !budget.spend(1) || !self.copy_slot(kernel, child, partial, index, budget)? {
                return Ok(false);
            }
            *slot += 1;
        }
        *slot = SLOTS_END;
        while let Some(mapping) = self.range().at_or_after(*address) {
            if !budget.spend(MAPPING_UNITS) {
                return Ok(false);
            }
            let copy = mapping.segment().and_then(|segment| self.copy_in(child, segment));
            if let Some((copy, capability)) = copy {
                let rights =
                    [mapping.protection(), mapping.allowed()].map(|rights| rights & allowed_by(capability.rights));
                child.range().map_copy(kernel, mapping.place(), copy, mapping.first(), rights)?;
            }
            *address = mapping.end();
        }
        Ok(true)
    }

    /// The segment in a slot that a child gets: imported memory is nobody's to copy, shared memory
    /// is not to be.
    fn inheritable(self, index: usize) -> Option<(Ptr<Segment>, Capability)> {
        let found = self.share().find::<Segment>(Handle(index as u64), Rights::INHERIT).ok();
        found.filter(|(segment, _)| !matches!(segment.kind(), Kind::Imported { .. } | Kind::Shared(_)))
    }

    /// The child's copy of a segment that it got already, if it has it still: what a fork makes is
    /// anonymous, and nothing else that the child put there meanwhile is mapped by its mappings.
    fn copy_in(self, child: Ptr<Domain>, segment: Ptr<Segment>) -> Option<(Ptr<Segment>, Capability)> {
        let index = usize::from(segment.fork_slot.get());
        self.inheritable(index).filter(|(found, _)| *found == segment)?;
        let held = child.share().find::<Segment>(Handle(index as u64), Rights(0)).ok();
        held.filter(|(copy, _)| copy.kind() == Kind::Anonymous)
    }

    /// Gives the child what is in a slot, if it is to have it; tells whether that was done.
    fn copy_slot(
        self,
        kernel: &mut Kernel,
        child: Ptr<Domain>,
        partial: &Slot,
        index: usize,
        budget: &mut Budget,
    ) -> Result<bool, Error> {
        let Some((segment, capability)) = self.inheritable(index) else { return Ok(true) };
        if !child.share().is_free(index) {
            return Err(Error::Busy);
        }
        child.ensure_slot(kernel, index)?;
        let again = self.copy_in(child, segment).filter(|_| usize::from(segment.fork_slot.get()) < index);
        let (copy, rights) = match again {
            Some((copy, held)) => {
                kernel.retain(copy);
                (copy, Rights(capability.rights.0 & held.rights.0))
            }
            // Who pays lent it to the parent, and so to the child.
            None if segment.is_common() && segment.ram() != self.ram() => {
                kernel.retain(segment);
                (segment, capability.rights)
            }
            None => match segment.copy_for(kernel, child, partial, budget)? {
                Some(copy) => (copy, capability.rights),
                None => return Ok(false),
            },
        };
        if again.is_none() {
            segment.fork_slot.set(index as u16);
        }
        child.insert(index, Capability { object: copy.any(), rights, ..capability });
        Ok(true)
    }
}

impl Ptr<Segment> {
    /// A copy for a child, once it is whole.
    fn copy_for(
        self,
        kernel: &mut Kernel,
        child: Ptr<Domain>,
        partial: &Slot,
        budget: &mut Budget,
    ) -> Result<Option<Ptr<Segment>>, Error> {
        let badge = child.header().id();
        let held = partial.get().filter(|held| held.badge == badge).map(|held| held.object.cast::<Segment>());
        let is_ours = |made: &Ptr<Segment>| made.is_made_of(Some(self)) && made.pages() == self.pages();
        let copy = match held.transpose()?.filter(is_ours) {
            Some(made) => made,
            None => {
                let new = self.begin_copy(kernel, child.ram())?;
                kernel.keep(partial, Some(Capability { object: new.any(), badge, rights: Rights(0) }), None);
                kernel.release(new);
                new
            }
        };
        // The frames of a run must stay, so a copy cannot share them.
        let is_whole = match self.base() {
            Some(_) => self.copy_pages(kernel, copy, budget),
            None => self.share_until_written(kernel, copy, budget),
        };
        if is_whole == Ok(true) {
            copy.set_source(None);
            kernel.retain(copy);
        }
        if is_whole != Ok(false) {
            kernel.keep(partial, None, None);
        }
        is_whole.map(|is_whole| is_whole.then_some(copy))
    }
}
