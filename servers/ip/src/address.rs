//! The host's address: where it is, what is on its link, and how the kernel command line says it.

use core::net::Ipv4Addr;

/// Name of the setting on the kernel command line: `pelago.ip=10.0.2.15/24,10.0.2.2` (the gateway
/// may be left out).
pub const SETTING: &str = "pelago.ip=";

/// Address, network and way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Ours.
    pub address: Ipv4Addr,
    /// Bits of the network part, 0 to 32.
    pub prefix_bits: u8,
    /// Next hop for everything that is not on the link.
    pub gateway: Option<Ipv4Addr>,
}

impl Host {
    /// Decodes the setting in a command line; `None` if it is missing or makes no sense.
    pub fn decode(command_line: &str) -> Option<Host> {
        let value = command_line.split_ascii_whitespace().find_map(|word| word.strip_prefix(SETTING))?;
        let (network, gateway) =
            value.split_once(',').map_or((value, None), |(network, gateway)| (network, Some(gateway)));
        let (address, bits) = network.split_once('/')?;
        let gateway = gateway.map(str::parse).transpose().ok()?;
        Host { address: address.parse().ok()?, prefix_bits: bits.parse().ok()?, gateway }.valid()
    }

    /// Itself, if a host can have this address.
    pub fn valid(self) -> Option<Host> {
        (is_host(self.address) && self.prefix_bits <= 32).then_some(self)
    }

    /// Is `other` on our link?
    pub fn on_link(&self, other: Ipv4Addr) -> bool {
        let mask = self.mask();
        self.address.to_bits() & mask == other.to_bits() & mask
    }

    /// The address that reaches everybody on the link.
    pub fn broadcast(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address.to_bits() | !self.mask())
    }

    /// Whom to hand a packet for `destination`; `None` without a way.
    pub fn next_hop(&self, destination: Ipv4Addr) -> Option<Ipv4Addr> {
        if self.on_link(destination) { Some(destination) } else { self.gateway }
    }

    fn mask(&self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.prefix_bits)).unwrap_or(0)
    }
}

/// Can this be one host's address?
pub fn is_host(address: Ipv4Addr) -> bool {
    !(address.is_unspecified() || address.is_broadcast() || address.is_multicast() || address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_decoded_or_refused() {
        let host = Host::decode("console=ttyS0 pelago.ip=10.0.2.15/24,10.0.2.2 x").unwrap();
        assert_eq!(host.next_hop(Ipv4Addr::new(10, 0, 2, 9)), Some(Ipv4Addr::new(10, 0, 2, 9)));
        assert_eq!(host.next_hop(Ipv4Addr::new(8, 8, 8, 8)), Some(Ipv4Addr::new(10, 0, 2, 2)));
        assert_eq!(host.broadcast(), Ipv4Addr::new(10, 0, 2, 255));
        assert_eq!(Host::decode("pelago.ip=10.0.2.15/32").unwrap().next_hop(Ipv4Addr::new(10, 0, 2, 9)), None);
        assert!(Host::decode("pelago.ip=10.0.2.15/0").unwrap().on_link(Ipv4Addr::new(8, 8, 8, 8)));
        for bad in [
            "",
            "pelago.ip=",
            "pelago.ip=1.2.3.4",
            "pelago.ip=1.2.3.4/33",
            "pelago.ip=1.2.3.4/8,x",
            "pelago.ip=224.0.0.1/8",
        ] {
            assert_eq!(Host::decode(bad), None, "{bad}");
        }
    }
}
