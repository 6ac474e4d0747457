//! Images with wrong bytes, most of them under checksums that fit: whatever they say, an operation
//! ends with a result or an error, asks for blocks of the volume only, and ends soon.
//!
//! `PROPTEST_CASES=10000` makes it as many as the promise is about.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::common::{Image, rich};
use ext4::{BLOCK_BYTES, Block, Blocks, Inode, Kind, NAME_MAX, Place, ROOT, Stop, Volume};
use proptest::prelude::*;

/// An image with some other blocks; it counts what is asked for.
struct Damaged<'a> {
    image: &'a Image,
    other: BTreeMap<u64, Block>,
    asked: Cell<u64>,
}

impl Blocks for Damaged<'_> {
    fn block(&self, number: u64) -> Option<&Block> {
        self.asked.set(self.asked.get() + 1);
        assert!(number < self.image.blocks(), "block {number} is not in the volume");
        self.other.get(&number).or_else(|| self.image.block(number))
    }
}

impl Damaged<'_> {
    fn change(&mut self, block: u64, change: impl FnOnce(&mut Block)) {
        let bytes = self.other.entry(block).or_insert_with(|| *self.image.block(block).unwrap());
        change(bytes);
    }
}

/// Where bytes are changed.
#[derive(Clone, Copy, Debug)]
enum Target {
    SuperBlock,
    Descriptor,
    /// One of [`Marks::inodes`].
    Inode(usize),
    /// One of [`Marks::blocks`].
    Block(usize),
}

/// Of the image: inodes, and blocks of directories and extents with the inode that they are of.
struct Marks {
    inodes: Vec<u32>,
    blocks: Vec<(u32, u64)>,
    table: u64,
}

fn marks() -> Option<&'static Marks> {
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
    fn hurt(&self, hurt: &mut Damaged, target: Target, offset: usize, value: &[u8]) {
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

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        1 => Just(Target::SuperBlock),
        1 => Just(Target::Descriptor),
        4 => (0..11usize).prop_map(Target::Inode),
        4 => any::<usize>().prop_map(Target::Block),
    ]
}

/// Numbers at which something turns, or any.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let odd = prop::sample::select(vec![0u32, 1, 4, 8, 12, 507, 4096, 12_288, 0x7FFF, 0x8000, 0xFFFF, 1 << 31, !0]);
    (prop_oneof![odd, any::<u32>(), 0..13_000u32], prop::sample::select(vec![1usize, 2, 4]))
        .prop_map(|(number, width)| number.to_le_bytes()[..width].to_vec())
}

/// Near the beginning of a structure are its counts.
fn offset() -> impl Strategy<Value = usize> {
    prop_oneof![0..64usize, 0..BLOCK_BYTES]
}

proptest! {
    #[test]
    fn no_image_makes_an_operation_panic_or_go_on(hurts in prop::collection::vec((target(), offset(), value()), 1..4)) {
        let (Some(image), Some(marks)) = (rich(), marks()) else { return Ok(()) };
        let mut hurt = Damaged { image, other: BTreeMap::new(), asked: Cell::new(0) };
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
        // Each of at most 11 × 60 names is looked up in at most all blocks of a directory.
        prop_assert!(hurt.asked.get() < 20_000_000, "{} blocks were asked for", hurt.asked.get());
    }
}
