//! IPv4 packets by reference between IP and a transport protocol.
//!
//! The same pools and the same rule after a restart as in `network`. The transport owns the
//! transmit buffers from `packet::IP_TRANSMIT_BUFFERS` on and copies what it receives before it
//! looks at it, so that it holds receive buffers only within one turn.

use alloc::vec::Vec;
use contract::contract;
use packet::{BufferSet, Span};
use serde::{Deserialize, Serialize};

/// The host's address, as configured or leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostAddress {
    pub address: [u8; 4],
    pub prefix_bits: u8,
}

/// Answer to [`Packets::attach`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// `None` until there is one; `address` tells when.
    pub address: Option<HostAddress>,
    /// Largest packet, bytes.
    pub mtu: u16,
    /// Transmit buffers of the caller that the device may still read: not to be written before
    /// `sent` names them.
    pub busy: BufferSet,
    /// No packet was lost since the last `attach`, as by a reset of the card.
    pub kept: bool,
}

/// Why it was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PacketsError {
    /// IP itself failed; it was logged there.
    Failed,
}

/// TCP segments in IPv4 packets. Order: packets of one destination leave in the order given, unless
/// their next hop's address is being looked up. Limits: `packet::BATCH` references per message.
/// Rights: one client per transport protocol. IP has checked the header, its checksum and the
/// destination; the payload is unchecked.
#[contract(name = "packets", version = 2)]
pub trait Packets {
    /// Begins, or begins again. The caller holds no receive buffer. Of what it sent and what is not
    /// `busy`, that with a number (`packet::Number`) has left; it sends the rest again. Answered
    /// once the driver is attached. Repeatable.
    #[op(repeatable)]
    async fn attach(&self) -> Result<Attached, PacketsError>;

    /// Sends packets of the transmit pool; each span begins at the IPv4 header, `packet::HEADROOM`
    /// bytes into its buffer. What cannot be sent is dropped and its buffer named by `sent`.
    #[op(oneway)]
    fn send(&self, packets: Vec<Span>);

    /// Gives receive buffers back.
    #[op(oneway)]
    fn release_buffers(&self, buffers: Vec<u16>);

    /// Packets arrived; their buffers are the client's until it returns them.
    #[event]
    fn received(&self, packets: Vec<Span>);

    /// These transmit buffers may be written again.
    #[event]
    fn sent(&self, buffers: Vec<u16>);

    /// The host has a new address, or lost it.
    #[event]
    fn address(&self, address: Option<HostAddress>);

    /// The card was reset, and works again; packets may have been lost meanwhile.
    #[event]
    fn resumed(&self);
}
