//! What is used of QEMU's plugin interface, version 1 (QEMU 7.2's include/qemu/qemu-plugin.h), declared by hand, since no header is installed.

use std::ffi::{c_int, c_uint, c_void};

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

/// `QEMU_PLUGIN_CB_NO_REGS`.
pub const NO_REGISTERS: c_int = 0;
/// `QEMU_PLUGIN_MEM_RW`. Asking for one kind alone is not reliable in 7.2.
pub const READ_WRITE: c_int = 3;

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
    pub fn qemu_plugin_register_vcpu_mem_cb(
        insn: *mut Insn,
        callback: OnMemory,
        flags: c_int,
        which: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Insn;
    pub fn qemu_plugin_insn_vaddr(insn: *const Insn) -> u64;
    pub fn qemu_plugin_mem_is_store(info: MemoryInfo) -> bool;
    pub fn qemu_plugin_mem_size_shift(info: MemoryInfo) -> c_uint;
    pub fn qemu_plugin_get_hwaddr(info: MemoryInfo, address: u64) -> *mut HardwareAddress;
    pub fn qemu_plugin_hwaddr_is_io(address: *const HardwareAddress) -> bool;
    pub fn qemu_plugin_hwaddr_phys_addr(address: *const HardwareAddress) -> u64;
}
