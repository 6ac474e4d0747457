//! Call numbers and what each call takes, gives and refuses.
//!
//! A call is made with `syscall`: number in RAX, arguments in RDI, RSI, RDX, R10, R8, R9. On return
//! RAX is 0 or a negated [`Error`] code; RDI, RSI, RDX carry up to three results. RCX and R11 are
//! lost, all other registers kept. Native calls are told from Linux ones by the number: RAX bits
//! 63..12 equal those of [`NATIVE_BASE`]; any other value is a Linux system call and goes to the
//! context's proxy (`ContextProxy`), or ends the domain with `DeathCause::BadCall` if it has none.
//!
//! Each call is a row of `call/rows.rs`, written out in `docs/calls.md`. Arguments are decoded in
//! order: capabilities first refuse (`BadHandle`: the slot is empty or past the share's end,
//! `WrongType`, `NoRights`), numbers after them. A call that may take several steps keeps how far
//! it is in further words, which are 0 at first: the kernel writes them, and the context makes the
//! call again by itself.

#[macro_use]
mod rows;
pub mod kinds;

use crate::{Error, ObjectType, Rights};
use kinds::*;

/// Bit 32 set and all other high bits clear marks a native call.
pub const NATIVE_BASE: u64 = 1 << 32;

/// True when `number` (RAX at SYSCALL) is a native call.
pub const fn is_native(number: u64) -> bool {
    number & !0xfff == NATIVE_BASE
}

/// What is special about a call. A row has one of these at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// A kernel core takes it from a ring: it neither waits, nor points to memory, nor is about a
    /// context.
    Ring,
    /// It could pull memory or registers from under the caller's own code.
    Unsafe,
    /// The kernel decodes it by hand, on the way in: it mostly passes the core on.
    Direct,
}

/// A set of errors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errors(u32);

impl Errors {
    /// None.
    pub const NONE: Errors = Errors(0);

    /// These and one more.
    pub const fn with(self, error: Error) -> Errors {
        Errors(self.0 | 1 << error as u32)
    }

    /// Both.
    pub const fn union(self, other: Errors) -> Errors {
        Errors(self.0 | other.0)
    }

    /// Is it one of these?
    pub const fn contains(self, error: Error) -> bool {
        self.0 & 1 << error as u32 != 0
    }
}

/// What stands in a word of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// A handle of a capability for an object of one of these types (none: of any type) with these
    /// rights.
    Capability {
        /// Types of objects.
        types: &'static [ObjectType],
        /// Rights that the capability must have.
        rights: Rights,
        /// Where it may lie.
        place: Place,
    },
    /// Anything else.
    Number(Number),
}

/// An argument or a result of a call.
pub struct Part {
    /// Its name.
    pub name: &'static str,
    /// Its kind, as the row has it.
    pub kind: &'static str,
}

/// What a row says to a reader.
pub struct Row {
    /// The call.
    pub call: Call,
    /// Its name.
    pub name: &'static str,
    /// The name of its function in `lib/sys` and in the kernel.
    pub function: &'static str,
    /// What it does, a line each.
    pub doc: &'static [&'static str],
    /// What it takes.
    pub arguments: &'static [Part],
    /// Further words, for the kernel to say how far it is.
    pub progress: &'static [&'static str],
    /// What it gives.
    pub results: &'static [Part],
    /// Errors of its own, each with `cause: remedy`; several are separated by `; `.
    pub own_errors: &'static [(Error, &'static str)],
}

/// Whether a row says why a call is refused, and what to do then: `cause: remedy`, or several of
/// these, separated by `; `.
const fn is_cause_and_remedy(why: &str) -> bool {
    let (why, mut at, mut letters, mut has_cause) = (why.as_bytes(), 0, 0, false);
    while at < why.len() {
        let is_mark = (why[at] == b':' || why[at] == b';') && at + 1 < why.len() && why[at + 1] == b' ';
        if is_mark {
            // A cause ends with a colon, a remedy with a semicolon.
            if letters == 0 || has_cause == (why[at] == b':') {
                return false;
            }
            (has_cause, letters, at) = (!has_cause, 0, at + 2);
        } else {
            (letters, at) = (letters + 1, at + 1);
        }
    }
    has_cause && letters > 0
}

macro_rules! calls {
    ($(
        $(#[doc = $doc:literal])*
        $number:literal fn $function:ident = $name:ident [$($flag:ident)*] ($($argument:ident: $kind:ty),*)
        $(then ($($progress:ident),*))? -> ($($result:ident: $returned:ty),*)
        $(| $($error:ident $why:literal),*)?;
    )*) => {
        // Who reads the rows by a macro looks for one flag alone.
        $( const _: () = assert!(Call::$name.flags().len() <= 1, concat!(stringify!($name), " has two flags")); )*
        $($($( const _: () = assert!(is_cause_and_remedy($why),
            concat!(stringify!($name), ": ", stringify!($error), " lacks a cause or a remedy")); )*)?)*

        /// The kernel's calls.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Call { $( $(#[doc = $doc])* $name = $number, )* }

        impl Call {
            /// All calls with their names, in numeric order: for tables, traces and the fuzzer.
            pub const ALL: &'static [(Call, &'static str)] = &[ $( (Call::$name, stringify!($name)), )* ];

            /// Decodes RAX; `None` for a native number without a call.
            #[inline(always)]
            pub const fn decode(number: u64) -> Option<Call> {
                match number.wrapping_sub(NATIVE_BASE) { $( $number => Some(Call::$name), )* _ => None }
            }

            /// The value for RAX.
            pub const fn number(self) -> u64 { NATIVE_BASE | self as u64 }

            /// What is special about it.
            #[inline]
            pub const fn flags(self) -> &'static [Flag] {
                match self { $( Call::$name => &[$(Flag::$flag),*], )* }
            }

            /// The words of each argument.
            pub const fn arguments(self) -> &'static [&'static [Word]] {
                match self { $( Call::$name => &[$(<$kind as Kind>::WORDS),*], )* }
            }

            /// What each result gives.
            pub const fn gives(self) -> &'static [Gives] {
                match self { $( Call::$name => &[$(<$returned as Returned>::GIVES),*], )* }
            }

            /// What the kernel may refuse it with.
            pub const fn errors(self) -> Errors {
                match self { $( Call::$name => const {
                    Errors::NONE
                        $(.union(<$kind as Kind>::ERRORS))*
                        $(.union(<$returned as Returned>::ERRORS))*
                        $($(.with(Error::$error))*)?
                } )* }
            }

            /// What its row says.
            pub const fn row(self) -> &'static Row {
                match self { $( Call::$name => &Row {
                    call: Call::$name,
                    name: stringify!($name),
                    function: stringify!($function),
                    doc: &[$($doc),*],
                    arguments: &[$( Part { name: stringify!($argument), kind: stringify!($kind) } ),*],
                    progress: &[$($(stringify!($progress)),*)?],
                    results: &[$( Part { name: stringify!($result), kind: stringify!($returned) } ),*],
                    own_errors: &[$($( (Error::$error, $why) ),*)?],
                }, )* }
            }
        }
    };
}

for_each_call!(calls);

impl Call {
    /// Whether its row has that flag.
    pub fn has(self, flag: Flag) -> bool {
        self.flags().contains(&flag)
    }

    /// What its words say, in order; those that it lacks, and those of its progress, are left out.
    pub fn words(self) -> impl Iterator<Item = Word> {
        self.arguments().iter().copied().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_decode_to_their_calls_and_linux_numbers_to_none() {
        for (call, _) in Call::ALL {
            assert!(is_native(call.number()));
            assert_eq!(Call::decode(call.number()), Some(*call));
        }
        for linux in [0u64, 59, 231, 0x4000_0000, u64::MAX, 0xffff_ffff] {
            assert!(!is_native(linux));
            assert_eq!(Call::decode(linux), None);
        }
        assert_eq!(Call::decode(NATIVE_BASE | 0xfff), None);
    }

    #[test]
    fn each_cause_has_its_remedy() {
        for told in ["it runs: halt it", "it runs: halt it; its list is full: take another", "a::b: c;d", "a: b:"] {
            assert!(is_cause_and_remedy(told), "{told}");
        }
        for lacking in [
            "",
            "it runs",
            "it runs: ",
            ": halt it",
            "it runs; halt it",
            "it runs: halt it; it is full",
            "a: b: c",
            "a: ; b: c",
        ] {
            assert!(!is_cause_and_remedy(lacking), "{lacking}");
        }
    }

    #[test]
    fn a_call_has_room_for_its_words_and_its_progress() {
        for (call, name) in Call::ALL {
            assert!(call.words().count() + call.row().progress.len() <= 6, "{name}");
            assert!(call.row().results.len() <= 3, "{name}");
        }
    }

    #[test]
    fn a_call_of_a_ring_points_to_no_memory() {
        assert!(Call::Null.has(Flag::Ring) && !Call::DeviceList.has(Flag::Ring));
        for (call, name) in Call::ALL.iter().filter(|(call, _)| call.has(Flag::Ring)) {
            assert!(!call.has(Flag::Unsafe) && !call.has(Flag::Direct), "{name}");
        }
    }

    #[test]
    fn errors_follow_from_kinds_and_from_the_row() {
        use Error::*;
        let allowed = |call: Call| {
            [BadHandle, WrongType, NoRights, NoMemory, OtherCore].map(|error| call.errors().contains(error))
        };
        assert_eq!(allowed(Call::Null), [false; 5]);
        assert_eq!(allowed(Call::RamStat), [true, true, false, false, false]);
        assert_eq!(allowed(Call::PowerOff), [true, true, true, false, true]);
        assert_eq!(allowed(Call::SemaphoreAlloc), [true, true, true, true, false]);
        assert!(Call::PortalCall.errors().contains(Busy) && !Call::PortalReplyWait.errors().contains(Busy));
        assert!(!Call::ALL.iter().any(|(call, _)| call.errors().contains(BadCall)));
    }

    #[test]
    fn a_call_tells_what_it_gives() {
        assert_eq!(Call::SegmentAlloc.gives()[0], Gives::Handle(Some(ObjectType::Segment)));
        assert_eq!(Call::CapMint.gives(), [Gives::Handle(None)]);
        assert_eq!(Call::SharePool.gives(), [Gives::SharedId]);
        assert_eq!(Call::RamRevoke.gives(), [Gives::Numbers]);
        assert_eq!(READ_WRITE, 3);
    }

    #[test]
    fn errors_are_a_set() {
        let busy = Errors::NONE.with(Error::Busy);
        for same in [busy.with(Error::Busy), busy.union(busy), busy.union(Errors::NONE)] {
            assert!(same.contains(Error::Busy) && !same.contains(Error::NoSlot));
        }
    }
}
