//! All invariants of a core's kernel at once, as the heads of the files in `objects` tell them:
//! looked at from outside, between two steps, without a change of anything.
//!
//! All objects are found from the root account. Where something stands in a list and in what the
//! list is of, both sides are counted: so neither can have what the other lacks.

use super::ledger::rows;
use crate::arch::paging::{self, Flags, Leaves};
use crate::hardware;
use crate::memory::{PAGE, PhysAddr};
use crate::objects::context::State;
use crate::objects::mapping::{Mapped, Mapping};
use crate::objects::portal::DEPTH_MAX;
use crate::objects::segment::Kind;
use crate::objects::{
    AnyObject, Context, Domain, Linked, List, Object, Portal, Ptr, Ram, Range, Schedule, Segment, Semaphore, slot,
};
use crate::state::{Kernel, OBJECT_TYPES};
use abi::layout::protection;
use abi::{Handle, ObjectType};
use std::collections::HashMap;

/// Entries of a table, of segments and of processors.
const ENTRIES: u64 = 512;
/// Slots of a share that are looked at also if they are free.
const SLOTS: usize = 64;

fn all<T: Linked<W>, const W: usize>(list: &List<T, W>) -> impl Iterator<Item = Ptr<T>> {
    core::iter::successors(list.first(), |item| Linked::<W>::link(&**item).next())
}

/// What was counted on both sides.
#[derive(Default, PartialEq, Debug)]
struct Counts {
    donors: usize,
    of_domains: usize,
    waiting: usize,
    lines: usize,
    portals: usize,
    slots: usize,
    mapped: usize,
}

/// Pages that an object is charged for at least.
fn pages_of(object: AnyObject) -> u64 {
    match object.object_type() {
        ObjectType::Ram => object.cast::<Ram>().expect("looked at").used(),
        ObjectType::Segment => {
            let segment = object.cast::<Segment>().expect("looked at");
            let is_own = matches!(segment.kind(), Kind::Anonymous | Kind::Contiguous(_));
            if is_own { segment.present() } else { 0 }
        }
        // Each has a page of its own.
        ObjectType::Domain | ObjectType::ExecutionContext => 1,
        _ => 0,
    }
}

struct Check<'a> {
    kernel: &'a mut Kernel,
    objects: Vec<AnyObject>,
    /// By what hangs there, and by where it hangs.
    items: Counts,
    lists: Counts,
    /// How many entries of anonymous segments name a frame.
    named: HashMap<u64, u32>,
}

/// Everything is as it should be; the test has kept one domain alive by a name of its own.
pub(super) fn assert_all(kernel: &mut Kernel, kept: Ptr<Domain>) {
    let work = hardware::take_work();
    let root = kernel.root_ram();
    let (items, lists) = (Counts::default(), Counts::default());
    let mut check = Check { kernel, objects: vec![root.any()], items, lists, named: HashMap::new() };
    check.find_below(root);
    check.types();
    check.ending();
    for object in check.objects.clone() {
        check.object(object, kept);
    }
    assert_eq!(check.items, check.lists, "what hangs in lists, and what the lists have");
    check.frames();
    check.kernel.scheduler.assert_queues();
    hardware::take_work();
    hardware::count_work(work);
}

impl Check<'_> {
    fn of<T: Object>(&self) -> impl Iterator<Item = Ptr<T>> {
        self.objects.iter().filter_map(|object| object.cast::<T>().ok())
    }

    /// Notes what an account pays for, and what the accounts below it pay for.
    fn find_below(&mut self, ram: Ptr<Ram>) {
        for object in all(&ram.actors).chain(all(&ram.objects)) {
            assert!(object.payer() == Some(ram), "an object is on the lists of who pays for it");
            assert!(object.references() > 0, "an object that lives has a reference");
            self.objects.push(object);
            if let Ok(child) = object.cast::<Ram>() {
                self.find_below(child);
            }
        }
    }

    /// What is to be taken apart is the rest of the objects; the kernel's counts are right.
    fn types(&mut self) {
        for dead in all(&self.kernel.destroy_queue) {
            assert_eq!(dead.references(), 0, "an object to be taken apart has no reference");
            self.objects.push(dead);
        }
        let mut found = [0; OBJECT_TYPES];
        self.objects.iter().for_each(|object| found[object.object_type() as usize] += 1);
        assert_eq!(found, self.kernel.objects_by_type, "objects by type");
        assert_eq!(self.objects.len() as u64, self.kernel.kernel_objects, "objects");
    }

    /// Whose contexts are to end stands before whose have; nobody else is to be emptied.
    fn ending(&self) {
        let mut has_none = false;
        for domain in all(&self.kernel.ending) {
            let lives = domain.is_alive();
            assert!(!lives || domain.names.get() == 0, "who can be named does not end");
            let is_to_end = lives || !domain.contexts.is_empty();
            assert!(!has_none || !is_to_end, "contexts end before anything is emptied");
            has_none |= !is_to_end;
        }
    }

    fn object(&mut self, object: AnyObject, kept: Ptr<Domain>) {
        self.capabilities(object);
        match object.object_type() {
            ObjectType::Ram => self.ram(object.cast().expect("looked at")),
            ObjectType::Domain => self.domain(object.cast().expect("looked at"), kept),
            ObjectType::ExecutionContext => self.context(object.cast().expect("looked at")),
            ObjectType::SchedulingContext => self.schedule(object.cast().expect("looked at")),
            ObjectType::Segment => self.segment(object.cast().expect("looked at")),
            ObjectType::AddressRange => self.range(object.cast().expect("looked at")),
            ObjectType::Portal => {
                let portal = object.cast::<Portal>().expect("looked at");
                self.items.portals += usize::from(portal.callee().is_some());
            }
            ObjectType::Semaphore => {
                let semaphore = object.cast::<Semaphore>().expect("looked at");
                for context in all(&semaphore.waiting) {
                    self.lists.waiting += 1;
                    assert!(context.state() == State::OnSemaphore(semaphore), "who waits for a semaphore says so");
                    assert_eq!(semaphore.count.get(), 0, "the count is 0 while anybody waits");
                }
            }
            _ => (),
        }
    }

    /// The slots that name it: each is taken where it lies, and stands behind what it came from.
    fn capabilities(&mut self, object: AnyObject) {
        let mut last_depth = None;
        let mut count = 0;
        for slot in all(&object.capabilities) {
            count += 1;
            assert!(slot.get().is_some_and(|held| held.object == object), "a slot on a list names the object");
            let most = last_depth.map_or(0, |depth: u8| depth + 1);
            assert!(slot.depth() <= most.min(slot::DEPTH_MAX), "a capability stands behind what it came from");
            last_depth = Some(slot.depth());
            if let Some(holder) = slot.holder {
                self.lists.slots += 1;
                let found = holder.share().find_slot(Handle(slot.index.into()));
                assert!(found.is_ok_and(|(found, _)| found == slot), "a slot is where it says");
                assert!(!holder.share().is_free(slot.index.into()), "the bit of a taken slot is set");
            }
        }
        assert!(object.references() >= count, "each capability is a reference");
    }

    /// What it has used is within its limit, and at least what is seen of it.
    fn ram(&mut self, ram: Ptr<Ram>) {
        let used = ram.used();
        assert!(ram.is_root() || used <= ram.limit(self.kernel), "an account is within its limit");
        let parent = ram.header().payer();
        assert!(parent.is_none_or(|parent| used <= parent.used()), "an account is part of the one it is split from");
        let paid = self.objects.iter().filter(|object| object.payer() == Some(ram));
        let seen: u64 = paid.map(|object| pages_of(*object)).sum();
        assert!(seen <= used, "{seen} pages are seen of an account that says {used}");
    }

    /// The bits of its share are those of its slots; its contexts live; nobody paid for more than
    /// it ran.
    fn domain(&mut self, domain: Ptr<Domain>, kept: Ptr<Domain>) {
        assert!(
            rows(domain).iter().map(|row| row.paid_ns).sum::<u64>() <= domain.cpu_ns.get(),
            "more was paid for than ran"
        );
        let share = domain.share();
        for index in 1..SLOTS {
            let is_held = share.find_slot(Handle(index as u64)).is_ok();
            assert_eq!(share.is_free(index), !is_held, "the bit of slot {index} says whether it is taken");
        }
        let mut next = share.next_taken(1);
        while let Some(index) = next {
            self.items.slots += 1;
            assert!(share.find_slot(Handle(index as u64)).is_ok(), "a slot whose bit is set is taken");
            next = share.next_taken(index + 1);
        }
        for context in all(&domain.contexts) {
            self.lists.of_domains += 1;
            assert!(context.domain() == domain && context.state() != State::Dead, "a domain lists what lives in it");
        }
        let holders = all(&domain.header().capabilities).filter_map(|slot| slot.holder);
        let names = holders.filter(|holder| *holder != domain).count() + usize::from(domain == kept);
        assert_eq!(domain.names.get() as usize, names, "names of a domain in the shares of others");
    }

    /// Its state and the queues that it hangs in.
    fn context(&mut self, context: Ptr<Context>) {
        let state = context.state();
        let hangs = [
            Linked::<0>::link(&*context).is_linked(),
            Linked::<1>::link(&*context).is_linked(),
            Linked::<2>::link(&*context).is_linked(),
            Linked::<3>::link(&*context).is_linked(),
        ];
        self.items.of_domains += usize::from(hangs[0]);
        self.items.donors += usize::from(hangs[1]);
        self.items.lines += usize::from(hangs[2]);
        self.items.waiting += usize::from(hangs[3]);
        assert_eq!(hangs[0], state != State::Dead, "who lives is on its domain's list");
        assert_eq!(hangs[1], context.donates_to().is_some(), "who donates is a donor");
        assert_eq!(hangs[3], matches!(state, State::OnSemaphore(_)), "who waits for a semaphore is in its queue");
        match state {
            State::Queued(_) => assert!(hangs[2], "who is queued stands in line"),
            State::Donation(callee) => {
                assert!(hangs[2] || callee.first_donor() == Some(context), "who donated to a mailbox is found there");
            }
            _ => assert!(!hangs[2], "nobody else stands in line"),
        }
        if let State::Served(callee) = state {
            assert!(callee.serving.get() == Some(context), "who is served has a server");
        }
        let is_still = matches!(state, State::New | State::Runnable | State::Dead);
        assert!(!is_still || !context.timeout.is_linked(), "who waits for nothing has no deadline");
        assert!(state != State::Dead || context.schedule.get().is_none(), "who ended has no time");
        assert!(state != State::Dead || !context.watch.is_linked(), "who ended is not watched");
        if let Some(schedule) = context.schedule.get() {
            assert!(schedule.context.get() == Some(context), "time knows whose it is");
        }
        self.callee(context);
    }

    /// What hangs in its queues, and how deep.
    fn callee(&mut self, context: Ptr<Context>) {
        let donors = || core::iter::successors(context.first_donor(), |donor| donor.next_donor());
        for donor in donors() {
            self.lists.donors += 1;
            assert!(donor.donates_to() == Some(context), "a donor's state names the donation");
        }
        let depth = donors().map(|donor| donor.depth() + 1).max().unwrap_or(0);
        assert_eq!(context.depth(), depth, "the longest chain that ends in it");
        assert!(depth <= DEPTH_MAX, "chains are at most so long");
        let chain = core::iter::successors(context.donates_to(), |next| next.donates_to());
        let most = usize::from(DEPTH_MAX);
        assert!(chain.take(most + 1).count() <= most, "donations make no circle");
        for caller in all(&context.callers) {
            self.lists.lines += 1;
            assert!(caller.state() == State::Queued(context), "who stands in line says so");
        }
        for caller in all(&context.mailbox_callers) {
            self.lists.lines += 1;
            assert!(caller.state() == State::Donation(context), "who called a mailbox says so");
        }
        if let Some(served) = context.serving.get() {
            assert!(served.state() == State::Served(context), "who is served says so");
        }
        for portal in all(&context.portals) {
            self.lists.portals += 1;
            assert!(portal.callee() == Some(context), "a portal leads to who lists it");
        }
        let is_donor = context.next_to_wake.get().is_none_or(|next| next.donates_to() == Some(context));
        assert!(is_donor, "who is to be woken next is a donor");
        let has_ended = context.state() == State::Dead;
        assert!(!has_ended || context.first_donor().is_none() || context.is_waking(), "donors of the dead are told");
    }

    /// Time belongs to who says so, and waits if it can run.
    fn schedule(&mut self, schedule: Ptr<Schedule>) {
        let Some(context) = schedule.context.get() else {
            return assert!(!schedule.is_queued(), "time of nobody waits for nothing");
        };
        assert!(context.schedule.get() == Some(schedule), "a context knows its time");
        // One in a circle is found where that is looked at.
        let chain = core::iter::successors(Some(context), |next| next.donates_to());
        let mut chain = chain.take(usize::from(DEPTH_MAX) + 1);
        let is_runnable = chain.clone().last().is_some_and(|end| end.state() == State::Runnable);
        let is_open = schedule.level.get() != Schedule::CLOSED && !chain.any(|context| context.is_waking());
        let waits = schedule.is_queued() || self.kernel.scheduler.running == Some(schedule);
        assert!(!is_runnable || !is_open || waits, "time that can run waits for its turn");
    }

    /// Its present pages are its entries.
    fn segment(&mut self, segment: Ptr<Segment>) {
        for mapping in all(&segment.mappings) {
            self.lists.mapped += 1;
            assert!(mapping.segment() == Some(segment), "a segment lists what shows it");
        }
        if segment.kind() != Kind::Anonymous {
            return;
        }
        let mut present = 0;
        for first in (0..segment.pages()).step_by(ENTRIES as usize) {
            for entry in segment.block(first).unwrap_or_default().iter().filter(|entry| entry.get() != 0) {
                present += 1;
                *self.named.entry(entry.get()).or_default() += 1;
            }
        }
        assert_eq!(present, segment.present(), "pages that are present are entries");
        assert!(present <= segment.pages(), "no more pages are present than there are");
    }

    /// Its mappings, if it is the core's own.
    fn range(&mut self, range: Ptr<Range>) {
        for mapping in all(&range.parents) {
            self.lists.mapped += 1;
            assert!(mapping.mapped() == Mapped::Range(range), "a range lists what shows it");
        }
        let (mut next, mut count) = (0, 0);
        while let Some(mapping) = range.at_or_after(next) {
            count += 1;
            self.items.mapped += 1;
            assert!(mapping.start() >= next && mapping.pages() > 0, "mappings do not overlap");
            assert!(mapping.range() == range, "a mapping knows where it is");
            assert!(range.place(mapping.start(), mapping.pages()).is_ok(), "a mapping lies in the window");
            assert_eq!(mapping.protection() & !mapping.allowed(), 0, "the protection is allowed");
            if let Some(segment) = mapping.segment() {
                range.check_protection(mapping.protection()).expect("a protection that pages may have");
                self.entries(range, mapping, segment);
            }
            next = mapping.end();
        }
        assert_eq!(range.count(), count, "mappings of a range");
    }

    /// What the hardware maps of a mapping is the segment's, and to be written only if it is that
    /// one's alone.
    fn entries(&mut self, range: Ptr<Range>, mapping: Ptr<Mapping>, segment: Ptr<Segment>) {
        let mut address = mapping.start();
        while address < mapping.end() {
            let end = mapping.end().min((address / PAGE / ENTRIES + 1) * ENTRIES * PAGE);
            let leaves = paging::leaves(range.top(), address, ((end - address) / PAGE) as usize);
            if let (Leaves::Small(entries), true) = (leaves, segment.alias().is_none()) {
                for (page, entry) in (mapping.page_at(address)..).zip(entries).filter(|(_, entry)| entry.is_present()) {
                    let frame = entry.address();
                    assert_eq!(segment.frame(page), Some(frame), "page {page} is mapped as it is");
                    let is_written = entry.flags().contains(Flags::WRITE);
                    assert!(!is_written || mapping.allowed() & protection::WRITE != 0, "it may be written");
                    let is_own = segment.kind() != Kind::Anonymous || segment.is_writable(self.kernel, frame);
                    assert!(!is_written || is_own, "a frame of several is not written");
                }
            }
            address = end;
        }
    }

    /// Each frame counts the entries that name it.
    fn frames(&mut self) {
        for (&frame, &count) in &self.named {
            assert_eq!(self.kernel.frames.count(PhysAddr(frame)), count, "entries that name frame {frame:#x}");
        }
        let used = self.kernel.frames.total() - self.kernel.frames.free();
        assert!(self.named.len() as u64 <= used, "pages that are named are not free");
        let present: u64 =
            self.of::<Segment>().filter(|segment| segment.kind() == Kind::Anonymous).map(|one| one.present()).sum();
        assert_eq!(self.named.values().map(|count| u64::from(*count)).sum::<u64>(), present);
    }
}
