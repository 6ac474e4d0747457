//! Waiting for a change of state inside a component: tasks look, and look again after each
//! [`Watch::changed`].

use alloc::vec::Vec;
use core::cell::RefCell;
use core::future::poll_fn;
use core::task::{Poll, Waker};

/// Who waits. Each waiter is one task, so the list is bounded by the component's tasks, which its
/// channels bound.
#[derive(Default)]
pub struct Watch {
    wakers: RefCell<Vec<Waker>>,
}

impl Watch {
    /// Makes one that nobody waits for.
    pub const fn new() -> Watch {
        Watch { wakers: RefCell::new(Vec::new()) }
    }

    /// Lets every waiter look again.
    #[inline]
    pub fn changed(&self) {
        if !self.wakers.borrow().is_empty() {
            self.wakers.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Waits until `look` gives something.
    pub async fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        poll_fn(|context| match look() {
            Some(found) => Poll::Ready(found),
            None => {
                let mut wakers = self.wakers.borrow_mut();
                if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                    wakers.push(context.waker().clone());
                }
                Poll::Pending
            }
        })
        .await
    }
}

#[cfg(all(test, not(target_os = "none")))]
mod tests {
    use super::*;
    use alloc::rc::Rc;
    use core::cell::Cell;

    #[test]
    fn all_that_wait_look_again_at_each_change_and_at_once() {
        crate::testing::run(async {
            let (watch, number, seen) = (Rc::new(Watch::new()), Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
            for wanted in [1, 1, 2] {
                let (watch, number, seen) = (watch.clone(), number.clone(), seen.clone());
                crate::spawn(async move {
                    watch.until(|| (number.get() >= wanted).then_some(())).await;
                    seen.set(seen.get() + 1);
                });
            }
            let mut told = [0; 3];
            for (change, told) in told.iter_mut().enumerate() {
                number.set(change);
                watch.changed();
                crate::sleep(1_000).await;
                *told = seen.get();
            }
            assert_eq!(told, [0, 2, 3]);
        });
    }
}
