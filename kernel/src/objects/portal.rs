//! Portal: an entrance into a context of this core, and the calls through it.
//!
//! A caller donates its time to the callee: it stays on the callee's list of donors until the
//! callee replies (rendezvous), or reaches Wait with nothing pending (mailbox). Any donor that the
//! scheduler picks runs the end of its donation chain, so that helping a busy callee needs no code
//! of its own. Invariants: chains have no cycle and at most [`DEPTH_MAX`] links; a context's depth
//! is the length of the longest chain that ends in it; a donor's state names the donation; a
//! callee's death ends all donations with `PeerDead`, and the dead callee stays until they have
//! ended. A caller's calls are bounded only by the chain of the request that it serves: chains of
//! others that are queued give way. A mailbox caller that is itself notified gets its time back at
//! once if the callee has time of its own: otherwise a callee that never idles would keep it.
//!
//! ```text
//!   time of A:   A ──call──► B ──call──► C        runs C, the end of the chain
//!                   donates     donates
//!   C replies:   A ──call──► B                    runs B, with A's time still
//!   D calls B:   A ──call──► B ◄──call── D        D queues; whichever time is picked runs B
//!   B replies:   A           B ◄──call── D        A has its time back, B accepts D
//! ```

use super::context::{Context, State};
use super::{Header, Link, Object, Ptr, linked};
use crate::hardware;
use crate::state::Kernel;
use crate::steps::{QUEUE_WORK, WAKES};
use abi::{Error, ObjectType};
use core::cell::Cell;

/// Longest chain of donations.
pub const DEPTH_MAX: u8 = 16;

/// Counts the donors of each depth above 0. The first one in the list of donors, mostly the only
/// one, is not counted.
#[derive(Default)]
pub(super) struct Depths {
    /// Bit n: some are of depth n.
    known: Cell<u16>,
    count: [Cell<u32>; DEPTH_MAX as usize],
}
const _: () = assert!(DEPTH_MAX as u32 <= u16::BITS);

impl Depths {
    fn add(&self, depth: u8) {
        if depth > 0 {
            let count = &self.count[usize::from(depth)];
            count.set(count.get() + 1);
            self.known.set(self.known.get() | 1 << depth);
        }
    }

    fn remove(&self, depth: u8) {
        if depth > 0 {
            let count = &self.count[usize::from(depth)];
            debug_assert!(count.get() > 0, "more donors of a depth leave than came");
            count.set(count.get() - 1);
            if count.get() == 0 {
                self.known.set(self.known.get() & !(1 << depth));
            }
        }
    }

    /// One more than the greatest depth; 0: there are none.
    fn deepest(&self) -> u8 {
        (u16::BITS - self.known.get().leading_zeros()) as u8
    }
}

/// Whether a caller may donate its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// It may.
    Yes,
    /// Its chain would have a cycle or be too long.
    No,
    /// More of the queued donors are to be checked: the call is retried.
    Later,
}

/// How a portal is entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortalKind {
    /// Words in, words out.
    Rendezvous,
    /// Badge bits.
    Mailbox,
}

/// An entrance.
#[repr(C)]
pub struct Portal {
    header: Header,
    /// The context that is entered; it has the portal on its list.
    callee: Cell<Option<Ptr<Context>>>,
    of_callee: Link<Portal>,
    pub(crate) kind: PortalKind,
}

// SAFETY: repr(C), header first.
unsafe impl Object for Portal {
    const TYPE: ObjectType = ObjectType::Portal;
}

linked!(Portal, 0: of_callee);

impl Portal {
    /// The header comes from `Kernel::create`. It leads nowhere yet: see `set_callee`.
    pub fn new(header: Header, kind: PortalKind) -> Portal {
        Portal { header, callee: Cell::new(None), of_callee: Link::new(), kind }
    }
}

pub(super) fn destroy(kernel: &mut Kernel, portal: Ptr<Portal>) {
    portal.set_callee(None);
    kernel.wake_slots.free_all(portal.any());
    let is_alone = !portal.of_callee.is_linked() && portal.header().wake_slots.get() == 0;
    assert!(is_alone, "a portal ends with a callee or wake slots");
}

impl Ptr<Portal> {
    /// The context that is entered; none once that context has ended.
    pub fn callee(self) -> Option<Ptr<Context>> {
        self.callee.get()
    }

    /// Makes another living context the callee, or none. Calls under way stay with the old one.
    pub fn set_callee(self, callee: Option<Ptr<Context>>) {
        hardware::count_work(QUEUE_WORK);
        if let Some(old) = self.callee.replace(callee) {
            old.portals.remove(self);
        }
        if let Some(new) = callee {
            assert!(new.state() != State::Dead, "a portal's callee has ended");
            new.portals.push_back(self);
        }
    }
}

impl Ptr<Context> {
    /// Donates time to `callee`; `may_donate` has allowed it.
    #[inline(always)]
    pub(super) fn donate_to(self, callee: Ptr<Context>) {
        let (is_first, depth) = (callee.donors.last().is_none(), self.depth.get());
        debug_assert!(
            callee.links_below(self).is_some() && depth < DEPTH_MAX,
            "a chain of donations is too long or has a cycle"
        );
        callee.donors.push_back(self);
        if is_first {
            callee.set_depth(depth.wrapping_add(1));
        } else if depth > 0 {
            callee.donor_joined(depth);
        }
    }

    /// Counts a donor of that depth beside the first.
    #[cold]
    fn donor_joined(self, depth: u8) {
        self.depths.add(depth);
        self.correct_depth();
    }

    #[inline(always)]
    pub(super) fn take_back_from(self, callee: Ptr<Context>) {
        debug_assert!(callee.depth.get() > self.depth.get(), "a chain that ends in a callee is not its donor's");
        let was_first = self.of_callee.previous().is_none();
        if callee.next_to_wake.get() == Some(self) {
            callee.pass_over(self);
        }
        callee.donors.remove(self);
        match callee.donors.first() {
            None => callee.set_depth(0),
            Some(first) => {
                let left = if was_first { first.depth.get() } else { self.depth.get() };
                if callee.depth.get() > 1 {
                    callee.donor_left(left);
                }
            }
        }
    }

    /// Has another donor woken next instead of this one, which leaves. The one before it may be
    /// woken twice.
    #[cold]
    fn pass_over(self, donor: Ptr<Context>) {
        self.next_to_wake.set(donor.of_callee.next().or_else(|| donor.of_callee.previous()));
    }

    /// Moves a donor that is not the first to the end of the list.
    fn put_donor_last(self, donor: Ptr<Context>) {
        if self.next_to_wake.get() == Some(donor) {
            self.pass_over(donor);
        }
        self.donors.remove(donor);
        self.donors.push_back(donor);
    }

    /// Counts a donor of that depth less, where others are left.
    #[cold]
    fn donor_left(self, depth: u8) {
        self.depths.remove(depth);
        self.correct_depth();
    }

    #[inline(always)]
    fn set_depth(self, depth: u8) {
        debug_assert!(depth <= DEPTH_MAX, "a chain of donations is too long");
        let before = self.depth.replace(depth);
        if let Some(callee) = self.donates_to() {
            callee.donor_changed(self, before);
        }
    }

    /// Corrects the depth after a donor's has changed, and so those down its own chain.
    #[cold]
    fn donor_changed(self, donor: Ptr<Context>, before: u8) {
        debug_assert!(donor.donates_to() == Some(self), "a chain goes on with a context that is no donor");
        if self.donors.first() != Some(donor) {
            self.depths.remove(before);
            self.depths.add(donor.depth.get());
        }
        self.correct_depth();
    }

    fn correct_depth(self) {
        let first = self.donors.first().map_or(0, |first| first.depth.get().wrapping_add(1));
        let depth = first.max(self.depths.deepest());
        if depth != self.depth.get() {
            self.set_depth(depth);
        }
    }

    /// Links from `self` down to the end of its chain; `None` if `caller` is on it.
    #[inline(always)]
    fn links_below(self, caller: Ptr<Context>) -> Option<u8> {
        let (mut context, mut links) = (self, 0);
        while context != caller {
            let Some(callee) = context.donates_to() else { return Some(links) };
            links = u8::wrapping_add(links, 1);
            context = callee;
        }
        None
    }
}

impl Kernel {
    /// Whether `caller`, which runs, may donate its time to `callee`: no cycle, and no chain longer
    /// than [`DEPTH_MAX`].
    #[inline(always)]
    fn may_donate(&mut self, caller: Ptr<Context>, callee: Ptr<Context>) -> Room {
        match callee.links_below(caller) {
            None => Room::No,
            Some(below) if caller.depth.get().wrapping_add(below) < DEPTH_MAX => Room::Yes,
            Some(below) => self.make_room(caller, below.wrapping_add(1)),
        }
    }

    /// Whether `caller`, which runs, may make a rendezvous call to `callee`.
    #[inline(always)]
    pub fn may_call(&mut self, caller: Ptr<Context>, callee: Ptr<Context>) -> Room {
        if callee.state() == State::Accepting && caller.depth.get() < DEPTH_MAX {
            Room::Yes
        } else {
            self.may_enqueue(caller, callee)
        }
    }

    #[inline(never)]
    fn may_enqueue(&mut self, caller: Ptr<Context>, callee: Ptr<Context>) -> Room {
        self.may_donate(caller, callee)
    }

    /// Lets the chain of `caller` grow by so many links, if the chain of the request that it serves
    /// has room for them. Callers that are only queued on the way do not count: one whose chain
    /// would become too long is refused (`Busy`) instead.
    #[cold]
    fn make_room(&mut self, caller: Ptr<Context>, links: u8) -> Room {
        let served = core::iter::successors(Some(caller), |context| context.serving.get());
        if served.count() - 1 + usize::from(links) > usize::from(DEPTH_MAX) {
            return Room::No;
        }
        if !self.shorten_chains(caller, links, &mut { WAKES }) {
            return Room::Later;
        }
        assert!(caller.depth.get() + links <= DEPTH_MAX, "queued chains that were too long are gone");
        Room::Yes
    }

    /// Refuses those donors of `server`, and of all that it serves directly or indirectly, whose
    /// chains would be too long with so many links below; tells whether `left` checks sufficed. The
    /// far end of the request comes first, so the caller that `server` serves has room when its
    /// turn comes. A donor that may stay moves to the end of its list, and the counts of depths
    /// tell whether deep ones are left: so a retried call goes on where it was. The recursion is
    /// as deep as the request is long.
    fn shorten_chains(&mut self, server: Ptr<Context>, below: u8, left: &mut u32) -> bool {
        if let Some(served) = server.serving.get()
            && !self.shorten_chains(served, below + 1, left)
        {
            return false;
        }
        let is_deep = |donor: Ptr<Context>| donor.depth.get() + below >= DEPTH_MAX;
        while let Some(first) = server.first_donor() {
            let are_others_deep = server.depths.deepest() + below > DEPTH_MAX;
            let donor = match is_deep(first) {
                true => first,
                false if are_others_deep => first.next_donor().expect("others are counted"),
                false => break,
            };
            if *left == 0 {
                return false;
            }
            *left = left.saturating_sub(donor.chain());
            hardware::count_work(QUEUE_WORK);
            if is_deep(donor) {
                let is_mailbox = donor.state() == State::Donation(server);
                self.complete(donor, if is_mailbox { Ok([0; 3]) } else { Err(Error::Busy) });
            } else {
                server.put_donor_last(donor);
            }
        }
        true
    }

    /// Makes a rendezvous call: `caller` blocks until `callee` replies. Gives the context to switch
    /// to directly, see `direct_switch`.
    #[inline(always)]
    pub fn call_rendezvous(
        &mut self,
        caller: Ptr<Context>,
        callee: Ptr<Context>,
        badge: u64,
        deadline_ns: u64,
    ) -> Option<Ptr<Context>> {
        if callee.state() == State::Accepting {
            self.scheduler.cancel_timeout(callee);
            // A call that begins at once needs no deadline that has passed.
            if deadline_ns != 0 {
                self.scheduler.set_timeout(caller, deadline_ns);
            }
            callee.serving.set(Some(caller));
            callee.set_received(badge, caller.words_sent());
            // Before the donation: the caller ran, so all time that ends in it runs or is queued
            // already.
            self.make_ready(callee);
            caller.donate_to(callee);
            assert!(caller.state() == State::Runnable, "a caller does not run");
            caller.set_state(State::Served(callee));
            callee.set_state(State::Runnable);
            self.direct_switch(Some(callee))
        } else {
            self.enqueue_caller(caller, callee, badge, deadline_ns);
            None
        }
    }

    #[inline(never)]
    fn enqueue_caller(&mut self, caller: Ptr<Context>, callee: Ptr<Context>, badge: u64, deadline_ns: u64) {
        caller.donate_to(callee);
        caller.badge.set(badge);
        callee.callers.push_back(caller);
        if callee.serving.get().is_none() {
            self.scheduler.resume_watch(callee);
        }
        self.block(caller, State::Queued(callee));
        self.scheduler.set_timeout(caller, deadline_ns);
    }

    /// Replies to the caller that `callee` serves, if there is one.
    #[inline(always)]
    pub fn reply(&mut self, callee: Ptr<Context>) {
        if let Some(caller) = callee.serving.take() {
            self.scheduler.cancel_timeout(caller);
            caller.take_back_from(callee);
            caller.set_result(Ok(callee.with_registers(|registers| [registers.rdi, registers.rsi, registers.rdx])));
            caller.set_state(State::Runnable);
            self.make_ready(caller);
        } else if callee.pending.get() == 0 {
            // It served beyond its caller's deadline, and has come for the next all the same.
            self.scheduler.cancel_watch(callee);
        }
    }

    /// Accepts the next queued caller; tells whether there was one.
    #[inline(always)]
    pub fn accept_next(&mut self, callee: Ptr<Context>) -> bool {
        let Some(caller) = callee.callers.pop_front() else { return false };
        debug_assert!(callee.serving.get().is_none(), "two callers are served at once");
        caller.set_state(State::Served(callee));
        callee.serving.set(Some(caller));
        callee.set_received(caller.badge.get(), caller.words_sent());
        true
    }

    /// Makes a mailbox call: sets the bits and donates time until the callee idles. No time is
    /// donated to a callee that was not started: it has nothing to do yet, and the caller may be
    /// the one that has it started.
    pub fn call_mailbox(&mut self, caller: Ptr<Context>, callee: Ptr<Context>, badge: u64) {
        let donates = callee.state() != State::New
            && match self.may_donate(caller, callee) {
                Room::Yes => true,
                Room::No => false,
                Room::Later => return self.retry(caller),
            };
        // Set the result before blocking; ending the donation does not overwrite it.
        caller.set_result(Ok([0; 3]));
        self.signal(callee, badge);
        if donates {
            caller.donate_to(callee);
            if callee.donors.first() != Some(caller) {
                callee.mailbox_callers.push_back(caller);
            }
            self.block(caller, State::Donation(callee));
        }
    }

    /// Retries the caller's call; others have their turn before.
    #[cold]
    pub fn retry(&mut self, caller: Ptr<Context>) {
        caller.retry_call();
        self.scheduler.reschedule();
    }

    /// Unblocks the mailbox callers that donated time to a callee that idles, as many as one step
    /// may wake; tells whether those were all. The first donor stays the first until it leaves, so
    /// it is found without another list.
    pub fn release_donors(&mut self, callee: Ptr<Context>) -> bool {
        if let Some(first) = callee.first_donor()
            && first.state() == State::Donation(callee)
        {
            self.complete(first, Ok([0; 3]));
        }
        callee.mailbox_callers.is_empty() || self.release_more(callee)
    }

    #[cold]
    fn release_more(&mut self, callee: Ptr<Context>) -> bool {
        let mut left = WAKES;
        while left > 0
            && let Some(donor) = callee.mailbox_callers.first()
        {
            left = left.saturating_sub(donor.chain());
            self.complete(donor, Ok([0; 3]));
        }
        callee.mailbox_callers.is_empty()
    }

    /// Ends the donations to a callee that is dead with `PeerDead`, as many as one step may; gives
    /// their number. While more are left, `callee` stays, and the next steps go on.
    pub(crate) fn fail_donors(&mut self, callee: Ptr<Context>) -> u32 {
        for told in 0..WAKES {
            let Some(donor) = callee.first_donor() else { return told };
            self.complete(donor, Err(Error::PeerDead));
        }
        if callee.first_donor().is_some() {
            self.retain(callee);
            self.scheduler.fail_later(callee);
        }
        WAKES
    }
}
