//! Writes patterns to the begin of a disk, flushes, reads them back and compares, round after
//! round, with many requests at a time. What is wrong it says, and ends. Words of the command line
//! have it do less, for tests of what a disk keeps (`Task`).

#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::collections::VecDeque;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use channel::CallError;
use contracts::blocks::{BlocksClient, BlocksError, Disk, Extent, Flushed};
use contracts::storage::{self, StorageError, StorageServer, serve_storage};
use core::cell::{Cell, RefCell};
use disk_check_core::{SECTOR_BYTES, pieces, word};
use packet::Notify;
use runtime::{Bulk, Peer, Start};

/// Requests at a time.
const WORKERS: u32 = 16;
/// Sectors that are written: 8 MiB, or the disk.
const SECTORS: u64 = 16_384;
/// Rounds, unless it goes on for ever.
const ROUNDS: u32 = 4;
/// Words of the command line, for [`Task`].
const FOREVER: &str = "disk-check.forever";
const KEEP: &str = "disk-check.keep=";
const LEAVE: &str = "disk-check.leave";
/// Every so many rounds it has zeros written, if the disk can.
const ZEROS_EVERY: u32 = 3;
/// What stands in the data region before a read.
const NOTHING: u8 = 0xee;

/// What it does.
enum Task {
    /// So many rounds: [`ROUNDS`], or all that the machine's life has time for.
    Rounds(u32),
    /// So many rounds of writes only; of each it says when it is kept.
    Keep(u32),
    /// It writes once, and flushes before the machine ends.
    Leave,
}

impl Task {
    fn of(command_line: &str) -> Task {
        let is_told = |word| command_line.split(' ').any(|told| told == word);
        let keep = command_line.split(' ').find_map(|word| word.strip_prefix(KEEP)?.parse().ok());
        match keep {
            Some(rounds) => Task::Keep(rounds),
            None if is_told(LEAVE) => Task::Leave,
            None if is_told(FOREVER) => Task::Rounds(u32::MAX),
            None => Task::Rounds(ROUNDS),
        }
    }
}

/// What is done with each piece.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Write,
    Zero,
    Read { zeros: bool },
}

struct Checker {
    blocks: BlocksClient,
    data: Bulk,
    disk: Disk,
    /// Number of the next request.
    next: Cell<u64>,
    requests: Cell<u64>,
    working: Cell<u32>,
    turned: Notify,
    failure: RefCell<Option<String>>,
}

impl Checker {
    fn number(&self) -> u64 {
        self.requests.set(self.requests.get() + 1);
        self.next.replace(self.next.get() + 1)
    }

    /// Bytes of each worker's place in the data region.
    fn place_bytes(&self) -> u32 {
        (self.disk.data_bytes / WORKERS / self.disk.block_bytes * self.disk.block_bytes)
            .min(self.disk.sectors_max * SECTOR_BYTES as u32)
    }

    /// All pieces of a round, by many workers.
    async fn each(self: &Rc<Self>, round: u32, step: Step) -> Result<(), String> {
        let block = self.disk.block_bytes / SECTOR_BYTES as u32;
        let most = self.place_bytes() / SECTOR_BYTES as u32;
        let sectors = self.disk.sectors.min(SECTORS);
        let all: VecDeque<Extent> = pieces(round, sectors, block, most).into();
        let all = Rc::new(RefCell::new(all));
        self.working.set(WORKERS);
        for worker in 0..WORKERS {
            let (own, all) = (self.clone(), all.clone());
            runtime::spawn(async move {
                loop {
                    let Some(piece) = all.borrow_mut().pop_front() else { break };
                    if let Err(why) = own.one(round, step, piece, worker).await {
                        own.failure.replace(Some(why));
                        all.borrow_mut().clear();
                    }
                }
                own.working.set(own.working.get() - 1);
                own.turned.notify();
            });
        }
        self.turned.until(|| self.working.get() == 0).await;
        self.failure.take().map_or(Ok(()), Err)
    }

    async fn one(&self, round: u32, step: Step, piece: Extent, worker: u32) -> Result<(), String> {
        let offset = self.disk.data_offset + worker * self.place_bytes();
        let what = format!("round {round}, {} sectors at {}", piece.sectors, piece.sector);
        let place = |sector: u64| offset as usize + (sector - piece.sector) as usize * SECTOR_BYTES;
        let sectors = piece.sector..piece.sector + u64::from(piece.sectors);
        let out = |_| String::from("the data region is too small");
        let number = self.number();
        let ended = match step {
            Step::Zero => self.blocks.write_zeroes(number, piece, round.is_multiple_of(2)).await,
            Step::Write => {
                for sector in sectors {
                    self.data.write(place(sector), &word(sector, round).repeat(SECTOR_BYTES / 8)).map_err(out)?;
                }
                self.blocks.write(number, piece, offset).await
            }
            Step::Read { zeros } => {
                let nothing = vec![NOTHING; piece.sectors as usize * SECTOR_BYTES];
                self.data.write(offset as usize, &nothing).map_err(out)?;
                self.blocks.read(number, piece, offset).await.map_err(|why| format!("{what}: {why:?}"))?;
                for sector in sectors {
                    let mut found = [0; SECTOR_BYTES];
                    self.data.read(place(sector), &mut found).map_err(out)?;
                    let expected = if zeros { [0; 8] } else { word(sector, round) };
                    if let Some(wrong) = found.chunks_exact(8).find(|part| **part != expected) {
                        return Err(format!("{what}: sector {sector} has {wrong:x?}, not {expected:x?}"));
                    }
                }
                return Ok(());
            }
        };
        ended.map_err(|why| format!("{what}: {why:?}"))
    }

    async fn flush(&self, round: u32) -> Result<Flushed, String> {
        self.blocks.flush(self.number()).await.map_err(|why| format!("flush of round {round}: {why:?}"))
    }

    /// Writes all, flushes, reads it back.
    async fn round(self: &Rc<Self>, round: u32) -> Result<(), String> {
        let zeros = round.is_multiple_of(ZEROS_EVERY) && self.disk.zeroes_sectors_max >= self.place_bytes() / 512;
        self.each(round, if zeros { Step::Zero } else { Step::Write }).await?;
        let flushed = self.flush(round).await?;
        let expected = if self.disk.keeps_back { Flushed::Stored } else { Flushed::WritesThrough };
        if flushed != expected {
            return Err(format!("the flush of round {round} says {flushed:?} of a disk that says {expected:?}"));
        }
        self.each(round, Step::Read { zeros }).await
    }

    /// What is not to be done is refused, and the disk has a name.
    async fn refusals(&self) -> Result<(), String> {
        let Disk { sectors, data_offset, data_bytes, .. } = self.disk;
        let block = self.disk.block_bytes / SECTOR_BYTES as u32;
        let last = Extent { sector: sectors - u64::from(block), sectors: block };
        let behind = Extent { sector: sectors, ..last };
        for (extent, offset) in
            [(behind, data_offset), (last, data_offset + data_bytes), (Extent { sectors: 0, ..last }, data_offset)]
        {
            let refused = self.blocks.read(self.number(), extent, offset).await;
            if refused != Err(CallError::Server(BlocksError::Range)) {
                return Err(format!("{extent:?} at {offset} gives {refused:?}"));
            }
        }
        self.blocks.read(self.number(), last, data_offset).await.map_err(|why| format!("the last block: {why:?}"))?;
        let name = self.blocks.identify(self.number()).await.map_err(|why| format!("its name: {why:?}"))?;
        runtime::log!("the disk is named {}", String::from_utf8_lossy(&name).trim_end_matches('\0'));
        Ok(())
    }
}

async fn check(start: &Start) -> Result<(), String> {
    let blocks = start.client::<BlocksClient>("disk").map_err(|_| "no channel to disk: correct system/*.toml")?;
    let data = start.region("disk-data").ok_or("no region disk-data: correct system/*.toml")?.memory();
    let first = runtime::now_ns();
    let disk = blocks.attach(first).await.map_err(|why| format!("attach: {why:?}"))?;
    runtime::log!("{} sectors, blocks of {} bytes, keeps back: {}", disk.sectors, disk.block_bytes, disk.keeps_back);
    let checker = Rc::new(Checker {
        blocks,
        data,
        disk,
        next: Cell::new(first),
        requests: Cell::default(),
        working: Cell::default(),
        turned: Notify::default(),
        failure: RefCell::default(),
    });
    match Task::of(start.command_line()) {
        Task::Rounds(rounds) => {
            checker.refusals().await?;
            for round in 1..=rounds {
                checker.round(round).await?;
                runtime::log!("round {round} is there, {} requests", checker.requests.get());
            }
        }
        Task::Keep(rounds) => {
            for round in 1..=rounds {
                checker.each(round, Step::Write).await?;
                checker.flush(round).await?;
                runtime::log!("kept {round};");
                checker.each(round, Step::Read { zeros: false }).await?;
            }
        }
        Task::Leave => {
            checker.each(1, Step::Write).await?;
            runtime::log!("it is written, and not flushed");
            let mut channels = start.incoming(storage::NAME);
            loop {
                runtime::spawn(serve_storage(checker.clone(), channels.next().await));
            }
        }
    }
    runtime::log!("done");
    Ok(())
}

impl StorageServer for Checker {
    async fn close(&self, _: &Peer) -> Result<(), StorageError> {
        match self.flush(1).await {
            Ok(_) => Ok(()),
            Err(why) => {
                runtime::log!("failed: {why}");
                Err(StorageError::Io)
            }
        }
    }
}

async fn component(start: Start) {
    start.serving();
    if let Err(why) = check(&start).await {
        runtime::log!("failed: {why}");
    }
}

runtime::main!(component);
