//! Numbers that strangers must not foretell: initial sequence numbers (RFC 6528) and ports of our
//! own (RFC 6056), from a secret that is made anew at each start.

use core::hash::Hasher;
use core::net::SocketAddrV4;

use siphasher::sip::SipHasher24;

use crate::segment::Pair;

/// RFC 6528's clock ticks each 4 microseconds.
const TICK_NS: u64 = 4000;

/// The secret, and how often it was asked for a port.
pub(crate) struct InitialNumbers {
    secret: [u8; 16],
    ports: u64,
}

impl InitialNumbers {
    pub fn new(secret: [u8; 16]) -> InitialNumbers {
        InitialNumbers { secret, ports: 0 }
    }

    fn hash(&self, words: &[u64]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        words.iter().for_each(|word| hasher.write_u64(*word));
        hasher.finish()
    }

    /// The first sequence number of a connection: a clock, so that numbers of one pair of ends
    /// never go back, and for each pair an offset that only we know.
    pub fn sequence(&self, pair: &Pair, now_ns: u64) -> u32 {
        let end = |end: SocketAddrV4| u64::from(end.ip().to_bits()) << 16 | u64::from(end.port());
        let offset = self.hash(&[0, end(pair.local), end(pair.remote)]);
        (offset as u32).wrapping_add((now_ns / TICK_NS) as u32)
    }

    /// Where to begin to look for a free port.
    pub fn port(&mut self) -> u16 {
        self.ports += 1;
        self.hash(&[1, self.ports]) as u16
    }
}

/// The seed with which the library's next connection begins at `sequence`. It takes no sequence
/// number from us, only a seed for its generator (an sPCG32, as in `smoltcp::rand`), of which an
/// interface draws one number that is not 0 for itself before: both steps are undone here.
/// `tests/tcp/opening.rs` sees whether what is sent is what was wanted.
pub(crate) fn seed_for(sequence: u32) -> u64 {
    // A state whose three highest bits are 0 gives its bits from 29 on; those below are free.
    let states = (0..1 << 29).map(|low| u64::from(sequence) << 29 | low);
    let before = states.map(undone).find(|state| drawn(*state) != 0);
    undone(before.unwrap_or_default())
}

const MULTIPLIER: u64 = 0xbb2e_fcec_3c39_611d;
const INCREMENT: u64 = 0x7590_ef39;

/// The generator's state before this one.
fn undone(state: u64) -> u64 {
    state.wrapping_sub(INCREMENT).wrapping_mul(INVERSE)
}

/// The short number that a state gives.
fn drawn(state: u64) -> u16 {
    let long = (state >> (29 - (state >> 61))) as u32;
    (long ^ long >> 16) as u16
}

/// Of the multiplier, modulo 2^64.
const INVERSE: u64 = {
    // An odd number is its own inverse modulo 8; each step doubles the bits that are right.
    let (mut inverse, mut step) = (MULTIPLIER, 0);
    while step < 5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(MULTIPLIER.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
};

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    /// A peer that knows the numbers of one pair of ends knows none of another pair.
    #[test]
    fn each_end_alone_changes_the_number() {
        let numbers = InitialNumbers::new([7; 16]);
        let end = |last, port| SocketAddrV4::new(Ipv4Addr::new(10, 0, 2, last), port);
        let number = |local, remote| numbers.sequence(&Pair { local, remote }, 0);
        let one = number(end(15, 80), end(2, 4000));
        let others = [
            number(end(16, 80), end(2, 4000)),
            number(end(15, 81), end(2, 4000)),
            number(end(15, 80), end(3, 4000)),
            number(end(15, 80), end(2, 4001)),
            number(end(2, 4000), end(15, 80)),
        ];
        assert!(!others.contains(&one), "{one} {others:?}");
    }
}
