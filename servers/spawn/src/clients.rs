//! Clients of a server that begins again. Its plan does not name the Linux programs that were there
//! before, nor the components that asked for it: their channels are brought to it.
//!
//! While it begins no program is made. Else the channels of one could be brought to it twice, by
//! who makes the program too, or not at all.

use alloc::format;
use alloc::vec::Vec;

use contracts::monitor::{ChannelPlan, DomainPlan};
use contracts::spawn::DomainId;

use crate::service::Service;

/// Channels brought to a component before it is waited for: half of what it lets wait.
pub const ANNOUNCED_AT_ONCE: usize = 32;
/// A channel of a component, which is of no set.
pub const NO_SET: u32 = 0;

/// A server of Linux programs begins again, and until this is dropped no program is made.
pub struct Beginning<'s>(&'s Service);

impl Drop for Beginning<'_> {
    fn drop(&mut self) {
        self.0.linux.borrow_mut().server_began();
        self.0.linux_changed.changed();
    }
}

impl Service {
    /// Before the domains of a component are made again: waits until no program is being made,
    /// which ends, as each of its requests to monitors, memory server and servers has a limit.
    /// `None` for what programs do not use.
    pub async fn begin_again(&self, name: &str) -> Option<Beginning<'_>> {
        if self.description.linux.uses.iter().all(|used| used.server != name) {
            return None;
        }
        self.linux.borrow_mut().server_begins();
        let beginning = Beginning(self);
        self.linux_changed.until(|| (!self.linux.borrow().is_making()).then_some(())).await;
        Some(beginning)
    }

    /// Once they are there: brings them the channels of their clients. Sets kept for later programs
    /// are made anew when they are needed.
    pub async fn announce_clients(&self, plans: &[(u32, DomainPlan)], beginning: Option<Beginning<'_>>) {
        let is_its = |(_, plan): &&(DomainId, ChannelPlan)| plans.iter().any(|(_, own)| own.name == plan.server);
        let mut clients: Vec<_> =
            self.bound.borrow().iter().filter(is_its).map(|(_, plan)| (NO_SET, plan.clone())).collect();
        let mut spare = Vec::new();
        if beginning.is_some() {
            let mut linux = self.linux.borrow_mut();
            plans.iter().for_each(|(_, own)| clients.extend(linux.clients_of(&own.name)));
            spare = linux.take_spare();
        }
        drop(beginning);
        for some in clients.chunks(ANNOUNCED_AT_ONCE) {
            let told: Vec<_> =
                some.iter().map(|(set, plan)| self.monitor.announce(plan.server_core, plan.id, *set)).collect();
            for (answer, (set, plan)) in told.into_iter().zip(some) {
                if let Err(error) = answer.await {
                    let ChannelPlan { client, server, .. } = plan;
                    self.refusals.log(format!("{client} (set {set}) lost its channel to {server}: {error:?}"));
                }
            }
        }
        for set in &spare {
            self.close(&set.channels).await;
        }
    }
}
