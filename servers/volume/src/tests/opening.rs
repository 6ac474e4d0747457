//! Opening and making what is there, or is to be.

use contracts::descriptions::{DescriptionId, Kind};
use contracts::files::{Beyond, Change, Elsewhere, OF_VOLUME, Tree};

use super::*;

const BOTH: u32 = open::READ | open::WRITE;

#[test]
fn permissions_are_kept_and_no_other_bits() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let files = &fixture.files;
        let bits = async |path| files.status(name(path), false).await.unwrap().permissions;
        files.make_directory(name("/folder"), 0o40751).await.unwrap();
        assert_eq!(bits("/folder").await, 0o751);
        let opened = files.open(name("/file"), open::WRITE | open::CREATE, 0o10_4640).await.unwrap();
        assert_eq!((opened.permissions, bits("/file").await), (0o4640, 0o4640));
        let purpose = Unnamed::Temporary { may_link: true };
        let opened = files.open_unnamed(name("/far"), open::WRITE, 0o10_0602, purpose).await.unwrap();
        let status = fixture.descriptions.status(opened.id).await.unwrap();
        assert_eq!((opened.permissions, status.permissions), (0o602, 0o602));
        let change = Change { permissions: Some(0o10_2711), user: Some(7), group: Some(8), ..Change::default() };
        files.set_status(name("/small"), true, change).await.unwrap();
        let status = files.status(name("/small"), true).await.unwrap();
        assert_eq!((status.permissions, status.user, status.group), (0o2711, 7, 8));
        let change = Change { modified_ns: Some(5_000_000_007), accessed_ns: Some(9), ..Change::default() };
        files.set_status(name("/small"), true, change).await.unwrap();
        let status = files.status(name("/small"), true).await.unwrap();
        assert_eq!((status.modified_ns, status.accessed_ns, status.permissions), (5_000_000_007, 9, 0o2711));
    });
}

#[test]
fn what_is_no_file_is_opened_elsewhere_or_for_its_place_only() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let files = &fixture.files;
        let socket = files.make_socket(name("/socket"), 0o600).await.unwrap();
        files.make_pipe(name("/pipe"), 0o600).await.unwrap();
        files.make_link(name("/link"), "small".into()).await.unwrap();
        assert_eq!(files.make_link(name("/nowhere"), String::new()).await, failed(DescriptionError::NotFound));
        let status = async |path| files.status(name(path), false).await.unwrap();
        let (of_socket, of_pipe) = (status("/socket").await, status("/pipe").await);
        assert_eq!((of_socket.kind, of_pipe.kind), (Kind::Socket, Kind::Pipe));
        assert_eq!(socket, of_socket.inode | OF_VOLUME, "no other server has a socket of that number");
        for flags in [open::READ, open::WRITE] {
            assert_eq!(fixture.open("/socket", flags).await, failed(DescriptionError::NoDevice));
            assert_eq!(fixture.open("/link", flags | open::NO_FOLLOW).await, failed(DescriptionError::Loop));
            let opened = fixture.open("/pipe", flags).await.unwrap();
            assert_eq!((opened.id, opened.kind), (0, Kind::Pipe));
            assert_eq!(opened.elsewhere, Some(Elsewhere::Pipe(of_pipe.inode | OF_VOLUME)));
        }
        let kinds = [("/socket", Kind::Socket), ("/pipe", Kind::Pipe), ("/link", Kind::SymbolicLink)];
        for (path, kind) in kinds {
            let opened = fixture.open(path, open::PLACE | open::NO_FOLLOW).await.unwrap();
            assert_eq!((opened.kind, opened.elsewhere), (kind, None), "{path}");
            assert_eq!(fixture.descriptions.status(opened.id).await.unwrap().kind, kind, "{path}");
            let again = files.reopen(opened.id, open::PLACE).await.unwrap();
            assert_eq!((again.kind, again.elsewhere), (kind, None), "{path}");
            let as_folder = open::READ | open::NO_FOLLOW | open::DIRECTORY | open::PLACE;
            assert_eq!(fixture.open(path, as_folder).await, failed(DescriptionError::NotDirectory), "{path}");
        }
    });
}

#[test]
fn folders_are_opened_for_reading_only() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        for flags in [open::READ, open::READ | open::DIRECTORY] {
            assert_eq!(fixture.open("/far", flags).await.map(|opened| opened.kind), Ok(Kind::Directory));
        }
        for flags in [open::WRITE, BOTH, open::READ | open::TRUNCATE] {
            assert_eq!(fixture.open("/far", flags).await, failed(DescriptionError::IsDirectory), "{flags}");
        }
        assert_eq!(fixture.open("/small", open::READ | open::DIRECTORY).await, failed(DescriptionError::NotDirectory));
        let id = fixture.open("/far", open::READ).await.unwrap().id;
        let span = BulkSpan { offset: 0, length: 100 };
        let read = fixture.descriptions.read(id, span, Some(0), true).await;
        assert_eq!(read, refused(DescriptionError::IsDirectory));
    });
}

#[test]
fn a_volume_that_is_only_read_is_changed_by_nobody() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image.clone(), 1000, true);
        let read_only = DescriptionError::ReadOnly;
        assert_eq!(fixture.open("/small", open::WRITE).await, failed(read_only));
        assert_eq!(fixture.open("/new", open::WRITE | open::CREATE).await, failed(read_only));
        assert_eq!(fixture.files.make_directory(name("/new"), 0o755).await, failed(read_only));
        assert_eq!(fixture.files.remove(name("/small"), false).await, failed(read_only));
        let id = fixture.open("/small", open::READ).await.unwrap().id;
        assert_eq!(fixture.read(id, 0, 10).await, b"small");
        assert_eq!(fixture.files.change(id, Change::default()).await, refused(read_only));
        // That comes before what may be done to it elsewhere.
        let folder = fixture.open("/far", open::READ).await.unwrap().id;
        for (id, name) in [(id, "user.x"), (folder, "trusted.x")] {
            let request = AttributeRequest::Remove { name: name.into() };
            let removed = fixture.descriptions.control(id, Control::Attribute(request)).await;
            assert_eq!(removed, refused(read_only), "{name}");
        }
        assert_eq!(*fixture.disk.image.borrow(), image);
        assert_eq!(fixture.storage.close().await, Ok(()), "there is nothing to write");
    });
}

#[test]
fn who_creates_a_file_alone_finds_nothing_there() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        const ALONE: u32 = open::CREATE | open::EXCLUSIVE;
        for (path, target) in [("/link", "small"), ("/dangling", "far/made")] {
            fixture.files.make_link(name(path), target.into()).await.unwrap();
        }
        for path in ["/small", "/link", "/dangling", "/far"] {
            assert_eq!(fixture.open(path, BOTH | ALONE).await, failed(DescriptionError::Exists), "{path}");
        }
        let not_found = failed(DescriptionError::NotFound);
        assert_eq!(fixture.files.status(name("/far/made"), true).await, not_found, "a link is not followed");
        let size = async |path, flags| fixture.open(path, flags).await.map(|opened| opened.size);
        for flags in [open::CREATE, open::EXCLUSIVE, 0] {
            assert_eq!(size("/small", BOTH | flags).await, Ok(5), "{flags}");
            assert_eq!(size("/link", BOTH | flags).await, Ok(5), "{flags}");
        }
        for flags in [open::READ, open::READ | open::CREATE] {
            let opened = fixture.open("/link", flags | open::NO_FOLLOW).await;
            assert_eq!(opened, failed(DescriptionError::Loop), "{flags}");
        }
        assert_eq!(size("/dangling", BOTH | open::CREATE).await, Ok(0), "it is made where the link leads");
        assert_eq!(size("/far/made", open::READ).await, Ok(0));
        assert_eq!(size("/alone", BOTH | ALONE).await, Ok(0));
        assert_eq!(size("/folder/", BOTH | open::CREATE).await, failed(DescriptionError::IsDirectory));
        assert_eq!(fixture.open("/folder", open::READ).await, failed(DescriptionError::NotFound), "nothing was made");
    });
}

/// Two who create one file at the same time: both have found that it is not there before one of
/// them makes it.
#[test]
fn two_who_create_one_file_at_once_have_the_same_unless_one_wants_it_alone() {
    let Some(image) = image() else { return };
    for exclusive in [0, open::EXCLUSIVE] {
        runtime::testing::run(async {
            let fixture = Rc::new(fixture(image.clone(), 1000, false));
            let device = fixture.server.device().await.unwrap();
            device.drop_blocks();
            assert_eq!(fixture.open("/new", open::READ).await, failed(DescriptionError::NotFound));
            // What is to be changed has to be read first.
            fixture.disk.held_from.set(0);
            let answers = Rc::new(RefCell::new(Vec::new()));
            for _ in 0..2 {
                let (fixture, answers) = (fixture.clone(), answers.clone());
                runtime::spawn(async move {
                    let opened = fixture.open("/new", BOTH | open::CREATE | exclusive).await;
                    answers.borrow_mut().push(opened.map(|opened| opened.id));
                });
            }
            rest().await;
            assert!(answers.borrow().is_empty(), "both wait for the disk");
            fixture.disk.held_from.set(u64::MAX);
            fixture.disk.released.changed();
            while answers.borrow().len() < 2 {
                rest().await;
            }
            let ids: Vec<DescriptionId> = answers.borrow().iter().flatten().copied().collect();
            if exclusive == 0 {
                assert_eq!(ids.len(), 2, "{answers:?}");
                fixture.write(ids[0], 0, b"one").await.unwrap();
                assert_eq!(fixture.read(ids[1], 0, 10).await, b"one");
            } else {
                assert_eq!(ids.len(), 1, "{answers:?}");
                assert!(answers.borrow().contains(&failed(DescriptionError::Exists)));
            }
        });
    }
}

#[test]
fn a_file_that_is_opened_to_be_emptied_is_empty_and_changed_now() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let size = async |path| fixture.files.status(name(path), true).await.unwrap().size;
        let opened = fixture.open("/large", open::READ | open::TRUNCATE).await.unwrap();
        assert_eq!((opened.size, size("/large").await), (LARGE as u64, LARGE as u64), "it is not opened for writing");
        let opened = fixture.open("/large", BOTH | open::TRUNCATE).await.unwrap();
        assert_eq!((opened.size, size("/large").await), (0, 0));
        assert_eq!(fixture.read(opened.id, 0, 100).await, b"");
        fixture.write(opened.id, 0, b"kept").await.unwrap();
        assert_eq!(fixture.open("/large", BOTH).await.unwrap().size, 4);
        let made = fixture.open("/new", BOTH | open::TRUNCATE | open::CREATE).await.unwrap();
        assert_eq!((made.size, size("/new").await), (0, 0));
        // As `> stamp` has it for make(1), again and again.
        let change = Change { modified_ns: Some(5), ..Change::default() };
        fixture.files.set_status(name("/new"), true, change).await.unwrap();
        fixture.open("/new", BOTH | open::TRUNCATE).await.unwrap();
        assert_ne!(fixture.files.status(name("/new"), true).await.unwrap().modified_ns, 5);
        // What has no bytes is left as it is.
        fixture.files.make_pipe(name("/pipe"), 0o600).await.unwrap();
        assert!(fixture.open("/pipe", BOTH | open::TRUNCATE).await.unwrap().elsewhere.is_some());
    });
}

#[test]
fn a_path_is_located_where_its_last_part_would_be() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        fixture.files.make_link(name("/out"), "/etc/x".into()).await.unwrap();
        let locate = async |path, follow| fixture.files.locate(name(path), follow).await;
        let beyond =
            |path: &str| Err(CallError::Server(PathError::Beyond(Beyond { tree: Tree::Root, path: path.into() })));
        assert_eq!(locate("/small", true).await, Ok(()));
        assert_eq!(locate("/none", true).await, Ok(()), "it would be here");
        assert_eq!(locate("/none/x", true).await, failed(DescriptionError::NotFound));
        assert_eq!(locate("/../x", true).await, beyond("/x"));
        assert_eq!((locate("/out", false).await, locate("/out", true).await), (Ok(()), beyond("/etc/x")));
    });
}

#[test]
fn what_lies_on_a_disk_is_not_sealed() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let id = fixture.open("/small", BOTH).await.unwrap().id;
        for (id, error) in [(id, DescriptionError::Invalid), (id + 1, DescriptionError::BadId)] {
            assert_eq!(fixture.files.seals(id).await, refused(error));
            assert_eq!(fixture.files.add_seals(id, 1).await, refused(error));
        }
        let memory = fixture.files.open_unnamed(name("/"), BOTH, 0o600, Unnamed::Memory { may_seal: true }).await;
        assert_eq!(memory, failed(DescriptionError::NotSupported));
    });
}
