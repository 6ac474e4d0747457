//! The few machine operations the object code uses on its own, so that it runs on the host too,
//! where `hardware_host.rs` takes this file's place.

use crate::arch::cpu;
use crate::arch::fpu::{self, Area};
use crate::arch::paging::{self, Root};
use crate::memory::DEVICE_MAP;
use core::ptr;

pub use crate::arch::bases::{change as change_bases, switch as switch_bases};
pub use crate::arch::context::set_current;
pub use crate::arch::cpu::{halt, port_read8, port_write8, read_msr};
pub use crate::arch::irq::{allocate_vector, free_vector, mask_ioapic, mask_msix, program_msix, route_ioapic};
pub use crate::arch::paging::{flush_all, flush_page};
pub use crate::arch::time::{now_ns, now_ns_inlined, set_deadline};
pub use crate::backtrace::print_user;
pub use crate::boot::info::machine;
pub use crate::core_commands::{
    CoreCommand, State, Used, command as core_command, send as send_core_command, set_state as set_core_state,
    set_used, start as start_core, state as core_state, used_ns,
};
pub use crate::devices::claims::{claim as claim_device, free as free_device};
pub use crate::devices::set_bus_master;
pub use crate::log::{write_line, write_user};
pub use crate::mailbox::{post, post_count, send_tlb_shootdown, service_tlb_shootdowns, shootdown_is_done, take_count};
pub use fpu::{open as open_vectors, restore as restore_vectors, save as save_vectors};

/// Work of this step, in units of about ten instructions: tests count it.
#[inline(always)]
pub const fn count_work(_units: u64) {}

/// Switches the address space.
pub fn load_root(root: Root) {
    // SAFETY: callers give roots made by `new_root` of ranges that live, or the kernel's own.
    unsafe { paging::load_root(root) }
}

/// Reads a device's register; `address` lies in what boot mapped in the device map.
#[inline]
pub(crate) fn read_register(address: u64) -> u32 {
    // SAFETY: mapped by contract; reading has no effect on memory.
    unsafe { ptr::with_exposed_provenance::<u32>((DEVICE_MAP + address) as usize).read_volatile() }
}

/// Writes a device's register; `address` as for [`read_register`].
#[inline]
pub(crate) fn write_register(address: u64, value: u32) {
    // SAFETY: mapped by contract; what a device may reach by DMA is decided by `set_bus_master`
    // alone, and a message is an interrupt.
    unsafe { ptr::with_exposed_provenance_mut::<u32>((DEVICE_MAP + address) as usize).write_volatile(value) }
}

/// Writes a register of the local APIC that is model-specific.
#[inline]
pub(crate) fn write_apic_msr(register: u32, value: u64) {
    debug_assert!(register == cpu::msr::APIC_BASE || (0x800..0x900).contains(&register), "no register of the APIC");
    // SAFETY: they have no effect on memory; what interrupts do is decided by the IDT.
    unsafe { cpu::write_msr(register, value) }
}

/// The size a vector state has; names the type for both twins of this file.
pub type VectorArea = Area;
