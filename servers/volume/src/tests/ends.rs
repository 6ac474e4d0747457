//! Ends: of a description, of a client and what it holds, and of the volume.

use std::pin::pin;

use channel::{ClientChannel, Memory};
use contracts::files::FilesServer;
use contracts::testing::is_sent;

use super::*;

const BOTH: u32 = open::READ | open::WRITE;

impl Fixture {
    async fn free(&self) -> u64 {
        self.files.space().await.unwrap().1
    }
}

#[test]
fn a_file_without_names_is_there_while_one_of_its_descriptions_is() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let free = fixture.free().await;
        let open = async || fixture.open("/large", open::READ).await.unwrap().id;
        let (one, two, three) = (open().await, open().await, open().await);
        fixture.descriptions.close(one).await.unwrap();
        fixture.files.remove(name("/large"), false).await.unwrap();
        fixture.descriptions.close(two).await.unwrap();
        rest().await;
        assert_eq!(fixture.free().await, free);
        assert!(fixture.read(three, 0, LARGE).await == large());
        fixture.descriptions.close(three).await.unwrap();
        rest().await;
        assert_eq!(fixture.free().await, free + LARGE.div_ceil(4096) as u64);
        assert_eq!(fixture.descriptions.close(three).await, refused(DescriptionError::BadId));
    });
}

/// Which of a client's two channels ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Files,
    Descriptions,
}

/// One more client of a server, by one channel, and what raises that channel's generation.
fn client(server: &Rc<Server>, by: By) -> (Rc<ClientChannel>, Peer, Memory) {
    let [own, served, monitor] = loopback_memory(BULK);
    let served = ServerChannel::new(Wiring { peer_set: 7, ..loopback_wiring(served, false) });
    server.open.clients.add(&served);
    let peer = served.peer().clone();
    match by {
        By::Files => runtime::spawn(serve_files(server.clone(), served)),
        By::Descriptions => runtime::spawn(serve_descriptions(server.clone(), served)),
    };
    (ClientChannel::new(loopback_wiring(own, true)), peer, monitor)
}

#[test]
fn what_a_client_held_goes_with_any_of_its_channels() {
    let Some(image) = image() else { return };
    for (by, restarts) in [By::Files, By::Descriptions].into_iter().flat_map(|by| [(by, false), (by, true)]) {
        runtime::testing::run(async {
            let fixture = fixture(image.clone(), 1000, false);
            let free = fixture.free().await;
            let (channel, peer, monitor) = client(&fixture.server, by);
            let opened = FilesServer::open(&*fixture.server, &peer, name("/large"), open::READ, 0).await.unwrap();
            fixture.files.remove(name("/large"), false).await.unwrap();
            rest().await;
            assert_eq!(fixture.free().await, free, "{opened:?}");
            if restarts {
                monitor.raise_generation();
                assert!(fixture.server.open.clients.look());
            } else {
                match by {
                    By::Files => drop(FilesClient::new(channel)),
                    By::Descriptions => drop(DescriptionsClient::new(channel)),
                }
            }
            rest().await;
            assert_eq!(fixture.free().await, free + LARGE.div_ceil(4096) as u64, "{by:?} {restarts}");
        });
    }
}

/// What a program let go of is reclaimed, whether that was looked at before or not; what others
/// have open stays for them.
#[test]
fn a_volume_that_ends_has_nothing_left_to_reclaim_but_what_is_open() {
    let Some(image) = image() else { return };
    let left = runtime::testing::run(async {
        let fixture = fixture(image.clone(), 1000, false);
        let free = fixture.free().await;
        let (_channel, peer, monitor) = client(&fixture.server, By::Descriptions);
        FilesServer::open(&*fixture.server, &peer, name("/small"), open::READ, 0).await.unwrap();
        let open = async |path| fixture.open(path, open::READ).await.unwrap().id;
        let (closed, kept) = (open("/large").await, open("/far/file").await);
        for path in ["/small", "/large", "/far/file"] {
            fixture.files.remove(name(path), false).await.unwrap();
        }
        rest().await;
        assert_eq!(fixture.free().await, free);
        monitor.raise_generation();
        let mut closing = pin!(fixture.descriptions.close(closed));
        is_sent(closing.as_mut()).await;
        fixture.storage.close().await.unwrap();
        assert_eq!(fixture.server.mount(|mount| mount.orphans().len()), Some(1));
        assert_eq!(fixture.free().await, free + 1 + LARGE.div_ceil(4096) as u64);
        assert_eq!(fixture.read(kept, 0, 10).await, b"far");
        assert_eq!(fixture.open("/new", BOTH | open::CREATE).await, failed(DescriptionError::ReadOnly), "it has ended");
        fixture.disk.image.borrow().clone()
    });
    // The next life has nobody who has it open.
    runtime::testing::run(async {
        let fixture = fixture(left, 1000, false);
        fixture.files.space().await.unwrap();
        rest().await;
        assert_eq!(fixture.server.mount(|mount| mount.orphans().len()), Some(0));
    });
}

#[test]
fn a_new_file_hears_nothing_of_what_was_lost_of_one_with_its_number() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let opened = fixture.open("/small", BOTH).await.unwrap();
        let number = fixture.descriptions.status(opened.id).await.unwrap().inode;
        fixture.disk.fails.set(Some(0xe5));
        fixture.write(opened.id, 0, &[0xe5; 5]).await.unwrap();
        fixture.descriptions.close(opened.id).await.unwrap();
        fixture.files.synchronize_all(None).await.unwrap();
        fixture.files.remove(name("/small"), false).await.unwrap();
        rest().await;
        let opened = fixture.open("/other", BOTH | open::CREATE).await.unwrap();
        assert_eq!(fixture.descriptions.status(opened.id).await.unwrap().inode, number, "the number is given again");
        assert_eq!(fixture.files.synchronize(opened.id, true).await, Ok(()));
    });
}
