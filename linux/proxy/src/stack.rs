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
        assert_eq!(
            build(0x7fff_0000, &[vec![b'x'; ARGUMENTS_BYTES_MAX]], &[], b"", [0; 16], &[]).err(),
            Some(Errno::E2BIG)
        );
    }
}
