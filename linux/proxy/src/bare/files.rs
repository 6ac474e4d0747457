//! Calls that name paths.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};

use contracts::descriptions::{Kind, Status, TERMINAL};
use contracts::files::{Change, Elsewhere, Name, Renaming, open as how};
use personality::Errno;
use personality::descriptors::{Description, server};
use personality::flags::*;
use personality::layouts::{FileSystem, OpenHow, Stat, Statx, StatxTime, TimeSpec, TimeVal};
use personality::memory::PAGE;
use personality::path::{PATH_MAX, absolute, clean};
use personality::state::Text;
use system::file_name;

use super::errors::{AsErrno, Failure, Outcome};
use super::input_output::{self, description};
use super::places::{Place, at_place, in_one_tree};
use super::proxy::proxy;
use super::user::{self, with_state};
use super::wait::answer;
use super::{own_files, shared_files, unnamed};

/// S_IFMT bits.
pub fn type_bits(kind: Kind) -> u32 {
    match kind {
        Kind::File => 0o100000,
        Kind::Directory => 0o040000,
        Kind::SymbolicLink => 0o120000,
        Kind::Pipe => 0o010000,
        Kind::Terminal | Kind::Device => 0o020000,
        Kind::Socket => 0o140000,
        Kind::Anonymous => 0,
    }
}

/// The link to one's own program: what only the process itself knows.
pub fn own_program(path: &str) -> Option<String> {
    let (process, program) = with_state(|state| (state.process, state.program));
    let rest = path.strip_prefix("/proc/")?;
    let owner = rest.strip_suffix("/exe")?;
    (owner == "self" || owner == process.to_string()).then(|| program.as_str().into())
}

/// The descriptor of one's own that a path names as such.
fn own_descriptor(path: &str) -> Option<u64> {
    let process = with_state(|state| state.process);
    let number = match path {
        "/dev/stdin" => "0",
        "/dev/stdout" => "1",
        "/dev/stderr" => "2",
        path => {
            let rest = path.strip_prefix("/dev/fd/").or_else(|| path.strip_prefix("/proc/self/fd/"));
            rest.or_else(|| path.strip_prefix(&format!("/proc/{process}/fd/")))?
        }
    };
    number.parse().ok()
}

/// A path of the program, against a directory descriptor if it is relative.
pub fn resolved(directory: u64, path: &str) -> Result<Place, Errno> {
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    let (process, owner) = with_state(|state| (state.process, state.identity.acting()));
    if directory as i32 == AT_FDCWD || path.starts_with('/') {
        let current = with_state(|state| state.directory);
        let path = absolute(current.as_str(), path)?;
        return Ok(at_root(own_program(&path).unwrap_or(path), process, owner));
    }
    let found = description(directory)?;
    if found.kind != type_bits(Kind::Directory) {
        return Err(Errno::ENOTDIR);
    }
    if found.server == server::OWN {
        return Ok(at_root(absolute(&own_files::path_of(found.id), path)?, process, owner));
    }
    // What it may be as long as: one message carries it.
    let path = absolute("", path)?[1..].into();
    Ok(Place { server: found.server, name: Name { directory: Some(found.id), path, process, owner } })
}

fn at_root(path: String, process: u32, owner: (u32, u32)) -> Place {
    Place { server: server::FS, name: Name { directory: None, path, process, owner } }
}

/// The same from the program's memory.
pub fn named(directory: u64, path: u64) -> Result<Place, Failure> {
    Ok(resolved(directory, &user::path(path)?)?)
}

/// What F_GETFL tells of a file.
pub const KEPT: u32 = O_ACCMODE | O_APPEND | O_NONBLOCK | O_DSYNC | O_SYNC_WHOLE;

/// What O_SYNC has besides O_DSYNC has that in it.
fn with_data_sync(flags: u32) -> u32 {
    if flags & O_SYNC_WHOLE != 0 { flags | O_DSYNC } else { flags }
}

/// open, openat, creat.
pub async fn open(directory: u64, path: u64, flags: u64, permissions: u64) -> Outcome {
    let (path, flags) = (named(directory, path)?, with_data_sync(flags as u32));
    with_state(|state| state.descriptors.room(1))?;
    if let Some(own) = own_files::find(&path.name.path).filter(|_| path.name.directory.is_none()) {
        return own.open(flags).await;
    }
    let permissions = permissions as u32 & 0o7777 & !with_state(|state| state.umask as u32);
    if flags & O_TMPFILE != 0 && flags & O_PATH == 0 {
        let is_whole = flags & O_DIRECTORY != 0 && flags & O_CREAT == 0;
        return if is_whole {
            unnamed::open_temporary(path, flags, permissions).await
        } else {
            Err(Errno::EINVAL.into())
        };
    }
    let access = match flags & O_ACCMODE {
        0 => how::READ,
        O_WRONLY => how::WRITE,
        O_RDWR => how::READ | how::WRITE,
        _ => return Err(Errno::EINVAL.into()),
    };
    let pairs = [
        (O_APPEND, how::APPEND),
        (O_CREAT, how::CREATE),
        (O_EXCL, how::EXCLUSIVE),
        (O_TRUNC, how::TRUNCATE),
        (O_DIRECTORY, how::DIRECTORY),
        (O_NOFOLLOW, how::NO_FOLLOW),
    ];
    let wanted = pairs.iter().filter(|(flag, _)| flags & flag != 0).fold(access, |all, (_, bit)| all | bit);
    // Without O_CREAT, O_EXCL means nothing.
    let wanted = if flags & O_CREAT == 0 { wanted & !how::EXCLUSIVE } else { wanted };
    let names_only = flags & O_PATH != 0;
    let wanted = if names_only { wanted & (how::DIRECTORY | how::NO_FOLLOW) | how::PLACE } else { wanted };
    let turn = if wanted & how::TRUNCATE != 0 { shared_files::turn_if_active().await } else { None };
    let (mut keeper, mut opened) = at_place(path, |files, name| files.open(name, wanted, permissions)).await?;
    let close_on_exec = flags & O_CLOEXEC != 0;
    let kept = flags & if names_only { O_PATH } else { KEPT };
    if let Some(Elsewhere::Descriptor(number)) = opened.elsewhere {
        let found = description(number.into()).map_err(|_| Errno::ENOENT)?;
        if !found.is_file() {
            return duplicate(number.into(), &found, flags);
        }
        keeper = found.server;
        opened = answer(proxy().files_at(keeper)?.reopen(found.id, wanted)).await?;
    }
    if opened.elsewhere.is_none() && turn.is_some() {
        Box::pin(shared_files::cut(opened.id, 0)).await?;
    }
    let (id, server) = match opened.elsewhere {
        Some(Elsewhere::Terminal) => (TERMINAL, server::CONSOLE),
        Some(Elsewhere::Pipe(file)) => return unnamed::open_pipe(file, flags).await,
        Some(Elsewhere::Descriptors) => return own_files::Own::Descriptors.open(flags).await,
        Some(Elsewhere::Threads) => return own_files::Own::Threads.open(flags).await,
        Some(Elsewhere::Descriptor(_)) | None => (opened.id, keeper),
    };
    let made = Description { id, server, flags: kept, kind: type_bits(opened.kind), ..Description::default() };
    Ok(with_state(|state| state.descriptors.add(made, close_on_exec))?)
}

/// openat2. Of how a path is resolved, nothing can be restricted.
pub async fn open_how(directory: u64, path: u64, how_at: u64, bytes: u64) -> Outcome {
    const KNOWN_BYTES: u64 = size_of::<OpenHow>() as u64;
    /// RESOLVE_CACHED: only what is known without asking, which is nothing.
    const CACHED: u64 = 0x20;
    /// All that open knows of.
    const KNOWN: u64 = 0o37_777_703;
    if bytes < KNOWN_BYTES {
        return Err(Errno::EINVAL.into());
    }
    let how: OpenHow = user::read(how_at)?;
    let asks = |rest: &[u8]| rest.iter().any(|byte| *byte != 0);
    if bytes > PAGE || user::with_bytes(how_at.wrapping_add(KNOWN_BYTES), bytes - KNOWN_BYTES, asks)? {
        return Err(Errno::E2BIG.into());
    }
    if how.resolve == CACHED {
        return Err(Errno::EAGAIN.into());
    }
    let creates = how.flags & u64::from(O_CREAT) != 0;
    if how.resolve != 0 || how.flags & !KNOWN != 0 || how.mode & !0o7777 != 0 || how.mode != 0 && !creates {
        return Err(Errno::EINVAL.into());
    }
    open(directory, path, how.flags, how.mode).await
}

/// What is no file opens as another number for the same description, if that gives what is asked
/// for.
fn duplicate(number: u64, found: &Description, flags: u32) -> Outcome {
    if matches!(found.server, server::TCP | server::EPOLL | server::SIGNALS | server::COUNTER) {
        return Err(Errno::ENXIO.into());
    }
    let (has, wants) = (found.flags & O_ACCMODE, flags & O_ACCMODE);
    if has != O_RDWR && has != wants {
        return Err(Errno::EACCES.into());
    }
    Ok(with_state(|state| state.descriptors.duplicate(number, 0, flags & O_CLOEXEC != 0))?)
}

fn stat_of(status: &Status) -> Stat {
    let time = TimeSpec::from_ns(status.modified_ns);
    Stat {
        device: status.device,
        inode: status.inode,
        links: status.links.into(),
        mode: type_bits(status.kind) | status.permissions & 0o7777,
        user: status.user,
        group: status.group,
        special: status.special.into(),
        size: status.size,
        block_bytes: 4096,
        blocks: status.sectors,
        accessed: TimeSpec::from_ns(status.accessed_ns),
        modified: time,
        changed: time,
        ..Stat::default()
    }
}

/// What is known of a path.
pub async fn status(directory: u64, path: u64, flags: u64) -> Result<Status, Failure> {
    let text = own_files::within(directory, user::path(path)?);
    if text.is_empty() && flags & AT_EMPTY_PATH != 0 && directory as i32 != AT_FDCWD {
        return input_output::status(directory).await;
    }
    let follow = flags & AT_SYMLINK_NOFOLLOW == 0;
    if let Some(number) = own_descriptor(&text) {
        description(number).map_err(|_| Errno::ENOENT)?;
        if follow {
            return input_output::status(number).await;
        }
    }
    let is_own = text.is_empty() && flags & AT_EMPTY_PATH != 0;
    let path = resolved(directory, if is_own { "." } else { &text })?;
    // `/dev/fd` itself is a link.
    if let Some(own) = own_files::find(&path.name.path).filter(|_| follow || path.name.path.starts_with("/proc/")) {
        return Ok(own.status());
    }
    Ok(at_place(path, |files, name| files.status(name, follow)).await?.1)
}

/// Flags of the calls that tell what a file is.
const OF_STATUS: u64 = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH | AT_STATX_SYNC_TYPE;

/// stat, lstat, newfstatat.
pub async fn stat(directory: u64, path: u64, at: u64, flags: u64) -> Outcome {
    only(flags, OF_STATUS)?;
    user::write(at, &stat_of(&status(directory, path, flags).await?))?;
    Ok(0)
}

/// fstat.
pub async fn stat_descriptor(descriptor: u64, at: u64) -> Outcome {
    user::write(at, &stat_of(&input_output::status(descriptor).await?))?;
    Ok(0)
}

/// statx: all basic fields, whatever was asked for.
pub async fn statx([directory, path, flags, mask, at]: [u64; 5]) -> Outcome {
    const BASIC: u32 = 0x7ff;
    const RESERVED: u64 = 0x8000_0000;
    only(flags, OF_STATUS)?;
    if mask & RESERVED != 0 || flags & AT_STATX_SYNC_TYPE == AT_STATX_SYNC_TYPE {
        return Err(Errno::EINVAL.into());
    }
    let status = status(directory, path, flags).await?;
    let stat = stat_of(&status);
    let time = |ns: u64| StatxTime {
        seconds: (ns / 1_000_000_000) as i64,
        nanoseconds: (ns % 1_000_000_000) as u32,
        padding: 0,
    };
    let answer = Statx {
        mask: BASIC,
        block_bytes: 4096,
        links: status.links,
        user: status.user,
        group: status.group,
        mode: stat.mode as u16,
        inode: status.inode,
        size: status.size,
        blocks: stat.blocks,
        accessed: time(status.accessed_ns),
        changed: time(status.modified_ns),
        modified: time(status.modified_ns),
        special_major: status.special >> 8,
        special_minor: status.special & 0xff,
        device_minor: status.device as u32,
        ..Statx::default()
    };
    user::write(at, &answer)?;
    Ok(0)
}

/// access and faccessat: user 0 may do what exists; executing needs one x bit.
pub async fn access(directory: u64, path: u64, mode: u64, flags: u64) -> Outcome {
    const EXECUTE: u64 = 1;
    only(mode, 7)?;
    only(flags, AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)?;
    let status = status(directory, path, flags).await?;
    let executable = status.kind == Kind::Directory || status.permissions & 0o111 != 0;
    if mode & EXECUTE != 0 && !executable { Err(Errno::EACCES.into()) } else { Ok(0) }
}

/// mkdir.
pub async fn make_directory(directory: u64, path: u64, permissions: u64) -> Outcome {
    // As on Linux, set-group-ID comes from the directory above.
    let permissions = permissions as u32 & 0o1777 & !with_state(|state| state.umask as u32);
    at_place(named(directory, path)?, |files, name| files.make_directory(name, permissions)).await?;
    Ok(0)
}

/// unlinkat.
pub async fn remove_by(directory: u64, path: u64, flags: u64) -> Outcome {
    only(flags, AT_REMOVEDIR)?;
    remove(directory, path, flags & AT_REMOVEDIR != 0).await
}

/// unlink and rmdir.
pub async fn remove(directory: u64, path: u64, is_directory: bool) -> Outcome {
    at_place(named(directory, path)?, |files, name| files.remove(name, is_directory)).await?;
    Ok(0)
}

/// rename and friends.
pub async fn rename(from_directory: u64, from: u64, to_directory: u64, to: u64, flags: u64) -> Outcome {
    const NO_REPLACE: u64 = 1;
    const EXCHANGE: u64 = 2;
    let how = match flags as u32 as u64 {
        0 => Renaming::Replace,
        NO_REPLACE => Renaming::Keep,
        EXCHANGE => Renaming::Exchange,
        _ => return Err(Errno::EINVAL.into()),
    };
    let (from, to) = (named(from_directory, from)?, named(to_directory, to)?);
    let (server, from, to) = in_one_tree((from, false), to).await?;
    answer(proxy().files_at(server)?.rename(from, to, how)).await?;
    Ok(0)
}

/// link and linkat.
pub async fn link(from_directory: u64, from: u64, to_directory: u64, to: u64, flags: u64) -> Outcome {
    if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let follow = flags & AT_SYMLINK_FOLLOW != 0;
    let text = own_files::within(from_directory, user::path(from)?);
    if text.is_empty() && flags & AT_EMPTY_PATH != 0 && from_directory as i32 != AT_FDCWD {
        return unnamed::link(from_directory, to_directory, to).await;
    }
    if let Some(number) = own_descriptor(&text).filter(|_| follow) {
        return unnamed::link(number, to_directory, to).await;
    }
    let (from, to) = (resolved(from_directory, &text)?, named(to_directory, to)?);
    let (server, from, to) = in_one_tree((from, follow), to).await?;
    answer(proxy().files_at(server)?.link(from, follow, to)).await?;
    Ok(0)
}

/// symlink.
pub async fn make_link(target: u64, directory: u64, path: u64) -> Outcome {
    let (place, target) = (named(directory, path)?, user::path(target)?);
    at_place(place, |files, name| files.make_link(name, target.clone())).await?;
    Ok(0)
}

/// readlink.
pub async fn read_link(directory: u64, path: u64, buffer: u64, bytes: u64) -> Outcome {
    if bytes as i32 <= 0 {
        return Err(Errno::EINVAL.into());
    }
    let text = own_files::within(directory, user::path(path)?);
    let target = match (own_program(&text), own_descriptor(&text)) {
        (Some(program), _) => program,
        (None, Some(number)) if !text.starts_with("/dev/std") => {
            descriptor_link(&description(number).map_err(|_| Errno::ENOENT)?).await?
        }
        _ => at_place(resolved(directory, &text)?, |files, name| files.read_link(name)).await?.1,
    };
    let target = file_name::to_bytes(&target);
    let count = target.len().min(bytes as usize);
    user::copy_out(buffer, &target[..count])?;
    Ok(count as u64)
}

/// What /proc shows a descriptor to be.
async fn descriptor_link(found: &Description) -> Result<String, Failure> {
    let id = found.id;
    Ok(match found.server {
        server::FS | server::VOLUME => answer(proxy().files_at(found.server)?.path_of(id)).await?,
        server::OWN => own_files::path_of(id),
        server::PROCESS if found.kind == type_bits(Kind::Pipe) => format!("pipe:[{id}]"),
        server::PROCESS if found.kind == type_bits(Kind::Socket) => format!("socket:[{id}]"),
        server::PROCESS => "anon_inode:inode".into(),
        server::TCP => format!("socket:[{id}]"),
        server::EPOLL => "anon_inode:[eventpoll]".into(),
        server::SIGNALS => "anon_inode:[signalfd]".into(),
        server::COUNTER => "anon_inode:[eventfd]".into(),
        _ => "/dev/tty".into(),
    })
}

/// chmod, chown and the like.
pub async fn change(directory: u64, path: u64, follow: bool, change: Change) -> Outcome {
    let text = own_files::within(directory, user::path(path)?);
    if let Some(number) = own_descriptor(&text).filter(|_| follow) {
        return change_found(&description(number).map_err(|_| Errno::ENOENT)?, change).await;
    }
    at_place(resolved(directory, &text)?, |files, name| files.set_status(name, follow, change)).await?;
    Ok(0)
}

/// The same by the flags of fchownat and utimensat.
pub async fn change_by(directory: u64, path: u64, flags: u64, wanted: Change) -> Outcome {
    only(flags, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)?;
    let follow = flags & AT_SYMLINK_NOFOLLOW == 0;
    let is_own = flags & AT_EMPTY_PATH != 0 && user::path(path)?.is_empty();
    match directory as i32 {
        _ if !is_own => change(directory, path, follow, wanted).await,
        AT_FDCWD => {
            at_place(resolved(directory, ".")?, |files, name| files.set_status(name, follow, wanted)).await?;
            Ok(0)
        }
        _ => change_descriptor(directory, wanted).await,
    }
}

/// The same for a descriptor; what is no file (pipes) takes it without effect.
pub async fn change_descriptor(descriptor: u64, change: Change) -> Outcome {
    change_found(&input_output::opened(descriptor)?, change).await
}

async fn change_found(found: &Description, change: Change) -> Outcome {
    if found.is_file() {
        answer(proxy().files_at(found.server)?.change(found.id, change)).await?;
    }
    Ok(0)
}

/// umask.
pub fn set_mask(mask: u64) -> Outcome {
    Ok(with_state(|state| core::mem::replace(&mut state.umask, mask & 0o777)))
}

/// A change of permissions.
pub fn permissions(bits: u64) -> Change {
    Change { permissions: Some(bits as u32 & 0o7777), ..Change::default() }
}

/// A change of owner; -1 leaves one as it is.
pub fn owner(user: u64, group: u64) -> Change {
    let some = |id: u64| (id as u32 != u32::MAX).then_some(id as u32);
    Change { user: some(user), group: some(group), ..Change::default() }
}

/// A time that utimensat is given: `None` leaves what is there.
fn wanted_time(time: TimeSpec) -> Result<Option<u64>, Errno> {
    const NOW: i64 = 0x3fff_ffff;
    const OMIT: i64 = 0x3fff_fffe;
    match time.nanoseconds {
        NOW => Ok(Some(runtime::realtime_ns())),
        OMIT => Ok(None),
        _ => time.to_ns().map(Some).ok_or(Errno::EINVAL),
    }
}

/// Access and modification; without them, now.
fn times(both: Option<[TimeSpec; 2]>) -> Result<Change, Errno> {
    const NOW: TimeSpec = TimeSpec { seconds: 0, nanoseconds: 0x3fff_ffff };
    let [accessed, modified] = both.unwrap_or([NOW; 2]);
    Ok(Change { accessed_ns: wanted_time(accessed)?, modified_ns: wanted_time(modified)?, ..Change::default() })
}

/// utimensat.
pub async fn set_times(directory: u64, path: u64, times_at: u64, flags: u64) -> Outcome {
    let both: Option<[i64; 4]> = user::read_if(times_at)?;
    let spec = |seconds, nanoseconds| TimeSpec { seconds, nanoseconds };
    let wanted = times(both.map(|[a, b, c, d]| [spec(a, b), spec(c, d)]))?;
    if path == 0 {
        only(flags, 0)?;
        return change_descriptor(directory, wanted).await;
    }
    change_by(directory, path, flags, wanted).await
}

/// utimes and futimesat: in microseconds.
pub async fn set_times_us(directory: u64, path: u64, times_at: u64) -> Outcome {
    let both: Option<[i64; 4]> = user::read_if(times_at)?;
    let spec = |seconds, microseconds| {
        let time = TimeVal { seconds, microseconds };
        time.to_ns().map(TimeSpec::from_ns).ok_or(Errno::EINVAL)
    };
    let both = both.map(|[a, b, c, d]| Ok::<_, Errno>([spec(a, b)?, spec(c, d)?])).transpose()?;
    let wanted = times(both)?;
    if path == 0 {
        return change_descriptor(directory, wanted).await;
    }
    change(directory, path, true, wanted).await
}

/// utime: in seconds.
pub async fn set_times_s(path: u64, times_at: u64) -> Outcome {
    let both: Option<[i64; 2]> = user::read_if(times_at)?;
    let both = both.map(|both| both.map(|seconds| TimeSpec { seconds, nanoseconds: 0 }));
    change(AT_FDCWD as u64, path, true, times(both)?).await
}

/// truncate.
pub async fn truncate(path: u64, size: u64) -> Outcome {
    let path = named(AT_FDCWD as u64, path)?;
    let (server, opened) = at_place(path, |files, name| files.open(name, how::WRITE, 0)).await?;
    if opened.elsewhere.is_some() {
        return Err(Errno::EINVAL.into());
    }
    let turn = shared_files::turn_if_active().await;
    let allowed = input_output::may_resize(opened.size, size);
    let done = match allowed {
        Ok(()) => answer(proxy().server(server)?.resize(opened.id, size)).await.map_err(Failure::from),
        Err(errno) => Err(errno.into()),
    };
    if done.is_ok() && turn.is_some() {
        Box::pin(shared_files::cut(opened.id, size)).await?;
    }
    super::fd::close_id(server, opened.id);
    done.map(|()| 0)
}

/// getcwd: the length with its zero.
pub fn current(buffer: u64, bytes: u64) -> Outcome {
    let directory = with_state(|state| state.directory);
    let text = file_name::to_bytes(directory.as_str());
    let length = text.len() as u64 + 1;
    if bytes < length {
        return Err(Errno::ERANGE.into());
    }
    user::copy_out(buffer, &text)?;
    user::write(buffer.wrapping_add(text.len() as u64), &0u8)?;
    Ok(length)
}

async fn change_current(place: Place) -> Outcome {
    let path = place.name.path.clone();
    let (_, status) = at_place(place, |files, name| files.status(name, true)).await?;
    if status.kind != Kind::Directory {
        return Err(contracts::descriptions::DescriptionError::NotDirectory.errno().into());
    }
    with_state(|state| state.directory = Text::new(&clean(&path)));
    Ok(0)
}

/// chdir.
pub async fn change_directory(path: u64) -> Outcome {
    change_current(named(AT_FDCWD as u64, path)?).await
}

/// fchdir.
pub async fn change_directory_to(descriptor: u64) -> Outcome {
    let found = description(descriptor)?;
    if found.kind != type_bits(Kind::Directory) {
        return Err(Errno::ENOTDIR.into());
    }
    if found.server == server::OWN {
        with_state(|state| state.directory = Text::new(&own_files::path_of(found.id)));
        return Ok(0);
    }
    let path = answer(proxy().files_of(found.id)?.path_of(found.id)).await?;
    if path.len() > PATH_MAX {
        return Err(Errno::ENAMETOOLONG.into());
    }
    with_state(|state| state.directory = Text::new(&path));
    Ok(0)
}

/// statfs.
pub async fn file_system(path: u64, at: u64) -> Outcome {
    let place = named(AT_FDCWD as u64, path)?;
    let (_, status) = at_place(place, |files, name| files.status(name, true)).await?;
    tell_file_system(&status, at).await
}

/// fstatfs.
pub async fn file_system_of(descriptor: u64, at: u64) -> Outcome {
    let status = input_output::status(descriptor).await?;
    tell_file_system(&status, at).await
}

/// What holds a thing, by the magic numbers of statfs(2). Only the store has a size.
async fn tell_file_system(status: &Status, at: u64) -> Outcome {
    const TMPFS: u64 = 0x0102_1994;
    const PROC: u64 = 0x9fa0;
    const EXT4: u64 = 0xef53;
    const PIPEFS: u64 = 0x5049_5045;
    const SOCKFS: u64 = 0x534f_434b;
    let kind = match (status.kind, status.device) {
        (Kind::Pipe, _) => PIPEFS,
        (Kind::Socket, _) => SOCKFS,
        (Kind::File | Kind::Directory | Kind::SymbolicLink, contracts::files::PROC_DEVICE) => PROC,
        (_, contracts::files::VOLUME_DEVICE) => EXT4,
        _ => TMPFS,
    };
    let (used, free) = match kind {
        TMPFS => answer(proxy().files()?.space()).await?,
        EXT4 => answer(proxy().files_at(server::VOLUME)?.space()).await?,
        _ => (0, 0),
    };
    let told = FileSystem {
        kind,
        block_bytes: abi::PAGE_BYTES,
        blocks: used + free,
        blocks_free: free,
        blocks_available: free,
        id: status.device,
        name_bytes_max: 255,
        fragment_bytes: abi::PAGE_BYTES,
        ..FileSystem::default()
    };
    user::write(at, &told)?;
    Ok(0)
}
