//! Making and ending threads and processes.

use crate::problem::{Problem, Result, last};
use crate::rows::Setting;
use crate::sample::{Sample, repeat};
use crate::system;

const THREADS: u64 = 50;
const FORKS: u64 = 10;
/// What this program does when it is started only to be started.
pub const NOTHING: &str = "nothing";

/// Creates a thread of the C library and joins it: the language's own would add its stack guard and
/// signal stack.
pub fn thread(_: &Setting) -> Result<Vec<Sample>> {
    system::pin(0);
    repeat(THREADS, || {
        let (mut thread, mut result) = (0, std::ptr::null_mut());
        // SAFETY: the function ends at once and touches nothing; the thread is joined before its
        // number goes.
        unsafe {
            match libc::pthread_create(&raw mut thread, std::ptr::null(), end_at_once, std::ptr::null_mut()) {
                0 => libc::pthread_join(thread, &raw mut result),
                error => return Err(Problem::of("thread (clone)", &std::io::Error::from_raw_os_error(error))),
            }
        };
        Ok(())
    })
}

extern "C" fn end_at_once(_: *mut libc::c_void) -> *mut libc::c_void {
    std::ptr::null_mut()
}

/// Forks a child that ends at once, and waits for it.
pub fn fork_exit(_: &Setting) -> Result<Vec<Sample>> {
    system::pin(0);
    repeat(FORKS, || system::fork(|| Ok(()))?.succeed())
}

/// Forks a child that executes this program, which ends at once, and waits for it.
pub fn fork_exec(setting: &Setting) -> Result<Vec<Sample>> {
    system::pin(0);
    let path = std::ffi::CString::new(setting.program.as_str())
        .map_err(|_| Problem::Failed("the program's path holds a zero byte".into()))?;
    repeat(FORKS, || {
        let child = system::fork(|| {
            let words = [path.as_ptr(), c"nothing".as_ptr(), std::ptr::null()];
            let environment = [std::ptr::null()];
            // SAFETY: both lists end with null, all strings with zero.
            unsafe { libc::execve(path.as_ptr(), words.as_ptr(), environment.as_ptr()) };
            Err(last("execve"))
        })?;
        child.succeed()
    })
}
