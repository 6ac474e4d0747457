//! Portal: an entrance into a context of this core, and the calls through it.
//!
//! A caller lends its time to the callee: it stays on the callee's list of lenders until it is answered (rendezvous), or until the callee reaches Wait with
//! nothing pending (mailbox). Whoever is picked by the scheduler then runs the end of its chain of loans, so that helping a busy callee needs no code of
//! its own. Invariants: chains have no cycle and at most [`DEPTH_MAX`] links; a lender's state names the loan; a callee's death ends all loans with `PeerDead`.
//! A mailbox caller who is itself notified gets its time back at once if the callee has time of its own: otherwise a callee that never idles would keep it.

use super::context::{Context, State};
use super::{Header, Link, Linked, Object, Ptr};
use crate::state::Kernel;
use abi::{Error, ObjectType};
use core::cell::Cell;

/// Longest chain of loans.
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

pub(super) fn dismantle(kernel: &mut Kernel, portal: Ptr<Portal>) {
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
    /// Whether `self` may lend its time to `callee`: no cycle, and no chain longer than [`DEPTH_MAX`].
    pub fn may_lend_to(self, callee: Ptr<Context>) -> bool {
        let mut depth = self.depth.get();
        let mut next = Some(callee);
        while let Some(context) = next {
            depth += 1;
            if context == self || depth > DEPTH_MAX {
                return false;
            }
            next = context.lends_to();
        }
        true
    }

    /// Notes the loan; `may_lend_to` has been asked.
    pub(super) fn lend_to(self, callee: Ptr<Context>) {
        callee.lenders.push_back(self);
        let mut depth = self.depth.get();
        let mut next = Some(callee);
        while let Some(context) = next {
            depth += 1;
            context.depth.set(context.depth.get().max(depth));
            next = context.lends_to();
        }
    }

    pub(super) fn take_back_from(self, callee: Ptr<Context>) {
        callee.lenders.remove(self);
        if callee.lenders.is_empty() {
            callee.depth.set(0);
        }
    }
}

impl Kernel {
    /// A rendezvous call. `caller` blocks until it is answered.
    #[inline(always)]
    pub fn call_rendezvous(&mut self, caller: Ptr<Context>, callee: Ptr<Context>, badge: u64, words: [u64; 4]) {
        if callee.state() == State::Accepting {
            self.scheduler.cancel_timeout(callee);
            callee.serving.set(Some(caller));
            callee.set_received(badge, words);
            // Before the loan: the caller ran, so whatever time ends in it runs or is queued already.
            self.unblock(callee);
            caller.lend_to(callee);
            self.block(caller, State::Served(callee));
        } else {
            caller.lend_to(callee);
            caller.call.set((badge, words));
            callee.callers.push_back(caller);
            self.block(caller, State::Queued(callee));
        }
    }

    /// Answers whom `callee` serves, if anybody.
    pub fn reply(&mut self, callee: Ptr<Context>, words: [u64; 3]) {
        if let Some(caller) = callee.serving.get() {
            self.complete(caller, Ok(words));
        }
    }

    /// Takes the next caller in line; tells whether there was one.
    pub fn accept_next(&mut self, callee: Ptr<Context>) -> bool {
        let Some(caller) = callee.callers.pop_front() else { return false };
        caller.set_state(State::Served(callee));
        let (badge, words) = caller.call.get();
        callee.serving.set(Some(caller));
        callee.set_received(badge, words);
        true
    }

    /// A mailbox call: sets the bits and lends time until the callee idles.
    pub fn call_mailbox(&mut self, caller: Ptr<Context>, callee: Ptr<Context>, badge: u64) {
        let lends = caller.may_lend_to(callee);
        self.signal(callee, badge);
        if lends {
            caller.lend_to(callee);
            self.block(caller, State::Lending(callee));
        }
    }

    /// The callee idles: whoever lent it time by a mailbox call goes on.
    pub fn release_lenders(&mut self, callee: Ptr<Context>) {
        let mut next = callee.lenders.first();
        while let Some(lender) = next {
            next = lender.next_lender();
            if lender.state() == State::Lending(callee) {
                self.complete(lender, Ok([0; 3]));
            }
        }
    }

    /// The callee is gone.
    pub(super) fn fail_lenders(&mut self, callee: Ptr<Context>) {
        while let Some(lender) = callee.lenders.first() {
            self.complete(lender, Err(Error::PeerDead));
        }
    }
}
