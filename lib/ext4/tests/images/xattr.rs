//! Extended attributes: what debugfs wrote is read, what is written here debugfs reads, and e2fsck
//! finds nothing.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use ext4::{BLOCK_BYTES, Error, Kind, ROOT, SetXattr};

use crate::common::{Image, make, program};
use crate::host::Host;
use crate::model::new;
use crate::mutated::sum;
use crate::transactions::expect_clean;
use crate::writer::Writer;

type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;

fn writer() -> Option<Writer> {
    make(24, &[]).map(|image| Writer::new(image).unwrap())
}

fn file(writer: &mut Writer, name: &str) -> u32 {
    writer.change(|operation| operation.create(ROOT, name.as_bytes(), &new(Kind::File))).unwrap()
}

fn set(writer: &mut Writer, number: u32, name: &str, value: &[u8]) -> Result<(), Error> {
    writer.change(|operation| operation.set_xattr(number, name.as_bytes(), value, SetXattr::Any))
}

fn remove(writer: &mut Writer, number: u32, name: &str) -> Result<(), Error> {
    writer.change(|operation| operation.remove_xattr(number, name.as_bytes()))
}

/// All attributes of an inode.
fn attributes(writer: &mut Writer, number: u32) -> Attributes {
    let inode = writer.inode(number);
    let names = writer.ask(|volume, blocks| volume.xattrs(blocks, &inode)).unwrap();
    let mut all = Attributes::new();
    for name in names {
        let value = writer.ask(|volume, blocks| volume.xattr(blocks, &inode, &name)).unwrap();
        assert_eq!(all.insert(name.to_vec(), value.to_vec()), None, "{name:?} is there twice");
    }
    all
}

/// Has debugfs do something with an image. Returns the image and what it says.
fn debugfs(image: &Image, commands: &[&str]) -> Option<(Image, String)> {
    let program = program("debugfs")?;
    let folder = tempfile::tempdir().unwrap();
    let (path, script) = (folder.path().join("image"), folder.path().join("script"));
    fs::write(&path, &image.0).unwrap();
    fs::write(&script, commands.join("\n")).unwrap();
    let done = Command::new(program).arg("-w").arg("-f").arg(script).arg(&path).output().unwrap();
    assert!(done.status.success());
    Some((Image(fs::read(path).unwrap()), String::from_utf8_lossy(&done.stdout).into_owned()))
}

#[test]
fn what_is_set_debugfs_lists_and_what_debugfs_sets_is_read() {
    let Some(mut writer) = writer() else { return };
    let number = file(&mut writer, "file");
    let large = vec![b'v'; 3000];
    for (name, value) in [("user.small", &b"value"[..]), ("trusted.none", b""), ("security.large", &large)] {
        set(&mut writer, number, name, value).unwrap();
    }
    assert_ne!(writer.inode(number).attributes, 0, "the large one is in a block");
    let image = writer.close();
    expect_clean(&image);
    let commands = ["ea_list file", "ea_get file user.small", "ea_set file user.theirs other", "ea_rm file user.small"];
    let Some((theirs, told)) = debugfs(&image, &commands) else { return };
    for words in ["user.small (5) = \"value\"", "trusted.none (0)", "security.large (3000)", "value"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    let mut again = Writer::new(theirs).unwrap();
    let expected = [("security.large", &large[..]), ("trusted.none", b""), ("user.theirs", b"other")];
    let expected = expected.map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec()));
    assert_eq!(attributes(&mut again, number), Attributes::from(expected));
    set(&mut again, number, "user.theirs", b"ours").unwrap();
    remove(&mut again, number, "security.large").unwrap();
    let inode = again.inode(number);
    assert_eq!((inode.attributes, inode.sectors), (0, 0), "the block is free again");
    expect_clean(&again.close());
}

#[test]
fn random_attributes_are_what_was_set() {
    let Some(mut writer) = writer() else { return };
    let link = writer.change(|operation| operation.symlink(ROOT, b"link", b"short", 0, 0)).unwrap();
    let numbers = [file(&mut writer, "file"), link, ROOT];
    let mut models = [Attributes::new(), Attributes::new(), Attributes::new()];
    let mut random = crate::disk::Random::new(3);
    let mut full = 0;
    for _ in 0..600 {
        let which = random.below(3);
        let (number, model) = (numbers[which], &mut models[which]);
        let prefix = ["user", "trusted", "security"][random.below(3)];
        let name = format!("{prefix}.{:a>1$}", random.below(6), 1 + 20 * random.below(4));
        if random.one_in(3) {
            let result = remove(&mut writer, number, &name);
            let expected = if model.remove(name.as_bytes()).is_some() { Ok(()) } else { Err(Error::NoXattr) };
            assert_eq!(result, expected, "{name}");
        } else {
            let length = [0, 1, 4, 30, 400, 1500][random.below(6)];
            let value = vec![random.next() as u8; length];
            match set(&mut writer, number, &name, &value) {
                Ok(()) => drop(model.insert(name.into_bytes(), value)),
                Err(error) => {
                    assert_eq!(error, Error::NoSpace);
                    full += 1;
                }
            }
        }
        assert_eq!(attributes(&mut writer, number), models[which]);
    }
    assert!(full > 0 && full < 300, "{full} times an inode was full");
    let inode = writer.inode(link);
    assert_eq!(writer.ask(|volume, blocks| volume.target(blocks, &inode)).unwrap()[..], *b"short");
    let image = writer.close();
    expect_clean(&image);
    let mut again = Writer::new(image).unwrap();
    for (number, model) in numbers.into_iter().zip(models) {
        assert_eq!(attributes(&mut again, number), model);
    }
}

#[test]
fn a_block_has_its_names_in_order() {
    let Some(mut writer) = writer() else { return };
    let number = file(&mut writer, "file");
    for name in ["user.c", "trusted.a", "user.bb", "user.a"] {
        set(&mut writer, number, name, &[1; 300]).unwrap();
    }
    let inode = writer.inode(number);
    let names = writer.ask(|volume, blocks| volume.xattrs(blocks, &inode)).unwrap();
    // By prefix, then by length, then by their bytes: so Linux looks for them.
    assert_eq!(names, [&b"user.a"[..], b"user.c", b"user.bb", b"trusted.a"].map(Box::from));
    expect_clean(&writer.close());
}

#[test]
fn an_inode_without_room_behind_it_has_all_in_its_block() {
    let Some(image) = make(24, &[]) else { return };
    let Some((image, _)) = debugfs(&image, &["set_super_value want_extra_isize 128"]) else { return };
    let mut writer = Writer::new(image).unwrap();
    let number = file(&mut writer, "file");
    set(&mut writer, number, "user.small", b"1").unwrap();
    assert_ne!(writer.inode(number).attributes, 0);
    remove(&mut writer, number, "user.small").unwrap();
    set(&mut writer, number, "user.other", b"2").unwrap();
    assert_eq!(attributes(&mut writer, number), Attributes::from([(b"user.other".to_vec(), b"2".to_vec())]));
    expect_clean(&writer.close());
}

#[test]
fn a_block_that_two_inodes_share_is_changed_for_one() {
    let Some(mut writer) = writer() else { return };
    let numbers = ["a", "b"].map(|name| file(&mut writer, name));
    set(&mut writer, numbers[0], "user.large", &[1; 1000]).unwrap();
    let block = writer.inode(numbers[0]).attributes;
    let seed = {
        let image = writer.disk.clone();
        sum(!0, &image.block(0).unwrap()[1024 + 0x68..1024 + 0x78])
    };
    let image = writer.close();
    let commands = [format!("set_inode_field b file_acl {block}"), "set_inode_field b blocks 8".into()];
    let Some((mut shared, _)) = debugfs(&image, &commands.each_ref().map(String::as_str)) else { return };
    let bytes = shared.block_mut(block);
    bytes[4] = 2;
    bytes[16..20].fill(0);
    let right = sum(sum(seed, &block.to_le_bytes()), &bytes[..]);
    bytes[16..20].copy_from_slice(&right.to_le_bytes());
    expect_clean(&shared);
    let mut writer = Writer::new(shared).unwrap();
    set(&mut writer, numbers[1], "user.large", &[2; 1000]).unwrap();
    let own = writer.inode(numbers[1]).attributes;
    assert_ne!(own, block);
    let value = |value: u8| Attributes::from([(b"user.large".to_vec(), vec![value; 1000])]);
    assert_eq!(numbers.map(|number| attributes(&mut writer, number)), [value(1), value(2)]);
    let removed = writer.change(|operation| operation.unlink(ROOT, b"a")).unwrap();
    writer.reclaim(removed.inode);
    assert_eq!(attributes(&mut writer, numbers[1]), value(2));
    let image = writer.close();
    expect_clean(&image);
    assert_eq!(image.block(own).map(|bytes| bytes.len()), Some(BLOCK_BYTES));
}

#[test]
fn what_cannot_be_set_is_told() {
    let Some(mut writer) = writer() else { return };
    let number = file(&mut writer, "file");
    let change = |writer: &mut Writer, name: &[u8], value: &[u8], how: SetXattr| {
        writer.change(|operation| operation.set_xattr(number, name, value, how))
    };
    assert_eq!(change(&mut writer, b"user.a", b"1", SetXattr::Replace), Err(Error::NoXattr));
    assert_eq!(change(&mut writer, b"user.a", b"1", SetXattr::Create), Ok(()));
    assert_eq!(change(&mut writer, b"user.a", b"2", SetXattr::Create), Err(Error::Exists));
    assert_eq!(change(&mut writer, b"user.a", b"2", SetXattr::Replace), Ok(()));
    for name in [&b"other.a"[..], b"user", b"system.posix_acl_access", b""] {
        assert_eq!(change(&mut writer, name, b"", SetXattr::Any), Err(Error::NotSupported));
    }
    for name in [&b"user."[..], b"user.a\0b", &[b"user.".as_slice(), &[b'x'; 256]].concat()] {
        assert_eq!(change(&mut writer, name, b"", SetXattr::Any), Err(Error::InvalidName));
    }
    assert_eq!(change(&mut writer, b"user.b", &[0; BLOCK_BYTES], SetXattr::Any), Err(Error::NoSpace));
    let value = [(b"user.a".to_vec(), b"2".to_vec())];
    assert_eq!(attributes(&mut writer, number), Attributes::from(value), "nothing else has changed");
    expect_clean(&writer.close());
}
