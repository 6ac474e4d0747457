//! What of /proc only the process itself knows: its descriptors and its threads.
//!
//! Directories are answered here, by a description that no server has; the text of a file is put
//! into one without a name.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use contracts::descriptions::{Kind, Status};
use contracts::files::PROC_DEVICE;
use personality::Errno;
use personality::descriptors::{Description, server};
use personality::flags::*;
use personality::layouts::{EntryForm, directory_entry};

use super::errors::Outcome;
use super::files::type_bits;
use super::user::{self, with_state};
use super::{threads, unnamed};

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// `fd`.
    Descriptors,
    /// `task`.
    Threads,
    /// A thread's directory there.
    Thread(u64),
    /// Its name, as a file.
    ThreadName(u64),
}

/// Descriptions of directories have these ids; of a thread's, it is the thread's.
const DESCRIPTORS: u64 = 0;
const THREADS: u64 = u64::MAX;
/// Places of `.` and `..`, and the first after them.
const FIRST_PLACE: u64 = 3;
const NAME_FILE: &str = "comm";

/// What an absolute path names, if it is one of those.
pub fn find(path: &str) -> Option<Own> {
    let process = with_state(|state| state.process);
    if path.trim_end_matches('/') == "/dev/fd" {
        return Some(Own::Descriptors);
    }
    let rest = path.strip_prefix("/proc/")?;
    let rest = rest.strip_prefix("self/").or_else(|| rest.strip_prefix(&format!("{process}/")))?;
    let mut parts = rest.split('/').filter(|part| !matches!(*part, "" | "."));
    let parts = [parts.next(), parts.next(), parts.next(), parts.next()];
    let thread = |id: &str| id.parse().ok().filter(|id| threads::exists(*id));
    match parts {
        [Some("fd"), None, ..] => Some(Own::Descriptors),
        [Some("task"), None, ..] => Some(Own::Threads),
        [Some("task"), Some(id), None, _] => thread(id).map(Own::Thread),
        [Some("task"), Some(id), Some(NAME_FILE), None] => thread(id).map(Own::ThreadName),
        [Some(NAME_FILE), None, ..] => Some(Own::ThreadName(process.into())),
        _ => None,
    }
}

impl Own {
    fn id(self) -> u64 {
        match self {
            Own::Descriptors => DESCRIPTORS,
            Own::Threads => THREADS,
            Own::Thread(id) | Own::ThreadName(id) => id,
        }
    }

    /// As stat tells it.
    pub fn status(self) -> Status {
        let (process, (user, group)) = with_state(|state| (state.process, state.identity.acting()));
        let now_ns = runtime::realtime_ns();
        let is_name = matches!(self, Own::ThreadName(_));
        Status {
            kind: if is_name { Kind::File } else { Kind::Directory },
            permissions: if is_name { 0o644 } else { 0o555 },
            size: 0,
            // Beyond all that the file server gives.
            inode: 1 << 62 | u64::from(process) << 32 | u64::from(is_name) << 31 | self.id() & 0x7fff_ffff,
            device: PROC_DEVICE,
            links: if is_name { 1 } else { 2 },
            user,
            group,
            special: 0,
            sectors: 0,
            modified_ns: now_ns,
            accessed_ns: now_ns,
        }
    }

    /// Opens it to be read. `EISDIR` and `EACCES` for who would write.
    pub async fn open(self, flags: u32) -> Outcome {
        let close_on_exec = flags & O_CLOEXEC != 0;
        let names_only = flags & O_PATH != 0;
        let writes = !names_only && flags & O_ACCMODE != 0;
        if let Own::ThreadName(id) = self {
            if flags & O_DIRECTORY != 0 {
                return Err(Errno::ENOTDIR.into());
            }
            if writes {
                return Err(Errno::EACCES.into());
            }
            let name = threads::name_of(id).ok_or(Errno::ENOENT)?;
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            let text = [&name[..end], b"\n"].concat();
            return unnamed::with_bytes(NAME_FILE, &text, close_on_exec).await;
        }
        if writes || flags & O_CREAT != 0 {
            return Err(Errno::EISDIR.into());
        }
        let made = Description {
            id: self.id(),
            server: server::OWN,
            flags: flags & (O_NONBLOCK | O_PATH),
            kind: type_bits(Kind::Directory),
            ..Description::default()
        };
        Ok(with_state(|state| state.descriptors.add(made, close_on_exec))?)
    }
}

fn of(id: u64) -> Own {
    match id {
        DESCRIPTORS => Own::Descriptors,
        THREADS => Own::Threads,
        id => Own::Thread(id),
    }
}

/// What is known of a description of these.
pub fn status_of(id: u64) -> Status {
    of(id).status()
}

/// Where such a directory is.
pub fn path_of(id: u64) -> String {
    let process = with_state(|state| state.process);
    match of(id) {
        Own::Descriptors => format!("/proc/{process}/fd"),
        Own::Threads => format!("/proc/{process}/task"),
        Own::Thread(id) | Own::ThreadName(id) => format!("/proc/{process}/task/{id}"),
    }
}

/// The path that a program means by one relative to a directory, if that is one of these.
pub fn within(directory: u64, path: String) -> String {
    let found = with_state(|state| state.descriptors.get(directory).copied());
    match found {
        Ok(found) if found.server == server::OWN && !path.starts_with('/') && directory as i32 != AT_FDCWD => {
            format!("{}/{path}", path_of(found.id))
        }
        _ => path,
    }
}

/// What is in a directory from a place on: place, name and kind of each.
fn names(id: u64, from: u64) -> Vec<(u64, String, Kind)> {
    let mut all = Vec::from([(1, ".".into(), Kind::Directory), (2, "..".into(), Kind::Directory)]);
    match of(id) {
        Own::Descriptors => {
            let mut next = from.saturating_sub(FIRST_PLACE);
            while let Some(number) = with_state(|state| state.descriptors.next_open(next)) {
                all.push((number + FIRST_PLACE, number.to_string(), Kind::SymbolicLink));
                next = number + 1;
            }
        }
        Own::Threads => {
            let ids = threads::ids();
            all.extend((FIRST_PLACE..).zip(ids).map(|(place, id)| (place, id.to_string(), Kind::Directory)));
        }
        Own::Thread(_) | Own::ThreadName(_) => all.push((FIRST_PLACE, NAME_FILE.into(), Kind::File)),
    }
    all.retain(|(place, ..)| *place > from);
    all
}

/// getdents64 and getdents; the place is that of the last one that was told.
pub fn entries(descriptor: u64, found: &Description, (buffer, limit): (u64, usize), form: EntryForm) -> Outcome {
    let all = names(found.id, found.cookie);
    let own = status_of(found.id).inode;
    let (mut packed, mut last) = (Vec::new(), found.cookie);
    for (place, name, kind) in &all {
        if !directory_entry(&mut packed, limit, (own + place, *place, (type_bits(*kind) >> 12) as u8), name, form) {
            break;
        }
        last = *place;
    }
    if packed.is_empty() && !all.is_empty() {
        return Err(Errno::EINVAL.into());
    }
    user::copy_out(buffer, &packed)?;
    with_state(|state| state.descriptors.get_mut(descriptor).map(|found| found.cookie = last))?;
    Ok(packed.len() as u64)
}
