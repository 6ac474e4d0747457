//! The closed list of kernel objects, one file each, and what they have in common.
//!
//! Invariants: every object starts with a [`Header`]; it is paid for by the Ram named there and
//! lives until its last reference is dropped. Object ids are the home core in bits 63..48 and a
//! sequence number, never used again. Every object is on a list of its Ram, and its capabilities
//! are on a list of the object, so that revocation finds both without a search. An object whose
//! last reference was dropped is moved to a queue; `Kernel::destroy_queued` destroys objects one
//! after another, so that a chain of objects made by a user never becomes recursion on the kernel's
//! stack. It does so a bounded part at a time: nothing refers to an object in that queue.

use abi::{Error, ObjectType};
use core::cell::Cell;
use core::ptr::NonNull;

pub mod context;
pub mod device;
pub mod domain;
pub mod fault;
pub mod fork;
pub mod frames;
pub mod group;
pub mod mapping;
pub mod nest;
pub mod notification;
pub mod pcore;
pub mod pointer;
pub mod portal;
pub mod ram;
pub mod range;
pub mod remote;
pub mod revoke;
pub mod schedule;
pub mod segment;
pub mod semaphore;
pub mod share;
mod shared_objects;
pub mod slot;
pub mod space;
pub mod upcall;
pub mod user_memory;
pub mod writer;

pub use context::Context;
pub use device::Device;
pub use domain::Domain;
pub use group::Group;
pub use notification::Notification;
pub use pcore::Pcore;
pub(crate) use pointer::linked;
pub use pointer::{Link, Linked, List, Ptr};
pub use portal::Portal;
pub use ram::Ram;
pub use range::Range;
pub use remote::Remote;
pub use schedule::Schedule;
pub use segment::Segment;
pub use semaphore::Semaphore;
pub use slot::Slot;

use shared_objects::{PoolOwner, SharedShare, destroy_share, drain_owner};

use crate::memory::{PAGE_BYTES, phys_to_virt, virt_to_phys};
use crate::state::Kernel;
use crate::steps::{Budget, WAKE_SLOTS_UNITS};

/// What every object starts with.
#[repr(C)]
pub struct Header {
    id: u64,
    ram: Cell<Option<Ptr<Ram>>>,
    references: Cell<u32>,
    object_type: ObjectType,
    /// The list of its Ram on which it is.
    is_actor: Cell<bool>,
    /// Wake slots by which other cores signal it.
    wake_slots: Cell<u16>,
    /// On a list of its Ram, or in the queue of objects to destroy.
    place: Link<Header>,
    /// The slots that name it, in order of derivation.
    pub(crate) capabilities: List<Slot>,
}

linked!(Header, 0: place);

/// An object of whatever type.
pub type AnyObject = Ptr<Header>;

impl Header {
    /// The object's id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Its type.
    pub fn object_type(&self) -> ObjectType {
        self.object_type
    }

    /// The Ram that pays for it; only the root Ram has none.
    pub fn payer(&self) -> Option<Ptr<Ram>> {
        self.ram.get()
    }

    /// References counted now.
    pub fn references(&self) -> u32 {
        self.references.get()
    }
}

/// What makes an object, or a part of one, gives it or tells why there is none.
pub type Made<T> = Result<Ptr<T>, Error>;

/// A kernel object.
///
/// # Safety
/// The type is `repr(C)` with a [`Header`] as its first field, and `TYPE` is used by no other type.
pub unsafe trait Object: Sized {
    /// Its type in the ABI.
    const TYPE: ObjectType;
}

impl<T: Object> Ptr<T> {
    /// The same object without its type.
    pub fn any(self) -> AnyObject {
        // SAFETY: a `T` starts with its header, by contract of `Object`.
        unsafe { Ptr::new(self.address().cast()) }
    }

    /// Its header.
    pub fn header(&self) -> &Header {
        // SAFETY: as for `any`.
        unsafe { &*self.address().cast::<Header>().as_ptr() }
    }

    /// The Ram that pays for it. Every object but the root Ram has one.
    pub fn ram(self) -> Ptr<Ram> {
        self.header().ram.get().expect("only the root Ram pays for itself")
    }
}

impl AnyObject {
    /// The object as a `T`, if it is one.
    pub fn cast<T: Object>(self) -> Made<T> {
        if self.object_type != T::TYPE {
            return Err(Error::WrongType);
        }
        // SAFETY: only `Kernel::create` makes headers, and it gives this type to a `T` only.
        Ok(unsafe { Ptr::new(self.address().cast()) })
    }
}

impl Kernel {
    /// Makes an object paid by `ram`, with one reference that the caller holds. `build` gets the
    /// header.
    pub fn create<T: Object>(&mut self, ram: Ptr<Ram>, build: impl FnOnce(Header) -> T) -> Made<T> {
        const { assert!(size_of::<T>() <= PAGE_BYTES && align_of::<T>() <= 16) };
        let place = if size_of::<T>() <= ram::SMALL_BYTES {
            ram::allocate_small(self, ram, size_of::<T>())?.cast::<T>()
        } else {
            NonNull::new(phys_to_virt(self.allocate_page(ram)?).cast::<T>()).ok_or(Error::NoMemory)?
        };
        let header = self.new_header(T::TYPE, Some(ram));
        // SAFETY: the place is big enough, aligned to 16, and nobody else's.
        unsafe {
            place.write(build(header));
            let object = Ptr::new(place);
            ram.enlist(object.any());
            Ok(object)
        }
    }

    /// Makes the header of an object, which holds a reference of `ram`.
    #[inline(never)]
    pub(crate) fn new_header(&mut self, object_type: ObjectType, ram: Option<Ptr<Ram>>) -> Header {
        ram.inspect(|ram| self.retain(*ram));
        self.kernel_objects += 1;
        self.objects_by_type[object_type as usize] += 1;
        let references = Cell::new(1);
        Header {
            id: self.next_id(),
            ram: Cell::new(ram),
            references,
            object_type,
            is_actor: Cell::new(false),
            wake_slots: Cell::new(0),
            place: Link::new(),
            capabilities: List::new(),
        }
    }

    /// Counts one more reference.
    pub fn retain<T: Object>(&mut self, object: Ptr<T>) {
        self.retain_any(object.any());
    }

    /// Counts one more reference.
    pub fn retain_any(&mut self, object: AnyObject) {
        let count = object.references.get();
        assert!(count > 0, "retaining a dead object");
        object.references.set(count + 1);
    }

    /// Counts one reference less; after the last [`Kernel::destroy_queued`] destroys the object.
    pub fn release<T: Object>(&mut self, object: Ptr<T>) {
        self.release_any(object.any());
    }

    /// Counts one reference less; after the last [`Kernel::destroy_queued`] destroys the object.
    pub fn release_any(&mut self, object: AnyObject) {
        let count = object.references.get();
        assert!(count > 0, "releasing a dead object");
        object.references.set(count - 1);
        if count == 1 {
            let ram = object.ram.get().expect("the root Ram is never released");
            ram.delist(object);
            // A device must not write to memory that is free: it is destroyed before the segments
            // that were dropped with it.
            match object.object_type {
                ObjectType::Segment => self.destroy_queue.push_back(object),
                _ => self.destroy_queue.push_front(object),
            }
        }
    }

    /// Destroys objects whose last reference was dropped; tells whether the budget sufficed for
    /// all.
    pub fn destroy_queued(&mut self, budget: &mut Budget) -> bool {
        while let Some(object) = self.destroy_queue.first() {
            if !budget.spend(1) || !self.drain(object, budget) {
                return false;
            }
            self.destroy_queue.remove(object);
            self.destroy(object);
        }
        true
    }

    /// Drains an object that nothing refers to; tells whether the budget sufficed.
    fn drain(&mut self, object: AnyObject, budget: &mut Budget) -> bool {
        match object.object_type {
            ObjectType::Segment => typed::<Segment>(object).drain(self, budget),
            // One that could not be made, or that was revoked and had given up its own name.
            ObjectType::Domain => self.empty_domain(typed(object), budget),
            ObjectType::AddressRange => typed::<Range>(object).clear(self, budget),
            ObjectType::Pool => drain_owner(self, typed(object), budget),
            _ if object.wake_slots.get() > 0 => budget.spend(WAKE_SLOTS_UNITS),
            _ => true,
        }
    }

    fn destroy(&mut self, object: AnyObject) {
        assert!(object.references.get() == 0 && object.capabilities.is_empty(), "what goes has names");
        let bytes = match object.object_type {
            ObjectType::Ram => self.end::<Ram>(object, ram::destroy),
            ObjectType::Domain => self.end::<Domain>(object, domain::destroy),
            ObjectType::Segment => self.end::<Segment>(object, segment::destroy),
            ObjectType::AddressRange => self.end::<Range>(object, range::destroy),
            ObjectType::ExecutionContext => self.end::<Context>(object, context::destroy),
            ObjectType::SchedulingContext => self.end::<Schedule>(object, schedule::destroy),
            ObjectType::Portal => self.end::<Portal>(object, portal::destroy),
            ObjectType::Semaphore => self.end::<Semaphore>(object, semaphore::destroy),
            ObjectType::Device => self.end::<Device>(object, device::destroy),
            ObjectType::RemoteContext => size_of::<Remote>(),
            ObjectType::Pcore => self.end::<Pcore>(object, pcore::destroy),
            ObjectType::Share => self.end::<SharedShare>(object, destroy_share),
            ObjectType::Pool => size_of::<PoolOwner>(),
        };
        let of_type = &mut self.objects_by_type[object.object_type as usize];
        assert!(*of_type > 0 && *of_type <= self.kernel_objects, "more objects go than came");
        *of_type -= 1;
        self.kernel_objects -= 1;
        self.free_object(object, bytes);
    }

    /// Ends an object; gives its size.
    fn end<T: Object>(&mut self, object: AnyObject, destroy: fn(&mut Kernel, Ptr<T>)) -> usize {
        destroy(self, typed(object));
        size_of::<T>()
    }

    /// Frees the place of an object, and its reference of the Ram that pays.
    fn free_object(&mut self, object: AnyObject, bytes: usize) {
        let Some(ram) = object.ram.get() else { unreachable!("the root Ram is never released") };
        let place = object.address().cast();
        if bytes <= ram::SMALL_BYTES {
            ram::free_small(self, ram, place, bytes);
        } else {
            let frame = virt_to_phys(place.as_ptr()).expect("objects lie in the direct map");
            self.free_page(ram, frame);
        }
        self.release(ram);
    }
}

/// Casts an object whose type was checked.
fn typed<T: Object>(object: AnyObject) -> Ptr<T> {
    let Ok(typed) = object.cast() else { unreachable!("type was matched") };
    typed
}
