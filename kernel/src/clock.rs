//! Arithmetic of the clock and the timer, without the machine: the host's tests and the fuzzer run
//! this code too.
//!
//! Invariant: deadlines saturate. A timer that is wanted is never encoded as 0, which switches the
//! hardware's off, however far away it is.

/// Ticks of the PIT per second.
pub const PIT_HZ: u64 = 1_193_182;

/// The PIT's count, which runs down and goes round, with the TSC at the same time.
#[derive(Clone, Copy, Debug, Default)]
pub struct PitSample {
    /// What the PIT has left to count.
    pub count: u16,
    /// The TSC.
    pub tsc: u64,
}

/// PIT ticks from `first` to `last`. The PIT may have gone round many times (each 55 ms); how often
/// the TSC tells, whose rate is `rough_hz`, right to 0.1 %, for up to 20 s.
pub fn pit_ticks(first: PitSample, last: PitSample, rough_hz: u64) -> u64 {
    const ROUND: u64 = 1 << 16;
    let about = scale_far(last.tsc.saturating_sub(first.tsc), ratio(PIT_HZ, rough_hz));
    let rest = u64::from(first.count.wrapping_sub(last.count));
    let rounds = (about + ROUND / 2).saturating_sub(rest) / ROUND;
    rounds * ROUND + rest
}

/// The TSC's rate from `first` to `last`, whose rate is `rough_hz` roughly.
pub fn tsc_hz(first: PitSample, last: PitSample, rough_hz: u64) -> u64 {
    let ticks = u128::from(last.tsc.saturating_sub(first.tsc));
    match pit_ticks(first, last, rough_hz) {
        0 => rough_hz,
        pit_ticks => saturate(ticks * u128::from(PIT_HZ) / u128::from(pit_ticks)),
    }
}

/// 32.32 fixed-point `to / from`; an impossible rate of 0 counts as 1.
pub const fn ratio(to: u64, from: u64) -> u64 {
    let from = if from == 0 { 1 } else { from };
    saturate(((to as u128) << 32) / from as u128)
}

/// `ticks` times a 32.32 fixed-point rate, if that is below 2^64: nanoseconds since the start are
/// for 584 years.
#[inline(always)]
pub const fn scale(ticks: u64, rate: u64) -> u64 {
    ((ticks as u128 * rate as u128) >> 32) as u64
}

/// The same for any numbers.
const fn scale_far(ticks: u64, rate: u64) -> u64 {
    saturate((ticks as u128 * rate as u128) >> 32)
}

const fn saturate(value: u128) -> u64 {
    if value > u64::MAX as u128 { u64::MAX } else { value as u64 }
}

/// The value of the TSC-deadline register for a timer at `at_ns` of the kernel's clock. One beyond
/// what the counter can reach is set to its end.
pub fn tsc_deadline(boot_tsc: u64, at_ns: u64, ticks_per_ns: u64) -> u64 {
    let value = boot_tsc.saturating_add(scale_far(at_ns, ticks_per_ns).max(1));
    assert!(value != 0, "0 switches the timer off");
    value
}

/// The initial count of the count-down timer for a timer `after_ns` from now. One beyond its range
/// fires early.
pub fn timer_count(after_ns: u64, hz: u64) -> u32 {
    scale_far(after_ns, ratio(hz, 1_000_000_000)).clamp(1, u64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const GHZ_2_4: u64 = 2_400_000_000;
    const BILLION: u64 = 1_000_000_000;

    #[test]
    fn rates_are_kept_for_an_hour() {
        let hour = scale(GHZ_2_4 * 3600, ratio(BILLION, GHZ_2_4));
        assert!(hour.abs_diff(3600 * BILLION) < 3600 * 2, "{hour}");
    }

    /// A PIT and a TSC `ns` after the machine's start.
    fn pit(ns: u64) -> PitSample {
        let ticks = u128::from(ns) * u128::from(PIT_HZ) / u128::from(BILLION);
        let tsc = 77 + u128::from(ns) * u128::from(GHZ_2_4) / u128::from(BILLION);
        PitSample { count: 0xfff0u16.wrapping_sub(ticks as u16), tsc: tsc as u64 }
    }

    #[test]
    fn the_rate_is_found_however_often_the_pit_goes_round() {
        for (thousandths, ms) in
            [999, 1000, 1001].iter().flat_map(|part| (4..20_000).step_by(13).map(move |ms| (part, ms)))
        {
            let (first, last) = (pit(123_456), pit(123_456 + ms * 1_000_000));
            let rough_hz = GHZ_2_4 / 1000 * thousandths;
            let found = tsc_hz(first, last, rough_hz);
            // A tick of the PIT is 838 ns.
            let most = 840 * GHZ_2_4 / (ms * 1_000_000);
            assert!(found.abs_diff(GHZ_2_4) <= most, "{found} after {ms} ms, from {rough_hz}");
        }
        assert_eq!(tsc_hz(pit(5), pit(5), 123), 123);
    }

    #[test]
    fn results_saturate() {
        assert_eq!(scale(u64::MAX, ratio(1, 1)), u64::MAX);
        assert_eq!(scale_far(u64::MAX, ratio(2, 1)), u64::MAX);
        assert_eq!(scale_far(u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(scale_far(0, u64::MAX), 0);
        assert_eq!(ratio(u64::MAX, 0), u64::MAX);
    }

    #[test]
    fn a_deadline_is_neither_past_nor_off() {
        for boot in [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
            for rate in [1, ratio(BILLION / 4, BILLION), ratio(GHZ_2_4, BILLION), ratio(7 * BILLION, BILLION)] {
                let mut last = 0;
                let edges = [0, 1, BILLION, 1 << 61, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, u64::MAX - 1];
                for at_ns in edges {
                    let value = tsc_deadline(boot, at_ns, rate);
                    assert!(value >= last.max(boot) && value > 0, "{boot} {rate} {at_ns}");
                    last = value;
                }
            }
        }
        // Whatever a wrapped sum or a truncated product would give is long past.
        let far = tsc_deadline(BILLION, 1 << 63, ratio(GHZ_2_4, BILLION));
        assert_eq!(far, u64::MAX);
        assert!(tsc_deadline(BILLION, u64::MAX / 3, ratio(GHZ_2_4, BILLION)) > u64::MAX / 3 * 2);
    }

    #[test]
    fn a_count_is_in_range() {
        assert_eq!(timer_count(0, BILLION), 1);
        assert_eq!(timer_count(1000, BILLION), 1000);
        assert_eq!(timer_count(u64::MAX, BILLION), u32::MAX);
        assert_eq!(timer_count(u64::MAX, u64::MAX), u32::MAX);
        // One cut to the register's bits would fire at once, or never.
        assert_eq!([1 << 50, 1 << 63].map(|far| timer_count(far, 62_500_000)), [u32::MAX; 2]);
    }
}
