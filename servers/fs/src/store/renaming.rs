//! rename(2).

use contracts::descriptions::{DescriptionError as Error, Kind};
use contracts::files::Renaming;

use super::{Content, InodeId, ROOT, Store, check_name};

impl Store {
    /// Renames. Nothing happens if both names are one file. `Invalid` when a directory would go
    /// into itself; else as `files` has it.
    pub fn rename(
        &mut self,
        from: (InodeId, &str),
        to: (InodeId, &str),
        how: Renaming,
        now_ns: u64,
    ) -> Result<(), Error> {
        check_name(to.1)?;
        let moved = *self.names(from.0)?.0.get(from.1).ok_or(Error::NotFound)?;
        self.check_movable(moved)?;
        let there = self.names(to.0)?.0.get(to.1).copied();
        if self.get(to.0)?.links == 0 {
            return Err(Error::NotFound);
        }
        match (how, there) {
            (Renaming::Keep, Some(_)) => return Err(Error::Exists),
            (Renaming::Exchange, None) => return Err(Error::NotFound),
            (_, Some(there)) if there == moved => return Ok(()),
            _ => {}
        }
        let is_directory = self.get(moved)?.kind() == Kind::Directory;
        if is_directory && self.is_inside(to.0, moved) {
            return Err(Error::Invalid);
        }
        let replaced = there.filter(|_| how != Renaming::Exchange);
        let exchanged = there.filter(|_| how == Renaming::Exchange);
        if let Some(old) = replaced {
            self.check_removable(old, is_directory)?;
        }
        if let Some(old) = exchanged {
            self.check_movable(old)?;
            if self.is_inside(from.0, old) {
                return Err(Error::Invalid);
            }
        }
        self.take_name(from.0, from.1)?;
        self.move_to(to, moved)?;
        if let Some(old) = exchanged {
            self.move_to(from, old)?;
        }
        self.touch(from.0, now_ns);
        self.touch(to.0, now_ns);
        replaced.map_or(Ok(()), |old| self.unlink(old))
    }

    /// Who names paths for the volume knows where it is: that stays, with all above it.
    fn check_movable(&self, id: InodeId) -> Result<(), Error> {
        if matches!(self.get(id)?.content, Content::Processes) {
            return Err(Error::Denied);
        }
        let holds_volume = self.volume.is_some_and(|volume| id == volume.0 || self.is_inside(volume.1, id));
        if holds_volume { Err(Error::Busy) } else { Ok(()) }
    }

    /// Gives an inode a name, and a directory its parent.
    fn move_to(&mut self, (directory, name): (InodeId, &str), moved: InodeId) -> Result<(), Error> {
        self.put_name(directory, name, moved)?;
        if let Content::Directory { parent, .. } = &mut self.get_mut(moved)?.content {
            *parent = directory;
        }
        Ok(())
    }

    fn is_inside(&self, mut at: InodeId, directory: InodeId) -> bool {
        while at != ROOT {
            if at == directory {
                return true;
            }
            match self.names(at) {
                Ok((_, parent)) => at = parent,
                Err(_) => return false,
            }
        }
        directory == ROOT
    }
}
