//! The DHCP client (RFC 2131): which message is due, what an answer means, and how long a lease
//! holds.
//!
//! A step machine over message formats of `smoltcp::wire`; IP makes datagrams of what
//! [`Dhcp::poll`] gives and hands answers to [`Dhcp::answer`]. Waits double up to [`WAIT_MAX_NS`]
//! while there is no lease; with one, nothing runs before half of it is over. A [`Lease`] is plain
//! data, so that a restarted IP goes on with it.

use alloc::{vec, vec::Vec};
use core::net::Ipv4Addr;
use smoltcp::wire::{DhcpMessageType, DhcpPacket, DhcpRepr, EthernetAddress};

use crate::address::Host;

/// Wait after the first question.
pub const WAIT_MIN_NS: u64 = 500_000_000;
/// Longest wait between questions.
pub const WAIT_MAX_NS: u64 = 16_000_000_000;
/// Requests for one offer before asking everybody again.
const REQUESTS: u32 = 3;
/// Shortest lease taken as meant, seconds: less would keep us asking.
const LEASE_MIN_S: u32 = 60;
/// Least time before a lease is renewed.
const STAGE_MIN_S: u64 = 30;
const SECOND_NS: u64 = 1_000_000_000;

/// A leased address. Times are nanoseconds since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// What was leased.
    pub host: Host,
    /// By whom.
    pub server: Ipv4Addr,
    /// Ask that server from here on,
    pub renew_ns: u64,
    /// everybody from here on,
    pub rebind_ns: u64,
    /// and stop using it here.
    pub end_ns: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Looking for an offer.
    Discover { tries: u32 },
    /// Accepting one.
    Request { address: Ipv4Addr, server: Ipv4Addr, tries: u32 },
    /// Having one.
    Bound(Lease),
}

/// A message to send from port 68 to port 67.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    /// The DHCP message.
    pub bytes: Vec<u8>,
    /// Our address, or 0.0.0.0 while we have none.
    pub source: Ipv4Addr,
    /// A server or everybody.
    pub destination: Ipv4Addr,
}

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Use this from now on (also after a renewal).
    Leased(Lease),
    /// The address is no longer ours.
    Lost,
}

/// The client.
#[derive(Debug)]
pub struct Dhcp {
    state: State,
    ethernet: EthernetAddress,
    transaction: u32,
    next_ns: u64,
}

impl Dhcp {
    /// A client that asks at once, or goes on with `lease` if that has not ended. `seed` makes its
    /// transactions its own.
    pub fn new(ethernet: EthernetAddress, lease: Option<Lease>, seed: u32, now_ns: u64) -> Dhcp {
        let (state, next_ns) = match lease {
            Some(lease) if lease.end_ns > now_ns => (State::Bound(lease), lease.renew_ns),
            _ => (State::Discover { tries: 0 }, now_ns),
        };
        Dhcp { state, ethernet, transaction: seed, next_ns }
    }

    /// The lease in force.
    pub fn lease(&self) -> Option<Lease> {
        if let State::Bound(lease) = self.state { Some(lease) } else { None }
    }

    /// When `poll` is due next.
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// The message that is due, and whether the lease ended.
    pub fn poll(&mut self, now_ns: u64) -> (Option<Message>, Option<Change>) {
        if now_ns < self.next_ns {
            return (None, None);
        }
        match self.state {
            State::Discover { tries } => {
                self.transaction = self.transaction.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                self.state = State::Discover { tries: tries.saturating_add(1) };
                self.next_ns = now_ns + wait_ns(tries);
                (Some(self.message(DhcpMessageType::Discover, None, None)), None)
            }
            State::Request { tries: REQUESTS.., .. } => {
                self.state = State::Discover { tries: 0 };
                self.poll(now_ns)
            }
            State::Request { address, server, tries } => {
                self.state = State::Request { address, server, tries: tries + 1 };
                self.next_ns = now_ns + wait_ns(tries);
                (Some(self.message(DhcpMessageType::Request, Some(address), Some(server))), None)
            }
            State::Bound(lease) if now_ns >= lease.end_ns => {
                self.state = State::Discover { tries: 0 };
                (self.poll(now_ns).0, Some(Change::Lost))
            }
            State::Bound(lease) => {
                // RFC 2131 section 4.4.5: half of what remains until the next stage, one minute at
                // least.
                let stage_ns = if now_ns < lease.rebind_ns { lease.rebind_ns } else { lease.end_ns };
                self.next_ns = (now_ns + ((stage_ns - now_ns) / 2).max(60 * SECOND_NS)).min(stage_ns);
                let mut message = self.message(DhcpMessageType::Request, None, None);
                message.source = lease.host.address;
                message.destination = if now_ns < lease.rebind_ns { lease.server } else { Ipv4Addr::BROADCAST };
                (Some(message), None)
            }
        }
    }

    /// Takes a DHCP message; `None` if it is malformed or not an answer to what we asked.
    pub fn answer(&mut self, bytes: &[u8], now_ns: u64) -> Option<Option<Change>> {
        let packet = DhcpPacket::new_checked(bytes).ok()?;
        let answer = DhcpRepr::parse(&packet).ok()?;
        if answer.transaction_id != self.transaction || answer.client_hardware_address != self.ethernet {
            return None;
        }
        match (answer.message_type, self.state) {
            (DhcpMessageType::Offer, State::Discover { .. }) => {
                let server = answer.server_identifier?;
                self.state = State::Request { address: answer.your_ip, server, tries: 0 };
                self.next_ns = now_ns;
                Some(None)
            }
            (DhcpMessageType::Ack, State::Request { server, .. }) => self.lease_from(&answer, server, now_ns),
            (DhcpMessageType::Ack, State::Bound(lease)) => self.lease_from(&answer, lease.server, now_ns),
            (DhcpMessageType::Nak, State::Request { .. }) => {
                self.restart(now_ns);
                Some(None)
            }
            (DhcpMessageType::Nak, State::Bound(_)) => {
                self.restart(now_ns);
                Some(Some(Change::Lost))
            }
            _ => None,
        }
    }

    fn restart(&mut self, now_ns: u64) {
        self.state = State::Discover { tries: 0 };
        // A server that always refuses is asked at most this often.
        self.next_ns = now_ns + WAIT_MIN_NS;
    }

    fn lease_from(&mut self, answer: &DhcpRepr<'_>, server: Ipv4Addr, now_ns: u64) -> Option<Option<Change>> {
        let mask = answer.subnet_mask?.to_bits();
        // A mask with holes is no prefix.
        let prefix_bits = (mask.leading_ones() == mask.count_ones()).then_some(mask.count_ones() as u8)?;
        let host = Host { address: answer.your_ip, prefix_bits, gateway: answer.router }.valid()?;
        let seconds = u64::from(answer.lease_duration.unwrap_or(LEASE_MIN_S).max(LEASE_MIN_S));
        let end_ns = now_ns + seconds * SECOND_NS;
        let stage = |wish: Option<u32>, default_s: u64| {
            let wish_s = wish.map_or(default_s, u64::from).clamp(STAGE_MIN_S, seconds);
            now_ns + wish_s * SECOND_NS
        };
        let rebind_ns = stage(answer.rebind_duration, seconds / 8 * 7);
        let renew_ns = stage(answer.renew_duration, seconds / 2).min(rebind_ns);
        let lease = Lease { host, server: answer.server_identifier.unwrap_or(server), renew_ns, rebind_ns, end_ns };
        self.state = State::Bound(lease);
        self.next_ns = renew_ns;
        Some(Some(Change::Leased(lease)))
    }

    fn message(&self, kind: DhcpMessageType, requested: Option<Ipv4Addr>, server: Option<Ipv4Addr>) -> Message {
        // 1 = subnet mask, 3 = router (RFC 2132 sections 3.3 and 3.5).
        const WISHES: &[u8] = &[1, 3];
        let message = DhcpRepr {
            message_type: kind,
            transaction_id: self.transaction,
            secs: 0,
            client_hardware_address: self.ethernet,
            client_ip: self.lease().map_or(Ipv4Addr::UNSPECIFIED, |lease| lease.host.address),
            your_ip: Ipv4Addr::UNSPECIFIED,
            server_ip: Ipv4Addr::UNSPECIFIED,
            router: None,
            subnet_mask: None,
            relay_agent_ip: Ipv4Addr::UNSPECIFIED,
            broadcast: false,
            requested_ip: requested,
            client_identifier: Some(self.ethernet),
            server_identifier: server,
            parameter_request_list: Some(WISHES),
            dns_servers: None,
            max_size: Some(packet::MTU as u16),
            lease_duration: None,
            renew_duration: None,
            rebind_duration: None,
            additional_options: &[],
        };
        let mut bytes = vec![0; message.buffer_len()];
        // The buffer has the length the format asked for: the one way for `emit` to fail does not
        // occur.
        let _ = message.emit(&mut DhcpPacket::new_unchecked(&mut bytes[..]));
        Message { bytes, source: Ipv4Addr::UNSPECIFIED, destination: Ipv4Addr::BROADCAST }
    }
}

fn wait_ns(tries: u32) -> u64 {
    WAIT_MIN_NS.saturating_mul(1 << tries.min(8)).min(WAIT_MAX_NS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use smoltcp::wire::DhcpOption;

    const US: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 1]);
    const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
    const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);

    fn reply(question: &Message, kind: DhcpMessageType, change: impl FnOnce(&mut DhcpRepr<'_>)) -> Vec<u8> {
        let packet = DhcpPacket::new_checked(&question.bytes[..]).unwrap();
        let mut answer = DhcpRepr::parse(&packet).unwrap();
        answer.message_type = kind;
        answer.your_ip = OURS;
        answer.server_identifier = Some(SERVER);
        answer.subnet_mask = Some(Ipv4Addr::new(255, 255, 255, 0));
        answer.router = Some(SERVER);
        answer.lease_duration = Some(86400);
        (answer.parameter_request_list, answer.client_identifier, answer.requested_ip) = (None, None, None);
        change(&mut answer);
        let mut bytes = vec![0; answer.buffer_len()];
        answer.emit(&mut DhcpPacket::new_unchecked(&mut bytes[..])).unwrap();
        bytes
    }

    fn bound() -> (Dhcp, Lease) {
        let mut client = Dhcp::new(US, None, 7, 0);
        let discover = client.poll(0).0.unwrap();
        assert_eq!(client.answer(&reply(&discover, DhcpMessageType::Offer, |_| ()), 1), Some(None));
        let request = client.poll(1).0.unwrap();
        let Some(Some(Change::Leased(lease))) = client.answer(&reply(&request, DhcpMessageType::Ack, |_| ()), 2) else {
            panic!("no lease");
        };
        (client, lease)
    }

    #[test]
    fn a_lease_is_had_renewed_and_lost() {
        let (mut client, lease) = bound();
        assert_eq!(lease.host, Host { address: OURS, prefix_bits: 24, gateway: Some(SERVER) });
        assert_eq!(client.next_ns(), lease.renew_ns);
        let renewal = client.poll(lease.renew_ns).0.unwrap();
        assert_eq!((renewal.source, renewal.destination), (OURS, SERVER));
        assert!(matches!(
            client.answer(&reply(&renewal, DhcpMessageType::Ack, |_| ()), lease.renew_ns + 1),
            Some(Some(Change::Leased(_)))
        ));
        let lease = client.lease().unwrap();
        let mut now = lease.renew_ns;
        let mut messages = 0;
        while client.lease().is_some() {
            let (message, change) = client.poll(now);
            messages += u32::from(message.is_some());
            assert_eq!(change.is_some(), now >= lease.end_ns);
            now = client.next_ns();
        }
        assert!(messages < 64, "{messages}");
    }

    #[test]
    fn a_successor_goes_on_without_asking() {
        let (_, lease) = bound();
        let client = Dhcp::new(US, Some(lease), 9, lease.renew_ns - 1);
        assert_eq!((client.lease(), client.next_ns()), (Some(lease), lease.renew_ns));
        assert_eq!(Dhcp::new(US, Some(lease), 9, lease.end_ns).lease(), None);
    }

    #[test]
    fn waits_double_and_wrong_answers_are_refused() {
        let mut client = Dhcp::new(US, None, 7, 0);
        let mut waits = Vec::new();
        for _ in 0..8 {
            let now = client.next_ns();
            client.poll(now).0.unwrap();
            waits.push((client.next_ns() - now) / WAIT_MIN_NS);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 32, 32]);
        let mut other = Dhcp::new(US, None, 8, 0);
        let question = other.poll(0).0.unwrap();
        assert_eq!(client.answer(&reply(&question, DhcpMessageType::Offer, |_| ()), 0), None);
        assert_eq!(client.answer(b"short", 0), None);
        let offer = reply(&question, DhcpMessageType::Offer, |_| ());
        assert_eq!(other.answer(&offer, 0), Some(None));
        let request = other.poll(other.next_ns()).0.unwrap();
        let holes = reply(&request, DhcpMessageType::Ack, |ack| ack.subnet_mask = Some(Ipv4Addr::new(255, 0, 255, 0)));
        assert_eq!(other.answer(&holes, 0), None);
        assert_eq!(other.answer(&reply(&request, DhcpMessageType::Nak, |_| ()), 0), Some(None));
    }

    #[test]
    fn an_offer_is_asked_for_three_times() {
        let mut client = Dhcp::new(US, None, 7, 0);
        let discover = client.poll(3).0.unwrap();
        assert_eq!(client.next_ns(), 3 + WAIT_MIN_NS);
        assert_eq!(client.poll(2 + WAIT_MIN_NS), (None, None), "it is not due");
        assert_eq!(client.answer(&reply(&discover, DhcpMessageType::Offer, |_| ()), 5), Some(None));
        let kind = |message: &Message| {
            DhcpRepr::parse(&DhcpPacket::new_checked(&message.bytes[..]).unwrap()).unwrap().message_type
        };
        let mut now = 7;
        for wait in [WAIT_MIN_NS, 2 * WAIT_MIN_NS, 4 * WAIT_MIN_NS] {
            let request = client.poll(now).0.unwrap();
            assert_eq!((kind(&request), client.next_ns()), (DhcpMessageType::Request, now + wait));
            now += wait;
        }
        assert_eq!(kind(&client.poll(now).0.unwrap()), DhcpMessageType::Discover);
    }

    /// What a lease's times are that was had for `wishes`: its length, and when it is to be renewed
    /// and asked of everybody, in seconds.
    fn stages(wishes: [Option<u32>; 3]) -> [u64; 3] {
        let (mut client, before) = bound();
        let now = before.renew_ns;
        let renewal = client.poll(now).0.unwrap();
        let [length, renew, rebind] = wishes;
        // RFC 2132, sections 9.11 and 9.12.
        let wishes = [(58, renew), (59, rebind)].into_iter().filter_map(|(kind, wish)| Some((kind, wish?)));
        let options = wishes.map(|(kind, wish)| DhcpOption { kind, data: wish.to_be_bytes().to_vec().leak() });
        let options = options.collect::<Vec<_>>().leak();
        let ack = reply(&renewal, DhcpMessageType::Ack, |ack| {
            (ack.lease_duration, ack.additional_options) = (length, options);
        });
        let Some(Some(Change::Leased(lease))) = client.answer(&ack, now) else { panic!("no lease") };
        [lease.end_ns, lease.renew_ns, lease.rebind_ns].map(|ns| (ns - now) / SECOND_NS)
    }

    #[test]
    fn times_of_a_lease_are_the_servers_within_reason() {
        assert_eq!(stages([Some(8000), None, None]), [8000, 4000, 7000]);
        assert_eq!(stages([Some(8000), Some(100), Some(200)]), [8000, 100, 200]);
        assert_eq!(stages([Some(8000), Some(1), Some(9000)]), [8000, 30, 8000]);
        assert_eq!(stages([Some(8000), Some(300), Some(200)]), [8000, 200, 200]);
        assert_eq!(stages([Some(1), None, None]), [60, 30, 49]);
        assert_eq!(stages([None, None, None]), [60, 30, 49]);
    }

    #[test]
    fn a_renewal_that_nobody_answers_is_sent_again_at_half_of_what_remains() {
        let (mut client, lease) = bound();
        let at = |rest_s: u64| lease.rebind_ns - rest_s * SECOND_NS;
        for (now, next) in [(at(1000), at(500)), (at(100), at(40)), (at(50), at(0))] {
            // Once its time has come, however late that is.
            let message = Dhcp::new(US, Some(lease), 9, 0).poll(now).0.unwrap();
            assert_eq!(message.destination, SERVER);
            client.next_ns = now;
            client.poll(now);
            assert_eq!(client.next_ns(), next);
        }
        let everybody = client.poll(lease.rebind_ns).0.unwrap();
        assert_eq!((everybody.source, everybody.destination), (OURS, Ipv4Addr::BROADCAST));
        assert_eq!(client.next_ns(), lease.rebind_ns + (lease.end_ns - lease.rebind_ns) / 2);
    }

    #[test]
    fn who_refuses_is_not_asked_at_once() {
        let (mut client, lease) = bound();
        let now = lease.renew_ns;
        let renewal = client.poll(now).0.unwrap();
        assert_eq!(client.answer(&reply(&renewal, DhcpMessageType::Nak, |_| ()), now), Some(Some(Change::Lost)));
        assert_eq!((client.lease(), client.next_ns()), (None, now + WAIT_MIN_NS));
        let discover = client.poll(client.next_ns()).0.unwrap();
        let now = client.next_ns();
        assert_eq!(client.answer(&reply(&discover, DhcpMessageType::Offer, |_| ()), now), Some(None));
        let request = client.poll(now).0.unwrap();
        assert_eq!(client.answer(&reply(&request, DhcpMessageType::Nak, |_| ()), now), Some(None));
        assert_eq!(client.next_ns(), now + WAIT_MIN_NS);
    }

    #[test]
    fn no_message_panics_it() {
        let (mut client, lease) = bound();
        let renewal = client.poll(lease.renew_ns).0.unwrap();
        let good = reply(&renewal, DhcpMessageType::Ack, |_| ());
        for index in 0..good.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bad = good.clone();
                bad[index] = value;
                let _ = client.answer(&bad, lease.renew_ns);
            }
            let _ = client.answer(&good[..index], lease.renew_ns);
        }
    }
}
