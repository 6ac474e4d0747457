//! Names: by which path something is open, renaming, removing, links.

use contracts::files::Renaming;

use super::*;

fn within(id: u64, path: &str) -> Name {
    Name { directory: Some(id), ..name(path) }
}

#[test]
fn what_is_open_is_told_where_it_is_now() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let files = &fixture.files;
        for path in ["/far/one", "/far/two", "/far/two/deep"] {
            files.make_directory(name(path), 0o755).await.unwrap();
        }
        let folder = async |path| fixture.open(path, open::READ).await.unwrap().id;
        let (root, far, two, deep) =
            (folder("/").await, folder("/far").await, folder("/far/two").await, folder("/far/two/deep").await);
        let file = fixture.open("/far/two/new", open::WRITE | open::CREATE).await.unwrap().id;
        let top = fixture.open("/small", open::READ).await.unwrap().id;
        let again = files.reopen(file, open::READ).await.unwrap().id;
        let path = async |id| files.path_of(id).await.unwrap();
        assert_eq!([path(root).await, path(far).await], ["/data", "/data/far"]);
        assert_eq!([path(two).await, path(deep).await], ["/data/far/two", "/data/far/two/deep"]);
        assert_eq!([path(file).await, path(top).await], ["/data/far/two/new", "/data/small"]);
        assert_eq!(path(again).await, "/data/far/two/new");
        files.rename(name("/far/two"), name("/moved"), Renaming::Replace).await.unwrap();
        assert_eq!([path(deep).await, path(file).await], ["/data/moved/deep", "/data/moved/new"]);
        // Another file has the name.
        files.rename(name("/moved/new"), name("/moved/old"), Renaming::Replace).await.unwrap();
        assert_eq!(path(file).await, "/data/moved/new (deleted)");
        fixture.open("/moved/new", open::WRITE | open::CREATE).await.unwrap();
        assert_eq!(path(file).await, "/data/moved/new (deleted)");
        files.remove(name("/moved/deep"), true).await.unwrap();
        assert!(files.path_of(deep).await.is_err(), "it was removed");
    });
}

#[test]
fn a_path_is_told_up_to_the_length_that_may_be_named() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let path = format!("/{}/{}/{}", "a".repeat(250), "b".repeat(250), "c".repeat(197));
        assert_eq!(path.len(), 700);
        for end in [251, 502, 700] {
            fixture.files.make_directory(name(&path[..end]), 0o755).await.unwrap();
        }
        let id = fixture.open(&path, open::READ).await.unwrap().id;
        assert_eq!(fixture.files.path_of(id).await, Ok(format!("/data{path}")));
        let above = fixture.open(&path[..502], open::READ).await.unwrap().id;
        let longer = "d".repeat(198);
        fixture.files.make_directory(within(above, &longer), 0o755).await.unwrap();
        let id = fixture.files.open(within(above, &longer), open::READ, 0).await.unwrap().id;
        assert_eq!(fixture.files.path_of(id).await, refused(DescriptionError::NameTooLong));
    });
}

#[test]
fn a_link_is_told_up_to_the_length_that_may_be_named() {
    let Some(image) = made(16, |tree| {
        for bytes in [700, 701] {
            std::os::unix::fs::symlink("x/".repeat(350) + &"x"[..bytes - 700], tree.join(format!("{bytes}"))).unwrap();
        }
    }) else {
        return;
    };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        assert_eq!(fixture.files.read_link(name("/700")).await, Ok("x/".repeat(350)));
        assert_eq!(fixture.files.read_link(name("/701")).await, failed(DescriptionError::NameTooLong));
        assert_eq!(fixture.files.read_link(name("/lost+found")).await, failed(DescriptionError::Invalid));
    });
}

#[test]
fn only_a_folder_is_made_under_a_name_with_a_slash_behind_it() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let (files, none) = (&fixture.files, failed(DescriptionError::NotFound));
        assert_eq!(files.make_link(name("/new/"), "small".into()).await, none);
        assert_eq!(files.make_pipe(name("/new/"), 0o600).await, none);
        assert_eq!(files.make_socket(name("/new/"), 0o600).await, failed(DescriptionError::NotFound));
        assert_eq!(files.link(name("/small"), false, name("/new/")).await, none);
        assert_eq!(files.make_directory(name("/new/"), 0o755).await, Ok(()));
        let exists = failed(DescriptionError::Exists);
        assert_eq!(files.make_directory(name("/new/"), 0o755).await, exists);
        assert_eq!(files.make_pipe(name("/small"), 0o600).await, exists);
        assert_eq!(files.link(name("/new"), false, name("/other")).await, failed(DescriptionError::Denied));
    });
}

#[test]
fn the_root_and_what_has_no_name_of_its_own_are_not_removed() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let remove = async |path, directory| fixture.files.remove(name(path), directory).await;
        let rename = async |path| fixture.files.rename(name(path), name("/x"), Renaming::Replace).await;
        for path in ["/", "/far/.."] {
            assert_eq!(remove(path, true).await, failed(DescriptionError::Busy), "{path}");
            assert_eq!(rename(path).await, failed(DescriptionError::Busy), "{path}");
        }
        assert_eq!(remove("/far/.", true).await, failed(DescriptionError::Invalid));
        assert_eq!(rename("/far/.").await, failed(DescriptionError::Invalid));
        assert_eq!(remove("/none", false).await, failed(DescriptionError::NotFound));
        assert_eq!(remove("/far", true).await, failed(DescriptionError::NotEmpty));
        assert_eq!(remove("/far", false).await, failed(DescriptionError::IsDirectory));
        assert_eq!(remove("/small", true).await, failed(DescriptionError::NotDirectory));
        let onto_root = fixture.files.rename(name("/small"), name("/"), Renaming::Keep).await;
        assert_eq!(onto_root, failed(DescriptionError::Exists));
    });
}

#[test]
fn a_rename_replaces_keeps_or_exchanges_as_it_is_asked_to() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let rename = async |from, to, how| fixture.files.rename(name(from), name(to), how).await;
        let size = async |path| fixture.files.status(name(path), false).await.map(|status| status.size);
        let (not_found, not_directory) = (DescriptionError::NotFound, DescriptionError::NotDirectory);
        assert_eq!(rename("/small", "/far/file", Renaming::Keep).await, failed(DescriptionError::Exists));
        assert_eq!(rename("/small", "/none", Renaming::Exchange).await, failed(not_found));
        assert_eq!(size("/small").await, Ok(5));
        assert_eq!(rename("/small", "/far/file", Renaming::Exchange).await, Ok(()));
        assert_eq!((size("/small").await, size("/far/file").await), (Ok(3), Ok(5)));
        // What ends with a slash is a folder.
        for how in [Renaming::Replace, Renaming::Keep] {
            assert_eq!(rename("/small", "/new/", how).await, failed(not_directory), "{how:?}");
            assert_eq!(rename("/far", "/new/", how).await, Ok(()), "{how:?}");
            assert_eq!(rename("/new/", "/far", how).await, Ok(()), "{how:?}");
        }
        assert_eq!(rename("/small", "/kept", Renaming::Keep).await, Ok(()));
        assert_eq!(rename("/kept", "/far/file", Renaming::Replace).await, Ok(()));
        assert_eq!((size("/far/file").await, size("/kept").await), (Ok(3), failed(not_found)));
    });
}

/// The space of what lost its last name, whether that was removed or another one got it.
#[test]
fn what_has_no_name_and_is_not_open_leaves_its_space_free() {
    let Some(image) = image() else { return };
    for replaces in [false, true] {
        runtime::testing::run(async {
            let fixture = fixture(image.clone(), 1000, false);
            let (_, free) = fixture.files.space().await.unwrap();
            if replaces {
                fixture.files.rename(name("/small"), name("/large"), Renaming::Replace).await.unwrap();
            } else {
                fixture.files.remove(name("/large"), false).await.unwrap();
            }
            rest().await;
            assert_eq!(fixture.files.space().await.unwrap().1, free + LARGE.div_ceil(4096) as u64);
        });
    }
}

/// One that has more stretches than are cut off at a time: all go, and it is as any other then.
#[test]
fn a_file_of_many_stretches_that_is_cut_leaves_all_its_space_free() {
    const STRETCHES: u64 = 100;
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let id = fixture.open("/sparse", open::READ | open::WRITE | open::CREATE).await.unwrap().id;
        fixture.descriptions.resize(id, 1).await.unwrap();
        let (_, free) = fixture.files.space().await.unwrap();
        for block in 0..STRETCHES {
            fixture.write(id, block * 8192, b"x").await.unwrap();
        }
        assert!(fixture.files.space().await.unwrap().1 <= free - STRETCHES);
        fixture.descriptions.resize(id, 0).await.unwrap();
        assert_eq!(fixture.files.space().await.unwrap().1, free);
        fixture.write(id, 8192, b"more").await.unwrap();
        fixture.descriptions.resize(id, 8192 + 2).await.unwrap();
        assert_eq!(fixture.read(id, 0, 20_000).await, [vec![0; 8192], b"mo".to_vec()].concat());
    });
}
