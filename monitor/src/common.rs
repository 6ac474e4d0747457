//! Memory that Linux programs of this core have in common though none inherited it from another.
//!
//! The core's root account pays for it, since it outlives who asked for it. It is here until it is
//! released, and goes with the last domain that was given a capability for it, or inherited one.

use alloc::collections::BTreeMap;

use abi::{Handle, Rights};
use contracts::monitor::{COMMON_PAGES_MAX, MonitorError};
use contracts::spawn::{DomainId, MemoryId};

use crate::machine::Machine;
use crate::{Registry, refused};

/// Where the number of the core stands in a memory's.
const CORE_SHIFT: u32 = 48;

/// What there is, by number; numbers are not used again.
#[derive(Default)]
pub(crate) struct Common {
    held: BTreeMap<MemoryId, Handle>,
    last: u64,
}

impl Common {
    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

impl<M: Machine> Registry<M> {
    /// Makes zeroed memory, if so much more stays free. `NoMemory`, also for more than a monitor
    /// makes at once.
    pub fn common(&mut self, pages: u64, spare_pages: u64) -> Result<MemoryId, MonitorError> {
        if !(1..=COMMON_PAGES_MAX).contains(&pages) {
            return Err(MonitorError::NoMemory);
        }
        let made = self.machine.common(pages, spare_pages).map_err(|error| refused(&self.machine, error))?;
        self.common.last += 1;
        let id = u64::from(self.facts.core) << CORE_SHIFT | self.common.last;
        self.common.held.insert(id, made);
        Ok(id)
    }

    /// Gives a Linux domain a capability for it; the handle there. `NotFound`, `NoMemory`.
    pub fn lend(&mut self, id: MemoryId, to: DomainId, is_writer: bool) -> Result<u64, MonitorError> {
        let made = *self.common.held.get(&id).ok_or(MonitorError::NotFound)?;
        let domain = self.domains.get(&to).filter(|domain| domain.plan.linux).ok_or(MonitorError::NotFound)?;
        let writes = if is_writer { Rights::WRITE } else { Rights(0) };
        let rights = Rights::READ.union(Rights::EXECUTE).union(Rights::INHERIT).union(writes);
        let lent = self.machine.grant(domain.parts.domain, made, rights);
        lent.map(|handle| handle.0).map_err(|error| refused(&self.machine, error))
    }

    /// Drops it. Fine if it is gone.
    pub fn release(&mut self, id: MemoryId) -> Result<(), MonitorError> {
        self.common.held.remove(&id).into_iter().for_each(|made| self.machine.drop(made));
        Ok(())
    }
}
