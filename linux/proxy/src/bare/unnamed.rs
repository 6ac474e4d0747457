//! Files without a name: in memory (memfd_create), with their seals, and temporary ones that may
//! get one (O_TMPFILE, linkat).

use alloc::format;

use contracts::files::{Name, Opened, Unnamed, open as how};
use personality::Errno;
use personality::descriptors::{Description, server};
use personality::flags::*;
use system::file_name;

use super::errors::{Failure, Outcome};
use super::files::{KEPT, named, resolved};
use super::input_output::{REGULAR, description};
use super::places::{Place, at_end, at_place};
use super::proxy::proxy;
use super::user::{self, with_state};
use super::wait::answer;

fn add(opened: &Opened, flags: u32, close_on_exec: bool) -> Outcome {
    let server = server::of_file(opened.id);
    let made = Description { id: opened.id, server, flags, kind: REGULAR, ..Description::default() };
    Ok(with_state(|state| state.descriptors.add(made, close_on_exec))?)
}

/// memfd_create.
pub async fn create_memory(name_at: u64, flags: u64) -> Outcome {
    const CLOSE_ON_EXEC: u64 = 1;
    const MAY_SEAL: u64 = 2;
    /// What a name is longer than is refused: with what stands before it, it is a file's name.
    const NAME_MAX: u64 = 249;
    if flags & !(CLOSE_ON_EXEC | MAY_SEAL) != 0 {
        // There are no large pages, and none of the flags of Linux 6.3.
        return Err(Errno::EINVAL.into());
    }
    let name = file_name::to_text(&user::text_bytes(name_at, NAME_MAX + 1, Errno::EINVAL)?);
    with_state(|state| state.descriptors.room(1))?;
    let (process, owner) = with_state(|state| (state.process, state.identity.acting()));
    let place = Name { directory: None, path: format!("memfd:{name}"), process, owner };
    let purpose = Unnamed::Memory { may_seal: flags & MAY_SEAL != 0 };
    let opened = answer(proxy().files()?.open_unnamed(place, how::READ | how::WRITE, 0o777, purpose)).await?;
    add(&opened, O_RDWR, flags & CLOSE_ON_EXEC != 0)
}

/// open with O_TMPFILE: what is named is a directory.
pub async fn open_temporary(place: Place, flags: u32, permissions: u32) -> Outcome {
    let access = match flags & O_ACCMODE {
        O_WRONLY => how::WRITE,
        O_RDWR => how::READ | how::WRITE,
        _ => return Err(Errno::EINVAL.into()),
    };
    let access = access | if flags & O_APPEND != 0 { how::APPEND } else { 0 };
    let purpose = Unnamed::Temporary { may_link: flags & O_EXCL == 0 };
    let asked = at_place(place, |files, name| files.open_unnamed(name, access, permissions, purpose));
    let (_, opened) = asked.await?;
    add(&opened, flags & KEPT, flags & O_CLOEXEC != 0)
}

/// A file of this process's own, with these bytes, to be read.
pub async fn with_bytes(name: &str, bytes: &[u8], close_on_exec: bool) -> Outcome {
    let (process, owner) = with_state(|state| (state.process, state.identity.acting()));
    let place = Name { directory: None, path: name.into(), process, owner };
    let purpose = Unnamed::Memory { may_seal: false };
    let opened = answer(proxy().files()?.open_unnamed(place, how::READ | how::WRITE, 0o444, purpose)).await?;
    super::shared_files::write_raw(opened.id, user::Source::Own(bytes), 0).await?;
    add(&opened, 0, close_on_exec)
}

/// linkat of what a descriptor names.
pub async fn link(descriptor: u64, to_directory: u64, to: u64) -> Outcome {
    let found = description(descriptor)?;
    if !found.is_file() {
        return Err(Errno::EXDEV.into());
    }
    let to = at_end(named(to_directory, to)?, false).await?;
    if to.server != found.server {
        return Err(Errno::EXDEV.into());
    }
    at_place(to, |files, name| files.link_opened(found.id, name)).await?;
    Ok(0)
}

/// fcntl for F_GET_SEALS and F_ADD_SEALS.
pub async fn seals(found: &Description, added: Option<u64>) -> Outcome {
    if !found.is_file() || found.kind != REGULAR {
        return Err(Errno::EINVAL.into());
    }
    let files = proxy().files_at(found.server)?;
    match added {
        None => Ok(answer(files.seals(found.id)).await?.into()),
        Some(seals) => {
            answer(files.add_seals(found.id, seals as u32)).await?;
            Ok(0)
        }
    }
}

/// The seals of any file. Ordinary ones have none.
pub async fn seals_of(found: &Description) -> Result<u32, Failure> {
    Ok(proxy().files_at(found.server)?.seals(found.id).await.unwrap_or(0))
}

/// Is a file sealed against writing?
pub async fn is_sealed(found: &Description) -> Result<bool, Failure> {
    Ok(seals_of(found).await? & AGAINST_WRITES != 0)
}

/// F_SEAL_WRITE and F_SEAL_FUTURE_WRITE.
const AGAINST_WRITES: u32 = contracts::files::seal::WRITE | contracts::files::seal::FUTURE_WRITE;

/// mknod and mknodat: files, sockets and named pipes. Devices are the system's.
pub async fn make_node(directory: u64, path: u64, mode: u64) -> Outcome {
    const KINDS: u64 = 0o170000;
    const FILES: [u64; 2] = [0, 0o100000];
    const PIPE: u64 = 0o010000;
    const SOCKET: u64 = 0o140000;
    /// Devices, and directories, which mkdir makes.
    const OF_THE_SYSTEM: [u64; 3] = [0o020000, 0o060000, 0o040000];
    let permissions = mode as u32 & 0o7777 & !with_state(|state| state.umask as u32);
    let kind = mode & KINDS;
    if OF_THE_SYSTEM.contains(&kind) {
        return Err(Errno::EPERM.into());
    }
    if !FILES.contains(&kind) && kind != PIPE && kind != SOCKET {
        return Err(Errno::EINVAL.into());
    }
    let path = resolved(directory, &user::path(path)?)?;
    match kind {
        PIPE => drop(at_place(path, |files, name| files.make_pipe(name, permissions)).await?),
        SOCKET => drop(at_place(path, |files, name| files.make_socket(name, permissions)).await?),
        _ => {
            let flags = how::WRITE | how::CREATE | how::EXCLUSIVE;
            let (server, opened) = at_place(path, |files, name| files.open(name, flags, permissions)).await?;
            super::fd::close_id(server, opened.id);
        }
    }
    Ok(0)
}

/// open of a named pipe: a side waits for the other one, and who reads and writes for nobody.
pub async fn open_pipe(file: u64, flags: u32) -> Outcome {
    let access = flags & O_ACCMODE;
    let (reads, writes) = (access != O_WRONLY, access != 0);
    // Whether there is another side depends on what was closed before, by another channel.
    proxy().until_closed(server::PROCESS).await;
    let id = answer(proxy().process.open_pipe(file, reads, writes, flags & O_NONBLOCK == 0)).await;
    let id = id.map_err(|error| match error {
        channel::CallError::Server(contracts::process::ProcessError::NotFound) => Failure::from(Errno::ENXIO),
        channel::CallError::Server(contracts::process::ProcessError::TooMany) => Failure::from(Errno::ENFILE),
        error => Failure::from(error),
    })?;
    let flags_kept = flags & (O_ACCMODE | O_APPEND | O_NONBLOCK);
    let made =
        Description { id, server: server::PROCESS, flags: flags_kept, kind: PIPE_KIND, ..Description::default() };
    let added = with_state(|state| state.descriptors.add(made, flags & O_CLOEXEC != 0));
    if added.is_err() {
        super::fd::close_id(server::PROCESS, id);
    }
    Ok(added?)
}

/// S_IFIFO.
const PIPE_KIND: u32 = 0o010000;
