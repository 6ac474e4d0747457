//! A user's registers, and the two ways across the border: events come in through `entry.s`,
//! [`resume`] and [`idle`] go out.
//!
//! Invariants: the kernel runs with interrupts off on one stack per core and never returns through
//! it; each event starts on the fresh stack. TSS.RSP0 points to the end of the current
//! [`Registers`], so the CPU itself pushes a user's frame where it belongs (NOVA does the same);
//! the SYSCALL entry imitates it. User GS stays loaded while the kernel runs, which needs no
//! per-core pointer because its statics are core-local by mapping. Whatever a user put into its
//! registers, resuming it cannot fault in the kernel: what the processor saved is sane, flags that
//! came as data are made so by [`Registers::set_flags`], and rip is checked here.

use super::image;
use super::segments::{self, USER_CODE, USER_DATA};
use super::{apic, cpu, irq, power};
use core::mem::{offset_of, size_of};
use core::ptr::NonNull;

/// Carry, parity, adjust, zero, sign, trap, direction, overflow, alignment check, identification.
const USER_FLAGS: u64 = 0x0024_0dd5;
/// Interrupts on, and the bit that is always one.
const FIXED_FLAGS: u64 = 0x202;
/// Value of `entry` after SYSCALL; other entries leave their vector there.
pub(super) const ENTERED_BY_SYSCALL: u64 = 256;
/// Value of `entry` when all registers must be restored exactly.
const EXACT: u64 = 257;
const GENERAL_PROTECTION: u8 = 13;
/// Bits of an address in the lower half.
const CANONICAL_BITS: u32 = 47;

/// The register state of one execution context in user mode. The order is the one in which entries
/// push.
#[repr(C, align(16))]
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Registers {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub rax: u64,
    entry: u64,
    error: u64,
    pub rip: u64,
    cs: u64,
    rflags: u64,
    pub rsp: u64,
    ss: u64,
}

const _: () = assert!(size_of::<Registers>() == 176);
const _: () = assert!(offset_of!(Registers, r15) == 0 && offset_of!(Registers, entry) == 120);

impl Registers {
    /// Length of the instruction SYSCALL, after which `rip` is on entry.
    pub const CALL_BYTES: u64 = 2;

    /// All zero, interrupts on, user segments.
    pub const fn new() -> Registers {
        Registers {
            r15: 0,
            r14: 0,
            r13: 0,
            r12: 0,
            r11: 0,
            r10: 0,
            r9: 0,
            r8: 0,
            rdi: 0,
            rsi: 0,
            rbp: 0,
            rbx: 0,
            rdx: 0,
            rcx: 0,
            rax: 0,
            entry: EXACT,
            error: 0,
            rip: 0,
            cs: USER_CODE as u64,
            rflags: FIXED_FLAGS,
            rsp: 0,
            ss: USER_DATA as u64,
        }
    }

    /// Makes the next resume restore rcx and r11 too, which SYSRET would overwrite: after a signal,
    /// or when another wrote the registers.
    pub fn set_exact(&mut self) {
        self.entry = EXACT;
    }

    /// The flags.
    pub fn flags(&self) -> u64 {
        self.rflags
    }

    /// Flags that a user asks for, as far as they are a user's to set.
    pub fn set_flags(&mut self, flags: u64) {
        self.rflags = flags & USER_FLAGS | FIXED_FLAGS;
    }
}

impl Default for Registers {
    fn default() -> Self {
        Registers::new()
    }
}

/// Why the kernel was entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The current context executed SYSCALL.
    Syscall,
    /// The current context made an exception.
    Exception {
        /// Number, 0 to 31.
        vector: u8,
        /// Error code, 0 where the CPU gives none.
        error: u64,
        /// The address of a page fault; the bad rip of a resume that could not happen; else 0.
        address: u64,
    },
    /// A device interrupt; acknowledged at the local APIC already.
    Interrupt {
        /// As given by `irq::allocate_vector`.
        vector: u8,
    },
    /// The deadline of `time::set_deadline` has passed.
    Timer,
    /// Another core posted to the mailbox.
    Wake,
}

/// Where the next entry from user mode saves. The registers must stay valid and in place until
/// another call.
pub fn set_current(registers: Option<NonNull<Registers>>) {
    let end = registers.map_or(0, |registers| registers.as_ptr().wrapping_add(1) as u64);
    segments::set_entry_stack(end);
}

/// Returns to user mode.
///
/// # Safety
/// `registers` are the current ones ([`set_current`]), and the loaded address space is the one they
/// belong to.
#[inline(always)]
pub unsafe fn resume(registers: &mut Registers) -> ! {
    if registers.rip >> CANONICAL_BITS != 0 {
        // SAFETY: the stack left behind holds nothing that is needed again.
        unsafe { image::on_fresh_stack(bad_rip, registers.rip) }
    }
    let by_syscall = registers.entry == ENTERED_BY_SYSCALL;
    // SAFETY: the state is sane (above), current by contract, and rip is canonical, so neither
    // SYSRET nor IRETQ can fault in the kernel.
    unsafe { if by_syscall { image::leave_by_sysret(registers) } else { image::leave_by_iret(registers) } }
}

/// Waits for an interrupt with nothing current, on a fresh stack.
pub fn idle() -> ! {
    set_current(None);
    image::wait()
}

/// A rip the CPU could not return to is the user's general protection fault.
extern "C" fn bad_rip(rip: u64) -> ! {
    crate::trap::handle(Event::Exception { vector: GENERAL_PROTECTION, error: 0, address: rip })
}

/// From `entry.s`: SYSCALL.
pub(super) extern "C" fn entered_by_syscall() -> ! {
    crate::trap::handle_syscall()
}

/// From `entry.s`: exception or interrupt in user mode, or an interrupt that ended idling.
pub(super) extern "C" fn entered_by_vector(vector: u64, error: u64) -> ! {
    crate::trap::handle(event(vector as u8, error))
}

/// What a vector means; acknowledges what wants it.
#[inline(always)]
fn event(vector: u8, error: u64) -> Event {
    match vector {
        0..32 => {
            let address = if vector == 14 { cpu::fault_address() } else { 0 };
            Event::Exception { vector, error, address }
        }
        // The local APIC wants no acknowledgement of these; looking at the mailbox does no harm.
        irq::SPURIOUS_VECTOR => Event::Wake,
        _ => {
            apic::acknowledge();
            match vector {
                irq::TIMER_VECTOR => Event::Timer,
                irq::WAKE_VECTOR => Event::Wake,
                _ => Event::Interrupt { vector },
            }
        }
    }
}

/// What `entry.s` leaves on the stack for an exception that must not happen: in kernel mode, or
/// NMI, double fault, machine check.
#[repr(C)]
#[derive(Debug)]
pub(super) struct FaultFrame {
    general: [u64; 15],
    vector: u64,
    error: u64,
    rip: u64,
    cs: u64,
    rflags: u64,
    rsp: u64,
    ss: u64,
}

const GENERAL_NAMES: [&str; 15] =
    ["r15", "r14", "r13", "r12", "r11", "r10", "r9 ", "r8 ", "rdi", "rsi", "rbp", "rbx", "rdx", "rcx", "rax"];
const RBP: usize = 10;

/// From `entry.s`: our own bug, or the machine's. Reports and powers off.
pub(super) extern "C" fn fatal(frame: &FaultFrame) -> ! {
    use core::fmt::Write;
    let out = &mut super::serial::Direct;
    let core = super::cores::this_core();
    let _ = writeln!(
        out,
        "\npelago: kernel fault {} error {:#x} address {:#x} on core {core}\n  rip {:#018x} rsp {:#018x} flags {:#x} cs {:#x} ss {:#x}",
        frame.vector,
        frame.error,
        cpu::fault_address(),
        frame.rip,
        frame.rsp,
        frame.rflags,
        frame.cs,
        frame.ss
    );
    for (name, value) in GENERAL_NAMES.iter().zip(frame.general) {
        let _ = writeln!(out, "  {name} {value:#018x}");
    }
    crate::backtrace::print_kernel(out, frame.rip, frame.general[RBP]);
    power::power_off(crate::panic::STATUS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware;
    use crate::tests::machine::Played;

    #[test]
    fn each_vector_is_its_event_and_only_interrupts_are_acknowledged() {
        const ACKNOWLEDGED: (u64, u32) = (0xfee0_00b0, 0);
        let _machine = Played::new(|machine| machine.facts.local_apic = 0xfee0_0000);
        // A page fault's address is in a register of the processor, which the host has not.
        for vector in [0, 3, 13, 15, 31] {
            assert_eq!(event(vector, 7), Event::Exception { vector, error: 7, address: 0 });
        }
        assert_eq!(event(irq::SPURIOUS_VECTOR, 0), Event::Wake);
        assert_eq!(hardware::take_register_writes(), []);
        for (vector, meant) in [
            (32, Event::Interrupt { vector: 32 }),
            (irq::LAST_VECTOR, Event::Interrupt { vector: irq::LAST_VECTOR }),
            (irq::TIMER_VECTOR, Event::Timer),
            (irq::WAKE_VECTOR, Event::Wake),
        ] {
            assert_eq!((event(vector, 0), hardware::take_register_writes()), (meant, vec![ACKNOWLEDGED]));
        }
    }

    #[test]
    fn registers_that_another_wrote_are_all_restored() {
        let mut registers = Registers { entry: ENTERED_BY_SYSCALL, ..Registers::new() };
        registers.set_exact();
        assert_eq!((registers.entry, Registers::new().entry), (EXACT, EXACT));
    }

    #[test]
    fn hostile_flags_become_harmless() {
        let mut registers = Registers::new();
        registers.set_flags(u64::MAX);
        assert_eq!(registers.flags(), 0x0024_0fd7, "no IOPL, NT, VM; interrupts on");
    }
}
