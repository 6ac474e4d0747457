//! Reading ahead and writing behind, by what the disk is asked for.

use super::*;

const MIB: usize = 1 << 20;

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 4096 * 7 + at % 253) as u8).collect()
}

/// An image with a file of so many bytes, `/long`.
fn image_with_long(bytes: usize) -> Option<Vec<u8>> {
    let image = image()?;
    Some(runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let id = fixture.open("/long", open::WRITE | open::CREATE).await.unwrap().id;
        for (index, part) in pattern(bytes).chunks(BULK.bulk_bytes as usize).enumerate() {
            let at = index as u64 * u64::from(BULK.bulk_bytes);
            assert_eq!(fixture.write(id, at, part).await, Ok(part.len() as u32));
        }
        fixture.files.synchronize(id, true).await.unwrap();
        fixture.disk.image.borrow().clone()
    }))
}

/// What is read with `length` bytes a time, and what the disk was asked for.
async fn read_all(fixture: &Fixture, id: u64, bytes: usize, length: usize) -> Count {
    let (before, expected) = (fixture.disk.reads.get(), pattern(bytes));
    for at in (0..bytes).step_by(length) {
        let end = (at + length).min(bytes);
        assert!(fixture.read(id, at as u64, end - at).await == expected[at..end], "{at}");
    }
    let after = fixture.disk.reads.get();
    Count { requests: after.requests - before.requests, sectors: after.sectors - before.sectors }
}

#[test]
fn what_is_read_in_order_takes_few_requests() {
    let Some(image) = image_with_long(4 * MIB) else { return };
    for length in [1000, 4096, 64 << 10] {
        runtime::testing::run(async {
            let fixture = fixture(image.clone(), 4000, true);
            let id = fixture.open("/long", open::READ).await.unwrap().id;
            let count = read_all(&fixture, id, 4 * MIB, length).await;
            eprintln!("{length}: {count:?}");
            // Without reading ahead 1,024 blocks are as many requests, or 64 of 64 KiB.
            assert!(count.requests <= 48, "{length}: {count:?}");
            assert!(count.sectors <= 8192 + 64, "no block is read twice: {length}: {count:?}");
            assert_eq!(read_all(&fixture, id, 4 * MIB, length).await, Count::default(), "all is in memory now");
        });
    }
}

#[test]
fn who_reads_here_and_there_gets_what_was_asked_for_only() {
    let Some(image) = image_with_long(4 * MIB) else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 4000, true);
        let id = fixture.open("/long", open::READ).await.unwrap().id;
        assert_eq!(fixture.read(id, 900 << 12, 10).await, pattern(4 * MIB)[900 << 12..][..10]);
        let before = fixture.disk.reads.get();
        for at in 0..100u64 {
            fixture.read(id, (at * 617 % 1000) << 12, 10).await;
        }
        let count = fixture.disk.reads.get();
        let blocks = (count.sectors - before.sectors) / 8;
        assert!((99..=104).contains(&blocks), "{blocks} blocks for 100");
    });
}

#[test]
fn a_block_that_cannot_be_read_is_an_error_of_who_reads_it() {
    let Some(image) = image_with_long(MIB) else { return };
    // A block of the file by its bytes: it is there once.
    let bad = pattern(MIB)[3 << 12..][..4096].to_vec();
    let at = image.chunks(4096).position(|block| block == bad).unwrap() as u64;
    runtime::testing::run(async {
        let fixture = fixture(image, 4000, true);
        let id = fixture.open("/long", open::READ).await.unwrap().id;
        fixture.disk.unreadable.set(at * 8 + 3);
        let span = BulkSpan { offset: 0, length: 4096 };
        for block in 0..256u64 {
            let read = fixture.descriptions.read(id, span, Some(block << 12), true).await;
            assert_eq!(read, if block == 3 { Err(LOST) } else { Ok(4096) }, "{block}");
        }
    });
}

#[test]
fn what_lies_side_by_side_is_written_together() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 16_384, false);
        let id = fixture.open("/long", open::WRITE | open::CREATE).await.unwrap().id;
        for (index, part) in pattern(2 * MIB).chunks(4096).enumerate() {
            fixture.write(id, index as u64 * 4096, part).await.unwrap();
        }
        assert_eq!(fixture.disk.writes.get(), Count::default(), "nobody asked for it to last");
        fixture.files.synchronize(id, true).await.unwrap();
        let count = fixture.disk.writes.get();
        eprintln!("{count:?}");
        assert!(count.sectors >= 4096 && count.requests <= 40, "{count:?}");
    });
}

#[test]
fn what_cannot_be_written_is_lost_for_its_own_file_only() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let flags = open::WRITE | open::CREATE;
        let make = async |path, bytes: [u8; 4096]| {
            let id = fixture.open(path, flags).await.unwrap().id;
            fixture.write(id, 0, &bytes).await.unwrap();
            id
        };
        fixture.disk.fails.set(Some(0xe5));
        let ids = [make("/one", [1; 4096]).await, make("/two", [0xe5; 4096]).await, make("/three", [3; 4096]).await];
        let told = ids.map(async |id| fixture.files.synchronize(id, true).await);
        let [one, two, three] = told;
        assert_eq!((one.await, two.await, three.await), (Ok(()), Err(LOST), Ok(())));
        let image = fixture.disk.image.borrow();
        let of = |byte: u8| image.chunks(4096).position(|block| block == [byte; 4096]);
        assert_eq!(of(3), of(1).map(|block| block + 2), "they lie side by side");
    });
}

/// Writes a file by blocks, and has it last; counts the blocks. `place` is its own in the bulk.
async fn write_behind(fixture: Rc<Fixture>, path: &'static str, place: u32, done: Rc<Cell<usize>>) {
    let id = fixture.open(path, open::WRITE | open::CREATE).await.unwrap().id;
    for (index, part) in pattern(2 * MIB).chunks(4096).enumerate() {
        fixture.descriptions.bulk().write(place as usize, part).unwrap();
        let span = BulkSpan { offset: place, length: 4096 };
        assert_eq!(fixture.descriptions.write(id, span, Some(index as u64 * 4096), true).await, Ok(4096));
        done.set(done.get() + 1);
    }
    fixture.files.synchronize(id, true).await.unwrap();
    done.set(done.get() + 1);
}

/// A disk that answers no write: writes return up to the bound, the next ones wait, and with the
/// disk all goes on.
#[test]
fn who_writes_more_than_may_be_newer_than_the_disk_waits() {
    let Some(image) = image() else { return };
    let left = runtime::testing::run(async {
        let (fixture, done) = (Rc::new(fixture(image, 1600, false)), Rc::new(Cell::new(0)));
        let most = fixture.server.device().await.unwrap().budget().dirty_max();
        assert_eq!(most, 200);
        fixture.disk.are_writes_held.set(true);
        for (path, place) in [("/a", 0), ("/b", 4096), ("/c", 8192)] {
            runtime::spawn(write_behind(fixture.clone(), path, place, done.clone()));
        }
        runtime::sleep(60_000_000_000).await;
        let dirty = fixture.dirty();
        eprintln!("{} written, {dirty} newer than the disk", done.get());
        assert!((most / 2..=most).contains(&done.get()), "the cache takes what it may");
        assert!((most - 32..=most).contains(&dirty), "{dirty}");
        fixture.disk.are_writes_held.set(false);
        fixture.disk.released.changed();
        while done.get() < 3 * 513 {
            assert!(fixture.dirty() <= most);
            runtime::sleep(1_000_000).await;
        }
        fixture.disk.image.borrow().clone()
    });
    runtime::testing::run(async {
        let fixture = fixture(left, 4000, true);
        for path in ["/a", "/b", "/c"] {
            let id = fixture.open(path, open::READ).await.unwrap().id;
            assert!(fixture.read(id, 0, 2 * MIB).await == pattern(2 * MIB));
        }
    });
}

/// Nobody asked for it to last: it does after some seconds, and at once when the volume ends.
#[test]
fn what_was_written_lasts_some_seconds_later_or_at_the_end() {
    let Some(image) = image() else { return };
    for ends in [false, true] {
        let image = image.clone();
        let left = runtime::testing::run(async {
            let fixture = fixture(image, 16_384, false);
            let id = fixture.open("/long", open::WRITE | open::CREATE).await.unwrap().id;
            fixture.write(id, 0, &pattern(50_000)).await.unwrap();
            if ends {
                fixture.storage.close().await.unwrap();
            } else {
                runtime::sleep(5_500_000_000).await;
            }
            assert_eq!(fixture.dirty(), 0);
            fixture.disk.image.borrow().clone()
        });
        runtime::testing::run(async {
            let fixture = fixture(left, 4000, true);
            let id = fixture.open("/long", open::READ).await.unwrap().id;
            assert!(fixture.read(id, 0, MIB).await == pattern(50_000));
        });
    }
}

/// All of a file is in memory while there is some; when others want it, clean blocks go, and nobody
/// hears of it.
#[test]
fn clean_blocks_give_way_to_what_is_written_and_to_others() {
    const PAGES: usize = 1472;
    /// For blocks, and to be left for others.
    const ALL: usize = PAGES / 4 * 3;
    const SPARE: usize = PAGES / 16;
    let Some(image) = image_with_long(4 * MIB) else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, PAGES, false);
        let device = fixture.server.device().await.unwrap();
        let cached = || device.cache.borrow().len();
        let id = fixture.open("/long", open::READ | open::WRITE).await.unwrap().id;
        read_all(&fixture, id, 4 * MIB, 4096).await;
        assert!((1024..=ALL).contains(&cached()), "{}", cached());
        assert_eq!(read_all(&fixture, id, 4 * MIB, 4096).await, Count::default());
        // What is newer than the disk takes their place.
        fixture.disk.are_writes_held.set(true);
        for at in 0..150 {
            fixture.write(id, at << 13, &[0x77; 4096]).await.unwrap();
        }
        let newer = fixture.dirty();
        assert!(newer >= 150 && cached() + newer <= ALL + 16, "{} and {newer}", cached());
        fixture.disk.are_writes_held.set(false);
        fixture.disk.released.changed();
        fixture.files.synchronize(id, true).await.unwrap();
        // The account is used up by others: a part of it is dropped for them.
        fixture.available.set(0);
        let far = fixture.open("/large", open::READ).await.unwrap().id;
        assert!(fixture.read(far, 0, LARGE).await == large());
        assert!((ALL / 2..=ALL - SPARE + 16).contains(&cached()), "{} of {ALL}", cached());
        let mut expected = pattern(4 * MIB);
        (0..150).for_each(|at| expected[at << 13..][..4096].fill(0x77));
        assert!(fixture.read(id, 0, 4 * MIB).await == expected);
    });
}

/// Changes that wait for the disk's reads have room when they come to it.
#[test]
fn changes_under_way_have_room_of_their_own() {
    const WRITERS: u32 = 100;
    let Some(image) = image_with_long(2 * MIB) else { return };
    runtime::testing::run(async {
        let fixture = Rc::new(fixture(image, 400, false));
        let id = fixture.open("/long", open::READ | open::WRITE).await.unwrap().id;
        let most = fixture.server.device().await.unwrap().budget().dirty_max();
        assert!(most < WRITERS as usize);
        fixture.disk.held_from.set(0);
        fixture.disk.are_writes_held.set(true);
        let done = Rc::new(Cell::new(0));
        for writer in 0..WRITERS {
            let (fixture, done) = (fixture.clone(), done.clone());
            runtime::spawn(async move {
                fixture.descriptions.bulk().write(writer as usize, &[0x55]).unwrap();
                let span = BulkSpan { offset: writer, length: 1 };
                let at = u64::from(writer) * 4096 + 9;
                assert_eq!(fixture.descriptions.write(id, span, Some(at), true).await, Ok(1));
                done.set(done.get() + 1);
            });
        }
        runtime::sleep(1_000_000_000).await;
        assert_eq!(done.get(), 0, "each needs a block that is not there");
        fixture.disk.held_from.set(u64::MAX);
        fixture.disk.released.changed();
        runtime::sleep(1_000_000_000).await;
        assert!(done.get() > 0 && fixture.dirty() <= most, "{} of {most}", fixture.dirty());
        fixture.disk.are_writes_held.set(false);
        fixture.disk.released.changed();
        while done.get() < WRITERS {
            runtime::sleep(1_000_000).await;
        }
        for writer in 0..u64::from(WRITERS) {
            assert_eq!(fixture.read(id, writer * 4096 + 9, 1).await, [0x55]);
        }
    });
}

#[test]
fn a_component_without_memory_reads_and_writes_block_by_block() {
    let Some(image) = image_with_long(MIB) else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1600, false);
        fixture.available.set(0);
        let id = fixture.open("/long", open::READ | open::WRITE).await.unwrap().id;
        assert!(fixture.read(id, 0, MIB).await == pattern(MIB));
        for (index, part) in pattern(2 * MIB).chunks(4096).enumerate() {
            fixture.write(id, index as u64 * 4096, part).await.unwrap();
        }
        fixture.files.synchronize(id, true).await.unwrap();
        assert!(fixture.read(id, 0, 2 * MIB).await == pattern(2 * MIB));
    });
}

#[test]
fn who_has_little_memory_reads_little_ahead() {
    let Some(image) = image_with_long(MIB) else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 100, true);
        let id = fixture.open("/long", open::READ).await.unwrap().id;
        let most = fixture.server.device().await.unwrap().cache.borrow().limit() as u32 / 8;
        assert!((4..16).contains(&most), "{most}");
        fixture.read(id, 0, 1).await;
        let before = fixture.disk.reads.get().sectors / 8;
        for block in 1..40 {
            fixture.read(id, u64::from(block) * 4096, 1).await;
            rest().await;
            let asked = fixture.disk.reads.get().sectors / 8 - before;
            assert!(asked <= block + most, "{asked} blocks for {block}");
        }
    });
}

#[test]
fn what_cannot_be_read_or_written_alone_is_asked_for_once() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let device = fixture.server.device().await.unwrap();
        let last = device.size() - 1;
        fixture.disk.unreadable.set(last * 8);
        let (reads, writes) = (fixture.disk.reads.get().requests, fixture.disk.writes.get().requests);
        assert!(device.pin(last).await.is_err());
        assert_eq!(fixture.disk.reads.get().requests, reads + 1);
        fixture.disk.fails.set(Some(0xe5));
        let put = ext4::Put { block: last, bytes: std::sync::Arc::new([0xe5; 4096]), inode: 7 };
        assert_eq!(device.write_all(vec![put]).await, [7]);
        assert_eq!(fixture.disk.writes.get().requests, writes + 1);
    });
}

#[test]
fn blocks_side_by_side_are_as_few_requests_as_may_be() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, true);
        let device = fixture.server.device().await.unwrap();
        let before = fixture.disk.reads.get();
        device.begin(7000..7064);
        device.begin(7000..7064);
        rest().await;
        let after = fixture.disk.reads.get();
        let count = Count { requests: after.requests - before.requests, sectors: after.sectors - before.sectors };
        assert_eq!(count, Count { requests: 2, sectors: 64 * 8 });
    });
}

/// A change that waits for the disk has room for all blocks that it may make newer than it.
#[test]
fn a_write_has_room_for_each_block_that_it_touches_until_it_is_done() {
    let Some(image) = image_with_long(MIB) else { return };
    runtime::testing::run(async {
        let fixture = Rc::new(fixture(image, 1000, false));
        let id = fixture.open("/long", open::READ | open::WRITE).await.unwrap().id;
        let (server, disk) = (fixture.server.clone(), fixture.disk.clone());
        let mut rooms = Vec::new();
        for is_write in [false, true] {
            server.device().await.unwrap().drop_blocks();
            disk.held_from.set(0);
            let (fixture, done) = (fixture.clone(), Rc::new(Cell::new(false)));
            let is_done = done.clone();
            runtime::spawn(async move {
                if is_write {
                    // Of two blocks.
                    fixture.write(id, 3 * 4096 - 1, b"xy").await.unwrap();
                } else {
                    fixture.files.change(id, contracts::files::Change::default()).await.unwrap();
                }
                is_done.set(true);
            });
            rest().await;
            assert!(!done.get(), "it waits for the disk");
            rooms.push(server.reserved.get());
            disk.held_from.set(u64::MAX);
            disk.released.changed();
            rest().await;
            assert!(done.get());
            assert_eq!(server.reserved.get(), 0);
        }
        assert!(rooms[0] > 0 && rooms[1] == rooms[0] + 2, "{rooms:?}");
    });
}

#[test]
fn much_that_is_newer_than_the_disk_is_written_though_nobody_asks() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1600, false);
        let id = fixture.open("/long", open::WRITE | open::CREATE).await.unwrap().id;
        let most = fixture.server.device().await.unwrap().budget().dirty_max();
        let mut at = 0;
        while fixture.dirty() + 16 < most / 2 {
            fixture.write(id, at, &pattern(16 << 12)).await.unwrap();
            at += 16 << 12;
        }
        rest().await;
        assert_eq!(fixture.disk.writes.get(), Count::default());
        fixture.write(id, at, &pattern(16 << 12)).await.unwrap();
        rest().await;
        assert!(fixture.disk.writes.get().sectors >= 8 * 80);
        assert!(fixture.dirty() < 16, "{} of {most}", fixture.dirty());
    });
}

/// Blocks that only the log has are in memory until they were written to their places.
#[test]
fn blocks_that_only_the_log_has_are_bounded() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 100, false);
        let most = fixture.server.device().await.unwrap().budget().logged_max();
        for round in 0..30 {
            // Each has a block of its own.
            for part in 0..5 {
                fixture.files.make_directory(name(&format!("/{round}-{part}")), 0o755).await.unwrap();
            }
            fixture.files.synchronize_all(None).await.unwrap();
            let logged = fixture.server.mount(|mount| mount.log_blocks()).unwrap();
            assert!(logged <= most + 16, "{logged} of {most}");
        }
    });
}
