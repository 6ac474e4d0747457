//! Notifications, portals, semaphores.

use abi::{Call, Handle};

use crate::{Outcome, call};

/// `Notify`.
#[inline]
pub fn notify(notification: Handle) -> Outcome<()> {
    // SAFETY: no memory of ours.
    unsafe { call(Call::Notify, [notification.0, 0, 0, 0, 0, 0]) }.map(drop)
}

/// `Wait`: pending badge bits; 0 = the deadline passed.
#[inline]
pub fn wait(deadline_ns: u64) -> Outcome<u64> {
    // SAFETY: no memory of ours.
    let results = unsafe { call(Call::Wait, [deadline_ns, 0, 0, 0, 0, 0]) }?;
    Ok(results.words[0])
}

/// `WakeSlotAlloc`: the slot's number.
pub fn wake_slot_alloc(pcore: Handle, context: Handle, badge: u64) -> Outcome<u64> {
    // SAFETY: no memory of ours.
    let results = unsafe { call(Call::WakeSlotAlloc, [pcore.0, context.0, badge, 0, 0, 0]) }?;
    Ok(results.words[0])
}

/// `WakeSlotImport`: a RemoteContext.
pub fn wake_slot_import(pcore: Handle, ram: Handle, core: u64, slot: u64) -> Outcome<Handle> {
    // SAFETY: makes an object.
    let results = unsafe { call(Call::WakeSlotImport, [pcore.0, ram.0, core, slot, 0, 0]) }?;
    Ok(Handle(results.words[0]))
}

/// `WakeSlotFree`.
pub fn wake_slot_free(pcore: Handle, slot: u64) -> Outcome<()> {
    // SAFETY: no memory of ours.
    unsafe { call(Call::WakeSlotFree, [pcore.0, slot, 0, 0, 0, 0]) }.map(drop)
}

/// `PortalAlloc`: `kind` is one of `abi::layout::portal`.
pub fn portal_alloc(ram: Handle, context: Handle, badge: u64, kind: u64) -> Outcome<Handle> {
    // SAFETY: makes an object.
    let results = unsafe { call(Call::PortalAlloc, [ram.0, context.0, badge, kind, 0, 0]) }?;
    Ok(Handle(results.words[0]))
}

/// `PortalSet`: the portal leads to `context` from now on; `Handle::NONE`: nowhere.
pub fn portal_set(portal: Handle, context: Handle) -> Outcome<()> {
    // SAFETY: no memory of ours.
    unsafe { call(Call::PortalSet, [portal.0, context.0, 0, 0, 0, 0]) }.map(drop)
}

/// `PortalCall` of a RENDEZVOUS portal.
#[inline]
pub fn portal_call(portal: Handle, words: [u64; 4], deadline_ns: u64) -> Outcome<[u64; 3]> {
    let [a, b, c, d] = words;
    // SAFETY: words only.
    let results = unsafe { call(Call::PortalCall, [portal.0, a, b, c, d, deadline_ns]) }?;
    Ok([results.words[0], results.words[1], results.words[2]])
}

/// `PortalCall` of a MAILBOX portal: rings and lends our time until the callee idles.
#[inline]
pub fn portal_ring(portal: Handle) -> Outcome<()> {
    // SAFETY: no memory of ours.
    unsafe { call(Call::PortalCall, [portal.0, 0, 0, 0, 0, 0]) }.map(drop)
}

/// A rendezvous request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rendezvous {
    /// Badge of the portal it came through.
    pub badge: u64,
    /// The caller's words.
    pub words: [u64; 4],
}

/// `PortalReplyWait`: answers the current caller, if any, and waits for the next.
#[inline]
pub fn portal_reply_wait(reply: [u64; 3], deadline_ns: u64) -> Outcome<Rendezvous> {
    let [a, b, c] = reply;
    // SAFETY: words only.
    let results = unsafe { call(Call::PortalReplyWait, [a, b, c, deadline_ns, 0, 0]) }?;
    let [badge, first, second, _, third, fourth] = results.words;
    Ok(Rendezvous { badge, words: [first, second, third, fourth] })
}

/// `SemaphoreAlloc`.
pub fn semaphore_alloc(ram: Handle, count: u64) -> Outcome<Handle> {
    // SAFETY: makes an object.
    let results = unsafe { call(Call::SemaphoreAlloc, [ram.0, count, 0, 0, 0, 0]) }?;
    Ok(Handle(results.words[0]))
}

/// `SemaphoreUp`.
#[inline]
pub fn semaphore_up(semaphore: Handle, count: u64) -> Outcome<()> {
    // SAFETY: no memory of ours.
    unsafe { call(Call::SemaphoreUp, [semaphore.0, count, 0, 0, 0, 0]) }.map(drop)
}

/// `SemaphoreDown`.
#[inline]
pub fn semaphore_down(semaphore: Handle, deadline_ns: u64) -> Outcome<()> {
    // SAFETY: no memory of ours.
    unsafe { call(Call::SemaphoreDown, [semaphore.0, deadline_ns, 0, 0, 0, 0]) }.map(drop)
}
