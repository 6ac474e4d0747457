//! Disks that are not used, and what is told of them.

use crate::mounting;

use super::*;

const EIO: DescriptionError = DescriptionError::Failed;

/// What is said of a disk that is refused; what is asked of it fails.
fn said(image: Vec<u8>, unreadable: u64) -> String {
    let (_, lines) = runtime::testing::logged(async {
        let fixture = fixture(image, 1000, false);
        fixture.disk.unreadable.set(unreadable);
        assert_eq!(fixture.open("/small", open::READ).await, failed(EIO));
        assert_eq!(fixture.open("/new", open::WRITE | open::CREATE).await, failed(EIO));
        assert_eq!(fixture.files.space().await, refused(EIO));
        assert_eq!(fixture.storage.close().await, Ok(()), "there is nothing to write");
        assert_eq!(fixture.disk.writes.get(), Count::default());
    });
    let mut refusals = lines.into_iter().filter(|line| line.starts_with("/data: ") && line.ends_with("fails"));
    let line = refusals.next().expect("it is told");
    assert_eq!(refusals.next(), None, "it is told once");
    line
}

#[test]
fn a_volume_that_is_longer_than_its_disk_is_refused() {
    let Some(mut image) = image() else { return };
    image.truncate(16 << 20);
    let line = said(image, u64::MAX);
    assert!(line.contains("8192 blocks on a device of 4096"), "{line}");
}

#[test]
fn a_disk_that_cannot_be_read_is_not_used() {
    let Some(image) = image() else { return };
    let line = said(image, 2);
    assert!(line.contains("the disk fails"), "{line}");
}

#[test]
fn a_journal_that_was_damaged_is_not_put_back() {
    const MAGIC_OF_DESCRIPTOR: [u8; 8] = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 1];
    let Some(image) = image() else { return };
    let mut cut = runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let id = fixture.open("/new", open::WRITE | open::CREATE).await.unwrap().id;
        fixture.files.synchronize(id, true).await.unwrap();
        fixture.disk.image.borrow().clone()
    });
    let descriptor = cut.chunks(4096).position(|block| block.starts_with(&MAGIC_OF_DESCRIPTOR)).unwrap();
    cut[(descriptor + 1) * 4096 + 99] ^= 1;
    let line = said(cut, u64::MAX);
    assert!(line.contains("the checksum of a block in the journal"), "{line}");
}

#[test]
fn a_component_without_a_disk_fails_what_it_is_asked() {
    let (_, lines) = runtime::testing::logged(async {
        let server = Rc::new(Server::new("/data".into(), None));
        let (files, served) = loopback(Layout::default());
        runtime::spawn(serve_files(server.clone(), served));
        runtime::spawn(mounting::open(server, runtime::Start::read(), false));
        let opened = FilesClient::new(files).open(name("/small"), open::READ, 0).await;
        assert_eq!(opened, failed(EIO));
    });
    assert!(lines.iter().any(|line| line.contains("no channel to a disk")), "{lines:?}");
}

/// Only what the disk says that cannot be is worth a line.
#[test]
fn damage_is_told_with_a_remedy_and_nothing_else_is() {
    let Some(mut image) = image() else { return };
    // The bytes of a folder's block, which has a checksum.
    let is_folder = |block: &[u8]| block[4..8] == [12, 0, 1, 2] && block.windows(4).any(|bytes| bytes == b"file");
    let folder = image.chunks(4096).position(is_folder).unwrap();
    image[folder * 4096 + 100] ^= 1;
    let (_, lines) = runtime::testing::logged(async {
        let fixture = fixture(image, 1000, false);
        assert_eq!(fixture.open("/none", open::READ).await, failed(DescriptionError::NotFound));
        assert_eq!(fixture.open("/small/x", open::READ).await, failed(DescriptionError::NotDirectory));
        assert_eq!(fixture.files.remove(name("/far"), false).await, failed(DescriptionError::IsDirectory));
        assert_eq!(fixture.files.read_link(name("/small")).await, failed(DescriptionError::Invalid));
        assert_eq!(fixture.open("/far/file", open::READ).await, failed(EIO));
    });
    let told: Vec<&String> = lines.iter().filter(|line| line.contains("run e2fsck")).collect();
    assert_eq!(told.len(), 1, "{lines:?}");
}
