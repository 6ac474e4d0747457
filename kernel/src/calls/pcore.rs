//! Cores.

use super::records::*;
use super::{Answer, NOTHING, Outcome, Request, one};
use crate::boot::acpi::Distances;
use crate::boot::info::machine;
use crate::hardware;
use crate::memory::USER_END;
use crate::objects::mapping::{PageRun, allowed_by};
use crate::objects::pcore::{Part, Plan, Polled, decode_run};
use crate::objects::slot::Source;
use crate::objects::{Pcore, Ptr, Range, Segment, user_memory};
use crate::state::Kernel;
use abi::layout::{CONTROL_PAGE, WAKE_SLOTS, protection};
use abi::pcore::{Launch, LaunchSegment, SEGMENTS_MAX, polled};
use abi::{Error, Handle, PAGE_BYTES, Rights};
use zerocopy::{FromZeros, IntoBytes};

/// Cores of the machine.
pub(super) fn count(kernel: &Kernel) -> usize {
    kernel.info.map_or(1, |info| info.cores.len())
}

pub(super) fn pcore_alloc(kernel: &mut Kernel, request: Request, call: PcoreAlloc) -> Answer {
    if kernel.core() != 0 {
        return Err(Error::OtherCore);
    }
    let core = call.core as usize;
    if core == 0 {
        return Err(Error::BadArgument);
    }
    let claimant = request.caller.domain().header().id();
    request.place_new(kernel, |kernel| Pcore::new_claim(kernel, call.ram, core, claimant))
}

/// What was asked to run: the plan, and the capabilities it needs.
fn decode_launch(
    kernel: &mut Kernel,
    request: Request,
    held: Rights,
    address: u64,
) -> Result<(Plan, [Option<Source>; SEGMENTS_MAX]), Error> {
    let mut launch = Launch::new_zeroed();
    let range = request.caller.domain().range();
    user_memory::read(kernel, range, address, launch.as_mut_bytes())?;
    let asked = usize::try_from(launch.count).ok().and_then(|count| launch.segments.get(..count));
    let asked = asked.ok_or(Error::BadArgument)?;
    let rights = Rights(u32::try_from(launch.rights).map_err(|_| Error::BadArgument)?);
    if !held.contains(rights) {
        return Err(Error::NoRights);
    }
    if launch.entry >= USER_END || launch.stack > USER_END {
        return Err(Error::BadArgument);
    }
    let mut parts = [None; SEGMENTS_MAX];
    let mut sources = [None; SEGMENTS_MAX];
    for (index, asked) in asked.iter().enumerate() {
        let source = request.caller.domain().share().find_slot(Handle(asked.handle))?;
        source.0.check_parent()?;
        parts[index] = Some(decode_part(range, asked, source)?);
        sources[index] = Some(source);
    }
    check_places(&parts)?;
    let Launch { entry, stack, argument, .. } = launch;
    Ok((Plan { entry, stack, argument, rights, parts, ..Plan::NONE }, sources))
}

fn decode_part(range: Ptr<Range>, asked: &LaunchSegment, (_, capability): Source) -> Result<Part, Error> {
    let segment = capability.object.cast::<Segment>()?;
    let (base, pages) = decode_run(segment, capability)?;
    let mapped = match asked.address {
        0 => None,
        address => {
            let both = protection::WRITE | protection::EXECUTE;
            if asked.protection & both == both {
                return Err(Error::BadArgument);
            }
            range.check_protection(asked.protection)?;
            if allowed_by(capability.rights) & asked.protection != asked.protection {
                return Err(Error::NoRights);
            }
            Some((range.place(address, pages)?, asked.protection))
        }
    };
    Ok(Part { base, pages, rights: capability.rights, mapped })
}

/// No two places overlap, nor any the first context's control page.
fn check_places(parts: &[Option<Part>]) -> Result<(), Error> {
    let control = PageRun { start: CONTROL_PAGE, pages: 1 };
    let places = || parts.iter().flatten().filter_map(|part| part.mapped).map(|(place, _)| place);
    let overlap = |a: PageRun, b: PageRun| a.start < b.end() && b.start < a.end();
    let clash = places()
        .enumerate()
        .any(|(index, place)| overlap(place, control) || places().skip(index + 1).any(|other| overlap(place, other)));
    if clash { Err(Error::BadArgument) } else { Ok(()) }
}

pub(super) fn pcore_run(kernel: &mut Kernel, request: Request, call: PcoreRun) -> Answer {
    let (pcore, (_, held)) = call.pcore;
    pcore.check_idle()?;
    let (plan, segments) = decode_launch(kernel, request, held.rights, call.launch)?;
    pcore.run(kernel, plan, &segments);
    NOTHING
}

pub(super) fn pcore_halt(kernel: &mut Kernel, _: Request, PcoreHalt { pcore }: PcoreHalt) -> Answer {
    if pcore.core == kernel.core() {
        return kernel.halt_here().map(|()| Outcome::Blocked);
    }
    pcore.halt()?;
    NOTHING
}

pub(super) fn pcore_watch(kernel: &mut Kernel, _: Request, call: PcoreWatch) -> Answer {
    let (_, target) = call.target;
    call.pcore.watch(kernel, target)?;
    NOTHING
}

pub(super) fn pcore_add_device(kernel: &mut Kernel, _: Request, call: PcoreAddDevice) -> Answer {
    let PcoreAddDevice { pcore, kind, segment, offset, core, slot } = call;
    let (base, pages) = decode_run(segment.1.object.cast()?, segment.1)?;
    let polled = match kind {
        polled::RING => Polled::Ring { base, pages },
        polled::WORD => {
            let fits = offset.is_multiple_of(2) && offset < pages * PAGE_BYTES;
            if !fits || core >= count(kernel) as u64 || !(1..WAKE_SLOTS).contains(&slot) {
                return Err(Error::BadArgument);
            }
            Polled::Word { at: base + offset, core: core as usize, slot: slot as usize }
        }
        _ => return Err(Error::BadArgument),
    };
    one(pcore.add_polled(kernel, polled, segment)? as u64)
}

pub(super) fn pcore_device_stat(kernel: &Kernel, _: Request, call: PcoreDeviceStat) -> Answer {
    let found = kernel.polling.as_ref().and_then(|polling| polling.stat(call.index));
    found.map(Outcome::Done).ok_or(Error::NotFound)
}

pub(super) fn pcore_throttle(kernel: &mut Kernel, _: Request, call: PcoreThrottle) -> Answer {
    kernel.scheduler.throttle(call.eighths);
    NOTHING
}

pub(super) fn pcore_stat(kernel: &Kernel, _: Request, call: PcoreStat) -> Answer {
    let core = call.core as usize;
    let entry = kernel.info.and_then(|info| info.cores.get(core)).ok_or(Error::BadArgument)?;
    let running = u64::from(Pcore::runs(kernel, core));
    Ok(Outcome::Done([u64::from(entry.apic_id), u64::from(entry.node), running]))
}

pub(super) fn pcore_current(kernel: &Kernel, _: Request, _: PcoreCurrent) -> Answer {
    let count = count(kernel);
    let running = (0..count).filter(|&core| Pcore::runs(kernel, core)).count();
    Ok(Outcome::Done([kernel.core() as u64, count as u64, running as u64]))
}

pub(super) fn pcore_use(kernel: &Kernel, _: Request, call: PcoreUse) -> Answer {
    if kernel.core() != 0 {
        return Err(Error::OtherCore);
    }
    let core = call.core as usize;
    let (what, claimant) = Pcore::used_by(kernel, core);
    Ok(Outcome::Done([hardware::used_ns(core, hardware::now_ns()), what, claimant]))
}

pub(super) fn locality_get(kernel: &Kernel, _: Request, call: LocalityGet) -> Answer {
    let info = kernel.info.ok_or(Error::BadArgument)?;
    let nodes = [call.from, call.to].map(|core| info.cores[core as usize].node);
    let distances: &Distances = &machine().facts.distances;
    Ok(Outcome::Done([distances.between(nodes[0], nodes[1]).into(), nodes[0].into(), nodes[1].into()]))
}

pub(super) fn object_count(kernel: &Kernel, _: Request, call: ObjectCount) -> Answer {
    one(kernel.objects_by_type[call.object_type])
}
