//! Building the first domain of a core that was told what to run: exactly what its plan names, and
//! nothing else.

use super::{NO_MEMORY, Started};
use crate::objects::context::Options;
use crate::objects::mapping::PageRun;
use crate::objects::pcore::Plan;
use crate::objects::segment::Kind;
use crate::objects::share::Capability;
use crate::objects::writer::Name;
use crate::objects::{Context, Domain, Pcore, Ptr, Schedule, Segment};
use crate::polling::Polling;
use crate::state::Kernel;
use abi::{Error, Handle, Rights, layout};

const PRIORITY: usize = 7;
const SLICE_NS: u64 = 10_000_000;

/// Makes the domain of `plan`, and its context run, or this a kernel core.
pub(super) fn start(kernel: &mut Kernel, plan: &Plan) -> Started {
    let ram = kernel.root_ram();
    let name = Name::new(b"program").ok_or("a program has no name")?;
    let domain = Ptr::<Domain>::create(kernel, ram, 0, name).map_err(|_| NO_MEMORY)?;
    domain.keep_alive();
    kernel.first = Some(domain);
    if plan.rights != Rights(0) {
        let core = kernel.core();
        let pcore = kernel.create(ram, |header| Pcore::own(header, core)).map_err(|_| NO_MEMORY)?;
        kernel.retain(ram);
        for (handle, object) in [(Handle::PCORE, pcore.any()), (Handle::ROOT_RAM, ram.any())] {
            domain.insert(handle.0 as usize, Capability { object, badge: 0, rights: plan.rights });
        }
    }
    for part in plan.parts.iter().flatten() {
        let slot = domain.reserve(kernel).map_err(|_| NO_MEMORY)?;
        let kind = Kind::Imported { base: part.base, uncached: false, is_ram: true };
        let segment = Ptr::<Segment>::new_imported(kernel, ram, part.pages, kind).map_err(|_| NO_MEMORY)?;
        domain.insert(slot, Capability { object: segment.any(), badge: 0, rights: part.rights });
        if let Some((place, protection)) = part.mapped {
            let mapped = domain.range().map(kernel, place, segment, 0, [protection; 2]);
            mapped.map_err(|error| if error == Error::NoMemory { NO_MEMORY } else { "two of its segments overlap" })?;
        }
    }
    let control = PageRun { start: layout::CONTROL_PAGE, pages: 1 };
    let options = Options { has_vectors: false, is_linux: false, priority_max: PRIORITY };
    let context = Ptr::<Context>::create(kernel, ram, domain, control, options).map_err(|_| NO_MEMORY)?;
    domain.insert(Handle::SELF_CONTEXT.0 as usize, Capability { object: context.any(), badge: 0, rights: Rights::ALL });
    if plan.devices.iter().any(Option::is_some) {
        kernel.polling = Some(Polling::new(context, plan.devices));
        return Ok(());
    }
    let build = |header| Schedule::new(header, context, PRIORITY, SLICE_NS);
    let schedule = kernel.create(ram, build).map_err(|_| NO_MEMORY)?;
    context.schedule.set(Some(schedule));
    kernel.start(context, plan.entry, plan.stack, [plan.argument, 0]);
    Ok(())
}
