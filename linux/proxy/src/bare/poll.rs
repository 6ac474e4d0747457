//! poll, select, epoll: one loop over `descriptions.poll` and its ready events.

use alloc::vec;
use alloc::vec::Vec;

use channel::CallError;
use contracts::descriptions::ready;
use personality::Errno;
use personality::descriptors::{DESCRIPTORS_MAX, Description, server};
use personality::epoll::{Interest, ONE_SHOT};
use personality::flags::*;
use personality::layouts::{PollEntry, TimeSpec, TimeVal};

use super::errors::{Failure, Outcome};
use super::proxy::proxy;
use super::signals::mask_for_this_call;
use super::time::deadline;
use super::user::{self, with_state};
use super::wait::happening;

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

/// Looks at all entries once; with `watch`, servers tell when one becomes ready later. Gives how
/// many are ready.
async fn look(entries: &mut [PollEntry], watch: bool) -> usize {
    // So that there is room for all of them among the calls under way.
    const ASKED_AT_ONCE: usize = 64;
    for some in entries.chunks_mut(ASKED_AT_ONCE) {
        look_at_some(some, watch).await;
    }
    entries.iter().filter(|entry| entry.returned != 0).count()
}

async fn look_at_some(entries: &mut [PollEntry], watch: bool) {
    let mut calls = Vec::new();
    for (index, entry) in entries.iter_mut().enumerate() {
        entry.returned = 0;
        if entry.descriptor < 0 {
            continue;
        }
        match with_state(|state| state.descriptors.get(entry.descriptor as u64).copied()) {
            Err(_) => entry.returned = POLLNVAL,
            // Files never wait.
            Ok(found) if found.server == server::FS => entry.returned = entry.events & (READS | WRITES),
            // A set inside a set is not followed (CAVEATS).
            Ok(found) if found.server == server::EPOLL => {}
            Ok(found) => match proxy().server(found.server) {
                Ok(client) => {
                    calls.push((index, client, found.id, client.poll(found.id, to_mask(entry.events), watch)))
                }
                Err(_) => entry.returned = POLLERR,
            },
        }
    }
    for (index, client, id, call) in calls {
        let entry = &mut entries[index];
        let mut answer = call.await;
        while answer == Err(CallError::Full) {
            // Many closes are under way: they end by themselves.
            runtime::yield_now().await;
            answer = client.poll(id, to_mask(entry.events), watch).await;
        }
        entry.returned = match answer {
            Ok(found) => to_events(found, entry.events),
            Err(_) => POLLERR,
        };
    }
}

/// Waits until at least one entry is ready, a signal comes or the time is over.
async fn wait(entries: &mut [PollEntry], deadline_ns: u64) -> Result<usize, Failure> {
    loop {
        let seen = proxy().happenings.count();
        let now_ns = runtime::now_ns();
        let found = look(entries, deadline_ns > now_ns).await;
        if found > 0 || deadline_ns <= now_ns {
            return Ok(found);
        }
        match happening(seen, deadline_ns).await {
            Ok(true) => {}
            Ok(false) => return Ok(look(entries, false).await),
            // These calls never start again by themselves.
            Err(_) => return Err(Errno::EINTR.into()),
        }
    }
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
    if count > DESCRIPTORS_MAX as u64 {
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
pub async fn select([count, reads, writes, others, timeout_at, _]: [u64; 6]) -> Outcome {
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
    let count = usize::try_from(count).ok().filter(|count| *count <= 1024).ok_or(Errno::EINVAL)?;
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

/// epoll_ctl. `struct epoll_event` is packed on x86-64: 4 bytes of events, 8 of data.
pub fn change(set: u64, operation: u64, descriptor: u64, event_at: u64) -> Outcome {
    const ADD: u64 = 1;
    const REMOVE: u64 = 2;
    const CHANGE: u64 = 3;
    let set = set_of(set)?;
    let found = with_state(|state| state.descriptors.get(descriptor).copied())?;
    // Linux refuses what can never wait; programs rely on EPERM for files.
    if found.server == server::FS {
        return Err(Errno::EPERM.into());
    }
    let descriptor = descriptor as u32;
    if operation == REMOVE {
        with_state(|state| state.interests.remove(set, descriptor))?;
        return Ok(0);
    }
    let interest =
        Interest { set, data: user::read(event_at.wrapping_add(4))?, descriptor, events: user::read(event_at)? };
    with_state(|state| match operation {
        ADD => state.interests.add(interest),
        CHANGE => state.interests.change(interest),
        _ => Err(Errno::EINVAL),
    })?;
    Ok(0)
}

/// epoll_wait and epoll_pwait.
pub async fn wait_set([set, at, count, timeout_ms, mask_at, mask_bytes]: [u64; 6], masked: bool) -> Outcome {
    let set = set_of(set)?;
    let room = usize::try_from(count as i32).ok().filter(|count| *count > 0).ok_or(Errno::EINVAL)?;
    if masked {
        mask(mask_at, mask_bytes)?;
    }
    let interests: Vec<Interest> = with_state(|state| state.interests.of(set).copied().collect());
    // A one-shot entry that was reported watches nothing until it is changed.
    let quiet = |interest: &&Interest| interest.events != ONE_SHOT;
    let mut entries: Vec<PollEntry> = interests
        .iter()
        .filter(quiet)
        .map(|interest| PollEntry {
            descriptor: interest.descriptor as i32,
            events: interest.events as u16,
            returned: 0,
        })
        .collect();
    wait(&mut entries, milliseconds(timeout_ms)).await?;
    let mut written = 0;
    for (entry, interest) in entries
        .iter()
        .zip(interests.iter().filter(quiet))
        .filter(|(entry, _)| entry.returned & !POLLNVAL != 0)
        .take(room)
    {
        let place = at.wrapping_add(written * 12);
        user::write(place, &u32::from(entry.returned))?;
        user::write(place.wrapping_add(4), &interest.data)?;
        with_state(|state| state.interests.reported(set, interest.descriptor));
        written += 1;
    }
    Ok(written)
}
