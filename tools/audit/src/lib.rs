//! A plugin of the emulator that writes down which memory the code of each core uses (`-plugin
//! FILE,out=RECORD`).
//!
//! One line a fact, in order: `start CORE`, the core runs its first kernel code; `write CORE PLACE
//! ADDRESS`, the kernel's instruction at ADDRESS wrote to the cache line PLACE of physical memory
//! (hexadecimal); `store` and `load`, a program's did. A line and a core are written down once of
//! each kind until another core starts, so that what was done before a core ran and what was done
//! after both show. The kernel is the code of the upper half of the address space. What the
//! processor itself writes (frames of interrupts, marks in page tables) is not seen, nor what is
//! executed.
//!
//! Each fact is in the file before the guest goes on: the emulator may be ended at any moment.
//! Deliberately unknown here: whose memory is whose.

use emulator_api as api;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

/// The interface that this plugin speaks.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 1;

/// First address of the kernel's half.
const KERNEL_HALF: u64 = 1 << 63;
const LINE_SHIFT: u32 = 6;
const PAGE_SHIFT: u32 = 12;
const CORES_MAX: usize = 256;

/// Cores that have run kernel code.
static STARTED: [AtomicBool; CORES_MAX] = [const { AtomicBool::new(false) }; CORES_MAX];
/// Cores whose present block of instructions is the kernel's. QEMU 7.2 calls back for the last
/// instruction of a block that left by a helper (a return to user mode, a new address space) when a
/// program then executes a locked one.
static IN_KERNEL: [AtomicBool; CORES_MAX] = [const { AtomicBool::new(false) }; CORES_MAX];
static RECORD: Mutex<Option<Record>> = Mutex::new(None);
/// Cores that have started, which every fact of [`RECENT`] is of.
static EPOCH: AtomicU64 = AtomicU64::new(0);
/// What each core did lately and is written down: most of what it does it does again, and need not
/// wait for the record.
static RECENT: [[AtomicU64; RECENT_FACTS]; CORES_MAX] =
    [const { [const { AtomicU64::new(0) }; RECENT_FACTS] }; CORES_MAX];
const RECENT_FACTS: usize = 1024;

/// What was done to a line.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// The kernel wrote.
    Write = 1,
    /// A program wrote.
    Store = 2,
    /// A program read.
    Load = 3,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Write => "write",
            Kind::Store => "store",
            Kind::Load => "load",
        }
    }
}

struct Record {
    file: File,
    /// Lines of a page to which a core did that since the last core started, a bit each.
    seen: HashMap<(u64, c_uint, Kind), u64>,
}

impl Record {
    fn fact(&mut self, text: &str) {
        if let Err(error) = self.file.write_all(text.as_bytes()) {
            eprintln!("pelago-audit: the record cannot be written: {error}");
            // Half a record would be taken for a clean one.
            std::process::abort();
        }
    }
}

fn record() -> MutexGuard<'static, Option<Record>> {
    RECORD.lock().unwrap_or_else(|error| error.into_inner())
}

/// Entry: QEMU calls it once.
///
/// # Safety
/// QEMU's promises: `words` points to `count` texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: api::PluginId,
    _: *const c_void,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    let mut words = (0..usize::try_from(count).unwrap_or(0))
        // SAFETY: QEMU's promise.
        .map(|index| unsafe { CStr::from_ptr(*words.add(index)) }.to_string_lossy().into_owned());
    let Some(path) = words.next_back().and_then(|word| word.strip_prefix("out=").map(str::to_owned)) else {
        eprintln!("pelago-audit: the argument out=FILE is needed");
        return 1;
    };
    match File::create(&path) {
        Ok(file) => *record() = Some(Record { file, seen: HashMap::new() }),
        Err(error) => {
            eprintln!("pelago-audit: cannot write {path}: {error}");
            return 1;
        }
    }
    // SAFETY: a function of this library, which is never unloaded.
    unsafe { api::qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation) };
    0
}

unsafe extern "C" fn on_translation(_: api::PluginId, block: *mut api::Block) {
    // SAFETY: QEMU gave the block for the time of this call; the callbacks are functions of this
    // library, which is never unloaded.
    unsafe {
        let count = api::qemu_plugin_tb_n_insns(block);
        let is_kernel = count > 0 && api::qemu_plugin_insn_vaddr(api::qemu_plugin_tb_get_insn(block, 0)) >= KERNEL_HALF;
        let (on_block, on_memory): (api::OnExecution, api::OnMemory) =
            if is_kernel { (on_kernel_block, on_kernel_memory) } else { (on_other_block, on_other_memory) };
        api::qemu_plugin_register_vcpu_tb_exec_cb(block, on_block, api::NO_REGISTERS, std::ptr::null_mut());
        for insn in (0..count).map(|index| api::qemu_plugin_tb_get_insn(block, index)) {
            let address = api::qemu_plugin_insn_vaddr(insn) as *mut c_void;
            api::qemu_plugin_register_vcpu_mem_cb(insn, on_memory, api::NO_REGISTERS, api::READ_WRITE, address);
        }
    }
}

unsafe extern "C" fn on_other_block(core: c_uint, _: *mut c_void) {
    if let Some(in_kernel) = IN_KERNEL.get(core as usize) {
        in_kernel.store(false, Ordering::Relaxed);
    }
}

unsafe extern "C" fn on_kernel_block(core: c_uint, _: *mut c_void) {
    let (Some(started), Some(in_kernel)) = (STARTED.get(core as usize), IN_KERNEL.get(core as usize)) else { return };
    in_kernel.store(true, Ordering::Relaxed);
    if started.load(Ordering::Relaxed) || started.swap(true, Ordering::Relaxed) {
        return;
    }
    if let Some(record) = record().as_mut() {
        record.seen.clear();
        EPOCH.fetch_add(1, Ordering::Relaxed);
        record.fact(&format!("start {core}\n"));
    }
}

unsafe extern "C" fn on_kernel_memory(core: c_uint, info: api::MemoryInfo, address: u64, instruction: *mut c_void) {
    // SAFETY: the access is the one that QEMU tells of.
    let is_store = unsafe { api::qemu_plugin_mem_is_store(info) };
    if is_store && is_in_kernel(core) {
        // SAFETY: as above.
        unsafe { note(core, Kind::Write, info, address, instruction as u64) };
    }
}

unsafe extern "C" fn on_other_memory(core: c_uint, info: api::MemoryInfo, address: u64, instruction: *mut c_void) {
    // SAFETY: the access is the one that QEMU tells of.
    let is_store = unsafe { api::qemu_plugin_mem_is_store(info) };
    // What runs before a core's kernel does is the loader.
    if !is_in_kernel(core) && STARTED.get(core as usize).is_some_and(|started| started.load(Ordering::Relaxed)) {
        let kind = if is_store { Kind::Store } else { Kind::Load };
        // SAFETY: as above.
        unsafe { note(core, kind, info, address, instruction as u64) };
    }
}

fn is_in_kernel(core: c_uint) -> bool {
    IN_KERNEL.get(core as usize).is_some_and(|in_kernel| in_kernel.load(Ordering::Relaxed))
}

/// Writes an access down, if it is the first of its kind.
///
/// # Safety
/// It is the access that QEMU tells of now.
unsafe fn note(core: c_uint, kind: Kind, info: api::MemoryInfo, address: u64, instruction: u64) {
    // SAFETY: the caller's promise.
    let (place, bytes) = unsafe {
        let place = api::qemu_plugin_get_hwaddr(info, address);
        if place.is_null() || api::qemu_plugin_hwaddr_is_io(place) {
            return;
        }
        (api::qemu_plugin_hwaddr_phys_addr(place), 1u64 << api::qemu_plugin_mem_size_shift(info))
    };
    for line in place >> LINE_SHIFT..=(place + bytes - 1) >> LINE_SHIFT {
        // Read before the fact is looked for: one of an older epoch is looked for again.
        let fact = line << 16 | (kind as u64) << 12 | EPOCH.load(Ordering::Relaxed);
        let recent = &RECENT[core as usize % CORES_MAX][(line as usize ^ (kind as usize) << 8) % RECENT_FACTS];
        if recent.load(Ordering::Relaxed) != fact {
            write_down(core, kind, line, instruction);
            recent.store(fact, Ordering::Relaxed);
        }
    }
}

fn write_down(core: c_uint, kind: Kind, line: u64, instruction: u64) {
    let mut guard = record();
    let Some(record) = guard.as_mut() else { return };
    let page = line >> (PAGE_SHIFT - LINE_SHIFT);
    let bit = 1 << (line % (1 << (PAGE_SHIFT - LINE_SHIFT)));
    let seen = record.seen.entry((page, core, kind)).or_default();
    if *seen & bit == 0 {
        *seen |= bit;
        record.fact(&format!("{} {core} {:x} {instruction:x}\n", kind.name(), line << LINE_SHIFT));
    }
}
