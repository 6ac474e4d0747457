//! One function for each row of `abi::for_each_call!`.

use super::Outcome;
use super::encode::{Decode, Encode, Registers};
use abi::Call;
use abi::call::kinds::*;

/// What a call gives back.
type Gets<T> = <T as Decode>::Gets;
/// What a caller passes.
type Given<'a, T> = <T as Encode>::Given<'a>;

macro_rules! functions {
    ($(
        $(#[$doc:meta])*
        $number:literal fn $function:ident = $name:ident [$($flag:ident)*] ($($argument:ident: $kind:ty),*)
        $(then ($($progress:ident),*))? -> ($($result:ident: $returned:ty),*)
        $(| $($error:ident $why:literal),*)?;
    )*) => { $(
        function! {
            $(#[$doc])* [$($flag)*] $function = $name ($($argument: $kind),*) -> ($($result: $returned),*)
        }
    )* };
}

macro_rules! function {
    ($(#[$doc:meta])* [Unsafe] $function:ident $($rest:tt)*) => {
        function! { $(#[$doc])* (unsafe) $function $($rest)* }
    };
    ($(#[$doc:meta])* [$($flag:ident)*] $function:ident $($rest:tt)*) => {
        function! { $(#[$doc])* () $function $($rest)* }
    };
    (
        $(#[$doc:meta])* ($($unsafe:tt)?) $function:ident = $name:ident
        ($($argument:ident: $kind:ty),*) -> ($($result:ident: $returned:ty),*)
    ) => {
        $(#[$doc])*
        #[inline(always)]
        #[allow(unused_parens, unused_mut, unused_variables, reason = "as many arguments and results as the row has")]
        pub $($unsafe)? fn $function($($argument: Given<'_, $kind>),*) -> Outcome<($(Gets<$returned>),*)> {
            let mut registers = Registers::default();
            $(<$kind as Encode>::encode($argument, &mut registers);)*
            // SAFETY: by its row the call pulls no memory and no register from under the caller, or
            // this function is unsafe, too; pointers are those of references that it was given,
            // whose types say what the kernel does there.
            let words = unsafe { super::call(Call::$name, registers.words) }?;
            let mut at = 0;
            Ok(($(<$returned as Decode>::decode(&words, &mut at)),*))
        }
    };
}

abi::for_each_call!(functions);
