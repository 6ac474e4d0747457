//! What `--disk` says, and whether it can be done, found out before anything is booted: a file of
//! this machine that is to be a disk of the guest, and where its files are to be there.
//!
//! Every error names the option and what to do. Nothing is written but a new file, and no file is
//! given out that somebody else uses.

mod content;
mod encrypted;
mod format;
mod key;
mod lock;

pub use content::Content;
pub use key::KeySource;

use crate::host::size::parse_size;
use anyhow::{Context, Result, anyhow, bail, ensure};
use encrypted::Opened;
use luks::{Handover, Strength};
use nix::fcntl::Flock;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use zeroize::Zeroizing;

/// Least size of a disk: smaller ones have no room for a journal, or hardly any beside it.
pub const BYTES_MIN: u64 = 64 << 20;
/// A disk is a whole number of these.
const BLOCK_BYTES: u64 = 4096;
/// Where its files are in the guest, unless said.
const PATH: &str = "/data";
/// The guest has something there that must stay visible.
const TAKEN: [&str; 4] = ["/", "/dev", "/proc", "/sys"];
const FORM: &str = "write FILE[:/PATH][,size=SIZE][,key=FILE][,ro], for instance data.img:/data,size=4G";

/// The option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskOption {
    pub file: PathBuf,
    /// Where its files are in the guest.
    pub path: String,
    /// Of a file that is made, in bytes.
    pub size: Option<u64>,
    /// What encrypts it.
    pub key: Option<KeySource>,
    pub is_read_only: bool,
}

impl FromStr for DiskOption {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<DiskOption> {
        let mut parts = text.split(',');
        let place = parts.next().unwrap_or_default();
        let (file, path) = match place.rsplit_once(':') {
            None => (place, PATH),
            Some((file, path)) => (file, path),
        };
        ensure!(!file.is_empty(), "no FILE; {FORM}");
        let path = checked_path(path)?;
        let mut option = DiskOption { file: file.into(), path, size: None, key: None, is_read_only: false };
        let mut seen = Vec::new();
        for part in parts {
            let (name, value) = part.split_once('=').map_or((part, None), |(name, value)| (name, Some(value)));
            ensure!(!seen.contains(&name), "`{name}` stands there twice; {FORM}");
            seen.push(name);
            match (name, value) {
                ("size", Some(size)) => option.size = Some(checked_size(size)?),
                ("key", Some(key)) if !key.is_empty() => option.key = Some(KeySource::new(key)),
                ("ro", None) => option.is_read_only = true,
                _ => bail!("`{part}` is no option of a disk, and a name cannot have a comma; {FORM}"),
            }
        }
        Ok(option)
    }
}

/// A path of the guest's where a file system may be mounted.
fn checked_path(path: &str) -> Result<String> {
    ensure!(path.starts_with('/'), "`{path}` is no path of the guest: it must start with /; {FORM}");
    let steps: Vec<&str> = path.split('/').filter(|step| !step.is_empty()).collect();
    ensure!(!steps.iter().any(|step| [".", ".."].contains(step)), "`{path}`: write it without . and ..");
    let path = format!("/{}", steps.join("/"));
    let below =
        TAKEN.iter().find(|taken| path == **taken || (**taken != "/" && path.starts_with(&format!("{taken}/"))));
    ensure!(below.is_none(), "`{path}` is the guest's own; choose another place, for instance {PATH}");
    Ok(path)
}

fn checked_size(text: &str) -> Result<u64> {
    let bytes = parse_size(text)?;
    fits(bytes)?;
    Ok(bytes)
}

fn fits(bytes: u64) -> Result<()> {
    let least = BYTES_MIN >> 20;
    ensure!(bytes >= BYTES_MIN, "{bytes} bytes are too little for a disk; the least is {least}M");
    ensure!(
        bytes.is_multiple_of(BLOCK_BYTES),
        "{bytes} bytes are no whole number of 4 KiB; make it one: truncate -s %4096"
    );
    Ok(())
}

/// A disk that can be had.
pub struct Disk {
    option: DiskOption,
    pub content: Content,
    pub bytes: u64,
    /// None: it is still to be made. Until it is dropped nobody else of us has it.
    file: Option<Flock<File>>,
    /// The key of one that is to be encrypted.
    key: Option<Zeroizing<Vec<u8>>>,
    /// One that is encrypted.
    opened: Option<Opened>,
}

impl Disk {
    /// Makes the file if there is none, of zeros that take no room, and formats it if it is empty.
    pub fn made(mut self) -> Result<Disk> {
        let (is_new, option) = (self.file.is_none(), self.option.clone());
        let error = |error: anyhow::Error| option.error(&error);
        let file = match self.file.take() {
            Some(file) => file,
            None => self.make().context("it cannot be made").map_err(error)?,
        };
        let formatted = match (self.content, self.key.take(), &mut self.opened) {
            (Content::Empty, None, _) => {
                self.content = Content::Ext4;
                format::format(&*file, self.bytes, is_new)
            }
            (Content::Empty, Some(key), opened) => {
                self.content = Content::Luks2;
                encrypted::make(&file, self.bytes, &key, Strength::GUEST).map(|made| *opened = Some(made))
            }
            (_, _, Some(opened)) if !self.option.is_read_only => opened.prepare(&file),
            _ => Ok(()),
        };
        formatted.context("it cannot be formatted").map_err(error)?;
        Ok(Disk { file: Some(file), ..self })
    }

    /// What the guest needs of an encrypted one: its volume's key, and where its data is.
    pub fn handover(&self) -> Option<&Handover> {
        self.opened.as_ref().map(|opened| &opened.handover)
    }

    /// What it is, and where its files are in the guest.
    pub fn in_words(&self) -> String {
        let (file, path, mib) = (self.option.file.display(), &self.option.path, self.bytes >> 20);
        let only = if self.option.is_read_only { ", to be read only" } else { "" };
        format!("{file}, {} of {mib} MiB, is {path}{only}", self.content.name())
    }

    fn make(&self) -> Result<Flock<File>> {
        let file = File::options().read(true).write(true).create_new(true).open(&self.option.file)?;
        let file = lock::take(file, self.option.is_read_only)?;
        file.set_len(self.bytes)?;
        Ok(file)
    }
}

/// Without its key.
impl std::fmt::Debug for Disk {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Disk({})", self.in_words())
    }
}

impl DiskOption {
    /// Finds out whether it can be had, and takes it if it is there. Nothing is written.
    pub fn check(&self) -> Result<Disk> {
        self.look().map_err(|error| self.error(&error))
    }

    fn error(&self, error: &anyhow::Error) -> anyhow::Error {
        anyhow!("--disk {}: {error:#}", self.file.display())
    }

    fn look(&self) -> Result<Disk> {
        self.key.iter().try_for_each(KeySource::check)?;
        let data = match self.file.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => return self.to_be_made(),
            data => data.context("it cannot be looked at")?,
        };
        ensure!(!data.is_dir(), "it is a folder; name a file in it");
        ensure!(data.is_file(), "it is no ordinary file; copy what is meant into one");
        let file = File::options().read(true).write(!self.is_read_only).open(&self.file);
        let file = file.map_err(|error| refused(&error, self.is_read_only))?;
        let file = lock::take(file, self.is_read_only)?;
        fits(data.len())?;
        if let Some(size) = self.size.filter(|size| *size != data.len()) {
            bail!("it is there with {} bytes, and size= says {size}; leave size= out", data.len());
        }
        let mut start = Vec::new();
        (&*file).take(content::START_BYTES).read_to_end(&mut start).context("it cannot be read")?;
        let content = content::recognise(&start, data.len())?;
        self.fits_content(content)?;
        let key = self.key.as_ref().map(|key| key.read(&self.file, content == Content::Empty)).transpose()?;
        let (key, opened) = match (content, key) {
            (Content::Luks2, Some(key)) => (None, Some(self.open(&file, data.len(), &key)?)),
            (_, key) => (key, None),
        };
        Ok(Disk { option: self.clone(), content, bytes: data.len(), file: Some(file), key, opened })
    }

    fn open(&self, file: &File, bytes: u64, key: &[u8]) -> Result<Opened> {
        let name = self.key.as_ref().map(KeySource::name).unwrap_or_default();
        encrypted::open(file, bytes, key)?
            .with_context(|| format!("{name} does not open it; give the one that it was made with"))
    }

    fn to_be_made(&self) -> Result<Disk> {
        let bytes = self.size.context("there is no such file; add ,size=4G or another size, and it is made")?;
        self.fits_content(Content::Empty)?;
        let folder = self.file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        ensure!(folder.is_dir(), "there is no folder {}; make it: mkdir -p", folder.display());
        let key = self.key.as_ref().map(|key| key.read(&self.file, true)).transpose()?;
        Ok(Disk { option: self.clone(), content: Content::Empty, bytes, file: None, key, opened: None })
    }

    /// What is on it can be used as it was asked for.
    fn fits_content(&self, content: Content) -> Result<()> {
        match content {
            Content::Empty => {
                ensure!(!self.is_read_only, "there is nothing on it to read; leave ,ro out, and it is formatted");
            }
            Content::Ext4 => ensure!(self.key.is_none(), "it is not encrypted; leave key= out, or name a new file"),
            Content::Luks2 => ensure!(
                self.key.is_some(),
                "it is encrypted (LUKS2); add ,key=FILE with the file of its key, or ,key=- to be asked for a passphrase"
            ),
        }
        Ok(())
    }
}

/// Why a file was not opened.
fn refused(error: &std::io::Error, is_read_only: bool) -> anyhow::Error {
    let is_for_rights = matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem);
    let remedy = match (is_for_rights, is_read_only) {
        (true, false) => "; add ,ro to read it only, or see to it that you may write it",
        (true, true) => "; see to it that you may read it",
        _ => "",
    };
    anyhow!("it cannot be opened ({error}){remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn option(text: &str) -> DiskOption {
        text.parse().unwrap()
    }

    #[test]
    fn it_is_parsed() {
        let all = option("a:b.img:/data//x/,ro,key=k=1,size=64M");
        assert_eq!((all.file, all.path.as_str()), ("a:b.img".into(), "/data/x"));
        assert_eq!((all.size, all.key, all.is_read_only), (Some(64 << 20), Some(KeySource::File("k=1".into())), true));
        let least = option("data.img");
        assert_eq!((least.path.as_str(), least.size, least.key, least.is_read_only), (PATH, None, None, false));
    }

    #[test]
    fn what_cannot_be_meant_is_told() {
        for (text, words) in [
            ("", "no FILE"),
            (":/data", "no FILE"),
            ("a.img:data", "must start with /"),
            ("a.img:/", "the guest's own"),
            ("a.img:/proc/", "the guest's own"),
            ("a.img:/dev/x", "the guest's own"),
            ("a.img:/a/../proc", "without . and .."),
            ("a.img,rw", "`rw` is no option"),
            ("a.img,size", "`size` is no option"),
            ("a.img,ro=1", "`ro=1` is no option"),
            ("a.img,key=", "`key=` is no option"),
            ("a.img,", "`` is no option"),
            ("a.img,ro,ro", "twice"),
            ("a.img,size=1T", "is no size"),
            ("a.img,size=63M", "the least is 64M"),
            ("a.img,size=67108865", "4 KiB"),
        ] {
            let said = text.parse::<DiskOption>().unwrap_err().to_string();
            assert!(said.contains(words), "{text}: {said}");
        }
        assert!("a.img:/devices".parse::<DiskOption>().is_ok());
    }

    struct Files(tempfile::TempDir);

    impl Files {
        fn file(&self, name: &str, bytes: u64, start: &[u8]) -> PathBuf {
            let path = self.0.path().join(name);
            std::fs::write(&path, start).unwrap();
            File::options().write(true).open(&path).unwrap().set_len(bytes).unwrap();
            path
        }

        fn option(&self, rest: &str) -> DiskOption {
            let folder = self.0.path().display().to_string();
            option(&format!("{folder}/{rest}").replace("key=", &format!("key={folder}/")))
        }

        /// Opens `name` in the folder with those options, as if all were possible; content and
        /// size, or what is said.
        fn open(&self, rest: &str) -> Result<(Content, u64), String> {
            let option = self.option(rest);
            match option.look().map_err(|error| option.error(&error)).and_then(Disk::made) {
                Ok(disk) => Ok((disk.content, disk.bytes)),
                Err(error) => Err(format!("{error:#}")),
            }
        }

        fn says(&self, rest: &str, words: &str) {
            let said = self.open(rest).unwrap_err();
            assert!(said.starts_with("--disk ") && said.contains(words), "{rest}: {said}");
        }
    }

    #[test]
    fn a_missing_file_is_made_and_formatted() {
        let files = Files(tempfile::tempdir().unwrap());
        files.says("new.img", "add ,size=4G");
        files.says("none/new.img,size=64M", "mkdir -p");
        files.says("new.img,size=64M,ro", "leave ,ro out");
        files.says("new.img,size=64M,key=none", "the key");
        let checked = files.option("new.img,size=4G").look().unwrap();
        assert_eq!((checked.content, checked.bytes), (Content::Empty, 4 << 30));
        assert!(!files.0.path().join("new.img").exists());
        assert_eq!(files.open("new.img,size=4G"), Ok((Content::Ext4, 4 << 30)));
        let data = files.0.path().join("new.img").metadata().unwrap();
        let bytes = 512 * std::os::unix::fs::MetadataExt::blocks(&data);
        assert!(data.len() == 4 << 30 && bytes < 8 << 20, "{bytes} bytes of the host's disk");
        // It is there now.
        for rest in ["new.img:/keep,ro", "new.img,size=4G"] {
            assert_eq!(files.open(rest), Ok((Content::Ext4, 4 << 30)));
        }
        let said = files.option("new.img:/keep,ro").check().unwrap().in_words();
        assert!(said.ends_with("new.img, an ext4 file system of 4096 MiB, is /keep, to be read only"), "{said}");
        files.says("new.img,size=5G", "leave size= out");
    }

    #[test]
    fn what_cannot_be_a_disk_is_told() {
        let files = Files(tempfile::tempdir().unwrap());
        std::fs::create_dir(files.0.path().join("folder")).unwrap();
        files.says("folder", "it is a folder");
        symlink("/dev/null", files.0.path().join("null")).unwrap();
        files.says("null", "no ordinary file");
        files.file("small", BYTES_MIN - BLOCK_BYTES, b"");
        files.says("small", "the least is 64M");
        files.file("odd", BYTES_MIN + 1, b"");
        files.says("odd", "truncate -s %4096");
        let notes = files.file("notes", BYTES_MIN, b"Dear diary");
        files.says("notes", "nothing is overwritten");
        assert!(std::fs::read(notes).unwrap().starts_with(b"Dear diary"));
        files.file("locked", BYTES_MIN, b"");
        let _holder = files.option("locked").look().unwrap();
        files.says("locked", "another ./pelago run");
    }

    /// Who runs this may be root, whom nothing is refused.
    #[test]
    fn a_file_that_may_only_be_read_is_told() {
        let told = |kind: ErrorKind, is_read_only| refused(&kind.into(), is_read_only).to_string();
        assert!(told(ErrorKind::PermissionDenied, false).contains("add ,ro"));
        assert!(told(ErrorKind::ReadOnlyFilesystem, false).contains("add ,ro"));
        assert!(told(ErrorKind::PermissionDenied, true).contains("may read it"));
        assert!(!told(ErrorKind::Other, false).contains(",ro"));
        // It is asked for as it is used.
        let files = Files(tempfile::tempdir().unwrap());
        let path = files.file("disk", BYTES_MIN, b"");
        files.open("disk").unwrap();
        let rights =
            |mode| std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        rights(0o444);
        assert!(files.open("disk,ro").is_ok());
        assert_eq!(files.open("disk").is_ok(), nix::unistd::geteuid().is_root());
    }

    /// Encrypted with one key, and opened with that one only.
    #[test]
    fn an_encrypted_disk_is_made_and_opened() {
        let files = Files(tempfile::tempdir().unwrap());
        std::fs::write(files.0.path().join("key"), b"secret").unwrap();
        std::fs::write(files.0.path().join("other"), b"secret\n").unwrap();
        files.file("empty", BYTES_MIN, b"");
        for name in ["new.img,size=64M", "empty"] {
            assert_eq!(files.open(&format!("{name},key=key")), Ok((Content::Luks2, BYTES_MIN)));
            let name = name.split(',').next().unwrap();
            let disk = files.option(&format!("{name},key=key,ro")).check().unwrap();
            assert!(disk.handover().is_some());
            assert!(disk.in_words().contains("an encrypted volume (LUKS2) of 64 MiB"), "{}", disk.in_words());
            drop(disk);
            files.says(&format!("{name},key=other"), "other does not open it; give the one that it was made with");
            files.says(name, "add ,key=FILE");
        }
        assert!(files.option("plain.img,size=64M").check().unwrap().made().unwrap().handover().is_none());
    }

    #[test]
    fn key_and_content_fit() {
        let files = Files(tempfile::tempdir().unwrap());
        files.file("key", 32, b"");
        files.file("no-key", 0, b"");
        files.file("secret", BYTES_MIN, b"LUKS\xba\xbe\0\x02");
        files.says("secret", "add ,key=FILE");
        files.says("secret,key=key", "the LUKS headers are damaged");
        files.says("secret,key=no-key", "has 0 bytes");
        files.says("secret,key=", "is no file");
        files.file("volume", BYTES_MIN, b"");
        files.open("volume").unwrap();
        files.says("volume,key=key", "it is not encrypted");
        files.file("empty", BYTES_MIN, b"");
        files.says("empty,ro", "nothing on it to read");
        files.says("empty,ro,key=key", "nothing on it to read");
        assert!(!files.0.path().join("new.img").exists());
    }
}
