//! What a program finds on its stack at its first instruction: argc, argv, envp, auxiliary vector
//! (System V x86-64 ABI 3.4.1).

use alloc::vec::Vec;

use crate::errno::Errno;

/// Arguments and environment together (Linux allows a quarter of the stack; this bounds the proxy's
/// heap).
pub const ARGUMENTS_BYTES_MAX: usize = 128 << 10;

#[allow(missing_docs)]
pub mod auxiliary {
    pub const PHDR: u64 = 3;
    pub const PHENT: u64 = 4;
    pub const PHNUM: u64 = 5;
    pub const PAGESZ: u64 = 6;
    pub const BASE: u64 = 7;
    pub const FLAGS: u64 = 8;
    pub const ENTRY: u64 = 9;
    pub const UID: u64 = 11;
    pub const EUID: u64 = 12;
    pub const GID: u64 = 13;
    pub const EGID: u64 = 14;
    pub const PLATFORM: u64 = 15;
    pub const HWCAP: u64 = 16;
    pub const CLKTCK: u64 = 17;
    pub const SECURE: u64 = 23;
    pub const RANDOM: u64 = 25;
    pub const EXECFN: u64 = 31;
}

/// The bytes to copy and where.
#[derive(Debug)]
pub struct InitialStack {
    /// The first stack pointer; `bytes` go here and end at the stack's top.
    pub pointer: u64,
    /// Contents.
    pub bytes: Vec<u8>,
}

/// Lays out the stack below `top` (page-aligned). `fixed` auxiliary entries are passed on;
/// PLATFORM, RANDOM and EXECFN are added. `E2BIG`.
pub fn build(
    top: u64,
    arguments: &[Vec<u8>],
    environment: &[Vec<u8>],
    path: &[u8],
    random: [u8; 16],
    fixed: &[(u64, u64)],
) -> Result<InitialStack, Errno> {
    let strings_bytes: usize = arguments.iter().chain(environment).map(|text| text.len() + 1 + 8).sum();
    if strings_bytes > ARGUMENTS_BYTES_MAX || path.len() > 4096 {
        return Err(Errno::E2BIG);
    }
    let mut strings = Vec::new();
    let mut offsets = Vec::new();
    let all = arguments.iter().chain(environment).map(Vec::as_slice).chain([path, b"x86_64"]);
    for text in all {
        offsets.push(strings.len() as u64);
        strings.extend_from_slice(text);
        strings.push(0);
    }
    let random_offset = strings.len() as u64;
    strings.extend_from_slice(&random);

    let words = 1 + arguments.len() + 1 + environment.len() + 1 + 2 * (fixed.len() + 4);
    let strings_at = (top - strings.len() as u64) & !15;
    let pointer = (strings_at - 8 * words as u64) & !15;
    let mut bytes = Vec::with_capacity((top - pointer) as usize);
    let mut word = |value: u64| bytes.extend_from_slice(&value.to_le_bytes());
    let string = |index: usize| strings_at + offsets[index];
    let after = arguments.len() + environment.len();

    word(arguments.len() as u64);
    (0..arguments.len()).for_each(|index| word(string(index)));
    word(0);
    (arguments.len()..after).for_each(|index| word(string(index)));
    word(0);
    let added = [
        (auxiliary::EXECFN, string(after)),
        (auxiliary::PLATFORM, string(after + 1)),
        (auxiliary::RANDOM, strings_at + random_offset),
        (0, 0),
    ];
    for (kind, value) in fixed.iter().chain(&added) {
        word(*kind);
        word(*value);
    }
    bytes.resize((strings_at - pointer) as usize, 0);
    bytes.extend_from_slice(&strings);
    Ok(InitialStack { pointer, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(stack: &InitialStack, index: usize) -> u64 {
        u64::from_le_bytes(stack.bytes[index * 8..index * 8 + 8].try_into().unwrap())
    }

    fn string(stack: &InitialStack, address: u64) -> &[u8] {
        let rest = &stack.bytes[(address - stack.pointer) as usize..];
        &rest[..rest.iter().position(|byte| *byte == 0).unwrap()]
    }

    #[test]
    fn a_program_finds_its_arguments() {
        for count in 0..5 {
            let arguments: Vec<Vec<u8>> = (0..count).map(|index| vec![b'a' + index; usize::from(index) * 7]).collect();
            let stack = build(
                0x7fff_0000,
                &arguments,
                &[b"PATH=/bin".to_vec()],
                b"/bin/x",
                [7; 16],
                &[(auxiliary::PAGESZ, 4096)],
            )
            .unwrap();
            assert_eq!(stack.pointer % 16, 0);
            assert!(stack.pointer + stack.bytes.len() as u64 <= 0x7fff_0000);
            assert_eq!(word(&stack, 0), u64::from(count));
            for (index, argument) in arguments.iter().enumerate() {
                assert_eq!(string(&stack, word(&stack, 1 + index)), argument);
            }
            let environment = usize::from(count) + 2;
            assert_eq!(word(&stack, environment - 1), 0);
            assert_eq!(string(&stack, word(&stack, environment)), b"PATH=/bin");
            assert_eq!((word(&stack, environment + 2), word(&stack, environment + 3)), (auxiliary::PAGESZ, 4096));
            assert_eq!(string(&stack, word(&stack, environment + 5)), b"/bin/x");
        }
    }

    /// Each text counts with its end and the word that points to it.
    #[test]
    fn arguments_and_environment_have_a_limit_together() {
        let text = |bytes| vec![vec![b'x'; bytes - 9]];
        let built = |arguments: usize, environment: usize, path: usize| {
            let path = vec![b'p'; path];
            build(0x7fff_0000, &text(arguments), &text(environment), &path, [0; 16], &[]).map(|_| ())
        };
        let half = ARGUMENTS_BYTES_MAX / 2;
        assert_eq!(built(half, half, 4096), Ok(()));
        for (arguments, environment, path) in [(half + 1, half, 1), (half, half + 1, 1), (half, half, 4097)] {
            assert_eq!(built(arguments, environment, path), Err(Errno::E2BIG));
        }
    }

    /// What is below the strings is what is told, and the alignment.
    #[test]
    fn everything_that_is_told_is_at_its_place() {
        let texts = |count| vec![b"abc".to_vec(); count];
        for (arguments, environment, fixed) in [(0, 0, 0), (1, 0, 1), (2, 3, 2), (3, 2, 5), (1, 4, 3)] {
            let fixed: Vec<_> = (0..fixed).map(|kind| (100 + kind, kind)).collect();
            let stack = build(0x7fff_0000, &texts(arguments), &texts(environment), b"/x", *b"sixteen bytes of", &fixed)
                .unwrap();
            assert_eq!((stack.pointer + stack.bytes.len() as u64).next_multiple_of(16), 0x7fff_0000);
            let ends = [1 + arguments, 2 + arguments + environment];
            assert_eq!(ends.map(|index| word(&stack, index)), [0; 2]);
            let first = ends[1] + 1;
            let pair = |index: usize| (word(&stack, first + 2 * index), word(&stack, first + 1 + 2 * index));
            let told: Vec<_> = (0..fixed.len() + 4).map(pair).collect();
            assert_eq!(told[..fixed.len()], fixed);
            let [path, platform, random, end] = told[fixed.len()..] else { panic!("{told:?}") };
            assert_eq!((path.0, string(&stack, path.1)), (auxiliary::EXECFN, &b"/x"[..]));
            assert_eq!((platform.0, string(&stack, platform.1)), (auxiliary::PLATFORM, &b"x86_64"[..]));
            assert_eq!((random.0, end), (auxiliary::RANDOM, (0, 0)));
            assert_eq!(stack.bytes[(random.1 - stack.pointer) as usize..][..16], *b"sixteen bytes of");
            // The first text begins within 16 bytes behind the last word.
            let strings = word(&stack, if arguments > 0 { 1 } else { first + 2 * fixed.len() + 1 });
            let words = first + 2 * told.len();
            assert!((0..16).contains(&(strings - stack.pointer - 8 * words as u64)));
        }
    }
}
