//! Channels that the monitor brings while the component runs.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::any::Any;
use core::cell::RefCell;
use core::future::poll_fn;
use core::task::{Poll, Waker};

use abi::Handle;
use channel::{Bell, Memory, Peer, ServerChannel, Wiring};
use contracts::endpoint::{EndpointError, EndpointServer, Hurt, Wired, serve_endpoint};

use crate::map::map_segment;

/// Most channels of one contract that wait to be taken.
const WAITING_MAX: usize = 64;
/// Most contracts whose channels may wait, so that wrong names cannot fill the heap.
const CONTRACTS_MAX: usize = 32;

/// Channels by contract, for their [`Incoming`]. A queue may fill before the component asks for it.
#[derive(Default)]
pub struct Waiting {
    queues: RefCell<BTreeMap<String, Queue>>,
}

#[derive(Default)]
struct Queue {
    channels: VecDeque<ServerChannel>,
    waker: Option<Waker>,
}

/// Channels to serve, as they come.
pub struct Incoming {
    waiting: Rc<Waiting>,
    contract: String,
}

impl Incoming {
    pub(crate) fn new(waiting: Rc<Waiting>, contract: &str, first: Vec<ServerChannel>) -> Incoming {
        waiting.queues.borrow_mut().entry(contract.to_string()).or_default().channels.extend(first);
        Incoming { waiting, contract: contract.to_string() }
    }

    /// The next channel.
    pub async fn next(&mut self) -> ServerChannel {
        poll_fn(|context| {
            let mut queues = self.waiting.queues.borrow_mut();
            let queue = queues.entry(self.contract.clone()).or_default();
            match queue.channels.pop_front() {
                Some(channel) => Poll::Ready(channel),
                None => {
                    queue.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// What a channel brought at run time holds besides its memory's users: both go with the last of them.
struct Kept {
    bell: Handle,
    _mapping: Rc<dyn Any>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = sys::cap_drop(self.bell);
    }
}

/// Serves the monitor.
pub fn serve(waiting: Rc<Waiting>, channel: ServerChannel) -> impl Future<Output = ()> {
    serve_endpoint(Rc::new(Endpoint { waiting }), channel)
}

struct Endpoint {
    waiting: Rc<Waiting>,
}

impl EndpointServer for Endpoint {
    async fn connect(&self, _peer: &Peer, wired: Wired) -> Result<(), EndpointError> {
        let (segment, bell) = (Handle(wired.segment), Handle(wired.bell));
        let drop_both = || {
            let _ = sys::cap_drop(segment);
            let _ = sys::cap_drop(bell);
        };
        if wired.client {
            drop_both();
            return Err(EndpointError::NotServed);
        }
        let Ok((address, bytes, keeper)) = map_segment(segment) else {
            drop_both();
            return Err(EndpointError::BadChannel);
        };
        let keeper = Rc::new(Kept { bell, _mapping: keeper });
        // SAFETY: just mapped, and kept mapped by its keeper.
        let Ok(memory) = (unsafe { Memory::attach(address, bytes, Some(keeper)) }) else {
            return Err(EndpointError::BadChannel);
        };
        let Wired { contract, peer, peer_set, badge, remote, .. } = wired;
        let channel = ServerChannel::new(Wiring { memory, bell: Bell::Notify(bell), badge, remote, peer, peer_set });
        let mut queues = self.waiting.queues.borrow_mut();
        if queues.len() >= CONTRACTS_MAX && !queues.contains_key(&contract) {
            return Err(EndpointError::NotServed);
        }
        let queue = queues.entry(contract).or_default();
        if queue.channels.len() >= WAITING_MAX {
            return Err(EndpointError::TooMany);
        }
        queue.channels.push_back(channel);
        queue.waker.take().into_iter().for_each(Waker::wake);
        Ok(())
    }

    fn hurt(&self, _peer: &Peer, how: Hurt) {
        match how {
            // SAFETY: page 0 is never mapped: the kernel ends the component here, as the monitor asks; nothing is read.
            Hurt::Fault => unsafe { core::ptr::without_provenance::<u8>(8).read_volatile() },
            Hurt::Hang => loop {
                core::hint::spin_loop();
            },
            Hurt::Panic => panic!("asked for by the monitor"),
        };
    }
}
