//! Backtraces by frame pointers, as lines `bt: 0xADDRESS NAME` that the launcher turns into
//! functions and lines.
//!
//! Every step is checked: the kernel's own stack may be broken when this runs, and a user's chain
//! is whatever the user made of it.

use crate::arch::context::Registers;
use crate::arch::cpu;
use crate::arch::paging::{self, Flags, Root};
use crate::memory::{PAGE_BYTES, phys_to_virt};
use core::fmt::Write;

/// Most frames printed.
const FRAMES_MAX: usize = 24;
/// Kernel code and stacks lie above this.
const KERNEL_START: u64 = 0xffff_8000_0000_0000;
/// Largest step from one frame to the next believed, in bytes.
const STEP_MAX: u64 = 64 << 10;

/// Prints the calling function's callers.
pub fn print_here(out: &mut dyn Write) {
    print_chain(out, cpu::frame_pointer());
}

/// Prints a kernel address and the chain from `frame`.
pub fn print_kernel(out: &mut dyn Write, address: u64, frame: u64) {
    let _ = writeln!(out, "bt: {address:#x} kernel");
    print_chain(out, frame);
}

fn print_chain(out: &mut dyn Write, mut frame: u64) {
    for _ in 0..FRAMES_MAX {
        if frame < KERNEL_START || !frame.is_multiple_of(8) || frame > u64::MAX - 16 {
            return;
        }
        // SAFETY: a frame pointer on a kernel stack; if the stack is broken the resulting fault is
        // fatal too, and reported.
        let [next, address] = unsafe { core::ptr::with_exposed_provenance::<[u64; 2]>(frame as usize).read() };
        if address < KERNEL_START {
            return;
        }
        let _ = writeln!(out, "bt: {address:#x} kernel");
        if next <= frame || next - frame > STEP_MAX {
            return;
        }
        frame = next;
    }
}

/// Prints where a user context was and its callers; `component` names the program whose addresses
/// they are.
pub fn print_user(registers: &Registers, root: Root, component: &str) {
    crate::log!("bt: {:#x} {component}", registers.rip);
    let mut frame = registers.rbp;
    for _ in 0..FRAMES_MAX {
        let (Some(next), Some(address)) = (read_user(root, frame), read_user(root, frame.wrapping_add(8))) else {
            return;
        };
        if address == 0 {
            return;
        }
        crate::log!("bt: {address:#x} {component}");
        if next <= frame {
            return;
        }
        frame = next;
    }
}

/// A word of a user's memory, if it is mapped and does not cross a page.
fn read_user(root: Root, address: u64) -> Option<u64> {
    let physical = paging::translate(root, address, Flags::PRESENT)?;
    if address % PAGE_BYTES as u64 > PAGE_BYTES as u64 - 8 {
        return None;
    }
    // SAFETY: eight bytes inside a mapped page, seen through the direct map; the user may change
    // them, we only print.
    Some(unsafe { phys_to_virt(physical).cast::<u64>().read_unaligned() })
}
