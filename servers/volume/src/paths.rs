//! The `files` contract.

use alloc::format;
use alloc::string::String;

use channel::Peer;
use contracts::descriptions::{DescriptionError, DescriptionId, Kind, Status};
use contracts::files::{
    Change, Elsewhere, FilesServer, Lock, Name, OF_VOLUME, Opened, PathError, Renaming, Unnamed, open,
};
use ext4::{How, Inode, Kind as Ext4Kind, New, ROOT};
use open_files::Server as _;
use system::file_name;
use volume_core::walk::{Halt, PATH_BYTES_MAX, Walked, look_up, walk};
use volume_core::words;

use crate::server::Server;

fn new(kind: Ext4Kind, permissions: u32, (user, group): (u32, u32)) -> New {
    New { kind, permissions: (permissions & 0o7777) as u16, user, group, device: 0 }
}

fn failed<T>(error: DescriptionError) -> Result<T, PathError> {
    Err(error.into())
}

impl Server {
    /// Walks a path to its end in the volume.
    async fn find(&self, peer: &Peer, name: &Name, follow: bool) -> Result<Walked, PathError> {
        let start = match name.directory {
            Some(id) => self.number(peer, id)?,
            None => ROOT,
        };
        self.walk(|volume, blocks| walk(volume, blocks, (start, &name.path), follow, &self.path)).await
    }

    /// What is at a path.
    async fn inode_at(&self, peer: &Peer, name: &Name, follow: bool) -> Result<Inode, PathError> {
        Ok(self.find(peer, name, follow).await?.inode.ok_or(DescriptionError::NotFound)?)
    }

    /// Directory and name for making something: nothing may be there. `Exists`.
    async fn vacant(&self, peer: &Peer, path: &Name, directory_wanted: bool) -> Result<(u32, String), PathError> {
        let walked = self.find(peer, path, false).await?;
        match (walked.inode, walked.name) {
            (None, Some(name)) if directory_wanted || !walked.wants_directory => Ok(name),
            (None, _) => failed(DescriptionError::NotFound),
            (Some(_), _) => failed(DescriptionError::Exists),
        }
    }

    fn open_inode(&self, peer: &Peer, inode: &Inode, flags: u32) -> Result<Opened, DescriptionError> {
        let wants = |flag| flags & flag != 0;
        let names_only = wants(open::PLACE);
        let kind = words::kind(inode.kind);
        match kind {
            Kind::SymbolicLink if !names_only => return Err(DescriptionError::Loop),
            Kind::Socket | Kind::Device if !names_only => return Err(DescriptionError::NoDevice),
            Kind::Directory if wants(open::WRITE) || wants(open::TRUNCATE) => {
                return Err(DescriptionError::IsDirectory);
            }
            Kind::Directory => {}
            _ if wants(open::DIRECTORY) => return Err(DescriptionError::NotDirectory),
            Kind::Pipe if !names_only => {
                let elsewhere = Some(Elsewhere::Pipe(u64::from(inode.number) | OF_VOLUME));
                return Ok(Opened { id: 0, kind, size: 0, permissions: 0, elsewhere });
            }
            _ if wants(open::WRITE) && self.is_read_only() => return Err(DescriptionError::ReadOnly),
            _ => {}
        }
        let id = self.add(peer, inode.number, inode.kind, flags)?;
        Ok(Opened { id, kind, size: inode.size, permissions: inode.permissions.into(), elsewhere: None })
    }

    /// Opens what was walked to, and keeps by what name.
    fn open_walked(&self, peer: &Peer, walked: Walked, flags: u32) -> Result<Opened, DescriptionError> {
        let inode = walked.inode.ok_or(DescriptionError::NotFound)?;
        let opened = self.open_inode(peer, &inode, flags)?;
        if opened.elsewhere.is_none() {
            self.with(peer, opened.id, |open| {
                open.name = walked.name.map(|(directory, name)| (directory.into(), name));
                Ok(())
            })?;
        }
        Ok(opened)
    }

    /// Directory and name of something that is there. `Busy` for the root.
    fn named(&self, walked: Walked) -> Result<(u32, String), DescriptionError> {
        match (walked.inode, walked.name) {
            (Some(_), Some(name)) => Ok(name),
            (Some(inode), None) if inode.number == ROOT => Err(DescriptionError::Busy),
            (Some(_), None) => Err(DescriptionError::Invalid),
            (None, _) => Err(DescriptionError::NotFound),
        }
    }

    /// Makes what a client asked for by that path; it is whose the client acts as.
    async fn make(&self, peer: &Peer, path: &Name, kind: Ext4Kind, permissions: u32) -> Result<u32, PathError> {
        let (directory, name) = self.vacant(peer, path, kind == Ext4Kind::Directory).await?;
        let (name, new) = (file_name::to_bytes(&name), new(kind, permissions, path.owner));
        Ok(self.change(|operation| operation.create(directory, &name, &new)).await?)
    }

    /// One more name for a file.
    async fn give_name(&self, peer: &Peer, number: u32, path: &Name) -> Result<(), PathError> {
        let (directory, name) = self.vacant(peer, path, false).await?;
        let name = file_name::to_bytes(&name);
        let named = self.change(|operation| match self.unnamed.borrow().contains(&number) {
            true => operation.link_unnamed(number, directory, &name),
            false => operation.link(number, directory, &name),
        });
        match named.await {
            Err(DescriptionError::IsDirectory) => failed(DescriptionError::Denied),
            Err(error) => failed(error),
            Ok(()) => {
                self.unnamed.borrow_mut().remove(&number);
                Ok(())
            }
        }
    }

    /// Makes a file where a walk ended, and opens it. `Exists`.
    async fn create_and_open(
        &self,
        peer: &Peer,
        walked: Walked,
        path: &Name,
        flags: u32,
        permissions: u32,
    ) -> Result<Opened, DescriptionError> {
        let (directory, name) = walked.name.ok_or(DescriptionError::NotFound)?;
        self.open.table.borrow().room(peer)?;
        let (bytes, new) = (file_name::to_bytes(&name), new(Ext4Kind::File, permissions, path.owner));
        let number = self.change(|operation| operation.create(directory, &bytes, &new)).await?;
        let id = self.add(peer, number, Ext4Kind::File, flags)?;
        self.with(peer, id, |open| {
            open.name = Some((directory.into(), name));
            Ok(())
        })?;
        Ok(Opened { id, kind: Kind::File, size: 0, permissions: permissions & 0o7777, elsewhere: None })
    }

    /// Empties a file that was just opened.
    async fn emptied(&self, peer: &Peer, opened: Opened) -> Result<Opened, DescriptionError> {
        let number = self.number(peer, opened.id)?;
        if let Err(error) = self.set_size(peer, number, 0).await {
            self.release(peer.id(), opened.id);
            return Err(error);
        }
        Ok(Opened { size: 0, ..opened })
    }

    /// The path of a directory in the volume, `/` for its root. `NotFound` if it was removed.
    async fn directory_path(&self, mut number: u32) -> Result<String, DescriptionError> {
        let mut path = String::new();
        while number != ROOT {
            let above = self.ask(|volume, blocks| {
                let directory = volume.inode(blocks, number)?;
                volume.lookup(blocks, &directory, b"..")
            });
            let above = above.await?;
            let name = self.name_in(above, number).await?;
            path.insert_str(0, &name);
            path.insert(0, '/');
            if path.len() > PATH_BYTES_MAX {
                return Err(DescriptionError::NameTooLong);
            }
            number = above;
        }
        Ok(if path.is_empty() { "/".into() } else { path })
    }

    /// By what name a directory has an inode, looked for block by block.
    async fn name_in(&self, directory: u32, number: u32) -> Result<String, DescriptionError> {
        let mut from = 0;
        loop {
            let listed = self.ask(|volume, blocks| {
                let directory = volume.inode(blocks, directory)?;
                volume.list(blocks, &directory, from)
            });
            let listed = listed.await?;
            let is_it = |entry: &&ext4::Entry| entry.inode == number && !matches!(&*entry.name, b"." | b"..");
            if let Some(found) = listed.iter().find(is_it) {
                return Ok(file_name::to_text(&found.name));
            }
            from = listed.last().ok_or(DescriptionError::NotFound)?.next;
        }
    }

    /// A path of the volume as programs see it.
    fn as_seen(&self, path: &str) -> String {
        if path == "/" { self.path.clone() } else { format!("{}{path}", self.path) }
    }
}

/// Any file may be locked, and mapped.
fn may_lock(_: u64, _: &Lock) -> Result<(), DescriptionError> {
    Ok(())
}

impl FilesServer for Server {
    async fn open(&self, peer: &Peer, path: Name, flags: u32, permissions: u32) -> Result<Opened, PathError> {
        let (creates, exclusive) = (flags & open::CREATE != 0, flags & open::EXCLUSIVE != 0);
        loop {
            let walked = self.find(peer, &path, flags & open::NO_FOLLOW == 0 && !(creates && exclusive)).await?;
            let opened = match &walked.inode {
                Some(_) if creates && exclusive => return failed(DescriptionError::Exists),
                None if creates && walked.wants_directory => return failed(DescriptionError::IsDirectory),
                None if creates => match self.create_and_open(peer, walked, &path, flags, permissions).await {
                    // Somebody made it meanwhile.
                    Err(DescriptionError::Exists) => continue,
                    made => return Ok(made?),
                },
                _ => self.open_walked(peer, walked, flags)?,
            };
            if opened.kind == Kind::File && flags & open::TRUNCATE != 0 && flags & open::WRITE != 0 {
                return Ok(self.emptied(peer, opened).await?);
            }
            return Ok(opened);
        }
    }

    async fn locate(&self, peer: &Peer, path: Name, follow: bool) -> Result<(), PathError> {
        self.find(peer, &path, follow).await.map(drop)
    }

    async fn status(&self, peer: &Peer, path: Name, follow: bool) -> Result<Status, PathError> {
        Ok(words::status(&self.inode_at(peer, &path, follow).await?))
    }

    async fn set_status(&self, peer: &Peer, path: Name, follow: bool, change: Change) -> Result<(), PathError> {
        let number = self.inode_at(peer, &path, follow).await?.number;
        Ok(self.change(|operation| operation.set(number, &words::attributes(&change))).await?)
    }

    async fn make_directory(&self, peer: &Peer, path: Name, permissions: u32) -> Result<(), PathError> {
        self.make(peer, &path, Ext4Kind::Directory, permissions).await.map(drop)
    }

    async fn make_link(&self, peer: &Peer, path: Name, target: String) -> Result<(), PathError> {
        if target.is_empty() {
            return failed(DescriptionError::NotFound);
        }
        let (directory, name) = self.vacant(peer, &path, false).await?;
        let (name, target, (user, group)) = (file_name::to_bytes(&name), file_name::to_bytes(&target), path.owner);
        self.change(|operation| operation.symlink(directory, &name, &target, user, group)).await?;
        Ok(())
    }

    async fn make_socket(&self, peer: &Peer, path: Name, permissions: u32) -> Result<u64, PathError> {
        Ok(u64::from(self.make(peer, &path, Ext4Kind::Socket, permissions).await?) | OF_VOLUME)
    }

    async fn make_pipe(&self, peer: &Peer, path: Name, permissions: u32) -> Result<(), PathError> {
        self.make(peer, &path, Ext4Kind::Pipe, permissions).await.map(drop)
    }

    async fn open_unnamed(
        &self,
        peer: &Peer,
        place: Name,
        flags: u32,
        permissions: u32,
        purpose: Unnamed,
    ) -> Result<Opened, PathError> {
        let Unnamed::Temporary { may_link } = purpose else { return failed(DescriptionError::NotSupported) };
        let directory = self.inode_at(peer, &place, true).await?.number;
        self.open.table.borrow().room(peer)?;
        let new = new(Ext4Kind::File, permissions, place.owner);
        let number = self.change(|operation| operation.create_unnamed(directory, &new)).await?;
        let added = self.add(peer, number, Ext4Kind::File, flags);
        if added.is_err() {
            self.unused(number);
        } else if may_link {
            self.unnamed.borrow_mut().insert(number);
        }
        let id = added?;
        self.with(peer, id, |open| {
            // No name of a file begins so that was not chosen to.
            open.name = Some((directory.into(), format!("#{number}")));
            Ok(())
        })?;
        Ok(Opened { id, kind: Kind::File, size: 0, permissions: permissions & 0o7777, elsewhere: None })
    }

    async fn link_opened(&self, peer: &Peer, id: DescriptionId, path: Name) -> Result<(), PathError> {
        let number = self.number(peer, id)?;
        self.give_name(peer, number, &path).await
    }

    async fn seals(&self, peer: &Peer, id: DescriptionId) -> Result<u32, DescriptionError> {
        // What lies on a disk cannot be sealed.
        self.number(peer, id).and(Err(DescriptionError::Invalid))
    }

    async fn add_seals(&self, peer: &Peer, id: DescriptionId, _seals: u32) -> Result<(), DescriptionError> {
        self.number(peer, id).and(Err(DescriptionError::Invalid))
    }

    async fn link(&self, peer: &Peer, existing: Name, follow: bool, path: Name) -> Result<(), PathError> {
        let number = self.inode_at(peer, &existing, follow).await?.number;
        self.give_name(peer, number, &path).await
    }

    async fn read_link(&self, peer: &Peer, path: Name) -> Result<String, PathError> {
        let link = self.inode_at(peer, &path, false).await?;
        let target = self.ask(|volume, blocks| volume.target(blocks, &link)).await?;
        let target = file_name::to_text(&target);
        if target.len() > PATH_BYTES_MAX { failed(DescriptionError::NameTooLong) } else { Ok(target) }
    }

    async fn remove(&self, peer: &Peer, path: Name, directory: bool) -> Result<(), PathError> {
        let (at, name) = self.named(self.find(peer, &path, false).await?)?;
        let name = file_name::to_bytes(&name);
        let removed = self.change(|operation| match directory {
            true => operation.rmdir(at, &name),
            false => operation.unlink(at, &name),
        });
        self.lost_name(removed.await?);
        Ok(())
    }

    async fn rename(&self, peer: &Peer, from: Name, to: Name, how: Renaming) -> Result<(), PathError> {
        let from = self.find(peer, &from, false).await?;
        let is_directory = from.inode.as_ref().is_some_and(|inode| inode.kind == Ext4Kind::Directory);
        let (from_at, from_name) = self.named(from)?;
        let to = self.find(peer, &to, false).await?;
        match (how, &to.inode) {
            (Renaming::Keep, Some(_)) => return failed(DescriptionError::Exists),
            (Renaming::Exchange, None) => return failed(DescriptionError::NotFound),
            // What is exchanged is looked at by the walk.
            (Renaming::Replace | Renaming::Keep, _) if to.wants_directory && !is_directory => {
                return failed(DescriptionError::NotDirectory);
            }
            _ => {}
        }
        let (to_at, to_name) = to.name.ok_or(DescriptionError::Busy)?;
        let (from_name, to_name) = (file_name::to_bytes(&from_name), file_name::to_bytes(&to_name));
        let how = match how {
            Renaming::Replace => How::Replace,
            Renaming::Keep => How::NoReplace,
            Renaming::Exchange => How::Exchange,
        };
        let renamed = self.change(|operation| operation.rename((from_at, &from_name), (to_at, &to_name), how));
        if let Some(removed) = renamed.await? {
            self.lost_name(removed);
        }
        Ok(())
    }

    async fn space(&self, _peer: &Peer) -> Result<(u64, u64), DescriptionError> {
        let blocks = self.ask(|volume, _| Ok(volume.geometry().blocks)).await?;
        let free = self.ask(|volume, now| volume.free_blocks(now)).await?;
        Ok((blocks.saturating_sub(free), free))
    }

    async fn synchronize(&self, peer: &Peer, id: DescriptionId, _whole: bool) -> Result<(), DescriptionError> {
        Server::synchronize(self, peer, id).await
    }

    async fn synchronize_all(&self, peer: &Peer, asking: Option<DescriptionId>) -> Result<(), DescriptionError> {
        Server::synchronize_all(self, asking.map(|id| (peer, id))).await
    }

    async fn reopen(&self, peer: &Peer, id: DescriptionId, flags: u32) -> Result<Opened, DescriptionError> {
        let name = self.with(peer, id, |open| Ok(open.name.clone()))?;
        let inode = self.opened_inode(peer, id).await?;
        let opened = self.open_inode(peer, &inode, flags)?;
        if opened.elsewhere.is_none() {
            self.with(peer, opened.id, |open| {
                open.name = name;
                Ok(())
            })?;
        }
        Ok(opened)
    }

    async fn change(&self, peer: &Peer, id: DescriptionId, change: Change) -> Result<(), DescriptionError> {
        let number = self.number(peer, id)?;
        Server::change(self, |operation| operation.set(number, &words::attributes(&change))).await
    }

    async fn set_append(&self, peer: &Peer, id: DescriptionId, appends: bool) -> Result<(), DescriptionError> {
        self.with(peer, id, |open| {
            open.appends = appends;
            Ok(())
        })
    }

    async fn path_of(&self, peer: &Peer, id: DescriptionId) -> Result<String, DescriptionError> {
        let (number, kind, name) =
            self.with(peer, id, |open| Ok((open.target.inode, open.target.kind, open.name.clone())))?;
        if kind == Ext4Kind::Directory {
            return Ok(self.as_seen(&self.directory_path(number).await?));
        }
        let (directory, name) = name.ok_or(DescriptionError::NotFound)?;
        let above = self.as_seen(&self.directory_path(directory as u32).await?);
        let found = self.walk(|volume, blocks| {
            let directory = volume.inode(blocks, directory as u32).map_err(Halt::from)?;
            look_up(volume, blocks, &directory, &name)
        });
        let is_there = found.await.is_ok_and(|found| found.is_some_and(|inode| inode.number == number));
        let gone = if is_there { "" } else { " (deleted)" };
        Ok(format!("{above}/{name}{gone}"))
    }

    async fn lock(&self, peer: &Peer, id: DescriptionId, lock: Lock, wait: bool) -> Result<(), DescriptionError> {
        self.open.lock(peer, id, &lock, wait, may_lock).await
    }

    async fn blocking_lock(
        &self,
        peer: &Peer,
        id: DescriptionId,
        lock: Lock,
    ) -> Result<Option<Lock>, DescriptionError> {
        self.open.blocking_lock(peer, id, &lock, may_lock).await
    }

    fn peer_closed(&self, peer: &Peer) {
        self.release_all_of(peer);
    }

    fn peer_restarted(&self, peer: &Peer) {
        self.release_all_of(peer);
    }
}
