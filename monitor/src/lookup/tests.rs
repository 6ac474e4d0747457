//! The cache between a name server that is played and who looks up.

use std::cell::Cell;
use std::future::pending;

use channel::{Layout, loopback};
use contracts::lookup::{LookupClient, serve_lookup};
use contracts::names::{NamesEvents, NamesServer, serve_names};
use runtime::now_ns;

use super::*;

const CORE: u32 = 3;
/// How often a name server is asked before it was told all.
const NOT_YET: u32 = 5;

/// A name server.
#[derive(Default)]
struct Fake {
    /// So often it has not been told all yet.
    not_yet: Cell<u32>,
    /// It answers nobody.
    hangs: Cell<bool>,
    asked: Cell<u32>,
    generation: Cell<u64>,
    peer: RefCell<Option<Peer>>,
}

impl NamesServer for Fake {
    async fn register(&self, _: &Peer, _: Named) -> Result<(), NamesError> {
        Ok(())
    }

    async fn unregister(&self, _: &Peer, _: String) -> Result<(), NamesError> {
        Ok(())
    }

    async fn told_all(&self, _: &Peer) -> Result<(), NamesError> {
        Ok(())
    }

    async fn find(&self, peer: &Peer, contract: String, core: u32, index: u32) -> Result<Named, NamesError> {
        *self.peer.borrow_mut() = Some(peer.clone());
        self.asked.set(self.asked.get() + 1);
        if self.hangs.get() {
            pending::<()>().await;
        }
        match self.not_yet.get().checked_sub(1) {
            Some(left) => {
                self.not_yet.set(left);
                Err(NamesError::NotYet)
            }
            None if index > 0 => Err(NamesError::NotFound),
            None => Ok(named(&contract, core, self.generation.get())),
        }
    }
}

fn named(contract: &str, core: u32, generation: u64) -> Named {
    Named { component: "fs".into(), contract: contract.into(), domain: 7, core, generation }
}

/// Somebody who looks up by a cache that follows that name server.
async fn begin(fake: &Rc<Fake>) -> LookupClient {
    let [names, lookup] = [(); 2].map(|()| loopback(Layout::default()));
    runtime::spawn(serve_names(fake.clone(), names.1));
    let cache = Rc::new(Names::new(CORE));
    runtime::spawn(cache.clone().follow(NamesClient::new(names.0)));
    runtime::spawn(serve_lookup(cache, lookup.1));
    runtime::sleep(AGAIN_NS).await;
    LookupClient::new(lookup.0)
}

/// A name server that was restarted does not know all at once: who looks up meanwhile is answered a
/// little later, and neither told that there is nobody nor that it does not answer.
#[test]
fn who_asks_while_the_name_server_is_told_waits_for_the_answer() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake { not_yet: Cell::new(NOT_YET), ..Fake::default() });
        let lookup = begin(&fake).await;
        let begun_ns = now_ns();
        assert_eq!(lookup.find("files".into(), 0).await, Ok(named("files", CORE, 0)));
        let waited_ns = now_ns() - begun_ns;
        assert!((u64::from(NOT_YET) * AGAIN_NS..ANSWER_LIMIT_NS).contains(&waited_ns), "{waited_ns} ns");
        // What it was told last is kept, and that there are no more of them.
        assert_eq!(lookup.find("files".into(), 0).await, Ok(named("files", CORE, 0)));
        for _ in 0..2 {
            assert_eq!(lookup.find("files".into(), 1).await, Err(CallError::Server(LookupError::NotFound)));
        }
        assert_eq!(fake.asked.get(), NOT_YET + 2);
        let counters = lookup.counters().await.unwrap();
        assert_eq!((counters.hits, counters.misses, counters.dropped), (2, 2, 0));
    });
}

/// One that is never told all, or does not answer at all, is waited for so long and no longer.
#[test]
fn a_name_server_that_does_not_answer_is_away() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake { not_yet: Cell::new(u32::MAX), ..Fake::default() });
        let lookup = begin(&fake).await;
        let is_away = async || {
            let begun_ns = now_ns();
            assert_eq!(lookup.find("files".into(), 0).await, Err(CallError::Server(LookupError::Away)));
            let waited_ns = now_ns() - begun_ns;
            assert!((ANSWER_LIMIT_NS..2 * ANSWER_LIMIT_NS).contains(&waited_ns), "{waited_ns} ns");
        };
        is_away().await;
        let asked = fake.asked.get();
        fake.hangs.set(true);
        is_away().await;
        assert_eq!(fake.asked.get(), asked + 1);
    });
}

/// What is known is told until the name server says that it is so no more.
#[test]
fn what_changed_is_asked_for_again() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let lookup = begin(&fake).await;
        let find = async || lookup.find("files".into(), 0).await.unwrap().generation;
        assert_eq!(find().await, 0);
        fake.generation.set(1);
        assert_eq!(find().await, 0);
        let events = NamesEvents::new(fake.peer.borrow().as_ref().unwrap());
        events.changed("network".into()).unwrap();
        runtime::sleep(AGAIN_NS).await;
        assert_eq!(find().await, 0, "that is about others");
        events.changed("files".into()).unwrap();
        runtime::sleep(AGAIN_NS).await;
        assert_eq!(find().await, 1);
        fake.generation.set(2);
        // It does not know what it missed.
        events.lost();
        runtime::sleep(AGAIN_NS).await;
        assert_eq!(find().await, 2);
    });
}
