//! Calls that name paths.

use alloc::format;
use alloc::string::{String, ToString};

use contracts::descriptions::{Kind, Status, TERMINAL};
use contracts::files::{Change, open as how};
use personality::Errno;
use personality::descriptors::{Description, server};
use personality::flags::*;
use personality::layouts::{FileSystem, Stat, Statx, StatxTime, TimeSpec};
use personality::path::{absolute, clean};
use personality::state::Text;
use system::file_name;

use super::errors::{AsErrno, Failure, Outcome};
use super::input_output::{self, description};
use super::proxy::proxy;
use super::user::{self, with_state};
use super::wait::answer;

/// S_IFMT bits.
pub fn type_bits(kind: Kind) -> u32 {
    match kind {
        Kind::File => 0o100000,
        Kind::Directory => 0o040000,
        Kind::SymbolicLink => 0o120000,
        Kind::Pipe => 0o010000,
        Kind::Terminal | Kind::Device => 0o020000,
        Kind::Socket => 0o140000,
    }
}

/// /proc/self and the links to one's own program: what only the process itself knows.
pub fn own_links(path: &str) -> String {
    let (process, program) = with_state(|state| (state.process, state.program));
    let path = match path.strip_prefix("/proc/self") {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("/proc/{process}{rest}"),
        _ => path.to_string(),
    };
    if path == format!("/proc/{process}/exe") { program.as_str().into() } else { path }
}

/// A path of the program made absolute against a directory descriptor. Directory descriptors other
/// than AT_FDCWD are known by the path they were opened at.
fn full(directory: u64, path: &str) -> Result<String, Errno> {
    if directory as i32 == AT_FDCWD || path.starts_with('/') {
        let current = with_state(|state| state.directory);
        return absolute(current.as_str(), path).map(|path| own_links(&path));
    }
    let found = description(directory)?;
    if found.kind != type_bits(Kind::Directory) {
        return Err(Errno::ENOTDIR);
    }
    let opened_at = super::directories::path_of(found.id).ok_or(Errno::ENOENT)?;
    absolute(&opened_at, path).map(|path| own_links(&path))
}

/// The same from the program's memory.
pub fn named(directory: u64, path: u64) -> Result<String, Failure> {
    Ok(full(directory, &user::path(path)?)?)
}

/// open, openat, creat.
pub async fn open(directory: u64, path: u64, flags: u64, permissions: u64) -> Outcome {
    let (path, flags) = (named(directory, path)?, flags as u32);
    with_state(|state| state.descriptors.room(1))?;
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
    let permissions = permissions as u32 & 0o7777 & !with_state(|state| state.umask as u32);
    let opened = answer(proxy().files()?.open(path.clone(), wanted, permissions)).await?;
    let kept = flags & (O_ACCMODE | O_APPEND | O_NONBLOCK);
    let made = if opened.elsewhere {
        Description {
            id: TERMINAL,
            server: server::CONSOLE,
            flags: kept,
            kind: type_bits(Kind::Terminal),
            ..Description::default()
        }
    } else {
        Description {
            id: opened.id,
            server: server::FS,
            flags: kept,
            kind: type_bits(opened.kind),
            ..Description::default()
        }
    };
    if made.server == server::FS {
        super::directories::remember(made.id, &path);
    }
    Ok(with_state(|state| state.descriptors.add(made, flags & O_CLOEXEC != 0))?)
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
        blocks: status.size.div_ceil(512),
        accessed: TimeSpec::from_ns(status.accessed_ns),
        modified: time,
        changed: time,
        ..Stat::default()
    }
}

async fn status(directory: u64, path: u64, flags: u64) -> Result<Status, Failure> {
    let text = user::path(path)?;
    if text.is_empty() && flags & AT_EMPTY_PATH != 0 && directory as i32 != AT_FDCWD {
        return input_output::status(directory).await;
    }
    let path =
        if text.is_empty() && flags & AT_EMPTY_PATH != 0 { full(directory, ".")? } else { full(directory, &text)? };
    Ok(answer(proxy().files()?.status(path, flags & AT_SYMLINK_NOFOLLOW == 0)).await?)
}

/// stat, lstat, newfstatat.
pub async fn stat(directory: u64, path: u64, at: u64, flags: u64) -> Outcome {
    user::write(at, &stat_of(&status(directory, path, flags).await?))?;
    Ok(0)
}

/// fstat.
pub async fn stat_descriptor(descriptor: u64, at: u64) -> Outcome {
    user::write(at, &stat_of(&input_output::status(descriptor).await?))?;
    Ok(0)
}

/// statx: all basic fields, whatever was asked for.
pub async fn statx(directory: u64, path: u64, flags: u64, at: u64) -> Outcome {
    const BASIC: u32 = 0x7ff;
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
    let status = status(directory, path, flags).await?;
    let executable = status.kind == Kind::Directory || status.permissions & 0o111 != 0;
    if mode & EXECUTE != 0 && !executable { Err(Errno::EACCES.into()) } else { Ok(0) }
}

/// mkdir.
pub async fn make_directory(directory: u64, path: u64, permissions: u64) -> Outcome {
    let permissions = permissions as u32 & 0o7777 & !with_state(|state| state.umask as u32);
    answer(proxy().files()?.make_directory(named(directory, path)?, permissions)).await?;
    Ok(0)
}

/// unlink, rmdir, unlinkat.
pub async fn remove(directory: u64, path: u64, is_directory: bool) -> Outcome {
    answer(proxy().files()?.remove(named(directory, path)?, is_directory)).await?;
    Ok(0)
}

/// rename and friends.
pub async fn rename(from_directory: u64, from: u64, to_directory: u64, to: u64, flags: u64) -> Outcome {
    const NO_REPLACE: u64 = 1;
    if flags & !NO_REPLACE != 0 {
        return Err(Errno::EINVAL.into());
    }
    let (from, to) = (named(from_directory, from)?, named(to_directory, to)?);
    if flags & NO_REPLACE != 0 && answer(proxy().files()?.status(to.clone(), false)).await.is_ok() {
        return Err(Errno::EEXIST.into());
    }
    answer(proxy().files()?.rename(from, to)).await?;
    Ok(0)
}

/// link and linkat.
pub async fn link(from_directory: u64, from: u64, to_directory: u64, to: u64) -> Outcome {
    answer(proxy().files()?.link(named(from_directory, from)?, named(to_directory, to)?)).await?;
    Ok(0)
}

/// symlink.
pub async fn make_link(target: u64, directory: u64, path: u64) -> Outcome {
    answer(proxy().files()?.make_link(named(directory, path)?, user::path(target)?)).await?;
    Ok(0)
}

/// readlink.
pub async fn read_link(directory: u64, path: u64, buffer: u64, bytes: u64) -> Outcome {
    if bytes as i32 <= 0 {
        return Err(Errno::EINVAL.into());
    }
    let text = user::path(path)?;
    let own = with_state(|state| format!("/proc/{}/exe", state.process));
    let target = if text == "/proc/self/exe" || text == own {
        with_state(|state| String::from(state.program.as_str()))
    } else if text == "/proc/self" {
        with_state(|state| state.process).to_string()
    } else {
        answer(proxy().files()?.read_link(full(directory, &text)?)).await?
    };
    let target = file_name::to_bytes(&target);
    let count = target.len().min(bytes as usize);
    user::bytes_mut(buffer, count as u64)?.copy_from_slice(&target[..count]);
    Ok(count as u64)
}

/// chmod, chown and the like.
pub async fn change(directory: u64, path: u64, follow: bool, change: Change) -> Outcome {
    answer(proxy().files()?.set_status(named(directory, path)?, follow, change)).await?;
    Ok(0)
}

/// The same for a descriptor, by the path it was opened at; what has none (pipes) takes it without
/// effect.
pub async fn change_descriptor(descriptor: u64, change: Change) -> Outcome {
    let found = description(descriptor)?;
    if found.server == server::FS
        && let Some(path) = super::directories::path_of(found.id)
    {
        answer(proxy().files()?.set_status(path, true, change)).await?;
    }
    Ok(0)
}

/// A change of owner; -1 leaves one as it is.
pub fn owner(user: u64, group: u64) -> Change {
    let some = |id: u64| (id as u32 != u32::MAX).then_some(id as u32);
    Change { user: some(user), group: some(group), ..Change::default() }
}

/// utimensat.
pub async fn set_times(directory: u64, path: u64, times_at: u64, flags: u64) -> Outcome {
    const NOW: i64 = 0x3fff_ffff;
    const OMIT: i64 = 0x3fff_fffe;
    let both: Option<[i64; 4]> = user::read_if(times_at)?;
    let now = runtime::now_ns();
    let one = |time: TimeSpec| match time.nanoseconds {
        NOW => Ok(Some(now)),
        OMIT => Ok(None),
        _ => time.to_ns().map(Some).ok_or(Errno::EINVAL),
    };
    let wanted = match both {
        None => Change { modified_ns: Some(now), accessed_ns: Some(now), ..Change::default() },
        Some([a, b, c, d]) => Change {
            accessed_ns: one(TimeSpec { seconds: a, nanoseconds: b })?,
            modified_ns: one(TimeSpec { seconds: c, nanoseconds: d })?,
            ..Change::default()
        },
    };
    if path == 0 {
        return change_descriptor(directory, wanted).await;
    }
    change(directory, path, flags & AT_SYMLINK_NOFOLLOW == 0, wanted).await
}

/// truncate.
pub async fn truncate(path: u64, size: u64) -> Outcome {
    let path = named(AT_FDCWD as u64, path)?;
    let opened = answer(proxy().files()?.open(path, how::WRITE, 0)).await?;
    if opened.elsewhere {
        return Err(Errno::EINVAL.into());
    }
    let done = answer(proxy().server(server::FS)?.resize(opened.id, size)).await;
    super::numbers::close_id(server::FS, opened.id);
    done.map(|()| 0).map_err(Failure::from)
}

/// getcwd: the length with its zero.
pub fn current(buffer: u64, bytes: u64) -> Outcome {
    let directory = with_state(|state| state.directory);
    let text = file_name::to_bytes(directory.as_str());
    let length = text.len() as u64 + 1;
    if bytes < length {
        return Err(Errno::ERANGE.into());
    }
    let into = user::bytes_mut(buffer, length)?;
    into[..text.len()].copy_from_slice(&text);
    into[text.len()] = 0;
    Ok(length)
}

async fn change_current(path: String) -> Outcome {
    let status = answer(proxy().files()?.status(path.clone(), true)).await?;
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
    change_current(full(descriptor, ".")?).await
}

/// statfs.
pub async fn file_system(path: u64, at: u64) -> Outcome {
    let status = answer(proxy().files()?.status(named(AT_FDCWD as u64, path)?, true)).await?;
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
    const PIPEFS: u64 = 0x5049_5045;
    const SOCKFS: u64 = 0x534f_434b;
    let kind = match (status.kind, status.device) {
        (Kind::Pipe, _) => PIPEFS,
        (Kind::Socket, _) => SOCKFS,
        (Kind::File | Kind::Directory, contracts::files::PROC_DEVICE) => PROC,
        _ => TMPFS,
    };
    let (used, free) = if kind == TMPFS { answer(proxy().files()?.space()).await? } else { (0, 0) };
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
