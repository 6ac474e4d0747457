//! Semaphores.

use super::{Answer, NOTHING, Outcome, Request, one};
use crate::hardware;
use crate::objects::semaphore::COUNT_MAX;
use crate::objects::{Remote, Semaphore};
use crate::state::Kernel;
use abi::{Error, Rights};

pub(super) fn alloc(kernel: &mut Kernel, request: &Request) -> Answer {
    let ram = request.ram(0)?;
    let count = request.words()[1];
    if count > COUNT_MAX {
        return Err(Error::BadArgument);
    }
    let slot = request.slot(kernel)?;
    let semaphore = kernel.create(ram, |header| Semaphore::new(header, count))?;
    one(request.place(slot, semaphore.any(), Rights::ALL))
}

pub(super) fn up(kernel: &mut Kernel, request: &Request) -> Answer {
    let count = request.words()[1];
    if count == 0 {
        return Err(Error::BadArgument);
    }
    match request.object::<Semaphore>(0, Rights::WRITE) {
        Ok(semaphore) => semaphore.up(kernel, count)?,
        Err(Error::WrongType) => {
            let remote = request.object::<Remote>(0, Rights::NOTIFY)?;
            let count =
                u32::try_from(count).ok().filter(|count| u64::from(*count) <= COUNT_MAX).ok_or(Error::BadArgument)?;
            kernel.counters.wakes_sent += 1;
            hardware::post_count(remote.core, remote.slot, count);
        }
        Err(error) => return Err(error),
    }
    NOTHING
}

pub(super) fn down(kernel: &mut Kernel, request: &Request) -> Answer {
    let semaphore = request.object::<Semaphore>(0, Rights::READ)?;
    let deadline_ns = request.words()[1];
    if semaphore.try_down() {
        return NOTHING;
    }
    if deadline_ns == 0 {
        return Err(Error::Timeout);
    }
    semaphore.wait(kernel, request.caller);
    kernel.scheduler.set_timeout(request.caller, deadline_ns);
    Ok(Outcome::Left)
}
