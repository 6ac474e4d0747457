//! File locks: fcntl's by ranges, of the process or of the description, and flock's.

use core::sync::atomic::{AtomicBool, Ordering};

use contracts::descriptions::Whence;
use contracts::files::{FilesClient, Hold, Lock, LockKind};
use personality::Errno;
use personality::descriptors::Description;
use personality::flags::*;
use personality::layouts::FileLock;

use super::errors::{Failure, Outcome};
use super::input_output::{description, status};
use super::proxy::proxy;
use super::user::{self, with_state};
use super::wait::answer;

/// This process asked for a lock of its own: closing any descriptor of a file gives those on it
/// back. A forked child inherits neither the locks nor this.
static OWNS: AtomicBool = AtomicBool::new(false);

/// The file that is to be locked. Others cannot be.
fn file(descriptor: u64, otherwise: Errno) -> Result<Description, Errno> {
    description(descriptor).and_then(|found| if found.is_file() { Ok(found) } else { Err(otherwise) })
}

/// Where locks are asked for, once the server has closed what was closed before: that gives locks
/// back, and is told by another channel, which a lock may overtake.
async fn after_closes(found: &Description) -> Result<&'static FilesClient, Errno> {
    proxy().until_closed(found.server).await;
    proxy().files_at(found.server)
}

/// First byte, and the first one after, of what a program wants to lock.
async fn range(found: &Description, descriptor: u64, wish: &FileLock) -> Result<(u64, u64), Failure> {
    let base = match wish.whence {
        0 => 0,
        1 => answer(proxy().server(found.server)?.seek(found.id, 0, Whence::Current)).await? as i64,
        2 => status(descriptor).await?.size as i64,
        _ => return Err(Errno::EINVAL.into()),
    };
    personality::path::lock_range(base, wish.start, wish.length).map_err(Failure::from)
}

/// fcntl for F_GETLK, F_SETLK, F_SETLKW and their forms for descriptions.
pub async fn control(descriptor: u64, command: u64, at: u64) -> Outcome {
    let found = file(descriptor, Errno::EINVAL)?;
    let wish: FileLock = user::read(at)?;
    let of_description = matches!(command, F_OFD_GETLK | F_OFD_SETLK | F_OFD_SETLKW);
    if of_description && wish.process != 0 {
        return Err(Errno::EINVAL.into());
    }
    let hold = match wish.hold {
        F_RDLCK => Some(Hold::Shared),
        F_WRLCK => Some(Hold::Exclusive),
        F_UNLCK => None,
        _ => return Err(Errno::EINVAL.into()),
    };
    let (from, to) = range(&found, descriptor, &wish).await?;
    let kind = if of_description { LockKind::Description } else { LockKind::Client };
    let lock = Lock { kind, hold, from, to, process: with_state(|state| state.process) };
    if matches!(command, F_GETLK | F_OFD_GETLK) {
        return tell(&found, lock, wish, at).await;
    }
    if !of_description {
        OWNS.store(true, Ordering::Relaxed);
    }
    answer(after_closes(&found).await?.lock(found.id, lock, matches!(command, F_SETLKW | F_OFD_SETLKW))).await?;
    Ok(0)
}

/// What stands in the way of a lock, as if it were to be written.
async fn tell(found: &Description, lock: Lock, wish: FileLock, at: u64) -> Outcome {
    if lock.hold.is_none() {
        return Err(Errno::EINVAL.into());
    }
    let told = match answer(after_closes(found).await?.blocking_lock(found.id, lock)).await? {
        None => FileLock { hold: F_UNLCK, ..wish },
        Some(other) => FileLock {
            hold: if other.hold == Some(Hold::Exclusive) { F_WRLCK } else { F_RDLCK },
            whence: 0,
            start: other.from as i64,
            length: if other.to == u64::MAX { 0 } else { (other.to - other.from) as i64 },
            process: if other.kind == LockKind::Client { other.process as i32 } else { -1 },
            ..wish
        },
    };
    user::write(at, &told)?;
    Ok(0)
}

/// flock.
pub async fn whole(descriptor: u64, operation: u64) -> Outcome {
    let found = file(descriptor, Errno::EINVAL)?;
    if operation & LOCK_MAND != 0 {
        // Linux accepts what is mandatory, and does nothing any more.
        return Ok(0);
    }
    let hold = match operation & !LOCK_NB {
        LOCK_SH => Some(Hold::Shared),
        LOCK_EX => Some(Hold::Exclusive),
        LOCK_UN => None,
        _ => return Err(Errno::EINVAL.into()),
    };
    let process = with_state(|state| state.process);
    let lock = Lock { kind: LockKind::Whole, hold, from: 0, to: u64::MAX, process };
    answer(after_closes(&found).await?.lock(found.id, lock, operation & LOCK_NB == 0)).await?;
    Ok(0)
}

/// A descriptor of a file was closed while others of the same description stay: the process's own
/// locks on it go all the same (at the last one, the server sees to it).
pub fn closed_one_of_several(found: &Description) {
    if !found.is_file() || !OWNS.load(Ordering::Relaxed) {
        return;
    }
    if let Ok(files) = proxy().files_at(found.server) {
        let lock = Lock { kind: LockKind::Client, hold: None, from: 0, to: u64::MAX, process: 0 };
        let call = files.lock(found.id, lock, false);
        runtime::spawn(async move {
            let _ = call.await;
        });
    }
}
