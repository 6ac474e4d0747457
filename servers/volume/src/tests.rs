//! The volume's server between a disk and clients that are played.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use channel::{Bulk, CallError, Layout, Peer, ServerChannel, Wiring, loopback, loopback_memory, loopback_wiring};
use contracts::BulkSpan;
use contracts::blocks::*;
use contracts::descriptions::{
    AttributeChange, AttributeRequest, Control, ControlReply, DescriptionError, DescriptionsClient, Whence,
    serve_descriptions,
};
use contracts::files::{FilesClient, Name, Opened, PathError, Unnamed, open, serve_files};
use contracts::storage::{StorageClient, serve_storage};
use ext4::Blocks as _;
use runtime::Watch;
use volume_core::budget::Budget;

use crate::device::{Device, Memory};
use crate::keep_up;
use crate::mounting::use_disk;
use crate::server::Server;

mod buffering;
mod deaths;
mod descriptions;
mod ends;
mod mounting;
mod naming;
mod opening;

const BULK: Layout = Layout { ring_slots: 64, bulk_bytes: 64 << 10 };
const DATA: Layout = Layout { ring_slots: 64, bulk_bytes: 1 << 20 };
const SECTOR: usize = 512;
const LARGE: usize = 300_000;

/// A disk in memory.
struct Played {
    image: RefCell<Vec<u8>>,
    data: Bulk,
    /// Reads of sectors from here on wait.
    held_from: Cell<u64>,
    released: Watch,
    /// Writes of blocks that begin with these bytes fail.
    fails: Cell<Option<u8>>,
    /// Writes wait.
    are_writes_held: Cell<bool>,
    /// Reads of this sector fail.
    unreadable: Cell<u64>,
    /// Flushes fail.
    flush_fails: Cell<bool>,
    flushes: Cell<u32>,
    /// Numbers of requests.
    numbers: RefCell<BTreeSet<u64>>,
    /// Requests, and sectors of them.
    reads: Cell<Count>,
    writes: Cell<Count>,
}

/// Requests, and sectors of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    requests: u32,
    sectors: u32,
}

impl Count {
    fn add(counted: &Cell<Count>, extent: Extent) {
        let Count { requests, sectors } = counted.get();
        counted.set(Count { requests: requests + 1, sectors: sectors + extent.sectors });
    }
}

impl Played {
    fn bytes(extent: Extent) -> std::ops::Range<usize> {
        let first = extent.sector as usize * SECTOR;
        first..first + extent.sectors as usize * SECTOR
    }

    /// A request's number is its own: by that the disk's server knows it again.
    fn note(&self, number: u64) {
        assert!(self.numbers.borrow_mut().insert(number), "two requests have the number {number}");
    }
}

impl BlocksServer for Played {
    async fn attach(&self, _: &Peer, _: u64) -> Result<Disk, BlocksError> {
        unreachable!("tests say what the disk is")
    }

    async fn read(&self, _: &Peer, number: u64, from: Extent, offset: u32) -> Result<(), BlocksError> {
        self.note(number);
        Count::add(&self.reads, from);
        self.released.until(|| (from.sector < self.held_from.get()).then_some(())).await;
        if (from.sector..from.sector + u64::from(from.sectors)).contains(&self.unreadable.get()) {
            return Err(BlocksError::Io);
        }
        let image = self.image.borrow();
        self.data.write(offset as usize, image.get(Played::bytes(from)).ok_or(BlocksError::Range)?).unwrap();
        Ok(())
    }

    async fn write(&self, _: &Peer, number: u64, to: Extent, offset: u32) -> Result<(), BlocksError> {
        self.note(number);
        Count::add(&self.writes, to);
        self.released.until(|| (!self.are_writes_held.get()).then_some(())).await;
        let mut bytes = vec![0; to.sectors as usize * SECTOR];
        self.data.read(offset as usize, &mut bytes).unwrap();
        if bytes.chunks(ext4::BLOCK_BYTES).any(|block| self.fails.get() == Some(block[0])) {
            return Err(BlocksError::Io);
        }
        self.image.borrow_mut()[Played::bytes(to)].copy_from_slice(&bytes);
        Ok(())
    }

    async fn flush(&self, _: &Peer, number: u64) -> Result<Flushed, BlocksError> {
        self.note(number);
        self.flushes.set(self.flushes.get() + 1);
        if self.flush_fails.get() { Err(BlocksError::Io) } else { Ok(Flushed::Stored) }
    }

    async fn discard(&self, _: &Peer, _: u64, _: Extent) -> Result<(), BlocksError> {
        Err(BlocksError::Unsupported)
    }

    async fn write_zeroes(&self, _: &Peer, _: u64, _: Extent, _: bool) -> Result<(), BlocksError> {
        Err(BlocksError::Unsupported)
    }

    async fn identify(&self, _: &Peer, _: u64) -> Result<[u8; NAME_BYTES], BlocksError> {
        Err(BlocksError::Unsupported)
    }
}

/// A volume of so many MiB with what `fill` puts into a folder, or `None`, with a line, where
/// nobody can make one.
fn made(mib: u64, fill: impl FnOnce(&Path)) -> Option<Vec<u8>> {
    let mkfs = Path::new("/usr/sbin/mkfs.ext4");
    if !mkfs.exists() {
        eprintln!("skipped: mkfs.ext4 is not installed (Debian: e2fsprogs)");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let (tree, path) = (folder.path().join("tree"), folder.path().join("image"));
    std::fs::create_dir(&tree).unwrap();
    fill(&tree);
    std::fs::File::create(&path).unwrap().set_len(mib << 20).unwrap();
    let made = Command::new(mkfs).args(["-q", "-b4096", "-d"]).args([&tree, &path]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(std::fs::read(path).unwrap())
}

/// A volume with some files.
fn image() -> Option<Vec<u8>> {
    made(32, |tree| {
        std::fs::create_dir(tree.join("far")).unwrap();
        std::fs::write(tree.join("small"), "small").unwrap();
        std::fs::write(tree.join("large"), large()).unwrap();
        std::fs::write(tree.join("far/file"), "far").unwrap();
    })
}

fn large() -> Vec<u8> {
    (0..LARGE).map(|at| (at / 4096 + at % 251) as u8).collect()
}

/// A disk, a server of the volume on it, and a client.
struct Fixture {
    disk: Rc<Played>,
    /// Pages that the component can still have.
    available: Rc<Cell<usize>>,
    server: Rc<Server>,
    files: FilesClient,
    descriptions: DescriptionsClient,
    storage: StorageClient,
}

/// The server has an account of so many pages.
fn fixture(image: Vec<u8>, pages: usize, is_read_only: bool) -> Fixture {
    let (blocks, served) = loopback(DATA);
    let (sectors, data) = ((image.len() / SECTOR) as u64, served.peer().bulk());
    let disk = Rc::new(Played {
        image: RefCell::new(image),
        data: data.clone(),
        held_from: Cell::new(u64::MAX),
        released: Watch::new(),
        fails: Cell::new(None),
        are_writes_held: Cell::new(false),
        unreadable: Cell::new(u64::MAX),
        flush_fails: Cell::new(false),
        flushes: Cell::new(0),
        numbers: RefCell::default(),
        reads: Cell::default(),
        writes: Cell::default(),
    });
    runtime::spawn(serve_blocks(disk.clone(), served));
    let told = Disk {
        sectors,
        block_bytes: 512,
        optimal_bytes: 0,
        is_read_only: false,
        keeps_back: true,
        sectors_max: 2048,
        discard_sectors_max: 0,
        zeroes_sectors_max: 0,
        data_offset: 0,
        data_bytes: DATA.bulk_bytes,
        requests_max: 64,
    };
    let available = Rc::new(Cell::new(pages));
    let told_available = available.clone();
    let memory = Memory { budget: Budget::of(pages), available: Box::new(move || told_available.get()) };
    let device = Rc::new(Device::new(BlocksClient::new(blocks), data, told, 1, memory));
    let server = Rc::new(Server::new("/data".into(), None));
    runtime::spawn(use_disk(server.clone(), device, is_read_only));
    if !is_read_only {
        keep_up(&server);
    }
    let (files, served) = loopback(Layout::default());
    runtime::spawn(serve_files(server.clone(), served));
    let (descriptions, served) = loopback(BULK);
    runtime::spawn(serve_descriptions(server.clone(), served));
    let (storage, served) = loopback(Layout::default());
    runtime::spawn(serve_storage(server.clone(), served));
    let (files, descriptions) = (FilesClient::new(files), DescriptionsClient::new(descriptions));
    Fixture { disk, available, server, files, descriptions, storage: StorageClient::new(storage) }
}

impl Fixture {
    async fn open(&self, path: &str, flags: u32) -> Result<Opened, CallError<PathError>> {
        self.files.open(name(path), flags, 0o644).await
    }

    async fn read(&self, id: u64, at: u64, length: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < length {
            let part = (length - all.len()).min(BULK.bulk_bytes as usize) as u32;
            let span = BulkSpan { offset: 0, length: part };
            let count = self.descriptions.read(id, span, Some(at + all.len() as u64), true).await.unwrap() as usize;
            if count == 0 {
                break;
            }
            let mut bytes = vec![0; count];
            self.descriptions.bulk().read(0, &mut bytes).unwrap();
            all.extend(bytes);
        }
        all
    }

    /// Blocks that are newer than the disk.
    fn dirty(&self) -> usize {
        self.server.mount(|mount| mount.dirty_blocks()).unwrap()
    }

    async fn write(&self, id: u64, at: u64, bytes: &[u8]) -> Result<u32, CallError<DescriptionError>> {
        self.descriptions.bulk().write(0, bytes).unwrap();
        let span = BulkSpan { offset: 0, length: bytes.len() as u32 };
        self.descriptions.write(id, span, Some(at), true).await
    }
}

fn name(path: &str) -> Name {
    Name { directory: None, path: path.into(), process: 1, owner: (0, 0) }
}

/// What is asked by a path fails so.
fn failed<T>(error: DescriptionError) -> Result<T, CallError<PathError>> {
    Err(CallError::Server(PathError::Failed(error)))
}

/// What is asked of a description fails so.
fn refused<T>(error: DescriptionError) -> Result<T, CallError<DescriptionError>> {
    Err(CallError::Server(error))
}

/// Another program's channel, which nobody serves: it asks by calls of the server.
fn program(set: u32) -> ServerChannel {
    let [memory] = loopback_memory(BULK);
    ServerChannel::new(Wiring { peer_set: set, ..loopback_wiring(memory, false) })
}

/// All that can happen without waiting has happened.
async fn rest() {
    runtime::sleep(1_000_000).await;
}

#[test]
fn what_was_found_right_is_looked_at_again_when_it_comes_anew() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, true);
        let files = ["/small", "/far/file", "/large"];
        let mut ids = Vec::new();
        for path in files {
            ids.push(fixture.open(path, open::READ).await.unwrap().id);
        }
        let is_right = async || fixture.descriptions.status(ids[0]).await.is_ok();
        assert!(is_right().await && is_right().await);
        // The count of free blocks in the first group's descriptor, which has a checksum.
        fixture.disk.image.borrow_mut()[ext4::BLOCK_BYTES + 12] ^= 1;
        assert!(is_right().await, "the disk is not asked");
        let device = fixture.server.device.borrow().clone().unwrap();
        device.cache.borrow_mut().clear();
        assert!(!is_right().await, "it was read again");
        // Of whatever was in a frame before, nothing is known of what is there now.
        let mut cache = device.cache.borrow_mut();
        cache.clear();
        for number in 0..1000 {
            cache.insert(number, |block| block.fill(1)).unwrap();
            assert!(cache.seen().block_known(number).unwrap().1.unwrap().is_nothing());
        }
    });
}

#[test]
fn who_misses_a_block_waits_alone() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let small = fixture.open("/small", open::READ).await.unwrap();
        assert_eq!(fixture.read(small.id, 0, 100).await, b"small");
        // From now on the disk answers no read.
        fixture.disk.held_from.set(0);
        let far = fixture.files.open(name("/far/file"), open::READ, 0);
        assert_eq!(fixture.read(small.id, 0, 100).await, b"small");
        assert_eq!(fixture.open("/small", open::READ).await.unwrap().size, 5);
        let none = fixture.open("/none", open::READ).await;
        assert_eq!(none, Err(CallError::Server(PathError::Failed(DescriptionError::NotFound))));
        fixture.disk.held_from.set(u64::MAX);
        fixture.disk.released.changed();
        assert_eq!(far.await.unwrap().size, 3);
    });
}

#[test]
fn a_cache_of_few_blocks_is_enough() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 2, false);
        let opened = fixture.open("/large", open::READ | open::WRITE).await.unwrap();
        assert!(fixture.read(opened.id, 0, LARGE).await == large());
        fixture.write(opened.id, 5000, b"changed").await.unwrap();
        let mut expected = large();
        expected[5000..5007].copy_from_slice(b"changed");
        assert!(fixture.read(opened.id, 0, LARGE).await == expected);
    });
}

#[test]
fn what_was_synced_is_there_after_a_cut() {
    let Some(image) = image() else { return };
    let cut = runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let opened = fixture.open("/new", open::READ | open::WRITE | open::CREATE).await.unwrap();
        fixture.write(opened.id, 0, b"kept").await.unwrap();
        let flushes = fixture.disk.flushes.get();
        fixture.files.synchronize(opened.id, true).await.unwrap();
        assert!(fixture.disk.flushes.get() > flushes);
        let flushes = fixture.disk.flushes.get();
        fixture.files.synchronize(opened.id, true).await.unwrap();
        assert_eq!(fixture.disk.flushes.get(), flushes, "nothing was changed since");
        fixture.write(opened.id, 4, b"perhaps").await.unwrap();
        fixture.disk.image.borrow().clone()
    });
    for is_read_only in [true, false] {
        let cut = cut.clone();
        runtime::testing::run(async {
            let fixture = fixture(cut.clone(), 1000, is_read_only);
            let opened = fixture.open("/new", open::READ).await.unwrap();
            assert_eq!(fixture.read(opened.id, 0, 100).await, b"kept");
            assert_eq!(*fixture.disk.image.borrow() == cut, is_read_only, "what is only read is not written");
        });
    }
}

const LOST: CallError<DescriptionError> = CallError::Server(DescriptionError::Failed);
const READ_ONLY: CallError<DescriptionError> = CallError::Server(DescriptionError::ReadOnly);

#[test]
fn lost_bytes_are_told_once_for_each_description() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let flags = open::READ | open::WRITE;
        let (one, two) =
            (fixture.open("/small", flags).await.unwrap().id, fixture.open("/small", flags).await.unwrap().id);
        let other = fixture.open("/large", flags).await.unwrap().id;
        fixture.disk.fails.set(Some(0xe5));
        fixture.write(one, 0, &[0xe5; 5]).await.unwrap();
        fixture.write(other, 0, b"x").await.unwrap();
        assert_eq!(fixture.files.synchronize(one, true).await, Err(LOST));
        assert_eq!(fixture.files.synchronize(one, true).await, Ok(()));
        assert_eq!(fixture.files.synchronize(other, true).await, Ok(()));
        let late = fixture.open("/small", flags).await.unwrap().id;
        assert_eq!(fixture.files.synchronize(two, false).await, Err(LOST));
        assert_eq!(fixture.files.synchronize(two, false).await, Ok(()));
        assert_eq!(fixture.files.synchronize(late, true).await, Ok(()), "it was opened when others had heard");
        // Of the whole volume each description hears it once, too.
        let told = async |id| fixture.files.synchronize_all(Some(id)).await;
        assert_eq!((told(other).await, told(other).await, told(one).await), (Err(LOST), Ok(()), Err(LOST)));
        assert_eq!((told(late).await, fixture.files.synchronize_all(None).await), (Err(LOST), Ok(())));
        fixture.write(one, 0, &[0xe5; 5]).await.unwrap();
        assert_eq!(fixture.files.synchronize(late, true).await, Err(LOST), "this one it was there for");
    });
}

#[test]
fn bytes_that_were_lost_unheard_are_told_to_who_opens_the_file_next() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let first = fixture.open("/small", open::READ | open::WRITE).await.unwrap().id;
        fixture.disk.fails.set(Some(0xe5));
        fixture.write(first, 0, &[0xe5; 5]).await.unwrap();
        fixture.descriptions.close(first).await.unwrap();
        fixture.files.synchronize_all(None).await.unwrap();
        for told in [Err(LOST), Ok(())] {
            let next = fixture.open("/small", open::READ).await.unwrap().id;
            assert_eq!(fixture.files.synchronize(next, true).await, told);
            fixture.descriptions.close(next).await.unwrap();
        }
    });
}

#[test]
fn a_lost_journal_is_told_once_for_each_description_and_nothing_is_written_any_more() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let flags = open::READ | open::WRITE;
        let (one, two) =
            (fixture.open("/small", flags).await.unwrap().id, fixture.open("/small", flags).await.unwrap().id);
        let folder = fixture.open("/far", open::READ | open::DIRECTORY).await.unwrap().id;
        let other = fixture.open("/large", flags).await.unwrap().id;
        fixture.disk.flush_fails.set(true);
        fixture.write(one, 0, b"lost!").await.unwrap();
        fixture.files.make_directory(name("/far/new"), 0o755).await.unwrap();
        for id in [one, two, folder] {
            assert_eq!(fixture.files.synchronize(id, true).await, Err(LOST));
            assert_eq!(fixture.files.synchronize(id, true).await, Err(READ_ONLY));
        }
        assert_eq!(fixture.files.synchronize(other, true).await, Err(READ_ONLY), "nothing of it was lost");
        assert_eq!(fixture.write(other, 0, b"x").await, Err(READ_ONLY));
        assert_eq!(fixture.files.synchronize_all(Some(other)).await, Err(LOST));
        assert_eq!(fixture.files.synchronize_all(Some(other)).await, Ok(()));
    });
}

/// A client that held descriptions when the server was started again names others by none of them.
#[test]
fn what_was_open_in_an_earlier_life_is_nothing_in_this_one() {
    const LOST: CallError<DescriptionError> = CallError::Server(DescriptionError::Failed);
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let earlier = fixture(image.clone(), 1000, true);
        let old = earlier.open("/small", open::READ).await.unwrap().id;
        let now = fixture(image, 1000, true);
        let opened = now.open("/large", open::READ).await.unwrap().id;
        assert_eq!(now.descriptions.status(old).await.unwrap_err(), LOST);
        assert!(now.descriptions.close(old).await.is_err());
        assert_eq!(now.read(opened, 0, 10).await, large()[..10]);
        let unknown = now.descriptions.status(opened + 1).await.unwrap_err();
        assert_eq!(unknown, CallError::Server(DescriptionError::BadId));
    });
}

#[test]
fn a_file_without_names_goes_with_its_last_description() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let (_, free) = fixture.files.space().await.unwrap();
        let opened = fixture.open("/large", open::READ).await.unwrap();
        fixture.files.remove(name("/large"), false).await.unwrap();
        assert!(fixture.read(opened.id, 0, LARGE).await == large());
        assert_eq!(fixture.files.space().await.unwrap().1, free);
        fixture.descriptions.close(opened.id).await.unwrap();
        let freed = LARGE.div_ceil(4096) as u64;
        while fixture.files.space().await.unwrap().1 < free + freed {
            runtime::yield_now().await;
        }
        assert_eq!(fixture.files.space().await.unwrap().1, free + freed);
    });
}

const PAST_END: CallError<DescriptionError> = CallError::Server(DescriptionError::PastEnd);
const NO_ATTRIBUTE: CallError<DescriptionError> = CallError::Server(DescriptionError::NoAttribute);

#[test]
fn data_and_holes_are_found_over_many_stretches() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let id = fixture.open("/sparse", open::READ | open::WRITE | open::CREATE).await.unwrap().id;
        let seek = async |from, whence| fixture.descriptions.seek(id, from, whence).await;
        assert_eq!((seek(0, Whence::Data).await, seek(0, Whence::Hole).await), (Err(PAST_END), Err(PAST_END)));
        // More stretches than one question looks at.
        for block in 0..200 {
            fixture.write(id, block * 8192, b"x").await.unwrap();
        }
        let (end, middle) = (199 * 8192 + 1, 90 * 8192);
        for (from, whence, found) in [
            (0, Whence::Data, Ok(0)),
            (1, Whence::Hole, Ok(4096)),
            (5000, Whence::Data, Ok(8192)),
            (5000, Whence::Hole, Ok(5000)),
            (middle, Whence::Data, Ok(middle as u64)),
            (199 * 8192, Whence::Hole, Ok(end)),
            (end as i64, Whence::Hole, Err(PAST_END)),
            (-1, Whence::Data, Err(PAST_END)),
        ] {
            assert_eq!(seek(from, whence).await, found, "{whence:?} from {from}");
        }
        fixture.descriptions.resize(id, 64 << 20).await.unwrap();
        assert_eq!(seek(end as i64 + 4096, Whence::Data).await, Err(PAST_END));
        assert_eq!(seek(0, Whence::Current).await, Ok(end), "what is not found moves nothing");
        // Written backwards, so in many extents, of which none has a hole before it.
        let dense = fixture.open("/dense", open::READ | open::WRITE | open::CREATE).await.unwrap().id;
        for block in (0..300).rev() {
            fixture.write(dense, block * 4096, b"x").await.unwrap();
        }
        fixture.descriptions.resize(dense, 400 * 4096).await.unwrap();
        assert_eq!(fixture.descriptions.seek(dense, 0, Whence::Hole).await, Ok(300 * 4096));
        assert_eq!(fixture.descriptions.status(dense).await.unwrap().sectors / 8, 300 + 1);
    });
}

#[test]
fn a_file_without_a_name_gets_one_unless_it_may_not() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let make = async |may_link| {
            let (flags, purpose) = (open::READ | open::WRITE, Unnamed::Temporary { may_link });
            fixture.files.open_unnamed(name("/far"), flags, 0o640, purpose).await.unwrap().id
        };
        let (one, never) = (make(true).await, make(false).await);
        fixture.write(one, 0, b"bytes").await.unwrap();
        assert!(fixture.files.path_of(one).await.unwrap().ends_with(" (deleted)"));
        let not_found = Err(CallError::Server(PathError::Failed(DescriptionError::NotFound)));
        assert_eq!(fixture.files.link_opened(never, name("/never")).await, not_found);
        assert_eq!(fixture.files.link_opened(one, name("/one")).await, Ok(()));
        assert_eq!(fixture.descriptions.status(one).await.unwrap().links, 1);
        fixture.files.remove(name("/one"), false).await.unwrap();
        assert_eq!(fixture.files.link_opened(one, name("/one")).await, not_found, "it had its name");
    });
}

#[test]
fn attributes_are_set_read_listed_and_removed() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let id = fixture.open("/small", open::READ).await.unwrap().id;
        let ask = async |request| fixture.descriptions.control(id, Control::Attribute(request)).await;
        let (name, span) = (b"user.one".to_vec(), BulkSpan { offset: 0, length: 5 });
        let get = || AttributeRequest::Get { name: name.clone(), span };
        let set = |change| AttributeRequest::Set { name: name.clone(), span, change };
        assert_eq!(ask(get()).await, Err(NO_ATTRIBUTE));
        assert_eq!(ask(set(AttributeChange::Old)).await, Err(NO_ATTRIBUTE));
        fixture.descriptions.bulk().write(0, b"value").unwrap();
        assert_eq!(ask(set(AttributeChange::New)).await, Ok(ControlReply::Done));
        fixture.descriptions.bulk().write(0, b"other").unwrap();
        assert_eq!(ask(get()).await, Ok(ControlReply::Number(5)));
        let mut bytes = [0; 5];
        fixture.descriptions.bulk().read(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"value");
        // As much as there is room for, and how much there is.
        assert_eq!(ask(AttributeRequest::List { span }).await, Ok(ControlReply::Number(9)));
        let beyond = BulkSpan { offset: BULK.bulk_bytes, length: 1 };
        let invalid = Err(CallError::Server(DescriptionError::Invalid));
        assert_eq!(ask(AttributeRequest::List { span: beyond }).await, invalid);
        assert_eq!(ask(AttributeRequest::Remove { name: name.clone() }).await, Ok(ControlReply::Done));
        assert_eq!(ask(AttributeRequest::Remove { name: name.clone() }).await, Err(NO_ATTRIBUTE));
    });
}
