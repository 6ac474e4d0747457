//! On Pelago: entry, start page, time stamp counter, kernel calls.

use core::arch::{asm, global_asm};
use core::fmt::{Arguments, Write};
use core::future::Future;

use abi::layout::START_INFO;
use abi::start::{MAGIC, StartHeader};
use abi::{ClockPage, Handle};
use executor::Platform;

use crate::Start;

// A function expects to have been called with the stack at a multiple of 16, and vector
// instructions want their operands there. The zero in RBP ends backtraces.
global_asm!(".globl _start", "_start: xor ebp, ebp", "and rsp, -16", "call component_start", "ud2");

pub struct Machine;

impl Platform for Machine {
    fn now_ns(&self) -> u64 {
        now_ns()
    }

    fn ran_ticks(&self) -> u64 {
        let ran_ns = sys::domain_state(Handle::SELF_DOMAIN).map_or(0, |state| state.cpu_ns);
        let ticks = ((ran_ns as u128) << 32) / u128::from(header().tsc_to_ns_mul.max(1));
        ticks as u64
    }

    fn wait(&self, deadline_ns: u64) -> u64 {
        // It fails only if kernel and runtime are of different builds; then nothing works anyway.
        sys::wait(deadline_ns).unwrap_or(0)
    }
}

/// The start page's header.
pub fn header() -> &'static StartHeader {
    // SAFETY: the loader maps the start page here, read-only, before the program runs and for as
    // long as it does; plain data.
    unsafe { &*(START_INFO as *const StartHeader) }
}

/// The clock page; a monitor has none.
pub fn clock_page() -> Option<&'static ClockPage> {
    let address = header().clock_page;
    // SAFETY: the loader maps the page where the header says, read-only, for the program's life;
    // shared memory of atomics only.
    (address != 0).then(|| unsafe { &*(address as *const ClockPage) })
}

/// Nanoseconds since boot, without a call.
pub fn now_ns() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a counter.
    unsafe { asm!("rdtsc", out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags)) };
    to_ns(((high as u64) << 32 | low as u64).saturating_sub(header().tsc_at_boot))
}

/// Ticks of the time stamp counter as nanoseconds.
#[inline]
pub fn to_ns(ticks: u64) -> u64 {
    ((ticks as u128 * header().tsc_to_ns_mul as u128) >> 32) as u64
}

/// Makes `$component`, an `async fn(Start)`, the program.
#[macro_export]
macro_rules! main {
    ($component:path) => {
        #[unsafe(no_mangle)]
        extern "C" fn component_start() -> ! {
            $crate::enter($component)
        }
    };
}

/// Runs a component to its end.
pub fn enter<F: Future<Output = ()>>(component: impl FnOnce(Start) -> F) -> ! {
    if header().magic != MAGIC {
        let _ = sys::log("runtime: start page of another version, or none");
        sys::domain_exit(102);
    }
    crate::block_on(async {
        component(Start::read()).await;
    });
    sys::domain_exit(0)
}

/// Longest line, as the kernel takes it.
const LINE_BYTES: usize = 512;

struct Line {
    bytes: [u8; LINE_BYTES],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let room = LINE_BYTES - self.length;
        let mut end = text.len().min(room);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.bytes[self.length..self.length + end].copy_from_slice(&text.as_bytes()[..end]);
        self.length += end;
        Ok(())
    }
}

/// What `log!` calls. Cut at 512 bytes; needs no heap.
pub fn log_line(arguments: Arguments<'_>) {
    let mut line = Line { bytes: [0; LINE_BYTES], length: 0 };
    let _ = line.write_fmt(arguments);
    // Whole characters only were put in.
    let _ = sys::log(core::str::from_utf8(&line.bytes[..line.length]).unwrap_or("?"));
}
