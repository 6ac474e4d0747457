//! What a driver reads and writes of its device: its windows, configuration and ports.

use super::machine::Played;
use super::time::context;
use super::{MACHINE, World};
use crate::boot::acpi::Ecam;
use crate::boot::info::CoreInfo;
use crate::devices::{Bar, DeviceInfo, Msix};
use crate::hardware;
use crate::memory::{PhysAddr, phys_to_virt};
use crate::objects::Segment;
use crate::objects::segment::Kind;
use abi::layout::{self, SEGMENT_PAGES_MAX};
use abi::start::DeviceRecord;
use abi::{Call, Error, Handle, Rights};
use zerocopy::FromBytes;

const ECAM: u64 = 0xb000_0000;
const CARD: u32 = 0x1_08;
const TABLE: u64 = 0xfeb0_2000;
const WINDOW: u32 = 0x1_0000;
const SERIAL: u32 = 0x2_0000;

const fn mmio(base: u64, bytes: u64) -> Bar {
    Bar { base: PhysAddr(base), bytes, is_mmio: true }
}

const LARGEST: u64 = SEGMENT_PAGES_MAX * abi::PAGE_BYTES;

/// A card with all kinds of windows, a device with a line, and one without interrupts.
static DEVICES: [DeviceInfo; 3] = [
    DeviceInfo {
        hwid: CARD,
        vendor: 0x1af4,
        device: 0x1041,
        class: 0x02_0001,
        bars: [
            mmio(0xfeb0_0e00, 0x300),
            Bar { base: PhysAddr(0xc000), bytes: 32, is_mmio: false },
            mmio(0x1_0000_0000, LARGEST),
            mmio(0x1_0000_0000, LARGEST + 1),
            mmio(0xfeb1_0000, 0),
            mmio(0xfeb2_0000, 0x1000),
        ],
        msix: Some(Msix { capability: 0x90, entries: 3, table: PhysAddr(TABLE) }),
        line: None,
    },
    DeviceInfo { hwid: WINDOW, device: 0x1042, line: Some(20), ..DeviceInfo::NONE },
    DeviceInfo { hwid: 0x10, vendor: 7, ..DeviceInfo::NONE },
];

static WITH_DEVICES: CoreInfo = CoreInfo { devices: &DEVICES, ..MACHINE };

/// A driver on a machine whose devices' registers the test plays.
struct Driver {
    world: World,
    page: *mut u8,
    _machine: Played,
}

impl Driver {
    fn new() -> Driver {
        hardware::remove_registers();
        let machine = Played::new(|machine| {
            machine.facts.ecam = Ecam { base: ECAM, first_bus: 0, last_bus: 3 };
        });
        let mut world = World::new(1000);
        let domain = world.monitor();
        world.kernel.info = Some(&WITH_DEVICES);
        world.kernel.decide();
        let mapping = context(domain).domain().range().at(layout::CONTROL_PAGE).unwrap();
        let page = phys_to_virt(mapping.segment().unwrap().base().unwrap());
        Driver { world, page, _machine: machine }
    }

    fn call<const N: usize>(&mut self, call: Call, words: [u64; N]) -> Result<u64, Error> {
        let words = core::array::from_fn(|at| words.get(at).copied().unwrap_or(0));
        let (status, result) = self.world.runner_calls(call, words);
        if status == 0 { Ok(result) } else { Err(Error::from_code(status.wrapping_neg()).unwrap()) }
    }

    fn claim(&mut self, hwid: u32) -> u64 {
        self.call(Call::DeviceAlloc, [Handle::PCORE.0, Handle::ROOT_RAM.0, hwid.into()]).unwrap()
    }

    /// Gives the device back: nobody has it in another test of this thread.
    fn drop_it(&mut self, device: u64) {
        assert_eq!(self.call(Call::CapDrop, [device]), Ok(0));
    }
}

#[test]
fn a_device_is_told_as_boot_found_it() {
    const AT: usize = 2048;
    let mut driver = Driver::new();
    let mut told = Vec::new();
    while driver.call(Call::DeviceList, [told.len() as u64, layout::CONTROL_PAGE + AT as u64]).is_ok() {
        // SAFETY: the page of a living context in the world's memory.
        let bytes = unsafe { core::slice::from_raw_parts(driver.page.add(AT), size_of::<DeviceRecord>()) };
        told.push(DeviceRecord::read_from_bytes(bytes).unwrap());
    }
    let hwids: Vec<_> = told.iter().map(|record| (record.hwid, record.interrupts)).collect();
    assert_eq!(hwids, [(CARD.into(), 3), (WINDOW.into(), 1), (0x10, 0), (SERIAL.into(), 1), (0x2_0001, 1)]);
    let card = &told[0];
    assert_eq!((card.vendor, card.device, card.class), (0x1af4, 0x1041, 0x02_0001));
    assert_eq!(card.windows[..2], [[0xfeb0_0e00, 0x300], [0xc000, 32]]);
    assert_eq!(card.windows[4..], [[0, 0], [0xfeb2_0000, 0x1000]], "one without a size is absent");
    assert_eq!([told[3].windows[0], told[4].windows[0]], [[0x3f8, 8], [0x70, 2]]);
    let past = driver.call(Call::DeviceList, [5, layout::CONTROL_PAGE]);
    assert_eq!((past, driver.call(Call::DeviceList, [u64::MAX, layout::CONTROL_PAGE])), {
        (Err(Error::NotFound), Err(Error::NotFound))
    });
}

#[test]
fn a_window_is_all_pages_that_its_registers_are_in() {
    let mut driver = Driver::new();
    let card = driver.claim(CARD);
    let window = |driver: &mut Driver, number: u64| driver.call(Call::DeviceWindow, [card, Handle::ROOT_RAM.0, number]);
    for (number, base, pages, offset) in
        [(0, 0xfeb0_0000, 2, 0xe00), (2, 0x1_0000_0000, SEGMENT_PAGES_MAX, 0), (5, 0xfeb2_0000, 1, 0)]
    {
        let segment = window(&mut driver, number).unwrap();
        let runner = driver.world.kernel.scheduler.current().unwrap();
        assert_eq!(runner.with_registers(|registers| registers.rsi), offset);
        let (found, _) = runner.domain().share().find::<Segment>(Handle(segment), Rights(0)).unwrap();
        assert_eq!(found.pages(), pages);
        assert_eq!(found.kind(), Kind::Imported { base: PhysAddr(base), uncached: true, is_ram: false });
    }
    for (number, error) in [(1, Error::NotFound), (3, Error::BadArgument), (4, Error::NotFound), (6, Error::NotFound)] {
        assert_eq!(window(&mut driver, number), Err(error), "{number}");
    }
    driver.drop_it(card);
}

#[test]
fn configuration_is_read_in_bytes_and_their_multiples() {
    let mut driver = Driver::new();
    let card = driver.claim(CARD);
    let at = ECAM + (u64::from(CARD) << 12);
    hardware::set_register(at + 0x40, 0x8765_4321, u32::MAX);
    hardware::set_register(at + 0xffc, 0xfedc_ba98, 0);
    for (offset, width, value) in [
        (0x40, 4, 0x8765_4321),
        (0x40, 2, 0x4321),
        (0x42, 2, 0x8765),
        (0x40, 1, 0x21),
        (0x41, 1, 0x43),
        (0x43, 1, 0x87),
        (0xffc, 4, 0xfedc_ba98),
        (0xfff, 1, 0xfe),
    ] {
        assert_eq!(driver.call(Call::DeviceConfRead, [card, offset, width]), Ok(value), "{width} at {offset:#x}");
    }
    for (offset, width) in [(0x41, 2), (0x42, 4), (0x40, 3), (0x40, 0), (0x40, 8), (4096, 1), (4096, 4), (1 << 32, 4)] {
        let refused = driver.call(Call::DeviceConfRead, [card, offset, width]);
        assert_eq!(refused, Err(Error::BadArgument), "{width} at {offset:#x}");
        assert_eq!(driver.call(Call::DeviceConfWrite, [card, offset, width, 0]), refused);
    }
    assert_eq!(hardware::take_register_writes(), []);
    driver.drop_it(card);
    let window = driver.claim(WINDOW);
    assert_eq!(driver.call(Call::DeviceConfRead, [window, 0, 4]), Err(Error::NotFound));
    driver.drop_it(window);
    let ports = driver.claim(SERIAL);
    assert_eq!(driver.call(Call::DeviceConfRead, [ports, 0, 4]), Err(Error::NotFound));
    driver.drop_it(ports);
}

/// What is written beside the bytes is as it was.
#[test]
fn configuration_is_written_where_it_is_the_drivers() {
    let mut driver = Driver::new();
    let card = driver.claim(CARD);
    let at = ECAM + (u64::from(CARD) << 12);
    for offset in (0..0x100).step_by(4) {
        hardware::set_register(at + offset, 0, u32::MAX);
    }
    let word = 0x8765_4321;
    for (offset, width, value, after) in [
        (0x40, 4, 0xffff_ffff_0000_1234, 0x1234),
        (0x40, 2, 0xffff_0ff0, 0x8765_0ff0),
        (0x42, 2, 0xffff_0ff0, 0x0ff0_4321),
        (0x40, 1, 0xff10, 0x8765_4310),
        (0x41, 1, 0xff10, 0x8765_1021),
        (0x43, 1, 0xff10, 0x1065_4321),
    ] {
        hardware::set_register(at + 0x40, word, u32::MAX);
        hardware::take_register_writes();
        assert_eq!(driver.call(Call::DeviceConfWrite, [card, offset, width, value]), Ok(0));
        assert_eq!(hardware::take_register_writes(), [(at + 0x40, after)], "{width} at {offset:#x}");
    }
    for offset in [0, 4, 0x10, 0x24, 0x3c, 0x100] {
        assert_eq!(driver.call(Call::DeviceConfWrite, [card, offset, 4, 0]), Err(Error::NoRights));
    }
    assert_eq!(hardware::take_register_writes(), []);
    driver.drop_it(card);
}

#[test]
fn ports_are_read_and_written_from_the_lowest_byte_on() {
    let mut driver = Driver::new();
    let serial = driver.claim(SERIAL);
    for (port, value) in [(0x3f8, 0x11), (0x3f9, 0x22), (0x3fa, 0x33), (0x3fb, 0xd4), (0x3ff, 0x55)] {
        hardware::set_port(port, value);
    }
    let read =
        |driver: &mut Driver, offset: u64, width: u64| driver.call(Call::DevicePortRead, [serial, offset, width]);
    assert_eq!([1, 2, 4].map(|width| read(&mut driver, 0, width)), [Ok(0x11), Ok(0x2211), Ok(0xd433_2211)]);
    assert_eq!([2, 7].map(|offset| read(&mut driver, offset, 1)), [Ok(0x33), Ok(0x55)]);
    for (offset, width) in [(8, 1), (7, 2), (5, 4), (0, 3), (0, 0), (0, 8), (u64::MAX, 1)] {
        assert_eq!(read(&mut driver, offset, width), Err(Error::BadArgument), "{width} at {offset}");
        let refused = driver.call(Call::DevicePortWrite, [serial, offset, width, 0]);
        assert_eq!(refused, Err(Error::BadArgument));
    }
    assert_eq!(hardware::take_port_writes(), []);
    for (offset, width) in [(0, 4), (6, 2), (3, 1)] {
        assert_eq!(driver.call(Call::DevicePortWrite, [serial, offset, width, 0x8765_4321]), Ok(0));
    }
    let written =
        [(0x3f8, 0x21), (0x3f9, 0x43), (0x3fa, 0x65), (0x3fb, 0x87), (0x3fe, 0x21), (0x3ff, 0x43), (0x3fb, 0x21)];
    assert_eq!(hardware::take_port_writes(), written);
    driver.drop_it(serial);
    let card = driver.claim(CARD);
    assert_eq!(driver.call(Call::DevicePortRead, [card, 0, 1]), Err(Error::NotFound));
    driver.drop_it(card);
}
