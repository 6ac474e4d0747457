//! From one stack to another.
//!
//! A stack that is left has on it, from its top down, a return address and the registers that a
//! function keeps for its caller; [`switch`] takes them from there again.

use abi::Call;
use core::arch::global_asm;

use crate::threads::Entry;

global_asm!(
    // (rdi: where to keep our stack pointer, rsi: the stack to go on with)
    ".globl threads_switch",
    "threads_switch:",
    "push rbp", "push rbx", "push r12", "push r13", "push r14", "push r15",
    "mov [rdi], rsp",
    "mov rsp, rsi",
    "pop r15", "pop r14", "pop r13", "pop r12", "pop rbx", "pop rbp",
    "ret",
    // (rdi: where to keep our stack pointer): goes on with the registers in the control page.
    ".globl threads_resume",
    "threads_resume:",
    "push rbp", "push rbx", "push r12", "push r13", "push r14", "push r15",
    "mov [rdi], rsp",
    "mov rax, {resume}",
    "syscall",
    // Refused: the registers were never those of a thread.
    "ud2",
    // The first return of a new thread leads here; its function and argument wait in kept
    // registers.
    ".globl threads_begin",
    "threads_begin:",
    "xor ebp, ebp",
    "mov rdi, r12", "mov rsi, r13",
    "call {begin}",
    "ud2",
    resume = const Call::ContextResume.number(),
    begin = sym crate::threads::begin,
);

unsafe extern "C" {
    /// Leaves this stack for another; returns when somebody comes back to this one.
    ///
    /// # Safety
    /// `to` was kept by one of these two functions, or made by [`first`], and not gone on with
    /// since; `keep` stays valid until it is used.
    #[link_name = "threads_switch"]
    pub unsafe fn switch(keep: *mut u64, to: u64);
    /// Leaves this stack for the registers in the control page.
    ///
    /// # Safety
    /// The control page holds registers that the kernel put there for an upcall, of a thread that
    /// has not gone on since.
    #[link_name = "threads_resume"]
    pub unsafe fn resume(keep: *mut u64);
    #[link_name = "threads_begin"]
    safe static BEGIN: u8;
}

/// Words that [`switch`] takes from a stack.
const KEPT: usize = 7;

/// Writes to the top of a new stack what `switch` takes from it for `entry(argument)`, and gives
/// the stack pointer.
///
/// # Safety
/// `top` is a multiple of 16 with room below it that is the new thread's alone.
pub unsafe fn first(top: u64, entry: Entry, argument: u64) -> u64 {
    let begin = core::ptr::from_ref(&BEGIN) as u64;
    // r15, r14, r13, r12, rbx, rbp, return address; then a word, so that `begin` is called with a
    // stack as it expects.
    let words: [u64; KEPT] = [0, 0, argument, entry as usize as u64, 0, 0, begin];
    let at = (top as usize - 16 - size_of_val(&words)) as *mut [u64; KEPT];
    // SAFETY: by contract.
    unsafe { at.write(words) };
    at as u64
}
