//! Counters of this core, as `CounterRead` shows them.

use abi::layout::counter;
use core::num::Wrapping;

macro_rules! counters {
    ($($name:ident = $index:ident,)*) => {
        /// What is counted, without end (so without the checks that other sums have);
        /// `abi::layout::counter` says what each means.
        #[derive(Default)]
        #[allow(missing_docs)]
        pub struct Counters { $(pub $name: Wrapping<u64>,)* }

        impl Counters {
            /// All zero.
            pub const fn new() -> Counters {
                Counters { $($name: Wrapping(0),)* }
            }

            /// The value of a counter of `abi::layout::counter`, but for `KERNEL_PAGES`, which is
            /// that of the frames.
            pub fn get(&self, index: u64) -> Option<u64> {
                match index { $(counter::$index => Some(self.$name.0),)* _ => None }
            }
        }
    };
}

counters! {
    calls = CALLS,
    linux_calls = LINUX_CALLS,
    soft_faults = SOFT_FAULTS,
    copy_faults = COPY_FAULTS,
    hard_faults = HARD_FAULTS,
    interrupts = INTERRUPTS,
    wakes_sent = WAKES_SENT,
    wakes_taken = WAKES_TAKEN,
    switches = SWITCHES,
    space_switches = SPACE_SWITCHES,
    idles = IDLES,
    idle_ns = IDLE_NS,
    kernel_ns = KERNEL_NS,
    portal_calls = PORTAL_CALLS,
    shootdowns_sent = SHOOTDOWNS_SENT,
    shootdowns_serviced = SHOOTDOWNS_SERVICED,
}
