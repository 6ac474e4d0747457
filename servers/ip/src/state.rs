//! What survives IP's own crash: the address and who the neighbours are.
//!
//! One fixed record at the start of the region `ip-state`, written whole after each change, with a
//! version and a checksum: a crash in the middle of writing leaves a record that is refused, and IP
//! asks DHCP and ARP again. The reader checks every field as if a stranger had written it.

use alloc::vec::Vec;
use core::net::Ipv4Addr;
use packet::{Memory, OutOfBounds};
use smoltcp::wire::EthernetAddress;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::address::Host;
use crate::dhcp::Lease;
use crate::neighbours::{ENTRIES_MAX, Entry};

/// "IPST" and the record's version.
const MAGIC: u64 = 0x4950_5354_0000_0001;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct NeighbourRecord {
    address: [u8; 4],
    ethernet: [u8; 6],
    used: [u8; 6],
    confirmed_ns: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Record {
    magic: u64,
    checksum: u64,
    renew_ns: u64,
    rebind_ns: u64,
    end_ns: u64,
    address: [u8; 4],
    gateway: [u8; 4],
    server: [u8; 4],
    prefix_bits: u8,
    leased: u8,
    reserved: [u8; 2],
    neighbours: [NeighbourRecord; ENTRIES_MAX],
}

/// What is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The lease in force, if the address is leased.
    pub lease: Option<Lease>,
    /// Known neighbours.
    pub neighbours: Vec<Entry>,
}

/// Writes it.
pub fn keep(memory: &impl Memory, lease: Option<Lease>, neighbours: &[Entry]) -> Result<(), OutOfBounds> {
    let mut record = Record::new_zeroed();
    record.magic = MAGIC;
    if let Some(lease) = lease {
        (record.renew_ns, record.rebind_ns, record.end_ns) = (lease.renew_ns, lease.rebind_ns, lease.end_ns);
        (record.address, record.prefix_bits) = (lease.host.address.octets(), lease.host.prefix_bits);
        record.gateway = lease.host.gateway.unwrap_or(Ipv4Addr::UNSPECIFIED).octets();
        (record.server, record.leased) = (lease.server.octets(), 1);
    }
    for (slot, entry) in record.neighbours.iter_mut().zip(neighbours) {
        *slot = NeighbourRecord {
            address: entry.address.octets(),
            ethernet: entry.ethernet.0,
            used: [1, 0, 0, 0, 0, 0],
            confirmed_ns: entry.confirmed_ns,
        };
    }
    record.checksum = checksum(&record);
    memory.write(0, record.as_bytes())
}

/// Reads it; what is damaged, missing or senseless is left out.
pub fn recall(memory: &impl Memory) -> Kept {
    let mut record = Record::new_zeroed();
    if memory.read(0, record.as_mut_bytes()).is_err() || record.magic != MAGIC || record.checksum != checksum(&record) {
        return Kept::default();
    }
    let gateway = Ipv4Addr::from(record.gateway);
    let host = Host {
        address: record.address.into(),
        prefix_bits: record.prefix_bits,
        gateway: (!gateway.is_unspecified()).then_some(gateway),
    };
    let lease = host.valid().filter(|_| record.leased == 1).map(|host| Lease {
        host,
        server: record.server.into(),
        renew_ns: record.renew_ns.min(record.end_ns),
        rebind_ns: record.rebind_ns.min(record.end_ns),
        end_ns: record.end_ns,
    });
    let neighbours = record.neighbours.iter().filter(|slot| slot.used[0] == 1).map(|slot| Entry {
        address: slot.address.into(),
        ethernet: EthernetAddress(slot.ethernet),
        confirmed_ns: slot.confirmed_ns,
    });
    Kept { lease, neighbours: neighbours.filter(|entry| entry.ethernet.is_unicast()).collect() }
}

/// FNV-1a of the record with its checksum field as zero.
fn checksum(record: &Record) -> u64 {
    let record = Record { checksum: 0, ..*record };
    record
        .as_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::RefCell;

    #[test]
    fn what_was_kept_is_recalled_and_damage_is_not_believed() {
        let memory = RefCell::new(alloc::vec![0u8; 4096]);
        assert_eq!(recall(&memory), Kept::default());
        let lease = Lease {
            host: Host {
                address: Ipv4Addr::new(10, 0, 2, 15),
                prefix_bits: 24,
                gateway: Some(Ipv4Addr::new(10, 0, 2, 2)),
            },
            server: Ipv4Addr::new(10, 0, 2, 2),
            renew_ns: 1,
            rebind_ns: 2,
            end_ns: 3,
        };
        let entry = Entry {
            address: Ipv4Addr::new(10, 0, 2, 2),
            ethernet: EthernetAddress([2, 0, 0, 0, 0, 2]),
            confirmed_ns: 9,
        };
        keep(&memory, Some(lease), &[entry]).unwrap();
        let kept = Kept { lease: Some(lease), neighbours: alloc::vec![entry] };
        assert_eq!(recall(&memory), kept);
        for index in 0..size_of::<Record>() {
            memory.borrow_mut()[index] ^= 0x10;
            assert_eq!(recall(&memory), Kept::default(), "byte {index}");
            memory.borrow_mut()[index] ^= 0x10;
        }
        assert_eq!(recall(&memory), kept);
        // Of another version.
        let mut record = Record::read_from_prefix(&memory.borrow()).unwrap().0;
        record.magic += 1;
        record.checksum = checksum(&record);
        memory.write(0, record.as_bytes()).unwrap();
        assert_eq!(recall(&memory), Kept::default());
        assert_eq!(keep(&RefCell::new(Vec::new()), None, &[]), Err(OutOfBounds));
    }
}
