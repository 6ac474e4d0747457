//! LUKS2: what lies on an encrypted disk, how a passphrase opens it, and the cipher of its sectors.
//!
//! All of it are functions over bytes that the caller read and gives to the device:
//!
//! 1. [`Header::read`] takes the first [`HEAD_BYTES`] of a device. Of the two headers it chooses
//!    the newer one that is whole; [`Header::repair`] is what to write over the other.
//! 2. [`Header::slots`] are the key slots to try, in their order. [`Header::open_slot`] tries a
//!    passphrase with the bytes of a slot's area, and gives the volume's key or nothing.
//! 3. [`SectorCipher`] decrypts and encrypts in place, by the key and [`Header::segment`].
//!
//! [`Handover`] is for who gets a volume that somebody else opened. Who encrypts its sectors needs
//! that and the cipher, and goes without the feature `headers`: no JSON, no key derivation.
//!
//! [`format`] makes what `cryptsetup luksFormat` makes, for the tool on the host.
//!
//! Invariants: what came from the disk is checked before it is used, and what does not hold is an
//! [`Error`], never a panic. What is LUKS2 but not supported is refused by its name. A header
//! decides over no more memory and time than its reader allows ([`Budget`]). Key material lies
//! only in [`VolumeKey`], in [`SectorCipher`] and in buffers of one call, and is wiped when these
//! end; what the caller gave (passphrase, random bytes) is the caller's to wipe.
//!
//! Deliberately unknown here: devices, tasks, where a passphrase comes from, where random bytes do.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod handover;
#[cfg(feature = "headers")]
mod headers;
mod instructions;
mod key;
mod sector;
mod xts;

pub use handover::{HANDOVER_BYTES, Handover};
#[cfg(feature = "headers")]
pub use headers::*;
pub use key::{KEY_BYTES, VolumeKey};
pub use sector::{Misaligned, SectorBytes, SectorCipher, Segment};
