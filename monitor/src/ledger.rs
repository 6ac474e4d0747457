//! Where this core's time went: the kernel's ledgers, with the names that domains have here.
//!
//! Invariants: the time of a domain is counted while it is known, and with those that ended from
//! then on, never twice and never not at all; so the sum of a core's time is all of it, but for
//! domains that others than the monitor made (programs that test the kernel).

use alloc::format;
use alloc::vec::Vec;

use abi::Handle;
use abi::layout::counter;
use contracts::monitor::{CoreTime, LedgerLine, MonitorError, Paid};
use contracts::spawn::DomainId;

use crate::machine::Machine;
use crate::{Registry, refused};

/// Payers of a line: as many as a ledger has, which is less than a message may be long.
const PAID_MAX: usize = 16;

impl<M: Machine> Registry<M> {
    /// Where the time of this core went until now.
    pub fn core_time(&mut self) -> Result<CoreTime, MonitorError> {
        let handles = self.domains.values().map(|domain| domain.parts.domain);
        let handles: Vec<_> = core::iter::once(Handle::SELF_DOMAIN).chain(handles).collect();
        let mut domains_ns = 0;
        for handle in handles {
            domains_ns += self.machine.state(handle).map_err(|error| refused(&self.machine, error))?.cpu_ns;
        }
        let [idle_ns, kernel_ns] = [counter::IDLE_NS, counter::KERNEL_NS].map(|index| self.machine.counter(index));
        Ok(CoreTime { clock_ns: self.machine.now_ns(), idle_ns, kernel_ns, domains_ns, ended_ns: self.ended_ns })
    }

    /// The ledger of the domain with the smallest id of at least `from`; the monitor's own domain
    /// is the first of its core.
    pub fn ledger(&mut self, from: DomainId) -> Option<LedgerLine> {
        let own = self.machine.state(Handle::SELF_DOMAIN).unwrap_or_default().id;
        let (domain, handle, name) = if own >= from {
            (own, Handle::SELF_DOMAIN, format!("monitor-{}", self.facts.core))
        } else {
            let (id, domain) = self.domains.range(from..).next()?;
            (*id, domain.parts.domain, domain.plan.name.clone())
        };
        let rows = (0..PAID_MAX).map_while(|number| self.machine.ledger(handle, number as u64).ok());
        let paid = rows.map(|(payer, client, paid_ns)| Paid { payer, client, paid_ns }).collect();
        // Last, so that it is no less than what was paid.
        let cpu_ns = self.machine.state(handle).unwrap_or_default().cpu_ns;
        Some(LedgerLine { domain, name, cpu_ns, paid })
    }
}
