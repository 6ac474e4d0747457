//! Calls and messages: the kernel's empty call, the doorbell of a neighbour, a contract's call on
//! the same core and on another.

use abi::Handle;
use abi::start::{channel, kind, text};
use runtime::Start;

use crate::echo::{EchoClient, NAME};
use crate::sample::{SAMPLES, Stopwatch, Stretch, repeat, row};

/// Long enough for the other core to go idle.
const REST_NS: u64 = 2_000_000;
/// Calls in a sample; fewer than a channel holds.
const CALLS: u64 = 32;
const NEAR: &str = "echo-near";
const FAR: &str = "echo-far";
const SAME_CORE: &str = "contract-call-same-core";
const SAME_CORE_BATCHED: &str = "contract-call-same-core-batched";
const BETWEEN: &str = "contract-call-between-cores";
const BETWEEN_BATCHED: &str = "contract-call-between-cores-batched";

/// Entry to the kernel and back.
pub fn null() {
    repeat("null-call", || {
        let _ = sys::null();
    });
}

/// Rings a neighbour that has nothing to do: our time goes to it, and comes back when it waits
/// again.
pub fn mailbox(start: &Start) {
    let near = start.records().iter().find(|record| {
        record.kind == kind::CHANNEL
            && text(&record.name) == NAME
            && text(&record.peer) == NEAR
            && record.b & channel::REMOTE == 0
    });
    match near.map(|record| Handle(record.handle)) {
        Some(doorbell) => repeat("mailbox-ring", || {
            let _ = sys::portal_ring(doorbell);
        }),
        None => runtime::log!("mailbox-ring failed: there is no {NEAR} on this core"),
    }
}

/// Calls by contract: to the server on this core, and to the other where it has a core of its own.
pub async fn contracts(start: &Start) {
    if let Ok(near) = start.client::<EchoClient>(NEAR) {
        one_by_one(&|| Stopwatch::start(SAME_CORE, CALLS), SAME_CORE, &near).await;
        in_batches(&|| Stopwatch::start(SAME_CORE_BATCHED, CALLS), SAME_CORE_BATCHED, &near).await;
    }
    // With one core both servers share it with us.
    if start.cores() > 1
        && let Ok(far) = start.client::<EchoClient>(FAR)
    {
        one_by_one(&|| Stopwatch::start_of_every_core(BETWEEN, CALLS), BETWEEN, &far).await;
        in_batches(&|| Stopwatch::start_of_every_core(BETWEEN_BATCHED, CALLS), BETWEEN_BATCHED, &far).await;
        wake_up(&far).await;
    }
}

async fn one_by_one(start: &dyn Fn() -> Stopwatch, name: &str, client: &EchoClient) {
    let mut samples = [Stretch::default(); SAMPLES];
    for sample in &mut samples {
        let watch = start();
        for _ in 0..CALLS {
            let _ = client.now().await;
        }
        *sample = watch.stop();
    }
    row(name, CALLS, &mut samples);
}

async fn in_batches(start: &dyn Fn() -> Stopwatch, name: &str, client: &EchoClient) {
    let mut samples = [Stretch::default(); SAMPLES];
    for sample in &mut samples {
        let watch = start();
        let calls: [_; CALLS as usize] = core::array::from_fn(|_| client.now());
        for call in calls {
            let _ = call.await;
        }
        *sample = watch.stop();
    }
    row(name, CALLS, &mut samples);
}

/// From sending to the server's first look, when its core sleeps. The cores' counters are one clock
/// in an emulated machine.
async fn wake_up(far: &EchoClient) {
    let mut one_way = [Stretch::default(); SAMPLES];
    for sample in &mut one_way {
        runtime::sleep(REST_NS).await;
        let watch = Stopwatch::start_of_every_core("wake-up-of-sleeping-core", 1);
        let sent_ns = runtime::now_ns();
        let seen_ns = far.now().await.unwrap_or(sent_ns);
        *sample = watch.stop();
        sample.ns = seen_ns.saturating_sub(sent_ns);
    }
    one_way.sort_by_key(|stretch| stretch.ns);
    runtime::log!("wake-up-of-sleeping-core {} ns", one_way[SAMPLES / 2].ns);
}
