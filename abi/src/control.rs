//! The control page of an execution context: the one page kernel and program both write.
//!
//! How a Linux program enters its proxy. At a Linux system call the kernel stores RSP in
//! `program.rsp`, RCX's return address in `program.rip`, RFLAGS in `program.rflags`, the call
//! number in `program.rax`; sets `in_proxy` to 1; sets RSP to the proxy stack top and RIP to the
//! call entry; all other registers keep the program's values, which the proxy saves on its own
//! stack. The proxy goes back by itself (restore registers, clear `in_proxy`, load RSP, jump). At
//! an exception in program code (`in_proxy` 0), or when badge bits of `upcall_mask` become pending
//! while program code runs, the kernel stores *all* registers in `program` and the cause in
//! `exception`, sets `in_proxy` to 1 and goes to the upcall entry with an empty proxy stack; the
//! proxy returns with `ContextResume`. Bits that come while the proxy runs make the kernel add
//! `RUNG` to `in_proxy`, so that one exchange of that word both leaves the proxy and tells whether
//! something came before: a call that needs nobody else enters the kernel once, by its trap. A
//! native program that has asked for upcalls (`ContextUpcall`) gets them in the same way, for its
//! scheduler of threads in place of a proxy: `in_proxy` then says that the scheduler runs and is
//! not to be disturbed (Barrelfish's *disabled* flag). The end of a slice is one of the causes,
//! `ExceptionInfo::PREEMPTION`; with `in_proxy` set it passes in silence, and the program goes on
//! where it was. An exception with `in_proxy` not 0 ends the domain. The page is the program's own:
//! what it writes here can hurt only itself, and the kernel decodes it afresh at each use.

use crate::status::ExceptionInfo;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// All user registers, in the order the kernel stores them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ProgramRegisters {
    pub rax: u64,
    pub rbx: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rbp: u64,
    pub rsp: u64,
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub rip: u64,
    pub rflags: u64,
}

/// The page itself; the rest of it is free for the program.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ControlPage {
    /// 0 while program code runs, else [`INSIDE`](Self::INSIDE), set by the kernel on entry and
    /// cleared by the proxy; with [`RUNG`](Self::RUNG) as soon as the kernel holds badge bits of
    /// `upcall_mask` that it could not interrupt with.
    pub in_proxy: u64,
    /// Badge bits that interrupt program code with an upcall.
    pub upcall_mask: u64,
    /// The program's registers at entry.
    pub program: ProgramRegisters,
    /// Why the upcall came; `vector` is `ExceptionInfo::NOTIFICATION` for badge bits.
    pub exception: ExceptionInfo,
    /// Zero; vector registers stay live in the processor across upcalls, as the proxy uses none.
    pub reserved: u64,
}

impl ControlPage {
    /// `in_proxy`: proxy code runs.
    pub const INSIDE: u64 = 1;
    /// `in_proxy`: badge bits of `upcall_mask` wait for the proxy to look (`Wait`). A hint, which
    /// only the proxy takes back.
    pub const RUNG: u64 = 2;
}
