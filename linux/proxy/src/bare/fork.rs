//! fork, vfork, clone: the parent's side and the child's; and what a thread asks for.

use abi::Handle;
use alloc::boxed::Box;
use alloc::vec::Vec;
use channel::CallError;
use contracts::descriptions::DescriptionError;
use contracts::process::{ForkOptions, Forked, capability};

use personality::Errno;
use personality::flags::*;
use personality::memory::PAGE;
use personality::signals::number::SIGCHLD;

use super::counters;
use super::entry;
use super::errors::{Failure, Outcome};
use super::fd::close_description;
use super::mapping;
use super::poll;
use super::process_handles;
use super::proxy::{Generations, Proxy, listen, proxy};
use super::shared_files;
use super::system_v;
use super::threads;
use super::timers;
use super::user::{self, with_block, with_state, with_thread};
use super::vfork;
use zerocopy::IntoBytes;

const SIGNAL_LAST: u8 = 64;

/// What clone asks for besides a copy.
#[derive(Clone, Copy, Default)]
struct CloneOptions {
    stack: u64,
    thread_pointer: Option<u64>,
    parent_id_at: u64,
    child_id_at: u64,
    clear_id_at: u64,
    handle_at: u64,
    /// What this process gets at the child's end.
    end_signal: u8,
    /// The caller waits until the child runs another program or has ended.
    is_vfork: bool,
    /// It sees then what the child did to its stack.
    shares_stack: bool,
    /// The child has no handlers.
    clears_handlers: bool,
    /// The child would have this process' very memory on Linux (CLONE_VM), so it has all of it.
    has_all_memory: bool,
}

/// `EINVAL` for what there is not, as in a Linux without namespaces, and for what is shared by
/// halves.
fn check(flags: u64) -> Result<(), Errno> {
    let is_thread = flags & CLONE_THREAD != 0;
    let shares_handlers_alone = flags & (CLONE_SIGHAND | CLONE_VM) == CLONE_SIGHAND;
    let has_another_parent = flags & CLONE_PARENT != 0 && !is_thread;
    if flags & CLONE_NEW != 0 || shares_handlers_alone || has_another_parent { Err(Errno::EINVAL) } else { Ok(()) }
}

/// A signal that there is, or none.
fn signal_of(number: u64) -> Option<u8> {
    u8::try_from(number).ok().filter(|number| *number <= SIGNAL_LAST)
}

/// How many processes and threads the user may have, of whom this process' other threads are some
/// (RLIMIT_NPROC); root may have all.
fn user_limit() -> Option<u32> {
    with_state(|state| if state.identity.may(capability::SYS_RESOURCE) { None } else { state.limits.processes() })
}

impl CloneOptions {
    fn new([flags, stack, parent_id_at, child_id_at, thread_pointer]: [u64; 5]) -> CloneOptions {
        let when = |flag: u64, value: u64| if flags & flag != 0 { value } else { 0 };
        CloneOptions {
            stack,
            thread_pointer: (flags & CLONE_SETTLS != 0).then_some(thread_pointer),
            parent_id_at: when(CLONE_PARENT_SETTID, parent_id_at),
            child_id_at: when(CLONE_CHILD_SETTID, child_id_at),
            clear_id_at: when(CLONE_CHILD_CLEARTID, child_id_at),
            handle_at: when(CLONE_PIDFD, parent_id_at),
            end_signal: signal_of(flags & CSIGNAL).unwrap_or(0),
            is_vfork: flags & CLONE_VFORK != 0,
            shares_stack: flags & CLONE_VFORK != 0 && flags & CLONE_VM != 0,
            clears_handlers: flags & CLONE_CLEAR_SIGHAND != 0,
            has_all_memory: flags & CLONE_VM != 0,
        }
    }
}

/// What clone3 asks for (`struct clone_args`): clone's arguments, and where the child's handle
/// goes. `EINVAL` for what is not known, `E2BIG` for a longer structure that asks for more.
fn arguments(at: u64, bytes: u64) -> Result<([u64; 5], u64), Errno> {
    const WORDS: usize = 11;
    const SMALLEST: u64 = 64;
    if !(SMALLEST..=PAGE).contains(&bytes) || !bytes.is_multiple_of(8) {
        return Err(if bytes > PAGE { Errno::E2BIG } else { Errno::EINVAL });
    }
    let mut words = [0u64; WORDS];
    let fits = user::with_bytes(at, bytes, |all| {
        let (known, others) = all.split_at(all.len().min(size_of_val(&words)));
        words.as_mut_bytes()[..known.len()].copy_from_slice(known);
        others.iter().all(|byte| *byte == 0)
    })?;
    if !fits {
        return Err(Errno::E2BIG);
    }
    let [flags, handle_at, child_id_at, parent_id_at, end_signal, stack, stack_bytes, thread_pointer, ids_at, ids, _] =
        words;
    // There are no control groups, so no CLONE_INTO_CGROUP.
    let unknown = !(u64::from(u32::MAX) | CLONE_CLEAR_SIGHAND) | CLONE_DETACHED | CLONE_NEWTIME | CSIGNAL;
    let keeps_and_clears = flags & (CLONE_SIGHAND | CLONE_CLEAR_SIGHAND) == CLONE_SIGHAND | CLONE_CLEAR_SIGHAND;
    let is_half = (stack == 0) != (stack_bytes == 0);
    let is_told = signal_of(end_signal) == Some(0) || signal_of(end_signal).is_some() && flags & CLONE_THREAD == 0;
    if flags & unknown != 0 || keeps_and_clears || ids_at != 0 || ids != 0 || is_half || !is_told {
        return Err(Errno::EINVAL);
    }
    let handle_at = if flags & CLONE_PIDFD != 0 { handle_at } else { 0 };
    let flags_and_signal = flags & !CLONE_PIDFD | end_signal;
    let arguments = [flags_and_signal, stack.wrapping_add(stack_bytes), parent_id_at, child_id_at, thread_pointer];
    if handle_at != 0 && flags & CLONE_THREAD != 0 { Err(Errno::EINVAL) } else { Ok((arguments, handle_at)) }
}

/// clone, if it is for a thread.
pub fn thread_by_clone(arguments: [u64; 5]) -> Option<Outcome> {
    (arguments[0] & CLONE_THREAD != 0).then(|| thread(arguments))
}

/// clone's flags have 32 bits.
fn of_clone([flags, stack, parent_id_at, child_id_at, thread_pointer]: [u64; 5]) -> [u64; 5] {
    [flags & u64::from(u32::MAX), stack, parent_id_at, child_id_at, thread_pointer]
}

/// clone3, if it is for a thread, or asks for what there is not.
pub fn thread_by_clone3(at: u64, bytes: u64) -> Option<Outcome> {
    match arguments(at, bytes) {
        Ok((arguments, _)) => thread_by_clone(arguments),
        Err(errno) => Some(Err(errno.into())),
    }
}

/// clone and clone3 for a thread. `EINVAL` if it does not share what threads share.
fn thread(arguments: [u64; 5]) -> Outcome {
    const SHARED: u64 = CLONE_VM | CLONE_SIGHAND;
    check(arguments[0])?;
    if arguments[0] & SHARED != SHARED || arguments[0] & CLONE_PIDFD != 0 {
        return Err(Errno::EINVAL.into());
    }
    if user_limit().is_some_and(|limit| threads::count() >= limit as usize) {
        return Err(Errno::EAGAIN.into());
    }
    let options = CloneOptions::new(arguments);
    let CloneOptions { stack, thread_pointer, clear_id_at, .. } = options;
    let id = threads::add(&threads::ThreadOptions { stack, thread_pointer, clear_id_at })?;
    // Bad pointers are the program's own; Linux ignores them too.
    let _ = user::write_if(options.parent_id_at, &(id as u32));
    let _ = user::write_if(options.child_id_at, &(id as u32));
    Ok(id)
}

/// clone for a process. With `CLONE_VM` the memory is copied all the same.
pub async fn clone(arguments: [u64; 5]) -> Outcome {
    let arguments = of_clone(arguments);
    check(arguments[0])?;
    if arguments[0] & CLONE_PIDFD != 0 && arguments[0] & CLONE_PARENT_SETTID != 0 {
        // Both would go to the same place.
        return Err(Errno::EINVAL.into());
    }
    copy(CloneOptions::new(arguments)).await
}

/// clone3 for a process.
pub async fn clone_by(at: u64, bytes: u64) -> Outcome {
    let (arguments, handle_at) = arguments(at, bytes)?;
    check(arguments[0])?;
    copy(CloneOptions { handle_at, ..CloneOptions::new(arguments) }).await
}

/// fork, or vfork.
pub async fn fork(is_vfork: bool) -> Outcome {
    let vfork = CloneOptions { is_vfork, shares_stack: is_vfork, has_all_memory: is_vfork, ..CloneOptions::default() };
    copy(CloneOptions { end_signal: SIGCHLD, ..vfork }).await
}

async fn copy(options: CloneOptions) -> Outcome {
    let process = &proxy().process;
    let other_threads = threads::count() as u32 - 1;
    // What another thread attaches meanwhile, the child would have and the server not know of.
    let _attaching = if other_threads > 0 { Some(proxy().turn(system_v::TURN).await) } else { None };
    let user_limit = user_limit().map_or(u32::MAX, |limit| limit.saturating_sub(other_threads));
    let generations = proxy().generations();
    let wanted = ForkOptions { is_vfork: options.is_vfork, end_signal: options.end_signal, user_limit };
    let forked = process.fork_prepare(wanted).await?;
    let stack = entry::registers().rsp;
    let [domain, context] = forked.handles.map(Handle);
    // A child has pieces of files whole.
    let turn = shared_files::turn_if_active().await;
    let mut done = fill(&options, &forked, domain, generations).await;
    drop(turn);
    // Only the parent has it; before the start the child cannot have ended and vanished.
    let mut handle = None;
    if done.is_ok() && options.handle_at != 0 {
        match process_handles::add(forked.process, 0).await {
            Ok(number) => handle = Some(number),
            Err(failure) => done = Err(failure),
        }
    }
    if let (Some(number), Ok(())) = (handle, done) {
        done = user::write(options.handle_at, &(number as u32)).map_err(Failure::from);
    }
    if done.is_ok() {
        done = start(context);
    }
    for handle in [domain, context] {
        let _ = sys::cap_drop(handle);
    }
    match done {
        Ok(()) => {
            // A bad pointer is the program's own; Linux ignores it too.
            let _ = user::write_if(options.parent_id_at, &forked.process);
            if options.is_vfork { vfork::wait(forked.process, stack).await } else { Ok(forked.process.into()) }
        }
        Err(failure) => {
            if let Some(number) = handle {
                close_description(number);
            }
            let _ = process.fork_cancel(forked.process).await;
            Err(failure)
        }
    }
}

/// Runs the child, in the same proxy's entry.
fn start(child: Handle) -> Result<(), Failure> {
    unsafe extern "C" {
        fn _start();
    }
    // SAFETY: a context of another domain, which has this program and an empty stack below that
    // address.
    let done = unsafe { sys::context_start(child, _start as *const () as u64, abi::layout::STACK_TOP - 8, [0, 0]) };
    done.map_err(|_| Errno::EAGAIN.into())
}

/// Gives the child what this process holds, at all servers at once. A server that was started
/// again since this process saw it in `generations`, before the child was there, knows of nothing
/// that was open before. It is asked for what was opened since; if it does not know the child,
/// whose channel was begun before that, there is nothing.
async fn bequeath(child: u64, generations: Generations) -> Result<(), Failure> {
    let asked: Vec<_> = proxy().heritable().map(|(number, server)| (server, number, server.inherit(child))).collect();
    for (server, number, answer) in asked {
        let answer = match answer.await {
            Err(CallError::PeerRestarted) => server.inherit(child).await,
            answer => answer,
        };
        let was_restarted = server.channel().generation() != generations[number as usize - 1];
        match answer {
            Err(CallError::PeerRestarted) => {}
            Err(CallError::Server(DescriptionError::Invalid)) if was_restarted => {}
            answer => answer?,
        }
    }
    Ok(())
}

/// Descriptions first, then memory with the state the child starts from.
async fn fill(options: &CloneOptions, forked: &Forked, child: Handle, generations: Generations) -> Result<(), Failure> {
    counters::share(options.is_vfork).await?;
    // Else the child would be given what this process has closed.
    proxy().until_few_are_closing().await;
    bequeath(forked.client, generations).await?;
    threads::store_current();
    let forking = with_thread(|thread| *thread);
    // The child finds the thread that forks where this process has its first.
    let (first, handlers) = with_block(|block| {
        let first = block.first;
        (block.process.child, block.process.child_id_at) = (forked.process.into(), options.child_id_at);
        block.process.child_has_all = options.has_all_memory.into();
        block.process.vfork_stack_at = match options.is_vfork {
            true if options.shares_stack => forking.registers.rsp,
            true => vfork::NOTHING,
            false => 0,
        };
        let handlers = options.clears_handlers.then(|| Box::new(block.process.signals));
        if handlers.is_some() {
            block.process.signals.reset_for_exec();
        }
        block.first = forking;
        block.first.clear_id_at = options.clear_id_at;
        if options.stack != 0 {
            block.first.registers.rsp = options.stack;
        }
        block.first.bases[0] = options.thread_pointer.unwrap_or(forking.bases[0]);
        (first, handlers)
    });
    let done = sys::domain_fork(child);
    with_block(|block| {
        (block.first, block.process.child_id_at, block.process.vfork_stack_at) = (first, 0, 0);
        if let Some(handlers) = handlers {
            block.process.signals = *handlers;
        }
    });
    done.map_err(|error| {
        if error != abi::Error::NoMemory {
            runtime::log!("fork was refused by the kernel: {error:?}");
        }
        Errno::ENOMEM.into()
    })
}

/// The child: takes over the state that lies in its memory and goes on in the program.
pub fn adopt(proxy: &'static Proxy) -> ! {
    let valid = with_block(|block| {
        block.become_child();
        block.is_valid()
    });
    if !valid {
        runtime::log!("the inherited process state is not ours");
        sys::domain_exit(101);
    }
    threads::begin();
    poll::begin();
    vfork::begin();
    listen();
    timers::watch_limit();
    if with_state(|state| state.child_has_all == 0) && mapping::begin_child() && shared_files::is_active() {
        runtime::block_on(shared_files::drop_unused());
    }
    // It fails only if the server is gone, and everything with it.
    let _ = proxy.process.here();
    entry::install(proxy.signal_bits);
    threads::load_current();
    // A bad pointer is the program's own; Linux ignores it too.
    let (id_at, own) = with_state(|state| (core::mem::take(&mut state.child_id_at), state.process));
    let _ = user::write_if(id_at, &own);
    runtime::rest(true);
    entry::resume()
}
