//! Upcalls to a program's proxy and its scheduler of threads, and the return from them.
//!
//! Invariants: a proxy is entered only while its program runs (`in_proxy` is not set), with the
//! program's registers in the control page; what a program asks for as registers is harmless.

use super::context::Proxy;
use super::{Context, Ptr};
use crate::arch::context::Registers;
use abi::{ControlPage, ExceptionInfo, ProgramRegisters};

/// Enters the proxy for a Linux call, with the program's registers in the control page, on the
/// proxy's own stack.
pub fn enter_proxy(context: Ptr<Context>, (call_entry, stack_top): (u64, u64)) {
    context.with_registers(|registers| {
        context.set_call([registers.rip, registers.rsp, registers.flags(), registers.rax]);
        registers.rip = call_entry;
        registers.rsp = stack_top;
    });
    context.set_in_proxy(ControlPage::INSIDE);
}

/// Tells of badge bits that are pending: interrupts program code that asked for that, and has its
/// proxy, if that runs, look before it returns to the program.
pub fn interrupt_program(context: Ptr<Context>) {
    let Some(proxy) = context.proxy.get() else { return };
    if context.pending.get() & context.upcall_mask() == 0 {
        return;
    }
    if context.in_proxy() {
        context.set_in_proxy(ControlPage::INSIDE | ControlPage::RUNG);
    } else {
        upcall(context, proxy, ExceptionInfo { vector: ExceptionInfo::NOTIFICATION, ..ExceptionInfo::default() });
    }
}

/// Has a context that is preempted, and asked for preemption upcalls, begin with one when it runs
/// again.
#[inline(never)]
pub fn preempted(context: Ptr<Context>) {
    if let Some(proxy) = context.proxy.get()
        && context.wants_preemption_upcalls.get()
        && !context.in_proxy()
    {
        upcall(context, proxy, ExceptionInfo { vector: ExceptionInfo::PREEMPTION, ..ExceptionInfo::default() });
    }
}

/// Interrupts the program: all its registers go to the control page.
pub fn upcall(context: Ptr<Context>, proxy: Proxy, exception: ExceptionInfo) {
    context.with_registers(|registers| {
        context.set_program(&to_program(registers), exception);
        registers.rip = proxy.upcall_entry;
        registers.rsp = proxy.stack_top;
        registers.set_exact();
    });
    context.set_in_proxy(ControlPage::INSIDE);
}

/// Copies what both records have under the same names.
macro_rules! copy {
    ($from:ident to $to:ident: $($name:ident)*) => { $($to.$name = $from.$name;)* };
}

fn to_program(registers: &Registers) -> ProgramRegisters {
    let mut program = ProgramRegisters { rflags: registers.flags(), ..ProgramRegisters::default() };
    copy!(registers to program: rax rbx rcx rdx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip);
    program
}

/// Loads the registers that a program asks for; no value of them does harm (see `arch::context`).
pub fn from_program(program: &ProgramRegisters, registers: &mut Registers) {
    copy!(program to registers: rax rbx rcx rdx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip);
    registers.set_flags(program.rflags);
    registers.set_exact();
}
