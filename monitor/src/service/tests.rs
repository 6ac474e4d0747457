//! What a monitor writes of those who do not take what they are told: once a second, with a count.

use super::*;
use channel::{Layout, loopback, loopback_memory, loopback_wiring};
use monitor_core::Facts;

pub(crate) mod played;
mod whole;

const SECOND_NS: u64 = 1_000_000_000;
const STEP_NS: u64 = 5_000_000;
const TIMES: u64 = 500;
const SERVER: DomainId = 7;

fn service() -> Rc<Service> {
    Rc::new(Service::new(Registry::new(KernelCalls::default(), Facts::default(), &[], &[])))
}

fn wired() -> Wired {
    Wired {
        contract: "files".to_owned(),
        peer: "linux".to_owned(),
        peer_set: 1,
        segment: 0,
        doorbell: 0,
        bytes: 0,
        badge: 0,
        client: false,
        request: 0,
        remote: false,
    }
}

/// How many lines the log would have had, had each been written.
fn counted(lines: &[String]) -> u64 {
    let more = |line: &String| line.split_once(" (and ")?.1.split(' ').next()?.parse::<u64>().ok();
    lines.iter().map(|line| 1 + more(line).unwrap_or(0)).sum()
}

/// Runs `work`, which tells how often something was refused: the log has each, in few lines, and
/// each line has `words`.
fn is_told_once_a_second(words: &str, work: impl Future<Output = u64>) {
    let ((took_ns, refused), lines) = runtime::testing::logged(async {
        let begun_ns = now_ns();
        let refused = work.await;
        runtime::sleep(2 * SECOND_NS).await;
        (now_ns() - begun_ns, refused)
    });
    assert!(lines.len() as u64 <= took_ns / SECOND_NS + 1, "{} lines in {took_ns} ns", lines.len());
    assert!(lines.iter().all(|line| line.contains(words)), "{lines:?}");
    assert_eq!(counted(&lines), refused);
    assert!(refused >= TIMES, "{refused} refusals");
}

#[test]
fn events_that_are_not_taken_are_told_once_a_second() {
    is_told_once_a_second("does not take its events", async {
        let service = service();
        // The client's side is there, and never looked at.
        let [_client, server] = loopback_memory(Layout::default());
        let server = ServerChannel::new(loopback_wiring(server, false));
        runtime::spawn(service.clone().serve(server));
        runtime::sleep(STEP_NS).await;
        let death = Death { domain: 1, cause: 0, status: 0, address: 0, rip: 0, cpu_ns: 0 };
        let refused = Cell::new(0);
        // The first ones wait to be sent.
        for _ in 0..2 * TIMES {
            service.tell(|events| {
                let sent = events.died("child".to_owned(), 1, true, death);
                refused.set(refused.get() + u64::from(sent == Err(SendError::Full)));
                sent
            });
            runtime::sleep(STEP_NS).await;
        }
        refused.get()
    });
}

#[test]
fn channels_that_are_not_taken_are_told_once_a_second() {
    is_told_once_a_second("channel files was not taken", async {
        let service = service();
        let (client, server) = loopback(Layout::default());
        let client = EndpointClient::new(client);
        drop(server);
        service.endpoints.borrow_mut().insert(SERVER, Endpoint { client, serving_since_ns: None });
        for _ in 0..TIMES {
            assert_eq!(service.connect(SERVER, wired()).await, Err(MonitorError::Failed));
            runtime::sleep(STEP_NS).await;
        }
        TIMES
    });
}

/// Its successor is brought the channel.
#[test]
fn a_server_that_ends_before_it_takes_a_channel_is_not_found() {
    let (_, lines) = runtime::testing::logged(async {
        let service = service();
        // It hangs.
        let (client, _server) = loopback(Layout::default());
        let client = EndpointClient::new(client);
        service.endpoints.borrow_mut().insert(SERVER, Endpoint { client, serving_since_ns: None });
        let dies = service.clone();
        runtime::spawn(async move {
            runtime::sleep(STEP_NS).await;
            let ended = dies.endpoints.borrow_mut().remove(&SERVER);
            ended.into_iter().for_each(|ended| ended.client.channel().close());
        });
        for _ in 0..2 {
            assert_eq!(service.connect(SERVER, wired()).await, Err(MonitorError::NotFound));
        }
    });
    assert!(lines.is_empty(), "{lines:?}");
}
