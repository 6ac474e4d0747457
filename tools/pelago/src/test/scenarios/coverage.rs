//! Tier 3: flags, commands and options of Linux calls: each row of the proxy's table is tried by a
//! program, made of the table and of the checks in `coverage/`; how is said in `coverage/judge.h`.
//! The same program judges this machine's Linux, so that what we take for Linux's ways is so.

use super::checks;
use crate::host::child;
use crate::test::scenario::Scenario;
use anyhow::{Context, Result, anyhow, bail, ensure};
use flag_table::{Group, Row, State};
use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

// The page of calls needs more of it.
#[allow(dead_code)]
#[path = "../../../../../linux/proxy/src/flag_table.rs"]
mod flag_table;

const HEAD: &str = include_str!("coverage/judge.h");
const CHECKS: &str = concat!(
    include_str!("coverage/files.c"),
    include_str!("coverage/descriptors.c"),
    include_str!("coverage/memory.c"),
    include_str!("coverage/signals.c"),
    include_str!("coverage/processes.c"),
    include_str!("coverage/sockets.c"),
);
const END: &str = include_str!("coverage/end.h");
const LINUX_LIMIT: Duration = Duration::from_secs(90);

pub fn scenarios() -> Vec<Scenario> {
    let of =
        |cpus: u32| Scenario::shared(3, format!("coverage/{cpus}"), move |bench| checks::run(bench, cpus, &program()?));
    let linux = Scenario::shared(3, "coverage/linux".into(), |_| judge_linux());
    [1, 2].map(of).into_iter().chain([linux]).collect()
}

/// This machine's Linux.
fn judge_linux() -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let path = folder.path().join("checks");
    crate::host::files::write(&path, &checks::compile(&program()?)?)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).context("cannot make it a program")?;
    let output = child::output(Command::new(&path).arg("linux"), LINUX_LIMIT)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

/// The program that tries all rows. An error names a row that nothing tries.
fn program() -> Result<String> {
    let (mut values, mut rows) = (String::new(), String::new());
    for group in flag_table::groups().map_err(|line| anyhow!("flag_table.txt: this is no row: {line}"))? {
        for row in &group.rows {
            if row.name.starts_with(|letter: char| letter.is_alphabetic() || letter == '_') {
                let Row { name, value, .. } = row;
                writeln!(values, "#ifdef {name}\n_Static_assert((long)({name}) == {value}, \"{name}\");\n#endif")?;
            }
            writeln!(rows, "    {},", tried(&group, row)?)?;
        }
    }
    Ok(format!("{HEAD}{CHECKS}{values}static const struct row rows[] = {{\n{rows}}};\n{END}"))
}

/// A row as the program has it.
fn tried(group: &Group, row: &Row) -> Result<String> {
    let id = group.id();
    let Row { name, value, as_linux, .. } = row;
    let has = |check: String| CHECKS.contains(&check);
    let (state, error, tries, sees) = match row.state {
        State::Honoured if has(format!("SEEN({id}, {name})")) => {
            ("HONOURED", "0", "0".into(), format!("seen_{id}_{name}"))
        }
        State::Honoured if has(format!("SEES({id})")) => ("HONOURED", "0", "0".into(), format!("sees_{id}")),
        State::WithoutEffect if has(format!("TRY({id})")) => ("WITHOUT_EFFECT", "0", format!("try_{id}"), "0".into()),
        State::Refused(errno) if has(format!("TRY({id})")) => ("REFUSED", errno, format!("try_{id}"), "0".into()),
        _ => bail!("{name} of {id}: nothing in coverage/ tries it"),
    };
    let title = format!("{}: {}", group.calls.first().unwrap_or(&""), group.argument);
    Ok(format!("{{ \"{title}\", \"{name}\", {value}, {state}, {error}, {}, {tries}, {sees} }}", u8::from(*as_linux)))
}

#[cfg(test)]
mod tests {
    use super::flag_table::UNKNOWN;
    use super::*;

    #[test]
    fn every_row_is_tried() {
        let program = program().unwrap();
        let rows: usize = flag_table::groups().unwrap().iter().map(|group| group.rows.len()).sum();
        let table = program.split_once("rows[] = {\n").unwrap().1.split_once("\n};").unwrap().0;
        assert_eq!(table.lines().count(), rows);
    }

    #[test]
    fn a_row_without_a_check_is_found() {
        let group = Group { calls: vec!["open"], argument: "flags", rows: Vec::new() };
        let row = |name, state| Row { name, value: "1", state, as_linux: false, because: "" };
        assert!(tried(&group, &row("O_CLOEXEC", State::Honoured)).unwrap().contains("seen_open_flags_O_CLOEXEC"));
        assert!(tried(&group, &row("O_NOTHING", State::Honoured)).is_err());
        assert!(tried(&group, &row(UNKNOWN, State::Refused("EINVAL"))).unwrap().contains("try_open_flags"));
        let group = Group { argument: "colours", ..group };
        assert!(tried(&group, &row(UNKNOWN, State::Refused("EINVAL"))).is_err());
    }

    /// Headers of Linux, and what the names begin with that have rows.
    const HEADERS: [(&str, &str); 38] = [
        ("asm-generic/fcntl.h", "O_ F_ LOCK_"),
        ("asm-generic/ioctls.h", "TC TIOC FIO"),
        ("asm-generic/mman-common.h", "PROT_ MAP_ MADV_ MS_ MLOCK_"),
        ("asm-generic/mman.h", "MAP_ MCL_"),
        ("asm-generic/poll.h", "POLL"),
        ("asm-generic/resource.h", "RLIMIT_"),
        ("asm-generic/siginfo.h", "SIGEV_"),
        ("asm-generic/signal-defs.h", "SA_"),
        ("asm-generic/socket.h", "SO_"),
        ("linux/capability.h", "_LINUX_CAPABILITY_VERSION_"),
        ("linux/close_range.h", "CLOSE_RANGE_"),
        ("linux/eventpoll.h", "EPOLL"),
        ("linux/fadvise.h", "POSIX_FADV_"),
        ("linux/falloc.h", "FALLOC_FL_"),
        ("linux/fcntl.h", "F_ AT_"),
        ("linux/fs.h", "SEEK_ RENAME_ RWF_ FS_IOC_ SYNC_FILE_RANGE_"),
        ("linux/futex.h", "FUTEX_"),
        ("linux/in.h", "IP_ IPPROTO_"),
        ("linux/in6.h", "IPV6_"),
        ("linux/membarrier.h", "MEMBARRIER_"),
        ("linux/memfd.h", "MFD_"),
        ("linux/mman.h", "MREMAP_ MAP_"),
        ("linux/openat2.h", "RESOLVE_"),
        ("linux/pidfd.h", "PIDFD_"),
        ("linux/prctl.h", "PR_"),
        ("linux/random.h", "GRND_"),
        ("linux/resource.h", "RUSAGE_ PRIO_"),
        ("linux/sched.h", "CLONE_ SCHED_"),
        ("linux/sockios.h", "SIOC"),
        ("linux/stat.h", "STATX_"),
        ("linux/tcp.h", "TCP_"),
        ("linux/time.h", "CLOCK_ ITIMER_ TIMER_"),
        ("linux/timerfd.h", "TFD_"),
        ("linux/udp.h", "UDP_"),
        ("linux/wait.h", "W __W P_"),
        ("linux/xattr.h", "XATTR_CREATE XATTR_REPLACE"),
        ("x86_64-linux-gnu/asm/mman.h", "MAP_"),
        ("x86_64-linux-gnu/asm/prctl.h", "ARCH_"),
    ];

    /// What else they name so: other names of a row, bits together, sizes, what is told, and values
    /// of options that are refused or have none. A star stands for any end.
    const OTHERS: &str = "O_NDELAY F_GETLK64 F_SETLK64 F_SETLKW64 F_LINUX_SPECIFIC_BASE TIOCINQ TIOCPKT_* \
        TIOCSER_TEMT MFD_HUGE_SHIFT MFD_HUGE_MASK MAP_HUGE_SHIFT MAP_HUGE_MASK POLLFREE POLL_BUSY_LOOP SIGEV_MAX_SIZE \
        SIGEV_PAD_SIZE SA_NOMASK SA_ONESHOT SO_*_OLD SO_GET_FILTER SO_DETACH_BPF EPOLL_PACKED AT_FDCWD AT_RECURSIVE \
        SEEK_MAX RWF_SUPPORTED FUTEX_CMD_MASK FUTEX_*_PRIVATE FUTEX_32 FUTEX_WAITV_MAX FUTEX_WAITERS FUTEX_OWNER_DIED \
        FUTEX_TID_MASK FUTEX_BITSET_MATCH_ANY IPPROTO_MAX IP_RECVRETOPTS IP_RECVORIGDSTADDR IP_PMTUDISC_* IP_DEFAULT_* IPV6_FL_* \
        IPV6_FLOWINFO_* IPV6_PRIORITY_* IPV6_TLV_* IPV6_PMTUDISC_* IPV6_PREFER_* IPV6_RECVORIGDSTADDR IPV6_USE_MIN_MTU \
        MEMBARRIER_CMD_SHARED PR_UNALIGN_* PR_FPEMU_* PR_FP_* PR_TIMING_* PR_ENDIAN_* PR_TSC_* PR_MCE_KILL_* PR_SET_MM_* \
        PR_SET_PTRACER_ANY PR_CAP_AMBIENT_* PR_SVE_* PR_SPEC_* PR_PAC_* PR_TAGGED_* PR_MTE_* PR_SYS_* PR_SCHED_CORE_* \
        PR_SME_* PR_SET_VMA_* PRIO_MIN PRIO_MAX CLONE_ARGS_* SCHED_FLAG_* SIOCINQ SIOCGSTAMP SIOCGSTAMPNS SIOCDEVPRIVATE \
        SIOCPROTOPRIVATE STATX_ATTR_* TCP_MSS_* TCP_CM_INQ TCP_REPAIR_* TCP_MD5SIG_* TCP_RECEIVE_ZEROCOPY_* TCP_FLAG_* \
        TCP_RESERVED_BITS TCP_DATA_OFFSET TCP_CA_* UDP_ENCAP_*";

    fn is_other(name: &str) -> bool {
        OTHERS.split_whitespace().any(|other| match other.split_once('*') {
            None => name == other,
            Some((begin, end)) => name.starts_with(begin) && name.ends_with(end),
        })
    }

    /// The name that a line gives a value: by `#define NAME value`, or by `NAME = value` in an
    /// enumeration.
    fn named(line: &str) -> Option<&str> {
        match line.trim_start().strip_prefix('#').map(str::trim_start) {
            Some(directive) => {
                let (name, value) = directive.strip_prefix("define")?.trim_start().split_once(char::is_whitespace)?;
                (!value.trim().is_empty() && !name.contains('(')).then_some(name)
            }
            None => line.split_once('=').map(|(name, _)| name.trim()),
        }
    }

    /// Where this machine's headers are those of Linux 6.1.
    #[test]
    fn every_name_of_the_headers_has_a_row() {
        let read = |name: &str| std::fs::read_to_string(format!("/usr/include/{name}")).unwrap_or_default();
        let version = read("linux/version.h");
        if !["MAJOR 6", "PATCHLEVEL 1"].iter().all(|part| version.contains(&format!("#define LINUX_VERSION_{part}\n")))
        {
            return;
        }
        let groups = flag_table::groups().unwrap();
        let has_row = |name: &str| groups.iter().flat_map(|group| &group.rows).any(|row| row.name == name);
        let mut missing = Vec::new();
        for (header, beginnings) in HEADERS {
            let text = read(header);
            let is_meant = |name: &&str| beginnings.split(' ').any(|begin| name.starts_with(begin));
            let names: Vec<&str> = text.lines().filter_map(named).filter(is_meant).collect();
            assert!(!names.is_empty(), "{header} has none of {beginnings}");
            missing.extend(names.into_iter().filter(|name| !has_row(name) && !is_other(name)).map(str::to_owned));
        }
        assert!(missing.is_empty(), "without a row: {missing:?}");
    }

    #[test]
    fn every_check_is_of_a_row() {
        let groups = flag_table::groups().unwrap();
        let of = |word: &str| CHECKS.match_indices(word).map(|(at, _)| &CHECKS[at + word.len()..]).collect::<Vec<_>>();
        for check in of("\nSEEN(") {
            let (id, name) = check.split_once(')').unwrap().0.split_once(", ").unwrap();
            let is_row = |group: &Group| {
                group.id() == id && group.rows.iter().any(|row| row.name == name && row.state == State::Honoured)
            };
            assert!(groups.iter().any(is_row), "SEEN({id}, {name}) is of no honoured row");
        }
        for check in of("\nTRY(").into_iter().chain(of("\nSEES(")) {
            let id = check.split_once(')').unwrap().0;
            assert!(groups.iter().any(|group| group.id() == id), "{id} is no group");
        }
    }
}
