//! A journal that debugfs wrote is recovered, and the volume compared with what e2fsck makes of it.

use std::fs;
use std::process::Command;
use std::sync::LazyLock;

use ext4::{BLOCK_BYTES, Block, Blocks, Error, Place, Recovered, Recovery, Step, Stop, Volume, Write};
use proptest::prelude::*;

use crate::common::{Cache, Image, made, program};

/// What the journal's blocks begin with.
const MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];
/// The places that the transactions write to begin here; mkfs.ext4 leaves them free.
const FIRST: u64 = 3000;
/// Blocks of the large transaction: more than the 253 that one descriptor has.
const LARGE: u64 = 260;

/// A volume with transactions in its journal, and what e2fsck makes of it.
struct Pair {
    before: Image,
    after: Image,
    /// The blocks of the journal.
    journal: Vec<u64>,
}

fn pair() -> Option<&'static Pair> {
    static PAIR: LazyLock<Option<Pair>> = LazyLock::new(make_pair);
    PAIR.as_ref()
}

fn make_pair() -> Option<Pair> {
    let (debugfs, fsck) = (program("debugfs")?, program("e2fsck")?);
    let folder = tempfile::tempdir().unwrap();
    let image = made(folder.path(), 24, &[])?;
    let file = |name: &str, bytes: Vec<u8>| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let blocks = |seed: u8, count: usize| -> Vec<u8> {
        (0..count * BLOCK_BYTES).map(|at| (at * 31 + at / BLOCK_BYTES * 7) as u8 ^ seed).collect()
    };
    let list = |first: u64, count: u64| (first..first + count).map(|at| at.to_string()).collect::<Vec<_>>().join(",");
    let escaped = [&MAGIC[..], &blocks(2, 1)[4..]].concat();
    let commands = [
        "journal_open -c".into(),
        format!("journal_write -b {} {}", list(FIRST, 3), file("three", blocks(1, 3))),
        format!("journal_write -b {} {}", FIRST + 1, file("escaped", escaped)),
        format!("journal_write -r {}", FIRST + 2),
        format!("journal_write -b {} {}", list(FIRST + 10, LARGE), file("large", blocks(3, LARGE as usize))),
        format!("journal_write -b {} {}", FIRST + 10, file("newer", blocks(4, 1))),
        // This one gets no commit block.
        format!("journal_write -c -b {} {}", FIRST + 11, file("lost", blocks(5, 1))),
        "journal_close".into(),
    ];
    let script = file("commands", commands.join("\n").into_bytes());
    assert!(Command::new(debugfs).args(["-w", "-f", &script]).arg(&image).output().unwrap().status.success());
    let before = Image(fs::read(&image).unwrap());
    Command::new(fsck).args(["-y", "-E", "journal_only"]).arg(&image).output().unwrap();
    let journal = (0..1024).map(|logical| place(&before, logical)).collect();
    Some(Pair { before, after: Image(fs::read(&image).unwrap()), journal })
}

/// The writes of a recovery, by a cache that starts empty.
fn recover(image: &Image) -> Result<Vec<Write>, Error> {
    let mut cache = Cache::new(image);
    let volume = cache.run(|blocks| Volume::open(blocks, image.blocks()))?;
    let mut recovery = cache.run(|blocks| Recovery::begin(&volume, blocks))?;
    // A record and a sum for each block of the journal, and the ends.
    for _ in 0..2 * image.blocks() {
        if let Step::Done(Recovered { writes, .. }) = cache.run(|blocks| recovery.step(volume.geometry(), blocks))? {
            return Ok(writes);
        }
    }
    panic!("a recovery ends");
}

/// The writes of a recovery whose blocks are all there.
fn recover_at_once(image: &Image) -> Result<Vec<Write>, Stop> {
    let volume = Volume::open(image, image.blocks())?;
    let mut recovery = Recovery::begin(&volume, image)?;
    for _ in 0..2 * image.blocks() {
        if let Step::Done(Recovered { writes, .. }) = recovery.step(volume.geometry(), image)? {
            return Ok(writes);
        }
    }
    panic!("a recovery ends");
}

/// Where block `logical` of the journal is.
pub fn place(image: &Image, logical: u32) -> u64 {
    let volume = Volume::open(image, image.blocks()).unwrap();
    let journal = volume.inode(image, ext4::JOURNAL_INODE).unwrap();
    match volume.find(image, &journal, logical).unwrap().place {
        Place::Written(block) => block,
        place => panic!("{place:?}"),
    }
}

#[test]
fn a_recovered_volume_is_the_one_that_e2fsck_makes() {
    let Some(Pair { before, after, journal }) = pair() else { return };
    assert!(Volume::open(before, before.blocks()).unwrap().geometry().needs_recovery);
    assert!(!Volume::open(after, after.blocks()).unwrap().geometry().needs_recovery);
    let writes = recover(before).unwrap();
    assert_eq!(writes.len() as u64, 2 + LARGE, "two of the first three are left");
    let mut ours = before.clone();
    for write in &writes {
        let bytes = write.bytes(before.block(write.from).unwrap());
        *ours.block_mut(write.to) = bytes;
    }
    // e2fsck writes both superblocks too.
    let own = [0, journal[0]];
    for number in (0..after.blocks()).filter(|number| !own.contains(number)) {
        assert!(ours.block(number) == after.block(number), "block {number}");
    }
    assert_eq!(recover(after), Ok(Vec::new()), "then nothing is left to recover");
}

#[test]
fn a_transaction_counts_when_its_commit_is_there_and_all_of_it_must_be() {
    let Some(Pair { before, journal, .. }) = pair() else { return };
    // The log: a descriptor, three blocks, a commit; a descriptor, a block, a commit; and so on.
    let mut torn = before.clone();
    torn.block_mut(journal[5])[512..].fill(7);
    assert_eq!(recover(&torn), Ok(Vec::new()), "without its first commit the log is empty");
    let mut torn = before.clone();
    torn.block_mut(journal[8])[..512].fill(0);
    assert_eq!(recover(&torn).unwrap().iter().map(|write| write.to).collect::<Vec<_>>(), [FIRST, FIRST + 1, FIRST + 2]);
    let mut wrong = before.clone();
    wrong.block_mut(journal[7])[4095] ^= 1;
    let Err(Error::Corrupt { what, .. }) = recover(&wrong) else { panic!("a wrong block is recovered") };
    assert_eq!(what, "the checksum of a block in the journal");
}

#[test]
fn journals_with_other_features_are_refused_by_name() {
    let Some(Pair { before, journal, .. }) = pair() else { return };
    for (bit, name) in [(0x4, "async_commit"), (0x8, "checksum_v2"), (0x20, "fast_commit")] {
        let mut other = before.clone();
        other.block_mut(journal[0])[43] |= bit;
        assert_eq!(recover(&other), Err(Error::Refused(ext4::Refusal::Has(name))));
    }
}

/// Puts the checksum of a journal's block right, whatever it is.
pub fn put_sum(block: &mut Block, seed: u32) {
    let (end, at, start) = match block[7] {
        4 => (1024, 0xFC, !0),
        2 => (BLOCK_BYTES, 16, seed),
        _ => (BLOCK_BYTES, 4092, seed),
    };
    block[at..at + 4].fill(0);
    let right = crate::mutated::sum(start, &block[..end]);
    block[at..at + 4].copy_from_slice(&right.to_be_bytes());
}

proptest! {
    #[test]
    fn no_journal_makes_recovery_panic_or_go_on(
        logical in prop_oneof![0..15usize, 0..1024usize],
        offset in prop_oneof![0..64usize, 0..BLOCK_BYTES - 4],
        value in any::<[u8; 4]>(),
        width in 1..5usize,
        with_sum in any::<bool>(),
    ) {
        let Some(Pair { before, journal, .. }) = pair() else { return Ok(()) };
        let mut hurt = before.clone();
        let seed = crate::mutated::sum(!0, &before.block(journal[0]).unwrap()[48..64]);
        let block = hurt.block_mut(journal[logical]);
        block[offset..offset + width].copy_from_slice(&value[..width]);
        if with_sum && block[..4] == MAGIC {
            put_sum(block, seed);
        }
        if let Ok(writes) = recover_at_once(&hurt) {
            prop_assert!(writes.iter().all(|write| journal.contains(&write.from) && !journal.contains(&write.to)));
            prop_assert!(writes.iter().all(|write| Blocks::block(before, write.to).is_some()));
        }
    }
}
