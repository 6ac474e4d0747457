//! Looking at the disk: what is on it, what its journal has, and how it is used from then on.
//!
//! What cannot be used is told in one line, and all that is asked of it fails with EIO: a program
//! must not take an empty folder for its data. Where there is no disk at all, the machine ends.

use alloc::boxed::Box;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use contracts::blocks::BlocksClient;
use ext4::{Blocks, Mount, Recovered, Recovery, Step, Stop, Volume};
use runtime::{Bulk, Start};
use volume_core::budget::Budget;
use volume_core::cache::Seen;

use crate::device::{Device, Failed, Memory};
use crate::server::{Pins, Server, State};

/// A disk that has not answered by then is not there.
const ANSWER_NS: u64 = 5_000_000_000;
/// Status of a machine that was to have a disk and has none (EX_SOFTWARE of sysexits.h).
const NO_DISK: u64 = 70;
/// The same of one that is encrypted: its key comes by the console, which starts later.
const KEY_NS: u64 = 30_000_000_000;
/// The region between us and who serves the disk: one that encrypts has its own. And how long it
/// may take.
const REGIONS: [(&str, u64); 2] = [("plain-data", KEY_NS), ("disk-data", ANSWER_NS)];

impl From<Failed> for String {
    fn from(_: Failed) -> String {
        "the disk fails".into()
    }
}

/// Opens the volume; what is asked meanwhile waits.
pub async fn open(server: Rc<Server>, start: Start, is_read_only: bool) {
    match attach(&start).await {
        Ok(device) => use_disk(server, Rc::new(device), is_read_only).await,
        Err(why) => {
            refuse(&server, &why);
            // Later programs are at work, whose other files are in memory.
            if start.generation() == 1 {
                end(&start);
            }
        }
    }
}

/// Ends the machine, where we have the right to.
fn end(start: &Start) {
    if let Some(power) = start.capability("power") {
        runtime::log!("the machine ends: start it with its disk");
        let error = sys::power_off(power, NO_DISK);
        runtime::log!("the machine does not end: {error:?}");
    }
}

fn refuse(server: &Server, why: &str) {
    runtime::log!("{}: {why}: what is asked of it fails", server.path);
    server.state.replace(State::Refused);
    server.opened.changed();
}

/// Opens the volume on a disk.
pub async fn use_disk(server: Rc<Server>, device: Rc<Device>, is_read_only: bool) {
    server.device.replace(Some(device.clone()));
    match look(&server.path, &device, is_read_only).await {
        Ok(state) => {
            server.state.replace(state);
            server.opened.changed();
            server.wake_writer();
        }
        Err(why) => refuse(&server, &why),
    }
}

async fn attach(start: &Start) -> Result<Device, String> {
    // The disk's server, or one that encrypts in front of it.
    let (_, blocks): (_, BlocksClient) = start.clients().pop().ok_or("no channel to a disk: correct system/*.toml")?;
    let region = REGIONS.iter().find_map(|(name, limit_ns)| Some((start.region(name)?, limit_ns)));
    let (region, limit_ns) = region.ok_or("no region for the disk's data: correct system/*.toml")?;
    attach_to(blocks, region.memory(), *limit_ns, memory()).await
}

/// Begins this life's work with the disk, whose bytes lie in `data`. What an earlier life asked for
/// has ended when the disk answers: until then it may still read and write there.
pub async fn attach_to(blocks: BlocksClient, data: Bulk, limit_ns: u64, memory: Memory) -> Result<Device, String> {
    let first = runtime::now_ns();
    let asked = runtime::timeout(limit_ns, blocks.attach(first)).await;
    let disk = asked.map_err(|_| "no disk answers")?.map_err(|error| format!("no disk: {error:?}"))?;
    Ok(Device::new(blocks, data, disk, first, memory))
}

/// The component's account, and what the core has left.
fn memory() -> Memory {
    let pages = || sys::ram_stat(abi::Handle::SELF_RAM).unwrap_or_default();
    let available = move || {
        let (limit, used, free) = pages();
        limit.saturating_sub(used).min(free) as usize
    };
    Memory { budget: Budget::of(pages().0 as usize), available: Box::new(available) }
}

async fn look(path: &str, device: &Rc<Device>, is_read_only: bool) -> Result<State, String> {
    let size = device.size();
    let volume = read(device, |cache| Volume::open(cache, size)).await?;
    let mut recovery = read(device, |cache| Recovery::begin(&volume, cache)).await?;
    let recovered = recover(device, &volume, &mut recovery).await?;
    let (blocks, count) = (volume.geometry().blocks, recovered.writes.len());
    let is_read_only = is_read_only || device.disk().is_read_only;
    let how = if is_read_only { "read only" } else { "read and written" };
    runtime::log!("{}: ext4 of {blocks} blocks, {how}, {count} blocks from its journal", path);
    if is_read_only {
        device.redirect(recovered.writes);
        return Ok(State::ReadOnly(read(device, |cache| Volume::open(cache, size)).await?));
    }
    put_back(device, &recovered).await?;
    // What an earlier life wrote and did not have stored is seen from now on, by who may sync it.
    device.flush().await?;
    device.drop_blocks();
    let mount = read(device, |cache| Mount::begin(cache, size, &recovered)).await?;
    Ok(State::Writable(Box::new(mount)))
}

/// Asks what needs blocks only, again for each that is missing.
async fn read<T>(device: &Rc<Device>, question: impl Fn(&Seen<'_>) -> Result<T, Stop>) -> Result<T, String> {
    let mut pins = Pins::new(device.clone());
    loop {
        let answer = question(&device.cache.borrow().seen());
        match answer {
            Ok(answer) => return Ok(answer),
            Err(Stop::Need(block)) => pins.add(block).await?,
            Err(Stop::Failed(error)) => return Err(error.to_string()),
            Err(Stop::Commit(_)) => return Err("it is written by nobody".into()),
        }
    }
}

/// Finds out what the journal has.
async fn recover(device: &Rc<Device>, volume: &Volume, recovery: &mut Recovery) -> Result<Recovered, String> {
    loop {
        let step = recovery.step(volume.geometry(), &device.cache.borrow().seen());
        match step {
            Ok(Step::More) => {}
            Ok(Step::Done(recovered)) => return Ok(recovered),
            // A step takes one block: it is kept until that has been done.
            Err(Stop::Need(block)) => {
                let mut pins = Pins::new(device.clone());
                pins.add(block).await?;
                match recovery.step(volume.geometry(), &device.cache.borrow().seen()) {
                    Ok(Step::Done(recovered)) => return Ok(recovered),
                    Ok(Step::More) | Err(Stop::Need(_)) => {}
                    Err(stop) => return Err(words(stop)),
                }
            }
            Err(stop) => return Err(words(stop)),
        }
    }
}

fn words(stop: Stop) -> String {
    match stop {
        Stop::Failed(error) => error.to_string(),
        Stop::Need(_) | Stop::Commit(_) => "it asks for what it has".into(),
    }
}

/// Writes what the journal has to its places.
async fn put_back(device: &Rc<Device>, recovered: &Recovered) -> Result<(), String> {
    /// Blocks at a time.
    const PART: usize = 64;
    for part in recovered.writes.chunks(PART) {
        device.begin(part.iter().map(|write| write.from));
        let mut puts = Vec::with_capacity(part.len());
        for write in part {
            let mut pins = Pins::new(device.clone());
            pins.add(write.from).await?;
            let bytes = device.cache.borrow().seen().block(write.from).map(|bytes| write.bytes(bytes)).ok_or(Failed)?;
            puts.push(ext4::Put { block: write.to, bytes: alloc::sync::Arc::new(bytes), inode: 0 });
        }
        if !device.write_all(puts).await.is_empty() {
            return Err(Failed.into());
        }
    }
    Ok(())
}
