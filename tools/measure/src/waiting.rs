//! Event counters between threads, and `epoll_wait` beside descriptors where nothing happens.

use crate::page_server;
use crate::problem::{During, Problem, Result, last};
use crate::rows::Setting;
use crate::sample::{SAMPLES, Sample, measured, repeat};
use crate::system::{self, check};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const ROUNDS: u64 = 200;
/// Edges that are there before a stretch of waits begins, one for each wait.
const EDGES: usize = 20;
const FEW: usize = 10;
const MANY: usize = 1000;
/// Descriptors beside those of the sets.
const OTHERS: u64 = 32;

/// One count to a thread on the same core and one back.
pub fn event_threads(_: &Setting) -> Result<Vec<Sample>> {
    system::pin(0);
    let (request, reply) = (counter(0)?, counter(0)?);
    let numbers = (request.as_raw_fd(), reply.as_raw_fd());
    let partner = std::thread::Builder::new()
        .spawn(move || -> Result<()> {
            system::pin(0);
            // The last count is larger: it is over.
            while read(numbers.0)? == 1 {
                write(numbers.1, 1)?;
            }
            Ok(())
        })
        .during("thread (clone)")?;
    let samples = repeat(ROUNDS, || {
        write(numbers.0, 1)?;
        read(numbers.1).map(drop)
    });
    write(numbers.0, 2)?;
    partner.join().map_err(|_| Problem::Failed("a thread panicked".into()))??;
    samples
}

/// A wait by level, one ready, few idle.
pub fn level_few(_: &Setting) -> Result<Vec<Sample>> {
    level(FEW)
}

/// The same, many idle.
pub fn level_many(_: &Setting) -> Result<Vec<Sample>> {
    level(MANY)
}

/// A wait by edges, one told of each time, few idle.
pub fn edge_few(_: &Setting) -> Result<Vec<Sample>> {
    edge(FEW)
}

/// The same, many idle.
pub fn edge_many(_: &Setting) -> Result<Vec<Sample>> {
    edge(MANY)
}

fn level(idle: usize) -> Result<Vec<Sample>> {
    let set = Set::new(idle, 0, libc::EPOLLIN)?;
    let ready = set.with(1, libc::EPOLLIN)?;
    repeat(ROUNDS, || set.wait_for(&ready))
}

/// Edges are made outside of the stretches, so that the waits alone are measured.
fn edge(idle: usize) -> Result<Vec<Sample>> {
    let set = Set::new(idle, EDGES as u64, libc::EPOLLIN | libc::EPOLLET)?;
    let ready = (0..EDGES).map(|_| set.with(0, libc::EPOLLIN | libc::EPOLLET)).collect::<Result<Vec<_>>>()?;
    let stretch = || {
        ready.iter().try_for_each(|ready| write(ready.as_raw_fd(), 1))?;
        measured(EDGES as u64, || (0..EDGES).try_for_each(|_| set.wait().map(drop)))
    };
    stretch()?;
    let samples = (0..SAMPLES).map(|_| stretch()).collect();
    if set.poll()? { Err(Problem::Failed("more edges than were made".into())) } else { samples }
}

/// A set that watches counters where nothing happens.
struct Set {
    set: OwnedFd,
    _idle: Vec<OwnedFd>,
}

impl Set {
    /// With room for as many more.
    fn new(idle: usize, more: u64, events: i32) -> Result<Set> {
        allow_descriptors(idle as u64 + more + OTHERS)?;
        let mut set = Set { set: page_server::epoll()?, _idle: Vec::new() };
        set._idle = (0..idle).map(|_| set.with(0, events)).collect::<Result<_>>()?;
        // Linux has looked at all of them once, and so had we better.
        set.poll()?;
        Ok(set)
    }

    /// One more, which begins with that count.
    fn with(&self, count: u32, events: i32) -> Result<OwnedFd> {
        let counter = counter(count)?;
        let mut event = libc::epoll_event { events: events as u32, u64: counter.as_raw_fd() as u64 };
        // SAFETY: both descriptors are open, and the pointer is to an event of ours.
        match unsafe { libc::epoll_ctl(self.set.as_raw_fd(), libc::EPOLL_CTL_ADD, counter.as_raw_fd(), &raw mut event) }
        {
            0 => Ok(counter),
            _ => Err(last("epoll_ctl")),
        }
    }

    /// Waits for one event; gives its descriptor.
    fn wait(&self) -> Result<u64> {
        let mut event = [libc::epoll_event { events: 0, u64: 0 }];
        match page_server::wait(&self.set, &mut event)? {
            [event] => Ok(event.u64),
            _ => Err(Problem::Failed("epoll_wait ended with nothing".into())),
        }
    }

    fn wait_for(&self, wanted: &OwnedFd) -> Result<()> {
        match self.wait()? {
            found if found == wanted.as_raw_fd() as u64 => Ok(()),
            found => Err(Problem::Failed(format!("descriptor {found} is ready, which is idle"))),
        }
    }

    /// Is anything ready?
    fn poll(&self) -> Result<bool> {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event.
        let count = unsafe { libc::epoll_wait(self.set.as_raw_fd(), &raw mut event, 1, 0) };
        Ok(check("epoll_wait", count)? > 0)
    }
}

fn counter(count: u32) -> Result<OwnedFd> {
    // SAFETY: makes a descriptor, which is then ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(check("eventfd", libc::eventfd(count, 0))?) })
}

fn write(descriptor: i32, count: u64) -> Result<()> {
    // SAFETY: eight bytes of ours.
    match unsafe { libc::write(descriptor, (&raw const count).cast(), 8) } {
        8 => Ok(()),
        _ => Err(last("write to an eventfd")),
    }
}

fn read(descriptor: i32) -> Result<u64> {
    let mut count = 0u64;
    // SAFETY: room for eight bytes.
    match unsafe { libc::read(descriptor, (&raw mut count).cast(), 8) } {
        8 => Ok(count),
        _ => Err(last("read of an eventfd")),
    }
}

/// Raises the soft limit where it is lower.
fn allow_descriptors(count: u64) -> Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a limit of ours.
    check("getrlimit", unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    if limit.rlim_cur >= count {
        return Ok(());
    }
    limit.rlim_cur = count;
    // SAFETY: as above.
    check("setrlimit", unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }).map(drop)
}
