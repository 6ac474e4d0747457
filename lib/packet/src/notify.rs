//! "There is something to do": how the tasks of one component ask its turn task to run, once, after
//! all of them.

use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::task::{Poll, Waker};

/// A notification inside a component. One that comes while no task waits is kept; several before
/// the waiter runs are one.
#[derive(Debug, Default)]
pub struct Notify {
    is_notified: Cell<bool>,
    wakers: RefCell<Vec<Waker>>,
}

impl Notify {
    /// Wakes the tasks that wait.
    pub fn notify(&self) {
        self.is_notified.set(true);
        self.wakers.borrow_mut().drain(..).for_each(Waker::wake);
    }

    /// Waits for a notification and takes it. Several tasks may wait: the first that runs takes it,
    /// so each looks for itself whether there is something to do.
    pub async fn notified(&self) {
        poll_fn(|context| {
            if self.is_notified.take() {
                return Poll::Ready(());
            }
            let mut wakers = self.wakers.borrow_mut();
            if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                wakers.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Waits until `holds`; looked at after each notification, which is not taken.
    pub async fn until(&self, holds: impl Fn() -> bool) {
        poll_fn(|context| {
            if holds() {
                return Poll::Ready(());
            }
            self.wakers.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
