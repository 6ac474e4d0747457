//! Channels between cores end in an order: the client's core borrows the memory of the server's.

use alloc::vec::Vec;

use contracts::monitor::{ChannelId, ChannelPlan};

/// Closes channels by `close` (core, channel), which says whether the core confirmed it. The
/// server's core frees the memory only after the client's has let it go: what is not confirmed is
/// given back, to be closed later.
pub async fn close_all(plans: Vec<ChannelPlan>, close: impl AsyncFn(u32, ChannelId) -> bool) -> Vec<ChannelPlan> {
    let mut left = Vec::new();
    for plan in plans {
        let is_let_go = plan.client_core == plan.server_core || close(plan.client_core, plan.id).await;
        if !is_let_go || !close(plan.server_core, plan.id).await {
            left.push(plan);
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    use alloc::vec;
    use core::cell::RefCell;
    use core::pin::pin;
    use core::task::{Context, Poll, Waker};

    fn plan(id: ChannelId, client_core: u32, server_core: u32) -> ChannelPlan {
        ChannelPlan {
            id,
            contract: "files".into(),
            client: "linux".into(),
            server: "fs".into(),
            client_core,
            server_core,
            ring_slots: 8,
            bulk_bytes: 0,
            worker: None,
        }
    }

    /// What was asked while core `refuses` refuses, and what is left.
    fn closed(plans: Vec<ChannelPlan>, refuses: u32) -> (Vec<(u32, ChannelId)>, Vec<ChannelPlan>) {
        let asked = RefCell::new(Vec::new());
        let all = close_all(plans, async |core, id| {
            asked.borrow_mut().push((core, id));
            core != refuses
        });
        let left = match pin!(all).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(left) => left,
            Poll::Pending => panic!("nothing waits here"),
        };
        (asked.into_inner(), left)
    }

    #[test]
    fn the_owner_frees_after_the_borrower_has_confirmed() {
        let plans = || vec![plan(1, 1, 0), plan(2, 2, 0), plan(3, 0, 0)];
        assert_eq!(closed(plans(), 9), (vec![(1, 1), (0, 1), (2, 2), (0, 2), (0, 3)], vec![]));
        let (asked, left) = closed(plans(), 1);
        assert_eq!(asked, [(1, 1), (2, 2), (0, 2), (0, 3)], "the memory of the first is still seen by core 1");
        assert_eq!(left, [plan(1, 1, 0)]);
        let (asked, left) = closed(left, 9);
        assert_eq!((asked, left), (vec![(1, 1), (0, 1)], vec![]));
        assert_eq!(closed(plans(), 0).1, plans(), "and what the owner did not take apart is closed again");
    }
}
