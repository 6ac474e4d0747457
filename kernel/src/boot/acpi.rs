//! The static ACPI tables: which cores, I/O APICs, memory affinities and PCI configuration windows
//! there are (ACPI 6.4, chapter 5.2).
//!
//! Every table is bounds-checked and its checksum verified before a field is believed; a broken or
//! missing table means fewer facts, never wrong ones. AML is not interpreted: devices it alone
//! describes come from the command line. Zero bytes are an empty [`Facts`].

use super::info::{CORES_MAX, CoreEntry};
use crate::memory::PhysRange;

/// Reads physical memory; `None` where there is none.
pub type Read<'a> = &'a dyn Fn(u64, usize) -> Option<&'a [u8]>;

/// Most entries of RSDT or XSDT looked at.
const TABLES_MAX: usize = 64;
/// Longest table believed, in bytes; 255 cores need about 16 KiB.
const TABLE_BYTES_MAX: usize = 1 << 20;
const HEADER_BYTES: usize = 36;
/// Nodes with distances of their own; others are taken to be equally far from all.
pub const NODES_MAX: usize = 16;
/// Distances where no SLIT tells them (ACPI 6.4, 5.2.17): of a node to itself, and to any other.
const NEAR: u8 = 10;
const FAR: u8 = 20;

/// An I/O APIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoApic {
    /// Physical address of its registers.
    pub base: u64,
    /// First global interrupt line it serves.
    pub first_line: u32,
}

/// Memory that belongs to a NUMA node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Affinity {
    /// The memory.
    pub range: PhysRange,
    /// Its node.
    pub node: u32,
}

/// A PCI segment's configuration window (segment 0 only).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ecam {
    /// Physical address of bus 0's part; 0 if there is none.
    pub base: u64,
    /// First bus served.
    pub first_bus: u8,
    /// Last bus served.
    pub last_bus: u8,
}

/// How far nodes are from each other, as SLIT tells it; all zero: it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Distances([[u8; NODES_MAX]; NODES_MAX]);

impl Distances {
    /// From a core of node `from` to memory of node `to`; 10 is its own.
    pub fn between(&self, from: u32, to: u32) -> u8 {
        let told = self.0.get(from as usize).and_then(|row| row.get(to as usize)).copied().unwrap_or(0);
        match told {
            0 if from == to => NEAR,
            0 => FAR,
            told => told,
        }
    }

    /// Notes a distance; of nodes past [`NODES_MAX`] none is known.
    pub fn set(&mut self, from: u32, to: u32, distance: u8) {
        if let Some(known) = self.0.get_mut(from as usize).and_then(|row| row.get_mut(to as usize)) {
            *known = distance;
        }
    }
}

/// A list with a bound; what does not fit is counted.
#[derive(Clone, Copy)]
pub struct Bounded<T, const N: usize> {
    entries: [T; N],
    count: usize,
    /// How many entries did not fit.
    pub lost: usize,
}

impl<T: Copy, const N: usize> Bounded<T, N> {
    /// Adds an entry, or counts it as lost.
    pub fn push(&mut self, entry: T) {
        match self.entries.get_mut(self.count) {
            Some(slot) => {
                *slot = entry;
                self.count += 1;
            }
            None => self.lost += 1,
        }
    }

    /// The entries.
    pub fn all(&self) -> &[T] {
        &self.entries[..self.count]
    }

    /// The entries, to change.
    pub fn all_mut(&mut self) -> &mut [T] {
        &mut self.entries[..self.count]
    }
}

impl<T: Copy + Default, const N: usize> Default for Bounded<T, N> {
    fn default() -> Self {
        Bounded { entries: [T::default(); N], count: 0, lost: 0 }
    }
}

/// What the tables say.
#[derive(Default)]
pub struct Facts {
    /// Enabled cores in table order.
    pub cores: Bounded<CoreEntry, CORES_MAX>,
    /// I/O APICs.
    pub ioapics: Bounded<IoApic, 8>,
    core_nodes: Bounded<CoreEntry, CORES_MAX>,
    /// Memory affinities.
    pub affinities: Bounded<Affinity, 32>,
    /// How far nodes are from each other.
    pub distances: Distances,
    /// PCI configuration space.
    pub ecam: Ecam,
    /// Local APIC registers (xAPIC mode); 0 if the tables do not say.
    pub local_apic: u64,
    /// A FADT was found with HW_REDUCED_ACPI: no legacy PC hardware is promised.
    pub hardware_reduced: bool,
    /// Whether a MADT was found at all.
    pub has_madt: bool,
}

impl Facts {
    /// Reads all tables reachable from the RSDP at `rsdp`.
    pub fn decode(&mut self, rsdp: u64, read: Read<'_>) {
        let Some((root, entry_bytes)) = decode_rsdp(rsdp, read) else { return };
        let Some(table) = table_at(root, read) else { return };
        for entry in table[HEADER_BYTES..].chunks_exact(entry_bytes).take(TABLES_MAX) {
            let address = if entry_bytes == 8 { field64(entry, 0) } else { field32(entry, 0).map(u64::from) };
            let Some(table) = address.and_then(|address| table_at(address, read)) else { continue };
            match &table[..4] {
                b"APIC" => self.decode_madt(table),
                b"SRAT" => self.decode_srat(table),
                b"SLIT" => self.decode_slit(table),
                b"MCFG" => self.decode_mcfg(table),
                b"FACP" => self.hardware_reduced = field32(table, 112).is_some_and(|flags| flags & 1 << 20 != 0),
                _ => {}
            }
        }
        self.join_nodes();
    }

    fn decode_madt(&mut self, table: &[u8]) {
        self.has_madt = true;
        self.local_apic = field32(table, 36).map_or(0, u64::from);
        for (kind, entry) in entries(table, 44) {
            match kind {
                0 => self.add_core(entry.get(3).map(|id| u32::from(*id)), field32(entry, 4)),
                9 => self.add_core(field32(entry, 4), field32(entry, 8)),
                1 => {
                    let (base, first_line) = (field32(entry, 4), field32(entry, 8));
                    if let (Some(base), Some(first_line)) = (base, first_line) {
                        self.ioapics.push(IoApic { base: u64::from(base), first_line });
                    }
                }
                5 => self.local_apic = field64(entry, 4).unwrap_or(self.local_apic),
                _ => {}
            }
        }
    }

    /// Bit 0 of the flags is "enabled". A core listed both as APIC and as x2APIC counts once.
    fn add_core(&mut self, apic_id: Option<u32>, flags: Option<u32>) {
        let (Some(apic_id), Some(flags)) = (apic_id, flags) else { return };
        if flags & 1 != 0 && self.cores.all().iter().all(|core| core.apic_id != apic_id) {
            self.cores.push(CoreEntry { apic_id, node: 0 });
        }
    }

    fn decode_srat(&mut self, table: &[u8]) {
        for (kind, entry) in entries(table, 48) {
            match kind {
                0 if field32(entry, 4).is_some_and(|flags| flags & 1 != 0) && entry.len() >= 12 => {
                    let node = u32::from_le_bytes([entry[2], entry[9], entry[10], entry[11]]);
                    self.core_nodes.push(CoreEntry { apic_id: u32::from(entry[3]), node });
                }
                2 if field32(entry, 12).is_some_and(|flags| flags & 1 != 0) => {
                    if let (Some(node), Some(apic_id)) = (field32(entry, 4), field32(entry, 8)) {
                        self.core_nodes.push(CoreEntry { apic_id, node });
                    }
                }
                1 if field32(entry, 28).is_some_and(|flags| flags & 1 != 0) => {
                    if let (Some(node), Some(base), Some(bytes)) =
                        (field32(entry, 2), field64(entry, 8), field64(entry, 16))
                    {
                        self.affinities.push(Affinity { range: PhysRange::new(base, bytes), node });
                    }
                }
                _ => {}
            }
        }
    }

    /// A square of bytes, row by row. A distance of 255 means "unreachable", below 10 nothing.
    fn decode_slit(&mut self, table: &[u8]) {
        let Some(nodes) = field64(table, 36).and_then(|nodes| usize::try_from(nodes).ok()).filter(|nodes| *nodes > 0)
        else {
            return;
        };
        let rows = table.get(44..).unwrap_or(&[]).chunks_exact(nodes);
        for (from, row) in (0..).zip(rows.take(nodes)) {
            for (to, told) in (0..).zip(row).filter(|(_, told)| **told >= NEAR) {
                self.distances.set(from, to, *told);
            }
        }
    }

    /// SRAT may stand before MADT, so nodes are joined to cores at the end.
    fn join_nodes(&mut self) {
        let nodes = self.core_nodes;
        for core in self.cores.all_mut() {
            if let Some(known) = nodes.all().iter().find(|known| known.apic_id == core.apic_id) {
                core.node = known.node;
            }
        }
    }

    fn decode_mcfg(&mut self, table: &[u8]) {
        for entry in table.get(44..).unwrap_or(&[]).chunks_exact(16) {
            let (base, segment) = (field64(entry, 0).unwrap_or(0), u16::from_le_bytes([entry[8], entry[9]]));
            let (first_bus, last_bus) = (entry[10], entry[11]);
            if segment == 0 && base != 0 && base.is_multiple_of(1 << 20) && first_bus <= last_bus {
                self.ecam = Ecam { base, first_bus, last_bus };
            }
        }
    }
}

/// The address of RSDT or XSDT and the size of its entries.
fn decode_rsdp(address: u64, read: Read<'_>) -> Option<(u64, usize)> {
    let first = read(address, 20)?;
    if &first[..8] != b"RSD PTR " || !sums_to_zero(first) {
        return None;
    }
    let rsdt = (u64::from(field32(first, 16)?), 4);
    if first[15] < 2 {
        return Some(rsdt);
    }
    let whole = read(address, 36)?;
    let xsdt = field64(whole, 24)?;
    Some(if xsdt != 0 && sums_to_zero(whole) { (xsdt, 8) } else { rsdt })
}

/// A whole table with header, its checksum verified.
fn table_at<'a>(address: u64, read: Read<'a>) -> Option<&'a [u8]> {
    let bytes = field32(read(address, HEADER_BYTES)?, 4)? as usize;
    if !(HEADER_BYTES..=TABLE_BYTES_MAX).contains(&bytes) {
        return None;
    }
    read(address, bytes).filter(|table| sums_to_zero(table))
}

/// The variable part of MADT and SRAT: entries that start with kind and length.
fn entries(table: &[u8], offset: usize) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = table.get(offset..).unwrap_or(&[]);
    core::iter::from_fn(move || {
        let (kind, bytes) = (*rest.first()?, usize::from(*rest.get(1)?));
        if bytes < 2 || bytes > rest.len() {
            return None;
        }
        let (entry, after) = rest.split_at(bytes);
        rest = after;
        Some((kind, entry))
    })
}

fn sums_to_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) == 0
}

fn field32(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?))
}

fn field64(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(offset..offset + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RSDT: u64 = 0x100;

    fn seal(mut table: Vec<u8>, sum_at: usize) -> Vec<u8> {
        table[sum_at] = 0;
        table[sum_at] = 0u8.wrapping_sub(table.iter().fold(0, |sum, byte| sum.wrapping_add(*byte)));
        table
    }

    fn table(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
        let mut table = vec![0; HEADER_BYTES];
        table[..4].copy_from_slice(name);
        table.extend(body);
        let bytes = table.len() as u32;
        table[4..8].copy_from_slice(&bytes.to_le_bytes());
        seal(table, 9)
    }

    fn memory_with(tables: &[Vec<u8>]) -> Vec<u8> {
        let mut memory = vec![0; 0x4000];
        let mut rsdp = b"RSD PTR ".to_vec();
        rsdp.extend([0; 8]);
        rsdp.extend((RSDT as u32).to_le_bytes());
        memory[..20].copy_from_slice(&seal(rsdp, 8));
        let (mut at, mut list) = (0x400usize, Vec::new());
        for table in tables {
            memory[at..at + table.len()].copy_from_slice(table);
            list.extend((at as u32).to_le_bytes());
            at += 0x400;
        }
        let rsdt = table(b"RSDT", &list);
        memory[RSDT as usize..RSDT as usize + rsdt.len()].copy_from_slice(&rsdt);
        memory
    }

    fn decode(memory: &[u8]) -> Facts {
        let mut facts = Facts::default();
        facts.decode(0, &|address, bytes| memory.get(address as usize..(address as usize).checked_add(bytes)?));
        facts
    }

    fn sample() -> Vec<u8> {
        let mut madt = 0xfee0_0000u32.to_le_bytes().to_vec();
        madt.extend([1, 0, 0, 0]);
        for core in 0..3u8 {
            madt.extend([0, 8, core, core * 2, u8::from(core != 1), 0, 0, 0]);
        }
        madt.extend([1, 12, 0, 0, 0, 0, 0xc0, 0xfe, 0, 0, 0, 0]);
        let mut srat = vec![0; 12];
        srat.extend([0, 16, 7, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let mut mcfg = vec![0; 8];
        mcfg.extend(0xb000_0000u64.to_le_bytes());
        mcfg.extend([0, 0, 0, 255, 0, 0, 0, 0]);
        let mut slit = 2u64.to_le_bytes().to_vec();
        slit.extend([10, 31, 32, 9]);
        memory_with(&[table(b"SRAT", &srat), table(b"APIC", &madt), table(b"MCFG", &mcfg), table(b"SLIT", &slit)])
    }

    #[test]
    fn cores_nodes_and_windows() {
        let facts = decode(&sample());
        assert_eq!(facts.cores.all(), [CoreEntry { apic_id: 0, node: 0 }, CoreEntry { apic_id: 4, node: 7 }]);
        assert_eq!(facts.ioapics.all(), [IoApic { base: 0xfec0_0000, first_line: 0 }]);
        assert_eq!(facts.ecam, Ecam { base: 0xb000_0000, first_bus: 0, last_bus: 255 });
        assert_eq!(facts.local_apic, 0xfee0_0000);
        let between = |from, to| facts.distances.between(from, to);
        assert_eq!([between(0, 0), between(0, 1), between(1, 0), between(1, 1)], [10, 31, 32, NEAR]);
        assert_eq!([between(7, 7), between(7, 0), between(99, 1), between(99, 99)], [NEAR, FAR, FAR, NEAR]);
    }

    /// The same tables by an XSDT of 64-bit addresses; and by the RSDT where the XSDT's checksum is
    /// wrong.
    #[test]
    fn both_kinds_of_root_table() {
        const XSDT: usize = 0x200;
        let mut memory = sample();
        let list: Vec<u8> = [0x400u64, 0x800].iter().flat_map(|address| address.to_le_bytes()).collect();
        let xsdt = table(b"XSDT", &list);
        memory[XSDT..XSDT + xsdt.len()].copy_from_slice(&xsdt);
        let mut rsdp = b"RSD PTR ".to_vec();
        rsdp.resize(36, 0);
        rsdp[15] = 2;
        rsdp[16..20].copy_from_slice(&(RSDT as u32).to_le_bytes());
        rsdp[24..32].copy_from_slice(&(XSDT as u64).to_le_bytes());
        let first = seal(rsdp[..20].to_vec(), 8);
        rsdp[..20].copy_from_slice(&first);
        memory[..36].copy_from_slice(&seal(rsdp, 32));
        // The XSDT names SRAT and MADT only.
        assert_eq!((decode(&memory).cores.all().len(), decode(&memory).ecam), (2, Ecam::default()));
        memory[33] ^= 1;
        assert_ne!(decode(&memory).ecam, Ecam::default());
    }

    /// Any byte of any table may be wrong: fewer facts, no panic, and never a core the good tables
    /// do not list (checksums).
    #[test]
    fn corrupted_bytes() {
        let good = sample();
        for at in 0..good.len() {
            for value in [0u8, 1, 0x7f, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                assert!(decode(&bad).cores.all().len() <= 2);
            }
        }
    }

    fn madt(entries: &[&[u8]]) -> Vec<u8> {
        let mut body = 0xfee0_0000u32.to_le_bytes().to_vec();
        body.extend([1, 0, 0, 0]);
        entries.iter().for_each(|entry| body.extend(*entry));
        table(b"APIC", &body)
    }

    fn decode_tables(tables: &[Vec<u8>]) -> Facts {
        decode(&memory_with(tables))
    }

    /// A core of number and flags, as an x2APIC.
    fn x2apic(apic_id: u32, flags: u32) -> Vec<u8> {
        [&[9, 16, 0, 0][..], &apic_id.to_le_bytes(), &flags.to_le_bytes(), &[0; 4]].concat()
    }

    fn core(apic_id: u32, node: u32) -> CoreEntry {
        CoreEntry { apic_id, node }
    }

    #[test]
    fn cores_of_both_kinds_are_listed_once_and_only_if_enabled() {
        let own: &[u8] = &[0, 8, 0, 3, 1, 0, 0, 0];
        let online_capable: &[u8] = &[0, 8, 0, 5, 2, 0, 0, 0];
        let facts = decode_tables(&[madt(&[own, online_capable, &x2apic(3, 1), &x2apic(0x1_0000, 3), &x2apic(9, 2)])]);
        assert_eq!(facts.cores.all(), [core(3, 0), core(0x1_0000, 0)]);
        assert_eq!(facts.local_apic, 0xfee0_0000);
        let elsewhere: &[u8] = &[5, 12, 0, 0, 0, 0, 0, 0xfd, 1, 0, 0, 0];
        assert_eq!(decode_tables(&[madt(&[own, elsewhere])]).local_apic, 0x1_fd00_0000);
        let cut: &[u8] = &[5, 8, 0, 0, 0, 0, 0, 0xfd];
        assert_eq!(decode_tables(&[madt(&[cut])]).local_apic, 0xfee0_0000);
    }

    /// What has no sensible length ends the list; what it has of others is believed.
    #[test]
    fn entries_that_lie_about_their_length_end_the_list() {
        let good: &[u8] = &[0, 8, 0, 3, 1, 0, 0, 0];
        for bad in [&[1, 0][..], &[0, 1, 0, 7, 1, 0, 0, 0], &[0, 200, 0, 7, 1, 0, 0, 0]] {
            let facts = decode_tables(&[madt(&[good, bad, good])]);
            assert_eq!(facts.cores.all(), [core(3, 0)], "{bad:?}");
        }
        // The shortest that there can be says nothing, and ends nothing.
        let facts = decode_tables(&[madt(&[&[99, 2], good])]);
        assert_eq!(facts.cores.all(), [core(3, 0)]);
    }

    #[test]
    fn nodes_are_told_by_enabled_entries_only() {
        // 4 is of node 0x01020304; 6 says so but is not enabled; x2APIC 8 and 10 likewise.
        let local = |apic_id: u8, flags: u8| [0, 16, 4, apic_id, flags, 0, 0, 0, 0, 3, 2, 1, 0, 0, 0, 0];
        let x2 = |apic_id: u8, flags: u8| {
            [&[2, 24, 0, 0, 7, 0, 0, 0, apic_id, 0, 0, 0, flags, 0, 0, 0][..], &[0; 8]].concat()
        };
        let memory = |base: u8, flags: u8| {
            let head: &[u8] = &[1, 40, 9, 0, 0, 0, 0, 0];
            [head, &[0, 0, 0, base, 0, 0, 0, 0], &[0, 0, 0, 0x10, 0, 0, 0, 0], &[0; 4], &[flags, 0, 0, 0], &[0; 8]]
                .concat()
        };
        let mut srat = vec![0; 12];
        // One that is too short to have a node.
        for entry in [&local(4, 1)[..], &local(6, 2), &[0, 8, 7, 6, 1, 0, 0, 0], &x2(8, 1), &x2(10, 2)] {
            srat.extend(entry);
        }
        srat.extend(memory(0x40, 1));
        srat.extend(memory(0x60, 2));
        let cores: Vec<Vec<u8>> = [4, 6, 8, 10].map(|apic_id| x2apic(apic_id, 1)).to_vec();
        let cores: Vec<&[u8]> = cores.iter().map(Vec::as_slice).collect();
        let facts = decode_tables(&[madt(&cores), table(b"SRAT", &srat)]);
        assert_eq!(facts.cores.all(), [core(4, 0x0102_0304), core(6, 0), core(8, 7), core(10, 0)]);
        let range = PhysRange::new(0x4000_0000, 0x1000_0000);
        assert_eq!(facts.affinities.all(), [Affinity { range, node: 9 }]);
    }

    #[test]
    fn legacy_hardware_is_promised_unless_a_bit_says_otherwise() {
        let fadt = |flags: u32| {
            let mut body = vec![0xff; 76];
            body.extend(flags.to_le_bytes());
            decode_tables(&[table(b"FACP", &body)]).hardware_reduced
        };
        assert_eq!([0, 1 << 20, !(1 << 20), !0].map(fadt), [false, true, false, true]);
        assert!(!decode_tables(&[table(b"FACP", &[0xff; 40])]).hardware_reduced, "it has no flags");
        assert!(!decode_tables(&[]).has_madt && decode_tables(&[madt(&[])]).has_madt);
    }

    /// A window of another segment, of no address, askew, or of no bus is none.
    #[test]
    fn a_configuration_window_that_lies_is_none() {
        let window = |base: u64, segment: u8, first_bus: u8, last_bus: u8| {
            let entry = [&base.to_le_bytes()[..], &[segment, 0, first_bus, last_bus, 0, 0, 0, 0]].concat();
            decode_tables(&[table(b"MCFG", &[&[0; 8][..], &entry].concat())]).ecam
        };
        let good = Ecam { base: 0xb000_0000, first_bus: 3, last_bus: 3 };
        assert_eq!(window(0xb000_0000, 0, 3, 3), good);
        let lies = [(0xb000_0000, 1, 0, 3), (0, 0, 0, 3), (0xb008_0000, 0, 0, 3), (0xb000_0000, 0, 4, 3)];
        assert_eq!(lies.map(|(base, segment, first, last)| window(base, segment, first, last)), [Ecam::default(); 4]);
    }

    #[test]
    fn distances_of_no_node_are_none_and_the_rest_is_near_and_far() {
        let slit = |nodes: u64| decode_tables(&[table(b"SLIT", &[&nodes.to_le_bytes()[..], &[50; 9]].concat())]);
        let between = |facts: Facts| [(0, 0), (0, 1), (2, 2)].map(|(from, to)| facts.distances.between(from, to));
        assert_eq!(between(slit(0)), [10, 20, 10]);
        assert_eq!(between(slit(3)), [50, 50, 50]);
        assert_eq!(between(slit(u64::MAX)), [10, 20, 10]);
    }

    #[test]
    fn what_does_not_fit_a_list_is_counted() {
        let mut list = Bounded::<u8, 2>::default();
        [5, 6, 7, 8].into_iter().for_each(|entry| list.push(entry));
        assert_eq!((list.all(), list.lost), (&[5, 6][..], 2));
        list.all_mut()[1] = 9;
        assert_eq!(list.all(), [5, 9]);
    }

    /// Neither a name nor a checksum alone is enough.
    #[test]
    fn a_root_pointer_that_lies_leads_nowhere() {
        let good = sample();
        for at in [0, 9] {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert_eq!(decode(&bad).cores.all(), [], "{at}");
        }
        // With another name, but a good sum.
        let mut bad = good.clone();
        (bad[0], bad[9]) = (bad[0] + 1, bad[9].wrapping_sub(1));
        assert_eq!(decode(&bad).cores.all(), []);
        // Revision 1 has no XSDT, whatever stands there.
        let mut old = good.clone();
        (old[15], old[9]) = (1, old[9].wrapping_sub(1));
        // Not even if all bytes together have a good sum.
        (old[24], old[25]) = (1, 0xff);
        assert_eq!(decode(&old).cores.all().len(), 2);
    }
}
