//! Time by account: a task takes as much of the clock as it says.

use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::Cell;

use super::{SETTLE_TICKS, UNASKED_MAX, asleep, settle};
use crate::turn::WORK_BETWEEN_LOOKS;
use crate::{
    Account, Platform, Work, away, block_on, close_account, end_account, open_account, pass, sleep_until, spawn, ticks,
    work, work_for, yield_now,
};

/// Asleep the clock goes on, and others run.
const ASLEEP: u64 = 1_000_000;
/// What the first look after waking up takes.
const LOOK: u64 = 600;

/// A component beside others.
#[derive(Default)]
struct Shared {
    now_ns: Cell<u64>,
    woke: Cell<bool>,
    /// Ticks that others had.
    others: Rc<Cell<u64>>,
    /// How often the kernel was asked.
    asked: Rc<Cell<u32>>,
}

impl Platform for Shared {
    fn now_ns(&self) -> u64 {
        if self.woke.take() {
            pass(LOOK);
        }
        self.now_ns.get()
    }

    fn ran_ticks(&self) -> u64 {
        self.asked.set(self.asked.get() + 1);
        ticks() - self.others.get()
    }

    fn wait(&self, deadline_ns: u64) -> u64 {
        if deadline_ns > 0 {
            pass(ASLEEP);
            self.others.set(self.others.get() + ASLEEP);
            self.now_ns.set(deadline_ns.max(self.now_ns.get()));
            self.woke.set(true);
        }
        0
    }
}

/// The names with what was done for each, and what for ended ones and for none.
fn told(platform: &Shared) -> (Vec<(String, u64)>, u64, u64) {
    let Work { clients, ended, own, .. } = work(ticks() - platform.others.get());
    (clients, ended, own)
}

fn clients<const N: usize>(all: [(&str, u64); N]) -> Vec<(String, u64)> {
    all.map(|(name, ticks)| (name.into(), ticks)).into()
}

/// A request of that client, as a port takes it.
fn request(account: Account, takes: u64) {
    work_for(account);
    spawn(async move { pass(takes) });
    pass(1);
}

/// So many turns that the kernel is asked if it is time to.
async fn turns() {
    for _ in 0..WORK_BETWEEN_LOOKS {
        yield_now().await;
    }
}

#[test]
fn each_task_is_on_the_account_of_whom_it_was_started_for() {
    let platform = Shared::default();
    pass(5000);
    block_on(&platform, async {
        let (one, other) = (open_account("one"), open_account("other"));
        assert_eq!(told(&platform), (clients([("one", 0), ("other", 0)]), 0, 0), "what was before is on none");
        request(one, 30);
        request(other, 400);
        // It spawns another in turn, and waits between two parts.
        work_for(one);
        spawn(async {
            pass(7);
            yield_now().await;
            pass(8);
            spawn(async { pass(9) });
        });
        work_for(Account::OWN);
        pass(70);
        for _ in 0..4 {
            yield_now().await;
        }
        assert_eq!(told(&platform), (clients([("one", 55), ("other", 401)]), 0, 70));
    });
}

#[test]
fn time_asleep_and_away_is_on_none_and_waking_on_whom_is_worked_for_first() {
    let platform = Shared::default();
    block_on(&platform, async {
        let one = open_account("one");
        told(&platform);
        work_for(one);
        spawn(async {
            pass(3);
            sleep_until(50).await;
            pass(4);
        });
        work_for(Account::OWN);
        sleep_until(100).await;
        pass(20);
        away(|| {
            pass(1000);
            platform.others.set(platform.others.get() + 1000);
        });
        pass(1);
        assert_eq!(told(&platform), (clients([("one", 7 + LOOK)]), 0, 21 + LOOK));
    });
}

#[test]
fn waking_for_nothing_is_the_components_own() {
    let platform = Shared::default();
    block_on(&platform, async {
        let one = open_account("one");
        told(&platform);
        work_for(one);
        asleep(|| ());
        pass(7);
        away(|| ());
        assert_eq!(told(&platform), (clients([("one", 0)]), 0, 7));
    });
}

#[test]
fn who_ends_is_told_with_the_ended_and_several_of_one_name_as_one() {
    let platform = Shared::default();
    block_on(&platform, async {
        let accounts = ["one", "one", "other"].map(open_account);
        told(&platform);
        for (account, takes) in accounts.into_iter().zip([10, 20, 40]) {
            work_for(account);
            pass(takes);
        }
        work_for(accounts[1]);
        let slow = async {
            yield_now().await;
            pass(100);
        };
        spawn(slow);
        assert_eq!(told(&platform), (clients([("one", 30), ("other", 40)]), 0, 0));
        end_account(accounts[2]);
        assert_eq!(told(&platform), (clients([("one", 30), ("other", 0)]), 40, 0));
        // Its number is used again; what it left is not the successor's.
        close_account(accounts[1]);
        let next = open_account("next");
        for _ in 0..3 {
            yield_now().await;
        }
        assert_eq!(told(&platform), (clients([("one", 10), ("next", 0), ("other", 0)]), 60, 100));
        work_for(next);
        pass(1);
        assert_eq!(told(&platform).0[1], ("next".into(), 1));
    });
}

#[test]
fn what_is_done_after_a_client_ended_is_not_of_its_time_nor_its_successors() {
    let platform = Shared::default();
    block_on(&platform, async {
        let one = open_account("one");
        told(&platform);
        work_for(one);
        pass(50);
        end_account(one);
        pass(5);
        assert_eq!(told(&platform), (clients([("one", 5)]), 50, 0));
        pass(7);
        close_account(one);
        open_account("next");
        pass(10);
        assert_eq!(told(&platform), (clients([("next", 0)]), 62, 10));
    });
}

#[test]
fn what_others_had_is_taken_from_the_ended_if_the_longest_stretch_was_of_one() {
    let platform = Shared::default();
    block_on(&platform, async {
        let one = open_account("one");
        told(&platform);
        work_for(one);
        pass(1000);
        platform.others.set(platform.others.get() + 400);
        work_for(Account::OWN);
        pass(500);
        end_account(one);
        assert_eq!(told(&platform), (clients([("one", 0)]), 600, 500));
    });
}

#[test]
fn what_others_had_is_taken_from_the_longest_stretch_and_the_kernel_is_asked_seldom() {
    let platform = Shared::default();
    block_on(&platform, async {
        let (one, other) = (open_account("one"), open_account("other"));
        work(ticks());
        for round in 0..8 {
            request(one, 1000);
            request(other, 100);
            if round == 3 {
                // Another component had the core in the middle of it.
                request(other, 2 * SETTLE_TICKS);
                platform.others.set(platform.others.get() + 2 * SETTLE_TICKS);
            }
            work_for(Account::OWN);
            yield_now().await;
        }
        turns().await;
        assert_eq!(platform.asked.get(), 1, "once when the clock said that much");
        assert_eq!(told(&platform), (clients([("one", 8 * 1001), ("other", 8 * 101 + 1)]), 0, 0));
    });
}

#[test]
fn what_others_had_in_many_stretches_is_taken_from_all() {
    let platform = Shared::default();
    block_on(&platform, async {
        let (one, other) = (open_account("one"), open_account("other"));
        work(ticks());
        // All are as long, and half of each was others'.
        for account in [one, other, one, Account::OWN, one, other] {
            work_for(account);
            pass(1000);
            platform.others.set(platform.others.get() + 500);
        }
        // The longest lost all of its stretch; of 5000 then 2000 more are taken.
        assert_eq!(told(&platform), (clients([("one", 1200), ("other", 1200)]), 0, 600));
    });
}

#[test]
fn nothing_is_kept_before_somebody_asks_nor_when_nobody_did_for_long() {
    let platform = Shared::default();
    block_on(&platform, async {
        let one = open_account("one");
        work_for(one);
        spawn(async { pass(5) });
        sleep_until(100).await;
        pass(SETTLE_TICKS);
        away(|| pass(5));
        turns().await;
        assert_eq!((told(&platform), platform.asked.get()), ((clients([("one", 0)]), 0, 0), 0));
        work_for(one);
        pass(8);
        assert_eq!(told(&platform).0, clients([("one", 8)]));
        // Some are asked for by turns; each of those before would take as many.
        const LAST: u32 = 4;
        (LAST..UNASKED_MAX).for_each(|_| settle(ticks()));
        for _ in 0..LAST + 2 {
            pass(SETTLE_TICKS);
            work_for(one);
            turns().await;
        }
        assert_eq!(platform.asked.get(), LAST);
        assert_eq!(told(&platform), (clients([("one", 0)]), 0, 0), "it begins anew");
    });
}
