//! Packet buffers: two pools of fixed-size buffers in memory shared by driver, IP and TCP, and the
//! references that travel instead of bytes.
//!
//! Invariants: a [`Span`] that came from a peer names bytes only after [`Pool::check`] accepted it;
//! every access copies (the memory may change under us at any time, so no reference into it
//! exists); a [`BufferSet`] holds at most [`BUFFERS`] buffers.
//!
//! Who owns a buffer is never written in shared memory. The component that passed a buffer on
//! remembers it; after a crash the survivor says what it holds and the other side takes the rest
//! (`contracts/src/network.rs`, `packets.rs`). In front of an outgoing packet stands its
//! [`Number`], by which a new IP knows what the device has read.
//!
//! [`Outbox`] and [`Notify`] are how the three make one batch of a turn. Deliberately unknown here:
//! Ethernet, IP, devices.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod notify;
pub mod number;
pub mod outbox;
pub mod pool;
pub mod set;

pub use notify::Notify;
pub use number::Number;
pub use outbox::Outbox;
pub use pool::{Memory, OutOfBounds, Pool};
pub use set::BufferSet;

use serde::{Deserialize, Serialize};

/// Buffers of a pool: as many as one virtqueue of 256 entries can hold.
pub const BUFFERS: u16 = 256;
/// Bytes of a buffer: headroom, a full Ethernet frame, and a power of two so that no buffer crosses
/// a page.
pub const BUFFER_BYTES: usize = 2048;
/// Bytes of a pool.
pub const POOL_BYTES: usize = BUFFERS as usize * BUFFER_BYTES;
/// Bytes in front of an outgoing IP packet: 6 for its [`Number`], 12 for the virtio header, 14 for
/// Ethernet.
pub const HEADROOM: usize = 32;
/// Largest IP packet.
pub const MTU: usize = 1500;
/// Most references in one message: a message holds 888 bytes and a reference takes at most 8 (1 to
/// 3 bytes each for three numbers of up to 2048).
pub const BATCH: usize = 100;
/// Buffers 0 up to here of the transmit pool are IP's own (ARP, ICMP, DHCP); the rest is TCP's.
pub const IP_TRANSMIT_BUFFERS: u16 = 32;

/// Some bytes of one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Index of the buffer in its pool.
    pub buffer: u16,
    /// First byte inside the buffer.
    pub offset: u16,
    /// Bytes.
    pub length: u16,
}

impl Span {
    /// The bytes from `skip` on; empty if there are fewer.
    pub fn skip(self, skip: u16) -> Span {
        let skip = skip.min(self.length);
        Span { buffer: self.buffer, offset: self.offset.saturating_add(skip), length: self.length - skip }
    }

    /// The first `length` bytes at most.
    pub fn first(self, length: u16) -> Span {
        Span { length: self.length.min(length), ..self }
    }
}
