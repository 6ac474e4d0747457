//! Domains: making, filling, ending, forking.

use super::capability::downgraded;
use super::{Answer, NOTHING, Outcome, Request, one};
use crate::objects::domain::Death;
use crate::objects::notification::Notification;
use crate::objects::share::Capability;
use crate::objects::writer::Name;
use crate::objects::{Domain, Ptr, user_memory};
use crate::state::Kernel;
use crate::steps::{Budget, END_UNITS};
use abi::layout::domain as flags;
use abi::{DeathCause, Error, Handle, Rights};
use zerocopy::IntoBytes;

fn living(request: &Request, argument: usize, rights: Rights) -> Result<Ptr<Domain>, Error> {
    let domain = request.object::<Domain>(argument, rights)?;
    if domain.is_alive() { Ok(domain) } else { Err(Error::PeerDead) }
}

/// The name of a new domain: its maker's, or what one who holds the core says.
fn name(kernel: &mut Kernel, request: &Request) -> Result<Name, Error> {
    let [_, _, pcore, address, bytes, _] = request.words();
    let maker = request.caller.domain();
    if pcore == Handle::NONE.0 {
        return Ok(maker.writer.name());
    }
    request.check_core(kernel, 2, Rights::CONTROL)?;
    let mut text = [0; Name::BYTES_MAX];
    let text = usize::try_from(bytes).ok().and_then(|bytes| text.get_mut(..bytes)).ok_or(Error::BadArgument)?;
    user_memory::read(kernel, maker.range(), address, text)?;
    Name::new(text).ok_or(Error::BadArgument)
}

/// Whose part of the log a new domain shares: its maker's, or whose one who holds the core says.
fn log_of(request: &Request) -> Result<Option<Ptr<Domain>>, Error> {
    let [_, _, pcore, _, _, log_of] = request.words();
    match (Handle(pcore), Handle(log_of)) {
        (Handle::NONE, _) => Ok(Some(request.caller.domain())),
        (_, Handle::NONE) => Ok(None),
        _ => living(request, 5, Rights::READ).map(Some),
    }
}

pub(super) fn alloc(kernel: &mut Kernel, request: &Request) -> Answer {
    let ram = request.ram(0)?;
    let (parent, _) = request.source(0)?;
    let options = request.words()[1];
    if options & !flags::WRITE_EXECUTE != 0 {
        return Err(Error::BadArgument);
    }
    let (name, log_of) = (name(kernel, request)?, log_of(request)?);
    let slot = request.slot(kernel)?;
    let domain = Ptr::<Domain>::create(kernel, ram, options, name)?;
    if let Some(other) = log_of {
        domain.writer.share(&other.writer, &mut kernel.log);
    }
    domain.share().find_slot(Handle::SELF_RAM)?.0.derive_from(parent);
    let id = domain.header().id();
    Ok(Outcome::Done([request.place(slot, domain.any(), Rights::ALL), id, 0]))
}

pub(super) fn grant(kernel: &mut Kernel, request: &Request) -> Answer {
    let domain = living(request, 0, Rights::WRITE)?;
    let (parent, source) = request.source(1)?;
    if !source.rights.contains(Rights::GRANT) {
        return Err(Error::NoRights);
    }
    let rights = downgraded(source.rights, request.words()[2])?;
    let slot = domain.reserve(kernel)?;
    kernel.retain_any(source.object);
    one(domain.insert_derived(slot, Capability { rights, ..source }, parent).0)
}

pub(super) fn range(kernel: &mut Kernel, request: &Request) -> Answer {
    let domain = request.object::<Domain>(0, Rights::WRITE)?;
    let slot = request.slot(kernel)?;
    kernel.retain(domain.range());
    one(request.place(slot, domain.range().any(), Rights::ALL))
}

pub(super) fn kill(kernel: &mut Kernel, request: &Request) -> Answer {
    let domain = request.object::<Domain>(0, Rights::CONTROL)?;
    let own = domain == request.caller.domain();
    kernel.kill(domain, Death::by_call(DeathCause::Killed, request.words()[1]));
    if own {
        return Ok(Outcome::Left);
    }
    // The caller may end with it. It has the memory back when it goes on.
    kernel.retain(request.caller);
    let is_done = kernel.settle(&mut Budget::new(END_UNITS));
    kernel.release(request.caller);
    if is_done { NOTHING } else { Ok(Outcome::Again) }
}

pub(super) fn exit(kernel: &mut Kernel, request: &Request) -> Answer {
    kernel.kill(request.caller.domain(), Death::by_call(DeathCause::Exit, request.words()[0]));
    Ok(Outcome::Left)
}

pub(super) fn state(kernel: &mut Kernel, request: &Request) -> Answer {
    let domain = request.object::<Domain>(0, Rights::READ)?;
    kernel.bring_bills_up();
    let state = domain.stand();
    user_memory::write(kernel, request.caller.domain().range(), request.words()[1], state.as_bytes())?;
    NOTHING
}

pub(super) fn on_death(kernel: &mut Kernel, request: &Request) -> Answer {
    let domain = request.object::<Domain>(0, Rights::CONTROL)?;
    let source = request.source(1)?;
    domain.set_on_death(kernel, Notification::decode(source.1)?, source);
    NOTHING
}

pub(super) fn fork(kernel: &mut Kernel, request: &Request) -> Answer {
    let child = living(request, 0, Rights::WRITE)?;
    if child == request.caller.domain() {
        return Err(Error::BadArgument);
    }
    let [_, slot, address, ..] = request.words();
    let mut done = [slot, address];
    let (parent, partial) = (request.caller.domain(), &request.caller.partial);
    let is_whole = parent.fork_into(kernel, child, partial, &mut done, &mut Budget::step())?;
    if is_whole { NOTHING } else { Ok(request.again([(1, done[0]), (2, done[1])])) }
}
