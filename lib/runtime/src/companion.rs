//! Further execution contexts of this program, of the core it lives on: kernel threads.
//!
//! A companion has a stack, a control page and time of its own, and shares everything else. The
//! heap, the executor and the log belong to the first context: a companion computes, makes kernel
//! calls, and meets the rest by semaphores and notifications.

use alloc::rc::Rc;
use core::any::Any;

use abi::{Error, Handle};

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
        let (segment, _) = sys::segment_alloc(Handle::SELF_RAM, STACK_PAGES, 0)?;
        let (stack, stack_bytes, keeper) = map_segment(segment).inspect_err(|_| {
            let _ = sys::cap_drop(segment);
        })?;
        let control_page = reserve(1)?;
        let priority_max = time.map_or(0, |(priority, _)| priority);
        let context = sys::context_alloc(Handle::SELF_RAM, Handle::SELF_DOMAIN, control_page, 0, priority_max)?;
        let mut companion = Companion { context, time: None, control_page, _stack: keeper };
        if let Some((priority, slice_us)) = time {
            companion.time = Some(sys::context_schedule(Handle::SELF_RAM, context, priority, slice_us)?);
        }
        // As after a call: the return address would lie below a multiple of 16.
        let top = stack + stack_bytes - 8;
        // SAFETY: the stack is its own; for the code the caller answers.
        unsafe { sys::context_start(context, entry as usize as u64, top, [argument, 0]) }?;
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
