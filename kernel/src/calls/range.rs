//! Address ranges.

use super::{Answer, NOTHING, Outcome, Request, one};
use crate::objects::range::Place;
use crate::objects::{Ptr, Range, Segment};
use crate::state::Kernel;
use abi::layout::protection;
use abi::{Error, Rights};

fn living(request: &Request, rights: Rights) -> Result<Ptr<Range>, Error> {
    let range = request.object::<Range>(0, rights)?;
    if range.is_alive() { Ok(range) } else { Err(Error::PeerDead) }
}

/// The widest protection a capability for a segment allows.
fn allowed_by(rights: Rights) -> u64 {
    [(Rights::READ, protection::READ), (Rights::WRITE, protection::WRITE), (Rights::EXECUTE, protection::EXECUTE)]
        .into_iter()
        .filter(|(right, _)| rights.contains(*right))
        .fold(0, |all, (_, bit)| all | bit)
}

pub(super) fn map(kernel: &mut Kernel, request: &Request) -> Answer {
    let range = living(request, Rights::WRITE)?;
    let (segment, capability) = request.find::<Segment>(2, Rights(0))?;
    let [_, start, _, first, pages, wanted] = request.words();
    let place = Place::decode(start, pages)?;
    range.check_protection(wanted)?;
    let allowed = allowed_by(capability.rights);
    if allowed & wanted != wanted {
        return Err(Error::NoRights);
    }
    range.map(kernel, place, segment, first, [wanted, allowed])?;
    NOTHING
}

pub(super) fn unmap(kernel: &mut Kernel, request: &Request) -> Answer {
    let range = living(request, Rights::WRITE)?;
    let place = Place::decode(request.words()[1], request.words()[2])?;
    one(range.unmap(kernel, place)?)
}

pub(super) fn protect(kernel: &mut Kernel, request: &Request) -> Answer {
    let range = living(request, Rights::WRITE)?;
    let [_, start, pages, wanted, ..] = request.words();
    let place = Place::decode(start, pages)?;
    range.check_protection(wanted)?;
    range.check_cover(place, wanted)?;
    range.protect(kernel, place, wanted)?;
    NOTHING
}

pub(super) fn get(request: &Request) -> Answer {
    let range = living(request, Rights::READ)?;
    let mapping = range.at_or_after(request.words()[1]).ok_or(Error::NotFound)?;
    Ok(Outcome::Done([mapping.start(), mapping.pages(), mapping.protection() | mapping.first() << 8]))
}
