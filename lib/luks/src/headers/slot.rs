//! A key slot: an area in which the volume's key lies split, encrypted by a key that a passphrase
//! leads to.

use super::derive::{Budget, Derivation};
use super::error::Error;
use super::hash::Hash;
use super::splitter::{self, SPLIT_BYTES};
use crate::key::VolumeKey;
use crate::sector::SectorCipher;
use zeroize::Zeroize;

/// Bytes of a slot's area that are read: a multiple of 512.
pub const AREA_BYTES: usize = SPLIT_BYTES;

/// A key slot that can be tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its number.
    pub number: u8,
    /// Byte of the device where its area begins, of which [`AREA_BYTES`] are read.
    pub area: u64,
    /// How its area's key is made.
    pub derivation: Derivation,
    /// The hash of its splitter.
    pub(crate) splitter: Hash,
    /// Tried first, before those that are not.
    pub(crate) is_preferred: bool,
}

impl Slot {
    /// The key that the area has if the passphrase is right; if not, any other. The area is wiped.
    pub(crate) fn unseal(&self, passphrase: &[u8], area: &mut [u8], budget: &mut Budget) -> Result<VolumeKey, Error> {
        if area.len() != AREA_BYTES {
            return Err(Error::WrongLength { needed: AREA_BYTES });
        }
        let cipher = SectorCipher::of_area(&self.derivation.derive(passphrase, budget)?);
        cipher.decrypt(0, area).map_err(|_| Error::WrongLength { needed: AREA_BYTES })?;
        let key = splitter::merge(self.splitter, area);
        area.zeroize();
        Ok(key)
    }

    /// Makes an area of `key`, out of one that is filled with random bytes.
    pub(crate) fn seal(
        &self,
        passphrase: &[u8],
        key: &VolumeKey,
        area: &mut [u8],
        budget: &mut Budget,
    ) -> Result<(), Error> {
        let cipher = SectorCipher::of_area(&self.derivation.derive(passphrase, budget)?);
        splitter::split(self.splitter, key, area);
        cipher.encrypt(0, area).map_err(|_| Error::WrongLength { needed: AREA_BYTES })
    }
}

const _: () = assert!(AREA_BYTES.is_multiple_of(512));
