//! The `files` contract.

use alloc::format;
use alloc::string::{String, ToString};

use channel::Peer;
use contracts::descriptions::{DescriptionError, DescriptionId, Kind, Status};
use contracts::files::{
    Beyond, Change, Elsewhere, FilesServer, Lock, Name, Opened, PathError, Renaming, Tree, Unnamed, open,
};
use fs_core::data::Data;
use fs_core::store::{Content, InodeId, ROOT};
use fs_core::walk::{Located, Walked, walk, walk_from};
use open_files::Server as _;

use crate::processes;
use crate::server::{Server, Target};

/// Longest target of a symbolic link: it must fit an answer.
const LINK_BYTES_MAX: usize = 700;

impl Server {
    /// Walks a path to its end in this tree. The place where the volume is counts as such only if
    /// `is_mount_meant`; else that is the volume's root.
    fn walk(&self, peer: &Peer, name: &Name, follow: bool, is_mount_meant: bool) -> Result<Walked, PathError> {
        let walked = self.walk_in_tree(peer, name, follow)?;
        match walked.place {
            Located::Beyond(path) if !is_mount_meant || walked.name.is_none() => {
                Err(PathError::Beyond(Beyond { tree: Tree::Volume, path }))
            }
            _ => Ok(walked),
        }
    }

    fn walk_in_tree(&self, peer: &Peer, name: &Name, follow: bool) -> Result<Walked, DescriptionError> {
        let store = self.store.borrow();
        let mut walked = match name.directory {
            None => walk(&store, &name.path, follow)?,
            Some(id) => {
                let start = self.with(peer, id, |open| match &open.target {
                    Target::Inode(inode) => Ok(Located::Inode(*inode)),
                    Target::Listing(path, ..) => Ok(Located::Processes(path.clone())),
                    _ => Err(DescriptionError::NotDirectory),
                })?;
                walk_from(&store, &start, &name.path, follow)?
            }
        };
        if let Located::Processes(path) = &mut walked.place
            && (follow || path != processes::SELF)
        {
            *path = processes::own(path, name.process);
        }
        Ok(walked)
    }

    /// Directory and name for making something: nothing may be there. `Exists`, `Denied` in /proc.
    fn vacant(&self, peer: &Peer, path: &Name, directory_wanted: bool) -> Result<(InodeId, String), PathError> {
        let walked = self.walk(peer, path, false, true)?;
        Err(match walked.place {
            Located::Vacant { directory, name } if directory_wanted || !walked.wants_directory => {
                return Ok((directory, name));
            }
            Located::Vacant { .. } => DescriptionError::NotFound,
            Located::Inode(_) | Located::Beyond(_) => DescriptionError::Exists,
            Located::Processes(_) => DescriptionError::Denied,
        }
        .into())
    }

    /// Directory and name of something that is there.
    fn named(&self, peer: &Peer, path: &Name) -> Result<(InodeId, String), PathError> {
        let walked = self.walk(peer, path, false, true)?;
        match walked.place {
            Located::Inode(_) | Located::Beyond(_) => Ok(walked.name.ok_or(DescriptionError::Invalid)?),
            Located::Vacant { .. } => Err(DescriptionError::NotFound.into()),
            Located::Processes(_) => Err(DescriptionError::Denied.into()),
        }
    }

    fn inode(&self, peer: &Peer, path: &Name, follow: bool) -> Result<InodeId, PathError> {
        match self.walk(peer, path, follow, false)?.place {
            Located::Inode(inode) => Ok(inode),
            Located::Vacant { .. } | Located::Beyond(_) => Err(DescriptionError::NotFound.into()),
            Located::Processes(_) => Err(DescriptionError::Denied.into()),
        }
    }

    fn open_inode(&self, peer: &Peer, inode: InodeId, flags: u32) -> Result<Opened, DescriptionError> {
        let status = self.store.borrow().status(inode)?;
        let wants = |flag| flags & flag != 0;
        let target = match status.kind {
            Kind::Terminal => return Ok(elsewhere(Kind::Terminal, Elsewhere::Terminal)),
            Kind::SymbolicLink if !wants(open::PLACE) => return Err(DescriptionError::Loop),
            Kind::Socket if !wants(open::PLACE) => return Err(DescriptionError::NoDevice),
            Kind::Directory if wants(open::WRITE) || wants(open::TRUNCATE) => {
                return Err(DescriptionError::IsDirectory);
            }
            Kind::Directory => Target::Inode(inode),
            _ if wants(open::DIRECTORY) => return Err(DescriptionError::NotDirectory),
            Kind::Device => Target::Device(inode, status.special & 0xff),
            Kind::Pipe if !wants(open::PLACE) => return Ok(elsewhere(Kind::Pipe, Elsewhere::Pipe(inode))),
            _ => {
                if wants(open::TRUNCATE) && wants(open::WRITE) {
                    self.set_size(peer, inode, 0)?;
                }
                Target::Inode(inode)
            }
        };
        let id = self.add(peer, target, flags)?;
        let Status { size, permissions, .. } = self.store.borrow().status(inode)?;
        Ok(Opened { id, kind: status.kind, size, permissions, elsewhere: None })
    }

    /// Makes what a client asked for by that path; it is whose the client acts as.
    fn create(
        &self,
        directory: InodeId,
        name: &str,
        asked: &Name,
        content: Content,
        permissions: u32,
    ) -> Result<InodeId, DescriptionError> {
        let mut store = self.store.borrow_mut();
        let inode = store.create(directory, name, content, permissions, runtime::realtime_ns())?;
        store.assign_owner(inode, directory, asked.owner);
        Ok(inode)
    }

    fn create_and_open(&self, peer: &Peer, path: &Name, flags: u32, permissions: u32) -> Result<Opened, PathError> {
        let exclusive = flags & open::EXCLUSIVE != 0;
        let walked = self.walk(peer, path, !exclusive && flags & open::NO_FOLLOW == 0, false)?;
        let opened = match walked.place {
            Located::Vacant { directory, name } => {
                if walked.wants_directory {
                    return Err(DescriptionError::IsDirectory.into());
                }
                let inode = self.create(directory, &name, path, Content::File(Data::default()), permissions)?;
                self.open_inode(peer, inode, flags)
            }
            Located::Inode(_) if exclusive => Err(DescriptionError::Exists),
            Located::Inode(inode) => self.open_inode(peer, inode, flags),
            Located::Processes(_) | Located::Beyond(_) => Err(DescriptionError::Denied),
        }?;
        self.call_opened(peer, &opened, walked.name);
        Ok(opened)
    }

    /// Keeps by what name a description was opened.
    fn call_opened(&self, peer: &Peer, opened: &Opened, name: Option<(InodeId, String)>) {
        // What is elsewhere has no description here.
        let _ = self.with(peer, opened.id, |open| {
            open.name = name;
            Ok(())
        });
    }

    /// Directory and name of a file that has none.
    fn place_of_unnamed(&self, peer: &Peer, place: &Name, purpose: Unnamed) -> Result<(InodeId, String), PathError> {
        if let Unnamed::Memory { .. } = purpose {
            return Ok((ROOT, place.path.clone()));
        }
        let directory = self.inode(peer, place, true)?;
        let store = self.store.borrow();
        store.names(directory)?;
        if store.status(directory)?.links == 0 {
            return Err(DescriptionError::NotFound.into());
        }
        // No name of a file begins so that was not chosen to.
        Ok((directory, "#".into()))
    }
}

fn elsewhere(kind: Kind, elsewhere: Elsewhere) -> Opened {
    Opened { id: 0, kind, size: 0, permissions: 0, elsewhere: Some(elsewhere) }
}

impl FilesServer for Server {
    async fn open(&self, peer: &Peer, path: Name, flags: u32, permissions: u32) -> Result<Opened, PathError> {
        let walked = self.walk(peer, &path, flags & open::NO_FOLLOW == 0, false)?;
        match walked.place {
            Located::Processes(rest) => {
                if let Some(own) = processes::own_folder(&rest, path.process) {
                    return Ok(elsewhere(Kind::Directory, own));
                }
                if let Some(number) = processes::own_descriptor(&rest, path.process) {
                    return Ok(elsewhere(Kind::File, Elsewhere::Descriptor(number)));
                }
                if flags & open::WRITE != 0 {
                    return Err(DescriptionError::Denied.into());
                }
                if rest == processes::SELF {
                    return Err(DescriptionError::Loop.into());
                }
                let target = self.proc_target(&rest).await?;
                let kind = processes::kind(&target);
                if flags & open::DIRECTORY != 0 && kind != Kind::Directory {
                    return Err(DescriptionError::NotDirectory.into());
                }
                Ok(Opened { id: self.add(peer, target, flags)?, kind, size: 0, permissions: 0, elsewhere: None })
            }
            _ if flags & open::CREATE != 0 => self.create_and_open(peer, &path, flags, permissions),
            Located::Inode(inode) => {
                let opened = self.open_inode(peer, inode, flags)?;
                self.call_opened(peer, &opened, walked.name);
                Ok(opened)
            }
            Located::Vacant { .. } | Located::Beyond(_) => Err(DescriptionError::NotFound.into()),
        }
    }

    async fn locate(&self, peer: &Peer, path: Name, follow: bool) -> Result<(), PathError> {
        self.walk(peer, &path, follow, true).map(drop)
    }

    async fn status(&self, peer: &Peer, path: Name, follow: bool) -> Result<Status, PathError> {
        match self.walk(peer, &path, follow, false)?.place {
            Located::Inode(inode) => Ok(self.store.borrow().status(inode)?),
            Located::Vacant { .. } | Located::Beyond(_) => Err(DescriptionError::NotFound.into()),
            Located::Processes(rest)
                if rest == processes::SELF || processes::own_descriptor(&rest, path.process).is_some() =>
            {
                Ok(processes::status(&rest, Kind::SymbolicLink, processes::OF_ROOT))
            }
            Located::Processes(rest) => {
                let target = self.proc_target(&rest).await?;
                Ok(processes::status(&rest, processes::kind(&target), processes::owner_of(&target)))
            }
        }
    }

    async fn set_status(&self, peer: &Peer, path: Name, follow: bool, change: Change) -> Result<(), PathError> {
        let inode = self.inode(peer, &path, follow)?;
        Ok(self.store.borrow_mut().change(inode, &change)?)
    }

    async fn make_directory(&self, peer: &Peer, path: Name, permissions: u32) -> Result<(), PathError> {
        let (directory, name) = self.vacant(peer, &path, true)?;
        self.create(directory, &name, &path, Content::empty_directory(directory), permissions)?;
        Ok(())
    }

    async fn make_link(&self, peer: &Peer, path: Name, target: String) -> Result<(), PathError> {
        if target.is_empty() {
            return Err(DescriptionError::NotFound.into());
        }
        if target.len() > LINK_BYTES_MAX {
            return Err(DescriptionError::NameTooLong.into());
        }
        let (directory, name) = self.vacant(peer, &path, false)?;
        self.create(directory, &name, &path, Content::Link(target), 0o777)?;
        Ok(())
    }

    async fn make_socket(&self, peer: &Peer, path: Name, permissions: u32) -> Result<u64, PathError> {
        let (directory, name) = self.vacant(peer, &path, false)?;
        Ok(self.create(directory, &name, &path, Content::Socket, permissions)?)
    }

    async fn make_pipe(&self, peer: &Peer, path: Name, permissions: u32) -> Result<(), PathError> {
        let (directory, name) = self.vacant(peer, &path, false)?;
        self.create(directory, &name, &path, Content::Pipe, permissions)?;
        Ok(())
    }

    async fn open_unnamed(
        &self,
        peer: &Peer,
        place: Name,
        flags: u32,
        permissions: u32,
        purpose: Unnamed,
    ) -> Result<Opened, PathError> {
        let (directory, name) = self.place_of_unnamed(peer, &place, purpose)?;
        self.room(peer)?;
        let inode = {
            let mut store = self.store.borrow_mut();
            let inode = store.open_unnamed(permissions, purpose, runtime::realtime_ns())?;
            store.assign_owner(inode, directory, place.owner);
            inode
        };
        let id = self.open.table.borrow_mut().add(peer, Target::Inode(inode), flags);
        let name = if let Unnamed::Temporary { .. } = purpose { format!("{name}{inode}") } else { name };
        let opened = Opened { id, kind: Kind::File, size: 0, permissions, elsewhere: None };
        self.call_opened(peer, &opened, Some((directory, name)));
        Ok(opened)
    }

    async fn link_opened(&self, peer: &Peer, id: DescriptionId, path: Name) -> Result<(), PathError> {
        let inode = self.with(peer, id, |open| match open.target {
            Target::Inode(inode) | Target::Device(inode, _) => Ok(inode),
            _ => Err(DescriptionError::CrossDevice),
        })?;
        let (directory, name) = self.vacant(peer, &path, false)?;
        Ok(self.store.borrow_mut().link(inode, directory, &name, runtime::realtime_ns())?)
    }

    async fn seals(&self, peer: &Peer, id: DescriptionId) -> Result<u32, DescriptionError> {
        self.with(peer, id, |open| match open.target {
            Target::Inode(inode) => self.store.borrow().seals(inode),
            _ => Err(DescriptionError::Invalid),
        })
    }

    async fn add_seals(&self, peer: &Peer, id: DescriptionId, seals: u32) -> Result<(), DescriptionError> {
        self.seal(peer, id, seals)
    }

    async fn link(&self, peer: &Peer, existing: Name, follow: bool, path: Name) -> Result<(), PathError> {
        let inode = self.inode(peer, &existing, follow)?;
        let (directory, name) = self.vacant(peer, &path, false)?;
        Ok(self.store.borrow_mut().link(inode, directory, &name, runtime::realtime_ns())?)
    }

    async fn read_link(&self, peer: &Peer, path: Name) -> Result<String, PathError> {
        match self.walk(peer, &path, false, false)?.place {
            Located::Inode(inode) => match &self.store.borrow().get(inode)?.content {
                Content::Link(target) => Ok(target.clone()),
                _ => Err(DescriptionError::Invalid.into()),
            },
            Located::Vacant { .. } | Located::Beyond(_) => Err(DescriptionError::NotFound.into()),
            Located::Processes(rest) if rest == processes::SELF => Ok(path.process.to_string()),
            Located::Processes(rest) => {
                self.proc_target(&rest).await?;
                Err(DescriptionError::Invalid.into())
            }
        }
    }

    async fn remove(&self, peer: &Peer, path: Name, directory: bool) -> Result<(), PathError> {
        let (at, name) = self.named(peer, &path)?;
        Ok(self.store.borrow_mut().remove(at, &name, directory, runtime::realtime_ns())?)
    }

    async fn rename(&self, peer: &Peer, from: Name, to: Name, how: Renaming) -> Result<(), PathError> {
        let (from_at, from_name) = self.named(peer, &from)?;
        let walked = self.walk(peer, &to, false, true)?;
        if matches!(walked.place, Located::Processes(_)) {
            return Err(DescriptionError::CrossDevice.into());
        }
        let (to_at, to_name) = walked.name.ok_or(DescriptionError::Invalid)?;
        self.store.borrow_mut().rename((from_at, &from_name), (to_at, &to_name), how, runtime::realtime_ns())?;
        Ok(())
    }

    async fn space(&self, _peer: &Peer) -> Result<(u64, u64), DescriptionError> {
        let budget = self.store.borrow().budget;
        Ok((budget.used, budget.limit - budget.used))
    }

    /// Nothing here outlives the machine.
    async fn synchronize(&self, peer: &Peer, id: DescriptionId, _whole: bool) -> Result<(), DescriptionError> {
        self.with(peer, id, |_| Ok(()))
    }

    async fn synchronize_all(&self, peer: &Peer, asking: Option<DescriptionId>) -> Result<(), DescriptionError> {
        asking.map_or(Ok(()), |id| self.with(peer, id, |_| Ok(())))
    }

    async fn reopen(&self, peer: &Peer, id: DescriptionId, flags: u32) -> Result<Opened, DescriptionError> {
        let (target, name) = self.with(peer, id, |open| Ok((open.target.clone(), open.name.clone())))?;
        if let Target::Inode(inode) | Target::Device(inode, _) = target {
            let opened = self.open_inode(peer, inode, flags)?;
            self.call_opened(peer, &opened, name);
            return Ok(opened);
        }
        if flags & open::WRITE != 0 {
            return Err(DescriptionError::Denied);
        }
        let kind = processes::kind(&target);
        Ok(Opened { id: self.add(peer, target, flags)?, kind, size: 0, permissions: 0, elsewhere: None })
    }

    async fn change(&self, peer: &Peer, id: DescriptionId, change: Change) -> Result<(), DescriptionError> {
        let inode = self.with(peer, id, |open| match open.target {
            Target::Inode(inode) | Target::Device(inode, _) => Ok(inode),
            _ => Err(DescriptionError::Denied),
        })?;
        self.store.borrow_mut().change(inode, &change)
    }

    async fn set_append(&self, peer: &Peer, id: DescriptionId, appends: bool) -> Result<(), DescriptionError> {
        self.with(peer, id, |open| {
            open.appends = appends;
            Ok(())
        })
    }

    async fn path_of(&self, peer: &Peer, id: DescriptionId) -> Result<String, DescriptionError> {
        self.with(peer, id, |open| match &open.target {
            Target::Inode(inode) | Target::Device(inode, _) => {
                let store = self.store.borrow();
                match (store.path_of(*inode), &open.name) {
                    (Err(DescriptionError::NotDirectory), Some((directory, name))) => {
                        Ok(store.path_by((*directory, name), *inode))
                    }
                    (path, _) => path,
                }
            }
            Target::Listing(path, ..) | Target::Text(path, ..) => {
                Ok(format!("/proc/{path}").trim_end_matches('/').into())
            }
        })
    }

    async fn lock(&self, peer: &Peer, id: DescriptionId, lock: Lock, wait: bool) -> Result<(), DescriptionError> {
        self.open.lock(peer, id, &lock, wait, |inode, lock| self.may_map(inode, lock)).await
    }

    async fn blocking_lock(
        &self,
        peer: &Peer,
        id: DescriptionId,
        lock: Lock,
    ) -> Result<Option<Lock>, DescriptionError> {
        self.open.blocking_lock(peer, id, &lock, |inode, lock| self.may_map(inode, lock)).await
    }

    fn peer_closed(&self, peer: &Peer) {
        self.release_all_of(peer);
    }

    fn peer_restarted(&self, peer: &Peer) {
        self.release_all_of(peer);
    }
}
