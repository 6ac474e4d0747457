//! Cores.

use super::memory::decode_run;
use super::{Answer, NOTHING, Outcome, Request};
use crate::arch::cores;
use crate::memory::PhysRange;
use crate::objects::Pcore;
use crate::start;
use crate::state::Kernel;
use abi::layout::SEGMENT_PAGES_MAX;
use abi::{Error, Rights};

pub(super) fn run(kernel: &Kernel, request: &Request) -> Answer {
    request.object::<Pcore>(0, Rights::CONTROL)?;
    let [_, _, base, pages, ..] = request.words();
    if kernel.core() != 0 {
        return Err(Error::OtherCore);
    }
    let link = if pages == 0 { PhysRange::default() } else { decode_run(base, pages)? };
    if pages > SEGMENT_PAGES_MAX || (pages > 0 && !kernel.is_core_memory(link)) {
        return Err(Error::BadArgument);
    }
    let core = usize::try_from(request.words()[1]).map_err(|_| Error::BadArgument)?;
    if kernel.info.is_none_or(|info| core >= info.cores.len()) {
        return Err(Error::BadArgument);
    }
    if start::is_running(core) {
        return Err(Error::Busy);
    }
    start::set_link(core, link);
    cores::start_core(core).map_err(|_| Error::BadArgument)?;
    NOTHING
}

pub(super) fn stat(kernel: &Kernel, request: &Request) -> Answer {
    let core = usize::try_from(request.words()[0]).map_err(|_| Error::BadArgument)?;
    let info = kernel.info.ok_or(Error::BadArgument)?;
    let entry = info.cores.get(core).ok_or(Error::BadArgument)?;
    let running = u64::from(start::is_running(core));
    Ok(Outcome::Done([u64::from(entry.apic_id), u64::from(entry.node), running]))
}

pub(super) fn current(kernel: &Kernel) -> Answer {
    let count = kernel.info.map_or(1, |info| info.cores.len());
    let running = (0..count).filter(|&core| start::is_running(core)).count();
    Ok(Outcome::Done([kernel.core() as u64, count as u64, running as u64]))
}
