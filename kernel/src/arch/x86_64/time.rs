//! The clock (TSC) and this core's timer (local APIC timer, or TSC deadline where the CPU has it).
//!
//! Both rates are found once, by core 0: from the hypervisor's or the CPU's own word where there is
//! one, else against the PIT, whose 1.193182 MHz is the one rate every PC shares. The PIT runs from
//! the kernel's start on, so the TSC is compared over all of boot. Its channel 0 is read, not the
//! speaker's channel 2, because microvm has no port 0x61. TSCs are taken to run together on all
//! cores, as every hypervisor and emulator arranges.

use super::cpu::{self, msr, port_read8, port_write8};
use super::{apic, irq};
use crate::boot::info::{Machine, machine};
use crate::clock::{self, PIT_HZ, PitSample, ratio, scale};

const PIT_DATA: u16 = 0x40;
const PIT_COMMAND: u16 = 0x43;
/// How long rates are compared at the end: 4 ms give 0.02 % of accuracy, enough for the APIC timer
/// and to count how often the PIT has gone round since boot.
const CALIBRATION_TICKS: u64 = PIT_HZ / 250;
/// The TSC is compared for so long at least, boot included: 20 ms give 0.004 %.
const BASELINE_TICKS: u64 = PIT_HZ / 50;
/// Limit of the comparison in polls, for machines without a PIT.
const CALIBRATION_POLLS_MAX: u32 = 120_000;
/// Looks for one sample.
const SAMPLE_TRIES: u32 = 5;
/// What is assumed when nothing tells the rate: wrong clocks, but a system that runs.
const FALLBACK_HZ: u64 = 1_000_000_000;
const DIVIDE_BY_16: u32 = 3;
const DEADLINE_MODE: u32 = 2 << 17;
const MASKED: u32 = 1 << 16;

/// The time-stamp counter.
pub fn tsc() -> u64 {
    // SAFETY: reading the counter is allowed at every privilege (CR4.TSD is clear).
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Nanoseconds since the kernel's first instruction.
#[inline(never)]
pub fn now_ns() -> u64 {
    now_ns_inlined()
}

/// The same without a call, for the switch of a portal call.
#[inline(always)]
pub fn now_ns_inlined() -> u64 {
    let machine = machine();
    scale(tsc().wrapping_sub(machine.boot_tsc), machine.ns_per_tick)
}

/// Arms the timer for `at_ns` of [`now_ns`] (a time in the past: at once), or disarms it. It may
/// fire early, never much later: compare and arm it again.
pub fn set_deadline(at_ns: Option<u64>) {
    let machine = machine();
    if machine.apic_timer_hz == 0 {
        let value = at_ns.map_or(0, |at| clock::tsc_deadline(machine.boot_tsc, at, machine.ticks_per_ns));
        // SAFETY: the timer raises TIMER_VECTOR.
        unsafe { cpu::write_msr(msr::TSC_DEADLINE, value) };
        return;
    }
    let count = at_ns.map_or(0, |at| clock::timer_count(at.saturating_sub(now_ns()), machine.apic_timer_hz));
    apic::write(apic::register::TIMER_INITIAL, count);
}

/// Prepares this core's timer; its APIC is on.
pub fn init_core() {
    let deadline = if machine().apic_timer_hz == 0 { DEADLINE_MODE } else { 0 };
    apic::write(apic::register::TIMER_DIVIDER, DIVIDE_BY_16);
    apic::write(apic::register::TIMER, u32::from(irq::TIMER_VECTOR) | deadline);
    set_deadline(None);
}

/// Starts the PIT and looks at it; `calibrate` looks again. Core 0, first of all.
pub fn start_pit(machine: &mut Machine) {
    // Mode 0: counts down once and stays silent afterwards, but goes round; its interrupt is
    // masked.
    port_write8(PIT_COMMAND, 0x30);
    port_write8(PIT_DATA, 0xff);
    port_write8(PIT_DATA, 0xff);
    machine.pit_at_boot = look(|| 0).0;
}

/// Finds both rates. Core 0 during boot, its APIC on, after `start_pit`.
pub fn calibrate(machine: &mut Machine) {
    let told = told_tsc_hz();
    let has_deadline = cpu::cpuid(1).ecx & 1 << 24 != 0;
    let measured = if told.is_some() && has_deadline { None } else { measure(machine.pit_at_boot) };
    machine.tsc_hz = told.or(measured.map(|(tsc_hz, _)| tsc_hz)).unwrap_or(FALLBACK_HZ);
    let timer_hz = measured.map_or(FALLBACK_HZ / 16, |(_, timer_hz)| timer_hz);
    machine.apic_timer_hz = if has_deadline { 0 } else { timer_hz };
    machine.ns_per_tick = ratio(1_000_000_000, machine.tsc_hz);
    machine.ticks_per_ns = ratio(machine.tsc_hz, 1_000_000_000);
}

/// The TSC's rate by the hypervisor's timing leaf (kHz) or by CPUID 15h (crystal and ratio).
fn told_tsc_hz() -> Option<u64> {
    if cpu::has_hypervisor() {
        let khz = cpu::cpuid(0x4000_0010).eax;
        if khz != 0 {
            return Some(u64::from(khz) * 1000);
        }
    }
    let leaf = cpu::cpuid(0x15);
    let told = leaf.eax != 0 && leaf.ebx != 0 && leaf.ecx != 0;
    told.then(|| u64::from(leaf.ecx) * u64::from(leaf.ebx) / u64::from(leaf.eax))
}

/// Rates of TSC and APIC timer, by the PIT. `None`: there is no PIT.
fn measure(at_boot: PitSample) -> Option<(u64, u64)> {
    apic::write(apic::register::TIMER_DIVIDER, DIVIDE_BY_16);
    apic::write(apic::register::TIMER, MASKED);
    apic::write(apic::register::TIMER_INITIAL, u32::MAX);
    let first = sample();
    let last = sample_when(|last| u64::from(first.pit.count.wrapping_sub(last.count)) >= CALIBRATION_TICKS)?;
    apic::write(apic::register::TIMER_INITIAL, 0);
    let pit_ticks = u64::from(first.pit.count.wrapping_sub(last.pit.count));
    let timer_hz = u64::from(first.timer - last.timer) * PIT_HZ / pit_ticks;
    let rough_hz = (last.pit.tsc - first.pit.tsc) * PIT_HZ / pit_ticks;
    let end = sample_when(|end| clock::pit_ticks(at_boot, end, rough_hz) >= BASELINE_TICKS)?;
    Some((clock::tsc_hz(at_boot, end.pit, rough_hz), timer_hz))
}

/// A sample that will do. `None`: none does for long, as on a machine without a PIT.
fn sample_when(will_do: impl Fn(PitSample) -> bool) -> Option<Sample> {
    (0..CALIBRATION_POLLS_MAX).map(|_| sample()).find(|sample| will_do(sample.pit))
}

/// PIT, TSC and APIC timer at one time.
#[derive(Clone, Copy)]
struct Sample {
    pit: PitSample,
    timer: u32,
}

/// Reads PIT and timer together.
fn sample() -> Sample {
    let (pit, timer) = look(|| apic::read(apic::register::TIMER_CURRENT));
    Sample { pit, timer }
}

/// The PIT's count with the TSC, and what `other` reads right after, as close together as an
/// emulator allows: of a few tries the tightest.
fn look(other: impl Fn() -> u32) -> (PitSample, u32) {
    let mut best = (PitSample::default(), 0);
    let mut best_width = u64::MAX;
    for _ in 0..SAMPLE_TRIES {
        let before = tsc();
        port_write8(PIT_COMMAND, 0);
        let after = tsc();
        let read = other();
        let low = port_read8(PIT_DATA);
        let count = u16::from(port_read8(PIT_DATA)) << 8 | u16::from(low);
        if after - before < best_width {
            best_width = after - before;
            best = (PitSample { count, tsc: before + (after - before) / 2 }, read);
        }
    }
    best
}
