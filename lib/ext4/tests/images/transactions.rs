//! Changes of attributes are committed, checkpointed and recovered, by us and by e2fsck.

use std::collections::BTreeMap;

use ext4::{Attributes, Batch, Block, Error, Flush, Kind, ROOT, Stop};

use crate::common::{Image, fsck, make, rich};
use crate::host::Host;
use crate::model::new;
use crate::writer::{Writer, recover};

fn small() -> Option<Image> {
    make(24, &[])
}

fn permissions(to: u16) -> Attributes {
    Attributes { permissions: Some(to), ..Attributes::default() }
}

/// The permissions of the root in an image.
fn root_of(image: &Image) -> u16 {
    Writer::new(image.clone()).unwrap().inode(ROOT).permissions
}

pub fn expect_clean(image: &Image) {
    let (_, status, words) = fsck(image, &["-fn"]);
    assert_eq!(status, 0, "{words}");
}

#[test]
fn what_was_changed_is_there_after_a_clean_end() {
    let Some(image) = small() else { return };
    let mut writer = Writer::new(image).unwrap();
    writer.change(|operation| operation.set(ROOT, &permissions(0o1234))).unwrap();
    assert_eq!(writer.inode(ROOT).permissions, 0o1234);
    let image = writer.close();
    expect_clean(&image);
    let mut again = Writer::new(image).unwrap();
    assert!(!again.mount.volume().geometry().needs_recovery);
    assert_eq!(again.inode(ROOT).permissions, 0o1234);
    assert!(!again.step(), "a volume that nobody changed is not written");
    let before = again.disk.clone();
    assert!(again.close().0 == before.0, "nor at its end");
}

#[test]
fn what_is_not_committed_is_not_on_the_disk() {
    let Some(image) = small() else { return };
    let mut writer = Writer::new(image.clone()).unwrap();
    writer.change(|operation| operation.set(ROOT, &permissions(0o1))).unwrap();
    assert!(!writer.step(), "nobody waits");
    assert!(writer.disk.0 == image.0);
    assert_eq!(writer.mount.sync(11), None, "nobody changed that inode");
}

#[test]
fn one_commit_serves_all_that_came_before_it() {
    let Some(image) = small() else { return };
    let mut writer = Writer::new(image).unwrap();
    writer.change(|operation| operation.set(ROOT, &permissions(0o1))).unwrap();
    let first = writer.mount.sync(ROOT).unwrap();
    assert!(writer.step(), "the super block is marked");
    let mut waiting = Vec::new();
    for count in 0..32 {
        writer.change(|operation| operation.set(ROOT, &permissions(count))).unwrap();
        waiting.push(writer.mount.sync(ROOT).unwrap());
    }
    assert!(waiting.iter().all(|number| *number == first.wrapping_add(1)), "they wait for the next one");
    writer.write();
    assert_eq!(writer.mount.lasts(waiting[0]), Ok(true));
    let flushes = writer.written.iter().filter(|batch| batch.flush != Flush::No).count();
    assert_eq!(flushes, 2 + 2 * 2, "two to mark the volume, then two for each commit");
}

#[test]
fn an_operation_that_ends_badly_changes_nothing() {
    let Some(image) = small() else { return };
    let mut writer = Writer::new(image).unwrap();
    let before = writer.inode(ROOT);
    let result = writer.change(|operation| {
        operation.set(ROOT, &permissions(0o7))?;
        Err::<(), _>(Stop::Failed(Error::Invalid))
    });
    assert_eq!(result, Err(Error::Invalid));
    assert_eq!(writer.inode(ROOT), before);
    assert_eq!(writer.mount.sync_all(), None);
}

#[test]
fn what_cannot_be_written_is_lost_and_the_volume_read_only() {
    let Some(image) = small() else { return };
    let mut writer = Writer::new(image).unwrap();
    writer.change(|operation| operation.set(ROOT, &permissions(0o1))).unwrap();
    let number = writer.mount.sync_all().unwrap();
    assert_eq!(writer.mount.lasts(number), Ok(false));
    assert!(writer.mount.next(ext4::Time::default()).is_some());
    writer.mount.done(false);
    assert_eq!(writer.mount.lasts(number), Err(Error::ReadOnly));
    assert_eq!(writer.change(|operation| operation.set(ROOT, &permissions(0o2))), Err(Error::ReadOnly));
    assert!(!writer.step());
}

#[test]
fn the_log_goes_around() {
    let Some(image) = rich() else { return };
    let mut writer = Writer::new(image.clone()).unwrap();
    // A whole ring of transactions.
    for count in 0..900u16 {
        writer.change(|operation| operation.set(ROOT, &permissions(count % 512))).unwrap();
        writer.sync();
    }
    let mut cut = writer.disk.clone();
    assert!(!recover(&mut cut).unwrap().writes.is_empty(), "the log has something");
    assert_eq!(root_of(&writer.disk), 899 % 512);
    // Blocks of the log are written again only when the tail that frees them lasts.
    let tail = |batch: &&Batch| batch.writes.iter().any(|put| put.bytes[..8] == [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 4]);
    assert!(writer.written.iter().filter(tail).count() > 2);
    assert!(writer.written.iter().filter(tail).all(|batch| batch.flush != Flush::No));
    expect_clean(&writer.close());
}

#[test]
fn the_super_block_changes_in_one_sector_only() {
    let Some(image) = small() else { return };
    let before = *image.block(0).unwrap();
    let mut writer = Writer::new(image).unwrap();
    // Onto the orphan list and from it, so that it goes through the log as well.
    let file = writer.change(|operation| operation.create(ROOT, b"file", &new(Kind::File))).unwrap();
    writer.change(|operation| operation.unlink(ROOT, b"file")).unwrap();
    writer.write_places();
    writer.sync();
    writer.write_places();
    writer.reclaim(file);
    writer.mount.close();
    writer.write();
    let written: Vec<Block> = writer
        .written
        .iter()
        .flat_map(|batch| &batch.writes)
        .filter(|put| put.block == 0)
        .map(|put| *put.bytes)
        .collect();
    assert!(written.len() >= 4, "{} times", written.len());
    for block in &written {
        assert_ne!(block[1024..1536], before[1024..1536]);
        assert!(block[..1024] == before[..1024] && block[1536..] == before[1536..]);
    }
}

#[test]
fn commits_that_never_end_wait_for_room_in_the_log() {
    let Some(image) = small() else { return };
    let mut writer = Writer::new(image).unwrap();
    // Somebody waits whenever a batch is done, so nothing goes to its place before it must.
    let (mut newest, mut lasting) = (BTreeMap::new(), 0);
    for round in 0..2000u16 {
        let count = round % 512;
        writer.change(|operation| operation.set(ROOT, &permissions(count))).unwrap();
        newest.insert(writer.mount.sync(ROOT).unwrap(), count);
        assert!(writer.step());
        if let Some((_, count)) = newest.iter().rev().find(|(number, _)| writer.mount.lasts(**number) == Ok(true)) {
            lasting = *count;
        }
        if round % 200 == 199 {
            assert_eq!(root_of(&writer.disk), lasting, "round {round}");
        }
    }
    expect_clean(&writer.close());
}

#[test]
fn the_number_of_a_transaction_that_a_cut_undid_is_not_used_again() {
    let Some(image) = small() else { return };
    let mut writer = Writer::new(image).unwrap();
    writer.change(|operation| operation.set(ROOT, &permissions(1))).unwrap();
    let number = writer.mount.sync_all().unwrap();
    // Mark, reset and log, without the commit.
    assert!(writer.step() && writer.step() && writer.step());
    let again = Writer::new(writer.disk.clone()).unwrap();
    assert!(again.mount.running() > number);
}
