//! For whom the component worked, in nanoseconds.

use contracts::endpoint::{WORK_CLIENTS_MAX, Work};
use core::cmp::Reverse;
use executor::Platform;

use crate::platform::{Machine, to_ns};

/// What the component's tasks did since this was asked first, by client. That a client has left is
/// seen when its channel was looked at: [`take_in_all`](crate::take_in_all).
pub fn work() -> Work {
    let executor::Work { mut clients, ended, own, ran } = executor::work(Machine.ran_ticks());
    clients.retain(|(_, ticks)| *ticks > 0);
    clients.sort_by_key(|(_, ticks)| Reverse(*ticks));
    let others = clients.split_off(clients.len().min(WORK_CLIENTS_MAX));
    Work {
        clients: clients.into_iter().map(|(client, ticks)| (client, to_ns(ticks))).collect(),
        others_ns: to_ns(others.iter().map(|(_, ticks)| ticks).sum()),
        ended_ns: to_ns(ended),
        own_ns: to_ns(own),
        ran_ns: to_ns(ran),
    }
}
