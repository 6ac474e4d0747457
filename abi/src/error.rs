//! Why a kernel call was refused. The number is what RAX carries, negated.

macro_rules! errors {
    ($( $(#[$doc:meta])* $name:ident = $number:literal, )*) => {
        /// A refused kernel call; nothing was changed by it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Error { $( $(#[$doc])* $name = $number, )* }

        impl Error {
            /// From a negated RAX; `None` if the kernel is newer than this crate.
            pub const fn from_code(code: u64) -> Option<Error> {
                match code { $( $number => Some(Error::$name), )* _ => None }
            }
            /// The name, for messages.
            pub const fn name(self) -> &'static str {
                match self { $( Error::$name => stringify!($name), )* }
            }
        }
    };
}

errors! {
    /// The number names no call. Remedy: kernel and program are of different versions; rebuild.
    BadCall = 1,
    /// The slot is empty or past the share's end. Remedy: check what was dropped.
    BadHandle = 2,
    /// The object is of another type than the call needs.
    WrongType = 3,
    /// The capability lacks a right the call needs. Remedy: ask the owner for a copy with it.
    NoRights = 4,
    /// A number is out of its range, an address not in the user window or not aligned.
    BadArgument = 5,
    /// A user pointer is not mapped with the needed access.
    BadPointer = 6,
    /// The Ram account is at its limit or its root has no free page. Remedy: drop something, or ask
    /// the memory service for more.
    NoMemory = 7,
    /// The share is full.
    NoSlot = 8,
    /// What is asked for is taken. Remedy: release it first.
    Busy = 9,
    /// Nothing there.
    NotFound = 10,
    /// The deadline passed first.
    Timeout = 11,
    /// The other side ended before it answered. Remedy: bind again.
    PeerDead = 12,
    /// The object is on another core; only its monitor can act on it.
    OtherCore = 13,
    /// The capability is already a copy of a copy and so on, 16 times. Remedy: copy one nearer to
    /// the first.
    TooDeep = 14,
}
