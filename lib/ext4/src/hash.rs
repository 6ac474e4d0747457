//! The hash of a name by which a directory's index is in order: half of an MD4, in the two ways to
//! read bytes that compilers gave Linux.

/// Bytes that one round takes.
const ROUND_BYTES: usize = 32;
/// What the hash starts from on a volume without a seed.
const DEFAULT_SEED: [u32; 4] = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476];
/// The end of a directory has this place of its own, so no name has it.
const END: u32 = 0xFFFF_FFFE;

/// The hash of `name`: an even number.
pub(crate) fn half_md4(name: &[u8], seed: [u32; 4], is_unsigned: bool) -> u32 {
    let mut state = if seed == [0; 4] { DEFAULT_SEED } else { seed };
    let mut rest = name;
    while !rest.is_empty() {
        transform(&mut state, words(rest, is_unsigned));
        rest = rest.get(ROUND_BYTES..).unwrap_or(&[]);
    }
    let hash = state[1] & !1;
    if hash == END { END - 2 } else { hash }
}

/// The next 32 bytes of a name as words, filled up with what is left of its length.
fn words(rest: &[u8], is_unsigned: bool) -> [u32; 8] {
    let length = rest.len() as u32 & 0xFF;
    let pad = length << 8 | length;
    let pad = pad << 16 | pad;
    let mut words = [pad; 8];
    for (chunk, word) in rest.chunks(4).zip(&mut words) {
        for &byte in chunk {
            let byte = if is_unsigned { u32::from(byte) } else { i32::from(byte as i8) as u32 };
            *word = byte.wrapping_add(*word << 8);
        }
    }
    words
}

/// Three rounds of MD4, each over half as many words.
fn transform(state: &mut [u32; 4], words: [u32; 8]) {
    type Mix = fn(u32, u32, u32) -> u32;
    const ROUNDS: [(Mix, u32, [usize; 8], [u32; 4]); 3] = [
        (|x, y, z| z ^ (x & (y ^ z)), 0, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19]),
        (|x, y, z| (x & y).wrapping_add((x ^ y) & z), 0x5A82_7999, [1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13]),
        (|x, y, z| x ^ y ^ z, 0x6ED9_EBA1, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15]),
    ];
    let mut now = *state;
    for (mix, constant, order, shifts) in ROUNDS {
        for (step, word) in order.into_iter().enumerate() {
            // The four words take turns: a, d, c, b.
            let at = |offset: usize| (4 - step % 4 + offset) % 4;
            let mixed = mix(now[at(1)], now[at(2)], now[at(3)]);
            let sum = now[at(0)].wrapping_add(mixed).wrapping_add(words[word]).wrapping_add(constant);
            now[at(0)] = sum.rotate_left(shifts[step % 4]);
        }
    }
    for (word, more) in state.iter_mut().zip(now) {
        *word = word.wrapping_add(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes 0F 1E 2D 3C, 4B 5A 49 78, 97 A6 B5 C4, D3 E2 F1 01.
    const SEED: [u32; 4] = [0x3C2D_1E0F, 0x7849_5A4B, 0xC4B5_A697, 0x01F1_E2D3];

    #[test]
    fn a_name_has_the_hash_that_e2fsprogs_gives_it() {
        // By debugfs: dx_hash -h 1 NAME, then with -s 0f1e2d3c-4b5a-4978-97a6-b5c4d3e2f101; the
        // same with -h 4, for bytes without a sign.
        let names: [(&[u8], [u32; 4]); 10] = [
            (b"a", [0xD5FA_7D7A, 0x34D6_2D06, 0xD5FA_7D7A, 0x34D6_2D06]),
            (b"hello", [0x1746_DA32, 0x3BCE_9486, 0x1746_DA32, 0x3BCE_9486]),
            (b"0123456789abcdef0123456789abcde", [0x370D_91DC, 0x9C91_1C2A, 0x370D_91DC, 0x9C91_1C2A]),
            (b"0123456789abcdef0123456789abcdef", [0x3618_4620, 0xEA79_7628, 0x3618_4620, 0xEA79_7628]),
            (b"0123456789abcdef0123456789abcdefg", [0xE457_320E, 0x61B1_DDF0, 0xE457_320E, 0x61B1_DDF0]),
            (&[b'n'; 100], [0x13F0_5A1E, 0xA391_3F54, 0x13F0_5A1E, 0xA391_3F54]),
            (&[b'x'; 255], [0x2AA7_169E, 0xAA8E_D47A, 0x2AA7_169E, 0xAA8E_D47A]),
            ("größe".as_bytes(), [0xA759_A98E, 0x3436_4844, 0x10EA_F0CC, 0x666D_9206]),
            (&[0xC3, 0xBF].repeat(40), [0x1EEA_5D8C, 0x9585_E084, 0xE663_4D8E, 0xF75B_BCBA]),
            (b"\xFF\x80\xFE\x81", [0xD328_57E6, 0x0D68_14EA, 0xF7FF_A59E, 0x2ED1_A0EE]),
        ];
        for (name, expected) in names {
            let hashes = [([0; 4], false), (SEED, false), ([0; 4], true), (SEED, true)]
                .map(|(seed, is_unsigned)| half_md4(name, seed, is_unsigned));
            assert_eq!(hashes, expected, "{name:?}");
        }
    }

    #[test]
    fn a_name_does_not_have_the_hash_of_the_end() {
        // Found by trial. debugfs has FFFF_FFFE for both, and Linux what is here.
        for name in [b"9ec0a1a6", b"a10da61a"] {
            assert_eq!(half_md4(name, [0; 4], false), 0xFFFF_FFFC);
        }
    }
}
