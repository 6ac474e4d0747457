//! The monitor that a core makes of the boot archive: what is where in its domain, and archives of
//! which none is made.

use super::*;
use crate::tests::machine;
use abi::start::{Entrance, StartHeader, StartRecord, kind, text};
use elf::abi::{PF_R, PF_W, PF_X, PT_LOAD, PT_NOTE};
use zerocopy::FromBytes;

const CODE: u64 = protection::READ | protection::EXECUTE;
/// Where the archive begins, from a page boundary.
const ARCHIVE_OFFSET: u64 = 0x800;
const ENTRY: u64 = layout::COMPONENT_BASE + 0x24;
const TEXT_AT: u64 = layout::COMPONENT_BASE;
/// Constants that lie at another place of their page than in the file.
const CONSTANTS_AT: u64 = layout::COMPONENT_BASE + 0x10_0000 + 0x123;
/// Constants of which the file has but the first.
const ZEROS_AT: u64 = layout::COMPONENT_BASE + 0x20_0000;
/// The same within a page.
const FEW_ZEROS_AT: u64 = layout::COMPONENT_BASE + 0x40_0000;
const DATA_AT: u64 = layout::COMPONENT_BASE + 0x30_0000 + 0x345;
const FILE_BYTES: usize = 0xa000;

/// A program header: type, flags, offset in the file, address, bytes in the file, bytes in memory.
type Header = (u32, u32, u64, u64, u64, u64);

const HEADERS: [Header; 7] = [
    (PT_LOAD, PF_R | PF_X, 0x1000, TEXT_AT, 0x1800, 0x1800),
    // Not to be loaded.
    (PT_NOTE, PF_R, 0x1000, 0, 0x20, 0x20),
    (PT_LOAD, PF_R, 0x3000, CONSTANTS_AT, 0x1edd, 0x1edd),
    (PT_LOAD, PF_R, 0x5000, ZEROS_AT, 0x800, 0x1800),
    (PT_LOAD, PF_R, 0x9000, FEW_ZEROS_AT, 0x100, 0x300),
    (PT_LOAD, PF_R | PF_W, 0x6345, DATA_AT, 0x2345, 0x4345),
    (PT_LOAD, PF_R | PF_W, 0x6000, 0, 0, 0),
];

/// What the file has at an offset.
fn byte(offset: u64) -> u8 {
    (offset * 7 + offset / 256 * 3) as u8 | 1
}

fn bytes(offset: u64, count: u64) -> Vec<u8> {
    (offset..offset + count).map(byte).collect()
}

fn program(headers: &[Header]) -> Vec<u8> {
    let mut file = bytes(0, FILE_BYTES as u64);
    let mut head = Vec::new();
    // 64 bits, little endian, version 1; an executable for x86-64.
    head.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0");
    [ENTRY, 64, 0].iter().for_each(|word| head.extend(word.to_le_bytes()));
    head.extend([0; 4]);
    [64, 56, headers.len() as u16, 0, 0, 0].iter().for_each(|half| head.extend(half.to_le_bytes()));
    for (kind, flags, offset, address, in_file, in_memory) in headers {
        [kind, flags].iter().for_each(|word| head.extend(word.to_le_bytes()));
        let words = [*offset, *address, *address, *in_file, *in_memory, PAGE];
        words.iter().for_each(|word| head.extend(word.to_le_bytes()));
    }
    file[..head.len()].copy_from_slice(&head);
    file
}

/// An archive of which the monitor's bytes begin on a page.
fn archive(name: &str, monitor: &[u8]) -> Vec<u8> {
    let before = file("etc/system", 0, b"what is before it");
    let at = ARCHIVE_OFFSET as usize + (before.len() + 110 + name.len() + 1).next_multiple_of(4);
    let padding = at.next_multiple_of(PAGE_BYTES) - at;
    [before, file(name, padding, monitor), file("TRAILER!!!", 0, b"")].concat()
}

/// A core with this boot archive, which lies in memory of another.
fn with_archive(core: usize, archive: &[u8], change: impl FnOnce(&mut CoreInfo)) -> Core {
    let base = PhysAddr((PAGES + 2) * PAGE + ARCHIVE_OFFSET);
    let core = Core::with(core, PAGES, |info| {
        info.archive = Some(PhysRange::new(base.0, archive.len() as u64));
        change(info);
    });
    assert!(archive.len() as u64 + ARCHIVE_OFFSET <= (OTHERS_PAGES - 1) * PAGE);
    machine::write(base, archive);
    core
}

/// A core with a good archive.
pub(super) fn with_monitor(core: usize) -> Core {
    with_archive(core, &archive("sbin/monitor", &program(&HEADERS)), |_| ())
}

const MONITOR: Plan = Plan { run: 1, ..Plan::NONE };

#[test]
fn the_image_of_a_monitor_is_as_its_file_says() {
    let mut core = with_monitor(CORE);
    core.run(MONITOR);
    assert_eq!((core.state(), said()), (State::Running(1), vec![]));
    assert_eq!(core.first().writer.name().as_str(), "monitor");
    for (address, offset, in_file, in_memory, pages, protection) in [
        (TEXT_AT, 0x1000, 0x1800, 0x1800, 2, CODE),
        (CONSTANTS_AT, 0x3000, 0x1edd, 0x1edd, 2, READ),
        (ZEROS_AT, 0x5000, 0x800, 0x1800, 2, READ),
        (FEW_ZEROS_AT, 0x9000, 0x100, 0x300, 1, READ),
        (DATA_AT, 0x6345, 0x2345, 0x4345, 5, OPEN),
    ] {
        assert_eq!(core.mapped(address), Some((address / PAGE * PAGE, pages, protection)), "{address:#x}");
        assert!(core.read(address, in_file) == bytes(offset, in_file), "{address:#x}");
        assert!(core.read(address + in_file, in_memory - in_file).iter().all(|byte| *byte == 0), "{address:#x}");
        // Who runs it does not change the archive, and so not what other cores run.
        let mapping = core.first().range().at(address).unwrap();
        let is_shared = mapping.segment() == Some(core.segment(Handle::ARCHIVE).0);
        assert_eq!(is_shared, address == TEXT_AT, "{address:#x}");
    }
    let stack = (layout::STACK_TOP - 16 * PAGE, 16, OPEN);
    assert_eq!(core.mapped(layout::STACK_TOP - 1), Some(stack));
    assert!(core.mapped(layout::STACK_TOP).is_none() && core.mapped(stack.0 - 1).is_none());
    assert!(core.read(stack.0, PAGE).iter().all(|byte| *byte == 0));
    assert_eq!(core.mapped(layout::CONTROL_PAGE), Some((layout::CONTROL_PAGE, 1, OPEN)));
    // Five of the image, stack, archive, start page, control page.
    assert_eq!(core.first().range().count(), 9);
    let context = core.context();
    let registers = context.with_registers(|r| [r.rip, r.rsp, r.rdi, r.rsi]);
    assert_eq!(registers, [ENTRY, layout::STACK_TOP, layout::START_INFO, 0]);
    assert_eq!((context.watch_limit_ns.get(), context.schedule.get().unwrap().priority), (2_000_000_000, 7));
    core.kernel.decide();
    assert!(core.kernel.scheduler.current() == Some(context));
    core.command(CoreCommand::Halt(1));
    core.settle();
    core.assert_as_at_its_start();
}

#[test]
fn a_monitor_holds_its_core_and_the_archive() {
    let mut core = with_monitor(CORE);
    core.run(MONITOR);
    let [pcore, ram, context] =
        [Handle::PCORE, Handle::ROOT_RAM, Handle::SELF_CONTEXT].map(|handle| core.capability(handle).unwrap());
    assert_eq!([pcore.rights, ram.rights, context.rights], [Rights::ALL; 3]);
    assert_eq!(pcore.object.cast::<Pcore>().unwrap().core, CORE);
    assert!(ram.object == core.kernel.root_ram().any() && context.object == core.context().any());
    let (archive, rights) = core.segment(Handle::ARCHIVE);
    assert_eq!(rights, Rights::READ.union(Rights::EXECUTE).union(Rights::GRANT));
    let range = core.info.archive.unwrap();
    let first = PhysAddr(range.base.0 - ARCHIVE_OFFSET);
    let pages = (range.bytes + ARCHIVE_OFFSET).div_ceil(PAGE);
    assert_eq!((archive.base(), archive.pages(), archive.is_ram()), (Some(first), pages, true));
    assert_eq!(core.mapped(layout::REGIONS), Some((layout::REGIONS, pages, READ)));
    assert!(core.capability(Handle::FIRST_FREE).is_none());
}

/// What a monitor finds at its start: the header and its records.
fn start_page(core: &mut Core) -> (StartHeader, Vec<StartRecord>) {
    let header = StartHeader::read_from_bytes(&core.read(layout::START_INFO, 112)).unwrap();
    let records = (0..header.record_count).map(|number| {
        let at = layout::START_INFO + 112 + number * 112;
        StartRecord::read_from_bytes(&core.read(at, 112)).unwrap()
    });
    (header, records.collect())
}

#[test]
fn a_monitor_is_told_who_it_is_and_what_it_has() {
    let long = "x".repeat(4096);
    for (line, pages) in [("console=quiet", 1), ("", 1), (long.leak(), 2)] {
        let good = archive("./sbin/monitor", &program(&HEADERS));
        let mut core = with_archive(CORE, &good, |info| {
            info.command_line = line;
            info.tsc_hz = 3_000_000_000;
            info.boot_tsc = 1234;
        });
        hardware::set_state_of(CORE, State::Never);
        core.run(MONITOR);
        assert_eq!(core.mapped(layout::START_INFO), Some((layout::START_INFO, pages, READ)));
        let (header, records) = start_page(&mut core);
        assert_eq!((header.magic, text(&header.name), header.generation), (abi::start::MAGIC, "monitor", 1));
        assert_eq!(Entrance::decode(header.entrance), Entrance::Fresh);
        assert_eq!((header.core, header.cores), (CORE as u32, hardware::CORES as u32));
        assert_eq!((header.tsc_hz, header.tsc_at_boot, header.clock_page), (3_000_000_000, 1234, 0));
        let minute_ns = (u128::from(header.tsc_to_ns_mul) * 60 * 3_000_000_000) >> 32;
        assert!((60_000_000_000 - minute_ns) < 100, "{minute_ns}");
        assert_eq!(header.domain_id, core.first().header().id());
        let [archive, command_line] = &records[..] else { panic!("{} records", records.len()) };
        assert_eq!((archive.kind, text(&archive.name), archive.handle), (kind::FILE, "archive", Handle::ARCHIVE.0));
        assert_eq!((archive.address, archive.bytes), (layout::REGIONS + ARCHIVE_OFFSET, good.len() as u64));
        assert!(core.read(archive.address, archive.bytes) == good);
        assert_eq!((command_line.kind, command_line.handle), (kind::COMMAND_LINE, Handle::NONE.0));
        assert_eq!(command_line.bytes, line.len() as u64);
        assert!(core.read(command_line.address, command_line.bytes) == line.as_bytes());
    }
}

#[test]
fn a_monitor_is_told_of_its_link_to_core_0() {
    let mut core = with_monitor(CORE);
    let base = PhysAddr(core.others.0 + (OTHERS_PAGES - 3) * PAGE);
    let mut plan = MONITOR;
    plan.parts[0] = Some(Part { base, pages: 3, rights: Rights(0), mapped: None });
    core.run(plan);
    let (_, records) = start_page(&mut core);
    assert_eq!(records.len(), 3);
    let link = records[2];
    assert_eq!((link.kind, text(&link.name), link.a), (kind::REGION, "link", base.0));
    assert_eq!(link.bytes, 3 * PAGE);
    assert_eq!(core.mapped(link.address), Some((link.address, 3, OPEN)));
    assert!(link.address >= layout::REGIONS + (1 << 34), "it is behind any archive");
    let (segment, rights) = core.segment(Handle(link.handle));
    assert_eq!((segment.base(), segment.pages(), rights), (Some(base), 3, Rights::ALL));
    machine::write(base + PAGE, &[99_u8]);
    assert_eq!(core.read(link.address + PAGE, 1), [99]);
    core.command(CoreCommand::Halt(1));
    core.settle();
    core.assert_as_at_its_start();
    assert_eq!(said(), [""; 0]);
}

/// Why no monitor is made; all that was made is gone then.
fn refused(mut core: Core, plan: Plan) -> String {
    hardware::set_state_of(CORE, State::Never);
    core.run(plan);
    core.settle();
    let mut lines = said();
    assert_eq!((lines.len(), core.state()), (1, State::Halted(1)), "{lines:?}");
    core.assert_as_at_its_start();
    let line = lines.remove(0);
    line.strip_prefix("pelago: core 2 cannot start: ").expect(&line).to_string()
}

#[test]
fn a_monitor_that_is_no_good_program_is_refused_and_nothing_is_lost() {
    const BAD: &str = "sbin/monitor is no static 64-bit program";
    const OVERLAP: &str = "parts of its monitor overlap";
    let without =
        |change: &dyn Fn(&mut CoreInfo), archive: &[u8]| refused(with_archive(CORE, archive, change), MONITOR);
    let good = archive("sbin/monitor", &program(&HEADERS));
    assert_eq!(without(&|info| info.archive = None, &good), "there is no boot archive; give one with -initrd");
    for empty in [&archive("sbin/monitors", &program(&HEADERS))[..], &good[..200]] {
        assert_eq!(without(&|_| (), empty), "the boot archive has no sbin/monitor");
    }
    let of = |program: &[u8]| refused(with_archive(CORE, &archive("sbin/monitor", program), |_| ()), MONITOR);
    // Magic number, class, byte order, where its headers are, how long each is.
    for (at, value) in [(0, 0), (4, 3), (5, 2), (32, 0), (54, 55)] {
        let mut damaged = program(&HEADERS);
        damaged[at] = value;
        assert_eq!(of(&damaged), BAD, "{at}");
    }
    assert_eq!(of(&program(&HEADERS)[..100]), BAD);
    // Good for 32 bits: program headers at 64, each of 32 bytes, and none of them.
    let mut narrow = program(&HEADERS);
    [(4, 1), (28, 64), (32, 0), (42, 32)].iter().for_each(|(at, value)| narrow[*at] = *value);
    assert_eq!(of(&narrow), BAD);
    let load = |flags, offset, address, in_file, in_memory| (PT_LOAD, flags, offset, address, in_file, in_memory);
    let largest = layout::SEGMENT_PAGES_MAX * PAGE;
    let end = layout::USER_END;
    for (header, reason) in [
        (load(PF_R, FILE_BYTES as u64 - 8, DATA_AT, 9, 9), BAD),
        (load(PF_R, u64::MAX, DATA_AT, 9, 9), BAD),
        (load(PF_R, 0x1000, DATA_AT, 9, 8), BAD),
        (load(PF_R, 0x1000, 0, 8, 8), BAD),
        (load(PF_R, 0x1000, end, 8, 8), BAD),
        (load(PF_R, 0x1000, end - PAGE, 8, PAGE + 1), BAD),
        (load(PF_R, 0x1000, 1 << 63, 8, 8), BAD),
        (load(PF_R, 0x1000, DATA_AT, 8, u64::MAX), BAD),
        (load(PF_R | PF_W, 0x1000, 0x2000_0000, 8, largest + 1), BAD),
        (load(PF_R | PF_W | PF_X, 0x1000, DATA_AT, 8, 8), "a part of sbin/monitor is writable and executable"),
        // What is copied and what is mapped where it is.
        (load(PF_R | PF_W, 0x1000, TEXT_AT + 0x1000, 8, 8), OVERLAP),
        (load(PF_R, 0x1000, TEXT_AT + 0x1000, 0x1000, 0x1000), OVERLAP),
        (load(PF_R, 0x1000, layout::REGIONS, 0x1000, 0x1000), OVERLAP),
        (load(PF_R | PF_W, 0x1000, layout::STACK_TOP - PAGE, 8, 8), OVERLAP),
        (load(PF_R | PF_W, 0x1000, layout::START_INFO, 8, 8), OVERLAP),
    ] {
        assert_eq!(of(&program(&[HEADERS[0], header])), reason, "{header:x?}");
    }
}

#[test]
fn a_monitor_may_use_all_that_a_domain_can() {
    let largest = layout::SEGMENT_PAGES_MAX * PAGE;
    let end = layout::USER_END;
    let headers = [
        (PT_LOAD, PF_R | PF_W, 0x1000, 0x2000_0000, 8, largest),
        (PT_LOAD, PF_R, 0x1000, end - PAGE, PAGE, PAGE),
        (PT_LOAD, PF_W, 0x1000, layout::USER_START, FILE_BYTES as u64 - 0x1000, FILE_BYTES as u64 - 0x1000),
    ];
    let mut core = with_archive(CORE, &archive("sbin/monitor", &program(&headers)), |_| ());
    core.run(MONITOR);
    assert_eq!(said(), [""; 0]);
    assert_eq!(core.mapped(0x2000_0000), Some((0x2000_0000, layout::SEGMENT_PAGES_MAX, OPEN)));
    assert_eq!(core.mapped(end - 1), Some((end - PAGE, 1, READ)));
    assert_eq!(core.read(layout::USER_START + 0x8ff0, 16), bytes(0x9ff0, 16));
    assert_eq!(core.mapped(layout::USER_START).unwrap().2, OPEN);
}

#[test]
fn a_core_with_too_little_memory_for_its_monitor_loses_nothing() {
    let good = archive("sbin/monitor", &program(&HEADERS));
    let mut plan = MONITOR;
    for pages in 0.. {
        let mut core = with_archive(CORE, &good, |_| ());
        let base = PhysAddr(core.others.0 + (OTHERS_PAGES - 1) * PAGE);
        plan.parts[0] = Some(Part { base, pages: 1, rights: Rights(0), mapped: None });
        hardware::set_state_of(CORE, State::Never);
        let taken: Vec<_> = (pages..core.free).map(|_| core.kernel.frames.allocate().unwrap()).collect();
        core.run(plan);
        if core.kernel.first.is_some_and(|first| first.is_alive()) {
            assert!(pages > 10 && said().is_empty());
            break;
        }
        core.settle();
        let line = format!("pelago: core {CORE} cannot start: {NO_MEMORY}");
        assert_eq!((said(), core.state()), (vec![line], State::Halted(1)), "{pages} pages");
        taken.into_iter().for_each(|frame| core.kernel.frames.release(frame));
        core.assert_as_at_its_start();
    }
}
