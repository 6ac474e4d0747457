//! The `files` contract.

use alloc::string::String;

use channel::Peer;
use contracts::descriptions::{DescriptionError, Kind, Status};
use contracts::files::{Change, FilesServer, Opened, open};
use fs_core::data::Data;
use fs_core::store::{Content, InodeId};
use fs_core::walk::{Located, Walked, walk};

use crate::processes;
use crate::server::{Server, Target};

/// Longest target of a symbolic link: it must fit an answer.
const LINK_BYTES_MAX: usize = 700;

impl Server {
    fn walk(&self, path: &str, follow: bool) -> Result<Walked, DescriptionError> {
        walk(&self.store.borrow(), path, follow)
    }

    /// Directory and name for making something: nothing may be there. `Exists`, `Denied` in /proc.
    fn vacant(&self, path: &str, directory_wanted: bool) -> Result<(InodeId, String), DescriptionError> {
        let walked = self.walk(path, false)?;
        match walked.place {
            Located::Vacant { directory, name } if directory_wanted || !walked.wants_directory => Ok((directory, name)),
            Located::Vacant { .. } => Err(DescriptionError::NotFound),
            Located::Inode(_) => Err(DescriptionError::Exists),
            Located::Processes(_) => Err(DescriptionError::Denied),
        }
    }

    /// Directory and name of something that is there.
    fn named(&self, path: &str) -> Result<(InodeId, String), DescriptionError> {
        let walked = self.walk(path, false)?;
        match walked.place {
            Located::Inode(_) => walked.name.ok_or(DescriptionError::Invalid),
            Located::Vacant { .. } => Err(DescriptionError::NotFound),
            Located::Processes(_) => Err(DescriptionError::Denied),
        }
    }

    fn inode(&self, path: &str, follow: bool) -> Result<InodeId, DescriptionError> {
        match self.walk(path, follow)?.place {
            Located::Inode(inode) => Ok(inode),
            Located::Vacant { .. } => Err(DescriptionError::NotFound),
            Located::Processes(_) => Err(DescriptionError::Denied),
        }
    }

    fn open_inode(&self, peer: &Peer, inode: InodeId, flags: u32) -> Result<Opened, DescriptionError> {
        let status = self.store.borrow().status(inode)?;
        let wants = |flag| flags & flag != 0;
        let target = match status.kind {
            Kind::Terminal => return Ok(Opened { id: 0, kind: Kind::Terminal, size: 0, elsewhere: true }),
            Kind::SymbolicLink => return Err(DescriptionError::Loop),
            Kind::Directory if wants(open::WRITE) || wants(open::TRUNCATE) => {
                return Err(DescriptionError::IsDirectory);
            }
            Kind::Directory => Target::Inode(inode),
            _ if wants(open::DIRECTORY) => return Err(DescriptionError::NotDirectory),
            Kind::Device => Target::Device(inode, status.special & 0xff),
            _ => {
                if wants(open::TRUNCATE) && wants(open::WRITE) {
                    self.store.borrow_mut().resize(inode, 0, runtime::now_ns())?;
                }
                Target::Inode(inode)
            }
        };
        let id = self.add(peer, target, flags)?;
        let size = self.store.borrow().status(inode)?.size;
        Ok(Opened { id, kind: status.kind, size, elsewhere: false })
    }

    fn create_and_open(
        &self,
        peer: &Peer,
        path: &str,
        flags: u32,
        permissions: u32,
    ) -> Result<Opened, DescriptionError> {
        let exclusive = flags & open::EXCLUSIVE != 0;
        let walked = self.walk(path, !exclusive && flags & open::NO_FOLLOW == 0)?;
        match walked.place {
            Located::Vacant { directory, name } => {
                if walked.wants_directory {
                    return Err(DescriptionError::IsDirectory);
                }
                let inode = self.store.borrow_mut().create(
                    directory,
                    &name,
                    Content::File(Data::default()),
                    permissions,
                    runtime::now_ns(),
                )?;
                self.open_inode(peer, inode, flags)
            }
            Located::Inode(_) if exclusive => Err(DescriptionError::Exists),
            Located::Inode(inode) => self.open_inode(peer, inode, flags),
            Located::Processes(_) => Err(DescriptionError::Denied),
        }
    }
}

impl FilesServer for Server {
    async fn open(&self, peer: &Peer, path: String, flags: u32, permissions: u32) -> Result<Opened, DescriptionError> {
        match self.walk(&path, flags & open::NO_FOLLOW == 0)?.place {
            Located::Processes(rest) => {
                if flags & open::WRITE != 0 {
                    return Err(DescriptionError::Denied);
                }
                let target = self.proc_target(&rest).await?;
                let kind = processes::status(&target).kind;
                if flags & open::DIRECTORY != 0 && kind != Kind::Directory {
                    return Err(DescriptionError::NotDirectory);
                }
                Ok(Opened { id: self.add(peer, target, flags)?, kind, size: 0, elsewhere: false })
            }
            _ if flags & open::CREATE != 0 => self.create_and_open(peer, &path, flags, permissions),
            Located::Inode(inode) => self.open_inode(peer, inode, flags),
            Located::Vacant { .. } => Err(DescriptionError::NotFound),
        }
    }

    async fn status(&self, _peer: &Peer, path: String, follow: bool) -> Result<Status, DescriptionError> {
        match self.walk(&path, follow)?.place {
            Located::Inode(inode) => self.store.borrow().status(inode),
            Located::Vacant { .. } => Err(DescriptionError::NotFound),
            Located::Processes(rest) => Ok(processes::status(&self.proc_target(&rest).await?)),
        }
    }

    async fn set_status(
        &self,
        _peer: &Peer,
        path: String,
        follow: bool,
        change: Change,
    ) -> Result<(), DescriptionError> {
        let inode = self.inode(&path, follow)?;
        self.store.borrow_mut().change(inode, &change)
    }

    async fn make_directory(&self, _peer: &Peer, path: String, permissions: u32) -> Result<(), DescriptionError> {
        let (directory, name) = self.vacant(&path, true)?;
        self.store.borrow_mut().make_directory(directory, &name, permissions, runtime::now_ns()).map(drop)
    }

    async fn make_link(&self, _peer: &Peer, path: String, target: String) -> Result<(), DescriptionError> {
        if target.is_empty() {
            return Err(DescriptionError::NotFound);
        }
        if target.len() > LINK_BYTES_MAX {
            return Err(DescriptionError::NameTooLong);
        }
        let (directory, name) = self.vacant(&path, false)?;
        self.store.borrow_mut().create(directory, &name, Content::Link(target), 0o777, runtime::now_ns()).map(drop)
    }

    async fn link(&self, _peer: &Peer, existing: String, path: String) -> Result<(), DescriptionError> {
        let inode = self.inode(&existing, false)?;
        let (directory, name) = self.vacant(&path, false)?;
        self.store.borrow_mut().link(inode, directory, &name, runtime::now_ns())
    }

    async fn read_link(&self, _peer: &Peer, path: String) -> Result<String, DescriptionError> {
        match self.walk(&path, false)?.place {
            Located::Inode(inode) => match &self.store.borrow().get(inode)?.content {
                Content::Link(target) => Ok(target.clone()),
                _ => Err(DescriptionError::Invalid),
            },
            Located::Vacant { .. } => Err(DescriptionError::NotFound),
            Located::Processes(rest) => self.proc_target(&rest).await.and(Err(DescriptionError::Invalid)),
        }
    }

    async fn remove(&self, _peer: &Peer, path: String, directory: bool) -> Result<(), DescriptionError> {
        let (at, name) = self.named(&path)?;
        self.store.borrow_mut().remove(at, &name, directory, runtime::now_ns())
    }

    async fn rename(&self, _peer: &Peer, from: String, to: String) -> Result<(), DescriptionError> {
        let (from_at, from_name) = self.named(&from)?;
        let walked = self.walk(&to, false)?;
        if matches!(walked.place, Located::Processes(_)) {
            return Err(DescriptionError::CrossDevice);
        }
        let (to_at, to_name) = walked.name.ok_or(DescriptionError::Invalid)?;
        self.store.borrow_mut().rename((from_at, &from_name), (to_at, &to_name), runtime::now_ns())
    }

    async fn space(&self, _peer: &Peer) -> Result<(u64, u64), DescriptionError> {
        let budget = self.store.borrow().budget;
        Ok((budget.used, budget.limit - budget.used))
    }

    fn peer_closed(&self, peer: &Peer) {
        self.forget(peer);
    }

    fn peer_restarted(&self, peer: &Peer) {
        self.forget(peer);
    }
}
