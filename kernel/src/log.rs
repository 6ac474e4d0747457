//! Lines for people. Core 0 owns the UART; every other core keeps its output in a ring in its own
//! memory, wakes core 0, and core 0 reads the ring.
//!
//! The ring has one writer (its core) and one reader (core 0), which writes nothing there: it keeps
//! its own positions. A writer that laps the reader loses the oldest text, which the reader sees
//! and says; a writer never waits. Core 0 prints whole lines of a ring only, so cores do not mix.

use crate::arch::{cores, instance, serial, time};
use crate::boot::info::CORES_MAX;
use crate::core_local::CoreLocal;
use crate::mailbox::{self, Byte, Word};
use core::fmt;

/// Text a core may have waiting, in bytes.
const RING_BYTES: usize = 8192;

/// One core's pending text. The reader may look while the writer laps it.
struct Ring {
    /// Differs between two starts of the core, each of which begins a new ring; 0 until the first
    /// byte.
    start: Word,
    written: Word,
    bytes: [Byte; RING_BYTES],
}

static RING: Ring = Ring { start: Word::new(), written: Word::new(), bytes: [const { Byte::new() }; RING_BYTES] };
/// Core 0: of each ring, which start of the core it belongs to and how much of it is printed.
static PRINTED: CoreLocal<[(u64, u64); CORES_MAX]> = CoreLocal::new([(0, 0); CORES_MAX]);

/// Prints one line, from any core: `log!("format", arguments)`.
#[macro_export]
macro_rules! log {
    ($($argument:tt)*) => { $crate::log::write_line(format_args!($($argument)*)) };
}

/// What [`log!`] calls.
pub fn write_line(text: fmt::Arguments<'_>) {
    let _ = fmt::write(&mut Sink, format_args!("{text}\n"));
    publish();
}

/// Prints a component's bytes as they are.
pub fn write_user(bytes: &[u8]) {
    write(bytes);
    publish();
}

struct Sink;

impl fmt::Write for Sink {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        write(text.as_bytes());
        Ok(())
    }
}

fn write(bytes: &[u8]) {
    if cores::this_core() == 0 {
        return serial::write(bytes);
    }
    RING.write(bytes, time::tsc());
}

impl Ring {
    /// Only for its own core; the core has started anew at `now` if nothing was written yet.
    fn write(&self, bytes: &[u8], now: u64) {
        let mut at = self.written.read();
        if at == 0 {
            self.start.write(now);
        }
        for byte in bytes {
            self.bytes[at as usize % RING_BYTES].write(*byte);
            at += 1;
            // Published byte by byte: the reader must never take a byte for newer than it is.
            self.written.write(at);
        }
    }
}

fn publish() {
    if cores::this_core() != 0 {
        // Core 0 and slot 0 exist, so this cannot be refused.
        mailbox::post(0, mailbox::LOG_SLOT);
    }
}

/// Core 0, when slot [`mailbox::LOG_SLOT`] came up: prints what the other cores have written.
pub fn drain() {
    let cores = crate::hardware::machine().core_count;
    PRINTED.with(|printed| {
        for (core, (start, position)) in printed.iter_mut().enumerate().take(cores).skip(1) {
            // SAFETY: the ring of another core, live for ever; all fields are for others to read.
            if let Some(ring) = instance::remote(core, &raw const RING).map(|ring| unsafe { &*ring }) {
                let written = ring.written.read();
                let known = core::mem::replace(start, ring.start.read());
                let from = if known == *start { *position } else { 0 };
                *position = print_ring(ring, from.min(written), written, core);
            }
        }
    });
}

/// Prints `ring` from `position` to the last whole line before `written`; returns the new position.
fn print_ring(ring: &Ring, mut position: u64, written: u64, core: usize) -> u64 {
    if written - position > RING_BYTES as u64 {
        let _ = fmt::write(&mut serial::Direct, format_args!("pelago: log of core {core} overran\n"));
        position = written - RING_BYTES as u64;
    }
    let mut line = [0; 128];
    let mut filled = 0;
    let last_line_end = (position..written).rev().find(|at| byte_at(ring, *at) == b'\n').map_or(position, |at| at + 1);
    for at in position..last_line_end {
        line[filled] = byte_at(ring, at);
        filled += 1;
        if filled == line.len() || at + 1 == last_line_end {
            serial::write(&line[..filled]);
            filled = 0;
        }
    }
    last_line_end
}

fn byte_at(ring: &Ring, at: u64) -> u8 {
    ring.bytes[at as usize % RING_BYTES].read()
}
