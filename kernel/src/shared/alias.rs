//! This core's side: the private objects that represent shared ones, and the pools whose home it
//! is.
//!
//! An alias is a small place in this core's memory, on the kernel's list, with one reference to its
//! shared object and one count in its pool. It belongs to one private object: a [`SharedShare`], a
//! `Segment` of kind `Shared`, or a `Range` with an alias; slots and mappings name that, so that
//! capabilities, mappings and revocation on this core know nothing of sharing. Invariants: an alias
//! lives exactly as long as its object; the home has a [`PoolOwner`] per pool, which is an object
//! of the Ram that pays, and is destroyed with the pool's last alias.

use super::object::{Name, ObjectKind, SharedObject};
use super::pool::{PAGES_MIN, Pool, wait_for_readers};
use super::share::BUCKET_LINES;
use super::{POOLS_MAX, range, registry, segment, share};
use crate::hardware;
use crate::memory::{PAGE_BYTES, PhysAddr};
use crate::objects::mapping::VaRange;
use crate::objects::remote::SHARED_SLOT;
use crate::objects::{AnyObject, Header, Link, List, Made, Object, Ptr, Ram, Range, Segment, linked, ram};
use crate::state::Kernel;
use crate::steps::Budget;
use abi::layout::SEGMENT_PAGES_MAX;
use abi::{Error, ObjectType, Rights};
use core::cell::Cell;
use lock::{Kind, Ordering, Stat};

/// One name of a shared object on this core.
pub struct Alias {
    link: Link<Alias>,
    object: SharedObject,
    /// The private object that it belongs to; set right after that was made.
    user: Cell<Option<AnyObject>>,
}

linked!(Alias, 0: link);

impl Alias {
    /// The shared object that it names.
    pub fn object(&self) -> SharedObject {
        self.object
    }
}

/// A shared share, as this core's slots name it.
#[repr(C)]
pub struct SharedShare {
    header: Header,
    alias: Ptr<Alias>,
}

// SAFETY: repr(C), header first.
unsafe impl Object for SharedShare {
    const TYPE: ObjectType = ObjectType::Share;
}

/// A pool as an object of its home, which the Ram pays for. No slot names it.
///
/// | from | by what | to |
/// |---|---|---|
/// | reserved pages | `make_pool`, of pages that are all populated | published |
/// | published | its Ram is revoked (`end_pool`): no new alias, each core drops its own | dead |
/// | published, dead | the last alias of all cores is dropped (`destroy_pool`) | unnamed |
/// | unnamed | its last page is freed (`drain_owner`) | gone |
///
/// Published, it is in `Local::pools` and its address in the registry; dead, only in the first;
/// unnamed, in neither.
#[repr(C)]
pub struct PoolOwner {
    header: Header,
    pool: Pool,
    /// Pages that are not freed yet.
    pages: Cell<u64>,
    number: usize,
}

// SAFETY: repr(C), header first.
unsafe impl Object for PoolOwner {
    const TYPE: ObjectType = ObjectType::Pool;
}

/// What one kernel knows of shared objects.
pub struct Local {
    aliases: List<Alias>,
    pools: [Option<Ptr<PoolOwner>>; POOLS_MAX],
}

impl Local {
    /// Nothing.
    pub(crate) const fn new() -> Local {
        Local { aliases: List::new(), pools: [None; POOLS_MAX] }
    }
}

/// What is to be made in a pool.
#[derive(Clone, Copy)]
pub enum New {
    /// A share.
    Share,
    /// A segment.
    Segment {
        /// Of how many pages.
        pages: u64,
        /// In one run, now.
        contiguous: bool,
    },
    /// A range.
    Range {
        /// That of its uppermost table.
        level: u32,
        /// Whether code in it may be writable.
        write_execute: bool,
    },
}

/// A shared object that a call names: by a name of this core, which stays while the call lasts, or
/// with a reference that [`Found::end`] releases.
#[must_use]
#[derive(Clone, Copy)]
pub struct Found {
    /// The object.
    pub object: SharedObject,
    /// What the caller may do with it.
    pub rights: Rights,
    counted: bool,
}

impl Found {
    /// The shared object that a private one of this core represents.
    pub fn of(object: AnyObject, rights: Rights) -> Option<Found> {
        shared(object).map(|object| Found { object, rights, counted: false })
    }

    /// References of others.
    pub fn references(&self) -> u64 {
        self.object.references() - u64::from(self.counted)
    }

    /// Drops the reference of the call, if it has one.
    #[inline]
    pub fn end(self, kernel: &Kernel) {
        if self.counted {
            self.object.release(kernel.core());
        }
    }
}

impl Ptr<SharedShare> {
    fn shared(self) -> SharedObject {
        self.alias.object
    }

    /// See [`SharedObject::is_stuck`].
    pub fn is_stuck(self) -> bool {
        self.shared().is_stuck()
    }

    fn living(self) -> Result<SharedObject, Error> {
        Some(self.shared()).filter(|object| object.is_alive()).ok_or(Error::PeerDead)
    }

    /// Finds what `id` names in it.
    pub fn find(self, id: u64) -> Result<Found, Error> {
        let (object, rights) = share::find(self.living()?, id)?;
        Ok(Found { object, rights, counted: true })
    }

    /// Adds `object`, which lies in the same pool.
    #[inline]
    pub fn add(self, kernel: &Kernel, object: SharedObject, rights: Rights) -> Result<(), Error> {
        let share = self.living()?;
        if object.pool != share.pool {
            return Err(Error::BadArgument);
        }
        share::insert(share, kernel.core(), object, rights)
    }

    /// Removes `id`.
    #[inline]
    pub fn remove(self, kernel: &Kernel, id: u64) -> Result<(), Error> {
        share::remove(self.living()?, kernel.core(), id)
    }

    /// Makes an object in the same pool and adds it to this share; gives its id.
    pub fn make(self, kernel: &mut Kernel, new: New, lock: Kind, name: Name) -> Result<u64, Error> {
        let made = self.create(kernel, new, lock, name)?;
        let id = self.tell(kernel, made.object);
        made.end(kernel);
        id
    }

    /// Adds a new object to this share; gives its id.
    #[inline(never)]
    pub fn tell(self, kernel: &Kernel, object: SharedObject) -> Result<u64, Error> {
        self.add(kernel, object, Rights::ALL).map(|()| object.id())
    }

    /// Makes an object in the same pool that no share names yet.
    #[inline(never)]
    pub fn create(self, kernel: &mut Kernel, new: New, lock: Kind, name: Name) -> Result<Found, Error> {
        let (pool, core) = (self.living()?.pool, kernel.core());
        let (kind, lines) = match new {
            New::Share => (ObjectKind::Share, BUCKET_LINES),
            New::Segment { pages, contiguous } => (ObjectKind::Segment, segment::lines(pages, contiguous)),
            New::Range { .. } => (ObjectKind::Range, range::lines()),
        };
        let id = kernel.next_id();
        // The slot does not matter: whether a handle can say the id.
        abi::Handle::in_share(abi::Handle::FIRST_FREE, id).ok_or(Error::NoSlot)?;
        let object = SharedObject::create(pool, core, kind, lines, lock, id, name)?;
        let filled = match new {
            New::Share => Ok(()),
            New::Segment { pages, contiguous } => object.become_segment(pages, contiguous),
            New::Range { level, write_execute } => object.become_range(core, level, write_execute),
        };
        let made = Found { object, rights: Rights(0), counted: true };
        filled.map(|()| made).inspect_err(|_| made.end(kernel))
    }

    /// Entries, what its lock counted, and free pages of its pool.
    pub fn stat(self) -> Result<(u64, Stat, u64), Error> {
        let share = self.living()?;
        let (entries, stat) = share::stat(share);
        Ok((entries, stat, share.pool.free_pages()))
    }

    /// The id by which another core finds its pool.
    pub fn pool(self) -> Result<u64, Error> {
        self.living().map(|share| share.pool.id())
    }
}

/// The shared object that a private one represents, if it does.
#[inline(never)]
pub fn shared(object: AnyObject) -> Option<SharedObject> {
    if let Ok(share) = object.cast::<SharedShare>() {
        return Some(share.shared());
    }
    if let Ok(range) = object.cast::<Range>() {
        return range.shared();
    }
    object.cast::<Segment>().ok()?.alias().map(|alias| alias.object)
}

impl Kernel {
    /// Reserves a run of pages for a pool, to be populated; `BadArgument` if no pool may have so
    /// many, `Busy` if this core can have no more pools.
    pub fn reserve_pool(&mut self, ram: Ptr<Ram>, pages: u64) -> Made<Segment> {
        if !(PAGES_MIN..=SEGMENT_PAGES_MAX).contains(&pages) {
            return Err(Error::BadArgument);
        }
        self.pool_number()?;
        Ptr::<Segment>::reserve_contiguous(self, ram, pages)
    }

    fn pool_number(&self) -> Result<usize, Error> {
        self.shared.pools.iter().position(Option::is_none).ok_or(Error::Busy)
    }

    /// Makes a pool of the pages of `run`, which nobody else knows and which has none afterwards.
    /// Gives its first share: an object of this core that names it, with one reference.
    pub fn make_pool(&mut self, run: Ptr<Segment>, lock: Kind, name: Name) -> Result<AnyObject, Error> {
        let (ram, pages) = (run.ram(), run.pages());
        let number = self.pool_number()?;
        let pool = Pool::new(run.base().ok_or(Error::BadArgument)?, pages, self.core(), self.next_id());
        pool.mark(self.core())?;
        let owner = self.create(ram, |header| PoolOwner { header, pool, pages: Cell::new(pages), number })?;
        run.transfer_pages();
        let made = SharedObject::create(pool, self.core(), ObjectKind::Share, BUCKET_LINES, lock, self.next_id(), name);
        let made = made.and_then(|first| {
            // The object's first reference is the pool's own, so a core that finds the pool finds
            // the share. The pool's one alias so far is this one.
            pool.set_first(first.place);
            first.retain();
            self.new_alias(ram, first)
        });
        let made = made.inspect_err(|_| self.release(owner))?;
        let before = self.shared.pools[number].replace(owner);
        assert!(before.is_none(), "two pools have one number");
        self.publish(number, pool.base().0);
        registry::tell(pool.base(), pages);
        Ok(made)
    }

    fn publish(&self, number: usize, address: u64) {
        let own = registry::pools(self.core()).expect("this core runs");
        // Release: the pool is whole before it is found.
        own[number].store(address, Ordering::Release);
    }

    /// Makes a name for the first share of the pool with this id, which its home published.
    pub fn import_pool(&mut self, ram: Ptr<Ram>, id: u64) -> Result<AnyObject, Error> {
        let published = registry::pools(home_of(id)).ok_or(Error::NotFound)?;
        let section = registry::reader().enter();
        let found = published.iter().map(|word| PhysAddr(word.load(Ordering::Acquire))).filter(|base| base.0 != 0);
        // SAFETY: published in this section; the home waits for it before it takes the pages back.
        let mut found = found.map(|base| unsafe { Pool::at_address(base) });
        let pool = found.find(|pool| pool.id() == id).ok_or(Error::NotFound)?;
        pool.add_first_alias(self.core())?;
        drop(section);
        self.name_counted(ram, SharedObject { pool, place: pool.first() })
    }

    /// Makes a private object that represents the one found, with a reference that the caller
    /// holds.
    #[inline(never)]
    pub fn name_shared(&mut self, ram: Ptr<Ram>, found: &Found) -> Result<AnyObject, Error> {
        found.object.pool.add_alias(self.core())?;
        self.name_counted(ram, found.object)
    }

    /// The same, when its pool has counted one more alias.
    fn name_counted(&mut self, ram: Ptr<Ram>, object: SharedObject) -> Result<AnyObject, Error> {
        object.retain();
        let named = self.new_alias(ram, object);
        if named.is_err() {
            object.release(self.core());
            self.alias_gone(object.pool);
        }
        named
    }

    /// Takes over a reference of `object` and a count of its pool, if it succeeds.
    fn new_alias(&mut self, ram: Ptr<Ram>, object: SharedObject) -> Result<AnyObject, Error> {
        let place = ram::allocate_small(self, ram, size_of::<Alias>())?.cast::<Alias>();
        // SAFETY: a fresh place of sufficient size and alignment; it stays until `drop_alias`.
        let alias = unsafe {
            place.write(Alias { link: Link::new(), object, user: Cell::new(None) });
            Ptr::new(place)
        };
        let made = match object.kind() {
            ObjectKind::Share => self.create(ram, |header| SharedShare { header, alias }).map(Ptr::any),
            ObjectKind::Segment => Ptr::<Segment>::new_shared(self, ram, object.pages(), alias).map(Ptr::any),
            ObjectKind::Range => {
                let place = (object.top(), VaRange::of_level(object.top().level));
                Range::create(self, ram, place, object.may_write_execute(), Some(alias)).map(Ptr::any)
            }
        };
        alias.user.set(made.ok());
        match made {
            Ok(_) => self.shared.aliases.push_back(alias),
            Err(_) => ram::free_small(self, ram, alias.address().cast(), size_of::<Alias>()),
        }
        made
    }

    /// Destroys the alias of a private object that is destroyed.
    pub fn drop_alias(&mut self, ram: Ptr<Ram>, alias: Ptr<Alias>) {
        assert!(alias.user.get().is_some_and(|user| user.references() == 0), "an alias goes before its object");
        let object = alias.object;
        self.shared.aliases.remove(alias);
        ram::free_small(self, ram, alias.address().cast(), size_of::<Alias>());
        object.release(self.core());
        self.alias_gone(object.pool);
    }

    /// Counts one alias of a pool less; tells the home of the last.
    fn alias_gone(&mut self, pool: Pool) {
        // After the count the pool may be gone.
        let (home, base) = (pool.home(), pool.base());
        if !pool.drop_alias() {
            return;
        }
        if home == self.core() {
            self.destroy_pool(base);
        } else {
            hardware::post(home, SHARED_SLOT);
        }
    }

    /// Destroys the pool at `base`, which nobody on any core names any more.
    fn destroy_pool(&mut self, base: PhysAddr) {
        let found = self.shared.pools.iter().flatten().find(|owner| owner.pool.base() == base).copied();
        let owner = found.expect("a pool of this core");
        assert!(owner.pool.aliases() == 0, "a pool goes before its last alias");
        let kept = self.shared.pools[owner.number].take();
        assert!(kept == Some(owner), "a pool is entered at its number");
        self.publish(owner.number, 0);
        // A core that read the address before may still read the count, which tells it that it came
        // too late.
        wait_for_readers(0..registry::cores());
        self.release(owner);
    }

    /// Handles the doorbell of pools: another core dropped the last alias of a pool of ours, or
    /// left an object of one to us, or a pool died in which this core has aliases.
    #[inline(never)]
    pub fn on_shared_doorbell(&mut self) {
        let budget = &mut Budget::step();
        for number in 0..POOLS_MAX {
            match self.shared.pools[number].map(|owner| owner.pool) {
                Some(pool) if pool.aliases() == 0 => self.destroy_pool(pool.base()),
                Some(pool) => _ = SharedObject::drain_unnamed(pool, self.core(), budget),
                None => (),
            }
        }
        if !self.leave_dead_pools(budget) {
            // The rest in another event, so that this one is bounded.
            hardware::post(self.core(), SHARED_SLOT);
        }
    }

    /// Destroys what represents objects of dead pools here; tells whether the budget sufficed.
    fn leave_dead_pools(&mut self, budget: &mut Budget) -> bool {
        let mut next = self.shared.aliases.first();
        // Nothing is destroyed on the way, so the list stays as it is.
        while let Some(alias) = next {
            next = alias.link.next();
            if !alias.object.pool.is_dead() {
                continue;
            }
            let user = alias.user.get().expect("a listed alias is somebody's");
            if !self.take_names(user, budget) {
                return false;
            }
            if user.references() == 0 {
                continue;
            }
            self.retain_any(user);
            let is_done = match (user.cast::<Segment>(), user.cast::<Range>()) {
                (Ok(segment), _) => segment.unmap_everywhere(self, budget),
                (_, Ok(range)) => range.leave_parents(self, budget),
                _ => true,
            };
            self.release_any(user);
            if !is_done {
                return false;
            }
        }
        true
    }

    /// Ends a pool whose Ram is revoked; tells whether all cores have left it. Each call does a
    /// bounded part.
    pub fn end_pool(&mut self, owner: Ptr<PoolOwner>, budget: &mut Budget) -> bool {
        let pool = owner.pool;
        if !pool.is_dead() {
            self.publish(owner.number, 0);
            let own = self.core();
            pool.end().filter(|core| *core != own).for_each(|core| hardware::post(core, SHARED_SLOT));
        }
        let is_done = self.leave_dead_pools(budget) && self.destroy_queued(budget);
        is_done && self.shared.pools[owner.number] != Some(owner)
    }
}

/// The core that made an object.
fn home_of(id: u64) -> usize {
    (id >> 48) as usize
}

/// Destroys the last name of a shared share on this core.
pub fn destroy_share(kernel: &mut Kernel, share: Ptr<SharedShare>) {
    kernel.drop_alias(share.ram(), share.alias);
}

/// Frees the pages of a pool without aliases, from the end on; tells whether the budget sufficed.
pub fn drain_owner(kernel: &mut Kernel, owner: Ptr<PoolOwner>, budget: &mut Budget) -> bool {
    debug_assert!(kernel.shared.pools[owner.number] != Some(owner), "pages are freed of a pool that is named");
    while let Some(last) = owner.pages.get().checked_sub(1) {
        if !budget.spend(1) {
            return false;
        }
        owner.pages.set(last);
        kernel.free_page(owner.ram(), owner.pool.base() + last * PAGE_BYTES as u64);
    }
    true
}
