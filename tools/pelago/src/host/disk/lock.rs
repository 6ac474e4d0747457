//! Who has a disk's file: one who writes, or several who read. We have it by flock(2), the emulator
//! by locks of single bytes (fcntl(2), open file description locks), which do not see each other,
//! so we look at its locks, too.

use anyhow::{Context, Result, bail, ensure};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use std::fs::{File, TryLockError};

/// The emulator locks a byte for each right that it uses, and one for each that it does not let
/// others have (QEMU's block/file-posix.c, RAW_LOCK_PERM_BASE and RAW_LOCK_SHARED_BASE).
const USED: i64 = 100;
const DENIED: i64 = 200;
/// Of each: all of them, and which the right to write is.
const RIGHTS: i64 = 100;
const WRITE: i64 = 1;

/// Takes the file, until it is closed, for writing or, with others, for reading.
pub fn take(file: &File, is_read_only: bool) -> Result<()> {
    match if is_read_only { file.try_lock_shared() } else { file.try_lock() } {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => bail!(
            "it is in use by another ./pelago run; end that, or name another file{}",
            if is_read_only { "" } else { "; several may read it, with ,ro each" }
        ),
        Err(TryLockError::Error(error)) => {
            return Err(error).context("it cannot be locked; put it on a disk of this machine");
        }
    }
    // A reader minds who writes; a writer minds everybody.
    let stretch = if is_read_only { (USED + WRITE, 1) } else { (USED, DENIED - USED + RIGHTS) };
    ensure!(is_free(file, stretch)?, "it is in use by another emulator; end that, or copy the file");
    Ok(())
}

/// Whether nobody has a lock on these bytes: from where on, and how many.
fn is_free(file: &File, (start, bytes): (i64, i64)) -> Result<bool> {
    let mut lock = lock_of(libc::F_WRLCK, start, bytes);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock)).context("cannot see who has locked it")?;
    Ok(i32::from(lock.l_type) == libc::F_UNLCK)
}

fn lock_of(kind: i32, start: i64, bytes: i64) -> libc::flock {
    libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: start, l_len: bytes, l_pid: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writes_or_several_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(file.path()).unwrap();
        let (one, other) = (open(), open());
        take(&one, false).unwrap();
        for is_read_only in [false, true] {
            assert!(take(&other, is_read_only).unwrap_err().to_string().contains("another ./pelago run"));
        }
        drop(one);
        take(&other, true).unwrap();
        take(&open(), true).unwrap();
        assert!(take(&open(), false).unwrap_err().to_string().contains(",ro"));
    }

    #[test]
    fn the_emulators_locks_count() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(file.path()).unwrap();
        let of_emulator = |byte| {
            let emulator = open();
            fcntl(&emulator, FcntlArg::F_OFD_SETLK(&lock_of(libc::F_RDLCK, byte, 1))).unwrap();
            let taken = [false, true].map(|is_read_only| take(&open(), is_read_only).is_ok());
            drop(emulator);
            taken
        };
        // It writes; it reads; it lets nobody write.
        assert_eq!(of_emulator(USED + WRITE), [false, false]);
        assert_eq!(of_emulator(USED), [false, true]);
        assert_eq!(of_emulator(DENIED + WRITE), [false, true]);
        assert_eq!(of_emulator(DENIED + RIGHTS), [true, true]);
    }
}
