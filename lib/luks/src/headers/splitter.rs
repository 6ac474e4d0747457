//! The anti-forensic splitter: a key is spread over 4,000 stripes, so that it is gone when any of
//! them is overwritten (K. Demirci and C. Fruhwirth's TKS1; LUKS1's specification, section 2.4).

use zeroize::{Zeroize, Zeroizing};

use super::hash::Hash;
use crate::key::{KEY_BYTES, VolumeKey};

/// Stripes of a split key: cryptsetup makes no other number.
pub(crate) const STRIPES: usize = 4000;
/// Bytes of a split key.
pub(crate) const SPLIT_BYTES: usize = STRIPES * KEY_BYTES;

/// The key that `stripes`, [`SPLIT_BYTES`] of them, make together.
pub(crate) fn merge(hash: Hash, stripes: &[u8]) -> VolumeKey {
    let (stripes, _) = stripes.as_chunks::<KEY_BYTES>();
    let mut key = VolumeKey::empty();
    let Some((last, others)) = stripes.split_last() else { return key };
    gather(hash, others, key.bytes_mut());
    add(key.bytes_mut(), last);
    key
}

/// Makes the last of `stripes`, [`SPLIT_BYTES`] whose others are random, so that together they
/// are `key`.
pub(crate) fn split(hash: Hash, key: &VolumeKey, stripes: &mut [u8]) {
    let (stripes, _) = stripes.as_chunks_mut::<KEY_BYTES>();
    let Some((last, others)) = stripes.split_last_mut() else { return };
    let mut sum = Zeroizing::new([0; KEY_BYTES]);
    gather(hash, others, &mut sum);
    *last = *key.bytes();
    add(last, &sum);
}

/// What all stripes but the last come to.
fn gather(hash: Hash, stripes: &[[u8; KEY_BYTES]], sum: &mut [u8; KEY_BYTES]) {
    for stripe in stripes {
        add(sum, stripe);
        diffuse(hash, sum);
    }
}

fn add(sum: &mut [u8; KEY_BYTES], stripe: &[u8; KEY_BYTES]) {
    for (byte, other) in sum.iter_mut().zip(stripe) {
        *byte ^= other;
    }
}

/// Puts each piece of a hash's length through the hash, behind its number.
fn diffuse(hash: Hash, bytes: &mut [u8; KEY_BYTES]) {
    for (number, piece) in (0u32..).zip(bytes.chunks_mut(hash.bytes())) {
        let mut sum = hash.sum(&[&number.to_be_bytes(), piece]);
        piece.copy_from_slice(&sum[..piece.len()]);
        sum.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn noise() -> Vec<u8> {
        (0..SPLIT_BYTES).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    #[test]
    fn what_was_split_is_merged_and_each_stripe_counts() {
        for hash in [Hash::Sha256, Hash::Sha512] {
            let mut stripes = noise();
            let key = VolumeKey::take(&mut core::array::from_fn(|at| at as u8));
            split(hash, &key, &mut stripes);
            assert_eq!(merge(hash, &stripes).bytes(), key.bytes());
            for at in [0, SPLIT_BYTES / 2, SPLIT_BYTES - 1] {
                stripes[at] ^= 1;
                assert_ne!(merge(hash, &stripes).bytes(), key.bytes());
                stripes[at] ^= 1;
            }
        }
    }

    #[test]
    fn the_last_stripe_is_the_one_that_others_compute() {
        // By hashlib, and LUKS1's specification.
        let kept = [
            (Hash::Sha256, [0x3d, 0xdd, 0x26, 0x99], [0x8f, 0x6b, 0x71, 0xa6]),
            (Hash::Sha512, [0x49, 0x17, 0xf5, 0x84], [0xa0, 0x74, 0x7c, 0x69]),
        ];
        for (hash, first, second) in kept {
            let (mut stripes, key) = (noise(), VolumeKey::take(&mut core::array::from_fn(|at| at as u8)));
            split(hash, &key, &mut stripes);
            let last = &stripes[SPLIT_BYTES - KEY_BYTES..];
            assert_eq!((&last[..4], &last[32..36]), (&first[..], &second[..]));
        }
    }
}
