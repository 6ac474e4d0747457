//! A mounted volume, as tests use it, whatever disk it is on.

use ext4::{Blocks, Error, Inode, Operation, Progress, Stop, View, Volume};

pub trait Host {
    type Cache: Blocks;

    /// Does an operation, again for each block that it misses and behind each commit that it needs.
    fn change<T>(
        &mut self,
        operation: impl FnMut(&mut Operation<'_, Self::Cache>) -> Result<T, Stop>,
    ) -> Result<T, Error>;

    /// Asks something of the volume as it is now.
    fn ask<T>(&mut self, question: impl FnMut(&Volume, &View<'_, Self::Cache>) -> Result<T, Stop>) -> Result<T, Error>;

    /// Has all last that was changed so far.
    fn sync(&mut self);

    /// Writes all to its place that only the log has.
    fn write_places(&mut self);

    fn inode(&mut self, number: u32) -> Inode {
        self.ask(|volume, blocks| volume.inode(blocks, number)).unwrap()
    }

    /// All bytes of a file.
    fn read(&mut self, number: u32) -> Vec<u8> {
        let (inode, mut all) = (self.inode(number), Vec::new());
        loop {
            let mut part = [0; 5000];
            let offset = all.len() as u64;
            match self.ask(|volume, blocks| volume.read(blocks, &inode, offset, &mut part)).unwrap() {
                0 => return all,
                count => all.extend_from_slice(&part[..count]),
            }
        }
    }

    /// The names in a directory but "." and "..", and what they name.
    fn names(&mut self, number: u32) -> Vec<(Vec<u8>, u32)> {
        let (inode, mut names, mut from) = (self.inode(number), Vec::new(), 0);
        loop {
            let entries = self.ask(|volume, blocks| volume.list(blocks, &inode, from)).unwrap();
            let Some(last) = entries.last() else { return names };
            from = last.next;
            let own = entries.iter().filter(|entry| *entry.name != *b"." && *entry.name != *b"..");
            names.extend(own.map(|entry| (entry.name.to_vec(), entry.inode)));
        }
    }

    /// Writes bytes of a file, in as many steps as it takes.
    fn write_bytes(&mut self, number: u32, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let mut done = 0;
        while done < bytes.len() {
            done += self.change(|operation| operation.write(number, offset + done as u64, &bytes[done..]))?;
        }
        Ok(())
    }

    /// Sets a file's size, in as many steps as it takes.
    fn truncate(&mut self, number: u32, size: u64) {
        let mut progress = self.change(|operation| operation.truncate(number, size)).unwrap();
        while progress == Progress::More {
            progress = self.change(|operation| operation.trim(number)).unwrap();
        }
    }

    /// Frees an inode without a name, in as many steps as it takes.
    fn reclaim(&mut self, number: u32) {
        while self.change(|operation| operation.reclaim(number)).unwrap() == Progress::More {}
    }
}
