//! The machine's real-time clock (the MC146818 of the PC and its copies), as its registers tell
//! it.

const SECONDS: u8 = 0x00;
const MINUTES: u8 = 0x02;
const HOURS: u8 = 0x04;
const DAY: u8 = 0x07;
const MONTH: u8 = 0x08;
const YEAR: u8 = 0x09;
const STATUS_A: u8 = 0x0a;
const STATUS_B: u8 = 0x0b;
const CENTURY: u8 = 0x32;

/// Status A: the registers are about to change.
const UPDATING: u8 = 1 << 7;
/// Status B: numbers are binary; hours are 0 to 23.
const BINARY: u8 = 1 << 2;
const WHOLE_DAY: u8 = 1 << 1;
/// An hour's bit for the afternoon, where a day has twice 12.
const AFTERNOON: u8 = 1 << 7;

/// Looks at the clock before it counts as absent. An update takes 2 ms at most, a look about 1 µs.
const LOOKS_MAX: u32 = 20_000;

/// Seconds since 1970 as the clock's registers tell them; `None` if there is no clock or it tells
/// nonsense.
pub fn read(mut register: impl FnMut(u8) -> u8) -> Option<u64> {
    let mut last = None;
    for _ in 0..LOOKS_MAX {
        let (a, b) = (register(STATUS_A), register(STATUS_B));
        if a == 0xff && b == 0xff {
            return None;
        }
        if a & UPDATING != 0 {
            continue;
        }
        // An update may begin in between: what was read twice is right.
        let found = [SECONDS, MINUTES, HOURS, DAY, MONTH, YEAR, CENTURY].map(&mut register);
        if last == Some((b, found)) {
            return decode(b, found);
        }
        last = Some((b, found));
    }
    None
}

fn decode(status_b: u8, [second, minute, hour, day, month, year, century]: [u8; 7]) -> Option<u64> {
    let number = |byte: u8| -> Option<u64> {
        let (tens, ones) = (byte >> 4, byte & 15);
        match status_b & BINARY {
            0 if tens > 9 || ones > 9 => None,
            0 => Some(u64::from(tens) * 10 + u64::from(ones)),
            _ => Some(byte.into()),
        }
    };
    let hour = match status_b & WHOLE_DAY {
        0 => number(hour & !AFTERNOON)? % 12 + if hour & AFTERNOON != 0 { 12 } else { 0 },
        _ => number(hour)?,
    };
    // Not every clock has the century; ours began with this one.
    let century = number(century).filter(|century| matches!(century, 20 | 21)).unwrap_or(20);
    let (year, month, day) = (century * 100 + number(year)?, number(month)?, number(day)?);
    let (minute, second) = (number(minute)?, number(second)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    Some(((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second)
}

/// Days from 1970-01-01 to a day of the Gregorian calendar, which is not before it.
fn days(year: u64, month: u64, day: u64) -> u64 {
    // Years that begin in March: the day that comes and goes is their last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before_year = year * 365 + year / 4 - year / 100 + year / 400;
    before_year + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Registers that tell `values`, with an update under way for the first `updates` looks.
    fn clock(status_b: u8, values: [u8; 7], mut updates: u32) -> impl FnMut(u8) -> u8 {
        move |register| match register {
            STATUS_A => {
                updates = updates.saturating_sub(1);
                0x26 | if updates > 0 { 0x80 } else { 0 }
            }
            STATUS_B => status_b,
            SECONDS => values[0],
            MINUTES => values[1],
            HOURS => values[2],
            DAY => values[3],
            MONTH => values[4],
            YEAR => values[5],
            CENTURY => values[6],
            _ => 0,
        }
    }

    #[test]
    fn every_form_of_the_registers_is_understood() {
        // 2026-11-22 21:38:36 UTC.
        const TIME: u64 = 1_795_383_516;
        assert_eq!(read(clock(WHOLE_DAY, [0x36, 0x38, 0x21, 0x22, 0x11, 0x26, 0x20], 5)), Some(TIME));
        assert_eq!(read(clock(WHOLE_DAY | BINARY, [36, 38, 21, 22, 11, 26, 20], 0)), Some(TIME));
        assert_eq!(read(clock(0, [0x36, 0x38, 0x89, 0x22, 0x11, 0x26, 0x20], 0)), Some(TIME));
        assert_eq!(read(clock(BINARY, [36, 38, 9 | AFTERNOON, 22, 11, 26, 0], 0)), Some(TIME));
        // Midnight and noon of a clock with 12 hours; a leap day.
        assert_eq!(read(clock(BINARY, [0, 0, 12, 29, 2, 24, 20], 0)), Some(1_709_164_800));
        assert_eq!(read(clock(BINARY, [0, 0, 12 | AFTERNOON, 29, 2, 24, 20], 0)), Some(1_709_208_000));
        assert_eq!((days(1970, 1, 1), days(2000, 3, 1), days(2100, 3, 1)), (0, 11_017, 47_541));
    }

    #[test]
    fn each_number_is_taken_up_to_its_last_and_no_further() {
        let at = |values| read(clock(WHOLE_DAY | BINARY, values, 0));
        let midnight = at([0, 0, 0, 31, 12, 26, 20]).unwrap();
        assert_eq!(at([59, 59, 23, 31, 12, 26, 20]), Some(midnight + 24 * 3600 - 1));
        let refused = [[60, 0, 0], [61, 0, 0], [0, 60, 0], [0, 61, 0], [0, 0, 24], [0, 0, 25]];
        for [second, minute, hour] in refused {
            assert_eq!(at([second, minute, hour, 31, 12, 26, 20]), None, "{hour}:{minute}:{second}");
        }
        for (day, month) in [(0, 1), (32, 1), (1, 0), (1, 13)] {
            assert_eq!(at([0, 0, 0, day, month, 26, 20]), None, "{day}.{month}.");
        }
        // Decimal digits go to 9.
        let digits = |second| read(clock(WHOLE_DAY, [second, 0, 0, 0x31, 0x12, 0x26, 0x20], 0));
        assert_eq!(digits(0x59), Some(midnight + 59));
        assert_eq!(digits(0x0a), None);
        assert_eq!(read(clock(WHOLE_DAY, [0, 0, 0, 0x31, 0x12, 0x9a, 0x20], 0)), None);
        assert_eq!(read(clock(WHOLE_DAY, [0, 0, 0, 0x31, 0x12, 0xa0, 0x20], 0)), None);
        assert_eq!(read(clock(WHOLE_DAY, [0, 0, 0, 0x31, 0x12, 0x99, 0x20], 0)).map(|at| at > midnight), Some(true));
    }

    /// Status A of such a clock is all ones while it updates, or status B is.
    #[test]
    fn a_clock_one_of_whose_states_is_all_ones_is_there() {
        const VALUES: [u8; 7] = [36, 38, 21, 22, 11, 26, 20];
        let time = read(clock(WHOLE_DAY | BINARY, VALUES, 0));
        assert!(time.is_some());
        assert_eq!(read(clock(0xff, VALUES, 0)), time);
        let (mut looks, mut inner) = (0, clock(WHOLE_DAY | BINARY, VALUES, 0));
        let updates = |register| {
            looks += u32::from(register == STATUS_A);
            if register == STATUS_A && looks < 9 { 0xff } else { inner(register) }
        };
        assert_eq!(read(updates), time);
    }

    #[test]
    fn no_clock_and_nonsense_end() {
        assert_eq!(read(|_| 0xff), None);
        assert_eq!(read(clock(WHOLE_DAY, [0x36, 0x38, 0x21, 0x22, 0x11, 0x26, 0x20], u32::MAX)), None);
        assert_eq!(read(clock(WHOLE_DAY, [0; 7], 0)), None);
        assert_eq!(read(clock(WHOLE_DAY, [0x6a, 0, 0, 1, 1, 0x26, 0x20], 0)), None);
        let mut second = 0u8;
        let restless = |register| {
            second = second.wrapping_add(1);
            if register == SECONDS { second } else { 0x01 }
        };
        assert_eq!(read(restless), None);
    }
}
