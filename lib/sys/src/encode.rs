//! How each kind of argument becomes words, and words become results.

use abi::call::kinds::*;
use abi::{Handle, ObjectType, RangeEntry, Rights};
use zerocopy::{FromBytes, IntoBytes};

/// The words of a call, filled from the first on.
#[derive(Default)]
pub struct Registers {
    pub words: [u64; 6],
    count: usize,
}

impl Registers {
    #[inline(always)]
    fn push(&mut self, word: u64) {
        self.words[self.count] = word;
        self.count += 1;
    }

    #[inline(always)]
    fn extend<const COUNT: usize>(&mut self, words: [u64; COUNT]) {
        words.into_iter().for_each(|word| self.push(word));
    }
}

/// A kind of argument.
pub trait Encode {
    /// What a caller passes.
    type Given<'a>;
    /// Adds its words.
    fn encode(given: Self::Given<'_>, to: &mut Registers);
}

macro_rules! encode {
    ($( {$($of:ident),*; $($count:ident: $type:ty),*} $kind:ty: $given:ty, |$from:ident, $to:ident| $body:expr; )*) => { $(
        impl<$($of,)* $(const $count: $type),*> Encode for $kind {
            type Given<'a> = $given;
            #[inline(always)]
            fn encode($from: Self::Given<'_>, $to: &mut Registers) {
                $body;
            }
        }
    )* };
}

encode! {
    {T; R: u32} Cap<T, R>: Handle, |handle, to| to.push(handle.0);
    {T; R: u32} Held<T, R>: Handle, |handle, to| to.push(handle.0);
    {T; R: u32} CapOf<T, R>: Handle, |handle, to| to.push(handle.0);
    {T; R: u32} Source<T, R>: Handle, |handle, to| to.push(handle.0);
    {T; R: u32} OptionalCap<T, R>: Handle, |handle, to| to.push(handle.0);
    {T; R: u32} Named<T, R>: Handle, |handle, to| to.push(handle.0);
    {; R: u32} Here<R>: Handle, |handle, to| to.push(handle.0);
    {; R: u32} OptionalHere<R>: Handle, |handle, to| to.push(handle.0);
    {;} Target: Handle, |handle, to| to.push(handle.0);
    {;} OptionalTarget: Handle, |handle, to| to.push(handle.0);
    {;} Turns: Handle, |handle, to| to.push(handle.0);
    {; N: usize} Text<N>: &'a str, |text, to| to.extend([text.as_ptr() as u64, text.len() as u64]);
    {; N: usize} Bytes<N>: &'a [u8], |bytes, to| to.extend([bytes.as_ptr() as u64, bytes.len() as u64]);
    {;} Buffer: &'a mut [u8], |bytes, to| to.extend([bytes.as_mut_ptr() as u64, bytes.len() as u64]);
    {;} Name: [u64; 2], |name, to| to.extend(name);
    {; N: usize} Words<N>: [u64; N], |words, to| to.extend(words);
    {;} EntryArguments: [u64; 2], |words, to| to.extend(words);
    {;} RightsWanted: Rights, |rights, to| to.push(rights.0.into());
    {;} Switch: bool, |on, to| to.push(on.into());
    {;} TypeNumber: ObjectType, |object_type, to| to.push(object_type as u64);
}

/// The kernel reads the record, plain data.
impl<T: IntoBytes + 'static> Encode for In<T> {
    type Given<'a> = &'a T;
    #[inline(always)]
    fn encode(record: &T, to: &mut Registers) {
        to.push(core::ptr::from_ref(record) as u64);
    }
}

/// The kernel fills the record, for which any bytes will do.
impl<T: FromBytes + IntoBytes + 'static> Encode for Out<T> {
    type Given<'a> = &'a mut T;
    #[inline(always)]
    fn encode(record: &mut T, to: &mut Registers) {
        to.push(core::ptr::from_mut(record) as u64);
    }
}

/// Numbers stay what they are.
impl<const NUMBER: u8> Encode for Numeric<NUMBER> {
    type Given<'a> = u64;
    #[inline(always)]
    fn encode(number: u64, to: &mut Registers) {
        to.push(number);
    }
}

/// A kind of result.
pub trait Decode {
    /// What a caller gets.
    type Gets;
    /// Takes its words, from the place on that `at` counts.
    fn decode(words: &[u64; 6], at: &mut usize) -> Self::Gets;
}

#[inline(always)]
fn take<const COUNT: usize>(words: &[u64; 6], at: &mut usize) -> [u64; COUNT] {
    let first = *at;
    *at += COUNT;
    core::array::from_fn(|index| words[first + index])
}

macro_rules! decode {
    ($( {$($of:ident),*; $($count:ident: $type:ty),*} $kind:ty: $gets:ty, |$words:pat_param| $body:expr; )*) => { $(
        impl<$($of,)* $(const $count: $type),*> Decode for $kind {
            type Gets = $gets;
            #[inline(always)]
            fn decode(words: &[u64; 6], at: &mut usize) -> $gets {
                let $words = take(words, at);
                $body
            }
        }
    )* };
}

decode! {
    {T;} New<T>: Handle, |[word]| Handle(word);
    {T;} NewShared<T>: Handle, |[word]| Handle(word);
    {;} There: Handle, |[word]| Handle(word);
    {; NUMBER: u8} Numeric<NUMBER>: u64, |[word]| word;
    {; N: usize} Words<N>: [u64; N], |words| words;
    {;} Never: (), |[]| ();
    {;} Name: [u64; 2], |words| words;
    {;} Switch: bool, |[word]| word != 0;
    {;} More: bool, |[word]| word == 0;
    {;} RightsHeld: Rights, |[word]| Rights(word as u32);
    {;} Entry: RangeEntry, |words| RangeEntry::from_words(words);
    // R10 is 0.
    {;} Rendezvous: crate::Rendezvous, |[badge, first, second, _, third, fourth]| crate::Rendezvous {
        badge, words: [first, second, third, fourth]
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::start::DeviceRecord;

    #[test]
    fn arguments_fill_the_words_in_their_order() {
        let (text, mut record, given) = ("name", DeviceRecord::default(), 7_u64);
        let mut registers = Registers::default();
        Text::<9>::encode(text, &mut registers);
        Numeric::<0>::encode(u64::MAX, &mut registers);
        Out::<DeviceRecord>::encode(&mut record, &mut registers);
        In::<u64>::encode(&given, &mut registers);
        Switch::encode(true, &mut registers);
        let places = [text.as_ptr() as u64, core::ptr::from_ref(&record) as u64, core::ptr::from_ref(&given) as u64];
        assert_eq!(registers.words, [places[0], 4, u64::MAX, places[1], places[2], 1]);
    }

    #[test]
    fn results_come_out_of_the_words_in_their_order() {
        let (words, mut at) = ([10, 11, 0, 13, 14, 15], 0);
        assert_eq!(New::<()>::decode(&words, &mut at), Handle(10));
        assert!(Switch::decode(&words, &mut at) && More::decode(&words, &mut at));
        assert_eq!(Name::decode(&words, &mut at), [13, 14]);
        assert_eq!(Numeric::<0>::decode(&words, &mut at), 15);
        let crate::Rendezvous { badge, words } = Rendezvous::decode(&words, &mut 0);
        assert_eq!((badge, words), (10, [11, 0, 14, 15]));
    }
}
