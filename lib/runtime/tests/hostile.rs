//! A peer that writes anything anywhere in the region, at any time: the other side ends its calls,
//! and lives.

extern crate alloc;

mod echo;

use std::rc::Rc;

use channel::{ClientChannel, Layout, Memory, ServerChannel, loopback_memory, loopback_wiring};
use echo::{EchoClient, EchoServer, Refusal, serve_echo};
use proptest::prelude::*;
use runtime::Peer;

const LAYOUT: Layout = Layout { ring_slots: 16, bulk_bytes: 4096 };

struct Polite;

impl EchoServer for Polite {
    async fn say(&self, _peer: &Peer, text: String) -> Result<String, Refusal> {
        Ok(text)
    }
    async fn wait(&self, _peer: &Peer, duration_ns: u64) -> Result<u64, Refusal> {
        runtime::sleep(duration_ns % 1000).await;
        Ok(duration_ns)
    }
    async fn look(&self, _peer: &Peer, text: String) -> Result<String, Refusal> {
        Ok(text)
    }
    async fn long(&self, _peer: &Peer, bytes: u32) -> Result<Vec<u8>, Refusal> {
        Ok(vec![1; bytes as usize % 2000])
    }
    async fn fill(&self, peer: &Peer, span: channel::BulkSpan, _value: u8) -> Result<(), Refusal> {
        peer.bulk().window(span).map(drop).map_err(|_| Refusal::OutOfBounds)
    }
    fn discard(&self, _peer: &Peer, _id: u64) {}
}

/// Writes a word into the region, as the peer's processor might.
fn scribble(memory: &Memory, word: usize, value: u64) {
    let words = memory.bytes() / 8;
    let at = memory.address() + (word as u64 % words) * 8;
    // SAFETY: inside the region, which is reached as shared memory only.
    unsafe { (at as *mut u64).write_volatile(value) };
}

/// Words worth writing: stamps and headers that look right, and anything else.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        (1..3u64, 0..40u64).prop_map(|(generation, position)| generation << 32 | position),
        (1..7u64, 0..100u64, 0..9u64, 0..4u64).prop_map(|(kind, length, operation, correlation)| kind
            | length << 4
            | operation << 16
            | correlation << 32),
        0..3u64,
    ]
}

/// Where: header words, the first words of slots, stamps, anywhere.
fn place() -> impl Strategy<Value = usize> {
    prop_oneof![
        (0..13usize).prop_map(|line| line * 8),
        (0..32usize).prop_map(|slot| 512 + slot * 8),
        (0..32usize).prop_map(|slot| 512 + slot * 8 + 7),
        0..2000usize,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn neither_side_panics_or_hangs(
        writes in prop::collection::vec((place(), word()), 1..200),
        contract in any::<bool>(),
    ) {
        runtime::testing::run(async move {
            let [one, two, evil] = loopback_memory(LAYOUT);
            let client = EchoClient::new(ClientChannel::new(loopback_wiring(one, true)));
            let server = runtime::spawn(serve_echo(Rc::new(Polite), ServerChannel::new(loopback_wiring(two, false))));
            let _ = client.say("first".into()).await;
            for (number, (place, value)) in writes.into_iter().enumerate() {
                // The contract hashes stay right in half of the cases, so that messages reach the
                // stubs.
                if contract || place / 8 < 11 || place >= 512 {
                    scribble(&evil, place, value);
                }
                if number % 4 == 0 {
                    let _ = runtime::timeout(10_000, client.say(number.to_string())).await;
                    let _ = runtime::timeout(10_000, client.look(number.to_string())).await;
                    let _ = client.discard(number as u64);
                    let _ = runtime::timeout(10, client.long(500)).await;
                    let _ = runtime::timeout(10, client.next_event()).await;
                }
            }
            runtime::abort(server);
        });
    }
}
