//! Who waits for which request.
//!
//! Invariant: a request has at most one that waits, as long as that lives. An end for which nobody
//! waits is of a client that died, or of one that has not asked again yet: that asks for it anew.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use core::cell::RefCell;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use virtio_blk::{Answer, Completion, Failure};

/// How a request ended.
pub type Outcome = Result<Answer, Failure>;

#[derive(Default)]
struct Slot {
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

/// All that wait, by client and number.
#[derive(Clone, Default)]
pub struct Waiting {
    all: Rc<RefCell<BTreeMap<(u8, u64), Slot>>>,
}

impl Waiting {
    /// Begins to wait; `None` if somebody does already.
    pub fn begin(&self, client: u8, id: u64) -> Option<Wait> {
        let mut all = self.all.borrow_mut();
        let key = (client, id);
        if all.contains_key(&key) {
            return None;
        }
        all.insert(key, Slot::default());
        Some(Wait { waiting: self.clone(), key })
    }

    /// A request ended.
    pub fn end(&self, Completion { client, id, outcome }: Completion) {
        if let Some(slot) = self.all.borrow_mut().get_mut(&(client, id)) {
            slot.outcome = Some(outcome);
            if let Some(waker) = slot.waker.take() {
                waker.wake();
            }
        }
    }
}

/// Until a request ends. Dropped, nobody waits for it.
pub struct Wait {
    waiting: Waiting,
    key: (u8, u64),
}

impl Future for Wait {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let mut all = self.waiting.all.borrow_mut();
        // It is there for as long as this is.
        let Some(slot) = all.get_mut(&self.key) else { return Poll::Pending };
        if let Some(outcome) = slot.outcome {
            return Poll::Ready(outcome);
        }
        slot.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.waiting.all.borrow_mut().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::pin::pin;

    fn poll(wait: Pin<&mut Wait>) -> Poll<Outcome> {
        wait.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn each_hears_of_its_own_and_once() {
        let waiting = Waiting::default();
        let mut first = pin!(waiting.begin(0, 7).unwrap());
        let mut other = pin!(waiting.begin(1, 7).unwrap());
        assert!(waiting.begin(0, 7).is_none(), "somebody waits for that");
        assert_eq!(poll(first.as_mut()), Poll::Pending);
        waiting.end(Completion { client: 0, id: 7, outcome: Err(Failure::Io) });
        waiting.end(Completion { client: 0, id: 8, outcome: Ok(Answer::Done) });
        assert_eq!(poll(first.as_mut()), Poll::Ready(Err(Failure::Io)));
        assert_eq!(poll(other.as_mut()), Poll::Pending);
    }

    #[test]
    fn who_gave_up_waits_no_more() {
        let waiting = Waiting::default();
        drop(waiting.begin(0, 7));
        waiting.end(Completion { client: 0, id: 7, outcome: Ok(Answer::Done) });
        let mut again = pin!(waiting.begin(0, 7).unwrap());
        assert_eq!(poll(again.as_mut()), Poll::Pending, "that was an earlier one");
    }
}
