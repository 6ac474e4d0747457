//! What drivers of virtio devices have in common (virtio 1.2, sections 2.7, 4.1, 4.2): registers,
//! starting a device and going on with one that runs, a queue that a successor takes over; and the
//! ports of a console device (section 5.3) as a step machine.
//!
//! `registers.rs` is the only place that touches device registers, `device.rs` the only one that
//! makes calls. Deliberately unknown here: what the bytes of a port mean.

#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

pub mod desk;
pub mod device;
pub mod doorbell;
pub mod handler;
pub mod mmio;
pub mod pci;
pub mod pool_queue;
pub mod port;
pub mod ports;
pub mod registers;
pub mod stillness;
pub mod takeover;
#[cfg(not(target_os = "none"))]
pub mod testing;
pub mod transport;

pub use doorbell::Doorbell;
pub use transport::Transport;
