//! From a passphrase to the key of a slot's area, within what the reader allows.

use alloc::vec::Vec;
use argon2::{Algorithm, Argon2, Block, Params, Version};
use zeroize::Zeroizing;

use super::error::{Error, Refusal};
use super::hash::Hash;
use crate::key::{KEY_BYTES, VolumeKey};

/// What a header may cost its reader, over all slots that are tried with it. Each derivation takes
/// its part; a slot that needs more than is left is refused.
///
/// A header is data of the disk: without a limit it could have the reader fill 4 TiB, 2^32 times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Most KiB that argon2id may fill at a time. It is freed after each slot.
    pub memory_kib: u32,
    /// KiB that argon2id may fill in all, over all passes of all slots.
    pub filled_kib: u64,
    /// Iterations of PBKDF2 for each sum that goes into a key, in all: for slots and digests.
    pub iterations: u64,
}

impl Budget {
    /// For a guest: 64 MiB, which RFC 9106 recommends where memory is short; 2 GiB filled, which
    /// are sixteen slots as [`format`](super::format()) makes them; and 20 million iterations, as
    /// many as four or five slots have that cryptsetup measured. Of each it is a few seconds.
    pub const GUEST: Budget = Budget { memory_kib: 64 << 10, filled_kib: 2 << 20, iterations: 20_000_000 };

    /// For a host: 4 GiB, the most that cryptsetup asks for, as often as a slot of it needs.
    pub const HOST: Budget = Budget { memory_kib: 4 << 20, filled_kib: 128 << 20, iterations: 400_000_000 };

    /// Takes the work of `iterations` for a key of `bytes`.
    pub(crate) fn take_iterations(&mut self, hash: Hash, iterations: u32, bytes: usize) -> Result<(), Refusal> {
        let needed = u64::from(iterations) * bytes.div_ceil(hash.bytes()) as u64;
        take("iterations of PBKDF2", &mut self.iterations, needed)
    }

    fn take_filled(&mut self, memory_kib: u32, passes: u32) -> Result<(), Refusal> {
        if memory_kib > self.memory_kib {
            let (needed, left) = (u64::from(memory_kib), u64::from(self.memory_kib));
            return Err(Refusal::Costs { what: "KiB for argon2id", needed, left });
        }
        take("KiB filled by argon2id", &mut self.filled_kib, u64::from(memory_kib) * u64::from(passes))
    }
}

fn take(what: &'static str, left: &mut u64, needed: u64) -> Result<(), Refusal> {
    match left.checked_sub(needed) {
        Some(rest) => {
            *left = rest;
            Ok(())
        }
        None => Err(Refusal::Costs { what, needed, left: *left }),
    }
}

/// How the key of a slot's area is made from a passphrase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Derivation {
    /// PBKDF2 with HMAC of a hash.
    Pbkdf2 {
        /// The hash.
        hash: Hash,
        /// Iterations, at least 1.
        iterations: u32,
        /// The salt.
        salt: Vec<u8>,
    },
    /// Argon2id, version 1.3.
    Argon2id {
        /// KiB to fill.
        memory_kib: u32,
        /// Times that they are filled.
        passes: u32,
        /// Lanes; they change the result, and are filled one after the other here.
        lanes: u32,
        /// The salt.
        salt: Vec<u8>,
    },
}

impl Derivation {
    /// Derives the key. One call computes for as long as its parameters say.
    ///
    /// # Errors
    /// [`Error::Refused`] if it needs more than is left of `budget`; [`Error::OutOfMemory`];
    /// [`Error::Damaged`] for parameters that argon2id does not have.
    pub(crate) fn derive(&self, passphrase: &[u8], budget: &mut Budget) -> Result<VolumeKey, Error> {
        let mut key = VolumeKey::empty();
        match self {
            Derivation::Pbkdf2 { hash, iterations, salt } => {
                budget.take_iterations(*hash, *iterations, KEY_BYTES)?;
                hash.pbkdf2(passphrase, salt, *iterations, key.bytes_mut());
            }
            Derivation::Argon2id { memory_kib, passes, lanes, salt } => {
                let damaged = |_| Error::Damaged("a key slot's parameters of argon2id");
                let params = Params::new(*memory_kib, *passes, *lanes, Some(KEY_BYTES)).map_err(damaged)?;
                budget.take_filled(*memory_kib, *passes)?;
                let mut memory = memory(&params)?;
                Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
                    .hash_password_into_with_memory(passphrase, salt, key.bytes_mut(), &mut memory[..])
                    .map_err(damaged)?;
            }
        }
        Ok(key)
    }
}

/// What argon2id fills. It is wiped when it ends: the key can be computed from it.
fn memory(params: &Params) -> Result<Zeroizing<Vec<Block>>, Error> {
    let mut blocks = Vec::new();
    blocks.try_reserve_exact(params.block_count()).map_err(|_| Error::OutOfMemory { kib: params.m_cost() })?;
    blocks.resize(params.block_count(), Block::new());
    Ok(Zeroizing::new(blocks))
}
