//! Files, with errors that name the path.

use anyhow::{Context, Result, anyhow};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Reads a whole file.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Writes a whole file and its missing folders; a reader sees the old or the new content, never
/// half of it.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        std::io::Write::write_all(&mut file, bytes)?;
        // Temporary files are private; outputs are for whoever may enter the folder.
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|error| {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let full = matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge);
        let remedy = if full { "; free some space on that disk or choose another" } else { "" };
        anyhow!("cannot write {}: {error}{remedy}", path.display())
    })
}
