//! A mounted volume on a disk whose power is cut, and the judgement of what is left.
//!
//! [`run`] does some [`Work`] with a volume, writes batches when chance has it so, and cuts the
//! power at any write. What a cut leaves is recovered here, sometimes with a second cut meanwhile,
//! and has to be: what the work knows of a transaction that was committed when the power went, or
//! of a later one; and without a fault that e2fsck finds. Sometimes e2fsck recovers it as well.
//!
//! All comes from a seed. The cache drops blocks before each operation, so that each miss is met.

use std::collections::BTreeMap;
use std::rc::Rc;

use ext4::{
    Block, Blocks, Error, Flush, Inode, Known, Mount, Operation, Recovered, Recovery, Step, Stop, Time, View, Volume,
};

use crate::common::Image;
use crate::disk::{Disk, DiskError, Judge, Random};

/// After one in so many operations all is looked at, as it is then.
const COMPARED_IN: usize = 40;

/// Blocks that were read from the disk.
#[derive(Default)]
pub struct Fetched(BTreeMap<u64, (Block, Known)>);

impl Blocks for Fetched {
    fn block(&self, number: u64) -> Option<&Block> {
        self.0.get(&number).map(|(block, _)| block)
    }

    fn block_known(&self, number: u64) -> Option<(&Block, Option<&Known>)> {
        self.0.get(&number).map(|(block, known)| (block, Some(known)))
    }
}

impl Fetched {
    fn load(&mut self, disk: &Disk, number: u64) -> Result<(), Failed> {
        assert!(self.0.insert(number, (disk.read(number)?, Known::default())).is_none(), "block {number} was there");
        Ok(())
    }

    /// Does `question`, again for each block that it misses.
    fn run<T>(&mut self, disk: &Disk, mut question: impl FnMut(&Self) -> Result<T, Stop>) -> Result<T, Failed> {
        loop {
            match question(self) {
                Ok(result) => return Ok(result),
                Err(Stop::Need(number)) => self.load(disk, number)?,
                Err(Stop::Failed(error)) => return Err(Failed::Volume(error)),
                Err(Stop::Commit(number)) => panic!("transaction {number} is waited for by a reader"),
            }
        }
    }
}

/// Why something did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    Volume(Error),
    Disk,
}

impl From<DiskError> for Failed {
    fn from(_: DiskError) -> Failed {
        Failed::Disk
    }
}

/// The disk as a cut left it.
struct Cut {
    disk: Disk,
    /// The newest transaction that was known to last, and the one that changes joined.
    lasting: u32,
    running: u32,
}

/// A mounted volume.
pub struct Machine {
    pub disk: Disk,
    pub mount: Mount,
    pub random: Random,
    cache: Fetched,
    seconds: i64,
    lasting: u32,
    /// One in so many writes is a cut; 0 is none.
    cut_in: usize,
    cuts: Vec<Cut>,
}

/// What is done with a volume. A clone remembers how the volume was.
pub trait Work: Clone {
    /// How a fresh volume is.
    fn begin(machine: &mut Machine) -> Self;

    /// Does one operation, of one transaction.
    fn step(&mut self, machine: &mut Machine);

    /// Does one of the operations that are left to do before a clean end; false if none is.
    fn finish(&mut self, _: &mut Machine) -> bool {
        false
    }

    /// Whether a volume is as it was then; else what differs. Bytes of files may be those that they
    /// were `later`.
    fn compare(&self, later: &[&Self], machine: &mut Machine) -> Result<(), String>;
}

/// What a recovery has to write.
fn recovery(disk: &Disk) -> Result<Recovered, Failed> {
    let mut cache = Fetched::default();
    let volume = cache.run(disk, |blocks| Volume::open(blocks, disk.blocks()))?;
    let mut recovery = cache.run(disk, |blocks| Recovery::begin(&volume, blocks))?;
    loop {
        if let Step::Done(found) = cache.run(disk, |blocks| recovery.step(volume.geometry(), blocks))? {
            return Ok(found);
        }
    }
}

/// Recovers a disk; in some cases the power is cut meanwhile, and it begins again.
fn recover(disk: &mut Disk, random: &mut Random) -> Result<Recovered, Failed> {
    loop {
        let found = recovery(disk)?;
        let cut_at = if random.one_in(3) { random.below(found.writes.len() + 1) } else { usize::MAX };
        for write in found.writes.iter().take(cut_at) {
            let bytes = write.bytes(&disk.read(write.from)?);
            disk.write(write.to, &bytes)?;
        }
        if cut_at == usize::MAX {
            disk.flush()?;
            return Ok(found);
        }
        *disk = disk.cut(random);
    }
}

impl Machine {
    /// Mounts what is on a disk.
    pub fn mount(mut disk: Disk, seed: u64) -> Result<Machine, Failed> {
        let mut random = Random::new(seed);
        let recovered = recover(&mut disk, &mut random)?;
        let mut cache = Fetched::default();
        let mount = cache.run(&disk, |blocks| Mount::begin(blocks, disk.blocks(), &recovered))?;
        let lasting = mount.running().wrapping_sub(1);
        let cache = Fetched::default();
        Ok(Machine { disk, mount, random, cache, seconds: 1_700_000_000, lasting, cut_in: 0, cuts: Vec::new() })
    }

    fn now(&mut self) -> Time {
        self.seconds += 1;
        Time { seconds: self.seconds, nanoseconds: self.random.below(1 << 30) as u32 }
    }

    /// Drops all or some blocks of the cache.
    fn drop_blocks(&mut self) {
        if self.random.one_in(2) {
            self.cache.0.clear();
        } else {
            let random = &mut self.random;
            self.cache.0.retain(|_, _| !random.one_in(4));
        }
    }

    /// Does an operation, again for each block that it misses and behind each commit that it needs.
    pub fn change<T>(
        &mut self,
        mut operation: impl FnMut(&mut Operation<'_, Fetched>) -> Result<T, Stop>,
    ) -> Result<T, Failed> {
        let now = self.now();
        self.drop_blocks();
        loop {
            match self.mount.change(&self.cache, now, &mut operation) {
                Ok(result) => return Ok(result),
                Err(Stop::Failed(error)) => return Err(Failed::Volume(error)),
                Err(Stop::Need(number)) => self.cache.load(&self.disk, number)?,
                Err(Stop::Commit(number)) => self.wait(number)?,
            }
        }
    }

    /// Asks something of the volume as it is now.
    pub fn ask<T>(
        &mut self,
        mut question: impl FnMut(&Volume, &View<'_, Fetched>) -> Result<T, Stop>,
    ) -> Result<T, Failed> {
        loop {
            match question(self.mount.volume(), &self.mount.view(&self.cache)) {
                Ok(result) => return Ok(result),
                Err(Stop::Need(number)) => self.cache.load(&self.disk, number)?,
                Err(Stop::Failed(error)) => return Err(Failed::Volume(error)),
                Err(Stop::Commit(number)) => panic!("transaction {number} is waited for by a reader"),
            }
        }
    }

    pub fn inode(&mut self, number: u32) -> Result<Inode, Failed> {
        self.ask(|volume, blocks| volume.inode(blocks, number))
    }

    /// The names in a directory but "." and "..", and what they name.
    pub fn names(&mut self, directory: &Inode) -> Result<BTreeMap<Vec<u8>, u32>, Failed> {
        let (mut names, mut from) = (BTreeMap::new(), 0);
        loop {
            let entries = self.ask(|volume, blocks| volume.list(blocks, directory, from))?;
            let Some(last) = entries.last() else { return Ok(names) };
            from = last.next;
            for entry in entries.into_iter().filter(|entry| *entry.name != *b"." && *entry.name != *b"..") {
                assert_eq!(names.insert(entry.name.to_vec(), entry.inode), None, "{:?} is there twice", entry.name);
            }
        }
    }

    /// All bytes of a file.
    pub fn read(&mut self, file: &Inode) -> Result<Vec<u8>, Failed> {
        let mut all = vec![0; file.size as usize];
        let mut at = 0;
        while at < all.len() {
            let part = &mut all[at..];
            let count = self.ask(|volume, blocks| volume.read(blocks, file, at as u64, part))?;
            assert!(count > 0, "a file has as many bytes as it says");
            at += count;
        }
        Ok(all)
    }

    /// Goes on with what a cut left behind, as nobody has anything open.
    pub fn reclaim_orphans(&mut self) -> Result<(), Failed> {
        while let Some(number) = self.mount.orphans().first().copied() {
            self.change(|operation| operation.reclaim(number))?;
        }
        Ok(())
    }

    /// Writes until a transaction lasts.
    pub fn wait(&mut self, number: u32) -> Result<(), Failed> {
        while !self.mount.lasts(number).map_err(Failed::Volume)? {
            assert!(self.step(), "what is waited for is written");
        }
        Ok(())
    }

    /// Has all last that was changed so far.
    pub fn sync(&mut self) -> Result<(), Failed> {
        self.mount.sync_all().map_or(Ok(()), |number| self.wait(number))
    }

    /// Writes the next batch, if there is one.
    pub fn step(&mut self) -> bool {
        let now = self.now();
        let Some(batch) = self.mount.next(now) else { return false };
        let mut is_written = true;
        for put in &batch.writes {
            is_written &= self.disk.write(put.block, &put.bytes).is_ok();
            self.cache.0.insert(put.block, (*put.bytes, Known::default()));
            self.maybe_cut();
        }
        match batch.flush {
            Flush::No => {}
            Flush::Own => is_written &= batch.writes.iter().all(|put| self.disk.persist(put.block).is_ok()),
            Flush::All => is_written &= self.disk.flush().is_ok(),
        }
        self.mount.done(is_written);
        while self.lasting != self.mount.running() && self.mount.lasts(self.lasting.wrapping_add(1)) == Ok(true) {
            self.lasting = self.lasting.wrapping_add(1);
        }
        self.maybe_cut();
        true
    }

    fn maybe_cut(&mut self) {
        if self.cut_in > 0 && self.random.one_in(self.cut_in) {
            let disk = self.disk.cut(&mut self.random);
            self.cuts.push(Cut { disk, lasting: self.lasting, running: self.mount.running() });
        }
    }

    /// Ends cleanly.
    pub fn close(&mut self) {
        self.mount.close();
        while self.step() {}
        assert!(self.mount.is_closed());
    }
}

/// How much a run does.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// The volume's size.
    pub mib: u64,
    pub operations: usize,
    /// One in so many writes is a cut.
    pub cut_in: usize,
    /// The disk says that it flushed, and has not.
    pub lies: bool,
    /// After so many operations the disk does not flush any more, and says so.
    pub fails_at: usize,
}

/// How the work knows the volume, by the newest transaction that has it.
struct History<W> {
    states: BTreeMap<u32, W>,
}

impl<W: Work> History<W> {
    fn at(&self, number: u32) -> &W {
        self.states.range(..=number).next_back().map(|(_, state)| state).expect("a run begins with a state")
    }

    /// Compares with a transaction that was lasting, or any later one, up to the one under way.
    fn compare(&self, cut: &Cut, machine: &mut Machine) -> Result<(), String> {
        let mut told = String::new();
        for number in (cut.lasting..=cut.running).rev() {
            let later: Vec<&W> = (number..cut.running).map(|number| self.at(number + 1)).collect();
            match self.at(number).compare(&later, machine) {
                Ok(()) => return Ok(()),
                Err(differs) => told = format!("{told}\nit is not transaction {number}: {differs}"),
            }
        }
        Err(told)
    }
}

/// Does some work, and judges each cut. Returns how many there were.
///
/// # Errors
/// What is wrong, with the seed.
pub fn run<W: Work>(base: &Rc<Image>, judge: &mut Judge, seed: u64, extent: Extent) -> Result<usize, String> {
    let wrong = |what: String| format!("seed {seed}: {what}");
    let mut machine = Machine::mount(Disk::new(base), seed).map_err(|failed| wrong(format!("{failed:?}")))?;
    let mut work = W::begin(&mut machine);
    let mut history = History { states: BTreeMap::from([(machine.lasting, work.clone())]) };
    machine.cut_in = extent.cut_in;
    machine.disk.faults.lies = extent.lies;
    for _ in 0..extent.operations.min(extent.fails_at) {
        work.step(&mut machine);
        history.states.insert(machine.mount.running(), work.clone());
        write_some(&mut machine);
        if machine.random.one_in(COMPARED_IN) {
            work.compare(&[], &mut machine).map_err(|differs| wrong(format!("without a cut: {differs}")))?;
        }
    }
    while extent.fails_at > extent.operations && work.finish(&mut machine) {
        history.states.insert(machine.mount.running(), work.clone());
    }
    end(&mut machine, extent.fails_at < extent.operations);
    let cuts = std::mem::take(&mut machine.cuts);
    if machine.mount.is_closed() {
        let told = |told: String| wrong(format!("at the clean end: {told}"));
        judge.check(&machine.disk).map_err(told)?;
        let mut again = Machine::mount(machine.disk.clone(), seed).map_err(|failed| told(format!("{failed:?}")))?;
        work.compare(&[], &mut again).map_err(told)?;
    }
    for (at, cut) in cuts.iter().enumerate() {
        judge_cut(cut, &history, judge, seed ^ at as u64).map_err(|told| wrong(format!("cut {at}: {told}")))?;
    }
    Ok(cuts.len())
}

/// Ends cleanly, or by a disk that fails: then its power is cut a few times more.
fn end(machine: &mut Machine, fails: bool) {
    if !fails {
        machine.close();
        machine.cut_in = 0;
        return;
    }
    machine.disk.faults.flushes = true;
    let number = machine.mount.sync_all();
    while machine.step() {}
    if let Some(number) = number {
        assert_eq!(machine.mount.lasts(number), Err(Error::ReadOnly), "nobody is told that it lasts");
    }
    machine.cut_in = 1;
    (0..4).for_each(|_| machine.maybe_cut());
}

/// Now and then somebody waits, or the disk has time.
fn write_some(machine: &mut Machine) {
    match machine.random.below(12) {
        0 => machine.sync().unwrap(),
        1 => {
            machine.mount.sync_all();
        }
        2 => machine.mount.write_places(),
        3..8 => {
            machine.step();
        }
        _ => {}
    }
}

fn judge_cut<W: Work>(cut: &Cut, history: &History<W>, judge: &mut Judge, seed: u64) -> Result<(), String> {
    let mut machine = Machine::mount(cut.disk.clone(), seed).map_err(|failed| format!("mount: {failed:?}"))?;
    history.compare(cut, &mut machine)?;
    machine.reclaim_orphans().map_err(|failed| format!("orphans: {failed:?}"))?;
    machine.close();
    judge.check(&machine.disk).map_err(|told| format!("after recovery: {told}"))?;
    if machine.random.one_in(8) {
        judge.recover(&cut.disk).map_err(|told| format!("by e2fsck: {told}"))?;
    }
    Ok(())
}
