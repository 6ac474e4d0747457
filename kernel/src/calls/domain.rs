//! Domains: making, filling, ending, forking.

use super::capability::derive;
use super::records::*;
use super::{Answer, NOTHING, Outcome, Request, one};
use crate::objects::domain::Death;
use crate::objects::writer::Name;
use crate::objects::{Domain, Ptr, user_memory};
use crate::state::Kernel;
use crate::steps::{Budget, END_UNITS};
use abi::layout::domain as flags;
use abi::{DeathCause, Error, Handle, Rights};
use zerocopy::IntoBytes;

fn check_alive(domain: Ptr<Domain>) -> Result<(), Error> {
    if domain.is_alive() { Ok(()) } else { Err(Error::PeerDead) }
}

/// The name of a new domain: its maker's, or what one who holds the core says.
fn name(kernel: &mut Kernel, maker: Ptr<Domain>, call: &DomainAlloc) -> Result<Name, Error> {
    if !call.pcore {
        return Ok(maker.writer.name());
    }
    let (address, bytes) = call.name;
    let mut text = [0; Name::BYTES_MAX];
    user_memory::read(kernel, maker.range(), address, &mut text[..bytes])?;
    Name::new(&text[..bytes]).ok_or(Error::BadArgument)
}

pub(super) fn domain_alloc(kernel: &mut Kernel, request: Request, call: DomainAlloc) -> Answer {
    let (parent, ram) = (call.ram.0, call.ram.1.object.cast()?);
    if call.flags & !flags::WRITE_EXECUTE != 0 {
        return Err(Error::BadArgument);
    }
    let maker = request.caller.domain();
    let name = name(kernel, maker, &call)?;
    // Whose part of the log it shares: its maker's, or whose one who holds the core says.
    let log_of = if call.pcore { call.log_of } else { Some(maker) };
    log_of.map_or(Ok(()), check_alive)?;
    let slot = request.slot(kernel)?;
    let domain = Ptr::<Domain>::create(kernel, ram, call.flags, name)?;
    if let Some(other) = log_of {
        domain.writer.share(&other.writer, &mut kernel.log);
    }
    domain.share().find_slot(Handle::SELF_RAM)?.0.derive_from(parent);
    let id = domain.header().id();
    Ok(Outcome::Done([request.place(slot, domain.any(), Rights::ALL), id, 0]))
}

pub(super) fn domain_grant(kernel: &mut Kernel, _: Request, call: DomainGrant) -> Answer {
    check_alive(call.domain)?;
    derive(kernel, call.domain, call.source, call.rights, call.source.1.badge)
}

pub(super) fn domain_range(kernel: &mut Kernel, request: Request, DomainRange { domain }: DomainRange) -> Answer {
    let slot = request.slot(kernel)?;
    kernel.retain(domain.range());
    one(request.place(slot, domain.range().any(), Rights::ALL))
}

pub(super) fn domain_kill(kernel: &mut Kernel, request: Request, DomainKill { domain, status }: DomainKill) -> Answer {
    let own = domain == request.caller.domain();
    kernel.kill(domain, Death::by_call(DeathCause::Killed, status));
    if own {
        return Ok(Outcome::Blocked);
    }
    // The caller may end with it. It has the memory back when it goes on.
    kernel.retain(request.caller);
    let is_done = kernel.drain_ending(&mut Budget::new(END_UNITS));
    kernel.release(request.caller);
    if is_done { NOTHING } else { Ok(Outcome::Retry) }
}

pub(super) fn domain_exit(kernel: &mut Kernel, request: Request, call: DomainExit) -> Answer {
    kernel.kill(request.caller.domain(), Death::by_call(DeathCause::Exit, call.status));
    Ok(Outcome::Blocked)
}

pub(super) fn domain_state(kernel: &mut Kernel, request: Request, call: DomainState) -> Answer {
    kernel.update_accounting();
    let state = call.domain.state();
    user_memory::write(kernel, request.caller.domain().range(), call.state, state.as_bytes())?;
    NOTHING
}

pub(super) fn ledger_read(_: &Kernel, _: Request, LedgerRead { domain, number }: LedgerRead) -> Answer {
    let row = domain.ledger.row(number).ok_or(Error::NotFound)?;
    Ok(Outcome::Done([row.payer, row.client, row.paid_ns]))
}

pub(super) fn domain_on_death(kernel: &mut Kernel, _: Request, call: DomainOnDeath) -> Answer {
    let (notification, source) = call.target;
    call.domain.set_on_death(kernel, notification, source);
    NOTHING
}

pub(super) fn domain_fork(kernel: &mut Kernel, request: Request, call: DomainFork) -> Answer {
    let DomainFork { child, slot, address } = call;
    check_alive(child)?;
    if child == request.caller.domain() {
        return Err(Error::BadArgument);
    }
    let mut done = [slot, address];
    let (parent, partial) = (request.caller.domain(), &request.caller.partial);
    let is_whole = parent.fork_into(kernel, child, partial, &mut done, &mut Budget::step())?;
    if is_whole { NOTHING } else { Ok(request.retry([(1, done[0]), (2, done[1])])) }
}
