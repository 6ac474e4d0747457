//! What a connection does not say too often: acknowledgements that tell a peer nothing new.
//!
//! A peer takes some equal ones as the loss of a segment (three, RFC 5681, section 3.2; passt takes
//! two) and sends again what is on the way, passt all of it for each. If a segment is lost among
//! many, the many are answered with as many equal ones; what a peer sends again then comes where
//! there was no room before, and is lost too.

use crate::segment::Segment;

/// So many in a row are said at once, which is what makes a peer send again.
const AT_ONCE: u8 = 3;
/// Then one in this time. What was not said is said after it, and again after twice as long each
/// time while the gap is there, should those be lost or not be understood: passt passes over them
/// if bytes follow at once.
const AGAIN_NS: u64 = 20_000_000;
/// So many times, after 2.5 s in all.
const AGAIN_MAX: u8 = 7;
/// What was acknowledged before is answered once in this time.
const OLD_NS: u64 = 100_000_000;

/// Number acknowledged and window of an acknowledgement.
pub type Told = (u32, u16);

/// What was said last without bytes, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quiet {
    told: Option<Told>,
    times: u8,
    last_ns: u64,
    /// One was not said.
    owes: bool,
    /// How often what was not said was said after all, of this number.
    again: u8,
    /// When it answered last to what it had acknowledged before.
    old_answered_ns: Option<u64>,
}

impl Quiet {
    /// Whether saying this once more is due.
    pub fn may_tell(&self, told: Told, now_ns: u64) -> bool {
        self.told != Some(told) || self.times <= AT_ONCE || now_ns.saturating_sub(self.last_ns) >= AGAIN_NS
    }

    /// A segment left.
    pub fn sent(&mut self, segment: &Segment, now_ns: u64) {
        let Some(acknowledged) = segment.acknowledged.filter(|_| segment.is_bare()) else { return };
        let told = Some((acknowledged, segment.window));
        self.times = if self.told == told { self.times.saturating_add(1) } else { 1 };
        if self.told.is_none_or(|(number, _)| number != acknowledged) {
            (self.owes, self.again) = (false, 0);
        } else {
            // With another window it is news of that, and not the third of three.
            self.owes &= self.told != told;
        }
        (self.told, self.last_ns) = (told, now_ns);
    }

    /// An acknowledgement was suppressed, as it was not due.
    pub fn suppressed(&mut self) {
        self.owes = true;
    }

    /// When what was not said is to be said after all.
    pub fn due_ns(&self) -> Option<u64> {
        self.owes.then(|| self.last_ns.saturating_add(AGAIN_NS << self.again))
    }

    /// Whether that is now.
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.due_ns().is_some_and(|due_ns| due_ns <= now_ns)
    }

    /// What was not said was said; `has_gap` if the peer still has to send what lies before what
    /// came.
    pub fn told_after_all(&mut self, has_gap: bool) {
        self.again += 1;
        self.owes = has_gap && self.again < AGAIN_MAX;
    }

    /// Whether another segment that brings nothing but what was acknowledged before is answered. A
    /// network that repeats frames, as ours does around the death of a component, would otherwise
    /// be answered for each.
    pub fn may_answer_old(&mut self, now_ns: u64) -> bool {
        let may = self.old_answered_ns.is_none_or(|last_ns| now_ns.saturating_sub(last_ns) >= OLD_NS);
        if may {
            self.old_answered_ns = Some(now_ns);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, SocketAddrV4};

    fn bare(acknowledged: u32, window: u16) -> Segment {
        let end = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 80);
        Segment {
            source: end,
            destination: end,
            sequence: 7,
            end: 7,
            acknowledged: Some(acknowledged),
            window,
            syn: false,
            fin: false,
            reset: false,
            scale: None,
            segment_max: 0,
            takes_pieces: false,
        }
    }

    #[test]
    fn what_was_not_said_is_owed_until_just_that_or_more_is_said() {
        let owing = || {
            let mut quiet = Quiet::default();
            quiet.sent(&bare(5, 100), 0);
            quiet.suppressed();
            quiet
        };
        assert_eq!(owing().due_ns(), Some(AGAIN_NS));
        for (said, owes) in [(bare(5, 100), false), (bare(5, 99), true), (bare(6, 100), false)] {
            let mut quiet = owing();
            quiet.sent(&said, 1);
            assert_eq!(quiet.due_ns().is_some(), owes, "{said:?}");
        }
        let mut quiet = Quiet::default();
        [bare(5, 100), bare(5, 99)].iter().for_each(|said| quiet.sent(said, 0));
        assert_eq!(quiet.due_ns(), None, "all was said");
    }

    #[test]
    fn what_was_said_after_all_is_said_again_while_something_is_missing() {
        let mut quiet = Quiet::default();
        quiet.sent(&bare(5, 100), 0);
        quiet.suppressed();
        for again in 1..AGAIN_MAX {
            quiet.told_after_all(true);
            assert_eq!(quiet.due_ns(), Some(AGAIN_NS << again));
        }
        quiet.told_after_all(true);
        assert_eq!(quiet.due_ns(), None, "it was said often enough");
        let mut quiet = Quiet::default();
        quiet.suppressed();
        quiet.told_after_all(false);
        assert_eq!(quiet.due_ns(), None, "nothing is missing");
    }
}
