//! poll and select: one loop over `descriptions.poll` and its ready events; and epoll, which asks
//! only for what may have changed.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use channel::Call;
use contracts::descriptions::{DescriptionError, DescriptionId, DescriptionsClient, WatchFor, ready};
use personality::Errno;
use personality::descriptors::{DESCRIPTORS_MAX, Description, server};
use personality::epoll::{EDGE, EXCLUSIVE, Interest, ONE_SHOT, Object};
use personality::flags::*;
use personality::layouts::{PollEntry, TimeSpec, TimeVal};

use super::counters;
use super::errors::{Failure, Outcome};
use super::proxy::proxy;
use super::signals::{self, mask_for_this_call};
use super::threads;
use super::time::deadline;
use super::user::{self, with_state};
use super::wait::Waiting;

/// Bytes of `struct epoll_event`, which is packed on x86-64: 4 of events, 8 of data.
const EVENT_BYTES: usize = 12;
const READS: u16 = POLLIN | POLLRDNORM;
const WRITES: u16 = POLLOUT | POLLWRNORM;

fn to_mask(events: u16) -> u32 {
    let pairs = [(READS, ready::READ), (WRITES, ready::WRITE), (POLLRDHUP, ready::READ_HANGUP)];
    pairs.iter().filter(|(events_of, _)| events & events_of != 0).fold(0, |all, (_, bit)| all | bit)
}

fn to_events(found: u32, wanted: u16) -> u16 {
    let when = |bit: u32, events: u16| if found & bit != 0 { events } else { 0 };
    let asked = when(ready::READ, READS) | when(ready::WRITE, WRITES) | when(ready::READ_HANGUP, POLLRDHUP);
    asked & wanted | when(ready::ERROR, POLLERR) | when(ready::HANGUP, POLLHUP)
}

/// So many questions are under way at once that there is room for them.
const ASKED_AT_ONCE: usize = 64;

/// Looks once at the entries of these numbers; servers tell as `watch` says. Of others what is
/// known stays. Gives how many are ready.
async fn look(entries: &mut [PollEntry], asked: &[usize], watch: WatchFor) -> usize {
    for some in asked.chunks(ASKED_AT_ONCE) {
        let begin = |at: &usize| (*at, begin_look(entries[*at].descriptor as u64, entries[*at].events, watch));
        let looks: Vec<(usize, Look)> = some.iter().map(begin).collect();
        for (at, look) in looks {
            entries[at].returned = end_look(look, entries[at].events, watch, 0).await;
        }
    }
    entries.iter().filter(|entry| entry.returned != 0).count()
}

/// What is known of a description's readiness.
enum Look {
    /// All there is to know.
    Known(u16),
    /// A set inside a set.
    Set(u64),
    /// Its server is being asked.
    Asked(&'static DescriptionsClient, DescriptionId, Call<u32, DescriptionError>),
}

fn begin_look(descriptor: u64, events: u16, watch: WatchFor) -> Look {
    match with_state(|state| state.descriptors.get(descriptor).copied()) {
        Err(_) => Look::Known(POLLNVAL),
        // Files never wait.
        Ok(found) if found.is_file() || found.server == server::OWN => Look::Known(events & (READS | WRITES)),
        Ok(found) if found.server == server::EPOLL => Look::Set(found.id),
        Ok(found) if found.server == server::SIGNALS => {
            Look::Known(if signals::is_readable(&found) { events & READS } else { 0 })
        }
        Ok(found) if found.server == server::COUNTER => Look::Known(to_events(counters::ready(&found), events)),
        Ok(found) => match proxy().server(found.server) {
            Ok(client) => Look::Asked(client, found.id, client.poll(found.id, to_mask(events), watch)),
            Err(_) => Look::Known(POLLERR),
        },
    }
}

/// How deep sets may stand in sets (EP_MAX_NESTS).
const NESTED_MAX: usize = 5;

async fn end_look(look: Look, events: u16, watch: WatchFor, depth: usize) -> u16 {
    match look {
        Look::Known(returned) => returned,
        Look::Set(_) if depth == NESTED_MAX => 0,
        Look::Set(set) => {
            // What is found is to be found again by who waits for the set itself.
            let found = Box::pin(look_at_set(set, 1, depth + 1)).await;
            let mut candidates = proxy().candidates.borrow_mut();
            found.iter().for_each(|(descriptor, _)| candidates.put_back(set, *descriptor));
            if found.is_empty() { 0 } else { READS & events }
        }
        Look::Asked(client, id, call) => {
            // Many closes may be under way: they end by themselves.
            let answer = call.or_queued(|| client.poll(id, to_mask(events), watch)).await;
            answer.map_or(POLLERR, |found| to_events(found, events))
        }
    }
}

/// Asks for a set's candidates until `room` are ready: their descriptors and events. What is ready
/// stays a candidate, unless its next edge is all that counts.
async fn look_at_set(set: u64, room: usize, depth: usize) -> Vec<(u32, u16)> {
    let mut ready = Vec::new();
    // What is put back meanwhile is looked at the next time.
    let mut left = proxy().candidates.borrow().count(set);
    while ready.len() < room && left > 0 {
        let count = left.min(ASKED_AT_ONCE).min(room - ready.len());
        let mut asked = Taken { set, descriptors: proxy().candidates.borrow_mut().take(set, count) };
        if asked.descriptors.is_empty() {
            break;
        }
        left -= asked.descriptors.len();
        let looks: Vec<_> = asked
            .descriptors
            .iter()
            .filter_map(|descriptor| with_state(|state| state.interests.get(set, *descriptor)))
            // A one-shot entry that was reported watches nothing until it is changed.
            .filter(|interest| interest.events != ONE_SHOT)
            .map(|interest| {
                // Of exclusive ones, another set is told of the next change while this one's is
                // dealt with.
                let tells_next = interest.events & (EDGE | EXCLUSIVE) != 0;
                let watch = if tells_next { WatchFor::Edge } else { WatchFor::Level };
                (interest, watch, begin_look(interest.descriptor.into(), interest.events as u16, watch))
            })
            .collect();
        for (interest, watch, look) in looks {
            let is_set = matches!(look, Look::Set(_));
            let returned = end_look(look, interest.events as u16, watch, depth).await & !POLLNVAL;
            looked_at(&interest, returned, is_set, &mut ready);
        }
        asked.descriptors.clear();
    }
    ready
}

/// A candidate is ready for what `returned` says. Nobody tells of a change of one that `is_set`: it
/// is looked at each time.
fn looked_at(interest: &Interest, returned: u16, is_set: bool, ready: &mut Vec<(u32, u16)>) {
    if returned != 0 {
        ready.push((interest.descriptor, returned));
    }
    if is_set || returned != 0 && interest.events & EDGE == 0 {
        proxy().candidates.borrow_mut().put_back(interest.set, interest.descriptor);
    }
}

/// The same as [`look_at_set`] if all that has to be looked at are event counters; `None`
/// otherwise, with the candidates as they were.
fn look_at_counters(set: u64, room: usize) -> Option<Vec<(u32, u16)>> {
    // What is put back meanwhile is looked at the next time.
    let count = proxy().candidates.borrow().count(set);
    let mut ready = Vec::with_capacity(count.min(room));
    for _ in 0..count {
        if ready.len() == room {
            break;
        }
        let descriptor = proxy().candidates.borrow().first(set)?;
        let look = with_state(|state| {
            let found = state.descriptors.get(descriptor.into()).ok()?;
            let interest = state.interests.get(set, descriptor).filter(|interest| interest.events != ONE_SHOT);
            let look = |interest: Interest| (interest, to_events(counters::ready(found), interest.events as u16));
            (found.server == server::COUNTER).then(|| interest.map(look))
        });
        let Some(look) = look else {
            let taken: Vec<u32> = ready.iter().map(|(descriptor, _)| *descriptor).collect();
            proxy().candidates.borrow_mut().put_first(set, &taken);
            return None;
        };
        proxy().candidates.borrow_mut().take_first(set);
        if let Some((interest, returned)) = look {
            looked_at(&interest, returned, false, &mut ready);
        }
    }
    Some(ready)
}

/// Candidates that were taken and not settled go back.
struct Taken {
    set: u64,
    descriptors: Vec<u32>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if !self.descriptors.is_empty() {
            proxy().candidates.borrow_mut().put_first(self.set, &self.descriptors);
        }
    }
}

/// A set as one that waits for it knows it.
fn object_of(set: u64) -> Object {
    (server::EPOLL, set)
}

/// What an object is ready for may have changed: lets those look again whom it concerns, by sets
/// too.
pub fn changed(object: Object) {
    let wait_queue = &proxy().wait_queue;
    let sets = proxy().candidates.borrow_mut().changed(object, |set| wait_queue.has(object_of(set)));
    wait_queue.changed(object);
    sets_changed(sets);
}

/// The same for all objects of a server.
pub fn all_changed(server: u32) {
    let sets = proxy().candidates.borrow_mut().all_changed(server);
    proxy().wait_queue.all_changed(server);
    sets_changed(sets);
}

/// Sets have new candidates.
fn sets_changed(sets: Vec<u64>) {
    sets.into_iter().for_each(|set| proxy().wait_queue.changed(object_of(set)));
}

/// Something was done to a description that may change what it is ready for: sets ask again, also
/// those that another thread waits for now.
pub fn again(found: &Description) {
    let wait_queue = &proxy().wait_queue;
    let object = (found.server, found.id);
    let sets = proxy().candidates.borrow_mut().changed(object, |set| wait_queue.has(object_of(set)));
    sets_changed(sets);
}

/// A description is another object from now on: sets ask for that, and who waits for the old one
/// looks again.
pub fn renamed(old: Object, new: Object) {
    let watching: Vec<_> = with_state(|state| {
        let names = |known: &&Interest| {
            let found = state.descriptors.get(known.descriptor.into());
            found.is_ok_and(|found| (found.server, found.id) == new)
        };
        let entry = |known: &Interest| (known.set, known.descriptor, known.events & EXCLUSIVE != 0);
        state.interests.all().filter(names).map(entry).collect()
    });
    let mut candidates = proxy().candidates.borrow_mut();
    for (set, descriptor, is_exclusive) in &watching {
        candidates.remove(*set, *descriptor, old);
        candidates.add(*set, *descriptor, new, *is_exclusive);
    }
    drop(candidates);
    proxy().wait_queue.changed(old);
    changed(new);
}

/// A descriptor that named an object left a set: one that was told alone of its change tells
/// others.
pub fn left_set(set: u64, descriptor: u32, named: &Description) {
    let sets = proxy().candidates.borrow_mut().remove(set, descriptor, (named.server, named.id));
    sets_changed(sets);
}

/// A set was closed for the last time.
pub fn set_closed(set: u64) {
    with_state(|state| state.interests.forget_set(set));
    let sets = proxy().candidates.borrow_mut().remove_set(set);
    sets_changed(sets);
}

/// Takes in what the process state has of sets, for a forked child.
pub fn begin() {
    let known: Vec<_> = with_state(|state| {
        let object = |descriptor: u32| state.descriptors.get(descriptor.into()).map(|found| (found.server, found.id));
        let all = state.interests.all();
        let entry = |known: &Interest| {
            Some((known.set, known.descriptor, object(known.descriptor).ok()?, known.events & EXCLUSIVE != 0))
        };
        all.filter_map(entry).collect()
    });
    let mut candidates = proxy().candidates.borrow_mut();
    known.into_iter().for_each(|(set, descriptor, object, is_exclusive)| {
        candidates.add(set, descriptor, object, is_exclusive);
    });
}

/// Waits until at least one entry is ready, a signal comes or the time is over. After the first
/// look only those are asked for again of which a change was told.
async fn wait(entries: &mut [PollEntry], deadline_ns: u64) -> Result<usize, Failure> {
    loop {
        if let Some(found) = wait_for_objects(entries, deadline_ns).await? {
            return Ok(found);
        }
    }
}

/// The same; `None` if a descriptor names another object than it did.
async fn wait_for_objects(entries: &mut [PollEntry], deadline_ns: u64) -> Result<Option<usize>, Failure> {
    entries.iter_mut().for_each(|entry| entry.returned = 0);
    let all: Vec<usize> = (0..entries.len()).filter(|at| entries[*at].descriptor >= 0).collect();
    let (seen, waits) = (proxy().wait_queue.changes(), deadline_ns > runtime::now_ns());
    let found = look(entries, &all, if waits { WatchFor::Level } else { WatchFor::Nothing }).await;
    if found > 0 || !waits {
        return Ok(Some(found));
    }
    let (mut objects, mut numbers) = (Vec::new(), BTreeMap::<Object, Vec<usize>>::new());
    for at in all.iter().copied() {
        let Ok(object) = object(entries[at].descriptor as u64) else { continue };
        let of_object = numbers.entry(object).or_default();
        if of_object.is_empty() {
            objects.push(object);
        }
        of_object.push(at);
    }
    let waiting = Waiting::to_look(objects, seen);
    loop {
        let Ok(changed) = waiting.changed(deadline_ns).await else {
            // What came with the signal is told; else, as these calls never start again by
            // themselves:
            let found = look(entries, &all, WatchFor::Nothing).await;
            return if found > 0 { Ok(Some(found)) } else { Err(Errno::EINTR.into()) };
        };
        let asked: Vec<usize> = changed.iter().filter_map(|object| numbers.get(object)).flatten().copied().collect();
        let still = |at: &usize| object(entries[*at].descriptor as u64).is_ok_and(|named| changed.contains(&named));
        if !asked.iter().all(still) {
            return Ok(None);
        }
        let found = look(entries, &asked, WatchFor::Level).await;
        if found > 0 || changed.is_empty() {
            return Ok(Some(found));
        }
    }
}

/// What a descriptor names, as a server's event or a change of a set does.
fn object(descriptor: u64) -> Result<Object, Errno> {
    with_state(|state| state.descriptors.get(descriptor).map(|found| (found.server, found.id)))
}

fn milliseconds(timeout: u64) -> u64 {
    match timeout as i32 {
        negative if negative < 0 => u64::MAX,
        timeout => runtime::now_ns().saturating_add(timeout as u64 * 1_000_000),
    }
}

fn mask(at: u64, bytes: u64) -> Result<(), Errno> {
    if at == 0 {
        return Ok(());
    }
    if bytes != 8 {
        return Err(Errno::EINVAL);
    }
    mask_for_this_call(user::read(at)?);
    Ok(())
}

/// poll.
pub async fn poll(at: u64, count: u64, timeout_ms: u64) -> Outcome {
    poll_until(at, count, milliseconds(timeout_ms)).await
}

/// ppoll.
pub async fn poll_masked(at: u64, count: u64, timeout_at: u64, mask_at: u64, mask_bytes: u64) -> Outcome {
    let until = deadline(user::read_if::<TimeSpec>(timeout_at)?)?;
    mask(mask_at, mask_bytes)?;
    poll_until(at, count, until).await
}

async fn poll_until(at: u64, count: u64, deadline_ns: u64) -> Outcome {
    if count > with_state(|state| state.descriptors.end()) {
        return Err(Errno::EINVAL.into());
    }
    let mut entries: Vec<PollEntry> =
        (0..count).map(|index| user::read(at.wrapping_add(index * 8))).collect::<Result<_, _>>()?;
    let found = wait(&mut entries, deadline_ns).await?;
    for (index, entry) in entries.iter().enumerate() {
        user::write(at.wrapping_add(index as u64 * 8), entry)?;
    }
    Ok(found as u64)
}

/// select.
pub async fn select([count, reads, writes, others, timeout_at]: [u64; 5]) -> Outcome {
    let timeout = user::read_if::<TimeVal>(timeout_at)?.map(|time| time.to_ns().ok_or(Errno::EINVAL)).transpose()?;
    let until = deadline(timeout.map(TimeSpec::from_ns))?;
    let outcome = select_until(count, [reads, writes, others], until).await;
    if timeout.is_some() {
        // As on Linux, what is left; memory that cannot be written is no error.
        let _ = user::write(timeout_at, &TimeVal::from_ns(until.saturating_sub(runtime::now_ns())));
    }
    outcome
}

/// pselect6: the mask comes as a pointer to pointer and size.
pub async fn select_masked([count, reads, writes, others, timeout_at, mask_at]: [u64; 6]) -> Outcome {
    let until = deadline(user::read_if::<TimeSpec>(timeout_at)?)?;
    if let Some([set_at, bytes]) = user::read_if::<[u64; 2]>(mask_at)? {
        mask(set_at, bytes)?;
    }
    let outcome = select_until(count, [reads, writes, others], until).await;
    if timeout_at != 0 {
        let _ = user::write(timeout_at, &TimeSpec::from_ns(until.saturating_sub(runtime::now_ns())));
    }
    outcome
}

async fn select_until(count: u64, sets: [u64; 3], deadline_ns: u64) -> Outcome {
    const EVENTS: [u16; 3] = [POLLIN, POLLOUT, POLLPRI];
    // What makes a descriptor count in each set, errors included.
    const COUNTS: [u16; 3] = [POLLIN | POLLHUP | POLLERR, POLLOUT | POLLERR, POLLPRI];
    // As on Linux, what is behind the largest table is not looked at.
    let count = usize::try_from(count as i32).map_err(|_| Errno::EINVAL)?.min(DESCRIPTORS_MAX);
    let words = count.div_ceil(64);
    let mut wanted = [(); 3].map(|()| vec![0u64; words]);
    for (set, at) in wanted.iter_mut().zip(sets).filter(|(_, at)| *at != 0) {
        for (index, word) in set.iter_mut().enumerate() {
            *word = user::read(at.wrapping_add(index as u64 * 8))?;
        }
    }
    let has = |set: &[u64], number: usize| set[number / 64] >> (number % 64) & 1 != 0;
    let mut entries = Vec::new();
    for number in 0..count {
        let events = (0..3).filter(|kind| has(&wanted[*kind], number)).fold(0, |all, kind| all | EVENTS[kind]);
        if events != 0 {
            entries.push(PollEntry { descriptor: number as i32, events, returned: 0 });
        }
    }
    wait(&mut entries, deadline_ns).await?;
    if entries.iter().any(|entry| entry.returned & POLLNVAL != 0) {
        return Err(Errno::EBADF.into());
    }
    let mut total = 0;
    for (kind, at) in sets.into_iter().enumerate().filter(|(_, at)| *at != 0) {
        let mut set = vec![0u64; words];
        for entry in entries.iter().filter(|entry| entry.returned & COUNTS[kind] != 0) {
            let number = entry.descriptor as usize;
            if has(&wanted[kind], number) {
                set[number / 64] |= 1 << (number % 64);
                total += 1;
            }
        }
        for (index, word) in set.iter().enumerate() {
            user::write(at.wrapping_add(index as u64 * 8), word)?;
        }
    }
    Ok(total)
}

/// epoll_create and epoll_create1.
pub fn create(flags: u64) -> Outcome {
    if flags & !u64::from(O_CLOEXEC) != 0 {
        return Err(Errno::EINVAL.into());
    }
    Ok(with_state(|state| {
        let id = state.interests.create();
        state
            .descriptors
            .add(Description { id, server: server::EPOLL, flags: O_RDWR, ..Description::default() }, flags != 0)
    })?)
}

fn set_of(descriptor: u64) -> Result<u64, Errno> {
    let found = with_state(|state| state.descriptors.get(descriptor).copied())?;
    if found.server == server::EPOLL { Ok(found.id) } else { Err(Errno::EINVAL) }
}

/// epoll_ctl.
pub fn change(set: u64, operation: u64, descriptor: u64, event_at: u64) -> Outcome {
    const ADD: u64 = 1;
    const REMOVE: u64 = 2;
    const CHANGE: u64 = 3;
    let set = set_of(set)?;
    let found = with_state(|state| state.descriptors.get(descriptor).copied())?;
    // Linux refuses what can never wait; programs rely on EPERM for files.
    if found.is_file() || found.server == server::OWN {
        return Err(Errno::EPERM.into());
    }
    let descriptor = descriptor as u32;
    if operation == REMOVE {
        with_state(|state| state.interests.remove(set, descriptor))?;
        left_set(set, descriptor, &found);
        return Ok(0);
    }
    let interest =
        Interest { set, data: user::read(event_at.wrapping_add(4))?, descriptor, events: user::read(event_at)? };
    if found.server == server::EPOLL && (found.id == set || reaches(found.id, set, 0)) {
        return Err(if found.id == set { Errno::EINVAL } else { Errno::ELOOP }.into());
    }
    let is_exclusive = interest.events & EXCLUSIVE != 0;
    if is_exclusive && (operation != ADD || found.server == server::EPOLL || !interest.may_be_exclusive()) {
        return Err(Errno::EINVAL.into());
    }
    with_state(|state| match operation {
        ADD => state.interests.add(interest),
        CHANGE => state.interests.change(interest),
        _ => Err(Errno::EINVAL),
    })?;
    proxy().candidates.borrow_mut().add(set, descriptor, (found.server, found.id), is_exclusive);
    // Another thread may wait for the set, or for one that holds it.
    changed(object_of(set));
    Ok(0)
}

/// Does a set hold another one, itself or by sets inside it, or go deeper than may be?
fn reaches(from: u64, to: u64, depth: usize) -> bool {
    if depth == NESTED_MAX {
        return true;
    }
    let inside: Vec<u64> = with_state(|state| {
        let descriptions =
            state.interests.of(from).filter_map(|known| state.descriptors.get(known.descriptor.into()).ok());
        descriptions.filter(|found| found.server == server::EPOLL).map(|found| found.id).collect()
    });
    inside.into_iter().any(|set| set == to || reaches(set, to, depth + 1))
}

/// epoll_wait and epoll_pwait.
pub async fn wait_set([set, at, count, timeout_ms, mask_at, mask_bytes]: [u64; 6], masked: bool) -> Outcome {
    let set = set_of(set)?;
    let room = usize::try_from(count as i32).ok().filter(|count| *count > 0).ok_or(Errno::EINVAL)?;
    if masked {
        mask(mask_at, mask_bytes)?;
    }
    let deadline_ns = milliseconds(timeout_ms);
    let mut waiting: Option<Waiting> = None;
    loop {
        let ready = look_at_set(set, room, 0).await;
        let waits = deadline_ns > runtime::now_ns();
        if let Some(waiting) = &waiting {
            waiting.owes(false);
        }
        if !ready.is_empty() || !waits {
            return tell_set(set, at, &ready);
        }
        // What comes from now on is told to this one or to one that waits already.
        let Some(waiting) = &waiting else {
            waiting = Some(Waiting::to_take(object_of(set), 0));
            continue;
        };
        if waiting.changed(deadline_ns).await.is_err() {
            // What came with the signal is told; else, as these calls never start again by
            // themselves:
            let ready = look_at_set(set, room, 0).await;
            waiting.owes(false);
            return if ready.is_empty() { Err(Errno::EINTR.into()) } else { tell_set(set, at, &ready) };
        }
    }
}

/// epoll_wait, where no server has to be asked, and nobody waited for.
pub fn try_wait_set(set: u64, at: u64, count: u64, timeout_ms: u64) -> Option<Outcome> {
    let set = set_of(set).ok()?;
    let room = usize::try_from(count as i32).ok().filter(|count| *count > 0)?;
    let ready = look_at_counters(set, room)?;
    if ready.is_empty() && timeout_ms as i32 != 0 { None } else { Some(tell_set(set, at, &ready)) }
}

/// Writes what a set is ready for to the program.
fn tell_set(set: u64, at: u64, ready: &[(u32, u16)]) -> Outcome {
    let mut written = 0;
    for (descriptor, events) in ready {
        let Some(interest) = with_state(|state| state.interests.get(set, *descriptor)) else { continue };
        let mut event = [0; EVENT_BYTES];
        event[..4].copy_from_slice(&u32::from(*events).to_ne_bytes());
        event[4..].copy_from_slice(&interest.data.to_ne_bytes());
        user::write(at.wrapping_add(written * EVENT_BYTES as u64), &event)?;
        with_state(|state| state.interests.reported(set, *descriptor));
        written += 1;
    }
    // What is left, or ready still, is another thread's that waits for the set.
    if written > 0 && !threads::is_alone() && proxy().candidates.borrow().count(set) > 0 {
        changed(object_of(set));
    }
    Ok(written)
}
