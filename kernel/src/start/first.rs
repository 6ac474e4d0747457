//! What the first domains of all cores have: the domain, its core, memory that is there already, a
//! context, time.

use super::{NO_MEMORY, Started};
use crate::memory::PhysAddr;
use crate::objects::context::Options;
use crate::objects::mapping::PageRun;
use crate::objects::segment::Kind;
use crate::objects::share::Capability;
use crate::objects::writer::Name;
use crate::objects::{AnyObject, Context, Domain, Pcore, Ptr, Schedule, Segment};
use crate::state::Kernel;
use abi::{Handle, Rights, layout};

/// First domains answer before everyone else.
const PRIORITY: usize = 7;
const SLICE_NS: u64 = 10_000_000;

type Part<T> = Result<Ptr<T>, &'static str>;

/// Makes the first domain of this core.
pub(super) fn domain(kernel: &mut Kernel, name: &[u8]) -> Part<Domain> {
    let name = Name::new(name).ok_or("its first domain has no name")?;
    let ram = kernel.root_ram();
    let domain = Ptr::<Domain>::create(kernel, ram, 0, name).map_err(|_| NO_MEMORY)?;
    domain.keep_alive();
    kernel.first = Some(domain);
    Ok(domain)
}

/// Gives it a capability with a fixed handle, and a reference.
pub(super) fn give(domain: Ptr<Domain>, handle: Handle, object: AnyObject, rights: Rights) {
    domain.insert(handle.0 as usize, Capability { object, badge: 0, rights });
}

/// Gives it the core, and the account over all pages of that.
pub(super) fn give_core(kernel: &mut Kernel, domain: Ptr<Domain>, rights: Rights) -> Started {
    let (core, ram) = (kernel.core(), kernel.root_ram());
    let pcore = kernel.create(ram, |header| Pcore::own(header, core)).map_err(|_| NO_MEMORY)?;
    kernel.retain(ram);
    give(domain, Handle::PCORE, pcore.any(), rights);
    give(domain, Handle::ROOT_RAM, ram.any(), rights);
    Ok(())
}

/// Makes a segment over memory that is there already: the archive's, or core 0's.
pub(super) fn memory_at(kernel: &mut Kernel, base: PhysAddr, pages: u64) -> Part<Segment> {
    let (ram, kind) = (kernel.root_ram(), Kind::Imported { base, uncached: false, is_ram: true });
    Ptr::<Segment>::new_imported(kernel, ram, pages, kind).map_err(|_| NO_MEMORY)
}

/// Makes its context.
pub(super) fn context(kernel: &mut Kernel, domain: Ptr<Domain>) -> Part<Context> {
    let ram = kernel.root_ram();
    let control = PageRun { start: layout::CONTROL_PAGE, pages: 1 };
    let options = Options { has_vectors: false, is_linux: false, priority_max: PRIORITY };
    let context = Ptr::<Context>::create(kernel, ram, domain, control, options).map_err(|_| NO_MEMORY)?;
    give(domain, Handle::SELF_CONTEXT, context.any(), Rights::ALL);
    Ok(context)
}

/// Gives its context time, and starts it.
pub(super) fn run(kernel: &mut Kernel, context: Ptr<Context>, (entry, stack): (u64, u64), argument: u64) -> Started {
    let ram = kernel.root_ram();
    let build = |header| Schedule::new(header, context, PRIORITY, SLICE_NS);
    let schedule = kernel.create(ram, build).map_err(|_| NO_MEMORY)?;
    context.schedule.set(Some(schedule));
    kernel.start(context, entry, stack, [argument, 0]);
    Ok(())
}
