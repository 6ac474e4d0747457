//! Ids, groups, waiting, ending, limits, random bytes: calls about the process as a whole.

use alloc::boxed::Box;

use contracts::process::{ChildNews, ChildState, Ended, Interest, NAME_MAX, ProcessId, Target, capability};
use personality::Errno;
use personality::flags::{O_NONBLOCK, WALL, WCLONE, WCONTINUED, WEXITED, WHOSE, WNOHANG, WNOWAIT, WUNTRACED, only};
use personality::layouts::{ChildInfo, Limit, system_names};
use personality::limits::resource;
use personality::signals::number::{SIGCHLD, SIGKILL};
use personality::signals::{Cause, code};
use personality::state::PARENT_UNKNOWN;

use super::entry;
use super::errors::{Failure, Outcome};
use super::identity;
use super::mapping;
use super::process_handles;
use super::proxy::proxy;
use super::shared_files;
use super::signals::child_code;
use super::syscall::{log_end, log_refused};
use super::threads;
use super::time::usage;
use super::timers;
use super::user::{self, with_state, with_thread};
use super::vfork;
use super::wait::answer;

/// Options of prctl: PR_SET_PDEATHSIG, PR_GET_PDEATHSIG and PR_SET_KEEPCAPS.
const SET_PARENT_DEATH: u64 = 1;
const GET_PARENT_DEATH: u64 = 2;
const SET_KEEPCAPS: u64 = 8;

/// Ends the process: its domain's end tells the process server how, and all servers that it is
/// gone.
pub fn end(how: Ended) -> ! {
    log_end(how);
    sys::domain_exit(how.to_status())
}

/// exit_group, and exit of the last thread. What was stored in mappings of files is brought there.
pub async fn exit(status: u64) -> ! {
    if shared_files::is_active() {
        threads::seize().await;
        Box::pin(shared_files::leave()).await;
    }
    if vfork::is_vforked() {
        Box::pin(vfork::release_parent(vfork::changes())).await;
    }
    end(Ended::Exited(status as u8))
}

/// A signal ends the process. As for [`exit`]; nobody must be polled.
pub fn die(signal: u8) -> ! {
    if shared_files::is_active() {
        runtime::block_on(shared_files::leave());
    }
    if vfork::is_vforked() {
        runtime::block_on(vfork::release_parent(vfork::changes()));
    }
    end(Ended::Signalled(signal))
}

/// getpid.
pub fn id() -> Outcome {
    Ok(with_state(|state| state.process).into())
}

/// getppid, where the parent is known. It may have ended since the fork; then the server has sent
/// word, which is taken in first.
pub fn parent() -> Option<Outcome> {
    if entry::take_pending() {
        runtime::rest(true);
    }
    let parent = with_state(|state| state.parent);
    (parent != PARENT_UNKNOWN).then(|| Ok(parent.into()))
}

/// getppid, where the server has to be asked.
pub async fn ask_parent() -> Outcome {
    let own = with_state(|state| state.process);
    let line = proxy().process.list(own).await.map_err(|_| Errno::ESRCH)?;
    let parent = line.map_or(0, |line| line.parent);
    with_state(|state| state.parent = parent);
    Ok(parent.into())
}

fn target(id: u64) -> Target {
    match id as i32 {
        -1 => Target::Any,
        0 => Target::OwnGroup,
        id if id > 0 => Target::Process(id as ProcessId),
        group => Target::Group(group.unsigned_abs()),
    }
}

fn interest(options: u64) -> Interest {
    let has = |option| options & option != 0;
    Interest {
        ended: has(WEXITED),
        stopped: has(WUNTRACED),
        continued: has(WCONTINUED),
        ordinary: has(WALL) || !has(WCLONE),
        clones: has(WALL) || has(WCLONE),
    }
}

/// wait4.
pub async fn wait4(id: u64, status_at: u64, options: u64, usage_at: u64) -> Outcome {
    only(options, WNOHANG | WUNTRACED | WCONTINUED | WHOSE)?;
    let waited = proxy().process.wait(target(id), interest(options | WEXITED), options & WNOHANG == 0, true);
    let Some(ChildNews { process: child, state, cpu_ns }) = answer(waited).await? else { return Ok(0) };
    let status = match state {
        ChildState::Ended(Ended::Exited(status)) => u32::from(status) << 8,
        ChildState::Ended(Ended::Signalled(number)) => number.into(),
        ChildState::Stopped(number) => u32::from(number) << 8 | 0x7f,
        ChildState::Continued => 0xffff,
    };
    user::write_if(status_at, &status)?;
    user::write_if(usage_at, &usage(cpu_ns, 0))?;
    Ok(child.into())
}

/// waitid.
pub async fn waitid(kind: u64, id: u64, info_at: u64, options: u64, usage_at: u64) -> Outcome {
    const OF_HANDLE: u64 = 3;
    only(options, WNOHANG | WEXITED | WUNTRACED | WCONTINUED | WNOWAIT | WHOSE)?;
    let mut wait = options & WNOHANG == 0;
    let mut must_not_wait = false;
    let target = match kind {
        0 => Target::Any,
        1 if id as i32 <= 0 => return Err(Errno::EINVAL.into()),
        1 => Target::Process(id as ProcessId),
        2 if id == 0 => Target::OwnGroup,
        2 => Target::Group(id as ProcessId),
        OF_HANDLE if id as i32 >= 0 => {
            let found = process_handles::found(id)?;
            must_not_wait = wait && found.flags & O_NONBLOCK != 0;
            wait &= !must_not_wait;
            Target::Handle(found.id)
        }
        _ => return Err(Errno::EINVAL.into()),
    };
    if options & (WEXITED | WUNTRACED | WCONTINUED) == 0 {
        return Err(Errno::EINVAL.into());
    }
    let mut info = ChildInfo::default();
    let waited = proxy().process.wait(target, interest(options), wait, options & WNOWAIT == 0);
    let found = answer(waited).await.map_err(process_handles::no_handle)?;
    if let Some(ChildNews { process, state, cpu_ns }) = found {
        let (code, status) = child_code(state);
        info = ChildInfo { signal: SIGCHLD.into(), code, process, status: status.into(), ..info };
        user::write_if(usage_at, &usage(cpu_ns, 0))?;
    } else if must_not_wait {
        return Err(Errno::EAGAIN.into());
    }
    user::write_if(info_at, &info)?;
    Ok(0)
}

/// setpgid.
pub async fn set_group(process: u64, group: u64) -> Outcome {
    if (group as i32) < 0 {
        return Err(Errno::EINVAL.into());
    }
    proxy().process.set_group(process as u32, group as u32).await?;
    Ok(0)
}

/// kill; to itself a process sends at once, so that the handler runs before the call ends.
pub async fn kill(id: u64, number: u64) -> Outcome {
    if number > 64 {
        return Err(Errno::EINVAL.into());
    }
    let own = with_state(|state| state.process);
    if id == u64::from(own) && number != u64::from(SIGKILL) {
        if number != 0 {
            threads::post(number as u8, Cause::of_process(code::SI_USER, own));
        }
        return Ok(0);
    }
    proxy().process.signal(target(id), number as u8).await?;
    Ok(0)
}

/// tgkill, and tkill without a process: own threads, and of other processes the first.
pub async fn kill_thread(process: Option<u64>, thread: u64, number: u64) -> Outcome {
    if thread as i32 <= 0 || process.is_some_and(|process| process as i32 <= 0) || number > 64 {
        return Err(Errno::EINVAL.into());
    }
    if process.is_some_and(|process| !threads::is_of(thread, process)) {
        return Err(Errno::ESRCH.into());
    }
    let own = with_state(|state| state.process);
    let is_own = process.is_none_or(|process| process == u64::from(own));
    let cause = Cause::of_process(code::SI_TKILL, own);
    if is_own && number != u64::from(SIGKILL) && threads::post_to(thread, number as u8, cause).is_some() {
        return Ok(0);
    }
    if is_own && process.is_some() && !threads::exists(thread) {
        return Err(Errno::ESRCH.into());
    }
    kill(if threads::exists(thread) { own.into() } else { thread }, number).await
}

/// The process group and the session of a process.
pub async fn groups(id: u64) -> Result<(ProcessId, ProcessId), Failure> {
    Ok(proxy().process.groups(id as ProcessId).await?)
}

/// getpgid and getpgrp.
pub async fn group(id: u64) -> Outcome {
    Ok(groups(id).await?.0.into())
}

/// getsid.
pub async fn session(id: u64) -> Outcome {
    Ok(groups(id).await?.1.into())
}

/// setsid.
pub async fn new_session() -> Outcome {
    Ok(proxy().process.new_session().await?.into())
}

/// prctl, where the process server keeps it: the signal that a process gets when its parent ends,
/// and whether capabilities are kept.
pub async fn prctl_at_server(option: u64, argument: u64) -> Outcome {
    match option {
        SET_PARENT_DEATH => {
            let number = u8::try_from(argument).map_err(|_| Errno::EINVAL)?;
            proxy().process.parent_death(Some(number)).await?;
        }
        SET_KEEPCAPS => return identity::keep_capabilities(argument).await,
        _ => user::write(argument, &u32::from(proxy().process.parent_death(None).await?))?,
    }
    Ok(0)
}

/// prctl: names, and what a program may ask without effect here. `None` for what
/// [`prctl_at_server`] does.
pub fn prctl(option: u64, argument: u64) -> Option<Outcome> {
    (!matches!(option, SET_PARENT_DEATH | GET_PARENT_DEATH | SET_KEEPCAPS)).then(|| control(option, argument))
}

fn control(option: u64, argument: u64) -> Outcome {
    const GET_DUMPABLE: u64 = 3;
    const SET_DUMPABLE: u64 = 4;
    const GET_KEEPCAPS: u64 = 7;
    const SET_NAME: u64 = 15;
    const GET_NAME: u64 = 16;
    const CAPABILITY_BOUND: u64 = 23;
    const LAST_CAPABILITY: u64 = 40;
    const SET_NO_NEW_PRIVILEGES: u64 = 38;
    const GET_NO_NEW_PRIVILEGES: u64 = 39;
    const SET_LARGE_PAGES_OFF: u64 = 41;
    const GET_LARGE_PAGES_OFF: u64 = 42;
    match option {
        SET_NAME => {
            let text = user::text_bytes(argument, 16, Errno::EINVAL).or_else(|_| user::copy_in(argument, 15))?;
            let mut name = [0; 16];
            let length = text.len().min(15);
            name[..length].copy_from_slice(&text[..length]);
            with_thread(|thread| thread.name = name);
        }
        GET_NAME => user::write(argument, &with_thread(|thread| thread.name))?,
        GET_DUMPABLE => return Ok(1),
        CAPABILITY_BOUND if argument <= LAST_CAPABILITY => return Ok(1),
        SET_DUMPABLE if argument > 1 => return Err(Errno::EINVAL.into()),
        SET_NO_NEW_PRIVILEGES if argument == 1 => with_state(|state| state.no_new_privileges = 1),
        GET_NO_NEW_PRIVILEGES => return Ok(with_state(|state| state.no_new_privileges)),
        GET_KEEPCAPS => return Ok(with_state(|state| state.identity.capabilities()).keeps.into()),
        SET_DUMPABLE | SET_LARGE_PAGES_OFF | GET_LARGE_PAGES_OFF => {}
        _ => return Err(Errno::EINVAL.into()),
    }
    Ok(0)
}

/// getrlimit.
pub fn limit(resource: u64, at: u64) -> Outcome {
    let limit = with_state(|state| state.limits.get(resource))?;
    user::write(at, &limit)?;
    Ok(0)
}

/// setrlimit.
pub fn set_limit(resource: u64, at: u64) -> Outcome {
    change_limit(resource, user::read(at)?)?;
    Ok(0)
}

/// Changes a limit; gives the one before. A stack that may be larger is so at once.
fn change_limit(resource: u64, new: Limit) -> Result<Limit, Errno> {
    // Linux takes the low 32 bits.
    let resource = u64::from(resource as u32);
    if resource == resource::STACK {
        with_state(|state| state.limits.check(resource, new, state.identity.may(capability::SYS_RESOURCE)))?;
        mapping::grow_stack(new.current)?;
    }
    let old = with_state(|state| state.set_limit(resource, new))?;
    if resource == resource::CPU {
        timers::watch_limit();
    }
    Ok(old)
}

/// prlimit64 of this process. `None` for another one's, whose limits only its own proxy knows.
pub fn limit_of(process: u64, resource: u64, new_at: u64, old_at: u64) -> Option<Outcome> {
    let own = with_state(|state| state.process);
    let is_own = process == 0 || process == u64::from(own) || threads::exists(process);
    is_own.then(|| {
        let old = match user::read_if(new_at)? {
            Some(new) => change_limit(resource, new)?,
            None => with_state(|state| state.limits.get(resource))?,
        };
        user::write_if(old_at, &old)?;
        Ok(0)
    })
}

/// The same of another process: `EPERM` if there is one.
pub async fn limit_of_another(process: u64, resource: u64) -> Outcome {
    with_state(|state| state.limits.get(resource))?;
    if process as i32 <= 0 {
        return Err(Errno::ESRCH.into());
    }
    groups(process).await?;
    log_refused(302, "prlimit64 of another process: EPERM");
    Err(Errno::EPERM.into())
}

/// uname.
pub async fn names(at: u64) -> Outcome {
    let (host, domain) = proxy().process.host().await?;
    user::write(at, &system_names(&host, &domain))?;
    Ok(0)
}

/// sethostname and setdomainname.
pub async fn name_host(is_domain: bool, at: u64, bytes: u64) -> Outcome {
    if bytes > NAME_MAX as u64 {
        return Err(Errno::EINVAL.into());
    }
    let name = user::with_bytes(at, bytes, system::file_name::to_text)?;
    proxy().process.name_host(is_domain, name).await?;
    Ok(0)
}

/// getrandom.
pub fn random(at: u64, bytes: u64, flags: u64) -> Outcome {
    const LIMIT: u64 = 1 << 20;
    const KNOWN: u64 = 7;
    /// GRND_RANDOM and GRND_INSECURE.
    const BOTH: u64 = 6;
    only(flags, KNOWN)?;
    if flags & BOTH == BOTH {
        return Err(Errno::EINVAL.into());
    }
    let count = bytes.min(LIMIT);
    user::with_bytes_mut(at, count, runtime::fill_random)?;
    Ok(count)
}
