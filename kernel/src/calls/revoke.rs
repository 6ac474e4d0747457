//! Revocation: of what was derived from a capability, and of all memory of an account.

use super::records::*;
use super::{Answer, Outcome, Request, one};
use crate::objects::context::State;
use crate::objects::revoke::stands_on;
use crate::state::Kernel;
use crate::steps::Budget;
use abi::Error;

/// What a call gives that did a part: whether there is more.
fn part(is_done: bool) -> Answer {
    one(u64::from(!is_done))
}

pub(super) fn cap_revoke(kernel: &mut Kernel, request: Request, call: CapRevoke) -> Answer {
    let (slot, _) = request.slot_of(call.capability)?;
    part(kernel.revoke_derived(slot, &mut Budget::step()))
}

pub(super) fn ram_revoke(kernel: &mut Kernel, request: Request, call: RamRevoke) -> Answer {
    let (caller, (ram, (slot, _))) = (request.caller, call.ram);
    if stands_on(caller, ram) {
        return Err(Error::BadArgument);
    }
    let is_done = kernel.revoke_ram(caller, slot, ram, &mut Budget::step());
    // Its end may take more steps.
    let has_died = caller.state() == State::Dead || !caller.domain().is_alive();
    if has_died { Ok(Outcome::Blocked) } else { part(is_done) }
}
