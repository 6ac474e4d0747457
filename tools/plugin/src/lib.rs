//! The emulator's plugin. QEMU loads it (`-plugin FILE,mode=...`) and calls it for each block that
//! it translates and, once a guest has made its first mark (lib/mark), for each block that it runs
//! and each access to memory. Here is only the passage from C; what is done is in `state.rs` and in
//! tools/coherence.
//!
//! Needs `-accel tcg,thread=single`: one thread runs all cores, so between two calls exactly one
//! core ran.

mod options;
mod state;

use coherence::{Access, Instruction, LINE_SHIFT, Mode, Next, Privilege, decode};
use emulator_api as api;
use mark::kind;
use state::{Code, State};
use std::cell::{RefCell, RefMut};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

/// The interface that this plugin speaks.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 1;

/// Instructions begun since the plugin was armed; the emulator's own code adds to it.
static COUNTED: AtomicU64 = AtomicU64::new(0);
static STATE: Only = Only(RefCell::new(None));

/// What only the thread that runs all cores looks at. A lock would be half of the time of a boot.
struct Only(RefCell<Option<State>>);

// SAFETY: QEMU installs a plugin before it makes the thread of its cores, and under `-accel
// tcg,thread=single`, which the host tool gives and this plugin needs anyway, that one thread makes
// all later calls.
unsafe impl Sync for Only {}

/// What an instruction's memory callback is told.
const STRING: usize = 1;
const LOCKED: usize = 2;
/// First address of the kernel's half.
const KERNEL_HALF: u64 = 1 << 63;
/// A text of names longer than this is none.
const NAMES_BYTES_MAX: usize = 64 << 20;

fn state() -> RefMut<'static, Option<State>> {
    STATE.0.borrow_mut()
}

fn counted() -> u64 {
    COUNTED.load(Ordering::Relaxed)
}

fn complain(what: &str) {
    eprintln!("pelago-plugin: {what}");
}

/// Entry: QEMU calls it once.
///
/// # Safety
/// QEMU's promises: `info` points to its description and `words` to `count` texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: api::PluginId,
    info: *const api::Info,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    let words: Vec<String> = (0..usize::try_from(count).unwrap_or(0))
        // SAFETY: QEMU's promise.
        .map(|index| unsafe { CStr::from_ptr(*words.add(index)) }.to_string_lossy().into_owned())
        .collect();
    // SAFETY: QEMU's promise.
    let cores = usize::try_from(unsafe { (*info).cpus }).unwrap_or(0);
    let options = match options::parse(words.iter().map(String::as_str)) {
        Ok(options) if (1..=coherence::CORES_MAX).contains(&cores) => options,
        Ok(_) => {
            complain(&format!("{cores} cores; the model knows 1 to {}", coherence::CORES_MAX));
            return 1;
        }
        Err(error) => {
            complain(&error);
            return 1;
        }
    };
    *state() = Some(State::new(options, cores));
    // SAFETY: functions of this library, which is never unloaded.
    unsafe { api::qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation) };
    0
}

unsafe extern "C" fn on_translation(_: api::PluginId, block: *mut api::Block) {
    let mut guard = state();
    let Some(state) = guard.as_mut() else { return };
    // SAFETY: QEMU gave the block for the time of this call.
    let insns: Vec<*mut api::Insn> = unsafe {
        (0..api::qemu_plugin_tb_n_insns(block)).map(|index| api::qemu_plugin_tb_get_insn(block, index)).collect()
    };
    let Some(&first) = insns.first() else { return };
    let (callback, data): (api::OnExecution, usize) = if state.armed {
        // SAFETY: an instruction of the block.
        let address = unsafe { api::qemu_plugin_insn_vaddr(first) };
        let privilege = if address >= KERNEL_HALF { Privilege::Kernel } else { Privilege::User };
        state.blocks.push(Code::new(privilege, address, lines(&insns)));
        (on_block, state.blocks.len() - 1)
    } else {
        (on_pass, insns.len())
    };
    if state.armed || state.takes_turns() {
        // SAFETY: a function of this library, which is never unloaded.
        unsafe { api::qemu_plugin_register_vcpu_tb_exec_cb(block, callback, api::NO_REGISTERS, data as *mut c_void) };
    }
    for insn in insns {
        // SAFETY: QEMU gave the instruction's bytes for the time of this call.
        let bytes = unsafe {
            let data = api::qemu_plugin_insn_data(insn).cast::<u8>();
            std::slice::from_raw_parts(data, api::qemu_plugin_insn_size(insn))
        };
        // SAFETY: an instruction of the block.
        unsafe { instrument(state, insn, decode(bytes)) };
    }
}

/// Lines that a block's instructions lie in.
fn lines(insns: &[*mut api::Insn]) -> Vec<u64> {
    let mut lines = Vec::new();
    for &insn in insns {
        // SAFETY: instructions of the block under translation; the address is QEMU's own of guest
        // memory, or null.
        let (address, bytes) = unsafe {
            let host = api::qemu_plugin_insn_haddr(insn);
            let address = if host.is_null() { api::NO_MEMORY } else { api::qemu_ram_addr_from_host(host) };
            (address, api::qemu_plugin_insn_size(insn) as u64)
        };
        if address != api::NO_MEMORY {
            lines.extend([address >> LINE_SHIFT, (address + bytes - 1) >> LINE_SHIFT]);
            lines.dedup();
        }
    }
    lines
}

/// Registers what has to be told when an instruction runs.
///
/// # Safety
/// `insn` is one of the block under translation.
unsafe fn instrument(state: &State, insn: *mut api::Insn, what: Instruction) {
    let execution = |callback: api::OnExecution| {
        // SAFETY: a function of this library, which is never unloaded.
        unsafe { api::qemu_plugin_register_vcpu_insn_exec_cb(insn, callback, api::NO_REGISTERS, std::ptr::null_mut()) };
    };
    let memory = |callback: api::OnMemory, data: usize| {
        let data = data as *mut c_void;
        // SAFETY: as above.
        unsafe { api::qemu_plugin_register_vcpu_mem_cb(insn, callback, api::NO_REGISTERS, api::READ_WRITE, data) };
    };
    if state.armed {
        // SAFETY: the word is a static.
        unsafe { api::qemu_plugin_register_vcpu_insn_exec_inline(insn, api::ADD, COUNTED.as_ptr().cast(), 1) };
    }
    if what.halt {
        execution(on_halt);
    }
    if what.pause {
        execution(on_pause);
    }
    if what.space {
        execution(on_space);
    }
    match what.mark {
        Some(mark @ (kind::ARM | kind::BEGIN | kind::END | kind::FINISH | kind::NAMES)) => {
            memory(on_mark, mark as u32 as usize)
        }
        _ if state.armed && state.options.mode == Mode::Coherence => {
            memory(on_memory, usize::from(what.string) * STRING + usize::from(what.locked) * LOCKED);
        }
        _ => {}
    }
}

/// Lets the others run when this block is done.
fn yield_after(core: c_uint) {
    // SAFETY: the core exists, since it just called, and its thread is this one.
    unsafe { api::cpu_exit(api::qemu_get_cpu(core as c_int)) };
}

/// Does when this block is done what turns ask for.
fn follow(state: &mut State, core: c_uint, next: Next) {
    match next {
        Next::On => return,
        // SAFETY: this core is the one that runs; it stops when it has left its loop.
        Next::Park => unsafe { api::cpu_stop_current() },
        Next::Epoch => {
            release(state);
            if state.is_parked(core as usize) {
                // SAFETY: as above.
                unsafe { api::cpu_stop_current() };
            }
        }
    }
    yield_after(core);
}

fn release(state: &mut State) {
    while let Some(core) = state.released() {
        // SAFETY: a core that called before, so it exists; one that is not stopped is left as it
        // is.
        unsafe { api::cpu_resume(api::qemu_get_cpu(core as c_int)) };
    }
}

unsafe extern "C" fn on_pass(core: c_uint, instructions: *mut c_void) {
    let mut guard = state();
    let Some(state) = guard.as_mut() else { return };
    // Translations of before the arming may run until all of them are thrown away.
    let next = state.pass(core as usize, instructions as u64);
    follow(state, core, next);
}

unsafe extern "C" fn on_block(core: c_uint, index: *mut c_void) {
    let mut guard = state();
    let Some(state) = guard.as_mut() else { return };
    let (own, index) = (core as usize, index as usize);
    if state.wants_component(own, index) {
        let name = component(core);
        state.set_component(own, name.as_deref());
    }
    let next = state.block(own, index, counted());
    follow(state, core, next);
}

/// The name on the start page of the program that runs; `None` if it has none, as on another
/// system.
fn component(core: c_uint) -> Option<String> {
    const MAGIC_BYTES: usize = size_of_val(&abi::start::MAGIC);
    const NAME_BYTES: usize = 32;
    let page = read(core, abi::layout::START_INFO, MAGIC_BYTES + NAME_BYTES)?;
    let (magic, name) = page.split_at(MAGIC_BYTES);
    (magic == abi::start::MAGIC.to_le_bytes()).then(|| abi::start::text(name).to_owned())
}

/// Guest memory as `core` sees it.
fn read(core: c_uint, address: u64, bytes: usize) -> Option<Vec<u8>> {
    let mut data = vec![0u8; bytes];
    // SAFETY: room for as many bytes; the core exists.
    let failed = unsafe {
        let cpu = api::qemu_get_cpu(core as c_int);
        api::cpu_memory_rw_debug(cpu, address, data.as_mut_ptr().cast(), bytes, false)
    };
    (failed == 0).then_some(data)
}

unsafe extern "C" fn on_halt(core: c_uint, _: *mut c_void) {
    if let Some(state) = state().as_mut() {
        state.halt(core as usize);
        release(state);
    }
}

unsafe extern "C" fn on_pause(core: c_uint, _: *mut c_void) {
    if let Some(state) = state().as_mut() {
        state.pause(core as usize);
    }
}

unsafe extern "C" fn on_space(core: c_uint, _: *mut c_void) {
    if let Some(state) = state().as_mut() {
        state.space(core as usize);
    }
}

unsafe extern "C" fn on_memory(core: c_uint, info: api::MemoryInfo, address: u64, flags: *mut c_void) {
    let mut guard = state();
    let Some(state) = guard.as_mut() else { return };
    let (string, locked) = (flags as usize & STRING != 0, flags as usize & LOCKED != 0);
    // SAFETY: the access is the one that QEMU just told of.
    let (store, bytes, place) = unsafe {
        let place = api::qemu_plugin_get_hwaddr(info, address);
        if place.is_null() || api::qemu_plugin_hwaddr_is_io(place) {
            return;
        }
        let bytes = 1 << api::qemu_plugin_mem_size_shift(info);
        (api::qemu_plugin_mem_is_store(info), bytes, api::qemu_plugin_hwaddr_phys_addr(place))
    };
    // A locked instruction asks once, to write; the emulator shows its read first.
    let access = match (store, locked) {
        (true, true) => return,
        (false, false) => Access::Read,
        (false, true) => Access::Locked,
        (true, false) => Access::Write,
    };
    // The page after an access that crosses pages is elsewhere in memory.
    let bytes = bytes.min(abi::PAGE_BYTES - place % abi::PAGE_BYTES);
    state.memory(core as usize, place, bytes, access, string);
}

unsafe extern "C" fn on_mark(core: c_uint, _: api::MemoryInfo, address: u64, which: *mut c_void) {
    let mut guard = state();
    let Some(state) = guard.as_mut() else { return };
    let which = which as usize as u32 as i32;
    let Some(record) = read(core, address, size_of::<mark::Mark>()).and_then(|bytes| mark::Content::parse(&bytes))
    else {
        return complain("a mark without a record; lib/mark and tools/plugin are of different builds");
    };
    match which {
        kind::ARM | kind::BEGIN if !state.armed => arm(state, core),
        kind::ARM => {}
        kind::BEGIN => {
            state.begin(core as usize, counted(), record.name(), record.operations, record.every_core);
        }
        // Of a stretch that was not recorded.
        kind::END if !state.armed => {}
        kind::END => state.end(core as usize, counted()),
        kind::FINISH => write_report(state),
        _ => {
            let bytes = usize::try_from(record.operations).unwrap_or(usize::MAX).min(NAMES_BYTES_MAX);
            match read(core, record.address, bytes) {
                Some(text) => state.options.names.learn_kernel(&String::from_utf8_lossy(&text)),
                None => complain("the names of the guest's functions cannot be read"),
            }
        }
    }
}

fn arm(state: &mut State, core: c_uint) {
    state.arm();
    // SAFETY: the core exists. Both only ask: the translations go when this block is done.
    unsafe { api::tb_flush(api::qemu_get_cpu(core as c_int)) };
    yield_after(core);
}

fn write_report(state: &State) {
    let path = &state.options.out;
    let written = state.report().and_then(|text| std::fs::write(path, text).map_err(|error| error.to_string()));
    if let Err(error) = written {
        complain(&format!("cannot write {}: {error}", path.display()));
    }
}
