//! Why a kernel call was refused. The number is what RAX carries, negated.

macro_rules! errors {
    ($( $(#[doc = $doc:literal])* $name:ident = $number:literal, )*) => {
        /// A refused kernel call; nothing was changed by it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Error { $( $(#[doc = $doc])* $name = $number, )* }

        impl Error {
            /// From a negated RAX; `None` if the kernel is newer than this crate.
            pub const fn from_code(code: u64) -> Option<Error> {
                match code { $( $number => Some(Error::$name), )* _ => None }
            }
            /// The name, for messages.
            pub const fn name(self) -> &'static str {
                match self { $( Error::$name => stringify!($name), )* }
            }
            /// Its cause and remedy where a call's row says no other, a line each.
            pub const fn doc(self) -> &'static [&'static str] {
                match self { $( Error::$name => &[$($doc),*], )* }
            }
        }
    };
}

errors! {
    /// The number names no call. Remedy: build kernel and program from the same version.
    BadCall = 1,
    /// The slot is empty or past the share's end. Remedy: name a capability that was not dropped.
    BadHandle = 2,
    /// The object is of another type than the call needs. Remedy: name one of that type.
    WrongType = 3,
    /// The capability lacks a right that the call needs. Remedy: ask the owner for a copy with it.
    NoRights = 4,
    /// A number is out of its range, or an address is not in the user window or not aligned.
    /// Remedy: keep to the limits of the argument's kind.
    BadArgument = 5,
    /// A pointer is not mapped with the access needed. Remedy: pass memory of the caller's own.
    BadPointer = 6,
    /// The Ram account is at its limit or its root has no free page. Remedy: drop something, or ask
    /// the memory service for more.
    NoMemory = 7,
    /// The share is full. Remedy: drop a capability.
    NoSlot = 8,
    /// What the call asks for is in use. Remedy: release it first.
    Busy = 9,
    /// Nothing is there. Remedy: look up what exists.
    NotFound = 10,
    /// The deadline passed first. Remedy: call again, or with a later deadline.
    Timeout = 11,
    /// The other side ended before it replied. Remedy: bind again.
    PeerDead = 12,
    /// The object is on another core. Remedy: ask that core's monitor, which alone can act on it.
    OtherCore = 13,
    /// The capability is a copy of a copy and so on, 16 times. Remedy: copy one nearer to the
    /// first.
    TooDeep = 14,
}
