//! Linux calls as this program needs them: thin, so that what is measured is the system and not a
//! library.

use crate::problem::{During, Problem, Result, last};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The page of x86-64.
pub const PAGE_BYTES: usize = 4096;

/// Checks a call that tells failure by -1.
pub fn check(what: &str, result: i32) -> Result<i32> {
    if result < 0 { Err(last(what)) } else { Ok(result) }
}

/// Binds the caller to a core. False if the system does not do that: then its own placement holds.
pub fn pin(core: usize) -> bool {
    // SAFETY: an all-zero cpu_set_t is a valid empty set, and the pointer is to it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) == 0
    }
}

/// True if [`pin`] works here; tried in a child, so that the caller stays free.
pub fn can_pin() -> bool {
    let child = fork(|| if pin(0) { Ok(()) } else { Err(last("sched_setaffinity")) });
    child.is_ok_and(|child| child.succeed().is_ok())
}

/// Page faults of the calling thread that needed no device.
pub fn soft_faults() -> Result<u64> {
    // SAFETY: an all-zero rusage is a valid one, and the pointer is to it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        check("getrusage", libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage))?;
        Ok(usage.ru_minflt as u64)
    }
}

/// Memory without a name, as a file, of so many bytes.
pub fn memory_file(bytes: usize) -> Result<File> {
    // SAFETY: the name is a constant text; the descriptor is then ours alone.
    let file = unsafe { File::from_raw_fd(check("memfd_create", libc::memfd_create(c"pages".as_ptr(), 0))?) };
    file.set_len(bytes as u64).during("ftruncate")?;
    Ok(file)
}

/// Takes all pages from it; it stays as long.
pub fn empty(file: &File, bytes: usize) -> Result<()> {
    file.set_len(0).and_then(|()| file.set_len(bytes as u64)).during("ftruncate")
}

/// Both ends of a pipe: to read, to write.
pub fn pipe() -> Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors, which are then ours alone.
    unsafe {
        check("pipe", libc::pipe(ends.as_mut_ptr()))?;
        Ok((File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])))
    }
}

/// Two connected UNIX stream sockets.
pub fn socket_pair() -> Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: as for `pipe`.
    unsafe {
        check("socketpair", libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, ends.as_mut_ptr()))?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Runs `body` in a child made by fork, which ends with status 0 if it gave Ok, else 1.
pub fn fork(body: impl FnOnce() -> Result<()>) -> Result<Child> {
    // SAFETY: this program forks only where it has one thread.
    match check("fork", unsafe { libc::fork() })? {
        0 => {
            let status = match body() {
                Ok(()) => 0,
                Err(problem) => {
                    eprintln!("measure: child: {problem:?}");
                    1
                }
            };
            exit(status)
        }
        id => Ok(Child(id)),
    }
}

/// Ends the process at once, without what the parent's copy of the library would do.
pub fn exit(status: i32) -> ! {
    // SAFETY: nothing of ours needs to run at exit.
    unsafe { libc::_exit(status) }
}

/// A child process.
pub struct Child(pub libc::pid_t);

impl Child {
    /// Ends it.
    pub fn kill(&self) {
        // SAFETY: a child of ours.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }

    /// Waits for its end; its wait status.
    pub fn wait(&self) -> Result<i32> {
        let mut status = 0;
        // SAFETY: the pointer is to an int of ours.
        check("wait4", unsafe { libc::waitpid(self.0, &raw mut status, 0) })?;
        Ok(status)
    }

    /// Waits, and fails unless it ended with status 0.
    pub fn succeed(&self) -> Result<()> {
        match self.wait()? {
            0 => Ok(()),
            status => Err(Problem::Failed(format!("a child ended with wait status {status:#x}"))),
        }
    }
}

/// Fresh private or shared memory, unmapped at the end.
pub struct Memory {
    address: *mut u8,
    bytes: usize,
}

// SAFETY: it is memory; what threads do with it goes through atomics or is its owner's alone.
unsafe impl Send for Memory {}
// SAFETY: as above; `touch` and `protect` are used by one thread each.
unsafe impl Sync for Memory {}

impl Memory {
    /// Anonymous, read-write.
    pub fn new(bytes: usize, shared: bool) -> Result<Memory> {
        let kind = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        Memory::mapped(bytes, kind | libc::MAP_ANONYMOUS, -1)
    }

    /// A file's, shared with all who map it.
    pub fn of_file(file: &File, bytes: usize) -> Result<Memory> {
        Memory::mapped(bytes, libc::MAP_SHARED, file.as_raw_fd())
    }

    fn mapped(bytes: usize, kind: i32, file: RawFd) -> Result<Memory> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the system chooses.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, kind, file, 0) };
        if address == libc::MAP_FAILED { Err(last("mmap")) } else { Ok(Memory { address: address.cast(), bytes }) }
    }

    /// Asks for small pages, so that a touch is one page's.
    pub fn small_pages(&self) {
        // SAFETY: advice about our own mapping. A system without large pages may refuse it: it has
        // small ones then.
        unsafe { libc::madvise(self.address.cast(), self.bytes, libc::MADV_NOHUGEPAGE) };
    }

    /// Writes a word into page `page`.
    #[inline(always)]
    pub fn touch(&self, page: usize) {
        assert!(page < self.bytes / PAGE_BYTES);
        // SAFETY: within the mapping, aligned, and no reference to the memory exists.
        unsafe { self.address.add(page * PAGE_BYTES).cast::<u64>().write_volatile(page as u64) };
    }

    /// Sets the protection of the whole.
    pub fn protect(&self, protection: i32) -> Result<()> {
        // SAFETY: our own mapping, to which no reference exists.
        check("mprotect", unsafe { libc::mprotect(self.address.cast(), self.bytes, protection) }).map(drop)
    }

    /// The word at `offset`, a multiple of 8 within the memory.
    #[inline(always)]
    pub fn word_at(&self, offset: usize) -> &std::sync::atomic::AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.bytes);
        // SAFETY: mapped, aligned, and all use of it is atomic.
        unsafe { std::sync::atomic::AtomicU64::from_ptr(self.address.add(offset).cast()) }
    }

    /// The word at its start.
    pub fn word(&self) -> &std::sync::atomic::AtomicU32 {
        // SAFETY: mapped, aligned, and all use of it is atomic.
        unsafe { std::sync::atomic::AtomicU32::from_ptr(self.address.cast()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our own mapping; no reference outlives this value.
        unsafe { libc::munmap(self.address.cast(), self.bytes) };
    }
}

/// Sends one byte. Reading and writing go through the descriptor alone, for pipes and sockets
/// alike.
#[inline(always)]
pub fn send_byte(descriptor: RawFd) -> Result<()> {
    // SAFETY: one byte of a constant.
    let count = unsafe { libc::write(descriptor, [7u8].as_ptr().cast(), 1) };
    if count == 1 { Ok(()) } else { Err(last("write")) }
}

/// Receives one byte; false at the end of the stream.
#[inline(always)]
pub fn receive_byte(descriptor: RawFd) -> Result<bool> {
    let mut byte = [0u8];
    // SAFETY: room for one byte.
    match unsafe { libc::read(descriptor, byte.as_mut_ptr().cast(), 1) } {
        1 => Ok(true),
        0 => Ok(false),
        _ => Err(last("read")),
    }
}

/// Receives exactly as many bytes.
pub fn receive_all(from: &mut impl Read, bytes: &mut [u8]) -> Result<()> {
    from.read_exact(bytes).during("read")
}

/// Sends all of it.
pub fn send_all(to: &mut impl Write, bytes: &[u8]) -> Result<()> {
    to.write_all(bytes).during("write")
}

/// The number of a descriptor.
pub fn number(of: &impl AsRawFd) -> RawFd {
    of.as_raw_fd()
}
