//! QEMU's plugin interface, version 1 (QEMU 7.2's include/qemu/qemu-plugin.h), and seven functions
//! of the emulator that are no part of it but that Debian's binary exports. Declared by hand, since
//! no header is installed. The host tool checks for all of them before it starts the emulator, so a
//! missing one is a clear line and not a loader's.

#![expect(missing_docs, reason = "fields and functions of qemu-plugin.h, under its names and with its meanings")]

use std::ffi::{c_char, c_int, c_uint, c_void};

/// A plugin's number.
pub type PluginId = u64;
/// Size and kind of an access, packed.
pub type MemoryInfo = u32;

/// Opaque.
#[repr(C)]
pub struct Block {
    _private: [u8; 0],
}

/// Opaque.
#[repr(C)]
pub struct Insn {
    _private: [u8; 0],
}

/// Opaque.
#[repr(C)]
pub struct HardwareAddress {
    _private: [u8; 0],
}

/// Opaque: QEMU's CPUState.
#[repr(C)]
pub struct Cpu {
    _private: [u8; 0],
}

/// `qemu_info_t`.
#[repr(C)]
pub struct Info {
    pub target_name: *const c_char,
    pub version_min: c_int,
    pub version_current: c_int,
    pub system_emulation: bool,
    pub cpus: c_int,
    pub cpus_max: c_int,
}

/// `QEMU_PLUGIN_CB_NO_REGS`.
pub const NO_REGISTERS: c_int = 0;
/// `QEMU_PLUGIN_MEM_RW`. Asking for reads alone does not fire for plain loads in 7.2.
pub const READ_WRITE: c_int = 3;
/// `QEMU_PLUGIN_INLINE_ADD_U64`.
pub const ADD: c_int = 0;
/// What `qemu_ram_addr_from_host` gives for what is no memory.
pub const NO_MEMORY: u64 = u64::MAX;

pub type OnTranslation = unsafe extern "C" fn(PluginId, *mut Block);
pub type OnExecution = unsafe extern "C" fn(c_uint, *mut c_void);
pub type OnMemory = unsafe extern "C" fn(c_uint, MemoryInfo, u64, *mut c_void);

unsafe extern "C" {
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(id: PluginId, callback: OnTranslation);
    pub fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut Block,
        callback: OnExecution,
        flags: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut Insn,
        callback: OnExecution,
        flags: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_insn_exec_inline(insn: *mut Insn, operation: c_int, at: *mut c_void, value: u64);
    pub fn qemu_plugin_register_vcpu_mem_cb(
        insn: *mut Insn,
        callback: OnMemory,
        flags: c_int,
        which: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Insn;
    pub fn qemu_plugin_insn_data(insn: *const Insn) -> *const c_void;
    pub fn qemu_plugin_insn_size(insn: *const Insn) -> usize;
    pub fn qemu_plugin_insn_vaddr(insn: *const Insn) -> u64;
    pub fn qemu_plugin_insn_haddr(insn: *const Insn) -> *mut c_void;
    pub fn qemu_plugin_mem_is_store(info: MemoryInfo) -> bool;
    pub fn qemu_plugin_mem_size_shift(info: MemoryInfo) -> c_uint;
    pub fn qemu_plugin_get_hwaddr(info: MemoryInfo, address: u64) -> *mut HardwareAddress;
    pub fn qemu_plugin_hwaddr_is_io(address: *const HardwareAddress) -> bool;
    pub fn qemu_plugin_hwaddr_phys_addr(address: *const HardwareAddress) -> u64;

    // No part of the interface:
    pub fn qemu_get_cpu(index: c_int) -> *mut Cpu;
    /// Asks a core to leave its loop after the block that it runs.
    pub fn cpu_exit(cpu: *mut Cpu);
    /// Asks the core that runs to leave its loop after the block that it runs, and not to run
    /// again.
    pub fn cpu_stop_current();
    /// Lets a core run again. Makes every core leave its loop.
    pub fn cpu_resume(cpu: *mut Cpu);
    /// Throws all translations away, at the next moment when that is safe.
    pub fn tb_flush(cpu: *mut Cpu);
    /// Reads guest memory by the core's present address space; not 0 if an address is not mapped.
    pub fn cpu_memory_rw_debug(cpu: *mut Cpu, address: u64, data: *mut c_void, bytes: usize, write: bool) -> c_int;
    /// From the emulator's address of guest memory to the guest's.
    pub fn qemu_ram_addr_from_host(address: *mut c_void) -> u64;
}
