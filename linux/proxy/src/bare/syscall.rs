//! From a Linux call's number and registers to the function that answers it, and back.
//!
//! The match over [`Call`] has no wildcard: what the table in `personality::calls` says is
//! answered, is answered here.

use alloc::boxed::Box;
use alloc::format;
use core::cell::Cell;
use core::pin::pin;

use contracts::process::{Ended, ProcessId};
use personality::Errno;
use personality::calls::{Call, absent_name};
use personality::flags::*;
use personality::layouts::EntryForm;
use personality::refusals::Refusals;

use super::errors::{Failure, Outcome};
use super::input_output as io;
use super::user::{self, with_signals, with_state};
use super::{
    entry, exec, files, fork, futex, identity, local, locks, mapping, messages, numbers, poll, process,
    process_handles, scheduling, shared_files, signals, sockets, threads, time, timers, transfer,
};

/// How to go back to the program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Return {
    /// As from an ordinary call: RCX and R11 need not be kept.
    Quick,
    /// With exactly the registers of the control page.
    Exact,
}

const HERE: u64 = AT_FDCWD as u64;
const NO_FOLLOW: u64 = AT_SYMLINK_NOFOLLOW;
/// The first program, with whose end the machine ends.
const FIRST: ProcessId = 1;
/// Bytes of the SYSCALL instruction, to go back over when a call starts again.
const SYSCALL_BYTES: u64 = 2;

/// Answers the call that the registers describe and leaves in the control page what the program
/// goes on with, be it another thread.
pub fn serve() -> Return {
    let (number, arguments) = entry::call();
    let Some(call) = Call::decode(number) else {
        log_absent(number);
        entry::give(Errno::ENOSYS.to_result());
        finish();
        return Return::Quick;
    };
    let outcome = match at_once(call, &arguments) {
        Some(outcome) => outcome,
        None if threads::is_alone() => runtime::block_on(threads::alone(pin!(answer(call, arguments)))),
        None if call == Call::Exit => return threads::end(),
        None => match threads::answer(call, Box::pin(answer(call, arguments))) {
            Ok(outcome) => outcome,
            Err(leave) => return leave,
        },
    };
    let leave = settle(call, outcome);
    if call == Call::SchedYield
        && let Some(leave) = threads::make_room(false)
    {
        return leave;
    }
    finish();
    leave
}

/// Puts what came of a call where the program finds it.
pub fn settle(call: Call, outcome: Outcome) -> Return {
    match (call, outcome) {
        // These two have set the registers themselves.
        (Call::RtSigreturn | Call::Execve, Ok(_)) => return Return::Exact,
        (_, Ok(value)) => entry::give(value),
        (_, Err(Failure::Errno(errno))) => entry::give(errno.to_result()),
        (_, Err(Failure::Interrupted)) => interrupted(),
    }
    Return::Quick
}

/// Nothing may stay behind while the program runs: signals go to it, servers are told to ring.
/// After a call that asked nobody, and with nothing come in, that is so already.
fn finish() {
    let rung = entry::take_rung();
    if rung || !runtime::is_at_rest() {
        runtime::rest(rung);
    }
    signals::deliver();
}

/// A signal came first: the call starts again after the handler, or ends with EINTR.
fn interrupted() {
    if with_signals(|signals, thread| signals.restarts_calls(thread)) {
        entry::go_back(SYSCALL_BYTES);
    } else {
        entry::give(Errno::EINTR.to_result());
    }
}

struct Told(Cell<Refusals>);
// SAFETY: one context runs proxy code.
unsafe impl Sync for Told {}
static TOLD: Told = Told(Cell::new(Refusals::new()));

fn with_refusals<T>(work: impl FnOnce(&mut Refusals) -> T) -> T {
    let mut refusals = TOLD.0.get();
    let result = work(&mut refusals);
    TOLD.0.set(refusals);
    result
}

/// Logs what is missing of a call, the first time.
pub fn log_once(number: u64, text: &str) {
    if with_refusals(|refusals| refusals.is_first(number)) {
        let program = with_state(|state| state.program);
        runtime::log!("{}: Linux call {number} {text}", program.as_str());
    }
}

/// Logs that a call was refused, the first time; the last one is named when the program ends badly.
pub fn log_refused(number: u64, text: &str) {
    with_refusals(|refusals| refusals.refuse(number));
    log_once(number, text);
}

/// Another program runs now.
pub fn begin_program() {
    with_refusals(Refusals::begin);
}

/// The process is about to end. Of the first program the log says so, if it ends badly and was
/// refused something.
pub fn log_end(how: Ended) {
    // Before a program runs there is no state either.
    if with_refusals(|refusals| refusals.is_empty()) {
        return;
    }
    let (process, program) = with_state(|state| (state.process, state.program));
    if process == FIRST
        && let Some(line) = with_refusals(|refusals| refusals.at_end(program.as_str(), how))
    {
        runtime::log!("{line}");
    }
}

fn log_absent(number: u64) {
    // The C library asks for it at each start and does without.
    const RSEQ: u64 = 334;
    if number != RSEQ {
        log_refused(number, &format!("{} is missing: ENOSYS", absent_name(number).unwrap_or("(unknown)")));
    }
}

/// Calls the proxy answers from its own state, without a turn of the executor.
fn at_once(call: Call, arguments: &[u64; 6]) -> Option<Outcome> {
    let [a, b, c, d, e, _] = *arguments;
    Some(match call {
        Call::Getpid => process::id(),
        Call::Gettid => threads::id(),
        Call::Getppid => return process::parent(),
        Call::Getuid => identity::id(true, |ids| ids.real),
        Call::Geteuid => identity::id(true, |ids| ids.effective),
        Call::Getgid => identity::id(false, |ids| ids.real),
        Call::Getegid => identity::id(false, |ids| ids.effective),
        Call::Getresuid => identity::tell(true, [a, b, c]),
        Call::Getresgid => identity::tell(false, [a, b, c]),
        Call::Getgroups => identity::groups(a, b),
        Call::SetTidAddress => futex::set_id_address(a),
        Call::SetRobustList => futex::set_robust_list(a, b),
        Call::GetRobustList => futex::robust_list(a, b, c),
        Call::Fadvise64
        | Call::Sync
        | Call::Capset
        | Call::Mlock
        | Call::Mlock2
        | Call::Munlock
        | Call::Mlockall
        | Call::Munlockall => Ok(0),
        Call::Syncfs | Call::SyncFileRange | Call::Readahead => numbers::exists(a),
        Call::Msync => return shared_files::change_unshared(a, b, || mapping::msync(a, b, c)),
        Call::Mincore => mapping::mincore(a, b, c),
        Call::Signalfd => signals::open(a, b, c, 0),
        Call::Signalfd4 => signals::open(a, b, c, d),
        Call::TimerCreate => timers::create(a, b, c),
        Call::TimerGetoverrun => timers::overrun(a),
        Call::Capget => identity::capabilities(a, b),
        Call::Clone => return fork::thread_by_clone([a, b, c, d, e]),
        Call::Clone3 => return fork::thread_by_clone3(a, b),
        Call::Futex => return futex::at_once(*arguments),
        Call::Getpriority => scheduling::priority(a),
        Call::Setpriority => scheduling::set_priority(a),
        Call::SchedSetparam => scheduling::set_policy(a, None, b),
        Call::SchedGetparam => scheduling::parameters(a, b),
        Call::SchedSetscheduler => scheduling::set_policy(a, Some(b), c),
        Call::SchedGetscheduler => scheduling::policy(a),
        Call::SchedGetPriorityMax => scheduling::priority_bound(a, 99),
        Call::SchedGetPriorityMin => scheduling::priority_bound(a, 1),
        Call::SchedRrGetInterval => scheduling::interval(a, b),
        Call::SchedGetaffinity => scheduling::affinity(a, b, c),
        Call::SchedSetaffinity => scheduling::set_affinity(a, b, c),
        Call::SchedYield => return time::yield_to_threads(),
        Call::Getcpu => scheduling::core(a, b),
        Call::Membarrier => scheduling::barrier(a, b),
        Call::Umask => files::set_mask(a),
        Call::Brk => mapping::brk(a),
        Call::Munmap => return shared_files::change_unshared(a, b, || mapping::munmap(a, b)),
        Call::Mprotect => return mapping::mprotect_at_once(a, b, c),
        Call::Madvise => mapping::madvise(a, b, c),
        Call::Mremap => return shared_files::change_unshared(a, b, || mapping::mremap(a, b, c, d)),
        Call::RtSigaction => signals::action(a, b, c, d),
        Call::RtSigprocmask => signals::change_mask(a, b, c, d),
        Call::RtSigreturn => signals::sigreturn(),
        Call::RtSigpending => signals::pending(a),
        Call::Sigaltstack => signals::alternate_stack(a, b),
        Call::ClockGettime => return time::clock(a, b),
        Call::ClockSettime => time::set(b),
        Call::Settimeofday => time::set(a),
        Call::ClockGetres => time::resolution(a, b),
        Call::Gettimeofday => time::time_of_day(a, b),
        Call::Time => time::seconds(a),
        Call::Getcwd => files::current(a, b),
        Call::Dup => numbers::duplicate(a),
        Call::Close => numbers::close(a),
        Call::CloseRange => numbers::close_range(a, b, c),
        Call::Dup2 => numbers::duplicate_to(a, b, 0, false),
        Call::Dup3 => numbers::duplicate_to(a, b, c, true),
        Call::Fcntl => return numbers::control(a, b, c),
        Call::ArchPrctl => threads::base(a, b),
        Call::Prctl => process::prctl(a, b),
        Call::Getrlimit => process::limit(a, b),
        Call::Setrlimit => process::set_limit(a, b),
        Call::Prlimit64 => return process::limit_of(a, b, c, d),
        Call::Getrandom => process::random(a, b),
        Call::EpollCreate => poll::create(0),
        Call::EpollCreate1 => poll::create(a),
        Call::EpollCtl => poll::change(a, b, c, d),
        _ => return None,
    })
}

/// Calls that need a server or time.
async fn answer(call: Call, arguments: [u64; 6]) -> Outcome {
    let [a, b, c, d, e, _] = arguments;
    match call {
        Call::Read => io::read(a, b, c, None, None).await,
        Call::Write => io::with_sigpipe(io::write(a, b, c, None, None).await),
        Call::Pread64 => io::read(a, b, c, Some(d), None).await,
        Call::Pwrite64 => io::write(a, b, c, Some(d), None).await,
        Call::Readv => io::read_vectors(a, b, c, None, None).await,
        Call::Writev => io::with_sigpipe(io::write_vectors(a, b, c, None, None).await),
        Call::Preadv => io::read_vectors(a, b, c, Some(d), None).await,
        Call::Pwritev => io::write_vectors(a, b, c, Some(d), None).await,
        Call::Sendfile => io::with_sigpipe(transfer::send_file(a, b, c, d).await),
        Call::Lseek => io::seek(a, b, c).await,
        Call::Ioctl => numbers::device_control(a, b, c).await,
        Call::Pipe => numbers::pipe(a, 0).await,
        Call::Pipe2 => numbers::pipe(a, b).await,
        Call::Eventfd => local::event(a, 0).await,
        Call::Eventfd2 => local::event(a, b).await,
        Call::Getdents64 => io::entries(a, b, c, EntryForm::New).await,
        Call::Getdents => io::entries(a, b, c, EntryForm::Old).await,
        Call::Ftruncate => io::resize(a, b, false).await,
        Call::Fallocate => io::allocate(a, b, c, d).await,
        Call::Fcntl => numbers::control_at_server(a, b, c).await,
        Call::Flock => locks::whole(a, b).await,
        Call::Getxattr | Call::Setxattr | Call::Removexattr => files::no_attribute(a, true).await,
        Call::Lgetxattr | Call::Lsetxattr | Call::Lremovexattr => files::no_attribute(a, false).await,
        Call::Fgetxattr | Call::Fsetxattr | Call::Fremovexattr => files::no_attribute_of(a),
        Call::Listxattr => files::attributes(a, true).await,
        Call::Llistxattr => files::attributes(a, false).await,
        Call::Flistxattr => numbers::exists(a),
        Call::Statfs => files::file_system(a, b).await,
        Call::Fstatfs => files::file_system_of(a, b).await,
        Call::Fsync | Call::Fdatasync => io::synchronize(a).await,
        Call::Open => files::open(HERE, a, b, c).await,
        Call::Openat => files::open(a, b, c, d).await,
        Call::Creat => files::open(HERE, a, u64::from(O_CREAT | O_WRONLY | O_TRUNC), b).await,
        Call::Stat => files::stat(HERE, a, b, 0).await,
        Call::Lstat => files::stat(HERE, a, b, NO_FOLLOW).await,
        Call::Fstat => files::stat_descriptor(a, b).await,
        Call::Newfstatat => files::stat(a, b, c, d).await,
        Call::Statx => files::statx(a, b, c, e).await,
        Call::Access => files::access(HERE, a, b, 0).await,
        Call::Faccessat => files::access(a, b, c, 0).await,
        Call::Faccessat2 => files::access(a, b, c, d).await,
        Call::Truncate => files::truncate(a, b).await,
        Call::Chdir => files::change_directory(a).await,
        Call::Fchdir => files::change_directory_to(a).await,
        Call::Rename => files::rename(HERE, a, HERE, b, 0).await,
        Call::Renameat => files::rename(a, b, c, d, 0).await,
        Call::Renameat2 => files::rename(a, b, c, d, e).await,
        Call::Mkdir => files::make_directory(HERE, a, b).await,
        Call::Mkdirat => files::make_directory(a, b, c).await,
        Call::Rmdir => files::remove(HERE, a, true).await,
        Call::Unlink => files::remove(HERE, a, false).await,
        Call::Unlinkat => files::remove(a, b, c & AT_REMOVEDIR != 0).await,
        Call::Link => files::link(HERE, a, HERE, b, 0).await,
        Call::Linkat => files::link(a, b, c, d, e).await,
        Call::Symlink => files::make_link(a, HERE, b).await,
        Call::Symlinkat => files::make_link(a, b, c).await,
        Call::Readlink => files::read_link(HERE, a, b, c).await,
        Call::Readlinkat => files::read_link(a, b, c, d).await,
        Call::Chmod => files::change(HERE, a, true, files::permissions(b)).await,
        Call::Fchmodat => files::change(a, b, true, files::permissions(c)).await,
        Call::Fchmod => files::change_descriptor(a, files::permissions(b)).await,
        Call::Chown => files::change(HERE, a, true, files::owner(b, c)).await,
        Call::Lchown => files::change(HERE, a, false, files::owner(b, c)).await,
        Call::Fchownat => files::change(a, b, e & NO_FOLLOW == 0, files::owner(c, d)).await,
        Call::Fchown => files::change_descriptor(a, files::owner(b, c)).await,
        Call::Utimensat => files::set_times(a, b, c, d).await,
        Call::Utimes => files::set_times_us(HERE, a, b).await,
        Call::Futimesat => files::set_times_us(a, b, c).await,
        Call::Utime => files::set_times_s(a, b).await,
        Call::Openat2 => files::open_how(a, b, c, d).await,
        Call::CopyFileRange => transfer::copy_range(arguments).await,
        Call::Splice => io::with_sigpipe(transfer::splice(arguments).await),
        Call::Tee => io::with_sigpipe(transfer::tee(a, b, c, d).await),
        Call::Mmap => mapping::mmap(arguments).await,
        Call::Munmap => Box::pin(shared_files::change(a, b, || mapping::munmap(a, b))).await,
        Call::Mremap => Box::pin(shared_files::change(a, b, || mapping::mremap(a, b, c, d))).await,
        Call::Mprotect => Box::pin(shared_files::change(a, b, || mapping::mprotect(a, b, c))).await,
        Call::Msync => Box::pin(shared_files::synchronize(a, b, c)).await,
        Call::RtSigsuspend => signals::suspend(Some(user::read(a)?)).await,
        Call::Pause => signals::suspend(None).await,
        Call::Kill => process::kill(a, b).await,
        Call::Tkill => process::kill_thread(None, a, b).await,
        Call::Tgkill => process::kill_thread(Some(a), b, c).await,
        Call::RtSigqueueinfo => signals::queue(a, None, b, c).await,
        Call::RtTgsigqueueinfo => signals::queue(a, Some(b), c, d).await,
        Call::PidfdOpen => process_handles::open(a, b).await,
        Call::PidfdSendSignal => process_handles::signal(a, b, c, d).await,
        Call::RtSigtimedwait => signals::wait_for(a, b, c, d).await,
        Call::Poll => poll::poll(a, b, c).await,
        Call::Ppoll => poll::poll_masked(a, b, c, d, e).await,
        Call::Select => poll::select([a, b, c, d, e]).await,
        Call::Pselect6 => poll::select_masked(arguments).await,
        Call::EpollWait => poll::wait_set(arguments, false).await,
        Call::EpollPwait => poll::wait_set(arguments, true).await,
        Call::Nanosleep => time::sleep(1, 0, a, b).await,
        Call::ClockNanosleep => time::sleep(a, b, c, d).await,
        Call::ClockGettime => time::used(b).await,
        Call::Alarm => timers::alarm(a).await,
        Call::Setitimer => timers::set_interval(a, b, c).await,
        Call::Getitimer => timers::interval(a, b).await,
        Call::TimerSettime => timers::set(a, b, c, d).await,
        Call::TimerGettime => timers::state(a, b).await,
        Call::TimerDelete => timers::delete(a).await,
        Call::TimerfdCreate => timers::open(a, b).await,
        Call::TimerfdSettime => timers::set_opened(a, b, c, d).await,
        Call::TimerfdGettime => timers::opened_state(a, b).await,
        Call::Times => time::times(a).await,
        Call::Getrusage => time::resources(a, b).await,
        Call::Uname => process::names(a).await,
        Call::Sethostname => process::name_host(false, a, b).await,
        Call::Setdomainname => process::name_host(true, a, b).await,
        Call::Futex => futex::wait(arguments).await,
        Call::Sysinfo => time::system(a).await,
        Call::SchedYield => time::yield_now().await,
        Call::Socket => sockets::socket(a, b, c).await,
        Call::Socketpair => sockets::pair(a, b, c, d).await,
        Call::Connect => sockets::connect(a, b, c).await,
        Call::Accept => sockets::accept(a, b, c, 0).await,
        Call::Accept4 => sockets::accept(a, b, c, d).await,
        Call::Sendto => sockets::send(arguments).await,
        Call::Recvfrom => sockets::receive(arguments).await,
        Call::Sendmsg => sockets::send_message(a, b, c).await,
        Call::Sendmmsg => messages::send_many(a, b, c, d).await,
        Call::Recvmmsg => messages::receive_many([a, b, c, d, e]).await,
        Call::Recvmsg => sockets::receive_message(a, b, c).await,
        Call::Shutdown => sockets::shutdown(a, b).await,
        Call::Bind => sockets::bind(a, b, c).await,
        Call::Listen => sockets::listen(a, b).await,
        Call::Getsockname => sockets::name(a, b, c, false).await,
        Call::Getpeername => sockets::name(a, b, c, true).await,
        Call::Setsockopt => sockets::set_option(a, b, c, d, e).await,
        Call::Getsockopt => sockets::option(a, b, c, d, e).await,
        Call::Clone => fork::clone([a, b, c, d, e]).await,
        Call::Clone3 => fork::clone_by(a, b).await,
        Call::Fork => fork::fork(false).await,
        Call::Vfork => fork::fork(true).await,
        // Boxed, since it is by far the longest of these futures.
        Call::Execve => Box::pin(exec::execve(a, b, c)).await,
        Call::Exit | Call::ExitGroup => process::exit(a).await,
        Call::Wait4 => process::wait4(a, b, c, d).await,
        Call::Waitid => process::waitid(a, b, c, d, e).await,
        Call::Setpgid => process::set_group(a, b).await,
        Call::Getpgid => process::group(a).await,
        Call::Getpgrp => process::group(0).await,
        Call::Getsid => process::session(a).await,
        Call::Setuid => identity::set(true, a).await,
        Call::Setgid => identity::set(false, a).await,
        Call::Setreuid => identity::set_two(true, [a, b]).await,
        Call::Setregid => identity::set_two(false, [a, b]).await,
        Call::Setresuid => identity::set_all(true, [a, b, c]).await,
        Call::Setresgid => identity::set_all(false, [a, b, c]).await,
        Call::Setgroups => identity::set_groups(a, b).await,
        Call::Prlimit64 => process::limit_of_another(a, b).await,
        Call::Setsid => process::new_session().await,
        Call::Getppid => process::ask_parent().await,
        Call::Getpid
        | Call::Gettid
        | Call::Getuid
        | Call::Getgid
        | Call::Geteuid
        | Call::Getegid
        | Call::Getgroups
        | Call::SetTidAddress
        | Call::SetRobustList
        | Call::GetRobustList
        | Call::Setrlimit
        | Call::Fadvise64
        | Call::Umask
        | Call::Brk
        | Call::Madvise
        | Call::RtSigaction
        | Call::RtSigprocmask
        | Call::RtSigreturn
        | Call::RtSigpending
        | Call::Sigaltstack
        | Call::ClockSettime
        | Call::Settimeofday
        | Call::ClockGetres
        | Call::Gettimeofday
        | Call::Time
        | Call::Getcwd
        | Call::Close
        | Call::CloseRange
        | Call::Dup
        | Call::Dup2
        | Call::Dup3
        | Call::ArchPrctl
        | Call::Prctl
        | Call::Getrlimit
        | Call::SchedGetaffinity
        | Call::Getrandom
        | Call::EpollCreate
        | Call::EpollCreate1
        | Call::EpollCtl
        | Call::Getresuid
        | Call::Getresgid
        | Call::Sync
        | Call::Syncfs
        | Call::SyncFileRange
        | Call::Readahead
        | Call::Mincore
        | Call::Signalfd
        | Call::Signalfd4
        | Call::TimerCreate
        | Call::TimerGetoverrun
        | Call::Capget
        | Call::Capset
        | Call::Mlock
        | Call::Mlock2
        | Call::Munlock
        | Call::Mlockall
        | Call::Munlockall
        | Call::Getpriority
        | Call::Setpriority
        | Call::SchedSetparam
        | Call::SchedGetparam
        | Call::SchedSetscheduler
        | Call::SchedGetscheduler
        | Call::SchedGetPriorityMax
        | Call::SchedGetPriorityMin
        | Call::SchedRrGetInterval
        | Call::SchedSetaffinity
        | Call::Getcpu
        | Call::Membarrier => at_once(call, &arguments).unwrap_or(Err(Errno::ENOSYS.into())),
    }
}
