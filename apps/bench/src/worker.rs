//! Protection domains that do next to nothing: made here, of a dozen instructions each, so that what is measured is the kernel.
//!
//! A worker is a copy of one of the loops below in a domain of its own. Its two arguments arrive in RDI and RSI, and the kernel keeps
//! the registers it puts them into. It has time of its own, of the lowest priority: what it does for us it does on our time.

use abi::layout::protection;
use abi::{Call, Error, Handle, Rights};
use core::arch::global_asm;
use core::ops::Range;

const CODE: u64 = 0x1000_0000;
const STACK: u64 = 0x2000_0000;
const CONTROL: u64 = 0x3000_0000;
/// A page that the worker shares with us.
pub const SHARED: u64 = 0x4000_0000;
const PRIORITY: u64 = 0;
const SLICE_US: u64 = 1000;
const LIMIT_PAGES: u64 = 1024;
/// Where pages are mapped for us before and while a worker has them elsewhere.
const WORKSHOP: u64 = abi::layout::REGIONS + (1 << 39);
const READ_WRITE: u64 = protection::READ | protection::WRITE;

global_asm!(
    // Answers.
    "worker_answer:",
    "2: mov rax, {reply_wait}", "mov r10, -1", "syscall", "jmp 2b",
    // Asks portal RDI before it answers.
    "worker_forward:",
    "mov rbx, rdi",
    "2: mov rax, {reply_wait}", "mov r10, -1", "syscall",
    "mov rax, {portal_call}", "mov rdi, rbx", "mov r9, -1", "syscall", "jmp 2b",
    // Answers; callers of badge RSI only once the word at RDI is not zero.
    "worker_hold:",
    "mov rbx, rdi", "mov r12, rsi",
    "2: mov rax, {reply_wait}", "mov r10, -1", "syscall",
    "cmp rdi, r12", "jne 2b",
    "3: cmp qword ptr [rbx], 0", "je 3b", "jmp 2b",
    // Calls portal RDI again and again.
    "worker_call:",
    "mov rbx, rdi",
    "2: mov rax, {portal_call}", "mov rdi, rbx", "mov r9, -1", "syscall", "jmp 2b",
    // Waits, then notifies RDI.
    "worker_notify:",
    "mov rbx, rdi",
    "2: mov rax, {wait}", "mov rdi, -1", "syscall",
    "mov rax, {notify}", "mov rdi, rbx", "syscall", "jmp 2b",
    // Takes semaphore RDI, then gives semaphore RSI.
    "worker_pass:",
    "mov rbx, rdi", "mov r12, rsi",
    "2: mov rax, {down}", "mov rdi, rbx", "mov rsi, -1", "syscall",
    "mov rax, {up}", "mov rdi, r12", "mov esi, 1", "syscall", "jmp 2b",
    "worker_end:",
    reply_wait = const Call::PortalReplyWait.number(),
    portal_call = const Call::PortalCall.number(),
    wait = const Call::Wait.number(),
    notify = const Call::Notify.number(),
    down = const Call::SemaphoreDown.number(),
    up = const Call::SemaphoreUp.number(),
);

unsafe extern "C" {
    safe static worker_answer: u8;
    safe static worker_forward: u8;
    safe static worker_hold: u8;
    safe static worker_call: u8;
    safe static worker_notify: u8;
    safe static worker_pass: u8;
    safe static worker_end: u8;
}

/// What a worker does.
#[derive(Clone, Copy)]
pub enum Job {
    /// Answers each rendezvous call.
    Answer,
    /// Calls a portal before it answers.
    Forward,
    /// Answers, but callers of one badge only once a word is not zero.
    Hold,
    /// Calls a portal for ever.
    Call,
    /// Notifies after each Wait.
    Notify,
    /// Takes one semaphore and gives another.
    Pass,
}

impl Job {
    fn code(self) -> Range<u64> {
        let at = |symbol: &u8| core::ptr::from_ref(symbol) as u64;
        match self {
            Job::Answer => at(&worker_answer)..at(&worker_forward),
            Job::Forward => at(&worker_forward)..at(&worker_hold),
            Job::Hold => at(&worker_hold)..at(&worker_call),
            Job::Call => at(&worker_call)..at(&worker_notify),
            Job::Notify => at(&worker_notify)..at(&worker_pass),
            Job::Pass => at(&worker_pass)..at(&worker_end),
        }
    }
}

/// A domain with one context. It ends when this is dropped.
pub struct Worker {
    domain: Handle,
    /// Its context.
    pub context: Handle,
    /// The account that pays for all of it but its text and the shared page.
    pub ram: Handle,
    workshop: u64,
    pages: [Handle; 2],
}

impl Worker {
    /// Made, not started. `number` tells workers that live at the same time apart.
    pub fn new(number: u64, job: Job) -> Result<Worker, Error> {
        let ram = sys::ram_split(Handle::SELF_RAM, LIMIT_PAGES)?;
        let (domain, _) = sys::domain_alloc(ram, 0)?;
        let range = sys::domain_range(domain)?;
        let workshop = WORKSHOP + number * 2 * abi::PAGE_BYTES;
        let (text, _) = sys::segment_alloc(Handle::SELF_RAM, 1, 0)?;
        sys::range_map(Handle::SELF_RANGE, workshop, text, 0, 1, READ_WRITE)?;
        let code = job.code();
        // SAFETY: the code lies between two symbols of our text, is shorter than a page, and the page was just mapped for this alone.
        unsafe {
            core::ptr::copy_nonoverlapping(
                code.start as *const u8,
                workshop as *mut u8,
                (code.end - code.start) as usize,
            )
        };
        sys::range_map(range, CODE, text, 0, 1, protection::READ | protection::EXECUTE)?;
        let (shared, _) = sys::segment_alloc(Handle::SELF_RAM, 1, 0)?;
        sys::range_map(Handle::SELF_RANGE, workshop + abi::PAGE_BYTES, shared, 0, 1, READ_WRITE)?;
        sys::range_map(range, SHARED, shared, 0, 1, READ_WRITE)?;
        let (stack, _) = sys::segment_alloc(ram, 1, 0)?;
        sys::range_map(range, STACK, stack, 0, 1, READ_WRITE)?;
        let context = sys::context_alloc(ram, domain, CONTROL, 0)?;
        sys::context_schedule(ram, context, PRIORITY, SLICE_US)?;
        Ok(Worker { domain, context, ram, workshop, pages: [text, shared] })
    }

    /// A portal into it.
    pub fn portal(&self, badge: u64) -> Result<Handle, Error> {
        sys::portal_alloc(self.ram, self.context, badge, abi::layout::portal::RENDEZVOUS)
    }

    /// Gives it a capability of ours; its number there.
    pub fn give(&self, handle: Handle) -> Result<u64, Error> {
        sys::domain_grant(self.domain, handle, Rights::ALL).map(|handle| handle.0)
    }

    /// Who is told when it ends.
    pub fn on_death(&self, bell: Handle) -> Result<(), Error> {
        sys::domain_on_death(self.domain, bell)
    }

    /// Sets the first word of the shared page.
    pub fn set_shared(&self, value: u64) {
        // SAFETY: mapped for us until the worker goes; used as one word of shared memory.
        unsafe { ((self.workshop + abi::PAGE_BYTES) as *mut u64).write_volatile(value) };
    }

    /// Lets it run.
    pub fn start(&self, arguments: [u64; 2]) -> Result<(), Error> {
        // SAFETY: another domain's context; it reaches no memory of ours but the shared page.
        unsafe { sys::context_start(self.context, CODE, STACK + abi::PAGE_BYTES, arguments) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = sys::domain_kill(self.domain, 0);
        // SAFETY: nothing refers to these two pages any more.
        let _ = unsafe { sys::range_unmap(Handle::SELF_RANGE, self.workshop, 2) };
        for handle in [self.context, self.domain, self.ram, self.pages[0], self.pages[1]] {
            let _ = sys::cap_drop(handle);
        }
    }
}
