//! What `mkfs.ext4` wrote is read, by a cache that starts empty, and compared with what ext4-view
//! reads.

use crate::common::{Cache, Image, MANY, make, rich};
use ext4::{Error, Inode, Kind, Place, ROOT, Refusal, Stop, Volume};
use ext4_view::Ext4;

/// A volume and its cache, both for one image.
struct Mounted<'a> {
    cache: Cache<'a>,
    volume: Volume,
}

impl<'a> Mounted<'a> {
    fn new(image: &'a Image) -> Result<Mounted<'a>, Error> {
        let mut cache = Cache::new(image);
        let volume = cache.run(|blocks| Volume::open(blocks, image.blocks()))?;
        Ok(Mounted { cache, volume })
    }

    fn inode(&mut self, number: u32) -> Inode {
        self.cache.run(|blocks| self.volume.inode(blocks, number)).unwrap()
    }

    fn lookup(&mut self, directory: &Inode, name: &[u8]) -> Result<u32, Error> {
        self.cache.run(|blocks| self.volume.lookup(blocks, directory, name))
    }

    fn read(&mut self, file: &Inode) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let mut part = [0; 5000];
            let offset = all.len() as u64;
            let count = self.cache.run(|blocks| self.volume.read(blocks, file, offset, &mut part)).unwrap();
            if count == 0 {
                return all;
            }
            all.extend_from_slice(&part[..count]);
        }
    }

    fn names(&mut self, directory: &Inode) -> Vec<(Vec<u8>, u32)> {
        let (mut names, mut from) = (Vec::new(), 0);
        loop {
            let entries = self.cache.run(|blocks| self.volume.list(blocks, directory, from)).unwrap();
            let Some(last) = entries.last() else { return names };
            assert!(last.next > from, "a listing goes on");
            from = last.next;
            names.extend(entries.iter().map(|entry| (entry.name.to_vec(), entry.inode)));
        }
    }
}

/// Compares what is at `path` and below it.
fn compare(mounted: &mut Mounted<'_>, judge: &Ext4, path: &str, inode: &Inode) {
    let told = judge.symlink_metadata(path).unwrap();
    let ours = (inode.permissions, inode.user, inode.group);
    assert_eq!(ours, (told.mode() & 0o7777, told.uid(), told.gid()), "{path}");
    match inode.kind {
        Kind::File => {
            assert_eq!(inode.size, told.len(), "{path}");
            assert!(mounted.read(inode) == judge.read(path).unwrap(), "{path}");
        }
        Kind::Link => {
            let target = mounted.cache.run(|blocks| mounted.volume.target(blocks, inode)).unwrap();
            assert_eq!(&target[..], AsRef::<[u8]>::as_ref(&judge.read_link(path).unwrap()), "{path}");
        }
        Kind::Directory => compare_directory(mounted, judge, path, inode),
        kind => panic!("{path} is a {kind:?}"),
    }
}

fn compare_directory(mounted: &mut Mounted<'_>, judge: &Ext4, path: &str, inode: &Inode) {
    let mut ours = mounted.names(inode);
    let mut theirs: Vec<Vec<u8>> = judge
        .read_dir(path)
        .unwrap()
        .map(|entry| AsRef::<[u8]>::as_ref(&entry.unwrap().file_name()).to_vec())
        .collect();
    ours.sort();
    theirs.sort();
    assert_eq!(ours.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), theirs, "{path}");
    for (name, number) in ours {
        assert_eq!(mounted.lookup(inode, &name), Ok(number), "{path}/{name:?}");
        if name != b"." && name != b".." {
            let below = mounted.inode(number);
            compare(
                mounted,
                judge,
                &format!("{}/{}", path.trim_end_matches('/'), String::from_utf8(name).unwrap()),
                &below,
            );
        }
    }
}

/// Compares all that we read of an image with what ext4-view reads.
pub fn compare_all(image: &Image) {
    let judge = Ext4::load(Box::new(image.0.clone())).unwrap();
    let mut mounted = Mounted::new(image).unwrap();
    let root = mounted.inode(ROOT);
    compare(&mut mounted, &judge, "/", &root);
}

#[test]
fn all_that_mkfs_wrote_is_read_as_ext4_view_reads_it() {
    let Some(image) = rich() else { return };
    compare_all(image);
    let mut mounted = Mounted::new(image).unwrap();
    let root = mounted.inode(ROOT);
    let number = mounted.lookup(&root, b"many").unwrap();
    let many = mounted.inode(number);
    assert_eq!(mounted.names(&many).len(), MANY + 2);
    assert_eq!(mounted.lookup(&many, b"none"), Err(Error::NotFound));
}

#[test]
fn a_name_is_found_by_the_index_in_a_few_blocks() {
    let Some(image) = rich() else { return };
    let mut mounted = Mounted::new(image).unwrap();
    let root = mounted.inode(ROOT);
    let number = mounted.lookup(&root, b"many").unwrap();
    let many = mounted.inode(number);
    let root = mounted.cache.run(|blocks| mounted.volume.find(blocks, &many, 0)).unwrap();
    let Place::Written(root) = root.place else { panic!("a hole") };
    assert_eq!(image.block(root).unwrap()[30], 1, "the index has a level below its root");
    // Two nodes and a block of entries, and what leads to them; the directory has 600 blocks.
    let name = format!("{:0>240}", MANY / 2);
    let mut fresh = Mounted::new(image).unwrap();
    let before = fresh.cache.count();
    fresh.lookup(&many, name.as_bytes()).unwrap();
    let asked = fresh.cache.count() - before;
    assert!((2..=6).contains(&asked), "{asked} blocks for a name");
}

#[test]
fn what_is_asked_wrongly_is_refused() {
    let Some(image) = rich() else { return };
    let mut mounted = Mounted::new(image).unwrap();
    let root = mounted.inode(ROOT);
    let a = mounted.lookup(&root, b"a").unwrap();
    let a = mounted.inode(a);
    let file = mounted.lookup(&a, b"4096").unwrap();
    let file = mounted.inode(file);
    assert_eq!(mounted.lookup(&file, b"x"), Err(Error::NotDirectory));
    for name in [&b""[..], b"a/b", b"a\0", &[b'x'; 256]] {
        assert_eq!(mounted.lookup(&root, name), Err(Error::InvalidName));
    }
    let run = mounted.cache.run(|blocks| mounted.volume.read(blocks, &a, 0, &mut [0; 10]));
    assert_eq!(run, Err(Error::IsDirectory));
    let run = mounted.cache.run(|blocks| mounted.volume.target(blocks, &file));
    assert_eq!(run, Err(Error::NotLink));
    for number in [0, mounted.volume.geometry().inodes, u32::MAX] {
        let run = mounted.cache.run(|blocks| mounted.volume.inode(blocks, number));
        assert_eq!(run, Err(Error::NotFound), "inode {number}");
    }
}

#[test]
fn volumes_with_other_features_are_refused_by_name() {
    let features = [
        ("inline_data", Refusal::Has("inline_data")),
        ("casefold", Refusal::Has("casefold")),
        ("encrypt", Refusal::Has("encrypt")),
        ("mmp", Refusal::Has("mmp")),
        ("ea_inode", Refusal::Has("ea_inode")),
        ("large_dir", Refusal::Has("large_dir")),
        ("^resize_inode,meta_bg", Refusal::Has("meta_bg")),
        ("quota", Refusal::Has("quota")),
        ("project,quota", Refusal::Has("quota")),
        ("verity", Refusal::Has("verity")),
        ("bigalloc", Refusal::Has("bigalloc")),
        ("^metadata_csum", Refusal::Lacks("metadata_csum")),
        ("^has_journal", Refusal::Lacks("has_journal")),
        ("^64bit", Refusal::Lacks("64bit")),
        ("^extent,^64bit", Refusal::Lacks("extent")),
    ];
    for (feature, refusal) in features {
        let Some(image) = make(24, &[&format!("-O{feature}")]) else { return };
        let Err(error) = Mounted::new(&image) else { panic!("{feature} is accepted") };
        assert_eq!(error, Error::Refused(refusal), "{feature}: {error}");
    }
    let Some(image) = make(24, &["-b1024"]) else { return };
    assert_eq!(Mounted::new(&image).err(), Some(Error::Refused(Refusal::Size("log_block_size", 0))));
}

#[test]
fn a_volume_must_fit_its_device_and_be_one() {
    let Some(image) = make(24, &[]) else { return };
    let blocks = image.blocks();
    assert!(Volume::open(&image, blocks).is_ok());
    let small = Volume::open(&image, blocks - 1).err();
    assert_eq!(small, Some(Stop::Failed(Error::Refused(Refusal::Device { blocks: blocks - 1, volume: blocks }))));
    let nothing = Image(vec![0; 1 << 20]);
    assert_eq!(Volume::open(&nothing, 256).err(), Some(Stop::Failed(Error::NotExt4)));
    assert_eq!(Volume::open(&Image(vec![]), 0).err(), Some(Stop::Need(0)));
}
