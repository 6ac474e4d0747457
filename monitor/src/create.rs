//! Making a domain: account, program, control page, channels, regions, devices, files, start page.
//! It does not run yet.

use alloc::vec::Vec;

use abi::layout::{CLOCK_PAGE, START_INFO, protection};
use abi::start::{StartHeader, StartRecord, field, kind};
use abi::{Error, Handle, PAGE_BYTES, Rights};
use channel::Layout;
use contracts::monitor::{Created, DomainPlan, MonitorError};
use contracts::spawn::DomainId;

use crate::channels::FIRST_ADDRESS;
use crate::domains::{Domain, EndpointWire, Parts};
use crate::machine::{Machine, Registers, Stall, Time};
use crate::start_page::{pages, record};
use crate::{Registry, archive, told};

/// The whole archive, among the files of a plan.
const WHOLE_ARCHIVE: &str = "archive";
/// Badge bit of a component for its endpoint.
const ENDPOINT_BADGE: u64 = 1;
/// The monitor's bits for endpoints, shared by domains in turn.
const ENDPOINT_BITS: u64 = 16;
/// The monitor's bits for deaths, by the domain's number: a death is looked for among those that
/// share a bit. Bits below are those of its own channels (`link.rs`, `channels.rs`).
const DEATH_BIT_FIRST: u64 = 40;
const DEATH_BITS: u64 = 8;
/// All of them.
pub const DEATH_BADGES: u64 = ((1 << DEATH_BITS) - 1) << DEATH_BIT_FIRST;
/// The monitor's first bit for stalls; the rest up to 63 are too. A component that leaves pending
/// work alone for so long is reported as hung: with the report's way and the restart below the 200
/// ms promised.
const STALL_LIMIT_NS: u64 = 100_000_000;
/// The same for one that cannot be restarted: the machine ends with it, so it has to be sure.
const FATAL_STALL_LIMIT_NS: u64 = 2_000_000_000;
pub const STALL_BIT_FIRST: u64 = DEATH_BIT_FIRST + DEATH_BITS;
const STALL_BITS: u64 = 64 - STALL_BIT_FIRST;
/// All of them.
pub const STALL_BADGES: u64 = !((1 << STALL_BIT_FIRST) - 1);

/// The bit by which a domain's death is told.
pub(crate) fn death_badge(id: DomainId) -> u64 {
    1 << (DEATH_BIT_FIRST + id % DEATH_BITS)
}

impl<M: Machine> Registry<M> {
    /// Makes a domain and the monitor's side of its endpoint channel, which a Linux domain has not.
    pub fn create(&mut self, plan: DomainPlan) -> Result<(Created, Option<EndpointWire>), MonitorError> {
        // A Linux domain has the name of its set of channels.
        if !plan.linux && self.named(&plan.name).is_some() {
            return Err(MonitorError::Busy);
        }
        if plan.first_pages > 0 && self.machine.free_pages() < plan.first_pages {
            return Err(MonitorError::NoMemory);
        }
        let entry = self.load(&plan.program)?;
        let mut domain = Domain {
            parts: Parts::NONE,
            plan,
            entry,
            channels: Vec::new(),
            endpoint_segment: Handle::NONE,
            endpoint_portal: Handle::NONE,
            own_doorbell: Handle::NONE,
            stall_badge: None,
            serving: false,
            asked: 0,
        };
        match self.build(&mut domain) {
            Ok((created, wire)) => {
                self.domains.insert(created.domain, domain);
                Ok((created, wire))
            }
            Err(error) => {
                self.machine.log_refusal(alloc::format!("{} cannot be made: {}", domain.plan.name, error.name()));
                domain.channels.iter().for_each(|(channel, end)| self.holder_ended(*channel, *end));
                self.destroy(&domain);
                Err(told(error))
            }
        }
    }

    fn build(&mut self, domain: &mut Domain) -> Result<(Created, Option<EndpointWire>), Error> {
        let plan = domain.plan.clone();
        let parts = &mut domain.parts;
        let turns_of = match plan.parent {
            Some(parent) => Some(self.domains.get(&parent).ok_or(Error::NotFound)?.parts.ram),
            None => None,
        };
        parts.ram = self.machine.account(plan.limit_pages, turns_of)?;
        let log_of = match plan.parent {
            Some(parent) => Some(self.domains.get(&parent).ok_or(Error::NotFound)?.parts.domain),
            None => None,
        };
        (parts.domain, parts.id) = self.machine.domain(parts.ram, plan.linux, &plan.name, log_of)?;
        parts.range = self.machine.range(parts.domain)?;
        self.place(&plan.program, parts.ram, parts.range)?;
        parts.context = self.machine.context(parts.ram, parts.domain, Time::of(&plan), Registers::of(&plan))?;
        let parts = domain.parts;

        let mut address = FIRST_ADDRESS;
        let (mut wire, mut records) = (None, Vec::new());
        if !plan.linux {
            let (made, endpoint) = self.endpoint(domain, &mut address)?;
            wire = Some(made);
            records.push(endpoint);
        }
        for (channel, end) in &plan.channels {
            domain.channels.push((*channel, *end));
            let (made, next) = self.attach(*channel, *end, &parts, address, plan.generation > 1)?;
            address = next;
            records.push(made);
            records.extend(self.attach_calls(*channel, *end, &parts, &mut address)?);
        }
        if let Some(program) = &plan.dispatcher_of {
            records.push(StartRecord { peer: program.cores, ..record(kind::PROGRAM, &program.name, "") });
        }
        for name in &plan.regions {
            records.push(self.give_region(name, &parts, &mut address)?);
        }
        for name in &plan.devices {
            records.extend(self.assign_device(name, plan.handlers, &parts)?);
        }
        for name in &plan.files {
            records.extend(self.give_file(name, &parts, &mut address)?);
        }
        self.start_page(&plan, &parts, records)?;
        // Linux programs may compute as long as they like.
        domain.stall_badge = (!plan.linux).then(|| self.free_stall_badge());
        let limit_ns = if plan.is_beaten { STALL_LIMIT_NS } else { FATAL_STALL_LIMIT_NS };
        let stall = domain.stall_badge.map(|badge| Stall { badge, limit_ns });
        self.machine.watch(parts.domain, parts.context, death_badge(parts.id), stall)?;
        let generation = plan.channels.first().map_or(0, |(id, _)| self.generation(*id));
        // Last, since nobody would take them back.
        let parent_handles = match plan.parent {
            Some(parent) => self.entrust(&parts, parent)?,
            None => [0; 2],
        };
        Ok((Created { domain: parts.id, generation, parent_handles }, wire))
    }

    /// Gives a parent what it needs to fill and start its child.
    fn entrust(&mut self, child: &Parts, parent: DomainId) -> Result<[u64; 2], Error> {
        let parent = self.domains.get(&parent).ok_or(Error::NotFound)?.parts.domain;
        let domain = self.machine.grant(parent, child.domain, Rights::READ.union(Rights::WRITE))?;
        let context = self.machine.grant(parent, child.context, Rights::CONTROL)?;
        Ok([domain.0, context.0])
    }

    /// A bit that no other domain has; shared only if there are more components than bits, who are
    /// then reported together.
    fn free_stall_badge(&self) -> u64 {
        let taken = self.domains.values().filter_map(|domain| domain.stall_badge).fold(0, |all, badge| all | badge);
        let free = STALL_BADGES & !taken;
        let bit = if free == 0 {
            STALL_BIT_FIRST + self.domains.len() as u64 % STALL_BITS
        } else {
            u64::from(free.trailing_zeros())
        };
        1 << bit
    }

    /// The channel on which the monitor speaks to the component.
    fn endpoint(&mut self, domain: &mut Domain, address: &mut u64) -> Result<(EndpointWire, StartRecord), Error> {
        let layout = Layout::default();
        let page_count = layout.bytes() / PAGE_BYTES;
        let parts = domain.parts;
        (domain.endpoint_segment, _) = self.machine.segment(page_count, false)?;
        let memory = self.machine.channel(domain.endpoint_segment, layout, true)?;
        domain.endpoint_portal = self.machine.portal(ENDPOINT_BADGE)?;
        self.machine.lead(domain.endpoint_portal, parts.context)?;
        let badge = 1 << (self.domains.len() as u64 % ENDPOINT_BITS);
        domain.own_doorbell = self.machine.own_doorbell(badge)?;
        let mut made = record(kind::CHANNEL, contracts::endpoint::NAME, "monitor");
        made.handle = self.machine.grant(parts.domain, domain.own_doorbell, Rights::NOTIFY)?.0;
        self.machine.map(
            parts.range,
            *address,
            domain.endpoint_segment,
            0,
            page_count,
            protection::READ | protection::WRITE,
        )?;
        (made.address, made.bytes, made.a) = (*address, layout.bytes(), ENDPOINT_BADGE);
        *address += layout.bytes() + PAGE_BYTES;
        Ok((EndpointWire { memory, doorbell: domain.endpoint_portal, badge }, made))
    }

    fn give_region(&mut self, name: &str, parts: &Parts, address: &mut u64) -> Result<StartRecord, Error> {
        let kept = self.regions.get(name).ok_or(Error::NotFound)?;
        if kept.is_pool {
            let mut made = record(kind::POOL, name, "");
            let rights = Rights::READ.union(Rights::WRITE).union(Rights::GRANT);
            made.handle = self.machine.grant(parts.domain, kept.object, rights)?.0;
            return Ok(made);
        }
        let (segment, page_count, physical) = (kept.object, kept.pages, kept.place);
        let mut made = record(kind::REGION, name, "");
        made.handle =
            self.machine.grant(parts.domain, segment, Rights::READ.union(Rights::WRITE).union(Rights::DMA))?.0;
        self.machine.map(parts.range, *address, segment, 0, page_count, protection::READ | protection::WRITE)?;
        (made.address, made.bytes, made.a) = (*address, page_count * PAGE_BYTES, physical);
        *address += (page_count + 1) * PAGE_BYTES;
        Ok(made)
    }

    fn give_file(&mut self, name: &str, parts: &Parts, address: &mut u64) -> Result<Option<StartRecord>, Error> {
        let found =
            if name == WHOLE_ARCHIVE { Some((0, self.archive.len())) } else { archive::find(self.archive, name) };
        let Some((at, bytes)) = found else { return Ok(None) };
        let mut made = record(kind::FILE, name, "");
        let at = at as u64 + self.facts.archive_offset;
        let first = at / PAGE_BYTES;
        let page_count = (at + bytes as u64).div_ceil(PAGE_BYTES) - first;
        if page_count > 0 {
            self.machine.map(parts.range, *address, Handle::ARCHIVE, first, page_count, protection::READ)?;
        }
        (made.address, made.bytes) = (*address + at % PAGE_BYTES, bytes as u64);
        *address += (page_count + 1) * PAGE_BYTES;
        Ok(Some(made))
    }

    fn start_page(&mut self, plan: &DomainPlan, parts: &Parts, records: Vec<StartRecord>) -> Result<(), Error> {
        let [tsc_hz, tsc_at_boot, tsc_to_ns_mul] = self.facts.tsc;
        let header = StartHeader {
            magic: 0,
            name: field(&plan.name).unwrap_or_default(),
            generation: plan.generation,
            entrance: plan.entrance,
            core: self.facts.core,
            cores: self.facts.cores,
            tsc_hz,
            tsc_at_boot,
            tsc_to_ns_mul,
            clock_page: self.facts.clock_page.map_or(0, |_| CLOCK_PAGE),
            domain_id: parts.id,
            record_count: 0,
        };
        let bytes = pages(header, records, self.command_line);
        let page_count = bytes.len() as u64 / PAGE_BYTES;
        let segment = self.machine.segment_of(parts.ram, page_count)?;
        let filled = self.machine.fill(segment, 0, &bytes);
        let mapped =
            filled.and_then(|()| self.machine.map(parts.range, START_INFO, segment, 0, page_count, protection::READ));
        self.machine.drop(segment);
        mapped?;
        match self.facts.clock_page {
            Some(page) => self.machine.map(parts.range, CLOCK_PAGE, page, 0, 1, protection::READ),
            None => Ok(()),
        }
    }
}
