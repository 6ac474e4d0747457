//! System V shared memory: shmget, shmat, shmdt, shmctl; and large memory in common without a name.
//!
//! The process server has the segments; their memory is lent to this program part by part, and
//! forked children have it in common, for which they pay nothing.

use abi::Handle;
use alloc::boxed::Box;
use alloc::vec::Vec;

use channel::CallError;
use contracts::shared_memory::*;
use personality::Errno;
use personality::layouts::{SharedMemoryInfo, SharedMemoryState, SharedMemorySum};
use personality::memory::{Area, PAGE, mark, protection};
use personality::system_v::{self, AttachOptions};

use super::errors::{AsErrno, Failure, Outcome};
use super::mapping::{self, Place};
use super::proxy::proxy;
use super::shared_files;
use super::user::{self, with_state};

/// The number of the turn at attaching: a fork has what its parent has, whole.
pub const TURN: u32 = 30;

impl AsErrno for SegmentError {
    fn errno(self) -> Errno {
        match self {
            SegmentError::NotFound => Errno::ENOENT,
            SegmentError::Exists => Errno::EEXIST,
            SegmentError::Invalid => Errno::EINVAL,
            SegmentError::Denied => Errno::EACCES,
            SegmentError::NotOwner => Errno::EPERM,
            SegmentError::NoMemory => Errno::ENOMEM,
            SegmentError::TooMany => Errno::ENOSPC,
            SegmentError::Failed => Errno::EIO,
        }
    }
}

/// An id, which is a positive int. `EINVAL`.
fn id_of(value: u64) -> Result<SegmentId, Errno> {
    SegmentId::try_from(value as i32).map_err(|_| Errno::EINVAL)
}

/// shmget.
pub async fn get(key: u64, bytes: u64, flags: u64) -> Outcome {
    const CREATE: u64 = 0o1000;
    const EXCLUSIVE: u64 = 0o2000;
    const LARGE_PAGES: u64 = 0o4000;
    let (key, is_large) = (key as u32, flags & LARGE_PAGES != 0);
    let (is_new, mode) = (flags & EXCLUSIVE != 0, flags as u16 & 0o777);
    let creates = flags & CREATE != 0;
    if is_large && key == KEY_PRIVATE {
        // There are no large pages.
        return Err(Errno::ENOMEM.into());
    }
    let wish = SegmentWish { key, bytes, creates: creates && !is_large, is_new, mode };
    let found: Result<SegmentId, Failure> = proxy().process.segment(wish).await.map_err(Failure::from);
    match found {
        Err(Failure::Errno(Errno::ENOENT)) if creates => Err(Errno::ENOMEM.into()),
        found => Ok(found?.into()),
    }
}

/// Handles of parts that are not mapped yet.
struct Parts(Vec<Handle>);

impl Drop for Parts {
    fn drop(&mut self) {
        self.0.iter().for_each(|handle| _ = sys::cap_drop(*handle));
    }
}

/// shmat: gives the address.
pub async fn attach(id: u64, at: u64, flags: u64) -> Outcome {
    let options = AttachOptions::new(at, flags)?;
    let id = id_of(id)?;
    let _turn = proxy().turn(TURN).await;
    let is_writer = options.access & protection::WRITE != 0;
    let Attached { number, pages } = proxy().process.attach_segment(id, is_writer).await?;
    let place = Place::new(options.wish, pages * PAGE, options.map_flags);
    let mapped = match place {
        Ok(place) => map(place, number, (options.access, options.marks())).await,
        Err(errno) => Err(errno.into()),
    };
    if mapped.is_err() {
        let _ = proxy().process.detach_segment(number);
    }
    mapped
}

/// Memory without a name, which mmap is to map; gives its number. `ENOMEM`.
pub async fn lend(bytes: u64) -> Result<u64, Failure> {
    match proxy().process.lend_memory(bytes / PAGE).await {
        Err(CallError::Server(SegmentError::TooMany)) => Err(Errno::ENOMEM.into()),
        lent => Ok(lent?.number),
    }
}

/// mmap of memory in common that is so large that it is paid once for all who have it.
pub async fn map_lent(place: Place, access: u32) -> Outcome {
    let _turn = proxy().turn(TURN).await;
    let number = lend(place.bytes).await?;
    let mapped = map(place, number, (access, mark::LENT)).await;
    if mapped.is_err() {
        let _ = proxy().process.detach_segment(number);
    }
    mapped
}

/// Maps a whole segment with that access and those marks, or nothing of it.
async fn map(place: Place, number: u64, (protection, marks): (u32, u32)) -> Outcome {
    let bytes = place.bytes;
    let replaced = place.replaced();
    with_state(|state| state.may_map(bytes, replaced.clone(), false))?;
    let mut parts = Parts(Vec::new());
    for part in 0..bytes.div_ceil(PART_PAGES * PAGE) {
        parts.0.push(Handle(proxy().process.segment_part(number, part as u32).await?));
    }
    if !replaced.is_empty() {
        let take = || mapping::unmap(replaced.start, replaced.end).map(|()| 0).map_err(Failure::from);
        Box::pin(shared_files::change(replaced.start, bytes, take)).await?;
    }
    let start = place.take().map_err(|errno| if errno == Errno::EEXIST { Errno::EINVAL } else { errno })?;
    for part in 0..parts.0.len() as u64 {
        let at = start + part * PART_PAGES * PAGE;
        let (end, segment) = ((at + PART_PAGES * PAGE).min(start + bytes), parts.0[part as usize].0);
        let common = number + part;
        let mapped = mapping::map_segment(Area { start: at, end, segment, first_page: 0, protection, marks, common });
        if let Err(errno) = mapped {
            // Those that are mapped already drop their handles; the caller tells the server.
            mapping::unmap_untold(start, at)?;
            parts.0.drain(..part as usize);
            return Err(errno.into());
        }
    }
    parts.0.clear();
    Ok(start)
}

/// shmdt.
pub fn detach(at: u64) -> Outcome {
    for part in with_state(|state| system_v::at(&state.memory, at))? {
        mapping::unmap(part.start, part.end)?;
    }
    Ok(0)
}

/// Areas were taken out of the memory map: the server hears of segments that this process has not
/// any more.
pub fn taken(areas: &[Area]) {
    for number in with_state(|state| system_v::gone(&state.memory, areas)) {
        let _ = proxy().process.detach_segment(number);
    }
}

fn told(state: &SegmentState) -> SharedMemoryState {
    const REMOVED: u32 = 0o1000;
    const LOCKED: u32 = 0o2000;
    let flags = if state.is_removed { REMOVED } else { 0 } | if state.is_locked { LOCKED } else { 0 };
    SharedMemoryState {
        key: state.key,
        user: state.owner[0],
        group: state.owner[1],
        creator_user: state.creator[0],
        creator_group: state.creator[1],
        mode: u32::from(state.mode) | flags,
        bytes: state.bytes,
        attached_s: state.attached_s,
        detached_s: state.detached_s,
        changed_s: state.changed_s,
        creator: state.creator_process,
        last: state.last_process,
        attaches: state.attaches,
        ..SharedMemoryState::default()
    }
}

/// shmctl.
pub async fn control(id: u64, command: u64, at: u64) -> Outcome {
    const REMOVE: u64 = 0;
    const SET: u64 = 1;
    const STATE: u64 = 2;
    const INFO: u64 = 3;
    const LOCK: u64 = 11;
    const UNLOCK: u64 = 12;
    const STATE_AT: u64 = 13;
    const SUM: u64 = 14;
    const STATE_AT_ANY: u64 = 15;
    let process = &proxy().process;
    let id = id_of(id)?;
    let change = match command & u64::from(u32::MAX) {
        REMOVE => SegmentChange::Remove,
        SET => {
            let new: SharedMemoryState = user::read(at)?;
            SegmentChange::Set { owner: [new.user, new.group], mode: new.mode as u16 & 0o777 }
        }
        LOCK => SegmentChange::Lock(true),
        UNLOCK => SegmentChange::Lock(false),
        command @ (STATE | STATE_AT | STATE_AT_ANY) => {
            let name = match command {
                STATE => SegmentName::Id(id),
                _ => SegmentName::Place { place: id, is_open: command == STATE_AT_ANY },
            };
            let state = process.segment_state(name).await?;
            user::write(at, &told(&state))?;
            return Ok(if command == STATE { 0 } else { state.id.into() });
        }
        INFO => {
            let (most, least) = (PAGES_MAX * PAGE, 1);
            let all = SEGMENTS_MAX as u64;
            let info =
                SharedMemoryInfo { most, least, segments: all, of_process: all, pages: PAGES_MAX, reserved: [0; 4] };
            let (_, highest) = process.segments().await?;
            user::write(at, &info)?;
            return Ok(highest.into());
        }
        SUM => {
            let (sum, highest) = process.segments().await?;
            let (segments, pages, present) = (sum.segments, sum.pages, sum.present_pages);
            user::write(at, &SharedMemorySum { segments, padding: 0, pages, present, others: [0; 3] })?;
            return Ok(highest.into());
        }
        _ => return Err(Errno::EINVAL.into()),
    };
    process.change_segment(id, change).await?;
    Ok(0)
}
