//! Threads with their stacks and registers, and the hub that runs them.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::mem::offset_of;

use abi::layout::upcall;
use abi::{ControlPage, ExceptionInfo, ProgramRegisters};

use crate::platform::{Stack, control, register};
use crate::policy::Policy;
use crate::running;
use crate::switch;
use crate::table::{Outcome, Refused, Table, ThreadId};

/// What a thread runs: its argument in, its result out.
pub type Entry = extern "C" fn(u64) -> u64;

const HUB_PAGES: u64 = 4;

/// What is done about a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The cause was mended: the thread goes on with the registers as they are now.
    Resume,
    /// The thread ends with `Outcome::Faulted`.
    End,
}

/// Why `run` came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All threads have ended.
    All,
    /// So many threads live, and none can go on before somebody outside wakes one.
    Blocked(usize),
}

/// Where a thread goes on that does not run.
enum Saved {
    /// It left by itself: its stack pointer.
    Left(u64),
    /// It was interrupted: everything.
    Interrupted(Box<ProgramRegisters>),
}

struct Thread {
    saved: Saved,
    /// Registers when it is interrupted; made before, as nothing is allocated then.
    spare: Option<Box<ProgramRegisters>>,
    /// Goes with the thread, so never while it runs.
    _stack: Stack,
}

/// The threads of this program.
pub struct Threads(Box<Inner>);

pub(crate) struct Inner {
    table: RefCell<Table>,
    threads: RefCell<Vec<Option<Thread>>>,
    /// The hub's stack pointer while a thread runs.
    hub: Cell<u64>,
    /// Where the current thread keeps its own while it goes to the hub.
    left: Cell<u64>,
    /// The current thread came to the hub by an upcall.
    is_interrupted: Cell<bool>,
    upcall_stack: Stack,
    stack_pages: u64,
    has_ticks: bool,
    on_fault: fn(ThreadId, &ExceptionInfo, &mut ProgramRegisters) -> Answer,
}

fn in_proxy() -> *mut u64 {
    control().cast::<u8>().wrapping_add(offset_of!(ControlPage, in_proxy)).cast()
}

/// Keeps interruptions away; tells whether they were kept away before.
fn close() -> bool {
    // SAFETY: a word of this context's own control page, which kernel and this context write, never
    // at the same time.
    unsafe {
        let was = in_proxy().read_volatile();
        in_proxy().write_volatile(ControlPage::INSIDE);
        was != 0
    }
}

/// Lets them come.
fn open() {
    // SAFETY: as above.
    unsafe { in_proxy().write_volatile(0) };
}

/// Does something without being interrupted by other threads: all use of the heap, the executor,
/// and what is shared without a semaphore. A fault in it ends the program.
pub fn undisturbed<T>(work: impl FnOnce() -> T) -> T {
    let was_closed = close();
    let result = work();
    if !was_closed {
        open();
    }
    result
}

impl Threads {
    /// None yet. `stack_pages` for each; with `has_ticks` a thread that does not yield is
    /// interrupted at the end of the program's slice. `on_fault` is asked about faults.
    ///
    /// # Safety
    /// Threads use the heap, the executor and all that is not made for several threads inside
    /// [`undisturbed`] only; `on_fault` uses none of it.
    pub unsafe fn new(
        policy: Box<dyn Policy>,
        stack_pages: u64,
        has_ticks: bool,
        on_fault: fn(ThreadId, &ExceptionInfo, &mut ProgramRegisters) -> Answer,
    ) -> Result<Threads, Refused> {
        Ok(Threads(Box::new(Inner {
            table: RefCell::new(Table::new(policy)),
            threads: RefCell::default(),
            hub: Cell::new(0),
            left: Cell::new(0),
            is_interrupted: Cell::new(false),
            upcall_stack: Stack::new(HUB_PAGES).map_err(Refused::Kernel)?,
            stack_pages,
            has_ticks,
            on_fault,
        })))
    }

    /// Makes a thread that will run `entry(argument)`. Also threads may: see [`spawn`].
    pub fn spawn(&self, entry: Entry, argument: u64) -> Result<ThreadId, Refused> {
        undisturbed(|| self.0.add(entry, argument))
    }

    /// Wakes a thread that blocked, or lets its next [`block`] pass.
    pub fn wake(&self, thread: ThreadId) -> Result<(), Refused> {
        undisturbed(|| self.0.table.borrow_mut().wake(thread))
    }

    /// How a thread has ended, whose entry is freed then; `None`: it has not.
    pub fn ended(&self, thread: ThreadId) -> Result<Option<Outcome>, Refused> {
        undisturbed(|| self.0.table.borrow_mut().join(thread))
    }

    /// Runs threads until all have ended, or none can go on. `Busy`: another `Threads` runs.
    pub fn run(&mut self) -> Result<Ended, Refused> {
        let inner = &*self.0;
        let flags = if inner.has_ticks { upcall::TICKS } else { 0 };
        close();
        if !running::enter(inner) {
            open();
            return Err(Refused::Busy);
        }
        // As if called, from nowhere.
        let stack_top = inner.upcall_stack.top() - 8;
        // SAFETY: the entry does not return, and the stack is for it alone.
        let registered = unsafe { register(interrupted as *const () as u64, stack_top, flags) };
        let ended = registered.map(|()| inner.hub());
        // SAFETY: none come any more.
        let _ = unsafe { register(0, 0, 0) };
        running::leave();
        open();
        ended.map_err(Refused::Kernel)
    }
}

impl Inner {
    fn add(&self, entry: Entry, argument: u64) -> Result<ThreadId, Refused> {
        let stack = Stack::new(self.stack_pages).map_err(Refused::Kernel)?;
        // SAFETY: the stack is new and page-aligned.
        let saved = Saved::Left(unsafe { switch::first(stack.top(), entry, argument) });
        let id = self.table.borrow_mut().add()?;
        let mut threads = self.threads.borrow_mut();
        if threads.len() <= id.0 {
            threads.resize_with(id.0 + 1, || None);
        }
        threads[id.0] = Some(Thread { saved, spare: Some(Box::default()), _stack: stack });
        Ok(id)
    }

    fn hub(&self) -> Ended {
        loop {
            let picked = self.table.borrow_mut().pick();
            let Some(id) = picked else {
                let living = self.table.borrow().living();
                return if living == 0 { Ended::All } else { Ended::Blocked(living) };
            };
            self.go_on(id);
            if self.is_interrupted.take() {
                self.see_to(id);
            }
            let mut threads = self.threads.borrow_mut();
            if let Some(thread) = threads[id.0].as_mut()
                && let Saved::Left(at) = &mut thread.saved
            {
                *at = self.left.get();
            }
            if self.table.borrow().has_ended(id) {
                threads[id.0] = None;
            }
        }
    }

    /// Lets a thread run until it comes back here.
    fn go_on(&self, id: ThreadId) {
        let mut threads = self.threads.borrow_mut();
        let thread = threads[id.0].as_mut().expect("a thread that lives has a stack");
        let keep = self.hub.as_ptr();
        match core::mem::replace(&mut thread.saved, Saved::Left(0)) {
            Saved::Left(at) => {
                drop(threads);
                // SAFETY: kept when the thread left, or made for it; the cell lives as long as the
                // hub.
                unsafe { switch::switch(keep, at) };
            }
            Saved::Interrupted(registers) => {
                let program = control().cast::<u8>().wrapping_add(offset_of!(ControlPage, program));
                // SAFETY: our control page; nothing interrupts now.
                unsafe { program.cast::<ProgramRegisters>().write_volatile(*registers) };
                thread.spare = Some(registers);
                drop(threads);
                // SAFETY: these are the registers the kernel stored when it interrupted the thread,
                // or as the program mended them.
                unsafe { switch::resume(keep) };
            }
        }
    }

    /// The current thread was interrupted, and its registers are in the control page.
    fn see_to(&self, id: ThreadId) {
        let page = control().cast::<u8>();
        // SAFETY: our control page; any bytes are valid numbers.
        let (mut registers, exception) = unsafe {
            (
                page.wrapping_add(offset_of!(ControlPage, program)).cast::<ProgramRegisters>().read_volatile(),
                page.wrapping_add(offset_of!(ControlPage, exception)).cast::<ExceptionInfo>().read_volatile(),
            )
        };
        let goes_on = matches!(exception.vector, ExceptionInfo::PREEMPTION | ExceptionInfo::NOTIFICATION)
            || (self.on_fault)(id, &exception, &mut registers) == Answer::Resume;
        let mut table = self.table.borrow_mut();
        if !goes_on {
            return table.end(Outcome::Faulted(exception));
        }
        table.yield_now();
        if let Some(thread) = self.threads.borrow_mut()[id.0].as_mut()
            && let Some(mut spare) = thread.spare.take()
        {
            *spare = registers;
            thread.saved = Saved::Interrupted(spare);
        }
    }

    /// The current thread has changed its own state and goes to the hub; back when it runs again.
    fn leave(&self) {
        // SAFETY: the hub waits there since it let this thread go on.
        unsafe { switch::switch(self.left.as_ptr(), self.hub.get()) };
    }
}

/// Where the kernel goes at an upcall.
extern "C" fn interrupted() -> ! {
    running::with(|inner| {
        inner.is_interrupted.set(true);
        // What this stack holds is not gone back to.
        let mut nobody = 0;
        // SAFETY: the hub waits there since it let the interrupted thread go on.
        unsafe { switch::switch(&raw mut nobody, inner.hub.get()) };
    });
    unreachable!("the upcall's stack is gone back to")
}

/// A thread's first function, on its own stack.
pub(crate) extern "C" fn begin(entry: Entry, argument: u64) -> ! {
    open();
    let result = entry(argument);
    close();
    running::with(|inner| {
        inner.table.borrow_mut().end(Outcome::Returned(result));
        inner.leave();
    });
    unreachable!("a thread that ended is gone back to")
}

/// What a thread does to itself; outside of threads nothing.
fn of_thread<T>(work: impl FnOnce(&Inner) -> T) -> Option<T> {
    undisturbed(|| {
        running::with(|inner| {
            let is_thread = inner.table.borrow().current().is_some();
            is_thread.then(|| work(inner))
        })
        .flatten()
    })
}

/// The thread that asks; `None` outside of threads.
pub fn current() -> Option<ThreadId> {
    of_thread(|inner| inner.table.borrow().current()).flatten()
}

/// Gives way to the other threads.
pub fn yield_now() {
    of_thread(|inner| {
        inner.table.borrow_mut().yield_now();
        inner.leave();
    });
}

/// Waits until somebody wakes this thread; passes at once if somebody has since it last blocked.
pub fn block() {
    of_thread(|inner| {
        if inner.table.borrow_mut().block() {
            inner.leave();
        }
    });
}

/// Wakes a thread, as [`Threads::wake`].
pub fn wake(thread: ThreadId) -> Result<(), Refused> {
    of_thread(|inner| inner.table.borrow_mut().wake(thread)).unwrap_or(Err(Refused::NotFound))
}

/// Makes a thread, as [`Threads::spawn`].
pub fn spawn(entry: Entry, argument: u64) -> Result<ThreadId, Refused> {
    of_thread(|inner| inner.add(entry, argument)).unwrap_or(Err(Refused::NotFound))
}

/// Waits until another thread has ended, and frees its entry.
pub fn join(other: ThreadId) -> Result<Outcome, Refused> {
    of_thread(|inner| {
        loop {
            if let Some(outcome) = inner.table.borrow_mut().join(other)? {
                return Ok(outcome);
            }
            inner.leave();
        }
    })
    .unwrap_or(Err(Refused::NotFound))
}
