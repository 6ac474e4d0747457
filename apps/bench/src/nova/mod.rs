//! NOVA's study of servers (Steinberg and Kauer, sections 2 and 5) by our own mechanisms:
//! rendezvous portals, workers without time, user semaphores over cores.
//!
//! One dispatcher per core (`nova-0`, `nova-1`, ...). A word of the kernel's command line says what
//! they do: `servers` (figures 1 and 4, for the coherence model), `accounting` (figure 5, on one
//! core whose clock is instructions), `concurrency` (how many calls are inside a server at once).
//! Client and worker of a core are contexts of one domain, so a call between them changes no
//! address space. Deliberately unknown here: what the figures should be.

mod accounting;
mod concurrency;
mod room;
mod servers;

use room::Room;
use runtime::Start;

/// Name of the program, of its region, and start of its dispatchers' names.
pub const NAME: &str = "nova";
/// Words of the command line: what is measured, and with how much.
const STUDY: &str = "nova.study=";
/// Other components still start; their work would be measured too.
const SETTLE_NS: u64 = 300_000_000;
const AGAIN_NS: u64 = 1_000_000;

/// The text after a word of the command line.
fn word(start: &Start, word: &str) -> Option<&'static str> {
    start.command_line().split(' ').find_map(|text| text.strip_prefix(word))
}

/// The number after a word of the command line.
fn number(start: &Start, name: &str) -> Option<u64> {
    word(start, name)?.parse().ok()
}

/// The component.
pub async fn run(start: &Start) {
    let Some(room) = Room::of(start) else {
        return runtime::log!("failed: the region {NAME} is missing or too small, or there are too many cores");
    };
    // Until all are here the boot goes on, and nobody may spin in its way.
    room.arrive();
    while !room.is_complete() {
        runtime::sleep(AGAIN_NS).await;
    }
    if room.core == 0 {
        runtime::sleep(SETTLE_NS).await;
    }
    let outcome = match word(start, STUDY) {
        Some("servers") => servers::run(start, room).await,
        Some("accounting") => accounting::run(start).await,
        Some("concurrency") => concurrency::run(start, room).await,
        _ => return runtime::log!("failed: no study named by {STUDY}"),
    };
    match outcome {
        Err(error) => runtime::log!("failed: the kernel refuses with {}", error.name()),
        Ok(()) if room.core == 0 => runtime::log!("done"),
        Ok(()) => (),
    }
}
