//! Descriptor numbers: closing, duplicating, flags, pipes, and what is asked of a device behind
//! one.

use contracts::descriptions::{Control, ControlReply, DescriptionError, DescriptionId};
use personality::Errno;
use personality::descriptors::{Closed, Description, server};
use personality::flags::*;

use super::errors::{AsErrno, Outcome};
use super::input_output::{description, opened};
use super::proxy::proxy;
use super::unnamed;
use super::user::{self, with_state};
use super::wait::{answer, answer_of};

/// S_IFIFO.
const PIPE: u32 = 0o010000;

/// Drops a reference at a server.
pub fn close_id(server: u32, id: DescriptionId) {
    if server != server::CONSOLE {
        proxy().close(server, id);
    }
}

fn released(Closed { description, is_last }: Closed) {
    match description.server {
        _ if !is_last => super::locks::closed_one_of_several(&description),
        server::EPOLL => super::poll::set_closed(description.id),
        server::SIGNALS | server::COUNTER | server::OWN => {}
        server => close_id(server, description.id),
    }
}

/// A number names no longer what sets watched by it.
fn not_watched(descriptor: u64, named: &Description) {
    let descriptor = descriptor as u32;
    while let Some(set) = with_state(|state| state.interests.take_closed(descriptor)) {
        super::poll::left_set(set, descriptor, named);
    }
}

/// Closes a number; gives `false` if it was not open.
pub fn close_description(descriptor: u64) -> bool {
    let Ok(lost) = with_state(|state| state.descriptors.close(descriptor)) else { return false };
    not_watched(descriptor, &lost.description);
    released(lost);
    true
}

/// close.
pub fn close(descriptor: u64) -> Outcome {
    if close_description(descriptor) { Ok(0) } else { Err(Errno::EBADF.into()) }
}

/// Does the number name something? `EBADF`.
pub fn exists(descriptor: u64) -> Outcome {
    description(descriptor)?;
    Ok(0)
}

/// sync_file_range: files are memory.
pub fn bring_out(descriptor: u64, flags: u64) -> Outcome {
    const KNOWN: u64 = 7;
    only(flags, KNOWN)?;
    exists(descriptor)
}

/// fadvise64: files are memory, and stay there. `ESPIPE` for what has no place.
pub fn advise(descriptor: u64, advice: u64) -> Outcome {
    const LAST: u64 = 5;
    if opened(descriptor)?.kind == PIPE {
        return Err(Errno::ESPIPE.into());
    }
    if advice as u32 as u64 > LAST { Err(Errno::EINVAL.into()) } else { Ok(0) }
}

/// close_range; with CLOSE_RANGE_CLOEXEC only marks.
pub fn close_range(first: u64, last: u64, flags: u64) -> Outcome {
    const MARK: u64 = 4;
    if first > last || flags & !(MARK | 2) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let mut from = first;
    while let Some(descriptor) = with_state(|state| state.descriptors.next_open(from)).filter(|open| *open <= last) {
        if flags & MARK != 0 {
            let _ = with_state(|state| state.descriptors.set_close_on_exec(descriptor, true));
        } else {
            close_description(descriptor);
        }
        from = descriptor + 1;
    }
    Ok(0)
}

/// dup.
pub fn duplicate(descriptor: u64) -> Outcome {
    Ok(with_state(|state| state.descriptors.duplicate(descriptor, 0, false))?)
}

/// dup2 and dup3.
pub fn duplicate_to(descriptor: u64, to: u64, flags: u64, same_is_error: bool) -> Outcome {
    if flags & !u64::from(O_CLOEXEC) != 0 || (same_is_error && descriptor == to) {
        return Err(Errno::EINVAL.into());
    }
    if descriptor == to {
        description(descriptor)?;
        return Ok(to);
    }
    let lost = with_state(|state| state.descriptors.duplicate_to(descriptor, to, flags != 0))?;
    if let Some(lost) = lost {
        not_watched(to, &lost.description);
        released(lost);
    }
    Ok(to)
}

/// fcntl, where nobody has to be asked.
pub fn control(descriptor: u64, command: u64, argument: u64) -> Option<Outcome> {
    if matches!(command, F_SETFL | F_GETLK..=F_SETLKW | F_OFD_GETLK..=F_OFD_SETLKW | F_SETPIPE_SZ..=F_GET_SEALS) {
        return None;
    }
    if matches!(command, F_SETOWN_EX | F_GETOWN_EX) {
        return Some(owner(descriptor, command == F_SETOWN_EX, argument));
    }
    Some(with_state(|state| {
        let table = &mut state.descriptors;
        table.get(descriptor)?;
        Ok(match command {
            F_DUPFD | F_DUPFD_CLOEXEC => table.duplicate(descriptor, argument, command == F_DUPFD_CLOEXEC)?,
            F_GETFD => table.close_on_exec(descriptor)?.into(),
            F_SETFD => table.set_close_on_exec(descriptor, argument & 1 != 0).map(|()| 0)?,
            // Nobody sends SIGIO, so it does not matter to whom.
            F_SETOWN | F_GETOWN => 0,
            F_GETFL => table.get(descriptor)?.flags.into(),
            _ => return Err(Errno::EINVAL.into()),
        })
    }))
}

/// fcntl for F_SETOWN_EX and F_GETOWN_EX, of kind and id: as F_SETOWN and F_GETOWN.
fn owner(descriptor: u64, is_set: bool, at: u64) -> Outcome {
    const LAST_KIND: u32 = 2;
    description(descriptor)?;
    if !is_set {
        user::write(at, &[0u32; 2])?;
        return Ok(0);
    }
    let [kind, _]: [u32; 2] = user::read(at)?;
    if kind > LAST_KIND { Err(Errno::EINVAL.into()) } else { Ok(0) }
}

/// fcntl, where a server has a say.
pub async fn control_at_server(descriptor: u64, command: u64, argument: u64) -> Outcome {
    const CHANGEABLE: u32 = O_APPEND | O_NONBLOCK;
    match command {
        F_SETFL => {}
        F_GET_SEALS => return unnamed::seals(&opened(descriptor)?, None).await,
        F_ADD_SEALS => return unnamed::seals(&opened(descriptor)?, Some(argument)).await,
        F_GETPIPE_SZ => return capacity(descriptor, Control::GetCapacity).await,
        F_SETPIPE_SZ => {
            let bytes = u32::try_from(argument).ok().filter(|bytes| *bytes <= i32::MAX as u32).ok_or(Errno::EINVAL)?;
            return capacity(descriptor, Control::SetCapacity { bytes }).await;
        }
        _ => return super::locks::control(descriptor, command, argument).await,
    }
    let found = description(descriptor)?;
    let flags = found.flags & !CHANGEABLE | argument as u32 & CHANGEABLE;
    // A forked child or parent may have changed it meanwhile, so it is always told.
    if found.is_file() {
        answer(proxy().files_of(found.id)?.set_append(found.id, flags & O_APPEND != 0)).await?;
    }
    with_state(|state| state.descriptors.get_mut(descriptor).map(|found| found.flags = flags))?;
    Ok(0)
}

/// How much a pipe holds. `EBADF` for what is none.
async fn capacity(descriptor: u64, request: Control) -> Outcome {
    let found = opened(descriptor)?;
    if found.server != server::PROCESS {
        return Err(Errno::EBADF.into());
    }
    match answer(proxy().server(found.server)?.control(found.id, request)).await {
        Ok(ControlReply::Number(bytes)) => Ok(bytes),
        Err(channel::CallError::Server(DescriptionError::NotSupported)) | Ok(_) => Err(Errno::EBADF.into()),
        Err(error) => Err(error.into()),
    }
}

/// pipe and pipe2.
pub async fn pipe(at: u64, flags: u64) -> Outcome {
    let flags = flags as u32;
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL.into());
    }
    user::check_writable(at, 8)?;
    with_state(|state| state.descriptors.room(2))?;
    let (reading, writing) = proxy().process.pipe().await.map_err(|_| Errno::ENFILE)?;
    let end = |id, access| Description {
        id,
        server: server::PROCESS,
        flags: access | flags & O_NONBLOCK,
        kind: PIPE,
        ..Description::default()
    };
    let numbers = with_state(|state| {
        let close_on_exec = flags & O_CLOEXEC != 0;
        Ok::<_, Errno>([
            state.descriptors.add(end(reading, 0), close_on_exec)? as u32,
            state.descriptors.add(end(writing, O_WRONLY), close_on_exec)? as u32,
        ])
    })?;
    user::write(at, &numbers)?;
    Ok(0)
}

/// ioctl.
pub async fn device_control(descriptor: u64, request: u64, argument: u64) -> Outcome {
    let found = opened(descriptor)?;
    let request = match request {
        0x5401 => Control::GetTerminal,
        0x5402..=0x5404 => {
            Control::SetTerminal { settings: user::copy_in(argument, 36)?, flush_input: request == 0x5404 }
        }
        0x540e => Control::MakeControlling { session: super::process::groups(0).await?.1 },
        0x540f => Control::GetForeground,
        0x5410 => Control::SetForeground { group: user::read(argument)? },
        0x5413 => Control::GetWindow,
        0x5414 => {
            let [rows, columns, ..]: [u16; 4] = user::read(argument)?;
            Control::SetWindow { rows, columns }
        }
        0x541b => Control::Available,
        0x5421 => {
            let on = user::read::<u32>(argument)? != 0;
            let change =
                |found: &mut Description| found.flags = found.flags & !O_NONBLOCK | if on { O_NONBLOCK } else { 0 };
            with_state(|state| state.descriptors.get_mut(descriptor).map(change))?;
            return Ok(0);
        }
        FIOASYNC => {
            user::read::<u32>(argument)?;
            return Ok(0);
        }
        0x5450 | 0x5451 => {
            with_state(|state| state.descriptors.set_close_on_exec(descriptor, request == 0x5451))?;
            return Ok(0);
        }
        _ => return Err(Errno::ENOTTY.into()),
    };
    let client = proxy().server(found.server).map_err(|_| Errno::ENOTTY)?;
    match answer_of(found.server, || client.control(found.id, request.clone())).await {
        Ok(ControlReply::Done) => {}
        Ok(ControlReply::Terminal(settings)) if settings.len() == 36 => user::write(argument, settings.as_slice())?,
        Ok(ControlReply::Terminal(_)) => return Err(Errno::EIO.into()),
        Ok(ControlReply::Window { rows, columns }) => user::write(argument, &[rows, columns, 0, 0])?,
        Ok(ControlReply::Number(number)) => user::write(argument, &(number as u32))?,
        Err(channel::CallError::Server(DescriptionError::NotSupported)) => {
            return Err(DescriptionError::NotTerminal.errno().into());
        }
        Err(error) => return Err(error.into()),
    }
    Ok(0)
}
