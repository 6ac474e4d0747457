//! For whom a component worked, by its clients over channels: each request takes as much of the
//! clock as it says.

extern crate alloc;

use std::rc::Rc;

use channel::{ClientChannel, Layout, ServerChannel, Wiring, loopback_memory, loopback_wiring};
use contract::contract;
use contracts::endpoint::{WORK_CLIENTS_MAX, Work};
use runtime::Peer;
use runtime::testing::run;

const SMALL: Layout = Layout { ring_slots: 16, bulk_bytes: 4096 };
/// What is told of a program that has left.
const LEAVES: u64 = 5;

/// Work that takes time.
#[contract(name = "labour", version = 1)]
pub trait Labour {
    /// Takes so long, and as long again after a pause; a tenth of it in a task of its own.
    #[op]
    async fn labour(&self, ticks: u64) -> Result<(), ()>;
}

struct Service;

impl LabourServer for Service {
    async fn labour(&self, _peer: &Peer, ticks: u64) -> Result<(), ()> {
        executor::pass(ticks);
        runtime::sleep(1000).await;
        executor::pass(ticks - ticks / 10);
        runtime::spawn(async move { executor::pass(ticks / 10) });
        Ok(())
    }

    fn peer_closed(&self, _peer: &Peer) {
        executor::pass(LEAVES);
    }

    fn peer_restarted(&self, _peer: &Peer) {
        executor::pass(LEAVES);
    }
}

/// A client of that name, and what its monitor has.
fn client(name: &str) -> (LabourClient, channel::Memory) {
    let [one, two, monitor] = loopback_memory(SMALL);
    let server = ServerChannel::new(Wiring { peer: name.into(), ..loopback_wiring(two, false) });
    runtime::spawn(serve_labour(Rc::new(Service), server));
    (LabourClient::new(ClientChannel::new(loopback_wiring(one, true))), monitor)
}

async fn told() -> Work {
    runtime::take_in_all().await;
    runtime::work()
}

fn clients<const N: usize>(all: [(&str, u64); N]) -> Vec<(String, u64)> {
    all.map(|(name, ns)| (name.into(), ns)).into()
}

#[test]
fn who_asks_four_times_as_much_has_four_times_as_much_done() {
    run(async {
        told().await;
        let ((often, _), (seldom, _)) = (client("linux-2"), client("linux-3"));
        for round in 0..40 {
            assert_eq!(often.labour(100).await, Ok(()));
            if round % 4 == 0 {
                assert_eq!(seldom.labour(100).await, Ok(()));
            }
        }
        executor::pass(33);
        let work = told().await;
        assert_eq!(work.clients, clients([("linux-2", 8000), ("linux-3", 2000)]));
        assert_eq!((work.own_ns, work.ended_ns, work.others_ns), (33, 0, 0));
    });
}

#[test]
fn a_successor_in_a_channel_begins_at_nothing() {
    run(async {
        told().await;
        let (first, _) = client("linux-2");
        assert_eq!(first.labour(100).await, Ok(()));
        first.channel().close();
        let work = told().await;
        assert_eq!((work.clients, work.ended_ns), (Vec::new(), 200 + LEAVES));
        // One that dies says nothing, and its successor is seen.
        let (second, monitor) = client("linux-3");
        assert_eq!(second.labour(100).await, Ok(()));
        std::mem::forget(second);
        monitor.begin_generation(9);
        let work = told().await;
        assert_eq!((work.clients, work.ended_ns), (Vec::new(), 400 + 2 * LEAVES));
    });
}

#[test]
fn who_has_most_is_named_and_the_rest_is_told_as_one() {
    run(async {
        told().await;
        let all: Vec<_> =
            (0..WORK_CLIENTS_MAX as u64 + 4).map(|number| (number, client(&format!("c{number}")))).collect();
        for (number, (client, _)) in &all {
            assert_eq!(client.labour(100 + number).await, Ok(()));
        }
        let work = told().await;
        let last = all.len() as u64 - 1;
        assert_eq!(
            (work.clients.len(), work.clients[0].clone()),
            (WORK_CLIENTS_MAX, (format!("c{last}"), 2 * (100 + last)))
        );
        assert_eq!((work.others_ns, work.own_ns), (2 * (100 + 101 + 102 + 103), 0));
    });
}
