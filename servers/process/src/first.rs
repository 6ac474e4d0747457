//! The first program's domain.

use channel::CallError;
use contracts::spawn::{LinuxDomain, SpawnClient, SpawnError};

/// The first program's domain. Its servers may still be starting: `NotFound` and `Failed` are tried
/// again for a while.
pub async fn first_domain(spawn: &SpawnClient) -> Result<LinuxDomain, CallError<SpawnError>> {
    const LIMIT_NS: u64 = 10_000_000_000;
    const PAUSE_NS: u64 = 2_000_000;
    let give_up_ns = runtime::now_ns() + LIMIT_NS;
    loop {
        match spawn.linux(None, None, 0).await {
            Err(CallError::Server(SpawnError::NotFound | SpawnError::Failed)) if runtime::now_ns() < give_up_ns => {
                runtime::sleep_until(runtime::now_ns() + PAUSE_NS).await;
            }
            other => return other,
        }
    }
}
