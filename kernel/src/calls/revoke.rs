//! Revocation: of what was derived from a capability, and of all memory of an account.

use super::{Answer, Outcome, Request, one};
use crate::objects::Ram;
use crate::objects::context::State;
use crate::objects::revoke::stands_on;
use crate::state::Kernel;
use crate::steps::Budget;
use abi::{Error, Handle, Rights};

/// What a call gives that did a part: whether there is more.
fn part(is_done: bool) -> Answer {
    one(u64::from(!is_done))
}

pub(super) fn derived(kernel: &mut Kernel, request: &Request) -> Answer {
    let (slot, _) = request.caller.domain().share().find_slot(Handle(request.words()[0]))?;
    part(kernel.revoke_derived(slot, &mut Budget::step()))
}

pub(super) fn ram(kernel: &mut Kernel, request: &Request) -> Answer {
    let caller = request.caller;
    let ram = request.object::<Ram>(0, Rights::CONTROL)?;
    let (slot, _) = caller.domain().share().find_slot(Handle(request.words()[0]))?;
    if stands_on(caller, ram) {
        return Err(Error::BadArgument);
    }
    let is_done = kernel.revoke_ram(caller, slot, ram, &mut Budget::step());
    // Its end may take more steps.
    let has_died = caller.state() == State::Dead || !caller.domain().is_alive();
    if has_died { Ok(Outcome::Left) } else { part(is_done) }
}
