//! Domain: what lives and dies together.
//!
//! Invariants: a domain lives from `DomainAlloc` until somebody kills it, it exits or breaks the
//! rules, or the last capability for it outside its own share goes (nobody could name it any more;
//! without this rule two objects that hold each other would stay for ever), or its Ram is revoked.
//! Death ends its contexts and empties its share and its range, so that what is not held elsewhere
//! returns to the Ram that paid. It does so in bounded steps, each begun by a timer for now: until
//! the contexts of all domains that died have ended the core runs nothing, and who waits for a
//! death is told when all is done. The dead object keeps the cause for those who still hold it.

use super::context::Context;
use super::notification::Notification;
use super::share::{Capability, Share};
use super::slot::Source;
use super::writer::{Name, Writer};
use super::{Header, Link, List, Made, Object, Ptr, Ram, Range, Slot, linked};
use crate::hardware;
use crate::memory::PAGE_BYTES;
use crate::scheduler::Ledger;
use crate::state::Kernel;
use crate::steps::{Budget, CALLER_UNITS, CONTEXT_UNITS, END_UNITS, WAKE_SLOTS_UNITS};
use crate::trace::Event;
use abi::layout::domain as flags;
use abi::{DeathCause, DomainState, ExceptionInfo, Handle, ObjectType, Rights};
use core::cell::Cell;

/// The cause of a domain's end.
#[derive(Clone, Copy)]
pub struct Death {
    /// Why.
    pub cause: DeathCause,
    /// Of `DomainExit` or `DomainKill`.
    pub status: u64,
    /// For `DeathCause::Exception` and `DeathCause::NoMemory`.
    pub exception: ExceptionInfo,
    /// Where it was.
    pub rip: u64,
    /// Its stack.
    pub rsp: u64,
    used_pages: u64,
}

impl Death {
    /// Death by a kernel call.
    pub fn by_call(cause: DeathCause, status: u64) -> Death {
        Death { cause, status, exception: ExceptionInfo::default(), rip: 0, rsp: 0, used_pages: 0 }
    }

    /// Death by an exception or a fault of a context.
    pub fn of_context(cause: DeathCause, context: Ptr<Context>, exception: ExceptionInfo) -> Death {
        let (rip, rsp) = context.with_registers(|registers| (registers.rip, registers.rsp));
        Death { cause, status: 0, exception, rip, rsp, used_pages: 0 }
    }
}

/// A protection domain.
///
/// | from | by what | to |
/// |---|---|---|
/// | lives | its last name in the shares of others is dropped | unnamed |
/// | lives | it exits, is killed or breaks the rules | dying or emptying |
/// | lives | its Ram is revoked | dying or revoked |
/// | unnamed | its turn comes | dying or emptying |
/// | dying | its contexts have ended | emptying or revoked |
/// | revoked | it is killed | emptying |
/// | emptying, revoked | its share and its range are empty | ended |
///
/// A dying domain has contexts. Unnamed and dying ones are in `Kernel::ending` before those that
/// are emptied; a revoked one is on no list and waits for `RamRevoke`. A domain dies once:
/// `begin_death` asserts that, and `line_up` that only the dead are emptied.
#[repr(C)]
pub struct Domain {
    header: Header,
    pub(crate) cpu_ns: Cell<u64>,
    /// Who paid for that.
    pub(crate) ledger: Ledger,
    pub(super) share: Share,
    range: Ptr<Range>,
    /// Its name, and its part in the log.
    pub(crate) writer: Writer,
    /// Contexts that have not ended; the list counts as a reference of each.
    pub(crate) contexts: List<Context, 0>,
    death: Cell<Option<Death>>,
    /// `RamRevoke` destroys what it held.
    is_revoked: Cell<bool>,
    on_death: Slot,
    /// Capabilities for it outside its own share.
    pub(crate) names: Cell<u32>,
    /// Linked while nobody can name it, or it has died and is not emptied yet.
    ending: Link<Domain>,
    /// Soft faults so far: a program that touches new pages makes progress.
    pub(crate) soft_faults: Cell<u64>,
}

// SAFETY: repr(C), header first.
unsafe impl Object for Domain {
    const TYPE: ObjectType = ObjectType::Domain;
}
const _: () = assert!(size_of::<Domain>() <= PAGE_BYTES);

linked!(Domain, 0: ending);

impl Domain {
    /// Its capabilities.
    pub fn share(&self) -> &Share {
        &self.share
    }

    /// Its mappings.
    pub fn range(&self) -> Ptr<Range> {
        self.range
    }

    /// Whether it has not ended.
    pub fn is_alive(&self) -> bool {
        self.death.get().is_none()
    }
}

impl Ptr<Domain> {
    /// Makes a domain that `ram` pays for, with its own first three capabilities. The caller holds
    /// one reference.
    pub fn create(kernel: &mut Kernel, ram: Ptr<Ram>, options: u64, name: Name) -> Made<Domain> {
        let range = Ptr::<Range>::create_root(kernel, ram, options & flags::WRITE_EXECUTE != 0)?;
        let made = kernel.create(ram, |header| Domain {
            header,
            share: Share::new(),
            range,
            writer: Writer::new(name),
            contexts: List::new(),
            death: Cell::new(None),
            is_revoked: Cell::new(false),
            on_death: Slot::new(),
            names: Cell::new(0),
            ending: Link::new(),
            cpu_ns: Cell::new(0),
            ledger: Ledger::default(),
            soft_faults: Cell::new(0),
        });
        let Ok(domain) = made else {
            kernel.release(range);
            return made;
        };
        domain.writer.begin(&mut kernel.log, options & flags::WRITE_EXECUTE != 0);
        if let Err(error) = domain.ensure_slot(kernel, 1) {
            // Never named: it is destroyed like a dead one.
            kernel.release(domain);
            return Err(error);
        }
        let own = [
            (Handle::SELF_DOMAIN, domain.any(), Rights::READ.union(Rights::CONTROL)),
            (Handle::SELF_RANGE, range.any(), Rights::READ.union(Rights::WRITE)),
            (Handle::SELF_RAM, ram.any(), Rights::READ.union(Rights::WRITE)),
        ];
        for (handle, object, rights) in own {
            kernel.retain_any(object);
            domain.insert(handle.0 as usize, Capability { object, badge: 0, rights });
        }
        Ok(domain)
    }

    /// Counts one more capability for it, in the share of `holder`.
    pub(super) fn add_name(self, holder: Ptr<Domain>) {
        if holder != self {
            self.names.set(self.names.get() + 1);
        }
    }

    /// A name that is no capability: the kernel's own, for a core's first.
    pub fn keep_alive(self) {
        self.names.set(self.names.get() + 1);
    }

    pub(super) fn drop_name(self, kernel: &mut Kernel, holder: Ptr<Domain>) {
        if holder == self {
            return;
        }
        assert!(self.names.get() > 0, "more names go than came");
        self.names.set(self.names.get() - 1);
        if self.names.get() == 0 && self.is_alive() && !self.ending.is_linked() {
            kernel.retain(self);
            kernel.ending.push_front(self);
        }
    }

    /// Whether it died and is not emptied yet.
    pub fn is_ending(self) -> bool {
        !self.is_alive() && self.ending.is_linked()
    }

    /// Sets the notification of its death; sends it at once if it is dead.
    pub fn set_on_death(self, kernel: &mut Kernel, notification: Notification, from: Source) {
        if self.is_alive() || self.is_ending() {
            kernel.keep(&self.on_death, Some(from.1), Some(from.0));
        } else {
            notification.send(kernel);
        }
    }

    /// Its state, or the cause of its end.
    pub fn state(self) -> DomainState {
        let alive = Death { used_pages: self.ram().used(), ..Death::by_call(DeathCause::Alive, 0) };
        let Death { cause, status, exception, rip, rsp, used_pages } = self.death.get().unwrap_or(alive);
        let (id, cpu_ns) = (self.header.id(), self.cpu_ns.get());
        DomainState { id, cause: cause as u64, status, exception, rip, rsp, used_pages, cpu_ns }
    }
}

impl Kernel {
    /// Kills a domain: it is dead for all callers, and what it held is freed from the end of this
    /// step on (`drain_dead`). Does nothing if it has ended, unless a revocation was to empty it.
    pub fn kill(&mut self, domain: Ptr<Domain>, death: Death) {
        let was_revoked = domain.is_revoked.replace(false);
        if domain.is_alive() {
            self.begin_death(domain, death);
        } else if was_revoked {
            self.line_up(domain);
        }
    }

    /// As `kill`, because its memory is revoked: the revocation destroys what it held in its own
    /// order, so that all acting objects end before.
    pub(super) fn kill_revoked(&mut self, domain: Ptr<Domain>) {
        if domain.is_alive() {
            domain.is_revoked.set(self.first != Some(domain));
            self.begin_death(domain, Death::by_call(DeathCause::Revoked, 0));
        }
    }

    fn begin_death(&mut self, domain: Ptr<Domain>, death: Death) {
        assert!(domain.is_alive(), "a domain dies once");
        let used_pages = domain.ram().used();
        domain.death.set(Some(Death { used_pages, ..death }));
        self.trace(Event::Death, 0, [domain.header().id(), death.cause as u64]);
        domain.writer.end(&mut self.log);
        domain.range.close();
        self.line_up(domain);
        if self.first == Some(domain) {
            self.first_domain_ended(domain);
        }
    }

    /// Queues a dead domain with those whose contexts are to end, or, if it has none, behind them,
    /// to be emptied.
    fn line_up(&mut self, domain: Ptr<Domain>) {
        assert!(!domain.is_alive(), "a domain that lives is to be emptied");
        match domain.ending.is_linked() {
            true => self.ending.remove(domain),
            false => self.retain(domain),
        }
        match (domain.contexts.is_empty(), domain.is_revoked.get()) {
            (false, _) => self.ending.push_front(domain),
            (true, false) => self.ending.push_back(domain),
            (true, true) => self.release(domain),
        }
    }

    /// Ends the contexts of all domains that died or cannot be named any more; these are in front
    /// of those without any. Tells whether the budget sufficed.
    fn end_contexts(&mut self, budget: &mut Budget) -> bool {
        while let Some(domain) = self.first_with_contexts() {
            if domain.is_alive() {
                self.begin_death(domain, Death::by_call(DeathCause::Killed, 0));
            }
            while let Some(context) = domain.contexts.first() {
                if !self.end_context_within(context, budget) {
                    return false;
                }
            }
            self.line_up(domain);
        }
        true
    }

    fn first_with_contexts(&self) -> Option<Ptr<Domain>> {
        self.ending.first().filter(|domain| domain.is_alive() || !domain.contexts.is_empty())
    }

    /// Ends a context, its portals first; tells whether the budget sufficed.
    pub fn end_context_within(&mut self, context: Ptr<Context>, budget: &mut Budget) -> bool {
        while let Some(portal) = context.portals.first() {
            if !budget.spend(1) {
                return false;
            }
            portal.set_callee(None);
        }
        if !budget.spend(CONTEXT_UNITS) {
            return false;
        }
        let slots = if context.header().wake_slots.get() > 0 { WAKE_SLOTS_UNITS } else { 0 };
        budget.spend(slots + self.end_context(context) * CALLER_UNITS);
        true
    }

    /// Destroys the capabilities and mappings of a domain that has ended; tells whether the budget
    /// sufficed.
    pub(super) fn empty_domain(&mut self, domain: Ptr<Domain>, budget: &mut Budget) -> bool {
        domain.empty_share(self, budget) && domain.range.clear(self, budget)
    }

    /// Destroys objects that nobody holds, and ends domains that nobody can name: a bounded part;
    /// if more is left, a timer for now begins the next step.
    #[inline]
    pub fn drain_dead(&mut self) {
        if !self.destroy_queue.is_empty() || !self.ending.is_empty() {
            self.drain_step();
        }
    }

    #[inline(never)]
    fn drain_step(&mut self) {
        if !self.drain_ending(&mut Budget::new(END_UNITS)) {
            self.scheduler.arm_timer(hardware::now_ns());
        } else if self.first_ended {
            self.halted();
        }
    }

    /// As `drain_dead`, with a budget; tells whether it sufficed. Nothing runs while contexts of
    /// dead domains are left.
    pub(crate) fn drain_ending(&mut self, budget: &mut Budget) -> bool {
        let is_done = self.end_dead(budget);
        self.scheduler.hold(self.first_with_contexts().is_some());
        is_done
    }

    fn end_dead(&mut self, budget: &mut Budget) -> bool {
        while self.end_contexts(budget) {
            let Some(domain) = self.ending.first() else {
                return self.destroy_queued(budget) && self.ending.is_empty();
            };
            // All its capabilities are dropped before any memory is freed: so its devices stop
            // first.
            if !domain.empty_share(self, budget) || !self.destroy_queued(budget) || !domain.range.clear(self, budget) {
                return false;
            }
            if !self.destroy_queue.is_empty() || self.ending.first() != Some(domain) {
                continue;
            }
            if self.first != Some(domain) {
                self.has_ended(domain);
            } else if domain.ending.next().is_some() {
                // It is destroyed last, in `halted`.
                self.ending.remove(domain);
                self.ending.push_back(domain);
            } else {
                return true;
            }
        }
        false
    }

    /// Ends a domain of whose objects nothing is left.
    pub(crate) fn has_ended(&mut self, domain: Ptr<Domain>) {
        assert!(!domain.is_alive() && domain.contexts.is_empty(), "its contexts end first");
        assert!(domain.share.next_taken(0).is_none(), "its capabilities go before it has ended");
        assert!(!domain.range.is_alive() && domain.range.count() == 0, "its mappings go before it has ended");
        self.ending.remove(domain);
        self.tell_of_death(domain);
        self.release(domain);
    }

    /// Sends the notification of a domain's death.
    pub(super) fn tell_of_death(&mut self, domain: Ptr<Domain>) {
        assert!(!domain.is_alive(), "a death is told of who lives");
        if let Some(notification) = Notification::kept(&domain.on_death) {
            notification.send(self);
        }
        self.keep(&domain.on_death, None, None);
    }
}

pub(super) fn destroy(kernel: &mut Kernel, domain: Ptr<Domain>) {
    if domain.is_alive() {
        // It could not be made, and holds nothing.
        domain.death.set(Some(Death::by_call(DeathCause::Killed, 0)));
        domain.writer.end(&mut kernel.log);
    }
    assert!(domain.contexts.is_empty() && !domain.ending.is_linked(), "both hold a reference of it");
    assert!(domain.share.next_taken(0).is_none(), "it was drained");
    kernel.tell_of_death(domain);
    kernel.release(domain.range);
}
