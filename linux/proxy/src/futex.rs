//! The words of futexes (futex(2)): those with an owner, and what FUTEX_WAKE_OP does to one. Who
//! sleeps where is in [`sleepers`](crate::sleepers).

/// Set in the word of a futex with an owner: somebody sleeps (FUTEX_WAITERS).
pub const WAITERS: u32 = 0x8000_0000;
/// Set when the owner of a robust futex ended without giving it back (FUTEX_OWNER_DIED).
pub const OWNER_DIED: u32 = 0x4000_0000;
/// The owner's thread id (FUTEX_TID_MASK).
pub const OWNER: u32 = 0x3fff_ffff;

/// What FUTEX_WAKE_OP does to the second word: the new value, and whether the old one asks for a
/// wake there too. `None` for an operation or comparison that there is not.
pub fn change_and_compare(encoded: u32, old: u32) -> Option<(u32, bool)> {
    let (operation, comparison) = (encoded >> 28, encoded >> 24 & 15);
    let signed_12 = |bits: u32| ((bits << 20) as i32 >> 20) as u32;
    let (mut argument, against) = (signed_12(encoded >> 12), signed_12(encoded));
    if operation & 8 != 0 {
        argument = 1 << (argument & 31);
    }
    let new = match operation & 7 {
        0 => argument,
        1 => old.wrapping_add(argument),
        2 => old | argument,
        3 => old & !argument,
        4 => old ^ argument,
        _ => return None,
    };
    let (old, against) = (old as i32, against as i32);
    let holds = match comparison {
        0 => old == against,
        1 => old != against,
        2 => old < against,
        3 => old <= against,
        4 => old > against,
        5 => old >= against,
        _ => return None,
    };
    Some((new, holds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_word_is_changed_and_compared() {
        let encode = |operation: u32, comparison: u32, argument: u32, against: u32| {
            operation << 28 | comparison << 24 | (argument & 0xfff) << 12 | against & 0xfff
        };
        assert_eq!(change_and_compare(encode(0, 0, 5, 3), 3), Some((5, true)));
        assert_eq!(change_and_compare(encode(1, 4, u32::MAX, 1), 2), Some((1, true)));
        assert_eq!(change_and_compare(encode(10, 5, 4, 0), u32::MAX), Some((u32::MAX, false)));
        assert_eq!(change_and_compare(encode(3, 1, 1, 7), 7), Some((6, false)));
        assert_eq!(change_and_compare(encode(4, 0, 5, 0), 3), Some((6, false)));
        assert_eq!(change_and_compare(encode(8, 0, 36, 1), 1), Some((16, true)), "a bit, by its number modulo 32");
        let holds = |comparison: u32| {
            [-1i32, 0, 1].map(|old| change_and_compare(encode(0, comparison, 0, 0), old as u32).unwrap().1)
        };
        assert_eq!([holds(0), holds(1)], [[false, true, false], [true, false, true]]);
        assert_eq!([holds(2), holds(3)], [[true, false, false], [true, true, false]]);
        assert_eq!([holds(4), holds(5)], [[false, false, true], [false, true, true]]);
        assert_eq!(change_and_compare(encode(5, 0, 0, 0), 0), None);
        assert_eq!(change_and_compare(encode(0, 6, 0, 0), 0), None);
    }
}
