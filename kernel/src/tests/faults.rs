//! Faults of programs: what is resolved, what ends a program, and what is told of it.

use super::pcores::Caller;
use crate::arch::context::Event;
use crate::hardware::{self, Flush};
use abi::{Call, ExceptionInfo, Handle, layout};

/// A write of a program to a page that is not there.
const WRITE: u64 = 6;
const PAGE: u64 = abi::PAGE_BYTES;

/// A program with three pages that nobody has touched yet.
fn with_pages() -> Caller {
    let mut caller = Caller::new();
    let segment = caller.call(Call::SegmentAlloc, [Handle::ROOT_RAM.0, 3, 0, 0, 0, 0]).unwrap()[0];
    let open = layout::protection::READ | layout::protection::WRITE;
    caller.call(Call::RangeMap, [Handle::SELF_RANGE.0, layout::HEAP, segment, 0, 3, open]).unwrap();
    hardware::take_lines();
    caller
}

fn fault(caller: &mut Caller, vector: u8, address: u64) {
    caller.world.kernel.step(Event::Exception { vector, error: WRITE, address });
}

/// What was told of faults since the last question: exception and address.
fn told() -> Vec<String> {
    let lines = hardware::take_lines();
    let faults = lines.iter().filter_map(|line| line.strip_prefix("pelago: test (domain ")?.split_once(") "));
    faults.map(|(_, what)| what.to_string()).collect()
}

#[test]
fn a_page_that_a_program_touches_is_there_and_is_counted_to_it() {
    let mut caller = with_pages();
    let (soft, hard) = (caller.world.kernel.counters.soft_faults.0, caller.world.kernel.counters.hard_faults.0);
    for page in 0..3 {
        fault(&mut caller, 14, layout::HEAP + page * PAGE + 8);
        assert_eq!(caller.context.domain().soft_faults.get(), page + 1);
    }
    let counters = &caller.world.kernel.counters;
    assert_eq!((counters.soft_faults.0, counters.hard_faults.0), (soft + 3, hard));
    assert!(caller.context.domain().is_alive() && told().is_empty());
}

#[test]
fn a_fault_that_nobody_resolves_ends_its_program_and_is_told() {
    for (vector, address) in [(14, layout::HEAP + 3 * PAGE), (13, 0), (0, 0)] {
        let mut caller = with_pages();
        let hard = caller.world.kernel.counters.hard_faults.0;
        let domain = caller.context.domain();
        caller.world.kernel.retain(domain);
        fault(&mut caller, vector, address);
        assert!(!domain.is_alive());
        assert_eq!(caller.world.kernel.counters.hard_faults.0, hard + 1);
        let line = format!("exception {vector} error 0x6 address {address:#x} rip 0x1000 rsp 0x2000");
        assert_eq!(told(), [line]);
        caller.world.kernel.release(domain);
    }
}

/// It did nothing wrong: that is another exception than a bad address.
#[test]
fn a_program_that_gets_no_memory_is_told_so() {
    let mut caller = with_pages();
    while caller.world.kernel.frames.allocate_run(1).is_some() {}
    fault(&mut caller, 14, layout::HEAP);
    let line = format!("exception {} error 0x6 address {:#x} ", ExceptionInfo::NO_MEMORY, layout::HEAP);
    assert!(matches!(&told()[..], [one] if one.starts_with(&line)));
}

/// Its tables may be gone next.
#[test]
fn the_kernels_own_space_is_loaded_before_a_programs_is_destroyed() {
    let mut caller = Caller::new();
    hardware::take_flushes();
    caller.world.kernel.load_kernel_space();
    assert_eq!((hardware::take_flushes(), caller.world.kernel.loaded.is_none()), (vec![Flush::All], true));
}
