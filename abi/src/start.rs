//! What a program finds at `layout::START_INFO`: who it is and what it was given.
//!
//! One or more read-only pages: [`StartHeader`], then `record_count` fixed-size [`StartRecord`]s.
//! The kernel fills it for a monitor, the monitor's loader for everyone else. A reader skips kinds
//! it does not know.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `StartHeader::magic`: "PELAGO" and the layout's version.
pub const MAGIC: u64 = 0x5045_4c41_474f_0003;

/// How a component is entered (MINIX SEF's three ways).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Entrance {
    /// First start.
    Fresh = 0,
    /// The one before died; its regions are as it left them.
    Recover = 1,
    /// The one before handed over on purpose.
    Adopt = 2,
}

impl Entrance {
    /// Decodes `StartHeader::entrance`; unknown values are Fresh.
    pub const fn decode(value: u64) -> Entrance {
        match value {
            1 => Entrance::Recover,
            2 => Entrance::Adopt,
            _ => Entrance::Fresh,
        }
    }
}

/// First bytes of the start page.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StartHeader {
    pub magic: u64,
    /// Component name, UTF-8, zero-padded.
    pub name: [u8; 32],
    /// Counts starts of this component, from 1.
    pub generation: u64,
    /// An [`Entrance`].
    pub entrance: u64,
    /// Core it runs on and number of cores.
    pub core: u32,
    pub cores: u32,
    /// Time stamp counter ticks per second, and its value at time 0.
    pub tsc_hz: u64,
    pub tsc_at_boot: u64,
    /// Multiplier for ns = ((tsc - tsc_at_boot) * tsc_to_ns_mul) >> 32.
    pub tsc_to_ns_mul: u64,
    /// Where the [`ClockPage`](crate::ClockPage) is; 0 for a monitor, which has none.
    pub clock_page: u64,
    /// Own domain's object id.
    pub domain_id: u64,
    pub record_count: u64,
}

/// What a record describes.
pub mod kind {
    /// A channel: `name` = contract, `peer` = the other side's component name; handle =
    /// notification or portal capability to ring the peer; address, bytes = region; a = badge bits
    /// that announce it to us; b = `channel::*`.
    pub const CHANNEL: u64 = 1;
    /// A memory region: name; handle = segment; address, bytes; a = physical address (DMA regions)
    /// or 0.
    pub const REGION: u64 = 2;
    /// A device: name; handle; a = index in the device list; b = how many
    /// handlers its driver is to have << 32 | vendor << 16 | device.
    pub const DEVICE: u64 = 3;
    /// A file of the boot archive mapped read-only: name; address, bytes.
    pub const FILE: u64 = 4;
    /// A pool that components share: name; handle = its first share.
    pub const POOL: u64 = 7;
    /// A bare capability: name; handle.
    pub const CAPABILITY: u64 = 5;
    /// The program of several cores that this domain is a dispatcher of: name; peer = its cores
    /// ([`super::CoreSet`]).
    pub const PROGRAM: u64 = 8;
    /// The calls that go with a channel between two components of one core: name (contract) and
    /// peer, as its CHANNEL record has them; handle = rendezvous portal to a worker of the server;
    /// address, bytes = the session page, which both have; a = semaphore that the server raises;
    /// b = badge << 32 | number of the worker << 8 | [`super::channel::CLIENT`].
    pub const CALLS: u64 = 9;
    /// Kernel to monitor on core 0 only: the kernel command line is at address, bytes.
    pub const COMMAND_LINE: u64 = 6;
}

/// Bits of a CHANNEL record's `b`.
pub mod channel {
    /// We are the side that calls.
    pub const CLIENT: u64 = 1;
    /// The peer is on another core: ring by Notify; else by PortalCall.
    pub const REMOTE: u64 = 2;
}

/// One thing given at start.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StartRecord {
    pub kind: u64,
    pub name: [u8; 32],
    pub peer: [u8; 32],
    pub handle: u64,
    pub address: u64,
    pub bytes: u64,
    pub a: u64,
    pub b: u64,
}

/// Filled in by `Call::DeviceList`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceRecord {
    /// PCI: bus << 8 | device << 3 | function. virtio-mmio: 0x10000 + number. Ports: 0x20000 +
    /// number (0 = first serial port, 1 = real-time clock).
    pub hwid: u64,
    pub vendor: u16,
    pub device: u16,
    /// PCI class << 16 | subclass << 8 | interface; 0 if none.
    pub class: u32,
    /// Physical address (or port) and bytes of each window; 0 = absent.
    pub windows: [[u64; 2]; 6],
    /// Message-signalled interrupts it has, or 1 for a line.
    pub interrupts: u64,
}

/// Cores, a bit for each: core n is bit n % 8 of byte n / 8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreSet(pub [u8; 32]);

impl CoreSet {
    /// These cores; one that no machine has is left out.
    pub fn of(cores: impl IntoIterator<Item = u32>) -> CoreSet {
        let mut set = CoreSet::default();
        for core in cores {
            if let Some(byte) = set.0.get_mut(core as usize / 8) {
                *byte |= 1 << (core % 8);
            }
        }
        set
    }

    /// Its cores, ascending.
    pub fn cores(self) -> impl Iterator<Item = u32> {
        (0..8 * self.0.len() as u32).filter(move |core| self.0[*core as usize / 8] & 1 << (core % 8) != 0)
    }
}

/// Text in a fixed field: up to the first zero byte; empty if it is not UTF-8.
pub fn text(field: &[u8]) -> &str {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    core::str::from_utf8(&field[..end]).unwrap_or("")
}

/// Puts text into a fixed field; `None` if it does not fit.
pub fn field(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entrance_that_is_unknown_is_the_first_start() {
        let all = [0, 1, 2, 3, u64::MAX].map(Entrance::decode);
        assert_eq!(all, [Entrance::Fresh, Entrance::Recover, Entrance::Adopt, Entrance::Fresh, Entrance::Fresh]);
    }

    #[test]
    fn a_set_has_the_cores_it_was_made_of() {
        let set = CoreSet::of([255, 0, 9, 256, 9]);
        assert!(set.cores().eq([0, 9, 255]));
        assert_eq!((set.0[0], set.0[1], set.0[31]), (1, 2, 128));
    }

    #[test]
    fn a_field_holds_text_of_up_to_its_size() {
        let long = "a name of exactly thirty-two by.";
        for name in ["", "disk", "ä", long] {
            let field = field(name).unwrap();
            assert_eq!((text(&field), field[name.len()..].iter().all(|byte| *byte == 0)), (name, true));
        }
        assert_eq!(field("a name of more than thirty-two b."), None);
        assert_eq!((text(b"ip\0tcp"), text(b"\xff\0"), text(b"")), ("ip", "", ""));
    }
}
