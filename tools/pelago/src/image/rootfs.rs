//! The Linux programs' root directory: the program to run, what it needs, what `-v`, `--with` and
//! `--package` name, and the few files every program expects.
//!
//! A file of the host goes to the path it has there; links on the way to it are links in the guest
//! too. What `-v` brought in counts before what the host has at the same path.

use crate::host::{child, path};
use crate::image::archive::{Archive, HostFile, Owner};
use crate::image::{elf, libraries, package, set_up};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use system::{ROOT_FOLDER, file_name};

/// Where programs of the guest look for others, unless `-e PATH=...` says otherwise.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const SHELL: &str = "/bin/sh";
const BUSYBOX_PATH: &str = "/bin/busybox";
/// What the machine's network is, to programs. This machine answers at 10.0.2.2, through passt and
/// through the emulator's own network alike.
const OF_THE_NETWORK: [(&str, &str); 3] = [
    ("etc/hosts", "127.0.0.1 localhost pelago\n10.0.2.2 host\n"),
    ("etc/hostname", "pelago\n"),
    ("etc/resolv.conf", "nameserver 10.0.2.3\n"),
];
/// A script may name a script as its interpreter, but not for ever (Linux's own limit is 5).
const INTERPRETER_DEPTH_MAX: usize = 4;
/// Links followed on one way, as Linux has it.
const LINKS_MAX: usize = 40;
/// Enough to see what a file is.
const HEAD_BYTES: u64 = 256;

/// Something of the host to copy in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    pub host: PathBuf,
    pub guest: String,
}

impl std::str::FromStr for Volume {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Volume> {
        let (host, guest) = text.split_once(':').context("write HOST:GUEST, for instance site:/www")?;
        if host.is_empty() || !guest.starts_with('/') {
            bail!("`{text}`: HOST must not be empty and GUEST must start with /");
        }
        Ok(Volume { host: host.into(), guest: guest.into() })
    }
}

/// Where a path of the guest is in the archive.
pub fn in_root(path: &str) -> String {
    format!("{ROOT_FOLDER}/{path}")
}

/// A path of the host as the guest's text.
pub fn text(path: &Path) -> String {
    file_name::to_text(path.as_os_str().as_bytes())
}

fn host(path: &str) -> PathBuf {
    OsStr::from_bytes(&file_name::to_bytes(path)).into()
}

fn seconds(data: &Metadata) -> u32 {
    u32::try_from(data.mtime().max(0)).unwrap_or(u32::MAX)
}

/// Adds the folders and files that every program expects.
pub fn add_base(archive: &mut Archive) {
    for folder in ["bin", "dev", "etc", "home", "lib", "proc", "root", "run", "sbin", "usr/bin", "var/log", "var/run"] {
        archive.folder(&in_root(folder), 0o755);
    }
    archive.folder(&in_root("tmp"), 0o1777);
    archive.folder(&in_root("var/tmp"), 0o1777);
    let files = [
        (
            "etc/passwd",
            "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33:www-data:/var/www:/bin/false\nnobody:x:65534:65534:nobody:/:/bin/false\n",
        ),
        ("etc/group", "root:x:0:\nwww-data:x:33:\nnogroup:x:65534:\n"),
        ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
    ];
    for (path, text) in files.into_iter().chain(OF_THE_NETWORK) {
        archive.file(&in_root(path), 0o644, text.into());
    }
}

/// Adds what a root file system lacks though every container is given it.
pub fn add_missing(archive: &mut Archive) {
    for (folder, permissions) in [("dev", 0o755), ("etc", 0o755), ("proc", 0o555), ("run", 0o755), ("tmp", 0o1777)] {
        if !archive.has_folder(&in_root(folder)) {
            archive.folder(&in_root(folder), permissions);
        }
    }
    for (path, text) in OF_THE_NETWORK {
        if !archive.has_file(&in_root(path)) {
            archive.file(&in_root(path), 0o644, text.into());
        }
    }
}

/// Fails unless a program can begin in that folder.
pub fn check_folder(archive: &Archive, folder: &str) -> Result<()> {
    // What the file server makes.
    let is_made = ["/", "/dev", "/proc", "/tmp"].contains(&folder);
    if !folder.starts_with('/') {
        bail!("-w {folder}: write the folder's whole path, for instance /{folder}");
    }
    if !is_made && !archive.has_folder(&in_root(folder)) {
        bail!("-w {folder}: the guest has no such folder; bring one, for instance -v FOLDER:{folder}");
    }
    Ok(())
}

/// Copies a volume in.
pub fn add_volume(archive: &mut Archive, volume: &Volume) -> Result<()> {
    let named = || format!("-v {}", volume.host.display());
    // What the user names may be a link to what is meant; links further down stay links.
    let data = volume.host.metadata().with_context(|| {
        format!("{}: cannot read it; give a file or folder of this machine, which you may read", named())
    })?;
    let mut tree = Tree::new(archive);
    tree.add(&volume.host, &data, &volume.guest).with_context(named)?;
    tree.tell(&named());
    Ok(())
}

/// Copies a whole root file system in: what may not be read there is left out, and told. So are
/// devices and sockets, in silence, as every system has some.
pub fn add_root(archive: &mut Archive, root: &Path, data: &Metadata) -> Result<()> {
    std::fs::read_dir(root).context("cannot read it; give a folder that you may read")?;
    let mut tree = Tree { unreadable: Some(Vec::new()), ..Tree::new(archive) };
    tree.add(root, data, "")?;
    let unreadable = tree.unreadable.unwrap_or_default();
    if let Some(first) = unreadable.first() {
        eprintln!(
            "pelago: --rootfs {}: {} files or folders are left out that you may not read: {first}",
            root.display(),
            unreadable.len()
        );
    }
    Ok(())
}

/// A tree of the host on its way into the archive.
struct Tree<'a> {
    archive: &'a mut Archive,
    /// What is neither file, folder nor link, and the first of those.
    special: usize,
    first: Option<PathBuf>,
    /// The guest's paths of all files.
    files: Vec<String>,
    /// Why something could not be read; without this, that is an error.
    unreadable: Option<Vec<String>>,
}

impl Tree<'_> {
    fn new(archive: &mut Archive) -> Tree<'_> {
        Tree { archive, special: 0, first: None, files: Vec::new(), unreadable: None }
    }

    fn add(&mut self, path: &Path, data: &Metadata, guest: &str) -> Result<()> {
        match (self.add_one(path, data, guest), &mut self.unreadable) {
            (Err(problem), Some(unreadable)) => {
                unreadable.push(format!("{problem:#}"));
                Ok(())
            }
            (result, _) => result,
        }
    }

    fn add_one(&mut self, path: &Path, data: &Metadata, guest: &str) -> Result<()> {
        let problem = || format!("cannot read {}", path.display());
        let mode = data.permissions().mode();
        if data.is_symlink() {
            let target = std::fs::read_link(path).with_context(problem)?;
            self.archive.link_of(&in_root(guest), &text(&target), seconds(data));
        } else if data.is_dir() {
            self.archive.folder_of(&in_root(guest), mode, seconds(data), Owner::default());
            for entry in std::fs::read_dir(path).with_context(problem)? {
                let entry = entry.with_context(problem)?;
                let problem = || format!("cannot read {}", entry.path().display());
                let name = file_name::to_text(entry.file_name().as_bytes());
                self.add(&entry.path(), &entry.metadata().with_context(problem)?, &format!("{guest}/{name}"))?;
            }
        } else if data.is_file() {
            // That it may be read is seen now, not in the middle of the archive.
            File::open(path).with_context(|| format!("{}; make it readable or leave it out", problem()))?;
            self.archive.host_file(&in_root(guest), host_file(path, data));
            self.files.push(guest.to_owned());
        } else {
            self.special += 1;
            self.first.get_or_insert_with(|| path.to_owned());
        }
        Ok(())
    }

    /// Says in one line what was left out.
    fn tell(&self, whose: &str) {
        if let Some(first) = &self.first {
            let (count, first) = (self.special, first.display());
            eprintln!("pelago: {whose}: {count} left out that are neither file, folder nor link, for instance {first}");
        }
    }
}

fn host_file(path: &Path, data: &Metadata) -> HostFile {
    HostFile {
        path: path.to_owned(),
        bytes: data.len(),
        permissions: data.permissions().mode(),
        modified: seconds(data),
        owner: Owner::default(),
        shared: (data.nlink() > 1).then(|| (data.dev(), data.ino())),
    }
}

/// The guest's root directory as it will be: what was brought in, and behind it the host's files,
/// which can be.
pub struct View<'a> {
    archive: &'a mut Archive,
    /// The guest's PATH.
    path: &'a str,
    /// Programs that have all they need.
    complete: BTreeSet<String>,
}

impl<'a> View<'a> {
    /// Looks at an archive; `path` is the guest's PATH.
    pub fn new(archive: &'a mut Archive, path: &'a str) -> View<'a> {
        View { archive, path, complete: BTreeSet::new() }
    }

    /// True if `path` leads to a file, here or on the host.
    pub fn has_file(&self, path: &str) -> bool {
        self.archive.has_file(&in_root(path)) || host(path).is_file()
    }

    /// The bytes of a file.
    pub fn read(&self, path: &str) -> Result<Vec<u8>> {
        self.archive.read(&in_root(path), u64::MAX).unwrap_or_else(|| crate::host::files::read(&host(path)))
    }

    /// Is what a file begins with as wished?
    pub fn starts_with(&self, path: &str, is_it: impl Fn(&[u8]) -> bool) -> bool {
        let head = self.archive.read(&in_root(path), HEAD_BYTES);
        let head = head.unwrap_or_else(|| crate::host::files::read_start(&host(path), HEAD_BYTES));
        head.is_ok_and(|head| is_it(&head))
    }

    /// Where `path` leads once it was brought.
    pub fn real(&self, path: &str) -> String {
        self.archive.real(&in_root(path)).strip_prefix(ROOT_FOLDER).unwrap_or_default().to_owned()
    }

    /// A file of that name that was brought into a folder or one of its folders.
    pub fn find_below(&self, folder: &str, name: &str) -> Option<String> {
        let path = self.archive.find_below(&in_root(folder), name)?;
        path.strip_prefix(ROOT_FOLDER).map(str::to_owned)
    }

    /// Copies a file of the host in at its path, with the links on the way to it, unless there is
    /// one already.
    pub fn bring(&mut self, path: &str) -> Result<()> {
        if self.archive.has_file(&in_root(path)) {
            return Ok(());
        }
        let real = self.bring_links(&host(path))?;
        let data = real.metadata().with_context(|| format!("cannot read {}", real.display()))?;
        self.archive.host_file(&in_root(&text(&real)), host_file(&real, &data));
        Ok(())
    }

    /// Brings the links on the way to a file of the host, and gives where they lead.
    fn bring_links(&mut self, path: &Path) -> Result<PathBuf> {
        let mut rest: Vec<PathBuf> = parts(path);
        let mut at = PathBuf::from("/");
        let mut links = 0;
        while let Some(part) = rest.pop() {
            if part.as_os_str() == ".." {
                at.pop();
                continue;
            }
            at.push(part);
            let Ok(target) = std::fs::read_link(&at) else { continue };
            links += 1;
            if links > LINKS_MAX {
                bail!("{} is a link in a circle", path.display());
            }
            if !self.archive.has_link(&in_root(&text(&at))) {
                let modified = at.symlink_metadata().map_or(0, |data| seconds(&data));
                self.archive.link_of(&in_root(&text(&at)), &text(&target), modified);
            }
            at.pop();
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            rest.extend(parts(&target));
        }
        Ok(at)
    }

    /// Brings a program or library with all it needs to start: interpreter, libraries. Other files
    /// come as they are.
    pub fn complete(&mut self, path: &str) -> Result<()> {
        self.complete_at(path, INTERPRETER_DEPTH_MAX)
    }

    fn complete_at(&mut self, path: &str, depth: usize) -> Result<()> {
        if self.complete.contains(path) {
            return Ok(());
        }
        self.bring(path)?;
        let data = self.read(path)?;
        if data.starts_with(b"#!") {
            self.bring_interpreter(&data, depth)?;
        } else {
            libraries::bring(self, path, &data)?;
        }
        self.complete.insert(path.to_owned());
        Ok(())
    }

    fn bring_interpreter(&mut self, script: &[u8], depth: usize) -> Result<()> {
        let line = script[2..].split(|&byte| byte == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line).into_owned();
        let mut words = line.split_whitespace();
        let interpreter = words.next().context("its #! line names no interpreter")?;
        if depth == 0 {
            bail!("its interpreters name each other");
        }
        let mut all = vec![interpreter.to_owned()];
        if Path::new(interpreter).file_name() == Some("env".as_ref()) {
            // Options and variables stand before the program that env starts.
            let name = words.find(|word| !word.starts_with('-') && !word.contains('='));
            let name = name.context("its #! line names no program for env")?;
            all.push(self.find(name).with_context(|| {
                format!("its #! line wants `{name}`, which no folder of {} has; install it", self.path)
            })?);
        }
        for program in all {
            if !self.has_file(&program) {
                bail!("its interpreter {program} is missing; install the package that has it");
            }
            self.complete_at(&program, depth - 1).with_context(|| format!("its interpreter is {program}"))?;
        }
        Ok(())
    }

    /// Where the guest will find a program of that name.
    fn find(&self, name: &str) -> Option<String> {
        if name.contains('/') {
            return Some(name.to_owned());
        }
        let paths =
            || self.path.split(':').filter(|folder| folder.starts_with('/')).map(|folder| format!("{folder}/{name}"));
        let brought = paths().find(|path| self.archive.has_file(&in_root(path)));
        brought.or_else(|| paths().find(|path| path::is_program(&host(path))))
    }
}

/// Parts of a path, the last first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let is_part = |part: &Component| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().rev().filter(is_part).map(|part| part.as_os_str().into()).collect()
}

/// Copies the program in with all it needs, and returns its path in the guest. `name` is a path, or
/// a name in the guest's PATH or the host's.
pub fn add_program(archive: &mut Archive, name: &str, path: &str) -> Result<String> {
    if name == "busybox" {
        return add_busybox(archive);
    }
    let mut view = View::new(archive, path);
    let program = if name.contains('/') {
        // A program that -v brought in is run from there.
        if view.archive.has_file(&in_root(name)) {
            name.to_owned()
        } else {
            text(&std::path::absolute(name).with_context(|| format!("cannot find {name}"))?)
        }
    } else {
        let found = view.find(name).or_else(|| path::find(name).map(|path| text(&path)));
        found.with_context(|| format!("there is no program `{name}` in PATH; install it or give its path"))?
    };
    if !view.archive.has_file(&in_root(&program)) {
        let host = host(&program);
        if !host.is_file() {
            bail!("there is no program {}; give the path of one, or a name in PATH", host.display());
        }
        if !path::is_program(&host) {
            bail!("{} is not executable; run: chmod +x {}", host.display(), host.display());
        }
    }
    view.complete(&program).with_context(|| format!("cannot run {program}"))?;
    Ok(program)
}

/// Copies a file or folder of the host in at its path, with what the programs and libraries in it
/// need.
pub fn add_with(archive: &mut Archive, wish: &Path, path: &str) -> Result<()> {
    let named = || format!("--with {}", wish.display());
    let is_name = wish.components().count() == 1 && !wish.exists();
    let found = if is_name { wish.to_str().and_then(path::find) } else { None };
    let host = std::path::absolute(found.as_deref().unwrap_or(wish)).with_context(named)?;
    let data = host.metadata().with_context(|| {
        format!("{}: cannot read it; give a file or folder of this machine, or a name in PATH", named())
    })?;
    let mut view = View::new(archive, path);
    let real = view.bring_links(&host).with_context(named)?;
    let mut tree = Tree::new(view.archive);
    tree.add(&real, &data, &text(&real)).with_context(named)?;
    tree.tell(&named());
    let files = tree.files;
    complete_all(archive, &files, path, &named())
}

/// A path of the host with its parent as it is in the guest; brings the links on the way there.
pub fn parent_in_guest(view: &mut View<'_>, path: &Path) -> Result<String> {
    // A folder on the way may be a link on this machine though a package calls it a folder.
    let parent = path.parent().unwrap_or(Path::new("/"));
    Ok(text(&view.bring_links(parent)?.join(path.file_name().unwrap_or_default())))
}

/// Copies the files of installed Debian packages in, and of those that they depend on, and what
/// their set-up made besides.
pub fn add_packages(archive: &mut Archive, names: &[String], path: &str) -> Result<()> {
    let packages = package::closure(names)?;
    let all = package::files(&packages)?;
    let mut files = Vec::new();
    for file in &all {
        let Ok(data) = file.symlink_metadata() else { continue };
        let mut view = View::new(archive, path);
        let real = parent_in_guest(&mut view, file)?;
        let owner = set_up::owner_of(&data);
        if data.is_dir() {
            archive.folder_of(&in_root(&real), data.permissions().mode(), seconds(&data), owner);
        } else if data.is_symlink() {
            // Alternatives lead on to what some package has.
            view.bring_links(file)?;
        } else if data.is_file() && File::open(file).is_ok() {
            archive.host_file(&in_root(&real), HostFile { owner, ..host_file(file, &data) });
            files.push(real);
        }
    }
    set_up::add(archive, &packages, &all)?;
    // The link is dash's, though no package lists it.
    if !names.is_empty() && host(SHELL).is_file() {
        View::new(archive, path).complete(SHELL)?;
    }
    complete_all(archive, &files, path, &format!("--package {}", names.join(" --package ")))
}

/// Brings what programs and libraries among `files` need. One that cannot be completed is told,
/// once for all.
fn complete_all(archive: &mut Archive, files: &[String], path: &str, whose: &str) -> Result<()> {
    let mut view = View::new(archive, path);
    let mut problems = Vec::new();
    for file in files {
        if view.starts_with(file, elf::is_ours)
            && let Err(problem) = view.complete(file)
        {
            problems.push(format!("{file}: {problem:#}"));
        }
    }
    if let Some(first) = problems.first() {
        eprintln!("pelago: {whose}: {} files lack something and may not run, for instance {first}", problems.len());
    }
    Ok(())
}

/// The static busybox that `./pelago` found or fetched, with a link for each of its applets.
fn add_busybox(archive: &mut Archive) -> Result<String> {
    let host = std::env::var_os("PELAGO_BUSYBOX")
        .map(PathBuf::from)
        .filter(|path| path.is_file())
        .or_else(|| path::find("busybox"));
    let host = host.context("there is no busybox; install one, for instance: apt-get install busybox-static")?;
    let data = crate::host::files::read(&host)?;
    libraries::bring(&mut View::new(archive, PATH), &text(&host), &data)?;
    archive.file(&in_root(BUSYBOX_PATH), 0o755, data);
    let list = child::output(std::process::Command::new(&host).arg("--list"), child::SHORT)?;
    for applet in
        String::from_utf8_lossy(&list.stdout).lines().filter(|applet| *applet != "busybox" && !applet.contains('/'))
    {
        let path = in_root(&format!("bin/{applet}"));
        if !archive.has_file(&path) {
            archive.link(&path, "busybox");
        }
    }
    Ok(BUSYBOX_PATH.into())
}

#[cfg(test)]
#[path = "rootfs_tests.rs"]
mod tests;
