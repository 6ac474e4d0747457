//! The emulator's command line: one value describes a machine, one function turns it into QEMU's
//! words.
//!
//! q35 and microvm have the network card on PCI: q35 tells its configuration space in ACPI's MCFG;
//! microvm describes it in AML alone, which the kernel does not interpret, so the command line
//! tells it (`pelago.ecam`; QEMU's hw/i386/microvm.c fixes the address). microvm-mmio has no PCI;
//! its card sits behind a virtio-mmio window, named on the command line in Linux's syntax.

use crate::host::path;
use crate::image::machine_type::MachineType;
use anyhow::{Context, Result, bail, ensure};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// The program we run.
pub const PROGRAM: &str = "qemu-system-x86_64";
/// The number of [`Machine::socket`] in the emulator's process.
pub const SOCKET: i32 = 3;
/// The first number of streams' sockets that only this emulator has ([`Machine::streams`]).
pub const STREAMS: i32 = SOCKET + 1;
/// QEMU 7.2 to 9 refuse more without an interrupt remapper.
pub const CPUS_MAX: u32 = 255;
/// What kernel and components need beside the archive and its copy in the file system.
const BASE_MIB: u64 = 40;
/// The kernel's own least share per core.
const MIB_PER_CORE: u64 = 2;
/// What programs are known to need beside the archive and its copy: names, and MiB.
const KNOWN_MIB: [(&str, u64); 2] = [
    // Node 20 starts with 36 and does not with 8.
    ("node", 36),
    ("nodejs", 36),
];
/// How long requests to a block server wait for it to be there again, seconds.
const RECONNECT_S: u32 = 30;
const MICROVM_ECAM: &str = "pelago.ecam=0xe0000000";
/// The second of microvm's windows, and its line at the second I/O APIC (QEMU's
/// include/hw/i386/microvm.h; with ACPI, which is the default). Not the first: QEMU's model moves
/// pin 0 of every I/O APIC to pin 2, as is right for the first APIC's timer.
const MICROVM_WINDOW: &str = "virtio_mmio.device=512@0xfeb00200:25";
/// The third, for the streams.
const MICROVM_STREAMS_WINDOW: &str = "virtio_mmio.device=512@0xfeb00400:26";
/// The fourth, for a disk.
const MICROVM_DISK_WINDOW: &str = "virtio_mmio.device=512@0xfeb00600:27";

impl MachineType {
    /// QEMU's machine and its properties.
    fn model(self) -> &'static str {
        match self {
            MachineType::Q35 => "q35",
            MachineType::Microvm => "microvm,pcie=on,rtc=on",
            MachineType::MicrovmMmio => "microvm,pcie=off,rtc=on",
        }
    }

    /// QEMU's network card. No option ROM: nothing boots from the card, and a QEMU without ROM
    /// files then works too.
    fn card(self) -> &'static [&'static str] {
        match self {
            MachineType::Q35 | MachineType::Microvm => {
                &["-device", "virtio-net-pci,netdev=n0,disable-legacy=on,romfile="]
            }
            MachineType::MicrovmMmio => &[
                "-global",
                "virtio-mmio.force-legacy=false",
                "-device",
                "virtio-net-device,netdev=n0,bus=virtio-mmio-bus.1",
            ],
        }
    }

    /// QEMU's console device.
    fn console(self) -> &'static [&'static str] {
        match self {
            MachineType::Q35 | MachineType::Microvm => {
                &["-device", "virtio-serial-pci,id=s0,disable-legacy=on,max_ports=6"]
            }
            MachineType::MicrovmMmio => &[
                "-global",
                "virtio-mmio.force-legacy=false",
                "-device",
                "virtio-serial-device,id=s0,max_ports=6,bus=virtio-mmio-bus.2",
            ],
        }
    }

    /// QEMU's disk, on the node `d2`, with a cache that the guest flushes.
    fn drive(self) -> &'static [&'static str] {
        match self {
            MachineType::Q35 | MachineType::Microvm => {
                &["-device", "virtio-blk-pci,drive=d2,disable-legacy=on,write-cache=on"]
            }
            MachineType::MicrovmMmio => &[
                "-global",
                "virtio-mmio.force-legacy=false",
                "-device",
                "virtio-blk-device,drive=d2,bus=virtio-mmio-bus.3,write-cache=on",
            ],
        }
    }

    /// What the kernel cannot find out about the machine.
    fn command_line(self) -> Option<&'static str> {
        match self {
            MachineType::Q35 => None,
            MachineType::Microvm => Some(MICROVM_ECAM),
            MachineType::MicrovmMmio => Some(MICROVM_WINDOW),
        }
    }
}

/// How guest instructions run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    Kvm,
    Tcg,
}

impl Accelerator {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Accelerator::Kvm => "KVM",
            Accelerator::Tcg => "emulation",
        }
    }
}

/// What a port is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    #[default]
    Tcp,
    Udp,
}

impl Protocol {
    /// As `-p` and the emulator write it.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        }
    }
}

/// A port of the host that leads to one of the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Address of the host to listen at.
    pub address: Ipv4Addr,
    pub host: u16,
    pub guest: u16,
    pub protocol: Protocol,
}

impl FromStr for Forward {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Forward> {
        let (ports, protocol) = match text.rsplit_once('/') {
            None => (text, Protocol::Tcp),
            Some((ports, "tcp")) => (ports, Protocol::Tcp),
            Some((ports, "udp")) => (ports, Protocol::Udp),
            Some((_, other)) => bail!("`{other}` is no protocol of the guest's; write HOST:GUEST/tcp or /udp"),
        };
        let (rest, guest) = ports.rsplit_once(':').context("write HOST:GUEST, for instance 8080:80")?;
        let (address, host) = match rest.rsplit_once(':') {
            None => (Ipv4Addr::LOCALHOST, rest),
            Some((address, host)) => {
                let remedy = "write for instance 0.0.0.0:8080:80 for all addresses of this machine";
                (address.parse().with_context(|| format!("`{address}` is no IPv4 address; {remedy}"))?, host)
            }
        };
        let port = |text: &str| {
            text.parse().ok().filter(|&port| port != 0).with_context(|| format!("`{text}` is no port number"))
        };
        Ok(Forward { address, host: port(host)?, guest: port(guest)?, protocol })
    }
}

impl Forward {
    /// Leads a port of 127.0.0.1.
    pub fn local(host: u16, guest: u16) -> Forward {
        Forward { address: Ipv4Addr::LOCALHOST, host, guest, protocol: Protocol::Tcp }
    }

    /// Fails with one line if another program has the port.
    pub fn check_free(&self) -> Result<()> {
        let Forward { address, host, guest, protocol } = self;
        let bound = match protocol {
            Protocol::Tcp => TcpListener::bind((*address, *host)).map(drop),
            Protocol::Udp => UdpSocket::bind((*address, *host)).map(drop),
        };
        bound.map_err(|error| {
            let other = host.wrapping_add(1).max(1024);
            let suffix = if *protocol == Protocol::Udp { "/udp" } else { "" };
            anyhow::anyhow!(
                "cannot listen at {address} port {host} ({error}); choose another, for instance -p {other}:{guest}{suffix}"
            )
        })
    }
}

/// A file of the host that is a disk of the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drive {
    pub file: PathBuf,
    pub is_read_only: bool,
}

impl Drive {
    /// The emulator's node `d2`: a raw image whose file it locks. The guest's disk has a cache that
    /// the guest flushes; `no-flush`, which would make nothing of that, is off whatever the
    /// emulator's defaults are.
    fn node(&self) -> String {
        let Drive { file, is_read_only } = self;
        let cache = serde_json::json!({ "direct": false, "no-flush": false });
        let file = serde_json::json!({
            "driver": "file", "filename": file.to_string_lossy(), "locking": "on", "read-only": is_read_only, "cache": cache,
            "discard": "unmap",
        });
        let node = serde_json::json!({
            "driver": "raw", "node-name": "d2", "file": file, "read-only": is_read_only, "cache": cache,
            "discard": "unmap",
        });
        node.to_string()
    }
}

/// A machine to boot.
#[derive(Clone, Debug)]
pub struct Machine {
    pub machine: MachineType,
    pub cpus: u32,
    /// NUMA nodes, which share cores and memory equally; q35 only. 1: the firmware tells of none.
    pub nodes: u32,
    pub memory_bytes: u64,
    pub accelerator: Accelerator,
    pub kernel: PathBuf,
    pub archive: Option<PathBuf>,
    /// Name of the program that it is to run.
    pub program: Option<String>,
    pub forwards: Vec<Forward>,
    /// The emulator's model of a processor, and what is taken from it.
    pub processor: &'static str,
    /// Words for the kernel.
    pub command_line: Vec<String>,
    /// The guest's memory is a file of its own to the host, in small pages, so that what was
    /// touched can be seen (smaps of proc(5)).
    pub shows_memory: bool,
    /// Time is instructions, so many nanoseconds each (a power of two), and one thread of the host
    /// runs all cores in turn: nothing the host does is seen in the guest's times. Emulation only.
    pub instruction_ns: Option<u32>,
    /// Arguments of the plugins that the emulator loads. Emulation only.
    pub plugins: Vec<String>,
    /// What the emulator rolls dice for, and its time of day, are the same at each boot.
    pub is_repeatable: bool,
    /// Sockets that the emulator inherits, one for each port of a console device (`streams`); none:
    /// no such device.
    pub streams: Vec<i32>,
    /// Has a network card.
    pub has_card: bool,
    /// Has a second one, with PCI only, on one cable with the first and nobody else.
    pub has_pair: bool,
    /// Has a disk of so many zeros, with PCI only; 0: none.
    pub disk_bytes: u64,
    /// Has a disk that a block server serves at this local socket (`block`), with PCI only.
    pub block: Option<PathBuf>,
    /// Has a disk with the bytes of a file.
    pub drive: Option<Drive>,
    /// Socket at which the emulator takes commands (QMP).
    pub commands: Option<PathBuf>,
    /// Stay before the first instruction.
    pub paused: bool,
    /// Wait for a debugger on this port of 127.0.0.1.
    pub gdb: Option<u16>,
    /// Record of every write to a register of a device, with the processor that made it; also of
    /// those that tell a disk of requests. Emulation only.
    pub registers: Option<PathBuf>,
    /// Record of every frame at the network card.
    pub pcap: Option<PathBuf>,
    /// Of each frame so many bytes are recorded; none: all.
    pub pcap_frame_bytes: Option<u32>,
    /// Network namespace that the emulator runs in, with its card on the tap there instead of the
    /// emulator's user network.
    pub namespace: Option<String>,
    /// The card's frames go through this socket, each behind its length, instead of the emulator's
    /// user network; the emulator finds it at [`SOCKET`].
    pub socket: Option<Arc<OwnedFd>>,
    /// Ports of this machine (the emulator's, ours) that the card's frames go between, one a
    /// datagram, instead of any network.
    pub frames: Option<(u16, u16)>,
}

impl Machine {
    /// A machine with a kernel and nothing else.
    pub fn new(machine: MachineType, cpus: u32, accelerator: Accelerator) -> Machine {
        Machine {
            machine,
            cpus,
            nodes: 1,
            memory_bytes: 512 << 20,
            accelerator,
            kernel: crate::host::place::kernel(),
            archive: None,
            program: None,
            forwards: Vec::new(),
            // Without ERMS: see docs/decisions/0001-build.md.
            processor: "max,-erms",
            command_line: Vec::new(),
            shows_memory: false,
            instruction_ns: None,
            plugins: Vec::new(),
            is_repeatable: false,
            streams: Vec::new(),
            has_card: true,
            has_pair: false,
            disk_bytes: 0,
            block: None,
            drive: None,
            commands: None,
            paused: false,
            gdb: None,
            registers: None,
            pcap: None,
            pcap_frame_bytes: None,
            namespace: None,
            socket: None,
            frames: None,
        }
    }

    /// Fails with one line that says what to do if the machine cannot work.
    pub fn check(&self) -> Result<()> {
        let cpus = self.cpus;
        ensure!((1..=CPUS_MAX).contains(&cpus), "--cpus {cpus}: the emulator takes 1 to {CPUS_MAX}; choose fewer");
        ensure!(
            path::find(PROGRAM).is_some(),
            "{PROGRAM} is missing; install it, for instance: apt-get install qemu-system-x86"
        );
        let archive_bytes = self.archive.as_ref().and_then(|path| path.metadata().ok()).map_or(0, |data| data.len());
        // The archive's files are copied into the guest's file system, so they count twice.
        let mut needed_mib = BASE_MIB + MIB_PER_CORE * u64::from(cpus) + (2 * archive_bytes).div_ceil(1 << 20);
        let known = KNOWN_MIB.iter().find(|(name, _)| self.program.as_deref() == Some(name));
        let for_program = known.map(|(name, mib)| {
            needed_mib += mib;
            format!(", what is copied in and what {name} needs")
        });
        let whose = for_program.unwrap_or_else(|| " and what is copied in".into());
        let given_mib = self.memory_bytes >> 20;
        ensure!(
            given_mib >= needed_mib,
            "{given_mib} MiB of memory is too little for {cpus} cores{whose}; give -m {needed_mib}M or more"
        );
        if let Some(port) = self.gdb {
            TcpListener::bind(("127.0.0.1", port)).map_err(|error| {
                anyhow::anyhow!(
                    "the debugger's port {port} is taken ({error}); choose another: --gdb={}",
                    port.wrapping_add(1).max(1024)
                )
            })?;
        }
        self.forwards.iter().try_for_each(Forward::check_free)
    }

    /// Its instructions are counted or are its time.
    pub fn is_instrumented(&self) -> bool {
        self.instruction_ns.is_some() || !self.plugins.is_empty()
    }

    /// QEMU's arguments.
    pub fn arguments(&self) -> Vec<String> {
        let mut words = Vec::new();
        self.add_machine(&mut words);
        // Devices get their addresses in this order.
        self.add_card(&mut words);
        self.add_console(&mut words);
        self.add_second_card(&mut words);
        self.add_disks(&mut words);
        self.add_instruments(&mut words);
        self.add_kernel(&mut words);
        words
    }

    /// Processors, memory, clock, and what every machine has.
    fn add_machine(&self, words: &mut Vec<String>) {
        let machine = self.machine.model();
        let size = format!("{}M", self.memory_bytes >> 20);
        if self.shows_memory {
            add(words, &["-object", &format!("memory-backend-memfd,id=m,size={size}")]);
            add(words, &["-M", &format!("{machine},memory-backend=m")]);
        } else {
            add(words, &["-M", machine]);
        }
        let accelerator = match self.accelerator {
            _ if self.instruction_ns.is_some() => "tcg,thread=single",
            Accelerator::Kvm => "kvm",
            Accelerator::Tcg => "tcg,thread=multi",
        };
        add(words, &["-accel", accelerator, "-cpu", self.processor]);
        if let Some(ns) = self.instruction_ns {
            add(words, &["-icount", &format!("shift={},sleep=off", ns.ilog2())]);
        }
        if self.is_repeatable {
            add(words, &["-seed", "1", "-rtc", "base=2024-01-01,clock=vm"]);
        }
        self.plugins.iter().for_each(|plugin| add(words, &["-plugin", plugin]));
        add(words, &["-smp", &self.cpus.to_string(), "-m", &size]);
        if self.nodes > 1 {
            words.extend(self.numa());
        }
        add(words, &["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"]);
        add(words, &["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
    }

    fn add_card(&self, words: &mut Vec<String>) {
        if self.has_card {
            add(words, &["-netdev", &self.network()]);
            add(words, self.machine.card());
        }
    }

    /// A card on the first one's cable.
    fn add_second_card(&self, words: &mut Vec<String>) {
        if self.has_pair {
            add(words, &["-netdev", "hubport,id=n1,hubid=0"]);
            add(words, &["-device", "virtio-net-pci,netdev=n1,disable-legacy=on,romfile="]);
        }
    }

    /// The device with the standard streams, a port each.
    fn add_console(&self, words: &mut Vec<String>) {
        if self.streams.is_empty() {
            return;
        }
        add(words, self.machine.console());
        for (port, socket) in (1..).zip(&self.streams) {
            add(words, &["-chardev", &format!("socket,id=c{port},fd={socket}")]);
            add(words, &["-device", &format!("virtserialport,bus=s0.0,nr={port},chardev=c{port}")]);
        }
    }

    fn add_disks(&self, words: &mut Vec<String>) {
        if self.disk_bytes > 0 {
            add(words, &["-blockdev", &format!("driver=null-co,node-name=d0,size={},read-zeroes=on", self.disk_bytes)]);
            add(words, &["-device", "virtio-blk-pci,drive=d0,disable-legacy=on"]);
        }
        if let Some(path) = &self.block {
            let server = format!("server.type=unix,server.path={}", path.display());
            let node = format!("driver=nbd,node-name=d1,{server},reconnect-delay={RECONNECT_S},discard=unmap");
            add(words, &["-blockdev", &node, "-device", "virtio-blk-pci,drive=d1,disable-legacy=on"]);
        }
        if let Some(drive) = &self.drive {
            add(words, &["-blockdev", &drive.node()]);
            add(words, self.machine.drive());
        }
    }

    /// What looks at the machine or commands it.
    fn add_instruments(&self, words: &mut Vec<String>) {
        if let Some(path) = &self.commands {
            add(words, &["-qmp", &format!("unix:{},server=on,wait=off", path.display())]);
        }
        if let Some(path) = &self.pcap {
            let most = self.pcap_frame_bytes.map(|bytes| format!(",maxlen={bytes}")).unwrap_or_default();
            add(words, &["-object", &format!("filter-dump,id=f0,netdev=n0,file={}{most}", path.display())]);
        }
        if let Some(path) = &self.registers {
            add(words, &["-trace", "memory_region_ops_write", "-D", &path.display().to_string()]);
            // Else the emulator hands such a write on before it is traced.
            add(words, &["-global", "virtio-blk-pci.ioeventfd=off"]);
        }
        if let Some(port) = self.gdb {
            add(words, &["-gdb", &format!("tcp:127.0.0.1:{port}")]);
        }
        if self.gdb.is_some() || self.paused {
            add(words, &["-S"]);
        }
    }

    fn add_kernel(&self, words: &mut Vec<String>) {
        add(words, &["-kernel", &self.kernel.to_string_lossy()]);
        if let Some(archive) = &self.archive {
            add(words, &["-initrd", &archive.to_string_lossy()]);
        }
        let mut line = self.command_line.clone();
        line.extend(self.machine.command_line().map(str::to_owned));
        if self.machine == MachineType::MicrovmMmio && !self.streams.is_empty() {
            line.push(MICROVM_STREAMS_WINDOW.to_owned());
        }
        if self.machine == MachineType::MicrovmMmio && self.drive.is_some() {
            line.push(MICROVM_DISK_WINDOW.to_owned());
        }
        if !line.is_empty() {
            add(words, &["-append", &line.join(" ")]);
        }
    }

    /// Nodes in a line, each as far from the next as firmware says of two sockets.
    fn numa(&self) -> Vec<String> {
        let (cpus, mib) = (self.cpus / self.nodes, (self.memory_bytes >> 20) / u64::from(self.nodes));
        let mut words = Vec::new();
        for node in 0..self.nodes {
            let (first, last) = (node * cpus, if node + 1 == self.nodes { self.cpus } else { (node + 1) * cpus } - 1);
            words.extend(["-object".into(), format!("memory-backend-ram,id=m{node},size={mib}M")]);
            words.extend(["-numa".into(), format!("node,nodeid={node},cpus={first}-{last},memdev=m{node}")]);
        }
        for (source, target) in (0..self.nodes).flat_map(|source| (0..self.nodes).map(move |target| (source, target))) {
            let distance = 10 + 10 * source.abs_diff(target);
            words.extend(["-numa".into(), format!("dist,src={source},dst={target},val={distance}")]);
        }
        words
    }

    /// What is behind the network card.
    fn network(&self) -> String {
        if self.has_pair {
            return "hubport,id=n0,hubid=0".into();
        }
        if self.socket.is_some() {
            return format!("stream,id=n0,server=off,addr.type=fd,addr.str={SOCKET}");
        }
        match (&self.namespace, self.frames) {
            (Some(_), _) => format!("tap,id=n0,ifname={},script=no,downscript=no", crate::host::namespace::TAP),
            (None, None) => self.user_network(),
            (None, Some((emulator, ours))) => {
                let local = format!("local.type=inet,local.host=127.0.0.1,local.port={emulator}");
                let remote = format!("remote.type=inet,remote.host=127.0.0.1,remote.port={ours}");
                format!("dgram,id=n0,{local},{remote}")
            }
        }
    }

    fn user_network(&self) -> String {
        self.forwards.iter().fold("user,id=n0".to_owned(), |text, forward| {
            let Forward { address, host, guest, protocol } = forward;
            text + &format!(",hostfwd={}:{address}:{host}-:{guest}", protocol.name())
        })
    }
}

fn add(words: &mut Vec<String>, more: &[&str]) {
    words.extend(more.iter().map(|&word| word.to_owned()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_are_read_as_docker_writes_them() {
        assert_eq!("8080:80".parse::<Forward>().unwrap(), Forward::local(8080, 80));
        assert_eq!("8080:80/tcp".parse::<Forward>().unwrap(), Forward::local(8080, 80));
        let all = Forward { address: Ipv4Addr::UNSPECIFIED, ..Forward::local(8080, 80) };
        assert_eq!("0.0.0.0:8080:80".parse::<Forward>().unwrap(), all);
        for bad in ["80", "a:80", "0:80", "80:70000", "1:2/sctp", ":", "", "localhost:1:2", ":1:2"] {
            assert!(bad.parse::<Forward>().is_err(), "{bad}");
        }
        let udp = Forward { protocol: Protocol::Udp, ..Forward::local(5353, 53) };
        assert_eq!("5353:53/udp".parse::<Forward>().unwrap(), udp);
    }

    #[test]
    fn ports_are_opened_to_this_machine_only() {
        let mut machine = Machine::new(MachineType::Q35, 1, Accelerator::Tcg);
        machine.forwards.push("8080:80".parse().unwrap());
        assert!(machine.arguments().contains(&"user,id=n0,hostfwd=tcp:127.0.0.1:8080-:80".to_owned()));
        let (end, _) = std::os::unix::net::UnixStream::pair().unwrap();
        machine.socket = Some(Arc::new(end.into()));
        assert!(machine.arguments().contains(&"stream,id=n0,server=off,addr.type=fd,addr.str=3".to_owned()));
    }

    #[test]
    fn a_disk_is_locked_and_its_flushes_count() {
        for (kind, device) in [(MachineType::Q35, "virtio-blk-pci"), (MachineType::MicrovmMmio, "virtio-blk-device")] {
            let drive = Drive { file: "/a,b:c".into(), is_read_only: true };
            let machine = Machine { drive: Some(drive), ..Machine::new(kind, 1, Accelerator::Tcg) };
            let words = machine.arguments();
            let behind = |option: &str| words.iter().skip_while(|word| *word != option).nth(1).unwrap().as_str();
            let node: serde_json::Value = serde_json::from_str(behind("-blockdev")).unwrap();
            assert_eq!((&node["file"]["filename"], &node["file"]["locking"]), (&"/a,b:c".into(), &"on".into()));
            for part in [&node, &node["file"]] {
                assert_eq!((&part["cache"]["no-flush"], &part["read-only"]), (&false.into(), &true.into()));
            }
            let device = words.iter().find(|word| word.starts_with(device)).unwrap();
            assert!(device.contains("drive=d2") && device.contains("write-cache=on"), "{device}");
        }
    }

    #[test]
    fn a_machine_that_cannot_work_is_refused() {
        let machine = |cpus, memory_mib: u64| Machine {
            memory_bytes: memory_mib << 20,
            ..Machine::new(MachineType::Q35, cpus, Accelerator::Tcg)
        };
        assert!(machine(256, 4096).check().is_err());
        assert!(machine(4, 16).check().is_err());
        assert!(machine(4, 512).check().is_ok());
        // What a program is known to need is told with what to give, and that is enough.
        for (name, mib) in KNOWN_MIB {
            let of = |memory_mib| Machine { program: Some(name.into()), ..machine(2, memory_mib) };
            let enough = BASE_MIB + 2 * MIB_PER_CORE + mib;
            let problem = of(enough - 1).check().unwrap_err().to_string();
            let words = [format!("what {name} needs"), format!("give -m {enough}M or more")];
            assert!(words.iter().all(|words| problem.contains(words)), "{problem}");
            assert!(of(enough).check().is_ok());
        }
    }

    #[test]
    fn a_port_in_use_is_refused() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let text = format!("127.0.0.1:{}:80", other.local_addr().unwrap().port());
        let message = text.parse::<Forward>().unwrap().check_free().unwrap_err().to_string();
        assert!(message.contains("choose another"), "{message}");
    }
}
