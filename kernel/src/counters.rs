//! Counters of this core, as `CounterRead` shows them.

use crate::state::Kernel;
use abi::layout::counter;

/// What is counted; `abi::layout::counter` says what each means.
#[derive(Default)]
#[allow(missing_docs)]
pub struct Counters {
    pub calls: u64,
    pub linux_calls: u64,
    pub soft_faults: u64,
    pub copy_faults: u64,
    pub hard_faults: u64,
    pub interrupts: u64,
    pub wakes_sent: u64,
    pub wakes_taken: u64,
    pub switches: u64,
    pub space_switches: u64,
    pub idles: u64,
    pub idle_ns: u64,
    pub portal_calls: u64,
    pub forgets_asked: u64,
    pub forgets_done: u64,
}

impl Counters {
    /// All zero.
    pub const fn new() -> Counters {
        Counters {
            calls: 0,
            linux_calls: 0,
            soft_faults: 0,
            copy_faults: 0,
            hard_faults: 0,
            interrupts: 0,
            wakes_sent: 0,
            wakes_taken: 0,
            switches: 0,
            space_switches: 0,
            idles: 0,
            idle_ns: 0,
            portal_calls: 0,
            forgets_asked: 0,
            forgets_done: 0,
        }
    }
}

impl Kernel {
    /// The value of a counter of `abi::layout::counter`.
    pub fn counter(&self, index: u64) -> Option<u64> {
        let counters = &self.counters;
        Some(match index {
            counter::CALLS => counters.calls,
            counter::LINUX_CALLS => counters.linux_calls,
            counter::SOFT_FAULTS => counters.soft_faults,
            counter::COPY_FAULTS => counters.copy_faults,
            counter::HARD_FAULTS => counters.hard_faults,
            counter::INTERRUPTS => counters.interrupts,
            counter::WAKES_SENT => counters.wakes_sent,
            counter::WAKES_TAKEN => counters.wakes_taken,
            counter::SWITCHES => counters.switches,
            counter::SPACE_SWITCHES => counters.space_switches,
            counter::IDLES => counters.idles,
            counter::IDLE_NS => counters.idle_ns,
            counter::PORTAL_CALLS => counters.portal_calls,
            counter::FORGETS_ASKED => counters.forgets_asked,
            counter::FORGETS_DONE => counters.forgets_done,
            counter::KERNEL_PAGES => self.frames.total() - self.frames.free(),
            _ => return None,
        })
    }
}
