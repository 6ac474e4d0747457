//! What the kernel tells of the machine and of itself: cores, distances, devices, objects alive.

use abi::layout::{REGIONS, protection};
use abi::{Error, Handle, ObjectType, PAGE_BYTES, Rights};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use contracts::monitor::RegionKind;
use virtio_net::Transport;

use crate::{Bench, Outcome, ensure, must_be, refused};

/// As the firmware writes a core's own node.
const NEAR: u64 = 10;
const PAGES: u64 = 64;
/// In the room of regions, past what is mapped there.
const WINDOW_PLACE: u64 = REGIONS + (3 << 38);

const TYPES: [(ObjectType, &str); 13] = ObjectType::ALL;

/// Counts of objects follow what is made and dropped.
pub fn counts() -> Outcome {
    let count = |of| sys::object_count(of).map_err(refused("ObjectCount"));
    let mut all = Vec::new();
    for (of, _) in TYPES {
        all.push(count(of)?);
    }
    let line: Vec<String> = TYPES.iter().zip(&all).map(|((_, name), count)| format!("{name} {count}")).collect();
    runtime::log!("objects of core 0: {}", line.join(", "));
    let semaphore = sys::semaphore_alloc(Handle::SELF_RAM, 0).map_err(refused("SemaphoreAlloc"))?;
    let (segment, _) = sys::segment_alloc(Handle::SELF_RAM, 1, 0).map_err(refused("SegmentAlloc"))?;
    for ((of, name), before) in TYPES.iter().zip(&all) {
        let more = u64::from(matches!(of, ObjectType::Semaphore | ObjectType::Segment));
        let now = count(*of)?;
        ensure(now == before + more, || format!("{name}: {before}, then {now}"))?;
    }
    sys::cap_drop(semaphore).and_then(|()| sys::cap_drop(segment)).map_err(refused("CapDrop"))?;
    for ((of, name), before) in TYPES.iter().zip(&all) {
        let now = count(*of)?;
        ensure(now == *before, || format!("{name}: {before} before, {now} after"))?;
    }
    Ok(())
}

/// This is core 0 of as many as the start page says, all of them run.
pub fn cores(bench: &Bench) -> Outcome {
    let cores: u64 = bench.start.cores().into();
    let found = sys::pcore_current().map_err(refused("PcoreCurrent"))?;
    ensure(found == (0, cores, cores), || format!("PcoreCurrent said {found:?}"))?;
    let mut ids = Vec::new();
    for core in 0..cores {
        let (id, _, running) = sys::pcore_stat(core).map_err(refused("PcoreStat"))?;
        ensure(running && !ids.contains(&id), || format!("core {core} has APIC id {id} again, or does not run"))?;
        ids.push(id);
    }
    must_be(sys::pcore_stat(cores), Error::BadArgument, "PcoreStat past the last core")
}

/// Distances between cores: near to themselves, the same both ways here, one line per core for
/// the scenario, which knows the machine.
pub fn locality(bench: &Bench) -> Outcome {
    let cores: u64 = bench.start.cores().into();
    let distance = |from, to| sys::locality_get(from, to).map_err(refused("LocalityGet"));
    for from in 0..cores {
        let mut row = Vec::new();
        for to in 0..cores {
            let (there, from_node, to_node) = distance(from, to)?;
            let (back, ..) = distance(to, from)?;
            ensure(there == back, || format!("{there} from {from} to {to}, {back} back"))?;
            ensure((there == NEAR) == (from_node == to_node), || {
                format!("{there} between nodes {from_node} and {to_node}")
            })?;
            row.push(format!("{there}"));
        }
        runtime::log!("distances of core {from}: {}", row.join(" "));
    }
    must_be(sys::locality_get(0, cores), Error::BadArgument, "LocalityGet past the last core")
}

/// Memory asked of a core shrinks that core's free list and no other's.
pub async fn memory_of_a_core(bench: &Bench) -> Outcome {
    let core = bench.last_core();
    let free = async |core| bench.monitor.memory(core).await.map_err(|error| format!("memory({core}): {error:?}"));
    // Of the last core but one, which stays as it is from here on: regions remain. Core 0 may
    // change by itself.
    let from = core.saturating_sub(1);
    let others: Vec<u32> = (1..bench.start.cores()).filter(|other| *other != from).collect();
    let mut before = Vec::new();
    for other in &others {
        before.push(free(*other).await?.free_pages);
    }
    let own = free(from).await?.free_pages;
    let name = String::from("of-a-core");
    let physical = bench.monitor.region(from, name, PAGES, RegionKind::Contiguous, None).await;
    let physical = physical.map_err(|error| format!("region: {error:?}"))?;
    let now = free(from).await?.free_pages;
    ensure(own >= now + PAGES, || format!("core {from} had {own} free pages and has {now}"))?;
    for (other, before) in others.iter().zip(before) {
        let now = free(*other).await?.free_pages;
        ensure(now == before, || format!("core {other} had {before} free pages and has {now}"))?;
    }
    let (_, node, _) = sys::pcore_stat(from.into()).map_err(refused("PcoreStat"))?;
    runtime::log!("memory of core {from} of node {node}: {physical:#x}+{:#x}", PAGES * PAGE_BYTES);
    Ok(())
}

/// The device list, one line each as the kernel's own lines name them.
pub fn devices() -> Outcome {
    let mut count = 0;
    while let Ok(device) = sys::device_list(count) {
        runtime::log!(
            "device hwid {:#x} {:04x}:{:04x} class {:06x}",
            device.hwid,
            device.vendor,
            device.device,
            device.class
        );
        count += 1;
    }
    ensure(count > 0, || String::from("not even the serial port"))?;
    must_be(sys::device_list(u64::MAX), Error::NotFound, "DeviceList past the last")
}

/// Devices are claimed by hardware id, once, and can be again when the claim goes.
pub fn claims(bench: &Bench) -> Outcome {
    let alloc = |hwid| sys::device_alloc(bench.cores, Handle::SELF_RAM, hwid);
    must_be(alloc(u64::MAX), Error::NotFound, "DeviceAlloc of no device")?;
    let mut claimed = 0;
    for device in (0..).map_while(|index| sys::device_list(index).ok()) {
        // One that the system drives is its own.
        let Ok(claim) = alloc(device.hwid) else { continue };
        claimed += 1;
        must_be(alloc(device.hwid), Error::Busy, "DeviceAlloc, twice")?;
        sys::cap_drop(claim).map_err(refused("CapDrop"))?;
        let again = alloc(device.hwid).map_err(refused("DeviceAlloc, again"))?;
        sys::cap_drop(again).map_err(refused("CapDrop"))?;
    }
    runtime::log!("{claimed} devices can be claimed");
    ensure(claimed > 0, || String::from("no device is free"))
}

/// A block device of VIRTIO 1.2, 5.2: its configuration begins with its sectors.
const DISK: (u16, u16) = (0x1af4, 0x1042);
const SECTOR_BYTES: u64 = 512;
const CAPACITY_BYTES: u64 = 8;

/// Who holds a disk learns its capacity from its registers; the host knows what was given.
pub fn capacity(bench: &Bench) -> Outcome {
    let mut records = (0..).map_while(|index| sys::device_list(index).ok());
    let disk = records.find(|record| (record.vendor, record.device) == DISK);
    let hwid = disk.ok_or_else(|| String::from("the machine has no disk"))?.hwid;
    let device = sys::device_alloc(bench.cores, Handle::SELF_RAM, hwid).map_err(refused("DeviceAlloc"))?;
    let (mut registers, _) = virtio_net::device::open(device, virtio_net::KIND)?;
    let sectors =
        (0..CAPACITY_BYTES).rev().fold(0, |all, offset| all << 8 | u64::from(registers.configuration(offset)));
    runtime::log!("a disk of {} bytes", sectors * SECTOR_BYTES);
    sys::device_master(device, false).and_then(|()| sys::cap_drop(device)).map_err(refused("CapDrop"))
}

/// Class of network devices, and the bit of a PCI command register that lets a device reach memory.
const NETWORK: u32 = 0x02;
const BUS_MASTER: u64 = 1 << 2;

/// Who holds a device learns what it is and configures it; what decides about memory and about whom
/// interrupts go to is the kernel's.
pub fn configuration(bench: &Bench) -> Outcome {
    let mut configured = 0;
    for record in (0..).map_while(|index| sys::device_list(index).ok()) {
        let Ok(device) = sys::device_alloc(bench.cores, Handle::SELF_RAM, record.hwid) else { continue };
        let identity = u64::from(record.vendor) | u64::from(record.device) << 16;
        match sys::device_conf_read(device, 0, 4) {
            Ok(found) => {
                ensure(found == identity, || format!("{found:#x} is not the {identity:#x} of the list"))?;
                registers(device)?;
                windows(device, &record.windows)?;
            }
            Err(error) => ensure(error == Error::NotFound, || format!("DeviceConfRead: {}", error.name()))?,
        }
        if record.class >> 16 == NETWORK {
            interrupts_and_memory(device, record.interrupts)?;
            sys::device_master(device, true).map_err(refused("DeviceMaster"))?;
            configured += 1;
        }
        sys::cap_drop(device).map_err(refused("CapDrop"))?;
        if record.class >> 16 == NETWORK {
            nobody_answers_for_it(bench, record.hwid)?;
        }
    }
    ensure(configured > 0, || String::from("no network device is free"))
}

/// What a device would do to memory ended with its last capability.
fn nobody_answers_for_it(bench: &Bench, hwid: u64) -> Outcome {
    let device = sys::device_alloc(bench.cores, Handle::SELF_RAM, hwid).map_err(refused("DeviceAlloc, again"))?;
    let command = sys::device_conf_read(device, 4, 2).map_err(refused("DeviceConfRead"))?;
    ensure(command & BUS_MASTER == 0, || String::from("it reaches memory after its last capability went"))?;
    sys::cap_drop(device).map_err(refused("CapDrop"))
}

/// Command, base addresses, interrupt line; and accesses that are none.
fn registers(device: Handle) -> Outcome {
    for offset in [0x04, 0x10, 0x24, 0x3c] {
        must_be(sys::device_conf_write(device, offset, 4, 0), Error::NoRights, "DeviceConfWrite of the kernel's")?;
    }
    for (offset, width) in [(0, 3), (1, 2), (4096, 4), (u64::MAX, 1)] {
        must_be(sys::device_conf_read(device, offset, width), Error::BadArgument, "DeviceConfRead of no register")?;
    }
    Ok(())
}

/// Each window that the list names is a segment of its size.
fn windows(device: Handle, windows: &[[u64; 2]]) -> Outcome {
    for (number, [base, bytes]) in (0..).zip(windows) {
        match sys::device_window(device, Handle::SELF_RAM, number) {
            Ok((segment, offset)) => {
                let (pages, ..) = sys::segment_stat(segment).map_err(refused("SegmentStat"))?;
                let fits = offset == base % PAGE_BYTES && pages == (offset + bytes).div_ceil(PAGE_BYTES);
                ensure(fits, || format!("{base:#x}+{bytes:#x} is {pages} pages at {offset:#x}"))?;
                sys::cap_drop(segment).map_err(refused("CapDrop"))?;
                of_a_reader(device, number)?;
            }
            // None, or one of ports.
            Err(error) => ensure(error == Error::NotFound, || format!("DeviceWindow: {}", error.name()))?,
        }
    }
    must_be(sys::device_window(device, Handle::SELF_RAM, 6), Error::NotFound, "DeviceWindow past the last")
}

/// Who may only read a device maps its registers to read them only.
fn of_a_reader(device: Handle, window: u64) -> Outcome {
    let weak = sys::cap_copy(device, Rights::READ).map_err(refused("CapCopy"))?;
    let (segment, _) = sys::device_window(weak, Handle::SELF_RAM, window).map_err(refused("DeviceWindow"))?;
    let map = |protection| sys::range_map(Handle::SELF_RANGE, WINDOW_PLACE, segment, 0, 1, protection);
    must_be(map(protection::READ | protection::WRITE), Error::NoRights, "RangeMap of a reader's window")?;
    map(protection::READ).map_err(refused("RangeMap"))?;
    // SAFETY: nothing is read there.
    unsafe { sys::range_unmap(Handle::SELF_RANGE, WINDOW_PLACE, 1) }.map_err(refused("RangeUnmap"))?;
    [segment, weak].into_iter().try_for_each(sys::cap_drop).map_err(refused("CapDrop"))
}

/// Nobody drives it, so it sends and reaches nothing meanwhile.
fn interrupts_and_memory(device: Handle, interrupts: u64) -> Outcome {
    let badge = 1 << runtime::OWN_BITS.start;
    let doorbell = sys::cap_mint(Handle::SELF_CONTEXT, Rights::ALL, badge).map_err(refused("CapMint"))?;
    let weak = sys::cap_copy(device, Rights::READ).map_err(refused("CapCopy"))?;
    must_be(sys::device_interrupt(weak, 0, doorbell), Error::NoRights, "DeviceInterrupt of a reader")?;
    must_be(sys::device_master(weak, true), Error::NoRights, "DeviceMaster of a reader")?;
    must_be(sys::device_interrupt(device, interrupts, doorbell), Error::NotFound, "DeviceInterrupt past the last")?;
    sys::device_interrupt(device, 0, doorbell).map_err(refused("DeviceInterrupt"))?;
    let command = || sys::device_conf_read(device, 4, 2).map_err(refused("DeviceConfRead"));
    for on in [true, false] {
        sys::device_master(device, on).map_err(refused("DeviceMaster"))?;
        ensure((command()? & BUS_MASTER != 0) == on, || format!("DeviceMaster({on}) has no effect"))?;
    }
    [weak, doorbell].into_iter().try_for_each(sys::cap_drop).map_err(refused("CapDrop"))
}
