//! Links between monitor 0 and the others: a channel in memory of core 0, and one page by which both sides tell each other how to ring.

use alloc::string::ToString;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::layout::{REGIONS, portal};
use abi::{Error, Handle, PAGE_BYTES};
use channel::{Bell, ClientChannel, Layout, Memory, ServerChannel, Wiring};
use contracts::monitor::MonitorClient;
use monitor_core::{DEATH_BADGES, STALL_BADGES};
use runtime::Start;

/// What the kernel calls the region it gives a monitor that was started by another.
const NAME: &str = "link";
/// The monitor's bits for its links, shared in turn: a ring makes it look at those of one bit.
const LINK_BIT_FIRST: u64 = 16;
const LINK_BITS: u64 = 16;
/// The bit for greetings.
pub const GREETED: u64 = 1 << 39;
const _: () = assert!((GREETED | ((1 << LINK_BITS) - 1) << LINK_BIT_FIRST) & (DEATH_BADGES | STALL_BADGES) == 0);

/// The page after the channel: a number of 0 is not told yet.
struct Greeting {
    base: u64,
}

impl Greeting {
    fn word(&self, index: u64) -> &AtomicU64 {
        // SAFETY: the page is mapped for the monitor's life, shared memory of atomics only, and holds these two words.
        unsafe { &*((self.base + 8 * index) as *const AtomicU64) }
    }
}

/// The near end of a link to a core that was started.
pub struct Link {
    core: u32,
    memory: Memory,
    greeting: Greeting,
    badge: u64,
}

fn layout() -> Layout {
    Layout::default()
}

impl Link {
    /// Makes the memory of a link and starts the core.
    pub fn start(core: u32) -> Result<Link, Error> {
        let pages = layout().bytes() / PAGE_BYTES + 1;
        let (segment, physical) = sys::segment_alloc(Handle::ROOT_RAM, pages, abi::layout::segment::CONTIGUOUS)?;
        let (address, bytes, keeper) = runtime::map_segment(segment)?;
        // SAFETY: mapped while the keeper lives; the last page is left out.
        let memory = unsafe { Memory::format(address, bytes - PAGE_BYTES, layout(), Some(keeper)) }
            .map_err(|_| Error::BadArgument)?;
        let greeting = Greeting { base: address + bytes - PAGE_BYTES };
        let badge = 1 << (LINK_BIT_FIRST + core as u64 % LINK_BITS);
        let entrance = sys::portal_alloc(Handle::ROOT_RAM, Handle::SELF_CONTEXT, badge | GREETED, portal::MAILBOX)?;
        greeting.word(0).store(sys::wake_slot_alloc(Handle::PCORE, entrance, 0)?, Ordering::Release);
        sys::pcore_run(Handle::PCORE, core.into(), physical, pages)?;
        Ok(Link { core, memory, greeting, badge })
    }

    /// Has the other side told how to ring it?
    pub fn is_up(&self) -> bool {
        self.greeting.word(1).load(Ordering::Acquire) != 0
    }

    /// The client over the link; `is_up` said yes.
    pub fn client(self) -> Result<MonitorClient, Error> {
        let slot = self.greeting.word(1).load(Ordering::Acquire);
        let bell = sys::wake_slot_import(Handle::PCORE, Handle::ROOT_RAM, self.core.into(), slot)?;
        Ok(MonitorClient::new(ClientChannel::new(wiring(self.memory, bell, self.badge))))
    }
}

/// The far end, in the monitor that was started; `None` at core 0.
pub fn far_end(start: &Start) -> Option<Result<ServerChannel, Error>> {
    start.region(NAME).map(|region| answer(region.address, region.bytes))
}

fn answer(address: u64, bytes: u64) -> Result<ServerChannel, Error> {
    if address < REGIONS || bytes < 2 * PAGE_BYTES {
        return Err(Error::BadArgument);
    }
    // SAFETY: the kernel mapped the region for the monitor's life; the last page is left out.
    let memory = unsafe { Memory::attach(address, bytes - PAGE_BYTES, None) }.map_err(|_| Error::BadArgument)?;
    let greeting = Greeting { base: address + bytes - PAGE_BYTES };
    let badge = 1 << LINK_BIT_FIRST;
    let slot = greeting.word(0).load(Ordering::Acquire);
    let bell = sys::wake_slot_import(Handle::PCORE, Handle::ROOT_RAM, 0, slot)?;
    let entrance = sys::portal_alloc(Handle::ROOT_RAM, Handle::SELF_CONTEXT, badge, portal::MAILBOX)?;
    greeting.word(1).store(sys::wake_slot_alloc(Handle::PCORE, entrance, 0)?, Ordering::Release);
    sys::notify(bell)?;
    Ok(ServerChannel::new(wiring(memory, bell, badge)))
}

fn wiring(memory: Memory, bell: Handle, badge: u64) -> Wiring {
    Wiring { memory, bell: Bell::Notify(bell), badge, remote: true, peer: "monitor".to_string(), peer_set: 0 }
}
