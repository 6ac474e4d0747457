//! The fuzzer in user mode: a scripted domain per core makes random and near-valid kernel calls,
//! all cores at once, and nobody else may notice.
//!
//! One program, two roles, told apart by the component's name. `fuzz-N` has a scripted domain on
//! core N make calls ([`target`]), round after round ([`round`]): each has accounts of its own, a
//! pool that all cores share, and ends with all of it revoked and counted. `neighbour-N` keeps a
//! secret in its memory and answers whether it is unchanged ([`neighbour`]). The seed is the word
//! `fuzz.seed=N` of the command line, the number of calls per core `fuzz.calls=N`; the host's
//! scenarios `fuzz/*` read what is said. Deliberately unknown here: the kernel's inside, and what a
//! call should give; that is `conform`'s.
#![no_std]

extern crate alloc;

pub mod barrier;
pub mod neighbour;
pub mod round;
pub mod secret;
pub mod target;
pub mod test_objects;

use runtime::Start;

/// Why the fuzzer stopped: what a program did that it must not be able to do, or what is missing
/// afterwards.
#[derive(Debug)]
pub struct Failure(pub alloc::string::String);

impl From<abi::Error> for Failure {
    #[track_caller]
    fn from(error: abi::Error) -> Failure {
        let place = core::panic::Location::caller();
        Failure(alloc::format!(
            "a call of the fuzzer's own is refused with {} ({}:{})",
            error.name(),
            place.file(),
            place.line()
        ))
    }
}

/// Fails with words unless the condition holds.
#[macro_export]
macro_rules! require {
    ($condition:expr, $($words:tt)*) => {
        if !$condition {
            return Err($crate::Failure(alloc::format!($($words)*)));
        }
    };
}

/// The number that a word `NAME=N` of the command line gives.
pub fn word(start: &Start, name: &str) -> Option<u64> {
    start.command_line().split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

/// The component.
pub async fn run(start: Start) {
    if start.name().starts_with(neighbour::COMPONENT) {
        neighbour::serve(start).await;
        return;
    }
    start.serving();
    let core = start.core();
    if let Err(Failure(why)) = round::all(&start).await {
        runtime::log!("core {core} FAILED: {why}");
    }
    core::future::pending().await
}
