//! A network link: Ethernet frames by reference between a driver and IP.
//!
//! Buffers live in two pools (`lib/packet`): the driver owns those of `rx-packets`, IP and TCP
//! those of `tx-packets`. What travels is where they are. After a restart the survivor says what it
//! holds, and the other side takes the rest: nothing leaks and nothing is used twice.

use alloc::vec::Vec;
use contract::contract;
use packet::{BufferSet, Span};
use serde::{Deserialize, Serialize};

/// What the driver tells of its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Its Ethernet address.
    pub address: [u8; 6],
    /// Largest packet without the Ethernet header, bytes.
    pub mtu: u16,
    /// Whether there is a link; `link` tells of changes.
    pub up: bool,
    /// Entries of the device's receive and transmit queue: frames that it can have at a time.
    pub rings: [u16; 2],
    /// Transmit buffers that the device may still read: not to be written before `transmitted`
    /// names them.
    pub busy: BufferSet,
    /// The device was not reset since the last `attach`: no frame is lost.
    pub kept: bool,
    /// Of the next frame that the client sends.
    pub next: FrameNumber,
}

/// What the client counts its frames by, from `Link::next` on, each one more, round and round. When
/// it attaches again, the device has read frames with lower numbers of the same epoch, save those
/// that are busy, and none of the others; of another epoch, which a reset ends, nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameNumber {
    /// A life of the device from one reset to the next.
    pub epoch: u32,
    /// Frames before it.
    pub number: u16,
}

/// Why there is no link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetworkError {
    /// The device did not start. Remedy: none; the driver logged why and tries again.
    NoDevice,
    /// The device cannot be set so, or did not do it in time. Remedy: another device model; do
    /// without.
    Refused,
}

/// What can be set at the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Receive all frames, to any address; otherwise those to the card's own and to all, as a
    /// device begins.
    pub promiscuous: bool,
}

/// Frames. Order: frames are sent in the order given and announced in the order received. Limits:
/// `packet::BATCH` references per message; what does not fit in the channel waits at the sender,
/// bounded by the pools. Rights: one client, IP. Before `attach` is answered the driver announces
/// nothing and drops what arrives. After a restart the client sends again
/// what the device has not read (`Link::next`).
#[contract(name = "network", version = 3)]
pub trait Network {
    /// Begins, or begins again: the caller holds the receive buffers of `held` and no others; the
    /// driver takes the rest back. Repeatable.
    #[op(repeatable)]
    async fn attach(&self, held: BufferSet) -> Result<Link, NetworkError>;

    /// Sets the device; answered when it has done so. Lasts until the driver is restarted: to be
    /// repeated after `attach`. `Refused`.
    #[op(repeatable)]
    async fn configure(&self, settings: Settings) -> Result<(), NetworkError>;

    /// Sends frames of the transmit pool. Each span begins at the Ethernet header, at least 12
    /// bytes into its buffer. A span that is wrong ends the attachment.
    #[op(oneway)]
    fn transmit(&self, frames: Vec<Span>);

    /// Gives receive buffers back to the driver.
    #[op(oneway)]
    fn release_buffers(&self, buffers: Vec<u16>);

    /// Frames arrived; their buffers are the client's until it returns them.
    #[event]
    fn received(&self, frames: Vec<Span>);

    /// The link went up or down.
    #[event]
    fn link(&self, up: bool);

    /// The device had to be reset: frames may be lost, both ways.
    #[event]
    fn reset(&self);

    /// The device has read these transmit buffers.
    #[event]
    fn transmitted(&self, buffers: Vec<u16>);
}
