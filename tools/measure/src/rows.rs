//! The list of rows, and how one is run: in a child of its own, so that what it breaks or leaves
//! behind is no other row's.

use crate::problem::{Problem, Result};
use crate::sample::{self, Sample};
use crate::{arrays, calls, descriptors, disk, memory, network, round_trips, system, tasks, waiting, words};

/// Seconds that a row may take.
pub const LIMIT_S: u32 = 120;
/// The same of one that waits for a disk. Where instructions are counted they are the guest's time,
/// and while all wait that leaps to the next timer, however long the disk takes.
pub const DISK_LIMIT_S: u32 = 24 * 60 * 60;

/// What a row may depend on.
pub struct Setting {
    /// How many workers, at most one per core.
    pub workers: usize,
    /// The path of this program.
    pub program: String,
}

/// A measurement.
pub struct Row {
    /// As the host names it.
    pub name: &'static str,
    /// Cores that it needs.
    pub cores: usize,
    limit_s: u32,
    measure: fn(&Setting) -> Result<Vec<Sample>>,
}

const fn row(name: &'static str, cores: usize, measure: fn(&Setting) -> Result<Vec<Sample>>) -> Row {
    Row { name, cores, limit_s: LIMIT_S, measure }
}

const fn disk(name: &'static str, measure: fn(&Setting) -> Result<Vec<Sample>>) -> Row {
    Row { limit_s: DISK_LIMIT_S, ..row(name, 1, measure) }
}

/// Every row, in the order in which all are run.
pub const ROWS: [Row; 47] = [
    row("known-loop", 1, calls::known),
    row("getpid", 1, calls::getpid),
    row("getppid", 1, calls::getppid),
    row("dup-close/threads", 1, descriptors::threads),
    row("dup-close/processes", 1, descriptors::processes),
    row("pipe-round-trip", 1, round_trips::pipe),
    row("pipe-round-trip/two-cores", 2, round_trips::pipe_two_cores),
    row("unix-socket-round-trip", 1, round_trips::unix_socket),
    row("futex-round-trip/processes", 1, round_trips::futex_processes),
    row("futex-round-trip/threads", 1, round_trips::futex_threads),
    row("eventfd-round-trip/threads", 1, waiting::event_threads),
    row("epoll-wait/level/10-idle", 1, waiting::level_few),
    row("epoll-wait/level/1000-idle", 1, waiting::level_many),
    row("epoll-wait/edge/10-idle", 1, waiting::edge_few),
    row("epoll-wait/edge/1000-idle", 1, waiting::edge_many),
    row("thread-create-join", 1, tasks::thread),
    row("fork-exit", 1, tasks::fork_exit),
    row("fork-exec", 1, tasks::fork_exec),
    row("page-touch/threads", 1, memory::touch_threads),
    row("page-touch/processes", 1, memory::touch_processes),
    row("memclone/threads", 1, arrays::clone_threads),
    row("memclone/processes", 1, arrays::clone_processes),
    row("mempass/threads", 1, arrays::pass_threads),
    row("mempass/processes", 1, arrays::pass_processes),
    row("mprotect-cycle", 1, memory::protect),
    row("udp-loopback", 1, network::udp),
    row("tcp-request", 1, network::tcp_request),
    row("tcp-stream", 1, network::tcp_stream),
    row("tcp-connections", 1, network::tcp_connections),
    row("word-index", 1, words::index),
    disk("disk-read/cached/4k", disk::read_cached),
    disk("disk-read/cached-16m/4k", disk::read_cached_large),
    disk("disk-read/sequential/4k", disk::read_sequential),
    disk("disk-read/sequential/1m", disk::read_sequential_large),
    disk("disk-read/random/4k", disk::read_random),
    disk("disk-read/random/64k", disk::read_random_large),
    disk("disk-read/random/4k/32", disk::read_random_deep),
    disk("disk-write/sequential/4k", disk::write_sequential),
    disk("disk-write/sequential/1m", disk::write_sequential_large),
    disk("disk-write/random/4k", disk::write_random),
    disk("disk-sync/4k", disk::sync),
    disk("disk-sync/4k/32", disk::sync_deep),
    disk("disk-create-unlink", disk::create_unlink),
    disk("disk-sqlite-insert", disk::sqlite_insert),
    disk("disk-sqlite-transaction", disk::sqlite_transaction),
    row("disk-cipher/4k", 1, disk::cipher),
    row("nothing", 1, nothing),
];

/// The stopwatch alone: what every sample holds beside its operations.
fn nothing(_: &Setting) -> Result<Vec<Sample>> {
    crate::sample::repeat(1, || Ok(()))
}

/// Runs one and prints what it gives.
pub fn run(row: &Row, setting: &Setting) {
    tell_about(row.name, || {
        if row.cores > setting.workers {
            return Err(Problem::Absent(format!("{} cores; the machine has {}", row.cores, setting.workers)));
        }
        in_child(row.name, row.limit_s, || (row.measure)(setting))
    });
}

/// Prints the lines around a row, and why it has no figures if `measure` says so.
pub fn tell_about(name: &str, measure: impl FnOnce() -> Result<()>) {
    println!("measure: {name} begin");
    if let Err(problem) = measure() {
        tell(name, &problem);
    }
    // A guest that dies in a later row leaves the figures of this one.
    mark::finish();
    println!("measure: {name} end");
}

fn tell(name: &str, problem: &Problem) {
    match problem {
        Problem::Absent(what) => println!("measure: {name} absent: {what}"),
        Problem::Failed(what) => println!("measure: {name} failed: {what}"),
    }
}

/// Measures a row in a child, which may take so many seconds, and prints its samples. The child's
/// own group dies with it, so that no partner of it goes on.
pub fn in_child(name: &'static str, limit_s: u32, measure: impl FnOnce() -> Result<Vec<Sample>>) -> Result<()> {
    let child = system::fork(|| {
        // SAFETY: a group of its own, and a signal that ends the process; neither touches memory.
        unsafe {
            libc::setpgid(0, 0);
            libc::alarm(limit_s);
        }
        sample::set_row(name);
        match measure() {
            Ok(samples) => samples.iter().for_each(|sample| {
                let Sample { ns, operations, faults } = sample;
                println!("measure: {name} {ns} ns {operations} operations {faults} faults");
            }),
            Err(problem) => tell(name, &problem),
        }
        Ok(())
    })?;
    let status = child.wait()?;
    // SAFETY: what is left of that group is ours.
    unsafe { libc::kill(-child.0, libc::SIGKILL) };
    match status {
        0 => Ok(()),
        status if status & 0x7f == libc::SIGALRM => Err(Problem::Failed(format!("no end within {limit_s} s"))),
        status => Err(Problem::Failed(format!("its process ended with wait status {status:#x}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROWS.len());
    }
}
