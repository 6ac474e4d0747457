//! Portal: an entrance into a context of this core, and the calls through it.
//!
//! A caller donates its time to the callee: it stays on the callee's list of donors until it is
//! answered (rendezvous), or until the callee reaches Wait with nothing pending (mailbox). Whoever
//! is picked by the scheduler then runs the end of its chain of donations, so that helping a busy
//! callee needs no code of its own. Invariants: chains have no cycle and at most [`DEPTH_MAX`]
//! links; a donor's state names the donation; a callee's death ends all donations with `PeerDead`.
//! A mailbox caller who is itself notified gets its time back at once if the callee has time of its
//! own: otherwise a callee that never idles would keep it.

use super::context::{Context, State};
use super::{Header, Link, Linked, Object, Ptr};
use crate::state::Kernel;
use abi::{Error, ObjectType};
use core::cell::Cell;

/// Longest chain of donations.
pub const DEPTH_MAX: u8 = 16;

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
    /// Who is entered: it has the portal on its list.
    callee: Cell<Option<Ptr<Context>>>,
    of_callee: Link<Portal>,
    pub(crate) kind: PortalKind,
    /// Wake slots that ring it.
    pub(super) wake_slots: Cell<u32>,
}

// SAFETY: repr(C), header first.
unsafe impl Object for Portal {
    const TYPE: ObjectType = ObjectType::Portal;
}

impl Linked<0> for Portal {
    fn link(&self) -> &Link<Self> {
        &self.of_callee
    }
}

impl Portal {
    /// The header comes from `Kernel::create`. It leads nowhere yet: see `set_callee`.
    pub fn new(header: Header, kind: PortalKind) -> Portal {
        Portal { header, callee: Cell::new(None), of_callee: Link::new(), kind, wake_slots: Cell::new(0) }
    }
}

pub(super) fn destroy(kernel: &mut Kernel, portal: Ptr<Portal>) {
    portal.set_callee(None);
    kernel.wake_slots.free_all(portal.any(), &portal.wake_slots);
}

impl Ptr<Portal> {
    /// Who is entered; a context that ends leaves its portals leading nowhere.
    pub fn callee(self) -> Option<Ptr<Context>> {
        self.callee.get()
    }

    /// Leads it to another living context, or nowhere. Calls on their way stay where they are.
    pub fn set_callee(self, callee: Option<Ptr<Context>>) {
        if let Some(old) = self.callee.replace(callee) {
            old.portals.remove(self);
        }
        if let Some(new) = callee {
            assert!(new.state() != State::Dead);
            new.portals.push_back(self);
        }
    }
}

impl Ptr<Context> {
    /// Whether `self`, which runs, may donate its time to `callee`: no cycle, and no chain longer
    /// than [`DEPTH_MAX`].
    pub fn may_donate_to(self, callee: Ptr<Context>) -> bool {
        let mut depth = self.depth.get();
        if callee.state() == State::Accepting {
            return depth < DEPTH_MAX;
        }
        let mut next = Some(callee);
        while let Some(context) = next {
            if context == self || depth >= DEPTH_MAX {
                return false;
            }
            depth += 1;
            next = context.donates_to();
        }
        true
    }

    /// Notes the donation; `may_donate_to` has been asked. Who is donated to as long a chain
    /// already donates on as long a one.
    #[inline(always)]
    pub(super) fn donate_to(self, callee: Ptr<Context>) {
        callee.donors.push_back(self);
        let mut depth = self.depth.get();
        let mut next = Some(callee);
        while let Some(context) = next.filter(|context| context.depth.get() <= depth) {
            depth = depth.wrapping_add(1);
            context.depth.set(depth);
            next = context.donates_to();
        }
    }

    #[inline(always)]
    pub(super) fn take_back_from(self, callee: Ptr<Context>) {
        callee.donors.remove(self);
        if callee.donors.is_empty() {
            callee.depth.set(0);
        }
    }
}

impl Kernel {
    /// A rendezvous call. `caller` blocks until it is answered; tells who goes on at once, see
    /// `direct_switch`.
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
            // One that begins at once has no need of a deadline that has passed.
            if deadline_ns != 0 {
                self.scheduler.set_timeout(caller, deadline_ns);
            }
            callee.serving.set(Some(caller));
            callee.set_received(badge, caller.words_sent());
            // Before the donation: the caller ran, so whatever time ends in it runs or is queued
            // already.
            self.make_ready(callee);
            caller.donate_to(callee);
            caller.set_state(State::Served(callee));
            callee.set_state(State::Runnable);
            self.direct_switch(Some(callee))
        } else {
            self.stand_in_line(caller, callee, badge, deadline_ns);
            None
        }
    }

    #[inline(never)]
    fn stand_in_line(&mut self, caller: Ptr<Context>, callee: Ptr<Context>, badge: u64, deadline_ns: u64) {
        caller.donate_to(callee);
        caller.badge.set(badge);
        callee.callers.push_back(caller);
        self.block(caller, State::Queued(callee));
        self.scheduler.set_timeout(caller, deadline_ns);
    }

    /// Answers whom `callee` serves, if anybody.
    #[inline(always)]
    pub fn reply(&mut self, callee: Ptr<Context>) {
        if let Some(caller) = callee.serving.take() {
            self.scheduler.cancel_timeout(caller);
            caller.take_back_from(callee);
            caller.set_result(Ok(callee.with_registers(|registers| [registers.rdi, registers.rsi, registers.rdx])));
            caller.set_state(State::Runnable);
            self.make_ready(caller);
        }
    }

    /// Takes the next caller in line; tells whether there was one.
    #[inline(always)]
    pub fn accept_next(&mut self, callee: Ptr<Context>) -> bool {
        let Some(caller) = callee.callers.pop_front() else { return false };
        caller.set_state(State::Served(callee));
        callee.serving.set(Some(caller));
        callee.set_received(caller.badge.get(), caller.words_sent());
        true
    }

    /// A mailbox call: sets the bits and donates time until the callee idles.
    pub fn call_mailbox(&mut self, caller: Ptr<Context>, callee: Ptr<Context>, badge: u64) {
        let donates = caller.may_donate_to(callee);
        self.signal(callee, badge);
        if donates {
            caller.donate_to(callee);
            self.block(caller, State::Donation(callee));
        }
    }

    /// The callee idles: whoever donated it time by a mailbox call goes on.
    pub fn release_donors(&mut self, callee: Ptr<Context>) {
        let mut next = callee.donors.first();
        while let Some(donor) = next {
            next = donor.next_donor();
            if donor.state() == State::Donation(callee) {
                self.complete(donor, Ok([0; 3]));
            }
        }
    }

    /// The callee is gone.
    pub(super) fn fail_donors(&mut self, callee: Ptr<Context>) {
        while let Some(donor) = callee.donors.first() {
            self.complete(donor, Err(Error::PeerDead));
        }
    }
}
