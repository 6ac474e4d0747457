//! The start page of a domain, put together.

use alloc::vec::Vec;

use abi::PAGE_BYTES;
use abi::layout::START_INFO;
use abi::start::{MAGIC, StartHeader, StartRecord, field, kind};
use zerocopy::IntoBytes;

/// A record with empty fields; names that do not fit stay empty (the description's names all fit).
pub(crate) fn record(kind: u64, name: &str, peer: &str) -> StartRecord {
    let [name, peer] = [name, peer].map(|text| field(text).unwrap_or_default());
    StartRecord { kind, name, peer, handle: 0, address: 0, bytes: 0, a: 0, b: 0 }
}

/// The pages' bytes: header, records, and the kernel's command line at the end.
pub(crate) fn pages(mut header: StartHeader, mut records: Vec<StartRecord>, command_line: &[u8]) -> Vec<u8> {
    if !command_line.is_empty() {
        let mut line = record(kind::COMMAND_LINE, "", "");
        let before = size_of::<StartHeader>() + (records.len() + 1) * size_of::<StartRecord>();
        (line.address, line.bytes) = (START_INFO + before as u64, command_line.len() as u64);
        records.push(line);
    }
    (header.magic, header.record_count) = (MAGIC, records.len() as u64);
    let mut bytes = Vec::from(header.as_bytes());
    records.iter().for_each(|record| bytes.extend_from_slice(record.as_bytes()));
    bytes.extend_from_slice(command_line);
    bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES as usize), 0);
    bytes
}
