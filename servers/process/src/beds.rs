//! Sleeping on words of memory that processes have in common, as tasks.

use core::cell::RefCell;

use process_core::sleepers::{Sleepers, Ticket, Word};
use runtime::Watch;

/// Who sleeps.
#[derive(Default)]
pub struct Beds {
    sleepers: RefCell<Sleepers>,
    woken: Watch,
}

/// A sleep under way; dropped, it is given up.
struct Sleep<'b> {
    beds: &'b Beds,
    word: Word,
    ticket: Ticket,
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        self.beds.sleepers.borrow_mut().remove(self.word, self.ticket);
    }
}

impl Beds {
    /// Sleeps until woken.
    pub async fn sleep(&self, word: Word, bits: u32) {
        let ticket = self.sleepers.borrow_mut().add(word, bits);
        let sleep = Sleep { beds: self, word, ticket };
        self.woken.until(|| self.sleepers.borrow_mut().take_woken(sleep.ticket).then_some(())).await;
    }

    /// Wakes up to `count` who share one of the bits; gives how many.
    pub fn wake(&self, word: Word, count: u32, bits: u32) -> u32 {
        let woken = self.sleepers.borrow_mut().wake(word, count, bits);
        if woken > 0 {
            self.woken.changed();
        }
        woken
    }
}
