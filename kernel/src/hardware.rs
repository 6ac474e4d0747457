//! The few machine operations the object code uses on its own, so that it runs on the host too,
//! where `hardware_host.rs` takes this file's place.

use crate::arch::fpu::{self, Area};
use crate::arch::paging::{self, Root};

pub use crate::arch::bases::{change as change_bases, switch as switch_bases};
pub use crate::arch::context::set_current;
pub use crate::arch::paging::{flush_all, flush_page};
pub use crate::arch::time::{now_ns, set_deadline};
pub use crate::backtrace::print_user;
pub use crate::core_commands::{
    CoreCommand, State, Used, command as core_command, send as send_core_command, set_state as set_core_state,
    set_used, start as start_core, state as core_state, used_ns,
};
pub use crate::devices::claims::{claim as claim_device, free as free_device};
pub use crate::devices::set_bus_master;
pub use crate::log::{write_line, write_user};
pub use fpu::{open as open_vectors, restore as restore_vectors, save as save_vectors};

/// Work of this step, in units of about ten instructions: tests count it.
#[inline(always)]
pub const fn count_work(_units: u64) {}

/// Switches the address space.
pub fn load_root(root: Root) {
    // SAFETY: callers give roots made by `new_root` of ranges that live, or the kernel's own.
    unsafe { paging::load_root(root) }
}

/// The size a vector state has; names the type for both twins of this file.
pub type VectorArea = Area;

/// Adds to a slot's count at another core and rings it; as `post`.
pub fn post_count(core: usize, slot: usize, count: u32) {
    let _ = crate::mailbox::post_count(core, slot, count);
}

/// What came for a slot of this core.
pub fn take_count(slot: usize) -> u64 {
    crate::mailbox::take_count(slot)
}

/// Rings a doorbell of another core. A core or slot that does not exist is ignored.
pub fn post(core: usize, slot: usize) {
    let _ = crate::mailbox::post(core, slot);
}

/// Requests a TLB shootdown of another core, of all translations of user memory. A core that does
/// not exist has none.
pub fn send_tlb_shootdown(core: usize) {
    let _ = crate::mailbox::send_tlb_shootdown(core);
}

/// Whether that core has served the last request.
pub fn shootdown_is_done(core: usize) -> bool {
    crate::mailbox::shootdown_is_done(core).unwrap_or(true)
}

/// Invalidates all translations of user memory if other cores request it; gives how often.
pub fn service_tlb_shootdowns() -> u64 {
    crate::mailbox::service_tlb_shootdowns(flush_all)
}
