//! Names: made, taken away, followed.

use contracts::files::Renaming;

use super::*;

/// What a symbolic link may hold.
const LINK_BYTES_MAX: usize = 700;

#[test]
fn what_is_made_under_a_name_is_there_and_its_makers() {
    runtime::testing::run(async {
        let client = Client::of(&server(), 1);
        client.files.make_directory(name("/directory/"), 0o750).await.unwrap();
        client.files.make_pipe(name("/directory/pipe"), 0o610).await.unwrap();
        let socket = client.files.make_socket(name("/directory/socket"), 0o620).await.unwrap();
        client.files.make_link(name("/directory/link"), "pipe".into()).await.unwrap();
        assert_eq!(client.status("/directory/socket").await.unwrap().inode, socket);
        for (path, kind, permissions) in [
            ("/directory", Kind::Directory, 0o750),
            ("/directory/pipe", Kind::Pipe, 0o610),
            ("/directory/socket", Kind::Socket, 0o620),
            ("/directory/link", Kind::SymbolicLink, 0o777),
        ] {
            let status = client.status(path).await.unwrap();
            assert_eq!((status.kind, status.permissions), (kind, permissions), "{path}");
            assert_eq!((status.user, status.group), OWNER, "{path}");
        }
        let followed = client.files.status(name("/directory/link"), true).await.unwrap();
        assert_eq!(followed.kind, Kind::Pipe);
        let id = client.opened_to_read("/directory").await;
        let made = async |path: &str| client.files.make_directory(from(id, path), 0o755).await;
        made("inner").await.unwrap();
        assert_eq!(client.kind("/directory/inner").await, Ok(Kind::Directory));
        assert_eq!(made("pipe").await, refused(DescriptionError::Exists));
        assert_eq!(made("").await, refused(DescriptionError::NotFound));
        // Only a directory can be made under a name that says so.
        for path in ["/new/", "/new/."] {
            let refusals = [
                client.files.make_pipe(name(path), 0o600).await,
                client.files.make_socket(name(path), 0o600).await.map(drop),
                client.files.make_link(name(path), "x".into()).await,
                client.files.link(name("/directory/pipe"), true, name(path)).await,
            ];
            assert_eq!(refusals, [(); 4].map(|()| refused(DescriptionError::NotFound)), "{path}");
        }
        let text = client.opened_to_read("/proc/version").await;
        let refusal = client.files.make_directory(from(text, "x"), 0o755).await;
        assert_eq!(refusal, refused(DescriptionError::NotDirectory));
        let refusal = client.files.make_directory(name("/proc/x"), 0o755).await;
        assert_eq!(refusal, refused(DescriptionError::Denied));
    });
}

#[test]
fn a_link_tells_where_it_points_and_has_room_for_a_path() {
    runtime::testing::run(async {
        let client = Client::of(&server(), 1);
        let make = async |path: &str, target: &str| client.files.make_link(name(path), target.into()).await;
        let longest = "x".repeat(LINK_BYTES_MAX);
        make("/long", &longest).await.unwrap();
        make("/short", "x").await.unwrap();
        assert_eq!(make("/none", &format!("{longest}x")).await, refused(DescriptionError::NameTooLong));
        assert_eq!(make("/none", "").await, refused(DescriptionError::NotFound));
        let told = async |path| client.files.read_link(name(path)).await;
        assert_eq!((told("/long").await, told("/short").await), (Ok(longest), Ok("x".into())));
        assert_eq!(told("/none").await, refused(DescriptionError::NotFound));
        assert_eq!(told("/dev").await, refused(DescriptionError::Invalid));
    });
}

#[test]
fn a_file_has_the_names_it_is_given() {
    runtime::testing::run(async {
        let client = Client::of(&server(), 1);
        let id = client.opened("/one").await;
        client.files.make_link(name("/link"), "/one".into()).await.unwrap();
        client.files.link(name("/one"), true, name("/two")).await.unwrap();
        client.files.link(name("/link"), false, name("/another-link")).await.unwrap();
        client.files.link_opened(id, name("/three")).await.unwrap();
        assert_eq!(client.kind("/another-link").await, Ok(Kind::SymbolicLink));
        let number = client.descriptions.status(id).await.unwrap().inode;
        for path in ["/one", "/two", "/three"] {
            let status = client.status(path).await.unwrap();
            assert_eq!((status.inode, status.links), (number, 3), "{path}");
        }
        client.files.remove(name("/one"), false).await.unwrap();
        assert_eq!(client.kind("/one").await, refused(DescriptionError::NotFound));
        assert_eq!(client.descriptions.status(id).await.unwrap().links, 2);
        let null = client.opened_to_read("/dev/null").await;
        client.files.link_opened(null, name("/null")).await.unwrap();
        assert_eq!(client.status("/null").await.unwrap().special, 0x103);
        let text = client.opened_to_read("/proc/version").await;
        let refusal = client.files.link_opened(text, name("/version")).await;
        assert_eq!(refusal, refused(DescriptionError::CrossDevice));
        let refusal = client.files.link(name("/proc/version"), true, name("/version")).await;
        assert_eq!(refusal, refused(DescriptionError::Denied));
    });
}

#[test]
fn names_are_moved_and_removed() {
    runtime::testing::run(async {
        let client = Client::of(&server(), 1);
        client.opened("/file").await;
        client.files.make_directory(name("/directory"), 0o755).await.unwrap();
        let to = async |from, to| client.files.rename(name(from), name(to), Renaming::Replace).await;
        assert_eq!(to("/file", "/directory/moved").await, Ok(()));
        assert_eq!(client.kind("/file").await, refused(DescriptionError::NotFound));
        assert_eq!(client.kind("/directory/moved").await, Ok(Kind::File));
        assert_eq!(to("/file", "/x").await, refused(DescriptionError::NotFound));
        assert_eq!(to("/directory/moved", "/proc/x").await, refused(DescriptionError::CrossDevice));
        assert_eq!(to("/directory/moved", "/..").await, refused(DescriptionError::Invalid));
        assert_eq!(to("/proc/version", "/x").await, refused(DescriptionError::Denied));
        let remove = async |path, is_directory| client.files.remove(name(path), is_directory).await;
        assert_eq!(remove("/directory", true).await, refused(DescriptionError::NotEmpty));
        assert_eq!(remove("/directory/moved", true).await, refused(DescriptionError::NotDirectory));
        assert_eq!(remove("/directory/moved", false).await, Ok(()));
        assert_eq!(remove("/directory", false).await, refused(DescriptionError::IsDirectory));
        assert_eq!(remove("/directory/.", true).await, refused(DescriptionError::Invalid));
        assert_eq!(remove("/directory", true).await, Ok(()));
        assert_eq!(client.kind("/directory").await, refused(DescriptionError::NotFound));
        assert_eq!(remove("/proc/version", false).await, refused(DescriptionError::Denied));
    });
}
