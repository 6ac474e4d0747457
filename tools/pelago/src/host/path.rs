//! Programs of this machine.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Folders of programs that root uses.
const OF_ROOT: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Where a program of that name is in PATH.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_program(file))
}

/// As [`find`], and where programs are that only root has in PATH.
pub fn find_of_root(name: &str) -> Option<PathBuf> {
    let more = || OF_ROOT.iter().map(|folder| Path::new(folder).join(name)).find(|file| is_program(file));
    find(name).or_else(more)
}

/// A file that may be executed.
pub fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}
