//! The frame a signal handler finds on its stack (`struct rt_sigframe` of x86-64 Linux; System V
//! x86-64 ABI 3.4.1 for alignment).
//!
//! Layout from low addresses: return address, `ucontext`, `siginfo`, then, 64-byte aligned, the
//! 512-byte FXSAVE image. Building and taking apart is pure; the binary copies the bytes. What a
//! program left in a frame is decoded afresh: it can hurt only itself.

use abi::ProgramRegisters;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::signals::{Action, AlternateStack, Cause, action};

/// Bytes below the stack pointer that belong to the interrupted function (ABI's red zone).
pub const RED_ZONE_BYTES: u64 = 128;
/// FXSAVE image.
pub const VECTOR_BYTES: u64 = 512;

/// `struct sigcontext`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct MachineContext {
    r8_to_r15: [u64; 8],
    rdi: u64,
    rsi: u64,
    rbp: u64,
    rbx: u64,
    rdx: u64,
    rax: u64,
    rcx: u64,
    rsp: u64,
    rip: u64,
    rflags: u64,
    selectors: [u16; 4],
    error: u64,
    trap: u64,
    old_mask: u64,
    fault_address: u64,
    vector_state: u64,
    reserved: [u64; 8],
}

/// `struct rt_sigframe`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SignalFrame {
    return_address: u64,
    flags: u64,
    link: u64,
    stack: AlternateStack,
    machine: MachineContext,
    mask: u64,
    signal: i32,
    errno: i32,
    code: i32,
    padding: i32,
    /// Union of siginfo: process and user id, or the fault address.
    sender_or_address: u64,
    info_rest: [u64; 13],
}

const _: () = assert!(size_of::<SignalFrame>() == 440 && size_of::<MachineContext>() == 256);

/// A frame ready to be copied, and the registers to enter the handler with.
#[derive(Clone, Copy, Debug)]
pub struct Built {
    /// The frame and where it goes.
    pub frame: SignalFrame,
    /// Its address.
    pub address: u64,
    /// Where the FXSAVE image goes (64-byte aligned).
    pub vector_address: u64,
    /// Registers at the handler's first instruction.
    pub registers: ProgramRegisters,
}

/// User code and data selectors as Linux programs see them.
const SELECTORS: [u16; 4] = [0x33, 0, 0, 0x2b];

/// Lays out the frame. `mask` is what `rt_sigreturn` will restore.
pub fn build(
    before: &ProgramRegisters,
    signal: u8,
    action: &Action,
    cause: &Cause,
    mask: u64,
    alternate: &AlternateStack,
) -> Built {
    let switches = action.flags & action::SA_ONSTACK != 0
        && alternate.flags & crate::signals::STACK_DISABLED == 0
        && !alternate.holds(before.rsp);
    let top =
        if switches { alternate.base.wrapping_add(alternate.bytes) } else { before.rsp.wrapping_sub(RED_ZONE_BYTES) };
    let vector_address = top.wrapping_sub(VECTOR_BYTES) & !63;
    // At the handler's entry the stack pointer is 8 past a 16-byte boundary, as after a call.
    let address = (vector_address.wrapping_sub(size_of::<SignalFrame>() as u64) & !15).wrapping_sub(8);
    let machine = MachineContext {
        r8_to_r15: [before.r8, before.r9, before.r10, before.r11, before.r12, before.r13, before.r14, before.r15],
        rdi: before.rdi,
        rsi: before.rsi,
        rbp: before.rbp,
        rbx: before.rbx,
        rdx: before.rdx,
        rax: before.rax,
        rcx: before.rcx,
        rsp: before.rsp,
        rip: before.rip,
        rflags: before.rflags,
        selectors: SELECTORS,
        error: 0,
        trap: 0,
        old_mask: mask,
        fault_address: if cause.code > 0 { cause.address } else { 0 },
        vector_state: vector_address,
        reserved: [0; 8],
    };
    let frame = SignalFrame {
        return_address: action.restorer,
        flags: 0,
        link: 0,
        stack: AlternateStack { flags: if alternate.holds(before.rsp) { 1 } else { alternate.flags }, ..*alternate },
        machine,
        mask,
        signal: i32::from(signal),
        errno: 0,
        code: cause.code,
        padding: 0,
        sender_or_address: if cause.code > 0 { cause.address } else { u64::from(cause.process) },
        info_rest: [0; 13],
    };
    let info = address + core::mem::offset_of!(SignalFrame, signal) as u64;
    let context = address + core::mem::offset_of!(SignalFrame, flags) as u64;
    let registers = ProgramRegisters {
        rdi: u64::from(signal),
        rsi: info,
        rdx: context,
        rax: 0,
        rip: action.handler,
        rsp: address,
        rflags: before.rflags & !DIRECTION_AND_TRAP,
        ..*before
    };
    Built { frame, address, vector_address, registers }
}

/// RFLAGS.DF and TF are clear in a handler.
const DIRECTION_AND_TRAP: u64 = 0x500;

/// Where `rt_sigreturn` finds the frame: the handler's `ret` took the return address off.
pub fn address_at_return(stack_pointer: u64) -> u64 {
    stack_pointer.wrapping_sub(8)
}

impl SignalFrame {
    /// The registers to go on with, the mask to restore, and the address of the FXSAVE image (0 =
    /// none).
    pub fn restore(&self) -> (ProgramRegisters, u64, u64) {
        let m = &self.machine;
        let [r8, r9, r10, r11, r12, r13, r14, r15] = m.r8_to_r15;
        let registers = ProgramRegisters {
            rax: m.rax,
            rbx: m.rbx,
            rcx: m.rcx,
            rdx: m.rdx,
            rsi: m.rsi,
            rdi: m.rdi,
            rbp: m.rbp,
            rsp: m.rsp,
            r8,
            r9,
            r10,
            r11,
            r12,
            r13,
            r14,
            r15,
            rip: m.rip,
            rflags: m.rflags,
        };
        (registers, self.mask, m.vector_state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    fn registers() -> ProgramRegisters {
        ProgramRegisters {
            rax: 1,
            rbx: 2,
            rcx: 3,
            rdx: 4,
            rsi: 5,
            rdi: 6,
            rbp: 7,
            rsp: 0x7fff_0000_1238,
            r8: 8,
            r9: 9,
            r10: 10,
            r11: 11,
            r12: 12,
            r13: 13,
            r14: 14,
            r15: 15,
            rip: 0x40_0000,
            rflags: 0x602,
        }
    }

    /// Offsets as the C library's `ucontext_t` and `siginfo_t` have them (measured with a C
    /// compiler).
    #[test]
    fn layout_is_the_c_librarys() {
        let context = offset_of!(SignalFrame, flags);
        assert_eq!(context, 8);
        assert_eq!(offset_of!(SignalFrame, machine) - context, 40);
        assert_eq!(offset_of!(SignalFrame, mask) - context, 296);
        assert_eq!(offset_of!(SignalFrame, signal), 312);
        assert_eq!(offset_of!(SignalFrame, sender_or_address) - offset_of!(SignalFrame, signal), 16);
        assert_eq!(offset_of!(MachineContext, rip), 128);
        assert_eq!(offset_of!(MachineContext, vector_state), 184);
    }

    #[test]
    fn handler_sees_an_aligned_stack_and_return_restores_everything() {
        let before = registers();
        for flags in [0, action::SA_ONSTACK] {
            let action = Action { handler: 0x1000, flags, restorer: 0x2000, mask: 0 };
            let alternate = AlternateStack { base: 0x10_0000, flags: 0, reserved: 0, bytes: 0x4000 };
            let built = build(&before, 10, &action, &Cause { process: 42, ..Cause::default() }, 0x55, &alternate);
            assert_eq!(built.address % 16, 8);
            assert_eq!(built.vector_address % 64, 0);
            assert_eq!(alternate.holds(built.address), flags != 0);
            if flags == 0 {
                assert!(built.vector_address + VECTOR_BYTES <= before.rsp - RED_ZONE_BYTES);
            }
            assert!(built.address + 440 <= built.vector_address);
            assert_eq!(
                (built.registers.rdi, built.registers.rsi, built.registers.rdx),
                (10, built.address + 312, built.address + 8)
            );
            assert_eq!(built.registers.rflags & DIRECTION_AND_TRAP, 0);
            assert_eq!(address_at_return(built.registers.rsp + 8), built.address);
            assert_eq!(built.frame.restore(), (before, 0x55, built.vector_address));
        }
    }
}
