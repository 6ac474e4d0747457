//! Copies bytes that may change meanwhile, on processors without a string instruction.

/// Copies upwards.
///
/// # Safety
/// `from` must be readable and `to` writable for `bytes`.
pub unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) {
    for at in 0..bytes {
        // SAFETY: promised by the caller.
        unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) };
    }
}
