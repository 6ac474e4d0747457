//! Handles, rights and object types.

/// Names a capability: slot number in bits 31..0, share in bits 63..32 (0 = the caller's root share; nested shares come with the kernel's next widening).
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
    /// Only in a monitor: this core's Pcore with CONTROL.
    pub const PCORE: Handle = Handle(5);
    /// Only in a monitor: this core's root Ram with CONTROL.
    pub const ROOT_RAM: Handle = Handle(6);
    /// Only in a monitor: the boot archive as a read-only Segment.
    pub const ARCHIVE: Handle = Handle(7);
    /// The first slot free for others.
    pub const FIRST_FREE: Handle = Handle(8);
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

/// The closed list of kernel objects (DESIGN section 3), and the one alias for an object of another core.
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
    /// A context of another core; only NOTIFY.
    RemoteContext = 12,
}
