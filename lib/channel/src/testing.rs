//! What the tests of both sides have in common: two ends, of which one does as a test says, tasks
//! that count, and nothing below.

use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicU32, Ordering};
use core::task::{Context, Poll, Waker};
use std::boxed::Box;
use std::sync::Arc;
use std::task::Wake;
use std::vec::Vec;

use executor::Platform;
use ring::{Header, Kind};

use crate::link::Link;
use crate::loopback_wiring;
use crate::memory::{Layout, Memory, Side};

pub const HASH: u64 = 5;
pub const SMALL: Layout = Layout { ring_slots: 16, bulk_bytes: 0 };
pub const EVENT: Header = Header { kind: Kind::Event, operation: 1, correlation: 0 };
pub const REPLY: Header = Header { kind: Kind::Reply, operation: 0, correlation: 0 };

/// A server's end without a port.
pub fn server_end(memory: Memory) -> Link {
    let link = Link::new(Side::Server, loopback_wiring(memory, false));
    link.bind(HASH);
    link
}

/// The same of a client's.
pub fn client_end(memory: Memory) -> Link {
    let link = Link::new(Side::Client, loopback_wiring(memory, true));
    link.bind(HASH);
    link
}

/// The headers of all that has come to an end.
pub fn come(link: &Link) -> Vec<Header> {
    let mut all = Vec::new();
    link.receive(usize::MAX, |header, _| {
        all.push(header);
        Ok(())
    });
    all
}

/// Nothing comes but what is posted.
struct Nothing;

impl Platform for Nothing {
    fn now_ns(&self) -> u64 {
        0
    }

    fn ran_ticks(&self) -> u64 {
        0
    }

    fn wait(&self, _deadline_ns: u64) -> u64 {
        0
    }
}

/// Turns until there is nothing to do.
pub fn rest() {
    executor::rest(&Nothing, false);
}

/// A task that is polled by hand.
#[derive(Default)]
pub struct Task(AtomicU32);

impl Wake for Task {
    fn wake(self: Arc<Task>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Task {
    /// How often it was woken.
    pub fn woken(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Polls once for that task.
pub fn poll_as<F: Future + ?Sized>(task: &Arc<Task>, future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(&Waker::from(task.clone())))
}

/// Polls once.
pub fn poll<F: Future>(future: F) -> Poll<F::Output> {
    poll_as(&Arc::default(), &mut Box::pin(future))
}
