//! Operations on files and directories: compared with a tree in memory, with what ext4-view reads,
//! and looked at by e2fsck.

use std::collections::BTreeMap;
use std::process::Command;

use ext4::{Attributes, Error, How, Kind, New, Place, ROOT, Volume};

use crate::common::{Image, fsck, made, make, program};
use crate::disk::Random;
use crate::host::Host;
use crate::model::{Model, new};
use crate::reading::compare_all;
use crate::transactions::expect_clean;
use crate::writer::Writer;

fn writer() -> Option<Writer> {
    make(24, &[]).map(|image| Writer::new(image).unwrap())
}

/// Ends, and has the image judged.
fn close(writer: Writer) -> Image {
    let image = writer.close();
    expect_clean(&image);
    compare_all(&image);
    image
}

fn file(writer: &mut Writer, parent: u32, name: &str) -> u32 {
    writer.change(|operation| operation.create(parent, name.as_bytes(), &new(Kind::File))).unwrap()
}

fn directory(writer: &mut Writer, parent: u32, name: &str) -> u32 {
    writer.change(|operation| operation.create(parent, name.as_bytes(), &new(Kind::Directory))).unwrap()
}

#[test]
fn random_operations_do_what_a_tree_in_memory_does() {
    for seed in 0..6 {
        let Some(image) = make(24, &[]) else { return };
        let mut writer = Writer::new(image).unwrap();
        let (mut model, mut random) = (Model::of(&mut writer), Random::new(seed));
        for _ in 0..400 {
            model.step(&mut writer, &mut random);
        }
        assert_eq!(model.compare(&[], &mut writer), Ok(()));
        model.reclaim_all(&mut writer);
        let image = close(writer);
        assert_eq!(model.compare(&[], &mut Writer::new(image).unwrap()), Ok(()));
    }
}

#[test]
fn a_directory_gets_an_index_and_loses_names() {
    let Some(mut writer) = writer() else { return };
    let parent = directory(&mut writer, ROOT, "large");
    let linked = file(&mut writer, ROOT, "file");
    let name = |number: usize| format!("{number:0>200}");
    // Of 200 bytes 19 fit into a block: more than the 507 that a root leads to.
    let count = 12_000;
    for number in 0..count {
        writer.change(|operation| operation.link(linked, parent, name(number).as_bytes())).unwrap();
        if number % 1000 == 0 {
            writer.sync();
        }
    }
    let inode = writer.inode(parent);
    assert!(inode.size > 600 * 4096, "{} bytes", inode.size);
    for number in (0..count).filter(|number| number % 3 != 0) {
        writer.change(|operation| operation.unlink(parent, name(number).as_bytes())).unwrap();
    }
    let left = writer.names(parent);
    assert_eq!(left.len(), count.div_ceil(3));
    for number in 0..200 {
        let found = writer.ask(|volume, blocks| volume.lookup(blocks, &inode, name(number).as_bytes()));
        assert_eq!(found.is_ok(), number % 3 == 0, "{number}");
    }
    close(writer);
}

/// Two names of 255 bytes with one hash, then six with smaller hashes and eight with larger ones.
fn names_around_one_hash(volume: &Volume) -> Vec<Vec<u8>> {
    let name = |number: usize| format!("{number:0>255}").into_bytes();
    let mut seen = BTreeMap::new();
    let mut numbered = (0..).map(|number| (volume.hash(&name(number)), number));
    let (hash, one, other) = numbered
        .find_map(|(hash, number)| seen.insert(hash, number).map(|before| (hash, before, number)))
        .expect("two of 2^31 hashes are one");
    let smaller = seen.range(..hash).map(|(_, number)| *number).take(6);
    let larger = seen.range(hash + 2..).map(|(_, number)| *number).take(8);
    [one, other].into_iter().chain(smaller).chain(larger).map(name).collect()
}

#[test]
fn names_of_one_hash_go_on_in_the_next_block() {
    let Some(mut writer) = writer() else { return };
    let parent = directory(&mut writer, ROOT, "large");
    // Fifteen fit into a block; with the sixteenth seven stay there, the last of which is one of
    // the two.
    let names = names_around_one_hash(writer.mount.volume());
    for name in &names {
        writer.change(|operation| operation.create(parent, name, &new(Kind::File))).unwrap();
    }
    let inode = writer.inode(parent);
    assert_eq!(inode.size, 3 * 4096, "a root and two blocks");
    for name in &names {
        assert!(writer.ask(|volume, blocks| volume.lookup(blocks, &inode, name)).is_ok());
        let removed = writer.change(|operation| operation.unlink(parent, name)).unwrap();
        writer.reclaim(removed.inode);
    }
    close(writer);
}

#[test]
fn a_file_of_many_extents_is_written_and_cut_off_in_steps() {
    let Some(mut writer) = writer() else { return };
    let number = file(&mut writer, ROOT, "sparse");
    // Backwards, and with a hole behind each block: 1000 extents, three nodes and more.
    for block in (0..1000u64).rev() {
        writer.write_bytes(number, block * 8192, &[block as u8; 4096]).unwrap();
    }
    let all = writer.read(number);
    assert!(all.chunks(8192).zip(0..).all(|(part, block)| part[..4096] == [block as u8; 4096]));
    assert!(all.chunks(8192).all(|part| part[4096..].iter().all(|byte| *byte == 0)));
    writer.sync();
    let before = writer.disk.clone();
    expect_clean(&fsck(&before, &["-p"]).0);
    let steps = writer.written.len();
    let first = writer.change(|operation| operation.truncate(number, 5000)).unwrap();
    assert_eq!(first, ext4::Progress::More, "it takes steps");
    let late = writer.change(|operation| operation.write(number, 100_000, b"late"));
    assert_eq!(late, Err(Error::BeingCut));
    writer.sync();
    assert!(writer.written.len() > steps);
    // A cut in between: e2fsck goes on with it by the orphan list.
    let (mended, status, words) = fsck(&writer.disk, &["-p"]);
    assert!(status <= 1 && words.contains("runcat"), "{words}");
    expect_clean(&mended);
    while writer.change(|operation| operation.trim(number)).unwrap() == ext4::Progress::More {}
    assert!(writer.mount.orphans().is_empty());
    let left = writer.inode(number).sectors / 8;
    assert!(left <= 3, "a block, and a node of each level: {left}");
    writer.write_bytes(number, 100_000, b"late").unwrap();
    close(writer);
}

#[test]
fn a_full_volume_says_so_and_gives_again_what_was_freed() {
    let Some(mut writer) = writer() else { return };
    let number = file(&mut writer, ROOT, "full");
    let (mut size, bytes) = (0, vec![7; 1 << 20]);
    let error = loop {
        match writer.change(|operation| operation.write(number, size, &bytes)) {
            Ok(count) => size += count as u64,
            Err(error) => break error,
        }
    };
    assert_eq!(error, Error::NoSpace);
    assert!(size > 15 << 20, "{size} bytes");
    assert_eq!(writer.mount.free().0, 0);
    // What is freed is there again, behind a commit, and in the same transaction not before.
    writer.truncate(number, 0);
    writer.write_bytes(number, 0, &bytes).unwrap();
    close(writer);
}

#[test]
fn freed_blocks_are_nobodys_before_the_commit() {
    let Some(mut writer) = writer() else { return };
    let (number, bytes) = (file(&mut writer, ROOT, "full"), vec![7; 1 << 20]);
    let mut size = 0;
    while let Ok(count) = writer.change(|operation| operation.write(number, size, &bytes)) {
        size += count as u64;
    }
    writer.sync();
    writer.change(|operation| operation.unlink(ROOT, b"full")).unwrap();
    writer.reclaim(number);
    let frees = writer.mount.running();
    let other = file(&mut writer, ROOT, "other");
    assert_eq!(writer.mount.lasts(frees), Ok(false));
    writer.write_bytes(other, 0, &bytes).unwrap();
    assert_eq!(writer.mount.lasts(frees), Ok(true), "the bytes waited for it");
    close(writer);
}

#[test]
fn all_inodes_are_given_out_once() {
    let Some(mut writer) = make(24, &["-N64"]).map(|image| Writer::new(image).unwrap()) else { return };
    let (_, free) = writer.mount.free();
    for number in 0..free {
        file(&mut writer, ROOT, &number.to_string());
    }
    let full = writer.change(|operation| operation.create(ROOT, b"more", &new(Kind::File)));
    assert_eq!(full, Err(Error::NoSpace));
    let removed = writer.change(|operation| operation.unlink(ROOT, b"0")).unwrap();
    writer.reclaim(removed.inode);
    assert_eq!(file(&mut writer, ROOT, "more"), removed.inode);
    close(writer);
}

#[test]
fn groups_that_nobody_has_used_are_begun() {
    // Several groups, of which the later ones have no bitmaps yet.
    let Some(image) = make(400, &["-Elazy_itable_init=1", "-Oflex_bg"]) else { return };
    let mut writer = Writer::new(image).unwrap();
    let bytes = vec![9; 1 << 20];
    for number in 0..12 {
        let parent = directory(&mut writer, ROOT, &number.to_string());
        let inner = file(&mut writer, parent, "file");
        for part in 0..20 {
            writer.write_bytes(inner, part << 20, &bytes).unwrap();
        }
    }
    let image = writer.close();
    expect_clean(&image);
}

#[test]
fn an_open_file_without_a_name_is_on_the_orphan_list() {
    let Some(mut writer) = writer() else { return };
    let numbers = ["a", "b", "c", "d"].map(|name| file(&mut writer, ROOT, name));
    for number in numbers {
        writer.write_bytes(number, 0, &[1; 10_000]).unwrap();
    }
    for name in ["a", "b", "c", "d"] {
        let removed = writer.change(|operation| operation.unlink(ROOT, name.as_bytes())).unwrap();
        assert!(removed.is_last);
    }
    assert_eq!(writer.mount.orphans(), numbers);
    writer.write_bytes(numbers[1], 5000, b"still").unwrap();
    assert_eq!(writer.read(numbers[1])[5000..5005], *b"still");
    // From the middle of the list.
    writer.reclaim(numbers[1]);
    writer.sync();
    let (mended, status, words) = fsck(&writer.disk, &["-p"]);
    assert!(status <= 1 && words.matches("learing orphaned inode").count() == 3, "{words}");
    expect_clean(&mended);
    let mut again = Writer::new(writer.disk.clone()).unwrap();
    assert_eq!(again.mount.orphans(), [numbers[0], numbers[2], numbers[3]]);
    for number in again.mount.orphans().to_vec() {
        again.reclaim(number);
    }
    close(again);
}

/// A volume that debugfs has changed by these commands.
fn changed_by(commands: &[&str]) -> Option<Writer> {
    let debugfs = program("debugfs")?;
    let folder = tempfile::tempdir().unwrap();
    let path = made(folder.path(), 24, &[])?;
    std::fs::write(folder.path().join("bytes"), [b'v'; 30_000]).unwrap();
    std::fs::write(folder.path().join("value"), [b'v'; 1500]).unwrap();
    for command in commands {
        let done = Command::new(&debugfs).args(["-w", "-R", command]).arg(&path).current_dir(folder.path()).output();
        let done = done.unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    let image = Image(std::fs::read(path).unwrap());
    expect_clean(&image);
    Some(Writer::new(image).unwrap())
}

fn look(writer: &mut Writer, name: &str) -> u32 {
    let root = writer.inode(ROOT);
    writer.ask(|volume, blocks| volume.lookup(blocks, &root, name.as_bytes())).unwrap()
}

#[test]
fn blocks_that_were_never_written_are_zeros_around_what_is_written_into_them() {
    let Some(mut writer) = changed_by(&["write bytes file", "fallocate file 10 200"]) else { return };
    let number = look(&mut writer, "file");
    let mut model = writer.read(number);
    // What lies there is not what is read.
    let inode = writer.inode(number);
    for logical in 10..200 {
        let stretch = writer.ask(|volume, blocks| volume.find(blocks, &inode, logical)).unwrap();
        let Place::Unwritten(block) = stretch.place else { panic!("{stretch:?}") };
        writer.disk.block_mut(block).fill(0xEE);
    }
    // In the middle, at the beginning, up to the end, and over all of it.
    for (offset, count) in [(400_000, 5000), (41_000, 100), (800_000, 23_296), (500_000, 200_000)] {
        writer.write_bytes(number, offset as u64, &vec![offset as u8 | 1; count]).unwrap();
        model.resize(model.len().max(offset + count), 0);
        model[offset..offset + count].fill(offset as u8 | 1);
        assert!(writer.read(number) == model, "from {offset}");
    }
    writer.truncate(number, 450_000);
    writer.truncate(number, 900_000);
    model[450_000..].fill(0);
    model.resize(900_000, 0);
    assert!(writer.read(number) == model);
    // ext4-view takes what lies in such blocks for the file's bytes, so it is no judge here.
    let image = writer.close();
    expect_clean(&image);
    assert!(Writer::new(image).unwrap().read(number) == model);
}

#[test]
fn blocks_of_attributes_are_freed_with_their_inodes() {
    let commands = ["write bytes a", "ea_set -f value a user.x", "write bytes b", "ea_set -f value b user.x"];
    let Some(mut writer) = changed_by(&commands) else { return };
    let numbers = ["a", "b"].map(|name| look(&mut writer, name));
    let [first, second] = numbers.map(|number| writer.inode(number).attributes);
    assert!(first != 0 && second != 0);
    let (free, _) = writer.mount.free();
    for (name, number) in ["a", "b"].into_iter().zip(numbers) {
        writer.change(|operation| operation.unlink(ROOT, name.as_bytes())).unwrap();
        writer.reclaim(number);
    }
    assert_eq!(writer.mount.free().0, free + 2 * 8 + 2 - u64::from(first == second));
    close(writer);
}

#[test]
fn bytes_in_what_was_a_directory_stand_a_recovery() {
    let Some(mut writer) = writer() else { return };
    let parent = directory(&mut writer, ROOT, "directory");
    let linked = file(&mut writer, ROOT, "linked");
    let names: Vec<String> = (0..100).map(|number| format!("{number:0>200}")).collect();
    for name in &names {
        writer.change(|operation| operation.link(linked, parent, name.as_bytes())).unwrap();
    }
    writer.sync();
    for name in &names {
        writer.change(|operation| operation.unlink(parent, name.as_bytes())).unwrap();
    }
    writer.change(|operation| operation.rmdir(ROOT, b"directory")).unwrap();
    writer.reclaim(parent);
    writer.sync();
    // All that is free is given to a file, and the log, which has the directory, is recovered.
    let bytes = vec![0xA5; 1 << 20];
    let (mut size, full) = (0, file(&mut writer, ROOT, "full"));
    while let Ok(count) = writer.change(|operation| operation.write(full, size, &bytes)) {
        size += count as u64;
    }
    writer.sync();
    let mut again = Writer::new(writer.disk.clone()).unwrap();
    assert!(again.read(full).iter().all(|byte| *byte == 0xA5));
    let (mended, status, words) = fsck(&writer.disk, &["-p"]);
    assert!(status <= 1, "{words}");
    let mut mended = Writer::new(mended).unwrap();
    assert!(mended.read(full).iter().all(|byte| *byte == 0xA5), "by e2fsck");
    // Nor does what the log has of the directory go to its place.
    writer.write_places();
    let mut again = Writer::new(writer.disk.clone()).unwrap();
    assert!(again.read(full).iter().all(|byte| *byte == 0xA5), "after all went to its place");
}

#[test]
fn a_block_that_begins_like_the_log_is_recovered() {
    let Some(mut writer) = writer() else { return };
    let target = [&[0xC0, 0x3B, 0x39, 0x98][..], &[b'x'; 100]].concat();
    let number = writer.change(|operation| operation.symlink(ROOT, b"link", &target, 0, 0)).unwrap();
    writer.sync();
    let logged = writer.written.iter().flat_map(|batch| &batch.writes);
    assert!(logged.clone().any(|put| put.bytes[4..104] == target[4..]), "it is in the log");
    assert!(logged.clone().all(|put| put.bytes[..8] != target[..8]), "and not as if it were of the log");
    for image in [writer.disk.clone(), fsck(&writer.disk, &["-p"]).0] {
        let mut again = Writer::new(image).unwrap();
        let inode = again.inode(number);
        let told = again.ask(|volume, blocks| volume.target(blocks, &inode)).unwrap();
        assert_eq!(told[..], target[..]);
    }
}

#[test]
fn devices_keep_their_numbers() {
    let Some(mut writer) = writer() else { return };
    // 8:1 as it always stood, and 259:4097, which has more bits.
    for (name, device) in [("old", 0x801), ("new", 1 << 20 | 259 << 8 | 1)] {
        let new = New { kind: Kind::BlockDevice, device, ..new(Kind::File) };
        let number = writer.change(|operation| operation.create(ROOT, name.as_bytes(), &new)).unwrap();
        assert_eq!(writer.inode(number).device(), device);
    }
    let pipe = writer.change(|operation| operation.create(ROOT, b"pipe", &new(Kind::Pipe))).unwrap();
    assert_eq!((writer.inode(pipe).device(), writer.inode(pipe).kind), (0, Kind::Pipe));
    expect_clean(&writer.close());
}

#[test]
fn a_rename_moves_a_directory_with_its_parent() {
    let Some(mut writer) = writer() else { return };
    let (a, b) = (directory(&mut writer, ROOT, "a"), directory(&mut writer, ROOT, "b"));
    let inner = directory(&mut writer, a, "inner");
    let moved = writer.change(|operation| operation.rename((a, b"inner"), (inner, b"x"), How::Replace));
    assert_eq!(moved, Err(Error::Invalid));
    writer.change(|operation| operation.rename((a, b"inner"), (b, b"moved"), How::NoReplace)).unwrap();
    let inode = writer.inode(inner);
    assert_eq!(writer.ask(|volume, blocks| volume.lookup(blocks, &inode, b"..")), Ok(b));
    assert_eq!((writer.inode(a).links, writer.inode(b).links), (2, 3));
    close(writer);
}

#[test]
fn a_file_without_a_name_gets_one_or_goes() {
    let Some(mut writer) = writer() else { return };
    let parent = directory(&mut writer, ROOT, "folder");
    let [named, left] =
        [0; 2].map(|_| writer.change(|operation| operation.create_unnamed(parent, &new(Kind::File))).unwrap());
    assert_eq!(writer.mount.orphans(), [named, left]);
    writer.write_bytes(named, 0, b"bytes").unwrap();
    let linked = writer.change(|operation| operation.link(named, parent, b"name"));
    assert_eq!(linked, Err(Error::NotFound), "an ordinary link is of what has a name");
    writer.change(|operation| operation.link_unnamed(named, parent, b"name")).unwrap();
    assert_eq!(writer.inode(named).links, 1);
    assert_eq!(writer.mount.orphans(), [left]);
    writer.sync();
    let (mended, status, words) = fsck(&writer.disk, &["-p"]);
    assert!(status <= 1 && words.matches("learing orphaned inode").count() == 1, "{words}");
    expect_clean(&mended);
    assert_eq!(Writer::new(mended).unwrap().read(named), b"bytes");
    writer.reclaim(left);
    let gone = writer.change(|operation| operation.link_unnamed(left, parent, b"late"));
    assert_eq!(gone, Err(Error::NotFound));
    let other = writer.change(|operation| operation.create_unnamed(parent, &new(Kind::Directory)));
    assert_eq!(other, Err(Error::Invalid));
    close(writer);
}

#[test]
fn what_is_made_in_a_directory_with_set_group_id_has_its_group() {
    let Some(mut writer) = writer() else { return };
    let shared = directory(&mut writer, ROOT, "shared");
    let attributes = Attributes { permissions: Some(0o2775), group: Some(77_777), ..Attributes::default() };
    writer.change(|operation| operation.set(shared, &attributes)).unwrap();
    let made = [
        file(&mut writer, shared, "file"),
        directory(&mut writer, shared, "below"),
        writer.change(|operation| operation.symlink(shared, b"link", b"x", 1, 2)).unwrap(),
        writer.change(|operation| operation.create_unnamed(shared, &new(Kind::File))).unwrap(),
    ];
    let told = made.map(|number| writer.inode(number)).map(|inode| (inode.group, inode.permissions & 0o7000));
    assert_eq!(told, [(77_777, 0), (77_777, 0o2000), (77_777, 0), (77_777, 0)]);
    let plain = directory(&mut writer, ROOT, "plain");
    assert_eq!((writer.inode(plain).group, writer.inode(plain).permissions & 0o7000), (new(Kind::File).group, 0));
    writer.reclaim(made[3]);
    close(writer);
}
