//! Volumes that are made here: e2fsck has no word to say, they are what mkfs.ext4 makes, and they
//! are read.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use crate::common::{Image, program};
use crate::disk::{Disk, Random};
use ext4::{
    Action, BLOCK_BYTES, Format, FormatError, FormatOptions, Place, ROOT, Recovery, Step, Volume, is_unfinished,
};
use ext4_view::Ext4;

const UUID: [u8; 16] = *b"\x12\x34\x56\x78\x9A\xBC\x4D\xEF\x81\x02\x03\x04\x05\x06\x07\x08";
const HASH_SEED: [u8; 16] = *b"\x0F\x1E\x2D\x3C\x4B\x5A\x49\x78\x97\xA6\xB5\xC4\xD3\xE2\xF1\x01";
const NOW_SECONDS: u64 = 1_600_000_000;
/// A time whose seconds do not fit in 32 bits: the year 2108.
const LATER_SECONDS: u64 = 0x1_0400_0000;
const MIB: u64 = (1 << 20) / BLOCK_BYTES as u64;
const GIB: u64 = 1024 * MIB;

fn options(device_blocks: u64) -> FormatOptions {
    let label = *b"a volume of ours";
    FormatOptions { device_blocks, uuid: UUID, hash_seed: HASH_SEED, label, now_seconds: NOW_SECONDS, is_zero: true }
}

/// Does what is to be done to an image in a file.
fn apply(file: &File, actions: impl Iterator<Item = Action>) {
    for action in actions {
        match action {
            Action::Write { block, bytes } => file.write_all_at(&bytes[..], block * BLOCK_BYTES as u64).unwrap(),
            Action::Zero { first, blocks } => {
                let zeros = vec![0; blocks as usize * BLOCK_BYTES];
                file.write_all_at(&zeros, first * BLOCK_BYTES as u64).unwrap();
            }
            Action::Flush => {}
        }
    }
}

/// A sparse file with a new volume.
fn formatted(folder: &Path, options: &FormatOptions) -> PathBuf {
    let path = folder.join("image");
    let file = File::create(&path).unwrap();
    file.set_len(options.device_blocks * BLOCK_BYTES as u64).unwrap();
    apply(&file, Format::new(options).unwrap());
    path
}

/// A volume of `mib` MiB.
pub fn made_here(mib: u64) -> Image {
    formatted_image(&options(mib * MIB), 0)
}

/// Makes a volume in memory, on a device that has `fill` everywhere.
fn formatted_image(options: &FormatOptions, fill: u8) -> Image {
    let mut image = Image(vec![fill; options.device_blocks as usize * BLOCK_BYTES]);
    do_all(&mut image, Format::new(options).unwrap());
    image
}

fn do_all(image: &mut Image, actions: impl Iterator<Item = Action>) {
    let (blocks, _) = image.0.as_chunks_mut::<BLOCK_BYTES>();
    for action in actions {
        match action {
            Action::Write { block, bytes } => blocks[block as usize] = *bytes,
            Action::Zero { first, blocks: count } => blocks[first as usize..][..count as usize].fill([0; BLOCK_BYTES]),
            Action::Flush => {}
        }
    }
}

/// Expects that e2fsck passes over all of the volume without a word besides its passes.
fn check(path: &Path) {
    let Some(fsck) = program("e2fsck") else { return };
    let done = Command::new(fsck).arg("-fn").arg(path).output().unwrap();
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    let mut lines = told.lines().filter(|line| !line.starts_with("Pass ")).collect::<Vec<_>>();
    let summary = lines.pop().unwrap_or_default();
    assert!(done.status.success() && lines.is_empty() && summary.contains("files ("), "{path:?}: {told}");
}

#[test]
fn e2fsck_has_no_word_to_say_about_any_size() {
    let small = [0, 1, 6000, 32_768 - 2048, 32_768 - 2047, 33_000, 35_000, 63_488, 63_489];
    let small = small.map(|more| FormatError::BLOCKS_MIN + more);
    let edges = [512 * MIB - 1, 512 * MIB, GIB - 1, GIB, 2 * GIB, 4 * GIB - 1, 4 * GIB, 4 * GIB + 600, 4 * GIB + 400];
    let large = [10 * GIB + 77_777, 16 * GIB - 1, 16 * GIB, 32 * GIB, 64 * GIB - 1, 64 * GIB];
    for blocks in small.into_iter().chain(edges).chain(large) {
        let folder = tempfile::tempdir().unwrap();
        let path = formatted(folder.path(), &options(blocks));
        check(&path);
    }
}

#[test]
fn a_volume_without_its_first_blocks_is_mended_by_each_copy() {
    let Some(fsck) = program("e2fsck") else { return };
    for group in [1, 3, 5, 7, 9, 25] {
        let folder = tempfile::tempdir().unwrap();
        let path = formatted(folder.path(), &options(26 * 32_768));
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&[0xFF; 2 * BLOCK_BYTES], 0).unwrap();
        let copy = format!("-b{}", group * 32_768);
        let done = Command::new(&fsck).args(["-fy", &copy, "-B4096"]).arg(&path).output().unwrap();
        assert_eq!(done.status.code(), Some(1), "group {group}: {}", String::from_utf8_lossy(&done.stdout));
        check(&path);
    }
}

/// What dumpe2fs tells of a volume, less what is different each time.
fn dump(path: &Path) -> Option<Vec<String>> {
    // The times; what else was written; and the journal's superblock, which has its features here
    // already and so a checksum.
    const OTHERS: [&str; 9] = [
        "Filesystem created",
        "Last write time",
        "Last checked",
        "Lifetime writes",
        "Checksum:",
        "Journal features",
        "Journal checksum",
        "Journal sequence",
        "Journal start",
    ];
    let done = Command::new(program("dumpe2fs")?).arg("-h").arg(path).output().unwrap();
    assert!(done.status.success());
    let told = String::from_utf8(done.stdout).unwrap();
    let lines = told.lines().filter(|line| !OTHERS.iter().any(|other| line.starts_with(other)));
    Some(lines.map(String::from).collect())
}

#[test]
fn features_and_sizes_are_those_of_mkfs_ext4() {
    let Some(mkfs) = program("mkfs.ext4") else { return };
    for blocks in [8 * MIB, 100 * MIB, 150 * MIB + 17, 600 * MIB + 5, 4 * GIB, 20 * GIB, 64 * GIB] {
        let folder = tempfile::tempdir().unwrap();
        let path = formatted(folder.path(), &options(blocks));
        let ours = dump(&path).unwrap();
        let file = File::create(&path).unwrap();
        file.set_len(blocks * BLOCK_BYTES as u64).unwrap();
        let uuid = "12345678-9abc-4def-8102-030405060708";
        let seed = "hash_seed=0f1e2d3c-4b5a-4978-97a6-b5c4d3e2f101";
        let made = Command::new(&mkfs)
            .args(["-q", "-F", "-b4096", "-m0", "-O^resize_inode", "-La volume of ours", "-U", uuid, "-E", seed])
            .arg(&path)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        assert_eq!(ours, dump(&path).unwrap(), "{blocks} blocks");
    }
}

#[test]
fn a_new_volume_has_lost_and_found_and_nothing_to_recover() {
    let image = formatted_image(&FormatOptions { now_seconds: LATER_SECONDS, ..options(24 * MIB) }, 0);
    let volume = Volume::open(&image, image.blocks()).unwrap();
    assert!(!volume.geometry().needs_recovery);
    let mut recovery = Recovery::begin(&volume, &image).unwrap();
    let Ok(Step::Done(recovered)) = recovery.step(volume.geometry(), &image) else { panic!("the log is empty") };
    assert!(recovered.writes.is_empty());
    let root = volume.inode(&image, ROOT).unwrap();
    assert_eq!((root.permissions, root.links, root.size, root.sectors), (0o755, 3, 4096, 8));
    assert_eq!(root.times.map(|time| time.seconds), [LATER_SECONDS as i64; 3]);
    let number = volume.lookup(&image, &root, b"lost+found").unwrap();
    let lost_found = volume.inode(&image, number).unwrap();
    assert_eq!((lost_found.permissions, lost_found.links, lost_found.size), (0o700, 2, 16_384));
    let names = volume.list(&image, &lost_found, 0).unwrap();
    assert_eq!(names.iter().map(|entry| &entry.name[..]).collect::<Vec<_>>(), [&b"."[..], b".."]);
    assert_eq!(volume.list(&image, &lost_found, names[1].next), Ok(Vec::new()));
    let judge = Ext4::load(Box::new(image.0.clone())).unwrap();
    assert_eq!(judge.label().to_str(), Ok("a volume of ours"));
    assert_eq!(judge.uuid().as_bytes(), &UUID);
    assert_eq!(judge.read_dir("/lost+found").unwrap().count(), 2);
}

#[test]
fn a_device_with_old_bytes_gets_zeros_where_they_are_needed() {
    for blocks in [24 * MIB, 150 * MIB] {
        let image = formatted_image(&FormatOptions { is_zero: false, ..options(blocks) }, 0xA5);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        fs::write(&path, &image.0).unwrap();
        check(&path);
        let volume = Volume::open(&image, blocks).unwrap();
        for number in 12..=volume.geometry().inodes {
            assert_eq!(volume.inode(&image, number), Err(ext4::Error::NotFound.into()), "inode {number}");
        }
        let journal = volume.inode(&image, ext4::JOURNAL_INODE).unwrap();
        let stretch = volume.find(&image, &journal, 1).unwrap();
        let Place::Written(first) = stretch.place else { panic!("{stretch:?}") };
        assert!((first..first + stretch.blocks).all(|block| image.block(block) == Some(&[0; BLOCK_BYTES])));
    }
}

#[test]
fn a_device_that_loses_its_power_has_nothing_or_the_mark_or_the_volume() {
    let whole = formatted_image(&options(8 * MIB), 0);
    let base = Rc::new(Image(vec![0; whole.0.len()]));
    let (mut disk, mut random) = (Disk::new(&base), Random::new(1));
    let mut met = [0; 3];
    for action in Format::new(&options(8 * MIB)).unwrap() {
        match action {
            Action::Write { block, bytes } => disk.write(block, &bytes).unwrap(),
            Action::Zero { .. } => panic!("the device is zeros already"),
            Action::Flush => disk.flush().unwrap(),
        }
        for _ in 0..20 {
            let after = disk.cut(&mut random);
            let first = after.read(0).unwrap();
            let state = if is_unfinished(&first) { 1 } else { usize::from(first != [0; BLOCK_BYTES]) * 2 };
            met[state] += 1;
            // While there is the mark, nothing else counts.
            assert!(state == 1 || after.image().0 == [&base, &whole][state / 2].0, "state {state}");
        }
    }
    assert!(met.iter().all(|count| *count > 0), "{met:?}");
    assert_eq!(disk.image().0, whole.0);
}

#[test]
fn four_gigabytes_take_a_few_writes_and_no_block_two_between_flushes() {
    for is_zero in [true, false] {
        let (mut written, mut writes) = (Vec::new(), 0);
        for action in Format::new(&FormatOptions { is_zero, ..options(GIB * 4) }).unwrap() {
            match action {
                Action::Write { block, .. } => written.push((block, block + 1)),
                Action::Zero { first, blocks } => written.push((first, first + blocks)),
                Action::Flush => written.clear(),
            }
            written.sort_unstable();
            assert!(written.windows(2).all(|two| two[0].1 <= two[1].0), "{written:?}");
            writes += u32::from(!matches!(action, Action::Flush));
        }
        assert!(writes < 70, "{writes} writes");
    }
}

#[test]
fn a_device_too_small_or_too_large_is_refused() {
    let refusal = |blocks| Format::new(&options(blocks)).err().map(|error| (error, error.to_string()));
    let small = FormatError::TooSmall { blocks: 2047 };
    assert_eq!(refusal(2047), Some((small, "7 MiB is too small for ext4: at least 8 MiB".into())));
    let blocks = (1 << 32) + 256;
    let large = FormatError::TooLarge { blocks };
    assert_eq!(refusal(blocks), Some((large, "16777217 MiB is too large: at most 16777216 MiB".into())));
    assert_eq!(
        refusal(0),
        Some((FormatError::TooSmall { blocks: 0 }, "0 MiB is too small for ext4: at least 8 MiB".into()))
    );
    assert!(Format::new(&options(1 << 32)).is_ok());
}
