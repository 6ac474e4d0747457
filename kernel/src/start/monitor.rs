//! Building the monitor's domain: image, stack, start page, capabilities.

use super::{NO_MEMORY, Started, archive, archive_bytes, first};
use crate::boot::info::CoreInfo;
use crate::memory::{PAGE, PhysAddr, phys_to_virt};
use crate::objects::mapping::PageRun;
use crate::objects::share::Capability;
use crate::objects::{Domain, Ptr, Segment};
use crate::state::Kernel;
use abi::layout::{self, protection};
use abi::start::{Entrance, MAGIC, StartHeader, StartRecord, field, kind};
use abi::{Error, Handle, Rights};
use elf::ElfBytes;
use elf::abi::{PF_W, PF_X, PT_LOAD};
use elf::endian::LittleEndian;
use zerocopy::IntoBytes;

const STACK_PAGES: u64 = 16;
/// A monitor that has work waiting and does not look at it for so long of its own time is ended.
const HANG_LIMIT_NS: u64 = 2_000_000_000;
/// Where the link to core 0's monitor is mapped, after any archive.
const LINK_OFFSET: u64 = 1 << 34;
const NAME: &str = "sbin/monitor";

/// Builds this core's monitor and makes it ready to run. It shares `link` (address, pages) with
/// core 0's monitor.
pub(super) fn start(kernel: &mut Kernel, info: &CoreInfo, link: Option<(PhysAddr, u64)>) -> Started {
    let bytes = archive::find(archive_bytes(info)?, NAME).ok_or("the boot archive has no sbin/monitor")?;
    let domain = first::domain(kernel, b"monitor")?;
    let mut builder = Builder { kernel, domain, info, link };
    let archive = builder.archive()?;
    let entry = builder.load(bytes, archive)?;
    let stack = PageRun { start: layout::STACK_TOP - STACK_PAGES * PAGE, pages: STACK_PAGES };
    builder.memory(stack, protection::READ | protection::WRITE)?;
    first::give_core(builder.kernel, domain, Rights::ALL)?;
    builder.start_page()?;
    let context = first::context(kernel, domain)?;
    context.watch_limit_ns.set(HANG_LIMIT_NS);
    first::run(kernel, context, (entry, layout::STACK_TOP), layout::START_INFO)
}

struct Builder<'a> {
    kernel: &'a mut Kernel,
    domain: Ptr<Domain>,
    info: &'a CoreInfo,
    link: Option<(PhysAddr, u64)>,
}

impl Builder<'_> {
    /// Fresh memory at a place; the mapping holds its only reference.
    fn memory(&mut self, place: PageRun, protection: u64) -> Result<Ptr<Segment>, &'static str> {
        let ram = self.kernel.root_ram();
        let segment = Ptr::<Segment>::new_anonymous(self.kernel, ram, place.pages).map_err(|_| NO_MEMORY)?;
        let mapped = self.map(place, segment, 0, protection);
        self.kernel.release(segment);
        mapped.map(|()| segment)
    }

    fn map(&mut self, place: PageRun, segment: Ptr<Segment>, first: u64, protection: u64) -> Started {
        let mapped = self.domain.range().map(self.kernel, place, segment, first, [protection; 2]);
        mapped.map_err(|error| if error == Error::NoMemory { NO_MEMORY } else { "parts of its monitor overlap" })
    }

    fn fill(&mut self, segment: Ptr<Segment>, offset: u64, bytes: &[u8]) -> Started {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let length = (PAGE - at % PAGE).min((bytes.len() - done) as u64) as usize;
            let frame = segment.touch(self.kernel, at / PAGE).map_err(|_| NO_MEMORY)?;
            let piece = &bytes[done..done + length];
            // SAFETY: the frame is the new segment's, and the piece ends within it.
            unsafe { core::ptr::copy_nonoverlapping(piece.as_ptr(), phys_to_virt(frame + at % PAGE), length) };
            done += length;
        }
        Ok(())
    }

    /// Loads a static ELF image; gives its entry. What is constant is mapped where it lies in the
    /// archive, if it lies on pages there: cores then share it, as they share the kernel's text.
    fn load(&mut self, bytes: &[u8], archive: Ptr<Segment>) -> Result<u64, &'static str> {
        const BAD: &str = "sbin/monitor is no static 64-bit program";
        let image = ElfBytes::<LittleEndian>::minimal_parse(bytes).map_err(|_| BAD)?;
        let headers = image.segments().filter(|_| image.ehdr.class == elf::file::Class::ELF64).ok_or(BAD)?;
        for header in headers.iter().filter(|header| header.p_type == PT_LOAD && header.p_memsz > 0) {
            let offset = header.p_vaddr % PAGE;
            let span = header.p_memsz.checked_add(offset).ok_or(BAD)?;
            let place = self.domain.range().place(header.p_vaddr - offset, span.div_ceil(PAGE)).map_err(|_| BAD)?;
            let contents = image.segment_data(&header).map_err(|_| BAD)?;
            if contents.len() as u64 > header.p_memsz || place.pages > layout::SEGMENT_PAGES_MAX {
                return Err(BAD);
            }
            let write = if header.p_flags & PF_W != 0 { protection::WRITE } else { 0 };
            let execute = if header.p_flags & PF_X != 0 { protection::EXECUTE } else { 0 };
            let wanted = protection::READ | write | execute;
            self.domain
                .range()
                .check_protection(wanted)
                .map_err(|_| "a part of sbin/monitor is writable and executable")?;
            let is_constant = write == 0 && contents.len() as u64 == header.p_memsz;
            match self.in_place(contents, offset).filter(|_| is_constant) {
                Some(first) => self.map(place, archive, first, wanted)?,
                None => {
                    let segment = self.memory(place, wanted)?;
                    self.fill(segment, offset, contents)?;
                }
            }
        }
        Ok(image.ehdr.e_entry)
    }

    /// The archive's page from which `contents`, at `offset` of their first page, can be mapped.
    fn in_place(&self, contents: &[u8], offset: u64) -> Option<u64> {
        let base = self.info.archive?.base;
        let at = (contents.as_ptr() as u64).checked_sub(phys_to_virt(base) as u64)? + base.0 % PAGE;
        (at % PAGE == offset).then_some(at / PAGE)
    }

    /// The boot archive, mapped at the first region address; the monitor's capability holds it.
    fn archive(&mut self) -> Result<Ptr<Segment>, &'static str> {
        let range = self.info.archive.ok_or("there is no boot archive")?;
        let base = PhysAddr(range.base.0 / PAGE * PAGE);
        let pages = (range.end().0 - base.0).div_ceil(PAGE);
        let segment = first::memory_at(self.kernel, base, pages)?;
        let readable = Rights::READ.union(Rights::EXECUTE).union(Rights::GRANT);
        first::give(self.domain, Handle::ARCHIVE, segment.any(), readable);
        let place = PageRun { start: layout::REGIONS, pages };
        self.map(place, segment, 0, protection::READ)?;
        Ok(segment)
    }

    fn start_page(&mut self) -> Started {
        const RECORDS: usize = 3;
        let text = self.info.command_line.as_bytes();
        let text_at = (size_of::<StartHeader>() + RECORDS * size_of::<StartRecord>()) as u64;
        let place = PageRun { start: layout::START_INFO, pages: (text_at + text.len() as u64).div_ceil(PAGE) };
        let segment = self.memory(place, protection::READ)?;
        let link = self.link()?;
        let archive = self.info.archive.map_or((0, 0), |range| (layout::REGIONS + range.base.0 % PAGE, range.bytes));
        let records = [
            record(kind::FILE, "archive", Handle::ARCHIVE, archive),
            record(kind::COMMAND_LINE, "command line", Handle::NONE, (layout::START_INFO + text_at, text.len() as u64)),
            link.unwrap_or(record(0, "", Handle::NONE, (0, 0))),
        ];
        let header = self.header(RECORDS as u64 - u64::from(link.is_none()));
        self.fill(segment, 0, header.as_bytes())?;
        self.fill(segment, size_of::<StartHeader>() as u64, records.as_bytes())?;
        self.fill(segment, text_at, text)
    }

    /// The memory shared with core 0's monitor, mapped after the archive.
    fn link(&mut self) -> Result<Option<StartRecord>, &'static str> {
        let Some((base, pages)) = self.link else { return Ok(None) };
        let slot = self.domain.reserve(self.kernel).map_err(|_| NO_MEMORY)?;
        let segment = first::memory_at(self.kernel, base, pages)?;
        let handle = self.domain.insert(slot, Capability { object: segment.any(), badge: 0, rights: Rights::ALL });
        let place = PageRun { start: layout::REGIONS + LINK_OFFSET, pages };
        self.map(place, segment, 0, protection::READ | protection::WRITE)?;
        let mut link = record(kind::REGION, "link", handle, (place.start, pages * PAGE));
        link.a = base.0;
        Ok(Some(link))
    }

    fn header(&self, record_count: u64) -> StartHeader {
        let tsc_to_ns_mul = (1_000_000_000u128 << 32) / u128::from(self.info.tsc_hz.max(1));
        StartHeader {
            magic: MAGIC,
            name: field("monitor").unwrap_or_default(),
            generation: 1,
            entrance: Entrance::Fresh as u64,
            core: self.info.core as u32,
            cores: self.info.cores.len() as u32,
            tsc_hz: self.info.tsc_hz,
            tsc_at_boot: self.info.boot_tsc,
            tsc_to_ns_mul: tsc_to_ns_mul as u64,
            clock_page: 0,
            domain_id: self.domain.header().id(),
            record_count,
        }
    }
}

fn record(kind: u64, name: &str, handle: Handle, (address, bytes): (u64, u64)) -> StartRecord {
    let name = field(name).unwrap_or_default();
    StartRecord { kind, name, peer: [0; 32], handle: handle.0, address, bytes, a: 0, b: 0 }
}
