//! Ledger: who paid for the time that a domain ran (decision 92).
//!
//! Each domain has one. A row is a payer: a scheduling context on whose time the domain ran, its
//! own or a donated one. Invariants: the payer on whose time the domain ran last has the first row,
//! the others follow as they ran; a payer has one row at most. The sum of the rows is never more
//! than `Domain::cpu_ns`: the rest was paid by payers whose row was given to others, and by those
//! that ended while it ran. Rows name objects by ids, which are never used again, so that they may
//! outlive them.

use crate::objects::{Ptr, Schedule};
use core::cell::Cell;

/// Rows of a ledger: payers among which a domain alternates without loss.
pub const ROWS: usize = 16;

/// What one payer paid.
#[derive(Clone, Copy, Default)]
pub struct Row {
    /// Id of the scheduling context; 0: the row is free.
    pub payer: u64,
    /// Id of the domain whose context it belonged to; 0: that context had ended.
    pub client: u64,
    /// How long the domain ran on it.
    pub paid_ns: u64,
}

/// Who paid for a domain's time; nobody yet.
#[derive(Default)]
pub struct Ledger([Cell<Row>; ROWS]);

impl Ledger {
    /// Books time that the domain ran on that of `payer`.
    #[inline(always)]
    pub(crate) fn add(&self, payer: Ptr<Schedule>, elapsed_ns: u64) {
        if self.0[0].get().payer != payer.header().id() {
            self.bring_first(payer);
        }
        let row = self.0[0].get();
        self.0[0].set(Row { paid_ns: row.paid_ns.wrapping_add(elapsed_ns), ..row });
    }

    /// Gives `payer` the first row: its own, or else that of who ran longest ago.
    #[inline(never)]
    fn bring_first(&self, payer: Ptr<Schedule>) {
        let client = payer.context.get().map_or(0, |context| context.domain().header().id());
        let mut moved = Row { payer: payer.header().id(), client, paid_ns: 0 };
        // Written out for each row this would be the largest function of the scheduler.
        for place in core::hint::black_box(&self.0[..]) {
            moved = place.replace(moved);
            if moved.payer == payer.header().id() {
                return self.0[0].set(moved);
            }
        }
    }

    /// The row with that number, if it is not free.
    pub fn row(&self, number: u64) -> Option<Row> {
        self.0.get(number as usize).map(Cell::get).filter(|row| row.payer != 0)
    }
}
