//! Before the machine ends, what keeps data puts that away.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use channel::CallError;
use contracts::storage::{CLOSE_LIMIT_NS, StorageClient, StorageError};
use runtime::timeout;

/// Asks each component that keeps data, by name, to put it away. Returns what is to be told: of
/// whom not everything is known to be kept, and why. Limit: [`CLOSE_LIMIT_NS`] for all of them.
pub async fn put_away(storages: Vec<(String, StorageClient)>) -> Vec<String> {
    let limit_ns = runtime::now_ns().saturating_add(CLOSE_LIMIT_NS);
    let mut problems = Vec::new();
    for (name, storage) in storages {
        let left_ns = limit_ns.saturating_sub(runtime::now_ns());
        let why = match timeout(left_ns, close(&storage)).await {
            Ok(Ok(Lives::One)) => continue,
            Ok(Ok(Lives::Several)) => format!("{name} ended while it put that away, and was started again"),
            Ok(Err(error)) => format!("{name} says {error:?}"),
            Err(_) => format!("{name} did not put it away within {} s", CLOSE_LIMIT_NS / 1_000_000_000),
        };
        problems.push(format!("what was written last may not be kept: {why}"));
    }
    problems
}

/// How many lives of a component it took to put its data away.
enum Lives {
    One,
    Several,
}

/// Asks a component, and each successor of one that ends meanwhile: that has what was synced.
async fn close(storage: &StorageClient) -> Result<Lives, CallError<StorageError>> {
    let mut lives = Lives::One;
    loop {
        match storage.close().await {
            Ok(()) => return Ok(lives),
            Err(CallError::PeerRestarted) => lives = Lives::Several,
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::rc::Rc;
    use channel::{ClientChannel, Layout, Peer, ServerChannel, loopback_memory, loopback_wiring};
    use contracts::storage::{StorageServer, serve_storage};
    use core::cell::Cell;

    /// Answers so, or never.
    struct Store {
        answer: Option<Result<(), StorageError>>,
        is_asked: Rc<Cell<bool>>,
    }

    impl StorageServer for Store {
        async fn close(&self, _: &Peer) -> Result<(), StorageError> {
            self.is_asked.set(true);
            match self.answer {
                Some(answer) => answer,
                None => core::future::pending().await,
            }
        }
    }

    /// What is told of a component whose lives answer so, each of which ends when the next begins.
    fn told(lives: &'static [Option<Result<(), StorageError>>]) -> Vec<String> {
        runtime::testing::run_and_end(async {
            let [own, monitors, views @ ..] = loopback_memory::<4>(Layout::default());
            let storage = StorageClient::new(ClientChannel::new(loopback_wiring(own, true)));
            runtime::spawn(async move {
                for (view, answer) in views.into_iter().zip(lives) {
                    let is_asked = Rc::new(Cell::new(false));
                    let store = Rc::new(Store { answer: *answer, is_asked: is_asked.clone() });
                    let life = runtime::spawn(serve_storage(store, ServerChannel::new(loopback_wiring(view, false))));
                    for _ in 0..1000 {
                        runtime::yield_now().await;
                    }
                    assert!(is_asked.get(), "{answer:?}");
                    if answer.is_none() {
                        runtime::abort(life);
                        monitors.raise_generation();
                    }
                }
            });
            put_away([(String::from("volume"), storage)].into()).await
        })
    }

    #[test]
    fn who_ends_while_it_puts_data_away_is_told_of_though_its_successor_has_nothing_to_lose() {
        assert_eq!(told(&[Some(Ok(()))]), Vec::<String>::new());
        let failed = told(&[Some(Err(StorageError::Io))]);
        assert!(failed.len() == 1 && failed[0].ends_with("volume says Server(Io)"), "{failed:?}");
        let ended = told(&[None, Some(Ok(()))]);
        assert!(ended.len() == 1 && ended[0].contains("volume ended while"), "{ended:?}");
    }
}
