//! What a program may not do, or does to itself: a few instructions each, for a
//! [`crate::ScriptedDomain`] to run into.
//!
//! Each has [`BYTES`] of its own. What survives goes back to where the scripted domain does what it
//! is asked for.

use core::arch::global_asm;
use core::ops::Range;

/// Where they begin in a worker's page of text.
pub(crate) const OFFSET: u64 = 1024;
/// Room of each.
pub(crate) const BYTES: u64 = 64;

/// How it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// By this exception.
    By(u8),
    /// It goes on, or ends by this exception: that is the processor's choice.
    OnOrBy(u8),
    /// By one of two exceptions: that is the processor's choice.
    ByEither(u8, u8),
    /// Never.
    Never,
    /// By this exception, or never: QEMU before 9.1 reads the stack of these instructions as the
    /// kernel would, which SMAP forbids, so the page that is there faults again and again.
    ByOrNever(u8),
}

/// A few instructions.
#[derive(Clone, Copy, Debug)]
pub struct Wild {
    /// What they try.
    pub name: &'static str,
    /// How they end.
    pub ends: Ends,
}

macro_rules! wild {
    ($($name:literal, $ends:expr, $code:literal;)*) => {
        global_asm!(".p2align 6", "worker_wild:", $(".p2align 6", $code, "worker_back",)* ".p2align 6", "worker_wild_end:");
        /// All of them.
        pub const WILD: &[Wild] = &[$(Wild { name: $name, ends: $ends },)*];
    };
}

use Ends::{By, ByEither, ByOrNever, Never, OnOrBy};

const DIVIDE: u8 = 0;
const DEBUG: u8 = 1;
const INVALID: u8 = 6;
const STACK: u8 = 12;
const PROTECTION: u8 = 13;
const PAGE: u8 = 14;
const FLOAT: u8 = 16;
const ALIGNMENT: u8 = 17;
const VECTOR: u8 = 19;

// Back to the scripted domain's loop: RDI has its shared page, RAX its first instruction.
global_asm!(
    ".macro worker_back",
    "mov edi, 0x40000000",
    "mov eax, 0x10000000",
    "jmp rax",
    ".endm",
    // The kernel's null call, for what is to be seen after one.
    ".macro worker_null",
    "movabs rax, 0x100000000",
    "syscall",
    ".endm",
);

wild! {
    "ud2", By(INVALID), "ud2";
    "hlt", By(PROTECTION), "hlt";
    "cli", By(PROTECTION), "cli";
    "sti", By(PROTECTION), "sti";
    "load CR3", By(PROTECTION), "mov cr3, rax";
    "read CR0", By(PROTECTION), "mov rax, cr0";
    "load CR4", By(PROTECTION), "mov cr4, rax";
    "load DR7", By(PROTECTION), "mov dr7, rax";
    "clts", By(PROTECTION), "clts";
    "lmsw", By(PROTECTION), "lmsw ax";
    "wrmsr", By(PROTECTION), "mov ecx, 0xc0000082\nwrmsr";
    "rdmsr", By(PROTECTION), "mov ecx, 0xc0000082\nrdmsr";
    "rdpmc", By(PROTECTION), "xor ecx, ecx\nrdpmc";
    "lgdt", By(PROTECTION), "lgdt [rsp - 16]";
    "lidt", By(PROTECTION), "lidt [rsp - 16]";
    "lldt", By(PROTECTION), "xor eax, eax\nlldt ax";
    "ltr", By(PROTECTION), "mov eax, 0x28\nltr ax";
    "invlpg", By(PROTECTION), "invlpg [rsp]";
    "wbinvd", By(PROTECTION), "wbinvd";
    "swapgs", By(PROTECTION), "swapgs";
    "sysret", By(PROTECTION), "sysretq";
    "iret to nowhere", ByOrNever(PROTECTION), "push -1\npush -1\npush -1\npush -1\npush -1\niretq";
    "far return to the kernel's code", ByOrNever(PROTECTION), "push 8\nlea rax, [rip]\npush rax\nretfq";
    "in", By(PROTECTION), "in al, 0x60";
    "out", By(PROTECTION), "mov al, 0xfe\nout 0x64, al";
    "int 14", By(PROTECTION), "int 14";
    "int 0x80", By(PROTECTION), "int 0x80";
    "int 0x20", By(PROTECTION), "int 0x20";
    "divide by zero", By(DIVIDE), "xor ecx, ecx\ndiv ecx";
    "x87 divide by zero", By(FLOAT), "fninit\npush 0x33b\nfldcw [rsp]\nfld1\nfldz\nfdivp\nfwait";
    // Emulators know no exceptions of vectors.
    "SSE divide by zero", OnOrBy(VECTOR), "push 0x1d80\nldmxcsr [rsp]\nmov eax, 0x3f800000\nmovd xmm0, eax\nxorps xmm1, xmm1\ndivss xmm0, xmm1";
    "reserved bits of MXCSR", OnOrBy(PROTECTION), "push -1\nldmxcsr [rsp]";
    "alignment check", OnOrBy(ALIGNMENT), "pushfq\nor dword ptr [rsp], 0x40000\npopfq\nmov rax, [rsp - 9]\npushfq\nand dword ptr [rsp], 0xfffbffff\npopfq";
    "unaligned vector", By(PROTECTION), "movaps xmm0, [rsp - 15]";
    "single step", By(DEBUG), "pushfq\nor dword ptr [rsp], 0x100\npopfq\nnop\nnop";
    "single step into a call", By(DEBUG), "movabs rax, 0x100000000\npushfq\nor dword ptr [rsp], 0x100\npopfq\nsyscall\nnop";
    "a call with strange flags", OnOrBy(ALIGNMENT), "movabs rax, 0x100000000\npushfq\nor dword ptr [rsp], 0x44400\npopfq\nsyscall\npushfq\nand dword ptr [rsp], 0xfffbbbff\npopfq";
    "an exception with strange flags", By(INVALID), "pushfq\nor dword ptr [rsp], 0x44400\npopfq\nud2";
    "a higher I/O privilege", By(PROTECTION), "pushfq\nor dword ptr [rsp], 0x3000\npopfq\ncli";
    "a call without a stack", By(INVALID), "movabs rsp, 0x8000000000000008\nworker_null\nud2";
    "a call with the kernel's stack", By(INVALID), "movabs rsp, 0xffff800000001000\nworker_null\nud2";
    "a stack that is no address", ByEither(STACK, PROTECTION), "movabs rsp, 0x8000000000000008\npush rax";
    "a stack of the kernel's", By(PAGE), "movabs rsp, 0xffff800000001000\npush rax";
    "stack overflow", By(PAGE), "2: push rax\njmp 2b";
    "jump to no address", By(PROTECTION), "movabs rax, 0x8000000000000000\njmp rax";
    "jump to the kernel", By(PAGE), "movabs rax, 0xffffffff80000000\njmp rax";
    "jump to its data", By(PAGE), "mov eax, 0x40000000\njmp rax";
    "load from no address", By(PROTECTION), "movabs rax, 0x8000000000000000\nmov rax, [rax]";
    "load from the kernel", By(PAGE), "movabs rax, 0xffff800000000000\nmov rax, [rax]";
    "store to the kernel", By(PAGE), "movabs rax, 0xffffffff80000000\nmov [rax], rax";
    "store to its text", By(PAGE), "mov eax, 0x10000000\nmov [rax], rax";
    "store to the start of everything", By(PAGE), "xor eax, eax\nmov [rax], rax";
    "load a null stack segment", By(PROTECTION), "xor eax, eax\nmov ss, ax";
    "load a segment past the table", By(PROTECTION), "mov eax, 0xfff8\nmov ds, ax";
    "load a kernel's segment", By(PROTECTION), "mov eax, 0x10\nmov ss, ax";
    "clear segments and call", OnOrBy(PROTECTION), "xor eax, eax\nmov ds, ax\nmov es, ax\nworker_null";
    "a stack segment just before a call", OnOrBy(DEBUG), "movabs rax, 0x100000000\nmov ecx, ss\nmov ss, cx\nsyscall";
    "the kernel's address in GS", OnOrBy(INVALID), "movabs rax, 0xffff800000000000\nwrgsbase rax\nworker_null\nmov eax, 0\nwrgsbase rax";
    "no address in FS", OnOrBy(PROTECTION), "movabs rax, 0x8000000000000000\nwrfsbase rax";
    "locked compare of a register", By(INVALID), ".byte 0xf0, 0x0f, 0xc7, 0xc8";
    "a lock that is none", By(INVALID), ".byte 0xf0, 0x90";
    "a long instruction", By(PROTECTION), ".fill 15, 1, 0x66\nnop";
    "sysenter", ByEither(INVALID, PROTECTION), "sysenter";
    "vmcall", By(INVALID), "vmcall";
    "monitor", ByEither(INVALID, PROTECTION), "mov rax, rsp\nxor ecx, ecx\nxor edx, edx\nmonitor";
    "xsetbv", ByEither(INVALID, PROTECTION), "xor ecx, ecx\nxor edx, edx\nxor eax, eax\nxsetbv";
    "an endless loop", Never, "2: jmp 2b";
}

unsafe extern "C" {
    safe static worker_wild: u8;
    safe static worker_wild_end: u8;
}

/// The code of all of them.
pub(crate) fn code() -> Range<u64> {
    let at = |symbol: &u8| core::ptr::from_ref(symbol) as u64;
    let code = at(&worker_wild)..at(&worker_wild_end);
    assert_eq!(code.end - code.start, WILD.len() as u64 * BYTES, "one of them does not fit its room");
    code
}
