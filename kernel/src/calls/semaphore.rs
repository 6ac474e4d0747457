//! Semaphores.

use super::records::*;
use super::{Answer, NOTHING, Outcome, Request};
use crate::hardware;
use crate::objects::semaphore::COUNT_MAX;
use crate::objects::{Remote, Semaphore};
use crate::state::Kernel;
use abi::{Error, Rights};

pub(super) fn semaphore_alloc(kernel: &mut Kernel, request: Request, call: SemaphoreAlloc) -> Answer {
    let SemaphoreAlloc { ram, count } = call;
    request.place_new(kernel, |kernel| kernel.create(ram, |header| Semaphore::new(header, count)))
}

pub(super) fn semaphore_up(kernel: &mut Kernel, request: Request, call: SemaphoreUp) -> Answer {
    let SemaphoreUp { semaphore, count } = call;
    if count == 0 {
        return Err(Error::BadArgument);
    }
    match request.object::<Semaphore>(semaphore, Rights::WRITE) {
        Ok(semaphore) => semaphore.up(kernel, count)?,
        Err(Error::WrongType) => {
            let remote = request.object::<Remote>(semaphore, Rights::NOTIFY)?;
            let count =
                u32::try_from(count).ok().filter(|count| u64::from(*count) <= COUNT_MAX).ok_or(Error::BadArgument)?;
            kernel.counters.wakes_sent += 1;
            hardware::post_count(remote.core, remote.slot, count);
        }
        Err(error) => return Err(error),
    }
    NOTHING
}

pub(super) fn semaphore_down(kernel: &mut Kernel, request: Request, call: SemaphoreDown) -> Answer {
    let SemaphoreDown { semaphore, deadline_ns } = call;
    if semaphore.try_down() {
        return NOTHING;
    }
    if deadline_ns == 0 {
        return Err(Error::Timeout);
    }
    semaphore.wait(kernel, request.caller);
    kernel.scheduler.set_timeout(request.caller, deadline_ns);
    Ok(Outcome::Blocked)
}
