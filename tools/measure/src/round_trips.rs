//! One byte, or one wake-up, to a partner and back.
//!
//! Both partners are bound to the first core, so a round trip is two switches; a row
//! `.../two-cores` puts the partner on the second.

use crate::problem::{During, Problem, Result, last};
use crate::rows::Setting;
use crate::sample::{Sample, repeat};
use crate::system::{self, Memory, PAGE_BYTES};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const ROUNDS: u64 = 200;
/// Two cores that sleep in turns wait for the host to run them: up to milliseconds a round on a
/// busy one.
const ROUNDS_TWO_CORES: u64 = 40;
/// The futex word says whose turn it is, or that it is over.
const OURS: u32 = 0;
const THEIRS: u32 = 1;
const OVER: u32 = 2;

/// Over two pipes, between processes.
pub fn pipe(_: &Setting) -> Result<Vec<Sample>> {
    let (request, send_request) = system::pipe()?;
    let (reply, send_reply) = system::pipe()?;
    let numbers = [&send_request, &reply, &request, &send_reply].map(system::number);
    between_processes(numbers, 0, ROUNDS)
}

/// Over a pair of UNIX stream sockets, between processes.
pub fn unix_socket(_: &Setting) -> Result<Vec<Sample>> {
    let (ours, theirs) = system::socket_pair()?;
    let (ours, theirs) = (system::number(&ours), system::number(&theirs));
    between_processes([ours, ours, theirs, theirs], 0, ROUNDS)
}

/// Over two pipes, the partner on the second core.
pub fn pipe_two_cores(_: &Setting) -> Result<Vec<Sample>> {
    let (request, send_request) = system::pipe()?;
    let (reply, send_reply) = system::pipe()?;
    let numbers = [&send_request, &reply, &request, &send_reply].map(system::number);
    between_processes(numbers, 1, ROUNDS_TWO_CORES)
}

/// `[we send, we receive, they receive, they send]`; the caller keeps the descriptors open.
fn between_processes(
    [send, receive, their_receive, their_send]: [RawFd; 4],
    their_core: usize,
    rounds: u64,
) -> Result<Vec<Sample>> {
    system::pin(0);
    let partner = system::fork(|| {
        system::pin(their_core);
        while system::receive_byte(their_receive)? {
            system::send_byte(their_send)?;
        }
        Ok(())
    })?;
    let samples = repeat(rounds, || {
        system::send_byte(send)?;
        if system::receive_byte(receive)? { Ok(()) } else { Err(Problem::Failed("the partner is gone".into())) }
    });
    // Both sides hold both ends, so the partner would wait for ever.
    // SAFETY: ends a child of ours.
    unsafe { libc::kill(partner.0, libc::SIGKILL) };
    partner.wait()?;
    samples
}

/// Over a futex in shared memory, between processes.
pub fn futex_processes(_: &Setting) -> Result<Vec<Sample>> {
    system::pin(0);
    let memory = Memory::new(PAGE_BYTES, true)?;
    is_shared(memory.word())?;
    let partner = system::fork(|| answer(memory.word(), 0))?;
    let samples = ask(memory.word(), 0);
    partner.succeed()?;
    samples
}

/// Over a futex, between threads.
pub fn futex_threads(_: &Setting) -> Result<Vec<Sample>> {
    system::pin(0);
    let word = Arc::new(AtomicU32::new(OURS));
    let theirs = word.clone();
    let partner = std::thread::Builder::new()
        .spawn(move || answer(&theirs, libc::FUTEX_PRIVATE_FLAG))
        .during("thread (clone)")?;
    let samples = ask(&word, libc::FUTEX_PRIVATE_FLAG);
    partner.join().map_err(|_| Problem::Failed("a thread panicked".into()))??;
    samples
}

/// A system may accept shared memory and give each process its own: then partners would wait for
/// each other for ever.
fn is_shared(word: &AtomicU32) -> Result<()> {
    system::fork(|| {
        word.store(OVER, Ordering::SeqCst);
        Ok(())
    })?
    .succeed()?;
    match word.swap(OURS, Ordering::SeqCst) {
        OVER => Ok(()),
        _ => Err(Problem::Absent("writable memory shared between processes".into())),
    }
}

fn ask(word: &AtomicU32, flag: i32) -> Result<Vec<Sample>> {
    let samples = repeat(ROUNDS, || {
        word.store(THEIRS, Ordering::SeqCst);
        futex_wake(word, flag)?;
        while word.load(Ordering::SeqCst) == THEIRS {
            futex_wait(word, THEIRS, flag)?;
        }
        Ok(())
    });
    word.store(OVER, Ordering::SeqCst);
    futex_wake(word, flag)?;
    samples
}

fn answer(word: &AtomicU32, flag: i32) -> Result<()> {
    system::pin(0);
    loop {
        match word.load(Ordering::SeqCst) {
            THEIRS => {
                word.store(OURS, Ordering::SeqCst);
                futex_wake(word, flag)?;
            }
            OVER => return Ok(()),
            other => futex_wait(word, other, flag)?,
        }
    }
}

fn futex_wake(word: &AtomicU32, flag: i32) -> Result<()> {
    // SAFETY: the word lives; waking touches no memory.
    match unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | flag, 1) } {
        0.. => Ok(()),
        _ => Err(last("futex")),
    }
}

/// Sleeps while the word is `value`; may return early.
fn futex_wait(word: &AtomicU32, value: u32, flag: i32) -> Result<()> {
    let forever = std::ptr::null::<libc::timespec>();
    // SAFETY: the word lives; no time limit is given.
    let result = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | flag, value, forever) };
    let error = std::io::Error::last_os_error().raw_os_error();
    match (result, error) {
        (0, _) | (_, Some(libc::EAGAIN | libc::EINTR)) => Ok(()),
        _ => Err(last("futex")),
    }
}
