//! On Pelago: the control page of the first context, upcalls, stacks with an empty page below.

use alloc::rc::Rc;
use core::any::Any;

use abi::{ControlPage, Error, Handle};

/// The control page of the context that runs threads: the program's first.
pub fn control() -> *mut ControlPage {
    abi::layout::CONTROL_PAGE as *mut ControlPage
}

/// See `ContextUpcall`.
///
/// # Safety
/// As for `sys::context_upcall`.
pub unsafe fn register(entry: u64, stack_top: u64, flags: u64) -> Result<(), Error> {
    // SAFETY: passed on.
    unsafe { sys::context_upcall(entry, stack_top, flags) }
}

/// A thread's stack.
pub struct Stack {
    top: u64,
    _mapping: Rc<dyn Any>,
}

impl Stack {
    /// Pages appear when touched; what runs over the end faults.
    pub fn new(pages: u64) -> Result<Stack, Error> {
        let (segment, _) = sys::segment_alloc(Handle::SELF_RAM, pages, 0)?;
        let (start, bytes, mapping) = runtime::map_segment(segment).inspect_err(|_| {
            let _ = sys::cap_drop(segment);
        })?;
        Ok(Stack { top: start + bytes, _mapping: mapping })
    }

    /// Its end.
    pub fn top(&self) -> u64 {
        self.top
    }
}
