//! A machine that is made up: it counts every capability and writes down what it is asked for.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;

use abi::start::DeviceRecord;
use abi::{DeathCause, DomainState, Error, Handle, Rights};
use channel::{Layout, Memory, loopback_memory};
use contracts::monitor::{ChannelPlan, DomainPlan, End};
use monitor_core::{Facts, Machine, Registers, Registry, Stall, Time};

/// Of a ledger: the payer, its domain, and what it paid.
pub(crate) type Row = (u64, u64, u64);

/// Pages shown in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapped {
    pub(crate) range: Handle,
    pub(crate) address: u64,
    pub(crate) segment: Handle,
    pub(crate) first_page: u64,
    pub(crate) pages: u64,
    pub(crate) protection: u64,
}

/// See the module's head.
#[derive(Default)]
pub(crate) struct Fake {
    pub(crate) last: u64,
    pub(crate) held: BTreeSet<u64>,
    /// Where portals lead.
    pub(crate) portals: BTreeMap<u64, u64>,
    pub(crate) slots: BTreeSet<u64>,
    pub(crate) memory: BTreeMap<u64, Vec<Memory>>,
    pub(crate) notified: Vec<u64>,
    pub(crate) quieted: Vec<u64>,
    pub(crate) dead: BTreeSet<u64>,
    /// How long each domain ran, and who paid.
    pub(crate) ledgers: BTreeMap<u64, (u64, Vec<Row>)>,
    /// Those that ended by themselves, and their status.
    pub(crate) exits: BTreeMap<u64, u64>,
    pub(crate) started: BTreeSet<u64>,
    pub(crate) free_pages: u64,
    /// Whose turns each account shares.
    pub(crate) turns_of: Vec<Option<Handle>>,
    pub(crate) own_turns: Vec<Handle>,
    /// Whose part of the log each domain shares.
    pub(crate) log_of: Vec<Option<Handle>>,
    /// With which rights memory in common was lent.
    pub(crate) lent: Vec<Rights>,
    /// Into which domain, what, and with which rights.
    pub(crate) granted: Vec<(Handle, Handle, Rights)>,
    pub(crate) mapped: Vec<Mapped>,
    /// Pages of each segment that was made here.
    pub(crate) segments: BTreeMap<u64, u64>,
    /// Who paid for a copy, and of what.
    pub(crate) copied: Vec<(Handle, Handle)>,
    /// What segments were filled with, and from which byte on.
    pub(crate) filled: BTreeMap<u64, (u64, Vec<u8>)>,
    pub(crate) refuses_to_fill: bool,
    pub(crate) refuses_to_start: bool,
    /// Memory of other cores: where, and how many pages.
    pub(crate) imported: Vec<(u64, u64)>,
    pub(crate) imported_pools: Vec<u64>,
    /// Where contexts began.
    pub(crate) entries: Vec<u64>,
    /// What rings other cores: which, and by which number.
    pub(crate) remotes: Vec<(u32, u64)>,
    /// Portals into the monitor itself.
    pub(crate) own_portals: BTreeSet<u64>,
    /// Bits of what rings the monitor.
    pub(crate) own_badges: Vec<u64>,
    /// By which bit a death is told, and a stall.
    pub(crate) watched: Vec<(u64, Option<Stall>)>,
    /// What was said of refusals.
    pub(crate) refusals: RefCell<Vec<String>>,
    /// Allocations that still succeed.
    pub(crate) budget: Option<u32>,
}

impl Fake {
    fn new_handle(&mut self) -> Result<Handle, Error> {
        if let Some(budget) = &mut self.budget {
            *budget = budget.checked_sub(1).ok_or(Error::NoMemory)?;
        }
        self.last += 1;
        self.held.insert(self.last);
        Ok(Handle(self.last + 100))
    }
}

impl Machine for Fake {
    fn segment(&mut self, pages: u64, contiguous: bool) -> Result<(Handle, u64), Error> {
        let handle = self.segment_of(Handle::ROOT_RAM, pages)?;
        Ok((handle, if contiguous { handle.0 << 12 } else { 0 }))
    }
    fn common(&mut self, pages: u64, spare_pages: u64) -> Result<Handle, Error> {
        if spare_pages > 100 - pages.min(100) { Err(Error::NoMemory) } else { self.new_handle() }
    }
    fn segment_of(&mut self, _: Handle, pages: u64) -> Result<Handle, Error> {
        let handle = self.new_handle()?;
        self.segments.insert(handle.0, pages);
        Ok(handle)
    }
    fn import(&mut self, physical: u64, pages: u64) -> Result<Handle, Error> {
        self.imported.push((physical, pages));
        self.new_handle()
    }
    fn pool(&mut self, _: u64) -> Result<(Handle, u64), Error> {
        self.new_handle().map(|handle| (handle, handle.0))
    }
    fn import_pool(&mut self, id: u64) -> Result<Handle, Error> {
        self.imported_pools.push(id);
        self.new_handle()
    }
    fn copy(&mut self, ram: Handle, segment: Handle) -> Result<Handle, Error> {
        self.copied.push((ram, segment));
        self.new_handle()
    }
    fn fill(&mut self, segment: Handle, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        if self.refuses_to_fill {
            return Err(Error::NoMemory);
        }
        self.filled.insert(segment.0, (offset, bytes.into()));
        Ok(())
    }
    fn channel(&mut self, segment: Handle, layout: Layout, _: bool) -> Result<Memory, Error> {
        let views = self.memory.entry(segment.0).or_insert_with(|| Vec::from(loopback_memory::<4>(layout)));
        views.pop().ok_or(Error::NoMemory)
    }
    fn portal(&mut self, _: u64) -> Result<Handle, Error> {
        self.new_handle()
    }
    fn entrance(&mut self, _: u64) -> Result<Handle, Error> {
        self.new_handle()
    }
    fn semaphore(&mut self) -> Result<Handle, Error> {
        self.new_handle()
    }
    fn lead(&mut self, portal: Handle, context: Handle) -> Result<(), Error> {
        self.portals.insert(portal.0, context.0);
        Ok(())
    }
    fn own_doorbell(&mut self, badge: u64) -> Result<Handle, Error> {
        self.own_badges.push(badge);
        self.new_handle()
    }
    fn own_portal(&mut self, badge: u64) -> Result<Handle, Error> {
        let made = self.new_handle()?;
        self.own_badges.push(badge);
        self.own_portals.insert(made.0);
        Ok(made)
    }
    fn slot(&mut self, _: Handle) -> Result<u64, Error> {
        self.last += 1;
        self.slots.insert(self.last);
        Ok(self.last)
    }
    fn free_slot(&mut self, slot: u64) {
        assert!(self.slots.remove(&slot), "a slot freed twice");
    }
    fn remote(&mut self, core: u32, slot: u64) -> Result<Handle, Error> {
        self.remotes.push((core, slot));
        self.new_handle()
    }
    fn random(&mut self) -> u32 {
        self.last += 1;
        1000 + self.last as u32
    }
    fn free_pages(&mut self) -> u64 {
        self.free_pages
    }
    fn ring(&mut self, doorbell: Handle) {
        self.notified.push(doorbell.0);
    }
    fn ring_busy(&mut self, doorbell: Handle) {
        self.notified.push(!doorbell.0);
    }
    fn drop(&mut self, handle: Handle) {
        assert!(self.held.remove(&(handle.0 - 100)), "{handle:?} dropped twice");
    }
    fn account(&mut self, _: u64, turns_of: Option<Handle>) -> Result<Handle, Error> {
        self.turns_of.push(turns_of);
        self.new_handle()
    }
    fn begin_turns(&mut self, ram: Handle) -> Result<(), Error> {
        self.own_turns.push(ram);
        Ok(())
    }
    fn domain(&mut self, _: Handle, _: bool, _: &str, log_of: Option<Handle>) -> Result<(Handle, u64), Error> {
        self.log_of.push(log_of);
        self.new_handle().map(|handle| (handle, handle.0))
    }
    fn grant(&mut self, domain: Handle, source: Handle, rights: Rights) -> Result<Handle, Error> {
        self.granted.push((domain, source, rights));
        if rights.contains(Rights::INHERIT) {
            self.lent.push(rights);
        }
        self.new_handle().map(|made| {
            self.held.remove(&(made.0 - 100));
            source
        })
    }
    fn range(&mut self, _: Handle) -> Result<Handle, Error> {
        self.new_handle()
    }
    fn map(
        &mut self,
        range: Handle,
        address: u64,
        segment: Handle,
        first_page: u64,
        pages: u64,
        protection: u64,
    ) -> Result<(), Error> {
        self.mapped.push(Mapped { range, address, segment, first_page, pages, protection });
        Ok(())
    }
    fn context(&mut self, _: Handle, _: Handle, _: Time, _: Registers) -> Result<Handle, Error> {
        self.new_handle()
    }
    fn start(&mut self, context: Handle, entry: u64, _: u64) -> Result<(), Error> {
        if self.refuses_to_start {
            return Err(Error::NoMemory);
        }
        self.entries.push(entry);
        if self.started.insert(context.0) { Ok(()) } else { Err(Error::Busy) }
    }
    fn watch(&mut self, _: Handle, _: Handle, death_badge: u64, stall: Option<Stall>) -> Result<(), Error> {
        self.watched.push((death_badge, stall));
        Ok(())
    }
    fn kill(&mut self, domain: Handle, _: u64) -> Result<(), Error> {
        self.dead.insert(domain.0);
        Ok(())
    }
    fn log_refusal(&self, line: String) {
        self.refusals.borrow_mut().push(line);
    }
    fn state(&mut self, domain: Handle) -> Result<DomainState, Error> {
        let cause = match self.exits.get(&domain.0) {
            Some(_) => DeathCause::Exit,
            None if self.dead.contains(&domain.0) => DeathCause::Killed,
            None => DeathCause::Alive,
        };
        let status = self.exits.get(&domain.0).copied().unwrap_or(0);
        let (id, cpu_ns) = (domain.0, self.ledgers.get(&domain.0).map_or(0, |(cpu_ns, _)| *cpu_ns));
        Ok(DomainState { id, cause: cause as u64, status, cpu_ns, ..DomainState::default() })
    }
    fn ledger(&mut self, domain: Handle, number: u64) -> Result<(u64, u64, u64), Error> {
        let (_, rows) = self.ledgers.get(&domain.0).ok_or(Error::NotFound)?;
        rows.get(number as usize).copied().ok_or(Error::NotFound)
    }
    fn counter(&mut self, index: u64) -> u64 {
        index * 10
    }
    fn now_ns(&self) -> u64 {
        5000
    }
    fn device(&mut self, index: u64) -> Option<DeviceRecord> {
        (index == 0).then(|| DeviceRecord { vendor: 0x1af4, device: 0x1041, ..DeviceRecord::default() })
    }
    fn claim(&mut self, _: u64) -> Result<Handle, Error> {
        self.new_handle()
    }
    fn quiet(&mut self, device: Handle) -> Result<(), Error> {
        self.quieted.push(device.0);
        Ok(())
    }
}

/// A file in an archive, and zeros behind it.
pub(crate) fn member(name: &str, content: &[u8]) -> Vec<u8> {
    let mut numbers = [0; 13];
    (numbers[6], numbers[11]) = (content.len(), name.len() + 1);
    let mut bytes = Vec::from(b"070701");
    numbers.iter().for_each(|number| bytes.extend(format!("{number:08x}").bytes()));
    bytes.extend(name.bytes().chain([0]));
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// A piece of a program: its flags, address, bytes in memory, where it is in the file, and how many
/// bytes of it.
pub(crate) type Header = (u32, u64, u64, u64, u64);

/// A program that begins with its first code, in a file of that length.
pub(crate) fn program(headers: &[Header], length: usize) -> Vec<u8> {
    let mut file = vec![0; length];
    file[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(16, &2u16.to_le_bytes());
    put(18, &62u16.to_le_bytes());
    put(20, &1u32.to_le_bytes());
    let begins = headers.iter().find(|(flags, ..)| flags & 1 != 0).map_or(0, |(_, address, ..)| *address);
    put(24, &begins.to_le_bytes());
    put(32, &64u64.to_le_bytes());
    put(52, &64u16.to_le_bytes());
    put(54, &56u16.to_le_bytes());
    put(56, &(headers.len() as u16).to_le_bytes());
    for (index, (flags, address, memory, from, bytes)) in headers.iter().enumerate() {
        let at = 64 + 56 * index;
        put(at, &1u32.to_le_bytes());
        put(at + 4, &flags.to_le_bytes());
        put(at + 8, &from.to_le_bytes());
        put(at + 16, &address.to_le_bytes());
        put(at + 32, &bytes.to_le_bytes());
        put(at + 40, &memory.to_le_bytes());
    }
    file
}

/// A program of so many pages of code.
pub(crate) fn code(pages: u64) -> Vec<u8> {
    let headers: Vec<Header> = (0..pages).map(|page| (5, 0x40_0000 + page * 4096, 100, 4096, 16)).collect();
    program(&headers, 4096 + 16)
}

pub(crate) fn registry(core: u32) -> Registry<Fake> {
    let archive = [member("sbin/prog", &code(1)), Vec::from(&b"070701"[..])].concat();
    registry_of(archive, Facts { core, cores: 2, ..Facts::default() }, b"quiet")
}

pub(crate) fn registry_of(archive: Vec<u8>, facts: Facts, command_line: &'static [u8]) -> Registry<Fake> {
    Registry::new(Fake::default(), facts, Box::leak(archive.into_boxed_slice()), command_line)
}

pub(crate) fn wire(id: u64, client_core: u32, server_core: u32) -> ChannelPlan {
    let [contract, client, server] = ["network", "ip", "driver"].map(String::from);
    ChannelPlan { id, contract, client, server, client_core, server_core, ring_slots: 64, bulk_bytes: 0, worker: None }
}

pub(crate) fn domain(name: &str, generation: u64, channels: &[(u64, End)]) -> DomainPlan {
    DomainPlan {
        name: name.into(),
        program: "prog".into(),
        dispatcher_of: None,
        generation,
        entrance: 0,
        limit_pages: 100,
        priority: 3,
        budget: None,
        linux: false,
        first_pages: 0,
        parent: None,
        is_beaten: true,
        channels: channels.into(),
        regions: Vec::from([String::from("pool")]),
        devices: Vec::from([String::from("virtio-net")]),
        handlers: 2,
        files: Vec::new(),
        has_vectors: false,
    }
}
