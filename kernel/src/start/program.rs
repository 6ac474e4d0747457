//! Building the first domain of a core that was told what to run: exactly what its plan names, and
//! nothing else.

use super::{NO_MEMORY, Started, first};
use crate::objects::pcore::Plan;
use crate::objects::share::Capability;
use crate::polling::Polling;
use crate::state::Kernel;
use abi::{Error, Rights};

/// Makes the domain of `plan`, and its context run, or this a kernel core.
pub(super) fn start(kernel: &mut Kernel, plan: &Plan) -> Started {
    let domain = first::domain(kernel, b"program")?;
    if plan.rights != Rights(0) {
        first::give_core(kernel, domain, plan.rights)?;
    }
    for part in plan.parts.iter().flatten() {
        let slot = domain.reserve(kernel).map_err(|_| NO_MEMORY)?;
        let segment = first::memory_at(kernel, part.base, part.pages)?;
        domain.insert(slot, Capability { object: segment.any(), badge: 0, rights: part.rights });
        if let Some((place, protection)) = part.mapped {
            let mapped = domain.range().map(kernel, place, segment, 0, [protection; 2]);
            mapped.map_err(|error| if error == Error::NoMemory { NO_MEMORY } else { "two of its segments overlap" })?;
        }
    }
    let context = first::context(kernel, domain)?;
    if plan.devices.iter().any(Option::is_some) {
        kernel.polling = Some(Polling::new(context, plan.devices));
        return Ok(());
    }
    first::run(kernel, context, (plan.entry, plan.stack), plan.argument)
}
