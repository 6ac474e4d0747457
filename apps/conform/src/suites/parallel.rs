//! Calls about objects of one's own core need nobody else: thousands of each kind on all cores at once, and not one interrupt to another core.

use abi::layout::{copy, counter, portal, protection};
use abi::{Error, Handle, Rights};
use worker::Job;

use crate::{Outcome, Scene, require, suite};

suite!("parallel"; alone: calls_disturb_nobody);

const ROUNDS: u64 = 200;
/// Another component of this core may have had something to say meanwhile; calls that disturb others would each time.
const ATTEMPTS: u64 = 5;

fn calls_disturb_nobody(scene: &Scene) -> Outcome {
    let worker = scene.worker(0, Job::Answer)?;
    worker.start([0, 0])?;
    let entrance = worker.portal(1)?;
    let mut fewest = u64::MAX;
    for _ in 0..ATTEMPTS {
        let before = sys::counter_read(counter::WAKES_SENT)?;
        (0..ROUNDS).try_for_each(|_| round(scene, entrance))?;
        fewest = fewest.min(sys::counter_read(counter::WAKES_SENT)? - before);
        if fewest == 0 {
            break;
        }
    }
    sys::cap_drop(entrance)?;
    require!(fewest == 0, "{ROUNDS} rounds of calls sent {fewest} interrupts to other cores");
    Ok(())
}

/// A call of each kind that names only what is this core's.
fn round(scene: &Scene, entrance: Handle) -> Result<(), Error> {
    sys::null()?;
    let ram = sys::ram_split(scene.ram(), 100)?;
    let (memory, _) = sys::segment_alloc(ram, 2, 0)?;
    let address = scene.map(0, memory, 2)?;
    scene.store(address, 1);
    // SAFETY: the memory is reached through `scene` only.
    unsafe { sys::range_protect(Handle::SELF_RANGE, address, 2, protection::READ) }?;
    let copy = sys::segment_copy(ram, memory, copy::ON_WRITE)?;
    scene.unmap(0, 2)?;
    let semaphore = sys::semaphore_alloc(ram, 1)?;
    sys::semaphore_down(semaphore, scene.deadline_ns())?;
    sys::semaphore_up(semaphore, 1)?;
    let again = sys::cap_copy(semaphore, Rights::READ)?;
    let mailbox = sys::portal_alloc(ram, Handle::NONE, 1, portal::MAILBOX)?;
    sys::notify(mailbox)?;
    sys::portal_call(entrance, [0; 4], scene.deadline_ns())?;
    let (domain, _) = sys::domain_alloc(ram, 0)?;
    sys::domain_kill(domain, 0)?;
    [domain, mailbox, again, semaphore, copy, memory, ram].into_iter().try_for_each(sys::cap_drop)
}
