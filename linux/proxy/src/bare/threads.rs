//! The program's threads: all run on the proxy's one context, one at a time (decision 61).
//!
//! A thread *runs* (the control page and the processor hold its registers), is *ready* to, or
//! *waits* in a Linux call. A call is polled once where it is made, and is a task of the executor
//! if it has to wait; while it is polled, its thread is the *current* one, for whom the proxy
//! works. One that waits for another thread only, and for no time, *sleeps* instead: it stands in a
//! queue, and the thread that wakes it sets the result of its call. A program with one thread pays
//! for none of this: its calls are awaited where they are made.
//!
//! Invariants: the running thread is current whenever no task is polled; who waits or is ready has
//! its registers put aside; who sleeps stands in one line, with no task; vector registers and bases
//! are exchanged only when another thread is to run. The end of a slice takes the processor from a
//! thread that computes.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::ptr::NonNull;
use core::task::Waker;

use abi::ProgramRegisters;
use contracts::process::THREADS_MAX;
use personality::Errno;
use personality::calls::Call;
use personality::sleepers::Ticket;
use personality::state::ThreadState;
use runtime::{TaskId, Watch};

use super::entry::{self, machine};
use super::errors::Outcome;
use super::proxy::proxy;
use super::syscall::{self, Return, SYSCALL_BYTES};
use super::time::own_used_ns;
use super::user::{self, first_thread, with_state, with_thread};
use super::{counters, futex};

mod posting;
pub use posting::{has_room, post, post_to, tell_readers};

/// Thread ids beyond the first: the process id and a number from this bit on. Process ids are
/// smaller.
const NUMBER_SHIFT: u32 = 15;
/// Numbers before they begin anew.
const NUMBERS: u32 = 1 << (31 - NUMBER_SHIFT);
/// A thread that has run for so long makes room for one that was woken.
const LONG_NS: u64 = 1_000_000;

/// Where a thread that sleeps stands.
#[derive(Clone, Copy)]
pub enum Line {
    /// At the word of a futex.
    Futex(Ticket),
    /// At an event counter, to read it.
    Counter(Ticket),
}

impl Line {
    fn leave(self) {
        match self {
            Line::Futex(ticket) => futex::leave(ticket),
            Line::Counter(ticket) => counters::leave(ticket),
        }
    }
}

struct Thread {
    /// In the state block or on the heap.
    state: NonNull<ThreadState>,
    /// Its registers are in `state`, not in the control page.
    is_aside: bool,
    /// It goes on with exactly its registers: it did not come by a call.
    is_exact: bool,
    /// The call it waits in, and who wakes that.
    task: Option<TaskId>,
    waker: Option<Waker>,
    /// The call it sleeps in.
    asleep: Option<(Call, Line)>,
    /// What came of a call that it waited in, if it is not in its registers.
    outcome: Option<(Call, Outcome)>,
    /// For how long it ran, up to when it began to run last.
    ran_ns: u64,
}

impl Thread {
    fn over(state: *mut ThreadState) -> Thread {
        let Some(state) = NonNull::new(state) else { panic!("a thread without state") };
        let [is_aside, is_exact] = [false; 2];
        Thread { state, is_aside, is_exact, task: None, waker: None, asleep: None, outcome: None, ran_ns: 0 }
    }

    fn state(&mut self) -> &mut ThreadState {
        // SAFETY: it lives until the thread ends, and the proxy holds no other reference across
        // this borrow.
        unsafe { self.state.as_mut() }
    }
}

#[derive(Default)]
struct Threads {
    /// By number of the place; ended ones leave theirs to the next.
    all: Vec<Option<Thread>>,
    count: usize,
    ready: VecDeque<usize>,
    /// Whose vector registers and bases the processor holds.
    running: usize,
    last_number: u32,
    /// Since when the running thread runs.
    since_ns: u64,
    /// The running thread waits, or does not share the context: its clock stands still.
    is_stopped: bool,
    /// The context is interrupted by all that comes, and at the end of each slice; clocks of
    /// threads are counted here.
    is_shared: bool,
    /// What the process had used when the only thread began to have the context for itself.
    alone_since_ns: u64,
}

struct Global {
    threads: RefCell<Threads>,
    current: Cell<usize>,
    state: Cell<*mut ThreadState>,
    /// Rung when a thread became ready, and when none runs.
    changed: Watch,
    /// No thread runs, and none is to.
    is_idle: Cell<bool>,
    is_seized: Cell<bool>,
}
// SAFETY: one context runs proxy code.
unsafe impl Sync for Global {}

static GLOBAL: Global = Global {
    threads: RefCell::new(Threads {
        all: Vec::new(),
        count: 0,
        ready: VecDeque::new(),
        running: 0,
        last_number: 0,
        since_ns: 0,
        is_stopped: true,
        is_shared: false,
        alone_since_ns: 0,
    }),
    current: Cell::new(0),
    state: Cell::new(core::ptr::null_mut()),
    changed: Watch::new(),
    is_idle: Cell::new(false),
    is_seized: Cell::new(false),
};

/// Works on the table. `work` must not call anything that does.
fn with<T>(work: impl FnOnce(&mut Threads) -> T) -> T {
    work(&mut GLOBAL.threads.borrow_mut())
}

impl Threads {
    fn thread(&mut self, place: usize) -> &mut Thread {
        match self.all.get_mut(place) {
            Some(Some(thread)) => thread,
            _ => panic!("thread {place} has ended"),
        }
    }

    fn add(&mut self, thread: Thread) -> usize {
        self.count += 1;
        match self.all.iter().position(Option::is_none) {
            Some(free) => {
                self.all[free] = Some(thread);
                free
            }
            None => {
                self.all.push(Some(thread));
                self.all.len() - 1
            }
        }
    }

    fn living(&mut self) -> impl Iterator<Item = (usize, &mut Thread)> {
        self.all.iter_mut().enumerate().filter_map(|(place, thread)| Some((place, thread.as_mut()?)))
    }

    /// The first of which `is_it` is true.
    fn find(&mut self, is_it: impl Fn(&ThreadState) -> bool) -> Option<usize> {
        self.living().find_map(|(place, thread)| is_it(thread.state()).then_some(place))
    }

    /// The running thread runs no more: its time is counted.
    fn stop_clock(&mut self, now_ns: u64) {
        let (place, since_ns) = (self.running, self.since_ns);
        if !core::mem::replace(&mut self.is_stopped, true)
            && let Some(Some(thread)) = self.all.get_mut(place)
        {
            thread.ran_ns += now_ns.saturating_sub(since_ns);
        }
    }

    /// A thread id that nobody has.
    fn new_id(&mut self, process: u32) -> u64 {
        loop {
            self.last_number = self.last_number % (NUMBERS - 1) + 1;
            let id = u64::from(process | self.last_number << NUMBER_SHIFT);
            if self.find(|thread| thread.id == id).is_none() {
                return id;
            }
        }
    }
}

/// The state of the thread that the proxy works for.
pub fn current_state() -> *mut ThreadState {
    GLOBAL.state.get()
}

/// Takes the first thread into the table. The state block must be mapped.
pub fn begin() {
    let state = first_thread();
    with(|threads| threads.add(Thread::over(state)));
    GLOBAL.state.set(state);
}

/// gettid.
pub fn id() -> Outcome {
    Ok(with_thread(|thread| thread.id))
}

/// Is there one thread only?
pub fn is_alone() -> bool {
    with(|threads| threads.count == 1)
}

/// Works for another thread from now on; gives the one before.
fn work_for(place: usize) -> usize {
    let (state, registers) = with(|threads| {
        let thread = threads.thread(place);
        let registers = thread.is_aside.then(|| NonNull::from(&mut thread.state().registers));
        (thread.state.as_ptr(), registers)
    });
    GLOBAL.state.set(state);
    // SAFETY: the thread's state lives as long as the thread, and a proxy that ends a thread works
    // for another one then.
    unsafe { entry::work_with(registers) };
    GLOBAL.current.replace(place)
}

/// Awaits the answer to a call of the only thread. The future is not moved: it is long, and most
/// calls use little of it.
pub async fn alone<F: Future>(mut call: Pin<&mut F>) -> F::Output {
    poll_fn(|context| {
        with(|threads| {
            let waker = &mut threads.thread(current()).waker;
            if waker.is_none() {
                *waker = Some(context.waker().clone());
            }
        });
        call.as_mut().poll(context)
    })
    .await
}

/// Awaits the answer to a thread's call, for whom the proxy works while it polls.
async fn on_behalf<T>(place: usize, mut call: Pin<Box<dyn Future<Output = T>>>) -> T {
    poll_fn(|context| {
        let before = work_for(place);
        with(|threads| threads.thread(place).waker = Some(context.waker().clone()));
        let polled = call.as_mut().poll(context);
        // After execve this one is all there is.
        if with(|threads| threads.all[before].is_some()) {
            work_for(before);
        }
        polled
    })
    .await
}

/// The place of the thread that the proxy works for.
pub fn current() -> usize {
    GLOBAL.current.get()
}

/// Puts the running thread's registers aside: it waits or is ready from now on. `becomes` is called
/// with its place.
fn put_aside(is_exact: bool, becomes: impl FnOnce(&mut Threads, usize)) {
    let place = current();
    with(|threads| {
        let thread = threads.thread(place);
        entry::store_registers(&mut thread.state().registers);
        (thread.is_aside, thread.is_exact) = (true, is_exact);
        becomes(threads, place);
    });
}

/// Answers a call of the current thread. `Err` if it has to wait: the next one that is ready went
/// on then.
pub fn answer(call: Call, answer: Pin<Box<dyn Future<Output = Outcome>>>) -> Result<Outcome, Return> {
    let place = current();
    begin_wait(place, answer, move |thread, outcome| thread.outcome = Some((call, outcome)));
    match with(|threads| threads.thread(place).outcome.take()) {
        Some((_, outcome)) => Ok(outcome),
        None => {
            put_aside(false, |_, _| ());
            Err(run_next())
        }
    }
}

/// The same for a call that is seldom waited for, however many threads there are.
pub fn await_answer(call: Call, work: impl Future<Output = Outcome> + 'static) -> Result<Outcome, Return> {
    if is_alone() { Ok(runtime::block_on(alone(pin!(work)))) } else { answer(call, Box::pin(work)) }
}

/// Has the current thread wait for something before it goes on with exactly its registers. Gives
/// `false` if another one went on then.
pub fn wait_exactly(work: Pin<Box<dyn Future<Output = ()>>>) -> bool {
    let place = current();
    begin_wait(place, work, |_, ()| ());
    let is_done = with(|threads| threads.thread(place).task.is_none());
    if !is_done {
        put_aside(true, |_, _| ());
        run_next();
    }
    is_done
}

/// Polls what a thread waits for, here once, and then as a task; `end` gives it what came of it.
fn begin_wait<T: 'static>(
    place: usize,
    work: Pin<Box<dyn Future<Output = T>>>,
    end: impl FnOnce(&mut Thread, T) + 'static,
) {
    let task = runtime::reserve();
    with(|threads| threads.thread(place).task = Some(task));
    let answered = async move {
        let outcome = on_behalf(place, work).await;
        let waited = with(|threads| {
            let thread = threads.thread(place);
            (thread.task, thread.waker) = (None, None);
            end(thread, outcome);
            let waited = thread.is_aside;
            if waited {
                threads.ready.push_back(place);
            }
            waited
        });
        if waited {
            GLOBAL.changed.changed();
        }
    };
    // It is polled here once, with the registers where they are: many calls wait for nothing.
    runtime::begin(task, Box::pin(answered));
}

/// The current thread sleeps in a call, and the next one that is ready goes on.
pub fn sleep(call: Call, line: Line) -> Return {
    put_aside(false, |threads, place| threads.thread(place).asleep = Some((call, line)));
    run_next()
}

/// A thread that slept has left its line and is ready. `give` sees its registers.
fn wake_with(place: usize, give: impl FnOnce(&mut ProgramRegisters)) {
    with(|threads| {
        let thread = threads.thread(place);
        thread.asleep = None;
        give(&mut thread.state().registers);
        threads.ready.push_back(place);
    });
    GLOBAL.changed.changed();
}

/// Wakes a thread that slept and has left its line: that is its call's result.
pub fn wake(place: usize, result: u64) {
    wake_with(place, |registers| registers.rax = result);
}

/// Wakes one to make its call again.
pub fn wake_to_call_again(place: usize) {
    wake_with(place, |registers| registers.rip = registers.rip.wrapping_sub(SYSCALL_BYTES));
}

/// Lets others that are ready run before the current thread goes on. `None` if there are none.
pub fn make_room(is_exact: bool) -> Option<Return> {
    if with(|threads| threads.ready.is_empty()) && !GLOBAL.is_seized.get() {
        return None;
    }
    put_aside(is_exact, |threads, place| threads.ready.push_back(place));
    Some(run_next())
}

/// As [`make_room`], if the running thread had its time.
pub fn make_room_when_due() -> Option<Return> {
    let since_ns = with(|threads| if threads.ready.is_empty() { u64::MAX } else { threads.since_ns });
    if runtime::now_ns().saturating_sub(since_ns) < LONG_NS { None } else { make_room(true) }
}

/// Goes on with the thread that has been ready longest; sleeps until there is one.
fn run_next() -> Return {
    let next = || if GLOBAL.is_seized.get() { None } else { with(|threads| threads.ready.pop_front()) };
    let place = next().unwrap_or_else(|| {
        with(|threads| threads.stop_clock(runtime::now_ns()));
        GLOBAL.is_idle.set(true);
        GLOBAL.changed.changed();
        let place = runtime::block_on(GLOBAL.changed.until(next));
        GLOBAL.is_idle.set(false);
        place
    });
    let now_ns = runtime::now_ns();
    let (outcome, is_exact) = enter(place, now_ns);
    let by_call = outcome.map(|(call, outcome)| syscall::settle(call.effect(), outcome));
    // Requests that others made while this thread was away still need a doorbell. Threads that go
    // on from one to the other are hardly ever found at the end of a slice by those who wait for
    // time.
    syscall::finish(runtime::is_due(now_ns));
    if is_exact { Return::Exact } else { by_call.unwrap_or(Return::Quick) }
}

/// Makes a thread the running one: its registers are where the program goes on. Gives what came of
/// the call it waited in, and whether it goes on with exactly those registers.
fn enter(place: usize, now_ns: u64) -> (Option<(Call, Outcome)>, bool) {
    with(|threads| {
        threads.stop_clock(now_ns);
        (threads.since_ns, threads.is_stopped) = (now_ns, !threads.is_shared);
        let before = core::mem::replace(&mut threads.running, place);
        if before != place {
            if let Some(Some(thread)) = threads.all.get_mut(before) {
                keep(thread.state());
            }
            load(threads.thread(place).state());
        }
        let thread = threads.thread(place);
        thread.is_aside = false;
        GLOBAL.state.set(thread.state.as_ptr());
        GLOBAL.current.set(place);
        // SAFETY: no registers that were put aside.
        unsafe { entry::work_with(None) };
        entry::set_registers(&thread.state().registers);
        (thread.outcome.take(), core::mem::take(&mut thread.is_exact))
    })
}

/// Stores what the processor holds of a thread.
fn keep(state: &mut ThreadState) {
    state.bases = machine::bases(state.bases);
    // SAFETY: the field is 512 bytes at a multiple of 16.
    unsafe { machine::save_vectors(state.vectors.as_mut_ptr() as u64) };
}

fn load(state: &mut ThreadState) {
    // SAFETY: as for `keep`.
    unsafe { machine::load_vectors(state.vectors.as_mut_ptr() as u64) };
    machine::set_base(0, state.bases[0]);
    machine::set_base(1, state.bases[1]);
}

/// Stores all registers of the current thread in its state, for a child that begins with them.
pub fn store_current() {
    let registers = entry::registers();
    let place = current();
    with(|threads| {
        let running = threads.running == place;
        let state = threads.thread(place).state();
        state.registers = registers;
        if running {
            keep(state);
        }
    });
}

/// Loads all registers of the only thread from its state.
pub fn load_current() {
    let registers = with_thread(|thread| {
        load(thread);
        thread.registers
    });
    entry::set_registers(&registers);
}

/// What a new thread begins with.
pub struct ThreadOptions {
    /// Stack pointer, 0 = the caller's.
    pub stack: u64,
    /// FS base; none: the caller's.
    pub thread_pointer: Option<u64>,
    /// Cleared and woken at its end, 0 = nothing.
    pub clear_id_at: u64,
}

/// Makes a thread that is ready; gives its id. `EAGAIN`.
pub fn add(options: &ThreadOptions) -> Result<u64, Errno> {
    if with(|threads| threads.count >= THREADS_MAX) {
        return Err(Errno::EAGAIN);
    }
    let process = with_state(|state| state.process);
    // SAFETY: zeroes are a state (`FromZeros`); made here, it is not copied.
    let mut state = unsafe { Box::<ThreadState>::new_zeroed().assume_init() };
    with_thread(|own| {
        (state.bases, state.name) = (own.bases, own.name);
        state.signals.begin(own.signals.blocked);
    });
    keep(&mut state);
    state.registers = entry::registers();
    state.registers.rax = 0;
    if options.stack != 0 {
        state.registers.rsp = options.stack;
    }
    state.bases[0] = options.thread_pointer.unwrap_or(state.bases[0]);
    state.clear_id_at = options.clear_id_at;
    let (id, is_shared) = with(|threads| {
        state.id = threads.new_id(process);
        let id = state.id;
        let place = threads.add(Thread { is_aside: true, ..Thread::over(Box::into_raw(state)) });
        threads.ready.push_back(place);
        (id, threads.is_shared)
    });
    if !is_shared {
        share();
    }
    Ok(id)
}

/// From now on threads share the context.
fn share() {
    entry::interrupt_by(u64::MAX, true);
    let (used_ns, now_ns) = (own_used_ns(), runtime::now_ns());
    with(|threads| {
        let place = threads.running;
        let own_ns = used_ns.saturating_sub(threads.alone_since_ns);
        threads.thread(place).ran_ns += own_ns;
        (threads.since_ns, threads.is_stopped, threads.is_shared) = (now_ns, false, true);
    });
}

/// Where one thread is left that has to wait, or had a slice for itself, it shares the context no
/// longer. Not sooner: many programs make and join one thread after the other.
pub fn stop_sharing_if_alone() {
    if with(|threads| !threads.is_shared || threads.count > 1) {
        return;
    }
    entry::interrupt_by(proxy().signal_bits, false);
    let (used_ns, now_ns) = (own_used_ns(), runtime::now_ns());
    with(|threads| {
        threads.stop_clock(now_ns);
        (threads.alone_since_ns, threads.is_shared) = (used_ns, false);
    });
}

/// For how long a thread ran (0: the current one); no more than the process used. `None` if there
/// is no such thread.
pub fn used_ns(id: u64) -> Option<u64> {
    let (all_ns, now_ns, own) = (own_used_ns(), runtime::now_ns(), current());
    with(|threads| {
        let place = if id == 0 { own } else { threads.find(|thread| thread.id == id)? };
        let more_ns = match () {
            _ if !threads.is_shared => all_ns.saturating_sub(threads.alone_since_ns),
            _ if threads.running == place && !threads.is_stopped => now_ns.saturating_sub(threads.since_ns),
            _ => 0,
        };
        Some((threads.thread(place).ran_ns + more_ns).min(all_ns))
    })
}

/// Ids of all threads.
pub fn ids() -> Vec<u64> {
    with(|threads| threads.living().map(|(_, thread)| thread.state().id).collect())
}

/// The name of a thread.
pub fn name_of(id: u64) -> Option<[u8; 16]> {
    with(|threads| {
        let place = threads.find(|thread| thread.id == id)?;
        Some(threads.thread(place).state().name)
    })
}

/// Takes a thread out of the table.
fn remove(place: usize) {
    let removed = with(|threads| {
        threads.count -= 1;
        threads.ready.retain(|ready| *ready != place);
        threads.all[place].take()
    });
    let Some(thread) = removed else { return };
    if let Some(task) = thread.task {
        runtime::abort(task);
    }
    if let Some((_, line)) = thread.asleep {
        line.leave();
    }
    if thread.state.as_ptr() != first_thread() {
        // SAFETY: made by `Box::into_raw` in `add`; nobody works for it any more.
        drop(unsafe { Box::from_raw(thread.state.as_ptr()) });
    }
}

/// Ends the current thread, which is not the last, and goes on with another one.
pub fn end() -> Return {
    let place = current();
    futex::thread_ends();
    // Somebody has to be current until the next one is chosen.
    let other = with(|threads| threads.living().map(|(place, _)| place).find(|other| *other != place));
    let Some(other) = other else { panic!("the last thread ends with its process") };
    work_for(other);
    remove(place);
    run_next()
}

/// Waits until no thread runs; none does from then on, until [`end_others`].
pub async fn seize() {
    if !is_alone() {
        GLOBAL.is_seized.set(true);
        GLOBAL.changed.until(|| GLOBAL.is_idle.get().then_some(())).await;
    }
}

/// Ends all threads but the current one, which becomes the process's first (execve). The others
/// must have been seized.
pub fn end_others() {
    let own = current();
    GLOBAL.is_seized.set(false);
    let others: Vec<usize> =
        with(|threads| threads.living().map(|(place, _)| place).filter(|place| *place != own).collect());
    others.into_iter().for_each(remove);
    with(|threads| {
        threads.running = own;
        let thread = threads.thread(own);
        let old = thread.state;
        if old.as_ptr() != first_thread() {
            let copy = *thread.state();
            thread.state = Thread::over(first_thread()).state;
            *thread.state() = copy;
            // SAFETY: made by `Box::into_raw` in `add`; the thread has another state now.
            drop(unsafe { Box::from_raw(old.as_ptr()) });
        }
    });
    work_for(own);
    let process = with_state(|state| state.process);
    with_thread(|thread| thread.id = process.into());
}

/// arch_prctl: the bases of the current thread.
pub fn base(which: u64, address: u64) -> Outcome {
    const SET_GS: u64 = 0x1001;
    const SET_FS: u64 = 0x1002;
    const GET_FS: u64 = 0x1003;
    const GET_GS: u64 = 0x1004;
    let remembered = with_thread(|thread| thread.bases);
    match which {
        SET_FS | SET_GS => {
            if !entry::machine::set_base(u64::from(which == SET_GS), address) {
                return Err(Errno::EPERM.into());
            }
            with_thread(|thread| thread.bases[usize::from(which == SET_GS)] = address);
        }
        GET_FS | GET_GS => user::write(address, &entry::machine::bases(remembered)[usize::from(which == GET_GS)])?,
        _ => return Err(Errno::EINVAL.into()),
    }
    Ok(0)
}

/// Is an id one of a thread of that process, if there is such a thread?
pub fn is_of(id: u64, process: u64) -> bool {
    id & ((1 << NUMBER_SHIFT) - 1) == process
}

/// How many there are.
pub fn count() -> usize {
    with(|threads| threads.count)
}

/// Is there such a thread in this process?
pub fn exists(id: u64) -> bool {
    with(|threads| threads.find(|thread| thread.id == id)).is_some()
}
