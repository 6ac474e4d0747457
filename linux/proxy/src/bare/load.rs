//! Bringing an executable file into the program's memory.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use contracts::descriptions::DescriptionId;
use contracts::files::{self, Name, open};
use personality::Errno;
use personality::descriptors::server;
use personality::image::{HEAD_BYTES, Image, Part, interpreter_path, plan};
use personality::memory::{PAGE, protection, round_up};

use super::errors::Failure;
use super::fd::close_id;
use super::input_output::read_at;
use super::mapping;
use super::paging;
use super::places::{Place, whole};
use super::proxy::proxy;
use super::user::{self, Target, with_state};
use super::wait::answer;

/// An executable that was opened and checked; nothing of the program has changed yet.
pub struct Opened {
    id: DescriptionId,
    /// First bytes, for `#!`.
    pub head: Vec<u8>,
    bytes: u64,
}

impl Opened {
    /// Opens a file and reads its head. `EACCES` for what is no file, or may be executed by nobody.
    pub async fn open(path: &str) -> Result<Opened, Failure> {
        let (process, owner) = with_state(|state| (state.process, state.identity.acting()));
        let name = Name { directory: None, path: path.into(), process, owner };
        let asked = whole(Place { server: server::FS, name }, |files, name| files.open(name, open::READ, 0));
        Opened::of(asked.await?.1).await
    }

    /// The same for what a description names.
    pub async fn reopen(id: DescriptionId) -> Result<Opened, Failure> {
        Opened::of(proxy().files_of(id)?.reopen(id, open::READ).await?).await
    }

    async fn of(opened: files::Opened) -> Result<Opened, Failure> {
        if opened.elsewhere.is_some() {
            return Err(Errno::EACCES.into());
        }
        let mut file = Opened { id: opened.id, head: vec![0; HEAD_BYTES], bytes: opened.size };
        const EXECUTE: u32 = 0o111;
        if opened.kind != contracts::descriptions::Kind::File || opened.permissions & EXECUTE == 0 {
            file.close();
            return Err(Errno::EACCES.into());
        }
        match read_at(file.id, Target::Own(&mut file.head), 0).await {
            Ok(count) => {
                file.head.truncate(count);
                Ok(file)
            }
            Err(failure) => {
                file.close();
                Err(failure)
            }
        }
    }

    /// The file's path, without the links by which it was named.
    pub async fn path(&self) -> Result<String, Failure> {
        Ok(answer(proxy().files_of(self.id)?.path_of(self.id)).await?)
    }

    /// The plan, if it is an ELF program.
    pub fn plan(&self) -> Result<Image, Errno> {
        plan(&self.head, self.bytes)
    }

    /// The interpreter that an image names.
    pub async fn interpreter(&self, image: &Image) -> Result<Option<String>, Failure> {
        let Some((offset, bytes)) = image.interpreter else { return Ok(None) };
        let mut path = vec![0; bytes as usize];
        let count = read_at(self.id, Target::Own(&mut path), offset).await?;
        Ok(Some(interpreter_path(&path[..count])?))
    }

    /// Maps the parts at `base` and reads their bytes. On failure the program is half there: it
    /// must end.
    pub async fn load(&self, image: &Image, base: u64) -> Result<(), Failure> {
        for part in &image.parts {
            let (start, end) = (base + part.start, base + part.end);
            let copies = protection::READ | protection::WRITE;
            if self.back(part, start, end).await? {
                continue;
            }
            // All that is read is written at once: pages that are there cost no fault each.
            let filled = round_up(base + part.data + part.file_bytes).map_or(end, |at| at.clamp(start, end));
            mapping::map_filled(start, filled, copies)?;
            mapping::map_zeroed(filled, end, copies)?;
            let data = Target::program(base + part.data, part.file_bytes)?;
            if (read_at(self.id, data, part.file_offset).await? as u64) < part.file_bytes {
                return Err(Errno::ENOEXEC.into());
            }
            if part.protection != copies {
                mapping::protect(start, end, part.protection)?;
            }
        }
        Ok(())
    }

    /// Maps a part so that it is read as it is touched, if it is all of the file, and large.
    async fn back(&self, part: &Part, start: u64, end: u64) -> Result<bool, Failure> {
        let before = part.data - part.start;
        let is_whole = round_up(before + part.file_bytes) == Some(end - start);
        let offset = part.file_offset.checked_sub(before).filter(|offset| is_whole && offset.is_multiple_of(PAGE));
        let Some(offset) = offset else { return Ok(false) };
        let Some(file) = paging::file(self.id, end - start, part.protection).await else { return Ok(false) };
        file.map(start, end, part.protection, offset)?;
        Ok(true)
    }

    /// Gives the file back.
    pub fn close(self) {
        close_id(server::of_file(self.id), self.id);
    }
}

/// Where an interpreter goes: high, below other mappings.
pub fn place_interpreter(image: &Image) -> Result<u64, Errno> {
    if image.fixed {
        return Ok(0);
    }
    let (start, end) = image.span();
    user::with_state(|state| state.memory.place(0, end - start)).map(|place| (place - start) & !(PAGE - 1))
}
