//! The cores of the machine: which one this is, waking another, starting another.

use super::{apic, image, irq, start};
use crate::boot::info::CORES_MAX;
use crate::core_local::CoreLocal;
use crate::hardware::machine;

/// INIT takes effect at once in emulators and hypervisors; hardware wants a moment before STARTUP
/// (Intel SDM 3A, 9.4.4, asks 10 ms of old chips). At boot one INIT goes to all cores, long before
/// the first is started; only a core that is started again is waited for.
const INIT_PAUSES: u32 = 64;

static THIS_CORE: CoreLocal<usize> = CoreLocal::new(0);
/// Cores that this one has started before.
static STARTED: CoreLocal<[bool; CORES_MAX]> = CoreLocal::new([false; CORES_MAX]);

/// Why a core was not told to start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartError {
    /// The machine has no core of that number.
    NoSuchCore,
    /// It is the caller, who runs already.
    ThisCore,
}

/// The calling core's index; 0 before the core has its instance.
pub fn this_core() -> usize {
    if image::instance_is_live() { THIS_CORE.get() } else { 0 }
}

/// Notes which core this instance is.
pub fn set_this_core(core: usize) {
    THIS_CORE.with(|this| *this = core);
}

/// Makes `core` see `Event::Wake`; unknown cores are ignored.
pub fn wake_core(core: usize) {
    irq::send_wake(core);
}

/// Makes `core`, reset at boot or now, build a fresh instance and enter `kernel_main`. Returns
/// without waiting: the core reports through the mailbox. A caller that hears nothing within 10 ms
/// may call again.
pub fn start_core(core: usize) -> Result<(), StartError> {
    let target = machine().cores().get(core).ok_or(StartError::NoSuchCore)?;
    if core == this_core() {
        return Err(StartError::ThisCore);
    }
    if STARTED.with(|started| core::mem::replace(&mut started[core], true)) {
        apic::send_init(target.apic_id);
        for _ in 0..INIT_PAUSES {
            super::cpu::pause();
        }
    }
    apic::send_startup(target.apic_id, start::TRAMPOLINE_PAGE);
    Ok(())
}
