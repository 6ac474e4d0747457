//! The end of a component that broke one of its own invariants: said with location and backtrace,
//! then exit status 101.

use core::arch::asm;
use core::panic::PanicInfo;

use abi::layout::STACK_TOP;
use abi::start::text;

use crate::platform::{header, log_line};

/// Exit status of a component that panicked.
const STATUS: u64 = 101;
/// Most frames printed.
const FRAMES_MAX: usize = 32;
/// No frame of ours is larger; a larger step means that the chain has left our code.
const FRAME_BYTES_MAX: u64 = 256 << 10;

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    log_line(format_args!("{info}"));
    let mut frame: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack, preserves_flags)) };
    for _ in 0..FRAMES_MAX {
        if frame == 0 || !frame.is_multiple_of(8) || frame + 16 > STACK_TOP {
            break;
        }
        // SAFETY: all our code keeps frame pointers (build flag), so `frame` is one on our stack;
        // at worst a chain that left our code faults here, and the kernel ends the component as we
        // are about to.
        let [next, back] = unsafe { *(frame as *const [u64; 2]) };
        if back == 0 {
            break;
        }
        log_line(format_args!("bt: {back:#x} {}", text(&header().name)));
        if next <= frame || next - frame > FRAME_BYTES_MAX {
            break;
        }
        frame = next;
    }
    sys::domain_exit(STATUS)
}
