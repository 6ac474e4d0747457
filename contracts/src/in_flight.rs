//! Descriptions in flight: what a server keeps of those that its clients pass to each other in
//! messages, and how `process` tells it what became of them.
//!
//! Invariants: a ticket stands for one reference at the server. The server drops the reference when
//! `process` says that the ticket is settled, and also when its exporter is gone and `process` does
//! not know of it: then it was never sent. A sender waits for the answer to a message before it
//! ends, so that `process` knows by then.

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

struct Exported {
    id: DescriptionId,
    exporter: u64,
}

/// All tickets of a server.
#[derive(Default)]
pub struct Tickets {
    all: BTreeMap<u64, Exported>,
}

impl Tickets {
    /// Enters a ticket, a number that nobody guesses. `TooMany`, `Failed` if it was used already.
    pub fn add(&mut self, ticket: u64, id: DescriptionId, exporter: u64) -> Result<(), DescriptionError> {
        let own = self.all.values().filter(|exported| exported.exporter == exporter).count();
        if self.all.len() >= TICKETS_MAX || own >= TICKETS_EACH_MAX {
            return Err(DescriptionError::TooMany);
        }
        if self.all.contains_key(&ticket) {
            return Err(DescriptionError::Failed);
        }
        self.all.insert(ticket, Exported { id, exporter });
        Ok(())
    }

    /// The description that it stands for. `BadId`.
    pub fn get(&self, ticket: u64) -> Result<DescriptionId, DescriptionError> {
        self.all.get(&ticket).map(|exported| exported.id).ok_or(DescriptionError::BadId)
    }

    /// Takes a ticket out, and gives what has one reference less now.
    pub fn settle(&mut self, ticket: u64) -> Option<DescriptionId> {
        self.all.remove(&ticket).map(|exported| exported.id)
    }

    /// Tickets of the exporters for which this holds.
    pub fn of(&self, is_exporter: impl Fn(u64) -> bool) -> Vec<u64> {
        self.all.iter().filter(|(_, exported)| is_exporter(exported.exporter)).map(|(ticket, _)| *ticket).collect()
    }
}

/// A server whose descriptions can be sent in messages.
pub trait Exporter {
    /// Drops the reference that a ticket stands for.
    fn settle(&self, ticket: u64);

    /// All its tickets.
    fn tickets(&self) -> Vec<u64>;
}

/// Settles those of these tickets of which `process` does not know.
pub async fn settle_unknown(exporter: &impl Exporter, processes: &ProcessClient, tickets: Vec<u64>) {
    for some in tickets.chunks(ASKED_MAX) {
        let Ok(known) = channel::queued(|| processes.unsettled(some.to_vec())).await else { return };
        some.iter().filter(|ticket| !known.contains(ticket)).for_each(|ticket| exporter.settle(*ticket));
    }
}

/// Settles tickets as `process` says, for as long as it is there.
pub async fn listen(exporter: &impl Exporter, processes: &ProcessClient) {
    loop {
        match processes.next_event().await {
            ProcessEvent::Settled { ticket } => exporter.settle(ticket),
            ProcessEvent::Lost | ProcessEvent::PeerRestarted => {
                settle_unknown(exporter, processes, exporter.tickets()).await;
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
    use crate::process::{self, ProcessError, ProcessEvents};
    use alloc::boxed::Box;
    use alloc::rc::Rc;
    use channel::{Broken, ClientChannel, Dispatch, Layout, Peer, ServerChannel, Task};
    use core::cell::{Cell, RefCell};

    #[test]
    fn a_ticket_is_claimed_until_it_is_settled() {
        let mut tickets = Tickets::default();
        tickets.add(77, 5, 1).unwrap();
        tickets.add(78, 5, 2).unwrap();
        assert_eq!(tickets.add(77, 6, 1), Err(DescriptionError::Failed));
        assert_eq!((tickets.get(77), tickets.get(79)), (Ok(5), Err(DescriptionError::BadId)));
        assert_eq!(tickets.of(|exporter| exporter == 2), [78]);
        assert_eq!((tickets.settle(77), tickets.settle(77)), (Some(5), None));
        assert_eq!(tickets.get(77), Err(DescriptionError::BadId));
        (0..TICKETS_EACH_MAX as u64).for_each(|ticket| tickets.add(1000 + ticket, 9, 3).unwrap());
        assert_eq!(tickets.add(1, 9, 3), Err(DescriptionError::TooMany));
        (513..TICKETS_MAX as u64).for_each(|ticket| tickets.add(1000 + ticket, 9, 1000 + ticket).unwrap());
        assert_eq!(tickets.add(1, 9, 4), Err(DescriptionError::TooMany));
    }

    /// A clock that jumps.
    #[derive(Default)]
    struct Machine(Cell<u64>);

    impl executor::Platform for Machine {
        fn now_ns(&self) -> u64 {
            self.0.set(self.0.get() + 1);
            self.0.get()
        }
        fn ran_ticks(&self) -> u64 {
            0
        }
        fn wait(&self, deadline_ns: u64) -> u64 {
            assert!(deadline_ns != u64::MAX, "the test waits for something that can never happen");
            self.0.set(deadline_ns.max(self.0.get()));
            0
        }
    }

    /// A process server that knows the tickets above a number, and of how many it was asked.
    struct Process {
        knows_from: u64,
        asked: Rc<RefCell<Vec<usize>>>,
    }

    impl Dispatch for Process {
        fn request(&self, peer: &Peer, _: u16, correlation: u32, body: &[u8]) -> Result<Task, Broken> {
            let (tickets,): (Vec<u64>,) = channel::decode(body)?;
            self.asked.borrow_mut().push(tickets.len());
            let known: Vec<u64> = tickets.into_iter().filter(|ticket| *ticket >= self.knows_from).collect();
            let peer = peer.clone();
            Ok(Box::pin(async move { peer.answer(correlation, &Ok::<_, ProcessError>(known)) }))
        }
        fn one_way(&self, _: &Peer, _: u16, _: &[u8]) -> Result<(), Broken> {
            Ok(())
        }
        fn closed(&self, _: &Peer) {}
        fn restarted(&self, _: &Peer) {}
    }

    #[derive(Default)]
    struct Server {
        tickets: Vec<u64>,
        settled: RefCell<Vec<u64>>,
    }

    impl Exporter for Server {
        fn settle(&self, ticket: u64) {
            self.settled.borrow_mut().push(ticket);
        }
        fn tickets(&self) -> Vec<u64> {
            self.tickets.clone()
        }
    }

    #[test]
    fn what_process_does_not_know_is_settled() {
        let asked = Rc::new(RefCell::new(Vec::new()));
        let (client, served) = channel::loopback(Layout::default());
        executor::spawn(served.serve(process::HASH, Rc::new(Process { knows_from: 150, asked: asked.clone() })));
        let (processes, server) = (ProcessClient::new(client), Server::default());
        executor::block_on(&Machine::default(), settle_unknown(&server, &processes, (100..300).collect()));
        assert!(server.settled.borrow().iter().copied().eq(100..150));
        assert_eq!(*asked.borrow(), [80, 80, 40]);
    }

    #[test]
    fn tickets_are_settled_as_process_says_and_looked_through_when_it_was_restarted() {
        let asked = Rc::new(RefCell::new(Vec::new()));
        let [client, first, second, monitor] = channel::loopback_memory(Layout::default());
        let lives = [first, second].map(|memory| ServerChannel::new(channel::loopback_wiring(memory, false)));
        let events = lives.each_ref().map(|life| ProcessEvents::new(life.peer()));
        let process = || Rc::new(Process { knows_from: 12, asked: asked.clone() });
        let processes = ProcessClient::new(ClientChannel::new(channel::loopback_wiring(client, true)));
        let server = Server { tickets: [11, 12, 13].into(), ..Server::default() };
        let [first, second] = lives;
        executor::block_on(&Machine::default(), async {
            let life = executor::spawn(first.serve(process::HASH, process()));
            executor::spawn({
                let process = process();
                async move {
                    let [before, after] = events;
                    before.adopted(3).unwrap();
                    before.settled(7).unwrap();
                    executor::take_in_all().await;
                    executor::abort(life);
                    monitor.raise_generation();
                    let life = executor::spawn(second.serve(process::HASH, process));
                    for _ in 0..20 {
                        executor::take_in_all().await;
                    }
                    after.settled(13).unwrap();
                    executor::take_in_all().await;
                    executor::abort(life);
                }
            });
            listen(&server, &processes).await;
        });
        assert_eq!(*server.settled.borrow(), [7, 11, 13]);
        assert_eq!(*asked.borrow(), [3]);
    }
}
