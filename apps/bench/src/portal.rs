//! A portal call to a protection domain that does nothing but answer: the domain is made here, of a dozen instructions.
//!
//! The caller's time goes with the call, so this is two address-space switches and no scheduling.

use abi::layout::{portal, protection};
use abi::{Call, Error, Handle};

use crate::sample::repeat;

const CODE: u64 = 0x1000_0000;
const STACK: u64 = 0x2000_0000;
const CONTROL: u64 = 0x3000_0000;
const CALL_LIMIT_NS: u64 = 1_000_000_000;
/// The lowest: the callee is meant to run on its callers' time.
const PRIORITY: u64 = 0;
const SLICE_US: u64 = 1000;
const LIMIT_PAGES: u64 = 256;
/// Where code is written before it is mapped executable elsewhere.
const WORKSHOP: u64 = abi::layout::REGIONS + (1 << 39);

/// `again: mov rax, PORTAL_REPLY_WAIT; mov r10, -1; syscall; jmp again`.
fn code() -> [u8; 21] {
    let mut code = [0; 21];
    code[..2].copy_from_slice(&[0x48, 0xb8]);
    code[2..10].copy_from_slice(&Call::PortalReplyWait.number().to_le_bytes());
    code[10..].copy_from_slice(&[0x49, 0xc7, 0xc2, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x05, 0xeb, 0xeb]);
    code
}

/// Measures the call and its reply.
pub fn rendezvous() -> Result<(), Error> {
    let ram = sys::ram_split(Handle::SELF_RAM, LIMIT_PAGES)?;
    let (domain, _) = sys::domain_alloc(ram, 0)?;
    let measured = measure(ram, domain);
    sys::domain_kill(domain, 0)?;
    measured
}

fn measure(ram: Handle, domain: Handle) -> Result<(), Error> {
    let range = sys::domain_range(domain)?;
    let (text, _) = sys::segment_alloc(Handle::SELF_RAM, 1, 0)?;
    sys::range_map(Handle::SELF_RANGE, WORKSHOP, text, 0, 1, protection::READ | protection::WRITE)?;
    // SAFETY: the page was just mapped there, read-write, for this alone.
    unsafe { (WORKSHOP as *mut [u8; 21]).write_volatile(code()) };
    sys::range_map(range, CODE, text, 0, 1, protection::READ | protection::EXECUTE)?;
    let (stack, _) = sys::segment_alloc(ram, 1, 0)?;
    sys::range_map(range, STACK, stack, 0, 1, protection::READ | protection::WRITE)?;
    let context = sys::context_alloc(ram, domain, CONTROL, 0)?;
    sys::context_schedule(ram, context, PRIORITY, SLICE_US)?;
    let portal = sys::portal_alloc(ram, context, 1, portal::RENDEZVOUS)?;
    // SAFETY: another domain's context; it cannot reach our memory.
    unsafe { sys::context_start(context, CODE, STACK + abi::PAGE_BYTES, [0; 2]) }?;
    sys::portal_call(portal, [0; 4], CALL_LIMIT_NS)?;
    repeat("portal-call-and-reply", || {
        let _ = sys::portal_call(portal, [1, 2, 3, 4], CALL_LIMIT_NS);
    });
    Ok(())
}
