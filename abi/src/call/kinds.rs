//! What the arguments and results of calls can be: one marker type for each kind, which says how
//! many words it takes, what stands in them, and which errors follow from it. The kernel decodes a
//! kind, `lib/sys` encodes it, and the fuzzer draws it, each by a trait of its own.

use super::{Errors, Word};
use crate::{Error, ObjectType, Rights, layout};
use core::marker::PhantomData;
use core::ops::RangeInclusive;

/// No right is needed.
pub const NO_RIGHT: u32 = 0;
/// As the constants of [`Rights`], to stand in types.
pub const READ: u32 = Rights::READ.0;
/// As above.
pub const WRITE: u32 = Rights::WRITE.0;
/// As above.
pub const READ_WRITE: u32 = READ | WRITE;
/// As above.
pub const GRANT: u32 = Rights::GRANT.0;
/// As above.
pub const CONTROL: u32 = Rights::CONTROL.0;
/// As above.
pub const NOTIFY: u32 = Rights::NOTIFY.0;
/// As above.
pub const CALL: u32 = Rights::CALL.0;
/// As above.
pub const POWER: u32 = Rights::POWER.0;

/// Types of objects that a capability may be for.
pub trait Objects {
    /// These; none: of any type.
    const TYPES: &'static [ObjectType];
}

macro_rules! objects {
    ($( $(#[$doc:meta])* $name:ident = $($of:ident)*; )*) => { $(
        $(#[$doc])*
        pub struct $name;
        impl Objects for $name {
            const TYPES: &'static [ObjectType] = &[$(ObjectType::$of),*];
        }
    )* };
}

objects! {
    /// See [`ObjectType::Ram`]; so do all below that have the name of a type.
    Ram = Ram;
    /// As above.
    Domain = Domain;
    /// As above.
    Segment = Segment;
    /// As above.
    AddressRange = AddressRange;
    /// As above.
    Share = Share;
    /// As above.
    ExecutionContext = ExecutionContext;
    /// As above.
    SchedulingContext = SchedulingContext;
    /// As above.
    Portal = Portal;
    /// As above.
    Semaphore = Semaphore;
    /// As above.
    Pcore = Pcore;
    /// As above.
    Device = Device;
    /// As above.
    RemoteContext = RemoteContext;
    /// An object of whatever type.
    Any = ;
    /// A context, or a portal into one: what a badge can be minted for.
    ContextOrPortal = ExecutionContext Portal;
    /// What can be notified: a context, a portal of the kind MAILBOX, a context of another core.
    Notified = ExecutionContext RemoteContext Portal;
    /// What other cores can wake: a context, a portal of the kind MAILBOX, a semaphore.
    Woken = ExecutionContext Portal Semaphore;
    /// A semaphore, or one of another core by its wake slot.
    NearOrFarSemaphore = Semaphore RemoteContext;
    /// An account, or a core.
    RamOrPcore = Ram Pcore;
}

/// What an argument is.
pub trait Kind {
    /// The words it takes.
    const WORDS: &'static [Word];
    /// What it can be refused with.
    const ERRORS: Errors;
}

const fn errors_of(types: &[ObjectType], rights: u32) -> Errors {
    let errors = Errors::NONE.with(Error::BadHandle);
    let errors = if types.is_empty() { errors } else { errors.with(Error::WrongType) };
    if rights == 0 { errors } else { errors.with(Error::NoRights) }
}

macro_rules! capabilities {
    ($( $(#[$doc:meta])* $name:ident is $place:ident and $($error:ident)*; )*) => { $(
        $(#[$doc])*
        pub struct $name<T, const RIGHTS: u32 = NO_RIGHT>(PhantomData<T>);
        impl<T: Objects, const RIGHTS: u32> Kind for $name<T, RIGHTS> {
            const WORDS: &'static [Word] =
                &[Word::Capability { types: T::TYPES, rights: Rights(RIGHTS), place: Place::$place }];
            const ERRORS: Errors = errors_of(T::TYPES, RIGHTS)$(.with(Error::$error))*;
        }
    )* };
}

/// Where the capability that an argument names lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the caller's root share.
    Root,
    /// There, or nowhere: `Handle::NONE`.
    RootOrNone,
    /// There, or in a shared share whose slot and object id the handle has.
    RootOrShared,
}

capabilities! {
    /// A capability with these rights; what counts is its object.
    Cap is Root and;
    /// As [`Cap`]; the capability itself counts, too: its slot, or what more it allows.
    Held is Root and;
    /// As [`Cap`], of one of several types.
    CapOf is Root and;
    /// A capability that another is derived from. `TooDeep`: it is itself a copy of a copy and so
    /// on, 16 times; name one nearer to the first.
    Source is Root and TooDeep;
    /// As [`Cap`], or `Handle::NONE`.
    OptionalCap is RootOrNone and;
    /// An object by a handle of the root share or of a shared share (READ). `NoMemory`: the
    /// caller's account cannot pay for what represents a shared object here; `PeerDead`: its pool
    /// is dead.
    Named is RootOrShared and NoRights NoMemory PeerDead;
}

/// This core's own pcore. `OtherCore`: it is another core's.
pub struct Here<const RIGHTS: u32>;
/// As [`Here`], or `Handle::NONE`.
pub struct OptionalHere<const RIGHTS: u32>;
/// The target of a notification: a capability for what can be notified (NOTIFY), kept as a copy.
pub struct Target;
/// As [`Target`], or `Handle::NONE`.
pub struct OptionalTarget;

macro_rules! kinds {
    ($( $name:ident $(<const $value:ident: $of:ty>)?: $word:expr, $errors:expr; )*) => { $(
        impl $(<const $value: $of>)? Kind for $name $(<$value>)? {
            const WORDS: &'static [Word] = &$word;
            const ERRORS: Errors = $errors;
        }
    )* };
}

const fn capability(types: &'static [ObjectType], rights: u32, place: Place) -> Word {
    Word::Capability { types, rights: Rights(rights), place }
}

const POINTED: Errors = Errors::NONE.with(Error::BadPointer);
const BOUNDED: Errors = Errors::NONE.with(Error::BadArgument);
const PLAIN: Word = Word::Number(Number::Value);

kinds! {
    Here<const RIGHTS: u32>: [capability(Pcore::TYPES, RIGHTS, Place::Root)],
        errors_of(Pcore::TYPES, RIGHTS).with(Error::OtherCore);
    OptionalHere<const RIGHTS: u32>: [capability(Pcore::TYPES, RIGHTS, Place::RootOrNone)],
        errors_of(Pcore::TYPES, RIGHTS).with(Error::OtherCore);
    Target: [capability(Notified::TYPES, NOTIFY, Place::Root)],
        errors_of(Notified::TYPES, NOTIFY).with(Error::TooDeep);
    OptionalTarget: [capability(Notified::TYPES, NOTIFY, Place::RootOrNone)],
        errors_of(Notified::TYPES, NOTIFY).with(Error::TooDeep);
    Text<const BYTES_MAX: usize>: [Word::Number(Number::Pointer), Word::Number(Number::Length)],
        POINTED.with(Error::BadArgument);
    Bytes<const BYTES_MAX: usize>: [Word::Number(Number::Pointer), Word::Number(Number::Length)],
        POINTED.with(Error::BadArgument);
    Buffer: [Word::Number(Number::Pointer), Word::Number(Number::Length)], POINTED;
    Name: [PLAIN, PLAIN], Errors::NONE;
    Words<const COUNT: usize>: [PLAIN; COUNT], Errors::NONE;
    Turns: [capability(RamOrPcore::TYPES, NO_RIGHT, Place::RootOrNone)],
        errors_of(RamOrPcore::TYPES, NO_RIGHT).with(Error::NoRights).with(Error::OtherCore);
    EntryArguments: [Word::Number(Number::EntryArgument), PLAIN], Errors::NONE;
    RightsWanted: [Word::Number(Number::RightsMask)], BOUNDED.with(Error::NoRights);
    Switch: [Word::Number(Number::Choice)], BOUNDED;
    TypeNumber: [Word::Number(Number::Choice)], BOUNDED;
}

/// Text: pointer and length in bytes, at most so many.
pub struct Text<const BYTES_MAX: usize>;
/// As [`Text`], of any bytes.
pub struct Bytes<const BYTES_MAX: usize>;
/// Memory that the kernel writes: pointer and length in bytes.
pub struct Buffer;
/// A record that the kernel reads: its address.
pub struct In<T>(PhantomData<T>);
/// A record that the kernel fills: its address. `BadPointer`: the part before the address that
/// cannot be written may be filled.
pub struct Out<T>(PhantomData<T>);
/// A name of 16 bytes, as two words.
pub struct Name;
/// So many words that the kernel passes on.
pub struct Words<const COUNT: usize>;
/// Whose turns of the core an account shares: `Handle::NONE`, its parent's; an account (WRITE),
/// that one's; this core's pcore (CONTROL), turns of its own. `OtherCore`: it is another core's.
pub struct Turns;
/// The first two argument registers of a new context.
pub struct EntryArguments;
/// Rights that a copy is to have: at most those of the source, and INHERIT.
pub struct RightsWanted;
/// 0 or 1.
pub struct Switch;
/// An [`ObjectType`] as a number.
pub struct TypeNumber;

impl<T> Kind for In<T> {
    const WORDS: &'static [Word] = &[Word::Number(Number::Pointer)];
    const ERRORS: Errors = POINTED;
}
impl<T> Kind for Out<T> {
    const WORDS: &'static [Word] = &[Word::Number(Number::Pointer)];
    const ERRORS: Errors = POINTED;
}

/// An argument of one word that is no handle: an alias for each [`Number`].
pub struct Numeric<const NUMBER: u8>;

impl<const NUMBER: u8> Kind for Numeric<NUMBER> {
    const WORDS: &'static [Word] = &[Word::Number(Number::ALL[NUMBER as usize])];
    const ERRORS: Errors = Number::ALL[NUMBER as usize].errors();
}

// Flags of one bit are a range, since that bit is the lowest.
const _: () = assert!(layout::domain::WRITE_EXECUTE == 1 && layout::segment::CONTIGUOUS == 1);

macro_rules! numbers {
    ($( $(#[$doc:meta])* $name:ident: $($error:ident)* $([$limits:expr])?; )*) => {
        /// What a word that is no handle says.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Number { $( $(#[$doc])* $name, )* }

        impl Number {
            /// All, in order.
            pub const ALL: &'static [Number] = &[ $( Number::$name, )* ];

            /// What a call refuses it with.
            pub const fn errors(self) -> Errors {
                match self { $( Number::$name => Errors::NONE$(.with(Error::$error))*, )* }
            }

            /// Outside these the kernel's decoding of the kind refuses it, with `BadArgument`.
            pub const fn limits(self) -> RangeInclusive<u64> {
                match self { $( Number::$name => { $( return $limits; )? #[allow(unreachable_code)] { 0..=u64::MAX } } )* }
            }
        }

        $( $(#[$doc])* pub type $name = Numeric<{ Number::$name as u8 }>; )*
    };
}

numbers! {
    /// A number that the kernel does not check, or whose limits the call tells.
    Value: ;
    /// One of a few numbers.
    Choice: BadArgument;
    /// A core of the machine, from 0.
    Core: BadArgument;
    /// Bits that a notification sets.
    Badge: ;
    /// Bits or a mode of `layout`.
    Flags: BadArgument;
    /// `layout::domain::WRITE_EXECUTE`, or 0.
    WriteExecute: BadArgument [0..=layout::domain::WRITE_EXECUTE];
    /// `layout::segment::CONTIGUOUS`, or 0.
    Contiguous: BadArgument [0..=layout::segment::CONTIGUOUS];
    /// A status that a machine can end with, 0..=255.
    ExitStatus: BadArgument [0..=255];
    /// What a semaphore can count to, 0..=2^31.
    SemaphoreCount: BadArgument [0..=1 << 31];
    /// Eighths of a core's time, 1..=8.
    Eighths: BadArgument [1..=8];
    /// A wake slot, 1..`layout::WAKE_SLOTS`.
    WakeSlot: BadArgument [1..=layout::WAKE_SLOTS - 1];
    /// A set of rights.
    RightsMask: BadArgument NoRights;
    /// A priority 0..=7, 7 first, at most the highest that the caller may give.
    Priority: BadArgument NoRights;
    /// An address in the user window, where memory is mapped a multiple of 4,096.
    Address: BadArgument;
    /// An address below `layout::USER_END`.
    UserAddress: BadArgument [0..=layout::USER_END - 1];
    /// An address, a multiple of the size of the range that is nested there.
    NestAddress: BadArgument;
    /// Where code of a new context begins, in the user window.
    Instruction: BadArgument [0..=layout::USER_END - 1];
    /// What that code is given.
    EntryArgument: ;
    /// A physical address, a multiple of 4,096.
    Physical: BadArgument;
    /// Pages, at least 1, and no more than there are where they are.
    Pages: BadArgument;
    /// Pages of a segment, 1..=`layout::SEGMENT_PAGES_MAX`.
    SegmentPages: BadArgument [1..=layout::SEGMENT_PAGES_MAX];
    /// Pages of a segment, or 0.
    PagesOrNone: BadArgument [0..=layout::SEGMENT_PAGES_MAX];
    /// Pages of a range, rounded up to 512, 512² or 512³ (2 MiB, 1 GiB, 512 GiB).
    RangePages: BadArgument;
    /// A page of a segment, from 0.
    FirstPage: BadArgument;
    /// Microseconds of a slice, 100..=1,000,000.
    Slice: BadArgument [100..=1_000_000];
    /// Microseconds of a period or a place in it, up to 60,000,000.
    Period: BadArgument;
    /// Nanoseconds of a watch: 0, or at least `layout::context::WATCH_LIMIT_MIN_NS`.
    WatchLimit: BadArgument;
    /// Nanoseconds since boot; 0: do not wait; `u64::MAX`: wait without limit.
    Deadline: ;
    /// The id of a shared object or of a pool.
    SharedId: ;
    /// An address that the kernel reads or writes at.
    Pointer: BadPointer;
    /// Bytes there.
    Length: BadArgument;
}

/// What a result is.
pub trait Returned {
    /// What it gives.
    const GIVES: Gives;
    /// What the call can be refused with because it gives this.
    const ERRORS: Errors;
}

/// What a result gives its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    /// Numbers.
    Numbers,
    /// A handle of the caller's root share, for an object of that type; none: the source's.
    Handle(Option<ObjectType>),
    /// A handle in a shared share, for an object of that type; none: the source's.
    SharedHandle(Option<ObjectType>),
    /// The id of a shared object or of a pool.
    SharedId,
    /// Nothing: the call does not return.
    Nothing,
}

/// A handle of the caller's root share, in the lowest free slot.
pub struct New<T>(PhantomData<T>);
/// The handle of an object in a shared share.
pub struct NewShared<T>(PhantomData<T>);

const fn first(types: &[ObjectType]) -> Option<ObjectType> {
    if types.is_empty() { None } else { Some(types[0]) }
}

const MAKES: Errors = Errors::NONE.with(Error::NoSlot).with(Error::NoMemory);

impl<T: Objects> Returned for New<T> {
    const GIVES: Gives = Gives::Handle(first(T::TYPES));
    const ERRORS: Errors = MAKES;
}
impl<T: Objects> Returned for NewShared<T> {
    const GIVES: Gives = Gives::SharedHandle(first(T::TYPES));
    const ERRORS: Errors = MAKES.with(Error::PeerDead);
}
impl<const NUMBER: u8> Returned for Numeric<NUMBER> {
    const GIVES: Gives = if NUMBER == Number::SharedId as u8 { Gives::SharedId } else { Gives::Numbers };
    const ERRORS: Errors = Errors::NONE;
}

macro_rules! results {
    ($( $(#[$doc:meta])* $name:ident: $gives:ident, $errors:expr; )*) => { $(
        $(#[$doc])*
        pub struct $name;
        impl Returned for $name {
            const GIVES: Gives = Gives::$gives;
            const ERRORS: Errors = $errors;
        }
    )* };
}

results! {
    /// A handle in another domain's share.
    There: Numbers, MAKES;
    /// 1: there is more, call again; 0: that was all.
    More: Numbers, Errors::NONE;
    /// The rights of a capability.
    RightsHeld: Numbers, Errors::NONE;
    /// Three words of a `RangeEntry`.
    Entry: Numbers, Errors::NONE;
    /// The badge of a portal and the caller's words: RDI, RSI, RDX, R8, R9.
    Rendezvous: Numbers, Errors::NONE;
    /// The call does not return.
    Never: Nothing, Errors::NONE;
}

impl<const COUNT: usize> Returned for Words<COUNT> {
    const GIVES: Gives = Gives::Numbers;
    const ERRORS: Errors = Errors::NONE;
}
impl Returned for Name {
    const GIVES: Gives = Gives::Numbers;
    const ERRORS: Errors = Errors::NONE;
}
impl Returned for Switch {
    const GIVES: Gives = Gives::Numbers;
    const ERRORS: Errors = Errors::NONE;
}
