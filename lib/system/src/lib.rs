//! The two files of the boot archive that tell the guest what it is: `etc/system` ([`System`]: the
//! components, laid over cores) and `etc/run` ([`Run`]: the Linux program to start). The host tool
//! writes them, monitor, spawn and supervisor read them.
//!
//! Invariants: both are postcard of the types here, after the four bytes of [`VERSION`]; a reader
//! refuses another version. A [`System`] that the tool wrote is closed (every name used is
//! provided) and listed in boot order, servers before their clients.
//!
//! Deliberately unknown here: TOML, files, the kernel, what a contract says.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod file_name;

use alloc::{collections::BTreeSet, format, string::String, vec::Vec};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Path of the encoded [`System`] in the boot archive.
pub const SYSTEM_PATH: &str = "etc/system";
/// Path of the encoded [`Run`] in the boot archive.
pub const RUN_PATH: &str = "etc/run";
/// Folder of the boot archive with one ELF file per component.
pub const PROGRAM_FOLDER: &str = "sbin";
/// Program of Linux domains.
pub const PROXY: &str = "proxy";
/// Folder of the boot archive that becomes the Linux programs' root directory.
pub const ROOT_FOLDER: &str = "root";
/// Most files, folders and links in it.
pub const ROOT_FILES_MAX: usize = 262_144;
/// Longest name of one, as [`file_name`] has it.
pub const NAME_BYTES_MAX: usize = 255;
/// First bytes of both files; raised when a type below changes.
pub const VERSION: [u8; 4] = *b"PEL7";

/// A limit of memory that says: all that the core has, but a part for what else runs there.
pub const ALL_MEMORY: u32 = u32::MAX;

/// The whole system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct System {
    /// In boot order.
    pub components: Vec<Component>,
    /// What Linux domains get.
    pub linux: Linux,
}

impl System {
    /// File names of the programs that it can start: those of its components, and the proxy if it
    /// gives Linux programs anything to call.
    pub fn programs(&self) -> BTreeSet<&str> {
        let proxy = (!self.linux.uses.is_empty()).then_some(PROXY);
        self.components.iter().map(|component| component.program.as_str()).chain(proxy).collect()
    }
}

/// What every Linux domain is made with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Linux {
    /// Where the first one runs; children run where their parent does.
    pub core: Placement,
    /// As [`Component::priority`].
    pub priority: u8,
    /// As [`Component::memory_limit_pages`].
    pub memory_limit_pages: u32,
    /// Contracts its proxy calls.
    pub uses: Vec<Use>,
}

/// A contract that is called, and whose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// Contract's name.
    pub contract: String,
    /// Component that provides it.
    pub server: String,
}

/// One component: a protection domain, or, if it is a program of several cores, one on each of its
/// cores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Component {
    /// Unique, at most 31 bytes (abi's name fields), for instance `tcp`.
    pub name: String,
    /// File name under `sbin/`.
    pub program: String,
    /// Where it runs.
    pub core: Placement,
    /// Higher runs first; 0 to 63.
    pub priority: u8,
    /// Most time that it has; `None`: as much as is left by those that run first.
    pub budget: Option<Budget>,
    /// Most memory it may hold, in pages of 4096 bytes, or [`ALL_MEMORY`].
    pub memory_limit_pages: u32,
    /// Contracts it serves.
    pub provides: Vec<String>,
    /// Contracts it may call.
    pub uses: Vec<Use>,
    /// Contracts to whose servers it may have itself connected while it runs.
    pub binds: Vec<String>,
    /// What the supervisor does when it ends.
    pub restart: Restart,
    /// Kinds of device it is given, for instance `virtio-net`.
    pub devices: Vec<String>,
    /// How many handlers its device has.
    pub handlers: Handlers,
    /// Memory that outlives it; components that name the same region share it.
    pub regions: Vec<Region>,
    /// Which workers it has for calls of clients of its own core.
    pub workers: Workers,
    /// The kernel keeps vector registers for it.
    pub has_vectors: bool,
}

/// Time of a core: so many microseconds in each period. More is not to be had, not even on an idle
/// core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// 100 to 1,000,000, and at most the period.
    pub slice_us: u32,
    /// At most [`PERIOD_US_MAX`].
    pub period_us: u32,
}

/// The longest period of a budget: between two a component may answer nobody, and those who ask it
/// wait with limits.
pub const PERIOD_US_MAX: u32 = 50_000;

impl Component {
    /// Name and core of each of its domains on a machine with `cores` cores: itself, or a program's
    /// dispatchers, `NAME-CORE`, by core. None if the machine has none of its cores.
    pub fn domains(&self, cores: u32) -> Vec<(String, u32)> {
        match self.core.core_on(cores) {
            Some(core) => Vec::from([(self.name.clone(), core)]),
            None => self.core.cores_on(cores).map(|core| (format!("{}-{core}", self.name), core)).collect(),
        }
    }
}

/// Memory that belongs to the supervisor and is mapped into every component that names it. Kept
/// over restarts, zeroed once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// Unique in the system.
    pub name: String,
    /// A multiple of 4096.
    pub bytes: u32,
    /// Physically contiguous, for devices.
    pub contiguous: bool,
    /// Not mapped: a pool in which components of several cores share kernel objects.
    pub pool: bool,
}

/// Where a component runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// A program of several cores: a dispatcher on every core.
    Every,
    /// The same on those of these cores that the machine has.
    Each(BTreeSet<u32>),
    /// One domain. Entry `i` is the core wished for on a machine with at least `2^i` cores; the
    /// last entry that applies counts.
    Preferred(Vec<u32>),
}

impl Default for Placement {
    fn default() -> Placement {
        Placement::Preferred(Vec::new())
    }
}

impl Placement {
    /// Is it a program of several cores?
    pub fn is_program(&self) -> bool {
        !matches!(self, Placement::Preferred(_))
    }

    /// A program's cores on a machine with `cores` cores, ascending; none for
    /// [`Placement::Preferred`].
    fn cores_on(&self, cores: u32) -> impl Iterator<Item = u32> {
        (0..cores).filter(move |core| match self {
            Placement::Every => true,
            Placement::Each(wanted) => wanted.contains(core),
            Placement::Preferred(_) => false,
        })
    }

    /// The core of the one domain on a machine with `cores` cores; `None` for a program. Always
    /// below `cores` (taken as at least 1).
    pub fn core_on(&self, cores: u32) -> Option<u32> {
        let Placement::Preferred(wishes) = self else { return None };
        let cores = cores.max(1);
        let index = (cores.ilog2() as usize).min(wishes.len().saturating_sub(1));
        Some(wishes.get(index).copied().unwrap_or(0).min(cores - 1))
    }
}

/// Workers of a server: contexts without time of their own, which serve their callers on the
/// callers' time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Workers {
    /// None: it is spoken to by rings only.
    #[default]
    None,
    /// One for all clients of a core.
    Core,
    /// One for each client.
    Client,
}

impl Workers {
    /// Which of the workers a client calls that is the server's so many-th on its core.
    pub fn of_client(self, number: u8) -> Option<u8> {
        match self {
            Workers::None => None,
            Workers::Core => Some(0),
            Workers::Client => Some(number),
        }
    }
}

/// Contexts of a driver that handle its device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Handlers {
    /// One for all that the device does.
    #[default]
    One,
    /// One for what is received, and one, with time of its own, for what is transmitted.
    Two,
}

/// What the supervisor does when a component ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Restart {
    /// Start it again with entrance `Recover`.
    Always,
    /// The system ends with it.
    Never,
}

/// What to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Path in the guest, then arguments; empty: no Linux program, the system serves its own page.
    pub arguments: Vec<String>,
    /// `NAME=value`.
    pub environment: Vec<String>,
    /// Absolute path.
    pub working_directory: String,
    /// Which of the standard streams are a terminal at the host; the others are pipes. For a
    /// machine with a console device: without, all are the terminal on the serial line.
    pub terminals: [bool; 3],
    /// Rows and columns of that terminal's window; 0 where they are not known.
    pub window: (u16, u16),
    /// The volume on the machine's disk, if it has one.
    pub mount: Option<Mount>,
}

/// The file system on the machine's disk, among the files of the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Absolute path of the folder that its root is seen at, without `.`, `..` or a slash at the
    /// end; never the root of all.
    pub path: String,
    /// Nothing is written to it.
    pub is_read_only: bool,
}

/// Why an encoded file was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Written by another version of the tool; remedy: build the archive again.
    Version,
    /// Truncated or damaged; remedy: build the archive again.
    Malformed,
}

/// Encodes a [`System`] or a [`Run`].
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    // Serialising plain data into a growing vector has no way to fail; an empty file is refused by
    // `decode` all the same.
    postcard::to_extend(value, Vec::from(VERSION)).unwrap_or_default()
}

/// Decodes what [`encode`] made.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    let body = bytes.strip_prefix(&VERSION).ok_or(DecodeError::Version)?;
    postcard::from_bytes(body).map_err(|_| DecodeError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn sample() -> System {
        System {
            components: vec![Component {
                name: "ip".into(),
                program: "ip".into(),
                core: Placement::Preferred(vec![0, 1, 2]),
                priority: 40,
                budget: None,
                memory_limit_pages: 1024,
                provides: vec!["ip".into()],
                uses: vec![Use { contract: "network".into(), server: "virtio-net".into() }],
                binds: vec!["files".into()],
                restart: Restart::Always,
                devices: vec![],
                handlers: Handlers::Two,
                regions: vec![Region { name: "ip-state".into(), bytes: 4096, contiguous: false, pool: false }],
                workers: Workers::Client,
                has_vectors: false,
            }],
            linux: Linux::default(),
        }
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        assert_eq!(decode::<System>(&encode(&sample())), Ok(sample()));
    }

    #[test]
    fn a_program_is_what_runs_on_several_cores() {
        let all = [Placement::Every, Placement::Each([1].into()), Placement::default()];
        assert_eq!(all.map(|placement| placement.is_program()), [true, true, false]);
    }

    #[test]
    fn a_client_has_a_worker_of_its_own_or_that_of_its_core_or_none() {
        let of_third = |workers: Workers| workers.of_client(2);
        assert_eq!([Workers::None, Workers::Core, Workers::Client].map(of_third), [None, Some(0), Some(2)]);
    }

    #[test]
    fn a_run_tells_of_its_volume() {
        let mount = Mount { path: "/data".into(), is_read_only: true };
        let run = Run { mount: Some(mount), ..Run::default() };
        assert_eq!(decode::<Run>(&encode(&run)), Ok(run));
    }

    #[test]
    fn damage_is_an_error() {
        let good = encode(&sample());
        assert_eq!(decode::<System>(b"PEL0"), Err(DecodeError::Version));
        for length in 4..good.len() {
            assert_eq!(decode::<System>(&good[..length]), Err(DecodeError::Malformed), "{length} bytes");
        }
    }

    #[test]
    fn programs_are_those_that_can_be_started() {
        let mut system = sample();
        system.components.push(Component { name: "ip-2".into(), ..system.components[0].clone() });
        assert_eq!(Vec::from_iter(system.programs()), ["ip"]);
        system.linux.uses = system.components[0].uses.clone();
        assert_eq!(Vec::from_iter(system.programs()), ["ip", PROXY]);
    }

    #[test]
    fn a_placement_stays_on_the_machine() {
        let wishes = Placement::Preferred(vec![0, 1, 3]);
        let cores: Vec<_> = [0, 1, 2, 3, 4, 8, 255].into_iter().map(|cores| wishes.core_on(cores)).collect();
        assert_eq!(cores, [0, 0, 1, 1, 3, 3, 3].map(Some));
        assert_eq!(Placement::Preferred(vec![]).core_on(4), Some(0));
        assert_eq!(Placement::Preferred(vec![9]).core_on(2), Some(1));
        assert_eq!(Placement::Every.core_on(2), None);
    }

    #[test]
    fn a_program_has_a_domain_on_each_of_its_cores() {
        let of = |core: Placement, cores: u32| {
            let component = Component { core, ..sample().components[0].clone() };
            component.domains(cores).into_iter().map(|(name, core)| format!("{name} {core}")).collect::<Vec<_>>()
        };
        assert_eq!(of(Placement::Preferred(vec![0, 1]), 4), ["ip 1"]);
        assert_eq!(of(Placement::Every, 3), ["ip-0 0", "ip-1 1", "ip-2 2"]);
        assert_eq!(of(Placement::Each([2, 0, 7].into()), 4), ["ip-0 0", "ip-2 2"]);
        assert!(of(Placement::Each([7].into()), 4).is_empty());
    }
}
