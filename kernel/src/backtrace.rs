//! Backtraces by frame pointers, as lines `bt: 0xADDRESS NAME` that the launcher turns into
//! functions and lines.
//!
//! Every step is checked: the kernel's own stack may be broken when this runs, and a user's chain
//! is whatever the user made of it: only RAM that the program sees is read, never a device's
//! registers, whose reading may act.

use crate::arch::context::Registers;
use crate::arch::cpu;
use crate::arch::paging::Root;
use crate::objects::user_memory;
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

fn print_chain(out: &mut dyn Write, frame: u64) {
    // SAFETY: a frame pointer on a kernel stack; if the stack is broken the resulting fault is
    // fatal too, and reported.
    let read = |frame| unsafe { core::ptr::with_exposed_provenance::<[u64; 2]>(frame as usize).read() };
    kernel_callers(frame, read).for_each(|address| _ = writeln!(out, "bt: {address:#x} kernel"));
}

/// The return addresses of the kernel's frames from `frame` on, which `read` reads.
fn kernel_callers(mut frame: u64, read: impl Fn(u64) -> [u64; 2]) -> impl Iterator<Item = u64> {
    core::iter::from_fn(move || {
        if frame < KERNEL_START || !frame.is_multiple_of(8) || frame > u64::MAX - 16 {
            return None;
        }
        let [next, address] = read(frame);
        frame = if next > frame && next - frame <= STEP_MAX { next } else { 0 };
        (address >= KERNEL_START).then_some(address)
    })
    .take(FRAMES_MAX)
}

/// Prints where a user context was and its callers; `component` names the program whose addresses
/// they are.
pub fn print_user(registers: &Registers, root: Root, component: &str) {
    crate::log!("bt: {:#x} {component}", registers.rip);
    let read = |address| user_memory::peek(root, address);
    user_callers(registers.rbp, read).for_each(|address| crate::log!("bt: {address:#x} {component}"));
}

/// The return addresses of a user's frames from `frame` on, as far as `read` gives their words.
fn user_callers(mut frame: u64, read: impl Fn(u64) -> Option<u64>) -> impl Iterator<Item = u64> {
    core::iter::from_fn(move || {
        let (next, address) = (read(frame)?, read(frame.checked_add(8)?)?);
        // Frames go up the stack; this one is the last if the next does not.
        frame = if next > frame { next } else { u64::MAX };
        (address != 0).then_some(address)
    })
    .take(FRAMES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_ends_where_it_cannot_be_read_or_goes_down() {
        let stack = [0x1010, 0xa, 0x1020, 0xb, 0x1000, 0xc];
        let read = |address: u64| stack.get((address.checked_sub(0x1000)? / 8) as usize).copied();
        assert_eq!(user_callers(0x1000, read).collect::<Vec<_>>(), [0xa, 0xb, 0xc]);
        assert_eq!(user_callers(0x1028, read).count(), 0, "half a frame");
        for nowhere in [0, 8, u64::MAX, u64::MAX - 7, 1 << 47, 0xffff_8000_0000_0000] {
            assert_eq!(user_callers(nowhere, read).count(), 0);
        }
        assert_eq!(user_callers(0, |address| Some(address + 8)).count(), FRAMES_MAX);
    }
}
