//! The Linux programs' root directory: the program to run, what it needs, what `-v` names, and the
//! few files every program expects.
//!
//! A dynamic program's libraries are found as ldd would (ld.so(8)): its own run path,
//! LD_LIBRARY_PATH, the folders of /etc/ld.so.conf.d, the defaults. Each file goes to the path it
//! has on the host.

use crate::archive::Archive;
use crate::elf;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use system::ROOT_FOLDER;

const DEFAULT_FOLDERS: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];
const BUSYBOX_PATH: &str = "/bin/busybox";
/// A script may name a script as its interpreter, but not for ever (Linux's own limit is 5).
const INTERPRETER_DEPTH_MAX: usize = 4;
/// Folders within folders of `-v`; deeper means a loop of mounts.
const VOLUME_DEPTH_MAX: usize = 64;

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

/// Where a program of that name is in PATH.
pub fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

fn in_root(path: &str) -> String {
    format!("{ROOT_FOLDER}/{path}")
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
        ("etc/hosts", "127.0.0.1 localhost pelago\n"),
        ("etc/hostname", "pelago\n"),
        ("etc/resolv.conf", "nameserver 10.0.2.3\n"),
        ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
    ];
    for (path, text) in files {
        archive.file(&in_root(path), 0o644, text.into());
    }
}

/// Copies a volume in.
pub fn add_volume(archive: &mut Archive, volume: &Volume) -> Result<()> {
    add_tree(archive, &volume.host, &volume.guest, 0).with_context(|| format!("-v {}", volume.host.display()))
}

fn add_tree(archive: &mut Archive, host: &Path, guest: &str, depth: usize) -> Result<()> {
    if depth > VOLUME_DEPTH_MAX {
        bail!("{} lies more than {VOLUME_DEPTH_MAX} folders deep", host.display());
    }
    let problem = || format!("cannot read {}", host.display());
    // What the user names may be a link to what is meant; links further down stay links.
    let data = if depth == 0 { host.metadata() } else { host.symlink_metadata() }.with_context(problem)?;
    let mode = data.permissions().mode();
    if data.is_symlink() {
        archive.link(&in_root(guest), &std::fs::read_link(host).with_context(problem)?.to_string_lossy());
    } else if data.is_dir() {
        archive.folder(&in_root(guest), mode);
        for entry in std::fs::read_dir(host).with_context(problem)? {
            let entry = entry.with_context(problem)?;
            let Ok(name) = entry.file_name().into_string() else {
                bail!("the file name {:?} in {} is not UTF-8", entry.file_name(), host.display());
            };
            add_tree(archive, &entry.path(), &format!("{guest}/{name}"), depth + 1)?;
        }
    } else if data.is_file() {
        archive.file(&in_root(guest), mode, crate::files::read(host)?);
    } else {
        eprintln!("pelago: {} is neither file, folder nor link; left out", host.display());
    }
    Ok(())
}

/// Copies the program in with all it needs, and returns its path in the guest. `name` is a path, or
/// a name in PATH.
pub fn add_program(archive: &mut Archive, name: &str) -> Result<String> {
    if name == "busybox" {
        return add_busybox(archive);
    }
    let host = if name.contains('/') {
        // A program that -v brought in is run from there.
        if archive.has_file(&in_root(name)) && !Path::new(name).is_file() {
            return Ok(name.to_owned());
        }
        std::path::absolute(name).with_context(|| format!("cannot find {name}"))?
    } else {
        in_path(name).with_context(|| format!("there is no program `{name}` in PATH; install it or give its path"))?
    };
    if !host.is_file() {
        bail!("there is no program {}; give the path of one, or a name in PATH", host.display());
    }
    if !is_program(&host) {
        bail!("{} is not executable; run: chmod +x {}", host.display(), host.display());
    }
    add_executable(archive, &host, INTERPRETER_DEPTH_MAX).with_context(|| format!("cannot run {}", host.display()))?;
    Ok(host.to_string_lossy().into_owned())
}

fn add_executable(archive: &mut Archive, host: &Path, depth: usize) -> Result<()> {
    let data = crate::files::read(host)?;
    let mut needed = BTreeSet::new();
    if let Some(line) = data.strip_prefix(b"#!") {
        let line = String::from_utf8_lossy(line.split(|&byte| byte == b'\n').next().unwrap_or_default()).into_owned();
        let interpreter = line.split_whitespace().next().context("its #! line names no interpreter")?;
        if depth == 0 {
            bail!("its interpreters name each other");
        }
        if !archive.has_file(&in_root(interpreter)) {
            add_executable(archive, Path::new(interpreter), depth - 1)
                .with_context(|| format!("its interpreter is {interpreter}"))?;
        }
    } else {
        collect_libraries(&data, host, &mut needed)?;
    }
    archive.file(&in_root(&host.to_string_lossy()), 0o755, data);
    for library in needed {
        archive.file(&in_root(&library.to_string_lossy()), 0o755, crate::files::read(&library)?);
    }
    Ok(())
}

fn collect_libraries(data: &[u8], host: &Path, found: &mut BTreeSet<PathBuf>) -> Result<()> {
    let needs = elf::needs(data)?;
    if let Some(interpreter) = &needs.interpreter {
        if !Path::new(interpreter).is_file() {
            bail!("its dynamic loader {interpreter} is missing; install the package that has it");
        }
        found.insert(interpreter.into());
    }
    let origin = host.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
    let own: Vec<_> =
        needs.folders.iter().map(|folder| folder.replace("$ORIGIN", &origin).replace("${ORIGIN}", &origin)).collect();
    for name in &needs.libraries {
        let path = find_library(name, &own).with_context(|| {
            format!("its shared library {name} is missing; install the package that has it or set LD_LIBRARY_PATH")
        })?;
        if found.insert(path.clone()) {
            collect_libraries(&crate::files::read(&path)?, &path, found)
                .with_context(|| format!("library {}", path.display()))?;
        }
    }
    Ok(())
}

fn find_library(name: &str, own: &[String]) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let environment = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let configured = configured_folders();
    let folders = own
        .iter()
        .map(String::as_str)
        .chain(environment.split(':'))
        .chain(configured.iter().map(String::as_str))
        .chain(DEFAULT_FOLDERS);
    folders.filter(|folder| !folder.is_empty()).map(|folder| Path::new(folder).join(name)).find(|path| path.is_file())
}

fn configured_folders() -> Vec<String> {
    let Ok(files) = std::fs::read_dir("/etc/ld.so.conf.d") else { return Vec::new() };
    let mut paths: Vec<_> = files.flatten().map(|file| file.path()).collect();
    paths.sort();
    let texts = paths.iter().filter_map(|path| std::fs::read_to_string(path).ok());
    texts
        .flat_map(|text| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>())
        .filter(|line| line.starts_with('/'))
        .collect()
}

/// The static busybox that `./pelago` found or fetched, with a link for each of its applets.
fn add_busybox(archive: &mut Archive) -> Result<String> {
    let host = std::env::var_os("PELAGO_BUSYBOX")
        .map(PathBuf::from)
        .filter(|path| path.is_file())
        .or_else(|| in_path("busybox"));
    let host = host.context("there is no busybox; install one, for instance: apt-get install busybox-static")?;
    let data = crate::files::read(&host)?;
    let mut libraries = BTreeSet::new();
    collect_libraries(&data, &host, &mut libraries)?;
    for library in libraries {
        archive.file(&in_root(&library.to_string_lossy()), 0o755, crate::files::read(&library)?);
    }
    archive.file(&in_root(BUSYBOX_PATH), 0o755, data);
    let list = std::process::Command::new(&host)
        .arg("--list")
        .output()
        .with_context(|| format!("cannot run {}", host.display()))?;
    for applet in
        String::from_utf8_lossy(&list.stdout).lines().filter(|applet| *applet != "busybox" && !applet.contains('/'))
    {
        archive.link(&in_root(&format!("bin/{applet}")), "busybox");
    }
    Ok(BUSYBOX_PATH.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_brings_its_libraries() {
        let mut archive = Archive::default();
        let path = add_program(&mut archive, std::env::current_exe().unwrap().to_str().unwrap()).unwrap();
        assert!(archive.has_file(&in_root(&path)));
        assert!(archive.has_file("root/lib64/ld-linux-x86-64.so.2"));
        assert!(archive.has_file("root/lib/x86_64-linux-gnu/libc.so.6"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let mut archive = Archive::default();
        let message = |name: &str, archive: &mut Archive| format!("{:#}", add_program(archive, name).unwrap_err());
        assert!(message("no-such-program-here", &mut archive).contains("in PATH"));
        assert!(message("/no/such/program", &mut archive).contains("/no/such/program"));
        assert!(message("/etc/passwd", &mut archive).contains("chmod"));
        assert_eq!(find_library("libnosuch.so.9", &[]), None);
    }

    #[test]
    fn a_volume_is_copied_with_its_links() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        std::fs::write(folder.path().join("sub/page"), "hello").unwrap();
        std::os::unix::fs::symlink("sub/page", folder.path().join("link")).unwrap();
        let text = format!("{}:/www", folder.path().display());
        let mut archive = Archive::default();
        add_volume(&mut archive, &text.parse().unwrap()).unwrap();
        assert!(archive.has_file("root/www/sub/page") && archive.has_file("root/www/link"));
        assert!("site:www".parse::<Volume>().is_err() && ":/www".parse::<Volume>().is_err());
    }
}
