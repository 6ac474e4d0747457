//! Ledger: who paid for the time that a domain ran (decision 92).
//!
//! Each domain has one. A row is a payer: a scheduling context on whose time the domain ran, its
//! own or a donated one. Invariants: a payer has one row at most, and rows keep their places; the
//! sum of the rows is never more than `Domain::cpu_ns`: the rest was paid by payers whose row was
//! given to others, and by those that ended while it ran. Rows name objects by ids, which are never
//! used again, so that they may outlive them.

use crate::objects::{Ptr, Schedule};
use core::cell::Cell;

/// Rows of a ledger: so many payers lose nothing.
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
pub struct Ledger {
    /// The row of who ran it last. Its own place has what it was when it became that.
    current: Cell<Row>,
    /// That place.
    place: Cell<usize>,
    rows: [Cell<Row>; ROWS],
}

impl Ledger {
    /// Books time that the domain ran on that of `payer`.
    #[inline(always)]
    pub(crate) fn add(&self, payer: Ptr<Schedule>, elapsed_ns: u64) {
        if self.current.get().payer != payer.header().id() {
            self.switch(payer);
        }
        let row = self.current.get();
        self.current.set(Row { paid_ns: row.paid_ns.wrapping_add(elapsed_ns), ..row });
    }

    /// Makes the row of `payer` the current one. If it has none it gets a free one, or that of who
    /// paid least.
    #[inline(never)]
    fn switch(&self, payer: Ptr<Schedule>) {
        self.rows[self.place.get()].set(self.current.get());
        let id = payer.header().id();
        let place = self.rows.iter().position(|row| row.get().payer == id).unwrap_or_else(|| {
            let client = payer.context.get().map_or(0, |context| context.domain().header().id());
            let least = (0..ROWS).min_by_key(|place| self.rows[*place].get().paid_ns).unwrap_or_default();
            self.rows[least].set(Row { payer: id, client, paid_ns: 0 });
            least
        });
        self.place.set(place);
        self.current.set(self.rows[place].get());
    }

    /// The row with that number, if it is not free.
    pub fn row(&self, number: u64) -> Option<Row> {
        let row = self.rows.get(number as usize)?;
        let row = if number as usize == self.place.get() { &self.current } else { row };
        Some(row.get()).filter(|row| row.payer != 0)
    }
}
