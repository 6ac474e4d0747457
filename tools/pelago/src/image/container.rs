//! `run --rootfs`: the guest's root directory is a root file system of its own, for instance an
//! unpacked container image.
//!
//! Nothing of this machine is looked for beside it: the program and what it names at its start are
//! in it, or were brought by `-v`, `--with` and `--package`.

use crate::image::archive::Archive;
use crate::image::elf;
use crate::image::rootfs::{self, in_root};
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;

/// Adds a folder's tree as the root directory, and the few files that every container is given.
pub fn add(archive: &mut Archive, root: &Path) -> Result<()> {
    let named = || format!("--rootfs {}", root.display());
    let data =
        root.metadata().with_context(|| format!("{}: cannot read it; give a folder of this machine", named()))?;
    ensure!(data.is_dir(), "{}: it is no folder; unpack it first, for instance: tar -x -C FOLDER", named());
    rootfs::add_root(archive, root, &data).with_context(named)?;
    rootfs::add_missing(archive);
    Ok(())
}

/// Finds the program in the root directory and returns its path there. `path` is the guest's PATH,
/// `folder` the one that it begins in.
pub fn find_program(archive: &Archive, name: &str, path: &str, folder: &str) -> Result<String> {
    let all: Vec<String> = match name.contains('/') {
        true if name.starts_with('/') => vec![name.to_owned()],
        true => vec![format!("{}/{name}", folder.trim_end_matches('/'))],
        false => {
            path.split(':').filter(|entry| entry.starts_with('/')).map(|entry| format!("{entry}/{name}")).collect()
        }
    };
    let program = all.iter().find(|path| archive.is_program(&in_root(path)));
    let Some(program) = program else {
        match all.iter().find(|path| archive.has_file(&in_root(path))) {
            Some(file) => bail!("{file} of the root file system is not executable; run: chmod +x on it"),
            None if name.contains('/') => bail!("the root file system has no program {}; give another path", all[0]),
            None => bail!("the root file system has no program `{name}` in PATH ({path}); give its path there"),
        }
    };
    check_interpreter(archive, program).with_context(|| format!("cannot run {program} of the root file system"))?;
    Ok(program.clone())
}

/// Fails unless what the kernel starts a program by is there too.
fn check_interpreter(archive: &Archive, program: &str) -> Result<()> {
    let data = archive.read(&in_root(program), u64::MAX).context("it is gone")??;
    let interpreter = match data.strip_prefix(b"#!") {
        Some(rest) => {
            let line = rest.split(|&byte| byte == b'\n').next().unwrap_or_default();
            let line = String::from_utf8_lossy(line);
            Some(line.split_whitespace().next().context("its #! line names no interpreter")?.to_owned())
        }
        None => elf::needs(&data)?.interpreter,
    };
    if let Some(interpreter) = interpreter {
        ensure!(
            archive.has_file(&in_root(&interpreter)),
            "its interpreter {interpreter} is missing there; add it to the root file system"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn write(path: &Path, mode: u32, text: &[u8]) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_root_is_the_guests_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        write(&path("usr/bin/tool"), 0o755, b"#!/bin/sh\n");
        write(&path("usr/bin/sh"), 0o755, &std::fs::read("/bin/true").unwrap());
        write(&path("usr/bin/text"), 0o644, b"text");
        write(&path("etc/hosts"), 0o644, b"127.0.0.1 own\n");
        symlink("usr/bin", path("bin")).unwrap();
        let mut archive = Archive::default();
        add(&mut archive, folder.path()).unwrap();
        let read = |path: &str| archive.read(&in_root(path), 99).map(Result::unwrap);
        assert_eq!(read("/etc/hosts").unwrap(), b"127.0.0.1 own\n");
        assert!(read("/etc/resolv.conf").is_some() && read("/etc/passwd").is_none());
        assert!(archive.has_link("root/bin") && archive.has_folder("root/tmp"));
        let told = |name: &str| format!("{:#}", find_program(&archive, name, rootfs::PATH, "/usr").unwrap_err());
        // The loader is this machine's, and so not there.
        assert!(told("/bin/sh").contains("ld-linux"), "{}", told("/bin/sh"));
        assert_eq!(find_program(&archive, "tool", rootfs::PATH, "/").unwrap(), "/usr/bin/tool");
        assert_eq!(find_program(&archive, "bin/tool", "", "/usr").unwrap(), "/usr/bin/tool");
        assert!(told("text").contains("chmod") && told("ls").contains("no program `ls`"));
        assert!(told("./none").contains("/usr/./none"), "{}", told("./none"));
    }

    #[test]
    fn what_is_no_folder_is_refused() {
        let told = |path: &str| format!("{:#}", add(&mut Archive::default(), Path::new(path)).unwrap_err());
        assert!(told("/no/such").contains("--rootfs /no/such") && told("/etc/passwd").contains("unpack it"));
    }
}
