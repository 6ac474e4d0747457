//! How far the real-time clock is from time since boot, found out by looking at it now and then.
//!
//! The clock tells whole seconds. A look at it bounds the offset: it had not begun the next second
//! before the look, and had begun this one after it. Looks around the expected beginning of a
//! second halve the bounds each time; between looks they move apart, as the two clocks may. So
//! nobody waits for a second to begin, and a look that was late costs accuracy and nothing else.
//!
//! Invariants: the offset lies within the bounds as long as the clocks' rates differ by less than
//! [`DRIFT_PER_MILLION`] and nobody sets the clock; if somebody does, the bounds begin anew.
//! Deliberately unknown here: what the time of day is made of the offset.

use abi::clock::Setting;

const SECOND_NS: u64 = 1_000_000_000;
/// How far apart two clocks run: crystals are within 50 of a million, and so is what boot found
/// of the counter's rate.
const DRIFT_PER_MILLION: u64 = 100;
/// Bounds so close will do; an update of the clock takes as long.
const CLOSE_NS: i64 = 2_000_000;
/// After so many looks in a row a clock is left alone for a while, however far apart the bounds.
const LOOKS_MAX: u32 = 16;
/// How long it is left alone.
pub const REST_NS: u64 = 60 * SECOND_NS;
/// A look comes so much before the moment it is for.
const EARLY_NS: u64 = 200_000;

/// What one look saw.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Before the look, since boot.
    pub before_ns: u64,
    /// After it.
    pub after_ns: u64,
    /// What the clock told, since 1970.
    pub seconds: u64,
}

impl Look {
    /// The least and the most that the clock can be ahead of time since boot.
    fn bounds_ns(self) -> [i64; 2] {
        let second_ns = self.seconds.saturating_mul(SECOND_NS) as i64;
        [second_ns - self.after_ns as i64, second_ns.saturating_add(SECOND_NS as i64) - self.before_ns as i64]
    }
}

/// See the module's head.
#[derive(Clone, Copy, Debug)]
pub struct Offset {
    bounds_ns: [i64; 2],
    seen_ns: u64,
    looks: u32,
}

impl Offset {
    /// As the first look tells.
    pub fn new(look: Look) -> Offset {
        Offset { bounds_ns: look.bounds_ns(), seen_ns: look.after_ns, looks: 1 }
    }

    /// The bounds.
    pub fn bounds_ns(&self) -> [i64; 2] {
        self.bounds_ns
    }

    /// Whether the bounds will do, until after the next rest.
    pub fn is_settled(&self) -> bool {
        self.bounds_ns[1] - self.bounds_ns[0] <= CLOSE_NS || self.looks >= LOOKS_MAX
    }

    fn middle_ns(&self) -> i64 {
        self.bounds_ns[0].midpoint(self.bounds_ns[1])
    }

    /// When to look next: when the clock's next second is expected to begin, after a rest if the
    /// offset is settled.
    pub fn next_look_ns(&self, now_ns: u64) -> u64 {
        let earliest_ns = now_ns + if self.is_settled() { REST_NS } else { EARLY_NS };
        let clock_ns = earliest_ns.saturating_add_signed(self.middle_ns());
        let begins_ns = clock_ns.next_multiple_of(SECOND_NS).saturating_add_signed(-self.middle_ns());
        begins_ns.saturating_sub(EARLY_NS)
    }

    /// Takes a look into account.
    pub fn look(&mut self, look: Look) {
        if self.is_settled() {
            self.looks = 0;
        }
        self.looks += 1;
        let apart_ns = (look.after_ns.saturating_sub(self.seen_ns) / 1_000_000 * DRIFT_PER_MILLION) as i64;
        self.seen_ns = look.after_ns;
        let [low_ns, high_ns] = look.bounds_ns();
        let joint_ns = [low_ns.max(self.bounds_ns[0] - apart_ns), high_ns.min(self.bounds_ns[1] + apart_ns)];
        // Somebody set the clock, or time since boot stood still: the last look alone counts.
        self.bounds_ns = if joint_ns[0] <= joint_ns[1] { joint_ns } else { [low_ns, high_ns] };
    }
}

/// The time of day at boot, as an offset from time since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtBoot {
    /// The offset.
    pub offset_ns: i64,
    /// It is what was said, and the clock may lag behind it.
    pub may_lag: bool,
}

/// Finds the time of day at boot, by a look at the clock and by what the machine's owner said when
/// it was started. `None`: nothing tells it.
///
/// An emulator's clock begins with a whole second, and lags by what was left out. So what was said
/// is right if the clock may lag so, and then the clock tells how time passes, not what it is.
pub fn at_boot(clock: Option<Offset>, told_ns: Option<i64>) -> Option<AtBoot> {
    let Some([low_ns, high_ns]) = clock.map(|clock| clock.bounds_ns) else {
        return told_ns.map(|offset_ns| AtBoot { offset_ns, may_lag: false });
    };
    let credible = low_ns - SECOND_NS as i64..high_ns + SECOND_NS as i64;
    let told_ns = told_ns.filter(|told_ns| credible.contains(told_ns));
    Some(AtBoot { offset_ns: told_ns.map_or(low_ns, |told_ns| told_ns.max(low_ns)), may_lag: told_ns.is_some() })
}

/// Keeps the time of day by a clock.
#[derive(Clone, Copy, Debug)]
pub struct ClockDiscipline {
    /// How far the time of day is ahead of the clock on purpose; `None` is decided at the first
    /// settled offset.
    lag_ns: Option<i64>,
}

impl ClockDiscipline {
    /// The time of day is as the clock is, or is ahead of it as it was at boot.
    pub fn new(may_lag: bool) -> ClockDiscipline {
        ClockDiscipline { lag_ns: (!may_lag).then_some(0) }
    }

    /// What has to be put into force, if the time of day is not what a settled offset allows.
    pub fn correct(&mut self, offset: &Offset, setting: Setting, now_ns: u64) -> Option<Setting> {
        let is_ns = setting.settled_ns(now_ns);
        let lag_ns = *self.lag_ns.get_or_insert(is_ns - offset.middle_ns());
        let [low_ns, high_ns] = offset.bounds_ns.map(|bound_ns| bound_ns + lag_ns);
        (is_ns < low_ns || is_ns > high_ns).then(|| setting.towards(now_ns, offset.middle_ns() + lag_ns))
    }
}

/// Nanoseconds since 1970 of `SECONDS` or `SECONDS.FRACTION`.
pub fn parse_time(text: &[u8]) -> Option<u64> {
    let text = core::str::from_utf8(text).ok()?;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    if seconds.is_empty()
        || fraction.len() > 9
        || !seconds.bytes().chain(fraction.bytes()).all(|it| it.is_ascii_digit())
    {
        return None;
    }
    let digits = fraction.bytes().chain(core::iter::repeat(b'0')).take(9);
    let fraction_ns = digits.fold(0, |ns, digit| ns * 10 + u64::from(digit - b'0'));
    seconds.parse::<u64>().ok()?.checked_mul(SECOND_NS)?.checked_add(fraction_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    /// The clock at time 0.
    const CLOCK_NS: u64 = 1_795_383_516_123_456_789;

    /// A clock that is so many millionths too fast, looked at `late_ns` after it was wanted.
    struct World {
        fast: i64,
        late_ns: u64,
        set_ns: i64,
        now_ns: u64,
    }

    impl World {
        fn clock_ns(&self, now_ns: u64) -> u64 {
            (CLOCK_NS + now_ns).saturating_add_signed(self.set_ns + now_ns as i64 / 1_000_000 * self.fast)
        }

        fn look(&mut self, at_ns: u64) -> Look {
            let before_ns = at_ns.max(self.now_ns) + self.late_ns;
            self.now_ns = before_ns + 40_000;
            Look { before_ns, after_ns: self.now_ns, seconds: self.clock_ns(before_ns + 20_000) / SECOND_NS }
        }

        fn settle(&mut self, offset: &mut Offset) -> u32 {
            let mut looks = 0;
            loop {
                let look = self.look(offset.next_look_ns(self.now_ns));
                offset.look(look);
                looks += 1;
                if offset.is_settled() {
                    return looks;
                }
            }
        }

        fn offset_ns(&self) -> i64 {
            self.clock_ns(self.now_ns) as i64 - self.now_ns as i64
        }
    }

    fn world(fast: i64, late_ns: u64) -> World {
        World { fast, late_ns, set_ns: 0, now_ns: 77 * MS }
    }

    #[test]
    fn the_offset_is_found_in_seconds_and_kept_by_few_looks() {
        for (fast, late_ns) in
            [0, 40, -40, 90, -90].into_iter().flat_map(|fast| [0, 50_000, MS].map(|late| (fast, late)))
        {
            let mut world = world(fast, late_ns);
            let mut offset = Offset::new(world.look(77 * MS));
            assert!(world.settle(&mut offset) <= 14, "{fast} {late_ns}");
            for _ in 0..1000 {
                let begun_ns = world.now_ns;
                let looks = world.settle(&mut offset);
                assert!(looks <= 12 && world.now_ns - begun_ns >= REST_NS, "{fast} {late_ns}: {looks} looks");
                let [low_ns, high_ns] = offset.bounds_ns();
                let is_ns = world.offset_ns();
                assert!((low_ns..=high_ns).contains(&is_ns), "{fast} {late_ns}: {low_ns} {is_ns} {high_ns}");
                assert!(high_ns - low_ns <= CLOSE_NS, "{fast} {late_ns}");
            }
        }
    }

    #[test]
    fn a_clock_that_is_looked_at_too_late_is_left_alone() {
        let mut world = world(0, 700 * MS);
        let mut offset = Offset::new(world.look(77 * MS));
        assert!(world.settle(&mut offset) < LOOKS_MAX);
        let [low_ns, high_ns] = offset.bounds_ns();
        assert!((low_ns..=high_ns).contains(&world.offset_ns()));
    }

    #[test]
    fn the_time_of_day_follows_the_clock() {
        for (fast, set_s) in [(40, 0), (-40, 0), (0, 3), (0, 3600), (-90, -1)] {
            let mut world = world(fast, 50_000);
            let mut offset = Offset::new(world.look(77 * MS));
            let begun = at_boot(Some(offset), None).unwrap().offset_ns;
            assert!(begun <= world.offset_ns() && begun + SECOND_NS as i64 >= world.offset_ns());
            let mut setting = Setting::new(0, begun as u64);
            let mut discipline = ClockDiscipline::new(false);
            for round in 0..1000u32 {
                world.set_ns = if round < 20 { 0 } else { set_s * SECOND_NS as i64 };
                world.settle(&mut offset);
                let before_ns = setting.day_at(world.now_ns);
                setting = discipline.correct(&offset, setting, world.now_ns).unwrap_or(setting);
                assert!(setting.day_at(world.now_ns) >= before_ns);
                let error_ns = setting.day_at(world.now_ns) as i64 - world.clock_ns(world.now_ns) as i64;
                // It was slewed meanwhile; back it goes slowly.
                if (2..20).contains(&round) || round > 60 {
                    assert!(error_ns.unsigned_abs() < 12 * MS, "{fast} {set_s}: {error_ns} ns after {round} rounds");
                }
            }
        }
    }

    #[test]
    fn a_clock_that_lags_tells_how_time_passes() {
        let mut world = world(40, 50_000);
        let mut offset = Offset::new(world.look(77 * MS));
        let ahead_ns = 600 * MS as i64;
        let begun = CLOCK_NS as i64 + ahead_ns;
        assert_eq!(at_boot(Some(offset), Some(begun)), Some(AtBoot { offset_ns: begun, may_lag: true }));
        let (mut setting, mut discipline) = (Setting::new(0, begun as u64), ClockDiscipline::new(true));
        for _ in 0..200 {
            world.settle(&mut offset);
            setting = discipline.correct(&offset, setting, world.now_ns).unwrap_or(setting);
            let error_ns = setting.day_at(world.now_ns) as i64 - world.clock_ns(world.now_ns) as i64 - ahead_ns;
            assert!(error_ns.unsigned_abs() < 12 * MS, "{error_ns}");
        }
    }

    #[test]
    fn the_time_of_day_is_left_alone_while_it_is_within_the_bounds() {
        let offset = Offset::new(Look { before_ns: 300 * MS, after_ns: 301 * MS, seconds: 1000 });
        let [low_ns, high_ns] = offset.bounds_ns();
        let ahead_ns = 600 * MS as i64;
        for lag_ns in [0, ahead_ns] {
            let at = |is_ns: i64| Setting::new(0, (is_ns + lag_ns) as u64);
            let mut discipline = ClockDiscipline::new(lag_ns > 0);
            assert_eq!(discipline.correct(&offset, at(offset.middle_ns()), 302 * MS), None);
            for (is_ns, is_left) in [(low_ns, true), (high_ns, true), (low_ns - 1, false), (high_ns + 1, false)] {
                let corrected = discipline.correct(&offset, at(is_ns), 302 * MS);
                assert_eq!(corrected.is_none(), is_left, "{} ns past the lower", is_ns - low_ns);
            }
        }
    }

    #[test]
    fn what_was_said_at_the_start_counts_if_the_clock_may_lag_so() {
        let look = Look { before_ns: 300 * MS, after_ns: 301 * MS, seconds: 1000 };
        let (low_ns, high_ns) = (999_699 * MS as i64, 1_000_700 * MS as i64);
        let clock = Some(Offset::new(look));
        assert_eq!(Offset::new(look).bounds_ns(), [low_ns, high_ns]);
        let by = |offset_ns, may_lag| Some(AtBoot { offset_ns, may_lag });
        for told_ns in [low_ns, high_ns, high_ns + 900 * MS as i64] {
            assert_eq!(at_boot(clock, Some(told_ns)), by(told_ns, true));
            assert_eq!(at_boot(None, Some(told_ns)), by(told_ns, false));
        }
        // Said before the emulator was there.
        assert_eq!(at_boot(clock, Some(low_ns - 90 * MS as i64)), by(low_ns, true));
        for told_ns in [0, low_ns - 2000 * MS as i64, high_ns + 2000 * MS as i64] {
            assert_eq!(at_boot(clock, Some(told_ns)), by(low_ns, false));
        }
        assert_eq!((at_boot(clock, None), at_boot(None, None)), (by(low_ns, false), None));
    }

    #[test]
    fn times_are_read() {
        assert_eq!(parse_time(b"1795383516"), Some(1_795_383_516_000_000_000));
        assert_eq!(parse_time(b"1795383516.5"), Some(1_795_383_516_500_000_000));
        assert_eq!(parse_time(b"7.000000001"), Some(7_000_000_001));
        for bad in [&b""[..], b".5", b"-1", b"1.0000000001", b"1.x", b"99999999999", b"\xff", b"+1"] {
            assert_eq!(parse_time(bad), None, "{bad:?}");
        }
    }
}
