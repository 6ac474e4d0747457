//! What the set-up of installed Debian packages made on this machine: system users and groups, and
//! folders that no package lists.
//!
//! Nothing is run: what a package's scripts and tables name is looked up here. Content that a
//! set-up wrote (a data base, a key) stays on this machine.

use crate::image::archive::{Archive, Owner};
use crate::image::rootfs::{View, in_root, parent_in_guest};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

const PASSWD: &str = "etc/passwd";
const GROUP: &str = "etc/group";
/// Where a service keeps what is its own: below each a folder of its name.
const SERVICE_FOLDERS: [&str; 3] = ["/var/lib", "/var/log", "/run"];
/// Tables of folders (tmpfiles.d(5)) and of users (sysusers.d(5)).
const FOLDER_TABLES: &str = "usr/lib/tmpfiles.d";
const USER_TABLES: &str = "usr/lib/sysusers.d";
/// Where dpkg keeps what it knows, unless this variable names another folder (dpkg(1)).
const DPKG_FOLDER: &str = "/var/lib/dpkg";
const DPKG_VARIABLE: &str = "DPKG_ADMINDIR";
/// Ids of users and groups that packages make (Debian Policy 9.2.2), and that are none of people.
const SYSTEM_IDS: RangeInclusive<u32> = 1..=999;
const FOLDER_PERMISSIONS: u32 = 0o755;

/// A folder that somebody has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Folder {
    path: String,
    permissions: u32,
    owner: Owner,
}

/// What is known of the packages.
#[derive(Default)]
struct Known {
    /// Their names.
    packages: BTreeSet<String>,
    /// Their scripts, and all tables.
    scripts: String,
    folder_tables: String,
    /// Whose their files are.
    owners: Vec<Owner>,
}

/// This machine, as far as it is asked.
struct Machine<'a> {
    passwd: &'a str,
    group: &'a str,
    /// Permissions and owner of a folder that is there.
    folder: &'a dyn Fn(&str) -> Option<(u32, Owner)>,
}

/// What the guest gets.
#[derive(Debug, Default, PartialEq, Eq)]
struct SetUp {
    /// Lines of passwd(5) and group(5).
    users: Vec<String>,
    groups: Vec<String>,
    folders: Vec<Folder>,
}

/// Whose a file is in the guest: only ids of the system mean the same there.
pub fn owner_of(data: &std::fs::Metadata) -> Owner {
    let known = |id: u32| if SYSTEM_IDS.contains(&id) { id } else { 0 };
    Owner { user: known(data.uid()), group: known(data.gid()) }
}

/// Adds what the set-up of these packages made; `files` are theirs.
pub fn add(archive: &mut Archive, packages: &BTreeSet<String>, files: &[PathBuf]) -> Result<()> {
    let passwd = std::fs::read_to_string(Path::new("/").join(PASSWD)).unwrap_or_default();
    let group = std::fs::read_to_string(Path::new("/").join(GROUP)).unwrap_or_default();
    let folder = |path: &str| {
        let data = Path::new(path).metadata().ok().filter(std::fs::Metadata::is_dir)?;
        Some((data.permissions().mode(), owner_of(&data)))
    };
    let machine = Machine { passwd: &passwd, group: &group, folder: &folder };
    SetUp::of(&Known::read(packages, files), &machine).bring(archive)
}

impl Known {
    fn read(packages: &BTreeSet<String>, files: &[PathBuf]) -> Known {
        let info = std::env::var_os(DPKG_VARIABLE).map_or_else(|| PathBuf::from(DPKG_FOLDER), PathBuf::from);
        let info = info.join("info");
        let mut known = Known { packages: packages.clone(), ..Known::default() };
        // What cannot be read or is no text names nobody.
        let mut read = |path: &Path, is_folders: bool| {
            let text = std::fs::read_to_string(path).unwrap_or_default() + "\n";
            known.scripts += &text;
            if is_folders {
                known.folder_tables += &text;
            }
        };
        for package in packages {
            // One of several architectures has its name with that.
            for name in [format!("{package}.postinst"), format!("{package}:amd64.postinst")] {
                read(&info.join(name), false);
            }
        }
        for file in files {
            let is_in = |folder: &str| file.parent().is_some_and(|parent| parent.ends_with(folder));
            if is_in(FOLDER_TABLES) || is_in(USER_TABLES) {
                read(file, is_in(FOLDER_TABLES));
            }
        }
        known.owners =
            files.iter().filter_map(|file| file.symlink_metadata().ok()).map(|data| owner_of(&data)).collect();
        known
    }
}

/// Fields of a line of passwd(5) or group(5), if its id is one of the system's.
fn account(line: &str) -> Option<(&str, u32, Vec<&str>)> {
    let fields: Vec<_> = line.split(':').collect();
    let id = fields.get(2)?.parse().ok().filter(|id| SYSTEM_IDS.contains(id))?;
    Some((fields[0], id, fields))
}

impl SetUp {
    fn of(known: &Known, machine: &Machine<'_>) -> SetUp {
        let is_of_word = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
        let words: BTreeSet<_> = known.scripts.split(|letter| !is_of_word(letter)).collect();
        let mut set_up = SetUp::default();
        let mut names: BTreeSet<String> = known.packages.clone();
        let (mut user_ids, mut group_ids) = (Vec::new(), Vec::new());
        let mut homes = Vec::new();
        for (line, (name, id, fields)) in machine.passwd.lines().filter_map(|line| Some((line, account(line)?))) {
            if fields.len() == 7 && (words.contains(name) || known.owners.iter().any(|owner| owner.user == id)) {
                set_up.users.push(line.to_owned());
                user_ids.push((name.to_owned(), id));
                group_ids.extend(fields[3].parse::<u32>().ok());
                homes.push(fields[5].to_owned());
                names.insert(name.to_owned());
            }
        }
        let mut groups = Vec::new();
        for (name, id, fields) in machine.group.lines().filter_map(account) {
            let is_named = words.contains(name) || known.owners.iter().any(|owner| owner.group == id);
            if fields.len() == 4 && (is_named || group_ids.contains(&id)) {
                // People of this machine are not in the guest.
                let is_user = |member: &&str| user_ids.iter().any(|(user, _)| user == member);
                let members: Vec<_> = fields[3].split(',').filter(is_user).collect();
                set_up.groups.push(format!("{name}:x:{id}:{}", members.join(",")));
                groups.push((name.to_owned(), id));
            }
        }
        for line in known.folder_tables.lines() {
            set_up.folders.extend(listed_folder(line, &user_ids, &groups));
        }
        for name in &names {
            let own: Vec<_> = SERVICE_FOLDERS.iter().map(|folder| format!("{folder}/{name}")).collect();
            let there: Vec<_> = own.iter().filter_map(|path| found(path, machine)).collect();
            // Made when a service starts, and gone since.
            if let (Some((_, user)), false) = (user_ids.iter().find(|(user, _)| user == name), there.is_empty()) {
                let group = groups.iter().find(|(group, _)| group == name).map_or(0, |(_, id)| *id);
                let owner = Owner { user: *user, group };
                let path = format!("/run/{name}");
                set_up.folders.extend(there);
                set_up.folders.push(Folder { path, permissions: FOLDER_PERMISSIONS, owner });
            } else {
                set_up.folders.extend(there);
            }
        }
        let is_kept = |home: &&String| home.starts_with("/var/") || home.starts_with("/run/");
        set_up.folders.extend(homes.iter().filter(is_kept).filter_map(|home| found(home, machine)));
        // Who names a folder first has it; what is in one comes after it.
        let mut seen = BTreeSet::new();
        set_up.folders.retain(|folder| seen.insert(folder.path.clone()));
        set_up.folders.sort_by(|one, other| one.path.cmp(&other.path));
        set_up
    }

    /// Brings all that is not there yet.
    fn bring(self, archive: &mut Archive) -> Result<()> {
        append(archive, PASSWD, &self.users)?;
        append(archive, GROUP, &self.groups)?;
        for Folder { path, permissions, owner } in self.folders {
            let real = parent_in_guest(&mut View::new(archive, ""), Path::new(&path))?;
            if !archive.has_folder(&in_root(&real)) {
                archive.folder_of(&in_root(&real), permissions, 0, owner);
            }
        }
        Ok(())
    }
}

fn found(path: &str, machine: &Machine<'_>) -> Option<Folder> {
    let (permissions, owner) = (machine.folder)(path)?;
    Some(Folder { path: path.to_owned(), permissions, owner })
}

/// A folder of a line of tmpfiles.d(5), unless it depends on more than users and groups.
fn listed_folder(line: &str, users: &[(String, u32)], groups: &[(String, u32)]) -> Option<Folder> {
    let mut fields = line.split_whitespace();
    let (kind, path) = (fields.next()?, fields.next()?);
    let is_folder = ["d", "D", "v", "q", "Q"].contains(&kind.trim_end_matches(['!', '-', '+', '=', '~', '^', '$']));
    if !is_folder || !path.starts_with('/') || path.contains('%') {
        return None;
    }
    let mut field = || fields.next().filter(|field| *field != "-");
    let permissions = field().and_then(|text| u32::from_str_radix(text.trim_start_matches([':', '~']), 8).ok());
    let id = |name: Option<&str>, known: &[(String, u32)]| {
        let name = name.map(|name| name.trim_start_matches(':'))?;
        known.iter().find(|(known, _)| known == name).map(|(_, id)| *id).or_else(|| name.parse().ok())
    };
    let owner = Owner { user: id(field(), users).unwrap_or(0), group: id(field(), groups).unwrap_or(0) };
    let path = path.trim_end_matches('/').to_owned();
    Some(Folder { path, permissions: permissions.unwrap_or(FOLDER_PERMISSIONS) & 0o7777, owner })
}

/// Adds the lines of accounts of which the guest has neither name nor id.
fn append(archive: &mut Archive, path: &str, lines: &[String]) -> Result<()> {
    let old = archive.read(&in_root(path), u64::MAX).transpose()?.unwrap_or_default();
    let mut text = String::from_utf8(old).with_context(|| format!("the guest's {path} is no text"))?;
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let name_and_id = |line: &str| {
        let fields: Vec<_> = line.split(':').map(str::to_owned).collect();
        (fields.first().cloned(), fields.get(2).cloned())
    };
    for line in lines {
        let (name, id) = name_and_id(line);
        let is_there = text.lines().map(name_and_id).any(|there| there.0 == name || there.1 == id);
        if !is_there {
            text += &format!("{line}\n");
        }
    }
    if !lines.is_empty() {
        archive.file(&in_root(path), 0o644, text.into_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCOUNTS: &str = "root:x:0:0:root:/root:/bin/sh\nredis:x:110:115::/var/lib/redis:/usr/sbin/nologin\n\
        backup:x:34:34:backup:/var/backups:/usr/sbin/nologin\nada:x:1000:1000:,:/srv/ada:/bin/sh\nbroken\n";
    const GROUPS: &str = "root:x:0:\nredis:x:115:\nssl-cert:x:114:redis,ada\nbackup:x:34:\nada:x:1000:\n";

    fn set_up(known: &Known) -> SetUp {
        let folder = |path: &str| {
            let redis = Owner { user: 110, group: 115 };
            ["/var/lib/redis", "/var/log/redis"].contains(&path).then_some((0o40750, redis))
        };
        SetUp::of(known, &Machine { passwd: ACCOUNTS, group: GROUPS, folder: &folder })
    }

    #[test]
    fn who_a_script_names_comes_with_its_folders() {
        let scripts = "adduser --system $OPTION redis\nchown redis:ssl-cert /etc/redis; chown ada /x # backups".into();
        let set_up = set_up(&Known { scripts, ..Known::default() });
        assert_eq!(set_up.users, ["redis:x:110:115::/var/lib/redis:/usr/sbin/nologin"]);
        assert_eq!(set_up.groups, ["redis:x:115:", "ssl-cert:x:114:redis"]);
        let told: Vec<_> = set_up
            .folders
            .iter()
            .map(|Folder { path, permissions, owner }| (path.as_str(), *permissions, owner.user, owner.group))
            .collect();
        let expected = [
            ("/run/redis", 0o755, 110, 115),
            ("/var/lib/redis", 0o40750, 110, 115),
            ("/var/log/redis", 0o40750, 110, 115),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn whose_a_file_is_comes_and_a_package_has_the_folders_of_its_name() {
        let packages = BTreeSet::from(["redis".to_owned(), "other".to_owned()]);
        let owners = vec![Owner { user: 34, group: 0 }, Owner::default()];
        let set_up = set_up(&Known { packages, owners, ..Known::default() });
        assert_eq!((set_up.users.len(), &set_up.groups[..]), (1, &["backup:x:34:".to_owned()][..]));
        // Nothing says that the service runs as the user of its name.
        let paths: Vec<_> = set_up.folders.iter().map(|folder| folder.path.as_str()).collect();
        assert_eq!(paths, ["/var/lib/redis", "/var/log/redis"]);
        assert_eq!(
            super::SetUp::of(&Known::default(), &Machine { passwd: "", group: "", folder: &|_| None }),
            SetUp::default()
        );
    }

    #[test]
    fn tables_of_folders_are_read() {
        let folder = |line: &str| listed_folder(line, &[("redis".into(), 110)], &[("redis".into(), 115)]);
        let known = folder("d /run/redis/ 2755 redis redis - -").unwrap();
        assert_eq!((known.path.as_str(), known.permissions), ("/run/redis", 0o2755));
        assert_eq!(known.owner, Owner { user: 110, group: 115 });
        let plain = folder("D! /run/plain").unwrap();
        assert_eq!((plain.permissions, plain.owner), (0o755, Owner::default()));
        assert_eq!(folder("d /run/n ~0700 :5 nobody-knows").unwrap().owner, Owner { user: 5, group: 0 });
        for other in ["", "# d /run/x", "d", "f /run/file 0644", "d run/x", "d /run/%i 0755", "L /run/x - - - - /y"] {
            assert_eq!(folder(other), None, "{other}");
        }
    }

    #[test]
    fn accounts_and_folders_that_are_there_stay() {
        let mut archive = Archive::default();
        archive.file("root/etc/passwd", 0o644, b"root:x:0:0::/:/bin/sh\nown:x:110:1::/:/bin/sh".to_vec());
        archive.folder_of("root/var/lib/redis", 0o700, 0, Owner::default());
        let scripts = "redis backup".into();
        set_up(&Known { scripts, ..Known::default() }).bring(&mut archive).unwrap();
        let read = |path: &str| String::from_utf8(archive.read(path, 9999).unwrap().unwrap()).unwrap();
        let backup = "backup:x:34:34:backup:/var/backups:/usr/sbin/nologin\n";
        assert_eq!(read("root/etc/passwd"), format!("root:x:0:0::/:/bin/sh\nown:x:110:1::/:/bin/sh\n{backup}"));
        assert_eq!(read("root/etc/group"), "redis:x:115:\nbackup:x:34:\n");
        assert!(archive.has_folder("root/run/redis") && archive.has_folder("root/var/log/redis"));
        archive.file("root/etc/group", 0o644, vec![0xff]);
        let problem = append(&mut archive, GROUP, &["a:x:1:".into()]).unwrap_err().to_string();
        assert!(problem.contains("etc/group"), "{problem}");
    }
}
