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
