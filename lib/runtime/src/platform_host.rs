//! On a host: a clock that jumps, so that tests take no time and always the same one.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt::Arguments;
use std::{eprintln, thread_local};

use abi::ClockPage;
use abi::start::StartHeader;
use executor::Platform;

thread_local! {
    static NOW_NS: Cell<u64> = const { Cell::new(1_000_000) };
    /// What was written to the log since a test began to keep it.
    static LINES: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

pub struct Machine;

impl Platform for Machine {
    fn now_ns(&self) -> u64 {
        now_ns()
    }

    /// Nobody else has the processor.
    fn ran_ticks(&self) -> u64 {
        executor::ticks()
    }

    /// Nothing comes from outside, so time jumps to the deadline.
    fn wait(&self, deadline_ns: u64) -> u64 {
        assert!(deadline_ns != u64::MAX, "the test waits for something that can never happen");
        NOW_NS.set(deadline_ns.max(now_ns()));
        0
    }
}

/// An empty start page.
pub fn header() -> &'static StartHeader {
    static HEADER: StartHeader = StartHeader {
        magic: abi::start::MAGIC,
        name: [0; 32],
        generation: 1,
        entrance: 0,
        core: 0,
        cores: 1,
        tsc_hz: 1_000_000_000,
        tsc_at_boot: 0,
        tsc_to_ns_mul: 1 << 32,
        clock_page: 0,
        domain_id: 1,
        record_count: 0,
    };
    &HEADER
}

/// There is none.
pub fn clock_page() -> Option<&'static ClockPage> {
    None
}

/// Virtual nanoseconds. Each look costs one, so that polling loops end.
pub fn now_ns() -> u64 {
    NOW_NS.set(NOW_NS.get() + 1);
    NOW_NS.get()
}

/// A tick is a nanosecond.
pub fn to_ns(ticks: u64) -> u64 {
    ticks
}

/// What `log!` calls.
pub fn log_line(arguments: Arguments<'_>) {
    eprintln!("{arguments}");
    LINES.with_borrow_mut(|lines| lines.iter_mut().for_each(|lines| lines.push(arguments.to_string())));
}

/// Begins to keep the log's lines, or ends it; gives what was kept.
pub fn keep_lines(keeps: bool) -> Vec<String> {
    LINES.replace(keeps.then(Vec::new)).unwrap_or_default()
}
