//! What connects programs of this machine: event counters, at the process server.

use personality::Errno;
use personality::descriptors::{Description, server};
use personality::flags::*;

use super::errors::Outcome;
use super::proxy::proxy;
use super::user::with_state;

/// eventfd and eventfd2.
pub async fn event(count: u64, flags: u64) -> Outcome {
    if flags & !(EFD_SEMAPHORE | u64::from(O_CLOEXEC | O_NONBLOCK)) != 0 {
        return Err(Errno::EINVAL.into());
    }
    with_state(|state| state.descriptors.room(1))?;
    let made = proxy().process.event(u64::from(count as u32), flags & EFD_SEMAPHORE != 0).await;
    let id = made.map_err(|_| Errno::ENFILE)?;
    let flags = flags as u32;
    let made =
        Description { id, server: server::PROCESS, flags: O_RDWR | flags & O_NONBLOCK, ..Description::default() };
    Ok(with_state(|state| state.descriptors.add(made, flags & O_CLOEXEC != 0))?)
}
