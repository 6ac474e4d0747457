//! Looks for a way to the disk's server that nobody gave it: asks to be connected, and calls
//! through every slot of its share. Run with the disk among its `uses` it finds what leads there.

#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use abi::layout::SHARE_SLOTS_MAX;
use abi::{Error, Handle};
use contracts::blocks::BlocksClient;
use runtime::Start;

/// Words that ask a worker for nothing.
const NOTHING: [u64; 4] = [0; 4];
/// A worker replies in microseconds; a busy host is waited for.
const CALL_NS: u64 = 100_000_000;

/// How many capabilities it has, and through how many it can call.
#[derive(Default)]
struct Found {
    held: u64,
    called: u64,
}

impl Found {
    /// Calls through every slot.
    fn of_all_slots() -> Found {
        let mut found = Found::default();
        for slot in Handle::SELF_DOMAIN.0..SHARE_SLOTS_MAX {
            let answer = sys::portal_call(Handle(slot), NOTHING, runtime::now_ns() + CALL_NS);
            found.held += u64::from(answer != Err(Error::BadHandle));
            let is_none = matches!(answer, Err(Error::BadHandle | Error::WrongType | Error::NoRights));
            found.called += u64::from(!is_none);
        }
        found
    }
}

async fn component(start: Start) {
    start.serving();
    let connected = start.bind::<BlocksClient>(0).await.map(|_| "a channel");
    let Found { held, called } = Found::of_all_slots();
    runtime::log!("asked for blocks: {connected:?}; {called} of {held} capabilities can be called through;");
}

runtime::main!(component);
