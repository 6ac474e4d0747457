//! Structures Linux programs and the proxy exchange in memory (asm-generic and x86-64 forms).
//!
//! Field names are ours; sizes are asserted. Values are made from the contracts' types in the
//! binary.
#![allow(missing_docs)]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! layout {
    ($( $(#[$doc:meta])* $name:ident ($bytes:literal) { $( $field:ident : $type:ty, )* } )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub struct $name { $( pub $field: $type, )* }
            const _: () = assert!(size_of::<$name>() == $bytes);
        )*
    };
}

layout! {
    /// `struct stat`.
    Stat(144) {
        device: u64, inode: u64, links: u64, mode: u32, user: u32, group: u32, padding: u32, special: u64, size: u64,
        block_bytes: u64, blocks: u64, accessed: TimeSpec, modified: TimeSpec, changed: TimeSpec, reserved: [u64; 3],
    }
    /// `struct statfs`.
    FileSystem(120) {
        kind: u64, block_bytes: u64, blocks: u64, blocks_free: u64, blocks_available: u64, files: u64, files_free: u64,
        id: u64, name_bytes_max: u64, fragment_bytes: u64, flags: u64, reserved: [u64; 4],
    }
    /// `struct flock`.
    FileLock(32) { hold: i16, whence: i16, padding: u32, start: i64, length: i64, process: i32, padding_end: u32, }
    /// `struct timespec`.
    TimeSpec(16) { seconds: i64, nanoseconds: i64, }
    /// `struct timeval`.
    TimeVal(16) { seconds: i64, microseconds: i64, }
    /// `struct itimerval`.
    IntervalTimer(32) { interval: TimeVal, value: TimeVal, }
    /// `struct itimerspec`.
    TimerSpec(32) { interval: TimeSpec, value: TimeSpec, }
    /// First fields of `struct sigevent`.
    SignalEvent(24) { value: u64, signal: i32, notify: i32, thread: i32, padding: u32, }
    /// `struct rusage`.
    Usage(144) { user: TimeVal, system: TimeVal, resident_kib: u64, others: [u64; 13], }
    /// `struct open_how`.
    OpenHow(24) { flags: u64, mode: u64, resolve: u64, }
    /// `struct statx_timestamp`.
    StatxTime(16) { seconds: i64, nanoseconds: u32, padding: u32, }
    /// `struct statx`.
    Statx(256) {
        mask: u32, block_bytes: u32, attributes: u64, links: u32, user: u32, group: u32, mode: u16, padding: u16,
        inode: u64, size: u64, blocks: u64, attributes_mask: u64, accessed: StatxTime, created: StatxTime, changed: StatxTime,
        modified: StatxTime, special_major: u32, special_minor: u32, device_major: u32, device_minor: u32, reserved: [u64; 14],
    }
    /// `struct iovec`.
    IoVector(16) { base: u64, bytes: u64, }
    /// `struct pollfd`.
    PollEntry(8) { descriptor: i32, events: u16, returned: u16, }
    /// `struct sockaddr_in`; port and address in network order.
    InternetAddress(16) { family: u16, port: [u8; 2], address: [u8; 4], zero: [u8; 8], }
    /// `struct sockaddr_in6`; port and address in network order.
    InternetAddress6(28) { family: u16, port: [u8; 2], flow: u32, address: [u8; 16], scope: u32, }
    /// `struct msghdr`.
    MessageHeader(56) { name: u64, name_bytes: u32, padding: u32, vectors: u64, count: u64, control: u64, control_bytes: u64, flags: u32, padding_end: u32, }
    /// `struct cmsghdr`.
    ControlHeader(16) { bytes: u64, level: u32, kind: u32, }
    /// `struct ucred`.
    Credentials(12) { process: u32, user: u32, group: u32, }
    /// `struct shmid_ds`.
    SharedMemoryState(112) {
        key: u32, user: u32, group: u32, creator_user: u32, creator_group: u32, mode: u32, sequence: u16, padding: [u16; 3],
        unused: [u64; 2], bytes: u64, attached_s: u64, detached_s: u64, changed_s: u64, creator: u32, last: u32, attaches: u64,
        reserved: [u64; 2],
    }
    /// `struct shminfo`.
    SharedMemoryInfo(72) { most: u64, least: u64, segments: u64, of_process: u64, pages: u64, reserved: [u64; 4], }
    /// `struct shm_info`.
    SharedMemorySum(48) { segments: u32, padding: u32, pages: u64, present: u64, others: [u64; 3], }
    /// `struct rlimit`.
    Limit(16) { current: u64, maximum: u64, }
    /// `struct sysinfo`.
    SystemInfo(112) {
        uptime: u64, loads: [u64; 3], total: u64, free: u64, shared: u64, buffers: u64, swap_total: u64, swap_free: u64,
        processes: u16, padding: [u16; 3], high_total: u64, high_free: u64, unit: u32, padding_end: u32,
    }
    /// `struct tms`.
    Times(32) { user: u64, system: u64, children_user: u64, children_system: u64, }
    /// `struct tcp_info`, as long as Linux 6.1 has it.
    TcpInfo(232) {
        state: u8, loss_state: u8, in_vain: u8, probes: u8, doubled: u8, options: u8, scales: u8, others: u8,
        repeats_us: u32, acknowledges_us: u32, send_segment: u32, receive_segment: u32,
        on_the_way: u32, reported: u32, lost: u32, repeated_on_the_way: u32, forward: u32,
        bytes_sent_ms: u32, acknowledgement_sent_ms: u32, bytes_came_ms: u32, acknowledged_ms: u32,
        path_bytes: u32, receive_threshold: u32, round_trip_us: u32, variation_us: u32, send_threshold: u32,
        window_segments: u32, told_segment: u32, reordering: u32, receive_round_trip_us: u32, receive_space: u32,
        repeated: u32, rates: [u64; 2], bytes_acknowledged: u64, bytes_received: u64, segments_sent: u32,
        segments_received: u32, unsent_bytes: u32, least_round_trip_us: u32, with_bytes_received: u32,
        with_bytes_sent: u32, delivery_rate: u64, busy_us: [u64; 3], delivered: u32, delivered_marked: u32,
        bytes_sent: u64, bytes_repeated: u64, duplicates: u32, reordered: u32, out_of_order: u32, send_window: u32,
    }
    /// First fields of `struct siginfo` as waitid fills them.
    ChildInfo(128) { signal: i32, errno: i32, code: i32, padding: i32, process: u32, user: u32, status: i32, rest: [u32; 25], }
}

/// Text for one of `struct utsname`'s six fields.
pub const NAME_FIELD_BYTES: usize = 65;

/// `struct utsname`: what uname(2) tells. The release says which Linux interface programs may
/// expect.
pub fn system_names(host: &str, domain: &str) -> [u8; 6 * NAME_FIELD_BYTES] {
    let mut all = [0; 6 * NAME_FIELD_BYTES];
    for (field, text) in
        all.chunks_exact_mut(NAME_FIELD_BYTES).zip(["Linux", host, "6.1.0", "Pelago", "x86_64", domain])
    {
        let length = text.len().min(NAME_FIELD_BYTES - 1);
        field[..length].copy_from_slice(&text.as_bytes()[..length]);
    }
    all
}

impl TimeSpec {
    /// From nanoseconds.
    pub fn from_ns(ns: u64) -> TimeSpec {
        TimeSpec { seconds: (ns / 1_000_000_000) as i64, nanoseconds: (ns % 1_000_000_000) as i64 }
    }

    /// In nanoseconds; `None` for negative or non-normal ones. Far times are cut to what fits.
    pub fn to_ns(self) -> Option<u64> {
        let seconds = u64::try_from(self.seconds).ok()?;
        let nanoseconds = u64::try_from(self.nanoseconds).ok().filter(|part| *part < 1_000_000_000)?;
        Some(seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds))
    }
}

impl TimeVal {
    /// From nanoseconds, rounded down.
    pub fn from_ns(ns: u64) -> TimeVal {
        TimeVal { seconds: (ns / 1_000_000_000) as i64, microseconds: (ns % 1_000_000_000 / 1000) as i64 }
    }

    /// In nanoseconds; `None` for negative or non-normal ones.
    pub fn to_ns(self) -> Option<u64> {
        TimeSpec { seconds: self.seconds, nanoseconds: self.microseconds.checked_mul(1000)? }.to_ns()
    }
}

/// Which structure getdents gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryForm {
    /// `struct linux_dirent64`.
    New,
    /// `struct linux_dirent`: without a kind, which lies in the last byte.
    Old,
}

/// Appends one directory entry; `false` (and nothing written) if it does not fit into `limit`.
pub fn directory_entry(
    buffer: &mut alloc::vec::Vec<u8>,
    limit: usize,
    (inode, next, kind): (u64, u64, u8),
    name: &str,
    form: EntryForm,
) -> bool {
    let name = system::file_name::to_bytes(name);
    let bytes = (19 + name.len() + 1).next_multiple_of(8);
    if buffer.len() + bytes > limit || bytes > usize::from(u16::MAX) {
        return false;
    }
    let end = buffer.len() + bytes;
    buffer.extend(inode.to_le_bytes());
    buffer.extend(next.to_le_bytes());
    buffer.extend((bytes as u16).to_le_bytes());
    if form == EntryForm::New {
        buffer.push(kind);
    }
    buffer.extend(name);
    buffer.resize(end, 0);
    if form == EntryForm::Old {
        buffer[end - 1] = kind;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_convert_and_refuse_nonsense() {
        assert_eq!(TimeSpec::from_ns(1_500_000_000).to_ns(), Some(1_500_000_000));
        assert_eq!(TimeSpec { seconds: -1, nanoseconds: 0 }.to_ns(), None);
        assert_eq!(TimeSpec { seconds: 0, nanoseconds: 1_000_000_000 }.to_ns(), None);
        assert_eq!(TimeSpec { seconds: i64::MAX, nanoseconds: 0 }.to_ns(), Some(u64::MAX));
        assert_eq!(TimeVal { seconds: 0, microseconds: i64::MAX }.to_ns(), None);
        let time = TimeVal::from_ns(3_000_005_999);
        assert_eq!((time.seconds, time.microseconds, time.to_ns()), (3, 5, Some(3_000_005_000)));
    }

    #[test]
    fn names_of_the_system_are_cut_to_their_fields() {
        let all = system_names("a host", &"x".repeat(99));
        let names = all.chunks(NAME_FIELD_BYTES).map(|field| std::ffi::CStr::from_bytes_until_nul(field).unwrap());
        let names: Vec<_> = names.map(|name| name.to_str().unwrap()).collect();
        assert_eq!(names, ["Linux", "a host", "6.1.0", "Pelago", "x86_64", &"x".repeat(64)]);
    }

    #[test]
    fn directory_entries_are_aligned_and_bounded() {
        let mut buffer = Vec::new();
        assert!(directory_entry(&mut buffer, 64, (7, 1, 8), "hello", EntryForm::New));
        assert_eq!(buffer.len(), 32);
        assert_eq!((buffer[16], buffer[18], &buffer[19..25]), (32, 8, &b"hello\0"[..]));
        assert!(directory_entry(&mut buffer, 64, (8, 2, 8), "x", EntryForm::Old));
        assert_eq!((&buffer[50..52], buffer[55]), (&b"x\0"[..], 8));
        assert_eq!(buffer.len(), 56);
        assert!(!directory_entry(&mut buffer, 79, (8, 2, 8), "y", EntryForm::New));
        assert!(directory_entry(&mut buffer, 80, (8, 2, 8), "y", EntryForm::New));
        // A length has 16 bits.
        let name = "x".repeat(65_500);
        assert!(directory_entry(&mut Vec::new(), 1 << 20, (8, 2, 8), &name, EntryForm::New));
        assert!(!directory_entry(&mut Vec::new(), 1 << 20, (8, 2, 8), &name.repeat(2), EntryForm::New));
    }
}
