//! The arguments of each call, decoded as its row says, in a record with the fields of the row; and
//! from its number to the function that has its name.
//!
//! A kind that the call itself has to decode, since more than one type will do or the object may
//! lie in a shared share, is passed on as the argument's number.

use super::{Request, pcore};
use crate::objects::group::Turns as TurnsOf;
use crate::objects::notification::Notification;
use crate::objects::slot::Source as Derived;
use crate::objects::{
    Context, Device as DeviceObject, Domain as DomainObject, Object, Pcore as PcoreObject, Portal as PortalObject, Ptr,
    Ram as RamObject, Range, Schedule, Segment as SegmentObject, Semaphore as SemaphoreObject,
};
use crate::shared::SharedShare;
use crate::state::Kernel;
use abi::call::kinds::*;
use abi::{Call, Error, Handle, ObjectType, Rights};

/// What a type of object is in the kernel.
pub(super) trait Marker {
    type Object: Object;
}

macro_rules! markers {
    ($($marker:ident is $object:ty;)*) => { $( impl Marker for $marker { type Object = $object; } )* };
}

markers! {
    Ram is RamObject;
    Domain is DomainObject;
    Segment is SegmentObject;
    AddressRange is Range;
    Share is SharedShare;
    ExecutionContext is Context;
    SchedulingContext is Schedule;
    Portal is PortalObject;
    Semaphore is SemaphoreObject;
    Pcore is PcoreObject;
    Device is DeviceObject;
}

/// A kind of argument as the kernel decodes it.
pub(super) trait Decode {
    type Value;
    /// Decodes the words from `at` on, and passes them.
    fn decode(kernel: &Kernel, request: Request, at: &mut usize) -> Result<Self::Value, Error>;
}

/// The number of the next argument.
#[inline(always)]
fn next(at: &mut usize) -> usize {
    *at += 1;
    *at - 1
}

macro_rules! decode {
    ($( {$($of:ident: $bound:ident),*; $($count:ident: $type:ty),*} $kind:ty: $value:ty,
        |$kernel:pat_param, $request:pat_param, $at:ident| $body:expr; )*) => { $(
        impl<$($of: $bound,)* $(const $count: $type),*> Decode for $kind {
            type Value = $value;
            #[inline(always)]
            fn decode($kernel: &Kernel, $request: Request, $at: &mut usize) -> Result<$value, Error> {
                $body
            }
        }
    )* };
}

decode! {
    {T: Marker; R: u32} Cap<T, R>: Ptr<T::Object>, |_, request, at| request.object(next(at), Rights(R));
    {T: Marker; R: u32} Held<T, R>: (Ptr<T::Object>, Derived), |_, request, at| request.held(next(at), Rights(R));
    {T: Marker; R: u32} OptionalCap<T, R>: Option<Ptr<T::Object>>, |_, request, at| request.optional(next(at), Rights(R));
    {T: Objects; R: u32} Source<T, R>: Derived, |_, request, at| request.source_of(next(at), T::TYPES, Rights(R));
    {T: Objects; R: u32} CapOf<T, R>: usize, |_, _, at| Ok(next(at));
    {T: Objects; R: u32} Named<T, R>: usize, |_, _, at| Ok(next(at));
    {; R: u32} Here<R>: (), |kernel, request, at| request.check_core(kernel, next(at), Rights(R));
    {; R: u32} OptionalHere<R>: bool, |kernel, request, at| {
        let argument = next(at);
        let is_given = request.words()[argument] != Handle::NONE.0;
        if is_given { request.check_core(kernel, argument, Rights(R)).map(|()| true) } else { Ok(false) }
    };
    {;} Target: (Notification, Derived), |_, request, at| request.target(next(at));
    {;} OptionalTarget: Option<(Notification, Derived)>, |_, request, at| {
        let argument = next(at);
        if request.words()[argument] == Handle::NONE.0 { Ok(None) } else { request.target(argument).map(Some) }
    };
    {;} Turns: TurnsOf, |kernel, request, at| super::memory::turns(kernel, request, next(at));
    {; MAX: usize} Text<MAX>: (u64, usize), |_, request, at| request.bytes(next(at), next(at), MAX);
    {; MAX: usize} Bytes<MAX>: (u64, usize), |_, request, at| request.bytes(next(at), next(at), MAX);
    {;} Buffer: (u64, u64), |_, request, at| Ok((request.words()[next(at)], request.words()[next(at)]));
    {;} Name: [u64; 2], |_, request, at| Ok([request.words()[next(at)], request.words()[next(at)]]);
    {;} EntryArguments: [u64; 2], |_, request, at| Ok([request.words()[next(at)], request.words()[next(at)]]);
    {;} RightsWanted: u64, |_, request, at| Ok(request.words()[next(at)]);
    {;} Switch: bool, |_, request, at| match request.words()[next(at)] {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Error::BadArgument),
    };
    {;} TypeNumber: usize, |_, request, at| {
        let number = usize::try_from(request.words()[next(at)]).map_err(|_| Error::BadArgument)?;
        if (1..=ObjectType::ALL.len()).contains(&number) { Ok(number) } else { Err(Error::BadArgument) }
    };
    {T: Sized;} In<T>: u64, |_, request, at| Ok(request.words()[next(at)]);
    {T: Sized;} Out<T>: u64, |_, request, at| Ok(request.words()[next(at)]);
    {; NUMBER: u8} Numeric<NUMBER>: u64, |kernel, request, at| {
        let (kind, word) = (Number::ALL[NUMBER as usize], request.words()[next(at)]);
        // How many cores there are the machine says.
        let fits = if kind == Number::Core { word < pcore::count(kernel) as u64 } else { kind.limits().contains(&word) };
        if fits { Ok(word) } else { Err(Error::BadArgument) }
    };
}

macro_rules! record {
    // Decoded by hand.
    ([Direct] $($rest:tt)*) => {};
    ([$($flag:ident)*] $function:ident $name:ident ($($argument:ident: $kind:ty),*) ($($progress:ident),*)) => {
        #[allow(dead_code, reason = "some need only be right")]
        pub(in crate::calls) struct $name {
            $( pub $argument: <$kind as Decode>::Value, )*
            $( pub $progress: u64, )*
        }

        impl $name {
            /// Decodes its arguments and makes the call.
            #[allow(unused, reason = "some calls have no arguments")]
            pub fn make(kernel: &mut Kernel, request: Request) -> Answer {
                let mut at = 0;
                $( let $argument = <$kind as Decode>::decode(kernel, request, &mut at)?; )*
                $( let $progress = request.words()[next(&mut at)]; )*
                $function(kernel, request, $name { $($argument,)* $($progress,)* })
            }
        }
    };
}

macro_rules! make {
    ([Direct] $($rest:tt)*) => {
        unreachable!("no call of a ring, and `enter` makes them")
    };
    ($flags:tt $name:ident $kernel:ident $request:ident) => {
        $name::make($kernel, $request)
    };
}

macro_rules! make_of_ring {
    ([Ring] $name:ident $kernel:ident $request:ident) => {
        $name::make($kernel, $request)
    };
    ($($rest:tt)*) => {
        Err(Error::BadCall)
    };
}

macro_rules! calls {
    ($(
        $(#[$doc:meta])*
        $number:literal fn $function:ident = $name:ident [$($flag:ident)*] ($($argument:ident: $kind:ty),*)
        $(then ($($progress:ident),*))? -> ($($result:ident: $returned:ty),*)
        $(| $($error:ident $why:literal),*)?;
    )*) => {
        $( record! { [$($flag)*] $function $name ($($argument: $kind),*) ($($($progress),*)?) } )*

        /// Makes a call, but for those that `enter` makes.
        #[inline(always)]
        pub fn dispatch(kernel: &mut Kernel, call: Call, request: Request) -> Answer {
            match call { $( Call::$name => make!([$($flag)*] $name kernel request), )* }
        }

        /// Makes a call that a ring may ask for.
        pub fn dispatch_of_ring(kernel: &mut Kernel, call: Call, request: Request) -> Answer {
            match call { $( Call::$name => make_of_ring!([$($flag)*] $name kernel request), )* }
        }
    };
}

pub(super) mod records {
    use super::super::{
        Answer, basic::*, capability::*, context::*, device::*, domain::*, memory::*, notification::*, pcore::*,
        portal::*, range::*, revoke::*, segment::*, semaphore::*, share::*,
    };
    use super::*;
    abi::for_each_call!(calls);
}
