//! The clock page: made and kept right by core 0's monitor, borrowed by the others'.
//!
//! Invariants: the page has one writer; readers wait for nobody. The real-time clock is
//! looked at a few times a minute, and never waited for.

use abi::clock::Setting;
use abi::layout::segment;
use abi::{ClockPage, Error, Handle, Rights};
use monitor_core::Facts;
use monitor_core::offset::{ClockDiscipline, Look, Offset, REST_NS, at_boot, parse_time};
use runtime::{Start, now_ns};

use crate::kernel_calls::RealTimeClock;
use crate::link;

/// Finds or makes the page, for all domains to come.
pub fn start(start: &Start, facts: &mut Facts, command_line: &[u8]) -> Result<(), Error> {
    (facts.clock_page, facts.clock_place) = match link::clock_place(start) {
        Some(place) => {
            let page = sys::segment_import(Handle::PCORE, Handle::ROOT_RAM, place, 1, 0)?;
            (Some(page), place)
        }
        None => {
            let (page, place) = sys::segment_alloc(Handle::ROOT_RAM, 1, segment::CONTIGUOUS)?;
            keep(page, since_power_on_ns(facts), command_line)?;
            (Some(page), place)
        }
    };
    Ok(())
}

/// How long the machine ran before its kernel did: the counter starts with it, or with its
/// emulator. One that tells of more than a minute started before.
fn since_power_on_ns(facts: &Facts) -> u64 {
    let [_, tsc_at_boot, ns_per_tick] = facts.tsc;
    let ns = (u128::from(tsc_at_boot) * u128::from(ns_per_tick)) >> 32;
    if ns < u128::from(REST_NS) { ns as u64 } else { 0 }
}

/// What the machine's owner said of the time when it was started: `time=SECONDS`.
fn told_ns(command_line: &[u8]) -> Option<u64> {
    let mut words = command_line.split(|byte| *byte == b' ');
    words.find_map(|word| word.strip_prefix(b"time=")).and_then(parse_time)
}

/// Writes the page, now and while the monitor lives.
fn keep(page: Handle, since_power_on_ns: u64, command_line: &[u8]) -> Result<(), Error> {
    // The mapping takes a capability of its own.
    let own = sys::cap_copy(page, Rights::READ.union(Rights::WRITE))?;
    let (address, _, keeper) = runtime::map_segment(own)?;
    // For the monitor's life.
    core::mem::forget(keeper);
    // SAFETY: mapped for good, zeros are a page without settings, and nobody else writes.
    let page = unsafe { &*(address as *const ClockPage) };
    let told = told_ns(command_line).map(|ns| ns.saturating_add(since_power_on_ns) as i64);
    let clock = RealTimeClock::claim().and_then(|clock| clock.look().map(|look| (clock, look)));
    let offset = clock.as_ref().map(|(_, look)| Offset::new(*look));
    let begun = at_boot(offset, told);
    if begun.is_none() {
        runtime::log!("the machine has no clock: time starts at 1970; give time=SECONDS on the kernel's command line");
    }
    page.set(Setting::new(0, begun.map_or(0, |begun| begun.offset_ns.max(0) as u64)));
    if let (Some((clock, look)), Some(begun)) = (clock, begun) {
        runtime::spawn(follow(page, clock, look, begun.may_lag));
    }
    Ok(())
}

/// Keeps the page by the machine's clock.
async fn follow(page: &'static ClockPage, clock: RealTimeClock, first: Look, may_lag: bool) {
    let (mut offset, mut discipline) = (Offset::new(first), ClockDiscipline::new(may_lag));
    loop {
        runtime::sleep_until(offset.next_look_ns(now_ns())).await;
        // A clock that tells nonsense for once is asked again.
        match clock.look() {
            Some(look) => offset.look(look),
            None => runtime::sleep(REST_NS).await,
        }
        if offset.is_settled()
            && let Some(setting) = discipline.correct(&offset, page.setting(), now_ns())
        {
            page.set(setting);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_a_word_of_the_command_line() {
        for line in [&b"time=7.5"[..], b"quiet time=7.5", b"time=7.5 time=9", b"xtime=1 time=7.5 quiet"] {
            assert_eq!(told_ns(line), Some(7_500_000_000));
        }
        for line in [&b""[..], b"quiet", b"time", b"time=", b"time=x", b"quiet,time=7"] {
            assert_eq!(told_ns(line), None);
        }
    }

    #[test]
    fn time_since_power_on_counts_unless_the_counter_is_older_than_the_machine() {
        // A tick is half a nanosecond.
        let after = |ns: u64| Facts { tsc: [2_000_000_000, 2 * ns, 1 << 31], ..Facts::default() };
        for ns in [0, 700_000_000, REST_NS - 1] {
            assert_eq!(since_power_on_ns(&after(ns)), ns);
        }
        for ns in [REST_NS, REST_NS + 1, 90 * REST_NS, u64::MAX / 2] {
            assert_eq!(since_power_on_ns(&after(ns)), 0, "{ns}");
        }
    }
}
