//! From a path to an inode: directories, `.` and `..`, symbolic links.

use alloc::string::String;
use alloc::vec::Vec;

use contracts::descriptions::DescriptionError as Error;

use crate::store::{Content, InodeId, ROOT, Store};

/// Symbolic links followed in one walk (Linux: 40).
pub const LINKS_MAX: usize = 40;
/// Longest path a client may name, and longest text a walk may grow to by links.
pub const PATH_BYTES_MAX: usize = 700;
const WALK_BYTES_MAX: usize = 4096;

/// Where a walk ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Located {
    /// An inode.
    Inode(InodeId),
    /// Nothing there, but the directory is: a name that could be made.
    Vacant {
        /// Where it would be made.
        directory: InodeId,
        /// What it would be called.
        name: String,
    },
    /// Inside /proc: the rest of the path, clean, without leading slash.
    Processes(String),
    /// In the volume on the disk: the rest of the path, absolute there.
    Beyond(String),
}

/// A place together with the name it was reached by, for operations on names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walked {
    /// Where.
    pub place: Located,
    /// Directory and name of the last part, unless the path ended in `/`, `.`, `..` or is the root.
    pub name: Option<(InodeId, String)>,
    /// The path ended in a slash or dot: only a directory will do.
    pub wants_directory: bool,
}

/// Walks an absolute path. With `follow`, a symbolic link at the end is followed. `NotFound`,
/// `NotDirectory`, `Loop`, `NameTooLong`, `Invalid` if not absolute.
pub fn walk(store: &Store, path: &str, follow: bool) -> Result<Walked, Error> {
    if !path.starts_with('/') {
        return Err(Error::Invalid);
    }
    walk_from(store, &Located::Inode(ROOT), path, follow)
}

/// Walks a path that starts at a directory unless it is absolute.
pub fn walk_from(store: &Store, start: &Located, path: &str, follow: bool) -> Result<Walked, Error> {
    let mut walk = Walk::begin(store, start, path, follow)?;
    while !is_volume(store, walk.at)
        && let Some(part) = walk.rest.pop()
    {
        if let Some(place) = walk.step(part)? {
            return Ok(Walked { place, name: walk.name, wants_directory: walk.wants_directory });
        }
    }
    walk.end()
}

/// A walk under way.
struct Walk<'a> {
    store: &'a Store,
    follow: bool,
    wants_directory: bool,
    /// Parts still to go, last first; links push theirs on top.
    rest: Vec<String>,
    /// Where it is,
    at: InodeId,
    /// and where below /proc, while it is there.
    inside: Vec<String>,
    /// Links followed.
    links: usize,
    /// Directory and name of the last part, if it was a name.
    name: Option<(InodeId, String)>,
}

impl<'a> Walk<'a> {
    fn begin(store: &'a Store, start: &Located, path: &str, follow: bool) -> Result<Walk<'a>, Error> {
        if path.is_empty() {
            return Err(Error::NotFound);
        }
        if path.len() > PATH_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        let wants_directory = path.ends_with('/') || path.ends_with("/.") || path.ends_with("/..");
        let (mut at, mut inside) = (ROOT, Vec::new());
        match start {
            _ if path.starts_with('/') => {}
            Located::Inode(inode) => at = *inode,
            Located::Processes(start) => {
                at = store.names(ROOT)?.0.get("proc").copied().ok_or(Error::NotFound)?;
                inside = start.split('/').filter(|part| !part.is_empty()).map(String::from).collect();
            }
            Located::Vacant { .. } | Located::Beyond(_) => return Err(Error::NotFound),
        }
        Ok(Walk { store, follow, wants_directory, rest: parts(path), at, inside, links: 0, name: None })
    }

    /// Goes a part further; gives the place where nothing is if the walk ends there.
    fn step(&mut self, part: String) -> Result<Option<Located>, Error> {
        let store = self.store;
        self.name = None;
        // A removed directory's parent may be gone, too.
        if matches!(store.get(self.at).map_err(|_| Error::NotFound)?.content, Content::Processes) {
            self.step_in_processes(part);
            return Ok(None);
        }
        let (names, parent) = store.names(self.at)?;
        match part.as_str() {
            "." => return Ok(None),
            ".." => {
                self.at = parent;
                return Ok(None);
            }
            _ => {}
        }
        let Some(&next) = names.get(&part) else {
            if self.rest.iter().any(|part| part != ".") {
                return Err(Error::NotFound);
            }
            self.name = Some((self.at, part.clone()));
            return Ok(Some(Located::Vacant { directory: self.at, name: part }));
        };
        if let Content::Link(target) = &store.get(next)?.content
            && (self.follow || !self.rest.is_empty() || self.wants_directory)
        {
            self.follow_link(target)?;
            return Ok(None);
        }
        self.name = Some((self.at, part));
        self.at = next;
        Ok(None)
    }

    fn step_in_processes(&mut self, part: String) {
        match part.as_str() {
            "." => {}
            ".." => {
                if self.inside.pop().is_none() {
                    self.at = ROOT;
                }
            }
            _ => self.inside.push(part),
        }
    }

    fn follow_link(&mut self, target: &str) -> Result<(), Error> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Error::Loop);
        }
        self.rest.extend(parts(target));
        if self.rest.iter().map(String::len).sum::<usize>() > WALK_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        if target.starts_with('/') {
            self.at = ROOT;
        }
        Ok(())
    }

    /// No part is left, or the volume goes on with the rest.
    fn end(self) -> Result<Walked, Error> {
        let Walk { store, wants_directory, rest, at, inside, name, .. } = self;
        if is_volume(store, at) {
            let name = name.filter(|_| rest.is_empty());
            let mut path: String = rest.iter().rev().flat_map(|part| ["/", part]).collect();
            if path.is_empty() || wants_directory {
                path.push('/');
            }
            if path.len() > PATH_BYTES_MAX {
                return Err(Error::NameTooLong);
            }
            return Ok(Walked { place: Located::Beyond(path), name, wants_directory });
        }
        if matches!(store.get(at)?.content, Content::Processes) {
            return Ok(Walked { place: Located::Processes(inside.join("/")), name, wants_directory });
        }
        if wants_directory {
            store.names(at)?;
        }
        Ok(Walked { place: Located::Inode(at), name, wants_directory })
    }
}

fn is_volume(store: &Store, at: InodeId) -> bool {
    store.get(at).is_ok_and(|inode| matches!(inode.content, Content::Volume))
}

fn parts(path: &str) -> Vec<String> {
    path.rsplit('/').filter(|part| !part.is_empty()).map(String::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Data;
    use contracts::files::Renaming;

    fn store() -> Store {
        let mut store = Store::new(100);
        let home = store.make_directory(ROOT, "srv", 0o755, 0).unwrap();
        store.create(home, "file", Content::File(Data::default()), 0o644, 0).unwrap();
        for (name, target) in
            [("up", "../srv"), ("root", "/"), ("self", "self"), ("file-link", "file"), ("nowhere", "/srv/none")]
        {
            store.create(home, name, Content::Link(target.into()), 0o777, 0).unwrap();
        }
        store.add_missing_directories().unwrap();
        store
    }

    fn at(store: &Store, path: &str) -> Result<Located, Error> {
        walk(store, path, true).map(|walked| walked.place)
    }

    #[test]
    fn walks_links_dots_and_slashes() {
        let store = store();
        let file = at(&store, "/srv/file").unwrap();
        for path in ["//srv/./file", "/srv/up/up/file", "/srv/root/srv/file", "/../srv/../srv/file", "/srv/file-link"] {
            assert_eq!(at(&store, path), Ok(file.clone()), "{path}");
        }
        assert_eq!(at(&store, "/"), Ok(Located::Inode(ROOT)));
        assert_eq!(at(&store, "/srv/self"), Err(Error::Loop));
        assert_eq!(at(&store, "/srv/file/"), Err(Error::NotDirectory));
        assert_eq!(at(&store, "/srv/file/x"), Err(Error::NotDirectory));
        assert_eq!(at(&store, "/srv/none/x"), Err(Error::NotFound));
        assert_eq!(at(&store, "srv"), Err(Error::Invalid));
        assert!(matches!(at(&store, "/srv/nowhere"), Ok(Located::Vacant { name, .. }) if name == "none"));
        assert!(matches!(at(&store, "/srv/new/"), Ok(Located::Vacant { .. })));
        assert_ne!(walk(&store, "/srv/file-link", false).unwrap().place, file);
        assert_eq!(walk(&store, "/srv/..", true).unwrap().name, None);
    }

    #[test]
    fn proc_is_elsewhere() {
        let store = store();
        assert_eq!(at(&store, "/proc"), Ok(Located::Processes("".into())));
        assert_eq!(at(&store, "/srv/../proc/1/./x/../stat"), Ok(Located::Processes("1/stat".into())));
        assert_eq!(at(&store, "/proc/../srv/file"), at(&store, "/srv/file"));
        assert_eq!(at(&store, "/proc/1/../../srv"), at(&store, "/srv"));
    }

    #[test]
    fn the_volume_is_beyond() {
        let mut store = store();
        store.mount("/srv/on/disk").unwrap();
        let beyond = |path: &str| Ok(Located::Beyond(path.into()));
        store.create(ROOT, "in", Content::Link("srv/on/disk/a/b".into()), 0o777, 0).unwrap();
        for (path, rest) in [
            ("/srv/on/disk", "/"),
            ("/srv/on/disk/", "/"),
            ("/srv/on/disk/x", "/x"),
            ("/srv/up/on/./disk//x/../y/.", "/x/../y/./"),
            ("/srv/on/disk/..", "/../"),
            ("/in", "/a/b"),
            ("/in/c/", "/a/b/c/"),
        ] {
            assert_eq!(at(&store, path), beyond(rest), "{path}");
        }
        assert!(matches!(walk(&store, "/in", false).unwrap().place, Located::Inode(_)));
        assert!(walk(&store, "/srv/on/disk", false).unwrap().name.is_some_and(|(_, name)| name == "disk"));
        assert_eq!(walk(&store, "/srv/on/disk/x", false).unwrap().name, None);
        // Nothing takes it from its place.
        let (on, _) = walk(&store, "/srv/on/disk", true).unwrap().name.unwrap();
        assert_eq!(store.rename((on, "disk"), (ROOT, "x"), Renaming::Replace, 0), Err(Error::Busy));
        assert_eq!(store.rename((ROOT, "srv"), (ROOT, "x"), Renaming::Replace, 0), Err(Error::Busy));
        store.make_directory(ROOT, "y", 0o755, 0).unwrap();
        assert_eq!(store.rename((ROOT, "y"), (on, "disk"), Renaming::Replace, 0), Err(Error::Busy));
        assert_eq!(store.remove(on, "disk", true, 0), Err(Error::Busy));
        assert_eq!(store.remove(on, "disk", false, 0), Err(Error::IsDirectory));
        let mut other = Store::new(10);
        assert_eq!(other.mount("/"), Err(Error::Exists));
        other.create(ROOT, "f", Content::File(Data::default()), 0o644, 0).unwrap();
        assert_eq!(other.mount("/f/x"), Err(Error::NotDirectory));
        assert_eq!(other.mount("/f"), Err(Error::NotDirectory));
    }

    #[test]
    fn relative_paths_start_at_a_directory() {
        let mut store = store();
        let home = at(&store, "/srv").unwrap();
        let from = |store: &Store, start: &Located, path| walk_from(store, start, path, true).map(|found| found.place);
        assert_eq!(from(&store, &home, "file"), at(&store, "/srv/file"));
        assert_eq!(from(&store, &home, "../srv/./file"), at(&store, "/srv/file"));
        assert_eq!(from(&store, &home, "/srv"), Ok(home.clone()));
        assert_eq!(from(&store, &home, ""), Err(Error::NotFound));
        assert_eq!(from(&store, &home, "file/x"), Err(Error::NotDirectory));
        let inside = Located::Processes("7".into());
        assert_eq!(from(&store, &inside, "stat"), Ok(Located::Processes("7/stat".into())));
        assert_eq!(from(&store, &inside, ".."), Ok(Located::Processes("".into())));
        assert_eq!(from(&store, &inside, "../../srv/file"), at(&store, "/srv/file"));
        // A directory that was moved is still where it starts.
        store.rename((ROOT, "srv"), (ROOT, "moved"), Renaming::Replace, 0).unwrap();
        assert_eq!(from(&store, &home, "file"), at(&store, "/moved/file"));
        let Located::Inode(home) = home else { panic!() };
        assert_eq!(store.path_of(home).as_deref(), Ok("/moved"));
    }

    #[test]
    fn a_path_is_as_long_as_it_may_be_and_not_longer() {
        let mut store = store();
        store.mount("/data").unwrap();
        // In this tree, and where it goes on in the volume.
        let path = |length: usize| format!("/srv/{}file", "/".repeat(length - 9));
        assert_eq!(at(&store, &path(PATH_BYTES_MAX)), at(&store, "/srv/file"));
        assert_eq!(at(&store, &path(PATH_BYTES_MAX + 1)), Err(Error::NameTooLong));
        for (length, is_fine) in [(PATH_BYTES_MAX, true), (PATH_BYTES_MAX + 1, false)] {
            let rest = format!("/{}", "x".repeat(length - 1));
            let link = store.create(ROOT, "in", Content::Link(format!("/data{rest}")), 0o777, 0);
            let expected = if is_fine { Ok(Located::Beyond(rest)) } else { Err(Error::NameTooLong) };
            assert_eq!((at(&store, "/in"), link.is_ok()), (expected, true), "{length}");
            store.remove(ROOT, "in", false, 0).unwrap();
        }
    }

    #[test]
    fn links_are_followed_as_often_and_as_far_as_they_may_be() {
        let mut store = store();
        let mut link = |name: &str, target: String| store.create(ROOT, name, Content::Link(target), 0o777, 0).unwrap();
        link("0", "srv/file".into());
        for number in 1..=LINKS_MAX {
            link(&number.to_string(), (number - 1).to_string());
        }
        // Parts that are still to go: these, without their slashes.
        let parts = |length: usize| format!("none/{}", "x".repeat(length - 4));
        link("long", parts(WALK_BYTES_MAX));
        link("longer", parts(WALK_BYTES_MAX + 1));
        let last = LINKS_MAX - 1;
        assert_eq!(at(&store, &format!("/{last}")), at(&store, "/srv/file"));
        assert_eq!(at(&store, &format!("/{LINKS_MAX}")), Err(Error::Loop));
        assert_eq!((at(&store, "/long"), at(&store, "/longer")), (Err(Error::NotFound), Err(Error::NameTooLong)));
    }
}
