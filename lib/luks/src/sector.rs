//! The cipher of a volume's sectors: `aes-xts-plain64` with a key of 512 bits.
//!
//! The number that a sector's tweak is made from counts 512 bytes, also where sectors have 4,096:
//! so dm-crypt does for LUKS2.

use core::fmt;

use crate::instructions::Instructions;
use crate::key::VolumeKey;
use crate::xts::Xts;

/// Bytes that the number of a sector counts.
pub(crate) const NUMBER_BYTES: u64 = 512;

/// Bytes of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectorBytes {
    /// 512 bytes.
    B512,
    /// 4,096 bytes.
    B4096,
}

impl SectorBytes {
    /// The number.
    pub const fn get(self) -> usize {
        match self {
            SectorBytes::B512 => 512,
            SectorBytes::B4096 => 4096,
        }
    }
}

/// Where the encrypted data lies, and how it is encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its first byte on the device, a multiple of the sector's bytes.
    pub offset: u64,
    /// Its bytes, a multiple of the sector's.
    pub bytes: u64,
    /// Bytes of a sector, which is encrypted as one.
    pub sector: SectorBytes,
    /// Number of its first sector, counted in 512 bytes.
    pub tweak: u64,
    /// Discards may be passed on to the device (`cryptsetup --persistent --allow-discards`).
    pub allows_discards: bool,
}

/// A place or a length is no multiple of the sector's bytes. Read whole sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misaligned;

impl fmt::Display for Misaligned {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("not whole sectors")
    }
}

/// What computes.
#[allow(clippy::large_enum_variant, reason = "a volume has one; which is larger depends on the target")]
enum Engine {
    /// What `aes` takes on the target that it is compiled for.
    Portable(Xts),
    /// The processor's instructions.
    Instructions(Instructions),
}

/// Encrypts and decrypts the sectors of a volume.
pub struct SectorCipher {
    engine: Engine,
    sector: SectorBytes,
    tweak: u64,
}

impl SectorCipher {
    /// The cipher of `segment` with the volume's `key`.
    pub fn new(key: &VolumeKey, segment: &Segment) -> SectorCipher {
        let engine = Engine::Portable(Xts::new(key.bytes()));
        SectorCipher { engine, sector: segment.sector, tweak: segment.tweak }
    }

    /// The same by the processor's instructions, where it has them, for a program that is compiled
    /// without vector registers. The kernel must give it some: it ends one without.
    pub fn by_instructions(key: &VolumeKey, segment: &Segment) -> Option<SectorCipher> {
        let engine = Engine::Instructions(Instructions::new(key.bytes())?);
        Some(SectorCipher { engine, sector: segment.sector, tweak: segment.tweak })
    }

    /// The cipher of a slot's area.
    #[cfg(feature = "headers")]
    pub(crate) fn of_area(key: &VolumeKey) -> SectorCipher {
        SectorCipher { engine: Engine::Portable(Xts::new(key.bytes())), sector: SectorBytes::B512, tweak: 0 }
    }

    /// Bytes of a sector.
    pub fn sector(&self) -> SectorBytes {
        self.sector
    }

    /// Encrypts whole sectors in place; the first begins at byte `at` of the segment.
    ///
    /// # Errors
    /// [`Misaligned`], and nothing is changed.
    pub fn encrypt(&self, at: u64, bytes: &mut [u8]) -> Result<(), Misaligned> {
        let (first, step) = self.numbers(at, bytes)?;
        match &self.engine {
            Engine::Portable(xts) => xts.encrypt(first, step, self.sector.get(), bytes),
            Engine::Instructions(xts) => xts.encrypt(first, step, self.sector.get(), bytes),
        }
        Ok(())
    }

    /// Decrypts whole sectors in place; the first begins at byte `at` of the segment.
    ///
    /// # Errors
    /// [`Misaligned`], and nothing is changed.
    pub fn decrypt(&self, at: u64, bytes: &mut [u8]) -> Result<(), Misaligned> {
        let (first, step) = self.numbers(at, bytes)?;
        match &self.engine {
            Engine::Portable(xts) => xts.decrypt(first, step, self.sector.get(), bytes),
            Engine::Instructions(xts) => xts.decrypt(first, step, self.sector.get(), bytes),
        }
        Ok(())
    }

    /// The number of the sector at byte `at`, and how much more that of the next is.
    fn numbers(&self, at: u64, bytes: &[u8]) -> Result<(u64, u64), Misaligned> {
        let size = self.sector.get();
        if !at.is_multiple_of(size as u64) || !bytes.len().is_multiple_of(size) {
            return Err(Misaligned);
        }
        // The number wraps, as dm-crypt's does.
        Ok(((at / NUMBER_BYTES).wrapping_add(self.tweak), size as u64 / NUMBER_BYTES))
    }
}
