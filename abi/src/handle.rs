//! Handles, rights and object types.

/// Names a capability in the caller's root share by its slot, 1 to 16,383; or an object in a shared
/// share: the share's slot in bits 63..50, the object's home core in bits 49..42, and its number
/// there in bits 41..0 (a core that made an object each microsecond would come to the end after 50
/// days; such an object is refused a place in a share).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Handle(pub u64);

impl Handle {
    /// Slot 0 is never used.
    pub const NONE: Handle = Handle(0);
    /// In each domain's share from the start: its own Domain (READ | CONTROL).
    pub const SELF_DOMAIN: Handle = Handle(1);
    /// Its root AddressRange (READ | WRITE).
    pub const SELF_RANGE: Handle = Handle(2);
    /// The Ram that pays for it (READ | WRITE).
    pub const SELF_RAM: Handle = Handle(3);
    /// Its first ExecutionContext (all rights), put there by the first `ContextAlloc`.
    pub const SELF_CONTEXT: Handle = Handle(4);
    /// Only in the first domain of a core, if it was given rights to it: this core's Pcore; a
    /// monitor's with all rights.
    pub const PCORE: Handle = Handle(5);
    /// As `PCORE`: this core's root Ram.
    pub const ROOT_RAM: Handle = Handle(6);
    /// Only in a monitor: the boot archive as a read-only Segment.
    pub const ARCHIVE: Handle = Handle(7);
    /// The first slot free for others.
    pub const FIRST_FREE: Handle = Handle(8);

    /// The object of that id as a shared share names it. `None`: `share` is no slot of a root
    /// share, or the id is past what a handle can say.
    pub const fn in_share(share: Handle, id: u64) -> Option<Handle> {
        let (core, number) = (id >> 48, id & ((1 << 48) - 1));
        if share.0 == 0 || share.0 >> 14 != 0 || core >> 8 != 0 || number >> 42 != 0 {
            return None;
        }
        Some(Handle(share.0 << 50 | core << 42 | number))
    }

    /// The share's slot and the object's id, if it names an object in a shared share.
    pub const fn parts(self) -> Option<(Handle, u64)> {
        let (share, core, number) = (self.0 >> 50, self.0 >> 42 & 0xff, self.0 & ((1 << 42) - 1));
        if share == 0 { None } else { Some((Handle(share), core << 48 | number)) }
    }
}

/// What a capability lets its holder do; a set of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Rights(pub u32);

impl Rights {
    /// Read its contents or state.
    pub const READ: Rights = Rights(1);
    /// Change its contents; for Ram: allocate.
    pub const WRITE: Rights = Rights(2);
    /// Map executable.
    pub const EXECUTE: Rights = Rights(4);
    /// Copy it into another domain.
    pub const GRANT: Rights = Rights(8);
    /// Configure and end it.
    pub const CONTROL: Rights = Rights(16);
    /// Notify through it.
    pub const NOTIFY: Rights = Rights(32);
    /// Call through it.
    pub const CALL: Rights = Rights(64);
    /// Learn physical addresses, for device memory.
    pub const DMA: Rights = Rights(128);
    /// `DomainFork` copies it. May be set on any copy of a capability.
    pub const INHERIT: Rights = Rights(256);
    /// For Pcore: end the machine, and nothing else.
    pub const POWER: Rights = Rights(512);
    /// Every right but INHERIT.
    pub const ALL: Rights = Rights(255 | 512);

    /// Is every right of `other` here?
    pub const fn contains(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }
    /// Both.
    pub const fn union(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
    /// What both have.
    pub const fn intersection(self, other: Rights) -> Rights {
        Rights(self.0 & other.0)
    }
}

/// The closed list of kernel objects and the one alias for an object of another core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ObjectType {
    /// Untyped memory account.
    Ram = 1,
    /// Protection domain.
    Domain = 2,
    /// Physical memory object.
    Segment = 3,
    /// Virtual-to-physical mappings.
    AddressRange = 4,
    /// Capability table.
    Share = 5,
    /// Thread of control.
    ExecutionContext = 6,
    /// Time.
    SchedulingContext = 7,
    /// Entrance into a context.
    Portal = 8,
    /// Counting semaphore.
    Semaphore = 9,
    /// A core.
    Pcore = 10,
    /// Registers, ports, interrupts, DMA.
    Device = 11,
    /// A context or semaphore of another core, by its wake slot; only NOTIFY.
    RemoteContext = 12,
    /// Memory of a Ram that its owner made shared; only its kernel names it.
    Pool = 13,
}

impl ObjectType {
    /// All types with a short name each, in numeric order from 1.
    pub const ALL: [(ObjectType, &'static str); 13] = [
        (ObjectType::Ram, "ram"),
        (ObjectType::Domain, "domain"),
        (ObjectType::Segment, "segment"),
        (ObjectType::AddressRange, "range"),
        (ObjectType::Share, "share"),
        (ObjectType::ExecutionContext, "context"),
        (ObjectType::SchedulingContext, "time"),
        (ObjectType::Portal, "portal"),
        (ObjectType::Semaphore, "semaphore"),
        (ObjectType::Pcore, "pcore"),
        (ObjectType::Device, "device"),
        (ObjectType::RemoteContext, "remote"),
        (ObjectType::Pool, "pool"),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_a_set() {
        let (read, write, both) = (Rights::READ, Rights::WRITE, Rights(3));
        assert_eq!((read.union(write), both.union(write)), (both, both));
        assert_eq!([read, write, Rights::GRANT].map(|right| both.contains(right)), [true, true, false]);
        assert!(!read.contains(both) && read.contains(Rights(0)));
        assert_eq!((both.intersection(write), read.intersection(write)), (write, Rights(0)));
        // INHERIT marks a capability; it gives nothing.
        assert!((0..10).filter(|bit| !Rights::ALL.contains(Rights(1 << bit))).eq([8]));
    }

    #[test]
    fn an_object_in_a_share_is_named_by_both() {
        for (share, id) in [(1, 1), (16_383, 255 << 48 | ((1 << 42) - 1)), (8, 3 << 48 | 77)] {
            assert_eq!(Handle::in_share(Handle(share), id).unwrap().parts(), Some((Handle(share), id)));
        }
        for (share, id) in [(0, 1), (1 << 14, 1), (1, 1 << 42), (1, 256 << 48)] {
            assert_eq!(Handle::in_share(Handle(share), id), None);
        }
        assert_eq!(Handle(16_383).parts(), None);
    }
}
