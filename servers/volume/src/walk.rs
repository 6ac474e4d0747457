//! From a path to an inode of the volume: directories, `.` and `..`, symbolic links, and where a
//! path leads out of the volume.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use contracts::descriptions::DescriptionError;
use contracts::files::{Beyond, PathError, Tree};
use ext4::{Blocks, Error, Inode, Kind, NAME_MAX, ROOT, Stop, Volume};
use system::file_name;

/// Symbolic links followed in one walk (Linux: 40).
pub const LINKS_MAX: usize = 40;
/// Longest path a client may name or be told, and longest text a walk may grow to by links.
pub const PATH_BYTES_MAX: usize = 700;
const WALK_BYTES_MAX: usize = 4096;

/// Where a walk ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walked {
    /// What is there.
    pub inode: Option<Inode>,
    /// Directory and name of the last part, unless the path ended in `.` or `..`, or is the root.
    pub name: Option<(u32, String)>,
    /// The path ended in a slash or dot: only a directory will do.
    pub wants_directory: bool,
}

/// Why there is no end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Halt {
    /// A block is missing.
    Need(u64),
    /// The path failed, or leads out.
    Path(PathError),
    /// The volume cannot answer: it is damaged, perhaps.
    Volume(Error),
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Halt {
        match stop {
            Stop::Need(block) => Halt::Need(block),
            Stop::Failed(error) => Halt::Volume(error),
            // Who only looks waits for none.
            Stop::Commit(_) => DescriptionError::Failed.into(),
        }
    }
}

impl From<DescriptionError> for Halt {
    fn from(error: DescriptionError) -> Halt {
        Halt::Path(error.into())
    }
}

/// Walks a path from a directory, or from the volume's root if it is absolute; `mount` is where
/// that root is seen. With `follow`, a symbolic link at the end is followed.
///
/// # Errors
/// `NotFound`, `NotDirectory`, `Loop`, `NameTooLong`, [`PathError::Beyond`].
pub fn walk<B: Blocks>(
    volume: &Volume,
    blocks: &B,
    (start, path): (u32, &str),
    follow: bool,
    mount: &str,
) -> Result<Walked, Halt> {
    if path.is_empty() {
        return Err(DescriptionError::NotFound.into());
    }
    if path.len() > PATH_BYTES_MAX {
        return Err(DescriptionError::NameTooLong.into());
    }
    // Parts still to go, last first; links push theirs on top.
    let mut rest: Vec<String> = parts(path);
    let wants_directory = path.ends_with('/') || path.ends_with("/.") || path.ends_with("/..");
    let mut at = volume.inode(blocks, if path.starts_with('/') { ROOT } else { start })?;
    let mut links = 0;
    let mut name = None;
    while let Some(part) = rest.pop() {
        if at.kind != Kind::Directory {
            return Err(DescriptionError::NotDirectory.into());
        }
        name = None;
        if part == "." {
            continue;
        }
        if part == ".." && at.number == ROOT {
            let above = mount.rsplit_once('/').map_or("", |(above, _)| above);
            return Err(beyond(format!("{above}/"), &rest, wants_directory));
        }
        let next = match look_up(volume, blocks, &at, &part)? {
            Some(next) => next,
            None if rest.iter().any(|part| part != ".") => return Err(DescriptionError::NotFound.into()),
            None => return Ok(Walked { inode: None, name: Some((at.number, part)), wants_directory }),
        };
        if next.kind == Kind::Link && (follow || !rest.is_empty() || wants_directory) {
            links += 1;
            if links > LINKS_MAX {
                return Err(DescriptionError::Loop.into());
            }
            let target = file_name::to_text(&volume.target(blocks, &next)?);
            rest.extend(parts(&target));
            if rest.iter().map(String::len).sum::<usize>() > WALK_BYTES_MAX {
                return Err(DescriptionError::NameTooLong.into());
            }
            if target.starts_with('/') {
                return Err(beyond(String::from("/"), &rest, wants_directory));
            }
            continue;
        }
        name = (part != "..").then_some((at.number, part));
        at = next;
    }
    if wants_directory && at.kind != Kind::Directory {
        return Err(DescriptionError::NotDirectory.into());
    }
    Ok(Walked { inode: Some(at), name, wants_directory })
}

/// What a name in a directory names; `None` if nothing.
pub fn look_up<B: Blocks>(volume: &Volume, blocks: &B, directory: &Inode, name: &str) -> Result<Option<Inode>, Halt> {
    let name = file_name::to_bytes(name);
    if name.len() > NAME_MAX {
        return Err(DescriptionError::NameTooLong.into());
    }
    match volume.lookup(blocks, directory, &name) {
        Ok(number) => Ok(Some(volume.inode(blocks, number)?)),
        Err(Stop::Failed(Error::NotFound)) => Ok(None),
        Err(stop) => Err(stop.into()),
    }
}

/// The path goes on elsewhere: behind `from`, which ends in a slash, with the parts that are left.
fn beyond(mut path: String, rest: &[String], wants_directory: bool) -> Halt {
    for (index, part) in rest.iter().rev().enumerate() {
        if index > 0 {
            path.push('/');
        }
        path.push_str(part);
    }
    if wants_directory && !path.ends_with('/') {
        path.push('/');
    }
    if path.len() > PATH_BYTES_MAX {
        return DescriptionError::NameTooLong.into();
    }
    Halt::Path(PathError::Beyond(Beyond { tree: Tree::Root, path }))
}

fn parts(path: &str) -> Vec<String> {
    path.rsplit('/').filter(|part| !part.is_empty()).map(String::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ext4::{BLOCK_BYTES, Block};
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::process::Command;

    struct Image(Vec<u8>);

    impl Blocks for Image {
        fn block(&self, number: u64) -> Option<&Block> {
            self.0.as_chunks::<BLOCK_BYTES>().0.get(number as usize)
        }
    }

    fn image_of(fill: impl FnOnce(&Path)) -> Option<Image> {
        let mkfs = Path::new("/usr/sbin/mkfs.ext4");
        if !mkfs.exists() {
            eprintln!("skipped: mkfs.ext4 is not installed (Debian: e2fsprogs)");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let (tree, path) = (folder.path().join("tree"), folder.path().join("image"));
        std::fs::create_dir(&tree).unwrap();
        fill(&tree);
        std::fs::File::create(&path).unwrap().set_len(16 << 20).unwrap();
        let made = Command::new(mkfs).args(["-q", "-b4096", "-d"]).args([&tree, &path]).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Some(Image(std::fs::read(path).unwrap()))
    }

    fn image() -> Option<Image> {
        image_of(|tree| {
            std::fs::create_dir_all(tree.join("a/b")).unwrap();
            std::fs::write(tree.join("a/file"), "x").unwrap();
            for (link, target) in [
                ("out", "/etc/x"),
                ("up", "../../y"),
                ("in", "a/b"),
                ("self", "self"),
                ("none", "a/none"),
                ("top", ".."),
            ] {
                symlink(target, tree.join(link)).unwrap();
            }
        })
    }

    /// An absolute path of so many bytes, of names that are short enough.
    fn path(bytes: usize) -> String {
        (0..bytes).map(|at| if at % 200 == 0 { '/' } else { 'x' }).collect()
    }

    #[test]
    fn paths_and_links_may_be_as_long_as_is_said_and_no_longer() {
        let tree = |tree: &Path| {
            // Each link leads to the next one.
            (0..LINKS_MAX + 1).for_each(|at| symlink(format!("{}", at + 1), tree.join(format!("{at}"))).unwrap());
            std::fs::write(tree.join(format!("{}", LINKS_MAX + 1)), "x").unwrap();
            for bytes in [PATH_BYTES_MAX, PATH_BYTES_MAX + 1] {
                symlink(path(bytes), tree.join(format!("out{bytes}"))).unwrap();
            }
            symlink(["x"; 17].map(|name| name.repeat(235)).join("/"), tree.join("long")).unwrap();
        };
        let Some(image) = image_of(tree) else { return };
        let volume = Volume::open(&image, image.0.len() as u64 / BLOCK_BYTES as u64).unwrap();
        let at = |path: &str| walk(&volume, &image, (ROOT, path), true, "/data");
        let failed = |path: &str| match at(path) {
            Err(Halt::Path(PathError::Failed(error))) => error,
            other => panic!("{path}: {other:?}"),
        };
        assert!(at("/1").unwrap().inode.is_some(), "40 links");
        assert_eq!(failed("/0"), DescriptionError::Loop, "41 links");
        assert_eq!(at(&"/.".repeat(PATH_BYTES_MAX / 2)).unwrap().inode.unwrap().number, ROOT);
        assert_eq!(failed(&"/.".repeat(PATH_BYTES_MAX / 2 + 1)), DescriptionError::NameTooLong);
        assert!(at(&format!("/{}", "x".repeat(NAME_MAX))).unwrap().inode.is_none(), "a name that may be");
        assert_eq!(failed(&format!("/{}", "x".repeat(NAME_MAX + 1))), DescriptionError::NameTooLong);
        let beyond = Beyond { tree: Tree::Root, path: path(PATH_BYTES_MAX) };
        assert_eq!(at(&format!("/out{PATH_BYTES_MAX}")), Err(Halt::Path(PathError::Beyond(beyond))));
        assert_eq!(failed(&format!("/out{}", PATH_BYTES_MAX + 1)), DescriptionError::NameTooLong);
        // With what the path has behind the link.
        let left = WALK_BYTES_MAX - 17 * 235;
        assert_eq!(failed(&format!("/long/{}", "x".repeat(left))), DescriptionError::NotFound);
        assert_eq!(failed(&format!("/long/{}", "x".repeat(left + 1))), DescriptionError::NameTooLong);
    }

    #[test]
    fn paths_end_in_the_volume_or_beyond_it() {
        let Some(image) = image() else { return };
        let volume = Volume::open(&image, image.0.len() as u64 / BLOCK_BYTES as u64).unwrap();
        let at = |path: &str, follow, mount| walk(&volume, &image, (ROOT, path), follow, mount);
        let number = |path: &str| at(path, true, "/data").unwrap().inode.unwrap().number;
        let file = number("/a/file");
        for path in ["//a/./file", "/a/b/../file", "/in/../file", "a/file", "/in/../../a/file"] {
            assert_eq!(number(path), file, "{path}");
        }
        assert_eq!((number("/"), number("/a/..")), (ROOT, ROOT));
        let goes = |path: &str, mount| match at(path, true, mount) {
            Err(Halt::Path(PathError::Beyond(Beyond { tree: Tree::Root, path }))) => path,
            other => panic!("{path}: {other:?}"),
        };
        for (path, rest) in [
            ("/out", "/etc/x"),
            ("/out/more/", "/etc/x/more/"),
            ("/..", "/"),
            ("/a/../../etc/z", "/etc/z"),
            ("/up", "/../y"),
            ("/top/data/a", "/data/a"),
        ] {
            assert_eq!(goes(path, "/data"), rest, "{path}");
        }
        assert_eq!(goes("/../x", "/srv/on/disk"), "/srv/on/x");
        let failed = |path: &str| match at(path, true, "/data") {
            Err(Halt::Path(PathError::Failed(error))) => error,
            other => panic!("{path}: {other:?}"),
        };
        assert_eq!(failed("/self"), DescriptionError::Loop);
        assert_eq!(failed("/a/file/"), DescriptionError::NotDirectory);
        assert_eq!(failed("/a/file/x"), DescriptionError::NotDirectory);
        assert_eq!(failed("/a/none/x"), DescriptionError::NotFound);
        assert_eq!(failed(&"/x".repeat(400)), DescriptionError::NameTooLong);
        assert_eq!(failed(&format!("/{}", "x".repeat(300))), DescriptionError::NameTooLong);
        let vacant = at("/none", true, "/data").unwrap();
        assert!(vacant.inode.is_none() && vacant.name.is_some_and(|(_, name)| name == "none"));
        let link = at("/out", false, "/data").unwrap();
        assert!(link.inode.is_some_and(|inode| inode.kind == Kind::Link) && link.name.is_some());
        assert_eq!(at("/a/..", false, "/data").unwrap().name, None);
    }
}
