//! What happened to packets, one number per kind.

macro_rules! counters {
    ($( $(#[$doc:meta])* $name:ident, )*) => {
        /// Packets since the start of this instance.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters { $( $(#[$doc])* pub $name: u64, )* }

        impl Counters {
            /// Names and numbers, in order.
            pub fn list(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [ $( (stringify!($name), self.$name), )* ].into_iter()
            }
        }
    };
}

counters! {
    /// Frames from the driver.
    frames,
    /// A span that leaves its buffer: the driver broke the contract.
    bad_span,
    /// Shorter than an Ethernet header, or an Ethernet source that is no host.
    bad_ethernet,
    /// For another Ethernet address.
    other_ethernet,
    /// Neither IPv4 nor ARP.
    other_protocol,
    /// ARP that is none.
    bad_arp,
    /// Version, header length or total length that makes no sense.
    bad_header,
    /// Wrong header checksum.
    bad_checksum,
    /// A source address no host can have.
    bad_source,
    /// For another host.
    other_destination,
    /// A fragment; reassembly is not built.
    fragment,
    /// No time to live.
    bad_time_to_live,
    /// Neither TCP, nor ICMP, nor a DHCP answer.
    other_transport,
    /// ICMP that is malformed.
    bad_icmp,
    /// ICMP that asks nothing of us.
    other_icmp,
    /// Echo requests answered.
    echoes,
    /// UDP for the DHCP client that is malformed or not for us.
    bad_dhcp,
    /// Packets given to TCP.
    to_tcp,
    /// Packets for TCP while it is not attached.
    no_tcp,
    /// Packets from TCP.
    from_tcp,
    /// A span or packet of TCP's that broke the contract.
    bad_send,
    /// No address, no route or a next hop that does not answer.
    unreachable,
    /// No own transmit buffer free.
    no_buffer,
    /// Frames given to a restarted driver again.
    resubmitted,
    /// A buffer returned that was not out.
    bad_releases,
}
