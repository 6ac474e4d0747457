//! Further execution contexts of this program, of the core it lives on: kernel threads.
//!
//! A companion has a stack, a control page and time of its own, and shares everything else. The
//! heap, the executor and the log belong to the first context: a companion computes, makes kernel
//! calls, and meets the rest by semaphores and notifications.

use alloc::boxed::Box;
use alloc::rc::Rc;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use abi::layout::context;
use abi::{Error, Handle, Rights};
use sys::Rendezvous;

use crate::map::{map_segment, reserve};

const STACK_PAGES: u64 = 4;

/// A context that ends when this is dropped.
pub struct Companion {
    context: Handle,
    time: Option<Handle>,
    control_page: u64,
    _stack: Rc<dyn Any>,
}

impl Companion {
    /// Starts `entry` with `argument`; time of that priority (at most what the caller may give) in
    /// slices of `slice_us` (100 to 1,000,000), or none: then it runs on time that callers of its
    /// portals donate. Errors: those of `ContextAlloc` and `ContextSchedule`.
    ///
    /// # Safety
    /// `entry` neither allocates nor frees, uses no executor and no log, and reaches no object that
    /// is not made for several contexts. It may be stopped for good at any point: whatever it
    /// refers to outlives this.
    pub unsafe fn start(
        entry: extern "C" fn(u64) -> !,
        argument: u64,
        time: Option<(u64, u64)>,
    ) -> Result<Companion, Error> {
        // SAFETY: passed on.
        unsafe { Companion::start_with(entry, argument, time, Vectors::None) }
    }

    /// The same, with vector registers of its own if that is wanted.
    ///
    /// # Safety
    /// As [`Companion::start`].
    unsafe fn start_with(
        entry: extern "C" fn(u64) -> !,
        argument: u64,
        time: Option<(u64, u64)>,
        vectors: Vectors,
    ) -> Result<Companion, Error> {
        let (segment, _) = sys::segment_alloc(Handle::SELF_RAM, STACK_PAGES, 0)?;
        let (stack, stack_bytes, keeper) = map_segment(segment).inspect_err(|_| {
            let _ = sys::cap_drop(segment);
        })?;
        let control_page = reserve(1)?;
        let priority_max = time.map_or(0, |(priority, _)| priority);
        let flags = if vectors == Vectors::Own { context::FPU } else { 0 };
        let made = sys::context_alloc(Handle::SELF_RAM, Handle::SELF_DOMAIN, control_page, flags, priority_max)?;
        let mut companion = Companion { context: made, time: None, control_page, _stack: keeper };
        if let Some((priority, slice_us)) = time {
            companion.time = Some(sys::context_schedule(Handle::SELF_RAM, made, priority, slice_us)?);
        }
        // As after a call: the return address would lie below a multiple of 16.
        let top = stack + stack_bytes - 8;
        // SAFETY: the stack is its own; for the code the caller answers.
        unsafe { sys::context_start(made, entry as usize as u64, top, [argument, 0]) }?;
        Ok(companion)
    }

    /// Its context.
    pub fn context(&self) -> Handle {
        self.context
    }

    /// Its time, if it has any.
    pub fn time(&self) -> Option<Handle> {
        self.time
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        // It may have ended itself.
        let _ = sys::context_end(self.context);
        let _ = sys::cap_drop(self.context);
        if let Some(time) = self.time {
            let _ = sys::cap_drop(time);
        }
        // SAFETY: the page was the context's, which has ended.
        let _ = unsafe { sys::range_unmap(Handle::SELF_RANGE, self.control_page, 1) };
    }
}

/// What a [`Turner`] does.
pub trait Turn {
    /// Does all that there is to do.
    fn turn(&mut self);
}

/// A context with time of its own that takes a turn at its beginning, and after each batch of
/// notifications. It ends when this is dropped, wherever it is, and what it worked with is freed
/// unseen.
pub struct Turner<T> {
    companion: Option<Companion>,
    work: *mut T,
}

impl<T: Turn + 'static> Turner<T> {
    /// Starts one; `time` as for [`Companion::start`].
    ///
    /// # Errors
    /// Those of `ContextAlloc` and `ContextSchedule`.
    ///
    /// # Safety
    /// `turn` neither allocates nor frees, uses no executor and no log, and reaches no object that
    /// is not made for several contexts but those in `work`. It may be stopped for good at any
    /// point: `work` can be dropped all the same.
    pub unsafe fn start(work: T, time: (u64, u64)) -> Result<Turner<T>, Error> {
        let mut turner = Turner { companion: None, work: Box::into_raw(Box::new(work)) };
        let place = turner.work.expose_provenance() as u64;
        // SAFETY: `take_turns` makes calls and takes turns, for which the caller answers; the work
        // is there until the companion has ended.
        turner.companion = Some(unsafe { Companion::start(take_turns::<T>, place, Some(time)) }?);
        Ok(turner)
    }

    /// Its context, once it was started.
    pub fn context(&self) -> Option<Handle> {
        self.companion.as_ref().map(Companion::context)
    }
}

impl<T> Drop for Turner<T> {
    fn drop(&mut self) {
        self.companion = None;
        // SAFETY: it came from a box, and who used it has ended.
        drop(unsafe { Box::from_raw(self.work) });
    }
}

extern "C" fn take_turns<T: Turn>(place: u64) -> ! {
    // SAFETY: `Turner::start` gave the address of one that is there as long as this context, and
    // that nobody else uses meanwhile.
    let work = unsafe { &mut *core::ptr::with_exposed_provenance_mut::<T>(place as usize) };
    loop {
        work.turn();
        let _ = sys::wait(u64::MAX);
    }
}

/// Whether a worker's code uses vector registers: components are built without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vectors {
    /// The first use ends the component.
    None,
    /// It has some of its own, kept over its calls.
    Own,
}

/// Answers calls of a portal, on the time of who makes them.
pub trait Serve: Sync {
    /// One call: the badge of the portal's capability, and four words; three are the answer.
    fn serve(&self, badge: u64, words: [u64; 4]) -> [u64; 3];
}

/// A worker that goes in circles instead of serving the next call, for tests of recovery.
static HANGS: AtomicBool = AtomicBool::new(false);

/// Has the next call of a worker of this component never answered.
pub(crate) fn hang_workers() {
    HANGS.store(true, Ordering::Relaxed);
}

/// A context without time of its own (NOVA's worker): it serves calls on its callers' time. It ends
/// when this is dropped; its callers hear `PeerDead`.
pub struct Worker(Companion);

impl Worker {
    /// Starts one. If it serves for `limit_ns` of processor time beyond its callers' deadlines
    /// while others wait for it, this component is notified of that by `bit` (of
    /// [`OWN_BITS`](crate::OWN_BITS)). Errors: those of `ContextAlloc` and `ContextWatch`.
    ///
    /// # Safety
    /// `serve` neither allocates nor frees, uses no executor and no log, and reaches no object that
    /// is not made for several contexts. It may be stopped for good at any point.
    pub unsafe fn start<S: Serve>(
        server: &'static S,
        vectors: Vectors,
        limit_ns: u64,
        bit: u64,
    ) -> Result<Worker, Error> {
        let place = core::ptr::from_ref(server).expose_provenance() as u64;
        // SAFETY: `serve_calls` makes calls and runs `serve`, for which the caller answers; the
        // server is there for ever.
        let companion = unsafe { Companion::start_with(serve_calls::<S>, place, None, vectors) }?;
        let told = sys::cap_mint(Handle::SELF_CONTEXT, Rights::NOTIFY, bit)?;
        let watched = sys::context_watch(companion.context(), limit_ns, told);
        // The watch has its own.
        let _ = sys::cap_drop(told);
        watched.map(|()| Worker(companion))
    }

    /// Has a portal lead here. Its callers hear `PeerDead` before.
    pub fn lead(&self, portal: Handle) -> Result<(), Error> {
        sys::portal_set(portal, self.0.context())
    }
}

extern "C" fn serve_calls<S: Serve>(place: u64) -> ! {
    // SAFETY: `Worker::start` gave the address of one that is there for ever.
    let server = unsafe { &*core::ptr::with_exposed_provenance::<S>(place as usize) };
    let mut answer = [0; 3];
    loop {
        let Ok(Rendezvous { badge, words }) = sys::portal_reply_wait(answer, u64::MAX) else { continue };
        while HANGS.load(Ordering::Relaxed) {
            core::hint::spin_loop();
        }
        answer = server.serve(badge, words);
    }
}

/// Waits at a semaphore for this component, whose tasks may not: each time that it was raised, the
/// component is notified.
pub struct Waiter(#[expect(dead_code, reason = "it ends with this")] Companion);

impl Waiter {
    /// Starts one with time of that priority (at most the component's). `bit` is one of
    /// [`OWN_BITS`](crate::OWN_BITS). Errors: those of `ContextAlloc` and `ContextSchedule`.
    pub fn start(semaphore: Handle, bit: u64, priority: u64) -> Result<Waiter, Error> {
        let told = sys::cap_mint(Handle::SELF_CONTEXT, Rights::NOTIFY, bit)?;
        let time = Some((priority, WAITER_SLICE_US));
        // SAFETY: it makes kernel calls only.
        unsafe { Companion::start(wait_and_tell, pair(semaphore, told)?, time) }.map(Waiter)
    }
}

/// Two handles as one argument.
fn pair(first: Handle, second: Handle) -> Result<u64, Error> {
    let [Ok(first), Ok(second)] = [first, second].map(|handle| u32::try_from(handle.0)) else {
        return Err(Error::BadHandle);
    };
    Ok(u64::from(first) << 32 | u64::from(second))
}

fn of_pair(handles: u64) -> [Handle; 2] {
    [handles >> 32, handles & u64::from(u32::MAX)].map(Handle)
}

/// Raises a semaphore each time that another was raised: a signal that goes on to a client (NOVA's
/// signal handler). It waits at the first only; raising never waits, whatever the client does.
pub struct Relay(#[expect(dead_code, reason = "it ends with this")] Companion);

impl Relay {
    /// Starts one with time of that priority (at most the component's). Errors: those of
    /// `ContextAlloc` and `ContextSchedule`.
    pub fn start(from: Handle, to: Handle, priority: u64) -> Result<Relay, Error> {
        let time = Some((priority, WAITER_SLICE_US));
        // SAFETY: it makes kernel calls only.
        unsafe { Companion::start(pass_on, pair(from, to)?, time) }.map(Relay)
    }
}

/// Calls portals for this component, on time of its own that can be read: what a call costs the one
/// that makes it, in whatever domains it runs.
pub struct Caller {
    companion: Companion,
    order: &'static Order,
    bit: u64,
}

/// What a [`Caller`] is to do: written before `begin` is raised, answered before `told` is
/// notified.
struct Order {
    begin: Handle,
    told: Handle,
    portal: AtomicU64,
    words: [AtomicU64; 4],
    deadline_ns: AtomicU64,
    is_answered: AtomicBool,
    answer: [AtomicU64; 3],
}

impl Caller {
    /// Starts one with time of that priority (at most the component's). `bit` is one of
    /// [`OWN_BITS`](crate::OWN_BITS). Errors: those of `ContextAlloc`, `ContextSchedule` and
    /// `SemaphoreAlloc`.
    pub fn start(bit: u64, priority: u64) -> Result<Caller, Error> {
        let zero = || AtomicU64::new(0);
        let order: &'static Order = Box::leak(Box::new(Order {
            begin: sys::semaphore_alloc(Handle::SELF_RAM, 0)?,
            told: sys::cap_mint(Handle::SELF_CONTEXT, Rights::NOTIFY, bit)?,
            portal: zero(),
            words: [(); 4].map(|()| zero()),
            deadline_ns: zero(),
            is_answered: AtomicBool::new(false),
            answer: [(); 3].map(|()| zero()),
        }));
        let place = core::ptr::from_ref(order).expose_provenance() as u64;
        // SAFETY: it makes kernel calls, and reaches atomic words that are there for ever.
        let companion = unsafe { Companion::start(make_calls, place, Some((priority, CALLER_SLICE_US))) }?;
        Ok(Caller { companion, order, bit })
    }

    /// One call; `None`: it was not answered.
    pub async fn call(&mut self, portal: Handle, words: [u64; 4], deadline_ns: u64) -> Option<[u64; 3]> {
        let order = self.order;
        order.portal.store(portal.0, Ordering::Relaxed);
        order.words.iter().zip(words).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
        order.deadline_ns.store(deadline_ns, Ordering::Release);
        sys::semaphore_up(order.begin, 1).ok()?;
        crate::notified(self.bit).await;
        let answer = order.answer.each_ref().map(|word| word.load(Ordering::Relaxed));
        order.is_answered.load(Ordering::Acquire).then_some(answer)
    }

    /// Processor time that it has paid for until now, in ns. Errors: those of `ScheduleStat`.
    pub fn used_ns(&self) -> Result<u64, Error> {
        let time = self.companion.time().ok_or(Error::BadHandle)?;
        sys::schedule_stat(time).map(|(used_ns, ..)| used_ns)
    }
}

/// Time for a long call.
const CALLER_SLICE_US: u64 = 10_000;

extern "C" fn make_calls(place: u64) -> ! {
    // SAFETY: `Caller::start` gave the address of one that is there for ever.
    let order = unsafe { &*core::ptr::with_exposed_provenance::<Order>(place as usize) };
    loop {
        if sys::semaphore_down(order.begin, u64::MAX).is_err() {
            continue;
        }
        let deadline_ns = order.deadline_ns.load(Ordering::Acquire);
        let words = order.words.each_ref().map(|word| word.load(Ordering::Relaxed));
        let answer = sys::portal_call(Handle(order.portal.load(Ordering::Relaxed)), words, deadline_ns);
        let told = answer.unwrap_or_default();
        order.answer.iter().zip(told).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
        order.is_answered.store(answer.is_ok(), Ordering::Release);
        // The component is there as long as this is.
        let _ = sys::notify(order.told);
    }
}

/// It runs for two kernel calls at a time.
const WAITER_SLICE_US: u64 = 1_000;

extern "C" fn wait_and_tell(handles: u64) -> ! {
    each_time(handles, |told| {
        // The component is there as long as this is.
        let _ = sys::notify(told);
    })
}

extern "C" fn pass_on(handles: u64) -> ! {
    each_time(handles, |to| {
        // Refused at a count that nobody takes from: that one hears of none more.
        let _ = sys::semaphore_up(to, 1);
    })
}

/// Each time that the first of two handles, a semaphore, was raised: does `work` with the second.
fn each_time(handles: u64, work: impl Fn(Handle)) -> ! {
    let [semaphore, other] = of_pair(handles);
    loop {
        if sys::semaphore_down(semaphore, u64::MAX).is_err() {
            // The semaphore is gone: nothing raises it any more.
            let _ = sys::wait(u64::MAX);
        }
        work(other);
    }
}

#[cfg(all(test, not(target_os = "none")))]
mod tests {
    use super::*;

    #[test]
    fn two_handles_go_as_one_argument_and_come_out_as_they_were() {
        for [first, second] in [[3, 5], [0, u32::MAX], [u32::MAX, 1 << 31]].map(|pair| pair.map(|at| Handle(at.into())))
        {
            assert_eq!(pair(first, second).map(of_pair), Ok([first, second]));
        }
        assert_eq!(pair(Handle(1 << 32), Handle(1)), Err(Error::BadHandle));
        assert_eq!(pair(Handle(1), Handle(1 << 32)), Err(Error::BadHandle));
    }
}
