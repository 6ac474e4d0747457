//! Headers and sectors that cryptsetup 2.6.1 made, kept in `heads`.
//!
//! Each file has the 32 KiB of both headers and the first 8 KiB of the segment, of a file of 34 MiB
//! that began with [`plain`]: `cryptsetup reencrypt --encrypt --reduce-device-size 32M` and
//!
//! - `--sector-size 4096 --pbkdf-memory 32768 --pbkdf-force-iterations 4 --pbkdf-parallel 1`
//! - `--sector-size 512 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --hash sha512`
//!
//! The keys are what `luksDump --dump-volume-key` told. A slot's area is 250 KiB of noise and not
//! here: slots of cryptsetup are opened where there is a cryptsetup.

use crate::common::SMALL;
use crate::sectors::hex;
use luks::{CopyState, DATA_OFFSET, Derivation, Error, Hash, Header, SectorBytes, SectorCipher};

const DEVICE_BYTES: u64 = 34 << 20;
const HEADS: usize = 32 << 10;
static ARGON2ID_4096: &[u8] = include_bytes!("heads/argon2id-4096.img");
static PBKDF2_512: &[u8] = include_bytes!("heads/pbkdf2-512.img");
const ARGON2ID_4096_KEY: &str = "d58cc32cde40b2ae7279deaaad8de39d64e87f4683fed9d309eecf376eb69182a427615ec9410e8a090da8190f56f463d02353b41d99c59f91806362ff537e1e";
const PBKDF2_512_KEY: &str = "00f1ef87485ec7489f92bfcf59afdd82c024095c0eb93682b1685dd00a6374b9f4ae7b933757014fabda59eccb2db5697cf87e5ed07d7575b38b811bcd117f23";

/// What was encrypted.
pub fn plain(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// The header, after its sectors were decrypted by its key.
fn check(file: &[u8], key: &str, sector: SectorBytes) -> Header {
    let header = Header::read(&file[..HEADS], DEVICE_BYTES).unwrap();
    assert_eq!(header.states(), &[CopyState::Current, CopyState::Current]);
    let segment = header.segment().clone();
    assert_eq!((segment.offset, segment.bytes), (DATA_OFFSET, DEVICE_BYTES - DATA_OFFSET));
    assert_eq!((segment.sector, segment.tweak), (sector, 0));
    let key = header.open_with_key(&mut hex(key).try_into().unwrap(), &mut SMALL.clone()).unwrap();
    let cipher = SectorCipher::new(&key, &segment);
    let encrypted = &file[HEADS..];
    let mut bytes = encrypted.to_vec();
    cipher.decrypt(0, &mut bytes).unwrap();
    assert!(bytes == plain(encrypted.len()));
    // From another sector than the first, and back.
    cipher.encrypt(4096, &mut bytes[4096..]).unwrap();
    assert!(bytes[4096..] == encrypted[4096..]);
    header
}

#[test]
fn argon2id_with_large_sectors() {
    let header = check(ARGON2ID_4096, ARGON2ID_4096_KEY, SectorBytes::B4096);
    let [slot] = header.slots() else { panic!("{:?}", header.slots()) };
    assert!(matches!(slot.derivation, Derivation::Argon2id { memory_kib: 32768, passes: 4, lanes: 1, .. }));
    assert!(header.sequence() > 1 && header.uuid().len() == 36);
}

#[test]
fn pbkdf2_with_small_sectors() {
    let header = check(PBKDF2_512, PBKDF2_512_KEY, SectorBytes::B512);
    let [slot] = header.slots() else { panic!("{:?}", header.slots()) };
    assert!(matches!(slot.derivation, Derivation::Pbkdf2 { hash: Hash::Sha512, iterations: 1000, .. }));
    let other = hex(ARGON2ID_4096_KEY).try_into();
    assert_eq!(header.open_with_key(&mut other.unwrap(), &mut SMALL.clone()).unwrap_err(), Error::WrongKey);
}

#[test]
fn repaired_headers_have_the_checksum_that_cryptsetup_makes() {
    for file in [ARGON2ID_4096, PBKDF2_512] {
        for (place, at) in [(0, 0), (1, HEADS / 2)] {
            let mut lost = file[..HEADS].to_vec();
            let salt = lost[at + 104..at + 168].try_into().unwrap();
            lost[at..at + 512].fill(0);
            let header = Header::read(&lost, DEVICE_BYTES).unwrap();
            assert_eq!(header.states()[place], CopyState::Bad(Error::NotLuks));
            let write = header.repair(&salt).unwrap();
            assert!(write.at == at as u64 && write.bytes == file[at..at + HEADS / 2], "header {place}");
        }
    }
}
