//! The way of every core from `boot.s` to `start::kernel_main`.
//!
//! Core 0 alone, on the boot tables and a stack in `.shared`: read what loader and firmware say,
//! divide the memory, build the shared tables, find the devices, measure the clocks; then make its
//! own instance and go on in it. Every other core makes its instance and goes on in it. Until a
//! core has its instance it must not touch a core-local static; link.ld leaves them unmapped, so
//! doing it faults.

use super::instance::{self, Frames};
use super::{apic, cores, cpu, fpu, image, irq, power, segments, serial, time};
use crate::boot::acpi::Ecam;
use crate::boot::command_line;
use crate::boot::info::{CORES_MAX, CoreEntry, CoreInfo, MACHINE_NAMES, Machine, machine, machine_mut};
use crate::boot::memmap::FreeRam;
use crate::boot::split::{self, SHARE_BYTES_MIN};
use crate::boot::start_info::{Kind, StartInfo};
use crate::core_local::{CoreLocal, Shared};
use crate::devices::pci::{self, BarWindow};
use crate::devices::virtio_mmio;
use crate::mailbox;
use crate::memory::{DEVICE_MAP, PAGE_BYTES, PhysAddr, PhysRange, phys_to_virt};
use core::fmt::Write;

/// Page below 1 MiB on which other cores start: free on every PC once the loader has run, and never
/// handed out (memmap.rs).
pub const TRAMPOLINE_PAGE: u8 = 0x8;
/// Physical memory the boot tables of boot.s map.
const BOOT_MAP_BYTES: u64 = 4 << 30;
/// Exit status of a machine that cannot be used.
const UNUSABLE: u8 = 1;
/// Configuration space of one bus.
const ECAM_BUS_BYTES: u64 = 1 << 20;

/// APIC ids by core for boot.s; unused entries hold an id no core has.
#[unsafe(link_section = ".bss.shared.apic_ids")]
pub static APIC_IDS: Shared<[u32; CORES_MAX]> = Shared::zeroed();
/// Early stacks by core for boot.s.
#[unsafe(link_section = ".bss.shared.stacks")]
pub static STACKS: Shared<[u64; CORES_MAX]> = Shared::zeroed();

static CORE_INFO: CoreLocal<Option<CoreInfo>> = CoreLocal::new(None);

/// One line that says what is wrong and what to do, and the end.
fn give_up(text: core::fmt::Arguments<'_>) -> ! {
    let _ = writeln!(serial::Direct, "pelago: {text}");
    power::power_off(UNUSABLE)
}

fn line(text: core::fmt::Arguments<'_>) {
    let _ = writeln!(serial::Direct, "pelago: {text}");
}

/// Reads physical memory while the boot tables are in place.
fn read_physical(address: u64, bytes: usize) -> Option<&'static [u8]> {
    let end = address.checked_add(bytes as u64)?;
    // SAFETY: the boot tables map the first 4 GiB; loader and firmware data there do not change
    // while core 0 is the only core.
    (end <= BOOT_MAP_BYTES).then(|| unsafe { core::slice::from_raw_parts(phys_to_virt(PhysAddr(address)), bytes) })
}

/// From boot.s: the boot core, on the boot tables.
pub extern "C" fn boot_core(start_info: u32) -> ! {
    serial::init();
    // SAFETY: core 0, at boot, once each.
    unsafe {
        segments::fill_idt();
        apic::choose_mode();
    }
    segments::load_idt();
    let info = StartInfo::decode(u64::from(start_info), &read_physical).unwrap_or_else(|defect| {
        give_up(format_args!("no usable PVH start info ({defect:?}); start with `-kernel` in QEMU"))
    });
    // SAFETY: core 0 at boot; the reference is handed down, never duplicated.
    let free = learn(unsafe { machine_mut() }, &info);
    let machine = machine();
    line(format_args!(
        "boot {} cores, {} MiB, machine {}",
        machine.core_count,
        machine.total_ram_bytes.div_ceil(1 << 20),
        MACHINE_NAMES[machine.name]
    ));
    list_nodes(machine);
    // SAFETY: as above.
    divide(unsafe { machine_mut() }, free);
    list_memory(machine);
    let mut window = free_addresses(&info);
    let ram = info.memory().filter(|(_, kind)| *kind == Kind::Ram).map(|(range, _)| range);
    let mut frames = table_frames();
    // SAFETY: core 0, at boot, on the boot tables. From here on only RAM and mapped registers are
    // visible, so `info` is used up.
    unsafe { instance::build_shared(ram, &mut frames) }.unwrap_or_else(no_frames);
    find_devices(&mut window, &mut frames);
    prepare_clocks();
    keep_spare_frames(frames);
    prepare_other_cores();
    // SAFETY: shared tables are built, the instance memory is core 0's.
    unsafe { instance::enter(0, run) }
}

fn no_frames<T>() -> T {
    give_up(format_args!("page tables of this machine do not fit into the boot core's memory; give -m ..."))
}

/// Fills in what loader and firmware say; returns the RAM nobody uses.
fn learn(machine: &mut Machine, info: &StartInfo<'_>) -> FreeRam {
    machine.boot_tsc = image::tsc_at_entry();
    time::start_pit(machine);
    machine.set_command_line(info.command_line);
    machine.archive = info.archive;
    machine.facts.decode(info.rsdp, &read_physical);
    let mut free = FreeRam::default();
    for (range, kind) in info.memory() {
        if kind == Kind::Ram {
            free.add(PhysRange::new(
                range.base.0,
                crate::memory::DIRECT_MAP_BYTES.saturating_sub(range.base.0).min(range.bytes),
            ));
        }
    }
    machine.total_ram_bytes = info.memory().filter(|(_, kind)| *kind == Kind::Ram).map(|(range, _)| range.bytes).sum();
    for (range, _) in info.memory().filter(|(_, kind)| *kind == Kind::Other) {
        free.reserve(range);
    }
    free.reserve(image::image_range());
    free.reserve(machine.archive);
    if machine.facts.local_apic == 0 {
        machine.facts.local_apic = apic::DEFAULT_BASE;
    }
    if let Some(base) = command_line::number_of(machine.command_line(), "pelago.ecam") {
        let fits = base.is_multiple_of(256 * ECAM_BUS_BYTES) && base != 0 && base < BOOT_MAP_BYTES;
        machine.facts.ecam = if fits { Ecam { base, first_bus: 0, last_bus: 255 } } else { machine.facts.ecam };
    }
    list_cores(machine);
    machine.name = machine_name(machine);
    free
}

/// Boot core first, the others in the firmware's order. Without a MADT the boot core is all there
/// is.
fn list_cores(machine: &mut Machine) {
    let own = CoreEntry { apic_id: own_apic_id(), node: 0 };
    let known = machine.facts.cores;
    machine.cores[0] = known.all().iter().find(|core| core.apic_id == own.apic_id).copied().unwrap_or(own);
    let others = known.all().iter().filter(|core| core.apic_id != own.apic_id);
    machine.core_count = 1;
    for (slot, core) in machine.cores[1..].iter_mut().zip(others) {
        *slot = *core;
        machine.core_count += 1;
    }
    if known.lost > 0 {
        line(format_args!("{} cores are left out: at most {CORES_MAX} are used", known.lost));
    }
}

fn own_apic_id() -> u32 {
    let topology = cpu::cpuid(0xb);
    if topology.ebx != 0 { topology.edx } else { cpu::cpuid(1).ebx >> 24 }
}

/// One line per NUMA node, if the firmware tells of nodes.
fn list_nodes(machine: &Machine) {
    let affinities = machine.facts.affinities.all();
    let next = |after: Option<u32>| {
        let mut next = None;
        let mut look = |node: u32| {
            if after.is_none_or(|after| node > after) && next.is_none_or(|next| node < next) {
                next = Some(node);
            }
        };
        affinities.iter().for_each(|affinity| look(affinity.node));
        machine.cores().iter().for_each(|core| look(core.node));
        next
    };
    let nodes = || core::iter::successors(next(None), |node| next(Some(*node)));
    for node in nodes().filter(|_| !affinities.is_empty()) {
        let cores = machine.cores().iter().filter(|core| core.node == node).count();
        let memory: u64 = affinities.iter().filter(|part| part.node == node).map(|part| part.range.bytes).sum();
        let _ =
            write!(serial::Direct, "pelago: node {node}: {cores} cores, {} MiB, distances", memory.div_ceil(1 << 20));
        for other in nodes() {
            let _ = write!(serial::Direct, " {}", machine.facts.distances.between(node, other));
        }
        let _ = writeln!(serial::Direct);
    }
}

/// Index into [`MACHINE_NAMES`]. A name for people: nothing depends on it.
fn machine_name(machine: &Machine) -> usize {
    match (machine.facts.ecam.base != 0, machine.facts.hardware_reduced) {
        (_, true) => 2,
        (true, false) => 1,
        (false, false) if machine.facts.has_madt => 3,
        _ => 0,
    }
}

/// Gives every core its memory, or says that it is too little.
fn divide(machine: &mut Machine, free: FreeRam) {
    let Machine { cores, core_count, shares, facts, .. } = machine;
    let cores = &cores[..*core_count];
    let needs = instance::needs();
    if split::split(free, facts.affinities.all(), &facts.distances, cores, needs, shares).is_none() {
        let mib = machine.total_ram_bytes >> 20;
        let count = machine.core_count;
        let need = (count as u64 + 1) * SHARE_BYTES_MIN.max(needs.instance + (1 << 20)) + (32 << 20);
        give_up(format_args!("{mib} MiB is too little for {count} cores; give -m {} or more", need >> 20));
    }
}

/// Whose memory is whose, if the command line asks (`pelago.list=memory`): for those who look at it
/// from outside.
fn list_memory(machine: &Machine) {
    if !command_line::values(machine.command_line(), "pelago.list").any(|what| what == "memory") {
        return;
    }
    for (core, share) in machine.shares[..machine.core_count].iter().enumerate() {
        let bits = instance::place(share.instance.base, mailbox::place());
        let _ = write!(serial::Direct, "pelago: memory of core {core}: wake bits {:#x}+{:#x}", bits.base.0, bits.bytes);
        for range in [share.instance].iter().chain(&share.ram).filter(|range| !range.is_empty()) {
            let _ = write!(serial::Direct, ", {:#x}+{:#x}", range.base.0, range.bytes);
        }
        let _ = writeln!(serial::Direct);
    }
}

/// Frames for shared tables: core 0's first range, as far as the boot tables map it.
fn table_frames() -> Frames {
    let range = machine().shares[0].ram[0];
    Frames(if range.end().0 <= BOOT_MAP_BYTES {
        range
    } else {
        PhysRange::new(range.base.0, BOOT_MAP_BYTES.saturating_sub(range.base.0))
    })
}

/// What the tables did not need stays core 0's.
fn keep_spare_frames(frames: Frames) {
    // SAFETY: core 0 at boot; no other reference is alive.
    let range = &mut unsafe { machine_mut() }.shares[0].ram[0];
    let end = range.end().0;
    *range = PhysRange::new(frames.0.base.0, end - frames.0.base.0);
}

/// Maps the registers the kernel uses, finds PCI functions and virtio-mmio windows.
fn find_devices(addresses: &mut BarWindow, frames: &mut Frames) {
    let mut map = |range: PhysRange| instance::map_registers(range, frames).unwrap_or_else(no_frames);
    for apic in machine().facts.ioapics.all() {
        map(PhysRange::new(apic.base, PAGE_BYTES as u64));
    }
    let mut add = |device| {
        line(format_args!("device {device}"));
        // SAFETY: core 0 at boot; the reference ends with this statement.
        if !unsafe { machine_mut() }.devices.push(device) {
            line(format_args!("the device table is full: the device above is not used"));
        }
    };
    let ecam = machine().facts.ecam;
    if ecam.base != 0 {
        map(ecam_range(ecam));
        pci::scan(ecam, addresses, &mut add);
    }
    for (index, text) in command_line::values(machine().command_line(), "virtio_mmio.device").enumerate() {
        let Some(window) = virtio_mmio::decode(text) else {
            line(format_args!("virtio_mmio.device={text} is not SIZE@BASE:LINE; ignored"));
            continue;
        };
        map(window.registers);
        let base = DEVICE_MAP + window.registers.base.0;
        let read = |offset: u64| {
            // SAFETY: the window is mapped, at least 256 bytes long, and aligned to 4.
            unsafe { core::ptr::with_exposed_provenance::<u32>((base + offset) as usize).read_volatile() }
        };
        if let Some(device) = virtio_mmio::probe(index as u32, window, read) {
            add(device);
        }
    }
    for device in machine().devices.all() {
        if let Some(msix) = device.msix {
            map(PhysRange::new(msix.table.0, u64::from(msix.entries) * 16));
        }
    }
}

fn ecam_range(ecam: Ecam) -> PhysRange {
    let buses = if ecam.base == 0 { 0 } else { u64::from(ecam.last_bus - ecam.first_bus) + 1 };
    PhysRange::new(ecam.base + u64::from(ecam.first_bus) * ECAM_BUS_BYTES, buses * ECAM_BUS_BYTES)
}

/// Addresses below 4 GiB that are neither memory, nor reserved, nor configuration space, nor a
/// known device's.
fn free_addresses(info: &StartInfo<'_>) -> BarWindow {
    let mut taken = [PhysRange::default(); 160];
    let facts = &machine().facts;
    let fixed = facts.ioapics.all().iter().map(|apic| PhysRange::new(apic.base, PAGE_BYTES as u64));
    let windows = command_line::values(machine().command_line(), "virtio_mmio.device").filter_map(virtio_mmio::decode);
    let all = info
        .memory()
        .map(|(range, _)| range)
        .chain(fixed)
        .chain([ecam_range(facts.ecam)])
        .chain(windows.map(|window| window.registers));
    for (slot, range) in taken.iter_mut().zip(all) {
        *slot = range;
    }
    BarWindow::below_4_gib(&taken)
}

fn prepare_clocks() {
    irq::mask_legacy();
    apic::enable(irq::SPURIOUS_VECTOR);
    // SAFETY: core 0 at boot; no other reference is alive (`calibrate` uses only its argument and
    // the APIC, whose address does not change).
    time::calibrate(unsafe { machine_mut() });
}

/// Copies the trampoline, tells boot.s who is who, and resets the others: firmware may have left
/// them in code of its own.
fn prepare_other_cores() {
    let code = image::trampoline();
    let page = PhysAddr(u64::from(TRAMPOLINE_PAGE) << 12);
    // SAFETY: nobody uses that page (see `TRAMPOLINE_PAGE`), and the code is shorter than it; the
    // tables are core 0's at boot.
    unsafe {
        core::ptr::copy_nonoverlapping(code.as_ptr(), phys_to_virt(page), code.len());
        let (ids, stacks) = (APIC_IDS.write_alone(), STACKS.write_alone());
        ids.fill(u32::MAX);
        for (core, entry) in machine().cores().iter().enumerate() {
            ids[core] = entry.apic_id;
            stacks[core] = instance::early_stack(core);
        }
    }
    apic::send_init_to_others();
}

/// From boot.s: any other core, on the boot tables and its own stack.
pub extern "C" fn other_core(core: u32) -> ! {
    segments::load_idt();
    // SAFETY: boot.s found this core's number by its APIC id; core 0 finished the shared tables
    // before it started anyone.
    unsafe { instance::enter(core as usize, run) }
}

/// Every core, in its own instance.
extern "C" fn run(core: u64) -> ! {
    let core = core as usize;
    instance::remember_root();
    cores::set_this_core(core);
    cpu::enable_features();
    segments::load();
    if core == 0 {
        // SAFETY: core 0, its TSS loaded, nobody else running yet; afterwards nothing writes shared
        // statics.
        unsafe {
            super::bases::set_fsgsbase(cpu::has_fsgsbase());
            segments::give_fatal_vectors_a_stack();
            instance::seal_image().expect("the tables of the images are counted");
        }
    }
    instance::enter_image(core);
    fpu::restore(&fpu::Area::new());
    apic::enable(irq::SPURIOUS_VECTOR);
    time::init_core();
    CORE_INFO.with(|info| *info = Some(machine().core_info(core)));
    // SAFETY: core-local, written just now and never again.
    match unsafe { &*CORE_INFO.as_ptr() } {
        Some(info) => crate::start::kernel_main(info),
        None => unreachable!("written above"),
    }
}
