//! Signals find their threads.

use personality::descriptors::server;
use personality::signals::{Cause, Posted};

use super::super::errors::Failure;
use super::super::poll;
use super::super::proxy::proxy;
use super::super::user::{with_signals, with_state};
use super::super::wait::signalled;
use super::{wake_with, with, work_for};

/// Lets the call of a thread that waits look for signals.
fn interrupt(place: usize) {
    let (asleep, waker) = with(|threads| {
        let thread = threads.thread(place);
        (thread.asleep, thread.waker.clone())
    });
    if let Some(waker) = waker {
        waker.wake();
    }
    let Some((call, line)) = asleep else { return };
    let before = work_for(place);
    let is_signalled = signalled();
    work_for(before);
    if is_signalled {
        line.leave();
        with(|threads| threads.thread(place).outcome = Some((call, Err(Failure::Interrupted))));
        wake_with(place, |_| ());
    }
}

/// A signal to the process came: a thread that wants it is told.
pub fn post(signal: u8, cause: Cause) -> Posted {
    if !(1..=64).contains(&signal) {
        return Posted::Ignored;
    }
    let chosen = with(|threads| threads.find(|thread| thread.signals.wants(signal)));
    let posted = with_state(|state| state.signals.post(signal, cause, chosen.is_none()));
    if let Some(place) = chosen {
        interrupt(place);
    }
    tell_readers();
    posted
}

/// Those who read signals as records look again.
pub fn tell_readers() {
    poll::all_changed(server::SIGNALS);
    proxy().wait_queue.signalled();
}

/// Can a signal be queued with its data, for the process or for a thread of it (RLIMIT_SIGPENDING)?
/// `None` if there is no such thread.
pub fn has_room(thread: Option<u64>) -> Option<bool> {
    let Some(id) = thread else { return Some(with_state(|state| state.signals.has_room(None))) };
    let place = with(|threads| threads.find(|thread| thread.id == id))?;
    let before = work_for(place);
    let has_room = with_signals(|signals, thread| signals.has_room(Some(thread)));
    work_for(before);
    Some(has_room)
}

/// A signal to one thread. `None` if there is none of that id.
pub fn post_to(id: u64, signal: u8, cause: Cause) -> Option<Posted> {
    let place = with(|threads| threads.find(|thread| thread.id == id))?;
    if signal == 0 {
        return Some(Posted::Ignored);
    }
    let before = work_for(place);
    let posted = with_signals(|signals, thread| signals.post_to(thread, signal, cause));
    work_for(before);
    interrupt(place);
    tell_readers();
    Some(posted)
}
