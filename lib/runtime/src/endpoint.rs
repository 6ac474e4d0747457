//! Channels that the monitor brings while the component runs.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::any::Any;
use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::task::{Poll, Waker};

use abi::Handle;
use channel::{ClientChannel, Doorbell, Memory, Peer, ServerChannel, Wiring};
use contracts::endpoint::{
    BindError, EndpointError, EndpointEvents, EndpointServer, InjectedFault, Wired, Work, serve_endpoint,
};

use crate::Watch;
use crate::map::map_segment;

/// How long a component waits to be connected: more than a server may take to accept a channel.
const BIND_LIMIT_NS: u64 = 10_000_000_000;
/// Most channels of one contract that wait to be taken.
const WAITING_MAX: usize = 64;
/// Most contracts whose channels may wait, so that wrong names cannot fill the heap.
const CONTRACTS_MAX: usize = 32;

/// Channels by contract, for their [`Incoming`]. A queue may fill before the component asks for it.
/// And those that the component asked for.
#[derive(Default)]
pub struct Waiting {
    queues: RefCell<BTreeMap<String, Queue>>,
    requests: RefCell<BTreeMap<u64, Option<Bound>>>,
    last_request: Cell<u64>,
    answered: Watch,
}

/// What became of a request to be connected.
type Bound = Result<Rc<ClientChannel>, BindError>;

impl Waiting {
    /// Asks the monitor for a channel to a server of `contract`; see `Start::bind`.
    pub async fn bind(&self, monitor: &Peer, contract: &str, index: u32) -> Bound {
        let request = self.last_request.get() + 1;
        self.last_request.set(request);
        self.requests.borrow_mut().insert(request, None);
        let asked = EndpointEvents::new(monitor).wants(request, contract.into(), index);
        let answer = self.answered.until(|| self.requests.borrow().get(&request).cloned().flatten());
        let answer = match asked {
            Ok(()) => crate::timeout(BIND_LIMIT_NS, answer).await.unwrap_or(Err(BindError::Failed)),
            Err(_) => Err(BindError::Failed),
        };
        self.requests.borrow_mut().remove(&request);
        answer
    }

    /// Whether somebody still waits for that.
    fn is_asked(&self, request: u64) -> bool {
        self.requests.borrow().get(&request).is_some_and(Option::is_none)
    }

    fn answer(&self, request: u64, answer: Bound) {
        if let Some(waiting @ None) = self.requests.borrow_mut().get_mut(&request) {
            *waiting = Some(answer);
        }
        self.answered.changed();
    }
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

/// What a channel brought at run time holds besides its memory's users: both go with the last of
/// them.
struct Kept {
    doorbell: Handle,
    _mapping: Rc<dyn Any>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = sys::cap_drop(self.doorbell);
    }
}

/// A peer's doorbell: a client on the server's core donates its time by a portal; all others
/// notify.
pub fn doorbell_of(handle: Handle, client: bool, remote: bool) -> Doorbell {
    if client && !remote { Doorbell::Portal(handle) } else { Doorbell::Notify(handle) }
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
        let (segment, doorbell) = (Handle(wired.segment), Handle(wired.doorbell));
        let drop_both = || {
            let _ = sys::cap_drop(segment);
            let _ = sys::cap_drop(doorbell);
        };
        if wired.client && !self.waiting.is_asked(wired.request) {
            drop_both();
            return Err(EndpointError::NotServed);
        }
        let Ok((address, bytes, keeper)) = map_segment(segment) else {
            drop_both();
            return Err(EndpointError::BadChannel);
        };
        let keeper = Rc::new(Kept { doorbell, _mapping: keeper });
        // SAFETY: just mapped, and kept mapped by its keeper.
        let Ok(memory) = (unsafe { Memory::attach(address, bytes, Some(keeper)) }) else {
            return Err(EndpointError::BadChannel);
        };
        let Wired { contract, peer, peer_set, badge, client, request, remote, .. } = wired;
        let doorbell = doorbell_of(doorbell, client, remote);
        let wiring = Wiring { memory, doorbell, badge, remote, peer, peer_set };
        if client {
            self.waiting.answer(request, Ok(ClientChannel::new(wiring)));
            return Ok(());
        }
        let channel = ServerChannel::new(wiring);
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

    async fn work(&self, _peer: &Peer) -> Result<Work, EndpointError> {
        // Clients that left meanwhile are among the ended then.
        executor::take_in_all().await;
        Ok(crate::work())
    }

    fn refused(&self, _peer: &Peer, request: u64, why: BindError) {
        self.waiting.answer(request, Err(why));
    }

    fn inject_fault(&self, _peer: &Peer, how: InjectedFault) {
        inject_fault(how);
    }
}

/// Breaks this component on purpose, for tests of recovery.
pub fn inject_fault(how: InjectedFault) {
    match how {
        InjectedFault::Fault => {
            // SAFETY: page 0 is never mapped: the kernel ends the component here, as the test
            // asks; nothing is read.
            unsafe { core::ptr::without_provenance::<u8>(8).read_volatile() };
        }
        InjectedFault::Hang => loop {
            core::hint::spin_loop();
        },
        InjectedFault::Block => loop {
            // Nobody else has this semaphore. Refused, it hangs in the other way.
            let _ = crate::semaphore(0).map(|nobody_ups| nobody_ups.down(u64::MAX));
        },
        InjectedFault::Panic => panic!("asked for by a test of recovery"),
        InjectedFault::Worker => crate::companion::hang_workers(),
    }
}

#[cfg(all(test, not(target_os = "none")))]
mod tests {
    use super::*;
    use channel::{Layout, loopback};
    use contracts::endpoint::{EndpointClient, EndpointEvent};

    #[test]
    fn each_request_has_its_own_answer_and_none_waits_for_ever() {
        crate::block_on(async {
            let (monitor, server) = loopback(Layout::default());
            let (waiting, peer) = (Rc::new(Waiting::default()), server.peer().clone());
            executor::spawn(serve(waiting.clone(), server));
            let monitor = EndpointClient::new(monitor);
            let answers = Rc::new(RefCell::new(Vec::new()));
            for index in 0..3 {
                let (waiting, peer, answers) = (waiting.clone(), peer.clone(), answers.clone());
                executor::spawn(async move {
                    let answer = waiting.bind(&peer, "files", index).await;
                    answers.borrow_mut().push((index, answer.err()));
                });
            }
            let mut requests = [0; 3];
            while requests.contains(&0) {
                if let EndpointEvent::Wants { request, index, .. } = monitor.next_event().await {
                    requests[index as usize] = request;
                }
            }
            // Not in their order, one twice, and one that nobody made.
            let said = [(requests[1], BindError::NotAllowed), (requests[0], BindError::NotFound)];
            let more = [(requests[0], BindError::Failed), (99, BindError::Failed)];
            said.into_iter().chain(more).for_each(|(request, why)| monitor.refused(request, why).unwrap());
            crate::sleep(2 * BIND_LIMIT_NS).await;
            let mut answers = answers.borrow().clone();
            answers.sort_by_key(|(index, _)| *index);
            let expected = [BindError::NotFound, BindError::NotAllowed, BindError::Failed].map(Some);
            assert_eq!(answers, [0, 1, 2].into_iter().zip(expected).collect::<Vec<_>>());
            assert!(waiting.requests.borrow().is_empty());
        });
    }

    fn wired(client: bool, request: u64) -> Wired {
        Wired {
            contract: "files".into(),
            peer: "fs".into(),
            peer_set: 0,
            segment: 5,
            doorbell: 6,
            bytes: 8192,
            badge: 1,
            client,
            request,
            remote: false,
        }
    }

    #[test]
    fn a_channel_that_nobody_asked_for_is_refused_before_it_is_mapped() {
        crate::block_on(async {
            let (monitor, server) = loopback(Layout::default());
            let (waiting, peer) = (Rc::new(Waiting::default()), server.peer().clone());
            executor::spawn(serve(waiting.clone(), server));
            let monitor = EndpointClient::new(monitor);
            executor::spawn(async move { drop(waiting.bind(&peer, "files", 0).await) });
            let EndpointEvent::Wants { request, .. } = monitor.next_event().await else { panic!("it asks") };
            let refused = |error| Err(channel::CallError::Server(error));
            assert_eq!(monitor.connect(wired(true, request + 1)).await, refused(EndpointError::NotServed));
            // A host cannot map.
            assert_eq!(monitor.connect(wired(true, request)).await, refused(EndpointError::BadChannel));
            assert_eq!(monitor.connect(wired(false, 0)).await, refused(EndpointError::BadChannel));
            monitor.refused(request, BindError::NotFound).unwrap();
            crate::sleep(1_000).await;
            assert_eq!(
                monitor.connect(wired(true, request)).await,
                refused(EndpointError::NotServed),
                "it was answered"
            );
        });
    }

    #[test]
    fn the_monitor_is_told_how_long_the_component_ran_since_it_asked_first() {
        crate::block_on(async {
            let (monitor, server) = loopback(Layout::default());
            executor::spawn(serve(Rc::default(), server));
            let monitor = EndpointClient::new(monitor);
            monitor.work().await.unwrap();
            executor::pass(5_000);
            assert!(monitor.work().await.unwrap().ran_ns >= 5_000);
        });
    }

    #[test]
    #[should_panic(expected = "asked for by a test of recovery")]
    fn a_component_breaks_when_it_is_told_to() {
        crate::block_on(async {
            let (monitor, server) = loopback(Layout::default());
            executor::spawn(serve(Rc::default(), server));
            EndpointClient::new(monitor).inject_fault(InjectedFault::Panic).unwrap();
            crate::sleep(1_000).await;
        });
    }
}
