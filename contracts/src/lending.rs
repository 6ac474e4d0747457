//! What a server keeps of descriptions that its clients pass to each other in messages, and how it
//! hears what became of them.
//!
//! Invariants: a ticket stands for one reference at the server; it goes when `process` says that it
//! is settled, and also when its lender is gone and `process` does not know of it: then it was
//! never sent. A sender waits for the answer to a message before it ends, so that `process` knows
//! by then.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::descriptions::{DescriptionError, DescriptionId};
use crate::process::{ProcessClient, ProcessEvent};

/// Tickets of one server at once.
const TICKETS_MAX: usize = 4096;
/// Tickets of one client at once.
const TICKETS_EACH_MAX: usize = 512;
/// Tickets asked about at once.
const ASKED_MAX: usize = 80;

struct Loan {
    id: DescriptionId,
    lender: u64,
}

/// All tickets of a server.
#[derive(Default)]
pub struct Tickets {
    all: BTreeMap<u64, Loan>,
}

impl Tickets {
    /// Enters a ticket, a number that nobody guesses. `TooMany`, `Failed` if it was used already.
    pub fn lend(&mut self, ticket: u64, id: DescriptionId, lender: u64) -> Result<(), DescriptionError> {
        let own = self.all.values().filter(|loan| loan.lender == lender).count();
        if self.all.len() >= TICKETS_MAX || own >= TICKETS_EACH_MAX {
            return Err(DescriptionError::TooMany);
        }
        if self.all.contains_key(&ticket) {
            return Err(DescriptionError::Failed);
        }
        self.all.insert(ticket, Loan { id, lender });
        Ok(())
    }

    /// What was lent for it. `BadId`.
    pub fn get(&self, ticket: u64) -> Result<DescriptionId, DescriptionError> {
        self.all.get(&ticket).map(|loan| loan.id).ok_or(DescriptionError::BadId)
    }

    /// Takes a ticket out, and gives what has one reference less now.
    pub fn settle(&mut self, ticket: u64) -> Option<DescriptionId> {
        self.all.remove(&ticket).map(|loan| loan.id)
    }

    /// Tickets of the senders for which this holds.
    pub fn of(&self, is_lender: impl Fn(u64) -> bool) -> Vec<u64> {
        self.all.iter().filter(|(_, loan)| is_lender(loan.lender)).map(|(ticket, _)| *ticket).collect()
    }
}

/// A server whose descriptions travel in messages.
pub trait Lender {
    /// Drops the reference that a ticket stands for.
    fn settle(&self, ticket: u64);

    /// All its tickets.
    fn tickets(&self) -> Vec<u64>;
}

/// Settles those of these tickets of which `process` does not know.
pub async fn settle_unknown(lender: &impl Lender, processes: &ProcessClient, tickets: Vec<u64>) {
    for some in tickets.chunks(ASKED_MAX) {
        let Ok(known) = channel::queued(|| processes.unsettled(some.to_vec())).await else { return };
        some.iter().filter(|ticket| !known.contains(ticket)).for_each(|ticket| lender.settle(*ticket));
    }
}

/// Hears what became of tickets, for as long as `process` is there.
pub async fn listen(lender: &impl Lender, processes: &ProcessClient) {
    loop {
        match processes.next_event().await {
            ProcessEvent::Settled { ticket } => lender.settle(ticket),
            ProcessEvent::Lost | ProcessEvent::PeerRestarted => {
                settle_unknown(lender, processes, lender.tickets()).await;
            }
            ProcessEvent::Closed => return,
            // For programs.
            ProcessEvent::SignalSent { .. } | ProcessEvent::Expired { .. } | ProcessEvent::Adopted { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_claimed_until_it_is_settled() {
        let mut tickets = Tickets::default();
        tickets.lend(77, 5, 1).unwrap();
        tickets.lend(78, 5, 2).unwrap();
        assert_eq!(tickets.lend(77, 6, 1), Err(DescriptionError::Failed));
        assert_eq!((tickets.get(77), tickets.get(79)), (Ok(5), Err(DescriptionError::BadId)));
        assert_eq!(tickets.of(|lender| lender == 2), [78]);
        assert_eq!((tickets.settle(77), tickets.settle(77)), (Some(5), None));
        assert_eq!(tickets.get(77), Err(DescriptionError::BadId));
        (0..TICKETS_EACH_MAX as u64).for_each(|ticket| tickets.lend(1000 + ticket, 9, 3).unwrap());
        assert_eq!(tickets.lend(1, 9, 3), Err(DescriptionError::TooMany));
        (513..TICKETS_MAX as u64).for_each(|ticket| tickets.lend(1000 + ticket, 9, 1000 + ticket).unwrap());
        assert_eq!(tickets.lend(1, 9, 4), Err(DescriptionError::TooMany));
    }
}
