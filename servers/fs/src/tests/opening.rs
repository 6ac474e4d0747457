//! Opening: what is there, what is made, and what that makes of it.

use contracts::files::{Change, Elsewhere, Unnamed};

use super::*;

#[test]
fn what_a_path_names_is_opened_as_what_it_is() {
    runtime::testing::run(async {
        let client = Client::of(&server(), 1);
        client.files.make_pipe(name("/pipe"), 0o600).await.unwrap();
        client.files.make_socket(name("/socket"), 0o600).await.unwrap();
        client.files.make_link(name("/link"), "/socket".into()).await.unwrap();
        client.opened("/file").await;
        let pipe = Elsewhere::Pipe(client.status("/pipe").await.unwrap().inode);
        let (own, failed) = (|kind| Ok((kind, None)), |error| refused(error));
        let cases = [
            ("/file", open::READ, own(Kind::File)),
            ("/file", open::READ | open::DIRECTORY, failed(DescriptionError::NotDirectory)),
            ("/dev", open::READ, own(Kind::Directory)),
            ("/dev/", open::READ | open::DIRECTORY, own(Kind::Directory)),
            ("/dev", open::READ | open::WRITE, failed(DescriptionError::IsDirectory)),
            ("/dev", open::READ | open::TRUNCATE, failed(DescriptionError::IsDirectory)),
            ("/dev/null", open::READ, own(Kind::Device)),
            ("/dev/tty", open::READ, Ok((Kind::Terminal, Some(Elsewhere::Terminal)))),
            ("/pipe", open::READ, Ok((Kind::Pipe, Some(pipe)))),
            ("/pipe", open::PLACE, own(Kind::Pipe)),
            ("/socket", open::READ, failed(DescriptionError::NoDevice)),
            ("/socket", open::PLACE, own(Kind::Socket)),
            ("/link", open::PLACE, own(Kind::Socket)),
            ("/link", open::PLACE | open::NO_FOLLOW, own(Kind::SymbolicLink)),
            ("/link", open::READ | open::NO_FOLLOW, failed(DescriptionError::Loop)),
            ("/none", open::READ, failed(DescriptionError::NotFound)),
            ("/none", open::WRITE | open::TRUNCATE, failed(DescriptionError::NotFound)),
        ];
        for (path, flags, expected) in cases {
            let opened = client.open(path, flags).await;
            // What is elsewhere has no description here.
            if let Ok(opened) = &opened {
                assert_eq!(opened.id == 0, opened.elsewhere.is_some(), "{path} {flags}");
            }
            assert_eq!(opened.map(|opened| (opened.kind, opened.elsewhere)), expected, "{path} {flags}");
        }
    });
}

#[test]
fn a_file_is_emptied_only_by_who_opens_it_to_write_and_to_empty_it() {
    runtime::testing::run(async {
        let client = Client::of(&server(), 1);
        let id = client.opened("/file").await;
        client.write(id, None, b"bytes").await.unwrap();
        for (flags, size) in [
            (open::READ | open::WRITE, 5),
            (open::READ | open::TRUNCATE, 5),
            (open::WRITE | open::CREATE, 5),
            (open::WRITE | open::TRUNCATE, 0),
        ] {
            assert_eq!(client.open("/file", flags).await.unwrap().size, size, "{flags}");
            assert_eq!(client.descriptions.status(id).await.unwrap().size, size, "{flags}");
        }
    });
}

#[test]
fn a_file_is_made_where_none_is() {
    runtime::testing::run(async {
        let client = Client::of(&server(), 1);
        let (make, alone) = (open::READ | open::WRITE | open::CREATE, open::WRITE | open::CREATE | open::EXCLUSIVE);
        let made = client.files.open(name("/file"), make, 0o100640).await.unwrap();
        assert_eq!((made.kind, made.size, made.permissions, made.elsewhere), (Kind::File, 0, 0o640, None));
        let status = client.status("/file").await.unwrap();
        assert_eq!((status.permissions, (status.user, status.group)), (0o640, OWNER));
        client.write(made.id, None, b"bytes").await.unwrap();
        assert_eq!(client.open("/file", make).await.unwrap().size, 5, "it is there already");
        assert_eq!(client.open("/file", alone).await, refused(DescriptionError::Exists));
        assert_eq!(client.open("/file", make | open::DIRECTORY).await, refused(DescriptionError::NotDirectory));
        assert_eq!(client.open("/new/", make).await, refused(DescriptionError::IsDirectory));
        assert_eq!(client.open("/none/new", make).await, refused(DescriptionError::NotFound));
        assert_eq!(client.open("/proc/new", make).await, refused(DescriptionError::Denied));
    });
}

#[test]
fn a_file_is_made_through_a_link_unless_it_has_to_be_new_or_the_link_is_not_followed() {
    runtime::testing::run(async {
        let client = Client::of(&server(), 1);
        client.files.make_link(name("/link"), "/target".into()).await.unwrap();
        let make = open::WRITE | open::CREATE;
        assert_eq!(client.open("/link", make | open::EXCLUSIVE).await, refused(DescriptionError::Exists));
        assert_eq!(client.open("/link", make | open::NO_FOLLOW).await, refused(DescriptionError::Loop));
        assert_eq!(client.kind("/target").await, refused(DescriptionError::NotFound));
        let made = client.open("/link", make).await.unwrap();
        assert_eq!(client.descriptions.status(made.id).await.unwrap(), client.status("/target").await.unwrap());
        assert_eq!(client.kind("/link").await, Ok(Kind::SymbolicLink));
    });
}

#[test]
fn a_description_tells_by_what_name_it_was_opened() {
    runtime::testing::run(async {
        let client = Client::of(&server(), 1);
        client.files.make_directory(name("/at"), 0o755).await.unwrap();
        let made = client.opened("/at/../at/file").await;
        let directory = client.opened_to_read("/at").await;
        let null = client.opened_to_read("/dev/null").await;
        let proc = client.opened_to_read("/proc").await;
        let told = async |id| client.files.path_of(id).await.unwrap();
        assert_eq!((told(made).await, told(directory).await), ("/at/file".into(), "/at".into()));
        assert_eq!((told(null).await, told(proc).await), ("/dev/null".into(), "/proc".into()));
        for path in ["/proc/sys/kernel", "/proc/uptime"] {
            assert_eq!(told(client.opened_to_read(path).await).await, path);
        }
        let again = client.files.reopen(made, open::READ).await.unwrap();
        client.files.remove(name("/at/file"), false).await.unwrap();
        assert_eq!(
            (told(made).await, told(again.id).await),
            ("/at/file (deleted)".into(), "/at/file (deleted)".into())
        );
        client.files.remove(name("/at"), true).await.unwrap();
        assert_eq!(client.files.path_of(directory).await, denied(DescriptionError::NotFound));
    });
}

#[test]
fn what_is_opened_again_has_an_offset_of_its_own() {
    runtime::testing::run(async {
        let client = Client::of(&server(), 1);
        let id = client.opened("/file").await;
        client.write(id, None, b"bytes").await.unwrap();
        let again = client.files.reopen(id, open::READ).await.unwrap();
        assert_eq!((again.kind, again.size, again.elsewhere), (Kind::File, 5, None));
        assert_eq!(client.read(again.id, None, 9).await, Ok(b"bytes".into()));
        assert_eq!(client.write(again.id, None, b"x").await, denied(DescriptionError::BadId));
        let text = client.opened_to_read("/proc/version").await;
        let whole = client.read(text, None, 100).await.unwrap();
        let again = client.files.reopen(text, open::READ).await.unwrap();
        assert_eq!((again.kind, client.read(again.id, None, 100).await), (Kind::File, Ok(whole)));
        assert_eq!(client.files.reopen(text, open::READ | open::WRITE).await, denied(DescriptionError::Denied));
        assert_eq!(client.files.reopen(77, open::READ).await, denied(DescriptionError::BadId));
    });
}

#[test]
fn a_file_without_a_name_lies_where_it_was_asked_for_and_may_get_a_name() {
    runtime::testing::run(async {
        let client = Client::of(&server(), 1);
        let (flags, never, may) = (open::READ | open::WRITE, false, true);
        let temporary = |may_link| Unnamed::Temporary { may_link };
        let made = client.files.open_unnamed(name("/tmp"), flags, 0o600, temporary(may)).await.unwrap();
        assert_eq!((made.kind, made.size, made.permissions, made.elsewhere), (Kind::File, 0, 0o600, None));
        let status = client.descriptions.status(made.id).await.unwrap();
        assert_eq!((status.links, (status.user, status.group)), (0, OWNER));
        let path = client.files.path_of(made.id).await.unwrap();
        assert_eq!(path, format!("/tmp/#{} (deleted)", status.inode));
        client.write(made.id, None, b"kept").await.unwrap();
        client.files.link_opened(made.id, name("/tmp/made")).await.unwrap();
        let named = client.opened_to_read("/tmp/made").await;
        assert_eq!(client.read(named, None, 9).await, Ok(b"kept".into()));
        let other = client.files.open_unnamed(name("/tmp"), flags, 0o600, temporary(never)).await.unwrap();
        assert_eq!(client.files.link_opened(other.id, name("/x")).await, refused(DescriptionError::NotFound));
        let memory = Unnamed::Memory { may_seal: true };
        let memory = client.files.open_unnamed(name("called so"), flags, 0o700, memory).await.unwrap();
        assert_eq!(client.files.path_of(memory.id).await.unwrap(), "/called so (deleted)");
        // Only a directory that is still there will do.
        let unnamed = async |place| client.files.open_unnamed(place, flags, 0o600, temporary(may)).await;
        assert_eq!(unnamed(name("/tmp/made")).await, refused(DescriptionError::NotDirectory));
        assert_eq!(unnamed(name("/tmp/none")).await, refused(DescriptionError::NotFound));
        client.files.make_directory(name("/gone"), 0o755).await.unwrap();
        let gone = client.opened_to_read("/gone").await;
        assert!(unnamed(from(gone, ".")).await.is_ok());
        client.files.remove(name("/gone"), true).await.unwrap();
        assert_eq!(unnamed(from(gone, ".")).await, refused(DescriptionError::NotFound));
    });
}

#[test]
fn what_is_known_of_a_file_can_be_changed_by_its_path_and_its_description() {
    runtime::testing::run(async {
        let client = Client::of(&server(), 1);
        let id = client.opened("/file").await;
        client.files.make_link(name("/link"), "/file".into()).await.unwrap();
        let change = |number: u32| Change {
            permissions: Some(number),
            user: Some(number + 1),
            group: Some(number + 2),
            modified_ns: Some(u64::from(number) + 3),
            accessed_ns: Some(u64::from(number) + 4),
        };
        let told = async || {
            let status = client.status("/file").await.unwrap();
            let Status { permissions, user, group, modified_ns, accessed_ns, .. } = status;
            (permissions, user, group, modified_ns, accessed_ns)
        };
        client.files.set_status(name("/link"), true, change(0o400)).await.unwrap();
        assert_eq!(told().await, (0o400, 257, 258, 259, 260));
        client.files.set_status(name("/link"), false, change(0o500)).await.unwrap();
        assert_eq!(told().await, (0o400, 257, 258, 259, 260), "it was the link");
        client.files.change(id, change(0o100)).await.unwrap();
        assert_eq!(told().await, (0o100, 65, 66, 67, 68));
        client.files.change(client.opened_to_read("/dev/null").await, change(0o200)).await.unwrap();
        assert_eq!(client.status("/dev/null").await.unwrap().permissions, 0o200);
        let text = client.opened_to_read("/proc/version").await;
        assert_eq!(client.files.change(text, change(0)).await, denied(DescriptionError::Denied));
        let set = async |path| client.files.set_status(name(path), true, change(0)).await;
        assert_eq!(set("/proc/version").await, refused(DescriptionError::Denied));
        assert_eq!(set("/none").await, refused(DescriptionError::NotFound));
    });
}
