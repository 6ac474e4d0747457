//! Before the machine ends, what keeps data puts that away.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use contracts::storage::{CLOSE_LIMIT_NS, StorageClient};
use runtime::timeout;

/// Asks each component that keeps data, by name, to put it away. Returns what is to be told: of
/// whom not everything is known to be kept, and why. Limit: [`CLOSE_LIMIT_NS`] for all of them.
pub async fn put_away(storages: Vec<(String, StorageClient)>) -> Vec<String> {
    let limit_ns = runtime::now_ns().saturating_add(CLOSE_LIMIT_NS);
    let mut problems = Vec::new();
    for (name, storage) in storages {
        let left_ns = limit_ns.saturating_sub(runtime::now_ns());
        match timeout(left_ns, storage.close()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => problems.push(format!("what was written last may not be kept: {name} says {error:?}")),
            Err(_) => problems.push(format!(
                "what was written last may not be kept: {name} did not put it away within {} s",
                CLOSE_LIMIT_NS / 1_000_000_000
            )),
        }
    }
    problems
}
