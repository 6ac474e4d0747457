//! The key of a volume.

use core::fmt;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// Bytes of a volume's key, and of the key that a slot's area is encrypted with: two keys of
/// AES-256, one for the data and one for the tweaks.
pub const KEY_BYTES: usize = 64;

/// The key of a volume. It is wiped when it ends, and nothing prints it.
pub struct VolumeKey(Zeroizing<[u8; KEY_BYTES]>);

impl VolumeKey {
    /// A key of these bytes, which are wiped where they were.
    pub fn take(bytes: &mut [u8; KEY_BYTES]) -> VolumeKey {
        let key = VolumeKey(Zeroizing::new(*bytes));
        bytes.zeroize();
        key
    }

    /// A key of zeros, to be filled.
    #[cfg(feature = "headers")]
    pub(crate) fn empty() -> VolumeKey {
        VolumeKey(Zeroizing::new([0; KEY_BYTES]))
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Its bytes, to be filled.
    #[cfg(feature = "headers")]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8; KEY_BYTES] {
        &mut self.0
    }
}

impl ZeroizeOnDrop for VolumeKey {}

impl fmt::Debug for VolumeKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("VolumeKey")
    }
}
