//! The cipher of sectors against IEEE 1619, against another implementation, and by itself.

use aes::Aes256;
use aes::cipher::KeyInit;
use luks::{Misaligned, SectorBytes, SectorCipher, Segment, VolumeKey};
use proptest::prelude::*;
use xts_mode::{Xts128, get_tweak_default};

/// The key of IEEE 1619-2007's vectors 10 to 14.
const KEY: &str = "27182818284590452353602874713526624977572470936999595749669676273141592653589793238462643383279502884197169399375105820974944592";
/// Numbers of the vectors, with the first 32 and the last 16 bytes of what 512 bytes become.
const VECTORS: [(u64, &str, &str); 5] = [
    (0xFF, "1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b", "c4f36ffda9fcea70b9c6e693e148c151"),
    (0xFFFF, "77a31251618a15e6b92d1d66dffe7b50b50bad552305ba0217a610688eff7e11", "a4f9e27b42af8100cb9d59cef9645803"),
    (0xFF_FFFF, "e387aaa58ba483afa7e8eb469778317ecf4cf573aa9d4eac23f2cdf914e4e200", "2263a1eef52dd6888c309f5a7d712826"),
    (
        0xFFFF_FFFF,
        "bf53d2dade78e822a4d949a9bc6766b01b06a8ef70d26748c6a7fc36d80ae4c5",
        "4c82f335abb152c4a93411373aaa8220",
    ),
    (
        0xFF_FFFF_FFFF,
        "64497e5a831e4a932c09be3e5393376daa599548b816031d224bbf50a818ed23",
        "d609d273ad5b0d59631c531f6a0a57b9",
    ),
];

pub fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

pub fn key(text: &str) -> VolumeKey {
    VolumeKey::take(&mut hex(text).try_into().unwrap())
}

fn cipher(key: &VolumeKey, sector: SectorBytes, tweak: u64) -> SectorCipher {
    SectorCipher::new(key, &Segment { offset: 0, bytes: 0, sector, tweak, allows_discards: false })
}

#[test]
fn ieee_1619_vectors() {
    let plain: Vec<u8> = (0..512).map(|at| at as u8).collect();
    for (number, first, last) in VECTORS {
        let cipher = cipher(&key(KEY), SectorBytes::B512, 0);
        let mut bytes = plain.clone();
        cipher.encrypt(number * 512, &mut bytes).unwrap();
        assert_eq!((&bytes[..32], &bytes[496..]), (&hex(first)[..], &hex(last)[..]), "{number:#x}");
        cipher.decrypt(number * 512, &mut bytes).unwrap();
        assert_eq!(bytes, plain);
    }
}

/// What another implementation makes of sectors of a size, the first of this number.
fn other(key: &[u8; 64], size: usize, number: u64, bytes: &mut [u8]) {
    let (data, tweak) = key.split_at(32);
    let xts = Xts128::new(Aes256::new(data.try_into().unwrap()), Aes256::new(tweak.try_into().unwrap()));
    for (at, sector) in bytes.chunks_mut(size).enumerate() {
        let number = number.wrapping_add((at * size / 512) as u64);
        xts.encrypt_sector(sector, get_tweak_default(number.into()));
    }
}

proptest! {
    #[test]
    fn sectors_are_those_of_another_implementation(
        secret in proptest::collection::vec(any::<u8>(), 64),
        // Up to more sectors than are done together.
        count in 0..70usize,
        at in prop_oneof![0..100u64, any::<u64>()],
        tweak in any::<u64>(),
        is_large in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let sector = if is_large { SectorBytes::B4096 } else { SectorBytes::B512 };
        let size = sector.get();
        let secret: [u8; 64] = secret.try_into().unwrap();
        let mut plain = vec![0; count * size];
        crate::common::noise(seed)(&mut plain);
        let at = at / size as u64 * size as u64;
        let cipher = cipher(&VolumeKey::take(&mut secret.clone()), sector, tweak);
        let (mut ours, mut theirs) = (plain.clone(), plain.clone());
        cipher.encrypt(at, &mut ours).unwrap();
        other(&secret, size, (at / 512).wrapping_add(tweak), &mut theirs);
        prop_assert!(ours == theirs);
        cipher.decrypt(at, &mut ours).unwrap();
        prop_assert!(ours == plain);
        let segment = Segment { offset: 0, bytes: 0, sector, tweak, allows_discards: false };
        let Some(cipher) = SectorCipher::by_instructions(&VolumeKey::take(&mut secret.clone()), &segment) else {
            return Ok(());
        };
        cipher.encrypt(at, &mut ours).unwrap();
        prop_assert!(ours == theirs, "by the processor's instructions");
        cipher.decrypt(at, &mut ours).unwrap();
        prop_assert!(ours == plain, "by the processor's instructions");
    }
}

#[test]
fn parts_of_sectors_are_refused_and_left() {
    let cipher = cipher(&key(KEY), SectorBytes::B4096, 0);
    for (at, length) in [(512, 4096), (0, 512), (0, 4097), (u64::MAX, 4096)] {
        let mut bytes = vec![7; length];
        assert_eq!(cipher.encrypt(at, &mut bytes), Err(Misaligned));
        assert_eq!(cipher.decrypt(at, &mut bytes), Err(Misaligned));
        assert_eq!(bytes, vec![7; length]);
    }
    assert_eq!(Misaligned.to_string(), "not whole sectors");
}

#[test]
fn the_processors_instructions_are_taken_where_it_has_them() {
    let segment = Segment { offset: 0, bytes: 0, sector: SectorBytes::B512, tweak: 0, allows_discards: false };
    let taken = SectorCipher::by_instructions(&key(KEY), &segment).is_some();
    assert_eq!(taken, std::is_x86_feature_detected!("aes"));
}

#[test]
fn nothing_prints_a_key() {
    assert_eq!(format!("{:?}", key(KEY)), "VolumeKey");
}
