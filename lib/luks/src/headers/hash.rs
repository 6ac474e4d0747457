//! The hashes that a header may name.

use super::error::Refusal;
use sha2::{Digest, Sha256, Sha512};

/// A hash by its name in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// `sha256`, which is what cryptsetup takes by itself.
    Sha256,
    /// `sha512`.
    Sha512,
}

impl Hash {
    /// Most bytes of a sum.
    pub(crate) const BYTES_MAX: usize = 64;

    /// The hash of a name; `what` says whose it is.
    pub(crate) fn of_name(what: &'static str, name: &str) -> Result<Hash, Refusal> {
        match name {
            "sha256" => Ok(Hash::Sha256),
            "sha512" => Ok(Hash::Sha512),
            _ => Err(Refusal::name(what, name)),
        }
    }

    /// Its name in a header.
    pub fn name(self) -> &'static str {
        match self {
            Hash::Sha256 => "sha256",
            Hash::Sha512 => "sha512",
        }
    }

    /// Bytes of a sum.
    pub fn bytes(self) -> usize {
        match self {
            Hash::Sha256 => 32,
            Hash::Sha512 => 64,
        }
    }

    /// The sum of `parts` one behind the other, in the first [`bytes`](Hash::bytes) of the result.
    pub(crate) fn sum(self, parts: &[&[u8]]) -> [u8; Hash::BYTES_MAX] {
        let mut sum = [0; Hash::BYTES_MAX];
        match self {
            Hash::Sha256 => sum[..32].copy_from_slice(&sum_of::<Sha256>(parts)),
            Hash::Sha512 => sum.copy_from_slice(&sum_of::<Sha512>(parts)),
        }
        sum
    }

    /// PBKDF2 with HMAC of this hash.
    pub(crate) fn pbkdf2(self, password: &[u8], salt: &[u8], iterations: u32, out: &mut [u8]) {
        match self {
            Hash::Sha256 => pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, iterations, out),
            Hash::Sha512 => pbkdf2::pbkdf2_hmac::<Sha512>(password, salt, iterations, out),
        }
    }
}

fn sum_of<D: Digest>(parts: &[&[u8]]) -> sha2::digest::Output<D> {
    parts.iter().fold(D::new(), |hash, part| hash.chain_update(part)).finalize()
}
