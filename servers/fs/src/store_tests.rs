//! The store against a naive model: a map from whole paths to contents.

use super::*;
use crate::archive::tests::{write as member, write_linked};
use crate::walk::{Located, walk};
use contracts::files::Renaming;
use std::collections::BTreeMap as Map;

/// Whole path to file number, or `None` for a directory; hard links share the number.
#[derive(Default, Clone)]
struct Model {
    paths: Map<String, Option<u32>>,
    bytes: Map<u32, Vec<u8>>,
}

impl Model {
    fn is_directory(&self, path: &str) -> bool {
        path.is_empty() || matches!(self.paths.get(path), Some(None))
    }

    fn above(path: &str) -> &str {
        &path[..path.rfind('/').unwrap()]
    }

    fn below(&self, path: &str) -> bool {
        let prefix = format!("{path}/");
        self.paths.keys().any(|other| other.starts_with(&prefix))
    }

    fn remove(&mut self, path: &str, directory: bool) -> bool {
        match self.paths.get(path) {
            Some(None) if directory && !self.below(path) => {}
            Some(Some(_)) if !directory => {}
            _ => return false,
        }
        self.paths.remove(path);
        true
    }

    fn rename(&mut self, from: &str, to: &str) -> bool {
        let Some(moved) = self.paths.get(from).copied() else { return false };
        if !self.is_directory(Self::above(to)) {
            return false;
        }
        let inside = format!("{to}/").starts_with(&format!("{from}/"));
        if from == to || (moved.is_some() && self.paths.get(to) == Some(&moved)) {
            return true;
        }
        if moved.is_none() && inside {
            return false;
        }
        if self.paths.contains_key(to) && !self.remove(to, moved.is_none()) {
            return false;
        }
        let old = format!("{from}/");
        let names: Vec<String> =
            self.paths.keys().filter(|path| *path == from || path.starts_with(&old)).cloned().collect();
        for name in names {
            let value = self.paths.remove(&name).unwrap();
            self.paths.insert(format!("{to}{}", &name[from.len()..]), value);
        }
        true
    }
}

fn named(store: &Store, path: &str) -> Option<(InodeId, String)> {
    walk(store, path, false).ok()?.name
}

fn inode_at(store: &Store, path: &str) -> Option<InodeId> {
    match walk(store, path, false).ok()?.place {
        Located::Inode(id) => Some(id),
        _ => None,
    }
}

fn read(store: &Store, id: InodeId) -> Vec<u8> {
    let mut all = Vec::new();
    store.data(id).unwrap().read(0, usize::MAX, |_, part| all.extend_from_slice(part));
    all
}

fn compare(store: &Store, model: &Model) {
    for inode in store.inodes.values() {
        if let Content::Directory { names, listed, .. } = &inode.content {
            assert_eq!(listed, &names.iter().map(|(name, id)| (*id, name.clone())).collect());
        }
    }
    let mut found = Map::new();
    let mut todo = vec![(ROOT, String::new())];
    while let Some((id, path)) = todo.pop() {
        for (name, child) in store.names(id).unwrap().0 {
            let path = format!("{path}/{name}");
            match store.status(*child).unwrap().kind {
                Kind::Directory => {
                    todo.push((*child, path.clone()));
                    assert_eq!(store.names(*child).unwrap().1, id);
                    found.insert(path, None);
                }
                _ => drop(found.insert(path, Some(*child))),
            }
        }
    }
    assert_eq!(found.keys().collect::<Vec<_>>(), model.paths.keys().collect::<Vec<_>>());
    for (path, number) in &model.paths {
        assert_eq!(found[path].is_none(), number.is_none());
        if let (Some(id), Some(number)) = (found[path], number) {
            assert_eq!(read(store, id), model.bytes[number]);
            let names = model.paths.values().filter(|other| *other == &Some(*number)).count();
            assert_eq!(store.status(id).unwrap().links as usize, names);
        }
    }
}

#[test]
fn follows_a_map_of_paths() {
    let mut store = Store::new(10_000);
    let mut model = Model::default();
    let mut seed = 0x9e37_79b9u64;
    let mut random = move |limit: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % limit
    };
    for step in 0..6000u32 {
        let mut path = || (0..1 + random(3)).map(|_| ["/a", "/b", "/c"][random(3)]).collect::<String>();
        let (one, two) = (path(), path());
        let context = format!("step {step}: {one} {two}");
        let placed = named(&store, &one);
        match random(5) {
            0 | 1 => {
                let fits = model.is_directory(Model::above(&one)) && !model.paths.contains_key(&one);
                let file = random(2) == 0;
                let content = if file { Content::File(Data::default()) } else { Content::empty_directory(ROOT) };
                let made = placed
                    .ok_or(Error::NotFound)
                    .and_then(|(directory, name)| store.create(directory, &name, content, 0o644, 0));
                assert_eq!(made.is_ok(), fits, "{context}");
                if let Ok(id) = made {
                    model.paths.insert(one, file.then_some(step));
                    if file {
                        let bytes = step.to_le_bytes().repeat(random(3000));
                        store.write(id, 0, &bytes, 0).unwrap();
                        model.bytes.insert(step, bytes);
                    }
                }
            }
            2 => {
                let directory = random(2) == 0;
                let done = placed.is_some_and(|(at, name)| store.remove(at, &name, directory, 0).is_ok());
                assert_eq!(done, model.remove(&one, directory), "{context}");
            }
            3 => {
                let target = named(&store, &two);
                let done = placed
                    .zip(target)
                    .map(|(from, to)| store.rename((from.0, &from.1), (to.0, &to.1), Renaming::Replace, 0))
                    .is_some_and(|renamed| renamed.is_ok());
                assert_eq!(done, model.rename(&one, &two), "{context}");
            }
            _ => {
                let linked = inode_at(&store, &one)
                    .zip(named(&store, &two))
                    .is_some_and(|(id, (at, name))| store.link(id, at, &name, 0).is_ok());
                let source = model.paths.get(&one).copied().flatten();
                let fits =
                    source.is_some() && model.is_directory(Model::above(&two)) && !model.paths.contains_key(&two);
                assert_eq!(linked, fits, "{context}");
                if fits {
                    model.paths.insert(two, source);
                }
            }
        }
        compare(&store, &model);
    }
    let written: u64 = store
        .inodes
        .values()
        .map(|inode| if let Content::File(data) = &inode.content { data.pages() } else { 0 })
        .sum();
    assert_eq!(store.budget.used, written);
}

#[test]
fn an_open_file_outlives_its_name() {
    let mut store = Store::new(10);
    let id = store.create(ROOT, "x", Content::File(Data::default()), 0o600, 0).unwrap();
    store.open(id).unwrap();
    store.write(id, 0, b"hello", 0).unwrap();
    store.remove(ROOT, "x", false, 0).unwrap();
    assert_eq!((read(&store, id), store.status(id).unwrap().links), (b"hello".to_vec(), 0));
    assert_eq!(store.link(id, ROOT, "y", 0), Err(Error::NotFound));
    store.close(id);
    assert_eq!(store.data(id).err(), Some(Error::BadId));
    assert_eq!(store.budget.used, 0);
}

#[test]
fn directory_listings_are_complete_while_entries_come_and_go() {
    let mut store = Store::new(10);
    for number in 0..100 {
        store.create(ROOT, &format!("{:0>200}", number), Content::File(Data::default()), 0o600, 0).unwrap();
    }
    let (mut from, mut seen) = (0, Vec::new());
    loop {
        let (entries, next) = store.entries(ROOT, from, 8).unwrap();
        if entries.is_empty() {
            break;
        }
        assert!(entries.iter().map(|entry| entry.name.len() + 14).sum::<usize>() <= 888 && entries.len() <= 8);
        seen.extend(entries.into_iter().map(|entry| entry.name));
        from = next;
        // What goes or comes behind the reader moves nothing ahead of it.
        let _ = store.remove(ROOT, seen.last().unwrap(), false, 0);
        store.create(ROOT, &format!("new{from}"), Content::Link("/".into()), 0, 0).unwrap();
        if seen.len() > 400 {
            break;
        }
    }
    assert!((0..100).all(|number| seen.contains(&format!("{number:0>200}"))));
}

/// Each part begins where the one before ended, by its key: parts that looked at all names would
/// list them again, as nothing else leaves out what was listed.
#[test]
fn a_large_directory_is_listed_in_linear_time() {
    const FILES: usize = 60_000;
    let mut store = Store::new(10);
    for number in 0..FILES {
        store.create(ROOT, &format!("{number}"), Content::Link("/".into()), 0, 0).unwrap();
    }
    let (mut from, mut seen) = (0, 0);
    loop {
        let (entries, next) = store.entries(ROOT, from, 8).unwrap();
        if entries.is_empty() {
            break;
        }
        seen += entries.len();
        assert!(seen <= FILES + 2 && next > from, "{seen} entries, at {next} after {from}");
        from = next;
    }
    assert_eq!(seen, FILES + 2);
}

#[test]
fn the_archive_becomes_the_root() {
    let mut archive = Vec::new();
    member(&mut archive, "sbin/fs", 0o100755, b"not ours");
    member(&mut archive, "root/bin/busybox", 0o100755, &[7; 5000]);
    member(&mut archive, "root/bin", 0o40700, b"");
    member(&mut archive, "root/bin/sh", 0o120777, b"busybox");
    member(&mut archive, "root/proc", 0o40755, b"");
    member(&mut archive, "TRAILER!!!", 0, b"");
    let mut store = Store::new(10);
    assert_eq!(store.fill(Vec::leak(archive), "root"), Ok(4));
    let log = store.add_missing_directories().unwrap();
    assert_eq!((log, store.status(log.unwrap()).unwrap().kind), (inode_at(&store, "/dev/log"), Kind::Socket));
    let mut archive = Vec::new();
    member(&mut archive, "root/dev/log", 0o120777, b"/run/other");
    let mut other = Store::new(10);
    assert_eq!(other.fill(Vec::leak(archive), "root"), Ok(1));
    assert_eq!(other.add_missing_directories(), Ok(None), "the archive's own stays");
    let busybox = inode_at(&store, "/bin/busybox").unwrap();
    assert_eq!(walk(&store, "/bin/sh", true).unwrap().place, Located::Inode(busybox));
    assert_eq!((read(&store, busybox), store.budget.used), (vec![7; 5000], 0));
    store.write(busybox, 4999, b"xy", 0).unwrap();
    assert_eq!((store.status(busybox).unwrap().size, store.budget.used), (5001, 1));
    assert_eq!(store.status(inode_at(&store, "/dev/null").unwrap()).unwrap().kind, Kind::Device);
    assert_eq!(store.status(inode_at(&store, "/dev/tty").unwrap()).unwrap().kind, Kind::Terminal);
}

#[test]
fn the_archives_links_and_times_are_kept() {
    let mut archive = Vec::new();
    member(&mut archive, "root/a", 0o40755, b"");
    write_linked(&mut archive, "root/a/one", 0o100644, b"shared", (7, 2));
    write_linked(&mut archive, "root/a/other", 0o100644, b"", (7, 2));
    member(&mut archive, "root/a/empty", 0o40700, b"");
    let mut store = Store::new(10);
    assert_eq!(store.fill(Vec::leak(archive), "root"), Ok(4));
    let one = inode_at(&store, "/a/one").unwrap();
    assert_eq!(inode_at(&store, "/a/other").unwrap(), one);
    assert_eq!((store.status(one).unwrap().links, read(&store, one)), (2, b"shared".into()));
    for path in ["/a", "/a/one", "/a/empty"] {
        let status = store.status(inode_at(&store, path).unwrap()).unwrap();
        assert_eq!(status.modified_ns, 1_000_000_000_000, "{path}");
        assert_eq!((status.user, status.group), (5, 60), "{path}");
    }
    assert_eq!(store.status(inode_at(&store, "/a/empty").unwrap()).unwrap().permissions, 0o700);
}

#[test]
fn a_file_without_a_name_may_get_one() {
    let mut store = Store::new(10);
    let open = |store: &mut Store, may_link| store.open_unnamed(0o600, Unnamed::Temporary { may_link }, 1).unwrap();
    let [never, made] = [false, true].map(|may_link| open(&mut store, may_link));
    store.write(made, 0, b"kept", 2).unwrap();
    store.write(never, 0, b"lost", 2).unwrap();
    assert_eq!((store.status(made).unwrap().links, store.budget.used), (0, 2));
    assert_eq!(store.link(never, ROOT, "never", 3), Err(Error::NotFound));
    store.link(made, ROOT, "made", 3).unwrap();
    assert_eq!(
        (store.path_by((ROOT, "made"), made), store.path_by((ROOT, "x"), made)),
        ("/made".into(), "/x (deleted)".into())
    );
    [never, made].into_iter().for_each(|id| store.close(id));
    assert_eq!((store.status(never).err(), store.budget.used), (Some(Error::BadId), 1));
    assert_eq!((inode_at(&store, "/made"), read(&store, made)), (Some(made), b"kept".to_vec()));
    assert_eq!(store.seals(made), Err(Error::Invalid));
    assert_eq!(store.add_seals(made, seal::WRITE), Err(Error::Invalid));
}

#[test]
fn seals_hold() {
    let mut store = Store::new(10);
    let closed = store.open_unnamed(0o600, Unnamed::Memory { may_seal: false }, 1).unwrap();
    assert_eq!((store.seals(closed), store.add_seals(closed, seal::GROW)), (Ok(seal::SEAL), Err(Error::Denied)));
    let id = store.open_unnamed(0o600, Unnamed::Memory { may_seal: true }, 1).unwrap();
    assert_eq!((store.write(id, 0, b"0123456789", 1), store.seals(id)), (Ok(10), Ok(0)));
    assert_eq!(store.add_seals(id, 32), Err(Error::Invalid));
    store.add_seals(id, seal::GROW).unwrap();
    assert_eq!((store.write(id, 8, b"abcd", 1), store.write(id, 10, b"x", 1)), (Ok(2), Err(Error::Denied)));
    assert_eq!((store.resize(id, 11, 1), store.resize(id, 9, 1)), (Err(Error::Denied), Ok(())));
    store.add_seals(id, seal::SHRINK).unwrap();
    assert_eq!((store.resize(id, 8, 1), store.resize(id, 9, 1)), (Err(Error::Denied), Ok(())));
    store.add_seals(id, seal::WRITE | seal::SEAL).unwrap();
    assert_eq!((store.write(id, 0, b"x", 1), store.add_seals(id, 0)), (Err(Error::Denied), Err(Error::Denied)));
    assert_eq!(store.seals(id), Ok(seal::GROW | seal::SHRINK | seal::WRITE | seal::SEAL));
    assert_eq!(read(&store, id), b"01234567a");
}

#[test]
fn names_are_exchanged_whatever_they_name() {
    let mut store = Store::new(64);
    let outer = store.make_directory(ROOT, "outer", 0o755, 0).unwrap();
    let inner = store.make_directory(outer, "inner", 0o755, 0).unwrap();
    let file = store.create(ROOT, "file", Content::File(Data::default()), 0o644, 0).unwrap();
    let mut exchange = |from, to| store.rename(from, to, Renaming::Exchange, 5);
    assert_eq!(exchange((ROOT, "file"), (ROOT, "none")), Err(Error::NotFound));
    assert_eq!(exchange((ROOT, "file"), (outer, "inner")), Ok(()));
    assert_eq!(exchange((ROOT, "inner"), (outer, "inner")), Err(Error::NotFound), "the names stay where they are");
    assert_eq!(exchange((ROOT, "outer"), (outer, "inner")), Err(Error::Invalid), "it would be inside itself");
    assert_eq!(exchange((outer, "inner"), (ROOT, "outer")), Err(Error::Invalid), "so it would this way");
    assert_eq!(store.names(ROOT).unwrap().0.get("file"), Some(&inner));
    assert_eq!(store.names(outer).unwrap().0.get("inner"), Some(&file));
    assert_eq!(store.names(inner).unwrap().1, ROOT, "its parent is another");
    assert_eq!((store.status(outer).unwrap().links, store.status(ROOT).unwrap().links), (2, 4));
    let keep = store.rename((outer, "inner"), (ROOT, "file"), Renaming::Keep, 5);
    assert_eq!(keep, Err(Error::Exists));
    assert_eq!(store.rename((outer, "inner"), (ROOT, "new"), Renaming::Keep, 5), Ok(()));
}

#[test]
fn what_is_made_where_set_group_id_is_has_that_group() {
    let mut store = Store::new(64);
    let shared = store.make_directory(ROOT, "shared", 0o755, 0).unwrap();
    store.change(shared, &Change { group: Some(7), permissions: Some(0o2775), ..Change::default() }).unwrap();
    let file = store.create(shared, "file", Content::File(Data::default()), 0o644, 0).unwrap();
    let below = store.make_directory(shared, "below", 0o755, 0).unwrap();
    store.assign_owner(file, shared, (1, 2));
    store.assign_owner(below, shared, (1, 2));
    let told = |store: &Store, id| {
        let status = store.status(id).unwrap();
        (status.user, status.group, status.permissions)
    };
    assert_eq!((told(&store, file), told(&store, below)), ((1, 7, 0o644), (1, 7, 0o2755)));
    let other = store.make_directory(ROOT, "other", 0o755, 0).unwrap();
    store.assign_owner(other, ROOT, (1, 2));
    assert_eq!(told(&store, other), (1, 2, 0o755));
}

#[test]
fn a_name_is_neither_empty_nor_a_dot_nor_too_long_nor_a_path() {
    let mut store = Store::new(10);
    let mut make = |name: &str| store.create(ROOT, name, Content::Link("x".into()), 0, 0).map(drop);
    let longest = "x".repeat(NAME_BYTES_MAX);
    assert_eq!((make(&longest), make(&format!("{longest}x"))), (Ok(()), Err(Error::NameTooLong)));
    assert_eq!([make(""), make("."), make("..")], [(); 3].map(|()| Err(Error::Exists)));
    assert_eq!([make("a/b"), make("/"), make("a\0")], [(); 3].map(|()| Err(Error::Invalid)));
    assert_eq!(make("..."), Ok(()));
}

#[test]
fn a_file_without_a_name_is_there_until_the_last_has_closed_it() {
    let mut store = Store::new(10);
    let id = store.open_unnamed(0o600, Unnamed::Temporary { may_link: false }, 1).unwrap();
    store.open(id).unwrap();
    store.write(id, 0, b"kept", 2).unwrap();
    store.close(id);
    assert_eq!((read(&store, id), store.budget.used), (b"kept".to_vec(), 1));
    store.close(id);
    assert_eq!((store.data(id).err(), store.budget.used), (Some(Error::BadId), 0));
}

#[test]
fn a_seal_that_is_there_stays_when_it_is_added_again() {
    let mut store = Store::new(10);
    let id = store.open_unnamed(0o600, Unnamed::Memory { may_seal: true }, 1).unwrap();
    for seals in [seal::GROW, seal::GROW | seal::SHRINK] {
        store.add_seals(id, seals).unwrap();
    }
    assert_eq!(store.seals(id), Ok(seal::GROW | seal::SHRINK));
    let other = store.open_unnamed(0o600, Unnamed::Memory { may_seal: true }, 1).unwrap();
    store.add_seals(other, seal::SHRINK).unwrap();
    assert_eq!((store.resize(other, 9, 1), store.resize(other, 8, 1)), (Ok(()), Err(Error::Denied)));
}

#[test]
fn a_directory_tells_when_its_names_changed_and_how_many_it_has() {
    let mut store = Store::new(10);
    let id = store.make_directory(ROOT, "directory", 0o755, 1).unwrap();
    let told = |store: &Store| {
        let status = store.status(id).unwrap();
        (status.size, status.modified_ns)
    };
    assert_eq!(told(&store), (0, 1));
    let file = store.create(id, "file", Content::File(Data::default()), 0o644, 2).unwrap();
    assert_eq!(told(&store), (32, 2));
    store.link(file, id, "other", 3).unwrap();
    assert_eq!(told(&store), (64, 3));
    store.rename((id, "other"), (ROOT, "moved"), Renaming::Replace, 4).unwrap();
    assert_eq!(told(&store), (32, 4));
    store.remove(id, "file", false, 5).unwrap();
    assert_eq!(told(&store), (0, 5));
}

#[test]
fn a_change_sets_permissions_and_not_what_kind_of_file_it_is() {
    let mut store = Store::new(10);
    let id = store.create(ROOT, "file", Content::File(Data::default()), 0o644, 0).unwrap();
    store.change(id, &Change { permissions: Some(0o104_751), ..Change::default() }).unwrap();
    assert_eq!(store.status(id).unwrap().permissions, 0o4751);
}

/// How many names each answer has.
fn answers(store: &Store, limit: usize) -> Vec<usize> {
    let (mut from, mut all) = (0, Vec::new());
    loop {
        let (entries, next) = store.entries(ROOT, from, limit).unwrap();
        if entries.is_empty() {
            return all;
        }
        assert!(next > from, "{next} after {from}");
        all.push(entries.len());
        from = next;
    }
}

#[test]
fn an_answer_lists_as_much_as_its_limits_allow() {
    let mut store = Store::new(10);
    assert_eq!((answers(&store, 1), answers(&store, 8)), (vec![1, 1], vec![2]));
    // With what both dots take, just as much as an answer has.
    let length = (ENTRIES_BYTES_MAX - 3 - 5 * ENTRY_BYTES) / 3;
    assert_eq!(3 + 3 * length + 5 * ENTRY_BYTES, ENTRIES_BYTES_MAX);
    let name = |number: u32, length| format!("{number:0>length$}");
    for number in 0..3 {
        store.create(ROOT, &name(number, length), Content::Link("x".into()), 0, 0).unwrap();
    }
    assert_eq!((answers(&store, 8), answers(&store, 5), answers(&store, 3)), (vec![5], vec![5], vec![3, 2]));
    store.remove(ROOT, &name(0, length), false, 0).unwrap();
    store.create(ROOT, &name(0, length + 1), Content::Link("x".into()), 0, 0).unwrap();
    assert_eq!(answers(&store, 8), [4, 1], "a byte more");
    for number in 0..20 {
        store.create(ROOT, &number.to_string(), Content::Link("x".into()), 0, 0).unwrap();
    }
    assert_eq!(answers(&store, 8), [4, 8, 8, 5]);
}

#[test]
fn files_of_the_archive_are_one_only_if_it_says_so_and_none_has_a_name_twice() {
    let mut archive = Vec::new();
    write_linked(&mut archive, "root/one", 0o100644, b"one", (7, 1));
    write_linked(&mut archive, "root/other", 0o100644, b"other", (7, 1));
    // A directory has links besides its name.
    write_linked(&mut archive, "root/directory", 0o40755, b"", (7, 2));
    let mut store = Store::new(10);
    assert_eq!(store.fill(Vec::leak(archive.clone()), "root"), Ok(3));
    let [one, other] = ["/one", "/other"].map(|path| inode_at(&store, path).unwrap());
    assert_eq!((read(&store, one), read(&store, other)), (b"one".to_vec(), b"other".to_vec()));
    let directory = inode_at(&store, "/directory").unwrap();
    assert_eq!(store.status(directory).unwrap().kind, Kind::Directory);
    member(&mut archive, "root/one", 0o100644, b"again");
    assert_eq!(Store::new(10).fill(Vec::leak(archive), "root"), Err(Error::Exists));
}

#[test]
fn places_of_other_trees_stay_and_have_no_bytes() {
    let mut store = Store::new(10);
    store.add_missing_directories().unwrap();
    let names = |store: &Store| store.names(ROOT).unwrap().0.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&store), ["dev", "proc", "tmp"]);
    store.mount("/srv/disk").unwrap();
    assert_eq!(names(&store), ["dev", "proc", "srv", "tmp"]);
    let srv = inode_at(&store, "/srv").unwrap();
    assert_eq!(store.names(srv).unwrap().0.keys().collect::<Vec<_>>(), ["disk"], "no part of a name is one");
    let [proc, disk] = [(ROOT, "proc"), (srv, "disk")].map(|(at, name)| store.names(at).unwrap().0[name]);
    assert_eq!(store.path_of(proc).as_deref(), Ok("/proc"));
    assert_eq!([true, false].map(|is| store.remove(ROOT, "proc", is, 0)), [Err(Error::Denied), Err(Error::Denied)]);
    let directory = store.make_directory(ROOT, "directory", 0o755, 0).unwrap();
    let onto = store.rename((ROOT, "directory"), (ROOT, "proc"), Renaming::Replace, 0);
    assert_eq!(onto, Err(Error::Denied));
    for id in [proc, disk, directory] {
        assert_eq!(store.data(id).err(), Some(Error::IsDirectory), "{id}");
    }
    assert_eq!(
        (store.resize(directory, 0, 0), store.resize(proc, 0, 0)),
        (Err(Error::IsDirectory), Err(Error::Invalid))
    );
    let null = inode_at(&store, "/dev/null").unwrap();
    assert_eq!((store.data(null).err(), store.resize(null, 0, 0)), (Some(Error::Invalid), Err(Error::Invalid)));
}
