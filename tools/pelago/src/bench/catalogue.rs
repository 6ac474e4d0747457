//! Every row there is: where its figures come from, in what unit, what it can be trusted for, and
//! which paper's figure it belongs to.

use super::clients::Load;
use super::outside::Experiment;
use super::results::{Unit, host_cores};
use super::servers::{Server, Syncs};
use crate::image::machine_type::MachineType;
use serde::{Deserialize, Serialize};

/// What a figure can be trusted for; docs/measuring.md says how that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trust {
    /// The ratio of the two systems, within the printed spread, on a quiet host. Not the absolute
    /// figure.
    Time,
    /// The number itself.
    Instructions,
    /// Only whether it rises or falls: more virtual processors than the host has cores.
    Shape,
}

impl Trust {
    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Trust::Time => "time",
            Trust::Instructions => "instructions",
            Trust::Shape => "shape",
        }
    }
}

/// How a figure is made of nanoseconds per operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    AsItIs,
    /// Operations per second.
    Rate,
    /// An operation moves this many bytes.
    Bytes(usize),
}

impl Made {
    /// The figure.
    pub fn figure(self, ns: f64) -> f64 {
        match self {
            Made::AsItIs => ns,
            Made::Rate => 1e9 / ns,
            Made::Bytes(bytes) => bytes as f64 * 8e3 / ns,
        }
    }
}

/// Where a row comes from.
#[derive(Clone, Copy)]
pub enum Source {
    /// Seen from this machine: which of an experiment's figures.
    Outside { machine: MachineType, experiment: Experiment, figure: usize },
    /// A row of the measuring program (`tools/measure`), in both systems.
    Program { row: &'static str, made: Made },
    /// A row of the measuring program on a disk, in both systems.
    Disk { row: &'static str, is_encrypted: bool },
    /// A row of our own component `bench` (`apps/bench`), and beside it the measuring program's row
    /// that comes nearest in Linux.
    Inside { row: &'static str, beside: Option<&'static str> },
    /// A row of our program `layouts` (`apps/bench`), beside the measuring program's row of the
    /// same work.
    Layouts { row: &'static str, beside: &'static str },
}

/// One row.
pub struct Entry {
    pub name: &'static str,
    pub unit: Unit,
    /// Instructions are counted too, on one core.
    pub counts: bool,
    pub paper: &'static str,
    pub source: Source,
}

impl Entry {
    /// Units of its rows at that number of cores.
    pub fn units(&self, cpus: u32) -> Vec<Unit> {
        let faults = self.by_name().then_some(Unit::Faults);
        let processor = matches!(self.source, Source::Disk { .. }).then_some(Unit::Us);
        let instructions = (self.counts && cpus == 1).then_some(Unit::Instructions);
        [Some(self.unit), faults, processor, instructions].into_iter().flatten().collect()
    }

    /// Measured only where it is asked for by name: its guests take more memory than the others.
    pub fn by_name(&self) -> bool {
        matches!(self.source, Source::Layouts { .. })
    }

    /// The measuring program's row that is its Linux column.
    pub fn beside(&self) -> Option<&'static str> {
        match self.source {
            Source::Program { row, .. } | Source::Layouts { beside: row, .. } => Some(row),
            Source::Inside { beside, .. } => beside,
            Source::Outside { .. } | Source::Disk { .. } => None,
        }
    }

    /// What its figures can be trusted for.
    pub fn trust_at(&self, unit: Unit, cpus: u32) -> Trust {
        match unit {
            Unit::Instructions | Unit::Faults => Trust::Instructions,
            Unit::MiB => Trust::Time,
            _ if cpus as usize > host_cores() => Trust::Shape,
            _ => Trust::Time,
        }
    }
}

const ALWAYS: Server = Server::RedisAppends(Syncs::Always);
const EVERY_SECOND: Server = Server::RedisAppends(Syncs::EverySecond);
const Q35: MachineType = MachineType::Q35;
const MICROVM: MachineType = MachineType::Microvm;

const fn outside(name: &'static str, unit: Unit, machine: MachineType, experiment: Experiment) -> Entry {
    let source = Source::Outside { machine, experiment, figure: 0 };
    Entry { name, unit, counts: false, paper: "", source }
}

const fn pages(name: &'static str, unit: Unit, load: Load, figure: usize) -> Entry {
    let source = Source::Outside { machine: Q35, experiment: Experiment::Pages(load), figure };
    Entry { name, unit, counts: false, paper: "", source }
}

const fn server(name: &'static str, unit: Unit, server: Server, figure: usize) -> Entry {
    let source = Source::Outside { machine: Q35, experiment: Experiment::Server(server), figure };
    // Instructions of a request stand under the name of the rate.
    Entry { name, unit, counts: matches!(unit, Unit::PerSecond), paper: "", source }
}

/// Its clients are on this machine only, so that nothing is counted.
const fn pgbench(name: &'static str, unit: Unit, figure: usize) -> Entry {
    Entry { counts: false, ..server(name, unit, Server::Postgres, figure) }
}

const fn program(name: &'static str, paper: &'static str) -> Entry {
    Entry { name, unit: Unit::Ns, counts: true, paper, source: Source::Program { row: name, made: Made::AsItIs } }
}

const fn rate(name: &'static str, unit: Unit, made: Made, paper: &'static str) -> Entry {
    Entry { name, unit, counts: true, paper, source: Source::Program { row: name, made } }
}

const fn inside(name: &'static str, row: &'static str, beside: Option<&'static str>) -> Entry {
    Entry { name, unit: Unit::Ns, counts: true, paper: "", source: Source::Inside { row, beside } }
}

/// The name has the row's, and `encrypted` where it is.
const fn disk(name: &'static str, row: &'static str, is_encrypted: bool) -> Entry {
    Entry { name, unit: Unit::Ns, counts: true, paper: "", source: Source::Disk { row, is_encrypted } }
}

/// Several processes beside each other are not told apart in a count.
const fn deep(name: &'static str, row: &'static str, is_encrypted: bool) -> Entry {
    Entry { counts: false, ..disk(name, row, is_encrypted) }
}

const fn layouts(row: &'static str, beside: &'static str, paper: &'static str) -> Entry {
    Entry { name: row, unit: Unit::Ns, counts: true, paper, source: Source::Layouts { row, beside } }
}

/// Bytes of an operation of the measuring program's rows, as it has them.
const DATAGRAM: Made = Made::Bytes(measure_core::network::DATAGRAM_BYTES);
const CHUNK: Made = Made::Bytes(measure_core::network::CHUNK_BYTES);
const TEXT: Made = Made::Bytes(measure_core::words::TEXT_BYTES);

/// All of them, in the order in which they are printed.
pub const ENTRIES: &[Entry] = &[
    outside("power-on-to-first-user/q35", Unit::Ms, Q35, Experiment::FirstUser),
    outside("power-on-to-first-user/microvm", Unit::Ms, MICROVM, Experiment::FirstUser),
    outside("power-on-to-ready/q35", Unit::Ms, Q35, Experiment::Ready),
    outside("power-on-to-ready/microvm", Unit::Ms, MICROVM, Experiment::Ready),
    outside("power-on-to-first-output/q35", Unit::Ms, Q35, Experiment::FirstOutput),
    outside("power-on-to-first-page/q35", Unit::Ms, Q35, Experiment::FirstPage),
    outside("power-on-to-first-page/microvm", Unit::Ms, MICROVM, Experiment::FirstPage),
    outside("idle-host-cpu/q35", Unit::Percent, Q35, Experiment::Idle),
    outside("idle-memory-touched/q35", Unit::MiB, Q35, Experiment::IdleMemory),
    pages("page-keep-alive/q35", Unit::PerSecond, Load::Kept, 0),
    pages("page-per-connection/q35", Unit::PerSecond, Load::Single, 0),
    pages("cpu-per-request/keep-alive/q35", Unit::Us, Load::Kept, 1),
    pages("cpu-per-request/per-connection/q35", Unit::Us, Load::Single, 1),
    pages("page-per-connection/busybox-httpd/q35", Unit::PerSecond, Load::Busybox, 0),
    pages("cpu-per-request/busybox-httpd/q35", Unit::Us, Load::Busybox, 1),
    server("redis-get/1-client", Unit::PerSecond, Server::Redis, 0),
    server("redis-set/1-client", Unit::PerSecond, Server::Redis, 2),
    server("redis-get/50-clients", Unit::PerSecond, Server::Redis, 4),
    server("redis-set/50-clients", Unit::PerSecond, Server::Redis, 6),
    server("cpu-per-request/redis-get/1-client", Unit::Us, Server::Redis, 1),
    server("cpu-per-request/redis-set/1-client", Unit::Us, Server::Redis, 3),
    server("cpu-per-request/redis-get/50-clients", Unit::Us, Server::Redis, 5),
    server("cpu-per-request/redis-set/50-clients", Unit::Us, Server::Redis, 7),
    server("page-keep-alive/nginx", Unit::PerSecond, Server::Nginx, 0),
    server("cpu-per-request/nginx", Unit::Us, Server::Nginx, 1),
    server("page-keep-alive/go", Unit::PerSecond, Server::Go, 0),
    server("cpu-per-request/go", Unit::Us, Server::Go, 1),
    server("page-keep-alive/node", Unit::PerSecond, Server::Node, 0),
    server("cpu-per-request/node", Unit::Us, Server::Node, 1),
    pgbench("pgbench/1-client", Unit::PerSecond, 0),
    pgbench("pgbench/4-clients", Unit::PerSecond, 2),
    pgbench("cpu-per-request/pgbench/1-client", Unit::Us, 1),
    pgbench("cpu-per-request/pgbench/4-clients", Unit::Us, 3),
    program("known-loop", ""),
    program("getpid", ""),
    program("getppid", ""),
    program("dup-close/threads", "Corey fig. 1"),
    program("dup-close/processes", "Corey fig. 1"),
    program("pipe-round-trip", ""),
    program("pipe-round-trip/two-cores", ""),
    program("unix-socket-round-trip", ""),
    program("futex-round-trip/processes", ""),
    program("futex-round-trip/threads", ""),
    program("eventfd-round-trip/threads", ""),
    program("epoll-wait/level/10-idle", ""),
    program("epoll-wait/level/1000-idle", ""),
    program("epoll-wait/edge/10-idle", ""),
    program("epoll-wait/edge/1000-idle", ""),
    program("thread-create-join", ""),
    program("fork-exit", ""),
    program("fork-exec", ""),
    program("page-touch/threads", "Corey fig. 7a"),
    program("page-touch/processes", "Corey fig. 7a"),
    program("mprotect-cycle", "Barrelfish fig. 7"),
    rate("udp-loopback", Unit::MegabitsPerSecond, DATAGRAM, ""),
    program("tcp-request", ""),
    rate("tcp-stream", Unit::MegabitsPerSecond, CHUNK, ""),
    rate("tcp-connections", Unit::PerSecond, Made::Rate, "Corey fig. 8"),
    rate("word-index", Unit::MegabitsPerSecond, TEXT, "Corey fig. 10"),
    server("disk-redis-set/always/1-client", Unit::PerSecond, ALWAYS, 0),
    server("disk-redis-set/always/50-clients", Unit::PerSecond, ALWAYS, 2),
    server("disk-redis-set/everysec/1-client", Unit::PerSecond, EVERY_SECOND, 0),
    server("disk-redis-set/everysec/50-clients", Unit::PerSecond, EVERY_SECOND, 2),
    server("cpu-per-request/disk-redis-set/always/1-client", Unit::Us, ALWAYS, 1),
    server("cpu-per-request/disk-redis-set/always/50-clients", Unit::Us, ALWAYS, 3),
    server("cpu-per-request/disk-redis-set/everysec/1-client", Unit::Us, EVERY_SECOND, 1),
    server("cpu-per-request/disk-redis-set/everysec/50-clients", Unit::Us, EVERY_SECOND, 3),
    disk("disk-read/cached/4k", "disk-read/cached/4k", false),
    disk("disk-read/cached-16m/4k", "disk-read/cached-16m/4k", false),
    disk("disk-read/sequential/4k", "disk-read/sequential/4k", false),
    disk("disk-read/sequential/1m", "disk-read/sequential/1m", false),
    disk("disk-read/random/4k", "disk-read/random/4k", false),
    disk("disk-read/random/64k", "disk-read/random/64k", false),
    deep("disk-read/random/4k/32", "disk-read/random/4k/32", false),
    disk("disk-write/sequential/4k", "disk-write/sequential/4k", false),
    disk("disk-write/sequential/1m", "disk-write/sequential/1m", false),
    disk("disk-write/random/4k", "disk-write/random/4k", false),
    disk("disk-sync/4k", "disk-sync/4k", false),
    deep("disk-sync/4k/32", "disk-sync/4k/32", false),
    disk("disk-create-unlink", "disk-create-unlink", false),
    disk("disk-sqlite-insert", "disk-sqlite-insert", false),
    disk("disk-sqlite-transaction", "disk-sqlite-transaction", false),
    program("disk-cipher/4k", ""),
    disk("disk-read/cached/4k/encrypted", "disk-read/cached/4k", true),
    disk("disk-read/sequential/4k/encrypted", "disk-read/sequential/4k", true),
    disk("disk-read/sequential/1m/encrypted", "disk-read/sequential/1m", true),
    disk("disk-read/random/4k/encrypted", "disk-read/random/4k", true),
    disk("disk-read/random/64k/encrypted", "disk-read/random/64k", true),
    deep("disk-read/random/4k/32/encrypted", "disk-read/random/4k/32", true),
    disk("disk-write/sequential/4k/encrypted", "disk-write/sequential/4k", true),
    disk("disk-write/sequential/1m/encrypted", "disk-write/sequential/1m", true),
    disk("disk-write/random/4k/encrypted", "disk-write/random/4k", true),
    disk("disk-sync/4k/encrypted", "disk-sync/4k", true),
    deep("disk-sync/4k/32/encrypted", "disk-sync/4k/32", true),
    disk("disk-create-unlink/encrypted", "disk-create-unlink", true),
    disk("disk-sqlite-insert/encrypted", "disk-sqlite-insert", true),
    inside("inside/null-call", "null-call", Some("getppid")),
    inside("inside/portal-call-and-reply", "portal-call-and-reply", Some("futex-round-trip/processes")),
    inside("inside/portal-call-through-3-servers", "portal-call-through-3-servers", None),
    inside("inside/portal-call-helping", "portal-call-helping", None),
    inside("inside/notify", "notify", None),
    inside("inside/notify-and-be-notified", "notify-and-be-notified", Some("futex-round-trip/processes")),
    inside("inside/semaphore-down-and-up", "semaphore-down-and-up", None),
    inside("inside/semaphore-round-trip", "semaphore-round-trip", Some("futex-round-trip/processes")),
    inside("inside/user-semaphore-down-and-up", "user-semaphore-down-and-up", None),
    inside("inside/user-semaphore-round-trip", "user-semaphore-round-trip", Some("futex-round-trip/threads")),
    inside("inside/user-thread-switch", "user-thread-switch", Some("futex-round-trip/threads")),
    inside("inside/user-thread-create-join", "user-thread-create-join", Some("thread-create-join")),
    inside("inside/mailbox-ring", "mailbox-ring", Some("futex-round-trip/processes")),
    inside("inside/contract-call-same-core", "contract-call-same-core", Some("unix-socket-round-trip")),
    inside("inside/contract-call-same-core-batched", "contract-call-same-core-batched", Some("unix-socket-round-trip")),
    inside("inside/contract-call-between-cores", "contract-call-between-cores", Some("pipe-round-trip/two-cores")),
    inside("inside/wake-up-of-sleeping-core", "wake-up-of-sleeping-core", None),
    inside("inside/ping-monitor", "ping-monitor", None),
    Entry { counts: false, ..inside("inside/gang-skew", "gang-skew", None) },
    inside("inside/demand-zero-page", "demand-zero-page", Some("page-touch/threads")),
    inside("inside/shared-page", "shared-page", None),
    inside("inside/copy-on-write-page", "copy-on-write-page", None),
    inside("inside/range-insert", "range-insert", None),
    inside("inside/range-remove", "range-remove", None),
    inside("inside/range-nest", "range-nest", None),
    inside("inside/range-unnest", "range-unnest", None),
    inside("inside/large-page", "large-page", None),
    Entry { paper: "Corey fig. 7a", ..inside("inside/memclone-single", "memclone-single", Some("page-touch/threads")) },
    Entry {
        paper: "Corey fig. 7a",
        ..inside("inside/memclone-separate", "memclone-separate", Some("page-touch/processes"))
    },
    Entry {
        paper: "Corey fig. 7a",
        ..inside("inside/memclone-ranges", "memclone-ranges", Some("page-touch/processes"))
    },
    Entry { paper: "Corey fig. 7b", ..inside("inside/mempass-single", "mempass-single", None) },
    Entry { paper: "Corey fig. 7b", ..inside("inside/mempass-separate", "mempass-separate", None) },
    Entry { paper: "Corey fig. 7b", ..inside("inside/mempass-ranges", "mempass-ranges", None) },
    layouts("memclone/single", "memclone/threads", "Corey fig. 7a"),
    layouts("memclone/separate", "memclone/processes", "Corey fig. 7a"),
    layouts("memclone/mixed", "memclone/processes", "Corey fig. 7a"),
    layouts("mempass/single", "mempass/threads", "Corey fig. 7b"),
    layouts("mempass/separate", "mempass/processes", "Corey fig. 7b"),
    layouts("mempass/mixed", "mempass/threads", "Corey fig. 7b"),
    inside("inside/ram-revoke-page", "ram-revoke-page", None),
    inside("inside/ram-revoke-part", "ram-revoke-part", None),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_the_program_has_its_rows() {
        let known = |row: &str| measure_core::rows::ROWS.iter().any(|other| other.name == row);
        for (index, entry) in ENTRIES.iter().enumerate() {
            assert!(ENTRIES[..index].iter().all(|other| other.name != entry.name), "{}", entry.name);
            assert!(entry.beside().is_none_or(known), "{}", entry.name);
            if let Source::Disk { row, is_encrypted } = entry.source {
                let name = entry.name.strip_suffix("/encrypted");
                assert_eq!((name.unwrap_or(entry.name), name.is_some()), (row, is_encrypted));
                assert!(known(row), "{row}");
            }
        }
    }

    #[test]
    fn every_kept_count_has_its_row() {
        let kept = crate::bench::counts::KeptCounts::read().unwrap();
        let has = |name: &str| {
            ENTRIES.iter().any(|entry| matches!(entry.source, Source::Inside { row, .. } if row == name))
                || name == "known-loop"
        };
        kept.names().for_each(|name| assert!(has(name), "docs/counts.toml has {name}, `bench` has not"));
    }

    #[test]
    fn rates_come_from_times() {
        assert_eq!(Made::Rate.figure(1e6), 1000.0);
        assert_eq!(Made::Bytes(1000).figure(8000.0), 1000.0);
    }

    #[test]
    fn many_cores_show_the_shape_only() {
        let entry = &ENTRIES[0];
        assert_eq!(entry.trust_at(Unit::Ms, 1), Trust::Time);
        assert_eq!(entry.trust_at(Unit::Ms, 255), Trust::Shape);
        assert_eq!(entry.trust_at(Unit::Instructions, 255), Trust::Instructions);
    }
}
