//! Texts of /proc (man 5 proc), as far as `ps` and simple servers read them.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use contracts::files::{PROC_DEVICE, VOLUME_DEVICE};
use contracts::process::{Identity, Ids, ProcessLine, THREADS_MAX};

use system::Mount;

use crate::store::DEVICE as STORE_DEVICE;

/// Clock ticks per second as programs are told (AT_CLKTCK).
const TICKS_PER_S: u64 = 100;
const PAGE_KIB: u64 = 4;

/// What is mounted where, as /proc/mounts has it.
pub fn mounts(volume: Option<&Mount>) -> String {
    let volume = volume.map(|Mount { path, is_read_only }| {
        let options = if *is_read_only { "ro" } else { "rw" };
        format!("/dev/vda {} ext4 {options},noatime 0 0\n", escaped(path))
    });
    format!("root / tmpfs rw 0 0\nproc /proc proc ro 0 0\n{}", volume.unwrap_or_default())
}

/// The same as a process's mountinfo has it. The third number is the device's, as stat shows it.
pub fn mount_table(volume: Option<&Mount>) -> String {
    let volume = volume.map(|Mount { path, is_read_only }| {
        let options = if *is_read_only { "ro" } else { "rw" };
        format!("3 1 0:{VOLUME_DEVICE} / {} {options},noatime - ext4 /dev/vda {options}\n", escaped(path))
    });
    format!(
        "1 0 0:{STORE_DEVICE} / / rw - tmpfs root rw\n2 1 0:{PROC_DEVICE} / /proc ro - proc proc ro\n{}",
        volume.unwrap_or_default()
    )
}

/// A path as fields that end at blanks have it.
fn escaped(path: &str) -> String {
    let escape = |letter: char| match letter {
        ' ' | '\t' | '\n' | '\\' => format!("\\{:03o}", u32::from(letter)),
        other => other.into(),
    };
    path.chars().map(escape).collect()
}

/// Files in each process's directory.
pub const PROCESS_FILES: [&str; 6] = ["stat", "status", "cmdline", "comm", "mounts", "mountinfo"];
/// Folders there.
pub const PROCESS_FOLDERS: [&str; 2] = ["fd", "task"];
/// Files at the top.
pub const SYSTEM_FILES: [&str; 8] =
    ["meminfo", "uptime", "loadavg", "mounts", "cpuinfo", "version", "stat", "filesystems"];

/// What /proc/sys has: folders, each before what lies in it, and files with their numbers.
pub const SETTINGS: [(&str, Option<usize>); 5] = [
    ("sys", None),
    ("sys/fs", None),
    ("sys/fs/pipe-max-size", Some(PIPE_BYTES_MAX)),
    ("sys/kernel", None),
    ("sys/kernel/threads-max", Some(THREADS_MAX)),
];
/// What a pipe holds at most.
const PIPE_BYTES_MAX: usize = 64 << 10;

/// What is at a path of [`SETTINGS`].
#[derive(Debug, PartialEq, Eq)]
pub enum Setting {
    /// Paths of what lies in it.
    Folder(Vec<&'static str>),
    /// A file's text.
    File(String),
}

/// `None` if there is nothing at that path.
pub fn setting(path: &str) -> Option<Setting> {
    let (_, number) = SETTINGS.iter().find(|(name, _)| *name == path)?;
    let is_within = |name: &str| name.rsplit_once('/').is_some_and(|(folder, _)| folder == path);
    Some(match number {
        Some(number) => Setting::File(format!("{number}\n")),
        None => Setting::Folder(SETTINGS.iter().map(|(name, _)| *name).filter(|name| is_within(name)).collect()),
    })
}

/// The inode number of a path below /proc: no two that are there at once share one, nor has one
/// changed while its process lives.
pub fn inode(path: &str) -> u64 {
    /// Below this lie the files at the top; each process has as many from the next multiple on.
    const OF_EACH: u64 = 256;
    let place = |names: &[&str], name: &str| names.iter().position(|other| *other == name).map(|at| at as u64 + 1);
    let path = path.trim_matches('/');
    if let Some(at) = SETTINGS.iter().position(|(name, _)| *name == path) {
        return (2 + SYSTEM_FILES.len() + at) as u64;
    }
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let Some(first) = parts.next() else { return 1 };
    match (first.parse::<u32>(), parts.next()) {
        (Ok(process), name) => {
            let in_files = |name: &str| place(&PROCESS_FILES, name);
            let in_folders = |name: &str| Some(PROCESS_FILES.len() as u64 + place(&PROCESS_FOLDERS, name)?);
            let file = name.map_or(0, |name| in_files(name).or_else(|| in_folders(name)).unwrap_or(OF_EACH - 1));
            (u64::from(process) + 1) * OF_EACH + file
        }
        _ => 1 + place(&SYSTEM_FILES, first).unwrap_or(OF_EACH - 2),
    }
}

/// Whose a process is, as three lines of its status: real, effective, saved and file system's id.
fn identity_lines(identity: &Identity) -> String {
    let ids = |ids: &Ids| format!("{}\t{}\t{}\t{}", ids.real, ids.effective, ids.saved, ids.effective);
    let others: String = identity.others.iter().map(|group| format!("{group} ")).collect();
    format!("Uid:\t{}\nGid:\t{}\nGroups:\t{others}\n", ids(&identity.users), ids(&identity.groups))
}

/// A process's file; `None` if there is none of that name.
pub fn process_file(name: &str, line: &ProcessLine, volume: Option<&Mount>) -> Option<String> {
    let ticks = line.cpu_ns / (1_000_000_000 / TICKS_PER_S);
    let (id, parent, state) = (line.process, line.parent, line.state);
    Some(match name {
        // Fields 1 to 24 matter to ps; the rest is zero. 14 = user time, 20 = threads, 23 = bytes,
        // 24 = pages present.
        "stat" => format!(
            "{id} ({}) {state} {parent} {} {} 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 0 {} {}{}\n",
            line.name,
            line.group,
            line.session,
            line.pages * PAGE_KIB * 1024,
            line.pages,
            " 0".repeat(28),
        ),
        "status" => {
            let word = match state {
                'R' => "running",
                'T' => "stopped",
                'Z' => "zombie",
                _ => "sleeping",
            };
            let size = line.pages * PAGE_KIB;
            format!(
                "Name:\t{}\nState:\t{state} ({word})\nTgid:\t{id}\nPid:\t{id}\nPPid:\t{parent}\n{}VmSize:\t{size} kB\nVmRSS:\t{size} kB\nThreads:\t1\n",
                line.name,
                identity_lines(&line.identity),
            )
        }
        "cmdline" if line.command_line.is_empty() => String::new(),
        "cmdline" => format!("{}\0", line.command_line.replace(' ', "\0")),
        "comm" => format!("{}\n", line.name),
        "mounts" => mounts(volume),
        "mountinfo" => mount_table(volume),
        _ => return None,
    })
}

/// What the machine tells about itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Machine<'a> {
    /// The volume on its disk.
    pub volume: Option<&'a Mount>,
    /// Since boot.
    pub uptime_ns: u64,
    /// When that was, in seconds since 1970.
    pub booted_s: u64,
    /// Cores.
    pub cores: u32,
    /// Processes.
    pub processes: u32,
    /// Pages of all cores that something holds.
    pub pages_used: u64,
    /// Pages of all cores that nothing holds.
    pub pages_free: u64,
    /// Of the used ones: files of the store.
    pub pages_of_files: u64,
}

/// A file at the top of /proc; `None` if there is none of that name.
pub fn system_file(name: &str, machine: &Machine<'_>) -> Option<String> {
    let centiseconds = machine.uptime_ns / 10_000_000;
    let (seconds, part) = (centiseconds / 100, centiseconds % 100);
    Some(match name {
        "meminfo" => {
            let (free, files) = (machine.pages_free * PAGE_KIB, machine.pages_of_files * PAGE_KIB);
            let total = machine.pages_used * PAGE_KIB + free;
            format!(
                "MemTotal: {total:>12} kB\nMemFree: {free:>13} kB\nMemAvailable: {free:>8} kB\nBuffers: 0 kB\nCached: {files} kB\nShmem: {files} kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
            )
        }
        "uptime" => format!("{seconds}.{part:02} 0.00\n"),
        "loadavg" => format!("0.00 0.00 0.00 1/{} {}\n", machine.processes, machine.processes),
        "mounts" => mounts(machine.volume),
        "filesystems" => {
            format!("nodev\ttmpfs\nnodev\tproc\n{}", if machine.volume.is_some() { "\text4\n" } else { "" })
        }
        "cpuinfo" => (0..machine.cores)
            .map(|core| format!("processor\t: {core}\nvendor_id\t: Pelago\nmodel name\t: x86-64\n\n"))
            .collect(),
        "version" => String::from("Linux version 6.1.0 (Pelago)\n"),
        "stat" => {
            let used = |name: &str| format!("{name} 0 0 0 0 0 0 0 0 0 0\n");
            let cores: String = (0..machine.cores).map(|core| used(&format!("cpu{core}"))).collect();
            let rest = format!("btime {}\nprocesses {}\n", machine.booted_s, machine.processes);
            format!("{}{cores}ctxt 0\n{rest}procs_running 1\nprocs_blocked 0\n", used("cpu "))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_paths_share_an_inode() {
        let mut paths = vec![String::new(), "self".into()];
        paths.extend(SYSTEM_FILES.map(String::from));
        paths.extend(SETTINGS.map(|(path, _)| path.into()));
        for process in [1, 2, 3, 999] {
            paths.push(format!("{process}"));
            // Nothing is there, and so it has the number of nothing that is.
            paths.push(format!("{process}/none"));
            paths.extend(PROCESS_FILES.iter().chain(&PROCESS_FOLDERS).map(|name| format!("{process}/{name}")));
        }
        let inodes: std::collections::BTreeSet<u64> = paths.iter().map(|path| inode(path)).collect();
        assert_eq!(inodes.len(), paths.len());
        assert!(!inodes.contains(&0), "who lists a directory takes that for nothing");
        assert_eq!(inode("/7/stat"), inode("7/stat"));
    }

    #[test]
    fn the_volume_is_told_among_mounts() {
        let volume = Mount { path: "/my data".into(), is_read_only: true };
        assert!(mounts(Some(&volume)).ends_with("ro 0 0\n/dev/vda /my\\040data ext4 ro,noatime 0 0\n"));
        assert!(mount_table(Some(&volume)).ends_with("\n3 1 0:5 / /my\\040data ro,noatime - ext4 /dev/vda ro\n"));
        assert!(!mounts(None).contains("ext4") && !mount_table(None).contains("ext4"));
    }

    #[test]
    fn settings_are_told_in_folders() {
        assert_eq!(setting("sys"), Some(Setting::Folder(vec!["sys/fs", "sys/kernel"])));
        assert_eq!(setting("sys/kernel"), Some(Setting::Folder(vec!["sys/kernel/threads-max"])));
        assert_eq!(setting("sys/kernel/threads-max"), Some(Setting::File(format!("{THREADS_MAX}\n"))));
        assert_eq!(setting("sys/kernel/threads"), None);
        assert_eq!(setting("sys/kernel/threads-max/more"), None);
    }

    /// A process that sleeps.
    fn line() -> ProcessLine {
        ProcessLine {
            process: 7,
            parent: 1,
            group: 7,
            session: 1,
            state: 'S',
            name: "sh".into(),
            command_line: "sh -c ls".into(),
            identity: Identity {
                users: Ids { real: 1, effective: 2, saved: 3 },
                groups: Ids { real: 4, effective: 5, saved: 6 },
                others: vec![7, 8],
                ..Identity::default()
            },
            pages: 9,
            cpu_ns: 20_000_000,
            children_cpu_ns: 0,
        }
    }

    #[test]
    fn stat_has_52_fields_and_names_stay_in_parentheses() {
        let line = line();
        let stat = process_file("stat", &line, None).unwrap();
        let fields: Vec<_> = stat.split_whitespace().collect();
        assert_eq!(
            (fields.len(), fields[1], fields[3], fields[13], fields[22], fields[23]),
            (52, "(sh)", "1", "2", "36864", "9")
        );
        let status = process_file("status", &line, None).unwrap();
        assert!(status.contains("\nUid:\t1\t2\t3\t2\nGid:\t4\t5\t6\t5\nGroups:\t7 8 \nVmSize:"), "{status}");
        assert_eq!(process_file("cmdline", &line, None).unwrap(), "sh\0-c\0ls\0");
        assert!(PROCESS_FILES.iter().all(|name| process_file(name, &line, None).is_some()));
        assert!(SYSTEM_FILES.iter().all(|name| system_file(name, &Machine::default()).is_some()));
        assert!(process_file("x", &line, None).is_none() && system_file("x", &Machine::default()).is_none());
    }

    #[test]
    fn a_status_tells_state_and_size_of_a_process() {
        for (state, word) in [('R', "running"), ('S', "sleeping"), ('T', "stopped"), ('Z', "zombie")] {
            let status = process_file("status", &ProcessLine { state, ..line() }, None).unwrap();
            assert!(status.starts_with(&format!("Name:\tsh\nState:\t{state} ({word})\nTgid:\t7\n")), "{status}");
            assert!(status.contains("\nVmSize:\t36 kB\nVmRSS:\t36 kB\n"), "{status}");
        }
    }

    #[test]
    fn a_process_without_a_command_line_has_an_empty_one() {
        let line = ProcessLine { command_line: String::new(), ..line() };
        assert_eq!(process_file("cmdline", &line, None).as_deref(), Some(""));
    }

    #[test]
    fn the_machine_tells_its_memory_in_kib_and_its_time_in_seconds() {
        let machine = Machine {
            uptime_ns: 62_047_000_000,
            pages_used: 10,
            pages_free: 7,
            pages_of_files: 5,
            ..Machine::default()
        };
        let memory = system_file("meminfo", &machine).unwrap();
        let numbers: Vec<_> = memory.lines().map(|line| line.split_whitespace().nth(1).unwrap()).collect();
        assert_eq!(numbers, ["68", "28", "28", "0", "20", "20", "0", "0"], "{memory}");
        assert_eq!(system_file("uptime", &machine).as_deref(), Some("62.04 0.00\n"));
    }
}
