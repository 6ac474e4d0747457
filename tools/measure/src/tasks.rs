//! Making and ending threads and processes.

use crate::problem::{During, Problem, Result, last};
use crate::rows::Setting;
use crate::sample::{Sample, repeat};
use crate::system;

const THREADS: u64 = 50;
const FORKS: u64 = 10;
/// What this program does when it is started only to be started.
pub const NOTHING: &str = "nothing";

/// Creates a thread and joins it.
pub fn thread(_: &Setting) -> Result<Vec<Sample>> {
    system::pin(0);
    repeat(THREADS, || {
        let thread = std::thread::Builder::new().spawn(|| {}).during("thread (clone)")?;
        thread.join().map_err(|_| Problem::Failed("a thread panicked".into()))
    })
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
