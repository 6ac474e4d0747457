//! The next call: its number and its arguments.

use abi::call::Word;
use abi::call::kinds::{Number, Place};
use abi::{Call, Handle, ObjectType, layout};

use crate::Random;

const PAGE: u64 = abi::PAGE_BYTES;
/// Calls that end the game soon, or write to the log.
pub const RARE: [Call; 6] =
    [Call::DomainExit, Call::DomainKill, Call::RamRevoke, Call::ContextEnd, Call::ContextResume, Call::Log];
/// Calls about part of a mapping: range, address, pages.
const OF_MAPPINGS: [Call; 4] = [Call::RangeUnmap, Call::RangeProtect, Call::RangeFill, Call::RangeGet];
/// How much less often those come.
const RARE_IN: u64 = 20;
/// One number in so many is of no call.
const NO_CALL_IN: u64 = 300;
/// One in so many is not even a native one.
const NOT_NATIVE_IN: u64 = 4000;
/// One call in so many is made with words that know nothing of it: most of those are refused at
/// once.
const SHAPELESS_IN: u64 = 8;
/// Time limits of calls that wait.
const SOON_NS: u64 = 3000;

/// A call to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// For RAX.
    pub number: u64,
    /// RDI, RSI, RDX, R10, R8, R9.
    pub words: [u64; 6],
}

/// Who is to make the calls.
pub trait Surroundings {
    /// A handle that names an object of that type, or of any; now and then one that did so once, or
    /// never.
    fn handle(&mut self, random: &mut Random, wanted: Option<ObjectType>) -> u64;
    /// An id of a shared object or a pool.
    fn id(&mut self, random: &mut Random) -> u64;
    /// A handle that names an object in a shared share.
    fn named(&mut self, random: &mut Random) -> u64;
    /// Ns since boot.
    fn now_ns(&mut self) -> u64;
    /// Where there may be code for a new context, and its first argument.
    fn entry(&mut self, random: &mut Random) -> [u64; 2];
    /// A mapping that is there, as far as is known: a handle of its range, its address, its pages,
    /// which are some.
    fn mapped(&mut self, random: &mut Random) -> Option<[u64; 3]>;
    /// An address where the kernel may read and write.
    fn pointer(&mut self, random: &mut Random) -> u64;
    /// Calls of which a few are enough.
    fn is_rare(&self, call: Call) -> bool {
        RARE.contains(&call)
    }
    /// Calls that are never to be made.
    fn is_left_out(&self, call: Call) -> bool;
}

/// The next call.
pub fn next(random: &mut Random, around: &mut impl Surroundings) -> Made {
    let call = call(random, around);
    let is_shaped = !random.once_in(SHAPELESS_IN);
    let mut shape = call.words();
    let mut words = core::array::from_fn(|_| match shape.next() {
        Some(word) if is_shaped && !random.once_in(20) => plausible(random, around, word),
        // A call in steps says 0 at first.
        None if is_shaped && !random.once_in(4) => 0,
        _ => argument(random, around),
    });
    if OF_MAPPINGS.contains(&call)
        && random.once_in(2)
        && let Some([range, address, pages]) = around.mapped(random)
    {
        let first = random.below(pages);
        words[..3].copy_from_slice(&[range, address + first * PAGE, 1 + random.below(pages - first)]);
    }
    let number = if random.once_in(NOT_NATIVE_IN) {
        random.any()
    } else if random.once_in(NO_CALL_IN) {
        abi::call::NATIVE_BASE | random.below(1 << 12)
    } else {
        call.number()
    };
    // A number at random may hit a call, too.
    match Call::decode(number) {
        Some(hit) if around.is_left_out(hit) => Made { number: call.number(), words },
        _ => Made { number, words },
    }
}

fn call(random: &mut Random, around: &impl Surroundings) -> Call {
    loop {
        let (call, _) = random.one(Call::ALL);
        let is_rare = around.is_rare(call) && !random.once_in(RARE_IN);
        if !is_rare && !around.is_left_out(call) {
            return call;
        }
    }
}

/// An argument that knows nothing of the call: a small number, an address that may be mapped, an
/// edge, any bits.
pub fn argument(random: &mut Random, around: &mut impl Surroundings) -> u64 {
    match random.below(14) {
        0..=4 => random.below(48),
        5 => random.below(4),
        6 | 7 => layout::HEAP + random.below(64) * PAGE,
        8 => layout::COMPONENT_BASE + random.below(3) * (PAGE << 9),
        9 => random.one(&[
            0,
            1,
            u64::MAX,
            1 << 63,
            layout::USER_END,
            layout::USER_END - PAGE,
            255,
            511,
            PAGE,
            1 << 47,
            100_000,
            layout::SHARE_SLOTS_MAX,
            layout::SEGMENT_PAGES_MAX,
        ]),
        // Nearly right, nearly in the window, of the kernel, of no one.
        10 => {
            let near =
                random.one(&[layout::HEAP, layout::USER_END, layout::USER_START, layout::SEGMENT_PAGES_MAX, 1 << 47]);
            near.wrapping_add(random.below(17)).wrapping_sub(8)
        }
        11 => {
            random.one(&[0xffff_8000_0000_0000, 0xffff_ffff_8000_0000, 0x8000_0000_0000, 0xffff_7fff_ffff_f000])
                + random.below(64) * PAGE
        }
        12 => around.now_ns() + random.below(SOON_NS),
        _ => random.any(),
    }
}

/// What a word of a call may be, by its row.
fn plausible(random: &mut Random, around: &mut impl Surroundings, word: Word) -> u64 {
    match word {
        Word::Capability { types, place, .. } => handle(random, around, types, place),
        Word::Number(number) => plausible_number(random, around, number),
    }
}

fn handle(random: &mut Random, around: &mut impl Surroundings, types: &[ObjectType], place: Place) -> u64 {
    match place {
        Place::RootOrNone if random.once_in(3) => return Handle::NONE.0,
        Place::RootOrShared if random.once_in(2) => return around.named(random),
        _ => {}
    }
    let wanted = if types.is_empty() { None } else { Some(random.one(types)) };
    around.handle(random, wanted)
}

fn plausible_number(random: &mut Random, around: &mut impl Surroundings, number: Number) -> u64 {
    match number {
        Number::Address | Number::UserAddress | Number::Physical => {
            let pages = random.one(&[8, 64]);
            random.one(&[0, layout::HEAP, layout::HEAP]) + random.below(pages) * PAGE
        }
        // Where a nested range fits, in a space or in another one.
        Number::NestAddress => random.one(&[0, layout::HEAP]) + (random.below(3) << random.one(&[21, 30, 39])),
        Number::Instruction => around.entry(random)[0],
        Number::EntryArgument => around.entry(random)[1],
        Number::Pages | Number::SegmentPages | Number::Length => {
            let most = random.one(&[2, 24]);
            1 + random.below(most) + if random.once_in(9) { 600 } else { 0 }
        }
        Number::PagesOrNone => random.below(2) * (1 + random.below(24)),
        Number::RangePages => random.one(&[1, 512, 513, 1 << 18, 1 << 27]),
        Number::FirstPage => random.one(&[0, 0, 1, 7]),
        Number::Slice => 100 + random.below(2000),
        Number::Period => random.one(&[0, 0, 100, 200]),
        Number::WatchLimit => random.one(&[0, 1, layout::context::WATCH_LIMIT_MIN_NS, 1 << 30]),
        Number::Deadline => around.now_ns() + random.below(SOON_NS),
        Number::SharedId => around.id(random),
        Number::Pointer => around.pointer(random),
        Number::Flags | Number::WriteExecute | Number::Contiguous => random.below(4),
        Number::RightsMask => random.one(&[511, 1023, 255, 1, 256, 35, 63]),
        Number::Value | Number::Choice | Number::Core | Number::Badge | Number::Priority => random.below(8),
        Number::ExitStatus | Number::SemaphoreCount | Number::Eighths | Number::WakeSlot => random.below(8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Surroundings for Nothing {
        fn handle(&mut self, random: &mut Random, _: Option<ObjectType>) -> u64 {
            random.below(8)
        }
        fn id(&mut self, _: &mut Random) -> u64 {
            0
        }
        fn named(&mut self, random: &mut Random) -> u64 {
            random.any()
        }
        fn now_ns(&mut self) -> u64 {
            1 << 40
        }
        fn entry(&mut self, _: &mut Random) -> [u64; 2] {
            [0; 2]
        }
        fn mapped(&mut self, _: &mut Random) -> Option<[u64; 3]> {
            Some([2, layout::HEAP, 3])
        }
        fn pointer(&mut self, _: &mut Random) -> u64 {
            0
        }
        fn is_left_out(&self, call: Call) -> bool {
            call == Call::PowerOff
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_calls() {
        let calls = |seed| -> [Made; 100] {
            let mut random = Random::new(seed);
            core::array::from_fn(|_| next(&mut random, &mut Nothing))
        };
        assert_eq!(calls(1), calls(1));
        assert_ne!(calls(1), calls(2));
    }

    #[test]
    fn every_call_comes_but_those_left_out() {
        let mut random = Random::new(5);
        let mut seen = [0u32; 1 << 12];
        for _ in 0..200_000 {
            let made = next(&mut random, &mut Nothing);
            if abi::call::is_native(made.number) {
                seen[(made.number & 0xfff) as usize] += 1;
            }
        }
        for (call, name) in Call::ALL {
            let times = seen[*call as usize];
            assert!((times > 0) == (*call != Call::PowerOff), "{name} came {times} times");
        }
        assert!(seen[0x400..].iter().any(|times| *times > 0), "no number without a call");
    }
}
