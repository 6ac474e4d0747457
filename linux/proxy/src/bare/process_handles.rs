//! Processes as descriptors (pidfd): opening, signalling. They live at the process server; waiting
//! for them is waitid's.

use channel::CallError;
use contracts::descriptions::Kind;
use contracts::process::{ProcessError, Target};
use personality::Errno;
use personality::descriptors::{Description, server};
use personality::flags::*;
use personality::signal_frame::SignalInfo;
use personality::signals::code;

use super::errors::{Failure, Outcome};
use super::files::type_bits;
use super::input_output::description;
use super::proxy::proxy;
use super::user::{self, with_state};
use super::wait::answer;

/// A handle under a number of this process; always closed on exec.
pub async fn add(process: u32, nonblocking: u32) -> Outcome {
    with_state(|state| state.descriptors.room(1))?;
    let id = match proxy().process.handle(process).await {
        Err(CallError::Server(ProcessError::TooMany)) => return Err(Errno::ENFILE.into()),
        id => id?,
    };
    let made = Description { id, server: server::PROCESS, flags: O_RDWR | nonblocking, ..Description::default() };
    Ok(with_state(|state| state.descriptors.add(made, true))?)
}

/// pidfd_open.
pub async fn open(process: u64, flags: u64) -> Outcome {
    if flags & !u64::from(O_NONBLOCK) != 0 || process as i32 <= 0 {
        return Err(Errno::EINVAL.into());
    }
    add(process as u32, flags as u32).await
}

/// What a descriptor names at the process server. `EBADF` for what is no handle.
pub fn found(descriptor: u64) -> Result<Description, Errno> {
    description(descriptor)
        .and_then(|found| if found.server == server::PROCESS { Ok(found) } else { Err(Errno::EBADF) })
}

/// `EBADF` where a description at the process server turns out to be no handle.
pub fn no_handle(error: CallError<ProcessError>) -> Failure {
    match error {
        CallError::Server(ProcessError::Invalid) => Errno::EBADF.into(),
        error => error.into(),
    }
}

/// The process that a handle is of, or a directory of /proc.
async fn target(descriptor: u64) -> Result<Target, Failure> {
    let found = description(descriptor)?;
    match found.server {
        server::PROCESS => Ok(Target::Handle(found.id)),
        server::FS if found.kind == type_bits(Kind::Directory) => {
            let path = answer(proxy().files()?.path_of(found.id)).await?;
            let process = path.strip_prefix("/proc/").and_then(|id| id.parse().ok()).filter(|id| *id > 0);
            Ok(Target::Process(process.ok_or(Errno::EBADF)?))
        }
        _ => Err(Errno::EBADF.into()),
    }
}

/// pidfd_send_signal.
pub async fn signal(descriptor: u64, number: u64, info_at: u64, flags: u64) -> Outcome {
    if flags != 0 || number > 64 {
        return Err(Errno::EINVAL.into());
    }
    let target = target(descriptor).await?;
    let Some(info) = user::read_if::<SignalInfo>(info_at)? else {
        proxy().process.signal(target, number as u8).await.map_err(no_handle)?;
        return Ok(0);
    };
    let cause = info.cause();
    if !info.is_of(number) {
        return Err(Errno::EINVAL.into());
    }
    if cause.code >= 0 || cause.code == code::SI_TKILL {
        return Err(Errno::EPERM.into());
    }
    proxy().process.queue_signal(target, number as u8, cause.code, cause.words[1]).await.map_err(no_handle)?;
    Ok(0)
}
