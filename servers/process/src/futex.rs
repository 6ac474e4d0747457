//! Futexes between processes: tasks that sleep on words of memory that processes share.

use core::cell::RefCell;

use process_core::futex_queues::{FutexQueues, Ticket, Word};
use runtime::Watch;

/// All futexes on which somebody sleeps.
#[derive(Default)]
pub struct Futexes {
    queues: RefCell<FutexQueues>,
    woken: Watch,
}

/// A sleep under way; dropped, it is given up.
struct Sleep<'b> {
    futexes: &'b Futexes,
    word: Word,
    ticket: Ticket,
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        self.futexes.queues.borrow_mut().remove(self.word, self.ticket);
    }
}

impl Futexes {
    /// Sleeps on a word until woken by a wake that has one of `bits`.
    pub async fn sleep(&self, word: Word, bits: u32) {
        let ticket = self.queues.borrow_mut().add(word, bits);
        let sleep = Sleep { futexes: self, word, ticket };
        self.woken.until(|| self.queues.borrow_mut().take_woken(sleep.ticket).then_some(())).await;
    }

    /// Wakes up to `count` sleepers of a word that have one of `bits`; gives how many.
    pub fn wake(&self, word: Word, count: u32, bits: u32) -> u32 {
        let woken = self.queues.borrow_mut().wake(word, count, bits);
        if woken > 0 {
            self.woken.changed();
        }
        woken
    }
}
