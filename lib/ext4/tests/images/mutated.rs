//! Images with wrong bytes, most of them under checksums that fit: whatever they say, an operation
//! ends with a result or an error, asks for blocks of the volume only, and ends soon.
//!
//! `PROPTEST_CASES=10000` makes it as many as the promise is about.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::common::{Image, make, rich};
use ext4::{
    BLOCK_BYTES, Block, Blocks, Error, How, Inode, Kind, Known, Mount, NAME_MAX, New, Operation, Place, ROOT,
    Recovered, Recovery, SetXattr, Step, Stop, Time, Volume,
};
use proptest::prelude::*;

/// Most batches until nothing is left to write: a commit, and all blocks of the log to their
/// places.
const BATCHES_MAX: usize = 50;

/// An image with some other blocks; it counts what is asked for.
pub struct Damaged<'a> {
    image: &'a Image,
    other: BTreeMap<u64, Block>,
    asked: Cell<u64>,
    /// What was found right of each block, if that is kept: changes do not take it away.
    known: Vec<Known>,
}

impl Blocks for Damaged<'_> {
    fn block(&self, number: u64) -> Option<&Block> {
        self.asked.set(self.asked.get() + 1);
        assert!(number < self.image.blocks(), "block {number} is not in the volume");
        self.other.get(&number).or_else(|| self.image.block(number))
    }

    fn block_known(&self, number: u64) -> Option<(&Block, Option<&Known>)> {
        self.block(number).map(|block| (block, self.known.get(number as usize)))
    }
}

impl<'a> Damaged<'a> {
    pub fn new(image: &'a Image) -> Damaged<'a> {
        Damaged { image, other: BTreeMap::new(), asked: Cell::new(0), known: Vec::new() }
    }

    pub fn change(&mut self, block: u64, change: impl FnOnce(&mut Block)) {
        let bytes = self.other.entry(block).or_insert_with(|| *self.image.block(block).unwrap());
        change(bytes);
    }
}

/// Where bytes are changed.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    SuperBlock,
    Descriptor,
    /// The bitmap of blocks (false) or inodes.
    Bitmap(bool),
    /// One of [`Marks::inodes`].
    Inode(usize),
    /// One of [`Marks::blocks`].
    Block(usize),
}

/// Of the image: inodes, and blocks of directories and extents with the inode that they are of.
pub struct Marks {
    pub inodes: Vec<u32>,
    blocks: Vec<(u32, u64)>,
    table: u64,
}

pub fn marks() -> Option<&'static Marks> {
    static MARKS: LazyLock<Option<Marks>> = LazyLock::new(|| rich().map(find_marks));
    MARKS.as_ref()
}

fn find_marks(image: &Image) -> Marks {
    let volume = Volume::open(image, image.blocks()).unwrap();
    let inode = |number| volume.inode(image, number).unwrap();
    let look = |directory: &Inode, name: &str| inode(volume.lookup(image, directory, name.as_bytes()).unwrap());
    let root = inode(ROOT);
    let (a, many, some) = (look(&root, "a"), look(&root, "many"), look(&root, "some"));
    let mut blocks = Vec::new();
    for directory in [&root, &a, &some, &many] {
        // Of the large one a few: its root, what is near its beginning, and nodes at its end.
        let count = directory.size as u32 / BLOCK_BYTES as u32;
        for logical in (0..count).filter(|logical| *logical < 4 || logical + 4 > count) {
            let Place::Written(block) = volume.find(image, directory, logical).unwrap().place else { continue };
            blocks.push((directory.number, block));
        }
    }
    let sparse = look(&a, "sparse");
    // Asking without any block but those of the inode names the first node of its extents.
    let Err(Stop::Need(node)) = volume.find(&Image(Vec::new()), &sparse, 0) else { panic!("the tree has no node") };
    blocks.push((sparse.number, node));
    let others = ["1", "300000", "short", "long", "b"].map(|name| look(&a, name).number);
    let inodes = [&[ROOT, 8, a.number, many.number, some.number, sparse.number][..], &others].concat();
    let table = u32::from_le_bytes(image.block(1).unwrap()[8..12].try_into().unwrap());
    Marks { inodes, blocks, table: u64::from(table) }
}

/// CRC32C bit by bit, without the inversion at the end.
pub fn sum(start: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(start, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| if sum & 1 != 0 { sum >> 1 ^ 0x82F6_3B78 } else { sum >> 1 })
    })
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

impl Marks {
    fn place(&self, inode: u32) -> (u64, usize) {
        let at = (inode as usize - 1) * 256;
        (self.table + (at / BLOCK_BYTES) as u64, at % BLOCK_BYTES)
    }

    /// What the checksums of an inode and its blocks start from.
    fn seed(&self, hurt: &Damaged, inode: u32) -> u32 {
        let volume = sum(!0, &hurt.image.block(0).unwrap()[1024 + 0x68..1024 + 0x78]);
        let (block, at) = self.place(inode);
        let generation = &hurt.block(block).unwrap()[at + 100..at + 104];
        sum(sum(volume, &inode.to_le_bytes()), generation)
    }

    /// Puts `value` at `offset` of the target, and the checksum right.
    pub fn hurt(&self, hurt: &mut Damaged, target: Target, offset: usize, value: &[u8]) {
        match target {
            Target::SuperBlock => hurt.change(0, |block| {
                put(block, 1024 + offset % 1016, value);
                let right = sum(!0, &block[1024..2044]);
                put(block, 2044, &right.to_le_bytes());
            }),
            Target::Descriptor => {
                let start = sum(sum(!0, &hurt.image.block(0).unwrap()[1024 + 0x68..1024 + 0x78]), &[0; 4]);
                hurt.change(1, |block| {
                    put(block, offset % 60, value);
                    put(block, 30, &[0; 2]);
                    let right = sum(start, &block[..64]) as u16;
                    put(block, 30, &right.to_le_bytes());
                });
            }
            Target::Bitmap(of_inodes) => {
                let table = usize::from(of_inodes) * 4;
                let block = u32::from_le_bytes(hurt.image.block(1).unwrap()[table..table + 4].try_into().unwrap());
                let bytes = if of_inodes { 8192 / 8 } else { BLOCK_BYTES };
                hurt.change(u64::from(block), |block| put(block, offset % (bytes - 4), value));
                let start = sum(!0, &hurt.image.block(0).unwrap()[1024 + 0x68..1024 + 0x78]);
                let right = sum(start, &hurt.block(u64::from(block)).unwrap()[..bytes]).to_le_bytes();
                let (low, high) = if of_inodes { (26, 58) } else { (24, 56) };
                self.hurt(hurt, Target::Descriptor, low, &right[..2]);
                self.hurt(hurt, Target::Descriptor, high, &right[2..]);
            }
            Target::Inode(which) => {
                let inode = self.inodes[which % self.inodes.len()];
                let (block, at) = self.place(inode);
                hurt.change(block, |block| put(block, at + offset % 252, value));
                let seed = self.seed(hurt, inode);
                hurt.change(block, |block| {
                    put(block, at + 124, &[0; 2]);
                    put(block, at + 130, &[0; 2]);
                    let right = sum(seed, &block[at..at + 256]).to_le_bytes();
                    put(block, at + 124, &right[..2]);
                    put(block, at + 130, &right[2..]);
                });
            }
            Target::Block(which) => {
                let (inode, block) = self.blocks[which % self.blocks.len()];
                let seed = self.seed(hurt, inode);
                hurt.change(block, |block| {
                    put(block, offset % (BLOCK_BYTES - 4), value);
                    put_sum(block, seed);
                });
            }
        }
    }
}

/// Puts the checksum right of what a block seems to be: extents, entries, or a node of an index.
fn put_sum(block: &mut Block, seed: u32) {
    let word = |block: &Block, at: usize| usize::from(u16::from_le_bytes([block[at], block[at + 1]]));
    if block[..2] == [0x0A, 0xF3] {
        let end = 12 + 12 * word(block, 4);
        if end + 4 <= BLOCK_BYTES {
            let right = sum(seed, &block[..end]);
            put(block, end, &right.to_le_bytes());
        }
    } else if block[4091] == 0xDE {
        let right = sum(seed, &block[..4084]);
        put(block, 4092, &right.to_le_bytes());
    } else {
        for at in [8, 32] {
            let (limit, count) = (word(block, at), word(block, at + 2));
            if at + limit * 8 + 8 == BLOCK_BYTES && count <= limit {
                let right = sum(sum(sum(seed, &block[..at + count * 8]), &block[4088..4092]), &[0; 4]);
                put(block, 4092, &right.to_le_bytes());
            }
        }
    }
}

/// Reads all that there is, at most `left` names of it. What cannot be read is passed over.
fn walk(volume: &Volume, hurt: &Damaged, inode: &Inode, left: &mut u32) {
    let mut buffer = [0; BLOCK_BYTES];
    for offset in [0, 5000, inode.size / 2, inode.size.wrapping_sub(1), u64::MAX] {
        let _ = volume.read(hurt, inode, offset, &mut buffer);
        let _ = volume.find(hurt, inode, (offset / BLOCK_BYTES as u64) as u32);
    }
    let _ = volume.target(hurt, inode);
    let _ = volume.xattrs(hurt, inode);
    let mut from = 0;
    while let Ok(entries) = volume.list(hurt, inode, from) {
        let Some(last) = entries.last() else { return };
        assert!(last.next > from, "a listing goes on");
        from = last.next;
        for entry in &entries {
            assert!((1..=NAME_MAX).contains(&entry.name.len()));
            if *left == 0 {
                return;
            }
            *left -= 1;
            let _ = volume.lookup(hurt, inode, &entry.name);
            if let Ok(below) = volume.inode(hurt, entry.inode)
                && below.kind != Kind::Directory
            {
                walk(volume, hurt, &below, left);
            }
        }
    }
}

/// Recovers a hurt volume as a component does: nothing is written if the journal is not right.
fn recover(volume: &Volume, hurt: &mut Damaged) -> Option<Recovered> {
    let mut recovery = Recovery::begin(volume, &*hurt).ok()?;
    for _ in 0..4 * hurt.image.blocks() {
        if let Step::Done(recovered) = recovery.step(volume.geometry(), &*hurt).ok()? {
            for write in &recovered.writes {
                let bytes = write.bytes(hurt.block(write.from).unwrap());
                hurt.change(write.to, |block| *block = bytes);
            }
            return Some(recovered);
        }
    }
    panic!("a recovery ends");
}

/// Writes all that is to be written.
fn write(mount: &mut Mount, hurt: &mut Damaged) {
    for _ in 0..BATCHES_MAX {
        let Some(batch) = mount.next(Time::default()) else { return };
        for put in batch.writes {
            assert!(put.block < hurt.image.blocks(), "block {} is written", put.block);
            hurt.other.insert(put.block, *put.bytes);
        }
        mount.done(true);
    }
    panic!("it is written for ever");
}

/// Does an operation, whatever comes of it.
fn attempt<T>(
    mount: &mut Mount,
    hurt: &mut Damaged,
    mut operation: impl FnMut(&mut Operation<'_, Damaged<'_>>) -> Result<T, Stop>,
) -> Option<T> {
    for _ in 0..2 {
        match mount.change(hurt, Time { seconds: 1 << 33, nanoseconds: 1 }, &mut operation) {
            Err(Stop::Commit(_)) => write(mount, hurt),
            ended => return ended.ok(),
        }
    }
    None
}

/// Changes all that there is in some way.
fn change(mount: &mut Mount, hurt: &mut Damaged, number: u32) {
    let size = mount.volume().inode(&mount.view(hurt), number).map_or(0, |inode| inode.size);
    for offset in [0, 5000, size / 2, size, size.wrapping_add(1 << 20)] {
        attempt(mount, hurt, |operation| operation.write(number, offset, &[7; 9000]));
    }
    let new = |kind| New { kind, permissions: 0o644, user: 1, group: 2, device: 0 };
    for name in [&b"new"[..], &[b'n'; 200], &[b'm'; 255], b"ein-sch\xC3\xB6ner-name-7"] {
        attempt(mount, hurt, |operation| operation.create(number, name, &new(Kind::Directory)));
        attempt(mount, hurt, |operation| operation.link(12, number, name));
        attempt(mount, hurt, |operation| operation.rename((number, name), (number, b"other"), How::Replace));
        attempt(mount, hurt, |operation| operation.rename((ROOT, b"a"), (number, b"other"), How::Exchange));
        attempt(mount, hurt, |operation| operation.symlink(number, name, &[b't'; 500], 0, 0));
    }
    for (name, bytes) in [(b"user.inner", 9), (b"user.outer", 900)] {
        let value = vec![1; bytes];
        attempt(mount, hurt, |operation| operation.set_xattr(number, name, &value, SetXattr::Any));
        attempt(mount, hurt, |operation| operation.remove_xattr(number, b"user.inner"));
    }
    let names = {
        let view = mount.view(hurt);
        let directory = mount.volume().inode(&view, number);
        directory.and_then(|directory| mount.volume().list(&view, &directory, 0)).unwrap_or_default()
    };
    for entry in names.iter().take(8) {
        attempt(mount, hurt, |operation| operation.unlink(number, &entry.name));
        attempt(mount, hurt, |operation| operation.rmdir(number, &entry.name));
    }
    for size in [1 << 21, size / 2, 0] {
        attempt(mount, hurt, |operation| operation.truncate(number, size));
        attempt(mount, hurt, |operation| operation.trim(number));
    }
    for orphan in mount.orphans().to_vec() {
        for _ in 0..10 {
            attempt(mount, hurt, |operation| operation.reclaim(orphan));
        }
    }
}

pub fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        1 => Just(Target::SuperBlock),
        1 => Just(Target::Descriptor),
        1 => any::<bool>().prop_map(Target::Bitmap),
        4 => (0..11usize).prop_map(Target::Inode),
        4 => any::<usize>().prop_map(Target::Block),
    ]
}

/// Numbers at which something turns, or any.
pub fn value() -> impl Strategy<Value = Vec<u8>> {
    let odd = prop::sample::select(vec![0u32, 1, 4, 8, 12, 507, 4096, 12_288, 0x7FFF, 0x8000, 0xFFFF, 1 << 31, !0]);
    (prop_oneof![odd, any::<u32>(), 0..13_000u32], prop::sample::select(vec![1usize, 2, 4]))
        .prop_map(|(number, width)| number.to_le_bytes()[..width].to_vec())
}

/// Near the beginning of a structure are its counts.
pub fn offset() -> impl Strategy<Value = usize> {
    prop_oneof![0..64usize, 0..BLOCK_BYTES]
}

/// Recovers, mounts, changes all that there is, and ends.
pub fn change_all(volume: &Volume, hurt: &mut Damaged, marks: &Marks) {
    let Some(recovered) = recover(volume, hurt) else { return };
    let Ok(mut mount) = Mount::begin(&*hurt, hurt.image.blocks(), &recovered) else { return };
    for number in marks.inodes.iter().copied() {
        change(&mut mount, hurt, number);
    }
    mount.close();
    write(&mut mount, hurt);
    assert!(mount.is_closed());
}

proptest! {
    #[test]
    fn no_image_makes_an_operation_panic_or_go_on(hurts in prop::collection::vec((target(), offset(), value()), 1..4)) {
        let (Some(image), Some(marks)) = (rich(), marks()) else { return Ok(()) };
        let mut hurt = Damaged::new(image);
        for (target, offset, value) in &hurts {
            marks.hurt(&mut hurt, *target, *offset, value);
        }
        hurt.asked.set(0);
        let Ok(volume) = Volume::open(&hurt, image.blocks()) else { return Ok(()) };
        for number in marks.inodes.iter().copied() {
            if let Ok(inode) = volume.inode(&hurt, number) {
                walk(&volume, &hurt, &inode, &mut 60);
            }
        }
        change_all(&volume, &mut hurt, marks);
        // Each of at most 11 × 60 names is looked up in at most all blocks of a directory.
        prop_assert!(hurt.asked.get() < 20_000_000, "{} blocks were asked for", hurt.asked.get());
    }
}

proptest! {
    #[test]
    fn what_was_found_right_and_is_not_any_more_is_in_its_range_all_the_same(
        hurts in prop::collection::vec((target(), offset(), value()), 1..4)
    ) {
        let (Some(image), Some(marks)) = (rich(), marks()) else { return Ok(()) };
        let mut hurt = Damaged::new(image);
        hurt.known.resize_with(image.blocks() as usize, Known::default);
        let look = |hurt: &Damaged| {
            let Ok(volume) = Volume::open(hurt, image.blocks()) else { return };
            for inode in marks.inodes.iter().filter_map(|number| volume.inode(hurt, *number).ok()) {
                walk(&volume, hurt, &inode, &mut 60);
            }
        };
        look(&hurt);
        prop_assert!(hurt.known.iter().any(|known| !known.is_nothing()));
        for (target, offset, value) in &hurts {
            marks.hurt(&mut hurt, *target, *offset, value);
        }
        look(&hurt);
        let Ok(volume) = Volume::open(&hurt, image.blocks()) else { return Ok(()) };
        change_all(&volume, &mut hurt, marks);
    }
}

/// An image of several groups in which the descriptor of group 1 has another number at `at`.
fn with_descriptor(image: &Image, at: usize, value: u32) -> Image {
    let mut image = image.clone();
    let seed = sum(sum(!0, &image.0[1024 + 0x68..1024 + 0x78]), &1u32.to_le_bytes());
    let descriptor = &mut image.block_mut(1)[64..128];
    put(descriptor, at, &value.to_le_bytes());
    put(descriptor, 30, &[0; 2]);
    let right = (sum(seed, descriptor) as u16).to_le_bytes();
    put(descriptor, 30, &right);
    image
}

#[test]
fn a_volume_of_which_two_groups_claim_one_block_is_not_written() {
    let Some(image) = make(400, &[]) else { return };
    let begin = |image: &Image| {
        let volume = Volume::open(image, image.blocks())?;
        let mut recovery = Recovery::begin(&volume, image)?;
        let Step::Done(recovered) = recovery.step(volume.geometry(), image)? else { panic!("nothing is to recover") };
        Mount::begin(image, image.blocks(), &recovered).map(|_| ())
    };
    assert_eq!(begin(&image), Ok(()));
    let first = u32::from_le_bytes(image.block(1).unwrap()[..4].try_into().unwrap());
    for (at, value) in [(0, first), (4, first), (8, first - 1), (0, 1)] {
        let Err(Stop::Failed(Error::Corrupt { what, .. })) = begin(&with_descriptor(&image, at, value)) else {
            panic!("{value} at {at} is accepted")
        };
        assert_eq!(what, "where the groups' parts lie");
    }
}

#[test]
fn what_is_no_files_is_not_written_or_freed_for_a_file_that_claims_it() {
    let (Some(image), Some(marks)) = (rich(), marks()) else { return };
    let mut hurt = Damaged::new(image);
    // The first extent of a file: its first block is the table of inodes.
    let which = marks.inodes.len() - 4;
    marks.hurt(&mut hurt, Target::Inode(which), 40 + 12 + 8, &(marks.table as u32).to_le_bytes());
    let number = marks.inodes[which];
    let volume = Volume::open(&hurt, image.blocks()).unwrap();
    let recovered = recover(&volume, &mut hurt).unwrap();
    let mut mount = Mount::begin(&hurt, image.blocks(), &recovered).unwrap();
    let now = Time::default();
    let what = |stop: Stop| match stop {
        Stop::Failed(Error::Corrupt { what, .. }) => what,
        stop => panic!("{stop:?}"),
    };
    let written = mount.change(&hurt, now, |operation| operation.write(number, 0, &[1; 5000]));
    assert_eq!(written.map_err(what), Err("a file with blocks that are no file's"));
    let cut = mount.change(&hurt, now, |operation| operation.truncate(number, 0));
    assert_eq!(cut.map_err(what), Err("blocks that are to be freed"));
    assert_eq!(mount.sync_all(), None, "nothing was changed");
}
