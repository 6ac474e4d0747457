//! cryptsetup opens what is made here, and what it makes is opened here: slots and data. Skipped
//! where it is missing. It needs no device mapper and no root for any of this.

use crate::common::{DEVICE_BYTES, PASSPHRASE, open};
use crate::kept::plain;
use luks::{Budget, DATA_OFFSET, Format, Formatted, Header, SectorBytes, SectorCipher, Strength};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const OTHER_PASSPHRASE: &[u8] = b"battery staple";
/// A cheap derivation of each kind, as cryptsetup is asked for it.
const ARGON2ID: &[&str] = &["--pbkdf-memory", "64", "--pbkdf-force-iterations", "4", "--pbkdf-parallel", "1"];
const ARGON2ID_LANES: &[&str] = &["--pbkdf-memory", "1024", "--pbkdf-force-iterations", "4", "--pbkdf-parallel", "4"];
const PBKDF2: &[&str] = &["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--hash", "sha512"];

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = folders.map(|folder| folder.join("cryptsetup")).find(|path| path.exists());
    if found.is_none() {
        eprintln!("skipped: there is no cryptsetup (package cryptsetup-bin)");
    }
    found
}

/// A folder with a file of each passphrase.
struct Place {
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Place {
    fn new() -> Option<Place> {
        let place = Place { program: program()?, folder: tempfile::tempdir().unwrap() };
        fs::write(place.path("key"), PASSPHRASE).unwrap();
        fs::write(place.path("other"), OTHER_PASSPHRASE).unwrap();
        Some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, words: &[&str]) -> Output {
        Command::new(&self.program).arg("--batch-mode").args(words).current_dir(&self.folder).output().unwrap()
    }

    fn succeed(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A volume of cryptsetup's over [`plain`], and its bytes.
    fn encrypted(&self, name: &str, options: &[&str]) -> Vec<u8> {
        let file = File::create(self.path(name)).unwrap();
        file.set_len(34 << 20).unwrap();
        file.write_all_at(&plain(1 << 20), 0).unwrap();
        let words =
            ["reencrypt", "--encrypt", "--reduce-device-size", "32M", "--resilience", "none", "--key-file", "key"];
        self.succeed(&[&words, options, &[name]].concat());
        fs::read(self.path(name)).unwrap()
    }
}

fn format(sector: SectorBytes, strength: Strength) -> Formatted {
    let random = |bytes: &mut [u8]| File::open("/dev/urandom").unwrap().read_exact_at(bytes, 0).unwrap();
    let options = Format { device_bytes: DEVICE_BYTES, sector, passphrase: PASSPHRASE, strength };
    luks::format(&options, &mut { random }).unwrap()
}

fn write_out(formatted: &Formatted, path: &Path) {
    let file = File::create(path).unwrap();
    file.set_len(DEVICE_BYTES).unwrap();
    for write in &formatted.writes {
        file.write_all_at(&write.bytes, write.at).unwrap();
    }
}

#[test]
fn cryptsetup_opens_what_is_made_here() {
    let Some(place) = Place::new() else { return };
    for sector in [SectorBytes::B512, SectorBytes::B4096] {
        let formatted = format(sector, Strength::GUEST);
        write_out(&formatted, &place.path("volume"));
        let told = place.succeed(&["luksDump", "volume"]);
        for part in [
            &format!("UUID:          \t{}", formatted.uuid),
            &format!("sector: {} [bytes]", sector.get()),
            "offset: 16777216 [bytes]",
            "cipher: aes-xts-plain64",
            "PBKDF:      argon2id",
            "Memory:     32768",
        ] {
            assert!(told.contains(part), "{part} is not in:\n{told}");
        }
        place.succeed(&["luksOpen", "--test-passphrase", "--key-file", "key", "volume"]);
        let wrong = place.run(&["luksOpen", "--test-passphrase", "--key-file", "other", "volume"]);
        assert_eq!(wrong.status.code(), Some(2), "no key slot has another passphrase");
        place.succeed(&[
            "luksDump",
            "--dump-volume-key",
            "--key-file",
            "key",
            "--volume-key-file",
            "volume-key",
            "volume",
        ]);
        assert_eq!(fs::read(place.path("volume-key")).unwrap(), formatted.key.bytes());
        fs::remove_file(place.path("volume-key")).unwrap();
    }
}

#[test]
fn cryptsetup_changes_what_is_made_here_and_it_is_read_again() {
    let Some(place) = Place::new() else { return };
    let formatted = format(SectorBytes::B4096, crate::common::CHEAP);
    write_out(&formatted, &place.path("volume"));
    place.succeed(&[&["luksAddKey", "--key-file", "key"], PBKDF2, &["volume", "other"]].concat());
    place.succeed(&["config", "--priority", "prefer", "--key-slot", "1", "volume"]);
    place.succeed(&["luksKillSlot", "volume", "0"]);
    let image = fs::read(place.path("volume")).unwrap();
    let key = open(&image, OTHER_PASSPHRASE, Budget::GUEST).unwrap().unwrap();
    assert_eq!(key.bytes(), formatted.key.bytes());
    assert!(open(&image, PASSPHRASE, Budget::GUEST).unwrap().is_none(), "its slot is gone");
}

#[test]
fn what_cryptsetup_encrypted_is_opened_and_read_here() {
    let Some(place) = Place::new() else { return };
    for (name, size, options) in
        [("a", "512", ARGON2ID), ("b", "4096", ARGON2ID_LANES), ("c", "512", PBKDF2), ("d", "4096", PBKDF2)]
    {
        let image = place.encrypted(name, &[&["--sector-size", size], options].concat());
        let key = open(&image, PASSPHRASE, Budget::GUEST).unwrap().unwrap();
        assert!(open(&image, OTHER_PASSPHRASE, Budget::GUEST).unwrap().is_none());
        let header = Header::read(&image[..luks::HEAD_BYTES], image.len() as u64).unwrap();
        assert_eq!(header.segment().sector.get().to_string(), size);
        let mut data = image[DATA_OFFSET as usize..][..1 << 20].to_vec();
        SectorCipher::new(&key, header.segment()).decrypt(0, &mut data).unwrap();
        assert!(data == plain(1 << 20), "{options:?}, sectors of {size}");
    }
}

#[test]
fn cryptsetup_accepts_a_header_that_is_repaired_here() {
    let Some(place) = Place::new() else { return };
    for (place_of, at) in [(0, 0), (1, 16 << 10)] {
        let formatted = format(SectorBytes::B512, crate::common::CHEAP);
        write_out(&formatted, &place.path("volume"));
        let file = File::options().write(true).read(true).open(place.path("volume")).unwrap();
        file.write_all_at(&[0; 16 << 10], at).unwrap();
        let image = fs::read(place.path("volume")).unwrap();
        let header = Header::read(&image[..luks::HEAD_BYTES], image.len() as u64).unwrap();
        let write = header.repair(&[5; 64]).unwrap();
        file.write_all_at(&write.bytes, write.at).unwrap();
        // Only the repaired one is left.
        file.write_all_at(&[0; 16 << 10], (16 << 10) - at).unwrap();
        place.succeed(&["luksOpen", "--test-passphrase", "--key-file", "key", "volume"]);
        assert_eq!(write.at, (place_of * (16 << 10)) as u64);
    }
}
