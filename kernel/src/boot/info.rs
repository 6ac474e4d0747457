//! What boot found out, in two shapes: [`Machine`], filled by core 0 and read by all, and
//! [`CoreInfo`], the view `kernel_main` of one core gets.
//!
//! Invariants: `Machine` is complete before any other core starts, and never changes afterwards.
//! Tables have fixed bounds; the code that fills a table leaves out what does not fit and says so
//! on the console. This file does not know where the facts come from.

use super::acpi::Facts;
use crate::clock::PitSample;
use crate::core_local::Shared;
use crate::devices::{DeviceInfo, DeviceTable};
use crate::memory::{PhysAddr, PhysRange};

/// Most cores: what one xAPIC can name, 255 being the broadcast address.
pub const CORES_MAX: usize = 255;
/// Most separate RAM ranges one core is given.
pub const CORE_RANGES_MAX: usize = 4;
/// Longest command line kept, in bytes.
pub const COMMAND_LINE_BYTES: usize = 4096;

/// One core, as every core sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreEntry {
    /// Local APIC id.
    pub apic_id: u32,
    /// NUMA node (SRAT proximity domain); 0 where the machine does not say.
    pub node: u32,
}

/// What belongs to one core from the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoreShare {
    /// Contiguous frames for the core's kernel instance: stacks, data and the page tables that map
    /// them.
    pub instance: PhysRange,
    /// Where the image begins that the core runs: the loader's, or a copy of it with the tables
    /// that map the copy behind it.
    pub image: PhysAddr,
    /// Free memory, page aligned, not zeroed.
    pub ram: [PhysRange; CORE_RANGES_MAX],
}

/// Everything core 0 learnt about the machine.
pub struct Machine {
    /// Cores, boot core first.
    pub cores: [CoreEntry; CORES_MAX],
    /// How many of `cores` are valid.
    pub core_count: usize,
    /// The memory of each core.
    pub shares: [CoreShare; CORES_MAX],
    /// Usable RAM of the machine.
    pub total_ram_bytes: u64,
    /// Boot archive, empty if there is none.
    pub archive: PhysRange,
    command_line: [u8; COMMAND_LINE_BYTES],
    command_line_bytes: usize,
    /// What ACPI said.
    pub facts: Facts,
    /// Devices found.
    pub devices: DeviceTable,
    /// TSC ticks per second.
    pub tsc_hz: u64,
    /// Nanoseconds per TSC tick, 32.32 fixed point.
    pub ns_per_tick: u64,
    /// TSC ticks per nanosecond, 32.32 fixed point.
    pub ticks_per_ns: u64,
    /// Local APIC timer ticks per second, at the divider `arch::time` uses; 0 when the TSC deadline
    /// is used.
    pub apic_timer_hz: u64,
    /// The PIT as it was started.
    pub pit_at_boot: PitSample,
    /// TSC at the first instruction of the kernel.
    pub boot_tsc: u64,
    /// Index into [`MACHINE_NAMES`].
    pub name: usize,
}

/// Machine types as the banner names them.
pub const MACHINE_NAMES: [&str; 4] = ["unknown", "q35", "microvm", "pc"];

#[unsafe(link_section = ".bss.shared.machine")]
static MACHINE: Shared<Machine> = Shared::zeroed();

/// The machine, complete once core 0 has left boot.
pub fn machine() -> &'static Machine {
    // SAFETY: zero bytes are a valid `Machine` (integers, and options whose zero pattern is valid
    // by `DeviceTable`); written only during boot.
    unsafe { MACHINE.get() }
}

/// The machine, to be filled.
///
/// # Safety
/// Core 0 during boot, with no other reference alive.
pub unsafe fn machine_mut() -> &'static mut Machine {
    // SAFETY: by contract.
    unsafe { MACHINE.write_alone() }
}

impl Machine {
    /// Keeps a copy of the command line, cut at [`COMMAND_LINE_BYTES`] and at the first byte that
    /// is not printable ASCII.
    pub fn set_command_line(&mut self, text: &[u8]) {
        let bytes = text.iter().take(COMMAND_LINE_BYTES).take_while(|byte| (0x20..0x7f).contains(*byte)).count();
        self.command_line[..bytes].copy_from_slice(&text[..bytes]);
        self.command_line_bytes = bytes;
    }

    /// The command line.
    pub fn command_line(&self) -> &str {
        core::str::from_utf8(&self.command_line[..self.command_line_bytes]).unwrap_or("")
    }

    /// The cores of the machine.
    pub fn cores(&self) -> &[CoreEntry] {
        &self.cores[..self.core_count]
    }

    /// What `kernel_main` of `core` is told.
    pub fn core_info(&'static self, core: usize) -> CoreInfo {
        let ram = &self.shares[core].ram;
        let ranges = ram.iter().position(PhysRange::is_empty).unwrap_or(CORE_RANGES_MAX);
        CoreInfo {
            core,
            cores: self.cores(),
            ram: &ram[..ranges],
            archive: (!self.archive.is_empty()).then_some(self.archive),
            command_line: self.command_line(),
            devices: self.devices.all(),
            tsc_hz: self.tsc_hz,
            boot_tsc: self.boot_tsc,
        }
    }

    /// Where the kernel instance of `core` starts in physical memory.
    pub fn instance_base(&self, core: usize) -> Option<PhysAddr> {
        (core < self.core_count).then(|| self.shares[core].instance.base)
    }
}

/// What one core's kernel starts with.
#[derive(Clone, Copy)]
pub struct CoreInfo {
    /// This core's index; the boot core is 0.
    pub core: usize,
    /// All cores, by index.
    pub cores: &'static [CoreEntry],
    /// Free physical memory of this core, page aligned, not zeroed; not empty.
    pub ram: &'static [PhysRange],
    /// The boot archive, if the loader gave one.
    pub archive: Option<PhysRange>,
    /// The kernel's command line.
    pub command_line: &'static str,
    /// Devices of the machine.
    pub devices: &'static [DeviceInfo],
    /// TSC ticks per second.
    pub tsc_hz: u64,
    /// TSC at the kernel's first instruction.
    pub boot_tsc: u64,
}

impl CoreInfo {
    /// This core's NUMA node.
    pub fn node(&self) -> u32 {
        self.cores[self.core].node
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware;
    use crate::tests::machine::Played;

    fn played(fill: impl FnOnce(&mut Machine)) -> (Played, &'static Machine) {
        let played = Played::new(fill);
        (played, hardware::machine())
    }

    #[test]
    fn a_command_line_is_kept_up_to_what_is_no_text() {
        for (text, kept) in
            [(&b"one two"[..], "one two"), (b"one\ntwo", "one"), (b"a~\x7f", "a~"), (b"\xff", ""), (b"", "")]
        {
            let (_played, machine) = played(|machine| {
                machine.set_command_line(b"what was there before");
                machine.set_command_line(text);
            });
            assert_eq!(machine.command_line(), kept);
        }
        let (_played, machine) = played(|machine| machine.set_command_line(&[b'x'; COMMAND_LINE_BYTES + 1]));
        assert_eq!(machine.command_line().len(), COMMAND_LINE_BYTES);
    }

    #[test]
    fn a_core_is_told_what_is_its_own() {
        let range = |number: u64| PhysRange::new(number << 20, 1 << 20);
        let (played, machine) = played(|machine| {
            machine.core_count = 2;
            machine.cores[..3].copy_from_slice(&[4, 6, 8].map(|apic_id| CoreEntry { apic_id, node: apic_id + 1 }));
            machine.shares[0].ram = [range(1), range(2), PhysRange::default(), PhysRange::default()];
            machine.shares[1].ram = [range(3), range(4), range(5), range(6)];
            machine.shares[1].instance = range(7);
            machine.shares[2].instance = range(8);
            machine.archive = range(9);
            machine.tsc_hz = 5;
            machine.set_command_line(b"quiet");
        });
        let [first, second] = [0, 1].map(|core| machine.core_info(core));
        assert_eq!((first.core, first.ram, first.node()), (0, &[range(1), range(2)][..], 5));
        assert_eq!((second.core, second.ram.len(), second.node()), (1, CORE_RANGES_MAX, 7));
        assert_eq!((first.archive, first.command_line, first.tsc_hz), (Some(range(9)), "quiet", 5));
        assert_eq!(first.cores.iter().map(|core| core.apic_id).collect::<Vec<_>>(), [4, 6]);
        let bases = [0, 1, 2, CORES_MAX].map(|core| machine.instance_base(core));
        assert_eq!(bases, [Some(PhysAddr(0)), Some(range(7).base), None, None]);
        drop(played);
        let (_played, machine) = self::played(|machine| machine.core_count = 1);
        assert_eq!(machine.core_info(0).archive, None);
    }
}
