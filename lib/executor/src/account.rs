//! For whom the component works: how long it was awake for each client, by the processor's clock.
//!
//! ```text
//!  asleep │ wakes    request of A         task of B               sleeps
//!  ───────┼──────────────┬──────────────────┬───────────────────────┼─────
//!         │     for A           for A       │         for B         │
//!     clock read                        clock read            clock read
//! ```
//!
//! The clock is read when work passes to another account, and around sleep: a request that comes
//! alone costs two readings. What lies between tasks, taking in messages and notifying peers, is on
//! the account that was worked for last; from waking up to the first request or task, on its, or on
//! the component's own if none comes. A task is on the account that was worked for when it was
//! started, so what a request spawns is its client's.
//!
//! The clock goes on while others have the core. So now and then the kernel is asked how long the
//! component ran, and what is too much is taken from the account of the longest stretch since it
//! was asked last; what is more than that stretch from all in proportion, so that the sum is right.
//!
//! Invariants: all time between waking up and sleeping is on one account, save that of [`away`]; an
//! account that ends leaves its time to the ended ones. There are as many as channels are served.
//! Time is kept from the first question for it on, until nobody asked for long: else the clock is
//! not read. Deliberately unknown here: what a client is, nanoseconds.

use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::Cell;

use crate::{local, with};

/// Who is worked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account(u32);

impl Account {
    /// The component itself: what is done for no client.
    pub const OWN: Account = Account(u32::MAX);
    /// Clients that have ended.
    const ENDED: Account = Account(u32::MAX - 1);
    /// Not known yet: what comes first tells.
    const UNKNOWN: Account = Account(u32::MAX - 2);
}

/// The kernel is asked when the component was awake for so many ticks, a quarter of a millisecond
/// or so: its answer takes about a thousandth of that.
pub(crate) const SETTLE_TICKS: u64 = 1 << 19;

/// So often the kernel is asked before time is kept no longer, as nobody wants to know: after some
/// 16 seconds awake.
const UNASKED_MAX: u32 = 1 << 16;

struct Row {
    client: Rc<str>,
    ticks: u64,
}

/// What each request and each task looks at, apart from all else.
pub(crate) struct Now {
    /// Who is worked for.
    account: Cell<Account>,
    /// Somebody asked for it: time is kept.
    is_kept: Cell<bool>,
}

impl Now {
    pub const fn new() -> Now {
        Now { account: Cell::new(Account::OWN), is_kept: Cell::new(false) }
    }
}

pub(crate) struct Accounts {
    /// The clock when the account that is worked for became that.
    since: u64,
    /// By number; `None`: free.
    rows: Vec<Option<Row>>,
    own: u64,
    ended: u64,
    /// Since the kernel was asked: ticks on all accounts, and the longest stretch of them.
    awake: u64,
    longest: (Account, u64),
    /// Ticks that the component had run then, and when time began to be kept.
    ran: u64,
    ran_before: u64,
    /// How often the kernel was asked since somebody asked for it.
    unasked: u32,
}

/// Ticks of the processor's clock by who was worked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Clients that have a channel, each once.
    pub clients: Vec<(String, u64)>,
    /// Clients that have ended.
    pub ended: u64,
    /// No client.
    pub own: u64,
    /// How long the component ran since time began to be kept.
    pub ran: u64,
}

impl Accounts {
    pub const fn new() -> Accounts {
        Accounts {
            since: 0,
            rows: Vec::new(),
            own: 0,
            ended: 0,
            awake: 0,
            longest: (Account::OWN, 0),
            ran: 0,
            ran_before: 0,
            unasked: 0,
        }
    }

    /// From now on that one is worked for.
    fn pass_to(&mut self, account: Account) {
        self.book();
        set_current(if account == Account::UNKNOWN { Account::OWN } else { account });
    }

    /// Puts the time until now on the account that is worked for; if that is not known yet, what
    /// comes first gets it.
    fn book(&mut self) {
        if current() == Account::UNKNOWN {
            return;
        }
        let now = local::ticks();
        let (account, stretch) = (current(), now.saturating_sub(self.since));
        self.since = now;
        *self.ticks_of(account) += stretch;
        self.awake += stretch;
        if stretch > self.longest.1 {
            self.longest = (account, stretch);
        }
    }

    fn ticks_of(&mut self, account: Account) -> &mut u64 {
        match self.rows.get_mut(account.0 as usize) {
            Some(Some(row)) => &mut row.ticks,
            _ if account == Account::ENDED => &mut self.ended,
            _ => &mut self.own,
        }
    }

    /// Is the kernel to be asked how long the component ran?
    #[inline(always)]
    pub fn is_unsettled(&self) -> bool {
        self.awake >= SETTLE_TICKS
    }

    /// The component ran for `ran` ticks, by the kernel's account: what is on accounts beyond that
    /// was others' time.
    fn settle(&mut self, ran: u64) {
        if !is_kept() {
            return;
        }
        self.book();
        let excess = self.awake.saturating_sub(ran.saturating_sub(self.ran));
        let (account, stretch) = core::mem::replace(&mut self.longest, (Account::OWN, 0));
        let taken = excess.min(stretch);
        let ticks = self.ticks_of(account);
        *ticks = ticks.saturating_sub(taken);
        (self.awake, self.ran) = (0, ran);
        if excess > taken {
            self.scale_down(excess - taken);
        }
        self.unasked += 1;
        set_kept(self.unasked < UNASKED_MAX);
    }

    /// Somebody asks: from now on time is kept, if it was not.
    fn keep(&mut self, ran: u64) {
        self.unasked = 0;
        if is_kept() {
            return;
        }
        set_kept(true);
        self.rows.iter_mut().flatten().for_each(|row| row.ticks = 0);
        (self.own, self.ended, self.awake, self.longest) = (0, 0, 0, (Account::OWN, 0));
        (self.ran, self.ran_before, self.since) = (ran, ran, local::ticks());
    }

    /// Takes so many ticks from all accounts, of each in proportion to what it has.
    fn scale_down(&mut self, by: u64) {
        let Accounts { rows, own, ended, .. } = self;
        let all = || rows.iter().flatten().map(|row| row.ticks).chain([*own, *ended]);
        let sum = u128::from(all().sum::<u64>().max(1));
        let left = |ticks: u64| ticks - (u128::from(ticks) * u128::from(by).min(sum) / sum) as u64;
        (*own, *ended) = (left(*own), left(*ended));
        rows.iter_mut().flatten().for_each(|row| row.ticks = left(row.ticks));
    }

    fn open(&mut self, client: &str) -> Account {
        let number = self.rows.iter().position(Option::is_none).unwrap_or_else(|| {
            self.rows.push(None);
            self.rows.len() - 1
        });
        self.rows[number] = Some(Row { client: client.into(), ticks: 0 });
        Account(number as u32)
    }

    /// The time of a client's account becomes that of ended ones.
    fn end(&mut self, account: Account) {
        if account == Account::OWN {
            return;
        }
        if is_kept() {
            self.book();
        }
        self.ended += core::mem::take(self.ticks_of(account));
        if self.longest.0 == account {
            self.longest.0 = Account::ENDED;
        }
    }
}

/// Opens an account for a client of that name. Several of one name are told as one.
pub fn open_account(client: &str) -> Account {
    with(|executor| executor.accounts.open(client))
}

/// The client ended, and may have a successor: what was done for it is told with that of ended ones
/// from now on.
pub fn end_account(account: Account) {
    with(|executor| executor.accounts.end(account));
}

/// Ends an account for good; its tasks are the component's own from now on.
pub fn close_account(account: Account) {
    with(|executor| {
        let accounts = &mut executor.accounts;
        accounts.end(account);
        if current() == account {
            set_current(Account::OWN);
        }
        if let Some(row) = accounts.rows.get_mut(account.0 as usize) {
            *row = None;
        }
        executor.tasks.pass_all(account, Account::OWN);
    });
}

/// Is time kept?
#[inline(always)]
pub(crate) fn is_kept() -> bool {
    local::now(|now| now.is_kept.get())
}

fn set_kept(is_kept: bool) {
    local::now(|now| now.is_kept.set(is_kept));
}

/// The account of a task that is started now.
#[inline(always)]
pub(crate) fn current() -> Account {
    local::now(|now| now.account.get())
}

#[inline(always)]
fn set_current(account: Account) {
    local::now(|now| now.account.set(account));
}

/// From now on, until another is named, a task of another is polled or the component sleeps, that
/// account is worked for.
#[inline(always)]
pub fn work_for(account: Account) {
    if is_kept() { pass_to(account) } else { set_current(account) }
}

#[cold]
fn pass_to(account: Account) {
    if current() != account {
        with(|executor| executor.accounts.pass_to(account));
    }
}

/// Does what gives the core to others: the time is on no account.
#[inline(always)]
pub fn away<T>(work: impl FnOnce() -> T) -> T {
    let is_kept = is_kept();
    if is_kept {
        leave();
    }
    let done = work();
    if is_kept {
        come_back();
    }
    done
}

/// As [`away`], and who is worked for next is not known.
#[inline(always)]
pub(crate) fn asleep<T>(sleep: impl FnOnce() -> T) -> T {
    let is_kept = is_kept();
    if is_kept {
        leave();
        set_current(Account::UNKNOWN);
    }
    let slept = sleep();
    if is_kept {
        come_back();
    }
    slept
}

#[cold]
fn leave() {
    // What was done since waking up, before anything came, was for nobody.
    if current() == Account::UNKNOWN {
        set_current(Account::OWN);
    }
    with(|executor| executor.accounts.book());
}

#[cold]
fn come_back() {
    with(|executor| executor.accounts.since = local::ticks());
}

/// Compares with the kernel's account, by which the component ran for `ran` ticks since it began.
pub(crate) fn settle(ran: u64) {
    with(|executor| executor.accounts.settle(ran));
}

/// What the component did since this was asked first, and for whom; nothing if that is now, or was
/// long ago. `ran`: ticks that it ran, by the kernel's account.
pub fn work(ran: u64) -> Work {
    settle(ran);
    with(|executor| {
        executor.accounts.keep(ran);
        let Accounts { rows, ended, own, ran_before, .. } = &executor.accounts;
        let mut clients: Vec<(String, u64)> = Vec::new();
        for row in rows.iter().flatten() {
            match clients.iter_mut().find(|(client, _)| **client == *row.client) {
                Some((_, ticks)) => *ticks += row.ticks,
                None => clients.push((row.client.to_string(), row.ticks)),
            }
        }
        Work { clients, ended: *ended, own: *own, ran: ran.saturating_sub(*ran_before) }
    })
}

#[cfg(all(test, not(target_os = "none")))]
mod tests;
