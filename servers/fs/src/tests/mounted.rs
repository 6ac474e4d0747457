//! The tree with the volume in it.

use contracts::files::{Beyond, Tree};

use super::*;

/// Where the volume is asked for the rest of a path.
fn beyond<T>(path: &str) -> Result<T, CallError<PathError>> {
    Err(CallError::Server(PathError::Beyond(Beyond { tree: Tree::Volume, path: path.into() })))
}

#[test]
fn what_lies_in_the_volume_is_asked_for_there_and_its_place_is_here() {
    runtime::testing::run(async {
        let (service, _) = mounted(Some(Mount { path: "/data".into(), is_read_only: false }));
        let client = Client::of(&service, 1);
        for (path, rest) in [("/data", "/"), ("/data/", "/"), ("/data/x", "/x")] {
            assert_eq!(client.status(path).await, beyond(rest), "{path}");
            assert_eq!(client.open(path, open::READ).await, beyond(rest), "{path}");
            assert_eq!(client.open(path, open::WRITE | open::CREATE).await, beyond(rest), "{path}");
        }
        let locate = async |path| client.files.locate(name(path), true).await;
        assert_eq!((locate("/data").await, locate("/dev").await), (Ok(()), Ok(())));
        assert_eq!(locate("/data/x").await, beyond("/x"));
        assert_eq!(locate("/none/x").await, refused(DescriptionError::NotFound));
        assert_eq!(client.files.make_directory(name("/data"), 0o755).await, refused(DescriptionError::Exists));
        assert_eq!(client.files.make_directory(name("/data/x"), 0o755).await, beyond("/x"));
        assert_eq!(client.files.remove(name("/data"), true).await, refused(DescriptionError::Busy));
        assert_eq!(client.files.remove(name("/data/x"), false).await, beyond("/x"));
        let root = client.opened_to_read("/").await;
        let listed = client.listed(root).await;
        assert!(listed.iter().any(|(name, _, kind)| (name.as_str(), *kind) == ("data", Kind::Directory)));
        let mounts = client.opened_to_read("/proc/mounts").await;
        let mounts = String::from_utf8(client.read(mounts, None, 1000).await.unwrap()).unwrap();
        assert!(mounts.ends_with("\n/dev/vda /data ext4 rw,noatime 0 0\n"), "{mounts}");
    });
}
