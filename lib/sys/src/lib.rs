//! The kernel's calls as typed functions, one per [`abi::Call`]; what each takes, gives and refuses
//! stands there.
//!
//! Invariants: a function here is one `syscall` and keeps no state. It is `unsafe` exactly when it
//! could pull memory or registers from under the caller's own code; whatever else goes wrong is an
//! [`Error`]. On a host every call is refused with `BadCall`, so that programs above can be tested
//! where there is no Pelago kernel. Deliberately unknown here: contracts, channels, policy.
#![no_std]

#[cfg(not(target_os = "none"))]
#[path = "enter_host.rs"]
mod enter;
#[cfg(all(target_os = "none", target_arch = "x86_64"))]
#[path = "enter_x86_64.rs"]
mod enter;

mod devices;
mod domains;
mod events;
mod memory;
mod pcores;
mod shares;

pub use devices::*;
pub use domains::*;
pub use events::*;
pub use memory::*;
pub use pcores::*;
pub use shares::*;

use abi::{Call, Error, Handle, Rights};

/// What a call gives back.
type Outcome<T> = Result<T, Error>;

/// Result registers of a call: RDI, RSI, RDX, R10, R8, R9.
pub(crate) struct Results {
    pub words: [u64; 6],
}

/// Makes a call and decodes RAX. Arguments that the call lacks are zero.
///
/// # Safety
/// The call must not take away or overwrite memory or registers that the caller's code relies on.
#[inline(always)]
pub(crate) unsafe fn call(call: Call, arguments: [u64; 6]) -> Outcome<Results> {
    // SAFETY: passed on to the caller.
    let (status, words) = unsafe { enter::enter(call.number(), arguments) };
    match status {
        0 => Ok(Results { words }),
        code => Err(Error::from_code(code.wrapping_neg()).unwrap_or(Error::BadCall)),
    }
}

/// `CapCopy`: the capability again, with `rights` at most its own.
pub fn cap_copy(handle: Handle, rights: Rights) -> Outcome<Handle> {
    // SAFETY: only adds a slot.
    let results = unsafe { call(Call::CapCopy, [handle.0, rights.0.into(), 0, 0, 0, 0]) }?;
    Ok(Handle(results.words[0]))
}

/// `CapMint`: a notification capability for a context or portal with these badge bits.
pub fn cap_mint(handle: Handle, rights: Rights, badge: u64) -> Outcome<Handle> {
    // SAFETY: only adds a slot.
    let results = unsafe { call(Call::CapMint, [handle.0, rights.0.into(), badge, 0, 0, 0]) }?;
    Ok(Handle(results.words[0]))
}

/// `CapDrop`: empties the slot; the object goes when its last capability does.
pub fn cap_drop(handle: Handle) -> Outcome<()> {
    // SAFETY: a slot is no memory of ours.
    unsafe { call(Call::CapDrop, [handle.0, 0, 0, 0, 0, 0]) }.map(drop)
}

/// `CapRevoke`: takes back what was derived from the capability; tells whether that was all. If
/// not, call again.
pub fn cap_revoke(handle: Handle) -> Outcome<bool> {
    // SAFETY: slots are no memory of ours.
    let results = unsafe { call(Call::CapRevoke, [handle.0, 0, 0, 0, 0, 0]) }?;
    Ok(results.words[0] == 0)
}

/// `CapStat`: object type (an `abi::ObjectType` as a number), object id, rights.
pub fn cap_stat(handle: Handle) -> Outcome<(u64, u64, Rights)> {
    // SAFETY: reads only.
    let results = unsafe { call(Call::CapStat, [handle.0, 0, 0, 0, 0, 0]) }?;
    Ok((results.words[0], results.words[1], Rights(results.words[2] as u32)))
}

/// `Null`: in and out again.
#[inline]
pub fn null() -> Outcome<()> {
    // SAFETY: does nothing.
    unsafe { call(Call::Null, [0; 6]) }.map(drop)
}

/// `Log`: writes a line to the kernel's log, which puts the caller's name in front; text past 512
/// bytes is cut.
pub fn log(text: &str) -> Outcome<()> {
    log_as(text, Handle::NONE)
}

/// `Log` in the name of the machine, for who may end it: `power` is a pcore with POWER.
pub fn log_of_machine(text: &str, power: Handle) -> Outcome<()> {
    log_as(text, power)
}

fn log_as(text: &str, machine: Handle) -> Outcome<()> {
    let length = text.len().min(512) as u64;
    // SAFETY: the kernel reads `length` bytes of `text`.
    unsafe { call(Call::Log, [text.as_ptr() as u64, length, machine.0, 0, 0, 0]) }.map(drop)
}

/// `CounterRead`: one of `abi::layout::counter`.
pub fn counter_read(index: u64) -> Outcome<u64> {
    // SAFETY: reads only.
    let results = unsafe { call(Call::CounterRead, [index, 0, 0, 0, 0, 0]) }?;
    Ok(results.words[0])
}
