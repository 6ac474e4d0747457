//! Segments.

use super::memory::decode_run;
use super::{Answer, NOTHING, Outcome, Request};
use crate::memory::PhysAddr;
use crate::objects::segment::Kind;
use crate::objects::{Ptr, Segment};
use crate::state::Kernel;
use abi::layout::{SEGMENT_PAGES_MAX, copy as modes, segment as flags};
use abi::{Error, Rights};

pub(super) fn check_pages(pages: u64) -> Result<(), Error> {
    if (1..=SEGMENT_PAGES_MAX).contains(&pages) { Ok(()) } else { Err(Error::BadArgument) }
}

pub(super) fn alloc(kernel: &mut Kernel, request: &Request) -> Answer {
    let ram = request.ram(0)?;
    let [_, pages, options, ..] = request.words();
    check_pages(pages)?;
    if options & !(flags::CONTIGUOUS | flags::EAGER) != 0 {
        return Err(Error::BadArgument);
    }
    let slot = request.slot(kernel)?;
    let segment = if options & flags::CONTIGUOUS != 0 {
        Ptr::<Segment>::new_contiguous(kernel, ram, pages)?
    } else {
        let segment = Ptr::<Segment>::new_anonymous(kernel, ram, pages)?;
        if options & flags::EAGER != 0
            && let Err(error) = segment.populate(kernel)
        {
            kernel.release(segment);
            return Err(error);
        }
        segment
    };
    let base = segment.base().map_or(0, |base| base.0);
    Ok(Outcome::Done([request.place(slot, segment.any(), Rights::ALL), base, 0]))
}

pub(super) fn copy(kernel: &mut Kernel, request: &Request) -> Answer {
    let ram = request.ram(0)?;
    let source = request.object::<Segment>(1, Rights::READ)?;
    let slot = request.slot(kernel)?;
    let copy = match (request.words()[2], source.kind()) {
        (modes::ON_WRITE, Kind::Anonymous) => source.copy_on_write(kernel, ram)?,
        (modes::ON_REFERENCE, Kind::Anonymous) => source.copy_on_reference(kernel, ram)?,
        // A contiguous segment must keep its frames, so its copy cannot share them.
        (modes::ON_WRITE | modes::ON_REFERENCE, Kind::Contiguous(_)) => source.copy_plain(kernel, ram)?,
        (modes::PLAIN, _) if source.is_ram() => source.copy_plain(kernel, ram)?,
        _ => return Err(Error::BadArgument),
    };
    Ok(Outcome::Done([request.place(slot, copy.any(), Rights::ALL), 0, 0]))
}

pub(super) fn stat(kernel: &mut Kernel, request: &Request) -> Answer {
    let (segment, rights) = request.object_anywhere::<Segment>(kernel, 0, Rights(0))?;
    let base = segment.base().filter(|_| rights.contains(Rights::DMA));
    let stat = [segment.pages(), segment.present(), base.map_or(0, |base| base.0)];
    kernel.release(segment);
    Ok(Outcome::Done(stat))
}

pub(super) fn set_pages(kernel: &mut Kernel, request: &Request) -> Answer {
    let segment = request.object::<Segment>(0, Rights::WRITE)?;
    check_pages(request.words()[1])?;
    if segment.kind() != Kind::Anonymous {
        return Err(Error::BadArgument);
    }
    segment.set_pages(kernel, request.words()[1])?;
    NOTHING
}

pub(super) fn import(kernel: &mut Kernel, request: &Request) -> Answer {
    request.check_core(kernel, 0, Rights::CONTROL)?;
    let ram = request.ram(1)?;
    let [_, _, base, pages, options, _] = request.words();
    check_pages(pages)?;
    let range = decode_run(base, pages)?;
    if options & !flags::UNCACHED != 0 {
        return Err(Error::BadArgument);
    }
    let slot = request.slot(kernel)?;
    let kind =
        Kind::Imported { base: PhysAddr(base), uncached: options & flags::UNCACHED != 0, is_ram: kernel.is_ram(range) };
    let segment = Ptr::<Segment>::new_imported(kernel, ram, pages, kind)?;
    Ok(Outcome::Done([request.place(slot, segment.any(), Rights::ALL), 0, 0]))
}
