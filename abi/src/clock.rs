//! The clock page: the time of day, for everybody who reads it without a call.
//!
//! Core 0's monitor alone writes it; every domain sees it read-only at `layout::CLOCK_PAGE`. It
//! tells how the time of day follows from the time since boot, which alarms go by and which nobody
//! changes. A new setting goes into the half that is not in force, and then into force at once, so
//! a reader waits for nobody.
//!
//! Invariants: a setting begins where the one before it stands, or ahead of that: the time of day
//! never goes back. It runs at most 1/20 faster and 1/2000 slower than time since boot.

use core::sync::atomic::{AtomicU64, Ordering, fence};

const SECOND_NS: i64 = 1_000_000_000;
/// An error is slewed away in so much time, or longer.
const SLEW_NS: i64 = 10 * SECOND_NS;
/// What is further behind is set at once: the machine was suspended, or the clock it goes by set.
const STEP_NS: i64 = 10 * SECOND_NS;
/// Of a second, how much may be caught up in it, and how much may be waited.
const FASTEST: i64 = SECOND_NS / 20;
const SLOWEST: i64 = SECOND_NS / 2000;

/// How the time of day follows from the time since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// A time since boot, and the time of day then, in nanoseconds since 1970.
    pub from_ns: u64,
    pub day_ns: u64,
    /// From then on until this time since boot, the time of day goes by another rate.
    pub until_ns: u64,
    /// By how much faster (or, below 0, slower), times 2^32.
    pub slew: i64,
}

impl Setting {
    /// The time of day is `day_ns` at `from_ns`, and runs as time since boot does.
    pub const fn new(from_ns: u64, day_ns: u64) -> Setting {
        Setting { from_ns, day_ns, until_ns: from_ns, slew: 0 }
    }

    /// What the rate makes of so much time.
    const fn slewed(&self, ns: u64) -> i64 {
        ((ns as i128 * self.slew as i128) >> 32) as i64
    }

    /// The time of day at a time since boot, which is not before the setting.
    #[inline]
    pub fn day_at(&self, now_ns: u64) -> u64 {
        let passed_ns = now_ns.saturating_sub(self.from_ns);
        let slewed_ns = passed_ns.min(self.until_ns.saturating_sub(self.from_ns));
        self.day_ns.saturating_add(passed_ns).saturating_add_signed(self.slewed(slewed_ns))
    }

    /// The first time since boot at which the time of day is `day_ns`, or the setting's own if that
    /// was before it.
    pub fn moment(&self, day_ns: u64) -> u64 {
        let wanted_ns = day_ns.saturating_sub(self.day_ns);
        let span_ns = self.until_ns.saturating_sub(self.from_ns);
        let in_span = (u128::from(wanted_ns) << 32).div_ceil(((1 << 32) + i128::from(self.slew)) as u128) as u64;
        let passed_ns =
            if in_span <= span_ns { in_span } else { wanted_ns.saturating_add_signed(-self.slewed(span_ns)) };
        self.from_ns.saturating_add(passed_ns)
    }

    /// How far the time of day is from time since boot when it runs as that does again.
    pub fn settled_ns(&self, now_ns: u64) -> i64 {
        let at_ns = now_ns.max(self.until_ns);
        self.day_at(at_ns) as i64 - at_ns as i64
    }

    /// What is to be in force from `now_ns` on, if the time of day should be `offset_ns` from time
    /// since boot.
    pub fn towards(&self, now_ns: u64, offset_ns: i64) -> Setting {
        let day_ns = self.day_at(now_ns);
        let error_ns = offset_ns.saturating_sub(day_ns as i64 - now_ns as i64);
        if error_ns > STEP_NS {
            return Setting::new(now_ns, day_ns.saturating_add_signed(error_ns));
        }
        let most = if error_ns > 0 { FASTEST } else { SLOWEST };
        let span_ns = (error_ns.unsigned_abs() as u128 * SECOND_NS as u128 / most as u128).max(SLEW_NS as u128);
        let slew = ((i128::from(error_ns) << 32) / span_ns as i128) as i64;
        Setting { from_ns: now_ns, day_ns, until_ns: now_ns.saturating_add(span_ns as u64), slew }
    }
}

/// See the module's head.
#[derive(Debug, Default)]
#[repr(C)]
pub struct ClockPage {
    /// Counts settings; its lowest bit tells which half is in force.
    version: AtomicU64,
    halves: [[AtomicU64; 4]; 2],
}

impl ClockPage {
    /// The setting in force.
    #[inline]
    pub fn setting(&self) -> Setting {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let [from_ns, day_ns, until_ns, slew] =
                self.halves[version as usize & 1].each_ref().map(|word| word.load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            // Both halves were written meanwhile only if this reader stood still for long.
            if self.version.load(Ordering::Relaxed) == version {
                return Setting { from_ns, day_ns, until_ns, slew: slew as i64 };
            }
        }
    }

    /// Puts a setting into force; of the page's one writer.
    pub fn set(&self, setting: Setting) {
        let version = self.version.load(Ordering::Relaxed).wrapping_add(1);
        // A reader that sees a new word sees that the version it read is over.
        fence(Ordering::Release);
        let words = [setting.from_ns, setting.day_ns, setting.until_ns, setting.slew as u64];
        for (word, value) in self.halves[version as usize & 1].iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        self.version.store(version, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 1_795_383_516_000_000_000;
    const MS: i64 = 1_000_000;

    #[test]
    fn an_error_is_slewed_away_and_the_clock_never_goes_back() {
        for error_ns in [0, 1, -1, MS, -MS, 400 * MS, -400 * MS, STEP_NS, -3 * STEP_NS] {
            let before = Setting::new(5, DAY);
            let now_ns = 70_000_000_123;
            let wanted_ns = before.settled_ns(now_ns) + error_ns;
            let after = before.towards(now_ns, wanted_ns);
            assert_eq!(after.day_at(now_ns), before.day_at(now_ns), "{error_ns}");
            // The rate is rounded.
            let rounded_ns = ((after.until_ns - now_ns) >> 32) as i64 + 1;
            assert!((after.settled_ns(now_ns) - wanted_ns).abs() <= rounded_ns, "{error_ns}: {after:?}");
            let step_ns = (after.until_ns - now_ns) / 1000;
            let mut last = after.day_at(now_ns);
            for number in 1..1200 {
                let day_ns = after.day_at(now_ns + number * step_ns);
                let passed_ns = (day_ns - last) as i64;
                let most_ns = step_ns as i64 / SECOND_NS * FASTEST + step_ns as i64 % SECOND_NS * FASTEST / SECOND_NS;
                assert!(passed_ns - step_ns as i64 <= most_ns + 1, "{error_ns}: too fast");
                assert!(step_ns as i64 - passed_ns <= most_ns / 100 + 1, "{error_ns}: too slow");
                last = day_ns;
            }
        }
    }

    #[test]
    fn an_error_is_slewed_away_in_ten_seconds_or_more_unless_it_is_more_than_that() {
        let before = Setting::new(5, DAY);
        let towards = |error_ns| before.towards(1000, before.settled_ns(1000) + error_ns);
        for error_ns in [1, -1, MS, -MS, 9_999 * MS, 10_000 * MS] {
            assert!(towards(error_ns).until_ns >= 1000 + 10_000_000_000, "{error_ns}");
        }
        assert_eq!(towards(MS).until_ns, 1000 + 10_000_000_000);
        assert_eq!(towards(10_001 * MS), Setting::new(1000, DAY + 995 + 10_001_000_000));
    }

    #[test]
    fn what_is_far_behind_is_set_at_once() {
        let before = Setting::new(5, DAY);
        let after = before.towards(1000, before.settled_ns(1000) + 3600 * SECOND_NS);
        assert_eq!(after, Setting::new(1000, DAY + 995 + 3600 * SECOND_NS as u64));
    }

    #[test]
    fn a_moment_is_the_first_at_which_the_clock_shows_its_time() {
        let before = Setting::new(5, DAY);
        for error_ns in [0, 300 * MS, -3 * MS] {
            let after = before.towards(1_000_000, before.settled_ns(1_000_000) + error_ns);
            for after_ns in [0, 1, 999, 5 * SECOND_NS as u64, 10 * SECOND_NS as u64, 60 * SECOND_NS as u64] {
                let day_ns = after.day_ns + after_ns;
                let moment = after.moment(day_ns);
                assert!(after.day_at(moment) >= day_ns, "{error_ns} {after_ns}");
                assert!(moment <= after.from_ns + 1 || after.day_at(moment - 2) < day_ns, "{error_ns} {after_ns}");
            }
            assert_eq!(after.moment(3), after.from_ns);
        }
    }

    #[test]
    fn a_slew_under_way_is_taken_over() {
        let first = Setting::new(0, DAY).towards(0, DAY as i64 + 400 * MS);
        let now_ns = 3 * SECOND_NS as u64;
        let second = first.towards(now_ns, DAY as i64 + 400 * MS);
        assert_eq!(second.day_at(now_ns), first.day_at(now_ns));
        assert!((second.settled_ns(now_ns) - (DAY as i64 + 400 * MS)).abs() <= 20, "{second:?}");
    }

    #[test]
    fn a_page_shows_what_was_set_last() {
        let page = ClockPage::default();
        assert_eq!(page.setting(), Setting::default());
        for number in 0..5 {
            let setting = Setting { from_ns: number, day_ns: DAY, until_ns: number + 1, slew: -(number as i64) };
            page.set(setting);
            assert_eq!(page.setting(), setting);
        }
    }
}
