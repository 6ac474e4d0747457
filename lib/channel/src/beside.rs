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
