//! The frame a signal handler finds on its stack (`struct rt_sigframe` of x86-64 Linux; System V
//! x86-64 ABI 3.4.1 for alignment).
//!
//! Layout from low addresses: return address, `ucontext`, `siginfo`, then, 64-byte aligned, the
//! 512-byte FXSAVE image. Building and taking apart is pure; the binary copies the bytes. What a
//! program left in a frame is decoded afresh: it can hurt only itself.

use abi::ProgramRegisters;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::signals::{Action, AlternateStack, Cause, action, code, number};

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
    /// See [`Cause::words`].
    words: [u64; 2],
    info_rest: [u64; 12],
}

const _: () = assert!(size_of::<SignalFrame>() == 440 && size_of::<MachineContext>() == 256);

/// `siginfo_t` on its own, as rt_sigtimedwait gives it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SignalInfo {
    signal: i32,
    errno: i32,
    code: i32,
    padding: i32,
    words: [u64; 2],
    rest: [u64; 12],
}

impl SignalInfo {
    /// What is known of a signal.
    pub fn new(signal: u8, cause: &Cause) -> SignalInfo {
        SignalInfo {
            signal: signal.into(),
            errno: cause.errno,
            code: cause.code,
            words: cause.words,
            ..SignalInfo::default()
        }
    }

    /// Is it of this signal?
    pub fn is_of(&self, number: u64) -> bool {
        u64::try_from(self.signal) == Ok(number)
    }

    /// What a program says of a signal it sends.
    pub fn cause(&self) -> Cause {
        Cause { code: self.code, errno: self.errno, words: self.words }
    }
}

/// Is it one that an exception in the program raises?
fn is_fault(signal: u8) -> bool {
    use number::*;
    matches!(signal, SIGILL | SIGTRAP | SIGBUS | SIGFPE | SIGSEGV)
}

/// `struct signalfd_siginfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SignalRecord {
    signal: u32,
    errno: i32,
    code: i32,
    process: u32,
    user: u32,
    descriptor: i32,
    timer: u32,
    band: u32,
    overrun: u32,
    trap: u32,
    status: i32,
    value: i32,
    pointer: u64,
    user_time: u64,
    system_time: u64,
    address: u64,
    rest: [u64; 6],
}

const _: () = assert!(size_of::<SignalRecord>() == 128);

impl SignalRecord {
    /// What is known of a signal.
    pub fn new(signal: u8, cause: &Cause) -> SignalRecord {
        let [first, second] = cause.words;
        let (low, high) = (first as u32, (first >> 32) as u32);
        let record =
            SignalRecord { signal: signal.into(), errno: cause.errno, code: cause.code, ..SignalRecord::default() };
        // Of a child, which may tell its end by any signal.
        if !is_fault(signal) && (code::CLD_EXITED..=code::CLD_CONTINUED).contains(&cause.code) {
            return SignalRecord { process: low, user: high, status: second as i32, ..record };
        }
        if is_fault(signal) && cause.code > 0 {
            return SignalRecord { address: first, ..record };
        }
        let told = SignalRecord { value: second as i32, pointer: second, ..record };
        match cause.code {
            code::SI_TIMER => SignalRecord { timer: low, overrun: high, ..told },
            _ => SignalRecord { process: low, user: high, ..told },
        }
    }
}

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
        fault_address: if is_fault(signal) && cause.code > 0 { cause.words[0] } else { 0 },
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
        errno: cause.errno,
        code: cause.code,
        padding: 0,
        words: cause.words,
        info_rest: [0; 12],
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
    use crate::signals::{ON_STACK, STACK_DISABLED};
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
        assert_eq!(offset_of!(SignalFrame, words) - offset_of!(SignalFrame, signal), 16);
        assert_eq!(offset_of!(MachineContext, rip), 128);
        assert_eq!(offset_of!(MachineContext, vector_state), 184);
    }

    #[test]
    fn handler_sees_an_aligned_stack_and_return_restores_everything() {
        let before = registers();
        for flags in [0, action::SA_ONSTACK] {
            let action = Action { handler: 0x1000, flags, restorer: 0x2000, mask: 0 };
            let alternate = AlternateStack { base: 0x10_0000, flags: 0, reserved: 0, bytes: 0x4000 };
            let built = build(&before, 10, &action, &Cause::of_process(0, 42), 0x55, &alternate);
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
            assert_eq!((built.registers.rax, built.registers.rip), (0, 0x1000));
            assert_eq!(built.registers.rflags & DIRECTION_AND_TRAP, 0);
            assert_eq!(address_at_return(built.registers.rsp + 8), built.address);
            assert_eq!(built.frame.restore(), (before, 0x55, built.vector_address));
        }
    }

    #[test]
    fn a_handler_is_told_the_address_of_a_fault_and_whether_it_is_on_the_alternate_stack() {
        let action = Action { handler: 0x1000, flags: action::SA_ONSTACK, restorer: 0x2000, mask: 0 };
        let mut alternate = AlternateStack { base: 0x10_0000, flags: 0, reserved: 0, bytes: 0x4000 };
        let frame = |signal, cause, alternate: &AlternateStack| {
            let built = build(&registers(), signal, &action, &cause, 0, alternate);
            (built.frame.machine.fault_address, built.frame.stack.flags)
        };
        assert_eq!(frame(number::SIGSEGV, Cause::fault(1, 0x1234), &alternate), (0x1234, 0));
        // Sent by somebody, and no fault though its code may look so.
        assert_eq!(frame(number::SIGSEGV, Cause::of_process(0, 42), &alternate), (0, 0));
        assert_eq!(frame(number::SIGCHLD, Cause::of_process(1, 42), &alternate), (0, 0));
        alternate.flags = STACK_DISABLED;
        assert_eq!(frame(10, Cause::default(), &alternate).1, STACK_DISABLED);
        // One that interrupts another there.
        alternate = AlternateStack { base: registers().rsp - 0x1000, flags: 0, ..alternate };
        assert_eq!(frame(10, Cause::default(), &alternate).1, ON_STACK);
    }

    #[test]
    fn what_a_program_says_of_a_signal_it_sends_is_as_the_kernel_says_it() {
        let cause = Cause { code: -1, errno: 5, words: [42, 3] };
        let info = SignalInfo::new(40, &cause);
        assert_eq!((info.cause(), info.is_of(40), info.is_of(41)), (cause, true, false));
        assert!(!SignalInfo { signal: -1, ..info }.is_of(u64::MAX));
    }

    /// Fields as signalfd(2) names them.
    #[test]
    fn a_record_has_what_the_code_says() {
        assert_eq!((offset_of!(SignalRecord, status), offset_of!(SignalRecord, address)), (40, 72));
        let child = Cause { code: code::CLD_EXITED, errno: 0, words: [42, 3] };
        let record = SignalRecord::new(number::SIGCHLD, &child);
        assert_eq!((record.process, record.status, record.pointer), (42, 3, 0));
        let fault = SignalRecord::new(number::SIGSEGV, &Cause::fault(1, 0x1234));
        assert_eq!((fault.address, fault.process), (0x1234, 0));
        let timer = SignalRecord::new(40, &Cause { words: [7 | 2 << 32, 0x1_0000_0005], ..Cause::timer(7, 0) });
        assert_eq!((timer.timer, timer.overrun, timer.value, timer.pointer), (7, 2, 5, 0x1_0000_0005));
    }
}
