//! Reads and writes that a server may answer while it is asked: which descriptions may be asked so,
//! and what becomes of a question that was not answered at once.
//!
//! Invariants: a question is asked once: what was begun is finished by the other half of the same
//! call, or answered; it is begun only between the two. Deliberately unknown here: channels, and
//! the program's memory.

use core::cell::Cell;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use crate::descriptors::{Description, server};
use crate::flags::{O_ACCMODE, O_PATH};

/// Whether a description may be asked where the call is made: a pipe, socket or the like that is
/// open for this and has no time limit for it. `closed` is how it must not be open (`O_RDONLY` or
/// `O_WRONLY`), `limit_ns` its time limit, 0 for none.
pub fn may_ask(found: &Description, closed: u32, limit_ns: u64) -> bool {
    let is_open = found.flags & O_PATH == 0 && found.flags & O_ACCMODE != closed;
    is_open && matches!(found.server, server::PROCESS | server::TCP) && limit_ns == 0
}

/// How far a question has come.
pub enum Question<C, A> {
    /// The server has it.
    Asked(C),
    /// With what is not all that was wanted.
    Answered(A),
}

impl<C: Future<Output = A> + Unpin, A> Question<C, A> {
    /// Polls a call once, which gives the server our time.
    pub fn ask(mut call: C) -> Self {
        match Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Question::Answered(answer),
            Poll::Pending => Question::Asked(call),
        }
    }

    /// The answer; `wait` awaits it if it is not there.
    pub async fn answer(self, wait: impl AsyncFnOnce(C) -> A) -> A {
        match self {
            Question::Asked(call) => wait(call).await,
            Question::Answered(answer) => answer,
        }
    }
}

/// A question that goes on with the call's other half, and what has to stay until then.
pub struct Begun<C, A, K>(Cell<Option<(Question<C, A>, K)>>);

impl<C, A, K> Default for Begun<C, A, K> {
    fn default() -> Self {
        Begun(Cell::new(None))
    }
}

impl<C, A, K> Begun<C, A, K> {
    /// The other half of the call will find it.
    pub fn leave(&self, question: Question<C, A>, kept: K) {
        assert!(self.0.replace(Some((question, kept))).is_none(), "a question was left, and its call did not go on");
    }

    /// What the first half left, if it has asked.
    pub fn take(&self) -> Option<(Question<C, A>, K)> {
        self.0.take()
    }
}

/// How many bytes of a write are still to be written, of which the server took `taken`; `None`: it
/// is done, with all or with nothing.
pub fn rest(taken: u32, count: u64) -> Option<u64> {
    count.checked_sub(taken.into()).filter(|rest| *rest > 0 && *rest < count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{O_NONBLOCK, O_RDWR, O_WRONLY};
    use std::rc::Rc;

    const O_RDONLY: u32 = 0;

    /// A server's answer, which is there at the poll of that number; counts the polls.
    struct Call {
        polls: Rc<Cell<u32>>,
        ready_at: u32,
    }

    impl Future for Call {
        type Output = u32;

        fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u32> {
            self.polls.set(self.polls.get() + 1);
            context.waker().wake_by_ref();
            if self.polls.get() == self.ready_at { Poll::Ready(7) } else { Poll::Pending }
        }
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        let mut future = Box::pin(future);
        (0..100)
            .find_map(|_| match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(output) => Some(output),
                Poll::Pending => None,
            })
            .expect("it comes to an end")
    }

    /// One call of a program, as the proxy makes it: the first half tries, the second, if there is
    /// one, takes over. Gives the questions asked, the polls, and the answer of each half.
    fn call(ready_at: u32) -> (u32, u32, [Option<u32>; 2]) {
        let (asked, polls) = (Cell::new(0), Rc::new(Cell::new(0)));
        let question = || {
            asked.set(asked.get() + 1);
            Question::ask(Call { polls: polls.clone(), ready_at })
        };
        let begun = Begun::default();
        let first = match question() {
            Question::Answered(answer) => Some(answer),
            question => {
                begun.leave(question, "the bulk area");
                None
            }
        };
        let second = first.is_none().then(|| {
            run(async {
                let (question, kept) = match begun.take() {
                    Some((question, kept)) => (question, Some(kept)),
                    None => (question(), None),
                };
                let answer = question.answer(async |call| call.await).await;
                assert_eq!(kept, Some("the bulk area"), "it stays until the answer is taken");
                answer
            })
        });
        assert!(begun.take().is_none(), "nothing is left behind a call");
        (asked.get(), polls.get(), [first, second])
    }

    #[test]
    fn an_answer_that_is_there_at_once_needs_no_other_half() {
        assert_eq!(call(1), (1, 1, [Some(7), None]));
    }

    #[test]
    fn a_question_is_asked_once_however_long_its_answer_takes() {
        for ready_at in 2..10 {
            assert_eq!(call(ready_at), (1, ready_at, [None, Some(7)]));
        }
    }

    /// An answer that is there but not what was wanted is not asked for again.
    #[test]
    fn an_answer_that_was_left_is_the_answer() {
        let begun: Begun<core::future::Ready<u32>, u32, ()> = Begun::default();
        begun.leave(Question::ask(core::future::ready(3)), ());
        let (question, ()) = begun.take().unwrap();
        assert_eq!(run(question.answer(async |_| panic!("it is not waited for"))), 3);
    }

    #[test]
    #[should_panic(expected = "did not go on")]
    fn a_question_that_nobody_took_is_not_overwritten() {
        let begun: Begun<core::future::Ready<u32>, u32, ()> = Begun::default();
        (0..2).for_each(|answer| begun.leave(Question::Answered(answer), ()));
    }

    #[test]
    fn only_what_waits_at_a_server_without_a_limit_is_asked() {
        let of = |server, flags| Description { server, id: 1, flags, ..Description::default() };
        let may = |server, flags, closed, limit_ns| may_ask(&of(server, flags), closed, limit_ns);
        for server in [server::PROCESS, server::TCP] {
            assert!(may(server, O_RDWR, O_WRONLY, 0) && may(server, O_RDWR, O_RDONLY, 0));
            assert!(may(server, O_NONBLOCK, O_WRONLY, 0) && may(server, O_WRONLY, O_RDONLY, 0));
            assert!(!may(server, O_WRONLY, O_WRONLY, 0), "read of what is open for writing");
            assert!(!may(server, O_RDONLY, O_RDONLY, 0), "write to what is open for reading");
            assert!(!may(server, O_RDWR | O_PATH, O_WRONLY, 0), "it stands for a place only");
            assert!(!may(server, O_RDWR, O_WRONLY, 1), "it has a limit");
        }
        assert!(!may(server::FS, O_RDWR, O_WRONLY, 0) && !may(server::CONSOLE, O_RDWR, O_WRONLY, 0));
    }

    #[test]
    fn a_write_goes_on_behind_what_was_taken() {
        assert_eq!([0, 1, 9, 10].map(|taken| rest(taken, 10)), [None, Some(9), Some(1), None]);
        assert_eq!(rest(11, 10), None, "a server that took more than there is");
    }
}
