//! From a Linux call's number and registers to the function that answers it, and back.
//!
//! The matches over [`Call`] are expanded from the table in `personality::table`: what it says is
//! answered, is answered here, as it says.

use alloc::boxed::Box;
use alloc::format;
use core::cell::Cell;
use core::pin::pin;

use contracts::process::{Ended, ProcessId};
use personality::Errno;
use personality::calls::{Call, Effect, name};
use personality::flags::*;
use personality::layouts::EntryForm;
use personality::refusals::Refusals;

use super::attributes::Of;
use super::errors::{Failure, Outcome};
use super::global::Global;
use super::input_output as io;
use super::threads::Line;
use super::user::{self, with_signals, with_state};
use super::{
    attributes, counters, entry, exec, fast_io, fd, files, fork, futex, identity, locks, mapping, messages, paging,
    poll, process, process_handles, scheduling, shared_files, signals, sockets, system_v, threads, time, timers,
    transfer, unnamed,
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
pub const SYSCALL_BYTES: u64 = 2;

/// Answers the call that the registers describe and leaves in the control page what the program
/// goes on with, be it another thread.
pub fn serve() -> Return {
    let (number, arguments) = entry::call();
    let Some(call) = Call::decode(number) else {
        log_absent(number);
        entry::set_return_value(Errno::ENOSYS.to_result());
        finish(false);
        return Return::Quick;
    };
    let effect = call.effect();
    let outcome = match dispatch_fast(call, &arguments) {
        Some(outcome) if paging::has_missed(&outcome) => match threads::await_answer(call, paging::page_in_missed()) {
            Ok(outcome) => outcome,
            Err(leave) => return leave,
        },
        Some(outcome) => outcome,
        None if threads::is_alone() => {
            threads::stop_sharing_if_alone();
            runtime::block_on(threads::alone(pin!(answer_in_memory(call, arguments))))
        }
        None if effect == Effect::EndsThread => return threads::end(),
        None => {
            let waited = match sleeps(call, &arguments) {
                Some(line) => Err(threads::sleep(call, line)),
                None => threads::answer(call, Box::pin(answer_in_memory(call, arguments))),
            };
            match waited {
                Ok(outcome) => outcome,
                Err(leave) => return leave,
            }
        }
    };
    let leave = settle(effect, outcome);
    if effect == Effect::ParksThread
        && let Some(leave) = threads::make_room(false)
    {
        return leave;
    }
    finish(false);
    leave
}

/// Answers a call that needs a server or time. What it needs of memory that is paged out is paged
/// in, and the program makes the call again.
async fn answer_in_memory(call: Call, arguments: [u64; 6]) -> Outcome {
    let outcome = answer(call, arguments).await;
    if paging::has_missed(&outcome) { Box::pin(paging::page_in_missed()).await } else { outcome }
}

/// Puts what came of a call where the program finds it.
#[inline]
pub fn settle(effect: Effect, outcome: Outcome) -> Return {
    match outcome {
        Ok(_) if effect == Effect::ReplacesRegisters => return Return::Exact,
        Ok(value) => entry::set_return_value(value),
        Err(Failure::Errno(errno)) => entry::set_return_value(errno.to_result()),
        Err(Failure::Interrupted) => interrupted(),
        Err(Failure::Again) => entry::restart_syscall(SYSCALL_BYTES),
    }
    Return::Quick
}

/// Nothing may stay behind while the program runs: signals go to it, servers are told to ring.
/// After a call that asked nobody, and with nothing come in, that is so already. `is_due`: the time
/// has come that somebody waits for.
pub fn finish(is_due: bool) {
    let pending = entry::take_pending();
    if pending || is_due || !runtime::is_at_rest() {
        runtime::rest(pending);
    }
    signals::deliver();
}

/// A signal came first: the call starts again after the handler, or ends with EINTR.
#[cold]
#[inline(never)]
fn interrupted() {
    if with_signals(|signals, thread| signals.restarts_calls(thread)) {
        entry::restart_syscall(SYSCALL_BYTES);
    } else {
        entry::set_return_value(Errno::EINTR.to_result());
    }
}

static TOLD: Global<Cell<Refusals>> = Global(Cell::new(Refusals::new()));

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

#[cold]
#[inline(never)]
fn log_absent(number: u64) {
    // The C library asks for it at each start and does without.
    const RSEQ: u64 = 334;
    if number != RSEQ {
        log_refused(number, &format!("{} is missing: ENOSYS", name(number).unwrap_or("(unknown)")));
    }
}

/// What answers a call at once, by the row's class: an expression that gives `Option<Outcome>`.
macro_rules! first {
    ($given:ident ($( $argument:ident ),*) immediate $handler:tt) => {{
        let [$( $argument, )* ..] = *$given;
        Some($handler)
    }};
    ($given:ident ($( $argument:ident ),*) tries $handler:tt) => {{
        let [$( $argument, )* ..] = *$given;
        $handler
    }};
    ($given:ident $arguments:tt waits $handler:tt) => {
        None
    };
}

/// What answers a call that was not answered at once: an expression that gives an [`Outcome`].
macro_rules! then {
    ($given:ident ($( $argument:ident ),*) waits $handler:tt) => {{
        let [$( $argument, )* ..] = $given;
        $handler
    }};
    ($given:ident ($( $argument:ident ),*) tries $handler:tt $later:tt) => {{
        let [$( $argument, )* ..] = $given;
        $later
    }};
    // It never comes to this.
    ($given:ident $arguments:tt immediate $handler:tt) => {
        Err(Errno::ENOSYS.into())
    };
}

/// Where a thread sleeps that a call was not answered at once: an expression that gives
/// `Option<Line>`.
macro_rules! line {
    ($given:ident $arguments:tt) => {
        None
    };
    ($given:ident ($( $argument:ident ),*) $handler:tt) => {{
        let [$( $argument, )* ..] = *$given;
        $handler
    }};
}

macro_rules! dispatch {
    ($(
        $number:literal
        $( $absent:literal absent )?
        $( $name:ident $text:literal $arguments:tt $class:ident $handler:tt
            $( or sleeps $line:tt )? $( or waits $later:tt )? $( and $effect:ident )?, $support:expr )?;
    )*) => {
        /// Answers calls from the proxy's own state, without a turn of the executor. `None` for
        /// those that need a server or time.
        // Rows name arguments that nothing depends on, too.
        #[allow(unused_variables)]
        fn dispatch_fast(call: Call, arguments: &[u64; 6]) -> Option<Outcome> {
            match call { $( $( Call::$name => first!(arguments $arguments $class $handler), )? )* }
        }

        /// Queues a thread that was not answered at once, if all it waits for is another thread.
        #[allow(unused_variables)]
        fn sleeps(call: Call, arguments: &[u64; 6]) -> Option<Line> {
            match call { $( $( Call::$name => line!(arguments $arguments $( $line )?), )? )* }
        }

        /// Answers calls that need a server or time.
        #[allow(unused_variables)]
        async fn answer(call: Call, arguments: [u64; 6]) -> Outcome {
            match call { $( $( Call::$name => then!(arguments $arguments $class $handler $( $later )?), )? )* }
        }
    };
}

personality::for_each_call!(dispatch);
