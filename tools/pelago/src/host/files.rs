//! Files, with errors that name the path.

use anyhow::{Context, Result, anyhow};
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::NamedTempFile;

/// Reads a whole file.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Reads what a file begins with, at most `limit` bytes.
pub fn read_start(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let problem = || format!("cannot read {}", path.display());
    let mut start = Vec::new();
    File::open(path).with_context(problem)?.take(limit).read_to_end(&mut start).with_context(problem)?;
    Ok(start)
}

/// Writes a whole file and its missing folders; a reader sees the old or the new content, never
/// half of it.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    write_by(path, |out| Ok(out.write_all(bytes)?))
}

/// As [`write`], piece by piece.
pub fn write_by(path: &Path, fill: impl FnOnce(&mut BufWriter<NamedTempFile>) -> Result<()>) -> Result<()> {
    let write = || -> Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let mut out = BufWriter::new(NamedTempFile::new_in(folder)?);
        fill(&mut out)?;
        let file = out.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        // Temporary files are private; outputs are for all who may enter the folder.
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|error| {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        let full = matches!(kind, Some(StorageFull | QuotaExceeded | FileTooLarge));
        let remedy = if full { "; free some space on that disk or choose another" } else { "" };
        anyhow!("cannot write {}: {error:#}{remedy}", path.display())
    })
}
