//! What a channel's two ends may have beside its messages: words that both map, and a notification
//! each way that is the channel's own, for protocols of their own over both.
//!
//! Invariant: a notification tells only that there may be something; what there is the words say.
//! Deliberately unknown here: what the words mean.

use alloc::rc::Rc;
use core::sync::atomic::AtomicU64;

use abi::Handle;
use executor::{Port, Rank};

use crate::bulk::Bulk;
use crate::doorbell::Doorbell;
use crate::link::Link;

/// One end's view.
#[derive(Clone, Copy)]
pub struct Beside {
    /// The channel's bulk area.
    pub words: &'static [AtomicU64],
    /// What notifies the peer, who listens.
    pub peer: Handle,
    badge: u64,
    is_remote: bool,
}

/// What [`Beside::listen`] looks at.
pub trait Listen {
    /// Is there anything to take? Reads memory only.
    fn is_ready(&self) -> bool;
    /// Takes it, or says whom it concerns that it is there.
    fn take(&self);
}

impl Beside {
    /// `None`: the channel has no bulk area, has not for ever, or is within one component.
    pub(crate) fn of(link: &Link, bulk: &Bulk) -> Option<Beside> {
        let Doorbell::Notify(peer) = link.doorbell() else { return None };
        Some(Beside { words: bulk.words()?, peer, badge: link.badge, is_remote: link.remote })
    }

    /// From now on has `what` looked at when the peer has notified this end, and while the
    /// component is awake; as long as the component lives.
    pub fn listen(&self, what: impl Listen + 'static) {
        executor::register(Rc::new(Ear { what, badge: self.badge, is_remote: self.is_remote }));
    }
}

/// The peer notifies when its words say that it has to: there is nothing to be armed.
struct Ear<L> {
    what: L,
    badge: u64,
    is_remote: bool,
}

impl<L: Listen> Port for Ear<L> {
    fn poll(&self) {
        if self.ready() {
            self.what.take();
        }
    }

    fn ready(&self) -> bool {
        self.what.is_ready()
    }

    fn arm(&self) -> bool {
        false
    }

    fn nudge(&self) {}

    fn disarm(&self) {}

    fn flush(&self) {}

    fn badge(&self) -> u64 {
        self.badge
    }

    fn rank(&self) -> Rank {
        Rank::Request
    }

    fn remote(&self) -> bool {
        self.is_remote
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use executor::Platform;

    use super::*;
    use crate::client::ClientChannel;
    use crate::link::Wiring;
    use crate::loopback::lasting_memory;
    use crate::memory::Layout;
    use crate::server::ServerChannel;

    const BADGE: u64 = 1 << 2;
    /// What a listener says has come.
    const COME: u64 = 1 << 40;

    /// What an end has, of memory that is there for ever, whose peer is on another core or not.
    fn wiring(bulk_bytes: u32, remote: bool) -> Wiring {
        let memory = lasting_memory(Layout { ring_slots: 16, bulk_bytes });
        let doorbell = Doorbell::Notify(Handle(7));
        Wiring { memory, doorbell, badge: BADGE, remote, peer: "server".into(), peer_set: 2 }
    }

    /// A client's end.
    fn end(bulk_bytes: u32, is_remote: bool) -> Rc<ClientChannel> {
        ClientChannel::new(wiring(bulk_bytes, is_remote))
    }

    /// Something comes after some looks at the clock, or while we sleep; then the peer notifies.
    #[derive(Default)]
    struct Peer {
        now_ns: Cell<u64>,
        is_there: Cell<bool>,
        taken: Cell<u32>,
        sleeps: Cell<u32>,
    }

    impl Platform for Peer {
        fn now_ns(&self) -> u64 {
            self.now_ns.set(self.now_ns.get() + 1000);
            self.is_there.set(self.is_there.get() || self.now_ns.get() == 4000);
            self.now_ns.get()
        }

        fn ran_ticks(&self) -> u64 {
            0
        }

        fn wait(&self, deadline_ns: u64) -> u64 {
            if deadline_ns == 0 {
                return 0;
            }
            self.sleeps.set(self.sleeps.get() + 1);
            assert_eq!(self.sleeps.get(), 1, "nobody listens");
            self.is_there.set(true);
            BADGE
        }
    }

    impl Listen for Rc<Peer> {
        fn is_ready(&self) -> bool {
            self.is_there.get()
        }

        fn take(&self) {
            assert!(self.is_there.take(), "there is nothing");
            self.taken.set(self.taken.get() + 1);
            executor::post(COME);
        }
    }

    #[test]
    fn who_listens_is_told_what_has_come() {
        for (is_remote, sleeps) in [(true, 0), (false, 1)] {
            let (channel, peer) = (end(64, is_remote), Rc::new(Peer::default()));
            let beside = channel.beside().unwrap();
            assert_eq!((beside.words.len(), beside.peer), (8, Handle(7)));
            executor::rest(&Peer::default(), false);
            beside.listen(peer.clone());
            assert_eq!(executor::block_on(&*peer, executor::notified(COME)), COME);
            assert_eq!((peer.taken.get(), peer.sleeps.get()), (1, sleeps), "on another core: {is_remote}");
        }
    }

    #[test]
    fn a_server_has_the_same_beside() {
        let channel = ServerChannel::new(wiring(64, false));
        let beside = channel.peer().beside().unwrap();
        assert_eq!((beside.words.len(), beside.peer), (8, Handle(7)));
    }

    #[test]
    fn without_a_bulk_area_that_stays_there_is_nothing_beside() {
        assert!(end(0, false).beside().is_none());
        assert!(crate::loopback(Layout { ring_slots: 16, bulk_bytes: 64 }).0.beside().is_none());
    }
}
