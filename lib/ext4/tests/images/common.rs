//! Volumes that `mkfs.ext4` makes, and a cache that has nothing but what was asked for.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use ext4::{BLOCK_BYTES, Block, Blocks, Error, Stop};

/// What all volumes here are made with, beside what a test adds.
const OPTIONS: [&str; 8] =
    ["-q", "-F", "-b4096", "-N8192", "-Ometadata_csum,64bit,extent,dir_index", "-Elazy_itable_init=0", "-I256", "-m0"];
/// Names in `/many`: so many of 240 bytes that its index has nodes below its root, for 507 blocks.
pub const MANY: usize = 9000;
/// Where e2fsprogs are.
const E2FSPROGS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// An image of a volume in memory.
#[derive(Clone)]
pub struct Image(pub Vec<u8>);

impl Image {
    pub fn blocks(&self) -> u64 {
        (self.0.len() / BLOCK_BYTES) as u64
    }

    pub fn block(&self, number: u64) -> Option<&Block> {
        self.0.as_chunks().0.get(usize::try_from(number).ok()?)
    }

    pub fn block_mut(&mut self, number: u64) -> &mut Block {
        &mut self.0.as_chunks_mut().0[number as usize]
    }
}

impl Blocks for Image {
    fn block(&self, number: u64) -> Option<&Block> {
        Image::block(self, number)
    }
}

/// A cache that is filled by what operations ask for.
pub struct Cache<'a> {
    image: &'a Image,
    there: BTreeMap<u64, Block>,
}

impl Blocks for Cache<'_> {
    fn block(&self, number: u64) -> Option<&Block> {
        self.there.get(&number)
    }
}

impl<'a> Cache<'a> {
    pub fn new(image: &'a Image) -> Cache<'a> {
        Cache { image, there: BTreeMap::new() }
    }

    /// Blocks that were asked for.
    pub fn count(&self) -> usize {
        self.there.len()
    }

    /// Does `operation`, again for each block that it misses. Each of those is a new one inside the
    /// volume.
    pub fn run<T>(&mut self, mut operation: impl FnMut(&Self) -> Result<T, Stop>) -> Result<T, Error> {
        loop {
            match operation(self) {
                Ok(result) => return Ok(result),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Commit(number)) => panic!("transaction {number} is waited for by a reader"),
                Err(Stop::Need(number)) => {
                    let block =
                        self.image.block(number).unwrap_or_else(|| panic!("block {number} is not in the volume"));
                    assert!(self.there.insert(number, *block).is_none(), "block {number} was there");
                }
            }
        }
    }
}

/// The path of a program of e2fsprogs, or `None`, with a line that says what is skipped.
pub fn program(name: &str) -> Option<String> {
    let found = E2FSPROGS.iter().map(|folder| format!("{folder}/{name}")).find(|path| Path::new(path).exists());
    if found.is_none() {
        eprintln!("skipped: {name} is not installed (Debian: e2fsprogs)");
    }
    found
}

/// Makes a volume of `mib` MiB with `options`.
pub fn make(mib: u64, options: &[&str]) -> Option<Image> {
    let folder = tempfile::tempdir().unwrap();
    let path = made(folder.path(), mib, options)?;
    Some(Image(fs::read(path).unwrap()))
}

/// What e2fsck says of a volume: its status, and its words.
pub fn fsck(image: &Image, options: &[&str]) -> (Image, i32, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    fs::write(&path, &image.0).unwrap();
    let run = Command::new(program("e2fsck").unwrap()).args(options).arg(&path).output().unwrap();
    let words = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    (Image(fs::read(path).unwrap()), run.status.code().unwrap(), words)
}

/// Makes it as a file in `folder`.
pub fn made(folder: &Path, mib: u64, options: &[&str]) -> Option<PathBuf> {
    let mkfs = program("mkfs.ext4")?;
    let path = folder.join("image");
    fs::File::create(&path).unwrap().set_len(mib << 20).unwrap();
    let made = Command::new(mkfs).args(OPTIONS).args(options).arg(&path).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(path)
}

/// A volume with files of each kind that is read here, made once.
pub fn rich() -> Option<&'static Image> {
    static RICH: LazyLock<Option<Image>> = LazyLock::new(make_rich);
    RICH.as_ref()
}

fn make_rich() -> Option<Image> {
    let (debugfs, fsck) = (program("debugfs")?, program("e2fsck")?);
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    write_files(&source);
    let image = made(folder.path(), 48, &["-d", source.to_str().unwrap()])?;
    let debugfs = |command: &str| {
        let done = Command::new(&debugfs).args(["-w", "-R", command]).arg(&image).output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    };
    let stat = debugfs("stat /a/1");
    let number = stat.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("debugfs tells an inode");
    let many = folder.path().join("many");
    fs::write(&many, large_directory(number)).unwrap();
    debugfs(&format!("write {} many", many.display()));
    debugfs("set_inode_field many mode 040755");
    // It mends what is still wrong with that directory, and gives all large ones their index.
    Command::new(&fsck).args(["-fyD"]).arg(&image).output().unwrap();
    let clean = Command::new(&fsck).arg("-fn").arg(&image).output().unwrap();
    assert!(clean.status.success(), "{}", String::from_utf8_lossy(&clean.stdout));
    Some(Image(fs::read(image).unwrap()))
}

/// The blocks of a directory with [`MANY`] names of one inode. `mkfs.ext4` would take half a
/// minute for it.
fn large_directory(inode: u32) -> Vec<u8> {
    const NAME: usize = 240;
    const LENGTH: usize = 8 + NAME;
    let entry = |length: usize, name: &[u8], kind: u8| {
        let mut bytes = inode.to_le_bytes().to_vec();
        bytes.extend([length as u8, (length >> 8) as u8, name.len() as u8, kind]);
        bytes.extend(name);
        bytes.resize(length, 0);
        bytes
    };
    let mut all = [entry(12, b".", 2), entry(4084 - 12, b"..", 2)].concat();
    all.extend([0; 12]);
    let per_block = 4084 / LENGTH;
    for first in (0..MANY).step_by(per_block) {
        let last = MANY.min(first + per_block) - 1;
        for number in first..=last {
            let length = if number == last { 4084 - (last - first) * LENGTH } else { LENGTH };
            all.extend(entry(length, format!("{number:0>NAME$}").as_bytes(), 1));
        }
        all.extend([0, 0, 0, 0, 12, 0, 0, 0xDE, 0, 0, 0, 0]);
    }
    all
}

fn write_files(root: &Path) {
    fs::create_dir_all(root.join("a/b/c")).unwrap();
    fs::create_dir_all(root.join("some")).unwrap();
    for number in 0..300 {
        fs::write(root.join("some").join(format!("ein-schöner-name-{number}")), "").unwrap();
    }
    for size in [1, 4095, 4096, 4097, 300_000] {
        fs::write(root.join(format!("a/{size}")), bytes(size)).unwrap();
    }
    fs::hard_link(root.join("a/4097"), root.join("a/b/c/hard")).unwrap();
    symlink("short", root.join("a/short")).unwrap();
    symlink("s".repeat(59), root.join("a/fifty-nine")).unwrap();
    symlink("s".repeat(60), root.join("a/sixty")).unwrap();
    symlink("l".repeat(200), root.join("a/long")).unwrap();
    sparse(&root.join("a/sparse"));
}

/// A file in which every second of 800 blocks is a hole, so that its extents need nodes.
fn sparse(path: &Path) {
    use std::os::unix::fs::FileExt;
    let file = fs::File::create(path).unwrap();
    for number in 0..400u64 {
        file.write_all_at(&[number as u8 | 1; BLOCK_BYTES], number * 2 * BLOCK_BYTES as u64).unwrap();
    }
}

/// Bytes that say where they are.
fn bytes(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 7 + at / 251) as u8).collect()
}
