//! A reverse index of words (`wri`): each worker notes for every word of its own text where it
//! stands. Corey's figure 10 does that to a large file; here the text is made, the same in every
//! run, and the index grows in fresh memory.

use crate::problem::Result;
use crate::rows::Setting;
use crate::sample::{SAMPLES, Sample, measured};
use crate::workers::{self, Kind};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::hint::black_box;

/// Of a worker's text; an operation of the row is one text.
pub const TEXT_BYTES: usize = 256 << 10;
const VOCABULARY: usize = 5000;
const WORD_BYTES: std::ops::RangeInclusive<u64> = 3..=12;

/// One text of each worker, all of one process.
pub fn index(setting: &Setting) -> Result<Vec<Sample>> {
    workers::run(Kind::Threads, setting.workers, |worker| Ok(Text(text(worker))), indexed)
}

/// A worker's own.
struct Text(Vec<u8>);

fn indexed(text: &Text) -> Result<Vec<Sample>> {
    let stretch = || {
        measured(1, || {
            black_box(positions(&text.0));
            Ok(())
        })
    };
    stretch()?;
    (0..SAMPLES).map(|_| stretch()).collect()
}

/// By a hash of fixed keys, so that every run does the same.
type Index<'t> = HashMap<&'t [u8], Vec<u32>, BuildHasherDefault<DefaultHasher>>;

/// Where each word stands.
fn positions(text: &[u8]) -> Index<'_> {
    let mut index = Index::default();
    let mut place = 0;
    for word in text.split(|byte| *byte == b' ') {
        if !word.is_empty() {
            index.entry(word).or_default().push(place);
        }
        place += word.len() as u32 + 1;
    }
    index
}

/// Words of a small vocabulary, some far more often than others.
fn text(worker: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ worker as u64;
    let mut next = |below: u64| {
        // Marsaglia's xorshift generator with 64 bits.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let length = WORD_BYTES.end() - WORD_BYTES.start() + 1;
    let mut word = || (0..WORD_BYTES.start() + next(length)).map(|_| b'a' + next(26) as u8).collect::<Vec<u8>>();
    let vocabulary: Vec<Vec<u8>> = (0..VOCABULARY).map(|_| word()).collect();
    let mut text = Vec::with_capacity(TEXT_BYTES + 2 * *WORD_BYTES.end() as usize);
    while text.len() < TEXT_BYTES {
        let rank = next(VOCABULARY as u64).min(next(VOCABULARY as u64)).min(next(VOCABULARY as u64));
        text.extend_from_slice(&vocabulary[rank as usize]);
        text.push(b' ');
    }
    text.truncate(TEXT_BYTES);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_found_where_it_stands() {
        let index = positions(b"one two  one");
        assert_eq!((index[&b"one"[..]].as_slice(), index[&b"two"[..]].as_slice()), (&[0, 9][..], &[4][..]));
        assert_eq!(index.len(), 2);
    }

    #[test]
    fn a_text_is_the_same_in_every_run() {
        assert_eq!(text(0), text(0));
        assert_ne!(text(0), text(1));
        assert_eq!(text(0).len(), TEXT_BYTES);
        let words = positions(&text(0)).len();
        assert!((VOCABULARY / 2..=VOCABULARY).contains(&words), "{words} different words");
    }
}
