//! The doors between program and proxy (see `abi::control`).
//!
//! At a Linux call all registers but RCX and R11, which SYSCALL loses anyway, are the program's:
//! they go into the control page, which the kernel leaves alone while `in_proxy` is not 0. The way
//! back restores them in user mode. Its last step is one exchange of `in_proxy` with 0: if that
//! brings `RUNG` out, the proxy enters itself again and looks. An upcall after the exchange
//! overwrites the page, so RSP is the program's by then, RIP waits in [`RETURN`], and an upcall
//! that finds the program on these last instructions first puts it where they lead
//! ([`finish_return`]): nobody ever goes on in the middle of them.

use abi::{ControlPage, ExceptionInfo, ProgramRegisters};
use core::arch::global_asm;
use core::cell::{Cell, UnsafeCell};
use core::mem::offset_of;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

const STACK_BYTES: usize = 256 << 10;

#[repr(C, align(4096))]
struct Stack(UnsafeCell<[u8; STACK_BYTES]>);
// SAFETY: only the processor uses it, through the stack pointer, one context at a time.
unsafe impl Sync for Stack {}

/// Stack of both entries. Pages appear when touched.
static STACK: Stack = Stack(UnsafeCell::new([0; STACK_BYTES]));

const CONTROL: *mut ControlPage = abi::layout::CONTROL_PAGE as *mut ControlPage;

/// Where the way back leads.
static RETURN: AtomicU64 = AtomicU64::new(0);

macro_rules! register {
    ($name:ident) => {
        offset_of!(ControlPage, program) + offset_of!(ProgramRegisters, $name)
    };
}

global_asm!(
    ".globl pelago_linux_call",
    "pelago_linux_call:",
    "cld",
    "movabs r11, {control}",
    // RCX and R11 as SYSCALL leaves them.
    "mov rcx, [r11 + {rip}]",
    "mov [r11 + {rcx}], rcx",
    "mov rcx, [r11 + {rflags}]",
    "mov [r11 + {r11}], rcx",
    "mov [r11 + {rbx}], rbx",
    "mov [r11 + {rdx}], rdx",
    "mov [r11 + {rsi}], rsi",
    "mov [r11 + {rdi}], rdi",
    "mov [r11 + {rbp}], rbp",
    "mov [r11 + {r8}], r8",
    "mov [r11 + {r9}], r9",
    "mov [r11 + {r10}], r10",
    "mov [r11 + {r12}], r12",
    "mov [r11 + {r13}], r13",
    "mov [r11 + {r14}], r14",
    "mov [r11 + {r15}], r15",
    "xor ebp, ebp",
    "call {call}",
    "2:",
    "movabs r11, {control}",
    "push qword ptr [r11 + {rflags}]",
    "popfq",
    "mov rax, [r11 + {rax}]",
    "mov rbx, [r11 + {rbx}]",
    "mov rdx, [r11 + {rdx}]",
    "mov rsi, [r11 + {rsi}]",
    "mov rdi, [r11 + {rdi}]",
    "mov rbp, [r11 + {rbp}]",
    "mov r8, [r11 + {r8}]",
    "mov r9, [r11 + {r9}]",
    "mov r10, [r11 + {r10}]",
    "mov r12, [r11 + {r12}]",
    "mov r13, [r11 + {r13}]",
    "mov r14, [r11 + {r14}]",
    "mov r15, [r11 + {r15}]",
    "mov rcx, [r11 + {rip}]",
    "mov [rip + {return_to}], rcx",
    "mov rsp, [r11 + {rsp}]",
    // From here on no instruction may change the flags.
    "mov ecx, 0",
    "xchg [r11 + {in_proxy}], rcx",
    "pelago_linux_left:",
    "lea rcx, [rcx - {inside}]",
    "jrcxz 3f",
    "mov qword ptr [r11 + {in_proxy}], {inside}",
    "lea rsp, [rip + {stack} + {stack_bytes}]",
    "xor ebp, ebp",
    "call {again}",
    "jmp 2b",
    "3:",
    "mov r11, [r11 + {rflags}]",
    "jmp qword ptr [rip + {return_to}]",
    "pelago_linux_gone:",
    ".globl pelago_linux_left, pelago_linux_gone",
    ".globl pelago_linux_upcall",
    "pelago_linux_upcall:",
    "cld",
    "xor ebp, ebp",
    "call {upcall}",
    "ud2",
    control = const abi::layout::CONTROL_PAGE,
    in_proxy = const offset_of!(ControlPage, in_proxy),
    inside = const ControlPage::INSIDE,
    return_to = sym RETURN,
    stack = sym STACK,
    stack_bytes = const STACK_BYTES,
    again = sym look_again,
    rax = const register!(rax),
    rcx = const register!(rcx),
    r11 = const register!(r11),
    rbx = const register!(rbx),
    rdx = const register!(rdx),
    rsi = const register!(rsi),
    rdi = const register!(rdi),
    rbp = const register!(rbp),
    rsp = const register!(rsp),
    r8 = const register!(r8),
    r9 = const register!(r9),
    r10 = const register!(r10),
    r12 = const register!(r12),
    r13 = const register!(r13),
    r14 = const register!(r14),
    r15 = const register!(r15),
    rip = const register!(rip),
    rflags = const register!(rflags),
    call = sym linux_call,
    upcall = sym linux_upcall,
);

unsafe extern "C" {
    fn pelago_linux_call();
    fn pelago_linux_upcall();
    fn pelago_linux_left();
    fn pelago_linux_gone();
}

extern "C" fn linux_call() {
    if super::syscall::serve() == super::syscall::Return::Exact {
        resume();
    }
}

/// Something came while the way back began.
extern "C" fn look_again() {
    runtime::rest(true);
    super::signals::deliver();
}

/// What is left of the way back, if an upcall came in the midst of it: `in_proxy` was 0 already,
/// the rest is RIP, and RCX and R11 as SYSCALL leaves them.
fn finish_return() {
    let mut program = registers();
    let address = |label: unsafe extern "C" fn()| label as *const () as u64;
    let left = address(pelago_linux_left)..address(pelago_linux_gone);
    if left.contains(&program.rip) {
        program.rip = RETURN.load(Ordering::Relaxed);
        (program.rcx, program.r11) = (program.rip, program.rflags);
        set_registers(&program);
    }
}

extern "C" fn linux_upcall() -> ! {
    // SAFETY: the control page is mapped for the life of the context.
    let exception: ExceptionInfo = unsafe { (&raw const (*CONTROL).exception).read_volatile() };
    finish_return();
    super::signals::upcall(&exception);
    resume()
}

struct Aside(Cell<Option<NonNull<ProgramRegisters>>>);
// SAFETY: one context runs proxy code.
unsafe impl Sync for Aside {}
static ASIDE: Aside = Aside(Cell::new(None));

/// Where the registers of the thread are that the proxy works for: in the control page, or put
/// aside.
fn place() -> *mut ProgramRegisters {
    // SAFETY: the address of a field; nothing is read.
    ASIDE.0.get().map_or_else(|| unsafe { &raw mut (*CONTROL).program }, NonNull::as_ptr)
}

/// Works with registers that were put aside from now on; `None`: with those of the control page.
///
/// # Safety
/// They must live until another place is named.
pub unsafe fn work_with(aside: Option<NonNull<ProgramRegisters>>) {
    ASIDE.0.set(aside);
}

/// The registers of the thread that the proxy works for.
pub fn registers() -> ProgramRegisters {
    // SAFETY: the control page is mapped for the life of the context, and another place lives as
    // `work_with` says; plain data.
    unsafe { place().read_volatile() }
}

/// The same of the running thread, to where they are put aside.
pub fn store_registers(to: &mut ProgramRegisters) {
    // SAFETY: as above; `to` is no part of the control page.
    unsafe { (&raw const (*CONTROL).program).copy_to_nonoverlapping(to, 1) };
}

/// Number and arguments of a Linux call.
pub fn call() -> (u64, [u64; 6]) {
    // SAFETY: as above; while the proxy runs, only the proxy writes them.
    let program = unsafe { &*place() };
    (program.rax, [program.rdi, program.rsi, program.rdx, program.r10, program.r8, program.r9])
}

/// A call's result.
pub fn set_return_value(value: u64) {
    // SAFETY: as above.
    unsafe { (&raw mut (*place()).rax).write_volatile(value) };
}

/// Has the program make its call again: the number is still in its register.
pub fn restart_syscall(bytes: u64) {
    let mut program = registers();
    program.rip = program.rip.wrapping_sub(bytes);
    set_registers(&program);
}

/// Whether badge bits came since the proxy last looked. Clears that mark; `rest` must follow.
pub fn take_pending() -> bool {
    // SAFETY: as above. The kernel may set it again between the two, for bits that `rest` then
    // sees.
    unsafe {
        let word = &raw mut (*CONTROL).in_proxy;
        let is_pending = word.read_volatile() & ControlPage::RUNG != 0;
        if is_pending {
            word.write_volatile(ControlPage::INSIDE);
        }
        is_pending
    }
}

/// What the program goes on with.
pub fn set_registers(registers: &ProgramRegisters) {
    // SAFETY: as above; what is given lies elsewhere.
    unsafe { place().copy_from_nonoverlapping(registers, 1) };
}

/// Goes on in the program with exactly the registers of the control page.
pub fn resume() -> ! {
    // SAFETY: nothing on this stack is needed again: the next entry starts at its top.
    let error = unsafe { sys::context_resume() };
    runtime::log!("the program cannot be resumed: {error:?}");
    sys::domain_exit(101)
}

/// Tells the kernel where Linux calls and faults go, and which notifications interrupt the program.
pub fn install(upcall_mask: u64) {
    // SAFETY: the control page is mapped; we are the proxy until `resume`.
    unsafe { (&raw mut (*CONTROL).in_proxy).write_volatile(1) };
    interrupt_by(upcall_mask, false);
}

/// Names the notifications that interrupt the program, and says whether the end of a slice does.
pub fn interrupt_by(upcall_mask: u64, ticks: bool) {
    let top = STACK.0.get() as u64 + STACK_BYTES as u64;
    let address = |label: unsafe extern "C" fn()| label as *const () as u64;
    // SAFETY: the control page is mapped, and only the proxy writes the mask.
    unsafe { (&raw mut (*CONTROL).upcall_mask).write_volatile(upcall_mask) };
    let flags = if ticks { abi::layout::upcall::TICKS } else { 0 };
    // SAFETY: the entries keep to the rules of `abi::control`; the stack is theirs alone.
    let done = unsafe { sys::context_proxy(address(pelago_linux_call), address(pelago_linux_upcall), top, flags) };
    if let Err(error) = done {
        runtime::log!("the kernel refuses the proxy's entry: {error:?}");
        sys::domain_exit(101);
    }
}

/// Segment bases and vector state.
pub mod machine {
    use core::arch::asm;
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    use core::sync::atomic::{AtomicU8, Ordering};

    /// Whether there are instructions for bases: 0 is not known yet, 1 no, 2 yes.
    static BASE_INSTRUCTIONS: AtomicU8 = AtomicU8::new(0);

    /// Asks the processor once: in a virtual machine the host has to answer.
    fn has_base_instructions() -> bool {
        let known = BASE_INSTRUCTIONS.load(Ordering::Relaxed);
        if known != 0 {
            return known == 2;
        }
        // CPUID leaf 7, EBX bit 0. The kernel enables them wherever they are.
        let has = __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ebx & 1 != 0;
        BASE_INSTRUCTIONS.store(1 + u8::from(has), Ordering::Relaxed);
        has
    }

    /// FS and GS base now; `remembered` where the processor cannot be asked.
    pub fn bases(remembered: [u64; 2]) -> [u64; 2] {
        if !has_base_instructions() {
            return remembered;
        }
        let (fs, gs): (u64, u64);
        // SAFETY: the instructions exist and only write the named registers.
        unsafe { asm!("rdfsbase {}", "rdgsbase {}", out(reg) fs, out(reg) gs, options(nomem, nostack)) };
        [fs, gs]
    }

    /// Sets one of them (0 = FS, 1 = GS). `false` if the address is not the user's.
    pub fn set_base(which: u64, address: u64) -> bool {
        if address >= abi::layout::USER_END {
            return false;
        }
        if !has_base_instructions() {
            // SAFETY: the proxy uses neither FS nor GS.
            return unsafe { sys::context_base(which, address) }.is_ok();
        }
        // SAFETY: the instructions exist, the address is canonical, the proxy uses neither FS nor
        // GS.
        unsafe {
            match which {
                0 => asm!("wrfsbase {}", in(reg) address, options(nomem, nostack)),
                _ => asm!("wrgsbase {}", in(reg) address, options(nomem, nostack)),
            }
        }
        true
    }

    /// Stores x87 and SSE state. `to` must be 16-byte aligned and hold 512 writable bytes.
    ///
    /// # Safety
    /// As said.
    pub unsafe fn save_vectors(to: u64) {
        // SAFETY: the caller's promise.
        unsafe { asm!("fxsave64 [{}]", in(reg) to, options(nostack)) };
    }

    /// Loads it from `from`, for which the same holds; reserved MXCSR bits are cleared there first,
    /// because they would fault.
    ///
    /// # Safety
    /// As said.
    pub unsafe fn load_vectors(from: u64) {
        const RESERVED: u64 = 26;
        // SAFETY: the caller's promise; the proxy holds nothing in these registers.
        unsafe {
            ((from + RESERVED) as *mut u16).write(0);
            asm!("fxrstor64 [{}]", in(reg) from, options(nostack));
        }
    }

    /// An FXSAVE image. FXRSTOR wants 16 bytes of alignment; with more than the stack's own the
    /// compiler aligns the frame itself, whatever the first stack pointer was.
    #[derive(Clone, Copy)]
    #[repr(C, align(64))]
    pub struct Image(pub [u8; 512]);

    impl Image {
        /// The state a program starts with: all exceptions masked, round to nearest (System V ABI
        /// 3.4.1).
        pub const fn fresh() -> Image {
            let mut bytes = [0; 512];
            (bytes[0], bytes[1]) = (0x7f, 0x03);
            (bytes[24], bytes[25]) = (0x80, 0x1f);
            Image(bytes)
        }
    }
}
