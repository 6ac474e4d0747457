//! Further execution contexts of this program, of the core it lives on: kernel threads.
//!
//! A companion has a stack, a control page and time of its own, and shares everything else. The
//! heap, the executor and the log belong to the first context: a companion computes, makes kernel
//! calls, and meets the rest by semaphores and notifications.

use alloc::rc::Rc;
use core::any::Any;
use core::sync::atomic::{AtomicBool, Ordering};

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
        let (Ok(raised), Ok(tells)) = (u32::try_from(semaphore.0), u32::try_from(told.0)) else {
            return Err(Error::BadHandle);
        };
        // SAFETY: it makes kernel calls only.
        let companion = unsafe {
            Companion::start(
                wait_and_tell,
                u64::from(raised) << 32 | u64::from(tells),
                Some((priority, WAITER_SLICE_US)),
            )
        }?;
        Ok(Waiter(companion))
    }
}

/// It runs for two kernel calls at a time.
const WAITER_SLICE_US: u64 = 1_000;

extern "C" fn wait_and_tell(handles: u64) -> ! {
    let (semaphore, told) = (Handle(handles >> 32), Handle(handles & u64::from(u32::MAX)));
    loop {
        if sys::semaphore_down(semaphore, u64::MAX).is_err() {
            // The semaphore is gone: nothing raises it any more.
            let _ = sys::wait(u64::MAX);
        }
        // The component is there as long as this is.
        let _ = sys::notify(told);
    }
}
