//! Neighbours: Ethernet addresses of hosts on the link, and packets that wait for one (RFC 826, RFC
//! 1122 section 2.3.2).
//!
//! Bounded: [`ENTRIES_MAX`] neighbours, [`WAITING_MAX`] packets that wait, [`TRIES`] requests. No
//! timer runs unless a request is unanswered: age is looked at when an entry is used, and one that
//! is old is confirmed while it stays in use.

use alloc::vec::Vec;
use core::net::Ipv4Addr;
use packet::Span;
use smoltcp::wire::EthernetAddress;

/// Most neighbours; the least recently confirmed one goes first.
pub const ENTRIES_MAX: usize = 64;
/// Most packets that wait for addresses, of all neighbours together: a quarter of the transmit
/// pool.
pub const WAITING_MAX: usize = 64;
/// Requests before a neighbour is given up.
pub const TRIES: u32 = 4;
/// Between requests.
pub const RETRY_NS: u64 = 250_000_000;
/// An address used this long after its confirmation is asked for again.
pub const FRESH_NS: u64 = 60_000_000_000;

/// A known neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its Ethernet address.
    pub ethernet: EthernetAddress,
    /// When it last said so, nanoseconds since boot.
    pub confirmed_ns: u64,
}

struct Request {
    address: Ipv4Addr,
    tries: u32,
    next_ns: u64,
}

/// What to do with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Send it there.
    Known(EthernetAddress),
    /// It waits inside; a request goes out when `poll` says so.
    Waiting,
    /// Too many wait: drop it.
    Refused,
}

/// What `poll` wants done.
#[derive(Debug, Default)]
pub struct Due {
    /// Ask for these.
    pub ask: Vec<Ipv4Addr>,
    /// Nobody answered; drop these.
    pub given_up: Vec<Span>,
}

/// The table.
#[derive(Default)]
pub struct Neighbours {
    entries: Vec<Entry>,
    requests: Vec<Request>,
    waiting: Vec<(Ipv4Addr, Span)>,
}

impl Neighbours {
    /// A table that knows what an earlier instance knew.
    pub fn adopt(entries: impl Iterator<Item = Entry>) -> Neighbours {
        Neighbours { entries: entries.take(ENTRIES_MAX).collect(), ..Neighbours::default() }
    }

    /// All entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Where `packet` for `next_hop` goes.
    pub fn resolve(&mut self, next_hop: Ipv4Addr, packet: Span, now_ns: u64) -> Resolution {
        if let Some(entry) = self.entries.iter().find(|entry| entry.address == next_hop).copied() {
            if now_ns.saturating_sub(entry.confirmed_ns) > FRESH_NS {
                self.request(next_hop, now_ns);
            }
            return Resolution::Known(entry.ethernet);
        }
        if self.waiting.len() >= WAITING_MAX {
            return Resolution::Refused;
        }
        self.waiting.push((next_hop, packet));
        self.request(next_hop, now_ns);
        Resolution::Waiting
    }

    /// A neighbour said who it is. Unasked news is believed only about neighbours in the table or
    /// asked for, or when `asked_us`. True if the table changed; gives the packets that waited for
    /// it.
    pub fn confirm(
        &mut self,
        address: Ipv4Addr,
        ethernet: EthernetAddress,
        asked_us: bool,
        now_ns: u64,
    ) -> (bool, Vec<Span>) {
        let requested = self.requests.iter().any(|request| request.address == address);
        let known = self.entries.iter_mut().find(|entry| entry.address == address);
        let changed = match known {
            Some(entry) => {
                let changed = entry.ethernet != ethernet;
                *entry = Entry { address, ethernet, confirmed_ns: now_ns };
                changed
            }
            None if requested || asked_us => {
                self.make_room();
                self.entries.push(Entry { address, ethernet, confirmed_ns: now_ns });
                true
            }
            None => return (false, Vec::new()),
        };
        self.requests.retain(|request| request.address != address);
        let ready = self.waiting.iter().filter(|(hop, _)| *hop == address).map(|(_, packet)| *packet).collect();
        self.waiting.retain(|(hop, _)| *hop != address);
        (changed, ready)
    }

    /// Requests that are due, and packets whose neighbour did not answer.
    pub fn poll(&mut self, now_ns: u64) -> Due {
        let mut due = Due::default();
        for request in self.requests.iter_mut().filter(|request| request.next_ns <= now_ns) {
            if request.tries < TRIES {
                due.ask.push(request.address);
            }
            request.tries += 1;
            request.next_ns = now_ns + RETRY_NS;
        }
        let lost: Vec<Ipv4Addr> =
            self.requests.iter().filter(|request| request.tries > TRIES).map(|request| request.address).collect();
        for address in lost {
            due.given_up.extend(self.drop_waiting(|hop| hop == address));
            self.requests.retain(|request| request.address != address);
            self.entries.retain(|entry| entry.address != address);
        }
        due
    }

    /// When `poll` is due next.
    pub fn next_ns(&self) -> Option<u64> {
        self.requests.iter().map(|request| request.next_ns).min()
    }

    /// All packets that wait, taken out.
    pub fn flush_waiting(&mut self) -> Vec<Span> {
        self.drop_waiting(|_| true)
    }

    /// A changed link or host address: nothing known is true any more.
    pub fn clear(&mut self) -> Vec<Span> {
        self.entries.clear();
        self.requests.clear();
        self.flush_waiting()
    }

    fn drop_waiting(&mut self, gone: impl Fn(Ipv4Addr) -> bool) -> Vec<Span> {
        let dropped = self.waiting.iter().filter(|(hop, _)| gone(*hop)).map(|(_, packet)| *packet).collect();
        self.waiting.retain(|(hop, _)| !gone(*hop));
        dropped
    }

    fn request(&mut self, address: Ipv4Addr, now_ns: u64) {
        // A request per waiting packet at most, and a few for confirmations.
        if self.requests.len() < WAITING_MAX + ENTRIES_MAX
            && !self.requests.iter().any(|request| request.address == address)
        {
            self.requests.push(Request { address, tries: 0, next_ns: now_ns });
        }
    }

    fn make_room(&mut self) {
        if self.entries.len() >= ENTRIES_MAX
            && let Some(oldest) = (0..self.entries.len()).min_by_key(|&index| self.entries[index].confirmed_ns)
        {
            self.entries.swap_remove(oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
    const ETHERNET: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 9]);

    fn span(buffer: u16) -> Span {
        Span { buffer, offset: 0, length: 1 }
    }

    #[test]
    fn packets_wait_for_the_answer_and_then_go() {
        let mut table = Neighbours::default();
        assert_eq!(table.resolve(HOST, span(1), 5), Resolution::Waiting);
        assert_eq!(table.resolve(HOST, span(2), 5), Resolution::Waiting);
        assert_eq!(table.poll(5).ask, [HOST]);
        assert!(table.poll(6).ask.is_empty());
        assert_eq!(table.confirm(HOST, ETHERNET, false, 7).1, [span(1), span(2)]);
        assert_eq!(table.resolve(HOST, span(3), 8), Resolution::Known(ETHERNET));
        assert_eq!(table.next_ns(), None);
    }

    #[test]
    fn silence_ends() {
        let mut table = Neighbours::default();
        table.resolve(HOST, span(1), 0);
        let mut asked = 0;
        let mut dropped = Vec::new();
        while let Some(now) = table.next_ns() {
            let due = table.poll(now);
            asked += due.ask.len();
            dropped.extend(due.given_up);
        }
        assert_eq!((asked, dropped), (TRIES as usize, [span(1)].into()));
    }

    #[test]
    fn a_neighbour_has_as_long_for_its_last_answer_as_for_others() {
        let mut table = Neighbours::default();
        table.resolve(HOST, span(1), 7);
        for round in 0..u64::from(TRIES) {
            let due = table.poll(7 + round * RETRY_NS);
            assert!(due.ask == [HOST] && due.given_up.is_empty(), "{round}");
            assert_eq!(table.next_ns(), Some(7 + (round + 1) * RETRY_NS));
        }
        assert_eq!(table.poll(7 + u64::from(TRIES) * RETRY_NS).given_up, [span(1)]);
        assert_eq!(table.next_ns(), None);
    }

    #[test]
    fn one_that_answers_or_does_not_changes_nothing_for_others() {
        const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 8);
        const STRANGER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 7);
        let mut table = Neighbours::default();
        table.resolve(HOST, span(1), 0);
        table.poll(0);
        table.resolve(OTHER, span(2), 5);
        assert_eq!(table.confirm(STRANGER, ETHERNET, false, 6), (false, [].into()));
        // The first is given up.
        let mut given_up = Vec::new();
        (1..=u64::from(TRIES)).for_each(|round| given_up.extend(table.poll(round * RETRY_NS).given_up));
        assert_eq!((given_up, table.next_ns()), ([span(1)].into(), Some(5 * RETRY_NS)));
        // The first answers.
        table.resolve(HOST, span(3), 9 * RETRY_NS);
        assert_eq!(table.confirm(HOST, ETHERNET, false, 9 * RETRY_NS), (true, [span(3)].into()));
        assert_eq!(table.poll(9 * RETRY_NS).given_up, [span(2)]);
        // What waits is taken out once.
        table.resolve(OTHER, span(4), 10 * RETRY_NS);
        assert_eq!((table.flush_waiting(), table.flush_waiting()), ([span(4)].into(), [].into()));
    }

    #[test]
    fn an_old_entry_is_used_and_confirmed_and_strangers_are_not_believed() {
        let mut table = Neighbours::default();
        assert!(!table.confirm(HOST, ETHERNET, false, 0).0);
        assert!(table.confirm(HOST, ETHERNET, true, 0).0);
        assert_eq!(table.resolve(HOST, span(1), FRESH_NS), Resolution::Known(ETHERNET));
        assert_eq!(table.next_ns(), None);
        assert_eq!(table.resolve(HOST, span(1), FRESH_NS + 1), Resolution::Known(ETHERNET));
        assert_eq!(table.poll(FRESH_NS + 1).ask, [HOST]);
    }

    #[test]
    fn what_is_known_changes_by_another_address_and_by_silence() {
        const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 8);
        const SWAPPED: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 8]);
        let mut table = Neighbours::default();
        table.confirm(HOST, ETHERNET, true, 0);
        table.confirm(OTHER, ETHERNET, true, 0);
        assert!(!table.confirm(HOST, ETHERNET, true, 1).0);
        assert!(table.confirm(HOST, SWAPPED, false, 2).0);
        assert_eq!(table.resolve(HOST, span(1), 3 + FRESH_NS), Resolution::Known(SWAPPED));
        while let Some(now) = table.next_ns() {
            table.poll(now);
        }
        assert_eq!(table.entries().iter().map(|entry| entry.address).collect::<Vec<_>>(), [OTHER]);
    }

    #[test]
    fn tables_are_bounded() {
        let mut table = Neighbours::default();
        let host = |number: u32| Ipv4Addr::from_bits(0x0a00_0000 + number);
        (0..1000).for_each(|number| {
            table.confirm(host(number), ETHERNET, true, u64::from(number));
        });
        assert_eq!(table.entries().len(), ENTRIES_MAX);
        assert!(table.entries().iter().any(|entry| entry.address == host(999)));
        let refused =
            (1000..2000).filter(|&number| table.resolve(host(number), span(1), 0) == Resolution::Refused).count();
        assert_eq!(refused, 1000 - WAITING_MAX);
        // So are questions, where nobody waits for the answers any more.
        for round in 2..6 {
            table.flush_waiting();
            (0..100).for_each(|number| _ = table.resolve(host(1000 * round + number), span(1), 0));
        }
        assert_eq!(table.poll(0).ask.len(), WAITING_MAX + ENTRIES_MAX);
    }
}
