//! What the arguments of mmap ask for.

use crate::errno::Errno;
use crate::flags::*;
use crate::memory::{mark, protection};

/// Is the mapping to be shared? `EINVAL` if the flags name no kind of mapping. MAP_SHARED takes any
/// flag, as it always did; MAP_SHARED_VALIDATE, of files only, gives `EOPNOTSUPP` for what it does
/// not know and for MAP_SYNC: a program that is told so makes its data safe by fsync instead.
pub fn is_shared(flags: u64) -> Result<bool, Errno> {
    match flags & MAP_TYPE {
        MAP_PRIVATE => Ok(false),
        MAP_SHARED => Ok(true),
        MAP_SHARED_VALIDATE if flags & MAP_ANONYMOUS != 0 => Err(Errno::EINVAL),
        MAP_SHARED_VALIDATE if flags & !(MAP_TYPE | MAP_OLD) != 0 => Err(Errno::EOPNOTSUPP),
        MAP_SHARED_VALIDATE => Ok(true),
        _ => Err(Errno::EINVAL),
    }
}

/// May a file be mapped by a descriptor of that access mode (O_ACCMODE)? `EACCES` if it is not open
/// for reading or, for a shared mapping that can be written, not for both.
pub fn check_access(mode: u32, is_shared: bool, access: u32) -> Result<(), Errno> {
    let stores = is_shared && access & protection::WRITE != 0;
    if mode == O_WRONLY || stores && mode != O_RDWR { Err(Errno::EACCES) } else { Ok(()) }
}

/// What an advice of madvise does. Of each kind, only memory that is the program's own and of no
/// file can become zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Nothing.
    Hint,
    /// Makes zeroes; other memory stays as it is.
    Discard,
    /// The same, and other memory in the range is an error.
    DiscardOwn,
    /// Says what forked children have: marks to take, then marks to give.
    Fork([u32; 2]),
    /// The same, and memory that cannot become zeroes is an error.
    ForkOwn([u32; 2]),
}

impl Advice {
    /// `EINVAL` for what is not known, and for MADV_REMOVE, which a program could not do without
    /// and is not done.
    pub fn of(advice: u64) -> Result<Advice, Errno> {
        const DONT_NEED: u64 = 4;
        const FREE: u64 = 8;
        const DONT_FORK: u64 = 10;
        const DO_FORK: u64 = 11;
        const WIPE_ON_FORK: u64 = 18;
        const KEEP_ON_FORK: u64 = 19;
        const DONT_NEED_LOCKED: u64 = 24;
        match advice {
            DONT_NEED | DONT_NEED_LOCKED => Ok(Advice::Discard),
            FREE => Ok(Advice::DiscardOwn),
            DONT_FORK => Ok(Advice::Fork([0, mark::NOT_FORKED])),
            DO_FORK => Ok(Advice::Fork([mark::NOT_FORKED, 0])),
            WIPE_ON_FORK => Ok(Advice::ForkOwn([0, mark::WIPED])),
            KEEP_ON_FORK => Ok(Advice::Fork([mark::WIPED, 0])),
            // Of how it will be used, of same and large pages, dumps, paging in and out.
            0..=3 | 12..=17 | 20..=23 | 25 => Ok(Advice::Hint),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Is memory an error that cannot become zeroes?
    pub fn wants_own(self) -> bool {
        matches!(self, Advice::DiscardOwn | Advice::ForkOwn(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advice_is_known_or_refused() {
        assert_eq!([4, 24, 8].map(Advice::of), [Advice::Discard, Advice::Discard, Advice::DiscardOwn].map(Ok));
        let of_forks = [10, 11, 18, 19].map(Advice::of);
        let [not, wiped] = [mark::NOT_FORKED, mark::WIPED];
        let expected =
            [Advice::Fork([0, not]), Advice::Fork([not, 0]), Advice::ForkOwn([0, wiped]), Advice::Fork([wiped, 0])];
        assert_eq!(of_forks, expected.map(Ok));
        assert_eq!(expected.map(Advice::wants_own), [false, false, true, false]);
        let harmless = [0, 1, 2, 3, 12, 13, 14, 15, 16, 17, 20, 21, 22, 23, 25];
        assert!(harmless.iter().all(|advice| Advice::of(*advice) == Ok(Advice::Hint)));
        for advice in [5, 6, 7, 9, 26, 100, 101, 1 << 32, u64::MAX] {
            assert_eq!(Advice::of(advice), Err(Errno::EINVAL), "{advice}");
        }
    }

    #[test]
    fn a_descriptor_must_allow_what_is_mapped() {
        let (read, write) = (protection::READ, protection::READ | protection::WRITE);
        for (mode, is_shared, access, may) in [
            (0, false, write, true),
            (0, true, read, true),
            (0, true, write, false),
            (O_RDWR, true, write, true),
            (O_WRONLY, true, write, false),
            (O_WRONLY, false, read, false),
            (O_RDWR, false, 0, true),
        ] {
            assert_eq!(check_access(mode, is_shared, access).is_ok(), may, "{mode} {is_shared} {access}");
        }
    }

    #[test]
    fn a_mapping_has_a_kind() {
        assert_eq!(is_shared(MAP_SHARED), Ok(true));
        assert_eq!(is_shared(MAP_PRIVATE | MAP_ANONYMOUS), Ok(false));
        for none in [0, MAP_ANONYMOUS, MAP_FIXED, 4, 8, 15] {
            assert_eq!(is_shared(none), Err(Errno::EINVAL), "{none:#x}");
        }
    }

    #[test]
    fn only_who_asks_for_it_is_told_of_unknown_flags() {
        assert_eq!(is_shared(MAP_SHARED_VALIDATE), Ok(true));
        assert_eq!(is_shared(MAP_SHARED_VALIDATE | MAP_SYNC), Err(Errno::EOPNOTSUPP));
        assert_eq!(is_shared(MAP_SHARED_VALIDATE | MAP_ANONYMOUS), Err(Errno::EINVAL));
        // Each single flag: those that were there before MAP_SHARED_VALIDATE, and others.
        const OLD: [u64; 11] =
            [MAP_FIXED, 0x40, 0x100, 0x800, 0x1000, 0x2000, 0x4000, 0x8000, 0x1_0000, 0x2_0000, 0x4_0000];
        for flag in (4..64).map(|bit| 1 << bit).filter(|flag| *flag != MAP_ANONYMOUS) {
            let is_size_of_pages = (26..31).contains(&flag.trailing_zeros());
            let is_old = OLD.contains(&flag) || is_size_of_pages;
            let expected = if is_old { Ok(true) } else { Err(Errno::EOPNOTSUPP) };
            assert_eq!(is_shared(MAP_SHARED_VALIDATE | flag), expected, "{flag:#x}");
            assert_eq!(is_shared(MAP_SHARED | flag), Ok(true), "{flag:#x}");
            assert_eq!(is_shared(MAP_PRIVATE | flag), Ok(false), "{flag:#x}");
        }
    }
}
