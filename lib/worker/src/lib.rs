//! Protection domains that do next to nothing: made here, of a dozen instructions each, so that
//! what is measured or tested is the kernel.
//!
//! A worker is a copy of one of the loops below in a domain of its own. Its two arguments arrive in
//! RDI and RSI, and the kernel keeps the registers it puts them into. It has time of its own, of
//! the lowest priority: what it does for us it does on our time.
#![no_std]

#[cfg(test)]
extern crate alloc;

mod scripted;
#[cfg(test)]
mod tests;
mod wild;

pub use scripted::ScriptedDomain;
pub use wild::{Ends, WILD, Wild};

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
const SCRATCH_BASE: u64 = abi::layout::REGIONS + (1 << 39);
/// Words of the shared page.
const WORDS: u64 = abi::PAGE_BYTES / 8;
/// Most pages of text; what follows in the scratch area is the shared page.
const TEXT_PAGES: u64 = 2;
const SCRATCH_PAGES: u64 = TEXT_PAGES + 1;
const READ_WRITE: u64 = protection::READ | protection::WRITE;

/// Blocks of the shared page that a producer fills in turn, and their words.
pub const BLOCKS: u64 = 8;
/// See [`BLOCKS`].
pub const BLOCK_WORDS: u64 = WORDS / BLOCKS;

/// What an obeying worker is asked for; everything else is a kernel call.
const LOAD: u64 = 1;
const STORE: u64 = 2;
const JUMP: u64 = 3;
const SCAN: u64 = 4;
const NOTHING: u64 = 5;
const CRASH: u64 = 6;
/// Word of the shared page that says that the call has begun.
const BEGUN: u64 = 7;

global_asm!(
    // Answers.
    "worker_answer:",
    "2: mov rax, {reply_wait}", "mov r10, -1", "syscall", "jmp 2b",
    // Asks portal RDI before it answers.
    "worker_forward:",
    "mov rbx, rdi",
    "2: mov rax, {reply_wait}", "mov r10, -1", "syscall",
    "mov rax, {portal_call}", "mov rdi, rbx", "mov r9, -1", "syscall", "jmp 2b",
    // Answers; callers of badge RSI only once the word at RDI is not zero. The word after it says
    // that one is held.
    "worker_hold:",
    "mov rbx, rdi", "mov r12, rsi",
    "2: mov rax, {reply_wait}", "mov r10, -1", "syscall",
    "cmp rdi, r12", "jne 2b", "mov qword ptr [rbx + 8], 1",
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
    // Takes semaphore RDI, fills the next of the shared page's blocks with its number, gives
    // semaphore RSI.
    "worker_produce:",
    "mov rbx, rdi", "mov r12, rsi", "xor r13d, r13d",
    "2: mov rax, {down}", "mov rdi, rbx", "mov rsi, -1", "syscall",
    "mov rdi, r13", "and edi, {blocks} - 1", "imul edi, edi, {block} * 8", "add rdi, {shared}",
    "mov rax, r13", "mov ecx, {block}", "rep stosq", "inc r13",
    "mov rax, {up}", "mov rdi, r12", "mov esi, 1", "syscall", "jmp 2b",
    // Does what it is asked for: the first word of a call says what, the shared page at RDI has the
    // arguments and takes the results.
    "worker_obey:",
    "mov rbx, rdi",
    "2: mov rax, {reply_wait}", "mov r10, -1", "syscall",
    "cmp rsi, {load}", "je 4f", "cmp rsi, {store}", "je 5f", "cmp rsi, {jump}", "je 6f", "cmp rsi, {scan}", "je 7f", "cmp rsi, {nothing}", "je 2b", "cmp rsi, {crash}", "je 3f",
    "mov rax, [rbx]", "mov rdi, [rbx + 8]", "mov rsi, [rbx + 16]", "mov rdx, [rbx + 24]",
    "mov r10, [rbx + 32]", "mov r8, [rbx + 40]", "mov r9, [rbx + 48]", "mov qword ptr [rbx + {begun}], 1", "syscall",
    "mov [rbx + 8], rdi", "mov [rbx + 16], rsi", "mov [rbx + 24], rdx",
    "mov [rbx + 32], r10", "mov [rbx + 40], r8", "mov [rbx + 48], r9", "mov [rbx + 64], rcx", "mov [rbx + 72], r11",
    // Last: by it others see that the rest is there.
    "mov [rbx], rax", "jmp 2b",
    "4: mov rax, [rbx]", "mov rax, [rax]", "mov [rbx + 8], rax", "jmp 2b",
    "5: mov rax, [rbx]", "mov rcx, [rbx + 8]", "mov [rax], rcx", "jmp 2b",
    "6: jmp qword ptr [rbx]",
    // All bits that are set in the words from word 0 on, word 1 in number; and how many words begin
    // with the 24 bits that word 2 has inverted.
    "7: mov rsi, [rbx]", "mov rcx, [rbx + 8]", "mov rdx, [rbx + 16]", "xor r8d, r8d", "xor r9d, r9d",
    "8: mov rax, [rsi]", "or r8, rax", "xor rax, rdx", "not rax", "shr rax, 40", "jnz 9f", "inc r9",
    "9: add rsi, 8", "dec rcx", "jnz 8b", "mov [rbx + 8], r8", "mov [rbx + 16], r9", "jmp 2b",
    // An invalid instruction with word 0 in all general registers, but for RBP, which has word 1.
    "3: mov rbp, [rbx + 8]", "mov rax, [rbx]", "mov rbx, rax", "mov rcx, rax", "mov rdx, rax", "mov rsi, rax", "mov rdi, rax",
    "mov r8, rax", "mov r9, rax", "mov r10, rax", "mov r11, rax", "mov r12, rax", "mov r13, rax", "mov r14, rax", "mov r15, rax",
    "mov rsp, rax", "ud2",
    // Writes to pages as it is called: the first at word 0, word 1 in number.
    "worker_touch:",
    "2: mov rax, {reply_wait}", "mov r10, -1", "syscall",
    "3: mov [rsi], rdx", "add rsi, 4096", "dec rdx", "jnz 3b", "jmp 2b",
    "worker_end:",
    begun = const BEGUN * 8,
    shared = const SHARED,
    blocks = const BLOCKS,
    block = const BLOCK_WORDS,
    load = const LOAD,
    store = const STORE,
    jump = const JUMP,
    scan = const SCAN,
    nothing = const NOTHING,
    crash = const CRASH,
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
    safe static worker_produce: u8;
    safe static worker_obey: u8;
    safe static worker_touch: u8;
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
    /// Takes one semaphore, fills the next of [`BLOCKS`] blocks of the shared page with its number,
    /// gives another.
    Produce,
    /// Makes the kernel calls, loads and stores it is asked for (see [`ScriptedDomain`]). Its first
    /// argument is [`SHARED`].
    Obey,
    /// Writes to pages as it is called: first address, number.
    Touch,
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
            Job::Pass => at(&worker_pass)..at(&worker_produce),
            Job::Produce => at(&worker_produce)..at(&worker_obey),
            Job::Obey => at(&worker_obey)..at(&worker_touch),
            Job::Touch => at(&worker_touch)..at(&worker_end),
        }
    }
}

/// The bytes of a piece of code.
#[cfg(test)]
fn bytes(code: Range<u64>) -> &'static [u8] {
    let length = (code.end - code.start) as usize;
    // SAFETY: it lies between two symbols of our text.
    unsafe { core::slice::from_raw_parts(core::ptr::with_exposed_provenance(code.start as usize), length) }
}

/// Puts code at an address of ours, where there is room for it.
fn copy_text(code: Range<u64>, to: u64) {
    let bytes = code.end - code.start;
    // SAFETY: the code lies between two symbols of our text; its callers looked that it fits where
    // they just mapped pages for this alone.
    unsafe { core::ptr::copy_nonoverlapping(code.start as *const u8, to as *mut u8, bytes as usize) };
}

/// A domain with one context. It ends when this is dropped.
pub struct Worker {
    /// The domain.
    pub domain: Handle,
    /// Its context.
    pub context: Handle,
    /// The account that pays for all of it but its text and the shared page.
    pub ram: Handle,
    scratch: u64,
    pages: [Handle; 2],
}

impl Worker {
    /// Made, not started, paid by our own account. `number` tells workers that live at the same
    /// time apart.
    pub fn new(number: u64, job: Job) -> Result<Worker, Error> {
        Worker::paid_by(Handle::SELF_RAM, number, job)
    }

    /// As [`Worker::new`], paid by `payer`.
    pub fn paid_by(payer: Handle, number: u64, job: Job) -> Result<Worker, Error> {
        Worker::made(payer, number, job, 0)
    }

    /// With flags of its context.
    fn made(payer: Handle, number: u64, job: Job, flags: u64) -> Result<Worker, Error> {
        let ram = sys::ram_split(payer, LIMIT_PAGES, Handle::NONE)?;
        let (domain, _) = sys::domain_alloc(ram, 0)?;
        let range = sys::domain_range(domain)?;
        let scratch = SCRATCH_BASE + number * SCRATCH_PAGES * abi::PAGE_BYTES;
        let (code, wild) = (job.code(), matches!(job, Job::Obey).then(wild::code));
        let bytes = wild.as_ref().map_or(code.end - code.start, |wild| wild::OFFSET + wild.end - wild.start);
        let text_pages = bytes.div_ceil(abi::PAGE_BYTES);
        assert!(code.end - code.start <= wild::OFFSET && text_pages <= TEXT_PAGES);
        let (text, _) = sys::segment_alloc(payer, text_pages, 0)?;
        sys::range_map(Handle::SELF_RANGE, scratch, text, 0, text_pages, READ_WRITE)?;
        copy_text(code, scratch);
        if let Some(wild) = wild {
            copy_text(wild, scratch + wild::OFFSET);
        }
        sys::range_map(range, CODE, text, 0, text_pages, protection::READ | protection::EXECUTE)?;
        let (shared, _) = sys::segment_alloc(payer, 1, 0)?;
        sys::range_map(Handle::SELF_RANGE, scratch + TEXT_PAGES * abi::PAGE_BYTES, shared, 0, 1, READ_WRITE)?;
        sys::range_map(range, SHARED, shared, 0, 1, READ_WRITE)?;
        let (stack, _) = sys::segment_alloc(ram, 1, 0)?;
        sys::range_map(range, STACK, stack, 0, 1, READ_WRITE)?;
        let context = sys::context_alloc(ram, domain, CONTROL, flags, PRIORITY)?;
        let time = sys::context_schedule(ram, context, PRIORITY, SLICE_US)?;
        // The context keeps its time, the domain its range, and that its stack.
        [time, range, stack].into_iter().try_for_each(sys::cap_drop)?;
        Ok(Worker { domain, context, ram, scratch, pages: [text, shared] })
    }

    /// A portal into it.
    pub fn portal(&self, badge: u64) -> Result<Handle, Error> {
        sys::portal_alloc(self.ram, self.context, badge, abi::layout::portal::RENDEZVOUS)
    }

    /// Its address range.
    pub fn range(&self) -> Result<Handle, Error> {
        sys::domain_range(self.domain)
    }

    /// Gives it a capability of ours; its number there.
    pub fn give(&self, handle: Handle) -> Result<u64, Error> {
        sys::domain_grant(self.domain, handle, Rights::ALL).map(|handle| handle.0)
    }

    /// Who is told when it ends.
    pub fn on_death(&self, doorbell: Handle) -> Result<(), Error> {
        sys::domain_on_death(self.domain, doorbell)
    }

    fn shared_at(&self, word: u64) -> *mut u64 {
        (self.scratch + TEXT_PAGES * abi::PAGE_BYTES + word % WORDS * 8) as *mut u64
    }

    /// Sets the first word of the shared page.
    pub fn set_shared(&self, value: u64) {
        self.set_word(0, value);
    }

    /// Sets a word of the shared page, by its number.
    pub fn set_word(&self, word: u64, value: u64) {
        // SAFETY: mapped for us until the worker goes; used as words of shared memory.
        unsafe { self.shared_at(word).write_volatile(value) };
    }

    /// A word of the shared page.
    pub fn word(&self, word: u64) -> u64 {
        // SAFETY: as for `set_word`.
        unsafe { self.shared_at(word).read_volatile() }
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
        // SAFETY: nothing refers to these pages any more.
        let _ = unsafe { sys::range_unmap(Handle::SELF_RANGE, self.scratch, SCRATCH_PAGES) };
        for handle in [self.context, self.domain, self.ram, self.pages[0], self.pages[1]] {
            let _ = sys::cap_drop(handle);
        }
    }
}
