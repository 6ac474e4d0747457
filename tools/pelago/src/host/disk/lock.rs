//! Who has a disk's file: one who writes, or several who read. We have it by flock(2), the emulator
//! by locks of single bytes (fcntl(2), open file description locks), which do not see each other,
//! so we look at its locks, too.

use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, Flock, FlockArg, fcntl};
use nix::libc;
use std::fs::File;

/// The emulator locks a byte for each right that it uses, and one for each that it does not let
/// others have (QEMU's block/file-posix.c, RAW_LOCK_PERM_BASE and RAW_LOCK_SHARED_BASE).
const USED: i64 = 100;
const DENIED: i64 = 200;
/// Of each: all of them, and which the right to write is.
const RIGHTS: i64 = 100;
const WRITE: i64 = 1;

/// Takes the file, until what it returns is dropped, for writing or, with others, for reading.
///
/// What is dropped unlocks the file and does not leave that to its closing: a child that another
/// thread has forked has it open, too, until it executes its program.
pub fn take(file: File, is_read_only: bool) -> Result<Flock<File>> {
    let how = if is_read_only { FlockArg::LockSharedNonblock } else { FlockArg::LockExclusiveNonblock };
    let file = match Flock::lock(file, how) {
        Ok(file) => file,
        Err((_, Errno::EWOULDBLOCK)) => bail!(
            "it is in use by another ./pelago run; end that, or name another file{}",
            if is_read_only { "" } else { "; several may read it, with ,ro each" }
        ),
        Err((_, error)) => return Err(error).context("it cannot be locked; put it on a disk of this machine"),
    };
    // A reader minds who writes; a writer minds everybody.
    let stretch = if is_read_only { (USED + WRITE, 1) } else { (USED, DENIED - USED + RIGHTS) };
    ensure!(is_free(&file, stretch)?, "it is in use by another emulator; end that, or copy the file");
    Ok(file)
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
        let take = |is_read_only| take(file.reopen().unwrap(), is_read_only);
        let one = take(false).unwrap();
        for is_read_only in [false, true] {
            assert!(take(is_read_only).unwrap_err().to_string().contains("another ./pelago run"));
        }
        drop(one);
        let _readers = [take(true).unwrap(), take(true).unwrap()];
        assert!(take(false).unwrap_err().to_string().contains(",ro"));
    }

    #[test]
    fn who_has_inherited_the_file_does_not_hold_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let taken = take(file.reopen().unwrap(), false).unwrap();
        let inherited = taken.try_clone().unwrap();
        drop(taken);
        take(file.reopen().unwrap(), false).unwrap();
        drop(inherited);
    }

    #[test]
    fn the_emulators_locks_count() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let of_emulator = |byte| {
            let emulator = file.reopen().unwrap();
            let change = |kind| fcntl(&emulator, FcntlArg::F_OFD_SETLK(&lock_of(kind, byte, 1))).unwrap();
            change(libc::F_RDLCK);
            let taken = [false, true].map(|is_read_only| take(file.reopen().unwrap(), is_read_only).is_ok());
            change(libc::F_UNLCK);
            taken
        };
        // It writes; it reads; it lets nobody write.
        assert_eq!(of_emulator(USED + WRITE), [false, false]);
        assert_eq!(of_emulator(USED), [false, true]);
        assert_eq!(of_emulator(DENIED + WRITE), [false, true]);
        assert_eq!(of_emulator(DENIED + RIGHTS), [true, true]);
    }
}
