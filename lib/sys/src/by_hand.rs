//! What is handier than a row's function of the same name, or one call by several names.

use super::{Outcome, rows};
use abi::pcore::polled;
use abi::start::DeviceRecord;
use abi::{DomainState, Error, Handle};

/// Why a call returned that does not if it is not refused.
fn refused(outcome: Outcome<()>) -> Error {
    outcome.err().unwrap_or(Error::BadCall)
}

/// `Log`: writes a line to the kernel's log, which puts the caller's name in front; text past 512
/// bytes is cut.
pub fn log(text: &str) -> Outcome<()> {
    log_of_machine(text, Handle::NONE)
}

/// `Log` in the name of the machine, for who may end it: `power` is a pcore with POWER.
pub fn log_of_machine(text: &str, power: Handle) -> Outcome<()> {
    rows::log(&text[..text.floor_char_boundary(512)], power)
}

/// `PowerOff`: returns only if refused.
pub fn power_off(pcore: Handle, status: u64) -> Error {
    refused(rows::power_off(pcore, status))
}

/// `RamTurns` with this core's pcore.
pub fn ram_turns(ram: Handle) -> Outcome<()> {
    rows::ram_turns(ram, Handle::PCORE)
}

/// `SegmentSetPages` to a length.
///
/// # Safety
/// Nothing in this program may use pages that go away.
pub unsafe fn segment_set_pages(segment: Handle, pages: u64) -> Outcome<()> {
    // SAFETY: passed on.
    unsafe { rows::segment_set_pages(segment, pages, 0, 0) }
}

/// `SegmentSetPages` of no length: frees pages inside, which stay mapped and are zeroes when they
/// are touched next.
///
/// # Safety
/// Nothing in this program may rely on what these pages hold.
pub unsafe fn segment_discard(segment: Handle, first_page: u64, pages: u64) -> Outcome<()> {
    // SAFETY: passed on.
    unsafe { rows::segment_set_pages(segment, 0, first_page, pages) }
}

/// `DomainAlloc`: the domain and its object id. It has the caller's name in the log.
pub fn domain_alloc(ram: Handle, flags: u64) -> Outcome<(Handle, u64)> {
    rows::domain_alloc(ram, flags, Handle::NONE, "", Handle::NONE)
}

/// `DomainAlloc` by one who holds the core and says what the domain is called. `log_of`: whose part
/// of the log it shares, or none.
pub fn domain_alloc_named(
    ram: Handle,
    flags: u64,
    pcore: Handle,
    name: &str,
    log_of: Handle,
) -> Outcome<(Handle, u64)> {
    rows::domain_alloc(ram, flags, pcore, name, log_of)
}

/// `DomainExit`.
pub fn domain_exit(status: u64) -> ! {
    loop {
        // It cannot be refused; the loop is for the type.
        let _ = rows::domain_exit(status);
    }
}

/// `DomainState`.
pub fn domain_state(domain: Handle) -> Outcome<DomainState> {
    let mut state = DomainState::default();
    rows::domain_state(domain, &mut state)?;
    Ok(state)
}

/// `ContextResume`: goes on with the control page's program registers; returns only if refused.
///
/// # Safety
/// Nothing returns to what the abandoned stack held.
pub unsafe fn context_resume() -> Error {
    // SAFETY: passed on.
    refused(unsafe { rows::context_resume() })
}

/// `PortalCall` of a MAILBOX portal: notifies and donates our time until the callee idles.
#[inline]
pub fn portal_ring(portal: Handle) -> Outcome<()> {
    rows::portal_call(portal, [0; 4], 0).map(drop)
}

/// `PcoreAddDevice` with a ring of calls: its index.
pub fn pcore_add_ring(pcore: Handle, segment: Handle) -> Outcome<u64> {
    rows::pcore_add_device(pcore, polled::RING, segment, 0, 0, 0)
}

/// `PcoreAddDevice` with a word of a device, and the wake slot that its changes wake: its index.
pub fn pcore_add_word(pcore: Handle, segment: Handle, offset: u64, core: u64, slot: u64) -> Outcome<u64> {
    rows::pcore_add_device(pcore, polled::WORD, segment, offset, core, slot)
}

/// `DeviceList`: the device with that index; `NotFound` past the last.
pub fn device_list(index: u64) -> Outcome<DeviceRecord> {
    let mut record = DeviceRecord::default();
    rows::device_list(index, &mut record)?;
    Ok(record)
}

/// `ShareAlloc` with no parent: a pool of so many pages of `ram`, and its first share with its id.
/// `lock` is one of `abi::layout::lock`.
pub fn share_pool_alloc(ram: Handle, pages: u64, lock: u64, name: [u64; 2]) -> Outcome<(Handle, u64)> {
    rows::share_alloc(Handle::NONE, ram, pages, lock, name)
}

/// `ShareAlloc` in a share: the new share's handle there, and its id.
pub fn share_alloc(parent: Handle, lock: u64, name: [u64; 2]) -> Outcome<(Handle, u64)> {
    if parent == Handle::NONE {
        return Err(Error::BadHandle);
    }
    rows::share_alloc(parent, Handle::NONE, 0, lock, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_in_no_share_is_refused_before_the_kernel_takes_it_for_a_pool() {
        assert_eq!(share_alloc(Handle::NONE, 0, [0; 2]), Err(Error::BadHandle));
        // So far it comes on a host.
        assert_eq!(share_alloc(Handle::SELF_CONTEXT, 0, [0; 2]), Err(Error::BadCall));
    }
}
