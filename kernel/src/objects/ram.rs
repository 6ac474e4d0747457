//! Ram: an account over this core's pages, and the small objects it pays for.
//!
//! Invariants: `used` of an account is the sum of what its objects, tables and page entries hold,
//! its children's included; it never exceeds `limit` in any account up the chain. A page shared
//! copy-on-write is charged to each segment that maps it, so an account may say more than there
//! is; the root account has no limit but the pages themselves. What was charged is uncharged
//! exactly once, when it is freed; an account lives as long as anything it paid for. Small objects
//! share pages of equal places, the first place for the page's own bookkeeping.

use super::frames;
use super::group::{Group, Turns};
use super::{AnyObject, Header, Link, Linked, List, Made, Object, Ptr, Schedule, linked};
use crate::memory::{PAGE_BYTES, PhysAddr, phys_to_virt, virt_to_phys};
use crate::state::Kernel;
use abi::{Error, ObjectType};
use core::cell::Cell;
use core::ptr::NonNull;

/// Bytes of the places in each class of shared pages.
const CLASS_BYTES: [usize; 2] = [128, 256];
/// Pages of the root account: itself, and its group.
pub(crate) const ROOT_PAGES: u64 = 2;
/// Largest object that shares a page with others.
pub const SMALL_BYTES: usize = CLASS_BYTES[1];

/// The class for an object of so many bytes.
const fn class_of(bytes: usize) -> usize {
    assert!(bytes <= SMALL_BYTES);
    if bytes <= CLASS_BYTES[0] { 0 } else { 1 }
}

/// All places of a page but the first.
const fn all_free(class: usize) -> u32 {
    ((1u64 << (PAGE_BYTES / CLASS_BYTES[class])) - 2) as u32
}
/// Most acting objects of an account that may change its turns: bounds that step.
const MOVED_MAX: usize = 64;
/// Most accounts from the root down: bounds the cost of a charge.
const DEPTH_MAX: u8 = 8;

#[allow(clippy::declare_interior_mutable_const)]
const NO_SMALL: [List<SmallPage>; CLASS_BYTES.len()] = [const { List::new() }; CLASS_BYTES.len()];

/// An account.
#[repr(C)]
pub struct Ram {
    header: Header,
    parent: Option<Ptr<Ram>>,
    depth: u8,
    limit: u64,
    /// The group whose turns its contexts share, and the account that owns that, if it is another.
    group: Cell<Ptr<Group>>,
    leader: Cell<Option<Ptr<Ram>>>,
    used: Cell<u64>,
    /// Pages of small objects with a free place.
    small: [List<SmallPage>; CLASS_BYTES.len()],
    /// The acting objects that it pays for: living domains, contexts, their time, devices, cores.
    pub(crate) actors: List<Header>,
    /// All else it pays for, accounts first.
    pub(crate) objects: List<Header>,
}

// SAFETY: repr(C), header first.
unsafe impl Object for Ram {
    const TYPE: ObjectType = ObjectType::Ram;
}

/// First place of a page of small objects.
#[repr(C)]
struct SmallPage {
    link: Link<SmallPage>,
    free: Cell<u32>,
}

linked!(SmallPage, 0: link);

impl Ram {
    /// The account over all pages of the core; pays for itself.
    pub fn new_root(kernel: &mut Kernel) -> Option<Ptr<Ram>> {
        let frame = kernel.frames.allocate()?;
        let group = Group::create(kernel, None).ok()?;
        let header = kernel.new_header(ObjectType::Ram, None);
        let place = NonNull::new(phys_to_virt(frame).cast::<Ram>())?;
        let ram = Ram { used: Cell::new(ROOT_PAGES), ..Ram::new(header, None, 0, u64::MAX, (group, None)) };
        // SAFETY: a fresh page in the direct map.
        unsafe {
            place.write(ram);
            Some(Ptr::new(place))
        }
    }

    const fn new(
        header: Header,
        parent: Option<Ptr<Ram>>,
        depth: u8,
        limit: u64,
        (group, leader): (Ptr<Group>, Option<Ptr<Ram>>),
    ) -> Ram {
        let (actors, objects) = (List::new(), List::new());
        let (group, leader) = (Cell::new(group), Cell::new(leader));
        Ram { header, parent, depth, limit, group, leader, used: Cell::new(0), small: NO_SMALL, actors, objects }
    }

    /// Whether it is the core's root account.
    pub fn is_root(&self) -> bool {
        self.parent.is_none()
    }

    /// The group whose turns and probes those have that it pays for.
    pub(crate) fn group(&self) -> Ptr<Group> {
        self.group.get()
    }

    /// Pages charged.
    pub fn used(&self) -> u64 {
        self.used.get()
    }

    /// Most pages it may use; for the root all there are.
    pub fn limit(&self, kernel: &Kernel) -> u64 {
        if self.is_root() { kernel.frames.total() } else { self.limit }
    }
}

impl Ptr<Ram> {
    /// Makes a child account, whose contexts share those turns.
    pub fn split(self, kernel: &mut Kernel, limit: u64, turns: Turns) -> Made<Ram> {
        if self.depth >= DEPTH_MAX {
            return Err(Error::BadArgument);
        }
        let parent = Some(self);
        let depth = self.depth + 1;
        let leader_of = |ram: Ptr<Ram>| ram.leader.get().unwrap_or(ram);
        let (group, leader) = match turns {
            Turns::Parents => (self.group.get(), Some(leader_of(self))),
            Turns::Own => (Group::create(kernel, Some(self))?, None),
            // A revocation of the leader's payer revokes all that the leader outlives.
            Turns::Of(ram) if leader_of(ram).parent.is_some_and(|payer| !payer.covers(self)) => {
                return Err(Error::BadArgument);
            }
            Turns::Of(ram) => (ram.group.get(), Some(leader_of(ram))),
        };
        let child = kernel.create(self, |header| Ram::new(header, parent, depth, limit, (group, leader)));
        match (child, leader) {
            (Ok(_), Some(leader)) => kernel.retain(leader),
            (Err(_), None) => Group::destroy(kernel, group, self),
            _ => (),
        }
        if child.is_ok() {
            kernel.retain(self);
        }
        child
    }

    /// Gives it turns of its own, if it shares another's: the time that it pays for has them from
    /// now on. Accounts split from it before stay where they are. `Busy` if it pays for more than
    /// [`MOVED_MAX`] objects that act.
    pub fn begin_turns(self, kernel: &mut Kernel) -> Result<(), Error> {
        let parent = self.parent.ok_or(Error::BadArgument)?;
        let Some(leader) = self.leader.get() else { return Ok(()) };
        let first = self.actors.first();
        let actors = || core::iter::successors(first, |actor| Linked::<0>::link(&**actor).next());
        if actors().nth(MOVED_MAX).is_some() {
            return Err(Error::Busy);
        }
        self.group.set(Group::create(kernel, Some(parent))?);
        self.leader.set(None);
        kernel.update_accounting();
        for time in actors().filter_map(|actor| actor.cast::<Schedule>().ok()) {
            kernel.scheduler.set_band(time, self.group().band(time.priority));
        }
        kernel.release(leader);
        Ok(())
    }

    fn chain(self) -> impl Iterator<Item = Ptr<Ram>> {
        core::iter::successors(Some(self), |ram| ram.parent)
    }

    /// Whether `other` is this account or one below it.
    pub fn covers(self, other: Ptr<Ram>) -> bool {
        other.chain().any(|ram| ram == self)
    }

    fn is_within_parents(self) -> bool {
        self.chain().all(|ram| ram.used() <= ram.parent.map_or(u64::MAX, |parent| parent.used()))
    }

    /// Puts a new object on its list.
    #[inline(never)]
    pub(super) fn enlist(self, object: AnyObject) {
        match object.object_type() {
            ObjectType::Domain
            | ObjectType::ExecutionContext
            | ObjectType::SchedulingContext
            | ObjectType::Device
            | ObjectType::Pcore => {
                object.is_actor.set(true);
                self.actors.push_back(object);
            }
            ObjectType::Ram => self.objects.push_front(object),
            _ => self.objects.push_back(object),
        }
    }

    /// Removes an object from its list.
    pub(super) fn delist(self, object: AnyObject) {
        assert!(object.payer() == Some(self), "an object is on the lists of who pays for it");
        let list = if object.is_actor.get() { &self.actors } else { &self.objects };
        list.remove(object);
    }

    /// Moves an object to the end of the list of those that do not act.
    pub(super) fn put_last(self, object: AnyObject) {
        self.delist(object);
        object.is_actor.set(false);
        self.objects.push_back(object);
    }

    /// Counts `pages` in this account and all above it.
    pub fn charge(self, pages: u64) -> Result<(), Error> {
        let fits = |ram: Ptr<Ram>| ram.used.get().checked_add(pages).is_some_and(|used| used <= ram.limit);
        if !self.chain().all(fits) {
            return Err(Error::NoMemory);
        }
        self.chain().for_each(|ram| ram.used.set(ram.used.get() + pages));
        debug_assert!(self.is_within_parents(), "an account uses more than the one it is split from");
        Ok(())
    }

    /// Takes back a charge.
    pub fn uncharge(self, pages: u64) {
        for ram in self.chain() {
            let used = ram.used.get().checked_sub(pages);
            ram.used.set(used.expect("only what was charged is uncharged"));
        }
        debug_assert!(self.is_within_parents(), "an account uses more than the one it is split from");
    }
}

impl Kernel {
    /// Allocates a page charged to `ram`; contents undefined.
    pub fn allocate_page(&mut self, ram: Ptr<Ram>) -> Result<PhysAddr, Error> {
        ram.charge(1)?;
        let frame = self.frames.allocate();
        if frame.is_none() {
            ram.uncharge(1);
        }
        frame.ok_or(Error::NoMemory)
    }

    /// Allocates a zeroed page charged to `ram`.
    pub fn allocate_clear_page(&mut self, ram: Ptr<Ram>) -> Result<PhysAddr, Error> {
        let frame = self.allocate_page(ram)?;
        frames::clear(frame);
        Ok(frame)
    }

    /// Drops one reference to a page that `ram` was charged for.
    pub fn free_page(&mut self, ram: Ptr<Ram>, frame: PhysAddr) {
        self.frames.release(frame);
        ram.uncharge(1);
    }
}

fn small_page(frame: PhysAddr) -> Ptr<SmallPage> {
    let place = NonNull::new(phys_to_virt(frame).cast()).expect("direct map is not at zero");
    // SAFETY: callers give the frame of an initialised page of small objects.
    unsafe { Ptr::new(place) }
}

/// Allocates a place in a shared page, aligned to 128.
pub(crate) fn allocate_small(kernel: &mut Kernel, ram: Ptr<Ram>, bytes: usize) -> Result<NonNull<u8>, Error> {
    let class = class_of(bytes);
    let pages = &ram.small[class];
    let page = match pages.first() {
        Some(page) => page,
        None => {
            let frame = kernel.allocate_page(ram)?;
            let new = SmallPage { link: Link::new(), free: Cell::new(all_free(class)) };
            // SAFETY: a fresh page in the direct map.
            unsafe { phys_to_virt(frame).cast::<SmallPage>().write(new) };
            let page = small_page(frame);
            pages.push_back(page);
            page
        }
    };
    let index = page.free.get().trailing_zeros() as usize;
    assert!(index < PAGE_BYTES / CLASS_BYTES[class], "a listed page has a free place");
    page.free.set(page.free.get() & !(1 << index));
    if page.free.get() == 0 {
        pages.remove(page);
    }
    // SAFETY: inside the page.
    Ok(unsafe { page.address().cast::<u8>().add(index * CLASS_BYTES[class]) })
}

/// Frees a place, and its page when that was the last.
pub(crate) fn free_small(kernel: &mut Kernel, ram: Ptr<Ram>, place: NonNull<u8>, bytes: usize) {
    let class = class_of(bytes);
    let pages = &ram.small[class];
    let address = virt_to_phys(place.as_ptr()).expect("objects lie in the direct map");
    let offset = address.0 as usize % PAGE_BYTES;
    let frame = PhysAddr(address.0 - offset as u64);
    let page = small_page(frame);
    let bit = 1u32 << (offset / CLASS_BYTES[class]);
    assert!(page.free.get() & bit == 0 && bit != 1, "small object freed twice");
    if page.free.get() == 0 {
        pages.push_front(page);
    }
    page.free.set(page.free.get() | bit);
    if page.free.get() == all_free(class) {
        pages.remove(page);
        kernel.free_page(ram, frame);
    }
}

pub(super) fn destroy(kernel: &mut Kernel, ram: Ptr<Ram>) {
    assert!(ram.used.get() == 0, "an account outlives what it paid for");
    assert!(ram.actors.is_empty() && ram.objects.is_empty(), "what it pays for holds a reference");
    assert!(ram.small.iter().all(List::is_empty), "a page of small objects outlives them");
    let parent = ram.parent.expect("the root account stays");
    match ram.leader.get() {
        Some(leader) => kernel.release(leader),
        None => Group::destroy(kernel, ram.group.get(), parent),
    }
    kernel.release(parent);
}
