//! The protocols with a step left out. One type stands for all of them, and the step is chosen as
//! the tests run: a type for each step would have the whole simulator compiled for each.

use capability::{Protocol, Step};
use std::cell::Cell;

thread_local! {
    static LEFT_OUT: Cell<Option<Step>> = const { Cell::new(None) };
}

/// The protocols without the step that [`without`] names on this thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Broken;

impl Protocol for Broken {
    fn takes(step: Step) -> bool {
        LEFT_OUT.get() != Some(step)
    }
}

/// Does `work`, in which [`Broken`] leaves out this step.
pub fn without<T>(step: Step, work: impl FnOnce() -> T) -> T {
    LEFT_OUT.set(Some(step));
    let result = work();
    LEFT_OUT.set(None);
    result
}
