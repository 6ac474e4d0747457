//! Event counters (eventfd): here while this process alone has them, at the process server from
//! when a forked child has them too or one goes with a message.
//!
//! A counter is its description: where it stands lies in the process state. Nobody but this
//! process's threads can change it, so they are told of changes here and no server is asked. Of
//! several threads, one that reads a counter at 0 sleeps, and who adds to the counter takes for it.
//!
//! Invariant: while a thread sleeps at a counter, that stands at 0 whenever the program runs.

use alloc::boxed::Box;
use core::cell::RefCell;
use core::ops::ControlFlow;

use contracts::descriptions::ready;
use counter::{BYTES, Counter, Refused};
use personality::Errno;
use personality::descriptors::{Description, server};
use personality::epoll::Object;
use personality::flags::*;
use personality::sleepers::{Sleepers, Ticket};
use personality::state::ProcessState;

use super::errors::{Failure, Outcome};
use super::fd::close_id;
use super::global::Global;
use super::input_output::{read_description, write_description};
use super::poll;
use super::proxy::proxy;
use super::threads::{self, Line};
use super::user::{self, Source, Target, with_state};
use super::wait::{Waiting, answer, signalled};

/// So often a counter that changes while its successor is made at the server is tried to be moved.
const TRIES: usize = 64;

/// A thread that sleeps until it can read.
struct Reader {
    /// Its place.
    thread: usize,
    /// Where the count goes.
    buffer: u64,
}

/// By the numbers of counters.
static READERS: Global<RefCell<Sleepers<Reader>>> = Global(RefCell::new(Sleepers::new()));

/// A sleep is given up.
pub fn leave(ticket: Ticket) {
    READERS.0.borrow_mut().remove(ticket);
}

/// Takes out the thread that has slept longest at a counter.
fn next_reader(number: u64) -> Option<Reader> {
    READERS.0.borrow_mut().wake_first(number)
}

/// eventfd and eventfd2.
pub fn create(count: u64, flags: u64) -> Outcome {
    if flags & !(EFD_SEMAPHORE | u64::from(O_CLOEXEC | O_NONBLOCK)) != 0 {
        return Err(Errno::EINVAL.into());
    }
    Ok(with_state(|state| {
        state.last_counter += 1;
        let made = Description {
            id: state.last_counter,
            server: server::COUNTER,
            flags: O_RDWR | flags as u32 & O_NONBLOCK,
            kind: u32::from(flags & EFD_SEMAPHORE != 0),
            cookie: u64::from(count as u32),
            ..Description::default()
        };
        state.descriptors.add(made, flags as u32 & O_CLOEXEC != 0)
    })?)
}

fn object(found: &Description) -> Object {
    (found.server, found.id)
}

fn counter(found: &Description) -> Counter {
    Counter::new(found.cookie, found.kind != 0)
}

/// `ready::*` bits that hold of a counter.
pub fn ready(found: &Description) -> u32 {
    bits_of(counter(found))
}

fn bits_of(counter: Counter) -> u32 {
    let reads = if counter.is_readable() { ready::READ } else { 0 };
    reads | if counter.is_writable() { ready::WRITE } else { 0 }
}

/// What a thread does to a counter: takes, or adds so much.
#[derive(Clone, Copy)]
enum Act {
    Take,
    Add(u64),
}

impl Act {
    /// What it waits for.
    fn mask(self) -> u32 {
        match self {
            Act::Take => ready::READ,
            Act::Add(_) => ready::WRITE,
        }
    }

    /// Acts; gives what was taken. `EAGAIN` if nothing can be done now.
    fn on(self, found: &mut Description) -> Result<u64, Errno> {
        let mut counter = counter(found);
        let done = match self {
            Act::Take => counter.take().ok_or(Errno::EAGAIN),
            Act::Add(more) => counter.add(more).map(|()| 0).map_err(|refused| match refused {
                Refused::TooLarge => Errno::EINVAL,
                Refused::Full => Errno::EAGAIN,
            }),
        };
        found.cookie = counter.count();
        done
    }
}

/// By what a counter is found.
#[derive(Clone, Copy)]
enum Name {
    Descriptor(u64),
    /// Its own number, whatever descriptors name it.
    Number(u64),
}

impl Name {
    fn find(self, state: &mut ProcessState) -> Option<&mut Description> {
        let found = match self {
            Name::Descriptor(descriptor) => state.descriptors.get_mut(descriptor).ok(),
            Name::Number(number) => state.descriptors.held_at(server::COUNTER, number),
        };
        found.filter(|found| found.server == server::COUNTER)
    }
}

/// A counter as something that was done left it.
#[derive(Clone, Copy)]
struct Left {
    number: u64,
    counter: Counter,
    /// Where it stood before.
    before: u64,
}

/// Takes for the thread that has slept longest at a counter, if there is something to take.
fn feed(found: &mut Description) -> Option<(Reader, u64)> {
    if !counter(found).is_readable() {
        return None;
    }
    let reader = next_reader(found.id)?;
    Some((reader, Act::Take.on(found).unwrap_or_default()))
}

/// Acts on a counter, lets threads that sleep there take what there is, and tells others who wait
/// for it: what those have taken concerns nobody else. Gives what was taken, and the counter as it
/// is then; `None` if there is none.
#[inline]
fn act_on(name: Name, act: Act) -> Option<(Result<u64, Errno>, Left)> {
    let (done, mut fed, mut left) = with_state(|state| {
        let found = name.find(state)?;
        let before = found.cookie;
        let done = act.on(found);
        let fed = feed(found);
        Some((done, fed, Left { number: found.id, counter: counter(found), before }))
    })?;
    let is_fed = fed.is_some();
    while let Some((reader, taken)) = fed {
        let read = user::write(reader.buffer, &taken);
        threads::wake(reader.thread, read.map_or_else(Errno::to_result, |()| BYTES as u64));
        // Of a semaphore it took one.
        fed = None;
        if left.counter.is_readable() {
            fed = with_state(|state| {
                let found = name.find(state)?;
                let fed = feed(found);
                left.counter = counter(found);
                fed
            });
        }
    }
    if done.is_ok() && (!is_fed || left.counter.count() != left.before) {
        tell(act, &left);
    }
    Some((done, left))
}

/// Tells who waits for a counter what was done to it. A take makes room, which matters to who found
/// none.
fn tell(act: Act, left: &Left) {
    let object = (server::COUNTER, left.number);
    match act {
        Act::Add(_) => poll::changed(object),
        Act::Take
            if !Counter::new(left.before, false).is_writable() || proxy().wait_queue.takes(object, ready::WRITE) =>
        {
            poll::changed(object);
        }
        Act::Take => {}
    }
}

/// Acts on a counter, and waits until it can if `waits`. `Break`: the process server has it now,
/// under that id. `EBADF` if it was closed meanwhile.
async fn perform(found: &Description, act: Act, waits: bool) -> Result<ControlFlow<u64, u64>, Failure> {
    let mut waiting: Option<Waiting> = None;
    loop {
        let Some((done, left)) = act_on(Name::Number(found.id), act) else {
            // The next waiter is told then, and finds the same.
            let to = proxy().moved_counter(found.id);
            return to.map(ControlFlow::Break).ok_or(Errno::EBADF.into());
        };
        match done {
            Err(Errno::EAGAIN) if waits => {}
            Err(errno) => return Err(errno.into()),
            Ok(taken) => {
                if let Some(waiting) = &waiting {
                    // What is left another one takes.
                    waiting.owes(bits_of(left.counter) & act.mask() != 0);
                }
                return Ok(ControlFlow::Continue(taken));
            }
        }
        match &waiting {
            None => waiting = Some(Waiting::to_take(object(found), act.mask())),
            Some(waiting) => waiting.owes(false),
        }
        if let Some(waiting) = &waiting {
            waiting.changed(u64::MAX).await?;
        }
    }
}

/// As the process server has it from now on.
fn at_server(found: &Description, id: u64) -> Description {
    Description { id, server: server::PROCESS, kind: 0, cookie: 0, ..*found }
}

/// Reads a counter.
pub async fn read(found: &Description, mut into: Target<'_>, waits: bool) -> Outcome {
    if into.len() < BYTES {
        return Err(Errno::EINVAL.into());
    }
    match perform(found, Act::Take, waits).await? {
        ControlFlow::Continue(taken) => {
            into.put(&taken.to_ne_bytes())?;
            Ok(BYTES as u64)
        }
        ControlFlow::Break(id) => Box::pin(read_description(&at_server(found, id), into, None, waits)).await,
    }
}

/// Adds to a counter.
pub async fn write(found: &Description, from: Source<'_>, waits: bool) -> Outcome {
    if from.len() < BYTES {
        return Err(Errno::EINVAL.into());
    }
    let more = from.with_part(0, BYTES, |bytes| bytes.try_into().map(u64::from_ne_bytes))?.map_err(|_| Errno::EIO)?;
    match perform(found, Act::Add(more), waits).await? {
        ControlFlow::Continue(_) => Ok(BYTES as u64),
        ControlFlow::Break(id) => Box::pin(write_description(&at_server(found, id), from, None, waits)).await,
    }
}

/// Looks at what is a counter.
fn look_at<T>(descriptor: u64, look: impl FnOnce(&Description) -> T) -> Option<T> {
    with_state(|state| {
        let found = state.descriptors.get(descriptor).ok()?;
        if found.server == server::COUNTER { Some(look(found)) } else { None }
    })
}

/// May a call wait for it?
fn waits(found: &Description) -> bool {
    found.flags & O_NONBLOCK == 0
}

/// read, where nobody has to be waited for: of a counter above 0.
pub fn try_read(descriptor: u64, buffer: u64, count: u64) -> Option<Outcome> {
    let (waits, is_readable) = look_at(descriptor, |found| (waits(found), counter(found).is_readable()))?;
    if count < BYTES as u64 {
        return Some(Err(Errno::EINVAL.into()));
    }
    if !is_readable {
        return if waits { None } else { Some(Err(Errno::EAGAIN.into())) };
    }
    if let Err(errno) = user::check_writable(buffer, BYTES as u64) {
        return Some(Err(errno.into()));
    }
    let (taken, _) = act_on(Name::Descriptor(descriptor), Act::Take)?;
    Some(taken.and_then(|taken| user::write(buffer, &taken)).map(|()| BYTES as u64).map_err(Failure::from))
}

/// read of a counter at 0, as [`try_read`] said: where the thread sleeps until it can.
pub fn sleeps(descriptor: u64, buffer: u64) -> Option<Line> {
    let (server, number) = with_state(|state| state.descriptors.get(descriptor).map(object)).ok()?;
    if server != server::COUNTER || signalled() {
        return None;
    }
    let reader = Reader { thread: threads::current(), buffer };
    Some(Line::Counter(READERS.0.borrow_mut().add(number, u32::MAX, reader)))
}

/// write to a counter, where nobody has to be waited for: to one with room.
pub fn try_write(descriptor: u64, buffer: u64, count: u64) -> Option<Outcome> {
    if count < BYTES as u64 {
        return Some(Err(Errno::EINVAL.into()));
    }
    let more = match user::read(buffer) {
        Ok(more) => more,
        Err(errno) => return Some(Err(errno.into())),
    };
    match act_on(Name::Descriptor(descriptor), Act::Add(more))?.0 {
        Err(Errno::EAGAIN) if look_at(descriptor, waits)? => None,
        done => Some(done.map(|_| BYTES as u64).map_err(Failure::from)),
    }
}

/// Before a fork: the process server gets the counters that the child will share. One that borrows
/// its parent's memory runs another program next: what exec closes anyway stays here.
pub async fn share(is_vfork: bool) -> Result<(), Failure> {
    for (found, closes) in with_state(|state| state.descriptors.all_at(server::COUNTER)) {
        if !(is_vfork && closes) {
            hand_over(&found).await?;
        }
    }
    Ok(())
}

/// Brings a counter to the process server. `ENFILE` if that has no room, `EAGAIN` if other threads
/// do not leave it alone for a moment.
pub async fn hand_over(found: &Description) -> Result<(), Failure> {
    let old = object(found);
    for _ in 0..TRIES {
        let current = || with_state(|state| state.descriptors.held_at(old.0, old.1).map(|held| *held));
        let Some(before) = current() else { return Ok(()) };
        let made = answer(proxy().process.event(before.cookie, before.kind != 0)).await;
        let id = made.map_err(|_| Errno::ENFILE)?;
        if current().is_some_and(|now| now.cookie == before.cookie) {
            let new = (server::PROCESS, id);
            with_state(|state| state.descriptors.moved(old, new, 0));
            proxy().counter_moved(old.1, id);
            poll::renamed(old, new);
            while let Some(reader) = next_reader(old.1) {
                threads::wake_to_call_again(reader.thread);
            }
            return Ok(());
        }
        // Another thread used it meanwhile, or closed it.
        close_id(server::PROCESS, id);
    }
    Err(Errno::EAGAIN.into())
}
