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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware;
    use crate::tests::machine::Played;

    /// What core 0 printed since the last question.
    fn printed() -> String {
        let bytes = hardware::take_port_writes().into_iter().filter(|(port, _)| *port == 0x3f8).map(|(_, byte)| byte);
        String::from_utf8(bytes.collect()).unwrap()
    }

    fn new_ring() -> Box<Ring> {
        Box::new(Ring { start: Word::new(), written: Word::new(), bytes: [const { Byte::new() }; RING_BYTES] })
    }

    /// The ring of a core that the test plays.
    fn of(core: usize) -> &'static Ring {
        // SAFETY: memory that the test's machine plays, and zeros are an empty ring.
        unsafe { &*instance::remote(core, &raw const RING).unwrap() }
    }

    #[test]
    fn core_0_prints_at_once() {
        let _alone = Played::new(|_| ());
        printed();
        write_line(format_args!("{} and {}", 1, 2));
        write_user(b"as it is\xff");
        let bytes: Vec<u8> = hardware::take_port_writes().into_iter().map(|(_, byte)| byte).collect();
        assert_eq!(bytes, b"1 and 2\nas it is\xff");
        assert!(RING.written.read() == 0 && mailbox::is_empty(), "it has nothing to tell itself");
    }

    #[test]
    fn whole_lines_of_a_ring_are_printed_and_the_rest_waits() {
        printed();
        let ring = new_ring();
        ring.write(b"one\ntwo\nthr", 5);
        assert_eq!((ring.start.read(), ring.written.read()), (5, 11));
        assert_eq!((print_ring(&ring, 0, 11, 1), printed().as_str()), (8, "one\ntwo\n"));
        assert_eq!((print_ring(&ring, 8, 11, 1), printed().as_str()), (8, ""));
        ring.write(b"ee\n", 6);
        assert_eq!((ring.start.read(), ring.written.read()), (5, 14), "it did not start anew");
        assert_eq!((print_ring(&ring, 8, 14, 1), printed().as_str()), (14, "three\n"));
        assert_eq!((print_ring(&ring, 14, 14, 1), printed().as_str()), (14, ""));
    }

    /// A ring takes up again at its beginning; what its writer laps is lost, which is said.
    #[test]
    fn a_writer_that_laps_the_reader_loses_the_oldest() {
        printed();
        let ring = new_ring();
        let line = |number: usize| format!("line {number:0>94}\n");
        let text: String = (0..82).map(line).collect();
        ring.write(text.as_bytes(), 1);
        let full = RING_BYTES as u64;
        assert_eq!((text.len(), ring.written.read()), (8200, 8200));
        assert_eq!(print_ring(&ring, 8, 8200, 3), 8200);
        assert_eq!(printed(), text[8..], "that is all of a ring");
        assert_eq!(print_ring(&ring, 7, 8200, 3), 8200);
        assert_eq!(printed(), format!("pelago: log of core 3 overran\n{}", &text[8..]));
        ring.write(text.as_bytes(), 1);
        assert_eq!(print_ring(&ring, 8200, 16_400, 1), 16_400);
        assert_eq!(printed(), format!("pelago: log of core 1 overran\n{}", &text[8200 - full as usize..]));
    }

    /// Lines of any length are printed as they are.
    #[test]
    fn long_lines_are_printed_whole() {
        for bytes in [126, 127, 128, 129, 255, 256, 1000] {
            printed();
            let ring = new_ring();
            let text = "0123456789".repeat(100)[..bytes].to_string() + "\n";
            ring.write(text.as_bytes(), 1);
            assert_eq!((print_ring(&ring, 0, bytes as u64 + 1, 1), printed()), (bytes as u64 + 1, text));
        }
    }

    #[test]
    fn each_core_is_printed_once_and_anew_when_it_started_anew() {
        let _machine = Played::of_cores(3, &raw const RING);
        PRINTED.with(|printed| *printed = [(0, 0); CORES_MAX]);
        printed();
        of(1).write(b"first of 1\n", 100);
        of(2).write(b"first of 2\nand more", 200);
        drain();
        assert_eq!(printed(), "first of 1\nfirst of 2\n");
        drain();
        assert_eq!(printed(), "");
        of(2).write(b" of it\n", 200);
        drain();
        assert_eq!(printed(), "and more of it\n");
        // It started again: its ring begins anew, with less in it than before, and with more.
        for text in ["again\n", "again, and with more than the ring before\n"] {
            of(1).written.write(0);
            of(1).write(text.as_bytes(), 100 + text.len() as u64);
            drain();
            assert_eq!(printed(), text);
        }
        // One that began a ring and wrote nothing yet.
        of(1).written.write(0);
        drain();
        assert_eq!(printed(), "");
        PRINTED.with(|printed| *printed = [(0, 0); CORES_MAX]);
    }
}
