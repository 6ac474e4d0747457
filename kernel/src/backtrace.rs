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
        let round = |address: u64| Some(if address == 0x1000 { 0x1000 } else { 0xd });
        assert_eq!(user_callers(0x1000, round).collect::<Vec<_>>(), [0xd], "one that leads to itself is the last");
        for nowhere in [0, 8, u64::MAX, u64::MAX - 7, 1 << 47, 0xffff_8000_0000_0000] {
            assert_eq!(user_callers(nowhere, read).count(), 0);
        }
        assert_eq!(user_callers(0, |address| Some(address + 8)).count(), FRAMES_MAX);
    }

    /// The kernel's own stack may be broken when this runs.
    #[test]
    fn a_chain_of_the_kernel_is_believed_step_by_step() {
        const STACK: u64 = KERNEL_START + 0x1000;
        const TEXT: u64 = 0xffff_ffff_8000_0000;
        let chain = |frames: &'static [(u64, u64, u64)], from| {
            let read = |frame| frames.iter().find(|(at, ..)| *at == frame).map(|(_, next, address)| [*next, *address]);
            kernel_callers(from, move |frame| read(frame).expect("nothing is read but what was checked"))
        };
        let all = |frames, from| chain(frames, from).map(|address| address - TEXT).collect::<Vec<_>>();
        const END: u64 = STACK + 16 + STEP_MAX;
        let good = &[(STACK, STACK + 16, TEXT + 1), (STACK + 16, END, TEXT + 2), (END, 0, TEXT + 3)];
        assert_eq!(all(good, STACK), [1, 2, 3]);
        assert_eq!(all(&[(STACK, END + 8, TEXT + 1), (END + 8, 0, TEXT + 2)], STACK), [1], "too far");
        assert_eq!(all(&[(STACK, STACK, TEXT + 1)], STACK), [1], "to itself");
        assert_eq!(all(&[(STACK, STACK - 8, TEXT + 1)], STACK), [1], "down");
        assert_eq!(all(&[(STACK, STACK + 12, TEXT + 1)], STACK), [1], "not aligned");
        assert_eq!(all(&[(STACK, STACK + 16, TEXT), (STACK + 16, 0, KERNEL_START - 1)], STACK), [0]);
        assert_eq!(all(&[(STACK, 0, TEXT)], STACK), [0]);
        let lowest = &[(KERNEL_START, KERNEL_START + 8, KERNEL_START), (KERNEL_START + 8, 0, TEXT)];
        assert_eq!(chain(lowest, KERNEL_START).collect::<Vec<_>>(), [KERNEL_START, TEXT]);
        for nowhere in [0, 8, KERNEL_START - 8, STACK + 4, u64::MAX - 7, u64::MAX] {
            assert_eq!(all(&[], nowhere), [] as [u64; 0], "{nowhere:#x}");
        }
        let last = u64::MAX - 23;
        assert_eq!(kernel_callers(last, |_| [0, TEXT]).count(), 1);
        assert_eq!(kernel_callers(STACK, |frame| [frame + 16, TEXT]).count(), FRAMES_MAX);
    }

    #[test]
    fn lines_of_a_backtrace_are_what_the_launcher_reads() {
        let mut out = String::new();
        print_kernel(&mut out, 0xffff_ffff_8000_1234, 0);
        assert_eq!(out, "bt: 0xffffffff80001234 kernel\n");
    }
}
