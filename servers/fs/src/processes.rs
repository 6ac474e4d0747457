//! /proc: paths to texts and listings, made from what the process server says when asked.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use contracts::descriptions::{DescriptionError, Entry, Kind, Status};
use contracts::files::Elsewhere;
use contracts::process::{ProcessId, ProcessLine};
use fs_core::proc_text::{
    Machine, PROCESS_FILES, PROCESS_FOLDERS, SETTINGS, SYSTEM_FILES, Setting, inode, process_file, setting, system_file,
};

use crate::server::{Server, Target};

impl Server {
    async fn process_ids(&self) -> Vec<ProcessId> {
        let Some(processes) = &self.processes else { return Vec::new() };
        let mut all = Vec::new();
        let mut from = 0;
        while let Ok(mut some) = processes.ids(from).await {
            let Some(last) = some.last().copied() else { break };
            // A server that does not advance would hold us for ever.
            if last < from {
                break;
            }
            all.append(&mut some);
            from = last + 1;
        }
        all
    }

    /// Used and free pages of all cores that run.
    async fn machine_pages(&self) -> (u64, u64) {
        let Some(memory) = &self.memory else { return (0, 0) };
        let asked: Vec<_> = (0..self.cores).map(|core| memory.usage(core)).collect();
        let mut sum = (0, 0);
        for answer in asked {
            let (used, free) = answer.await.unwrap_or_default();
            sum = (sum.0 + used, sum.1 + free);
        }
        sum
    }

    async fn process_line(&self, id: &str) -> Result<ProcessLine, DescriptionError> {
        let id: ProcessId = id.parse().map_err(|_| DescriptionError::NotFound)?;
        let processes = self.processes.as_ref().ok_or(DescriptionError::NotFound)?;
        let line = processes.list(id).await.map_err(|_| DescriptionError::NotFound)?;
        line.filter(|line| line.process == id).ok_or(DescriptionError::NotFound)
    }

    /// What is at a path below /proc. `NotFound`, `NotDirectory`.
    pub async fn proc_target(&self, path: &str) -> Result<Target, DescriptionError> {
        let entry = |name: &str, kind| Entry { name: name.into(), inode: inode(&format!("{path}/{name}")), kind };
        let listing = |names: &[&str]| names.iter().map(|name| entry(name, Kind::File)).collect::<Vec<_>>();
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        match (parts.next(), parts.next(), parts.next()) {
            (None, ..) => {
                let mut names = listing(&SYSTEM_FILES);
                names.push(entry(SELF, Kind::SymbolicLink));
                names.push(entry(SETTINGS[0].0, Kind::Directory));
                let ids = self.process_ids().await;
                names.extend(ids.into_iter().map(|id| entry(&id.to_string(), Kind::Directory)));
                Ok(Target::Listing(path.into(), names, OF_ROOT))
            }
            (Some(name), None, _) if SYSTEM_FILES.contains(&name) => {
                let budget = self.store.borrow().budget;
                let (pages_used, pages_free) = self.machine_pages().await;
                let processes = self.process_ids().await.len() as u32;
                let machine = Machine {
                    volume: self.mount.as_ref(),
                    uptime_ns: runtime::now_ns(),
                    booted_s: runtime::realtime_ns().saturating_sub(runtime::now_ns()) / 1_000_000_000,
                    cores: self.cores,
                    processes,
                    pages_used,
                    pages_free,
                    pages_of_files: budget.used,
                };
                system_file(name, &machine)
                    .map(|text| Target::Text(path.into(), text.into_bytes(), OF_ROOT))
                    .ok_or(DescriptionError::NotFound)
            }
            (Some(name), Some(_), _) if SYSTEM_FILES.contains(&name) => Err(DescriptionError::NotDirectory),
            (Some(name), ..) if name == SETTINGS[0].0 => settings(path),
            (Some(id), None, _) => {
                let line = self.process_line(id).await?;
                let mut names = listing(&PROCESS_FILES);
                names.extend(PROCESS_FOLDERS.map(|name| entry(name, Kind::Directory)));
                Ok(Target::Listing(path.into(), names, owner(&line)))
            }
            // What is in them only the process itself knows.
            (Some(id), Some(name), None) if PROCESS_FOLDERS.contains(&name) => {
                Ok(Target::Listing(path.into(), Vec::new(), owner(&self.process_line(id).await?)))
            }
            (Some(id), Some(name), None) => {
                let line = self.process_line(id).await?;
                process_file(name, &line, self.mount.as_ref())
                    .map(|text| Target::Text(path.into(), text.into_bytes(), owner(&line)))
                    .ok_or(DescriptionError::NotFound)
            }
            _ => Err(DescriptionError::NotFound),
        }
    }
}

/// What is at a path below /proc/sys. `NotFound`.
fn settings(path: &str) -> Result<Target, DescriptionError> {
    let path = path.trim_matches('/');
    match setting(path).ok_or(DescriptionError::NotFound)? {
        Setting::File(text) => Ok(Target::Text(path.into(), text.into_bytes(), OF_ROOT)),
        Setting::Folder(within) => {
            let entry = |path: &str| {
                let kind = if matches!(setting(path), Some(Setting::File(_))) { Kind::File } else { Kind::Directory };
                Entry { name: path.rsplit('/').next().unwrap_or_default().into(), inode: inode(path), kind }
            };
            Ok(Target::Listing(path.into(), within.into_iter().map(entry).collect(), OF_ROOT))
        }
    }
}

/// The link to the asking process's own directory.
pub const SELF: &str = "self";

/// A path below /proc with the client's own process for `self` at its beginning.
pub fn own(path: &str, process: ProcessId) -> String {
    match path.strip_prefix(SELF) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{process}{rest}"),
        _ => path.into(),
    }
}

/// The descriptor that a path below /proc names, if it is one of the client's own.
pub fn own_descriptor(path: &str, process: ProcessId) -> Option<u32> {
    let (_, number) = path.split_once("/fd/").filter(|(owner, _)| *owner == process.to_string())?;
    number.parse().ok()
}

/// The folder of the client's own process that a path below /proc names, if it is one that only the
/// client can list.
pub fn own_folder(path: &str, process: ProcessId) -> Option<Elsewhere> {
    let (owner, name) = path.split_once('/')?;
    match name {
        _ if owner != process.to_string() => None,
        "fd" => Some(Elsewhere::Descriptors),
        "task" => Some(Elsewhere::Threads),
        _ => None,
    }
}

/// Whose the machine's own files are.
pub const OF_ROOT: (u32, u32) = (0, 0);

/// Whose a process's files are: as whom it acts.
fn owner(line: &ProcessLine) -> (u32, u32) {
    (line.identity.users.effective, line.identity.groups.effective)
}

/// stat of something at a path in /proc.
pub fn status(path: &str, kind: Kind, (user, group): (u32, u32)) -> Status {
    let permissions = match kind {
        Kind::Directory => 0o555,
        Kind::SymbolicLink => 0o777,
        _ => 0o444,
    };
    let now_ns = runtime::realtime_ns();
    Status {
        kind,
        permissions,
        size: 0,
        inode: inode(path),
        device: contracts::files::PROC_DEVICE,
        links: 1,
        user,
        group,
        special: 0,
        sectors: 0,
        modified_ns: now_ns,
        accessed_ns: now_ns,
    }
}

/// Whose it is.
pub fn owner_of(target: &Target) -> (u32, u32) {
    match target {
        Target::Text(.., owner) | Target::Listing(.., owner) => *owner,
        _ => OF_ROOT,
    }
}

/// What kind of thing it is.
pub fn kind(target: &Target) -> Kind {
    if matches!(target, Target::Listing(..)) { Kind::Directory } else { Kind::File }
}
